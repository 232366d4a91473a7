//! The changes that are reported to the server: those that could change its decision, compared with its view
//! at the last one. It sees other changes at its next decision. This is an independent implementation of the
//! server's rules.

use super::{Queue, Simulation};
use crate::policy_sim::scheduler::Course;
use protocol::bounds::Priority;

/// The state of a queue at a decision.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seen {
    Ready,
    /// Idle since a moment; `None` if it was never used.
    Idle(Option<u64>),
}

impl Queue {
    fn state(&self) -> Seen {
        match self.ready {
            true => Seen::Ready,
            false => Seen::Idle((self.emptied > 0).then_some(self.idle_since)),
        }
    }

    /// Keeps the state that the last decision, the one of this number, saw.
    fn keep(&mut self, decision: u64) {
        if self.seen.0 != decision {
            self.seen = (decision, self.state());
        }
    }
}

impl Simulation<'_> {
    /// Keeps the state of a queue that is about to change.
    pub(super) fn keep_seen(&mut self, index: usize) {
        self.queues[index].keep(self.decisions);
    }

    /// Returns true if the last decision counted the queue as ready. `linger` is the time for which its
    /// entity still counts as ready.
    fn counted(&self, queue: &Queue, linger: u64) -> bool {
        let seen = if queue.seen.0 == self.decisions { queue.seen.1 } else { queue.state() };
        match seen {
            Seen::Ready => true,
            Seen::Idle(since) => since.is_some_and(|since| since + linger > self.decided_at),
        }
    }

    /// Returns true if the server is notified when a queue of the entity turns ready: the entity has no other
    /// work, or less urgent work, or none on that device.
    pub(super) fn hears_ready(&self, entity: usize) -> bool {
        if !self.filtered {
            return true;
        }
        let linger = self.scheduler.linger(entity);
        let most = self.busy(entity).map(|queue| queue.priority).max();
        let busy = |device| self.busy(entity).any(|queue| queue.device == device);
        let mut idle = self.executing(entity).filter(|queue| !self.counted(queue, linger));
        !self.is_alone()
            && idle.any(|queue| most.is_none_or(|most| queue.priority > most) || !busy(queue.device))
    }

    /// Returns true if the server is notified when a queue of the entity turns idle: the policy needs every
    /// such report, or another entity waits for a device where this one has work, or its remaining work may
    /// be less urgent.
    pub(super) fn needs_idle_events(&self, entity: usize) -> bool {
        if !self.filtered {
            return true;
        }
        if self.is_alone() || !self.entities[entity].permission.run {
            return false;
        }
        if self.scheduler.needs_idle_events() {
            return true;
        }
        let Some(most) = self.busy(entity).map(|queue| queue.priority).max() else { return false };
        let falls = self.executing(entity).any(|queue| queue.priority < most);
        let waits = |other: usize| !self.entities[other].permission.run && self.busy(other).next().is_some();
        let meets = |other: usize| {
            self.executing(other).any(|queue| self.busy(entity).any(|own| own.device == queue.device))
        };
        falls || (0..self.entities.len()).any(|other| other != entity && waits(other) && meets(other))
    }

    /// Tells the policies whose next change is not reported. A wake-up ends a linger.
    pub(super) fn note_unheard(&mut self) {
        if !self.filtered {
            return;
        }
        for entity in 0..self.entities.len() {
            let heard = match self.scheduler.course(entity) {
                Course::Works => self.needs_idle_events(entity),
                Course::Lingers => true,
                Course::Idle => self.hears_ready(entity),
            };
            if !heard {
                self.scheduler.note_unheard(entity);
            }
        }
    }

    /// Returns true if no report matters, because there is only one entity and the policy never suspends it.
    fn is_alone(&self) -> bool {
        self.rivals < 2 && !self.scheduler.needs_idle_events()
    }

    /// Returns the queues of an entity that the last decision counted as ready.
    fn busy(&self, entity: usize) -> impl Iterator<Item = &Queue> {
        let linger = self.scheduler.linger(entity);
        self.executing(entity).filter(move |queue| self.counted(queue, linger))
    }

    fn executing(&self, entity: usize) -> impl Iterator<Item = &Queue> {
        let queues = &self.queues[self.entities[entity].queues.clone()];
        queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy_sim::case::Case;
    use crate::policy_sim::distribution::nanos;
    use crate::policy_sim::scheduler::{Policy, Scope};
    use crate::policy_sim::simulation::{Setting, Simulation};
    use crate::policy_sim::workload::Workload;
    use std::path::Path;

    /// Returns the gaps that were learnt in 20 s from a client with gaps of 230 µs, the first of these clients.
    fn learnt(clients: usize) -> u64 {
        let text = r#"
            duration_s = 20
            [[client]]
            name = "a"
            arrivals = { kind = "closed", think = { dist = "constant", us = 230 } }
            requests = [{ duration = { dist = "exponential", mean_us = 700 } }]
            [[client]]
            name = "b"
            priority = -1
            arrivals = { kind = "closed" }
            requests = [{ duration = { dist = "constant", us = 100 } }]
        "#;
        let case = &Case::new("a".to_owned(), Workload::from_toml(text).unwrap(), Path::new("")).unwrap();
        let (instances, policy, scope) = (&case.instances()[..clients], &Policy::for_one(), Scope::Global);
        let mut simulation = Simulation::new(&Setting { case, instances, policy, scope, seed: 1 });
        simulation.play(nanos(case.workload.duration_s * 1e6));
        simulation.scheduler.counted("gaps")
    }

    #[test]
    fn gaps_of_a_client_are_learnt_only_beside_others() {
        assert_eq!(learnt(1), 0, "nothing is reported");
        let gaps = learnt(2);
        assert!(gaps > 15_000, "{gaps}");
    }
}
