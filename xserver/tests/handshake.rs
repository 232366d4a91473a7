//! Every interleaving of the handshake about readiness (stateright). A client writes the state of its queue,
//! then reads its event mask. The server reads the states, decides by the real policies, writes the event
//! masks by the real rules, and reads again the states of each client whose mask has grown. It does not read a
//! client again whose queues were all idle, and whose mask asks for ready queues, before the client notifies it.
//! Policies and hints can change meanwhile.
//!
//! Time is abstract. A queue that turned idle lingers until an action ends that. The server's timer can fire
//! after the server has seen a lingering queue. The model has no heartbeat, which would hide lost events.

mod rules;

use policies::registry::Row;
use policies::{Choice, Engine, registry};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{Laxity, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::page::{EVENT_IDLE, EVENT_READY, MAY_STAY_READY};
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

/// The thread of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thread {
    /// It is between two changes of the state.
    Idle,
    /// It has written the state and not yet read the event mask.
    Wrote,
    /// It has read the event mask and not yet written the state. Only under
    /// [`Order::ReadsBeforeWriting`].
    ReadMask { wanted: bool },
}

/// The next step of the server. `missed`: it has missed an event in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Server {
    /// It waits for an event.
    Idle,
    /// It reads this queue.
    ReadsQueue(usize),
    /// It writes the event mask of this client.
    WritesMask { client: usize, missed: bool },
    /// It reads the queues of this client again.
    ReadsAgain { client: usize, missed: bool },
    /// It stores all permissions.
    StoresPermissions,
}

/// The most queues and clients of a model. A world of fixed size is copied without an allocation.
const MOST: usize = 3;

/// A value for each queue or client; those that a model does not have keep their first value.
type Each<T> = [T; MOST];

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    queues: Each<State>,
    threads: Each<Thread>,
    event_mask: Each<u32>,
    runs: Each<bool>,
    /// The clients that have notified the server by their eventfds.
    notified: Each<bool>,
    /// The clients that the server does not read before they notify it.
    by_event: Each<bool>,
    /// The index of the setting in force.
    setting: usize,
    /// The index of the setting that the server has applied.
    known: usize,
    /// True if the server has applied a new setting in this round.
    is_new: bool,
    /// True if the server has seen a lingering queue.
    timer: bool,
    server: Server,
    /// The states of the queues as the server has last read them.
    seen: Each<State>,
    /// The decided event masks and permissions.
    to_publish: Each<u32>,
    to_run: Each<bool>,
}

impl World {
    /// Returns true if the server has nothing to do.
    fn is_idle(&self) -> bool {
        self.server == Server::Idle && !self.is_woken() && !self.timer && self.known == self.setting
    }

    fn is_woken(&self) -> bool {
        self.notified.contains(&true)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The thread of this queue makes its next step.
    Thread(usize),
    LingerEnds(usize),
    /// The next setting takes effect.
    NextSetting,
    Server,
}

/// The order of steps: the real one, or a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Real,
    /// The server does not read again after it has written the event masks.
    NoSecondRead,
    /// The client reads the event mask before it writes.
    ReadsBeforeWriting,
    /// The server notes a new setting, but decides only at the next event.
    NoDecisionAfterChange,
    /// After a new setting the server writes only the permissions.
    KeepsMasks,
    /// A notification wakes the server, but the server does not read that client.
    IgnoresNotifier,
    /// The server takes the notifications after it has read the states.
    TakesNotificationsLate,
}

/// The client, the device and the priority of each queue.
type Gangs = Vec<(usize, u32, i64)>;

/// A policy with hints.
#[derive(Clone)]
struct Setting {
    policy: &'static Row,
    /// The own policy of a device.
    own: Option<(u32, &'static Row)>,
    /// The hints of each queue.
    hints: Vec<QueueHints>,
}

impl Setting {
    /// A policy without hints.
    fn plain(policy: &'static Row, queues: &Gangs) -> Self {
        Self { policy, own: None, hints: vec![QueueHints::default(); queues.len()] }
    }
}

/// Permissions and event masks for each state of the queues, computed in advance.
type Decisions = HashMap<Each<State>, (Each<bool>, Each<u32>)>;

/// The values of a model's queues or clients, and `rest` for those that it does not have.
fn each<T: Copy>(values: &[T], rest: T) -> Each<T> {
    std::array::from_fn(|place| values.get(place).copied().unwrap_or(rest))
}

struct Handshake {
    queues: Gangs,
    order: Order,
    /// The decisions under each setting.
    decisions: Vec<Decisions>,
}

impl Handshake {
    /// A model under the default policy without hints.
    fn new(queues: Gangs, order: Order) -> Self {
        let setting = Setting::plain(registry::DEFAULT, &queues);
        Self::under(&[setting], queues, order)
    }

    /// A model under these settings, one after the other.
    fn under(settings: &[Setting], queues: Gangs, order: Order) -> Self {
        let mut all = vec![Vec::new()];
        for _ in &queues {
            let longer = |states: &Vec<State>| {
                [State::Ready, State::Lingering, State::Idle].map(|state| [&states[..], &[state]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        let mut model = Self { queues, order, decisions: Vec::new() };
        let decide = |setting| {
            let decided = |states: &Vec<State>| {
                let (runs, masks) = model.decide(setting, states);
                (each(states, State::Idle), (each(&runs, true), each(&masks, 0)))
            };
            all.iter().map(decided).collect()
        };
        model.decisions = settings.iter().map(decide).collect();
        model
    }

    fn clients(&self) -> usize {
        self.queues.iter().map(|queue| queue.0 + 1).max().unwrap_or(0)
    }

    /// Permissions and event masks for these states of the queues.
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
                    owner: 0,
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
            let bit = if state == State::Ready { EVENT_READY } else { EVENT_IDLE };
            world.event_mask[client] & bit != 0
        };
        let state = world.queues[place];
        world.threads[place] = match world.threads[place] {
            Thread::Idle if self.order == Order::ReadsBeforeWriting => {
                Thread::ReadMask { wanted: wanted(world, turned(state)) }
            }
            Thread::Idle => {
                world.queues[place] = turned(state);
                Thread::Wrote
            }
            Thread::Wrote => {
                world.notified[client] |= wanted(world, state);
                Thread::Idle
            }
            Thread::ReadMask { wanted } => {
                world.queues[place] = turned(state);
                world.notified[client] |= wanted;
                Thread::Idle
            }
        };
    }

    fn server(&self, world: &mut World) {
        let last = self.clients() - 1;
        let after = |world: &mut World, client: usize, missed: bool| match (client == last, missed) {
            (false, _) => Server::WritesMask { client: client + 1, missed },
            (true, true) => self.next_read(world, 0),
            (true, false) => Server::StoresPermissions,
        };
        world.server = match world.server {
            Server::Idle => {
                world.is_new = world.known != world.setting;
                world.known = world.setting;
                if self.order == Order::NoDecisionAfterChange && !world.is_woken() && !world.timer {
                    return;
                }
                if self.order != Order::IgnoresNotifier {
                    for (by_event, notified) in world.by_event.iter_mut().zip(world.notified) {
                        *by_event &= !notified;
                    }
                }
                if self.order != Order::TakesNotificationsLate {
                    world.notified.fill(false);
                }
                world.timer = false;
                self.next_read(world, 0)
            }
            Server::ReadsQueue(place) => {
                world.seen[place] = world.queues[place];
                let client = self.queues[place].0;
                if self.queues.get(place + 1).is_none_or(|next| next.0 != client) {
                    self.note_read(world, client);
                }
                self.next_read(world, place + 1)
            }
            Server::WritesMask { client, missed } => {
                let more = world.to_publish[client] & !world.event_mask[client] & !MAY_STAY_READY != 0;
                world.event_mask[client] = world.to_publish[client];
                // It notifies no longer, and may have turned ready since it was read.
                let ends = world.by_event[client] && world.event_mask[client] & EVENT_READY == 0;
                if (more || ends) && self.order != Order::NoSecondRead {
                    Server::ReadsAgain { client, missed }
                } else {
                    after(world, client, missed)
                }
            }
            Server::ReadsAgain { client, missed } => {
                let own = (0..self.queues.len()).filter(|place| self.queues[*place].0 == client);
                let changed = own.fold(false, |changed, place| {
                    let old = std::mem::replace(&mut world.seen[place], world.queues[place]);
                    changed || old != world.queues[place]
                });
                self.note_read(world, client);
                after(world, client, missed || changed)
            }
            Server::StoresPermissions => {
                world.runs = world.to_run;
                world.timer = world.seen.contains(&State::Lingering);
                // Cleared, so that equal worlds compare equal.
                (world.to_run, world.to_publish, world.is_new) = ([true; MOST], [0; MOST], false);
                Server::Idle
            }
        };
    }
}

impl Handshake {
    /// Returns the step that reads the next queue from this one on, or decides if none is left to read.
    fn next_read(&self, world: &mut World, first: usize) -> Server {
        for place in first..self.queues.len() {
            if !world.by_event[self.queues[place].0] {
                return Server::ReadsQueue(place);
            }
            // The server knows when a linger ends.
            if world.queues[place] == State::Idle {
                world.seen[place] = State::Idle;
            }
        }
        if self.order == Order::TakesNotificationsLate {
            world.notified.fill(false);
        }
        (world.to_run, world.to_publish) = self.decisions[world.known][&world.seen];
        match self.order {
            Order::KeepsMasks if world.is_new => Server::StoresPermissions,
            _ => Server::WritesMask { client: 0, missed: false },
        }
    }

    /// Notes that all queues of a client were read.
    fn note_read(&self, world: &mut World, client: usize) {
        let mut own = (0..self.queues.len()).filter(|place| self.queues[*place].0 == client);
        let asks = world.event_mask[client] & EVENT_READY != 0;
        world.by_event[client] = asks && own.all(|place| world.seen[place] != State::Ready);
    }
}

impl Model for Handshake {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let queues = [State::Idle; MOST];
        let (runs, event_mask) = self.decisions[0][&queues];
        vec![World {
            seen: queues,
            threads: [Thread::Idle; MOST],
            queues,
            notified: [false; MOST],
            by_event: [false; MOST],
            event_mask,
            runs,
            setting: 0,
            known: 0,
            is_new: false,
            timer: false,
            server: Server::Idle,
            to_publish: [0; MOST],
            to_run: [true; MOST],
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for place in 0..self.queues.len() {
            actions.push(Action::Thread(place));
            if world.queues[place] == State::Lingering {
                actions.push(Action::LingerEnds(place));
            }
        }
        if world.setting + 1 < self.decisions.len() {
            actions.push(Action::NextSetting);
        }
        if !world.is_idle() {
            actions.push(Action::Server);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Thread(place) => self.thread(&mut next, place),
            Action::LingerEnds(place) => next.queues[place] = State::Idle,
            Action::NextSetting => next.setting += 1,
            Action::Server => self.server(&mut next),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // When no event is pending, every client with work has the permission that the policy gives now.
            Property::always("no event is lost", |model: &Self, world: &World| {
                if !world.is_idle() || world.threads.iter().any(|thread| *thread != Thread::Idle) {
                    return true;
                }
                let (runs, _) = &model.decisions[world.setting][&world.queues];
                (0..model.queues.len()).all(|place| {
                    let client = model.queues[place].0;
                    world.queues[place] != State::Ready || world.runs[client] == runs[client]
                })
            }),
            Property::sometimes("a client is suspended", |_, world: &World| world.runs.contains(&false)),
            Property::sometimes("the server waits while a queue is ready", |_, world: &World| {
                world.server == Server::Idle && world.queues.contains(&State::Ready) && !world.is_woken()
            }),
        ]
    }
}

/// A client of low priority and one of high priority on one device.
fn two() -> Vec<(usize, u32, i64)> {
    vec![(0, 1, 0), (1, 1, 9)]
}

/// A client with queues of a low and a high priority, and one with a priority between them.
fn gang() -> Vec<(usize, u32, i64)> {
    vec![(0, 1, 5), (1, 1, 0), (1, 1, 9)]
}

/// Two clients that share one device. One of them has a queue on a second device too.
fn chain() -> Vec<(usize, u32, i64)> {
    vec![(0, 1, 9), (1, 1, 5), (1, 2, 5)]
}

/// The threads of a check. One of the tests takes longer than all others together.
const THREADS: usize = 2;

#[test]
fn no_event_is_lost_under_the_default_policy() {
    for queues in [two(), gang(), chain()] {
        let checker = Handshake::new(queues, Order::Real).checker().threads(THREADS).spawn_bfs().join();
        checker.assert_properties();
        println!("{} states", checker.unique_state_count());
    }
}

/// Policies without memory. Their decisions can be computed in advance.
const WITHOUT_MEMORY: [PolicyKind; 5] =
    [PolicyKind::Hpf, PolicyKind::Hhpf, PolicyKind::Chpf, PolicyKind::Kedf, PolicyKind::Lax];

fn without_memory() -> impl Iterator<Item = &'static Row> + Clone {
    WITHOUT_MEMORY.iter().filter_map(|kind| registry::find(*kind))
}

/// The hints for two queues that have been ready for almost a second. By these hints one is critical already,
/// and the other is not.
fn late_and_early() -> [QueueHints; 2] {
    let priority = |number| Priority::try_from(number).unwrap();
    let hints = |deadline_us, us, lax, critical| QueueHints {
        deadline_us: NonZeroU64::new(deadline_us),
        laxity: Some(Laxity { us, lax: priority(lax), critical: priority(critical) }),
        ..QueueHints::default()
    };
    [hints(3_000_000, 500_000, -5, 7), hints(2_000_000, 2_000_000, -9, 9)]
}

/// The setting with these hints for the first two queues, and with the hints exchanged.
fn hinted(setting: &Setting) -> [Setting; 2] {
    let [late, early] = late_and_early();
    [[late, early], [early, late]].map(|hints| {
        let mut setting = setting.clone();
        setting.hints[..2].copy_from_slice(&hints);
        setting
    })
}

#[track_caller]
fn check_no_event_is_lost(settings: &[Setting], queues: Gangs) -> usize {
    let checker =
        Handshake::under(settings, queues, Order::Real).checker().threads(THREADS).spawn_bfs().join();
    let lost = checker.discovery("no event is lost");
    let kinds = settings.iter().map(|setting| (setting.policy.kind, setting.own.map(|own| own.1.kind)));
    assert!(lost.is_none(), "{:?}: {lost:?}", kinds.collect::<Vec<_>>());
    checker.unique_state_count()
}

#[test]
fn no_event_is_lost_under_other_policies() {
    // Policies that decide the same have the same model. The test above checks the first ones.
    let default = |queues: Gangs| (queues.clone(), Handshake::new(queues, Order::Real).decisions);
    let mut checked: Vec<_> = [two(), gang(), chain()].map(default).into();
    for policy in without_memory() {
        for queues in [two(), gang(), chain()] {
            for setting in hinted(&Setting::plain(policy, &queues)) {
                let settings = [setting];
                let decisions = Handshake::under(&settings, queues.clone(), Order::Real).decisions;
                if !checked.contains(&(queues.clone(), decisions.clone())) {
                    check_no_event_is_lost(&settings, queues.clone());
                    checked.push((queues.clone(), decisions));
                }
            }
        }
    }
    println!("{} models", checked.len());
}

/// Returns each policy without memory with another one.
fn pairs() -> impl Iterator<Item = [&'static Row; 2]> {
    without_memory().zip(without_memory().cycle().skip(1)).map(|(one, next)| [one, next])
}

#[test]
fn no_event_is_lost_with_device_policies() {
    for [policy, own] in pairs() {
        let [setting, _] = hinted(&Setting { own: Some((2, own)), ..Setting::plain(policy, &chain()) });
        println!("{} states", check_no_event_is_lost(&[setting], chain()));
    }
}

#[test]
fn no_event_is_lost_while_policies_and_hints_change() {
    for pair in pairs() {
        let [policy, next] = pair.map(|policy| hinted(&Setting::plain(policy, &two())));
        let settings = [&policy[0], &policy[1], &next[1], &policy[1]].map(Setting::clone);
        println!("{} states", check_no_event_is_lost(&settings, two()));
    }
}

#[test]
fn events_are_lost_in_another_order() {
    for order in [
        Order::NoSecondRead,
        Order::ReadsBeforeWriting,
        Order::IgnoresNotifier,
        Order::TakesNotificationsLate,
    ] {
        let checker = Handshake::new(two(), order).checker().threads(THREADS).spawn_bfs().join();
        assert!(checker.discovery("no event is lost").is_some(), "{order:?}");
    }
}

#[test]
fn events_are_lost_if_a_new_setting_is_applied_partially() {
    let kedf = registry::find(PolicyKind::Kedf).unwrap();
    let [one, other] = hinted(&Setting::plain(kedf, &two()));
    let hpf = Setting::plain(registry::DEFAULT, &two());
    let equal = Setting::plain(registry::find(PolicyKind::Chpf).unwrap(), &two());
    for order in [Order::NoDecisionAfterChange, Order::KeepsMasks] {
        for settings in [[one.clone(), other.clone()], [equal.clone(), hpf.clone()]] {
            let checker =
                Handshake::under(&settings, two(), order).checker().threads(THREADS).spawn_bfs().join();
            let kinds = settings.map(|setting| setting.policy.kind);
            assert!(checker.discovery("no event is lost").is_some(), "{order:?} {kinds:?}");
        }
    }
}
