//! The handshake about readiness, every interleaving of it (stateright): clients write, then look at what is wanted; the
//! server looks, decides by the real policy, writes what it wants by the real rules, and looks again.
//!
//! Time is abstract: a queue that turned idle lingers until some step ends that, and the server's timer may fire
//! whenever it has seen one that lingers. There is no heartbeat, which would hide everything.

mod rules;

use policies::registry::Row;
use policies::{Engine, registry};
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
    /// The server has seen a queue that lingers.
    timer: bool,
    server: Server,
    seen: Vec<State>,
    /// What it has decided to want, and whom to let run.
    to_want: Vec<u32>,
    to_run: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Thread(usize),
    LingerEnds(usize),
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    AsItIs,
    /// The server does not look again after it has written what it wants.
    NoSecondLook,
    /// The client looks at what is wanted before it writes.
    LooksBeforeWriting,
}

/// Which client has each queue, on which device and of which priority.
type Gangs = Vec<(usize, u32, i64)>;

struct Handshake {
    policy: &'static Row,
    queues: Gangs,
    /// What is said of each queue.
    hints: Vec<QueueHints>,
    order: Order,
    /// What is decided in each state of the queues: a model asks for the same ones again and again.
    decisions: HashMap<Vec<State>, (Vec<bool>, Vec<u32>)>,
}

impl Handshake {
    /// Without hints, under the default policy.
    fn new(queues: Gangs, order: Order) -> Self {
        let hints = vec![QueueHints::default(); queues.len()];
        Self::under(registry::DEFAULT, queues, hints, order)
    }

    fn under(policy: &'static Row, queues: Gangs, hints: Vec<QueueHints>, order: Order) -> Self {
        let mut all = vec![Vec::new()];
        for _ in &queues {
            let longer = |states: &Vec<State>| {
                [State::Ready, State::Lingering, State::Idle].map(|state| [&states[..], &[state]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        let mut model = Self { policy, queues, hints, order, decisions: HashMap::new() };
        model.decisions = all.into_iter().map(|states| (states.clone(), model.decide(&states))).collect();
        model
    }

    fn clients(&self) -> usize {
        self.queues.iter().map(|queue| queue.0 + 1).max().unwrap_or(0)
    }

    /// Permissions and what is wanted, by the policy and the rules, if the queues are in these states.
    fn decide(&self, states: &[State]) -> (Vec<bool>, Vec<u32>) {
        let status = |place: usize| {
            let (_, device, priority) = self.queues[place];
            QueueStatus {
                queue: QueueId(place as u64 + 1),
                device: DeviceId(device),
                priority: Priority::try_from(priority).unwrap(),
                hints: self.hints[place],
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
        let mut engine = Engine::new(self.policy, Engine::LINGER);
        let (permits, wanted) = rules::decide(&mut engine, gangs, NOW, Engine::LINGER);
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
                world.woken = false;
                world.timer = false;
                Server::Looks(0)
            }
            Server::Looks(place) => {
                world.seen[place] = world.queues[place];
                if place + 1 < self.queues.len() {
                    Server::Looks(place + 1)
                } else {
                    (world.to_run, world.to_want) = self.decisions[&world.seen].clone();
                    Server::Wants { client: 0, missed: false }
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
                (world.to_run, world.to_want) = (Vec::new(), Vec::new());
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
        let (runs, wants) = self.decisions[&queues].clone();
        vec![World {
            seen: queues.clone(),
            threads: vec![Thread::Between; queues.len()],
            queues,
            wants,
            runs,
            woken: false,
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
        if world.server != Server::Rests || world.woken || world.timer {
            actions.push(Action::Server);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Thread(place) => self.thread(&mut next, place),
            Action::LingerEnds(place) => next.queues[place] = State::Idle,
            Action::Server => self.server(&mut next),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // When nothing is under way, everybody with work has the permission that the policy gives now.
            Property::always("nothing is overlooked", |model: &Self, world: &World| {
                let rests = world.server == Server::Rests && !world.woken && !world.timer;
                if !rests || world.threads.iter().any(|thread| *thread != Thread::Between) {
                    return true;
                }
                let (runs, _) = &model.decisions[&world.queues];
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

#[test]
fn under_no_policy_is_anybody_overlooked() {
    let priority = |number| Priority::try_from(number).unwrap();
    let says = |deadline_us, us, lax, critical| QueueHints {
        deadline_us: NonZeroU64::new(deadline_us),
        laxity: Some(Laxity { us, lax: priority(lax), critical: priority(critical) }),
        ..QueueHints::default()
    };
    // Everybody is ready since the beginning, a second ago: one is critical already, one is not yet.
    let (late, early) = (says(3_000_000, 500_000, -5, 7), says(2_000_000, 2_000_000, -9, 9));
    for policy in WITHOUT_MEMORY.iter().filter_map(|kind| registry::find(*kind)) {
        for queues in [two(), gang(), chain()] {
            let mut hints = vec![QueueHints::default(); queues.len()];
            for said in [[late, early], [early, late]] {
                hints[..2].copy_from_slice(&said);
                let model = Handshake::under(policy, queues.clone(), hints.clone(), Order::AsItIs);
                let checker = model.checker().spawn_bfs().join();
                let overlooked = checker.discovery("nothing is overlooked");
                assert!(overlooked.is_none(), "{}: {overlooked:?}", policy.kind);
            }
        }
    }
}

#[test]
fn in_another_order_somebody_would_be() {
    for order in [Order::NoSecondLook, Order::LooksBeforeWriting] {
        let checker = Handshake::new(two(), order).checker().spawn_bfs().join();
        assert!(checker.discovery("nothing is overlooked").is_some(), "{order:?}");
    }
}
