//! Levels 2 and 3: the evictor decides whether a suspension evicts the process's hardware queues, and evicts
//! and restores them.
//!
//! The permission has stopped the launches before the evictor runs. Work in flight then ends by itself, or
//! its queues are evicted until the process may run again, whichever is expected to cost less
//! ([`Costs::decide`]). Every thread that sees the permission change calls [`Evictor::step`], and calls it
//! again when the result says so. Each step reads the permission again under the lock, so the last thread to
//! read it decides. No step calls HIP.
//!
//! Where the policy leaves suspended programs a share of the compute units, the evictor limits the queues to it
//! instead, and the program goes on slowly beside the urgent one.
//!
//! An eviction covers all devices of the process or none.

mod cost;
mod report;
mod window;

use crate::clock::{now, time_of};
use crate::link::ServerLink;
use crate::preemption::{HardwareQueues, Preemption, RETRY, TRIES};
use cost::Costs;
use hal_kfd::Outcome;
use hal_kfd::registry::Marker;
use parking_lot::Mutex;
use protocol::cost::CostOrigin;
use protocol::trace::TraceKind;
use report::{Logged, Report};
use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use window::Window;
use xqueue::{Domain, Outstanding, Permission, Snapshot};

/// The first pause until the evicted process is checked again: a launch decided before the suspension may
/// reach a queue that had no work. Each further pause is twice as long.
const FIRST_CHECK: Duration = Duration::from_micros(50);
/// The longest such pause.
const LAST_CHECK: Duration = Duration::from_millis(20);
/// The longest pause until a suspended process with a share and without work is checked again.
const LAST_IDLE_CHECK: Duration = Duration::from_millis(2);
/// The time that the watcher needs for one check for completion.
const WATCHER_CHECK: Duration = Duration::from_micros(80);
/// The checks after which the watcher knows: it sees that launches have stopped, records a marker, and finds
/// it complete.
const WATCHER_CHECKS: u8 = 3;
/// The time after which a marker that has not completed is given up.
const MARKER_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The process runs, or is suspended at level 1.
    Running,
    /// Costs are not compared yet, because nothing is in flight. A launch under way is usually in flight
    /// soon. One that is not by `until` may have work on the hardware before it is counted.
    Begun { until: Instant },
    /// Waits for the work in flight. At `until`, waiting has proved the wrong choice; with `None` the next
    /// step evicts.
    Waiting {
        until: Option<Instant>,
        /// The number of checks for completion since the expected duration is over.
        checks: u8,
    },
    /// The queues with work are evicted. They are checked again after this pause.
    Evicted { pause: Duration },
    /// The process has a share of the compute units, but had no work when it was last checked. It is checked again
    /// after this pause.
    Idle { pause: Duration },
    /// The queues are limited to a share of the compute units, and the process launches. Queues that are used for the
    /// first time are limited at the next check, after this pause.
    Limited { pause: Duration },
    /// An eviction failed. Work in flight is waited for.
    Failed,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    costs: Option<Costs>,
    /// The hardware queues' write positions at a moment, and the completion snapshot that covers them.
    pending_idle: Option<(Vec<Marker>, Snapshot, Instant)>,
    report: Report,
    logged: Logged,
    window: Window,
    /// True if the known cost of evictions has changed since the scheduler was told.
    learnt: bool,
}

/// Evicts and restores the hardware queues of the process.
#[derive(Debug)]
pub(crate) struct Evictor {
    preemption: &'static Preemption,
    state: Mutex<State>,
    /// The number of calls under way during which nothing is evicted.
    pauses: AtomicU32,
    ended: AtomicBool,
    /// True if every suspension evicts, whatever it costs (a test mode).
    always: AtomicBool,
}

/// A guard during which no queue is evicted.
#[derive(Debug)]
pub struct EvictionPause<'a> {
    evictor: &'a Evictor,
    domain: &'a Domain,
    link: &'a ServerLink,
}

impl Drop for EvictionPause<'_> {
    fn drop(&mut self) {
        self.evictor.pauses.fetch_sub(1, Ordering::SeqCst);
        if self.evictor.step(self.domain, self.link).is_some() {
            // The listener may sleep, and has to call `step` again.
            self.link.wake_listener();
        }
    }
}

impl Evictor {
    pub(crate) fn new(preemption: &'static Preemption) -> Self {
        let state = State {
            phase: Phase::Running,
            costs: None,
            pending_idle: None,
            report: Report::default(),
            logged: Logged::default(),
            window: Window::new(),
            learnt: false,
        };
        Self {
            preemption,
            state: Mutex::new(state),
            pauses: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            always: AtomicBool::new(false),
        }
    }

    /// Makes every suspension evict from now on.
    pub(crate) fn evict_always(&self) {
        self.always.store(true, Ordering::SeqCst);
    }

    /// Sets the least window from now on, by what is known of evictions; `interrupts` is true if they interrupt
    /// kernels.
    pub(crate) fn set_interrupts(&self, domain: &Domain, interrupts: bool) {
        let mut state = self.state.lock();
        state.window.set_interrupts(interrupts);
        state.update_window(domain);
    }

    /// Applies the permission in force. Returns the time after which to call this again even if nothing
    /// changes.
    pub(crate) fn step(&self, domain: &Domain, link: &ServerLink) -> Option<Duration> {
        let Some(queues) = self.preemption.queues() else {
            let _state = self.state.lock();
            self.take_place(domain.permission());
            // The queues are not followed any more, and nothing limits them.
            domain.set_in_share(false);
            return None;
        };
        let mut state = self.state.lock();
        // Once the process is ending, the runtime frees its queues' memory without destroying the queues.
        if self.has_ended() {
            return None;
        }
        let was_off = matches!(state.phase, Phase::Evicted { .. });
        let permission = domain.permission();
        self.take_place(permission);
        let free = permission.run() || permission.level() < 2;
        // Limited queues still run, so a call that waits for them returns.
        let limited = matches!(state.phase, Phase::Limited { .. }) && permission.share() != 0;
        let paused = !free && self.pauses.load(Ordering::SeqCst) != 0;
        if paused && !limited && domain.outstanding().commands != 0 {
            // This suspension waits for what is in flight.
            state.window.note(false);
        }
        let again = if paused && limited {
            Some(LAST_CHECK)
        } else if free || paused {
            state.run(queues, domain).or(paused.then_some(LAST_CHECK))
        } else {
            let always = self.always.load(Ordering::SeqCst);
            state.suspend(queues, domain, permission, always)
        };
        let is_off = matches!(state.phase, Phase::Evicted { .. });
        if was_off && !is_off {
            link.tracer.write(now(), TraceKind::Restored, 0, 0, 0);
        }
        if let Some((asked, answered)) = state.report.last.filter(|_| is_off) {
            let (asked, answered) = (time_of(asked), time_of(answered));
            link.tracer.write(asked, TraceKind::Evict, 0, 0, 0);
            link.tracer.write(answered, TraceKind::Evicted, 0, 0, 0);
        }
        if let Some(pages) = link.reserved_pages() {
            // Before the first suspension, the general cost of evictions is shown.
            let origin = queues.origin();
            let known = || (origin != CostOrigin::None).then(|| Costs::of(queues)).flatten();
            let costs = state.costs.or_else(known);
            state.report.write(costs, origin, pages.header(), link);
        }
        state.update_window(domain);
        let learnt = mem::take(&mut state.learnt);
        let given_up = state.phase == Phase::Failed && queues.registry.given_up().is_some();
        drop(state);
        if given_up || learnt {
            self.preemption.host().level_changed();
        }
        again
    }

    /// Lets the queues go before those of other processes, or not. A suspended process keeps its place until it runs.
    fn take_place(&self, permission: Permission) {
        if permission.run() {
            self.preemption.put_first(permission.is_first());
        }
    }

    /// Restores all queues for a call that must find none evicted, and evicts none until the result is
    /// dropped.
    pub(crate) fn pause<'a>(&'a self, domain: &'a Domain, link: &'a ServerLink) -> Option<EvictionPause<'a>> {
        self.preemption.queues()?;
        self.pauses.fetch_add(1, Ordering::SeqCst);
        let pause = EvictionPause { evictor: self, domain, link };
        self.restore(domain, link);
        Some(pause)
    }

    /// Applies the permission, and repeats failed requests to restore. For callers that do not call
    /// [`Self::step`] again.
    pub(crate) fn restore(&self, domain: &Domain, link: &ServerLink) {
        for _ in 0..TRIES {
            let _ = self.step(domain, link);
            if self.preemption.queues().is_none_or(|queues| !queues.registry.has_pending()) {
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Restores all queues at the end of the process; none is evicted from then on. Returns the number of
    /// evictions.
    pub(crate) fn end(&self) -> u64 {
        self.ended.store(true, Ordering::SeqCst);
        let state = self.state.lock();
        self.preemption.shut_down();
        state.report.evictions
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl State {
    fn update_window(&self, domain: &Domain) {
        // At level 1 nothing is evicted, whatever is possible.
        let evicts = domain.permission().level() >= 2;
        let least = evicts.then(|| self.window.least(self.costs.as_ref().map(Costs::both)));
        domain.set_least_window(least.unwrap_or_default());
    }

    /// Restores the queues: the process may run.
    fn run(&mut self, queues: &HardwareQueues, domain: &Domain) -> Option<Duration> {
        // First: the process may be suspended all the same, and only without evictions for a while.
        domain.set_in_share(false);
        // Limits stay behind where the process had a share at first and then none.
        let held =
            if self.phase == Phase::Running { BTreeSet::new() } else { queues.registry.held_devices() };
        if !held.is_empty() {
            let evicted = matches!(self.phase, Phase::Evicted { .. });
            let mut learnt = false;
            let outcome = for_all(&held, |gpu_id| {
                let outcome = queues.registry.restore(gpu_id);
                if outcome.requests != 0 && outcome.error.is_none() {
                    learnt |= queues.learn_restore(gpu_id, time_per_request(outcome));
                }
                outcome
            });
            self.learnt |= learnt;
            domain.forget_times();
            if let Some(costs) = self.costs.as_mut().filter(|_| evicted && outcome.requests != 0) {
                costs.learn_restore(outcome.took);
            }
            match outcome.error {
                Some(errno) if outcome.unsettled == 0 => self.logged.repeated(errno),
                Some(errno) => self.logged.not_restored(errno),
                None => {}
            }
        }
        if self.phase != Phase::Running {
            self.phase = Phase::Running;
            self.find_idle_queues(queues, domain);
        }
        reconcile(queues)
    }

    /// Finds the hardware queues without work, although the program never waits for all of its work: a queue
    /// that was not written since a moment is idle once all work launched until that moment has completed.
    fn find_idle_queues(&mut self, queues: &HardwareQueues, domain: &Domain) {
        match &self.pending_idle {
            Some((marks, snapshot, _)) if domain.is_complete(snapshot) => {
                marks.iter().for_each(|mark| queues.registry.note_complete(mark));
                self.pending_idle = None;
            }
            Some((.., since)) if since.elapsed() < MARKER_TIMEOUT => return,
            _ => {}
        }
        // The write positions are read before the snapshot: what is written by then was launched, or is being
        // launched.
        let marks = queues.mark_all();
        self.pending_idle = domain.snapshot().map(|snapshot| (marks, snapshot, Instant::now()));
    }

    /// Evicts the queues, or waits for their work: the process is suspended.
    fn suspend(
        &mut self,
        queues: &HardwareQueues,
        domain: &Domain,
        permission: Permission,
        always: bool,
    ) -> Option<Duration> {
        let share = permission.share();
        if share != 0 && matches!(self.phase, Phase::Evicted { .. }) && queues.can_limit(share) {
            // It was evicted for one that leaves no share.
            let _ = self.run(queues, domain);
        }
        let now = Instant::now();
        let mut outstanding = domain.outstanding();
        if self.phase == Phase::Running {
            let Some(costs) = Costs::of(queues) else {
                self.log_given_up(queues);
                self.phase = Phase::Failed;
                return reconcile(queues);
            };
            self.costs.get_or_insert(costs).begin();
            self.phase = Phase::Begun { until: now + FIRST_CHECK };
        }
        if share != 0
            && let Some(pause) = self.keep_to_share(queues, domain, outstanding, share)
        {
            return Some(pause);
        }
        if let Phase::Idle { .. } | Phase::Limited { .. } = self.phase {
            // It has no share any more. Launches stop before anything is evicted.
            domain.set_in_share(false);
            outstanding = domain.outstanding();
            self.phase = Phase::Begun { until: now + FIRST_CHECK };
        }
        if let Phase::Begun { until } = self.phase {
            self.phase = if always || outstanding.commands != 0 {
                self.choose(queues, domain, now, outstanding, permission, always)
            } else if outstanding.launching && now >= until {
                Phase::Waiting { until: None, checks: 0 }
            } else if outstanding.launching {
                self.phase
            } else {
                Phase::Begun { until: now + FIRST_CHECK }
            };
        }
        match self.phase {
            Phase::Running | Phase::Failed | Phase::Idle { .. } | Phase::Limited { .. } => reconcile(queues),
            Phase::Begun { until } => outstanding.launching.then(|| until - now),
            Phase::Waiting { until: Some(until), .. } if now < until => Some(until - now),
            Phase::Waiting { until: Some(_), checks }
                if checks < WATCHER_CHECKS && outstanding.commands != 0 =>
            {
                // The work may have completed long ago: completion is not checked for where nothing may be
                // launched.
                domain.wake_watcher();
                self.phase = Phase::Waiting { until: Some(now + WATCHER_CHECK), checks: checks + 1 };
                Some(WATCHER_CHECK)
            }
            // Nothing is left to evict.
            Phase::Waiting { .. } if outstanding.commands == 0 && !outstanding.launching && !always => {
                self.phase = Phase::Begun { until: now + FIRST_CHECK };
                None
            }
            Phase::Waiting { .. } => {
                self.evict(queues, domain, FIRST_CHECK);
                self.next_check(queues, outstanding)
            }
            Phase::Evicted { pause } => {
                self.evict(queues, domain, (pause * 2).min(LAST_CHECK));
                self.next_check(queues, outstanding)
            }
        }
    }

    /// Chooses between evicting the work in flight and waiting for it.
    fn choose(
        &mut self,
        queues: &HardwareQueues,
        domain: &Domain,
        now: Instant,
        outstanding: Outstanding,
        permission: Permission,
        always: bool,
    ) -> Phase {
        self.report.expected = outstanding.remaining;
        let costs = self.costs.get_or_insert_default();
        let with_work = queues.count_with_work();
        let evicts = costs.decide(with_work, outstanding.remaining, permission.bystanders()) || always;
        let [evict, restore] = costs.medians();
        tracing::trace!(
            expected_us = outstanding.remaining.map(|expected| expected.as_micros() as u64),
            hold_us = evict.as_micros() as u64,
            release_us = restore.as_micros() as u64,
            queues = with_work,
            bystanders = permission.bystanders(),
            holds = evicts,
            "suspended"
        );
        if evicts {
            return Phase::Waiting { until: None, checks: 0 };
        }
        self.report.waits += 1;
        if outstanding.remaining > Some(window::NARROW) {
            self.window.note(false);
        }
        // The watcher begins to see that launches have stopped.
        domain.wake_watcher();
        // If the work still runs when an eviction would have paid, its expected duration was wrong.
        let until = now + outstanding.remaining.unwrap_or_default() + costs.both();
        Phase::Waiting { until: Some(until), checks: 0 }
    }

    /// Returns the time after which to check the evicted process again.
    fn next_check(&self, queues: &HardwareQueues, outstanding: Outstanding) -> Option<Duration> {
        match self.phase {
            Phase::Evicted { pause } => (outstanding.commands != 0 || outstanding.launching).then_some(pause),
            _ => queues.registry.has_pending().then_some(RETRY),
        }
    }

    /// Keeps the process within its share of the compute units, in 64ths. Returns the time after which to check it
    /// again; `None` if that is not possible, so that the suspension evicts or waits.
    fn keep_to_share(
        &mut self,
        queues: &HardwareQueues,
        domain: &Domain,
        outstanding: Outstanding,
        share: u8,
    ) -> Option<Duration> {
        let pause = match self.phase {
            Phase::Begun { .. } => FIRST_CHECK,
            Phase::Idle { pause } => (pause * 2).min(LAST_IDLE_CHECK),
            Phase::Limited { pause } => (pause * 2).min(LAST_CHECK),
            _ => return None,
        };
        if !queues.can_limit(share) {
            self.log_not_limited(queues);
            return None;
        }
        // A change of the masks stops other processes for a moment, so a process without work is left alone.
        let works = outstanding.commands != 0 || outstanding.launching || domain.has_pending();
        if !works && !matches!(self.phase, Phase::Limited { .. }) {
            self.phase = Phase::Idle { pause };
            return Some(pause);
        }
        self.limit(queues, domain, share, pause).then_some(pause)
    }

    /// Limits the queues that were used and are not limited yet. Returns false if that is not possible.
    fn limit(&mut self, queues: &HardwareQueues, domain: &Domain, share: u8, pause: Duration) -> bool {
        let first = !matches!(self.phase, Phase::Limited { .. });
        let mut refused = false;
        let outcome = for_all(&queues.registry.devices(), |gpu_id| {
            let outcome = if refused { None } else { queues.limit(gpu_id, share) };
            refused |= outcome.is_none();
            outcome.unwrap_or_default()
        });
        if refused {
            self.log_not_limited(queues);
            // Launches stop before the limits are removed.
            domain.set_in_share(false);
            let _ = for_all(&queues.registry.held_devices(), |gpu_id| queues.registry.restore(gpu_id));
            return false;
        }
        if outcome.requests != 0 {
            self.count_held(first, &outcome);
        }
        self.phase = Phase::Limited { pause };
        domain.set_in_share(true);
        if let Some(errno) = outcome.error {
            self.logged.repeated(errno);
        }
        true
    }

    /// Counts a suspension in which queues were evicted or limited. `first`: none was before in this suspension.
    fn count_held(&mut self, first: bool, outcome: &Outcome) {
        self.report.last = outcome.asked_at.map(|asked| (asked, Instant::now()));
        self.report.evictions += u64::from(first || self.report.evictions == 0);
        if first {
            self.window.note(true);
        }
    }

    /// Counts queues that were evicted, and learns from it.
    fn note_evicted(&mut self, first: bool, outcome: &Outcome) {
        self.count_held(first, outcome);
        match &mut self.costs {
            Some(costs) if first => costs.learn_eviction(outcome.queues, outcome.took),
            Some(costs) => costs.note_further_evictions(),
            None => {}
        }
    }

    /// Evicts the queues that have work and are not evicted yet.
    fn evict(&mut self, queues: &HardwareQueues, domain: &Domain, pause: Duration) {
        let first = !matches!(self.phase, Phase::Evicted { .. });
        let mut refused = false;
        let outcome = for_all(&queues.registry.devices(), |gpu_id| {
            let outcome = queues.evict(gpu_id);
            if outcome.unsettled != 0 {
                queues.learn_eviction(gpu_id, None);
                self.learnt = true;
            } else if first && outcome.requests != 0 && outcome.error.is_none() {
                refused |= !queues.learn_eviction(gpu_id, Some(time_per_request(outcome)));
            }
            outcome
        });
        self.learnt |= refused;
        let failed = outcome.unsettled != 0 || refused || queues.registry.given_up().is_some();
        if outcome.requests != 0 && !failed {
            domain.forget_times();
            self.note_evicted(first, &outcome);
        }
        self.phase = Phase::Evicted { pause };
        match outcome.error {
            _ if failed => self.back_out(queues, domain, &outcome),
            Some(errno) => self.logged.repeated(errno),
            None => {}
        }
    }

    /// Restores everything after a failed eviction: this suspension is one of level 1.
    fn back_out(&mut self, queues: &HardwareQueues, domain: &Domain, outcome: &Outcome) {
        if queues.registry.given_up().is_some() {
            self.log_given_up(queues);
        } else if queues.cost().is_some() {
            self.logged.not_evicted(outcome.error);
        }
        self.report.failures += 1;
        self.window.note(false);
        let _ = self.run(queues, domain);
        self.phase = Phase::Failed;
    }

    /// After evictions were given up, that is the reason, and it is logged.
    fn log_not_limited(&mut self, queues: &HardwareQueues) {
        if queues.registry.given_up().is_none() {
            self.logged.not_limited(queues.registry.refuses_limits());
        }
    }

    fn log_given_up(&mut self, queues: &HardwareQueues) {
        if let Some(errno) = queues.registry.given_up() {
            self.logged.given_up(errno);
        }
    }
}

/// Repeats failed requests. Returns the time after which to repeat them again.
fn reconcile(queues: &HardwareQueues) -> Option<Duration> {
    (queues.registry.reconcile().unsettled != 0).then_some(RETRY)
}

/// Returns the duration of one request, comparable with the measurement of a single queue.
fn time_per_request(outcome: Outcome) -> Duration {
    outcome.took / u32::try_from(outcome.requests).unwrap_or(u32::MAX).max(1)
}

/// Acts on each device, and sums the outcomes.
fn for_all(devices: &BTreeSet<u32>, mut act: impl FnMut(u32) -> Outcome) -> Outcome {
    let mut all = Outcome::default();
    for &gpu_id in devices {
        let one = act(gpu_id);
        all.queues += one.queues;
        all.unsettled += one.unsettled;
        all.requests += one.requests;
        all.took += one.took;
        all.error = all.error.or(one.error);
        all.asked_at = one.asked_at.or(all.asked_at);
    }
    all
}
