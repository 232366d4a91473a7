//! The programs that cannot run on hip-cuda, with the reasons.

/// Programs that cannot run for the same reason.
#[derive(Debug)]
pub struct Omitted {
    /// Their names.
    pub programs: &'static [&'static str],
    /// The reason.
    pub reason: &'static str,
}

/// All programs that cannot run. If a listed program passes, the test fails.
pub const OMITTED: &[Omitted] = &[
    Omitted {
        programs: &["kernels", "error_launch_bounds"],
        reason: "expects that the simulated GPU does not run an unknown kernel; hip-cuda runs every kernel",
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
        programs: &["oom_given_back", "virtual_memory"],
        reason: "calls functions that are not implemented: arrays and virtual memory",
    },
    Omitted {
        programs: &["life_atexit", "life_static"],
        reason: "calls HIP after main has returned, when the CUDA driver has shut down",
    },
    Omitted {
        programs: &["life_exec_clean"],
        reason: "starts itself without the variables by which hip-cuda finds its driver",
    },
    Omitted {
        programs: &["query_behind_whole"],
        reason: "queries the callback's own stream inside a callback; CUDA reports it as busy, AMD as idle",
    },
    Omitted {
        programs: &["vram"],
        reason: "fills one device's memory from two processes; lab/cuda-cpu gives each its own memory",
    },
];
