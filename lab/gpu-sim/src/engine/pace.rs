//! The times of ticks, by which virtual time follows the wall clock without a busy loop.
//!
//! Clients publish packets by plain stores. While packets arrive, the rings are polled every [`POLL`]. After
//! [`QUIET`] without packets the doorbell pages are invalidated, so that the next store to one causes a fault
//! to the supervisor, and the engine sleeps until then or until the next event. It spins for the last
//! microseconds before an event, and for the first ones after the last event ([`ATTENTIVE`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use super::Outlook;
use crate::clock::now;
use crate::device::Time;
use crate::threads;

/// The sleep between two polls while packets arrive.
const POLL: Time = 20_000;
/// The time without packets after which doorbells are armed.
const QUIET: Time = 3_000_000;
/// The time before an event in which the engine spins, because a sleep can end that late.
const SPIN: Time = 15_000;
/// The time after the last event in which the engine polls without a sleep: a program with little work in
/// flight launches then, and a real device starts it at once.
const ATTENTIVE: Time = 50_000;
/// The time between two such polls, because each takes the machine's lock.
const GLANCE: Time = 500;

/// Wakes the engine.
#[derive(Debug)]
pub struct Pace {
    event: OwnedFd,
    stop: AtomicBool,
}

impl Pace {
    pub fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, stop: AtomicBool::new(false) })
    }

    /// Wakes a sleeping engine after a change.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the engine is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Makes [`run`] return.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Sleeps until woken, until `until`, or until a FUSE request is pending, which may be a doorbell: the
    /// engine then need not wait for the thread that serves it. Returns false if `until` was reached.
    fn sleep(&self, until: Option<Time>, requests: Option<BorrowedFd<'_>>) -> bool {
        let timeout = until.map(|until| {
            let left = until.saturating_sub(now());
            Timespec {
                tv_sec: (left / 1_000_000_000).cast_signed(),
                tv_nsec: (left % 1_000_000_000).cast_signed(),
            }
        });
        let mut fds = vec![PollFd::new(&self.event, PollFlags::IN)];
        fds.extend(requests.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let woken = matches!(rustix::event::poll(&mut fds, timeout.as_ref()), Ok(n) if n > 0);
        if woken && !fds[0].revents().is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        woken
    }
}

/// Invalidates the doorbell pages on a separate thread: the call waits for any client thread that handles a
/// page fault, which can take milliseconds on a busy machine.
#[derive(Debug)]
struct Armer {
    requests: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
    /// The time at which the present invalidation was requested.
    since: Option<Time>,
}

impl Armer {
    /// Starts the thread, which ends once this value is dropped.
    fn start(invalidate: impl Fn() + Send + 'static) -> Self {
        let (requests, asked) = mpsc::channel::<()>();
        let (finished, done) = mpsc::channel();
        std::thread::spawn(move || {
            for () in asked {
                invalidate();
                let _ = finished.send(());
            }
        });
        Self { requests, done, since: None }
    }

    /// Requests an invalidation if none is running. Returns true once an invalidation that was requested
    /// after the last arrival has ended.
    fn arm(&mut self, now: Time, last_arrival: Time) -> bool {
        let Some(since) = self.since else {
            // Without the thread, the engine keeps polling.
            self.since = self.requests.send(()).is_ok().then_some(now);
            return false;
        };
        if self.done.try_recv().is_err() {
            return false;
        }
        self.since = None;
        since > last_arrival
    }
}

/// Runs the device until [`Pace::stop`]: `tick` does what is due, `invalidate` makes the next store to a
/// doorbell fault, and `requests` is readable when the kernel has a request for the supervisor.
pub fn run(
    pace: &Pace,
    requests: BorrowedFd<'_>,
    invalidate: impl Fn() + Send + 'static,
    mut tick: impl FnMut() -> Outlook,
) {
    threads::run_promptly();
    let mut armer = Armer::start(invalidate);
    threads::keep_to_last_processor();
    let mut last_arrival = now();
    let mut last_busy = last_arrival;
    let mut armed = false;
    while !pace.stop.load(Ordering::Acquire) {
        let outlook = tick();
        let t = now();
        if outlook.arrived {
            (last_arrival, armed) = (t, false);
        }
        if outlook.more || outlook.next.is_some_and(|next| next <= t) {
            continue;
        }
        if outlook.next.is_some() {
            last_busy = t;
        } else if t - last_busy < ATTENTIVE {
            while now() - t < GLANCE {
                std::hint::spin_loop();
            }
            continue;
        }
        let quiet = t - last_arrival;
        if quiet > QUIET && !armed && armer.arm(t, last_arrival) {
            // Tick once more: packets before the invalidation caused no fault.
            armed = true;
            continue;
        }
        if pace.sleep(wake_time(&outlook, t, quiet, armed), armed.then_some(requests)) {
            (last_arrival, armed) = (now(), false);
        }
        if let Some(next) = outlook.next {
            while next.saturating_sub(now()).wrapping_sub(1) < SPIN {
                std::hint::spin_loop();
            }
        }
    }
}

/// Returns the end of a sleep that begins at `t`; `None` to sleep until woken.
fn wake_time(outlook: &Outlook, t: Time, quiet: Time, armed: bool) -> Option<Time> {
    // A change of memory causes no notification. Poll less often the longer a packet has waited.
    let watch = outlook.watching.then_some(match quiet {
        0..50_000_000 => 50_000,
        50_000_000..1_000_000_000 => 200_000,
        _ => 1_000_000,
    });
    let poll = (!armed).then_some(POLL);
    let next_poll = [watch, poll].into_iter().flatten().min().map(|interval| t + interval);
    let end = outlook.next.map(|next| next.saturating_sub(SPIN));
    [next_poll, end].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_engine_with_armed_doorbells_sleeps_until_woken() {
        let idle = Outlook::default();
        assert_eq!(wake_time(&idle, 1000, QUIET * 2, true), None);
        assert_eq!(wake_time(&idle, 1000, 0, false), Some(1000 + POLL));
        let ending = Outlook { next: Some(1_000_000), ..idle };
        assert_eq!(wake_time(&ending, 1000, QUIET * 2, true), Some(1_000_000 - SPIN));
        let watching = Outlook { watching: true, ..idle };
        assert_eq!(wake_time(&watching, 1000, 2_000_000_000, true), Some(1_001_000));
    }

    #[test]
    fn packet_during_invalidation_postpones_arming() {
        let (go, wait) = mpsc::channel();
        let mut armer = Armer::start(move || wait.recv().unwrap());
        assert!(!armer.arm(10, 5), "the invalidation is requested");
        assert!(!armer.arm(11, 5), "the invalidation is running");
        go.send(()).unwrap();
        let armed = |armer: &mut Armer, now, last_arrival| {
            while armer.since.is_some() {
                if armer.arm(now, last_arrival) {
                    return true;
                }
                std::thread::yield_now();
            }
            false
        };
        assert!(armed(&mut armer, 12, 5));
        assert!(!armer.arm(20, 5));
        go.send(()).unwrap();
        assert!(!armed(&mut armer, 30, 25), "a packet arrived after the request");
    }

    #[test]
    fn wake_before_the_sleep_is_not_lost() {
        let pace = Pace::new().unwrap();
        pace.wake();
        assert!(pace.sleep(None, None));
        assert!(!pace.sleep(Some(now()), None));
    }
}
