//! Hints of clients to the policies, as in a workload's file.

use crate::{WrongInput, ensure_in};
use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use serde::Deserialize;
use std::num::{NonZeroU32, NonZeroU64};

/// The hints for each queue of a client, besides its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hints {
    /// The share of the device relative to other queues, percent.
    pub utilization: Option<Utilization>,
    /// Microseconds from the moment it turns ready to the deadline of its work.
    pub deadline_us: Option<NonZeroU64>,
    /// The time after which it turns critical.
    pub laxity: Option<Laxity>,
    /// True if it may be suspended while it has work, which is the default.
    pub preemptible: Option<bool>,
}

/// The priorities of a queue before and after it turns critical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Laxity {
    /// Microseconds from the moment it turns ready until it turns critical.
    pub us: u64,
    /// The priority until then.
    pub lax: Priority,
    /// The priority from then on, until it is idle.
    pub critical: Priority,
}

/// The hints for a client's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// The share of the devices relative to other processes, percent.
    pub utilization: Option<Utilization>,
    /// The requested slice, microseconds.
    pub timeslice_us: Option<Timeslice>,
    /// The number of earliest deadlines that may run at once.
    pub k_deadline: Option<NonZeroU32>,
    /// True if it owns the window that the user works in.
    pub window: bool,
    /// The job to which it belongs.
    pub job: Option<NonZeroU64>,
    /// The cap on its share of its devices, percent.
    pub cap: Option<Cap>,
    /// Its nice value on the processor, -20 (most urgent) to 19.
    pub nice: i8,
}

impl Process {
    pub fn check(&self) -> Result<(), WrongInput> {
        ensure_in("nice", self.nice, -20, 19)
    }
}

/// The announcements of a client, which predicts the first launch of a request when it begins to prepare it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announce {
    /// The largest error, microseconds; errors are uniform to either side.
    #[serde(default)]
    pub error_us: f64,
    /// The share of requests that it does not announce, 0 to 1.
    #[serde(default)]
    pub missing: f64,
}

impl Announce {
    pub fn check(&self) -> Result<(), WrongInput> {
        ensure_in("error_us", self.error_us, 0.0, 1e6)?;
        ensure_in("missing", self.missing, 0.0, 1.0)
    }
}
