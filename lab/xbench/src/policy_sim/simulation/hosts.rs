//! Programs: requests arrive, are prepared, launched and completed.

use super::{Entity, Lane, Simulation};
use crate::account::What;
use crate::policy_sim::device::Head;
use crate::policy_sim::events::Event;

impl Simulation<'_> {
    pub(super) fn arrive(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let request = client.recipe.draw(self.now, &mut client.random);
        client.run.arrived += 1;
        client.waiting.push_back(request);
        if let Some(at) = client.source.next() {
            self.events.push(at, Event::Arrival(index as u32));
        }
        let free = client.lanes.clone().find(|lane| self.lanes[*lane].request.is_none());
        if let Some(lane) = free {
            self.begin(lane);
        }
    }

    /// Begins the next waiting request on a host thread, if all clients of its lockstep group can begin.
    fn begin(&mut self, index: usize) {
        let Some(place) = self.clients[self.lanes[index].client].lockstep else {
            return self.start_on(index);
        };
        let group = std::mem::take(&mut self.locksteps[place]);
        let can = |member: &usize| {
            let client = &self.clients[*member];
            !client.waiting.is_empty() && self.lanes[client.lanes.start].request.is_none()
        };
        if group.iter().all(can) {
            group.iter().for_each(|member| self.start_on(self.clients[*member].lanes.start));
        }
        self.locksteps[place] = group;
    }

    /// Begins the next waiting request on a host thread.
    fn start_on(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let Some(request) = self.clients[lane.client].waiting.pop_front() else { return };
        let busy = lane.busy_until.saturating_sub(self.now);
        let before = busy + request.prepare + request.steps[0].gap;
        let announced = request.announced.map(|after| self.now + busy + after);
        (lane.request, lane.next) = (Some(request), 0);
        for queue in lane.queues.clone() {
            self.log.begins(self.now, self.queues[queue].entity, false);
        }
        match before {
            0 => self.submit(index),
            _ => self.events.push(self.now + before, Event::Submit(index as u32)),
        }
        if let Some(at) = announced {
            for queue in self.lanes[index].queues.clone() {
                self.scheduler.announce(queue, at);
            }
            self.ask();
        }
    }

    /// Submits the next kernels of a host thread, up to a gap or a wait.
    pub(super) fn submit(&mut self, index: usize) {
        let call = self.call(self.lanes[index].client);
        let lane = &mut self.lanes[index];
        let Some(request) = &lane.request else { return };
        let wait_each = self.clients[lane.client].wait_each;
        let (first, before) = (lane.next == 0, lane.outstanding);
        let mut gap = None;
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
                Some(next) => {
                    // The recorded gap includes the call before it.
                    gap = Some(next.gap.max(call)).filter(|gap| *gap > 0);
                    if gap.is_some() {
                        break;
                    }
                }
            }
        }
        let lane = &self.lanes[index];
        let count = (lane.outstanding - before) / lane.queues.len().max(1);
        for queue in lane.queues.clone() {
            let entity = self.queues[queue].entity;
            if first {
                self.log.begins(self.now, entity, true);
            }
            self.log.of(self.now, entity, |index| What::Launched(index, count as u32));
            let report = self.turn_ready(queue);
            self.keep_busy(index, report);
            self.launch(queue);
        }
        if let Some(gap) = gap {
            let at = (self.now + gap).max(self.lanes[index].busy_until);
            self.events.push(at, Event::Submit(index as u32));
        }
    }

    /// Returns the current host time of a client's launch, nanoseconds.
    fn call(&self, client: usize) -> u64 {
        let call = self.clients[client].call;
        if call == 0 || self.costs.beside == 1.0 {
            return call;
        }
        let works = |entity: &Entity| {
            entity.permission.run && self.queues[entity.queues.clone()].iter().any(|queue| queue.ready)
        };
        match self.entities.iter().any(|entity| entity.client != client && works(entity)) {
            true => (call as f64 * self.costs.beside) as u64,
            false => call,
        }
    }

    /// Keeps a host thread busy with a report to the scheduler.
    fn keep_busy(&mut self, index: usize, report: u64) {
        let lane = &mut self.lanes[index];
        lane.busy_until = lane.busy_until.max(self.now + report);
    }

    pub(super) fn launch(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let permission = self.entities[queue.entity].permission;
        if !permission.run {
            return;
        }
        let chosen = permission.window.time().map(|time| time.as_nanos() as u64);
        let window = chosen.unwrap_or(self.costs.window);
        let from = self.now.max(self.lanes[queue.lane].busy_until) + self.costs.launch;
        while let Some(step) = queue.pending.front() {
            let room = queue.launched.is_empty() || queue.launched_ns + step.duration <= window;
            if permission.limit && !room {
                break;
            }
            queue.launched_ns += step.duration;
            queue.launched.push_back((*step, from));
            self.log.of(from, queue.entity, |index| What::Arrived(index, 1));
            queue.pending.pop_front();
        }
        self.show(index);
    }

    /// Passes the first kernel of a queue to its device, unless the device has it.
    pub(super) fn show(&mut self, index: usize) {
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
        if std::mem::take(&mut queue.evicted) {
            self.log.of(self.now, queue.entity, |index| What::Evicted(index, false));
        }
        let state = &mut self.devices[queue.device];
        state.device.enter(head);
        state.changed = true;
    }

    pub(super) fn end(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        (queue.head, queue.on_device) = (None, false);
        let Some((step, _)) = queue.launched.pop_front() else { return };
        queue.launched_ns -= step.duration;
        self.log.of(self.now, queue.entity, |index| What::Ended(index, 1));
        let index_of_lane = queue.lane;
        self.launch(index);
        // Work that was launched before a suspension at level 1 continues.
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
            let Lane { client, busy_until, .. } = self.lanes[index_of_lane];
            let gap = self.lanes[index_of_lane].next_gap().max(self.call(client));
            self.events.push(self.now.max(busy_until) + gap, Event::Submit(index_of_lane as u32));
        }
    }

    /// Completes a request, whose last kernel was on this queue, and begins the next one.
    fn complete(&mut self, index: usize, last: usize) {
        let lane = &mut self.lanes[index];
        let Some(request) = lane.request.take() else { return };
        let client = &mut self.clients[lane.client];
        client.run.latencies.push(self.now - request.arrived);
        let think = client.source.think();
        let owner = lane.client as u32;
        self.queues[last].note_empty();
        for queue in lane.queues.clone() {
            self.log.of(self.now, self.queues[queue].entity, |index| What::Request(index, false));
            let report = self.turn_idle(queue);
            self.keep_busy(index, report);
        }
        if let Some(think) = think {
            let free = self.lanes[index].busy_until.max(self.now);
            self.events.push(free + think, Event::Arrival(owner));
        }
        self.begin(index);
    }

    /// Handles a queue that runs out of work in the middle of its request. A host that waits for kernels sees
    /// it at once.
    fn note_empty(&mut self, index: usize, seen: bool) {
        let queue = &mut self.queues[index];
        queue.note_empty();
        if seen || self.costs.quiet == 0 {
            let (lane, report) = (queue.lane, self.turn_idle(index));
            // Otherwise no host thread reports it.
            self.keep_busy(lane, if seen { report } else { 0 });
        } else {
            let at = self.now + self.costs.quiet;
            self.events.push(at, Event::Quiet(index as u32, queue.emptied));
        }
    }
}
