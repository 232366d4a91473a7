//! Adds up for how long clients wait, at the end of a step.
//!
//! While any client waits, each step adds the time since the last one. Between two steps the pages say since
//! when a queue is ready or idle. A queue that turned ready and idle again between two steps is not seen. That
//! is rare: while a client waits, the event mask asks for both events.

use super::client::Slot;
use super::client_page::ClientPage;
use super::waiting::{Seen, Work, nanos};
use super::{Core, gangs};
use protocol::status::Activity;
use protocol::time::Time;

impl<P: ClientPage> Core<P> {
    /// Adds the time since the last step, at the end of a step.
    pub(super) fn add_waiting(&mut self, now: Time) {
        let last = std::mem::replace(&mut self.waiting_added, now).min(now);
        let waited = self.clients.iter().any(|state| state.waiting.waits);
        let units = self.engine.entities().all();
        let waits_now = self.clients.iter().zip(units).any(|(state, unit)| unit.working && !state.permit.run);
        if !waited && !waits_now {
            for state in &mut self.clients {
                state.waiting.since.get_or_insert(now);
                (state.waiting.waits, state.waiting.runs) = (false, state.permit.run);
            }
            return;
        }
        if !waited {
            self.waiting_from = now;
        }
        let from = self.waiting_from;
        self.work.clear();
        self.work.resize(self.contests.len(), Work::default());
        let (units, engine) = (self.engine.entities(), &self.engine);
        let contest_of = |device| {
            let index = units.devices().iter().position(|known| *known == device)?;
            Some(engine.contest(index))
        };
        let gangs = gangs(&mut self.status).iter();
        for (state, gang) in self.clients.iter_mut().zip(gangs) {
            state.waiting.since.get_or_insert(now);
            if waited && state.waiting.runs && !state.waiting.rests {
                for (slot, queue) in state.slots.iter().zip(gang.queues.iter()) {
                    let work = contest_of(queue.device).and_then(|contest| self.work.get_mut(contest));
                    let (Some(work), Some(seen)) = (work, slot.seen_from(from)) else { continue };
                    let worked = slot.worked_since(seen, &state.page, now);
                    work.had_work = work.had_work.saturating_add(slot.had_work(seen, last, now));
                    work.worked = work.worked.saturating_add(worked);
                }
            }
        }
        for (state, unit) in self.clients.iter_mut().zip(units.all()) {
            let sums = &mut state.waiting;
            if sums.waits {
                // Its work may have ended in between: what was in flight has completed.
                let until = unit.idle_since.map_or(now, |idle| idle.clamp(last, now));
                let span = nanos(last, until);
                let used = units.uses(unit).iter();
                let work = used.filter_map(|used| self.work.get(engine.contest(used.device)));
                let most = |part: fn(&Work) -> u64| work.clone().map(part).max().unwrap_or_default();
                sums.suspended = sums.suspended.saturating_add(span);
                sums.others_had_work =
                    sums.others_had_work.saturating_add(most(|work| work.had_work).min(span));
                // Not cut here: the pages say later what the device has done.
                sums.others_worked = sums.others_worked.saturating_add(most(|work| work.worked));
            }
            sums.waits = unit.working && !state.permit.run;
            let ran = std::mem::replace(&mut sums.runs, state.permit.run);
            if sums.rests {
                continue;
            }
            sums.rests = true;
            for slot in &mut state.slots {
                slot.see(&state.page, waited.then_some(from), ran, now);
                sums.rests &= slot.rests(&state.page);
            }
        }
    }
}

impl Slot {
    /// Returns the state after the last step of this time of waiting, which began at `from`. A slot that rests is not looked
    /// at when it begins, and has not changed since then.
    fn seen_from(&self, from: Time) -> Option<Seen> {
        self.seen.map(|seen| Seen { changed: seen.changed.max(from), ..seen })
    }

    /// Returns true if nothing is added for it before its state changes. A page says what the device has done before it says
    /// that a queue is idle.
    fn rests(&self, page: &impl ClientPage) -> bool {
        let all_added =
            self.seen.is_some_and(|seen| !seen.ready && seen.worked_ns == page.worked_ns(self.index));
        // Brief work has begun already.
        all_added && self.ready_from.is_none()
    }

    /// Returns for how long the queue had work since the last step.
    fn had_work(&self, seen: Seen, last: Time, now: Time) -> u64 {
        let (from, until) = match (seen.ready, self.activity) {
            (true, Activity::Ready { .. }) => (last, now),
            (true, Activity::Idle { since }) => (last, since.unwrap_or(last)),
            (false, Activity::Ready { since }) => (since, now),
            (false, Activity::Idle { .. }) => (now, now),
        };
        nanos(from.clamp(last, now), until.clamp(last, now))
    }

    /// Returns for how long the device worked for the queue since the page last said it, cut to the time that
    /// has passed since then.
    fn worked_since(&self, seen: Seen, page: &impl ClientPage, now: Time) -> u64 {
        page.worked_ns(self.index).saturating_sub(seen.worked_ns).min(nanos(seen.changed, now))
    }

    /// Notes the state after a step. `from`: the time since which clients have waited before the step, if one has.
    /// `ran`: this one ran.
    fn see(&mut self, page: &impl ClientPage, from: Option<Time>, ran: bool, now: Time) {
        let ready = matches!(self.activity, Activity::Ready { .. });
        self.seen = Some(match from.and_then(|from| self.seen_from(from)) {
            // A page says late what the device has done: it counts when its client runs again.
            Some(seen) if !ran || page.worked_ns(self.index) == seen.worked_ns => Seen { ready, ..seen },
            _ => Seen { ready, worked_ns: page.worked_ns(self.index), changed: now },
        });
    }
}
