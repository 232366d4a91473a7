//! Times of one queue: since when it is ready, idle or suspended.

use std::time::Duration;

use crate::state::prelude::Preludes;
use crate::state::ready::BriefRule;
use crate::sync::{Instant, now};

/// The times of one queue, behind a lock that is held for a moment only.
#[derive(Debug, Default)]
pub(crate) struct Accounting {
    suspended_since: Option<Instant>,
    suspended: Duration,
    suspensions: u64,
    pub(crate) ready_since: Option<Instant>,
    /// Brief spells of work do not count.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) brief: BriefRule,
    /// The time for which the last brief command did not count, if it was brief by what is learnt.
    pub(crate) learnt_grace: Option<Duration>,
    pub(crate) preludes: Preludes,
}

impl Accounting {
    /// Returns the number of suspensions and their total time.
    pub(crate) fn suspended(&self) -> (u64, Duration) {
        let open =
            self.suspended_since.map_or(Duration::ZERO, |since| now().saturating_duration_since(since));
        (self.suspensions, self.suspended + open)
    }

    /// Notes that the queue is suspended now, or is not. Returns true if it is, or was until now.
    pub(crate) fn note(&mut self, suspended: bool) -> bool {
        let was = self.suspended_since.is_some();
        match (suspended, self.suspended_since) {
            (true, None) => {
                self.suspended_since = Some(now());
                self.suspensions += 1;
            }
            (false, Some(since)) => {
                self.suspended += now().saturating_duration_since(since);
                self.suspended_since = None;
            }
            _ => {}
        }
        suspended || was
    }
}
