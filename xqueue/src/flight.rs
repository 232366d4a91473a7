//! What is on one hardware queue: counts, the window, the marks and who polls them. Knows nothing of
//! what is pending, of permissions or of order.
//!
//! Invariants:
//! * `launched`, the costs and the `since_*` fields are written only by who has submit (their
//!   methods take the [`Submit`] as proof), so plain loads and stores suffice; others only read.
//! * `completed` only grows and never exceeds what was launched when its proof was begun.
//! * Spans are in launch order; only who has the poller's role removes one, so a mark is queried by
//!   one thread at a time and never after it was released.

use std::time::Duration;

use crate::config::LaunchConfig;
use crate::error::HwError;
use crate::estimate::Estimates;
use crate::hw::{CostKey, HwQueue};
use crate::lead::Lead;
use crate::queue::Submit;
use crate::span::{Expectation, Keys, Launches, Span, Spans};
use crate::submit::Limit;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, TryLock, now};

/// The most commands from one mark to the next where the window counts, or where somebody wants to see progress.
pub(crate) const DENSE: u32 = 64;
/// The same where neither is so: the watcher asks for marks by time, this is a bound. A mark costs the submitting thread
/// a system call inside the runtime, and each command in front of it probably its warm memory (ADR 0007).
pub(crate) const SPARSE: u32 = 16 * 1024;
/// The least time from mark to mark, in nanoseconds, where all is known: ends are foreseen then, and marks keep to what is so.
const SPAN: u64 = 400_000;
/// One command in so many is studied anew, if it is a short one: in a span with others its time does not show.
const AGAIN: u64 = 61;
/// Launches before a command that make up its place.
const HISTORY: usize = 3;

/// A snapshot that a successful synchronisation turns into completion: everything that had been
/// launched when it was taken.
#[derive(Debug, Clone, Copy)]
pub struct Proof {
    launched: u64,
    strays: u64,
    cost: u64,
}

impl Proof {
    /// The same with the launch that comes next.
    pub(crate) fn and_next(self) -> Self {
        Self { launched: self.launched + 1, ..self }
    }
}

/// What a look at the marks brought.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// It was not another thread that was looking.
    pub(crate) looked: bool,
    /// Something completed.
    pub(crate) progress: bool,
    /// A mark could not be queried.
    pub(crate) error: Option<HwError>,
}

/// The state of one hardware queue.
#[derive(Debug)]
pub(crate) struct Flight {
    launched: AtomicU64,
    since_mark: AtomicU32,
    /// Launches after which a mark is due without a limit; the watcher lowers it.
    mark_after: AtomicU32,
    marked: AtomicU64,
    completed: AtomicU64,
    /// Estimated nanoseconds, summed over all launches under the limit, and over the completed ones.
    cost_launched: AtomicU64,
    cost_since_mark: AtomicU64,
    cost_completed: AtomicU64,
    /// Index of the last launch whose cost was counted; others up to here were not.
    last_costed: AtomicU64,
    uncosted_upto: AtomicU64,
    /// Index of the last launch that can last until the program does something.
    open_upto: AtomicU64,
    /// The keys of the last launches under the limit, the last one first.
    history: [AtomicU64; HISTORY],
    lead: Lead,
    /// Launches outside submit, made inside user callbacks: begun, made, marked, and proved complete.
    strays: AtomicU64,
    strays_made: AtomicU64,
    strays_marked: AtomicU64,
    strays_done: AtomicU64,
    poller: TryLock,
    spans: Mutex<Spans>,
    /// Whether marks were given back unseen ([`Flight::forsake`]), and whether there may be others by now.
    forsaken: AtomicU32,
}

/// Marks were given back unseen, and there must be no others for now.
const FORSAKEN: u32 = 1;
/// That is over.
const RECOVERABLE: u32 = 2;

impl Flight {
    pub(crate) fn new() -> Self {
        Self {
            launched: AtomicU64::new(0),
            since_mark: AtomicU32::new(0),
            mark_after: AtomicU32::new(SPARSE),
            marked: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            cost_launched: AtomicU64::new(0),
            cost_since_mark: AtomicU64::new(0),
            cost_completed: AtomicU64::new(0),
            last_costed: AtomicU64::new(0),
            uncosted_upto: AtomicU64::new(0),
            open_upto: AtomicU64::new(0),
            history: std::array::from_fn(|_| AtomicU64::new(0)),
            lead: Lead::new(),
            strays: AtomicU64::new(0),
            strays_made: AtomicU64::new(0),
            strays_marked: AtomicU64::new(0),
            strays_done: AtomicU64::new(0),
            poller: TryLock::new(),
            spans: Mutex::new(Spans::default()),
            forsaken: AtomicU32::new(0),
        }
    }

    /// Commands launched.
    #[inline]
    pub(crate) fn launched(&self) -> u64 {
        self.launched.load(Ordering::Acquire)
    }

    /// Commands known to have completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        // Completed first: read the other way round it could overtake.
        let completed = self.completed();
        self.launched().saturating_sub(completed) + self.strays_in_flight()
    }

    fn strays_in_flight(&self) -> u64 {
        let done = self.strays_done.load(Ordering::Acquire);
        self.strays.load(Ordering::Acquire).saturating_sub(done)
    }

    pub(crate) fn strays(&self) -> u64 {
        self.strays.load(Ordering::Acquire)
    }

    /// A launch outside submit begins; called under `pending`, so that nobody proves idleness past it.
    pub(crate) fn begin_stray(&self) {
        self.strays.fetch_add(1, Ordering::AcqRel);
    }

    /// The call of a launch outside submit has returned.
    pub(crate) fn end_stray(&self) {
        self.strays_made.fetch_add(1, Ordering::AcqRel);
    }

    /// The launches outside submit that a proof begun now covers: none, if one of them is on its way.
    fn provable_strays(&self) -> u64 {
        let made = self.strays_made.load(Ordering::Acquire);
        let begun = self.strays();
        if made == begun { begun } else { 0 }
    }

    /// Launches not known to have completed, whose completion no mark would show.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked() != 0 || self.strays_marked.load(Ordering::Acquire) < self.provable_strays()
    }

    /// Whether no mark of a launch is outstanding, so that polling brings no room.
    pub(crate) fn has_no_mark(&self) -> bool {
        self.marked.load(Ordering::Acquire) <= self.completed()
    }

    /// Counts a launch that nothing limits. True: a mark is due.
    #[inline]
    pub(crate) fn count_free(&self, _: &Submit<'_>) -> bool {
        self.launched.store(self.launched.load(Ordering::Relaxed) + 1, Ordering::Release);
        let since = self.since_mark.load(Ordering::Relaxed) + 1;
        self.since_mark.store(since, Ordering::Relaxed);
        since >= self.mark_after.load(Ordering::Relaxed)
    }

    /// The last mark is long ago: the next launch records one.
    pub(crate) fn want_mark(&self) {
        self.mark_after.store(1, Ordering::Relaxed);
    }

    /// Counts a launch under the limit. True: a mark is due.
    pub(crate) fn count_limited(&self, submit: &Submit<'_>, limit: Limit, key: CostKey) -> bool {
        let (before, completed) = (self.launched.load(Ordering::Relaxed), self.completed());
        self.lead.note_launch(before, completed);
        let due = self.count_free(submit) || self.since_mark.load(Ordering::Relaxed) >= DENSE;
        let cost = limit.cost;
        match limit.config {
            LaunchConfig::Fixed { batch, .. } => due || self.since_mark.load(Ordering::Relaxed) >= batch,
            LaunchConfig::Adaptive => {
                self.last_costed.store(before + 1, Ordering::Relaxed);
                let total = self.cost_launched.load(Ordering::Relaxed) + cost;
                self.cost_launched.store(total, Ordering::Relaxed);
                let mut since = self.cost_since_mark.load(Ordering::Relaxed) + cost;
                let settled = {
                    let mut spans = self.spans.lock();
                    let at = now();
                    if before <= completed {
                        spans.begin(before, at);
                        since = cost;
                    } else {
                        spans.follow(at, completed);
                    }
                    spans.since_mark.add(key, limit.placed, limit.known);
                    spans.since_mark.settled().zip(limit.known)
                };
                self.cost_since_mark.store(since, Ordering::Relaxed);
                self.remember(key);
                // One more of this kind would exceed it.
                let is_full = match settled {
                    Some((takes, known)) => takes + known.nanos > SPAN.max(limit.budget / 2),
                    None => 2 * (since + cost) > limit.budget,
                };
                due || limit.is_studied() || is_full
            }
        }
    }

    /// The last launch is one that can last until the program does something ([`crate::Spec::open`]).
    pub(crate) fn note_open(&self, _: &Submit<'_>) {
        self.open_upto.store(self.launched.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Whether such a one is not known to have completed.
    pub(crate) fn is_open(&self) -> bool {
        self.completed() < self.open_upto.load(Ordering::Acquire)
    }

    /// Whether the next command is to be studied anew, if it takes no longer than that.
    pub(crate) fn is_restudied(&self, nanos: u64) -> bool {
        // Spread evenly over the places of a program, however long that is.
        let spread = self.launched.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        2 * nanos <= SPAN && spread.is_multiple_of(AGAIN)
    }

    /// The key of a command at its place: after the launches before it. Programs repeat themselves, and the same function
    /// with the same grid takes one time here and another there (a convolution's depth is an argument).
    pub(crate) fn placed(&self, key: CostKey) -> CostKey {
        if key == CostKey::UNKNOWN {
            return key;
        }
        let fold = |place: u64, before: &AtomicU64| {
            (place.rotate_left(23) ^ before.load(Ordering::Relaxed)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        CostKey(self.history.iter().fold(!key.0, fold) | 1)
    }

    fn remember(&self, key: CostKey) {
        let mut key = key.0;
        for place in &self.history {
            let before = place.load(Ordering::Relaxed);
            place.store(key, Ordering::Relaxed);
            key = before;
        }
    }

    /// Whether the window admits one more command of this cost, by what is known to have completed.
    pub(crate) fn has_room(&self, _: &Submit<'_>, limit: Limit) -> bool {
        let completed = self.completed();
        let launched = self.launched.load(Ordering::Relaxed);
        let in_flight = launched.saturating_sub(completed);
        if in_flight == 0 {
            return true;
        }
        match limit.config {
            LaunchConfig::Fixed { threshold, .. } => in_flight < u64::from(threshold),
            LaunchConfig::Adaptive => {
                if self.last_costed.load(Ordering::Relaxed) != launched {
                    self.uncosted_upto.store(launched, Ordering::Relaxed);
                    self.last_costed.store(launched, Ordering::Relaxed);
                }
                if completed < self.uncosted_upto.load(Ordering::Relaxed) {
                    return false;
                }
                let done = self.cost_completed.load(Ordering::Acquire);
                let total = self.cost_launched.load(Ordering::Relaxed);
                total.saturating_sub(done) + limit.cost <= limit.budget
            }
        }
    }

    /// Whether the window admits one more command, by what is foreseen: so much has probably completed by now, or all will so soon
    /// that the device would be idle if this command, of known length, waited until the end is seen. Nothing, if that cannot be foreseen.
    pub(crate) fn foresees_room(&self, _: &Submit<'_>, limit: Limit) -> Option<bool> {
        if limit.known.is_none() || self.completed() < self.uncosted_upto.load(Ordering::Relaxed) {
            return None;
        }
        let expected = self.expectation()?;
        let (_, all) = expected.remaining()?;
        Some(all <= self.room_below(limit, expected))
    }

    /// How much foreseen time may be left for this command to be launched.
    pub(crate) fn room_below(&self, limit: Limit, expected: Expectation) -> Duration {
        // If it takes longer than foreseen, somebody else has the device as well: only what is seen counts.
        let window = if expected.is_overdue() { 0 } else { limit.budget.saturating_sub(limit.cost) };
        self.lead().max(Duration::from_nanos(window))
    }

    /// How long before the end of what is in flight the next command may be launched.
    pub(crate) fn lead(&self) -> Duration {
        self.lead.time()
    }

    /// After a look at the marks, with a command that waits for room under this limit.
    pub(crate) fn judge_lead(&self, _: &Submit<'_>, limit: Limit) {
        // What is unknown is launched alone, and cannot be in time.
        if limit.config == LaunchConfig::Adaptive && limit.known.is_some() {
            let launched = self.launched.load(Ordering::Relaxed);
            let completed = self.completed();
            // Where there is no mark just in front of the last launch it does not show.
            let shows = completed == launched || self.marked.load(Ordering::Relaxed) + 1 == launched || {
                let spans = self.spans.lock();
                spans.queue.back().is_some_and(|span| span.upto == launched && span.upto - span.start == 1)
            };
            if shows {
                self.lead.judge(launched, completed);
            }
        }
    }

    /// Records a mark behind everything launched; the next one is due after `spacing` launches.
    pub(crate) fn record(&self, _: &Submit<'_>, hw: &dyn HwQueue, spacing: u32) -> Result<(), HwError> {
        let launched = self.launched.load(Ordering::Relaxed);
        let strays = self.provable_strays();
        self.since_mark.store(0, Ordering::Relaxed);
        self.mark_after.store(spacing, Ordering::Relaxed);
        self.cost_since_mark.store(0, Ordering::Relaxed);
        let result = hw.record_mark();
        let mut spans = self.spans.lock();
        let keys = std::mem::take(&mut spans.since_mark);
        let start = std::mem::replace(&mut spans.start, launched);
        let unstarted = spans.unstarted.filter(|(_, index)| start >= *index).map(|(at, _)| at);
        match result {
            Ok(mark) => spans.queue.push_back(Span {
                mark,
                start,
                upto: launched,
                strays_upto: strays,
                cost_upto: self.cost_launched.load(Ordering::Relaxed),
                recorded: (keys.commands != 0).then(now),
                unstarted,
                seen_running: None,
                keys,
            }),
            Err(error) => {
                // Nobody can know any more when it completes: fail open.
                drop(spans);
                self.complete(Proof { launched, strays, cost: self.cost_launched.load(Ordering::Relaxed) });
                self.strays_marked.fetch_max(strays, Ordering::AcqRel);
                self.marked.store(launched, Ordering::Release);
                return Err(error);
            }
        }
        drop(spans);
        self.strays_marked.fetch_max(strays, Ordering::AcqRel);
        self.marked.store(launched, Ordering::Release);
        Ok(())
    }

    /// What a synchronisation that begins now will prove.
    pub(crate) fn snapshot(&self) -> Proof {
        // Costs first: a cost that is too small only keeps the window smaller for a while.
        let cost = self.cost_launched.load(Ordering::Acquire);
        let strays = self.provable_strays();
        Proof { launched: self.launched(), strays, cost }
    }

    /// The same for who has seen that nobody has submit: everything whose launch had begun by then, or nothing while one outside
    /// submit is on its way.
    pub(crate) fn whole_snapshot(&self) -> Option<Proof> {
        let proof = self.snapshot();
        (proof.strays == self.strays()).then_some(proof)
    }

    /// Everything in the proof has completed.
    pub(crate) fn complete(&self, proof: Proof) {
        self.cost_completed.fetch_max(proof.cost, Ordering::AcqRel);
        self.strays_done.fetch_max(proof.strays, Ordering::AcqRel);
        self.completed.fetch_max(proof.launched, Ordering::AcqRel);
    }

    /// Everything in the proof and everything launched since by who has submit has completed.
    pub(crate) fn complete_through(&self, _: &Submit<'_>, proof: Proof) {
        self.complete(Proof { launched: self.launched.load(Ordering::Relaxed), ..proof });
    }

    /// Whether everything in the proof is known to have completed.
    pub(crate) fn covers(&self, proof: Proof) -> bool {
        self.completed() >= proof.launched && self.strays_done.load(Ordering::Acquire) >= proof.strays
    }

    /// Looks which marks are behind; returns at once if another thread is looking.
    /// `has_submit`: the caller holds submit, so that no launch is on its way. `learn`: where what is seen of times goes, and
    /// for how long the device may have done something else in between.
    pub(crate) fn poll(
        &self,
        hw: &dyn HwQueue,
        learn: Option<(&Estimates, Duration)>,
        has_submit: bool,
    ) -> Polled {
        let mut polled = Polled::default();
        if !self.poller.try_lock() {
            return polled;
        }
        polled.looked = true;
        let begun = learn.map(|_| now());
        let launched = self.launched() + u64::from(!has_submit);
        loop {
            let Some(span) = self.spans.lock().queue.front().copied() else {
                break;
            };
            let proof = Proof { launched: span.upto, strays: span.strays_upto, cost: span.cost_upto };
            let known = self.covers(proof);
            let behind = known
                || match hw.query_mark(span.mark) {
                    Ok(behind) => behind,
                    Err(error) => {
                        polled.error = Some(error);
                        true
                    }
                };
            if !behind {
                if let (Some((estimates, others)), Some(begun)) = (learn, begun) {
                    let overdue = self.spans.lock().still_running(begun, others);
                    overdue.iter().flat_map(Keys::learnt).for_each(|key| estimates.forget(key));
                }
                break;
            }
            self.complete(proof);
            polled.progress |= !known;
            let seen = if known { None } else { learn.map(|(estimates, _)| (estimates, now())) };
            self.spans.lock().end(&span, seen.map(|(_, at)| at), self.launched());
            if let Some((estimates, at)) = seen
                && let Some(since) = span.unstarted
            {
                let upper = at.saturating_duration_since(since);
                let gap = at.saturating_duration_since(span.seen_running.unwrap_or(since));
                span.learn(upper, gap, estimates);
            }
            hw.release_mark(span.mark);
        }
        if let Some(begun) = begun {
            let mut spans = self.spans.lock();
            let index = match spans.queue.front() {
                Some(front) => front.upto,
                None => launched,
            };
            spans.unstarted = Some((begun, index));
            // The first one may be running; those behind it were not.
            for span in spans.queue.iter_mut().skip(1) {
                span.unstarted = Some(begun);
            }
        }
        // Nobody wishes for this role: who fails to get it need not look.
        self.poller.release();
        polled
    }

    /// What can be foreseen.
    pub(crate) fn expectation(&self) -> Option<Expectation> {
        let launches = self.launches();
        self.spans.lock().expectation(&launches)
    }

    /// How long what is in flight goes on, as far as that is known.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        // Of launches outside submit nothing is known.
        if self.strays_in_flight() != 0 {
            return None;
        }
        let foreseen = self.expectation().and_then(|expected| expected.remaining());
        foreseen.map(|(_, all)| all).or_else(|| self.takes())
    }

    /// How long what is in flight takes at most by what is known of its commands, wherever in it the device is.
    fn takes(&self) -> Option<Duration> {
        let launches = self.launches();
        self.spans.lock().takes(&launches)
    }

    fn launches(&self) -> Launches {
        let (completed, marked) = (self.completed(), self.marked.load(Ordering::Acquire));
        Launches { upto: self.launched(), marked, completed }
    }

    /// Launches in flight behind the last mark.
    fn unmarked(&self) -> u64 {
        let Launches { upto, marked, completed } = self.launches();
        upto.saturating_sub(marked.max(completed))
    }

    /// See [`Spans::forget_times`].
    pub(crate) fn forget_times(&self) {
        self.spans.lock().forget_times();
    }

    /// Whether a mark is recorded and not given back.
    pub(crate) fn has_marks(&self) -> bool {
        !self.spans.lock().queue.is_empty()
    }

    /// Another hardware queue stands behind this one, with nothing in flight. The counts go on, so that what was proved
    /// of the one before stays true and proves nothing of the new one.
    pub(crate) fn restart(&self, submit: &Submit<'_>) {
        self.complete_through(submit, self.snapshot());
        self.strays_done.fetch_max(self.strays(), Ordering::AcqRel);
        self.strays_marked.fetch_max(self.strays(), Ordering::AcqRel);
        self.marked.store(self.launched(), Ordering::Release);
        self.forsaken.store(0, Ordering::Release);
        self.since_mark.store(0, Ordering::Relaxed);
        self.mark_after.store(SPARSE, Ordering::Relaxed);
        self.cost_since_mark.store(0, Ordering::Relaxed);
        let mut spans = self.spans.lock();
        spans.since_mark = Keys::default();
        spans.start = self.launched();
        spans.forget_times();
    }

    /// Nobody marks what has been launched, nor looks at its marks, until [`Flight::recover`]. The marks are then to be given back.
    pub(crate) fn forsake(&self, _: &Submit<'_>) {
        self.forsaken.store(FORSAKEN, Ordering::Release);
        self.marked.store(self.launched.load(Ordering::Relaxed), Ordering::Release);
        self.strays_marked.fetch_max(self.strays(), Ordering::AcqRel);
    }

    /// There may be marks again.
    pub(crate) fn allow_marks(&self) {
        let _ = self.forsaken.compare_exchange(FORSAKEN, RECOVERABLE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether there may be marks again, and what was forsaken has none.
    pub(crate) fn is_recoverable(&self) -> bool {
        self.forsaken.load(Ordering::Acquire) == RECOVERABLE
    }

    /// What was forsaken counts as unmarked.
    pub(crate) fn recover(&self, _: &Submit<'_>) {
        if self.forsaken.compare_exchange(RECOVERABLE, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
            && self.spans.lock().queue.is_empty()
        {
            self.marked.store(self.completed(), Ordering::Release);
        }
    }

    /// Gives back all marks of a queue that is going away, or whose marks are forsaken. False: another thread is polling.
    pub(crate) fn release_all(&self, hw: &dyn HwQueue) -> bool {
        if !self.poller.try_lock() {
            return false;
        }
        let spans = std::mem::take(&mut self.spans.lock().queue);
        for span in spans {
            hw.release_mark(span.mark);
        }
        self.poller.release();
        true
    }
}
