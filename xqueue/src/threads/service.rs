//! A thread of the library's own. It is started when it is first needed, and the start is retried later if it
//! failed: a program may be at its limit of threads for a while.

use std::time::Duration;

use crate::sync::{Instant, JoinHandle, is_finished, now, spawn};

/// The time from a failed start to the next attempt.
const RETRY: Duration = Duration::from_millis(100);

/// The thread, or the time of the last failed start.
#[derive(Debug, Default)]
pub(crate) struct ServiceThread {
    thread: Option<JoinHandle<()>>,
    failed: Option<Instant>,
    reported: bool,
}

impl ServiceThread {
    /// Starts the thread unless it exists. Returns false if it cannot be started; the message `without` is
    /// logged once.
    pub(crate) fn start(
        &mut self,
        name: &str,
        without: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> bool {
        if self.is_there() {
            return true;
        }
        if self.failed.is_some_and(|failed| now().saturating_duration_since(failed) < RETRY) {
            return false;
        }
        match spawn(name, body) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.failed = Some(now());
                if !std::mem::replace(&mut self.reported, true) {
                    tracing::warn!(%error, "{without}");
                }
            }
        }
        self.is_there()
    }

    /// Returns true if the thread was started.
    pub(crate) fn is_there(&self) -> bool {
        self.thread.is_some()
    }

    /// Returns true if the thread runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !is_finished(thread))
    }

    pub(crate) fn take(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}
