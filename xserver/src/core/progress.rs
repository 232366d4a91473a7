//! The progress guard: finds clients that keep others waiting and make no progress.
//!
//! Nothing is watched until a client has waited for [`PATIENCE`](super::guard::PATIENCE), so that short
//! suspensions cost nothing. From then on the counts of its rivals are read every [`SAMPLE`]: completed
//! commands, and packets that their devices have taken. A rival for which neither changes for [`STALL`] is looked up in `/proc`: if it is stopped it yields, and is
//! looked up again every [`STALL`]. If clients run on the devices of a suspended client, all of them are
//! stalled, and none of them runs a command of known length, all clients run for [`TOGETHER`]. A client that
//! is suspended without a rival, because the policy withholds the device, does not start the guard.
//!
//! A job can keep a device free on which it has no work, because it has work on other devices (GANG). Its
//! clients count as rivals on that device: it stays free until they are done, and they may wait for the
//! suspended client. A device that is kept free for expected work is given back in time in any case.

use super::client_page::ClientPage;
use super::guard::{BELIEF, SAMPLE, STALL, TOGETHER};
use super::{Core, gangs};
use policies::reason::EXPECTED;
use policies::{Engine, SchedEntity};
use protocol::ids::DeviceId;
use protocol::operation::Reason;
use protocol::time::Time;
use std::time::Duration;

/// The contests in which a running client is a rival: where it has work, and where a device is kept free
/// because of its work.
pub(super) fn contests_of(
    engine: &Engine,
    reserving: &[(usize, usize)],
    index: usize,
) -> impl Iterator<Item = usize> {
    let units = engine.entities();
    let busy = units.uses(&units.all()[index]).iter().filter(|used| used.busy);
    let reserved = reserving.iter().filter(move |(client, _)| *client == index);
    busy.map(|used| engine.contest(used.device)).chain(reserved.map(|(_, contest)| *contest))
}

impl<P: ClientPage> Core<P> {
    /// Finds the clients for whose job a device is kept free on which another client waits and none runs. The
    /// policy names only the rival; the rival or its job has work elsewhere.
    pub(super) fn note_reserving(&mut self) {
        self.reserving.clear();
        let (units, engine) = (self.engine.entities(), &self.engine);
        // A job is known only within one policy.
        let ruling = |device: DeviceId| {
            engine.choices().map(|(own, _)| own).find(|own| *own == Some(device)).flatten()
        };
        for waiting in self.clients.iter().filter(|state| state.waits_since.is_some()) {
            let Reason::Outranked { by, .. } = waiting.decided.reason else { continue };
            let device = units.devices().iter().position(|device| *device == by.device);
            let Some(contest) = device.map(|device| engine.contest(device)) else { continue };
            let known = self.reserving.iter().any(|(_, other)| *other == contest);
            if known || self.contests[contest].running > 0 || EXPECTED.is(&by.reason) {
                continue;
            }
            let is_rival = |unit: &SchedEntity| {
                unit.pid == by.pid
                    && units.queues(unit).iter().any(|queue| queue.queue == by.queue)
                    && units.uses(unit).iter().any(|used| engine.contest(used.device) == contest)
            };
            let job = units
                .all()
                .iter()
                .filter(|unit| is_rival(unit))
                .find_map(|unit| Some((unit.owner, unit.process.job?)));
            let belongs = |unit: &SchedEntity| {
                let ruled = |used| ruling(units.devices()[used]) == ruling(by.device);
                job.is_some_and(|(owner, job)| unit.owner == owner && unit.process.job == Some(job))
                    && units.uses(unit).iter().any(|used| ruled(used.device))
            };
            let all = self.clients.iter().zip(units.all()).enumerate();
            let works = all.filter(|(_, (state, unit))| unit.ready && state.decided.run);
            let reserving = works.filter(|(_, (_, unit))| is_rival(unit) || belongs(unit));
            self.reserving.extend(reserving.map(|(index, _)| (index, contest)));
        }
    }

    /// Looks up clients without progress and clients that have yielded. Returns true if a client yields or
    /// stops yielding, so that the decision is out of date.
    pub(super) fn find_stopped(&mut self, now: Time) -> bool {
        let mut changed = false;
        for (state, gang) in self.clients.iter_mut().zip(gangs(&mut self.status)) {
            let suspect = state.yielded || state.progress.is_some_and(|progress| progress.is_stalled(now));
            if !suspect || now < state.looked_up.after(STALL) {
                continue;
            }
            state.looked_up = now;
            let stopped = state.page.is_stopped();
            if stopped != state.yielded {
                state.set_yielded(stopped, &mut gang.queues);
                changed = true;
            }
        }
        changed
    }

    /// Reads the counts when due, and starts or ends the time in which all clients run.
    pub(super) fn watch_progress(&mut self, now: Time) {
        let ended = self.guard.until.is_some_and(|until| now >= until);
        if ended {
            self.guard.until = None;
        }
        if !self.on {
            self.guard.until = None;
            return;
        }
        let due = now >= self.guard.sampled.after(SAMPLE);
        if due {
            self.guard.sampled = now;
        }
        let (units, engine) = (self.engine.entities(), &self.engine);
        for (index, state) in self.clients.iter_mut().enumerate() {
            let Some(progress) = &mut state.progress else { continue };
            let busy_until = state.page.busy_until();
            if due || ended {
                progress.update(now, &state.page, ended);
            }
            let known = now < busy_until && now < progress.at.after(BELIEF);
            if known || !progress.is_stalled(now) {
                for contest in contests_of(engine, &self.reserving, index) {
                    self.contests[contest].moves = true;
                }
            }
        }
        if !due || !self.guard.enabled || self.guard.until.is_some() {
            return;
        }
        let stuck = self.clients.iter().zip(units.all()).any(|(state, unit)| {
            let long = state.waits_since.is_some_and(|since| now >= since.after(STALL));
            let contests = || units.uses(unit).iter().map(|used| engine.contest(used.device));
            let is_reserved = |contest| self.reserving.iter().any(|(_, reserved)| *reserved == contest);
            let is_taken = |contest: usize| self.contests[contest].running > 0 || is_reserved(contest);
            long && contests().any(is_taken) && !contests().any(|contest| self.contests[contest].moves)
        });
        if stuck {
            self.guard.until = Some(now.after(TOGETHER));
            self.guard.runs += 1;
        }
    }

    /// The time of the next check.
    pub(super) fn next_watch(&self, now: Time) -> Option<Time> {
        let mut next = self.guard.until;
        let mut at = |time: Time| next = Some(next.map_or(time, |next| next.min(time)));
        for state in &self.clients {
            if let Some(from) = state.watched_from() {
                at(from);
            }
            if state.is_watched() {
                // Never in the past.
                at(self.guard.sampled.after(SAMPLE).max(now.after(Duration::from_nanos(1))));
            }
            if state.yielded {
                at(state.looked_up.after(STALL));
            }
        }
        next
    }
}
