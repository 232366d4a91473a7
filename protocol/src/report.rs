//! The results of `xbench card` for `xcli report`, as the first prints them and the second writes them into
//! the report's file.
//!
//! The names of times contain their units. The results name no machine, user, file or process.

use serde::{Deserialize, Serialize};

/// Statistics of a set of samples, each of which was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Number of samples, at least one.
    pub n: u64,
    /// The smallest.
    pub min: f64,
    /// The median, by nearest rank.
    pub p50: f64,
    /// The 90th percentile, by nearest rank.
    pub p90: f64,
    /// The largest.
    pub max: f64,
}

/// HIP's description of itself and of the devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// `hipRuntimeGetVersion`.
    pub runtime_version: i64,
    /// Devices in HIP's order.
    pub devices: Vec<Device>,
}

/// A device as HIP shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Name of the product; empty where the runtime has none.
    pub name: String,
    /// The target with its features, such as `gfx90a:sramecc+:xnack-`.
    pub arch: String,
    /// Compute units.
    pub compute_units: u64,
    /// Bytes of memory.
    pub memory: u64,
}

/// The launch window: its settings, their cost, and the duration of a suspension at level 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// One row for each combination of kernel duration and threshold.
    pub rows: Vec<WindowRow>,
    /// Kernel durations without rows, microseconds: this machine takes longer to launch such a kernel than the kernel runs, so nothing
    /// waits behind a window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<u64>,
}

/// One setting of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowRow {
    /// Requested duration of each kernel.
    pub kernel_us: u64,
    /// Most commands in flight; `None` for the adaptive window.
    pub threshold: Option<u64>,
    /// Commands between two markers; `None` for the adaptive window.
    pub batch: Option<u64>,
    /// Kernels a second, back to back.
    pub kernels_per_s: f64,
    /// Kernels a second without the library.
    pub native_kernels_per_s: f64,
    /// Time from the suspension to the end of the last kernel in flight; 0 if none ended after it.
    pub idle_us: Spread,
    /// Kernels that ended after the suspension.
    pub in_flight: Spread,
}

/// Durations of kernels beside another program, for several priorities of the hardware queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueuePriority {
    /// Duration of each kernel, which fills the device alone.
    pub kernel_us: u64,
    /// Duration of each kernel of the other program, which fills the device eight times.
    pub other_kernel_us: u64,
    /// One row for each place of the queues. `first` is missing if the library does not change the priority: the driver
    /// does not save running waves, or refuses it.
    pub rows: Vec<PriorityRow>,
}

/// Kernels with queues of one priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorityRow {
    /// `alone`, `equal` or `first`: without the other program, with the same priority as its queues, or with a higher
    /// one.
    pub place: String,
    /// Time from the launch of a kernel to the end of the wait for it.
    pub took_us: Spread,
    /// Kernels of the other program a second; `None` without it.
    pub other_kernels_per_s: Option<f64>,
}

/// The duration of evictions, for each mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holds {
    /// Mechanisms in the order of the trials.
    pub mechanisms: Vec<EvictionRow>,
}

/// The results of one mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictionRow {
    /// Name, as in `XSCHED_KFD_MECHANISM`.
    pub mechanism: String,
    /// The reason why the mechanism was not tried or was refused, or the failure.
    pub error: Option<String>,
    /// Compute queues that were evicted together.
    pub queues: u64,
    /// Medians of the library's own probe on the first queue of a device.
    pub probe: Option<Probe>,
    /// Times for queues without work.
    pub idle: Option<EvictionTimes>,
    /// Times for queues of which one runs a kernel that fills the device.
    pub busy: Option<EvictionTimes>,
    /// Duration of that kernel.
    pub busy_kernel_us: u64,
    /// Evictions while the kernel ran, after which it did not end before the restore.
    pub stood: u64,
    /// Evictions while the kernel ran.
    pub interrupted: u64,
    /// Evictions of kernels that keep words in registers and local memory, one row for each kernel.
    pub occupied: Vec<OccupiedRow>,
    /// All evictions, including those that do not count above.
    pub holds: u64,
}

/// Evictions while a kernel that keeps words in registers and local memory fills the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OccupiedRow {
    /// `keep_few` or `keep_many`, as in `examples/kernels/giveway_kernels.h`.
    pub kernel: String,
    /// Registers of a work-item, 32 bits each, as the runtime has them (`numRegs`); `None` if it does not say.
    pub registers: Option<u64>,
    /// Bytes of local memory of a work-group.
    pub local_bytes: u64,
    /// Work-groups, which fill the device once.
    pub groups: u64,
    /// Work-items of a work-group.
    pub group_size: u64,
    /// Duration of the kernel.
    pub kernel_us: u64,
    /// Times of the evictions while the kernel ran; `None` without any.
    pub times: Option<EvictionTimes>,
    /// Evictions while the kernel ran.
    pub interrupted: u64,
    /// Those of them after which the kernel did not end before the restore.
    pub stood: u64,
    /// Results of work-items that were compared, each a digest of what the work-item had kept over the eviction.
    pub compared: u64,
    /// Those of them that differ from the host's computation.
    pub wrong: u64,
}

/// Durations of a kernel on streams with a mask of compute units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitMasks {
    /// Duration of the kernel, which fills the device once.
    pub kernel_us: u64,
    /// The reason why no stream has a mask: HIP lacks the function, or it or the driver refuses. Then there are no rows.
    pub refused: Option<String>,
    /// One row for each mask.
    pub rows: Vec<UnitMaskRow>,
}

/// Kernels on a stream with one mask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitMaskRow {
    /// Units of the mask; `None` for a stream without a mask.
    pub units: Option<u64>,
    /// Units of the stream's mask as HIP returns it; `None` if it does not.
    pub set: Option<u64>,
    /// Time from the launch of a kernel to the end of the wait for it.
    pub took_us: Spread,
    /// The median of that over the median without a mask.
    pub ratio: f64,
}

/// Two recorded models on one GPU, without and with giveway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corun {
    /// The urgent model and its requests per second, such as `bert bs8@10`.
    pub high: String,
    /// The batch model, which runs back to back.
    pub low: String,
    /// Runs of each mode.
    pub blocks: u64,
    /// Seconds in which requests arrive, in each run.
    pub seconds: f64,
    /// False if kernels took longer than they are told to take after a run: then another program used the GPU, and the figures
    /// are not reliable.
    pub undisturbed: bool,
    /// The urgent model alone.
    pub alone: CorunMode,
    /// Both without giveway.
    pub native: CorunMode,
    /// Inferences of the batch model alone, a second.
    pub low_alone_per_s: f64,
    /// Both with giveway, one row for each preemption level of the batch model.
    pub levels: Vec<CorunLevel>,
}

/// The urgent model's latency and the batch model's rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorunMode {
    /// Requests of the urgent model.
    pub requests: u64,
    /// Median latency, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the latency, milliseconds.
    pub p99_ms: f64,
    /// Inferences of the batch model a second; 0 where it does not run.
    pub low_per_s: f64,
}

/// Both models with giveway at one preemption level of the batch model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorunLevel {
    /// The requested level.
    pub level: u8,
    /// The level in force.
    pub in_force: i64,
    /// The reason why the level was not used; `None` if it was.
    pub missing: Option<String>,
    /// Suspensions of queues, both models.
    pub suspensions: u64,
    /// Suspensions in which queues of the batch model were evicted from the hardware.
    pub holds: u64,
    /// The last measured time of an eviction, microseconds; `None` without any.
    pub hold_us: Option<f64>,
    /// The last measured time of a restore, microseconds; `None` without any.
    pub release_us: Option<f64>,
    /// The latency and the rate.
    pub mode: CorunMode,
}

/// The results of the library's probe, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Median of an eviction.
    pub hold_us: u64,
    /// Median of a restore.
    pub release_us: u64,
}

/// The duration of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictionTimes {
    /// Evictions.
    pub hold_us: Spread,
    /// Restores.
    pub release_us: Spread,
}

/// The check that programs leave the same results in memory in every mode of the library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conformance {
    /// One row for each mode.
    pub modes: Vec<Mode>,
}

/// The results of all programs in one mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// `native`, `forward`, `queues`, `defer`, `chaos:1`, `hold`.
    pub name: String,
    /// True if every program passed and the mode did what it is meant to do.
    pub passed: bool,
    /// The reason of a failure that is not a program's: a program did not start, or nothing was deferred,
    /// suspended or evicted.
    pub error: Option<String>,
    /// The programs.
    pub programs: Vec<Program>,
    /// Number of rounds of all programs.
    pub rounds: u64,
    /// Direct launches; `None` without queues, like the next two.
    pub direct: Option<u64>,
    /// Deferred commands.
    pub deferred: Option<u64>,
    /// Suspensions at level 1.
    pub suspensions: Option<u64>,
    /// Number of evictions of the process.
    pub holds: u64,
}

/// The result of one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Subject of the program.
    pub name: String,
    /// The wrong contents of memory, or the call that failed.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_read_back_is_the_same_and_unknown_fields_are_refused() {
        let program = Program { name: "copies".to_owned(), error: None };
        let text = serde_json::to_string(&program).unwrap();
        assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
        assert!(serde_json::from_str::<Program>(r#"{"name": "x", "error": null, "host": "y"}"#).is_err());
        let spread = Spread { n: 3, min: 0.5, p50: 1.0, p90: 2.25, max: 2.25 };
        let text = serde_json::to_string(&spread).unwrap();
        assert_eq!(serde_json::from_str::<Spread>(&text).unwrap(), spread);
    }
}
