//! What the server wants a client to tell, as pure rules.

use policies::{DeviceUse, Engine, SchedEntity};
use protocol::bounds::Priority;
use protocol::hint::QueueHints;
use protocol::ids::DeviceId;
use protocol::page::{WANTS_IDLE, WANTS_PROGRESS, WANTS_READY};
use protocol::status::{Activity, QueueStatus};
use protocol::time::Time;
use std::time::Duration;

/// A device after a decision, or all that are competed for as one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contest {
    /// Whether anybody waits for it, whatever for.
    is_wanted: bool,
    /// Since when the first of those waits in whose way others stand.
    pub(super) waits_since: Option<Time>,
    /// How many run and have work there.
    pub(super) running: usize,
    /// The last that was counted among them: each counts once.
    counted: Option<usize>,
    /// Whether somebody who runs there gets on, or may do so unseen.
    pub(super) moves: bool,
}

/// Notes who waits and who runs after a decision of this engine, by the numbers of [`Engine::contest`]. Of each client comes
/// whether it may run, and since when it waits for others.
pub fn note(
    contests: &mut Vec<Contest>,
    engine: &Engine,
    clients: impl IntoIterator<Item = (bool, Option<Time>)>,
) {
    let units = engine.entities();
    contests.clear();
    contests.resize(units.devices().len(), Contest::default());
    for (place, (unit, (run, waits_since))) in units.all().iter().zip(clients).enumerate() {
        for used in units.uses(unit) {
            let contest = &mut contests[engine.contest(used.device)];
            contest.is_wanted |= unit.ready && !run;
            contest.waits_since = [contest.waits_since, waits_since].into_iter().flatten().min();
            if used.busy && run && contest.counted != Some(place) {
                contest.counted = Some(place);
                contest.running += 1;
            }
        }
    }
}

/// What follows from a decision for what clients shall tell.
#[derive(Debug)]
pub struct Rules<'a> {
    engine: &'a Engine,
    contests: &'a [Contest],
    now: Time,
    hears_idle: bool,
    /// One client is there whom nobody disturbs, and what it does matters to nobody.
    alone: bool,
}

impl<'a> Rules<'a> {
    /// After this decision, of which everything is noted.
    pub fn new(engine: &'a Engine, contests: &'a [Contest], now: Time) -> Self {
        let units = engine.entities();
        let rivals = units.all().iter().filter(|unit| !units.uses(unit).is_empty()).count();
        let hears_idle = engine.hears_idle();
        // Else a policy may keep a device with work unused, as one that hears of idle queues or power may by its
        // parameters or by hints.
        let conserves = engine.choices().all(|(_, choice)| choice.row.conserves_work);
        let alone = rivals == 1 && conserves && !hears_idle && engine.reads_power().is_none();
        Self { engine, contests, now, hears_idle, alone }
    }

    /// The word for the page of the client at this place; whether it is watched says the guard.
    ///
    /// A queue that turns ready may change a decision. One that turns idle may, because the client runs, and
    /// somebody is suspended on a device where it has work, or runs there and may outrank it then; or because
    /// a policy counts what everybody does. Of whom somebody has waited for long enough the progress matters.
    pub fn of(&self, place: usize, queues: &[QueueStatus], run: bool, watched: bool) -> u32 {
        if self.alone {
            return 0;
        }
        let units = self.engine.entities();
        let unit = &units.all()[place];
        let uses = units.uses(unit);
        let contest = |used: &DeviceUse| self.engine.contest(used.device);
        let mut runs_in = uses.iter().filter(|used| used.busy && run).map(contest);
        let beside_others = |used: &DeviceUse| {
            let own = runs_in.clone().any(|busy| busy == contest(used));
            self.contests[contest(used)].running > usize::from(own)
        };
        let falls = may_fall(unit, queues) && uses.iter().any(beside_others);
        let idle =
            falls || self.hears_idle && unit.ready || runs_in.any(|contest| self.contests[contest].is_wanted);
        word(ready(unit, uses, units.devices(), queues, self.now), idle, watched)
    }
}

fn word(ready: bool, idle: bool, watched: bool) -> u32 {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    bit(ready, WANTS_READY) | bit(idle, WANTS_IDLE) | bit(watched, WANTS_PROGRESS)
}

/// Whether a queue of the unit that was taken for idle would change what a policy goes by, if it turned ready: the unit
/// has no other work, or the queue is more urgent than what it has, or the unit has no work on that device, or something
/// is said of its queues, which may differ in that.
fn ready(
    unit: &SchedEntity,
    uses: &[DeviceUse],
    devices: &[DeviceId],
    queues: &[QueueStatus],
    now: Time,
) -> bool {
    let executes = queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE);
    let mut idle = executes.filter(|queue| !counts_as_ready(queue.activity, now, unit.linger));
    let busy = |device| uses.iter().any(|used| used.busy && devices[used.device] == device);
    let differs = |queue: &QueueStatus| queue.priority > unit.priority || !busy(queue.device);
    idle.any(|queue| !unit.ready || hinted(queues) || differs(queue))
}

/// Whether the unit may rank lower while it has work: it has other queues, which may be ready by then, and they are less
/// urgent or something is said of them.
fn may_fall(unit: &SchedEntity, queues: &[QueueStatus]) -> bool {
    unit.ready && (unit.floor < unit.priority || queues.len() > 1 && hinted(queues))
}

fn hinted(queues: &[QueueStatus]) -> bool {
    queues.iter().any(|queue| queue.hints != QueueHints::default())
}

/// The rule of the policies: a queue that turned idle less than `linger` ago counts as ready.
fn counts_as_ready(activity: Activity, now: Time, linger: Duration) -> bool {
    match activity {
        Activity::Ready { .. } => true,
        Activity::Idle { since: None } => false,
        Activity::Idle { since: Some(since) } => since.min(now).after(linger) > now,
    }
}
