//! The programs that cannot run on hip-cuda, with the reason.

/// Programs that one reason keeps away.
#[derive(Debug)]
pub struct Omitted {
    /// Their names.
    pub programs: &'static [&'static str],
    /// The reason.
    pub reason: &'static str,
}

/// All of them. A listed program that passes is a failure.
pub const OMITTED: &[Omitted] = &[
    Omitted {
        programs: &["kernels", "error_launch_bounds"],
        reason: "expects memory as the simulated GPU leaves it under a kernel that it does not know; here every kernel runs",
    },
    Omitted {
        programs: &["held", "kfd_bad_arguments", "kfd_ioctls", "kfd_touch", "update_queue"],
        reason: "is about AMD's kernel driver, which an NVIDIA GPU does not have",
    },
    Omitted {
        programs: &["hsa_packets", "packets_seen", "profiler", "smi"],
        reason: "uses ROCr, AMD's profiler interface or AMD's part of sysfs beside HIP",
    },
    Omitted {
        programs: &["partitions", "multi_gpu"],
        reason: "uses HIP_VISIBLE_DEVICES or partitions of a device, which only AMD's runtime knows",
    },
    Omitted {
        programs: &["copy_shapes", "error_handles", "managed", "oom_given_back", "virtual_memory"],
        reason: "calls functions that are not implemented: arrays, hipDrvMemcpy3D, ranges and virtual memory",
    },
    Omitted {
        programs: &["life_atexit", "life_static"],
        reason: "works after main has returned, when the CUDA driver has ended for the thread or the process",
    },
    Omitted {
        programs: &["life_exec_clean"],
        reason: "starts itself without the variables by which hip-cuda finds its driver",
    },
    Omitted {
        programs: &["query_behind_whole"],
        reason: "queries, inside a callback, the callback's own stream, which CUDA takes for busy and AMD for idle",
    },
    Omitted {
        programs: &["vram"],
        reason: "fills a device's memory by two processes; each process of the stand-in has memory of its own",
    },
];
