//! A policy in this process: it is asked when a queue turns ready or idle, and when it has said that time matters.
//!
//! What it holds is held for a lease only, as under a server, and as long as it holds anything it is asked again and renews that.
//! Where this thread does not get on any more, whoever looks at the queues lets them run (`xqueue`).

use super::{Board, activity, members, now};
use crate::process::Process;
use policies::Engine;
use policies::registry::Row;
use protocol::bounds::Priority;
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::{Permit, UnitId};
use protocol::page::LEASE;
use protocol::status::{Counts, QueueStatus, Queues, Status};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use xqueue::{Window, XQueue};

/// How often a lease is renewed: one renewal that comes late ends nothing.
const RENEWAL: Duration = Duration::from_millis(100);

/// Decides whenever something changes, until it is another one's turn.
pub(super) fn run(process: &'static Process, board: &Board, row: &'static Row, turn: u64) {
    let mut engine = Engine::new(row, Engine::LINGER);
    engine.set_starvation(process.base.config().starvation());
    loop {
        let state = board.state.lock();
        let seen = state.changes;
        if state.turn != turn {
            return;
        }
        // With the state locked: the lease ends with this turn.
        let lapsed = process.domain.keep_policy(LEASE);
        drop(state);
        if lapsed {
            engine.forget_decision();
        }
        let wake = decide(process, board, turn, &mut engine);
        let mut state = board.state.lock();
        if state.changes != seen {
            continue;
        }
        match wake {
            None => board.changed.wait(&mut state),
            Some(wait) => drop(board.changed.wait_for(&mut state, wait)),
        }
    }
}

/// Decides once and sets every queue's word; says after what time to decide anew.
fn decide(process: &'static Process, board: &Board, turn: u64, engine: &mut Engine) -> Option<Duration> {
    let now = now();
    let mut queues: HashMap<u64, Arc<XQueue>> = HashMap::new();
    let mut statuses = Vec::new();
    for member in members(process) {
        let (handle, queue) = (member.handle, member.queue);
        statuses.push(QueueStatus {
            queue: QueueId(handle),
            device: DeviceId(member.device),
            priority: Priority::try_from(i64::from(queue.priority())).unwrap_or_default(),
            hints: member.hints,
            level: member.level,
            activity: activity(&queue),
            counts: Counts::default(),
        });
        queues.insert(handle, queue);
    }
    let Ok(list) = Queues::try_from(statuses) else { return None };
    // Without its nice value, which is the same for all queues of a process.
    let hints = *board.hints.lock();
    let status = Status::Local { pid: Pid(std::process::id()), hints, queues: list };
    let decision = engine.decide(&status, now);
    let mut holds = false;
    board.in_turn(turn, || {
        for operation in decision.operations {
            let UnitId::Queue(id) = operation.unit else { continue };
            let Some(queue) = queues.get(&id.0) else { continue };
            // Running comes before the limit goes, and the limit before the hold: never unlimited in between.
            let Permit { run, limit, window, .. } = operation.permit;
            queue.set_policy_limit(limit.then_some(Window::from_units(window.units())));
            queue.set_policy_run(run);
            holds |= !run;
        }
    });
    let wake = decision.wake.map(|at| at.since(now).max(Duration::from_micros(20)));
    let renewal = holds.then_some(RENEWAL);
    wake.into_iter().chain(renewal).min()
}
