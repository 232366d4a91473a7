//! The decisions in a model. The real policy engine makes them, and its state is part of the model's state.
//!
//! An engine can be neither cloned nor hashed. But its `Debug` text shows all that a policy keeps, so two
//! engines with the same text make the same decisions from then on. A *memory* is a number that stands for
//! one such text, and for one sequence of inputs that leads to it. To decide, the decider creates a new
//! engine and replays that sequence on it. Times in the text are relative to the last decision, so that
//! engines which differ only in absolute time have the same memory. The hints of the clients belong to the
//! memory as well.

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

/// The time before the first input.
const BEGIN: Time = Time(1_000_000_000_000);

/// The state of a client as the server has last read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// It is no longer connected.
    Gone,
    Idle,
    /// It has been ready for this number of ticks, up to [`Decider::max_age`].
    Ready(u8),
}

/// A change of the settings while the server runs.
#[derive(Debug, Clone, Copy)]
pub enum SettingChange {
    /// A user sets the policy of one device, or of all devices without their own policy.
    Policy(Option<u32>, &'static Row),
    /// A user removes the device's own policy.
    Reset(u32),
    /// The client of this index changes the hints for its queues.
    Hints(usize, QueueHints),
}

/// An input of an engine, which leads from one memory to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Input {
    /// A decision. The ticks since the last one, and the states of the clients.
    Decide(u8, [Seen; 2]),
    /// The change in [`Decider::setting_changes`] with this index.
    Change(u8),
}

/// The permissions and event masks of both clients. A client that is gone has no permission and no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decision {
    /// The memory after the decision.
    pub memory: u32,
    pub run: [bool; 2],
    pub limit: [bool; 2],
    pub event_mask: [u32; 2],
}

/// A policy engine, the clients for which it decides, and the changes of their settings.
pub struct Decider {
    row: &'static Row,
    priorities: [i64; 2],
    /// The devices on which each client has a queue. All queues of a client are ready at the same times.
    pub devices: [&'static [u32]; 2],
    /// The setting changes, in order.
    pub setting_changes: Vec<SettingChange>,
    /// A policy that is set for one device decides on all devices. Only under a mutation.
    pub device_policy_on_all: bool,
    /// The length of a tick for the policy.
    tick: Duration,
    /// The highest age in ticks. Anything longer ago counts as this long ago.
    pub max_age: u8,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// For each memory, a sequence of inputs that leads to it.
    paths: Vec<Vec<Input>>,
    /// The memory of each text.
    memories: HashMap<String, u32>,
    decisions: HashMap<(u32, Input), Decision>,
}

impl Decider {
    /// Creates a decider for two clients that have a queue each on device 1, without setting changes.
    pub fn new(row: &'static Row, priorities: [i64; 2], tick: Duration, max_age: u8) -> Self {
        let cache = Cache { paths: vec![Vec::new()], ..Cache::default() };
        Self {
            row,
            priorities,
            devices: [&[1]; 2],
            setting_changes: Vec::new(),
            device_policy_on_all: false,
            tick,
            max_age,
            cache: Mutex::new(cache),
        }
    }

    /// The memory of a policy that has decided nothing yet.
    pub const NEW: u32 = 0;

    /// Decides with this memory. `ticks`: the ticks since the last decision.
    pub fn decide(&self, memory: u32, ticks: u8, seen: [Seen; 2]) -> Decision {
        self.advance(memory, Input::Decide(ticks, seen))
    }

    /// Returns the memory after a setting change.
    pub fn change_setting(&self, memory: u32, index: u8) -> u32 {
        self.advance(memory, Input::Change(index)).memory
    }

    /// Returns the decision after an input, and the memory to which it leads.
    fn advance(&self, memory: u32, input: Input) -> Decision {
        let mut cache = self.cache.lock().expect("the lock is not poisoned");
        if let Some(decision) = cache.decisions.get(&(memory, input)) {
            return *decision;
        }
        let mut path = cache.paths[memory as usize].clone();
        path.push(input);
        let mut replay = Replay::new(self.row);
        let mut decision = Decision::default();
        for input in &path {
            decision = self.apply(&mut replay, *input);
        }
        let text = format!("{:?}{:?}", replay.engine, replay.hints);
        let text = relative(&text, replay.now, self.tick * u32::from(self.max_age));
        let next = cache.paths.len() as u32;
        decision.memory = *cache.memories.entry(text).or_insert(next);
        if decision.memory == next {
            cache.paths.push(path);
        }
        cache.decisions.insert((memory, input), decision);
        decision
    }

    /// Applies an input to an engine. The result has no memory yet.
    fn apply(&self, replay: &mut Replay, input: Input) -> Decision {
        let mut decision = Decision::default();
        match input {
            Input::Decide(ticks, seen) => {
                replay.now = replay.now.after(self.tick * u32::from(ticks));
                let clients: Vec<usize> = (0..2).filter(|client| seen[*client] != Seen::Gone).collect();
                let gang =
                    |client: &usize| self.gang(*client, seen[*client], replay.hints[*client], replay.now);
                let gangs = clients.iter().map(gang).collect();
                let (permits, event_mask) = rules::decide(&mut replay.engine, gangs, replay.now);
                for ((client, permit), event_mask) in clients.into_iter().zip(permits).zip(event_mask) {
                    decision.run[client] = permit.run;
                    decision.limit[client] = permit.limit;
                    decision.event_mask[client] = event_mask;
                }
            }
            Input::Change(index) => match self.setting_changes[usize::from(index)] {
                SettingChange::Policy(Some(device), row) if !self.device_policy_on_all => {
                    replay.engine.set_device_policy(DeviceId(device), Some(Choice::new(row)));
                }
                SettingChange::Policy(_, row) => replay.engine.set_policy(row),
                SettingChange::Reset(device) => replay.engine.set_device_policy(DeviceId(device), None),
                SettingChange::Hints(client, hints) => replay.hints[client] = hints,
            },
        }
        decision
    }

    /// Returns the number of memories found so far.
    pub fn memories(&self) -> usize {
        self.cache.lock().expect("the lock is not poisoned").paths.len()
    }

    /// Returns the gang of a client, as the engine gets it from the server.
    fn gang(&self, client: usize, seen: Seen, hints: QueueHints, now: Time) -> Gang {
        let id = client as u64 + 1;
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
            priority: Priority::try_from(self.priorities[client]).expect("the priority is in range"),
            hints,
            level: PreemptLevel::Block,
            activity,
            counts: Counts::default(),
        };
        let queues: Vec<_> = (1..).zip(self.devices[client]).map(queue).collect();
        let queues = Queues::try_from(queues).expect("every queue has its own id");
        Gang { client: ClientId(id), pid: Pid(id as u32), owner: 0, hints: ProcessHints::default(), queues }
    }
}

/// A new engine to which the inputs of a path are applied again.
struct Replay {
    engine: Engine,
    hints: [QueueHints; 2],
    now: Time,
}

impl Replay {
    fn new(row: &'static Row) -> Self {
        let engine = Engine::new(row, Duration::ZERO);
        Self { engine, hints: [QueueHints::default(); 2], now: BEGIN }
    }
}

/// Replaces each time in the text by its distance from `now`. A time more than `horizon` ago counts as
/// `horizon` ago.
fn relative(text: &str, now: Time, horizon: Duration) -> String {
    const TIME: &str = "Time(";
    let mut result = String::with_capacity(text.len());
    let mut parts = text.split(TIME);
    result.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(')').unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let at = Time(number.parse().expect("a time is a number"));
        let (before, after) = (now.since(at).min(horizon), at.since(now));
        // Writing to a String cannot fail.
        let _ = write!(result, "{TIME}{after:?}-{before:?}{rest}");
    }
    result
}

/// Generates the state of a client.
fn seen() -> impl Strategy<Value = Seen> {
    prop_oneof![1 => Just(Seen::Gone), 3 => Just(Seen::Idle), 6 => (0u8..3).prop_map(Seen::Ready)]
}

/// Generates an input for a decider with four setting changes.
fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (0u8..3, [seen(), seen()]).prop_map(|(ticks, seen)| Input::Decide(ticks, seen)),
        1 => (0u8..4).prop_map(Input::Change),
    ]
}

proptest! {
    /// Compares a decider with one engine that gets all inputs. A decision would differ if two engines had
    /// the same text, and so the same memory, but not the same state.
    #[test]
    fn debug_text_shows_all_that_a_policy_keeps(inputs in vec(input(), 1..40)) {
        for (row, other, priorities) in
            [(super::hpf(), &super::turns::TURNS, [0, 9]), (&super::turns::TURNS, super::lax(), [0, 0])]
        {
            let setting_changes = vec![
                SettingChange::Policy(None, other),
                SettingChange::Policy(Some(1), other),
                SettingChange::Reset(1),
                SettingChange::Hints(1, super::critical_hints()),
            ];
            let tick = super::turns::TURN / 2;
            let decider = Decider { setting_changes, ..Decider::new(row, priorities, tick, 0) };
            let mut memory = Decider::NEW;
            let mut replay = Replay::new(row);
            for input in &inputs {
                let decision = decider.advance(memory, *input);
                memory = decision.memory;
                let expected = decider.apply(&mut replay, *input);
                prop_assert_eq!(Decision { memory, ..expected }, decision);
            }
        }
    }
}
