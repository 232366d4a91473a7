//! Who decides which XQueues run: the program itself, or a policy in this process. (Without a server the global
//! scheduler lets all run.)
//!
//! The local scheduler is a thread, the agent, made when it is first needed. It never calls HIP: it reads which queues
//! are ready, asks the policy, and sets each queue's word. Whatever changes wakes it.

use super::{Process, get, warn_of_settings};
use crate::thread::Thread;
use parking_lot::{Condvar, Mutex};
use policies::Engine;
use policies::registry::{self, Row};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::config::SchedulerKind;
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::UnitId;
use protocol::status::{Activity, Counts, QueueStatus, Queues, Status};
use protocol::time::Time;
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xqueue::{Observer, XQueue};

/// What wakes the agent.
#[derive(Default)]
struct Board {
    /// Whether a policy decides; else nobody is woken.
    local: AtomicBool,
    state: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    changes: u64,
    /// The policy that decides.
    policy: Option<&'static Row>,
    has_agent: bool,
}

impl Board {
    fn wake(&self) {
        self.state.lock().changes += 1;
        self.changed.notify_all();
    }
}

impl Observer for Board {
    fn turned_ready(&self, _: xqueue::QueueId) {
        if self.local.load(Ordering::Acquire) {
            self.wake();
        }
    }

    fn turned_idle(&self, _: xqueue::QueueId) {
        if self.local.load(Ordering::Acquire) {
            self.wake();
        }
    }
}

/// The scheduler in force.
pub(crate) struct Scheduler {
    board: Arc<Board>,
}

impl Scheduler {
    pub(crate) fn new() -> Self {
        Self { board: Arc::new(Board::default()) }
    }

    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        self.board.clone()
    }

    /// As the environment says, when queues come into being.
    pub(crate) fn begin(&self, process: &'static Process) {
        let config = &process.base.config;
        if config.auto.enabled {
            warn_of_settings(config);
        }
        if config.scheduler_in_force() == SchedulerKind::Local {
            let row = config.policy.and_then(registry::find).unwrap_or(registry::DEFAULT);
            self.decide_by(process, Some(row));
        }
    }

    /// Lets a policy decide from now on, or, with none, nobody: then everything that a policy held runs.
    pub(crate) fn decide_by(&self, process: &'static Process, row: Option<&'static Row>) {
        let mut state = self.board.state.lock();
        state.policy = row;
        state.changes += 1;
        self.board.local.store(row.is_some(), Ordering::Release);
        let start = row.is_some() && !state.has_agent;
        state.has_agent |= start;
        drop(state);
        self.board.changed.notify_all();
        if start {
            let board = self.board.clone();
            let agent = std::thread::Builder::new().name("giveway-agent".into());
            if let Err(error) = agent.spawn(move || run(process, &board)) {
                tracing::error!(%error, "no agent thread: queues run unscheduled");
                self.board.state.lock().has_agent = false;
                self.board.local.store(false, Ordering::Release);
            }
        }
        if row.is_none() {
            release(process);
        }
    }

    /// A queue came, went, or got another priority.
    pub(crate) fn changed(&self, _: &'static Process) {
        if self.board.local.load(Ordering::Acquire) {
            self.board.wake();
        }
    }
}

/// Takes back what a policy has set.
fn release(process: &Process) {
    for stream in process.queued.lock().iter().filter(|stream| stream.handle() != 0) {
        if let Some(queue) = stream.queue() {
            queue.set_policy_run(true);
            queue.set_policy_limit(true);
        }
    }
}

fn now() -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the time that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The agent's loop; it ends with the process.
fn run(process: &'static Process, board: &Board) {
    Thread::current().adopt();
    block_signals();
    let mut engine: Option<Engine> = None;
    let mut since = HashMap::new();
    loop {
        let state = board.state.lock();
        let (seen, policy) = (state.changes, state.policy);
        drop(state);
        if !get().is_some_and(|current| ptr::eq(current, process)) {
            return;
        }
        let mut wake = None;
        match policy {
            None => {
                engine = None;
                release(process);
            }
            Some(row) => {
                let engine = engine.get_or_insert_with(|| Engine::new(row, Engine::LINGER));
                if !ptr::eq(engine.policy(), row) {
                    engine.set_policy(row);
                }
                wake = decide(process, engine, &mut since);
            }
        }
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
fn decide(
    process: &'static Process,
    engine: &mut Engine,
    since: &mut HashMap<u64, Time>,
) -> Option<Duration> {
    let now = now();
    let mut queues: HashMap<u64, Arc<XQueue>> = HashMap::new();
    let mut statuses = Vec::new();
    for stream in process.queued.lock().iter() {
        let (handle, Some(queue)) = (stream.handle(), stream.queue()) else { continue };
        if handle == 0 {
            continue;
        }
        let activity = if queue.is_ready() {
            Activity::Ready { since: *since.entry(handle).or_insert(now) }
        } else {
            since.remove(&handle);
            let span = |idle: Duration| u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
            Activity::Idle { since: queue.idle_for().map(|idle| Time(now.0.saturating_sub(span(idle)))) }
        };
        statuses.push(QueueStatus {
            queue: QueueId(handle),
            device: DeviceId(stream.hw.device()),
            priority: Priority::try_from(i64::from(queue.priority())).unwrap_or_default(),
            level: PreemptLevel::Block,
            activity,
            counts: Counts::default(),
        });
        queues.insert(handle, queue.clone());
    }
    since.retain(|handle, _| queues.contains_key(handle));
    let Ok(list) = Queues::try_from(statuses) else { return None };
    let status = Status::Local { pid: Pid(std::process::id()), queues: list };
    let decision = engine.decide(&status, now);
    for operation in decision.operations {
        let UnitId::Queue(id) = operation.unit else { continue };
        let Some(queue) = queues.get(&id.0) else { continue };
        // Running comes before the limit goes, and the limit before the hold: never unlimited in between.
        queue.set_policy_limit(operation.permit.limit);
        queue.set_policy_run(operation.permit.run);
    }
    decision.wake.map(|at| at.since(now).max(Duration::from_micros(20)))
}

/// The program's signals are for the program's threads.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: fills the set that it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled above; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut()) };
}
