//! What `xbench card` measures for `xcli report`, as it goes from the one to the other and into the report's file.
//!
//! Times say their unit in their names. Nothing here names a machine, a user, a file or a process.

use serde::{Deserialize, Serialize};

/// Some figures of a set of samples, each of which was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// How many samples there are, at least one.
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

/// What HIP says of itself and of the devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// `hipRuntimeGetVersion`.
    pub runtime_version: i64,
    /// In HIP's order.
    pub devices: Vec<Device>,
}

/// A device as HIP shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The product's name; empty where the runtime has none.
    pub name: String,
    /// The target with its features, such as `gfx90a:sramecc+:xnack-`.
    pub arch: String,
    /// Compute units.
    pub compute_units: u64,
    /// Bytes.
    pub memory: u64,
}

/// How much may be in flight, what that costs, and how long a suspension at level 1 takes with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// One for each length of kernels and threshold.
    pub rows: Vec<WindowRow>,
}

/// One setting of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowRow {
    /// How long each kernel takes, as it is told.
    pub kernel_us: u64,
    /// Most commands in flight; nothing for the window that adapts itself.
    pub threshold: Option<u64>,
    /// Commands between two marks; nothing likewise.
    pub batch: Option<u64>,
    /// Kernels a second, back to back.
    pub kernels_per_s: f64,
    /// The same without the library.
    pub native_kernels_per_s: f64,
    /// From the suspension to the end of the last kernel that was in flight; 0 if none ended after it.
    pub idle_us: Spread,
    /// Kernels that ended after the suspension.
    pub in_flight: Spread,
}

/// What taking queues off the hardware takes, for each mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holds {
    /// In the order in which they were tried.
    pub mechanisms: Vec<HoldRow>,
}

/// One mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRow {
    /// Its name, as `XSCHED_KFD_MECHANISM` has it.
    pub mechanism: String,
    /// Why it was not tried, was refused, or what went wrong.
    pub error: Option<String>,
    /// Compute queues that were held together.
    pub queues: u64,
    /// What the library's own probe has measured on the first queue of a device, medians.
    pub probe: Option<Probe>,
    /// Of queues without work.
    pub idle: Option<HoldTimes>,
    /// Of queues of which one runs a kernel that fills the device.
    pub busy: Option<HoldTimes>,
    /// How long that kernel takes.
    pub busy_kernel_us: u64,
    /// Holds that came while the kernel ran, after which it did not end until it was released.
    pub stood: u64,
    /// Holds that came while the kernel ran.
    pub interrupted: u64,
    /// Holds of all queues that were made, whether they count above or not.
    pub holds: u64,
}

/// What the library's probe says, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Median of a hold.
    pub hold_us: u64,
    /// Median of a release.
    pub release_us: u64,
}

/// How long the calls took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldTimes {
    /// Holds.
    pub hold_us: Spread,
    /// Releases.
    pub release_us: Spread,
}

/// Whether programs leave the same in memory whatever the library does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conformance {
    /// One for each mode.
    pub modes: Vec<Mode>,
}

/// All programs in one mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    /// `native`, `forward`, `queues`, `defer`, `chaos:1`, `hold`.
    pub name: String,
    /// Whether every program passed and the mode did what it is there for.
    pub passed: bool,
    /// Why it did not, if that is not a program's fault: it could not be run, or nothing was deferred, suspended or held.
    pub error: Option<String>,
    /// Each program.
    pub programs: Vec<Program>,
    /// How often the programs were run, one after the other.
    pub rounds: u64,
    /// Launches that went at once; nothing without queues, like the next two.
    pub direct: Option<u64>,
    /// Commands that were deferred.
    pub deferred: Option<u64>,
    /// Suspensions at level 1.
    pub suspensions: Option<u64>,
    /// How often the process was taken off the hardware.
    pub holds: u64,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What it is about.
    pub name: String,
    /// What memory held that it should not, or which call failed.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nothing_else() {
        let program = Program { name: "copies".to_owned(), error: None };
        let text = serde_json::to_string(&program).unwrap();
        assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), program);
        assert!(serde_json::from_str::<Program>(r#"{"name": "x", "error": null, "host": "y"}"#).is_err());
        let spread = Spread { n: 3, min: 0.5, p50: 1.0, p90: 2.25, max: 2.25 };
        let text = serde_json::to_string(&spread).unwrap();
        assert_eq!(serde_json::from_str::<Spread>(&text).unwrap(), spread);
    }
}
