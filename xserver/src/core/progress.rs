//! Whether those who keep others waiting get on: who does not is looked up, and may have to let the others run.
//!
//! Nothing is watched until somebody has waited for [`PATIENCE`], so that short suspensions cost nothing. From then on
//! the counts of those in the way are looked at every [`SAMPLE`]. Whoever completed nothing for [`STALL`] is looked up:
//! a stopped process yields, and is looked up again every [`STALL`]. If somebody runs on the devices of a suspended
//! client, everybody who does is stalled, and none of them runs a command of known length, all run together for
//! [`TOGETHER`]. Whoever is suspended though nobody stands in the way, because the policy withholds the device, calls no
//! guard.

use super::{Core, Peer, gangs};
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

impl<P: Peer> Core<P> {
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
        let (units, engine) = (self.engine.units(), &self.engine);
        for (member, unit) in self.members.iter_mut().zip(units.all()) {
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
                for used in units.uses(unit).iter().filter(|used| used.busy) {
                    self.contests[engine.contest(used.device)].moves = true;
                }
            }
        }
        if !due || !self.guard.enabled || self.guard.until.is_some() {
            return;
        }
        let stuck = self.members.iter().zip(units.all()).any(|(member, unit)| {
            let long = member.waits_since.is_some_and(|since| now >= since.after(STALL));
            let contests = || units.uses(unit).iter().map(|used| &self.contests[engine.contest(used.device)]);
            long && contests().any(|contest| contest.running > 0) && !contests().any(|contest| contest.moves)
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
