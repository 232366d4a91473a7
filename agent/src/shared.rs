//! State shared by the agent thread and the program's threads.

use crate::clock::{nanos, now, time_of};
use crate::evictor::Evictor;
use crate::link::{QueueSlot, ServerLink};
use crate::preemption::Preemption;
use parking_lot::{Condvar, Mutex};
use policies::registry::Row;
use protocol::hint::ProcessHints;
use protocol::time::Time;
use protocol::trace::TraceKind;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use xqueue::{Done, Observer, QueueId, Traced};

/// The interval in which the agent looks whether the hints of ended parts still count, on a queue that does not turn idle.
pub(crate) const SETTLE: Duration = Duration::from_millis(5);

/// The decider on which queues run.
#[derive(Debug, Clone, Copy, Default)]
pub enum Decider {
    /// The program itself.
    #[default]
    Program,
    /// This policy, in this process.
    Policy(&'static Row),
    /// `xserver`.
    Server,
}

/// The decider as launching threads read it.
#[derive(Debug)]
pub(crate) struct Mode(AtomicU8);

impl Mode {
    const PROGRAM: u8 = 0;
    const LOCAL: u8 = 1;
    const GLOBAL: u8 = 2;

    pub(crate) fn set(&self, decider: Decider) {
        let mode = match decider {
            Decider::Program => Self::PROGRAM,
            Decider::Policy(_) => Self::LOCAL,
            Decider::Server => Self::GLOBAL,
        };
        self.0.store(mode, Ordering::Release);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns true while the program itself decides.
    pub(crate) fn is_program(&self) -> bool {
        self.get() == Self::PROGRAM
    }

    /// Returns true while a server is to decide.
    pub(crate) fn is_global(&self) -> bool {
        self.get() == Self::GLOBAL
    }
}

/// State shared by the agent thread and the program's threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mode: Mode,
    pub(crate) link: ServerLink,
    pub(crate) evictor: Evictor,
    pub(crate) preemption: &'static Preemption,
    /// The hints for this process.
    pub(crate) hints: Mutex<ProcessHints>,
    pub(crate) state: Mutex<State>,
    /// Signalled after each change of `state`.
    pub(crate) changed: Condvar,
}

/// The decider in force, and what the agent has to look at again.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// A count of changes to queues, hints and decider.
    pub(crate) changes: u64,
    pub(crate) decider: Decider,
    /// A count of the deciders that were set.
    pub(crate) epoch: u64,
    pub(crate) has_agent: bool,
}

impl Shared {
    pub(crate) fn new(preemption: &'static Preemption) -> Self {
        Self {
            mode: Mode(AtomicU8::new(Mode::PROGRAM)),
            link: ServerLink::new(),
            evictor: Evictor::new(preemption),
            preemption,
            hints: Mutex::new(ProcessHints::default()),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }
    }

    /// Wakes the agent to look at queues, hints and decider again.
    pub(crate) fn wake(&self) {
        self.state.lock().changes += 1;
        self.changed.notify_all();
        if self.mode.is_global() {
            self.link.agent.notify_once();
        }
    }

    /// Runs `apply` if the decider of this epoch is still in force; the decider cannot change meanwhile.
    /// Returns true if it is in force.
    pub(crate) fn if_current(&self, epoch: u64, apply: impl FnOnce()) -> bool {
        let state = self.state.lock();
        if state.epoch == epoch {
            apply();
        }
        state.epoch == epoch
    }

    /// Waits until another decider is set.
    pub(crate) fn wait_for_other_decider(&self, epoch: u64) {
        let mut state = self.state.lock();
        while state.epoch == epoch {
            self.changed.wait(&mut state);
        }
    }

    /// Passes a queue's change of activity on.
    ///
    /// # Safety
    ///
    /// `tag` comes from [`QueueSlot::tag`].
    unsafe fn activity_changed(&self, tag: usize, report: impl FnOnce(&ServerLink, &QueueSlot)) {
        match self.mode.get() {
            Mode::LOCAL => self.wake(),
            // SAFETY: the contract of this function is that of `of_tag`.
            Mode::GLOBAL => report(&self.link, unsafe { QueueSlot::of_tag(tag) }),
            _ => {}
        }
    }
}

impl Shared {
    /// Writes that a queue has turned ready or idle, if somebody records.
    fn trace(&self, queue: QueueId, kind: TraceKind, value: impl FnOnce() -> u64) {
        if self.link.tracer.is_on() {
            self.link.tracer.write(now(), kind, queue.0, 0, value());
        }
    }
}

impl Observer for Shared {
    fn turned_ready(&self, queue: QueueId, tag: usize, at: Instant) {
        self.trace(queue, TraceKind::Ready, || 0);
        // SAFETY: `Scheduler::observer` requires that every queue of its domain has the tag of a `QueueSlot`.
        unsafe { self.activity_changed(tag, |link, slot| link.turned_ready(slot, time_of(at))) }
    }

    fn turned_idle(&self, queue: QueueId, tag: usize, since: Instant, done: Done) {
        self.trace(queue, TraceKind::Idle, || time_of(since).0);
        if self.mode.is_global() && self.preemption.host().has_ended_hints() {
            self.link.agent.notify_once();
        }
        // SAFETY: `Scheduler::observer` requires that every queue of its domain has the tag of a `QueueSlot`.
        unsafe { self.activity_changed(tag, |link, slot| link.turned_idle(slot, time_of(since), done)) }
    }

    fn needs_idle_report(&self) -> bool {
        self.mode.get() != Mode::GLOBAL
            || !self.link.may_stay_ready()
            || self.link.tracer.is_on()
            || self.preemption.host().has_ended_hints()
    }

    /// The local policy looks at the queues themselves, which do not tell.
    fn counts_brief(&self) -> bool {
        self.mode.get() == Mode::GLOBAL
    }

    fn turned_ready_briefly(&self, queue: QueueId, tag: usize, at: Instant, grace: Duration) {
        self.trace(queue, TraceKind::ReadyBriefly, || nanos(grace));
        // SAFETY: `Scheduler::observer` requires that every queue of its domain has the tag of a `QueueSlot`.
        unsafe {
            self.activity_changed(tag, |link, slot| link.turned_ready_briefly(slot, time_of(at), grace))
        }
    }

    fn traced_at(&self) -> u64 {
        now().0
    }

    fn traced(&self, at: u64, queue: QueueId, event: Traced) {
        self.link.tracer.traced(Time(at), queue, event);
    }
}
