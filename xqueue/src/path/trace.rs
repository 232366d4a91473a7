//! Events for a trace. They are told to the observer while the domain is traced; otherwise a launch only reads a flag.

use crate::hw::{How, Subject, Traced};
use crate::state::queue::XQueue;
use crate::sync::Ordering;

impl XQueue {
    /// Returns the observer's time if the domain is traced. Called before a launch, so that the trace has its begin.
    #[inline]
    pub(crate) fn traced_at(&self) -> Option<u64> {
        // A launch that just begins or ends to be traced can be missed or told.
        self.core.traced.load(Ordering::Relaxed).then(|| self.core.observer.traced_at())
    }

    /// Tells the observer about an event.
    pub(crate) fn trace(&self, at: u64, event: Traced) {
        self.core.observer.traced(at, self.id, event);
    }

    /// Tells the observer about a launch, which is counted.
    #[cold]
    pub(crate) fn trace_launch(&self, at: u64, how: How, subject: Subject) {
        self.trace(at, Traced::Launched { how, number: self.hot.flight.launched(), subject });
    }

    /// Tells the observer how many launches have completed, if it does not know.
    pub(crate) fn trace_completed(&self) {
        if let Some(at) = self.traced_at() {
            let number = self.hot.flight.completed();
            if self.traced_completed.fetch_max(number, Ordering::Relaxed) < number {
                self.trace(at, Traced::Completed { number });
            }
        }
    }
}
