//! Scenarios in virtual time: actors with work on devices, and a real engine that decides.
//!
//! A device divides its time evenly among the actors that run there. An actor on several devices is as fast as on the
//! slowest of them. To take a device away costs nothing unless the scenario says so.

use super::{gang, global, local, queue};
use policies::Engine;
use protocol::hint::ProcessHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// A program that uses devices: a process, or under the local scheduler a queue.
#[derive(Debug, Clone)]
pub struct Actor {
    /// Its queues; under the local scheduler one. Names and activities do not matter.
    pub queues: Vec<QueueStatus>,
    pub process: ProcessHints,
    pub work: Work,
    /// The time for which it keeps its devices for itself after it was suspended: its work in flight.
    pub drains: u64,
    /// While it has nothing to do, it hints when its next job arrives.
    pub announces: bool,
}

/// The work of an actor.
#[derive(Debug, Clone)]
pub enum Work {
    /// Always.
    Always,
    /// From the first time on, for ever.
    From(u64),
    /// Jobs, each with its arrival and the device time that it takes, by falling neither; done one after the other.
    Jobs(Vec<(u64, u64)>),
}

impl Actor {
    /// An actor with a queue on device 1.
    pub fn new(priority: i64, work: Work) -> Self {
        let queues = vec![queue(1, 1, priority, false)];
        Self { queues, process: ProcessHints::default(), work, drains: 0, announces: false }
    }
}

/// The conditions of a scenario.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// As queues of one process.
    pub local: bool,
    /// The end.
    pub until: u64,
    /// The delay until a decision takes effect.
    pub late: fn(u64) -> u64,
    /// The power of the first device whenever the policy reads it, in milliwatts; `None` if no meter can
    /// read it.
    pub draws: Option<u64>,
}

impl Setup {
    pub fn until(until: u64) -> Self {
        Self { local: false, until, late: |_| 0, draws: None }
    }
}

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Play {
    /// For each actor the times at which it had its devices: from, to; adjacent ones are joined.
    pub spans: Vec<Vec<(u64, u64)>>,
    /// The device time of each actor, in nanoseconds.
    pub used: Vec<f64>,
    /// For each actor the jobs that are done: arrival and end.
    pub done: Vec<Vec<(u64, u64)>>,
    pub decisions: usize,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// The next job, and what is left of it if it has come.
    next: usize,
    left: Option<f64>,
    ready_since: u64,
    idle_since: Option<u64>,
    permitted: bool,
    drains_until: u64,
}

/// Plays a scenario from time 0; times in the statuses are so much later, so that nothing lies before the beginning.
pub const BEGIN: u64 = 1_000 * MS;

pub fn play(engine: &mut Engine, actors: &[Actor], setup: Setup) -> Play {
    let mut states = vec![State { permitted: true, ..State::default() }; actors.len()];
    let mut play = Play {
        spans: vec![Vec::new(); actors.len()],
        used: vec![0.0; actors.len()],
        done: vec![Vec::new(); actors.len()],
        decisions: 0,
    };
    let (mut now, mut wake) = (0, None::<u64>);
    let mut pending: Option<(u64, Vec<bool>)> = None;
    let mut changed = true;
    let (mut read, meter) = (0, setup.draws.zip(engine.reads_power()));
    loop {
        if let Some((milliwatts, every)) = meter.filter(|_| read <= now) {
            engine.set_power(DeviceId(1), milliwatts, Time(BEGIN + now));
            read = now + every.as_nanos() as u64;
            changed = true;
        }
        for (actor, state) in actors.iter().zip(&mut states) {
            changed |= state.arrive(&actor.work, now);
        }
        if changed || wake.is_some_and(|wake| wake <= now) {
            let decision = engine.decide(&status(actors, &states, setup.local), Time(BEGIN + now));
            let runs: Vec<_> = decision.operations.iter().map(|operation| operation.permit.run).collect();
            wake = decision.wake.map(|wake| wake.0.saturating_sub(BEGIN));
            assert!(wake.is_none_or(|wake| wake > now), "the wake-up lies in the future");
            assert_eq!(runs.len(), actors.len());
            let at = pending.map_or(now + (setup.late)(play.decisions as u64), |(at, _)| at);
            pending = Some((at, runs));
            play.decisions += 1;
            changed = false;
        }
        if let Some((_, runs)) = pending.take_if(|(at, _)| *at <= now) {
            for ((actor, state), runs) in actors.iter().zip(&mut states).zip(runs) {
                if state.permitted && !runs && state.left.is_some() {
                    state.drains_until = now + actor.drains;
                }
                state.permitted = runs;
            }
        }
        if now >= setup.until {
            return play;
        }
        let rates = rates(actors, &states, now);
        let mut next = setup.until;
        let reading = meter.map(|_| read);
        next =
            [wake, pending.as_ref().map(|(at, _)| *at), reading].into_iter().flatten().fold(next, u64::min);
        for ((actor, state), rate) in actors.iter().zip(&states).zip(&rates) {
            next = next.min(state.next_arrival(&actor.work).unwrap_or(u64::MAX));
            if state.drains_until > now {
                next = next.min(state.drains_until);
            }
            if let Some(left) = state.left.filter(|_| *rate > 0.0) {
                // Saturates where the work has no end.
                next = next.min(now.saturating_add((left / rate).ceil() as u64));
            }
        }
        let next = next.max(now + 1);
        for (place, (state, rate)) in states.iter_mut().zip(&rates).enumerate() {
            if *rate == 0.0 {
                continue;
            }
            let got = (next - now) as f64 * rate;
            play.used[place] += got;
            match play.spans[place].last_mut().filter(|(_, to)| *to == now) {
                Some((_, to)) => *to = next,
                None => play.spans[place].push((now, next)),
            }
            if let (Some(left), Work::Jobs(jobs)) = (&mut state.left, &actors[place].work) {
                *left -= got;
                if *left < 0.5 {
                    play.done[place].push((jobs[state.next].0, next));
                    state.next += 1;
                    state.left = None;
                    state.idle_since = Some(next);
                    changed = true;
                }
            }
        }
        now = next;
    }
}

impl State {
    /// Begins the next work if the actor is idle and the work has arrived. Returns true if it does.
    fn arrive(&mut self, work: &Work, now: u64) -> bool {
        if self.left.is_some() {
            return false;
        }
        let (arrival, length) = match work {
            Work::Always => (0, f64::INFINITY),
            Work::From(at) => (*at, f64::INFINITY),
            Work::Jobs(jobs) => match jobs.get(self.next) {
                Some(&(arrival, length)) => (arrival, length as f64),
                None => return false,
            },
        };
        if arrival > now {
            return false;
        }
        self.left = Some(length);
        self.ready_since = now;
        true
    }

    fn next_arrival(&self, work: &Work) -> Option<u64> {
        match work {
            _ if self.left.is_some() => None,
            Work::Always => None,
            Work::From(at) => Some(*at),
            Work::Jobs(jobs) => jobs.get(self.next).map(|(arrival, _)| *arrival),
        }
    }
}

fn status(actors: &[Actor], states: &[State], as_local: bool) -> Status {
    let queues = |actor: &Actor, state: &State, first: u64| -> Vec<QueueStatus> {
        let activity = match (state.left, state.idle_since) {
            (Some(_), _) => Activity::Ready { since: Time(BEGIN + state.ready_since) },
            (None, idle) => Activity::Idle { since: idle.map(|idle| Time(BEGIN + idle)) },
        };
        let arrival = actor.announces.then(|| state.next_arrival(&actor.work)).flatten();
        let named = (first..).zip(&actor.queues).map(|(name, queue)| {
            let mut queue = QueueStatus { queue: QueueId(name), activity, ..*queue };
            queue.hints.arrival = arrival.map(|at| Time(BEGIN + at)).or(queue.hints.arrival);
            queue
        });
        named.collect()
    };
    let all = (1..).zip(actors.iter().zip(states));
    if as_local {
        return local(all.flat_map(|(name, (actor, state))| queues(actor, state, name)).collect());
    }
    let gangs = all.map(|(client, (actor, state))| protocol::status::Gang {
        hints: actor.process,
        ..gang(client, queues(actor, state, 1))
    });
    global(gangs.collect())
}

/// Returns the speed of each actor.
fn rates(actors: &[Actor], states: &[State], now: u64) -> Vec<f64> {
    let works = |place: usize| states[place].left.is_some();
    let drains = |place: usize| works(place) && !states[place].permitted && states[place].drains_until > now;
    let meets = |one: usize, other: usize| {
        let [one, other] = [one, other].map(|place| &actors[place].queues);
        one.iter().any(|queue| other.iter().any(|other| other.device == queue.device))
    };
    let all = 0..actors.len();
    let rate = |place: usize| {
        if !works(place) || !(states[place].permitted || drains(place)) {
            return 0.0;
        }
        if drains(place) {
            return 1.0;
        }
        if all.clone().any(|other| drains(other) && meets(place, other)) {
            return 0.0;
        }
        let beside = |device| {
            let there = |other: usize| actors[other].queues.iter().any(|queue| queue.device == device);
            let runs = |other: usize| works(other) && states[other].permitted && there(other);
            all.clone().filter(|&other| runs(other)).count()
        };
        let most = actors[place].queues.iter().map(|queue| beside(queue.device)).max().unwrap_or(1);
        1.0 / most.max(1) as f64
    };
    all.clone().map(rate).collect()
}
