//! Who may launch: everything that is decided, without a socket, a clock or a system call.
//!
//! Clients come ([`Core::join`]), tell of their queues ([`Core::apply`]) and go ([`Core::leave`]); [`Core::step`] looks at
//! their pages, asks the policy, and writes permissions and what it wants to hear of. Time comes in; the time of the
//! next step comes out.
//!
//! # Nothing is overlooked
//! A client writes its readiness and then looks at what the server wants to hear of; a step writes what it wants and
//! then looks at the readiness *again*, of everybody of whom it wants more than before ([`wants`]). Whatever happens
//! between the look and the write is therefore seen by one of the two.
//!
//! # Nobody waits for ever
//! A step comes with every heartbeat even if nobody tells anything. Whoever completes nothing while others wait is
//! looked up ([`progress`]): a stopped process yields, and if all that stand in somebody's way complete nothing, all
//! run together for a moment.

mod hints;
mod member;
mod progress;
#[cfg(test)]
mod tests;
pub mod wants;

use member::Member;
use policies::{Choice, Engine, named};
use progress::Guard;
use protocol::bounds::Timeslice;
use protocol::codes::PreemptLevel;
use protocol::control::{Client, InForce, Preemption, Queue, QueueState};
use protocol::event::Event;
use protocol::hint::{Hint, ProcessHints};
use protocol::ids::{ClientId, DeviceId, Pid};
use protocol::message::ToServer;
use protocol::operation::{Permit, Reason, Window};
use protocol::page::{SLOTS, WANTS_PROGRESS};
use protocol::slow::SlowPath;
use protocol::status::{Activity, Counts, Gang, Queues, Status, StatusError};
use protocol::time::Time;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::time::Duration;

/// Queues of all clients together. Every step may look at each of them.
pub const QUEUES: usize = 65_536;
/// Devices of all clients together. A host has some dozens, partitions included; whoever names more makes them up.
pub const DEVICES: usize = 256;
/// How often a step looks anew at what its own writing has changed, before it lets others have their turn.
const ROUNDS: usize = 4;

/// What the core sees and does of one client. What is read is whatever the client likes it to be.
pub trait Peer {
    /// The readiness of a queue, as on the client's page.
    fn activity(&self, slot: u32) -> u64;
    /// What a queue has done, as the client says.
    fn counts(&self, slot: u32) -> Counts;
    /// Commands that have completed, as the client says.
    fn completed(&self) -> u64;
    /// Until when a command of known length runs, as the client says.
    fn busy_until(&self) -> Time;
    /// What became of taking its queues off the hardware, as the client says; not what is in force.
    fn preemption(&self) -> Preemption;
    /// How many launches were made in their turn on the calling thread for this reason, as the client says.
    fn slow_path(&self, reason: SlowPath) -> u64;
    /// Whether the process is stopped, traced or held from outside, and so cannot make progress.
    fn is_stopped(&self) -> bool;
    /// Stores what the client shall tell. Sequentially consistent with [`Peer::activity`].
    fn set_wants(&self, wants: u32);
    /// Stores the permission; the client's launching threads see it at once, its sleepers after [`Peer::wake`].
    fn set_permission(&self, word: u64);
    /// Makes the client's agent look at its page.
    fn wake(&self);
}

/// How a server decides, besides its policy.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For how long a queue that turned idle counts as ready still.
    pub linger: Duration,
    /// Whether all run together for a moment when those that run complete nothing.
    pub guard: bool,
    /// After how long a client that waits runs for a moment, under policies that go by priority; nothing for never.
    pub starvation: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { linger: Engine::LINGER, guard: true, starvation: None }
    }
}

/// Why a client's message breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It introduces itself twice.
    Hello,
    /// It names a queue that is not there, or creates one that is.
    Queue(StatusError),
    /// There is no such slot, or another queue has it.
    Slot(u32),
    /// The server has [`QUEUES`] queues.
    Full,
    /// The clients have queues on [`DEVICES`] devices.
    Devices,
    /// Nobody of this name is connected.
    Client,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => f.write_str("it introduces itself twice"),
            Self::Queue(error) => error.fmt(f),
            Self::Slot(slot) => write!(f, "slot {slot} is taken or not there"),
            Self::Full => write!(f, "the server has {QUEUES} queues and takes no more"),
            Self::Devices => write!(f, "the clients have queues on {DEVICES} devices, and there are no more"),
            Self::Client => f.write_str("it is not connected"),
        }
    }
}

impl std::error::Error for Fault {}

/// All clients, and what is in force for them.
#[derive(Debug)]
pub struct Core<P> {
    engine: Engine,
    guard: Guard,
    on: bool,
    /// One gang for each member, in the same order: that of their coming, hence of their names.
    status: Status,
    members: Vec<Member<P>>,
    joined: u64,
    /// The slice that everybody asks for who has not asked for another since, if a person has said so.
    timeslice: Option<Timeslice>,
    /// By the numbers of [`Engine::contest`], as of the last decision.
    contests: Vec<wants::Contest>,
    /// Who keeps a device free with work elsewhere: the place of a client, and a contest. As of the last decision.
    reserving: Vec<(usize, usize)>,
    /// How often there was a step.
    decisions: u64,
    /// The devices of all queues, each with how many there are.
    named: BTreeMap<DeviceId, usize>,
}

impl<P: Peer> Core<P> {
    /// One that nobody has joined.
    pub fn new(policy: impl Into<Choice>, settings: Settings) -> Self {
        let mut engine = Engine::new(policy, settings.linger);
        engine.set_starvation(settings.starvation);
        Self {
            engine,
            guard: Guard::new(settings.guard),
            on: true,
            status: Status::Global { gangs: Vec::new() },
            members: Vec::new(),
            joined: 0,
            timeslice: None,
            contests: Vec::new(),
            reserving: Vec::new(),
            decisions: 0,
            named: BTreeMap::new(),
        }
    }

    /// A client comes. It has no permission before the next step.
    pub fn join(&mut self, pid: Pid, name: String, peer: P) -> ClientId {
        self.joined += 1;
        let client = ClientId(self.joined);
        self.members.push(Member::new(client, name, peer));
        gangs(&mut self.status).push(Gang {
            client,
            pid,
            hints: ProcessHints { timeslice: self.timeslice, ..ProcessHints::default() },
            queues: Queues::default(),
        });
        client
    }

    /// What a client is called, what its queues have done, as it said last, and how many of its commands have completed.
    pub fn totals(&self, client: ClientId) -> Option<(&str, Counts, u64)> {
        let member = &self.members[self.find(client)?];
        let mut all = Counts::default();
        for slot in &member.slots {
            let counts = member.peer.counts(slot.index);
            for (sum, count) in [
                (&mut all.pending, counts.pending),
                (&mut all.in_flight, counts.in_flight),
                (&mut all.direct, counts.direct),
                (&mut all.deferred, counts.deferred),
                (&mut all.suspensions, counts.suspensions),
                (&mut all.suspended_ns, counts.suspended_ns),
            ] {
                // Whatever the client likes it to be.
                *sum = sum.saturating_add(count);
            }
        }
        Some((&member.name, all, member.peer.completed()))
    }

    /// A client goes, with everything that was known of it. Returns what it was.
    pub fn leave(&mut self, client: ClientId) -> Option<P> {
        let place = self.find(client)?;
        let gang = gangs(&mut self.status).remove(place);
        for queue in gang.queues.iter() {
            forget_device(&mut self.named, queue.device);
        }
        Some(self.members.remove(place).peer)
    }

    /// A client tells something.
    ///
    /// # Errors
    /// It breaks a rule, and nothing has changed. Whoever does so is not to be trusted any further.
    pub fn apply(&mut self, client: ClientId, message: &ToServer) -> Result<(), Fault> {
        let place = self.find(client).ok_or(Fault::Client)?;
        let all = self.queues();
        let (member, gang) = (&mut self.members[place], &mut gangs(&mut self.status)[place]);
        match *message {
            ToServer::Hello { .. } => Err(Fault::Hello),
            ToServer::QueueCreated { queue, slot, device, priority, level } => {
                if all >= QUEUES {
                    return Err(Fault::Full);
                }
                if usize::try_from(slot).is_ok_and(|slot| slot >= SLOTS) || member.has_slot(slot) {
                    return Err(Fault::Slot(slot));
                }
                if self.named.len() >= DEVICES && !self.named.contains_key(&device) {
                    return Err(Fault::Devices);
                }
                let event = Event::QueueCreated { queue, device, priority, level };
                gang.queues.apply(&event).map_err(Fault::Queue)?;
                *self.named.entry(device).or_default() += 1;
                member.add(queue, slot, level, priority);
                Ok(())
            }
            ToServer::QueueDestroyed { queue } => {
                let device =
                    gang.queues.iter().find(|status| status.queue == queue).map(|status| status.device);
                gang.queues.apply(&Event::QueueDestroyed { queue }).map_err(Fault::Queue)?;
                member.remove(queue);
                if let Some(device) = device {
                    forget_device(&mut self.named, device);
                }
                Ok(())
            }
            ToServer::Priority { queue, priority } => {
                let event = Event::Hint(Hint::Priority { queue, priority });
                gang.queues.apply(&event).map_err(Fault::Queue)?;
                member.set_own_priority(queue, priority);
                Ok(())
            }
            ToServer::Level { queue, level } => {
                gang.queues.set_level(queue, level).map_err(Fault::Queue)?;
                member.set_level(queue, level);
                Ok(())
            }
            ToServer::QueueHints { queue, hints } => {
                let before = member.told_of(queue).ok_or(Fault::Queue(StatusError::UnknownQueue(queue)))?;
                let told = std::mem::replace(before, hints);
                let present = gang.queues.iter().find(|status| status.queue == queue);
                let mut all = present.map(|status| status.hints).unwrap_or_default();
                all.follow(&told, &hints);
                let event = Event::Hint(Hint::Queue { queue, hints: all });
                gang.queues.apply(&event).map_err(Fault::Queue)
            }
            ToServer::ProcessHints { hints } => {
                gang.hints.follow(&member.told, &hints);
                member.told = hints;
                Ok(())
            }
            ToServer::Preemption { in_force, ref how } => {
                (member.in_force, member.how) = (in_force, how.clone());
                Ok(())
            }
            // No decision depends on it; the server keeps it for other clients.
            ToServer::HoldCost { .. } => Ok(()),
        }
    }

    /// How often a policy wants to know what the devices draw; nothing if none does.
    pub fn reads_power(&self) -> Option<Duration> {
        self.engine.reads_power().filter(|_| self.on)
    }

    /// What a device drew at this moment, in milliwatts; counts from the next step on.
    pub fn set_power(&mut self, device: DeviceId, milliwatts: u64, at: Time) {
        self.engine.set_power(device, milliwatts, at);
    }

    /// Lets the policy decide from the next step on, or lets all run.
    pub fn set_on(&mut self, on: bool) {
        self.on = on;
        // While it is off all run, whatever was decided.
        self.engine.forget_decision();
    }

    /// Lets a policy decide from the next step on: on one device, or on all that have none of their own.
    ///
    /// # Errors
    /// [`DEVICES`] devices have policies of their own already; one line.
    pub fn set_policy(&mut self, device: Option<DeviceId>, choice: Choice) -> Result<(), String> {
        let Some(device) = device else {
            self.engine.set_policy(choice);
            return Ok(());
        };
        // The first is that of all devices.
        let own = self.choices().len() - 1;
        if own >= DEVICES && self.choices().all(|(known, _)| known != Some(device)) {
            return Err(format!("{DEVICES} devices have policies of their own already"));
        }
        self.engine.set_device_policy(device, Some(choice));
        Ok(())
    }

    /// Takes a device's own policy away.
    pub fn reset_policy(&mut self, device: DeviceId) {
        self.engine.set_device_policy(device, None);
    }

    /// Whether a policy goes by the nice values of the clients' processes.
    pub fn reads_nice(&self) -> bool {
        self.engine.reads_nice()
    }

    /// The nice value of a client's process. Counts from the next step on.
    pub fn set_nice(&mut self, client: ClientId, nice: i8) {
        if let Some(place) = self.find(client) {
            gangs(&mut self.status)[place].hints.nice = nice;
        }
    }

    /// What decides: the policy of all devices, then those of single ones.
    pub fn choices(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &Choice)> {
        self.engine.choices()
    }

    /// The same for people, with what each has counted.
    pub fn in_force(&self) -> Vec<InForce> {
        named::in_force(&self.engine)
    }

    /// The devices on which clients have queues, by their numbers.
    pub fn devices(&self) -> Vec<DeviceId> {
        self.named.keys().copied().collect()
    }

    /// Whether the policy decides.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// How often all ran together because those that ran completed nothing.
    pub fn guard_runs(&self) -> u64 {
        self.guard.runs
    }

    /// How often it was decided who may run.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// The clients, in the order of their coming.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = (ClientId, &P)> {
        self.members.iter().map(|member| (member.client, &member.peer))
    }

    /// A client.
    pub fn peer(&self, client: ClientId) -> Option<&P> {
        self.find(client).map(|place| &self.members[place].peer)
    }

    /// Queues of all clients.
    pub fn queues(&self) -> usize {
        self.members.iter().map(|member| member.slots.len()).sum()
    }

    /// Looks, decides, and writes. Returns when to do so again even if nothing happens; what lies in the past means at
    /// once, but after hearing what else there is.
    pub fn step(&mut self, now: Time) -> Option<Time> {
        self.decisions += 1;
        let mut wake = None;
        let mut settled = false;
        for _ in 0..ROUNDS {
            self.look(now);
            wake = self.decide(now);
            // First what is wanted, then the second look.
            let missed = self.publish_wants(now);
            if !missed && !self.find_stopped(now) {
                settled = true;
                break;
            }
        }
        if !settled {
            wake = Some(now);
        }
        self.watch_progress(now);
        self.publish_permissions(now);
        [wake, self.next_watch(now)].into_iter().flatten().min()
    }

    /// Lets all run within their windows, as without a server, because there will be none.
    pub fn release_all(&mut self, now: Time) {
        for member in &mut self.members {
            let permit = Permit { run: true, limit: true, window: Window::OWN, reason: Reason::Off };
            if member.permit(permit, 0, now) {
                member.peer.wake();
            }
        }
    }

    /// What there is to say of every client, as of the last step; nothing is known here of how fresh it is.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = Client> {
        self.members.iter().zip(self.gangs()).map(|(member, gang)| Client {
            client: member.client,
            pid: gang.pid,
            name: member.name.clone(),
            hints: gang.hints,
            permit: member.permit,
            since: member.since.unwrap_or_default(),
            reason: policies::explain(&member.permit.reason),
            yielded: member.yielded,
            fresh: false,
            preemption: Preemption {
                in_force: member.in_force,
                how: member.how.clone(),
                ..member.peer.preemption()
            },
            slow_path: SlowPath::ALL
                .iter()
                .map(|reason| (reason.name().to_owned(), member.peer.slow_path(*reason)))
                .filter(|(_, count)| *count != 0)
                .collect(),
            queues: member
                .slots
                .iter()
                .zip(gang.queues.iter())
                .map(|(slot, status)| {
                    // The permission is one for the process, which hears of no priority from outside.
                    let runs = member.permit.run && !slot.is_held();
                    let state = match (slot.activity, runs) {
                        (Activity::Idle { .. }, _) => QueueState::Idle,
                        (Activity::Ready { .. }, true) => QueueState::Running,
                        (Activity::Ready { .. }, false) => QueueState::Suspended,
                    };
                    let counts = member.peer.counts(slot.index);
                    let status = protocol::status::QueueStatus { activity: slot.activity, counts, ..*status };
                    // In force is what was asked for, or more: without draining, level 2 is 3.
                    let in_force = match status.level {
                        PreemptLevel::Block => PreemptLevel::Block,
                        _ => member.in_force,
                    };
                    Queue { status, in_force, state, own_priority: Some(slot.own_priority) }
                })
                .collect(),
        })
    }

    fn gangs(&self) -> &[Gang] {
        match &self.status {
            Status::Global { gangs } => gangs,
            Status::Local { .. } => unreachable!("made so, and only filled"),
        }
    }

    fn find(&self, client: ClientId) -> Option<usize> {
        self.members.binary_search_by_key(&client, |member| member.client).ok()
    }

    /// Brings the status up to date with the pages.
    fn look(&mut self, now: Time) {
        for (member, gang) in self.members.iter_mut().zip(gangs(&mut self.status)) {
            member.look(&mut gang.queues, now);
        }
    }

    /// Asks the policy, and notes who waits and who stands in the way.
    fn decide(&mut self, now: Time) -> Option<Time> {
        if !self.on {
            // All run: nobody is told that it had its share by a decision that was not carried out.
            self.engine.forget_decision();
        }
        let decision = self.engine.decide(&self.status, now);
        for (member, operation) in self.members.iter_mut().zip(decision.operations) {
            member.decided = operation.permit;
        }
        let wake = decision.wake;
        let (units, engine, on) = (self.engine.entities(), &self.engine, self.on);
        let clients = self.members.iter_mut().zip(units.all()).map(|(member, unit)| {
            let run = member.decided.run || !on;
            // Whoever waits for the policy alone, or together with others of its job, is kept waiting by nobody here.
            let in_the_way = unit.ready && !run && matches!(member.decided.reason, Reason::Outranked { .. });
            member.waits_since = in_the_way.then(|| member.waits_since.unwrap_or(now));
            (run, member.waits_since)
        });
        wants::note(&mut self.contests, engine, clients);
        self.note_reserving();
        for (place, member) in self.members.iter_mut().enumerate() {
            let contests = progress::contests_of(&self.engine, &self.reserving, place);
            let since = contests.filter_map(|contest| self.contests[contest].waits_since).min();
            member.set_awaited(since.filter(|_| member.decided.run), now);
        }
        wake
    }

    /// Writes what each client shall tell, and looks again at those of whom that is more than before. Returns whether
    /// something was missed.
    fn publish_wants(&mut self, now: Time) -> bool {
        let rules = wants::Rules::new(&self.engine, &self.contests, now);
        let mut missed = false;
        let all = self.members.iter_mut().zip(gangs(&mut self.status));
        for (place, (member, gang)) in all.enumerate() {
            let wants = if self.on {
                rules.of(place, &gang.queues, member.decided.run, member.is_watched())
            } else {
                0
            };
            let more = wants & !member.wants;
            if member.wants != wants {
                member.wants = wants;
                member.peer.set_wants(wants);
            }
            if more != 0 {
                missed |= member.look(&mut gang.queues, now);
                // Its agent is asleep, and shall begin to count.
                member.to_wake |= more & WANTS_PROGRESS != 0;
            }
        }
        missed
    }

    fn publish_permissions(&mut self, now: Time) {
        let together = self.guard.is_active();
        let units = self.engine.entities();
        for (member, unit) in self.members.iter_mut().zip(units.all()) {
            let decided = member.decided;
            let permit = if !self.on {
                Permit { run: true, limit: false, window: Window::OWN, reason: Reason::Off }
            } else if together && !decided.run && decided.reason != Reason::NoExecute {
                Permit { run: true, limit: true, window: Window::OWN, reason: Reason::Guard }
            } else {
                decided
            };
            // One of those who run there is whom it makes way for.
            let contests = units.uses(unit).iter().map(|used| self.engine.contest(used.device));
            let running = contests.map(|contest| self.contests[contest].running).max();
            member.to_wake |= member.permit(permit, running.unwrap_or(0).saturating_sub(1), now);
        }
        // After all words are stored: a wake-up takes its time.
        for member in self.members.iter_mut().filter(|member| member.to_wake) {
            member.to_wake = false;
            member.peer.wake();
        }
    }
}

/// One queue less is on a device.
fn forget_device(named: &mut BTreeMap<DeviceId, usize>, device: DeviceId) {
    if let Entry::Occupied(mut count) = named.entry(device) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// The gangs of a status that holds gangs.
fn gangs(status: &mut Status) -> &mut Vec<Gang> {
    match status {
        Status::Global { gangs } => gangs,
        Status::Local { .. } => unreachable!("made so, and only filled"),
    }
}
