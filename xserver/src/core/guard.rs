//! The state of the progress guard (see [`progress`](super::progress)).

use protocol::page::HEARTBEAT;
use protocol::time::Time;
use std::time::Duration;

/// The time that a client waits before the progress of its rivals is watched.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// The interval at which completion counts are read.
pub const SAMPLE: Duration = Duration::from_millis(25);
/// The time without a completion after which a client is stalled.
pub const STALL: Duration = HEARTBEAT;
/// The time for which all clients run then.
pub const TOGETHER: Duration = Duration::from_millis(20);
/// The longest time for which a client's claim is believed that a command of known length still runs.
pub const BELIEF: Duration = Duration::from_secs(10);

/// The progress of a client for which others wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The time of the last change, or of the begin of the watch.
    pub at: Time,
    pub completed: u64,
}

impl Progress {
    pub fn is_stalled(&self, now: Time) -> bool {
        now >= self.at.after(STALL)
    }
}

/// The guard, which lets all clients run briefly if the running ones make no progress.
#[derive(Debug)]
pub(super) struct Guard {
    pub enabled: bool,
    pub until: Option<Time>,
    pub runs: u64,
    pub sampled: Time,
}

impl Guard {
    pub fn new(enabled: bool) -> Self {
        Self { enabled, until: None, runs: 0, sampled: Time::default() }
    }

    pub fn is_active(&self) -> bool {
        self.until.is_some()
    }
}
