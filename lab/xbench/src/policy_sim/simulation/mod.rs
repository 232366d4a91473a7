//! One simulation: a policy, some clients of a workload, a seed, a time. `hosts` is what programs do, `control` what the
//! scheduler does, `wants` what it is told of.
//!
//! A client has host threads, each of which works on one request after the other: it prepares, then launches kernel after
//! kernel with the gaps in between, without waiting for them unless the workload says so; when the last has ended the
//! request is done. A queue that may not run, or whose window is full, keeps what is launched into it until it may. All
//! that happens at one time on a host or a device is over before the scheduler decides at that time.

mod control;
mod hosts;
mod wants;

use crate::policy_sim::arrivals::Source;
use crate::policy_sim::case::{Case, Instance};
use crate::policy_sim::device::{Device, DeviceTimes, FINE, Head};
use crate::policy_sim::events::{Events, Happening};
use crate::policy_sim::request::{Recipe, Request, Step};
use crate::policy_sim::scheduler::{Permission, Policy, Scheduler, Scope};
use crate::policy_sim::span::nanos;
use crate::policy_sim::workload::{Dispatch, Model};
use crate::random::{Purpose, Random};
use protocol::bounds::Priority;
use protocol::operation::Window;
use std::collections::VecDeque;
use std::ops::Range;
use wants::Seen;

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The workload.
    pub case: &'a Case,
    /// Which of its clients.
    pub instances: &'a [Instance],
    /// Who decides.
    pub policy: &'a Policy,
    /// About whom.
    pub scope: Scope,
    /// Which random numbers.
    pub seed: u64,
}

/// What happened. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How long was simulated.
    pub time: u64,
    /// Of each instance what it did, in the order of the setting.
    pub clients: Vec<ClientRun>,
    /// What each device did.
    pub devices: Vec<DeviceTimes>,
    /// How often the policy was asked.
    pub decisions: u64,
    /// How many things happened.
    pub events: u64,
}

/// What happened to a client. Times are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientRun {
    /// Requests that arrived.
    pub arrived: u64,
    /// From the arrival to the end, of each request that was done, in the order of their ends.
    pub latencies: Vec<u64>,
    /// Of each request that was not done at the end, how long ago it arrived.
    pub unfinished: Vec<u64>,
    /// How long the kernels would have taken alone that have ended, and those parts of others that were done.
    pub work: u64,
    /// How often it was suspended while it had work.
    pub suspensions: u64,
}

/// A queue. Its number is its index.
#[derive(Debug)]
struct Queue {
    lane: usize,
    unit: usize,
    device: usize,
    priority: Priority,
    /// Submitted and not launched.
    pending: VecDeque<Step>,
    /// Launched and not ended, with the time from which each can begin.
    launched: VecDeque<(Step, u64)>,
    /// How long those take alone, nanoseconds.
    launched_ns: u64,
    /// The first of them, as the device knows it.
    head: Option<Head>,
    /// Whether the device has the head; what a suspension has taken off it has not.
    on_device: bool,
    /// Whether the scheduler counts it as ready.
    ready: bool,
    /// Since when it has been seen to be idle.
    idle_since: u64,
    /// Counts how often it has had nothing to do.
    emptied: u32,
    /// What the decision of this number saw, if the queue has changed since.
    seen: (u64, Seen),
}

/// A host thread with the queues that it launches into.
#[derive(Debug)]
struct Lane {
    client: usize,
    queues: Range<usize>,
    request: Option<Request>,
    /// The next kernel to launch.
    next: usize,
    /// Launched, on all queues, and not ended.
    outstanding: usize,
    /// Until then the thread tells the scheduler something.
    busy_until: u64,
}

#[derive(Debug)]
struct ClientState<'a> {
    source: Source<'a>,
    recipe: &'a Recipe,
    random: Random,
    waiting: VecDeque<Request>,
    lanes: Range<usize>,
    /// With whom it begins each request, if with anybody.
    lockstep: Option<usize>,
    wait_each: bool,
    /// What a launch takes its host, nanoseconds.
    call: u64,
    run: ClientRun,
}

/// Who is decided about: queues that have one permission.
#[derive(Debug)]
struct Unit {
    queues: Range<usize>,
    client: usize,
    permission: Permission,
    /// Counts its suspensions and resumptions.
    turns: u32,
}

#[derive(Debug)]
struct DeviceState {
    device: Device,
    /// When something is foreseen to happen there.
    foreseen: Option<u64>,
    /// Whether that may have changed.
    changed: bool,
}

/// The times of the model, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Costs {
    interrupts: bool,
    waits: bool,
    window: u64,
    decision: u64,
    /// What it takes a host thread to tell a server something. The server's thread comes first where processors are few, and
    /// elsewhere has looked before the other one is back from waking it.
    report: u64,
    launch: u64,
    save: u64,
    restore: u64,
    quiet: u64,
    heartbeat: u64,
    /// How many times as long launches take hosts beside others.
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
            // Whatever takes no time stays so.
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
    happened: u64,
    clients: Vec<ClientState<'a>>,
    lanes: Vec<Lane>,
    /// Clients that begin each request together.
    locksteps: Vec<Vec<usize>>,
    queues: Vec<Queue>,
    units: Vec<Unit>,
    devices: Vec<DeviceState>,
    /// Kernels that have reached the heads of their queues so far.
    heads: u64,
    scheduler: Scheduler,
    /// Whether a decision is under way.
    deciding: bool,
    /// When the policy wants to be asked.
    wake: Option<u64>,
    decisions: u64,
    /// When the last one was.
    decided_at: u64,
    /// Whether the scheduler is told only of what it wants to know, as a server is.
    told: bool,
    /// How many units have queues that can run.
    rivals: usize,
    /// Kept for their memory.
    ended: Vec<u32>,
    permissions: Vec<Permission>,
}

impl Setting<'_> {
    /// Simulates.
    pub fn run(&self) -> Run {
        let end = nanos(self.case.workload.duration_s * 1e6);
        let mut simulation = Simulation::new(self);
        simulation.start();
        while let Some((at, what)) = simulation.events.pop(end) {
            simulation.now = at;
            simulation.happen(at, what);
        }
        simulation.finish(end)
    }
}

impl<'a> Simulation<'a> {
    fn new(setting: &Setting<'a>) -> Self {
        let &Setting { case, instances, policy, scope, seed } = setting;
        let model = case.model();
        let groups: Vec<_> = instances.iter().map(|instance| case.client(*instance)).collect();
        let (mut jobs, mut locksteps): (Vec<_>, Vec<Vec<usize>>) = (vec![], vec![]);
        let (mut clients, mut lanes, mut queues, mut units) = (vec![], vec![], vec![], vec![]);
        let permission = Permission { run: true, limit: true, window: Window::OWN };
        for (index, (instance, client)) in instances.iter().zip(&groups).enumerate() {
            let (first_lane, first_queue) = (lanes.len(), queues.len());
            for (place, on) in client.queues.iter().enumerate() {
                if place == 0 || client.dispatch == Dispatch::Turns {
                    let queues = queues.len()..queues.len();
                    lanes.push(Lane {
                        client: index,
                        queues,
                        request: None,
                        next: 0,
                        outstanding: 0,
                        busy_until: 0,
                    });
                }
                if scope == Scope::Local || place == 0 {
                    units.push(Unit {
                        queues: queues.len()..queues.len(),
                        client: index,
                        permission,
                        turns: 0,
                    });
                }
                let (lane, unit) = (lanes.len() - 1, units.len() - 1);
                let priority = on.priority.unwrap_or(client.priority);
                queues.push(Queue::new(lane, unit, on.device as usize, priority));
                lanes[lane].queues.end = queues.len();
                units[unit].queues.end = queues.len();
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
        let executes = |unit: &&Unit| {
            queues[unit.queues.clone()].iter().any(|queue| queue.priority != Priority::NO_EXECUTE)
        };
        let rivals = units.iter().filter(executes).count();
        let device = |_| DeviceState { device: Device::new(model.share), foreseen: None, changed: false };
        Self {
            costs: Costs::new(model, scope),
            now: 0,
            events: Events::default(),
            happened: 0,
            clients,
            lanes,
            locksteps,
            queues,
            units,
            devices: (0..case.devices()).map(device).collect(),
            heads: 0,
            scheduler: Scheduler::new(policy, scope, model, &groups),
            deciding: false,
            wake: None,
            decisions: 0,
            decided_at: 0,
            told: scope == Scope::Global,
            rivals,
            ended: Vec::new(),
            permissions: Vec::new(),
        }
    }

    /// Everybody is connected and idle; the first requests are foreseen.
    fn start(&mut self) {
        self.decide();
        self.beat();
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if let Some(at) = client.source.next() {
                self.events.push(at, Happening::Arrival(index as u32));
            }
            for _ in client.lanes.clone() {
                if let Some(think) = client.source.think() {
                    self.events.push(think, Happening::Arrival(index as u32));
                }
            }
        }
    }

    fn happen(&mut self, at: u64, what: Happening) {
        match what {
            Happening::Device(device) => {
                let state = &mut self.devices[device as usize];
                if state.foreseen != Some(at) {
                    return;
                }
                state.foreseen = None;
                state.changed = true;
                let mut ended = std::mem::take(&mut self.ended);
                state.device.proceed(at, &mut ended);
                for queue in ended.drain(..) {
                    self.end(queue as usize);
                }
                self.ended = ended;
            }
            Happening::Arrival(client) => self.arrive(client as usize),
            Happening::Submit(lane) => self.submit(lane as usize),
            Happening::Quiet(queue, emptied) => {
                let state = &self.queues[queue as usize];
                if !state.is_empty() || state.emptied != emptied {
                    return;
                }
                self.turn_idle(queue as usize);
            }
            Happening::Patience(unit, turns) => {
                if self.units[unit as usize].turns != turns {
                    return;
                }
                self.take_off(unit as usize);
            }
            Happening::Decision => {
                self.deciding = false;
                self.decide();
            }
            Happening::Heartbeat => {
                self.decide();
                self.beat();
            }
            Happening::Wake => {
                if self.wake != Some(at) {
                    return;
                }
                self.decide();
            }
        }
        self.happened += 1;
        self.foresee();
    }

    /// Foresees the next heartbeat of a server.
    fn beat(&mut self) {
        if self.told && self.costs.heartbeat > 0 {
            self.events.push(self.now + self.costs.heartbeat, Happening::Heartbeat);
        }
    }

    /// Brings what is foreseen of the devices up to date.
    fn foresee(&mut self) {
        for (index, state) in self.devices.iter_mut().enumerate().filter(|(_, state)| state.changed) {
            state.changed = false;
            state.device.fill(self.now);
            let next = state.device.next();
            if next != state.foreseen {
                state.foreseen = next;
                if let Some(at) = next {
                    self.events.push(at, Happening::Device(index as u32));
                }
            }
        }
    }

    fn finish(mut self, end: u64) -> Run {
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
        Run {
            time: end,
            clients: self.clients.into_iter().map(unfinished).collect(),
            devices: self.devices.iter_mut().map(|state| state.device.times(end)).collect(),
            decisions: self.decisions,
            events: self.happened,
        }
    }
}

impl Queue {
    fn new(lane: usize, unit: usize, device: usize, priority: Priority) -> Self {
        Self {
            lane,
            unit,
            device,
            priority,
            pending: VecDeque::new(),
            launched: VecDeque::new(),
            launched_ns: 0,
            head: None,
            on_device: false,
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
    /// What the host needs before the next kernel, nanoseconds.
    fn next_gap(&self) -> u64 {
        let request = self.request.as_ref();
        request.and_then(|request| request.steps.get(self.next)).map_or(0, |step| step.gap)
    }
}
