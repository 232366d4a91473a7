//! What has happened, for `xcli events`: the events that are kept, and those that wait for people who follow them.
//!
//! Both are bounded. A person who reads too slowly loses events, and is told how many. What happens rarely is always kept.
//! Whether a program runs can change a thousand times a second: that is recorded only while somebody follows, and is not
//! kept.

use crate::access::{Asker, Grant};
use protocol::control::{EVENTS, EventKind, ServerEvent};
use protocol::time::Time;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, VecDeque};

/// The people who may see an event.
#[derive(Debug, Clone)]
pub(crate) enum Audience {
    /// Those who may see all programs.
    Observers,
    /// The owner of a program as well.
    Owner { uid: u32, grant: Grant },
}

impl Audience {
    fn includes(&self, asker: &Asker) -> bool {
        match self {
            Self::Observers => asker.sees_all(),
            Self::Owner { uid, grant } => asker.sees(*uid, grant),
        }
    }
}

/// A person who follows.
#[derive(Debug)]
struct Follower {
    asker: Asker,
    waiting: VecDeque<ServerEvent>,
    dropped: u64,
}

impl Follower {
    fn push(&mut self, event: ServerEvent) {
        if self.waiting.len() < EVENTS {
            self.waiting.push_back(event);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }
}

/// All events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<(Audience, ServerEvent)>,
    /// By connection.
    followers: BTreeMap<u64, Follower>,
}

impl Events {
    /// Keeps an event, and hands it to those who follow and may see it.
    pub fn note(&mut self, audience: Audience, event: ServerEvent) {
        for follower in self.followers.values_mut().filter(|follower| audience.includes(&follower.asker)) {
            follower.push(event.clone());
        }
        if self.kept.len() >= EVENTS {
            self.kept.pop_front();
        }
        self.kept.push_back((audience, event));
    }

    /// Hands each person who follows an event that is not kept; `told` returns it as that person may see it.
    pub fn tell(&mut self, told: impl Fn(&Asker) -> Option<ServerEvent>) {
        for follower in self.followers.values_mut() {
            if let Some(event) = told(&follower.asker) {
                follower.push(event);
            }
        }
    }

    /// The newest kept events that a person may see, the oldest first.
    pub fn recent(&self, asker: &Asker, most: usize) -> Vec<ServerEvent> {
        let seen = self.kept.iter().rev().filter(|(audience, _)| audience.includes(asker));
        let mut events: Vec<_> = seen.take(most).map(|(_, event)| event.clone()).collect();
        events.reverse();
        events
    }

    /// Hands the events from now on to a connection.
    pub fn follow(&mut self, connection: u64, asker: Asker) {
        self.followers.insert(connection, Follower { asker, waiting: VecDeque::new(), dropped: 0 });
    }

    /// Forgets a connection.
    pub fn forget(&mut self, connection: u64) {
        self.followers.remove(&connection);
    }

    /// Returns true if the connection follows.
    pub fn has(&self, connection: u64) -> bool {
        self.followers.contains_key(&connection)
    }

    /// Returns true if somebody follows.
    pub fn are_followed(&self) -> bool {
        !self.followers.is_empty()
    }

    /// The connections for which events wait.
    pub fn due(&self) -> Vec<u64> {
        let due = self.followers.iter().filter(|(_, follower)| !follower.waiting.is_empty());
        due.map(|(number, _)| *number).collect()
    }

    /// Takes the events that wait for a connection; the last one says how many are missing behind them.
    pub fn take(&mut self, connection: u64, now: Time) -> Vec<ServerEvent> {
        let Some(follower) = self.followers.get_mut(&connection) else { return Vec::new() };
        let mut events: Vec<_> = follower.waiting.drain(..).collect();
        match std::mem::take(&mut follower.dropped) {
            0 => {}
            count => events.push(event(EventKind::Dropped { count }, now)),
        }
        events
    }

    /// Changes what the person of a connection may see.
    pub fn set_asker(&mut self, connection: u64, asker: Asker) {
        if let Some(follower) = self.followers.get_mut(&connection) {
            follower.asker = asker;
        }
    }
}

/// An event at a time of the server's clock, with the present wall clock.
pub(crate) fn event(kind: EventKind, at: Time) -> ServerEvent {
    let time = clock_gettime(ClockId::Realtime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    ServerEvent { time_us: seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000), at, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::bounds::Priority;

    fn grant(administers: bool) -> Grant {
        Grant { max_priority: Priority::DEFAULT, administers, observes: false, ..Grant::all("r") }
    }

    fn person(uid: u32, administers: bool) -> Asker {
        Asker { uid, grant: grant(administers) }
    }

    fn of(uid: u32) -> Audience {
        Audience::Owner { uid, grant: grant(false) }
    }

    fn numbered(number: u64) -> ServerEvent {
        ServerEvent { time_us: number, at: Time(number), kind: EventKind::Guard }
    }

    fn numbers(events: &[ServerEvent]) -> Vec<u64> {
        events.iter().map(|event| event.time_us).collect()
    }

    #[test]
    fn people_see_events_of_their_programs() {
        let mut events = Events::default();
        for (connection, asker) in [(1, person(7, false)), (2, person(0, true))] {
            events.follow(connection, asker);
        }
        events.note(of(7), numbered(1));
        events.note(of(8), numbered(2));
        events.note(Audience::Observers, numbered(3));
        events.tell(|asker| (asker.uid == 7).then(|| numbered(4)));
        assert_eq!(numbers(&events.recent(&person(7, false), 10)), [1]);
        assert_eq!(numbers(&events.recent(&person(0, true), 10)), [1, 2, 3]);
        assert_eq!(numbers(&events.recent(&person(0, true), 2)), [2, 3], "the newest ones");
        assert_eq!(events.due(), [1, 2]);
        assert_eq!(numbers(&events.take(1, Time(9))), [1, 4]);
        assert_eq!(numbers(&events.take(2, Time(9))), [1, 2, 3]);
        assert!(events.due().is_empty() && events.take(1, Time(9)).is_empty());
        events.forget(1);
        assert!(!events.has(1) && events.are_followed());
    }

    #[test]
    fn slow_reader_is_told_how_many_events_are_missing() {
        let mut events = Events::default();
        events.follow(1, person(7, false));
        for number in 0..EVENTS as u64 + 5 {
            events.note(of(7), numbered(number));
        }
        let taken = events.take(1, Time(9));
        let want: Vec<u64> = (0..EVENTS as u64).collect();
        assert_eq!(numbers(&taken[..EVENTS]), want);
        assert_eq!(
            taken[EVENTS..].iter().map(|event| &event.kind).collect::<Vec<_>>(),
            [&EventKind::Dropped { count: 5 }]
        );
        events.note(of(7), numbered(1));
        assert_eq!(numbers(&events.take(1, Time(9))), [1], "it is told once");
        let kept = events.recent(&person(7, false), usize::MAX);
        assert_eq!((kept.len(), kept[0].time_us), (EVENTS, 6), "the newest ones are kept");
    }
}
