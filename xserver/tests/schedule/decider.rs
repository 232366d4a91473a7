//! A policy inside a model: the real engine, whose memory is part of the model's state.
//!
//! An engine can neither be cloned nor hashed, but it can be written down: two engines of the same text (`Debug` shows
//! all that a policy keeps) decide alike from there on. So a memory is a number that stands for a text, and for one
//! sequence of inputs that leads to it; what an engine of that memory decides is found by leading a new one there. Times
//! count back from the last decision, so that engines which differ only in the hour are the same.

use super::rules;
use policies::Engine;
use policies::registry::Row;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues};
use protocol::time::Time;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

/// When the first decision is made.
const BEGIN: Time = Time(1_000_000_000_000);

/// A client as the server has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Not connected any more.
    Gone,
    Idle,
    /// Since so many ticks.
    Ready(u8),
}

/// What a decision is made from: the ticks since the last one, and the clients.
type Input = (u8, [Seen; 2]);

/// What is in force for each client from now on; nothing for one that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// What the policy keeps.
    pub memory: u32,
    pub run: [bool; 2],
    pub limit: [bool; 2],
    pub wants: [u32; 2],
}

/// Two clients with one queue each on one device, and a policy.
pub struct Decider {
    row: &'static Row,
    priorities: [i64; 2],
    /// How much time a tick is for the policy.
    tick: Duration,
    /// How many ticks ago something may have been for the policy to care when it was.
    pub ages: u8,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// A way to each memory.
    ways: Vec<Vec<Input>>,
    memories: HashMap<String, u32>,
    decisions: HashMap<(u32, Input), Decision>,
}

impl Decider {
    pub fn new(row: &'static Row, priorities: [i64; 2], tick: Duration, ages: u8) -> Self {
        let known = Known { ways: vec![Vec::new()], ..Known::default() };
        Self { row, priorities, tick, ages, known: Mutex::new(known) }
    }

    /// The memory of a policy that has decided nothing yet.
    pub const NEW: u32 = 0;

    /// What the policy of this memory decides.
    pub fn decide(&self, memory: u32, input: Input) -> Decision {
        let mut known = self.known.lock().expect("nobody panics");
        if let Some(decision) = known.decisions.get(&(memory, input)) {
            return *decision;
        }
        let mut way = known.ways[memory as usize].clone();
        way.push(input);
        let mut engine = Engine::new(self.row, Duration::ZERO);
        let mut now = BEGIN;
        let mut decision = Decision::default();
        for input in &way {
            decision = self.ask(&mut engine, &mut now, *input);
        }
        let text = relative(&format!("{engine:?}"), now, self.tick * u32::from(self.ages));
        let next = known.ways.len() as u32;
        decision.memory = *known.memories.entry(text).or_insert(next);
        if decision.memory == next {
            known.ways.push(way);
        }
        known.decisions.insert((memory, input), decision);
        decision
    }

    /// What an engine decides next. The memory is left open.
    fn ask(&self, engine: &mut Engine, now: &mut Time, (ticks, seen): Input) -> Decision {
        *now = now.after(self.tick * u32::from(ticks));
        let clients: Vec<usize> = (0..2).filter(|client| seen[*client] != Seen::Gone).collect();
        let gangs = clients.iter().map(|client| self.gang(*client, seen[*client], *now)).collect();
        let (permits, wants) = rules::decide(engine, gangs, *now, Duration::ZERO);
        let mut decision = Decision::default();
        for ((client, permit), wants) in clients.into_iter().zip(permits).zip(wants) {
            decision.run[client] = permit.run;
            decision.limit[client] = permit.limit;
            decision.wants[client] = wants;
        }
        decision
    }

    /// How many memories the policy has had so far.
    pub fn memories(&self) -> usize {
        self.known.lock().expect("nobody panics").ways.len()
    }

    fn gang(&self, client: usize, seen: Seen, now: Time) -> Gang {
        let name = client as u64 + 1;
        let activity = match seen {
            Seen::Ready(ticks) => {
                let since = now.0.saturating_sub((self.tick * u32::from(ticks)).as_nanos() as u64);
                Activity::Ready { since: Time(since) }
            }
            Seen::Gone | Seen::Idle => Activity::Idle { since: None },
        };
        let queue = QueueStatus {
            queue: QueueId(name),
            device: DeviceId(1),
            priority: Priority::try_from(self.priorities[client]).expect("a priority"),
            hints: QueueHints::default(),
            level: PreemptLevel::Block,
            activity,
            counts: Counts::default(),
        };
        let queues = Queues::try_from(vec![queue]).expect("one queue");
        Gang { client: ClientId(name), pid: Pid(name as u32), hints: ProcessHints::default(), queues }
    }
}

/// The text with each time as its distance from now; one that lies back further than the horizon is as if it did not.
fn relative(text: &str, now: Time, horizon: Duration) -> String {
    const TIME: &str = "Time(";
    let mut all = String::with_capacity(text.len());
    let mut parts = text.split(TIME);
    all.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(')').unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let at = Time(number.parse().expect("a time is a number"));
        let (before, after) = (now.since(at).min(horizon), at.since(now));
        // Writing to a String cannot fail.
        let _ = write!(all, "{TIME}{after:?}-{before:?}{rest}");
    }
    all
}

/// A client as it may be seen.
fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![1 => Just(Seen::Gone), 3 => Just(Seen::Idle), 6 => (0u8..3).prop_map(Seen::Ready)]
}

proptest! {
    /// Else a memory would stand for more than one.
    #[test]
    fn a_text_shows_all_that_a_policy_keeps(inputs in vec((0u8..3, [seen(), seen()]), 1..40)) {
        for (row, priorities) in [(super::hpf(), [0, 9]), (&super::turns::TURNS, [0, 0])] {
            let decider = Decider::new(row, priorities, super::turns::TURN / 2, 0);
            let mut memory = Decider::NEW;
            let (mut engine, mut now) = (Engine::new(row, Duration::ZERO), BEGIN);
            for input in &inputs {
                let decision = decider.decide(memory, *input);
                memory = decision.memory;
                let kept = decider.ask(&mut engine, &mut now, *input);
                prop_assert_eq!(Decision { memory, ..kept }, decision);
            }
        }
    }
}
