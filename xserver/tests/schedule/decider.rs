//! A policy inside a model: the real engine, whose memory is part of the model's state.
//!
//! An engine can neither be cloned nor hashed, but it can be written down: two engines of the same text
//! (`Debug` shows all that a policy keeps) decide alike from there on. So a memory is a number that stands
//! for a text, and for one sequence of inputs that leads to it; what an engine of that memory decides is
//! found by leading a new one there. Times count back from the last decision, so that engines which differ
//! only in the hour are the same. What clients have said of their queues belongs to the memory as well.

use super::rules;
use policies::registry::Row;
use policies::{Choice, Engine};
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

/// What a person or a client says to the server.
#[derive(Debug, Clone, Copy)]
pub enum HintUpdate {
    /// This policy decides from now on: on one device, or on all that have none of their own.
    Policy(Option<u32>, &'static Row),
    /// The device has no policy of its own any more.
    Reset(u32),
    /// A client, of its queues.
    Hints(usize, QueueHints),
}

/// What leads from one memory to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Input {
    /// A decision, from the ticks since the last one and the clients.
    Decide(u8, [Seen; 2]),
    /// The one of this number is said.
    Say(u8),
}

/// What is in force for each client from now on; nothing for one that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// What the policy keeps.
    pub memory: u32,
    pub run: [bool; 2],
    pub limit: [bool; 2],
    pub event_mask: [u32; 2],
}

/// Two clients, and what decides.
pub struct Decider {
    row: &'static Row,
    priorities: [i64; 2],
    /// On which devices each client has a queue. What it does it does on all of them.
    pub devices: [&'static [u32]; 2],
    /// What may be said, in this order.
    pub says: Vec<HintUpdate>,
    /// Only if it is made to: a policy that is chosen for a device decides on all.
    pub one_for_all: bool,
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
        let (devices, says): ([&[u32]; 2], _) = ([&[1]; 2], Vec::new());
        Self { row, priorities, devices, says, one_for_all: false, tick, ages, known: Mutex::new(known) }
    }

    /// The memory of a policy that has decided nothing yet.
    pub const NEW: u32 = 0;

    /// What the policy of this memory decides so many ticks after its last decision.
    pub fn decide(&self, memory: u32, ticks: u8, seen: [Seen; 2]) -> Decision {
        self.follow(memory, Input::Decide(ticks, seen))
    }

    /// The memory after this has been said.
    pub fn say(&self, memory: u32, number: u8) -> u32 {
        self.follow(memory, Input::Say(number)).memory
    }

    fn follow(&self, memory: u32, input: Input) -> Decision {
        let mut known = self.known.lock().expect("nobody panics");
        if let Some(decision) = known.decisions.get(&(memory, input)) {
            return *decision;
        }
        let mut way = known.ways[memory as usize].clone();
        way.push(input);
        let mut walk = Walk::new(self.row);
        let mut decision = Decision::default();
        for input in &way {
            decision = self.ask(&mut walk, *input);
        }
        let text = format!("{:?}{:?}", walk.engine, walk.hints);
        let text = relative(&text, walk.now, self.tick * u32::from(self.ages));
        let next = known.ways.len() as u32;
        decision.memory = *known.memories.entry(text).or_insert(next);
        if decision.memory == next {
            known.ways.push(way);
        }
        known.decisions.insert((memory, input), decision);
        decision
    }

    /// What an engine makes of this. The memory is left open.
    fn ask(&self, walk: &mut Walk, input: Input) -> Decision {
        let mut decision = Decision::default();
        match input {
            Input::Decide(ticks, seen) => {
                walk.now = walk.now.after(self.tick * u32::from(ticks));
                let clients: Vec<usize> = (0..2).filter(|client| seen[*client] != Seen::Gone).collect();
                let gang = |client: &usize| self.gang(*client, seen[*client], walk.hints[*client], walk.now);
                let gangs = clients.iter().map(gang).collect();
                let (permits, event_mask) = rules::decide(&mut walk.engine, gangs, walk.now);
                for ((client, permit), event_mask) in clients.into_iter().zip(permits).zip(event_mask) {
                    decision.run[client] = permit.run;
                    decision.limit[client] = permit.limit;
                    decision.event_mask[client] = event_mask;
                }
            }
            Input::Say(number) => match self.says[usize::from(number)] {
                HintUpdate::Policy(Some(device), row) if !self.one_for_all => {
                    walk.engine.set_device_policy(DeviceId(device), Some(Choice::new(row)));
                }
                HintUpdate::Policy(_, row) => walk.engine.set_policy(row),
                HintUpdate::Reset(device) => walk.engine.set_device_policy(DeviceId(device), None),
                HintUpdate::Hints(client, hints) => walk.hints[client] = hints,
            },
        }
        decision
    }

    /// How many memories the policy has had so far.
    pub fn memories(&self) -> usize {
        self.known.lock().expect("nobody panics").ways.len()
    }

    fn gang(&self, client: usize, seen: Seen, hints: QueueHints, now: Time) -> Gang {
        let name = client as u64 + 1;
        let activity = match seen {
            Seen::Ready(ticks) => {
                let since = now.0.saturating_sub((self.tick * u32::from(ticks)).as_nanos() as u64);
                Activity::Ready { since: Time(since) }
            }
            Seen::Gone | Seen::Idle => Activity::Idle { since: None },
        };
        let queue = |(queue, device): (u64, &u32)| QueueStatus {
            queue: QueueId(queue),
            device: DeviceId(*device),
            priority: Priority::try_from(self.priorities[client]).expect("a priority"),
            hints,
            level: PreemptLevel::Block,
            activity,
            counts: Counts::default(),
        };
        let queues: Vec<_> = (1..).zip(self.devices[client]).map(queue).collect();
        let queues = Queues::try_from(queues).expect("each has its own name");
        Gang { client: ClientId(name), pid: Pid(name as u32), hints: ProcessHints::default(), queues }
    }
}

/// An engine on its way.
struct Walk {
    engine: Engine,
    hints: [QueueHints; 2],
    now: Time,
}

impl Walk {
    fn new(row: &'static Row) -> Self {
        let engine = Engine::new(row, Duration::ZERO);
        Self { engine, hints: [QueueHints::default(); 2], now: BEGIN }
    }
}

/// The text with each time as its distance from now; one that lies back further than the horizon is as if it
/// did not.
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

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (0u8..3, [seen(), seen()]).prop_map(|(ticks, seen)| Input::Decide(ticks, seen)),
        1 => (0u8..4).prop_map(Input::Say),
    ]
}

proptest! {
    /// Else a memory would stand for more than one.
    #[test]
    fn a_text_shows_all_that_a_policy_keeps(inputs in vec(input(), 1..40)) {
        for (row, other, priorities) in
            [(super::hpf(), &super::turns::TURNS, [0, 9]), (&super::turns::TURNS, super::lax(), [0, 0])]
        {
            let says = vec![
                HintUpdate::Policy(None, other),
                HintUpdate::Policy(Some(1), other),
                HintUpdate::Reset(1),
                HintUpdate::Hints(1, super::critical()),
            ];
            let decider = Decider { says, ..Decider::new(row, priorities, super::turns::TURN / 2, 0) };
            let mut memory = Decider::NEW;
            let mut walk = Walk::new(row);
            for input in &inputs {
                let decision = decider.follow(memory, *input);
                memory = decision.memory;
                let kept = decider.ask(&mut walk, *input);
                prop_assert_eq!(Decision { memory, ..kept }, decision);
            }
        }
    }
}
