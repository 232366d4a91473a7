//! A simulation of a policy with some clients of a workload. `hosts` simulates the programs, `control` the
//! scheduler, and `notifications` decides which changes are reported to it.
//!
//! A client has host threads, each of which works on one request after the other: it prepares the request,
//! then launches its kernels with gaps between them, and waits for each only if the workload requires that.
//! The request is done when the last kernel has ended. A queue that may not run, or whose window is full,
//! keeps submitted kernels. All events of hosts and devices at one time come before the decision of the
//! scheduler at that time.

mod control;
mod hosts;
mod log;
mod notifications;

use crate::account::Change;
use crate::policy_sim::arrivals::Source;
use crate::policy_sim::case::{Case, Instance};
use crate::policy_sim::device::{Device, DeviceTimes, FINE, Head};
use crate::policy_sim::distribution::nanos;
use crate::policy_sim::events::{Event, Events};
use crate::policy_sim::request::{Recipe, Request, Step};
use crate::policy_sim::scheduler::{Permission, Policy, Scheduler, Scope};
use crate::policy_sim::workload::{Dispatch, Model};
use crate::random::{Purpose, Random};
use log::Log;
use notifications::Seen;
use protocol::bounds::Priority;
use protocol::operation::Window;
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub case: &'a Case,
    /// The simulated clients of the workload.
    pub instances: &'a [Instance],
    pub policy: &'a Policy,
    pub scope: Scope,
    pub seed: u64,
}

/// The result of a simulation. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// The simulated time.
    pub time: u64,
    /// The result of each instance, in the order of the setting.
    pub clients: Vec<ClientRun>,
    pub devices: Vec<DeviceTimes>,
    /// The number of decisions.
    pub decisions: u64,
    /// The number of events.
    pub events: u64,
}

/// The result of a client. Times are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientRun {
    pub arrived: u64,
    /// The latency of each completed request, in the order of completion.
    pub latencies: Vec<u64>,
    /// The age of each unfinished request at the end.
    pub unfinished: Vec<u64>,
    /// The duration alone of the completed kernels, and of the completed parts of others.
    pub work: u64,
    /// Suspensions while it had work.
    pub suspensions: u64,
}

/// A queue, whose number is its index.
#[derive(Debug)]
struct Queue {
    lane: usize,
    entity: usize,
    device: usize,
    priority: Priority,
    /// Submitted kernels that are not launched.
    pending: VecDeque<Step>,
    /// Launched kernels that have not ended, with the time from which each can begin.
    launched: VecDeque<(Step, u64)>,
    /// The duration of the launched kernels alone, nanoseconds.
    launched_ns: u64,
    /// The first launched kernel, as the device sees it.
    head: Option<Head>,
    /// True if the device has the head, which is not so after an eviction.
    on_device: bool,
    /// True from an eviction until the device has the queue again.
    evicted: bool,
    /// True if the scheduler counts it as ready.
    ready: bool,
    /// The moment at which it was last seen to be idle.
    idle_since: u64,
    /// The number of times that it ran out of work.
    emptied: u32,
    /// The state that the decision of this number saw, if the queue has changed since.
    seen: (u64, Seen),
}

/// A host thread with the queues that it launches into.
#[derive(Debug, Default)]
struct Lane {
    client: usize,
    queues: Range<usize>,
    request: Option<Request>,
    /// The next kernel to launch.
    next: usize,
    /// The kernels on all queues that have not ended.
    outstanding: usize,
    /// The end of the thread's report to the scheduler.
    busy_until: u64,
}

#[derive(Debug)]
struct ClientState<'a> {
    source: Source<'a>,
    recipe: &'a Recipe,
    random: Random,
    waiting: VecDeque<Request>,
    lanes: Range<usize>,
    /// The lockstep group with which it begins each request.
    lockstep: Option<usize>,
    wait_each: bool,
    /// The host time of a launch, nanoseconds.
    call: u64,
    run: ClientRun,
}

/// A sched entity: queues with a common permission.
#[derive(Debug)]
struct Entity {
    queues: Range<usize>,
    client: usize,
    permission: Permission,
    /// The number of its suspensions and resumptions.
    epoch: u32,
}

#[derive(Debug)]
struct DeviceState {
    device: Device,
    /// The moment of the scheduled event of the device.
    scheduled: Option<u64>,
    /// True if that moment may have changed.
    changed: bool,
}

/// The times of the model, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Costs {
    interrupts: bool,
    waits: bool,
    window: u64,
    decision: u64,
    /// The host time of a report to a server. With few processors the server's thread runs first; otherwise
    /// it has read the report before the host thread returns from waking it.
    report: u64,
    launch: u64,
    save: u64,
    restore: u64,
    quiet: u64,
    heartbeat: u64,
    /// The factor of a launch's host time while other clients work.
    beside: f64,
}

impl Costs {
    fn new(model: &Model, scope: Scope) -> Self {
        let decision = nanos(model.decision_us);
        Self {
            interrupts: model.level == 3,
            waits: model.wait,
            window: nanos(model.window_us),
            decision,
            // Without a decision time a report takes no time either.
            report: if scope == Scope::Global && decision > 0 { decision + 1 } else { 0 },
            launch: nanos(model.launch_us),
            save: nanos(model.save_us),
            restore: nanos(model.restore_us),
            quiet: nanos(model.quiet_us),
            heartbeat: nanos(model.heartbeat_us),
            beside: model.beside,
        }
    }
}

#[derive(Debug)]
struct Simulation<'a> {
    costs: Costs,
    now: u64,
    events: Events,
    event_count: u64,
    clients: Vec<ClientState<'a>>,
    lanes: Vec<Lane>,
    /// The groups of clients that begin each request together.
    locksteps: Vec<Vec<usize>>,
    queues: Vec<Queue>,
    entities: Vec<Entity>,
    devices: Vec<DeviceState>,
    /// The number of kernels that have reached the heads of their queues.
    heads: u64,
    scheduler: Scheduler,
    /// True if a decision is under way.
    deciding: bool,
    /// The moment of the decision that the policy has asked for.
    wake: Option<u64>,
    decisions: u64,
    /// The moment of the last decision.
    decided_at: u64,
    /// True if only relevant changes are reported, as to a server.
    filtered: bool,
    /// The number of entities with queues that can run.
    rivals: usize,
    /// Buffers that are kept for reuse.
    ended: Vec<u32>,
    permissions: Vec<Permission>,
    log: Log,
}

impl Setting<'_> {
    pub fn run(&self) -> Run {
        self.simulate(Simulation::new(self)).0
    }

    /// Runs, and returns the changes for the account of the device's time as well, in which a program is an
    /// entity.
    pub fn run_with_changes(&self) -> (Run, Vec<Change>) {
        let mut simulation = Simulation::new(self);
        let instance = |entity: &Entity| self.instances[entity.client];
        let urgent = |entity: &Entity| self.case.client(instance(entity)).is_critical();
        simulation.log = Log::new(simulation.entities.iter().map(urgent).collect());
        simulation.devices.iter_mut().for_each(|state| state.device.keep_spans());
        self.simulate(simulation)
    }

    fn simulate(&self, mut simulation: Simulation<'_>) -> (Run, Vec<Change>) {
        let end = nanos(self.case.workload.duration_s * 1e6);
        simulation.play(end);
        simulation.finish(end)
    }
}

impl<'a> Simulation<'a> {
    fn new(setting: &Setting<'a>) -> Self {
        let &Setting { case, instances, policy, scope, seed } = setting;
        let model = case.model();
        let groups: Vec<_> = instances.iter().map(|instance| case.client(*instance)).collect();
        let (mut jobs, mut locksteps): (Vec<_>, Vec<Vec<usize>>) = (vec![], vec![]);
        let (mut clients, mut lanes, mut queues, mut entities) = (vec![], vec![], vec![], vec![]);
        let permission = Permission { run: true, limit: true, window: Window::OWN };
        for (index, (instance, client)) in instances.iter().zip(&groups).enumerate() {
            let (first_lane, first_queue) = (lanes.len(), queues.len());
            for (place, on) in client.queues.iter().enumerate() {
                if place == 0 || client.dispatch == Dispatch::Turns {
                    let queues = queues.len()..queues.len();
                    lanes.push(Lane { client: index, queues, ..Lane::default() });
                }
                if scope == Scope::Local || place == 0 {
                    entities.push(Entity {
                        queues: queues.len()..queues.len(),
                        client: index,
                        permission,
                        epoch: 0,
                    });
                }
                let (lane, entity) = (lanes.len() - 1, entities.len() - 1);
                let priority = on.priority.unwrap_or(client.priority);
                queues.push(Queue::new(lane, entity, on.device as usize, priority));
                lanes[lane].queues.end = queues.len();
                entities[entity].queues.end = queues.len();
            }
            debug_assert!(queues.len() > first_queue);
            let lockstep = client.process.job.filter(|_| client.lockstep).map(|job| {
                let place = jobs.iter().position(|known| *known == job).unwrap_or_else(|| {
                    jobs.push(job);
                    locksteps.push(Vec::new());
                    jobs.len() - 1
                });
                locksteps[place].push(index);
                place
            });
            clients.push(ClientState {
                source: client.arrivals.start(Random::new(seed, instance.number, Purpose::Arrivals)),
                recipe: &case.recipes[instance.group],
                random: Random::new(seed, instance.number, Purpose::Work),
                waiting: VecDeque::new(),
                lanes: first_lane..lanes.len(),
                lockstep,
                wait_each: client.wait_each,
                call: nanos(client.call_us),
                run: ClientRun::default(),
            });
        }
        let executes = |entity: &&Entity| {
            queues[entity.queues.clone()].iter().any(|queue| queue.priority != Priority::NO_EXECUTE)
        };
        let rivals = entities.iter().filter(executes).count();
        let device = |_| DeviceState { device: Device::new(model.share), scheduled: None, changed: false };
        Self {
            costs: Costs::new(model, scope),
            now: 0,
            events: Events::default(),
            event_count: 0,
            clients,
            lanes,
            locksteps,
            queues,
            entities,
            devices: (0..case.devices()).map(device).collect(),
            heads: 0,
            scheduler: Scheduler::new(policy, scope, model, &groups),
            deciding: false,
            wake: None,
            decisions: 0,
            decided_at: 0,
            filtered: scope == Scope::Global,
            rivals,
            ended: Vec::new(),
            permissions: Vec::new(),
            log: Log::default(),
        }
    }

    fn play(&mut self, end: u64) {
        self.start();
        while let Some((at, what)) = self.events.pop(end) {
            self.now = at;
            self.handle(at, what);
        }
    }

    /// Starts with all clients connected and idle, and schedules the first requests.
    fn start(&mut self) {
        self.decide();
        self.beat();
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if let Some(at) = client.source.next() {
                self.events.push(at, Event::Arrival(index as u32));
            }
            for _ in client.lanes.clone() {
                if let Some(think) = client.source.think() {
                    self.events.push(think, Event::Arrival(index as u32));
                }
            }
        }
    }

    fn handle(&mut self, at: u64, what: Event) {
        match what {
            Event::Device(device) => {
                let state = &mut self.devices[device as usize];
                if state.scheduled != Some(at) {
                    return;
                }
                state.scheduled = None;
                state.changed = true;
                let mut ended = std::mem::take(&mut self.ended);
                state.device.proceed(at, &mut ended);
                for queue in ended.drain(..) {
                    self.end(queue as usize);
                }
                self.ended = ended;
            }
            Event::Arrival(client) => self.arrive(client as usize),
            Event::Submit(lane) => self.submit(lane as usize),
            Event::Quiet(queue, emptied) => {
                let state = &self.queues[queue as usize];
                if !state.is_empty() || state.emptied != emptied {
                    return;
                }
                self.turn_idle(queue as usize);
            }
            Event::Patience(entity, epoch) => {
                if self.entities[entity as usize].epoch != epoch {
                    return;
                }
                self.evict(entity as usize);
            }
            Event::Decision => {
                self.deciding = false;
                self.decide();
            }
            Event::Heartbeat => {
                self.decide();
                self.beat();
            }
            Event::Wake => {
                if self.wake != Some(at) {
                    return;
                }
                self.decide();
            }
        }
        self.event_count += 1;
        self.schedule_devices();
    }

    fn beat(&mut self) {
        if self.filtered && self.costs.heartbeat > 0 {
            self.events.push(self.now + self.costs.heartbeat, Event::Heartbeat);
        }
    }

    fn schedule_devices(&mut self) {
        for (index, state) in self.devices.iter_mut().enumerate().filter(|(_, state)| state.changed) {
            state.changed = false;
            state.device.fill(self.now);
            let next = state.device.next();
            if next != state.scheduled {
                state.scheduled = next;
                if let Some(at) = next {
                    self.events.push(at, Event::Device(index as u32));
                }
            }
        }
    }

    fn finish(mut self, end: u64) -> (Run, Vec<Change>) {
        for (index, queue) in self.queues.iter().enumerate() {
            let (Some(head), Some((step, _))) = (queue.head, queue.launched.front()) else { continue };
            let device = &mut self.devices[queue.device].device;
            let left = device.unfinished(end, index as u32).unwrap_or(head.left).div_ceil(FINE);
            self.clients[self.lanes[queue.lane].client].run.work += step.duration - left;
        }
        for lane in &self.lanes {
            let client = &mut self.clients[lane.client];
            client.run.unfinished.extend(lane.request.iter().map(|request| end - request.arrived));
        }
        let unfinished = |mut client: ClientState<'_>| {
            client.run.unfinished.extend(client.waiting.iter().map(|request| end - request.arrived));
            client.run
        };
        let run = Run {
            time: end,
            clients: self.clients.into_iter().map(unfinished).collect(),
            devices: self.devices.iter_mut().map(|state| state.device.times(end)).collect(),
            decisions: self.decisions,
            events: self.event_count,
        };
        for span in self.devices.iter_mut().flat_map(|state| state.device.take_spans(end)) {
            self.log.span(span, |queue| self.queues[queue as usize].entity);
        }
        (run, self.log.finish())
    }
}

impl Queue {
    fn new(lane: usize, entity: usize, device: usize, priority: Priority) -> Self {
        Self {
            lane,
            entity,
            device,
            priority,
            pending: VecDeque::new(),
            launched: VecDeque::new(),
            launched_ns: 0,
            head: None,
            on_device: false,
            evicted: false,
            ready: false,
            idle_since: 0,
            emptied: 0,
            seen: (0, Seen::Idle(None)),
        }
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.launched.is_empty()
    }

    fn note_empty(&mut self) {
        self.emptied = self.emptied.wrapping_add(1);
    }
}

impl Lane {
    /// Returns the host's time before the next kernel, nanoseconds.
    fn next_gap(&self) -> u64 {
        let request = self.request.as_ref();
        request.and_then(|request| request.steps.get(self.next)).map_or(0, |step| step.gap)
    }
}
