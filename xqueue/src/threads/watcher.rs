//! The watcher: one thread of a process that proves idleness where the program does not ask for it. It
//! records a marker behind the tail of a quiet queue, unless a thread waits for that inside the runtime,
//! polls it, and turns the queue idle. It also ends the suspensions of the chaos test, and those of a policy
//! that no longer answers, and launches in place of a worker that does not respond (`path/stand_in.rs`).
//!
//! It sleeps while nothing is ready. A queue that turns ready wakes it only if it sleeps, and it goes to
//! sleep only after a while, so a program that launches and synchronizes alternately does not pay for it.

use std::time::Duration;

use crate::config::{TestMode, nanos};
use crate::ids::Ticket;
use crate::path::launch::BATCH;
use crate::state::device::Core;
use crate::state::lease::UNRESPONSIVE_AFTER;
use crate::state::queue::{Scope, XQueue};
use crate::state::ready::Ready;
use crate::sync::{Ordering, now};

/// The shortest pause while rivals wait for a limited queue to turn idle.
const QUIET: Duration = Duration::from_micros(100);
/// The pause where nothing is limited, so that nothing waits for idleness.
const RELAXED: Duration = Duration::from_millis(1);
/// The longest time without a marker on a queue that launches all the time.
const STALE: Duration = Duration::from_millis(10);
/// Checks without a ready queue before the watcher sleeps.
const PATIENCE: u32 = 50;

/// Runs the watcher; returns when the domain shuts down.
pub(crate) fn run(core: &Core) {
    let watcher = &core.watcher;
    let chaos = matches!(core.config.test, TestMode::Chaos(_));
    let mut idle_checks = 0;
    let mut still_checks = 0;
    let mut marked = now();
    let mut entered = None;
    loop {
        let key = watcher.signal.key();
        if core.stop.load(Ordering::Acquire) {
            return;
        }
        let begun = now();
        let at = core.epoch.of(begun);
        watcher.checked.store(at, Ordering::SeqCst);
        core.end_policy_lease(at);
        let stale = begun.saturating_duration_since(marked) >= STALE;
        if stale {
            marked = begun;
        }
        let mut ready = false;
        let mut limited = chaos;
        let mut moved = false;
        core.for_each_queue(|queue| {
            queue.chaos_release();
            if queue.is_ready() {
                ready = true;
                // Only a queue with nothing pending may turn idle soon, and only rivals wait for that.
                limited |= queue.is_limited() && queue.frontier() == Ticket::NONE;
                if entered.replace(queue.device.id) != Some(queue.device.id) {
                    queue.device.hw.enter();
                }
                moved |= watch(queue, stale);
                limited |= launch_for_worker(queue, at);
            }
        });
        idle_checks = if ready { 0 } else { idle_checks + 1 };
        if idle_checks < PATIENCE {
            // Where nothing moves for long, a delay by a small part of that time does not matter.
            still_checks = if moved || chaos || !ready { 0 } else { still_checks + 1 };
            let slower = still_checks / 64;
            let pause = if limited { QUIET } else { RELAXED } * (1 + slower);
            watcher.is_quick.store(limited && slower == 0, Ordering::Relaxed);
            watcher.signal.wait_at_most(key, pause.min(STALE));
            continue;
        }
        watcher.awake.store(false, Ordering::SeqCst);
        if !any_ready(core) {
            watcher.signal.wait(key);
        }
        watcher.checked.store(core.epoch.of(now()), Ordering::SeqCst);
        watcher.awake.store(true, Ordering::SeqCst);
        idle_checks = 0;
    }
}

fn any_ready(core: &Core) -> bool {
    let mut ready = false;
    core.each_queue(Scope::Process, |queue| {
        ready |= queue.state.ready.load() != Ready::No;
        !ready
    });
    ready
}

/// Launches what may be launched, in place of a worker that has not responded for a while; from then on at
/// each check, until the worker responds. Returns true if it did.
fn launch_for_worker(queue: &XQueue, at: u64) -> bool {
    let (front, device) = (queue.frontier(), &queue.device);
    let rounds = device.rounds.load(Ordering::Relaxed);
    let lives = queue.watch.rounds.swap(rounds, Ordering::Relaxed) != rounds;
    let new = queue.watch.front.swap(front.0, Ordering::Relaxed) != front.0;
    let is_gone = device.rounds_replaced.load(Ordering::Relaxed) == rounds;
    // No thread may launch from a suspended queue.
    if lives || front == Ticket::NONE || !queue.may_launch(front) || new && !is_gone {
        queue.watch.still_since.store(at, Ordering::Relaxed);
        return false;
    }
    let still = at.saturating_sub(queue.watch.still_since.load(Ordering::Relaxed));
    if still <= nanos(2 * UNRESPONSIVE_AFTER) && !is_gone {
        if still > nanos(UNRESPONSIVE_AFTER) {
            // A worker that sleeps, because other threads are to launch what is pending, responds to that.
            device.signal.notify();
        }
        return false;
    }
    device.rounds_replaced.store(rounds, Ordering::Relaxed);
    queue.advance(BATCH);
    true
}

/// Checks a ready queue. Returns true if something was launched or completed since the last check.
fn watch(queue: &XQueue, stale: bool) -> bool {
    queue.watch.stays.store(0, Ordering::Relaxed);
    let completed = queue.hot.flight.completed();
    let launched = queue.hot.flight.launched();
    let quiet = queue.watch.launched.swap(launched, Ordering::Relaxed) == launched;
    if quiet {
        queue.check_completion();
        return queue.hot.flight.completed() != completed;
    }
    // The queue is busy: its own launches record the marker, so that no thread contends for their submit
    // lock.
    if stale && queue.hot.flight.is_unmarked() {
        queue.hot.flight.request_marker();
    }
    // Do not disturb a thread that sees the completion already.
    if queue.watch.completed.swap(completed, Ordering::Relaxed) == completed {
        queue.poll(false);
    }
    true
}
