//! The listener of a connection: a thread that sleeps on the futex of the server's page, applies changed
//! permissions, and wakes the threads that may launch then.
//!
//! Listener and agent stand in for each other, because either may be killed without notice. The listener
//! watches the lease as well, and lets everything run when it expires. The agent applies changes that the
//! listener has missed. A suspension therefore ends as long as one of them is alive.

use crate::futex;
use crate::pages::Pages;
use crate::shared::Shared;
use host::thread_qos;
use protocol::page::{ClientHeader, EVENT_PROGRESS, LEASE, ServerPage};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xqueue::{Domain, Permission};

/// The interval at which the agent updates counts while the server waits for progress, and repeats missed
/// changes.
pub(super) const PROGRESS: Duration = Duration::from_millis(25);
/// The time until a listener that is to end is woken again.
const END: Duration = Duration::from_millis(1);

/// State shared by a listener and its agent.
#[derive(Debug)]
struct Signals {
    /// True when the listener is to end. Set before the agent turns to another connection.
    stop: AtomicBool,
    /// True when the listener has seen the lease expire and lets everything run.
    expired: AtomicBool,
    /// The last count of changes that the listener has applied.
    applied: AtomicU32,
}

/// A connection's listener, as its agent sees it.
#[derive(Debug)]
pub(super) struct Listener {
    domain: &'static Domain,
    shared: Arc<Shared>,
    page: &'static ServerPage,
    signals: Arc<Signals>,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(
        domain: &'static Domain,
        shared: &Arc<Shared>,
        pages: &Pages,
        epoch: u64,
    ) -> io::Result<Self> {
        let (page, header, shared) = (pages.server(), pages.header(), shared.clone());
        let applied = AtomicU32::new(page.changes.load(Ordering::SeqCst));
        let (stop, expired) = (AtomicBool::new(false), AtomicBool::new(false));
        let signals = Arc::new(Signals { stop, expired, applied });
        let theirs = Loop { domain, shared: shared.clone(), page, header, signals: signals.clone(), epoch };
        let thread = std::thread::Builder::new().name("giveway-listen".into()).spawn(move || theirs.run())?;
        Ok(Self { domain, shared, page, signals, thread })
    }

    /// Returns true if the listener lets everything run because the lease has expired.
    pub(super) fn has_expired(&self) -> bool {
        self.signals.expired.load(Ordering::SeqCst)
    }

    /// Applies a change that the listener has missed, if there is one. Returns the time after which to call
    /// this again.
    pub(super) fn apply_missed(&self) -> Duration {
        if self.signals.applied.load(Ordering::SeqCst) == self.page.changes.load(Ordering::SeqCst) {
            return Duration::MAX;
        }
        let again = self.shared.evictor.step(self.domain, &self.shared.link);
        self.domain.permission_changed();
        self.shared.link.tracer.note_permission(self.domain);
        again.map_or(PROGRESS, |again| again.min(PROGRESS))
    }

    /// Ends the thread. A thread that does not end within a lease, because it was killed or is blocked in the
    /// driver, is left alone: it ends when it sees `stop`.
    pub(super) fn end(self) {
        let begun = Instant::now();
        self.signals.stop.store(true, Ordering::SeqCst);
        while !self.thread.is_finished() {
            if begun.elapsed() > LEASE {
                return;
            }
            // Repeated, because the thread may be between its check of `stop` and its sleep.
            futex::wake(&self.page.changes);
            std::thread::sleep(END);
        }
        let _ = self.thread.join();
    }
}

/// The listener's thread.
struct Loop {
    domain: &'static Domain,
    shared: Arc<Shared>,
    page: &'static ServerPage,
    header: &'static ClientHeader,
    signals: Arc<Signals>,
    epoch: u64,
}

impl Loop {
    fn run(&self) {
        let (shared, page) = (&self.shared, self.page);
        shared.preemption.host().adopt_thread();
        host::signals::block_all();
        thread_qos::request_early_wakeup(thread_qos::Role::Evicts);
        loop {
            // Read first, so that the sleep below misses no later change.
            let seen = page.changes.load(Ordering::SeqCst);
            if self.signals.stop.load(Ordering::SeqCst) {
                return;
            }
            let left = shared.link.lease_left(page);
            if left.is_zero() {
                self.let_everything_run();
                return;
            }
            // The eviction comes first: other processes wait for the device.
            let again = shared.evictor.step(self.domain, &shared.link);
            self.domain.permission_changed();
            shared.link.tracer.note_permission(self.domain);
            self.signals.applied.store(seen, Ordering::SeqCst);
            let reports = page.report.load(Ordering::SeqCst) != self.header.reported.load(Ordering::SeqCst);
            let wants_progress = page.wants.load(Ordering::SeqCst) & EVENT_PROGRESS != 0;
            if reports || wants_progress && !shared.link.agent_counts.load(Ordering::SeqCst) {
                shared.link.agent.notify();
            }
            futex::wait(&page.changes, seen, Some(again.map_or(left, |again| again.min(left))));
        }
    }

    /// Lets everything run after the lease has expired. The agent then ends the connection, so that later
    /// permissions of this server do not count.
    fn let_everything_run(&self) {
        self.shared.if_current(self.epoch, || {
            // Checked under the lock, because the agent may have turned to another connection.
            if !self.signals.stop.load(Ordering::SeqCst) {
                self.signals.expired.store(true, Ordering::SeqCst);
                self.domain.store_permission(Permission::limited());
                // A queue with the priority "never runs" is suspended by its own permission.
                self.domain.queues().iter().for_each(|queue| queue.set_policy_run(true));
            }
        });
        self.shared.evictor.restore(self.domain, &self.shared.link);
        self.shared.link.agent.notify();
    }
}
