//! The part of the time in which a client was suspended, and the device's work for others meanwhile.

use protocol::control::Waiting;
use protocol::time::Time;

/// The sums of one client, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// The time of the first step with this client.
    pub since: Option<Time>,
    pub suspended: u64,
    pub others_had_work: u64,
    pub others_worked: u64,
    /// True if it had work and was suspended after the last step.
    pub waits: bool,
    /// True if it was permitted to run after the last step.
    pub runs: bool,
    /// True if there is nothing to add for its queues before one of them changes: they are idle, and all that the device has
    /// done for them is added.
    pub rests: bool,
}

/// A queue after the last step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub ready: bool,
    /// The time for which the device had worked for it, as its page says.
    pub worked_ns: u64,
    /// The time at which that was read, or last changed.
    pub changed: Time,
}

/// The work on the devices of one contest since the last step, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub had_work: u64,
    pub worked: u64,
}

impl Sums {
    /// Returns the sums for a list. Parts are never longer than the whole, whatever the pages say.
    pub fn show(&self, now: Time) -> Waiting {
        let connected_ns = nanos(self.since.unwrap_or(now), now);
        let suspended_ns = self.suspended.min(connected_ns);
        let others_had_work_ns = self.others_had_work.min(suspended_ns);
        let others_worked_ns = Some(self.others_worked.min(others_had_work_ns)).filter(|worked| *worked != 0);
        Waiting { connected_ns, suspended_ns, others_had_work_ns, others_worked_ns }
    }
}

/// The nanoseconds from one time to another; 0 if that is earlier.
pub(super) fn nanos(from: Time, until: Time) -> u64 {
    until.0.saturating_sub(from.0)
}
