//! What the scheduler hears, and what its decisions do.

use super::Simulation;
use crate::policy_sim::device::FINE;
use crate::policy_sim::events::Happening;
use crate::policy_sim::scheduler::Permission;

impl Simulation<'_> {
    /// Returns for how long that takes who turns it ready.
    pub(super) fn turn_ready(&mut self, index: usize) -> u64 {
        if self.queues[index].ready {
            return 0;
        }
        self.keep_seen(index);
        let told = self.hears_ready(self.queues[index].unit);
        self.queues[index].ready = true;
        self.scheduler.ready(index, self.now);
        if told { self.report() } else { 0 }
    }

    /// Returns for how long that takes who sees that it is idle.
    pub(super) fn turn_idle(&mut self, index: usize) -> u64 {
        if !self.queues[index].ready {
            return 0;
        }
        self.keep_seen(index);
        let told = self.hears_idle(self.queues[index].unit);
        let queue = &mut self.queues[index];
        queue.ready = false;
        queue.idle_since = self.now;
        self.scheduler.idle(index, self.now);
        if told { self.report() } else { 0 }
    }

    /// Tells the scheduler that there is something to decide.
    fn report(&mut self) -> u64 {
        self.ask();
        self.costs.report
    }

    /// Lets the scheduler decide, if it does not already.
    pub(super) fn ask(&mut self) {
        if !std::mem::replace(&mut self.deciding, true) {
            self.events.push(self.now + self.costs.decision, Happening::Decision);
        }
    }

    pub(super) fn decide(&mut self) {
        self.decisions += 1;
        self.decided_at = self.now;
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
        if before.run != permission.run {
            unit.turns = unit.turns.wrapping_add(1);
        }
        if before.run && !permission.run {
            if self.queues[queues.clone()].iter().any(|queue| queue.ready) {
                self.clients[unit.client].run.suspensions += 1;
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

    /// Takes what a suspended unit has launched off its devices, or waits for it where that costs less.
    fn interrupt(&mut self, index: usize) {
        let both = self.costs.save + self.costs.restore;
        let foreseen = if self.costs.waits { self.foreseen(index) } else { u64::MAX };
        if foreseen <= both {
            // If it has not ended by then, waiting was the wrong choice.
            let until = self.now + foreseen + both;
            self.events.push(until, Happening::Patience(index as u32, self.units[index].turns));
        } else {
            self.take_off(index);
        }
    }

    /// For how long what a unit has launched runs on if nobody disturbs it: the longest of its devices.
    fn foreseen(&mut self, index: usize) -> u64 {
        let mut devices: Vec<(usize, u64)> = Vec::new();
        for number in self.units[index].queues.clone() {
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

    /// Takes what a unit has launched off its devices.
    pub(super) fn take_off(&mut self, index: usize) {
        for queue in &mut self.queues[self.units[index].queues.clone()] {
            let Some(head) = queue.head.filter(|_| queue.on_device) else { continue };
            let state = &mut self.devices[queue.device];
            queue.head = Some(state.device.leave(self.now, &head, self.costs.save, self.costs.restore));
            queue.on_device = false;
            state.changed = true;
        }
    }
}
