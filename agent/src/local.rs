//! The local scheduler: a policy in this process. It decides when a queue turns ready or idle, and at the
//! times that it asks for.
//!
//! Its suspensions end with a lease, as those of a server do. While it suspends any queue it decides at least
//! once per renewal interval and renews the lease. If this thread is stuck, `xqueue` ends the suspensions
//! when the lease expires.

use crate::clock::{activity, now};
use crate::shared::{SETTLE, Shared};
use policies::Engine;
use policies::registry::Row;
use protocol::bounds::Priority;
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::{EntityId, Permit};
use protocol::page::LEASE;
use protocol::status::{Counts, QueueStatus, Queues, Status};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use xqueue::{Domain, Window, XQueue};

/// The interval of lease renewals: one late renewal does not let the lease expire.
const RENEWAL: Duration = Duration::from_millis(100);

/// Decides whenever something changes, until another decider is set.
pub(crate) fn run(domain: &'static Domain, shared: &Shared, row: &'static Row, epoch: u64) {
    let mut engine = Engine::new(row, Engine::LINGER);
    if let Some(config) = shared.preemption.host().config() {
        engine.set_starvation_limit(config.starvation());
    }
    loop {
        let hints_end = shared.preemption.host().settle_hints();
        let state = shared.state.lock();
        let seen = state.changes;
        if state.epoch != epoch {
            return;
        }
        // Under the lock, so that the lease ends when another decider is set.
        let lapsed = domain.renew_policy_lease(LEASE);
        drop(state);
        if lapsed {
            engine.forget_decision();
        }
        let wake = decide(shared, epoch, &mut engine);
        let mut state = shared.state.lock();
        if state.changes != seen {
            continue;
        }
        match wake.into_iter().chain(hints_end.then_some(SETTLE)).min() {
            None => shared.changed.wait(&mut state),
            Some(wait) => drop(shared.changed.wait_for(&mut state, wait)),
        }
    }
}

/// Decides once and sets every queue's permission. Returns the time until the next decision.
fn decide(shared: &Shared, epoch: u64, engine: &mut Engine) -> Option<Duration> {
    let now = now();
    let mut queues: HashMap<u64, Arc<XQueue>> = HashMap::new();
    let mut statuses = Vec::new();
    for managed in shared.preemption.host().queues() {
        let (handle, queue) = (managed.handle, managed.queue);
        statuses.push(QueueStatus {
            queue: QueueId(handle),
            device: DeviceId(managed.device),
            priority: Priority::try_from(i64::from(queue.priority())).unwrap_or_default(),
            hints: managed.hints,
            level: managed.level,
            activity: activity(&queue),
            counts: Counts::default(),
        });
        queues.insert(handle, queue);
    }
    let Ok(list) = Queues::try_from(statuses) else { return None };
    // The nice value is left out: it is the same for all queues of a process.
    let hints = *shared.hints.lock();
    let status = Status::Local { pid: Pid(std::process::id()), hints, queues: list };
    let decision = engine.decide(&status, now);
    let mut suspends = false;
    shared.if_current(epoch, || {
        for operation in decision.operations {
            let EntityId::Queue(id) = operation.unit else { continue };
            let Some(queue) = queues.get(&id.0) else { continue };
            // In this order no queue runs without a limit in between.
            let Permit { run, limit, window, .. } = operation.permit;
            queue.set_policy_limit(limit.then_some(Window::from_units(window.units())));
            queue.set_policy_run(run);
            suspends |= !run;
        }
    });
    let wake = decision.wake.map(|at| at.since(now).max(Duration::from_micros(20)));
    let renewal = suspends.then_some(RENEWAL);
    wake.into_iter().chain(renewal).min()
}
