//! Whether those who keep others waiting get on: who does not is looked up, and may have to let the others run.
//!
//! Nothing is watched until somebody has waited for [`PATIENCE`], so that short suspensions cost nothing. From then on
//! the counts of those in the way are looked at every [`SAMPLE`]. Whoever completed nothing for [`STALL`] is looked up:
//! a stopped process yields, and is looked up again every [`STALL`]. If somebody runs on the devices of a suspended
//! client, everybody who does is stalled, and none of them runs a command of known length, all run together for
//! [`TOGETHER`]. Whoever is suspended though nobody stands in the way, because the policy withholds the device, calls no
//! guard.
//!
//! A device may be kept free by one who has no work there, because others of its job have work elsewhere (GANG). These
//! stand in the way then, as if they ran on that device: it stays free until they are done, and they may wait for
//! somebody. One that is kept free for work that is expected is given back in time, whoever completes what.

use super::{Core, Peer, gangs};
use policies::reason::EXPECTED;
use policies::{Engine, SchedEntity};
use protocol::ids::DeviceId;
use protocol::operation::Reason;
use protocol::page::HEARTBEAT;
use protocol::time::Time;
use std::time::Duration;

/// How long somebody waits before it matters whether those in the way get on.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How often their counts are looked at.
pub const SAMPLE: Duration = Duration::from_millis(25);
/// After how long without a completion they are stalled.
pub const STALL: Duration = HEARTBEAT;
/// For how long all run together then.
pub const TOGETHER: Duration = Duration::from_millis(20);
/// For how long at most a client is believed that its one command still runs. It is a client's word, and may be wrong.
pub const BELIEF: Duration = Duration::from_secs(10);

/// What a client completes while others wait for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// When something last changed, or the watch began.
    pub at: Time,
    pub completed: u64,
}

impl Progress {
    fn is_stalled(&self, now: Time) -> bool {
        now >= self.at.after(STALL)
    }
}

/// Lets all run together for a moment.
#[derive(Debug)]
pub(super) struct Guard {
    enabled: bool,
    until: Option<Time>,
    pub runs: u64,
    sampled: Time,
}

impl Guard {
    pub fn new(enabled: bool) -> Self {
        Self { enabled, until: None, runs: 0, sampled: Time::default() }
    }

    pub fn is_active(&self) -> bool {
        self.until.is_some()
    }
}

/// The contests in which the client at this place stands in the way of others if it runs: where it has work, and where a
/// device is kept free because of its work.
pub(super) fn contests_of(
    engine: &Engine,
    reserving: &[(usize, usize)],
    place: usize,
) -> impl Iterator<Item = usize> {
    let units = engine.entities();
    let busy = units.uses(&units.all()[place]).iter().filter(|used| used.busy);
    let reserved = reserving.iter().filter(move |(client, _)| *client == place);
    busy.map(|used| engine.contest(used.device)).chain(reserved.map(|(_, contest)| *contest))
}

impl<P: Peer> Core<P> {
    /// Finds who keeps devices free on which somebody waits and nobody runs. A policy does not say why it reserves; it
    /// follows from who is named as the rival: that one, or its job, has work elsewhere.
    pub(super) fn note_reserving(&mut self) {
        self.reserving.clear();
        let (units, engine) = (self.engine.entities(), &self.engine);
        // A job is one policy's.
        let ruling = |device: DeviceId| {
            engine.choices().map(|(own, _)| own).find(|own| *own == Some(device)).flatten()
        };
        for waiting in self.members.iter().filter(|member| member.waits_since.is_some()) {
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
            let job = units.all().iter().filter(|unit| is_rival(unit)).find_map(|unit| unit.process.job);
            let belongs = |unit: &SchedEntity| {
                let ruled = |used| ruling(units.devices()[used]) == ruling(by.device);
                job.is_some()
                    && unit.process.job == job
                    && units.uses(unit).iter().any(|used| ruled(used.device))
            };
            let all = self.members.iter().zip(units.all()).enumerate();
            let works = all.filter(|(_, (member, unit))| unit.ready && member.decided.run);
            let reserving = works.filter(|(_, (_, unit))| is_rival(unit) || belongs(unit));
            self.reserving.extend(reserving.map(|(place, _)| (place, contest)));
        }
    }

    /// Looks up who makes no progress, and who has yielded. Returns whether somebody yields who did not, or the other
    /// way round: then the decision is out of date.
    pub(super) fn find_stopped(&mut self, now: Time) -> bool {
        let mut news = false;
        for (member, gang) in self.members.iter_mut().zip(gangs(&mut self.status)) {
            let suspect = member.yielded || member.progress.is_some_and(|progress| progress.is_stalled(now));
            if !suspect || now < member.looked_up.after(STALL) {
                continue;
            }
            member.looked_up = now;
            let stopped = member.peer.is_stopped();
            if stopped != member.yielded {
                member.set_yielded(stopped, &mut gang.queues);
                news = true;
            }
        }
        news
    }

    /// Takes samples when they are due, and begins or ends a time together.
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
        for (place, member) in self.members.iter_mut().enumerate() {
            let Some(progress) = &mut member.progress else { continue };
            let busy_until = member.peer.busy_until();
            if due || ended {
                let completed = member.peer.completed();
                if completed != progress.completed || ended {
                    *progress = Progress { at: now, completed };
                }
            }
            let known = now < busy_until && now < progress.at.after(BELIEF);
            if known || !progress.is_stalled(now) {
                for contest in contests_of(engine, &self.reserving, place) {
                    self.contests[contest].moves = true;
                }
            }
        }
        if !due || !self.guard.enabled || self.guard.until.is_some() {
            return;
        }
        let stuck = self.members.iter().zip(units.all()).any(|(member, unit)| {
            let long = member.waits_since.is_some_and(|since| now >= since.after(STALL));
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

    /// When to look again.
    pub(super) fn next_watch(&self, now: Time) -> Option<Time> {
        let mut next = self.guard.until;
        let mut at = |time: Time| next = Some(next.map_or(time, |next| next.min(time)));
        for member in &self.members {
            if let Some(from) = member.watched_from() {
                at(from);
            }
            if member.is_watched() {
                // Never in the past, whatever happened in between.
                at(self.guard.sampled.after(SAMPLE).max(now.after(Duration::from_nanos(1))));
            }
            if member.yielded {
                at(member.looked_up.after(STALL));
            }
        }
        next
    }
}
