//! The watcher: one thread a process that proves idleness where the program does not ask for it. It
//! records a mark behind the tail of a queue that has been quiet, unless somebody waits for that inside the runtime, polls
//! it, and turns the queue idle.
//! It also ends the suspensions of the chaos test, and those by a policy that does not answer any more, and launches what a worker
//! leaves (`lease.rs`).
//!
//! It sleeps while nothing is ready. Turning ready wakes it only if it sleeps, and it goes to sleep
//! only after a while, so a program that launches and synchronizes in turn does not pay for it.

use std::sync::Arc;
use std::time::Duration;

use crate::config::TestMode;
use crate::control::QUIET;
use crate::domain::{Core, nanos};
use crate::lease::SILENCE;
use crate::order::{Scope, Ticket};
use crate::queue::XQueue;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Signal, now};
use crate::thread::Helper;
use crate::worker::BATCH;

/// Pause where nothing is limited, so that nobody waits to hear of idleness.
const RELAXED: Duration = Duration::from_millis(1);
/// A queue that launches all the time gets a mark this often, if it gets none by count.
const STALE: Duration = Duration::from_millis(10);
/// Looks without anything ready before the watcher sleeps.
const PATIENCE: u32 = 50;

/// The watcher's handle.
#[derive(Debug)]
pub(crate) struct Watcher {
    enabled: bool,
    /// On while the thread looks regularly; off: it sleeps and has to be woken.
    awake: AtomicBool,
    /// No thread could be made.
    missing: AtomicBool,
    /// When the thread looked last, or was woken to look ([`crate::lease::Epoch`]).
    looked: AtomicU64,
    signal: Signal,
    thread: Mutex<Helper>,
}

impl Watcher {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled: enabled && !cfg!(loom),
            awake: AtomicBool::new(false),
            missing: AtomicBool::new(false),
            looked: AtomicU64::new(0),
            signal: Signal::new(),
            thread: Mutex::new(Helper::new()),
        }
    }

    /// Whether somebody but the callers is meant to look for completion.
    pub(crate) fn is_running(&self) -> bool {
        self.enabled && !self.missing.load(Ordering::Relaxed)
    }

    /// Whether nobody looks at this moment because no thread can be made, or it does not get on.
    pub(crate) fn is_absent(&self, at: u64) -> bool {
        self.missing.load(Ordering::Relaxed)
            || self.awake.load(Ordering::SeqCst)
                && at.saturating_sub(self.looked.load(Ordering::Relaxed)) > nanos(SILENCE)
    }

    /// Something turned ready. The watcher switches `awake` off before it looks whether anything is
    /// ready and sleeps; both sides are sequentially consistent, so one of them sees the other.
    pub(crate) fn arm(&self, core: &Arc<Core>) {
        if !self.enabled || self.awake.load(Ordering::SeqCst) {
            return;
        }
        // Before it counts as awake, so that it is not taken for one that does not get on.
        self.looked.fetch_max(core.epoch.of(now()), Ordering::SeqCst);
        if self.awake.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut thread = self.thread.lock();
        let there = if core.stop.load(Ordering::Acquire) {
            thread.is_there()
        } else {
            let theirs = core.clone();
            let without = "no watcher thread: idleness is seen by those who wait for it";
            thread.start("giveway-watch", without, move || theirs.watcher.run(&theirs))
        };
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

    /// Whether the thread runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.thread.lock().is_alive()
    }

    pub(crate) fn stop(&self) {
        self.signal.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn run(&self, core: &Core) {
        let chaos = matches!(core.config.test, TestMode::Chaos(_));
        let mut idle_looks = 0;
        let mut still_looks = 0;
        let mut marked = now();
        let mut entered = None;
        loop {
            let key = self.signal.key();
            if core.stop.load(Ordering::Acquire) {
                return;
            }
            let begun = now();
            let at = core.epoch.of(begun);
            self.looked.store(at, Ordering::SeqCst);
            core.end_policy(at);
            let stale = begun.saturating_duration_since(marked) >= STALE;
            if stale {
                marked = begun;
            }
            let mut ready = false;
            let mut limited = chaos;
            let mut moved = false;
            core.each_queue(Scope::Process, |queue| {
                queue.chaos_release();
                if queue.is_ready() {
                    ready = true;
                    // Only what has nothing pending may turn idle soon, and only rivals wait for it.
                    limited |= queue.is_limited() && queue.frontier() == Ticket::NONE;
                    if entered.replace(queue.device.id) != Some(queue.device.id) {
                        queue.device.hw.enter();
                    }
                    moved |= watch(queue, stale);
                    limited |= launch_for_worker(queue, at);
                }
                true
            });
            idle_looks = if ready { 0 } else { idle_looks + 1 };
            if idle_looks < PATIENCE {
                // Where nothing moves for long, what is late by a little of that time is not late.
                still_looks = if moved || chaos { 0 } else { still_looks + 1 };
                let pause = if limited { QUIET } else { RELAXED } * (1 + still_looks / 64);
                self.signal.wait_at_most(key, pause.min(STALE));
                continue;
            }
            self.awake.store(false, Ordering::SeqCst);
            if !any_ready(core) {
                self.signal.wait(key);
            }
            self.looked.store(core.epoch.of(now()), Ordering::SeqCst);
            self.awake.store(true, Ordering::SeqCst);
            idle_looks = 0;
        }
    }
}

/// Whether anything is ready or held by chaos.
fn any_ready(core: &Core) -> bool {
    let mut ready = false;
    core.each_queue(Scope::Process, |queue| {
        ready |= queue.state.ready.load(Ordering::SeqCst);
        !ready
    });
    ready
}

/// Launches what may be launched if the worker of the device has not looked for a while: it does not get on. From then on at each look,
/// until the worker gives a sign of life. True: so it is.
fn launch_for_worker(queue: &XQueue, at: u64) -> bool {
    let (front, device) = (queue.frontier(), &queue.device);
    let rounds = device.rounds.load(Ordering::Relaxed);
    let lives = queue.seen_rounds.swap(rounds, Ordering::Relaxed) != rounds;
    let new = queue.seen_front.swap(front.0, Ordering::Relaxed) != front.0;
    let is_gone = device.left_at.load(Ordering::Relaxed) == rounds;
    // What is held is nobody's to launch.
    if lives || front == Ticket::NONE || !queue.may_launch(front) || new && !is_gone {
        queue.still_since.store(at, Ordering::Relaxed);
        return false;
    }
    let still = at.saturating_sub(queue.still_since.load(Ordering::Relaxed));
    if still <= nanos(2 * SILENCE) && !is_gone {
        if still > nanos(SILENCE) {
            // One that sleeps, because what is pending is for others to launch, looks then.
            device.signal.notify();
        }
        return false;
    }
    device.left_at.store(rounds, Ordering::Relaxed);
    queue.advance(BATCH);
    true
}

/// One look at a ready queue. True: something was launched or completed since the last one.
fn watch(queue: &XQueue, stale: bool) -> bool {
    let completed = queue.hot.flight.completed();
    let launched = queue.hot.flight.launched();
    let quiet = queue.seen.swap(launched, Ordering::Relaxed) == launched;
    if quiet {
        queue.look();
        return queue.hot.flight.completed() != completed;
    }
    // The queue is busy: its own launches record the mark, nobody takes submit from them.
    if stale && queue.hot.flight.is_unmarked() {
        queue.hot.flight.want_mark();
    }
    // Where completion is seen already, whoever sees it is not disturbed.
    if queue.seen_completed.swap(completed, Ordering::Relaxed) == completed {
        queue.poll(false);
    }
    true
}
