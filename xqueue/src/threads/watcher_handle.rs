//! The handle of the watcher thread: its state as other threads see it. Knows nothing of queues.

use crate::config::nanos;
use crate::state::lease::UNRESPONSIVE_AFTER;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Signal};
use crate::threads::service::ServiceThread;

#[derive(Debug)]
pub(crate) struct WatcherHandle {
    enabled: bool,
    /// True while the thread checks regularly; false while it sleeps and has to be woken.
    pub(crate) awake: AtomicBool,
    /// True if the thread's present pause is its shortest one.
    pub(crate) is_quick: AtomicBool,
    /// True if the thread could not be started.
    missing: AtomicBool,
    /// The time of the thread's last check or wake-up ([`crate::state::lease::Epoch`]).
    pub(crate) checked: AtomicU64,
    pub(crate) signal: Signal,
    thread: Mutex<ServiceThread>,
}

impl WatcherHandle {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled: enabled && !cfg!(loom),
            awake: AtomicBool::new(false),
            is_quick: AtomicBool::new(false),
            missing: AtomicBool::new(false),
            checked: AtomicU64::new(0),
            signal: Signal::new(),
            thread: Mutex::new(ServiceThread::default()),
        }
    }

    /// Returns true if the watcher thread, and not the caller, is to check for completion.
    pub(crate) fn is_running(&self) -> bool {
        self.enabled && !self.missing.load(Ordering::Relaxed)
    }

    /// Returns true if the thread cannot be started or has stopped responding.
    pub(crate) fn is_absent(&self, at: u64) -> bool {
        self.missing.load(Ordering::Relaxed)
            || self.awake.load(Ordering::SeqCst)
                && at.saturating_sub(self.checked.load(Ordering::Relaxed)) > nanos(UNRESPONSIVE_AFTER)
    }

    /// Makes the watcher check from now on: a queue has turned ready. `at` reads the time; `start` starts the
    /// thread, or returns whether it exists.
    ///
    /// The watcher clears `awake` before it checks that nothing is ready and sleeps. Both sides are
    /// sequentially consistent, so one of them sees the other.
    pub(crate) fn arm(&self, at: impl FnOnce() -> u64, start: impl FnOnce(&mut ServiceThread) -> bool) {
        if !self.enabled || self.awake.load(Ordering::SeqCst) {
            return;
        }
        // Before it counts as awake, so that it does not count as unresponsive.
        self.checked.fetch_max(at(), Ordering::SeqCst);
        if self.awake.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut thread = self.thread.lock();
        let there = start(&mut thread);
        self.missing.store(!there, Ordering::Relaxed);
        if !there {
            self.awake.store(false, Ordering::SeqCst);
        }
        drop(thread);
        self.signal.notify();
    }

    /// Ends a sleep of the thread.
    pub(crate) fn wake(&self) {
        self.signal.notify();
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.thread.lock().is_alive()
    }

    /// Joins the thread, after the caller has set the stop flag.
    pub(crate) fn stop(&self) {
        self.signal.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
