//! Many transitions a second, and whether one of them was lost.
//!
//! Each pair of clients has a device. The low client has work all the time. In each round the urgent one turns ready, then idle and
//! ready again several times, and finally idle. The low client is suspended from the first *ready* on, and resumed some time after
//! the last *idle*. While it waits, the server asks for every transition of the urgent one.
//!
//! A run counts these failures:
//! * `lost`: a first *ready* that did not suspend the low client, or a last *idle* that did not resume it;
//! * `late`: one of these that took longer than a lease;
//! * `expired`: a lease that ended;
//! * `gone`: a client that was disconnected;
//! * `wrong`: a client for which the server's list at the end does not have the last state, to the nanosecond, or the permission
//!   that follows from it.

use super::bed::Bed;
use super::client::{Client, QUEUE};
use super::way::Times;
use crate::clock::{microseconds, now_ns};
use crate::process::{SERVER_PATIENCE, poll};
use crate::processor_time::{OtherLoad, process_cpu};
use anyhow::{Context, Result};
use protocol::control::List;
use protocol::page::LEASE;
use protocol::status::Activity;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time after which a decision counts as lost.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest burst, when the rate cannot be kept: after 100 ms of waiting the server's guard would interfere.
const BURST: Duration = Duration::from_millis(10);
/// The pause of a thread that is ahead of the rate.
const NAP: Duration = Duration::from_micros(100);
/// The time in which the server must show the last states: it looks at least at every heartbeat.
const SETTLED: Duration = SERVER_PATIENCE;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Pairs of clients, each with a thread.
    pub(super) pairs: u32,
    /// Transitions a second of all clients together.
    pub(super) rate: u32,
    pub(super) length: Duration,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Load {
    pub(super) seconds: f64,
    pub(super) clients: u32,
    pub(super) transitions: u64,
    /// Transitions of which the server was notified, because its event mask asked for them.
    pub(super) notified: u64,
    /// Decisions of the server. One decision reads all states, so several transitions can share one.
    pub(super) decisions: u64,
    /// Suspensions of a low client, and as many resumptions.
    pub(super) rounds: u64,
    /// Suspensions or resumptions that did not come.
    pub(super) lost: u64,
    /// Those that took longer than a lease.
    pub(super) late: u64,
    /// Checks that found a lease that had ended.
    pub(super) expired: u64,
    /// The least time that was left of a lease, in milliseconds.
    pub(super) lease_left_ms: f64,
    /// Clients that the server does not know at the end.
    pub(super) gone: u64,
    /// Clients whose state or permission is wrong at the end.
    pub(super) wrong: u64,
    /// From the first ready to the suspension of the low client.
    pub(super) suspended_us: Times,
    /// From the last idle to the resumption of the low client; the time for which an idle client still counts as ready included.
    pub(super) resumed_us: Times,
    /// Cores that the server used.
    pub(super) server_cores: f64,
    /// Cores that other processes used.
    pub(super) other_cores: f64,
    /// Runs of the progress guard, which lets all clients run.
    pub(super) guard_runs: u64,
    /// Changes of a low client's permission besides those of the rounds, such as a resumption within a burst.
    pub(super) other_changes: u64,
}

impl Load {
    /// Transitions a second.
    pub(super) fn rate(&self) -> f64 {
        self.transitions as f64 / self.seconds
    }

    /// Everything that must not happen.
    pub(super) fn losses(&self) -> u64 {
        self.lost + self.late + self.expired + self.gone + self.wrong
    }
}

/// Two clients on one device.
#[derive(Debug)]
struct Pair {
    low: Client,
    high: Client,
}

/// What one thread has counted.
#[derive(Debug)]
struct Counts {
    transitions: u64,
    suspended_us: Vec<f64>,
    resumed_us: Vec<f64>,
    lost: u64,
    late: u64,
    expired: u64,
    lease_left_ns: i64,
    other_changes: u64,
}

/// Makes a run.
pub(super) fn measure(plan: Plan) -> Result<Load> {
    let bed = Bed::start()?;
    let pair = |number| Pair::connect(&bed.socket, number);
    let mut pairs = (1..=plan.pairs).map(pair).collect::<Result<Vec<_>>>()?;
    let before = bed.wait_for_queues(2 * pairs.len())?;
    let load = OtherLoad::start(&[std::process::id(), bed.pid()])?;
    let (begun, cpu) = (Instant::now(), process_cpu(bed.pid())?);
    let counts = std::thread::scope(|scope| {
        let begin = now_ns();
        let threads: Vec<_> =
            pairs.iter_mut().map(|pair| scope.spawn(move || pair.drive(begin, plan))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>>>()
    })?;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), process_cpu(bed.pid())?.saturating_sub(cpu));
    let other_cores = load.cores()?;
    // Every other device is left with work of both clients.
    for pair in pairs.iter_mut().step_by(2) {
        pair.high.ready()?;
    }
    let (after, gone, wrong) = settle(&bed, &pairs)?;
    let clients = || pairs.iter().flat_map(|pair| [&pair.low, &pair.high]);
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let all = |of: fn(&Counts) -> &Vec<f64>| counts.iter().flat_map(of).copied().collect::<Vec<_>>();
    let load = Load {
        seconds,
        clients: 2 * plan.pairs,
        transitions: sum(|counts| counts.transitions),
        notified: clients().map(Client::notifications).sum(),
        decisions: after.server.decisions - before.server.decisions,
        rounds: sum(|counts| counts.resumed_us.len() as u64),
        lost: sum(|counts| counts.lost),
        late: sum(|counts| counts.late),
        expired: sum(|counts| counts.expired),
        lease_left_ms: counts.iter().map(|counts| counts.lease_left_ns).min().unwrap_or(0) as f64 / 1e6,
        gone,
        wrong,
        suspended_us: Times::of(all(|counts| &counts.suspended_us))?,
        resumed_us: Times::of(all(|counts| &counts.resumed_us))?,
        server_cores: cpu.as_secs_f64() / seconds,
        other_cores,
        guard_runs: after.server.guard_runs - before.server.guard_runs,
        other_changes: sum(|counts| counts.other_changes),
    };
    drop(pairs);
    bed.end()?;
    Ok(load)
}

/// Waits until the server's list has every client as it left itself, and returns the list, the clients that are not in it,
/// and those that it has otherwise.
fn settle(bed: &Bed, pairs: &[Pair]) -> Result<(List, u64, u64)> {
    let mut last = None;
    poll(SETTLED, || {
        let list = bed.list()?;
        let (gone, wrong) = faults(&list, pairs);
        let is_right = gone + wrong == 0;
        last = Some((list, gone, wrong));
        Ok(is_right.then_some(()))
    })?;
    last.context("xserver was not asked")
}

/// Counts the clients that are missing in a list, and those whose state or permission is wrong there or on their page.
fn faults(list: &List, pairs: &[Pair]) -> (u64, u64) {
    let (mut gone, mut wrong) = (0, 0);
    for pair in pairs {
        for (client, runs) in
            [(&pair.high, true), (&pair.low, matches!(pair.high.activity(), Activity::Idle { .. }))]
        {
            let Some(known) = list.clients.iter().find(|known| known.client == client.id) else {
                gone += 1;
                continue;
            };
            let queue = known.queues.iter().find(|queue| queue.id() == QUEUE);
            let state = queue.map(|queue| queue.status.activity);
            let is_seen = state.is_some_and(|seen| is_same(seen, client.activity()));
            let is_right = is_seen && known.permit.run == runs && client.runs() == runs;
            wrong += u64::from(!is_right);
        }
    }
    (gone, wrong)
}

/// Returns true if the server has seen this activity. The server reads pages during a step, and cuts their times to the
/// beginning of the step.
fn is_same(seen: Activity, own: Activity) -> bool {
    const STEP: Duration = Duration::from_millis(1);
    match (seen, own) {
        (Activity::Ready { since: seen }, Activity::Ready { since: own })
        | (Activity::Idle { since: Some(seen) }, Activity::Idle { since: Some(own) }) => {
            seen <= own && own.since(seen) < STEP
        }
        (seen, own) => seen == own,
    }
}

impl Pair {
    fn connect(socket: &Path, device: u32) -> Result<Self> {
        let client = |name, priority| Client::connect(socket, name, device, priority);
        Ok(Self { low: client("low", 0)?, high: client("high", 10)? })
    }

    /// Makes this pair's part of the transitions, until the time is over.
    fn drive(&mut self, begin: u64, plan: Plan) -> Result<Counts> {
        let mut counts = Counts {
            transitions: 1,
            suspended_us: Vec::new(),
            resumed_us: Vec::new(),
            lost: 0,
            late: 0,
            expired: 0,
            lease_left_ns: i64::MAX,
            other_changes: 0,
        };
        self.low.ready()?;
        let generation = self.low.generation();
        loop {
            let elapsed = Duration::from_nanos(now_ns() - begin);
            if elapsed >= plan.length {
                let changes = u64::from(self.low.generation().wrapping_sub(generation));
                let waits = counts.suspended_us.len() + counts.resumed_us.len();
                counts.other_changes = changes.saturating_sub(waits as u64);
                return Ok(counts);
            }
            if counts.transitions >= due(plan, elapsed) {
                std::thread::sleep(NAP);
                continue;
            }
            self.round(begin, plan, &mut counts)?;
        }
    }

    /// Suspends the low client and resumes it, with as many transitions in between as are due.
    fn round(&mut self, begin: u64, plan: Plan, counts: &mut Counts) -> Result<()> {
        let started = now_ns();
        self.high.ready()?;
        counts.transitions += 1;
        let stopped = self.low.wait_until_runs(false, LIMIT);
        counts.note(stopped, now_ns() - started, |counts| &mut counts.suspended_us);
        let burst = now_ns();
        loop {
            let now = now_ns();
            let is_due = counts.transitions + 2 < due(plan, Duration::from_nanos(now - begin));
            if !is_due || now - burst > BURST.as_nanos() as u64 {
                break;
            }
            self.high.idle()?;
            self.high.ready()?;
            counts.transitions += 2;
        }
        let ended = now_ns();
        self.high.idle()?;
        counts.transitions += 1;
        let resumed = self.low.wait_until_runs(true, LIMIT);
        counts.note(resumed, now_ns() - ended, |counts| &mut counts.resumed_us);
        for client in [&self.low, &self.high] {
            let left = client.lease_left_ns();
            counts.expired += u64::from(left < 0);
            counts.lease_left_ns = counts.lease_left_ns.min(left);
        }
        Ok(())
    }
}

impl Counts {
    /// Notes a wait, and whether what it waited for came.
    fn note(&mut self, came: bool, ns: u64, times: fn(&mut Self) -> &mut Vec<f64>) {
        match came {
            false => self.lost += 1,
            true => {
                self.late += u64::from(ns > LEASE.as_nanos() as u64);
                times(self).push(microseconds(Duration::from_nanos(ns)));
            }
        }
    }
}

/// The number of transitions that one pair has to have made.
fn due(plan: Plan, elapsed: Duration) -> u64 {
    (f64::from(plan.rate) / f64::from(plan.pairs) * elapsed.as_secs_f64()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        let (suspended_us, resumed_us) = (Vec::new(), Vec::new());
        Counts {
            transitions: 0,
            suspended_us,
            resumed_us,
            lost: 0,
            late: 0,
            expired: 0,
            lease_left_ns: 0,
            other_changes: 0,
        }
    }

    #[test]
    fn pairs_share_the_rate() {
        let plan = Plan { pairs: 4, rate: 100_000, length: Duration::from_secs(1) };
        assert_eq!(due(plan, Duration::from_secs(60)), 1_500_000);
        assert_eq!(due(plan, Duration::ZERO), 0);
    }

    #[test]
    fn wait_in_vain_is_lost_and_a_long_one_is_late() {
        let mut counts = counts();
        let lease = LEASE.as_nanos() as u64;
        counts.note(true, 5_000, |counts| &mut counts.suspended_us);
        counts.note(true, lease, |counts| &mut counts.resumed_us);
        assert_eq!((counts.lost, counts.late), (0, 0));
        counts.note(true, lease + 1, |counts| &mut counts.resumed_us);
        counts.note(false, 10 * lease, |counts| &mut counts.resumed_us);
        assert_eq!((counts.lost, counts.late), (1, 1));
        assert_eq!((counts.suspended_us.len(), counts.resumed_us.len()), (1, 2));
    }
}
