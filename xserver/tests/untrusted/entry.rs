//! What reads input of others: entry points for the property tests here and for the fuzz targets (`fuzz/`). Each takes any
//! bytes, and panics if a rule is broken.

use policies::{Choice, registry};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::control::{HintUpdate, Preemption, Target};
use protocol::frame::Frame;
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::message::ToServer;
use protocol::page::{SLOTS, activity_word};
use protocol::slow::SlowPath;
use protocol::status::{Activity, Counts};
use protocol::time::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use xserver::access::{Asker, Grant};
use xserver::configuration::{Accounts, Configuration};
use xserver::core::{ClientPage, Core, Newcomer, Settings};
use xserver::limits::Limits;
use xserver::programs::Program;

/// Users and groups without the machine's databases.
struct Names;

impl Accounts for Names {
    fn number(&self, name: &str, group: bool) -> std::io::Result<Option<u32>> {
        match name.len() {
            0 => Err(std::io::ErrorKind::InvalidInput.into()),
            1..8 => Ok(Some(name.len() as u32 + u32::from(group))),
            _ => Ok(None),
        }
    }
}

/// The text of a configuration. A mistake is one line; what is accepted has every key, and a core can follow it.
pub fn configuration(text: &str) {
    match Configuration::parse(text, &Names) {
        Err(error) => assert_eq!(format!("{error:#}").lines().count(), 1, "{error:#}"),
        Ok(configuration) => {
            assert!(configuration.keys.len() >= Configuration::default().keys.len());
            let mut core = Core::<Page>::new(registry::DEFAULT, Settings::default());
            core.follow(None, &configuration).expect("it was checked");
            core.set_limits(configuration.limits);
            core.follow(Some(&configuration), &Configuration::default()).expect("it was checked");
            let _ = core.step(Time(1));
        }
    }
}

/// The most clients at a time.
const CLIENTS: usize = 6;
/// The most queues of a client, so that each byte of an input has an effect.
const QUEUES: u64 = 5;
/// The steps after which the core must ask for a later time, if no page changes.
const STEPS: usize = 64;

/// The input, as numbers. It ends with zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.bytes(8);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }
}

/// The page of a client that writes anything at any time.
#[derive(Debug, Default)]
struct Memory {
    words: RefCell<Vec<u64>>,
    /// If not 0, each read returns something else.
    noise: Cell<u64>,
    stopped: Cell<bool>,
    permission: Cell<Option<u64>>,
    event_mask: Cell<u32>,
}

impl Memory {
    fn read(&self, index: usize) -> u64 {
        let words = self.words.borrow();
        let word = words.get(index % words.len().max(1)).copied().unwrap_or(0);
        match self.noise.get() {
            0 => word,
            seed => {
                // A step of xorshift.
                let next = seed ^ seed << 13;
                let next = next ^ next >> 7;
                let next = next ^ next << 17;
                self.noise.set(next);
                word ^ next
            }
        }
    }
}

#[derive(Debug)]
struct Page(Rc<Memory>);

impl ClientPage for Page {
    fn activity(&self, slot: u32) -> u64 {
        assert!((slot as usize) < SLOTS, "slot {slot} is not on the page");
        self.0.read(slot as usize)
    }

    fn counts(&self, slot: u32) -> Counts {
        let word = |index| self.0.read(slot as usize + index);
        Counts {
            pending: word(1),
            in_flight: word(2),
            direct: word(3),
            deferred: word(4),
            suspensions: word(5),
            suspended_ns: word(6),
        }
    }

    fn worked_ns(&self, slot: u32) -> u64 {
        self.0.read(slot as usize + 7)
    }

    fn completed(&self) -> u64 {
        self.0.read(8)
    }

    fn taken(&self) -> u64 {
        self.0.read(13)
    }

    fn busy_until(&self) -> Time {
        Time(self.0.read(9))
    }

    fn preemption(&self) -> Preemption {
        Preemption { holds: self.0.read(10), expected_ns: Some(self.0.read(11)), ..Preemption::default() }
    }

    fn slow_path(&self, reason: SlowPath) -> u64 {
        self.0.read(reason.number())
    }

    fn takes(&self) -> u32 {
        self.0.read(12) as u32
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.get()
    }

    fn set_event_mask(&self, mask: u32) {
        self.0.event_mask.set(mask);
    }

    fn set_permission(&self, word: u64) {
        let before = self.0.permission.replace(Some(word));
        assert!(before.is_none_or(|before| before >> 32 != word >> 32), "the generation has not changed");
        assert!((1..=3).contains(&(word >> 8 & 0xff)), "{word:#x} has no level");
    }

    fn wake(&self) {}
}

fn grant(administers: bool) -> Grant {
    if administers {
        return Grant::all("root");
    }
    let (max_priority, max_share) = (Priority::DEFAULT, 50.try_into().expect("it is in range"));
    let (max_level, within) = (PreemptLevel::Deactivate, None);
    let (rule, sets_policies, observes) = ("default".into(), false, false);
    Grant { rule, max_priority, max_share, max_level, administers, sets_policies, observes, within }
}

/// Clients that join, leave, send any message and write anything on their pages, and people who change policies and hints.
/// After each step every client has a permission; everybody runs while scheduling is off; and the core does not ask for step
/// after step at the same time while no page changes.
pub fn pages(bytes: &[u8]) {
    let mut input = Input(bytes);
    let settings = Settings {
        guard: input.byte() & 1 == 0,
        starvation: Some(Duration::from_millis(input.byte().into())).filter(|limit| !limit.is_zero()),
        ..Settings::default()
    };
    let mut core = Core::<Page>::new(row(&mut input), settings);
    let mut clients: Vec<(ClientId, Rc<Memory>)> = Vec::new();
    let mut now = Time(1 << 40);
    let administrator = Asker { uid: 0, grant: grant(true) };
    let person = Asker { uid: 1000, grant: grant(false) };
    let configuration = Configuration { starvation: settings.starvation, ..Configuration::default() };
    while !input.0.is_empty() {
        let kind = input.byte();
        let chosen = input.below(clients.len());
        match kind % 16 {
            0 if clients.len() < CLIENTS => {
                let memory = Rc::new(Memory { words: vec![0; 14].into(), ..Memory::default() });
                let uid = if input.byte() & 1 == 0 { 0 } else { 1000 };
                let pid = Pid(input.byte().into());
                let newcomer = Newcomer { pid, uid, name: String::new(), grant: grant(uid == 0) };
                clients.push((core.join(newcomer, Page(memory.clone())), memory));
            }
            1 if !clients.is_empty() => {
                let (client, _) = clients.swap_remove(chosen);
                assert!(core.leave(client).is_some());
            }
            // Messages with any numbers, of which most break a rule, and with those that do not.
            2 => {
                let frame = Frame { kind: u16::from(input.byte()) % 12, payload: input.bytes(80).to_vec() };
                if let (Ok(message), Some((client, _))) = (ToServer::decode(&frame), clients.get(chosen)) {
                    let _ = core.apply(*client, &message);
                }
            }
            3 | 4 => {
                let (queue, device) = (u64::from(input.byte()) % QUEUES, u32::from(input.byte()) % 3);
                let priority = i64::from(input.byte()) - 128;
                let created = ToServer::QueueCreated {
                    queue: QueueId(queue),
                    slot: queue as u32,
                    device: DeviceId(device),
                    priority: priority.try_into().expect("it is in range"),
                    level: protocol::codes::PreemptLevel::Block,
                };
                if let Some((client, _)) = clients.get(chosen) {
                    let _ = core.apply(*client, &created);
                }
            }
            // Any word, and states of about now.
            5 => {
                let (index, word) = (input.below(12), input.number());
                if let Some((_, memory)) = clients.get(chosen) {
                    memory.words.borrow_mut()[index] = word;
                }
            }
            6 | 7 => {
                let (index, ready) = (input.below(QUEUES as usize), input.byte());
                let since = Time(now.0.wrapping_add(u64::from(input.byte()) << 16).wrapping_sub(1 << 22));
                let activity = match ready & 1 {
                    0 => Activity::Idle { since: Some(since) },
                    _ => Activity::Ready { since },
                };
                if let Some((_, memory)) = clients.get(chosen) {
                    memory.words.borrow_mut()[index] = activity_word(activity);
                }
            }
            8 => {
                let noise = input.number();
                if let Some((_, memory)) = clients.get(chosen) {
                    memory.noise.set(noise);
                }
            }
            9 => {
                let stopped = input.byte() & 1 == 1;
                if let Some((_, memory)) = clients.get(chosen) {
                    memory.stopped.set(stopped);
                }
            }
            10 => core.set_on(input.byte() & 1 == 1),
            11 => {
                let device = Some(DeviceId(u32::from(input.byte()) % 4)).filter(|device| device.0 > 0);
                let _ = core.set_policy(device, row(&mut input));
            }
            12 => {
                let asker = if input.byte() & 1 == 0 { &administrator } else { &person };
                let pid = Some(Pid(input.byte().into())).filter(|pid| pid.0 > 0);
                let queue = Some(QueueId(u64::from(input.byte()) % QUEUES)).filter(|queue| queue.0 > 0);
                if let Some(said) = hint(&mut input) {
                    let _ = core.hint(asker, Target { pid, queue }, &[said], now);
                }
            }
            13 => {
                core.set_power(DeviceId(u32::from(input.byte()) % 3), input.number(), now);
                core.set_limits(Limits { queues_per_user: input.below(9) + 1, ..Limits::of_one_user() });
                let programs = hint(&mut input).map(|said| program(&[said])).into_iter().collect();
                let next = Configuration { programs, ..configuration.clone() };
                core.follow(Some(&configuration), &next).expect("no device has an own policy");
                if let Some((client, _)) = clients.get(chosen) {
                    core.set_nice(*client, input.byte() as i8);
                    core.set_grant(*client, grant(input.byte() & 1 == 1));
                }
            }
            // From nothing to 2^41 ns.
            14 => now = now.after(Duration::from_nanos(u64::from(input.byte()) << (input.byte() % 34))),
            _ => {
                for asker in [&administrator, &person] {
                    let listed = core.clients(asker).count();
                    assert!(listed <= clients.len() && (!asker.grant.administers || listed == clients.len()));
                }
            }
        }
        if kind & 0x80 != 0 {
            step(&mut core, &clients, &mut now);
        }
    }
    step(&mut core, &clients, &mut now);
    core.release_all(now);
    assert!(clients.iter().all(|(_, memory)| runs(memory)), "a client waits for a server that has ended");
}

/// A policy with its default parameters.
fn row(input: &mut Input<'_>) -> Choice {
    let kind = registry::BUILT[input.below(registry::BUILT.len())];
    registry::find(kind).expect("it is built").into()
}

/// Hints for all programs.
fn program(hints: &[HintUpdate]) -> Arc<Program> {
    Arc::new(Program { name: "*".into(), users: Vec::new(), hints: hints.to_vec() })
}

/// A hint in the form of a request.
fn hint(input: &mut Input<'_>) -> Option<HintUpdate> {
    let specs = protocol::hint::table::HINTS;
    let spec = &specs[input.below(specs.len())];
    // The type of the number decides which numbers are small.
    let number = input.number().cast_signed() >> (input.byte() & 63);
    spec.from_number(number)
}

fn runs(memory: &Memory) -> bool {
    memory.permission.get().is_some_and(|word| word & 1 == 1)
}

/// Steps as the server does, until the core waits.
fn step(core: &mut Core<Page>, clients: &[(ClientId, Rc<Memory>)], now: &mut Time) {
    let is_quiet = clients.iter().all(|(_, memory)| memory.noise.get() == 0);
    let mut wake = core.step(*now);
    for _ in 0..STEPS {
        if wake.is_none_or(|wake| wake > *now) {
            break;
        }
        wake = core.step(*now);
    }
    assert!(!is_quiet || wake.is_none_or(|wake| wake > *now), "the core never waits");
    for (_, memory) in clients {
        assert!(memory.permission.get().is_some(), "a client has no permission");
        assert!(core.is_on() || runs(memory), "a client waits although scheduling is off");
    }
}
