//! Traces: entities whose work and hints come at fixed times. An engine decides at each change and wake-up.

use super::{gang, global, queue};
use policies::Engine;
use policies::reason::EXPECTED;
use protocol::operation::{Operation, Reason};
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;

/// A process with queues that have work at the same times.
#[derive(Debug, Clone)]
pub struct TracedClient {
    pub queues: Vec<QueueStatus>,
    /// The times at which it has work: from, to; rising, none empty.
    pub busy: Vec<(u64, u64)>,
    /// The hints about the next arrival: when they come, and the hinted time; rising.
    pub hints: Vec<(u64, Option<u64>)>,
    /// The times at which it connects and goes.
    pub there: (u64, u64),
}

impl TracedClient {
    /// An entity with a queue on device 1.
    pub fn new(priority: i64, busy: Vec<(u64, u64)>) -> Self {
        Self { queues: vec![queue(1, 1, priority, false)], busy, hints: Vec::new(), there: (0, u64::MAX) }
    }

    /// An entity that always has work.
    pub fn saturating(priority: i64) -> Self {
        Self::new(priority, vec![(0, u64::MAX)])
    }

    pub fn hinted(self, hints: Vec<(u64, Option<u64>)>) -> Self {
        Self { hints, ..self }
    }

    pub fn is_there(&self, now: u64) -> bool {
        (self.there.0..self.there.1).contains(&now)
    }

    pub fn is_busy(&self, now: u64) -> bool {
        self.is_there(now) && self.busy.iter().any(|&(from, to)| (from..to).contains(&now))
    }

    fn queues(&self, now: u64) -> Vec<QueueStatus> {
        let busy = self.busy.iter().find(|&&(from, to)| (from..to).contains(&now));
        let idle = self.busy.iter().rev().find(|(_, to)| *to <= now).map(|(_, to)| Time(*to));
        let activity = match busy {
            Some((from, _)) => Activity::Ready { since: Time(*from) },
            None => Activity::Idle { since: idle },
        };
        let arrival = self.hints.iter().rev().find(|(told, _)| *told <= now).and_then(|(_, at)| *at);
        let told = |queue: &QueueStatus| {
            let mut queue = QueueStatus { activity, ..*queue };
            queue.hints.arrival = arrival.map(Time);
            queue
        };
        self.queues.iter().map(told).collect()
    }

    fn changes(&self) -> impl Iterator<Item = u64> {
        let busy = self.busy.iter().flat_map(|&(from, to)| [from, to]);
        busy.chain(self.hints.iter().map(|(told, _)| *told)).chain([self.there.0, self.there.1])
    }
}

/// A decision, and until when it held.
#[derive(Debug, Clone, PartialEq)]
pub struct Shot {
    pub from: u64,
    pub to: u64,
    /// The operation of each entity that was there.
    pub operations: Vec<Option<Operation>>,
}

impl Shot {
    pub fn runs(&self, entity: usize) -> bool {
        self.operations[entity].is_some_and(|operation| operation.permit.run)
    }

    /// Returns the number of the entity for which this one's device is kept free.
    pub fn kept_for(&self, entity: usize) -> Option<usize> {
        match self.operations[entity]?.permit.reason {
            Reason::Outranked { by, .. } if EXPECTED.is(&by.reason) => Some(by.pid.0 as usize - 1001),
            _ => None,
        }
    }
}

/// Plays a trace from time 0 on.
pub fn trace(engine: &mut Engine, entities: &[TracedClient], until: u64) -> Vec<Shot> {
    let mut changes: Vec<_> = entities.iter().flat_map(TracedClient::changes).chain([0]).collect();
    changes.sort_unstable();
    changes.dedup();
    let mut changes = changes.into_iter().peekable();
    let mut shots: Vec<Shot> = Vec::new();
    let mut wake = None;
    loop {
        let change = changes.peek().copied().unwrap_or(u64::MAX);
        let now = wake.map_or(change, |wake: u64| wake.min(change));
        if let Some(shot) = shots.last_mut() {
            shot.to = now.min(until);
        }
        if now >= until {
            return shots;
        }
        changes.next_if_eq(&now);
        let there: Vec<_> = (0..entities.len()).filter(|&entity| entities[entity].is_there(now)).collect();
        let status = status(entities, &there, now);
        let decision = engine.decide(&status, Time(now));
        wake = decision.wake.map(|wake| wake.0);
        let mut operations = vec![None; entities.len()];
        for (&entity, operation) in there.iter().zip(decision.operations) {
            operations[entity] = Some(*operation);
        }
        shots.push(Shot { from: now, to: until, operations });
    }
}

fn status(entities: &[TracedClient], there: &[usize], now: u64) -> Status {
    global(there.iter().map(|&entity| gang(entity as u64 + 1, entities[entity].queues(now))).collect())
}

/// Returns the times at which an entity runs while it has work; adjacent ones are joined.
pub fn spans(shots: &[Shot], entities: &[TracedClient], entity: usize) -> Vec<(u64, u64)> {
    joined(shots, |shot| shot.runs(entity) && entities[entity].is_busy(shot.from))
}

/// Returns the times at which an entity's device is kept free.
pub fn kept(shots: &[Shot], entity: usize) -> Vec<(u64, u64)> {
    joined(shots, |shot| shot.kept_for(entity).is_some())
}

fn joined(shots: &[Shot], is: impl Fn(&Shot) -> bool) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for shot in shots.iter().filter(|shot| is(shot)) {
        match spans.last_mut().filter(|(_, to)| *to == shot.from) {
            Some((_, to)) => *to = shot.to,
            None => spans.push((shot.from, shot.to)),
        }
    }
    spans
}
