//! A thread of the library's own that is made when it is first needed, and again later where none could be made: a program
//! may have as many as it is allowed to have, for a while.

use std::time::Duration;

use crate::sync::{Instant, JoinHandle, is_finished, now, spawn};

/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// The thread, or when it was last tried in vain to make it.
#[derive(Debug)]
pub(crate) struct Helper {
    thread: Option<JoinHandle<()>>,
    failed: Option<Instant>,
    said: bool,
}

impl Helper {
    pub(crate) fn new() -> Self {
        Self { thread: None, failed: None, said: false }
    }

    /// Makes the thread if there is none. False: there is none, and `without` was said once.
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
                if !std::mem::replace(&mut self.said, true) {
                    tracing::warn!(%error, "{without}");
                }
            }
        }
        self.is_there()
    }

    /// Whether it was made.
    pub(crate) fn is_there(&self) -> bool {
        self.thread.is_some()
    }

    /// Whether it runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !is_finished(thread))
    }

    pub(crate) fn take(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}
