//! Levels 2 and 3: whether a suspension takes the process's queues off the hardware, and doing so.
//!
//! A suspension has stopped the launches by its word before anybody comes here. What is in flight then ends by itself, or
//! its queues are held until the process may run again: whichever is expected to cost less ([`Costs::pays`]). Who saw the
//! permission change calls [`Holder::step`], and calls it again when it says so. All of them may: each step looks at the
//! permission anew, under the lock, so that the last one to look does what is right then. None calls HIP.
//!
//! A hold covers all devices of the process or none.

use super::desk::Line;
use crate::kfd::{self, Context, RETRY, TRIES};
use hal_kfd::registry::Mark;
use hal_kfd::{Errno, Outcome};
use parking_lot::Mutex;
use protocol::cost::CostOrigin;
use protocol::page::{ClientHeader, UNKNOWN};
use std::collections::BTreeSet;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xqueue::{Domain, Outstanding, Permission, Snapshot};

/// First pause until a held process is looked at again: a launch that was decided before the suspension may have come to
/// a queue that had no work. Doubled each time.
const FIRST_LOOK: Duration = Duration::from_micros(50);
/// Longest such pause.
const LAST_LOOK: Duration = Duration::from_millis(20);
/// What it takes the watcher to look whether something has completed.
const LOOK: Duration = Duration::from_micros(80);
/// It looks so often at least until it knows: sees that nothing is launched any more, records a mark, and finds it complete.
const LOOKS: u8 = 3;
/// A proof that has not come after this does not come.
const PROOF: Duration = Duration::from_secs(1);

/// The last times that a request took. The median counts: an accident of a busy machine does not, two in a row are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Recent([Duration; 3]);

impl Recent {
    const fn new(took: Duration) -> Self {
        Self([took; 3])
    }

    fn median(self) -> Duration {
        let Self([a, b, c]) = self;
        a.min(b).max(a.max(b).min(c))
    }

    fn learn(&mut self, took: Duration) {
        let Self([_, b, c]) = *self;
        *self = Self([b, c, took]);
    }

    fn fade(&mut self) {
        self.0.iter_mut().for_each(|took| *took -= *took / 256);
    }
}

/// What a hold and a release take, as measured lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Costs {
    hold: Recent,
    release: Recent,
    /// Both stop the queues of all processes on the device for as long.
    everybody: bool,
}

impl Costs {
    /// What is known before any hold. Nothing while level 1 is in force.
    fn of(context: &Context) -> Option<Self> {
        let (cost, everybody) = context.cost()?;
        Some(Self { hold: Recent::new(cost.hold), release: Recent::new(cost.release), everybody })
    }

    /// Whether a hold costs less than waiting for what is expected to run for so long. While the queues are saved and restored
    /// the device does nothing for this process, which it would have done instead of waiting; and where an update stops
    /// everybody, nothing for the bystanders either. Nobody knows for how long what is unknown runs.
    fn pays(&self, expected: Option<Duration>, bystanders: u8) -> bool {
        let stopped = 1 + if self.everybody { u32::from(bystanders) } else { 0 };
        expected.is_none_or(|expected| expected > self.both() * stopped)
    }

    /// A release returns before the device has restored what it saved, which is as much again.
    fn both(&self) -> Duration {
        let hold = self.hold.median();
        hold + self.release.median().max(hold)
    }

    /// A hold was found too costly: what made it so may have passed, and only another try shows that.
    fn fade(&mut self) {
        self.hold.fade();
        self.release.fade();
    }
}

/// What becomes of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There is none, or it is one of level 1.
    Running,
    /// It was not compared yet what costs less: nothing is in flight, or nothing yet. A launch under way is in flight soon, as a
    /// rule; one that takes until then, as some of graphs do, has work on the hardware before it is counted.
    Begun { until: Instant },
    /// What is in flight is waited for, until it is certain that this was the wrong choice.
    Waiting {
        until: Option<Instant>,
        /// How often it was looked whether it has completed, since what was foreseen is over.
        looks: u8,
    },
    /// The queues with work are off the hardware; looked at again after this pause.
    Held { look: Duration },
    /// A hold failed; what is in flight is waited for.
    Failed,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    costs: Option<Costs>,
    /// How far the hardware queues were written at a moment, and what has to complete for all of that to be complete.
    proof: Option<(Vec<Mark>, Snapshot, Instant)>,
    report: Report,
    said: Said,
    /// More is known of the cost of holds than was told.
    learnt: bool,
}

/// What has been said: each of these once, however often it happens. `xcli list` counts.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    repeated: bool,
    not_off: bool,
    not_back: bool,
    given_up: bool,
}

/// What there is to tell.
#[derive(Debug, Clone, Copy, Default)]
struct Report {
    holds: u64,
    waits: u64,
    failures: u64,
    expected: Option<Duration>,
    /// When the last request of the last hold was made, and answered, until it is told.
    stood: Option<(Instant, Instant)>,
}

/// Takes the queues of the process off the hardware, and puts them back.
#[derive(Debug)]
pub(crate) struct Holder {
    state: Mutex<State>,
    /// Calls under way beside which nothing is held.
    pauses: AtomicU32,
    ended: AtomicBool,
    /// A test: every suspension holds, whatever it costs.
    always: AtomicBool,
}

/// Nothing is held while this lives.
pub(crate) struct Pause<'a> {
    holder: &'a Holder,
    domain: &'a Domain,
    line: &'a Line,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.holder.pauses.fetch_sub(1, Ordering::SeqCst);
        if self.holder.step(self.domain, self.line).is_some() {
            // The listener may sleep, and does not know that there is something to come back for.
            super::global::wake_listener(self.line);
        }
    }
}

impl Holder {
    pub(super) fn new() -> Self {
        let phase = Phase::Running;
        let (report, said) = (Report::default(), Said::default());
        let state = State { phase, costs: None, proof: None, report, said, learnt: false };
        Self {
            state: Mutex::new(state),
            pauses: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            always: AtomicBool::new(false),
        }
    }

    /// From now on every suspension holds.
    pub(super) fn hold_always(&self) {
        self.always.store(true, Ordering::SeqCst);
    }

    /// Does what the permission in force says. Returns after what time to do that again although nothing changed.
    pub(super) fn step(&self, domain: &Domain, line: &Line) -> Option<Duration> {
        let context = kfd::context()?;
        let mut state = self.state.lock();
        // The runtime gives its queues' memory back from here on, and nobody is told.
        if self.has_ended() {
            return None;
        }
        // Under the lock: see above.
        let permission = domain.permission();
        let free = permission.run() || permission.level() < 2;
        let paused = !free && self.pauses.load(Ordering::SeqCst) != 0;
        let again = if free || paused {
            state.run(context, domain).or(paused.then_some(LAST_LOOK))
        } else {
            let always = self.always.load(Ordering::SeqCst);
            state.suspend(context, domain, permission, always)
        };
        if let Some(pages) = line.pages_in_use() {
            // Before the first suspension it is what is known of holds at all.
            let origin = context.origin();
            let known = || (origin != CostOrigin::None).then(|| Costs::of(context)).flatten();
            let costs = state.costs.or_else(known);
            state.report.write(costs, origin, pages.header(), line);
        }
        let learnt = mem::take(&mut state.learnt);
        let given_up = state.phase == Phase::Failed && context.registry.given_up().is_some();
        drop(state);
        if given_up || learnt {
            crate::process::level_changed();
        }
        again
    }

    /// For a call that must find no queue held: releases, and holds nothing until this is dropped.
    pub(super) fn pause<'a>(&'a self, domain: &'a Domain, line: &'a Line) -> Option<Pause<'a>> {
        kfd::context()?;
        self.pauses.fetch_add(1, Ordering::SeqCst);
        let pause = Pause { holder: self, domain, line };
        self.release(domain, line);
        Some(pause)
    }

    /// What may run is put back, also where the driver fails at first. For whoever will not come back for it.
    pub(super) fn release(&self, domain: &Domain, line: &Line) {
        for _ in 0..TRIES {
            let _ = self.step(domain, line);
            if kfd::context().is_none_or(|context| !context.registry.owes()) {
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// The process ends: everything is released, and nothing held any more. Returns how often something was.
    pub(super) fn end(&self) -> u64 {
        self.ended.store(true, Ordering::SeqCst);
        let state = self.state.lock();
        if let Some(context) = kfd::context() {
            let mut outcome = context.registry.shut_down();
            for _ in 0..TRIES {
                if outcome.unsettled == 0 || context.registry.given_up().is_some() {
                    break;
                }
                std::thread::sleep(RETRY);
                outcome = context.registry.shut_down();
            }
        }
        state.report.holds
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl State {
    /// The process may run.
    fn run(&mut self, context: &Context, domain: &Domain) -> Option<Duration> {
        if let Phase::Held { .. } = self.phase {
            let mut learnt = false;
            let outcome = each(&context.registry.holding(), |gpu_id| {
                let outcome = context.registry.release(gpu_id);
                if outcome.requests != 0 && outcome.error.is_none() {
                    learnt |= context.saw_release(gpu_id, each_request(outcome));
                }
                outcome
            });
            self.learnt |= learnt;
            domain.forget_times();
            if let Some(costs) = self.costs.as_mut().filter(|_| outcome.requests != 0) {
                costs.release.learn(outcome.took);
            }
            if let Some(errno) = outcome.error {
                if outcome.unsettled == 0 {
                    self.say_repeated(errno);
                } else if !mem::replace(&mut self.said.not_back, true) {
                    tracing::warn!("queues were not put back at once ({errno}): trying until they are");
                }
            }
        }
        if self.phase != Phase::Running {
            self.phase = Phase::Running;
            self.prove(context, domain);
        }
        self.settle(context)
    }

    /// Finds out which hardware queues have nothing left, although the program never waits for all of its work: a queue in which
    /// nothing was written since a moment is idle once everything that was launched until then has completed.
    fn prove(&mut self, context: &Context, domain: &Domain) {
        match &self.proof {
            Some((marks, snapshot, _)) if domain.is_complete(snapshot) => {
                marks.iter().for_each(|mark| context.registry.complete(mark));
                self.proof = None;
            }
            Some((.., since)) if since.elapsed() < PROOF => return,
            _ => {}
        }
        // What is written is looked at first: it is launched then, or its launch is on its way still.
        // SAFETY: as for a hold, below.
        let marks =
            context.registry.devices().into_iter().map(|gpu_id| unsafe { context.registry.mark(gpu_id) });
        let marks: Vec<Mark> = marks.collect();
        self.proof = domain.snapshot().map(|snapshot| (marks, snapshot, Instant::now()));
    }

    /// The process is suspended.
    fn suspend(
        &mut self,
        context: &Context,
        domain: &Domain,
        permission: Permission,
        always: bool,
    ) -> Option<Duration> {
        let now = Instant::now();
        let outstanding = domain.outstanding();
        if self.phase == Phase::Running {
            let Some(costs) = Costs::of(context) else {
                self.say_given_up(context);
                self.phase = Phase::Failed;
                return self.settle(context);
            };
            self.costs.get_or_insert(costs);
            self.phase = Phase::Begun { until: now + FIRST_LOOK };
        }
        if let Phase::Begun { until } = self.phase {
            self.phase = if always || outstanding.commands != 0 {
                self.weigh(domain, now, outstanding, permission, always)
            } else if outstanding.launching && now >= until {
                Phase::Waiting { until: None, looks: 0 }
            } else if outstanding.launching {
                self.phase
            } else {
                Phase::Begun { until: now + FIRST_LOOK }
            };
        }
        match self.phase {
            Phase::Running | Phase::Failed => self.settle(context),
            Phase::Begun { until } => outstanding.launching.then(|| until - now),
            Phase::Waiting { until: Some(until), .. } if now < until => Some(until - now),
            Phase::Waiting { until: Some(_), looks } if looks < LOOKS && outstanding.commands != 0 => {
                // It may have completed long ago: nobody looks for completion where nothing may be launched.
                domain.look_soon();
                self.phase = Phase::Waiting { until: Some(now + LOOK), looks: looks + 1 };
                Some(LOOK)
            }
            // Nothing to hold any more.
            Phase::Waiting { .. } if outstanding.commands == 0 && !outstanding.launching && !always => {
                self.phase = Phase::Begun { until: now + FIRST_LOOK };
                None
            }
            Phase::Waiting { .. } => {
                self.hold(context, domain, FIRST_LOOK);
                self.look(context, outstanding)
            }
            Phase::Held { look } => {
                self.hold(context, domain, (look * 2).min(LAST_LOOK));
                self.look(context, outstanding)
            }
        }
    }

    /// Whether what is in flight is held, or waited for and until when.
    fn weigh(
        &mut self,
        domain: &Domain,
        now: Instant,
        outstanding: Outstanding,
        permission: Permission,
        always: bool,
    ) -> Phase {
        self.report.expected = outstanding.remaining;
        let costs = self.costs.get_or_insert_default();
        let holds = always || costs.pays(outstanding.remaining, permission.bystanders());
        tracing::trace!(
            expected_us = outstanding.remaining.map(|span| span.as_micros() as u64),
            hold_us = costs.hold.median().as_micros() as u64,
            release_us = costs.release.median().as_micros() as u64,
            bystanders = permission.bystanders(),
            holds,
            "suspended"
        );
        if holds {
            return Phase::Waiting { until: None, looks: 0 };
        }
        self.report.waits += 1;
        // It begins to see that nothing is launched.
        domain.look_soon();
        // If it still runs when the hold would have paid for itself, what was expected was wrong.
        let until = now + outstanding.remaining.unwrap_or_default() + costs.both();
        costs.fade();
        Phase::Waiting { until: Some(until), looks: 0 }
    }

    /// When to look again at what was held.
    fn look(&self, context: &Context, outstanding: Outstanding) -> Option<Duration> {
        match self.phase {
            Phase::Held { look } => (outstanding.commands != 0 || outstanding.launching).then_some(look),
            _ => context.registry.owes().then_some(RETRY),
        }
    }

    /// Takes the queues that have work, and are not held yet, off the hardware.
    fn hold(&mut self, context: &Context, domain: &Domain, look: Duration) {
        let first = !matches!(self.phase, Phase::Held { .. });
        // SAFETY: this is the process whose queues these are, and the runtime gives the memory of a queue's indices back
        // after it has destroyed the queue, which takes the registry's lock.
        let hold = |gpu_id| unsafe { context.registry.hold(gpu_id) };
        let mut refused = false;
        let outcome = each(&context.registry.devices(), |gpu_id| {
            let outcome = hold(gpu_id);
            if outcome.unsettled != 0 {
                context.saw_hold(gpu_id, None);
                self.learnt = true;
            } else if first && outcome.requests != 0 && outcome.error.is_none() {
                refused |= !context.saw_hold(gpu_id, Some(each_request(outcome)));
            }
            outcome
        });
        self.learnt |= refused;
        let failed = outcome.unsettled != 0 || refused || context.registry.given_up().is_some();
        if outcome.requests != 0 && !failed {
            domain.forget_times();
            self.report.stood = outcome.asked_at.map(|asked| (asked, Instant::now()));
            self.report.holds += u64::from(first || self.report.holds == 0);
            if let Some(costs) = self.costs.as_mut().filter(|_| first) {
                costs.hold.learn(outcome.took);
            }
        }
        self.phase = Phase::Held { look };
        match outcome.error {
            _ if failed => self.back_out(context, domain, &outcome),
            Some(errno) => self.say_repeated(errno),
            None => {}
        }
    }

    /// A request failed, and its repetition did not.
    fn say_repeated(&mut self, errno: Errno) {
        if !mem::replace(&mut self.said.repeated, true) {
            tracing::warn!("the driver failed a request about a queue ({errno}): made again, it succeeded");
        }
    }

    /// All or nothing: what was held is released, and this suspension is one of level 1.
    fn back_out(&mut self, context: &Context, domain: &Domain, outcome: &Outcome) {
        if context.registry.given_up().is_some() {
            self.say_given_up(context);
        } else if context.cost().is_some() && !mem::replace(&mut self.said.not_off, true) {
            let said =
                outcome.error.map_or_else(|| "its state is unknown".to_owned(), |errno| errno.to_string());
            tracing::warn!("a queue could not be taken off the hardware ({said}): waiting for what it runs");
        }
        self.report.failures += 1;
        let _ = self.run(context, domain);
        self.phase = Phase::Failed;
    }

    /// Nothing is held any more, whosever request it was that showed why.
    fn say_given_up(&mut self, context: &Context) {
        let Some(errno) = context.registry.given_up() else { return };
        if mem::replace(&mut self.said.given_up, true) {
            return;
        }
        match errno.0 {
            // It is said where that was found out.
            libc::EOPNOTSUPP => {}
            libc::ETIME => tracing::error!(
                "a queue did not come off the hardware in time ({errno}), for which the driver resets the GPU: level 1 from now on"
            ),
            _ => {
                tracing::error!("the driver has reset queues of this program ({errno}): level 1 from now on")
            }
        }
    }

    /// Makes failed requests again, whoever made them.
    fn settle(&self, context: &Context) -> Option<Duration> {
        (context.registry.settle().unsettled != 0).then_some(RETRY)
    }
}

/// What one request took: a measurement is of one queue.
fn each_request(outcome: Outcome) -> Duration {
    outcome.took / u32::try_from(outcome.requests).unwrap_or(u32::MAX).max(1)
}

/// The outcomes of all devices together.
fn each(devices: &BTreeSet<u32>, mut act: impl FnMut(u32) -> Outcome) -> Outcome {
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

impl Report {
    fn write(&mut self, costs: Option<Costs>, origin: CostOrigin, header: &ClientHeader, line: &Line) {
        let words = &header.holds;
        header.cost_origin.store(origin.number(), Ordering::Relaxed);
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(UNKNOWN);
        let costs = costs.unwrap_or_default();
        words.waits.store(self.waits, Ordering::Relaxed);
        words.failures.store(self.failures, Ordering::Relaxed);
        words.expected_ns.store(self.expected.map_or(UNKNOWN, nanos), Ordering::Relaxed);
        words.hold_ns.store(nanos(costs.hold.median()), Ordering::Relaxed);
        words.release_ns.store(nanos(costs.release.median()), Ordering::Relaxed);
        if let Some((asked, stood)) = self.stood.take() {
            // Both clocks are the same one; the server's may be set off from it.
            let (here, there) = (Instant::now(), line.now());
            let at =
                |instant: Instant| there.0.saturating_sub(nanos(here.saturating_duration_since(instant)));
            words.asked_at.store(at(asked), Ordering::Relaxed);
            words.stood_at.store(at(stood), Ordering::Relaxed);
        }
        words.holds.store(self.holds, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const COSTS: Costs =
        Costs { hold: Recent::new(micros(60)), release: Recent::new(micros(40)), everybody: false };

    #[test]
    fn a_hold_pays_where_waiting_would_take_longer() {
        assert!(COSTS.pays(Some(micros(121)), 0));
        assert!(!COSTS.pays(Some(micros(120)), 0));
        assert!(COSTS.pays(None, 9), "who knows");
        assert!(COSTS.pays(Some(micros(121)), 9), "they are not stopped");
        let costs = Costs { everybody: true, ..COSTS };
        assert!(costs.pays(Some(micros(121)), 0));
        assert!(!costs.pays(Some(micros(360)), 2), "two others stand still for as long");
        assert!(costs.pays(Some(micros(361)), 2));
        let costs = Costs { release: Recent::new(micros(90)), ..COSTS };
        assert!(!costs.pays(Some(micros(150)), 0), "the longer one of both counts for what is restored");
    }

    #[test]
    fn costs_follow_what_is_measured_and_fade_where_they_forbid() {
        let mut cost = Recent::new(micros(100));
        cost.learn(micros(9_000));
        assert_eq!(cost.median(), micros(100), "an accident");
        cost.learn(micros(120));
        assert_eq!(cost.median(), micros(120));
        cost.learn(micros(5_000));
        assert_eq!(cost.median(), micros(5_000), "two of three");
        cost.learn(micros(110));
        assert_eq!(cost.median(), micros(120));
        let mut costs =
            Costs { hold: Recent::new(micros(5_000)), release: Recent::new(micros(5_000)), everybody: false };
        let mut tries = 0;
        while !costs.pays(Some(micros(6_000)), 0) {
            costs.fade();
            tries += 1;
        }
        assert!((50..400).contains(&tries), "{tries}");
    }
}
