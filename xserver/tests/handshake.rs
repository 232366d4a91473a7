//! The handshake about readiness, every interleaving of it (stateright): clients write, then look at what is wanted; the
//! server looks, decides by the real policies, writes what it wants by the real rules, and looks again. Policies may be chosen
//! and hints be told meanwhile.
//!
//! Time is abstract: a queue that turned idle lingers until some step ends that, and the server's timer may fire
//! whenever it has seen one that lingers. There is no heartbeat, which would hide everything.

mod rules;

use policies::registry::Row;
use policies::{Choice, Engine, registry};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{Laxity, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::page::{WANTS_IDLE, WANTS_READY};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues};
use protocol::time::Time;
use stateright::{Checker, Model, Property};
use std::collections::HashMap;
use std::num::NonZeroU64;

const NOW: Time = Time(1_000_000_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Ready,
    Lingering,
    Idle,
}

/// A queue's thread: it has written that the queue turned ready, or idle, and not looked at what is wanted yet; or, if
/// it does so in the wrong order, has looked and not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thread {
    Between,
    Written,
    Looked { wanted: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Server {
    Rests,
    /// Looks at this queue next.
    Looks(usize),
    /// Writes what it wants of this client next.
    Wants {
        client: usize,
        missed: bool,
    },
    /// Looks again at this client's queues.
    LooksAgain {
        client: usize,
        missed: bool,
    },
    Permits,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    queues: Vec<State>,
    threads: Vec<Thread>,
    wants: Vec<u32>,
    runs: Vec<bool>,
    /// The eventfds.
    woken: bool,
    /// Which setting holds, by what has been said; which of them the server has heard, and whether it has in this round.
    said: usize,
    heard: usize,
    hears: bool,
    /// The server has seen a queue that lingers.
    timer: bool,
    server: Server,
    seen: Vec<State>,
    /// What it has decided to want, and whom to let run.
    to_want: Vec<u32>,
    to_run: Vec<bool>,
}

impl World {
    /// Whether the server has nothing to do.
    fn rests(&self) -> bool {
        self.server == Server::Rests && !self.woken && !self.timer && self.heard == self.said
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Thread(usize),
    LingerEnds(usize),
    /// Another setting holds from now on.
    Say,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    AsItIs,
    /// The server does not look again after it has written what it wants.
    NoSecondLook,
    /// The client looks at what is wanted before it writes.
    LooksBeforeWriting,
    /// The server notes what is said, and decides when something else happens.
    OnlyNotes,
    /// Of what follows from it, it writes only the permissions.
    KeepsWants,
}

/// Which client has each queue, on which device and of which priority.
type Gangs = Vec<(usize, u32, i64)>;

/// What decides.
#[derive(Clone)]
struct Setting {
    policy: &'static Row,
    /// A device's own.
    own: Option<(u32, &'static Row)>,
    /// What is said of each queue.
    hints: Vec<QueueHints>,
}

impl Setting {
    /// Nothing is hinted.
    fn plain(policy: &'static Row, queues: &Gangs) -> Self {
        Self { policy, own: None, hints: vec![QueueHints::default(); queues.len()] }
    }
}

/// Permissions and what is wanted, in each state of the queues: a model asks for the same ones again and again.
type Decisions = HashMap<Vec<State>, (Vec<bool>, Vec<u32>)>;

struct Handshake {
    queues: Gangs,
    order: Order,
    /// For each of the settings, one after the other.
    decisions: Vec<Decisions>,
}

impl Handshake {
    /// Without hints, under the default policy.
    fn new(queues: Gangs, order: Order) -> Self {
        let setting = Setting::plain(registry::DEFAULT, &queues);
        Self::under(&[setting], queues, order)
    }

    /// Under these settings, one after the other.
    fn under(settings: &[Setting], queues: Gangs, order: Order) -> Self {
        let mut all = vec![Vec::new()];
        for _ in &queues {
            let longer = |states: &Vec<State>| {
                [State::Ready, State::Lingering, State::Idle].map(|state| [&states[..], &[state]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        let mut model = Self { queues, order, decisions: Vec::new() };
        let decide =
            |setting| all.iter().map(|states| (states.clone(), model.decide(setting, states))).collect();
        model.decisions = settings.iter().map(decide).collect();
        model
    }

    fn clients(&self) -> usize {
        self.queues.iter().map(|queue| queue.0 + 1).max().unwrap_or(0)
    }

    /// Permissions and what is wanted, if the queues are in these states.
    fn decide(&self, setting: &Setting, states: &[State]) -> (Vec<bool>, Vec<u32>) {
        let status = |place: usize| {
            let (_, device, priority) = self.queues[place];
            QueueStatus {
                queue: QueueId(place as u64 + 1),
                device: DeviceId(device),
                priority: Priority::try_from(priority).unwrap(),
                hints: setting.hints[place],
                level: PreemptLevel::Block,
                activity: match states[place] {
                    State::Ready => Activity::Ready { since: Time(1) },
                    State::Lingering => Activity::Idle { since: Some(NOW) },
                    State::Idle => Activity::Idle { since: None },
                },
                counts: Counts::default(),
            }
        };
        let gangs: Vec<_> = (0..self.clients())
            .map(|client| {
                let own = (0..self.queues.len()).filter(|place| self.queues[*place].0 == client);
                let queues = Queues::try_from(own.map(status).collect::<Vec<_>>()).unwrap();
                Gang {
                    client: ClientId(client as u64 + 1),
                    pid: Pid(1),
                    hints: ProcessHints::default(),
                    queues,
                }
            })
            .collect();
        let mut engine = Engine::new(setting.policy, Engine::LINGER);
        if let Some((device, row)) = setting.own {
            engine.set_device_policy(DeviceId(device), Some(Choice::new(row)));
        }
        let (permits, wanted) = rules::decide(&mut engine, gangs, NOW);
        (permits.iter().map(|permit| permit.run).collect(), wanted)
    }

    fn thread(&self, world: &mut World, place: usize) {
        let client = self.queues[place].0;
        let turned = |state: State| if state == State::Ready { State::Lingering } else { State::Ready };
        let wanted = |world: &World, state: State| {
            let bit = if state == State::Ready { WANTS_READY } else { WANTS_IDLE };
            world.wants[client] & bit != 0
        };
        let state = world.queues[place];
        world.threads[place] = match world.threads[place] {
            Thread::Between if self.order == Order::LooksBeforeWriting => {
                Thread::Looked { wanted: wanted(world, turned(state)) }
            }
            Thread::Between => {
                world.queues[place] = turned(state);
                Thread::Written
            }
            Thread::Written => {
                world.woken |= wanted(world, state);
                Thread::Between
            }
            Thread::Looked { wanted } => {
                world.queues[place] = turned(state);
                world.woken |= wanted;
                Thread::Between
            }
        };
    }

    fn server(&self, world: &mut World) {
        let last = self.clients() - 1;
        let after = |client: usize, missed: bool| match (client == last, missed) {
            (false, _) => Server::Wants { client: client + 1, missed },
            (true, true) => Server::Looks(0),
            (true, false) => Server::Permits,
        };
        world.server = match world.server {
            Server::Rests => {
                world.hears = world.heard != world.said;
                world.heard = world.said;
                if self.order == Order::OnlyNotes && !world.woken && !world.timer {
                    return;
                }
                world.woken = false;
                world.timer = false;
                Server::Looks(0)
            }
            Server::Looks(place) => {
                world.seen[place] = world.queues[place];
                if place + 1 < self.queues.len() {
                    Server::Looks(place + 1)
                } else {
                    (world.to_run, world.to_want) = self.decisions[world.heard][&world.seen].clone();
                    match self.order {
                        Order::KeepsWants if world.hears => Server::Permits,
                        _ => Server::Wants { client: 0, missed: false },
                    }
                }
            }
            Server::Wants { client, missed } => {
                let more = world.to_want[client] & !world.wants[client] != 0;
                world.wants[client] = world.to_want[client];
                if more && self.order != Order::NoSecondLook {
                    Server::LooksAgain { client, missed }
                } else {
                    after(client, missed)
                }
            }
            Server::LooksAgain { client, missed } => {
                let own = (0..self.queues.len()).filter(|place| self.queues[*place].0 == client);
                let news = own.fold(false, |news, place| {
                    let old = std::mem::replace(&mut world.seen[place], world.queues[place]);
                    news || old != world.queues[place]
                });
                after(client, missed || news)
            }
            Server::Permits => {
                world.runs.clone_from(&world.to_run);
                world.timer = world.seen.contains(&State::Lingering);
                // What it had worked out is of no further use.
                (world.to_run, world.to_want, world.hears) = (Vec::new(), Vec::new(), false);
                Server::Rests
            }
        };
    }
}

impl Model for Handshake {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let queues = vec![State::Idle; self.queues.len()];
        let (runs, wants) = self.decisions[0][&queues].clone();
        vec![World {
            seen: queues.clone(),
            threads: vec![Thread::Between; queues.len()],
            queues,
            wants,
            runs,
            woken: false,
            said: 0,
            heard: 0,
            hears: false,
            timer: false,
            server: Server::Rests,
            to_want: Vec::new(),
            to_run: Vec::new(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for place in 0..self.queues.len() {
            actions.push(Action::Thread(place));
            if world.queues[place] == State::Lingering {
                actions.push(Action::LingerEnds(place));
            }
        }
        if world.said + 1 < self.decisions.len() {
            actions.push(Action::Say);
        }
        if !world.rests() {
            actions.push(Action::Server);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Thread(place) => self.thread(&mut next, place),
            Action::LingerEnds(place) => next.queues[place] = State::Idle,
            Action::Say => next.said += 1,
            Action::Server => self.server(&mut next),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // When nothing is under way, everybody with work has the permission that the policy gives now.
            Property::always("nothing is overlooked", |model: &Self, world: &World| {
                if !world.rests() || world.threads.iter().any(|thread| *thread != Thread::Between) {
                    return true;
                }
                let (runs, _) = &model.decisions[world.said][&world.queues];
                (0..model.queues.len()).all(|place| {
                    let client = model.queues[place].0;
                    world.queues[place] != State::Ready || world.runs[client] == runs[client]
                })
            }),
            Property::sometimes("somebody is suspended", |_, world: &World| world.runs.contains(&false)),
            Property::sometimes("silence", |_, world: &World| {
                world.server == Server::Rests && world.queues.contains(&State::Ready) && !world.woken
            }),
        ]
    }
}

/// Low and high on one device.
fn two() -> Vec<(usize, u32, i64)> {
    vec![(0, 1, 0), (1, 1, 9)]
}

/// A gang whose queues differ, and one between them.
fn gang() -> Vec<(usize, u32, i64)> {
    vec![(0, 1, 5), (1, 1, 0), (1, 1, 9)]
}

/// A chain over two devices.
fn chain() -> Vec<(usize, u32, i64)> {
    vec![(0, 1, 9), (1, 1, 5), (1, 2, 5)]
}

#[test]
fn in_no_order_is_anybody_overlooked() {
    for queues in [two(), gang(), chain()] {
        let checker = Handshake::new(queues, Order::AsItIs).checker().spawn_bfs().join();
        checker.assert_properties();
        println!("{} states", checker.unique_state_count());
    }
}

/// Policies that decide by what there is, and remember nothing: the model asks for each decision anew.
const WITHOUT_MEMORY: [PolicyKind; 5] =
    [PolicyKind::Hpf, PolicyKind::Hhpf, PolicyKind::Chpf, PolicyKind::Kedf, PolicyKind::Lax];

fn without_memory() -> impl Iterator<Item = &'static Row> + Clone {
    WITHOUT_MEMORY.iter().filter_map(|kind| registry::find(*kind))
}

/// What two clients say. Everybody is ready since the beginning, a second ago: one is critical already, one is not yet.
fn late_and_early() -> [QueueHints; 2] {
    let priority = |number| Priority::try_from(number).unwrap();
    let says = |deadline_us, us, lax, critical| QueueHints {
        deadline_us: NonZeroU64::new(deadline_us),
        laxity: Some(Laxity { us, lax: priority(lax), critical: priority(critical) }),
        ..QueueHints::default()
    };
    [says(3_000_000, 500_000, -5, 7), says(2_000_000, 2_000_000, -9, 9)]
}

/// The setting with this said of the first two queues, and with the same said the other way round.
fn hinted(setting: &Setting) -> [Setting; 2] {
    let [late, early] = late_and_early();
    [[late, early], [early, late]].map(|said| {
        let mut setting = setting.clone();
        setting.hints[..2].copy_from_slice(&said);
        setting
    })
}

#[track_caller]
fn nobody_is_overlooked(settings: &[Setting], queues: Gangs) -> usize {
    let checker = Handshake::under(settings, queues, Order::AsItIs).checker().spawn_bfs().join();
    let overlooked = checker.discovery("nothing is overlooked");
    let kinds = settings.iter().map(|setting| (setting.policy.kind, setting.own.map(|own| own.1.kind)));
    assert!(overlooked.is_none(), "{:?}: {overlooked:?}", kinds.collect::<Vec<_>>());
    checker.unique_state_count()
}

#[test]
fn under_no_policy_is_anybody_overlooked() {
    for policy in without_memory() {
        for queues in [two(), gang(), chain()] {
            for setting in hinted(&Setting::plain(policy, &queues)) {
                nobody_is_overlooked(&[setting], queues.clone());
            }
        }
    }
}

/// Each of them and the next.
fn pairs() -> impl Iterator<Item = [&'static Row; 2]> {
    without_memory().zip(without_memory().cycle().skip(1)).map(|(one, next)| [one, next])
}

#[test]
fn devices_may_have_policies_of_their_own() {
    for [policy, own] in pairs() {
        let [setting, _] = hinted(&Setting { own: Some((2, own)), ..Setting::plain(policy, &chain()) });
        println!("{} states", nobody_is_overlooked(&[setting], chain()));
    }
}

#[test]
fn policies_and_hints_may_change() {
    for pair in pairs() {
        let [policy, next] = pair.map(|policy| hinted(&Setting::plain(policy, &two())));
        let settings = [&policy[0], &policy[1], &next[1], &policy[1]].map(Setting::clone);
        println!("{} states", nobody_is_overlooked(&settings, two()));
    }
}

#[test]
fn in_another_order_somebody_would_be() {
    for order in [Order::NoSecondLook, Order::LooksBeforeWriting] {
        let checker = Handshake::new(two(), order).checker().spawn_bfs().join();
        assert!(checker.discovery("nothing is overlooked").is_some(), "{order:?}");
    }
}

#[test]
fn if_what_is_said_led_to_less_somebody_would_be() {
    let kedf = registry::find(PolicyKind::Kedf).unwrap();
    let [one, other] = hinted(&Setting::plain(kedf, &two()));
    let hpf = Setting::plain(registry::DEFAULT, &two());
    let equal = Setting::plain(registry::find(PolicyKind::Chpf).unwrap(), &two());
    for order in [Order::OnlyNotes, Order::KeepsWants] {
        for settings in [[one.clone(), other.clone()], [equal.clone(), hpf.clone()]] {
            let checker = Handshake::under(&settings, two(), order).checker().spawn_bfs().join();
            let kinds = settings.map(|setting| setting.policy.kind);
            assert!(checker.discovery("nothing is overlooked").is_some(), "{order:?} {kinds:?}");
        }
    }
}
