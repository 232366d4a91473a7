//! What the server wants a client to tell, as pure rules.

use policies::{Choice, DeviceUse, Engine, Unit};
use protocol::bounds::Priority;
use protocol::hint::QueueHints;
use protocol::ids::DeviceId;
use protocol::page::{WANTS_IDLE, WANTS_PROGRESS, WANTS_READY};
use protocol::status::{Activity, QueueStatus};
use protocol::time::Time;
use std::time::Duration;

/// The word for a client's page.
///
/// `ready`: a queue that turns ready may change a decision ([`ready`]). `idle`: one that turns idle may, because the
/// client runs, and somebody is suspended on a device where it has work, or runs there and may outrank it then
/// ([`may_fall`]); or because a policy counts what everybody does. `watched`: somebody has been suspended for long enough that the client's progress matters.
pub fn word(ready: bool, idle: bool, watched: bool) -> u32 {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    bit(ready, WANTS_READY) | bit(idle, WANTS_IDLE) | bit(watched, WANTS_PROGRESS)
}

/// Whether a queue of the unit that was taken for idle would change what a policy goes by, if it turned ready: the unit
/// has no other work, or the queue is more urgent than what it has, or the unit has no work on that device, or something
/// is said of its queues, which may differ in that.
pub fn ready(
    unit: &Unit,
    uses: &[DeviceUse],
    devices: &[DeviceId],
    queues: &[QueueStatus],
    now: Time,
    linger: Duration,
) -> bool {
    let executes = queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE);
    let mut idle = executes.filter(|queue| !counts_as_ready(queue.activity, now, linger));
    let busy = |device| uses.iter().any(|used| used.busy && devices[used.device] == device);
    let differs = |queue: &QueueStatus| queue.priority > unit.priority || !busy(queue.device);
    idle.any(|queue| !unit.ready || hinted(queues) || differs(queue))
}

/// Whether the unit may rank lower while it has work: it has other queues, which may be ready by then, and they are less
/// urgent or something is said of them.
pub fn may_fall(unit: &Unit, queues: &[QueueStatus]) -> bool {
    unit.ready && (unit.floor < unit.priority || queues.len() > 1 && hinted(queues))
}

/// Whether what somebody does matters who is alone: a policy counts what everybody does, or may keep a device with work
/// unused. Of parameters that somebody has set nobody knows here what they mean.
pub fn alone_matters(engine: &Engine) -> bool {
    let usual = |choice: &Choice| choice.values.iter().all(|(parameter, value)| value == parameter.default);
    let conserves = |choice: &Choice| choice.row.conserves_work && usual(choice);
    engine.hears_idle() || !engine.choices().all(|(_, choice)| conserves(choice))
}

fn hinted(queues: &[QueueStatus]) -> bool {
    queues.iter().any(|queue| queue.hints != QueueHints::default())
}

/// The rule of the policies: a queue that turned idle less than `linger` ago counts as ready.
pub fn counts_as_ready(activity: Activity, now: Time, linger: Duration) -> bool {
    match activity {
        Activity::Ready { .. } => true,
        Activity::Idle { since: None } => false,
        Activity::Idle { since: Some(since) } => since.min(now).after(linger) > now,
    }
}
