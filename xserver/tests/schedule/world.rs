//! The model's state: a server, two clients with a queue each, the pages between them, and a device.

use super::decider::{Decider, Decision, Seen};
use protocol::page::{HEARTBEAT, LEASE};

/// Ticks of a lease; a tick is a heartbeat.
pub const LEASE_TICKS: u8 = (LEASE.as_nanos() / HEARTBEAT.as_nanos()) as u8;
/// Heartbeats at which somebody who keeps another waiting has completed nothing, before the process is looked
/// up: those within the server's patience and the time of a stall.
pub const STALL_TICKS: u8 = 2;

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    Runs,
    Stopped,
    /// It runs, and was stopped before.
    RunsAgain,
    Dead,
}

impl Life {
    pub fn runs(self) -> bool {
        matches!(self, Self::Runs | Self::RunsAgain)
    }
}

/// The program's thread, inside a call that submits its latest command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    Rests,
    /// Has submit and has decided to launch.
    Decided,
    /// Has submit, and has written that the queue is ready.
    Told,
    /// Has submit, and has looked at what is wanted.
    Calls,
    /// Will append.
    Appends,
    /// Has the lock of pending, has appended, and has written that the queue is ready.
    Appended,
}

/// The worker's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Worker {
    Rests,
    /// Has submit and has decided to launch what is in front.
    Decided,
    /// Only if it is made to: has taken this command and nothing else.
    Holds(u8),
}

/// The wake-up on the futex of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Notice {
    None,
    Fresh,
    /// On its way for longer than a tick.
    Old,
}

/// What must never happen to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    Nothing,
    Twice,
    Order,
}

/// Everything of a client, with both its pages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    pub life: Life,
    pub program: Program,
    pub worker: Worker,
    /// The watcher has written that the queue is idle, and has both locks.
    pub watcher_told: bool,
    /// The worker is to look.
    pub signal: bool,
    pub notice: Notice,
    /// Whether it follows the server's page.
    pub follows: bool,
    /// The server's page.
    pub run: bool,
    pub limit: bool,
    pub event_mask: u32,
    /// The client's page.
    pub ready: bool,
    /// Commands have the numbers from 0. So many were submitted, launched, and have completed.
    pub submitted: u8,
    pub launched: u8,
    pub completed: u8,
    /// The numbers of those that are pending, from and to; 0 and 0 if none is.
    pub pending: (u8, u8),
    pub broken: Broken,
    /// Commands launched since the suspension was stored.
    pub late: u8,
    /// Ticks without a completion, with work that nothing entitles anybody to hold back.
    pub waits: u8,
    /// Ticks with pending work that nobody launches, under a server that is silent.
    pub orphaned: u8,
}

impl Client {
    pub fn new(decision: &Decision, place: usize) -> Self {
        Self {
            life: Life::Runs,
            program: Program::Rests,
            worker: Worker::Rests,
            watcher_told: false,
            signal: false,
            notice: Notice::None,
            follows: true,
            run: decision.run[place],
            limit: decision.limit[place],
            event_mask: decision.event_mask[place],
            ready: false,
            submitted: 0,
            launched: 0,
            completed: 0,
            pending: (0, 0),
            broken: Broken::Nothing,
            late: 0,
            waits: 0,
            orphaned: 0,
        }
    }

    pub fn has_pending(&self) -> bool {
        self.pending.0 != self.pending.1
    }

    pub fn in_flight(&self) -> u8 {
        self.launched - self.completed
    }

    pub fn is_unfinished(&self) -> bool {
        self.submitted != self.completed
    }

    pub fn is_suspended(&self) -> bool {
        self.follows && !self.run
    }

    /// Whether nothing will be launched of what is pending, unless somebody says so.
    pub fn is_asleep(&self) -> bool {
        self.has_pending() && self.worker == Worker::Rests && !self.signal && self.notice == Notice::None
    }

    /// Commands submitted of which it is known where they are.
    pub fn accounted(&self) -> u8 {
        let called = u8::from(!matches!(self.program, Program::Rests | Program::Appended));
        let held = u8::from(matches!(self.worker, Worker::Holds(_)));
        self.launched + (self.pending.1 - self.pending.0) + called + held
    }
}

/// The server's next access to what it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    Rests,
    /// Looks at this client's queue.
    Looks(usize),
    /// Writes what it wants of this client.
    Wants(usize, bool),
    /// Looks again at this client's queue; whether something was missed so far.
    LooksAgain(usize, bool),
    /// Looks up who is stopped.
    LooksUp,
    /// Stores this client's permission.
    Permits(usize),
    /// Wakes this client.
    Wakes(usize),
    /// Renews the leases.
    Renews,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    pub alive: bool,
    pub at: At,
    /// The eventfds, and the end of a process.
    pub woken: bool,
    /// How much of what has been said it has heard.
    pub heard: u8,
    /// A heartbeat is due; this round is one.
    pub beat: bool,
    pub beats: bool,
    /// The policy's memory, and the ticks since its last decision.
    pub memory: u32,
    pub since: u8,
    pub seen: [Seen; 2],
    pub yielded: [bool; 2],
    /// It runs where others wait, since so many ticks.
    pub awaited: [Option<u8>; 2],
    /// What it has decided in this round, and whom it will wake.
    pub decided: Option<Decided>,
    pub to_wake: [bool; 2],
}

impl Server {
    fn new(memory: u32) -> Self {
        Self {
            alive: true,
            at: At::Rests,
            woken: false,
            heard: 0,
            beat: false,
            beats: false,
            memory,
            since: 0,
            seen: [Seen::Idle; 2],
            yielded: [false; 2],
            awaited: [None; 2],
            decided: None,
            to_wake: [false; 2],
        }
    }

    /// The eventfd of a client.
    pub fn ring(&mut self, rings: bool) {
        self.woken |= rings && self.alive;
    }

    /// It does nothing any more, wherever it was.
    pub fn fall_silent(&mut self) {
        *self = Self { alive: false, ..Self::new(Decider::NEW) };
    }
}

/// What a round will write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decided {
    pub run: [bool; 2],
    pub limit: [bool; 2],
    pub event_mask: [u32; 2],
}

/// What the device runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Running {
    pub client: usize,
    /// It has had its tick.
    pub ends: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub server: Server,
    pub clients: [Client; 2],
    pub running: Option<Running>,
    /// How much of what may be said has been said.
    pub said: u8,
    /// Ticks of the leases that are left.
    pub lease: u8,
    /// Ticks that the device gave to the less urgent while the more urgent one had work.
    pub behind: u8,
    /// Ticks from the beginning, if they are bounded.
    pub ticks: u8,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The program submits one more command.
    Submit(usize),
    Program(usize),
    Worker(usize),
    Watcher(usize),
    Listener(usize),
    Agent(usize),
    Server,
    /// Somebody says the next of what may be said.
    Say,
    /// The device begins this client's next command.
    Begin(usize),
    /// What the device runs completes.
    Complete,
    Tick,
    /// The server dies, or hangs for good.
    Silence,
    Die(usize),
    Stop(usize),
    GoOn(usize),
}

/// One rule, broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The server does not look again after it has written what it wants.
    NoSecondLook,
    /// It stores permissions before it writes what it wants and looks again. This one does no harm.
    PermitsFirst,
    /// It looks again, and does not decide anew.
    NoSecondDecision,
    /// It hears the same wake-up again and again.
    LevelTriggered,
    /// It wakes before it stores.
    WakesFirst,
    /// It does nothing at a heartbeat but renew the leases.
    Deaf,
    /// It keeps clients whose process has ended.
    Keeps,
    /// It never looks up whether a process is stopped.
    NeverLooksUp,
    /// The agent does not look at its lease.
    NoLease,
    /// The worker takes a command out of pending before it has submit.
    PopsOutside,
    /// The worker takes a command, and forgets it if the queue has been suspended meanwhile.
    Forgets,
    /// The worker leaves in pending what it has launched while the queue was suspended.
    Repeats,
    /// The worker looks at the permission once, and launches all that is pending.
    LooksOnce,
    /// Nobody asks whether the window has room.
    NoWindow,
    /// The server notes what is said, and decides when something else happens.
    OnlyNotes,
    /// It lets a policy that is chosen for one device decide on all.
    OneForAll,
}

/// What can go wrong in a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub silence: bool,
    pub dies: [bool; 2],
    pub stops: [bool; 2],
    /// Wake-ups of clients may take up to two ticks, and those of the server may never come.
    pub delays: bool,
}

/// What holds for how many ticks.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// For how many the device may serve the less urgent while the more urgent one has work.
    pub behind: u8,
    /// For how many a queue with work may complete nothing.
    pub waits: u8,
}

/// A model.
pub struct Scene {
    pub decider: Decider,
    /// After so much has been said: the more urgent one, for whom the other has to wait as long as it has
    /// work, if there is one.
    pub urgent: Vec<Option<usize>>,
    /// Commands that each program submits at most.
    pub commands: [u8; 2],
    pub window: u8,
    /// After how many ticks nobody looks any further: for a policy whose memory never comes back to what it
    /// was, because it counts idle time, for example.
    pub ticks: Option<u8>,
    pub faults: Faults,
    pub bounds: Bounds,
    pub mutation: Option<Mutation>,
}

impl Scene {
    pub fn first(&self) -> World {
        let decision = self.decider.decide(Decider::NEW, 0, [Seen::Idle; 2]);
        World {
            server: Server::new(decision.memory),
            clients: [0, 1].map(|place| Client::new(&decision, place)),
            running: None,
            said: 0,
            lease: LEASE_TICKS,
            behind: 0,
            ticks: 0,
        }
    }

    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether the other of the two has to wait for this client.
    fn is_urgent(&self, world: &World, place: usize) -> bool {
        self.urgent[usize::from(world.said)] == Some(place)
    }

    /// A tick passes.
    pub fn tick(&self, world: &mut World) {
        self.count(world);
        world.ticks += u8::from(self.ticks.is_some());
        let server = &mut world.server;
        if server.alive {
            server.beat = true;
            server.since = server.since.saturating_add(1);
            for awaited in server.awaited.iter_mut().flatten() {
                *awaited = STALL_TICKS.min(*awaited + 1);
            }
            for seen in &mut server.seen {
                if let Seen::Ready(age) = seen {
                    *age = self.decider.ages.min(*age + 1);
                }
            }
        }
        if let Some(running) = &mut world.running {
            running.ends = true;
        }
        world.lease = world.lease.saturating_sub(1);
        for client in &mut world.clients {
            if client.notice == Notice::Fresh {
                client.notice = Notice::Old;
            }
        }
    }

    /// What has happened may have ended a wait.
    pub fn note_end(&self, world: &mut World) {
        let waits = (0..2).any(|place| {
            let client = &world.clients[place];
            self.is_urgent(world, place) && client.life.runs() && client.is_unfinished()
        });
        if !waits || !world.server.alive {
            world.behind = 0;
        }
    }

    /// Who has waited for what until now.
    fn count(&self, world: &mut World) {
        let decides = world.server.alive;
        for place in 0..2 {
            let [one, two] = &world.clients;
            let (client, other) = if place == 0 { (one, two) } else { (two, one) };
            let outranked = decides
                && self.is_urgent(world, 1 - place)
                && other.life.runs()
                && (other.is_unfinished() || other.ready);
            let orphaned = !decides && client.life.runs() && client.follows && client.is_asleep();
            let waits = client.life.runs() && client.is_unfinished() && !outranked && !orphaned;
            let served = world.running.is_some_and(|running| running.client != place);
            if self.is_urgent(world, place)
                && decides
                && client.life.runs()
                && client.is_unfinished()
                && served
            {
                world.behind = (self.bounds.behind + 1).min(world.behind + 1);
            }
            let client = &mut world.clients[place];
            client.orphaned = if orphaned { (LEASE_TICKS + 1).min(client.orphaned + 1) } else { 0 };
            client.waits = if waits { (self.bounds.waits + 1).min(client.waits + 1) } else { 0 };
        }
    }
}
