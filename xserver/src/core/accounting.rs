//! Adds up times and numbers for metrics. Nothing here decides anything.

use super::client::ClientState;
use super::client_page::ClientPage;
use super::tally::{Sums, class};
use super::{Core, gangs};
use protocol::bounds::Priority;
use protocol::ids::ClientId;
use protocol::status::{Counts, QueueStatus};
use protocol::time::Time;
use protocol::totals::Totals;

impl<P: ClientPage> ClientState<P> {
    /// Counts a suspension or its end, if the permission is another one than before. `works`: it has work.
    pub(super) fn count_turn(&mut self, ran: bool, works: bool, totals: &mut Totals, now: Time) {
        match (ran, self.permit.run) {
            (true, false) if works => self.tally.suspend(self.level_in_force(), &self.page, totals, now),
            (false, true) => self.tally.resume(&self.page, totals, now),
            _ => {}
        }
    }

    /// Counts its commands and work that are not counted yet.
    pub(super) fn count(&mut self, queues: &[QueueStatus], sums: &mut Sums, now: Time) {
        let highest = queues.iter().map(|queue| queue.priority).max().unwrap_or(Priority::DEFAULT);
        let class = class(highest);
        let since = self.waiting.since.unwrap_or(now);
        sums.count_completed(&mut self.tally, class, self.page.completed(), since, now);
        for (slot, queue) in self.slots.iter_mut().zip(queues) {
            sums.count_work(&mut slot.times, queue.device, class, self.page.worked_ns(slot.index), now);
        }
    }
}

impl<P: ClientPage> Core<P> {
    /// The name of a client, the last reported counters of its queues, and its number of completed commands.
    pub fn totals(&self, client: ClientId) -> Option<(&str, Counts, u64)> {
        let state = &self.clients[self.find(client)?];
        let mut all = Counts::default();
        for slot in &state.slots {
            let counts = state.page.counts(slot.index);
            for (sum, count) in [
                (&mut all.pending, counts.pending),
                (&mut all.in_flight, counts.in_flight),
                (&mut all.direct, counts.direct),
                (&mut all.deferred, counts.deferred),
                (&mut all.suspensions, counts.suspensions),
                (&mut all.suspended_ns, counts.suspended_ns),
            ] {
                // The counters are untrusted.
                *sum = sum.saturating_add(count);
            }
        }
        Some((&state.name, all, state.page.completed()))
    }

    /// What has been counted up to now. The numbers of the clients are as recent as their reports.
    pub fn totals_at(&mut self, now: Time) -> Totals {
        for (state, gang) in self.clients.iter_mut().zip(gangs(&mut self.status)) {
            state.count(&gang.queues, &mut self.sums, now);
        }
        self.sums.show()
    }

    /// Counts what a client has done that is not counted yet, before it leaves.
    pub fn settle(&mut self, client: ClientId, now: Time) {
        let Some(index) = self.find(client) else { return };
        self.clients[index].count(&gangs(&mut self.status)[index].queues, &mut self.sums, now);
    }

    /// The numbers, for what the core does not see itself.
    pub fn count(&mut self) -> &mut Totals {
        &mut self.sums.totals
    }

    /// Counts a decision that began at one time and had stored all permissions at another.
    pub fn note_decision(&mut self, begun: Time, end: Time) {
        self.sums.totals.steps.add(end.since(begun));
        if let Some(turned) = self.turned.take() {
            self.sums.totals.decisions.add(end.since(turned));
        }
    }
}
