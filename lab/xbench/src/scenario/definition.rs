//! The definition of a scenario.

use crate::experiment::Program;

/// Programs that run at the same time, and the limits of policies for them.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) programs: Vec<Program>,
    /// The policies of the scenario, with their parameters.
    pub(super) policies: &'static [&'static str],
    /// The time in which requests arrive.
    pub(super) seconds: f64,
    pub(super) checks: &'static [Check],
}

/// A limit for a policy. "Alone" is the program by itself on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Check {
    /// The highest median of a program's latency over that alone.
    P50OverAlone(&'static str, f64),
    /// The highest 99th percentile of a program's latency over that alone.
    P99OverAlone(&'static str, f64),
    /// The highest 99th percentile in milliseconds.
    P99(&'static str, f64),
    /// The smallest rate over that alone.
    Keeps(&'static str, f64),
    /// The smallest work of all programs but the second together, over what the first does alone in the device
    /// time that the second leaves in this mode.
    KeepsOfRest(&'static str, &'static str, f64),
    /// The share of the device time of all programs, and its tolerance.
    Share(&'static str, f64, f64),
    /// The smallest device time of all programs over that without giveway.
    Total(f64),
    /// The smallest device time of all programs over that of this one alone. Programs that take turns do not
    /// fill the gaps between two kernels of another.
    TotalOverAlone(&'static str, f64),
    /// The first program's 99th percentile over that alone is at most that of the second.
    Before(&'static str, &'static str),
}
