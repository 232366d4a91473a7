//! The programs that cannot run on hip-cuda, with the reasons.

/// Programs that cannot run for the same reason.
#[derive(Debug)]
pub struct Omitted {
    /// Their names.
    pub programs: &'static [&'static str],
    /// The reason.
    pub reason: &'static str,
    /// The release of HIP from which on they run; `u32::MAX` if they never do.
    pub runs_from: u32,
}

const fn on_all(programs: &'static [&'static str], reason: &'static str) -> Omitted {
    Omitted { programs, reason, runs_from: u32::MAX }
}

/// All programs that cannot run. If a listed program passes, the test fails.
pub const OMITTED: &[Omitted] = &[
    on_all(
        &["kernels", "error_launch_bounds"],
        "expects that the simulated GPU does not run an unknown kernel; hip-cuda runs every kernel",
    ),
    on_all(
        &["held", "kfd_bad_arguments", "kfd_ioctls", "kfd_touch", "update_queue"],
        "is about AMD's kernel driver, which an NVIDIA GPU does not have",
    ),
    on_all(
        &["hsa_packets", "packets_seen", "profiler", "smi"],
        "uses ROCr, AMD's profiler interface or AMD's part of sysfs beside HIP",
    ),
    on_all(&["local_memory"], "expects the local memory of a gfx950, which only the simulated GPU has"),
    on_all(
        &["partitions", "multi_gpu"],
        "uses HIP_VISIBLE_DEVICES or partitions of a device, which only AMD's runtime knows",
    ),
    on_all(
        &["graph_memory", "oom_given_back", "virtual_memory"],
        "calls functions that are not implemented: arrays, virtual memory, and memory nodes of graphs",
    ),
    on_all(
        &["life_atexit", "life_static"],
        "calls HIP after main has returned, when the CUDA driver has shut down",
    ),
    on_all(&["life_exec_clean"], "starts itself without the variables by which hip-cuda finds its driver"),
    Omitted {
        runs_from: 6,
        ..on_all(
            &["query_behind_whole"],
            "expects that rows are copied between pageable memory without a wait, as only HIP 5.2 does",
        )
    },
    on_all(
        &["pool_follows"],
        "expects that a pool follows events; those of lab/cuda-cpu hand out what is known to be free",
    ),
    on_all(&["vram"], "fills one device's memory from two processes; lab/cuda-cpu gives each its own memory"),
];
