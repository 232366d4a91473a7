//! The worker of a device: launches what is pending on its queues, in each queue's order, the queues by
//! priority. Started on first need, woken when something turns pending; sleeps otherwise.
//!
//! The key of its signal is taken before it checks the queues, so any change after the check ends the sleep
//! at once. While a window is full it polls that queue's markers: 2 µs spinning, then sleeps of 20, 50 and
//! 100 µs, each of which ends early after a notification. Two exceptions keep the device busy behind a small
//! window:
//! * A command of which little is known is watched closely, up to 2 ms and a few times for each key, because
//!   sleeps would be learnt as its length.
//! * Where the end of what runs can be foreseen the worker sleeps until shortly before it, to launch the next
//!   command 40 to 500 µs ahead of it (ADR 0009), or, with short commands, until half the window is empty. It
//!   wakes earlier by as much as sleeps end late on this machine, which it learns. Where timers are late by
//!   more than commands take, it spins.
//! * Where ends may have drifted from the foreseen ones it also looks at the end itself (ADR 0036).

use std::sync::Arc;
use std::time::Duration;

use crate::config::nanos;
use crate::ids::Ticket;
use crate::path::launch::{BATCH, Stop};
use crate::path::stand_in::STANDIN_PERIOD;
use crate::state::device::{Core, Device};
use crate::state::interval::Expectation;
use crate::state::lease::UNRESPONSIVE_AFTER;
use crate::state::queue::XQueue;
use crate::sync::{Key, Ordering, Signal, now, spin_hint};
use crate::threads::backoff::{Backoff, spin};

#[cfg(all(test, not(loom)))]
mod simulated;

/// Checks without success before the worker sleeps: a few microseconds in which a submit costs no wake-up.
const LINGER: u32 = if cfg!(loom) { 0 } else { 100 };

/// The shortest sleep that is worth planning.
const SHORT: Duration = Duration::from_micros(20);
/// The longest planned sleep.
const LONG: Duration = Duration::from_millis(1);
/// The longest close watch of a command of which little is known.
const CLOSE_WATCH: Duration = Duration::from_millis(2);
/// The time after a foreseen end during which the worker spins: a sleep that begins now would end late.
const AFTER: Duration = Duration::from_micros(300);
/// The least step by which the learnt lateness grows.
const LATENESS_STEP: Duration = Duration::from_micros(4);
/// The most by which a planned sleep is shortened because sleeps end late on this machine.
const LATEST: Duration = Duration::from_millis(1);

/// Runs the worker; returns when the domain shuts down.
pub(crate) fn run(core: &Core, device: &Device) {
    device.hw.enter();
    let mut queues: Vec<Arc<XQueue>> = Vec::new();
    let mut version = u64::MAX;
    let mut backoff = Backoff::new();
    let mut late = Lateness::default();
    loop {
        // Taken first, so that no change from here on is missed in a sleep.
        let key = device.signal.key();
        if core.stop.load(Ordering::Acquire) {
            return;
        }
        // Written by this thread alone; no model reads it.
        if !cfg!(loom) {
            device.rounds.store(device.rounds.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        let current = device.version.load(Ordering::Acquire);
        if version != current {
            version = current;
            queues = device.queues.read().to_vec();
            queues.sort_by_key(|queue| std::cmp::Reverse(queue.rank()));
        }
        match round(&queues) {
            Stop::More => backoff.reset(),
            Stop::Full => {
                wait_for_room(&queues, &device.signal, key, &mut backoff, &mut late);
                device.lateness.store(nanos(late.most), Ordering::Relaxed);
            }
            rest @ (Stop::Empty | Stop::Blocked) => {
                backoff.reset();
                if !linger(&queues) {
                    if device.stand_in_for_watcher(core) {
                        device.signal.wait_at_most(key, STANDIN_PERIOD);
                    } else if rest == Stop::Blocked {
                        device.signal.wait_or_check(key, UNRESPONSIVE_AFTER);
                    } else {
                        device.signal.wait(key);
                    }
                }
            }
        }
    }
}

/// Serves every queue once. Returns `More` if anything was launched, otherwise `Full` if a window is full.
fn round(queues: &[Arc<XQueue>]) -> Stop {
    let mut rest = Stop::Empty;
    for queue in queues {
        if queue.frontier() == Ticket::NONE {
            continue;
        }
        let before = queue.hot.flight.launched();
        let stop = queue.advance(BATCH);
        let moved = stop == Stop::More || queue.hot.flight.launched() != before;
        rest = match (rest, stop) {
            (Stop::More, _) => Stop::More,
            _ if moved => Stop::More,
            (Stop::Full, _) | (_, Stop::Full) => Stop::Full,
            (Stop::Blocked, _) | (_, Stop::Blocked) => Stop::Blocked,
            _ => Stop::Empty,
        };
    }
    rest
}

/// The way to pause until a full window may have room, the most urgent one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pause {
    Spin,
    BackOff,
    Sleep(Duration),
}

/// The lateness of this thread's sleeps: the cost of a timer on this machine, learnt from the sleeps
/// themselves.
#[derive(Debug, Clone, Copy, Default)]
struct Lateness {
    most: Duration,
    spins: u32,
}

impl Lateness {
    /// Learns from a sleep that was planned to last `planned` and lasted `lasted`, so that about one sleep of 257 is later than
    /// `most`. With too small a value the device idles, with too large a one the worker spins; a rare sleep that ends much later
    /// costs less than the spinning that it would cause.
    fn learn(&mut self, planned: Duration, lasted: Duration) {
        let late = lasted.saturating_sub(planned).min(LATEST);
        self.most = if late > self.most {
            late.min(self.most + (self.most / 4).max(LATENESS_STEP))
        } else {
            self.most - self.most / 1024
        };
    }

    /// Forgets a little, because the worker spun instead. Half is forgotten in about a second of spinning:
    /// otherwise one late sleep would be the last one.
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
        if expected.fresh && expected.ran < CLOSE_WATCH {
            return Self::Spin;
        }
        let (Some(takes), Some((first, all))) = (expected.takes, expected.remaining()) else {
            return Self::BackOff;
        };
        let Some(limit) = queue.awaits() else {
            return Self::BackOff;
        };
        // In time for the next command before all has ended. If commands are short there is room before that;
        // waiting until half the window is empty lets in several at once.
        let urgent = queue.hot.flight.launch_ahead() + late.most;
        let half = Duration::from_nanos(limit.budget / 2).min(queue.hot.flight.room_below(limit, expected));
        let left = if expected.next_fresh {
            first.saturating_sub(late.most)
        } else {
            all.saturating_sub(urgent.max(half))
        };
        let left = match Self::until_look(expected, takes, first, late) {
            Some(Self::Sleep(until)) => left.min(until),
            Some(other) => return other,
            None => left,
        };
        if left > SHORT {
            return Self::Sleep(left.min(LONG));
        }
        // Spinning is worth a processor if the device would soon be idle, or if the start of the next command
        // has to be seen; only for a while, because the estimate is the minimum of recent times.
        let worth = expected.next_fresh || all <= urgent + SHORT;
        if worth && expected.ran < takes + AFTER { Self::Spin } else { Self::BackOff }
    }

    /// Returns the pause before the worker looks at the end of the first interval, which takes `takes` and has `first` left. The next
    /// interval starts at that end, so a look bounds its start. Returns none if a look would show no more than is known.
    fn until_look(expected: Expectation, takes: Duration, first: Duration, late: Lateness) -> Option<Self> {
        // The precision of a look.
        let shown = SHORT + takes / 32 + late.most;
        let is_followed = expected.behind.is_some_and(|behind| !behind.is_zero());
        if !is_followed || expected.next_fresh || expected.doubt <= shown {
            return None;
        }
        let overdue = expected.ran.saturating_sub(takes);
        if expected.close && expected.doubt < 4 * shown && overdue < AFTER {
            let until = first.saturating_sub(late.most + expected.doubt);
            return Some(if until > SHORT { Self::Sleep(until) } else { Self::Spin });
        }
        // A close watch would take too long.
        let step = if first.is_zero() { (takes / 32).max(overdue / 4) } else { first };
        Some(Self::Sleep(step + SHORT))
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
            // A sleep that a notification ended early shows nothing.
            if signal.key() == key {
                late.learn(left, now().saturating_duration_since(begun));
            }
            backoff.reset();
        }
        _ => backoff.wait(signal, key),
    }
}

/// Waits a moment for the next submit, whose wake-up would cost both sides more. Returns true if there is
/// one.
fn linger(queues: &[Arc<XQueue>]) -> bool {
    // Where what is pending is suspended, lingering is useless.
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
    fn look_is_planned_only_where_an_end_is_in_doubt() {
        let micros = Duration::from_micros;
        let late = Lateness { most: micros(10), ..Lateness::default() };
        let takes = micros(320);
        // A look shows 40 µs.
        let expected = |ran: u64, doubt: u64, close: bool| Expectation {
            ran: micros(ran),
            takes: Some(takes),
            behind: Some(micros(300)),
            doubt: micros(doubt),
            close,
            fresh: false,
            next_fresh: false,
        };
        let look = |expected: Expectation| {
            let (first, _) = expected.remaining().expect("all is known");
            Pause::until_look(expected, takes, first, late)
        };
        assert_eq!(look(expected(100, 40, true)), None);
        assert_eq!(look(Expectation { behind: Some(micros(0)), ..expected(100, 90, true) }), None);
        assert_eq!(
            look(Expectation { next_fresh: true, ..expected(100, 90, true) }),
            None,
            "it is watched anyway"
        );
        // A close watch begins before the earliest end, and does not last for ever.
        assert_eq!(look(expected(100, 90, true)), Some(Pause::Sleep(micros(120))));
        assert_eq!(look(expected(210, 90, true)), Some(Pause::Spin));
        assert_eq!(look(expected(600, 90, true)), Some(Pause::Spin));
        assert_eq!(look(expected(720, 90, true)), Some(Pause::Sleep(micros(120))));
        // Where it would take too long, looks are steps.
        for far in [expected(100, 90, false), expected(100, 200, true)] {
            assert_eq!(look(far), Some(Pause::Sleep(micros(240))));
        }
        assert_eq!(look(expected(330, 90, false)), Some(Pause::Sleep(micros(30))));
        assert_eq!(
            look(Expectation { doubt: Duration::MAX, ..expected(330, 0, true) }),
            Some(Pause::Sleep(micros(30)))
        );
        assert_eq!(look(expected(1320, 90, false)), Some(Pause::Sleep(micros(270))));
    }

    #[test]
    fn lateness_of_sleeps_is_learnt_and_forgotten() {
        let mut late = Lateness::default();
        let meant = Duration::from_micros(100);
        late.learn(meant, meant / 2);
        assert_eq!(late.most, Duration::ZERO, "a sleep that was cut short is not late");
        late.learn(meant, 100 * meant);
        assert_eq!(late.most, LATENESS_STEP, "one sleep shows little");
        (0..100).for_each(|_| late.learn(meant, 100 * meant));
        assert_eq!(late.most, LATEST, "there is a bound");
        (0..10_000).for_each(|_| late.learn(meant, meant + SHORT));
        assert!(late.most < 2 * SHORT, "{:?}", late.most);
        (0..100).for_each(|_| late.learn(meant, 100 * meant));
        // Some seconds of spinning.
        (0..1_500_000).for_each(|_| late.forget());
        assert!(late.most < LATEST / 10, "{:?}", late.most);
    }
}
