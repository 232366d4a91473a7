//! Waits for events with a timeout in nanoseconds. `epoll_wait` has milliseconds only and `epoll_pwait2`
//! needs Linux 5.11, so a timer is one of the events.

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

#[derive(Debug)]
pub(crate) struct Alarm {
    timer: OwnedFd,
    /// The time that is set; it may have passed.
    set: Option<Time>,
}

impl Alarm {
    /// Adds a timer to an epoll. Its event has this token, and needs no handling.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(epoll: &OwnedFd, token: u64) -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // An edge-triggered timer does not have to be read.
        epoll::add(epoll, &timer, EventData::new_u64(token), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { timer, set: None })
    }

    /// Waits for events, at most until this time. Spurious returns are possible.
    ///
    /// # Errors
    /// The epoll fails.
    pub fn wait(&mut self, epoll: &OwnedFd, until: Option<Time>, events: &mut Vec<Event>) -> Result<()> {
        let is_past = until.is_some_and(|at| at <= crate::clock::now());
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
        // Zero would disarm the timer, so one nanosecond replaces it.
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
    fn wait_ends_at_the_set_time() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let mut alarm = Alarm::new(&epoll, 7).unwrap();
        let mut events = Vec::with_capacity(4);
        // The same time twice, a time in the past, an earlier time, and no time before another one.
        let begun = crate::clock::now();
        let soon = begun.after(Duration::from_micros(300));
        let far = begun.after(Duration::from_secs(1_000));
        for until in [soon, soon, Time(0), begun] {
            while crate::clock::now() < until {
                alarm.wait(&epoll, Some(until), &mut events).unwrap();
            }
            events.clear();
            alarm.wait(&epoll, Some(until), &mut events).unwrap();
        }
        alarm.set(Some(far)).unwrap();
        alarm.set(None).unwrap();
        let next = crate::clock::now().after(Duration::from_micros(300));
        while crate::clock::now() < next {
            events.clear();
            alarm.wait(&epoll, Some(next), &mut events).unwrap();
        }
        assert!(crate::clock::now() < far);
    }
}
