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
    /// All evictions, including those that do not count above.
    pub holds: u64,
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
