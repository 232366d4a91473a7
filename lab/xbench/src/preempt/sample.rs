//! The parameters and the results of a run.

use crate::simulated::DeviceStats;
use serde::{Deserialize, Serialize};

/// The level of a setting without a low program.
pub(super) const ALONE: u8 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setting {
    /// The preemption level that is requested, or [`ALONE`].
    pub(super) level: u8,
    /// The modelled cost of saving; `None` on a real GPU.
    pub(super) save_us: Option<u32>,
    pub(super) kernel_us: u32,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.level {
            ALONE => write!(f, "alone, as beside kernels of {} µs", self.kernel_us)?,
            level => write!(f, "level {level}, kernels of {} µs", self.kernel_us)?,
        }
        self.save_us.map_or(Ok(()), |save| write!(f, ", save cost {save} µs"))
    }
}

/// The results of the urgent program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The level in force in the low program.
    pub(super) in_force: i32,
    /// The mechanism, or the reason why the level is lower than the requested one.
    pub(super) how: String,
    pub(super) samples: Vec<Sample>,
}

/// One arrival; microseconds from before the launch call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) to_started_us: f64,
    pub(super) to_stopped_us: f64,
    /// `None` without an eviction, or if the library waited first.
    pub(super) software_us: Option<f64>,
    /// True if the low program's queues were evicted for it.
    pub(super) held: bool,
    /// True if waiting was expected to cost less.
    pub(super) waited: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) record: Record,
    /// The statistics of the simulated device; `None` on a real GPU.
    pub(super) device: Option<DeviceStats>,
}
