//! The rules for the mask of events that a client reports to the server.

use policies::{DeviceUse, Engine, SchedEntity};
use protocol::bounds::Priority;
use protocol::hint::QueueHints;
use protocol::ids::DeviceId;
use protocol::operation::Permit;
use protocol::page::{EVENT_IDLE, EVENT_PROGRESS, EVENT_READY, MAY_STAY_READY};
use protocol::status::{Activity, QueueStatus};
use protocol::time::Time;
use std::time::Duration;

/// The competition for a device, or for several devices together, after a decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contest {
    /// True if a client waits, for any reason.
    has_waiter: bool,
    /// The time since when the first client waits for a rival.
    pub(super) waits_since: Option<Time>,
    /// The number of clients that run and have work there.
    pub(super) running: usize,
    /// The last client that was counted, so that each counts once.
    counted: Option<usize>,
    /// True if a running client makes progress, or may do so unseen.
    pub(super) moves: bool,
}

/// Fills the contests after a decision, indexed by [`Engine::contest`]. `clients` has for each client true if it may run, and the time
/// since when it waits for rivals.
pub fn note(
    contests: &mut Vec<Contest>,
    engine: &Engine,
    clients: impl IntoIterator<Item = (bool, Option<Time>)>,
) {
    let units = engine.entities();
    contests.clear();
    contests.resize(units.devices().len(), Contest::default());
    for (index, (unit, (run, waits_since))) in units.all().iter().zip(clients).enumerate() {
        for used in units.uses(unit) {
            let contest = &mut contests[engine.contest(used.device)];
            contest.has_waiter |= unit.ready && !run;
            contest.waits_since = [contest.waits_since, waits_since].into_iter().flatten().min();
            if used.busy && run && contest.counted != Some(index) {
                contest.counted = Some(index);
                contest.running += 1;
            }
        }
    }
}

/// The event masks that follow from a decision.
#[derive(Debug)]
pub struct Rules<'a> {
    engine: &'a Engine,
    contests: &'a [Contest],
    now: Time,
    needs_idle_events: bool,
    /// True if there is only one client with queues and no policy depends on its events.
    alone: bool,
}

impl<'a> Rules<'a> {
    /// Prepares the rules for the last decision.
    pub fn new(engine: &'a Engine, contests: &'a [Contest], now: Time) -> Self {
        let units = engine.entities();
        let rivals = units.all().iter().filter(|unit| !units.uses(unit).is_empty()).count();
        let needs_idle_events = engine.needs_idle_events();
        // A policy that does not conserve work may keep a device unused, and depends on events even with one client.
        let conserves = engine.choices().all(|(_, choice)| choice.row.conserves_work);
        let alone = rivals == 1 && conserves && !needs_idle_events && engine.reads_power().is_none();
        Self { engine, contests, now, needs_idle_events, alone }
    }

    /// The mask for a client. `watched`: the guard watches its progress.
    ///
    /// A queue that turns ready can change a decision. A queue that turns idle can, if the client runs and another client is suspended
    /// on a device where it has work, or runs there and may outrank it then; or if a policy counts all events. Completions are
    /// reported if another client has waited for long enough.
    ///
    /// If the client reports no changes, its queues may stay ready between synchronizations in two cases: the client is
    /// alone, or it has a window, so that its watcher looks often. In other cases the next client with work would wait for
    /// too long.
    pub fn of(&self, index: usize, queues: &[QueueStatus], permit: &Permit, watched: bool) -> u32 {
        if self.alone {
            return MAY_STAY_READY;
        }
        let run = permit.run;
        let units = self.engine.entities();
        let unit = &units.all()[index];
        let uses = units.uses(unit);
        let contest = |used: &DeviceUse| self.engine.contest(used.device);
        let mut runs_in = uses.iter().filter(|used| used.busy && run).map(contest);
        let beside_others = |used: &DeviceUse| {
            let own = runs_in.clone().any(|busy| busy == contest(used));
            self.contests[contest(used)].running > usize::from(own)
        };
        let falls = may_fall(unit, queues) && uses.iter().any(beside_others);
        let idle = falls
            || self.needs_idle_events && unit.ready
            || runs_in.any(|contest| self.contests[contest].has_waiter);
        let ready = ready(unit, uses, units.devices(), queues, self.now);
        let stays = !ready && !idle && run && permit.limit;
        word(ready, idle, watched) | if stays { MAY_STAY_READY } else { 0 }
    }
}

fn word(ready: bool, idle: bool, watched: bool) -> u32 {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    bit(ready, EVENT_READY) | bit(idle, EVENT_IDLE) | bit(watched, EVENT_PROGRESS)
}

/// Returns true if an idle queue that turns ready could change a decision: the unit has no other work, the queue
/// is more urgent than the work, the unit has no work on that device, or its queues have hints.
fn ready(
    unit: &SchedEntity,
    uses: &[DeviceUse],
    devices: &[DeviceId],
    queues: &[QueueStatus],
    now: Time,
) -> bool {
    if !unit.ready {
        // All its queues are idle. Most clients are like that, and can have many.
        return !uses.is_empty();
    }
    let executes = queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE);
    let mut idle = executes.filter(|queue| !counts_as_ready(queue.activity, now, unit.linger));
    let busy = |device| uses.iter().any(|used| used.busy && devices[used.device] == device);
    let differs = |queue: &QueueStatus| queue.priority > unit.priority || !busy(queue.device);
    let hinted = hinted(queues);
    idle.any(|queue| hinted || differs(queue))
}

/// Returns true if the unit could rank lower while it has work: another queue may be ready then that is less
/// urgent or has hints.
fn may_fall(unit: &SchedEntity, queues: &[QueueStatus]) -> bool {
    unit.ready && (unit.floor < unit.priority || queues.len() > 1 && hinted(queues))
}

fn hinted(queues: &[QueueStatus]) -> bool {
    queues.iter().any(|queue| queue.hints != QueueHints::default())
}

/// The rule of the policies that a queue still counts as ready until `linger` after it turned idle.
fn counts_as_ready(activity: Activity, now: Time, linger: Duration) -> bool {
    match activity {
        Activity::Ready { .. } => true,
        Activity::Idle { since: None } => false,
        Activity::Idle { since: Some(since) } => since.min(now).after(linger) > now,
    }
}
