//! One simulation: a policy, some clients of a workload, a seed, a time.
//!
//! A client has host threads, each of which works on one request after the other: it prepares, then launches kernel after
//! kernel with the gaps in between, without waiting for them unless the workload says so; when the last has ended the
//! request is done. A queue that may not run, or whose window is full, keeps what is launched into it until it may. All
//! that happens at one time on a host or a device is over before the scheduler decides at that time.

use super::arrivals::Source;
use super::case::{Case, Instance};
use super::device::{Device, DeviceTimes, Head};
use super::events::{Events, Happening};
use super::random::{Purpose, Random};
use super::request::{Recipe, Request, Step};
use super::scheduler::{Permission, Policy, Scheduler, Scope};
use super::span::nanos;
use super::workload::{Dispatch, Model};
use std::collections::VecDeque;
use std::ops::Range;

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
    /// Since when it has had nothing to do.
    empty_since: u64,
    /// Counts those times.
    emptied: u32,
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
}

#[derive(Debug)]
struct ClientState<'a> {
    source: Source<'a>,
    recipe: &'a Recipe,
    random: Random,
    waiting: VecDeque<Request>,
    lanes: Range<usize>,
    wait_each: bool,
    run: ClientRun,
}

/// Who is decided about: queues that have one permission.
#[derive(Debug)]
struct Unit {
    queues: Range<usize>,
    client: usize,
    permission: Permission,
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
    window: u64,
    decision: u64,
    launch: u64,
    save: u64,
    restore: u64,
    quiet: u64,
}

impl Costs {
    fn new(model: &Model) -> Self {
        Self {
            interrupts: model.level == 3,
            window: nanos(model.window_us),
            decision: nanos(model.decision_us),
            launch: nanos(model.launch_us),
            save: nanos(model.save_us),
            restore: nanos(model.restore_us),
            quiet: nanos(model.quiet_us),
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
        let (mut clients, mut lanes, mut queues, mut units) = (vec![], vec![], vec![], vec![]);
        let permission = Permission { run: true, limit: true };
        for (index, (instance, client)) in instances.iter().zip(&groups).enumerate() {
            let (first_lane, first_queue) = (lanes.len(), queues.len());
            for (place, on) in client.queues.iter().enumerate() {
                if place == 0 || client.dispatch == Dispatch::Turns {
                    let queues = queues.len()..queues.len();
                    lanes.push(Lane { client: index, queues, request: None, next: 0, outstanding: 0 });
                }
                if scope == Scope::Local || place == 0 {
                    units.push(Unit { queues: queues.len()..queues.len(), client: index, permission });
                }
                let (lane, unit) = (lanes.len() - 1, units.len() - 1);
                queues.push(Queue::new(lane, unit, on.device as usize));
                lanes[lane].queues.end = queues.len();
                units[unit].queues.end = queues.len();
            }
            debug_assert!(queues.len() > first_queue);
            clients.push(ClientState {
                source: client.arrivals.start(Random::new(seed, instance.number, Purpose::Arrivals)),
                recipe: &case.recipes[instance.group],
                random: Random::new(seed, instance.number, Purpose::Work),
                waiting: VecDeque::new(),
                lanes: first_lane..lanes.len(),
                wait_each: client.wait_each,
                run: ClientRun::default(),
            });
        }
        let device = |_| DeviceState { device: Device::new(model.share), foreseen: None, changed: false };
        Self {
            costs: Costs::new(model),
            now: 0,
            events: Events::default(),
            happened: 0,
            clients,
            lanes,
            queues,
            units,
            devices: (0..case.devices()).map(device).collect(),
            heads: 0,
            scheduler: Scheduler::new(policy, scope, model, &groups),
            deciding: false,
            wake: None,
            decisions: 0,
            ended: Vec::new(),
            permissions: Vec::new(),
        }
    }

    /// Everybody is connected and idle; the first requests are foreseen.
    fn start(&mut self) {
        self.decide();
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
            Happening::Decision => {
                self.deciding = false;
                self.decide();
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

    /// A request arrives.
    fn arrive(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let request = client.recipe.draw(self.now, &mut client.random);
        client.run.arrived += 1;
        client.waiting.push_back(request);
        if let Some(at) = client.source.next() {
            self.events.push(at, Happening::Arrival(index as u32));
        }
        let free = client.lanes.clone().find(|lane| self.lanes[*lane].request.is_none());
        if let Some(lane) = free {
            self.begin(lane);
        }
    }

    /// A host thread begins with the next request, if one waits.
    fn begin(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let Some(request) = self.clients[lane.client].waiting.pop_front() else { return };
        let before = request.prepare + request.steps[0].gap;
        let announced = request.announced.map(|after| self.now + after);
        (lane.request, lane.next) = (Some(request), 0);
        match before {
            0 => self.submit(index),
            _ => self.events.push(self.now + before, Happening::Submit(index as u32)),
        }
        if let Some(at) = announced {
            for queue in self.lanes[index].queues.clone() {
                self.scheduler.announce(queue, at);
            }
            self.ask();
        }
    }

    /// A host thread launches the next kernels, up to where the host has something to do or waits.
    fn submit(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let Some(request) = &lane.request else { return };
        let wait_each = self.clients[lane.client].wait_each;
        loop {
            let step = request.steps[lane.next];
            lane.next += 1;
            lane.outstanding += lane.queues.len();
            for queue in &mut self.queues[lane.queues.clone()] {
                queue.pending.push_back(step);
            }
            match request.steps.get(lane.next) {
                None => break,
                Some(_) if wait_each => break,
                Some(Step { gap: 0, .. }) => {}
                Some(next) => {
                    self.events.push(self.now + next.gap, Happening::Submit(index as u32));
                    break;
                }
            }
        }
        for queue in lane.queues.clone() {
            self.turn_ready(queue);
            self.launch(queue);
        }
    }

    /// Launches what may be launched of a queue.
    fn launch(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let permission = self.units[queue.unit].permission;
        if !permission.run {
            return;
        }
        while let Some(step) = queue.pending.front() {
            let room = queue.launched.is_empty() || queue.launched_ns + step.duration <= self.costs.window;
            if permission.limit && !room {
                break;
            }
            queue.launched_ns += step.duration;
            queue.launched.push_back((*step, self.now + self.costs.launch));
            queue.pending.pop_front();
        }
        self.show(index);
    }

    /// Shows the device the first kernel of a queue, if it has not been shown.
    fn show(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if queue.on_device {
            return;
        }
        let head = match (queue.head, queue.launched.front()) {
            (Some(head), _) => head,
            (None, Some((step, from))) => {
                self.heads += 1;
                Head::new(index as u32, self.now.max(*from), self.heads, step.duration, step.width)
            }
            (None, None) => return,
        };
        (queue.head, queue.on_device) = (Some(head), true);
        let state = &mut self.devices[queue.device];
        state.device.enter(head);
        state.changed = true;
    }

    /// The first kernel of a queue has ended.
    fn end(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        (queue.head, queue.on_device) = (None, false);
        let Some((step, _)) = queue.launched.pop_front() else { return };
        queue.launched_ns -= step.duration;
        let index_of_lane = queue.lane;
        self.launch(index);
        // What was launched before a suspension at level 1 goes on.
        self.show(index);

        let lane = &mut self.lanes[index_of_lane];
        lane.outstanding -= 1;
        let client = &mut self.clients[lane.client];
        client.run.work += step.duration;
        let steps = lane.request.as_ref().map_or(0, |request| request.steps.len());
        if lane.outstanding == 0 && lane.next == steps {
            self.complete(index_of_lane, index);
            return;
        }
        let goes_on = client.wait_each && lane.outstanding == 0;
        if self.queues[index].is_empty() {
            self.note_empty(index, goes_on);
        }
        if goes_on {
            let gap = self.lanes[index_of_lane].next_gap();
            self.events.push(self.now + gap, Happening::Submit(index_of_lane as u32));
        }
    }

    /// A request is done, the last kernel on this queue; its host thread goes on to the next.
    fn complete(&mut self, index: usize, last: usize) {
        let lane = &mut self.lanes[index];
        let Some(request) = lane.request.take() else { return };
        let client = &mut self.clients[lane.client];
        client.run.latencies.push(self.now - request.arrived);
        let think = client.source.think();
        let owner = lane.client as u32;
        self.queues[last].note_empty(self.now);
        for queue in lane.queues.clone() {
            self.turn_idle(queue);
        }
        if let Some(think) = think {
            self.events.push(self.now + think, Happening::Arrival(owner));
        }
        self.begin(index);
    }

    /// A queue has nothing more to do, though its request goes on. Whoever waits for kernels sees it at once.
    fn note_empty(&mut self, index: usize, seen: bool) {
        let queue = &mut self.queues[index];
        queue.note_empty(self.now);
        if seen || self.costs.quiet == 0 {
            self.turn_idle(index);
        } else {
            let at = self.now + self.costs.quiet;
            self.events.push(at, Happening::Quiet(index as u32, queue.emptied));
        }
    }

    fn turn_ready(&mut self, index: usize) {
        if !std::mem::replace(&mut self.queues[index].ready, true) {
            self.scheduler.ready(index, self.now);
            self.ask();
        }
    }

    fn turn_idle(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if std::mem::replace(&mut queue.ready, false) {
            self.scheduler.idle(index, queue.empty_since);
            self.ask();
        }
    }

    /// Lets the scheduler decide, if it does not already.
    fn ask(&mut self) {
        if !std::mem::replace(&mut self.deciding, true) {
            self.events.push(self.now + self.costs.decision, Happening::Decision);
        }
    }

    fn decide(&mut self) {
        self.decisions += 1;
        let permissions = &mut self.permissions;
        permissions.clear();
        let wake = self.scheduler.decide(self.now, |_, permission| permissions.push(permission));
        // One that lies in the past would stop the time.
        let wake = wake.map(|at| at.max(self.now + 1));
        if let Some(at) = wake.filter(|_| wake != self.wake) {
            self.events.push(at, Happening::Wake);
        }
        self.wake = wake;
        // Whoever gives the device up does so before others take it.
        let permissions = std::mem::take(&mut self.permissions);
        for run in [false, true] {
            for (unit, permission) in permissions.iter().enumerate() {
                if permission.run == run && self.units[unit].permission != *permission {
                    self.permit(unit, *permission);
                }
            }
        }
        self.permissions = permissions;
    }

    fn permit(&mut self, index: usize, permission: Permission) {
        let unit = &mut self.units[index];
        let before = std::mem::replace(&mut unit.permission, permission);
        let queues = unit.queues.clone();
        if before.run && !permission.run {
            if self.queues[queues.clone()].iter().any(|queue| queue.ready) {
                self.clients[unit.client].run.suspensions += 1;
            }
            if self.costs.interrupts {
                for queue in queues {
                    self.take_off(queue);
                }
            }
        } else if permission.run {
            for queue in queues {
                self.show(queue);
                self.launch(queue);
            }
        }
    }

    /// Takes what a queue has launched off the device.
    fn take_off(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let Some(head) = queue.head.filter(|_| queue.on_device) else { return };
        let state = &mut self.devices[queue.device];
        queue.head = Some(state.device.leave(self.now, &head, self.costs.save, self.costs.restore));
        queue.on_device = false;
        state.changed = true;
    }

    fn finish(mut self, end: u64) -> Run {
        for (index, queue) in self.queues.iter().enumerate() {
            let (Some(head), Some((step, _))) = (queue.head, queue.launched.front()) else { continue };
            let device = &mut self.devices[queue.device].device;
            let left = device.unfinished(end, index as u32).unwrap_or(head.left).div_ceil(1024);
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
    fn new(lane: usize, unit: usize, device: usize) -> Self {
        Self {
            lane,
            unit,
            device,
            pending: VecDeque::new(),
            launched: VecDeque::new(),
            launched_ns: 0,
            head: None,
            on_device: false,
            ready: false,
            empty_since: 0,
            emptied: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.launched.is_empty()
    }

    fn note_empty(&mut self, now: u64) {
        self.empty_since = now;
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
