//! What clients tell the policies, as a workload's file says it.

use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use serde::Deserialize;
use std::num::{NonZeroU32, NonZeroU64};

/// What is said of each queue of a client, besides its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hints {
    /// Its share of the device relative to the others, percent.
    pub utilization: Option<Utilization>,
    /// Microseconds from the moment it turns ready to the time by which its work should be done.
    pub deadline_us: Option<NonZeroU64>,
    /// When it turns critical.
    pub laxity: Option<Laxity>,
    /// Whether it may be suspended while it has work; it may, if nothing is said.
    pub preemptible: Option<bool>,
}

/// Which priority a queue has before and after it turns critical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Laxity {
    /// Microseconds from the moment it turns ready until it is critical.
    pub us: u64,
    /// Until then.
    pub lax: Priority,
    /// From then on, until it is idle.
    pub critical: Priority,
}

/// What is said of a client's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Its share of the devices relative to other processes, percent.
    pub utilization: Option<Utilization>,
    /// The slice that it asks for, microseconds.
    pub timeslice_us: Option<Timeslice>,
    /// How many of the earliest deadlines may run at once.
    pub k_deadline: Option<NonZeroU32>,
    /// Whether it owns the window that the user works in.
    pub window: bool,
    /// Which job it belongs to.
    pub job: Option<NonZeroU64>,
    /// The most that it gets of its devices, percent.
    pub cap: Option<Cap>,
    /// Its nice value on the processor, -20 (most urgent) to 19.
    pub nice: i8,
}

impl Process {
    /// Whether the numbers make sense; if not, what is wrong with them.
    ///
    /// # Errors
    /// A number is outside its range.
    pub fn check(&self) -> Result<(), String> {
        match self.nice {
            -20..=19 => Ok(()),
            nice => Err(format!("nice = {nice} is not in -20..19")),
        }
    }
}

/// A client says, when it begins to prepare a request, when the first launch will come.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announce {
    /// By how much it is wrong at most, microseconds; every error up to this, to either side, is as likely.
    #[serde(default)]
    pub error_us: f64,
    /// How many requests it does not announce, 0 to 1.
    #[serde(default)]
    pub missing: f64,
}

impl Announce {
    /// Whether the numbers make sense; if not, what is wrong with them.
    ///
    /// # Errors
    /// A number is outside its range.
    pub fn check(&self) -> Result<(), String> {
        for (name, value, most) in [("error_us", self.error_us, 1e6), ("missing", self.missing, 1.0)] {
            if !(0.0..=most).contains(&value) {
                return Err(format!("{name} = {value} is not in 0..{most}"));
            }
        }
        Ok(())
    }
}
