//! The worker of a device: launches what is pending on its queues, in each queue's order, the queues
//! by priority. Created on first need, woken when something turns pending; sleeps otherwise.
//!
//! The key of its signal is taken before it looks at the queues, so whatever changes after the look
//! ends the sleep at once. While a window is full it polls that queue's marks: 2 µs spinning, then
//! sleeps of 20, 50 and 100 µs, each of which ends early when something is notified. Two exceptions
//! keep the device busy behind a small window: a command of which little is known is watched closely,
//! up to 2 ms and a few times for each key, because sleeps would be learnt as its length; and
//! where the end of what runs can be foreseen the worker sleeps until shortly before it, to launch the next command 50 to
//! 500 µs ahead of it (ADR 0009), or, with short commands, until half the window is empty: as long before as sleeps end late on this
//! machine, which it learns. Where timers are late by more than commands take, it spins.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::{Core, Device};
use crate::launch::Rest;
use crate::lease::SILENCE;
use crate::order::Ticket;
use crate::queue::XQueue;
use crate::sync::{Key, Ordering, Signal, now, spin_hint};

/// Launches in a row on one queue before the others get their look.
pub(crate) const BATCH: usize = 16;
/// Looks in vain before the worker sleeps: a few microseconds in which a submit costs no wake-up.
const LINGER: u32 = if cfg!(loom) { 0 } else { 100 };
/// How long the first step of the back-off spins, and spin hints between two looks at the clock.
const SPIN: Duration = Duration::from_micros(2);
const HINTS: u32 = if cfg!(loom) { 1 } else { 8 };
/// The sleeps that follow, in microseconds; the last one repeats.
const SLEEPS: [u64; 3] = [20, 50, 100];

/// How long a thread sleeps at most that does what another one would do, which could not be made.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// A sleep that is not worth planning.
const SHORT: Duration = Duration::from_micros(20);
/// The longest planned one.
const LONG: Duration = Duration::from_millis(1);
/// The longest close look at a command of which little is known.
const CLOSE_LOOK: Duration = Duration::from_millis(2);
/// After an end that was foreseen the worker spins for a while: a sleep that begins now would end late.
const AFTER: Duration = Duration::from_micros(300);
/// The most that a planned sleep is shortened because sleeps end late here.
const LATEST: Duration = Duration::from_millis(1);

/// Pauses between two looks at something that tells nobody when it changes.
#[derive(Debug)]
pub(crate) struct Backoff(usize);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(0)
    }

    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Pauses; a notification after `key` ends a sleep early.
    pub(crate) fn wait(&mut self, signal: &Signal, key: Key) {
        match self.0 {
            0 => spin(),
            step => {
                let sleep = SLEEPS[(step - 1).min(SLEEPS.len() - 1)];
                signal.wait_at_most(key, Duration::from_micros(sleep));
            }
        }
        self.0 += 1;
    }
}

/// The worker's loop; returns when the domain shuts down.
pub(crate) fn run(core: &Core, device: &Device) {
    device.hw.enter();
    let mut queues: Vec<Arc<XQueue>> = Vec::new();
    let mut version = u64::MAX;
    let mut backoff = Backoff::new();
    let mut late = Lateness::default();
    loop {
        // First of all, so that nothing that changes from here on is slept over.
        let key = device.signal.key();
        if core.stop.load(Ordering::Acquire) {
            return;
        }
        // Written by this thread alone; no model has somebody who reads it.
        if !cfg!(loom) {
            device.rounds.store(device.rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        let current = device.version.load(Ordering::Acquire);
        if version != current {
            version = current;
            queues = device.queues.read().to_vec();
            queues.sort_by_key(|queue| std::cmp::Reverse(queue.priority()));
        }
        match round(&queues) {
            Rest::More => backoff.reset(),
            Rest::Full => wait_for_room(&queues, &device.signal, key, &mut backoff, &mut late),
            rest @ (Rest::Empty | Rest::Blocked) => {
                backoff.reset();
                if !linger(&queues) {
                    if device.stand_in_for_watcher(core) {
                        device.signal.wait_at_most(key, LOOK);
                    } else if rest == Rest::Blocked {
                        device.signal.wait_and_look(key, SILENCE);
                    } else {
                        device.signal.wait(key);
                    }
                }
            }
        }
    }
}

/// One look at every queue. `More` if anything was launched, else `Full` if a window keeps it back.
fn round(queues: &[Arc<XQueue>]) -> Rest {
    let mut rest = Rest::Empty;
    for queue in queues {
        if queue.frontier() == Ticket::NONE {
            continue;
        }
        let before = queue.hot.flight.launched();
        let stop = queue.advance(BATCH);
        let moved = stop == Rest::More || queue.hot.flight.launched() != before;
        rest = match (rest, stop) {
            (Rest::More, _) => Rest::More,
            _ if moved => Rest::More,
            (Rest::Full, _) | (_, Rest::Full) => Rest::Full,
            (Rest::Blocked, _) | (_, Rest::Blocked) => Rest::Blocked,
            _ => Rest::Empty,
        };
    }
    rest
}

/// How to pause until a full window may have room, the most urgent way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pause {
    Spin,
    BackOff,
    Sleep(Duration),
}

/// How late this thread's sleeps end: what a timer costs on this machine, learnt from the sleeps themselves.
#[derive(Debug, Clone, Copy, Default)]
struct Lateness {
    most: Duration,
    spins: u32,
}

impl Lateness {
    /// A sleep was meant to last `meant` and lasted `lasted`. The most counts, and is forgotten slowly: the device idles
    /// for as long as one sleep is late, and a processor spins for as long as the others were not.
    fn learn(&mut self, meant: Duration, lasted: Duration) {
        let late = lasted.saturating_sub(meant).min(LATEST);
        self.most = late.max(self.most - self.most / 256);
    }

    /// It spun instead. Half is forgotten in about a second of that: else one late sleep would be the last one.
    fn forget(&mut self) {
        self.spins = self.spins.wrapping_add(1);
        if self.spins.is_multiple_of(8192) {
            self.most -= self.most / 64;
        }
    }
}

impl Pause {
    fn until_room(queue: &XQueue, late: Lateness) -> Self {
        let Some(expected) = queue.hot.flight.expectation() else {
            return Self::BackOff;
        };
        if expected.fresh && expected.ran < CLOSE_LOOK {
            return Self::Spin;
        }
        let (Some(takes), Some((first, all))) = (expected.takes, expected.remaining()) else {
            return Self::BackOff;
        };
        let Some(limit) = queue.awaits() else {
            return Self::BackOff;
        };
        // In time for the next command before all has ended. There is room before that if commands are short; to come when half the
        // window is empty brings in several at once.
        let urgent = queue.hot.flight.lead() + late.most;
        let half = Duration::from_nanos(limit.budget / 2).min(queue.hot.flight.room_below(limit, expected));
        let left = if expected.next_fresh {
            first.saturating_sub(late.most)
        } else {
            all.saturating_sub(urgent.max(half))
        };
        if left > SHORT {
            return Self::Sleep(left.min(LONG));
        }
        // A device that would soon be idle, or a command whose beginning is to be seen, is worth a processor; for a while
        // only, because the estimate is the least of recent times.
        let worth = expected.next_fresh || all <= urgent + SHORT;
        if worth && expected.ran < takes + AFTER { Self::Spin } else { Self::BackOff }
    }
}

fn wait_for_room(
    queues: &[Arc<XQueue>],
    signal: &Signal,
    key: Key,
    backoff: &mut Backoff,
    late: &mut Lateness,
) {
    let full = queues.iter().filter(|queue| queue.frontier() != Ticket::NONE);
    match full.map(|queue| Pause::until_room(queue, *late)).min() {
        Some(Pause::Spin) => {
            spin();
            late.forget();
        }
        Some(Pause::Sleep(left)) => {
            let begun = now();
            signal.wait_at_most(key, left);
            // One that was notified ended early, and shows nothing.
            if signal.key() == key {
                late.learn(left, now().saturating_duration_since(begun));
            }
            backoff.reset();
        }
        _ => backoff.wait(signal, key),
    }
}

/// The first step of the back-off. Measured, because what a spin hint takes differs tenfold.
fn spin() {
    let end = now() + SPIN;
    loop {
        (0..HINTS).for_each(|_| spin_hint());
        if now() >= end {
            return;
        }
    }
}

/// Waits a moment for the next submit, whose wake-up would cost both sides more. True: there is one.
fn linger(queues: &[Arc<XQueue>]) -> bool {
    // Where something is pending but held, lingering brings nothing.
    if queues.iter().any(|queue| queue.frontier() != Ticket::NONE) {
        return false;
    }
    for _ in 0..LINGER {
        spin_hint();
        if queues.iter().any(|queue| queue.frontier() != Ticket::NONE) {
            return true;
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn late_sleeps_are_remembered_and_forgotten() {
        let mut late = Lateness::default();
        let meant = Duration::from_micros(100);
        late.learn(meant, meant / 2);
        assert_eq!(late.most, Duration::ZERO, "one that was cut short is not late");
        late.learn(meant, 100 * meant);
        assert_eq!(late.most, LATEST, "there is a bound");
        (0..10_000).for_each(|_| late.learn(meant, meant + SHORT));
        assert!(late.most < 2 * SHORT, "{:?}", late.most);
        late.learn(meant, 100 * meant);
        // Some seconds of spinning.
        (0..1_500_000).for_each(|_| late.forget());
        assert!(late.most < LATEST / 10, "{:?}", late.most);
    }
}
