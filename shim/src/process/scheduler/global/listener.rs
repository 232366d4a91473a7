//! The listener of a connection: it sleeps on the futex of the server's page, books what has changed, and wakes whoever
//! may launch.
//!
//! It and the agent stand in for each other, because either of them can be gone without a word. The listener looks at the
//! lease as well, and when that has ended it opens the gate itself; the agent sees changes that the listener has not booked,
//! and books them. So one of both is enough for a suspension to end.

use super::super::{Board, block_signals};
use super::{PROGRESS, Pages, futex_wait, futex_wake, lease_left};
use crate::thread::Thread;
use host::thread_qos;
use protocol::page::{ClientHeader, LEASE, ServerPage, WANTS_PROGRESS};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xqueue::{Domain, Permission};

/// How long the listener is given for its end before it is woken again.
const END: Duration = Duration::from_millis(1);

/// What the listener and the agent tell each other.
#[derive(Debug)]
struct Shared {
    /// The listener is to end. Set before anything is set for another connection.
    stop: AtomicBool,
    /// The listener has seen the lease end, and everything runs.
    opened: AtomicBool,
    /// The last count of changes that the listener has booked.
    booked: AtomicU32,
}

/// The agent's side of it.
pub(super) struct Listener {
    domain: &'static Domain,
    board: Arc<Board>,
    page: &'static ServerPage,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be made.
    pub(super) fn start(
        domain: &'static Domain,
        board: &Arc<Board>,
        pages: &Pages,
        turn: u64,
    ) -> io::Result<Self> {
        let (page, header, board) = (pages.server(), pages.header(), board.clone());
        let booked = AtomicU32::new(page.changes.load(Ordering::SeqCst));
        let shared =
            Arc::new(Shared { stop: AtomicBool::new(false), opened: AtomicBool::new(false), booked });
        let theirs = Loop { domain, board: board.clone(), page, header, shared: shared.clone(), turn };
        let thread = std::thread::Builder::new().name("giveway-listen".into()).spawn(move || theirs.run())?;
        Ok(Self { domain, board, page, shared, thread })
    }

    /// Whether it has opened the gate because the lease has ended.
    pub(super) fn has_opened(&self) -> bool {
        self.shared.opened.load(Ordering::SeqCst)
    }

    /// Books what the listener has not booked, which may be gone. Returns after what time to do that again.
    pub(super) fn stand_in(&self) -> Duration {
        if self.shared.booked.load(Ordering::SeqCst) == self.page.changes.load(Ordering::SeqCst) {
            return Duration::MAX;
        }
        let again = self.board.hold.step(self.domain, &self.board.line);
        self.domain.permission_changed();
        again.map_or(PROGRESS, |again| again.min(PROGRESS))
    }

    /// Ends the thread. One that is gone, or blocked in a call to the driver, is not waited for: it finds out by itself.
    pub(super) fn end(self) {
        let begun = Instant::now();
        self.shared.stop.store(true, Ordering::SeqCst);
        while !self.thread.is_finished() {
            if begun.elapsed() > LEASE {
                return;
            }
            // It may be between its look at `stop` and its sleep.
            futex_wake(&self.page.changes);
            std::thread::sleep(END);
        }
        let _ = self.thread.join();
    }
}

/// What the thread needs.
struct Loop {
    domain: &'static Domain,
    board: Arc<Board>,
    page: &'static ServerPage,
    header: &'static ClientHeader,
    shared: Arc<Shared>,
    turn: u64,
}

impl Loop {
    fn run(&self) {
        Thread::current().adopt();
        block_signals();
        thread_qos::request_early_wakeup(thread_qos::Role::Evicts);
        let (board, page) = (&self.board, self.page);
        loop {
            // First of all, so that nothing that changes from here on is slept over.
            let seen = page.changes.load(Ordering::SeqCst);
            if self.shared.stop.load(Ordering::SeqCst) {
                return;
            }
            let left = lease_left(page, &board.line);
            if left.is_zero() {
                self.open();
                return;
            }
            // First of all: whoever waits for the device waits for this.
            let again = board.hold.step(self.domain, &board.line);
            self.domain.permission_changed();
            self.shared.booked.store(seen, Ordering::SeqCst);
            let reports = page.report.load(Ordering::SeqCst) != self.header.reported.load(Ordering::SeqCst);
            let waits = page.wants.load(Ordering::SeqCst) & WANTS_PROGRESS != 0;
            if reports || waits && !board.line.counts.load(Ordering::SeqCst) {
                board.line.alarm.ring();
            }
            futex_wait(&page.changes, seen, Some(again.map_or(left, |again| again.min(left))));
        }
    }

    /// The lease has ended: everything runs, whether the agent sees it or not. What the server says from now on counts no
    /// more, so the agent ends the connection.
    fn open(&self) {
        self.board.in_turn(self.turn, || {
            // Under the lock: the agent may have gone on to another connection, which this one has nothing to say to.
            if !self.shared.stop.load(Ordering::SeqCst) {
                self.shared.opened.store(true, Ordering::SeqCst);
                self.domain.store_permission(Permission::limited());
                // One that is never to run is held by its own word.
                self.domain.queues().iter().for_each(|queue| queue.set_policy_run(true));
            }
        });
        self.board.hold.release(self.domain, &self.board.line);
        self.board.line.alarm.ring();
    }
}
