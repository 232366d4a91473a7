//! Who decides which XQueues run: the program itself, a policy in this process (`local.rs`), or a server for all
//! processes (`global.rs`).
//!
//! Whoever it is but the program works on a thread, the agent, made when it is first needed. It never calls HIP: it
//! reads which queues are ready and sets permission words. Program threads only say who decides, and that something
//! changed; the agent sets a word only while it holds `state` and is still meant to, so that nothing that it had in mind
//! outlives a change of mind.

mod chaos;
pub(crate) mod desk;
mod global;
mod hold;
mod local;

use super::{Process, get, warn_of_settings};
use crate::kfd;
use crate::thread::Thread;
use desk::{Desk, Line};
use hold::Holder;
pub(crate) use hold::Pause;
use parking_lot::{Condvar, Mutex};
use policies::registry::{self, Row};
use protocol::codes::PreemptLevel;
use protocol::config::{SchedulerKind, TestMode};
use protocol::cost::{CostKey, HoldCost};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::status::Activity;
use protocol::time::Time;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use xqueue::{Observer, Permission, Window, XQueue};

/// Who decides.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Decider {
    /// The program.
    #[default]
    Program,
    /// This policy, in this process.
    Policy(&'static Row),
    /// `xserver`.
    Server,
}

/// What the launching threads have to know of the decider.
const NOBODY: u8 = 0;
const LOCAL: u8 = 1;
const GLOBAL: u8 = 2;

impl Decider {
    fn told(self) -> u8 {
        match self {
            Self::Program => NOBODY,
            Self::Policy(_) => LOCAL,
            Self::Server => GLOBAL,
        }
    }
}

/// What the agent and the program's threads share.
pub(crate) struct Board {
    /// The decider, for launching threads.
    told: AtomicU8,
    /// To the server.
    line: Line,
    /// Takes queues off the hardware.
    hold: Holder,
    /// What is said of this process.
    hints: Mutex<ProcessHints>,
    state: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    changes: u64,
    decider: Decider,
    /// Counts how often the decider was set.
    turn: u64,
    has_agent: bool,
}

impl Board {
    fn new() -> Self {
        Self {
            told: AtomicU8::new(NOBODY),
            line: Line::new(),
            hold: Holder::new(),
            hints: Mutex::new(ProcessHints::default()),
            state: Mutex::new(Wanted::default()),
            changed: Condvar::new(),
        }
    }

    fn wake(&self) {
        self.state.lock().changes += 1;
        self.changed.notify_all();
        if self.told.load(Ordering::Acquire) == GLOBAL {
            self.line.alarm.ring();
        }
    }

    /// Runs `apply` if the decider is still the one of this turn; nobody changes it meanwhile.
    fn in_turn(&self, turn: u64, apply: impl FnOnce()) -> bool {
        let state = self.state.lock();
        if state.turn == turn {
            apply();
        }
        state.turn == turn
    }
}

impl Observer for Board {
    fn turned_ready(&self, _: xqueue::QueueId, tag: usize) {
        match self.told.load(Ordering::Acquire) {
            LOCAL => self.wake(),
            // SAFETY: every queue of this domain is made with the address of its stream's desk as its tag, and streams
            // are never freed.
            GLOBAL => self.line.turned_ready(unsafe { Desk::of_tag(tag) }),
            _ => {}
        }
    }

    fn turned_idle(&self, _: xqueue::QueueId, tag: usize) {
        match self.told.load(Ordering::Acquire) {
            LOCAL => self.wake(),
            // SAFETY: as above.
            GLOBAL => self.line.turned_idle(unsafe { Desk::of_tag(tag) }),
            _ => {}
        }
    }
}

/// The scheduler in force.
pub(crate) struct Scheduler {
    board: Arc<Board>,
}

impl Scheduler {
    pub(crate) fn new() -> Self {
        Self { board: Arc::new(Board::new()) }
    }

    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        self.board.clone()
    }

    /// As the environment says, when queues come into being.
    pub(crate) fn begin(&self, process: &'static Process) {
        let config = process.base.config();
        if config.auto.enabled {
            warn_of_settings(config);
            *self.board.hints.lock() = config.auto.hints.process;
        }
        match config.scheduler_in_force() {
            SchedulerKind::App => {
                if let Some(TestMode::Chaos(seed)) = config.test
                    && config.auto.level > 1
                {
                    chaos::start(process, &self.board, seed);
                }
            }
            SchedulerKind::Local => {
                let row = config.policy.and_then(registry::find).unwrap_or(registry::DEFAULT);
                self.decide_by(process, Decider::Policy(row));
            }
            SchedulerKind::Global => self.decide_by(process, Decider::Server),
        }
    }

    /// Says who decides from now on. What another one had set is taken back at once: everything runs within its window
    /// until the new one has decided.
    pub(crate) fn decide_by(&self, process: &'static Process, decider: Decider) {
        let mut state = self.board.state.lock();
        if matches!((state.decider, decider), (Decider::Server, Decider::Server)) {
            return;
        }
        state.decider = decider;
        state.changes += 1;
        state.turn += 1;
        self.board.told.store(decider.told(), Ordering::Release);
        release(process, matches!(decider, Decider::Server));
        let start = !matches!(decider, Decider::Program) && !state.has_agent;
        state.has_agent |= start;
        drop(state);
        self.board.changed.notify_all();
        self.board.line.alarm.ring();
        if !matches!(decider, Decider::Server) {
            kfd::stop_waiting();
        }
        if start {
            let board = self.board.clone();
            let agent = std::thread::Builder::new().name("giveway-agent".into());
            if let Err(error) = agent.spawn(move || run(process, &board)) {
                tracing::error!(%error, "no agent thread: queues run unscheduled");
                let mut state = self.board.state.lock();
                state.has_agent = false;
                state.decider = Decider::Program;
                self.board.told.store(NOBODY, Ordering::Release);
            }
        }
    }

    /// Whether the server is to decide.
    pub(crate) fn expects_server(&self) -> bool {
        self.board.told.load(Ordering::Acquire) == GLOBAL
    }

    /// What it knows of a hold's cost, as it said last.
    pub(crate) fn cost_from_server(&self, key: CostKey) -> Option<HoldCost> {
        let page = self.board.line.pages_in_use()?.server();
        page.costs.iter().find_map(|words| words.load(key))
    }

    /// For a call of the program's that must find no queue off the hardware; until the answer is dropped.
    pub(crate) fn pause_holds<'a>(&'a self, process: &'a Process) -> Option<Pause<'a>> {
        self.board.hold.pause(&process.domain, &self.board.line)
    }

    /// The process ends: no queue stays off the hardware. Returns how often some were off it.
    pub(crate) fn end_holds(&self) -> u64 {
        self.board.hold.end()
    }

    /// Changes what is said of this process.
    pub(crate) fn hint(&self, change: impl FnOnce(&mut ProcessHints)) {
        change(&mut self.board.hints.lock());
        self.changed();
    }

    /// A queue came, went, or got another priority, level or hint, or the process got one.
    pub(crate) fn changed(&self) {
        if self.board.told.load(Ordering::Acquire) != NOBODY {
            self.board.wake();
        }
    }
}

/// Takes back what a policy or a server has set. The window of each queue is in its own word, or, where the permission of
/// the whole process counts, there: it is set in the one before it is taken out of the other.
fn release(process: &Process, server: bool) {
    process.domain.end_policy();
    if server {
        process.domain.store_permission(Permission::limited());
    }
    for stream in process.queued.lock().iter().filter(|stream| stream.handle() != 0) {
        if let Some(queue) = stream.queue() {
            queue.set_policy_limit(Some(Window::DEFAULT));
            queue.set_policy_run(true);
        }
    }
    if !server {
        process.domain.store_permission(Permission::unlimited());
    }
}

/// What a queue does, and since when: the same time whenever somebody looks, so that no order by it changes meanwhile.
fn activity(queue: &XQueue) -> Activity {
    match queue.ready_since() {
        Some(since) => Activity::Ready { since: time_of(since) },
        None => Activity::Idle { since: queue.idle_since().map(time_of) },
    }
}

/// A moment of the past as [`now`] has it.
fn time_of(moment: Instant) -> Time {
    /// One moment on both clocks, of several the one for which they were read the fastest.
    static BOTH: LazyLock<(Duration, Instant, Time)> = LazyLock::new(|| {
        let look = || {
            let (instant, time) = (Instant::now(), now());
            (instant.elapsed(), instant, time)
        };
        (0..8).map(|_| look()).min().unwrap_or_else(look)
    });
    let (_, instant, time) = *BOTH;
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let after = nanos(moment.saturating_duration_since(instant));
    let before = nanos(instant.saturating_duration_since(moment));
    Time(time.0.saturating_add(after).saturating_sub(before))
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now() -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the time that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// The agent's loop; it ends with the process.
fn run(process: &'static Process, board: &Arc<Board>) {
    Thread::current().adopt();
    block_signals();
    let mut client = None;
    loop {
        let state = board.state.lock();
        let (seen, decider, turn) = (state.changes, state.decider, state.turn);
        drop(state);
        if !get().is_some_and(|current| ptr::eq(current, process)) {
            return;
        }
        match decider {
            Decider::Program => {
                let mut state = board.state.lock();
                if state.changes == seen {
                    board.changed.wait(&mut state);
                }
            }
            Decider::Policy(row) => local::run(process, board, row, turn),
            Decider::Server => {
                let client = client.get_or_insert_with(|| global::Client::of(process, board));
                client.run(turn);
            }
        }
    }
}

/// The domain whose permissions a decider sets, and the queues that it is told of.
struct Member {
    handle: u64,
    /// The device's KFD id.
    device: u32,
    level: PreemptLevel,
    hints: QueueHints,
    queue: Arc<xqueue::XQueue>,
    desk: &'static Desk,
}

/// The queues that have an XQueue.
fn members(process: &Process) -> Vec<Member> {
    let mut members = Vec::new();
    for stream in process.queued.lock().iter() {
        if let (handle @ 1.., Some(queue)) = (stream.handle(), stream.queue()) {
            let device = process.devices.id(stream.hw.device());
            let (level, hints) = (stream.level(), stream.hints());
            let (queue, desk) = (queue.clone(), stream.desk());
            members.push(Member { handle, device, level, hints, queue, desk });
        }
    }
    members
}

/// The program's signals are for the program's threads.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: fills the set that it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled above; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_one_time() {
        let moment = Instant::now();
        let time = time_of(moment);
        let span = Duration::from_millis(5);
        assert_eq!(time_of(moment), time);
        assert_eq!(time_of(moment + span), time.after(span));
        assert_eq!(time_of(moment - span).after(span), time);
    }
}
