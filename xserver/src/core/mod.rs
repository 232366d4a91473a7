//! The decisions of the server, without a socket, a clock or a system call.
//!
//! Clients join ([`Core::join`]), report their queues ([`Core::apply`]) and leave ([`Core::leave`]).
//! [`Core::step`] reads their pages, asks the policy, and writes permissions and event masks. The caller
//! passes the time in, and gets the time of the next step.
//!
//! # No event is lost
//! A client writes its readiness and then reads its event mask. A step writes the masks and then reads the
//! readiness *again* of each client whose mask has grown ([`event_mask`]). So one of the two sees any change
//! between the first read and the write.
//!
//! # What a step reads
//! It does not read the page of a client *by event*: all its queues were idle when they were read last, and since before
//! then its mask has asked for a notification when one turns ready. The next change of such a page is that a queue turns
//! ready. The client writes that after the last read (the read would have seen it), then reads the mask, and notifies the
//! server ([`Core::note_event`]), which ends this state. A step in between sees what it would see if the client had written a
//! moment later. If a new mask does not ask any more, the page is read once more after the mask is written: the client may
//! have changed it before, and read the new mask. From then on each step reads it.
//!
//! So a decision costs as much as what has changed, however many idle queues there are. Clients are other processes: one
//! that does not notify harms itself, until the next reading of all pages, which comes with every heartbeat.
//!
//! # No client waits for ever
//! Every heartbeat causes a step, even without events, unless the core is at rest ([`rest`]). A client that completes nothing while others wait is
//! looked up ([`progress`]): if its process is stopped it yields, and if all rivals of a client complete
//! nothing, all clients run briefly.

mod accounting;
mod add_waiting;
mod client;
mod client_page;
pub mod event_mask;
mod fault;
mod guard;
mod hints;
mod in_force;
mod listing;
mod progress;
mod record;
mod recording;
mod rest;
mod rights;
mod room;
mod tally;
#[cfg(test)]
mod tests;
mod waiting;

use crate::access::Grant;
use crate::error::Refusal;
use crate::limits::Limits;
pub use crate::limits::{DEVICES, QUEUES};
use crate::programs::Program;
use client::ClientState;
pub use client_page::ClientPage;
pub use fault::{Fault, NoRoom};
use guard::Guard;
use policies::{Choice, Engine, named};
use protocol::bounds::Timeslice;
use protocol::control::{HintUpdate, PolicyInForce};
use protocol::event::Event;
use protocol::hint::{Hints, ProcessHints};
use protocol::ids::{ClientId, DeviceId, Pid};
use protocol::message::ToServer;
use protocol::operation::{Permit, Reason};
use protocol::page::{EVENT_IDLE, EVENT_PROGRESS, EVENT_READY, HEARTBEAT, MAY_STAY_READY};
use protocol::status::{Gang, Queues, Status};
use protocol::time::Time;
use record::Recorder;
pub use record::{Change, Record};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// The most rounds of a step, in which it reads again what has changed because of its own writes.
const ROUNDS: usize = 4;

/// The settings of a server besides its policy.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The time for which a queue that turned idle still counts as ready.
    pub linger: Duration,
    /// True if all clients run briefly when the running ones make no progress.
    pub guard: bool,
    /// The time after which a waiting client runs briefly under policies by priority; none for never.
    pub starvation: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { linger: Engine::LINGER, guard: true, starvation: None }
    }
}

/// A process that connects.
#[derive(Debug, Clone)]
pub struct Newcomer {
    /// The process.
    pub pid: Pid,
    /// Its user.
    pub uid: u32,
    /// The name of the program.
    pub name: String,
    /// What it may do.
    pub grant: Grant,
}

/// All clients, and the decisions in force.
#[derive(Debug)]
pub struct Core<P> {
    engine: Engine,
    guard: Guard,
    on: bool,
    /// One gang for each client, in the same order, by id.
    status: Status,
    clients: Vec<ClientState<P>>,
    joined: u64,
    limits: Limits,
    /// The hints for programs by their names.
    programs: Vec<Arc<Program>>,
    /// True if there may be room for queues that were refused.
    has_more_room: bool,
    /// The number of the last owner.
    owners: u32,
    /// The time slice for all clients that `xcli hint` has set.
    timeslice: Option<Timeslice>,
    /// Indexed by [`Engine::contest`], as of the last decision.
    contests: Vec<event_mask::Contest>,
    /// The clients with work elsewhere for which a device is kept free: index and contest, as of the last
    /// decision.
    reserving: Vec<(usize, usize)>,
    /// The number of steps.
    decisions: u64,
    /// The devices of all queues, each with its number of queues.
    devices: BTreeMap<DeviceId, usize>,
    /// The records of what it sees and decides, if someone wants them.
    recorder: Option<Recorder>,
    /// The time at which all pages were read last.
    all_read: Option<Time>,
    /// The time up to which the clients' waiting is summed up, the time since which one of them waits, and the work since
    /// the former, by contest.
    waiting_added: Time,
    waiting_from: Time,
    work: Vec<waiting::Work>,
    /// What has been counted, for metrics.
    sums: tally::Sums,
    /// The earliest time at which a queue turned ready that this step has seen, if it had to be reported.
    turned: Option<Time>,
}

impl<P: ClientPage> Core<P> {
    /// A core without clients.
    pub fn new(policy: impl Into<Choice>, settings: Settings) -> Self {
        let mut engine = Engine::new(policy, settings.linger);
        engine.set_starvation_limit(settings.starvation);
        Self {
            engine,
            guard: Guard::new(settings.guard),
            on: true,
            status: Status::Global { gangs: Vec::new() },
            clients: Vec::new(),
            joined: 0,
            limits: Limits::of_one_user(),
            programs: Vec::new(),
            has_more_room: false,
            owners: 0,
            timeslice: None,
            contests: Vec::new(),
            reserving: Vec::new(),
            decisions: 0,
            devices: BTreeMap::new(),
            recorder: None,
            all_read: None,
            waiting_added: Time::default(),
            waiting_from: Time::default(),
            work: Vec::new(),
            sums: tally::Sums::default(),
            turned: None,
        }
    }

    /// Sets the limits for queues.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.has_more_room = true;
        for (state, gang) in self.clients.iter().zip(gangs(&mut self.status)) {
            state.show_process(&mut gang.hints, &limits);
        }
    }

    /// Adds a client. It has no permission before the next step.
    pub fn join(&mut self, newcomer: Newcomer, page: P) -> ClientId {
        let Newcomer { pid, uid, name, grant } = newcomer;
        self.joined += 1;
        let client = ClientId(self.joined);
        let owner = self.owner_number(uid, &grant);
        let program = self.programs.iter().find(|program| program.is_for(&name, uid)).cloned();
        let mut state = ClientState::new(client, name, uid, grant, page);
        state.program = program;
        if let Some(slice) = self.timeslice {
            state.words.note(HintUpdate::Timeslice(slice), Time(0), true);
        }
        let (hints, queues) = (ProcessHints::default(), Queues::default());
        let mut gang = Gang { client, pid, owner, hints, queues };
        state.show_process(&mut gang.hints, &self.limits);
        self.clients.push(state);
        gangs(&mut self.status).push(gang);
        if let Some(recorder) = &mut self.recorder {
            recorder.note(Change::Join { client, pid });
        }
        client
    }

    /// Notes that a client has notified the server. The next step reads its page.
    pub fn note_event(&mut self, client: ClientId) {
        if let Some(index) = self.find(client) {
            self.clients[index].by_event = false;
        }
    }

    /// Removes a client. Returns its pages.
    pub fn leave(&mut self, client: ClientId) -> Option<P> {
        let index = self.find(client)?;
        let gang = gangs(&mut self.status).remove(index);
        self.has_more_room = true;
        for queue in gang.queues.iter() {
            forget_device(&mut self.devices, queue.device);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.note(Change::Leave { client, pid: gang.pid });
        }
        Some(self.clients.remove(index).page)
    }

    /// Applies a message of a client. Returns the reason if it is about a new queue for which there is no room.
    ///
    /// # Errors
    /// The message breaks a rule, and has no effect. The client must be disconnected.
    pub fn apply(&mut self, client: ClientId, message: &ToServer) -> Result<Option<NoRoom>, Fault> {
        let index = self.find(client).ok_or(Fault::Client)?;
        if let ToServer::QueueCreated { device, .. } = *message
            && let Err(limit) = self.find_room(index, device)
        {
            let (state, gang) = (&mut self.clients[index], &mut gangs(&mut self.status)[index]);
            state.refuse(message, &mut gang.queues)?;
            return Ok(Some(limit));
        }
        self.apply_known(index, message).map(|()| None)
    }

    fn apply_known(&mut self, index: usize, message: &ToServer) -> Result<(), Fault> {
        let (state, gang) = (&mut self.clients[index], &mut gangs(&mut self.status)[index]);
        if state.takes_as_refused(message, &mut gang.queues) {
            return Ok(());
        }
        match *message {
            ToServer::Hello { .. } => Err(Fault::Hello),
            ToServer::QueueCreated { queue, slot, device, priority, level } => {
                state.check_new(queue, slot)?;
                let event = Event::QueueCreated { queue, device, priority, level };
                gang.queues.apply(&event).map_err(Fault::Queue)?;
                *self.devices.entry(device).or_default() += 1;
                state.add(queue, slot, level, priority);
                state.show_queue(queue, &mut gang.queues);
                Ok(())
            }
            ToServer::QueueDestroyed { queue } => {
                state.count(&gang.queues, &mut self.sums, self.waiting_added);
                let device =
                    gang.queues.iter().find(|status| status.queue == queue).map(|status| status.device);
                gang.queues.apply(&Event::QueueDestroyed { queue }).map_err(Fault::Queue)?;
                state.remove(queue);
                self.has_more_room = true;
                if let Some(device) = device {
                    forget_device(&mut self.devices, device);
                }
                Ok(())
            }
            ToServer::Priority { queue, priority } => {
                state.set_own_priority(queue, priority)?;
                state.show_queue(queue, &mut gang.queues);
                Ok(())
            }
            ToServer::Level { queue, level } => {
                state.set_level(queue, level)?;
                state.show_queue(queue, &mut gang.queues);
                Ok(())
            }
            ToServer::QueueHints { queue, hints } => {
                state.set_reported(queue, hints)?;
                state.show_queue(queue, &mut gang.queues);
                Ok(())
            }
            ToServer::ProcessHints { mut hints } => {
                if !state.grant.administers {
                    // These two are for all programs.
                    (hints.timeslice, hints.window) = (None, false);
                }
                let before = std::mem::replace(&mut state.reported, hints);
                if before.window != hints.window {
                    gang.hints.window = hints.window;
                }
                let of = |process| Hints { process, ..Hints::default() };
                state.words.forget_changed(&of(before), &of(hints));
                state.show_process(&mut gang.hints, &self.limits);
                Ok(())
            }
            ToServer::Preemption { in_force, ref how } => {
                (state.able, state.how) = (in_force, how.clone());
                Ok(())
            }
            // No decision depends on the cost; the server keeps it for other clients.
            ToServer::EvictCost { .. } => Ok(()),
        }
    }

    /// The interval at which a policy reads the power of the devices; none if no policy does.
    pub fn reads_power(&self) -> Option<Duration> {
        self.engine.reads_power().filter(|_| self.on)
    }

    /// Sets the power of a device at this time, in milliwatts, for the next step.
    pub fn set_power(&mut self, device: DeviceId, milliwatts: u64, at: Time) {
        self.engine.set_power(device, milliwatts, at);
    }

    /// Switches scheduling on or off, from the next step on.
    pub fn set_on(&mut self, on: bool) {
        self.on = on;
        // While scheduling is off, all clients run.
        self.engine.forget_decision();
    }

    /// Sets the policy of a device, or of all devices without their own policy, from the next step on.
    ///
    /// # Errors
    /// [`DEVICES`] devices have their own policies already.
    pub fn set_policy(&mut self, device: Option<DeviceId>, choice: Choice) -> Result<(), Refusal> {
        let Some(device) = device else {
            self.engine.set_policy(choice);
            return Ok(());
        };
        // The first policy is that of all devices.
        let own = self.choices().len() - 1;
        if own >= DEVICES && self.choices().all(|(known, _)| known != Some(device)) {
            return Err(Refusal::TooManyPolicies(DEVICES));
        }
        self.engine.set_device_policy(device, Some(choice));
        Ok(())
    }

    /// Removes a device's own policy.
    pub fn reset_policy(&mut self, device: DeviceId) {
        self.engine.set_device_policy(device, None);
    }

    /// Returns true if a policy uses the nice values of the clients' processes.
    pub fn reads_nice(&self) -> bool {
        self.engine.reads_nice()
    }

    /// Sets the nice value of a client's process, for the next step.
    pub fn set_nice(&mut self, client: ClientId, nice: i8) {
        if let Some(index) = self.find(client) {
            gangs(&mut self.status)[index].hints.nice = nice;
        }
    }

    /// The policy of all devices, then those of single devices.
    pub fn choices(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &Choice)> {
        self.engine.choices()
    }

    /// The policies in force with their counters, for a list.
    pub fn in_force(&self) -> Vec<PolicyInForce> {
        named::in_force(&self.engine)
    }

    /// The devices on which clients have queues, sorted.
    pub fn devices(&self) -> Vec<DeviceId> {
        self.devices.keys().copied().collect()
    }

    /// Returns true if scheduling is on.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// The number of times that the guard has let all clients run.
    pub fn guard_runs(&self) -> u64 {
        self.guard.runs
    }

    /// The number of steps.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// The clients and their pages, in order of connection.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = (ClientId, &P)> {
        self.clients.iter().map(|state| (state.client, &state.page))
    }

    /// The pages of a client.
    pub fn page(&self, client: ClientId) -> Option<&P> {
        self.find(client).map(|index| &self.clients[index].page)
    }

    /// The number of queues of all clients.
    pub fn queues(&self) -> usize {
        self.clients.iter().map(|state| state.slots.len()).sum()
    }

    /// Reads the pages that may have changed, decides, and writes permissions. Returns the time of the next step
    /// if no event comes earlier; a time in the past means as soon as pending events are handled.
    pub fn step(&mut self, now: Time) -> Option<Time> {
        self.decisions += 1;
        self.admit_refused();
        let mut wake = None;
        let mut stable = false;
        for _ in 0..ROUNDS {
            self.look(now);
            wake = self.decide(now);
            // First the masks, then the second read.
            let missed = self.publish_event_masks(now);
            if !missed && !self.find_stopped(now) {
                stable = true;
                break;
            }
        }
        if !stable {
            wake = Some(now);
        }
        self.note_unheard();
        self.watch_progress(now);
        self.publish_permissions(now);
        self.add_waiting(now);
        self.record_step(now);
        let ready_from = self.clients.iter().filter_map(ClientState::ready_from).min();
        [wake, self.next_watch(now), ready_from].into_iter().flatten().min()
    }

    /// Lets all clients run within their windows, because the server ends.
    pub fn release_all(&mut self, now: Time) {
        for state in &mut self.clients {
            let permit = Permit::running(true, Reason::Off);
            if state.permit(permit, 0, now) {
                state.page.wake();
            }
        }
        self.guard.until = None;
        self.record_permissions(now);
    }

    fn gangs(&self) -> &[Gang] {
        match &self.status {
            Status::Global { gangs } => gangs,
            Status::Local { .. } => unreachable!("the core has a global status"),
        }
    }

    fn find(&self, client: ClientId) -> Option<usize> {
        self.clients.binary_search_by_key(&client, |state| state.client).ok()
    }

    /// Updates the status from the pages that may have changed, or from all if that was long ago.
    fn look(&mut self, now: Time) {
        let reads_all = self.all_read.is_none_or(|last| now >= last.after(HEARTBEAT));
        if reads_all {
            self.all_read = Some(now);
        }
        let all = self.clients.iter_mut().zip(gangs(&mut self.status));
        for (state, gang) in all.filter(|(state, _)| reads_all || !state.by_event || state.yielded) {
            state.look(&mut gang.queues, now);
            if let Some(turned) = state.tally.turned.take() {
                self.turned = Some(self.turned.map_or(turned, |other| other.min(turned)));
            }
        }
    }

    /// Asks the policy, and finds the waiting clients and their rivals.
    fn decide(&mut self, now: Time) -> Option<Time> {
        if !self.on {
            // All clients run, so no share counts as used by a decision that is not carried out.
            self.engine.forget_decision();
        }
        let decision = self.engine.decide(&self.status, now);
        for (state, operation) in self.clients.iter_mut().zip(decision.operations) {
            state.decided = operation.permit;
        }
        let wake = decision.wake;
        let (units, engine, on) = (self.engine.entities(), &self.engine, self.on);
        let clients = self.clients.iter_mut().zip(units.all()).map(|(state, unit)| {
            let run = state.decided.run || !on;
            // A client that waits because of the policy alone, or for others of its job, has no rival.
            let has_rival = unit.ready && !run && matches!(state.decided.reason, Reason::Outranked { .. });
            state.waits_since = has_rival.then(|| state.waits_since.unwrap_or(now));
            (run, state.waits_since)
        });
        event_mask::note(&mut self.contests, engine, clients);
        self.note_reserving();
        for (index, state) in self.clients.iter_mut().enumerate() {
            let contests = progress::contests_of(&self.engine, &self.reserving, index);
            let since = contests.filter_map(|contest| self.contests[contest].waits_since).min();
            state.set_awaited(since.filter(|_| state.decided.run), now);
        }
        wake
    }

    /// Writes the event masks, and reads the pages again of clients whose mask has grown, or no longer makes them tell of
    /// changes. Returns true if an event was missed.
    fn publish_event_masks(&mut self, now: Time) -> bool {
        let rules = event_mask::Rules::new(&self.engine, &self.contests, now);
        let mut missed = false;
        let all = self.clients.iter_mut().zip(gangs(&mut self.status));
        for (index, (state, gang)) in all.enumerate() {
            let event_mask =
                if self.on { rules.of(index, &gang.queues, &state.decided, state.is_watched()) } else { 0 };
            let more = event_mask & !state.event_mask & !MAY_STAY_READY;
            if state.event_mask != event_mask {
                state.event_mask = event_mask;
                state.page.set_event_mask(event_mask);
            }
            if more != 0 || state.by_event && event_mask & EVENT_READY == 0 {
                missed |= state.look(&mut gang.queues, now);
                // Its sleeping agent must begin to count completions.
                state.to_wake |= more & EVENT_PROGRESS != 0;
            }
        }
        missed
    }

    /// Tells the engine whose next change will not be reported. The end of a linger causes a step without a report.
    fn note_unheard(&mut self) {
        for (index, state) in self.clients.iter().enumerate() {
            let unit = &self.engine.entities().all()[index];
            let needed = match (unit.working, unit.ready) {
                (true, _) => EVENT_IDLE,
                (false, true) => continue,
                (false, false) => EVENT_READY,
            };
            if state.event_mask & needed == 0 {
                self.engine.note_unheard(index);
            }
        }
    }

    fn publish_permissions(&mut self, now: Time) {
        let together = self.guard.is_active();
        let units = self.engine.entities();
        for (state, unit) in self.clients.iter_mut().zip(units.all()) {
            let decided = state.decided;
            let permit = if !self.on {
                Permit::running(false, Reason::Off)
            } else if state.is_exempt() {
                Permit::running(true, Reason::NoRoom)
            } else if together && !decided.run && decided.reason != Reason::NoExecute {
                Permit::running(true, Reason::Guard)
            } else {
                decided
            };
            // One of the running clients is the rival; the others are bystanders.
            let contests = units.uses(unit).iter().map(|used| self.engine.contest(used.device));
            let running = contests.map(|contest| self.contests[contest].running).max();
            let ran = state.permit.run;
            state.to_wake |= state.permit(permit, running.unwrap_or(0).saturating_sub(1), now);
            state.count_turn(ran, unit.working, &mut self.sums.totals, now);
        }
        // A wake-up takes time, so all permissions are stored first.
        for state in self.clients.iter_mut().filter(|state| state.to_wake) {
            state.to_wake = false;
            state.page.wake();
        }
    }
}

/// Counts a queue of a device down.
fn forget_device(devices: &mut BTreeMap<DeviceId, usize>, device: DeviceId) {
    if let Entry::Occupied(mut count) = devices.entry(device) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// The gangs of a global status.
fn gangs(status: &mut Status) -> &mut Vec<Gang> {
    match status {
        Status::Global { gangs } => gangs,
        Status::Local { .. } => unreachable!("the core has a global status"),
    }
}
