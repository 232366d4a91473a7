//! When the device looks: it keeps virtual time on the heels of the wall clock without burning a core.
//!
//! Clients publish packets by plain stores. While packets keep coming the rings are polled every [`POLL`]. After
//! [`QUIET`] without any the doorbell pages are invalidated, so that the next store to one faults to the supervisor,
//! and the engine sleeps until then or until something ends by itself. The last microseconds before an end are spun, and
//! the first ones after the last one ([`ATTENTIVE`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use super::Outlook;
use crate::clock::now;
use crate::device::Time;
use crate::threads;

/// Sleep between two looks while packets come.
const POLL: Time = 20_000;
/// Without packets for this long, doorbells are armed.
const QUIET: Time = 3_000_000;
/// The last stretch before an end is not slept, as a sleep may end this much late.
const SPIN: Time = 15_000;
/// For so long after the last end on a device that has nothing left the rings are looked at without a sleep: whoever keeps
/// little in flight launches then, and a device takes that up at once.
const ATTENTIVE: Time = 50_000;
/// Between two such looks, because each takes the machine's lock.
const GLANCE: Time = 500;

/// Wakes the engine.
#[derive(Debug)]
pub struct Pace {
    wake: OwnedFd,
    stop: AtomicBool,
}

impl Pace {
    /// A pace that nobody has woken yet.
    pub fn new() -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wake, stop: AtomicBool::new(false) })
    }

    /// Something changed that a sleeping engine must look at.
    pub fn ring(&self) {
        // Fails only when the counter is full, and then the engine is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Makes [`run`] return.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Sleeps until woken, until `until`, or until a request is there to be served (which may be a doorbell: seeing it
    /// here saves the time until the serving thread has rung). `true` if it was not the time.
    fn sleep(&self, until: Option<Time>, requests: Option<BorrowedFd<'_>>) -> bool {
        let timeout = until.map(|until| {
            let left = until.saturating_sub(now());
            Timespec {
                tv_sec: (left / 1_000_000_000).cast_signed(),
                tv_nsec: (left % 1_000_000_000).cast_signed(),
            }
        });
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(requests.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let woken = matches!(rustix::event::poll(&mut fds, timeout.as_ref()), Ok(n) if n > 0);
        if woken && !fds[0].revents().is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        woken
    }
}

/// Invalidates the doorbell pages on a thread of its own: the call waits for whatever thread of a client handles a page
/// fault just then, which can take milliseconds on a busy machine.
#[derive(Debug)]
struct Armer {
    requests: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
    /// When the invalidation under way was asked for.
    since: Option<Time>,
}

impl Armer {
    /// Starts the thread, which ends with this value.
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

    /// Asks for an invalidation if none is under way, and says whether one that was asked for after the last arrival is
    /// through.
    fn arm(&mut self, now: Time, last_arrival: Time) -> bool {
        let Some(since) = self.since else {
            // Without the thread the device merely keeps polling.
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

/// Runs the device until [`Pace::stop`]: `tick` does what is due, `invalidate` makes the next store to a doorbell fault, and
/// `requests` is readable when the kernel has a request for the supervisor.
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
            // Look once more after this: what came before the invalidation rang nobody.
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

/// Until when to sleep at `t`; `None` until woken.
fn wake_time(outlook: &Outlook, t: Time, quiet: Time, armed: bool) -> Option<Time> {
    // A packet that waits for memory is not announced; the longer it has waited, the less a look costs per wait.
    let watch = outlook.watching.then_some(match quiet {
        0..50_000_000 => 50_000,
        50_000_000..1_000_000_000 => 200_000,
        _ => 1_000_000,
    });
    let poll = (!armed).then_some(POLL);
    let look = [watch, poll].into_iter().flatten().min().map(|interval| t + interval);
    let end = outlook.next.map(|next| next.saturating_sub(SPIN));
    [look, end].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_armed_idle_engine_sleeps_until_woken() {
        let idle = Outlook::default();
        assert_eq!(wake_time(&idle, 1000, QUIET * 2, true), None);
        assert_eq!(wake_time(&idle, 1000, 0, false), Some(1000 + POLL));
        let ending = Outlook { next: Some(1_000_000), ..idle };
        assert_eq!(wake_time(&ending, 1000, QUIET * 2, true), Some(1_000_000 - SPIN));
        let watching = Outlook { watching: true, ..idle };
        assert_eq!(wake_time(&watching, 1000, 2_000_000_000, true), Some(1_001_000));
    }

    #[test]
    fn what_comes_while_the_pages_are_invalidated_puts_arming_off() {
        let (go, wait) = mpsc::channel();
        let mut armer = Armer::start(move || wait.recv().unwrap());
        assert!(!armer.arm(10, 5), "asked for");
        assert!(!armer.arm(11, 5), "under way");
        go.send(()).unwrap();
        let through = |armer: &mut Armer, now, last_arrival| {
            while armer.since.is_some() {
                if armer.arm(now, last_arrival) {
                    return true;
                }
                std::thread::yield_now();
            }
            false
        };
        assert!(through(&mut armer, 12, 5));
        assert!(!armer.arm(20, 5));
        go.send(()).unwrap();
        assert!(!through(&mut armer, 30, 25), "a packet came after it was asked for");
    }

    #[test]
    fn a_ring_before_the_sleep_is_not_lost() {
        let pace = Pace::new().unwrap();
        pace.ring();
        assert!(pace.sleep(None, None));
        assert!(!pace.sleep(Some(now()), None));
    }
}
