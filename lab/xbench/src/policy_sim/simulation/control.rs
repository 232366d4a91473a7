//! Reports to the scheduler, and the effects of its decisions.

use super::Simulation;
use crate::account::What;
use crate::policy_sim::device::FINE;
use crate::policy_sim::events::Event;
use crate::policy_sim::scheduler::Permission;

impl Simulation<'_> {
    /// Marks a queue as ready, and returns the host time of the report.
    pub(super) fn turn_ready(&mut self, index: usize) -> u64 {
        if self.queues[index].ready {
            return 0;
        }
        self.keep_seen(index);
        let reported = self.hears_ready(self.queues[index].entity);
        self.queues[index].ready = true;
        self.log.lingers(self.now, self.queues[index].entity, None);
        self.scheduler.ready(index, self.now);
        if reported { self.report() } else { 0 }
    }

    /// Marks a queue as idle, and returns the host time of the report.
    pub(super) fn turn_idle(&mut self, index: usize) -> u64 {
        if !self.queues[index].ready {
            return 0;
        }
        self.keep_seen(index);
        let reported = self.needs_idle_events(self.queues[index].entity);
        let queue = &mut self.queues[index];
        queue.ready = false;
        queue.idle_since = self.now;
        self.scheduler.idle(index, self.now);
        if reported { self.report() } else { 0 }
    }

    /// Requests a decision, and returns the host time of the report.
    fn report(&mut self) -> u64 {
        self.ask();
        self.costs.report
    }

    /// Schedules a decision, unless one is under way.
    pub(super) fn ask(&mut self) {
        if !std::mem::replace(&mut self.deciding, true) {
            self.events.push(self.now + self.costs.decision, Event::Decision);
        }
    }

    pub(super) fn decide(&mut self) {
        self.decisions += 1;
        self.decided_at = self.now;
        let permissions = &mut self.permissions;
        permissions.clear();
        let wake = self.scheduler.decide(self.now, |_, permission| permissions.push(permission));
        // A wake-up in the past would stop the simulated time.
        let wake = wake.map(|at| at.max(self.now + 1));
        if let Some(at) = wake.filter(|_| wake != self.wake) {
            self.events.push(at, Event::Wake);
        }
        self.wake = wake;
        self.log_lingers();
        // Entities that give the device up do so before others take it.
        let permissions = std::mem::take(&mut self.permissions);
        for run in [false, true] {
            for (entity, permission) in permissions.iter().enumerate() {
                if permission.run == run && self.entities[entity].permission != *permission {
                    self.permit(entity, *permission);
                }
            }
        }
        self.permissions = permissions;
        self.note_unheard();
    }

    /// Logs the lingers, which the decision has chosen.
    fn log_lingers(&mut self) {
        if !self.log.is_on() {
            return;
        }
        for entity in 0..self.entities.len() {
            if let Some((since, until)) = self.scheduler.lingers(entity) {
                self.log.lingers(since, entity, Some(until));
            }
        }
    }

    fn permit(&mut self, index: usize, permission: Permission) {
        let entity = &mut self.entities[index];
        let before = std::mem::replace(&mut entity.permission, permission);
        let queues = entity.queues.clone();
        if before.run != permission.run {
            entity.epoch = entity.epoch.wrapping_add(1);
            self.log.of(self.now, index, |index| What::Permission(index, permission.run));
        }
        if before.run && !permission.run {
            if self.queues[queues.clone()].iter().any(|queue| queue.ready) {
                self.clients[entity.client].run.suspensions += 1;
            }
            if self.costs.interrupts {
                self.interrupt(index);
            }
        } else if permission.run {
            for queue in queues {
                self.show(queue);
                self.launch(queue);
            }
        }
    }

    /// Evicts the launched work of a suspended entity, or waits for it where that costs less.
    fn interrupt(&mut self, index: usize) {
        let both = self.costs.save + self.costs.restore;
        let remaining = if self.costs.waits { self.remaining(index) } else { u64::MAX };
        if remaining <= both {
            // If the work has not ended by then, it is evicted after all.
            let until = self.now + remaining + both;
            self.events.push(until, Event::Patience(index as u32, self.entities[index].epoch));
        } else {
            self.evict(index);
        }
    }

    /// Returns the remaining time of an entity's launched work without interference: the longest of its
    /// devices.
    fn remaining(&mut self, index: usize) -> u64 {
        let mut devices: Vec<(usize, u64)> = Vec::new();
        for number in self.entities[index].queues.clone() {
            let queue = &self.queues[number];
            let Some(head) = queue.head else { continue };
            let device = &mut self.devices[queue.device].device;
            let behind: u64 = queue.launched.iter().skip(1).map(|(step, _)| step.duration).sum();
            let left =
                device.unfinished(self.now, number as u32).unwrap_or(head.left).div_ceil(FINE) + behind;
            match devices.iter_mut().find(|(device, _)| *device == queue.device) {
                Some((_, sum)) => *sum += left,
                None => devices.push((queue.device, left)),
            }
        }
        devices.into_iter().map(|(_, left)| left).max().unwrap_or(0)
    }

    pub(super) fn evict(&mut self, index: usize) {
        for queue in &mut self.queues[self.entities[index].queues.clone()] {
            let Some(head) = queue.head.filter(|_| queue.on_device) else { continue };
            let state = &mut self.devices[queue.device];
            queue.head = Some(state.device.leave(self.now, &head, self.costs.save, self.costs.restore));
            (queue.on_device, queue.evicted) = (false, true);
            self.log.of(self.now, queue.entity, |index| What::Evicted(index, true));
            state.changed = true;
        }
    }
}
