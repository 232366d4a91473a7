//! The state of the model: a server, two clients with a queue each, their shared pages, and the device for
//! which both compete.

use super::decider::{Decider, Decision, Seen};
use protocol::page::{HEARTBEAT, LEASE};

/// The length of a lease in ticks. A tick is the interval between two heartbeats.
pub const LEASE_TICKS: u8 = (LEASE.as_nanos() / HEARTBEAT.as_nanos()) as u8;
/// The number of ticks without progress after which the server looks up the process of a client that keeps
/// another one waiting. They cover the server's `PATIENCE` and `STALL` (`xserver/src/core/guard.rs`).
pub const STALL_TICKS: u8 = 2;

/// The state of a client's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcessState {
    Running,
    Stopped,
    /// It runs again after a stop, and is not stopped a second time.
    Continued,
    Dead,
}

impl ProcessState {
    pub fn runs(self) -> bool {
        matches!(self, Self::Running | Self::Continued)
    }
}

/// The state of the program's thread, in or outside the call that submits its latest command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// It is in no call.
    Idle,
    /// It holds the submit lock and has decided to launch.
    Decided,
    /// It holds the submit lock and has written that the queue is ready.
    WroteReady,
    /// It holds the submit lock, has read the event mask, and launches next.
    Launches,
    /// It appends the command to the pending ones next.
    Appends,
    /// It holds the pending lock, has appended the command, and has written that the queue is ready.
    Appended,
}

/// The state of the worker's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Worker {
    /// It holds nothing.
    Idle,
    /// It holds the submit lock and has decided to launch the first pending command.
    Decided,
    /// It has taken this command and holds no lock. Only under [`Mutation::PopsWithoutSubmitLock`].
    Holds(u8),
}

/// The wake-up of a client through the futex of the server's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WakeUp {
    None,
    New,
    /// A tick has passed since the server has sent it.
    Old,
}

/// A violation of the launch order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Violation {
    None,
    LaunchedTwice,
    OutOfOrder,
}

/// The state of a client, with both its pages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    pub process: ProcessState,
    pub program: Program,
    pub worker: Worker,
    /// The watcher has written that the queue is idle. It holds both locks until it has notified the server.
    pub watcher_wrote_idle: bool,
    /// The worker has been signalled to check the queue.
    pub worker_signal: bool,
    pub wake_up: WakeUp,
    /// The client follows the server's page.
    pub follows: bool,
    /// The server's page: permission to run, permission limited by the window, event mask.
    pub run: bool,
    pub limit: bool,
    pub event_mask: u32,
    /// The client's page.
    pub ready: bool,
    /// The numbers of commands submitted, launched and completed. Commands are numbered from 0.
    pub submitted: u8,
    pub launched: u8,
    pub completed: u8,
    /// The range of pending commands: the first, and the one behind the last. Both are 0 if nothing is
    /// pending.
    pub pending: (u8, u8),
    pub violation: Violation,
    /// The number of launches since the suspension was stored.
    pub late_launches: u8,
    /// Consecutive ticks with unfinished work and without a completion. A tick in which the urgent client or
    /// a silent server may keep this client waiting sets the number to 0.
    pub waiting_ticks: u8,
    /// Consecutive ticks under a silent server with pending work that no thread will launch.
    pub orphaned_ticks: u8,
}

impl Client {
    pub fn new(decision: &Decision, index: usize) -> Self {
        Self {
            process: ProcessState::Running,
            program: Program::Idle,
            worker: Worker::Idle,
            watcher_wrote_idle: false,
            worker_signal: false,
            wake_up: WakeUp::None,
            follows: true,
            run: decision.run[index],
            limit: decision.limit[index],
            event_mask: decision.event_mask[index],
            ready: false,
            submitted: 0,
            launched: 0,
            completed: 0,
            pending: (0, 0),
            violation: Violation::None,
            late_launches: 0,
            waiting_ticks: 0,
            orphaned_ticks: 0,
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

    /// Returns true if commands are pending that the worker will not launch without a further signal.
    pub fn needs_signal(&self) -> bool {
        self.has_pending()
            && self.worker == Worker::Idle
            && !self.worker_signal
            && self.wake_up == WakeUp::None
    }

    /// Returns the number of commands that are launched, pending, or in the hands of a thread.
    pub fn accounted(&self) -> u8 {
        let in_call = u8::from(!matches!(self.program, Program::Idle | Program::Appended));
        let held = u8::from(matches!(self.worker, Worker::Holds(_)));
        self.launched + (self.pending.1 - self.pending.0) + in_call + held
    }
}

/// The next access of the server to shared memory. The number is the index of a client; the flag is true if
/// the server has missed an event in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerStep {
    /// It waits for an event.
    Idle,
    ReadsQueue(usize),
    WritesMask(usize, bool),
    /// It reads the queue of a client again whose event mask has grown.
    ReadsAgain(usize, bool),
    /// It looks up stopped processes.
    FindsStopped,
    StoresPermission(usize),
    Wakes(usize),
    RenewsLeases,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// False from the time on at which the server is silent.
    pub alive: bool,
    pub step: ServerStep,
    /// A client has notified the server, or a process has died.
    pub woken: bool,
    /// The clients that have notified the server.
    pub notified: [bool; 2],
    /// The clients whose queues the server does not read before they notify it.
    pub by_event: [bool; 2],
    /// The number of setting changes that the server has applied.
    pub changes_applied: u8,
    /// A heartbeat is due.
    pub heartbeat_due: bool,
    /// The present round is that of a heartbeat.
    pub in_heartbeat: bool,
    /// The memory of the policy, and the ticks since its last decision.
    pub memory: u32,
    pub ticks_since_decision: u8,
    pub seen: [Seen; 2],
    pub yielded: [bool; 2],
    /// For a client that runs and keeps the other one waiting: the ticks without progress, up to
    /// [`STALL_TICKS`].
    pub blocking_ticks: [Option<u8>; 2],
    /// The decision of the present round.
    pub decided: Option<Decided>,
    /// The clients that the server wakes in the present round.
    pub to_wake: [bool; 2],
}

impl Server {
    fn new(memory: u32) -> Self {
        Self {
            alive: true,
            step: ServerStep::Idle,
            woken: false,
            notified: [false; 2],
            by_event: [false; 2],
            changes_applied: 0,
            heartbeat_due: false,
            in_heartbeat: false,
            memory,
            ticks_since_decision: 0,
            seen: [Seen::Idle; 2],
            yielded: [false; 2],
            blocking_ticks: [None; 2],
            decided: None,
            to_wake: [false; 2],
        }
    }

    /// Wakes the server by the eventfd of a client if the event is wanted and the server is alive.
    pub fn notify(&mut self, index: usize, wanted: bool) {
        self.woken |= wanted && self.alive;
        self.notified[index] |= wanted && self.alive;
    }

    /// Wakes the server by a pidfd, because a process has ended.
    pub fn note_end(&mut self) {
        self.woken |= self.alive;
    }

    /// Makes the server silent for good. Its other fields get their first values.
    pub fn fall_silent(&mut self) {
        *self = Self { alive: false, ..Self::new(Decider::NEW) };
    }
}

/// The permissions and event masks that a round writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decided {
    pub run: [bool; 2],
    pub limit: [bool; 2],
    pub event_mask: [u32; 2],
}

/// The command that the device executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Executing {
    pub client: usize,
    /// A tick has passed since the command started, so it completes before the next one.
    pub ends: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub server: Server,
    pub clients: [Client; 2],
    pub executing: Option<Executing>,
    /// The number of setting changes made so far.
    pub changes_made: u8,
    /// The ticks until the leases end.
    pub lease: u8,
    /// The ticks in which the device executed commands of the other client while the urgent one had work.
    pub inversion_ticks: u8,
    /// The ticks since the begin, if [`ScheduleModel::ticks`] bounds them; otherwise 0.
    pub ticks: u8,
}

/// An action of the model. The number is the index of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The program begins to submit its next command.
    Submit(usize),
    /// The thread, or the server, makes its next step.
    Program(usize),
    Worker(usize),
    Watcher(usize),
    Listener(usize),
    Agent(usize),
    Server,
    /// The next setting change is made.
    ChangeSetting,
    /// The device starts a command of the client.
    Start(usize),
    /// The command on the device completes.
    Complete,
    Tick,
    /// The server dies, or hangs for good.
    Silence,
    Die(usize),
    Stop(usize),
    Continue(usize),
}

/// A deliberate fault in the code of the model. Each breaks one rule of the server or of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The server does not read queues again after it has written event masks.
    NoSecondRead,
    /// The server stores permissions before it writes event masks and reads again. No property fails.
    StoresBeforeMasks,
    /// The server reads again, but does not decide again.
    NoSecondDecision,
    /// A notification wakes the server, but the server does not read the queue of the client.
    IgnoresNotifier,
    /// The server takes notifications after it has read the queues.
    TakesNotificationsLate,
    /// The same notification wakes the server again and again.
    LevelTriggered,
    /// The server wakes clients before it stores their permissions.
    WakesBeforeStoring,
    /// At a heartbeat the server only renews the leases.
    HeartbeatOnlyRenews,
    /// The server keeps clients whose process has ended.
    KeepsDeadClients,
    /// The server never looks for stopped processes.
    IgnoresStoppedProcesses,
    /// The agent does not check the lease.
    AgentIgnoresLease,
    /// The worker takes a pending command before it takes the submit lock.
    PopsWithoutSubmitLock,
    /// The worker takes a command and drops it if the queue has been suspended meanwhile.
    DropsCommand,
    /// The worker launches a command and leaves it pending if the queue has been suspended meanwhile.
    LaunchesWithoutPop,
    /// The worker reads the permission once and then launches all that is pending, as far as the window
    /// allows.
    ReadsPermissionOnce,
    /// No thread checks the window.
    IgnoresWindow,
    /// The server notes a setting change, but decides only at the next event.
    NoDecisionAfterChange,
    /// A policy that is set for one device decides on all devices.
    DevicePolicyOnAll,
}

/// The faults that can occur in a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The server may fall silent.
    pub silence: bool,
    /// The client may die.
    pub dies: [bool; 2],
    /// The client may be stopped and continued.
    pub stops: [bool; 2],
    /// Wake-ups of clients may take up to two ticks. Notifications to the server may have no effect before
    /// the next heartbeat.
    pub delays: bool,
}

/// Upper bounds that the properties check, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most [`World::inversion_ticks`].
    pub inversion: u8,
    /// The most [`Client::waiting_ticks`].
    pub waiting: u8,
}

/// The parameters of a model.
pub struct ScheduleModel {
    pub decider: Decider,
    /// The urgent client, if there is one: the other one has to wait as long as it has work. Indexed by the
    /// number of setting changes made.
    pub urgent: Vec<Option<usize>>,
    /// The most commands that each program submits.
    pub commands: [u8; 2],
    /// The most commands of a client in flight while the window limits it.
    pub window: u8,
    /// The number of ticks after which the search ends, if any. It bounds the search for a policy whose
    /// memory never returns to an earlier one, for example because the policy counts idle time.
    pub ticks: Option<u8>,
    pub faults: Faults,
    pub bounds: Bounds,
    pub mutation: Option<Mutation>,
}

impl ScheduleModel {
    /// Returns the first state.
    pub fn initial(&self) -> World {
        let decision = self.decider.decide(Decider::NEW, 0, [Seen::Idle; 2]);
        World {
            server: Server::new(decision.memory),
            clients: [0, 1].map(|index| Client::new(&decision, index)),
            executing: None,
            changes_made: 0,
            lease: LEASE_TICKS,
            inversion_ticks: 0,
            ticks: 0,
        }
    }

    /// Returns true if the model has this mutation.
    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Returns true if this client is the urgent one.
    fn is_urgent(&self, world: &World, index: usize) -> bool {
        self.urgent[usize::from(world.changes_made)] == Some(index)
    }

    /// Advances time by a tick.
    pub fn tick(&self, world: &mut World) {
        self.count_waits(world);
        world.ticks += u8::from(self.ticks.is_some());
        let server = &mut world.server;
        if server.alive {
            server.heartbeat_due = true;
            server.ticks_since_decision = server.ticks_since_decision.saturating_add(1);
            for ticks in server.blocking_ticks.iter_mut().flatten() {
                *ticks = STALL_TICKS.min(*ticks + 1);
            }
            for seen in &mut server.seen {
                if let Seen::Ready(age) = seen {
                    *age = self.decider.max_age.min(*age + 1);
                }
            }
        }
        if let Some(executing) = &mut world.executing {
            executing.ends = true;
        }
        world.lease = world.lease.saturating_sub(1);
        for client in &mut world.clients {
            if client.wake_up == WakeUp::New {
                client.wake_up = WakeUp::Old;
            }
        }
    }

    /// Sets the inversion ticks to 0 if no urgent client waits any more, or the server is silent.
    pub fn end_inversion(&self, world: &mut World) {
        let waits = (0..2).any(|index| {
            let client = &world.clients[index];
            self.is_urgent(world, index) && client.process.runs() && client.is_unfinished()
        });
        if !waits || !world.server.alive {
            world.inversion_ticks = 0;
        }
    }

    /// Counts the tick that ends for all waits. A counter stops at one above its bound.
    fn count_waits(&self, world: &mut World) {
        let server_alive = world.server.alive;
        for index in 0..2 {
            let [one, two] = &world.clients;
            let (client, other) = if index == 0 { (one, two) } else { (two, one) };
            let outranked = server_alive
                && self.is_urgent(world, 1 - index)
                && other.process.runs()
                && (other.is_unfinished() || other.ready);
            let orphaned = !server_alive && client.process.runs() && client.follows && client.needs_signal();
            let waits = client.process.runs() && client.is_unfinished() && !outranked && !orphaned;
            let other_executes = world.executing.is_some_and(|executing| executing.client != index);
            if self.is_urgent(world, index)
                && server_alive
                && client.process.runs()
                && client.is_unfinished()
                && other_executes
            {
                world.inversion_ticks = (self.bounds.inversion + 1).min(world.inversion_ticks + 1);
            }
            let client = &mut world.clients[index];
            client.orphaned_ticks =
                if orphaned { (LEASE_TICKS + 1).min(client.orphaned_ticks + 1) } else { 0 };
            client.waiting_ticks =
                if waits { (self.bounds.waiting + 1).min(client.waiting_ticks + 1) } else { 0 };
        }
    }
}
