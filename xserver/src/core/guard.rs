//! The state of the progress guard (see [`progress`](super::progress)).

use super::client_page::ClientPage;
use protocol::page::HEARTBEAT;
use protocol::time::Time;
use std::time::Duration;

/// The time that a client waits before the progress of its rivals is watched.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// The interval at which the counts of progress are read.
pub const SAMPLE: Duration = Duration::from_millis(25);
/// The time without progress after which a client is stalled.
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
    counted: Counted,
}

/// The number of commands that a client has completed, and the number of packets that its devices have taken.
type Counted = (u64, u64);

impl Progress {
    /// Begins the watch of a client.
    pub fn begin(now: Time, page: &impl ClientPage) -> Self {
        Self { at: now, counted: Self::counted(page) }
    }

    /// Reads the counts again, and notes a change. `anew`: the watch begins again.
    pub fn update(&mut self, now: Time, page: &impl ClientPage, anew: bool) {
        let counted = Self::counted(page);
        if anew || counted != self.counted {
            *self = Self { at: now, counted };
        }
    }

    fn counted(page: &impl ClientPage) -> Counted {
        (page.completed(), page.taken())
    }

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
