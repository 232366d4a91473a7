//! Waits for events until a moment that is exact to the nanosecond: `epoll_wait` counts milliseconds, and `epoll_pwait2` came with
//! Linux 5.11. A timer among the events does the same on every kernel.

use protocol::time::Time;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The timer.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    /// When it rings; it may have rung.
    set: Option<Time>,
}

impl Alarm {
    /// One among the events of this epoll, under this token, which has nothing to say.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(epoll: &OwnedFd, token: u64) -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // Edge-triggered, it need never be read.
        epoll::add(epoll, &timer, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { timer, set: None })
    }

    /// Waits until something happens, or this moment comes; forever without one. May return for no reason.
    ///
    /// # Errors
    /// The kernel tells no events any more.
    pub fn wait(&mut self, epoll: &OwnedFd, until: Option<Time>, events: &mut Vec<Event>) -> Result<()> {
        let is_past = until.is_some_and(|at| at <= crate::now());
        if !is_past && until != self.set {
            self.set(until)?;
        }
        match epoll::wait(epoll, spare_capacity(events), is_past.then_some(&AT_ONCE)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn set(&mut self, until: Option<Time>) -> Result<()> {
        let at = until.map_or(AT_ONCE, |Time(nanos)| Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        });
        // Zeros mean never; one nanosecond after the clock's begin is as good as at it.
        let at = if until == Some(Time(0)) { Timespec { tv_sec: 0, tv_nsec: 1 } } else { at };
        let value = Itimerspec { it_interval: AT_ONCE, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)?;
        self.set = until;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::CreateFlags;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_when_it_should() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let mut alarm = Alarm::new(&epoll, 7).unwrap();
        let mut events = Vec::with_capacity(4);
        // The same moment twice, one that is over, an earlier one than before, and none before another.
        let begun = crate::now();
        let soon = begun.after(Duration::from_micros(300));
        let far = begun.after(Duration::from_secs(1_000));
        for until in [soon, soon, Time(0), begun] {
            while crate::now() < until {
                alarm.wait(&epoll, Some(until), &mut events).unwrap();
            }
            events.clear();
            alarm.wait(&epoll, Some(until), &mut events).unwrap();
        }
        alarm.set(Some(far)).unwrap();
        alarm.set(None).unwrap();
        let next = crate::now().after(Duration::from_micros(300));
        while crate::now() < next {
            events.clear();
            alarm.wait(&epoll, Some(next), &mut events).unwrap();
        }
        assert!(crate::now() < far);
    }
}
