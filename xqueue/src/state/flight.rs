//! The work in flight on one hardware queue: counts, the window, the markers and their polling. Knows nothing
//! of pending commands, of permissions or of order.
//!
//! Invariants:
//! * `launched`, the costs and the `since_*` fields are written only under the submit lock. Their methods
//!   take [`SubmitHeld`] as the proof of holding it, so plain loads and stores suffice; other threads only
//!   read.
//! * `completed` only grows and never exceeds what was launched when its snapshot was taken.
//! * Intervals are in launch order. Only the holder of the poller lock removes one, so one thread at a time
//!   queries a marker, and never after its release.

mod sweep;

pub(crate) use sweep::{Lesson, Polled};

use std::time::Duration;

use crate::config::LaunchConfig;
use crate::error::HwError;
use crate::estimate::Estimate;
use crate::hw::{CostKey, HwQueue};
use crate::limit::Limit;
use crate::state::interval::{Expectation, Interval, Intervals, Keys, Launches};
use crate::state::launch_ahead::LaunchAhead;
use crate::state::worked::Worked;
use crate::submit_lock::SubmitHeld;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Instant, Mutex, Ordering, TryLock, now};

/// The most commands from one marker to the next while the window counts, or while progress has to show.
pub(crate) const DENSE: u32 = 64;
/// The most commands from one marker to the next otherwise; the watcher asks for markers by time. A marker
/// costs the submitting thread a system call inside the runtime, and each command in front of it probably its
/// warm memory (ADR 0007).
pub(crate) const SPARSE: u32 = 16 * 1024;
/// The least time from marker to marker, in nanoseconds, where all times are known: ends are foreseen then,
/// and markers only confirm them.
const INTERVAL: u64 = 400_000;
/// One short command in so many is studied again, and up to 4 times fewer where its time has been confirmed: in an interval
/// with others it does not show.
const RESTUDY: u64 = 61;
/// The same for short commands that are launched into an empty queue: for a program that waits for each command, a
/// marker takes as long as several launches, and a wrong time of a short command changes little.
const RESTUDY_ALONE: u64 = 16 * RESTUDY;
/// The clock is read at a launch after so much of the window: reading it takes as long as the rest of a short
/// launch, and what was launched late meanwhile is foreseen to end early by at most that.
const FOLLOWED: u64 = 16;
/// The number of launches before a command that make up its place.
const HISTORY: usize = 3;

/// A snapshot of everything that had been launched when it was taken. A successful synchronisation turns it
/// into completion.
#[derive(Debug, Clone, Copy)]
pub struct CompletionSnapshot {
    launched: u64,
    unordered: u64,
    cost: u64,
    worked: u64,
}

impl CompletionSnapshot {
    /// Returns the snapshot with the next launch added.
    pub(crate) fn and_next(self) -> Self {
        Self { launched: self.launched + 1, ..self }
    }
}

/// The state of one hardware queue.
#[derive(Debug)]
pub(crate) struct Flight {
    launched: AtomicU64,
    since_marker: AtomicU32,
    /// The number of launches after which a marker is due without a limit; the watcher lowers it.
    marker_after: AtomicU32,
    marked: AtomicU64,
    completed: AtomicU64,
    /// Estimated nanoseconds, summed over all launches under the limit, those since the last marker, and the
    /// completed ones.
    cost_launched: AtomicU64,
    cost_since_marker: AtomicU64,
    cost_completed: AtomicU64,
    /// Unlike the costs, its times are not cut at the budget, and an unknown time is none.
    pub(crate) worked: Worked,
    /// The index of the last launch whose cost was counted, and that of the last launch without a counted
    /// cost.
    last_costed: AtomicU64,
    uncosted_upto: AtomicU64,
    /// The index of the last launch that can last until the program does something.
    open_upto: AtomicU64,
    /// The keys of the last launches under the limit, the last one first.
    history: [AtomicU64; HISTORY],
    launch_ahead: LaunchAhead,
    /// True if the queue was suspended or resumed since the last poll.
    interrupted: AtomicBool,
    /// Unordered launches, made inside user callbacks without the submit lock: begun, made, marked, and known
    /// complete.
    unordered: AtomicU64,
    unordered_made: AtomicU64,
    unordered_marked: AtomicU64,
    unordered_done: AtomicU64,
    poller: TryLock,
    intervals: Mutex<Intervals>,
    /// True if there may be markers that are not given back.
    has_intervals: AtomicBool,
    /// 0, [`ABANDONED`] or [`RECOVERABLE`].
    abandoned: AtomicU32,
}

/// Markers were given back unseen, and there must be no others for now.
const ABANDONED: u32 = 1;
/// Markers were given back unseen, and there may be others.
const RECOVERABLE: u32 = 2;

impl Flight {
    pub(crate) fn new() -> Self {
        Self {
            launched: AtomicU64::new(0),
            since_marker: AtomicU32::new(0),
            marker_after: AtomicU32::new(SPARSE),
            marked: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            cost_launched: AtomicU64::new(0),
            cost_since_marker: AtomicU64::new(0),
            cost_completed: AtomicU64::new(0),
            worked: Worked::new(),
            last_costed: AtomicU64::new(0),
            uncosted_upto: AtomicU64::new(0),
            open_upto: AtomicU64::new(0),
            history: std::array::from_fn(|_| AtomicU64::new(0)),
            launch_ahead: LaunchAhead::new(),
            interrupted: AtomicBool::new(false),
            unordered: AtomicU64::new(0),
            unordered_made: AtomicU64::new(0),
            unordered_marked: AtomicU64::new(0),
            unordered_done: AtomicU64::new(0),
            poller: TryLock::new(),
            intervals: Mutex::new(Intervals::default()),
            has_intervals: AtomicBool::new(false),
            abandoned: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn launched(&self) -> u64 {
        self.launched.load(Ordering::Acquire)
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        // Completed first: read after `launched` it could exceed it.
        let completed = self.completed();
        self.launched().saturating_sub(completed) + self.unordered_in_flight()
    }

    fn unordered_in_flight(&self) -> u64 {
        let done = self.unordered_done.load(Ordering::Acquire);
        self.unordered.load(Ordering::Acquire).saturating_sub(done)
    }

    pub(crate) fn unordered(&self) -> u64 {
        self.unordered.load(Ordering::Acquire)
    }

    /// Begins an unordered launch. Called under `pending`, so that no thread proves idleness past it.
    pub(crate) fn begin_unordered(&self) {
        self.unordered.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the call of an unordered launch has returned.
    pub(crate) fn end_unordered(&self) {
        self.unordered_made.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the unordered launches that a snapshot taken now covers: none while one of them is being made.
    fn provable_unordered(&self) -> u64 {
        let made = self.unordered_made.load(Ordering::Acquire);
        let begun = self.unordered();
        if made == begun { begun } else { 0 }
    }

    /// Returns true if there are launches not known to have completed, whose completion no marker would show.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.unmarked() != 0 || self.unordered_marked.load(Ordering::Acquire) < self.provable_unordered()
    }

    /// Returns true if no marker of a launch is outstanding, so that polling makes no room.
    pub(crate) fn has_no_marker(&self) -> bool {
        self.marked.load(Ordering::Acquire) <= self.completed()
    }

    /// Counts a launch that nothing limits. Returns true if a marker is due.
    #[inline]
    pub(crate) fn count_free(&self, _: &SubmitHeld) -> bool {
        self.launched.store(self.launched.load(Ordering::Relaxed) + 1, Ordering::Release);
        let since = self.since_marker.load(Ordering::Relaxed) + 1;
        self.since_marker.store(since, Ordering::Relaxed);
        since >= self.marker_after.load(Ordering::Relaxed)
    }

    /// Makes the next launch record a marker, because the last one is long ago.
    pub(crate) fn request_marker(&self) {
        self.marker_after.store(1, Ordering::Relaxed);
    }

    /// Counts a launch under the limit. Returns true if a marker is due.
    pub(crate) fn count_limited(&self, submit: &SubmitHeld, limit: Limit, key: CostKey) -> bool {
        let (before, completed) = (self.launched.load(Ordering::Relaxed), self.completed());
        self.launch_ahead.note_launch(before, completed);
        if before <= completed {
            // No marker could show more than what is known.
            self.since_marker.store(0, Ordering::Relaxed);
        }
        let due = self.count_free(submit) || self.since_marker.load(Ordering::Relaxed) >= DENSE;
        let cost = limit.cost;
        match limit.config {
            LaunchConfig::Fixed { batch, .. } => due || self.since_marker.load(Ordering::Relaxed) >= batch,
            LaunchConfig::Adaptive => {
                self.last_costed.store(before + 1, Ordering::Relaxed);
                let total = self.cost_launched.load(Ordering::Relaxed) + cost;
                self.cost_launched.store(total, Ordering::Relaxed);
                self.worked.note_launch(limit.known);
                let mut since = self.cost_since_marker.load(Ordering::Relaxed) + cost;
                let steady = {
                    let mut intervals = self.intervals.lock();
                    if before <= completed {
                        intervals.begin(before, now());
                        since = cost;
                        intervals.followed = total;
                    } else if total.saturating_sub(intervals.followed) >= limit.budget / FOLLOWED {
                        intervals.follow(now(), completed);
                        intervals.followed = total;
                    }
                    intervals.since_marker.add(key, limit.placed, limit.known);
                    intervals.since_marker.steady().zip(limit.known)
                };
                self.cost_since_marker.store(since, Ordering::Relaxed);
                self.remember(key);
                // True if one more command of this kind would exceed the interval.
                let is_full = match steady {
                    Some((takes, known)) => takes + known.nanos > INTERVAL.max(limit.budget / 2),
                    None => 2 * (since + cost) > limit.budget,
                };
                due || limit.is_studied() || is_full
            }
        }
    }

    /// Notes that the last launch can last until the program does something ([`crate::CommandSpec::open`]).
    pub(crate) fn note_open(&self, _: &SubmitHeld) {
        self.open_upto.store(self.launched.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Returns true if such a launch is not known to have completed.
    pub(crate) fn is_open(&self) -> bool {
        self.completed() < self.open_upto.load(Ordering::Acquire)
    }

    /// Returns true if the next command is to be studied again: one that takes this time by its estimate and
    /// would share its interval with others behind this window, or that is launched into an empty queue. A
    /// program that waits for each command never fills the window, so no poll corrects its estimates.
    pub(crate) fn is_restudied(&self, known: Estimate, budget: u64) -> bool {
        // Spread evenly over the places of a program of any length.
        let spread = self.launched.load(Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let is_short = 2 * known.nanos <= INTERVAL.max(budget / 2);
        spread.is_multiple_of(RESTUDY)
            && match self.in_flight() == 0 {
                true => !is_short || spread.is_multiple_of(RESTUDY_ALONE),
                false => is_short && spread.is_multiple_of(RESTUDY << known.settled),
            }
    }

    /// Returns the key of a command at its place: after the launches before it. Programs repeat themselves,
    /// and the same function with the same grid takes one time here and another there (a convolution's depth
    /// is an argument).
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

    /// Returns true if the window admits one more command of this cost, by what is known to have completed.
    pub(crate) fn has_room(&self, _: &SubmitHeld, limit: Limit) -> bool {
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

    /// Returns true if the window admits one more command by what is foreseen: so much has probably completed
    /// by now, or all will complete so soon that the device would idle if this command, of known length,
    /// waited until the end is seen. None if that cannot be foreseen.
    pub(crate) fn foresees_room(&self, _: &SubmitHeld, limit: Limit) -> Option<bool> {
        if limit.known.is_none() || self.completed() < self.uncosted_upto.load(Ordering::Relaxed) {
            return None;
        }
        let expected = self.expectation()?;
        let (_, all) = expected.remaining()?;
        Some(all <= self.room_below(limit, expected))
    }

    /// Returns the foreseen time below which this command may be launched.
    pub(crate) fn room_below(&self, limit: Limit, expected: Expectation) -> Duration {
        // If it takes longer than foreseen, another queue shares the device: only what is seen counts.
        let window = if expected.is_overdue() { 0 } else { limit.budget.saturating_sub(limit.cost) };
        self.launch_ahead().max(Duration::from_nanos(window))
    }

    /// Notes that the queue is suspended, or was until now.
    pub(crate) fn note_suspension(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.launch_ahead.note_suspension();
    }

    /// Notes that the next launch waits for those of other queues.
    pub(crate) fn note_wait(&self) {
        self.launch_ahead.note_wait();
    }

    /// Returns true if the queue was suspended after the last launch under a limit.
    pub(crate) fn was_suspended(&self) -> bool {
        self.launch_ahead.was_suspended()
    }

    pub(crate) fn launch_ahead(&self) -> Duration {
        self.launch_ahead.time()
    }

    /// Judges the launch-ahead time after a poll, with a command that waits for room under this limit.
    pub(crate) fn judge_launch_ahead(&self, _: &SubmitHeld, limit: Limit) {
        // An unknown command is launched alone, and cannot be in time.
        let Some(known) = limit.known.filter(|_| limit.config == LaunchConfig::Adaptive) else {
            return;
        };
        let (launched, completed) = (self.launched.load(Ordering::Relaxed), self.completed());
        // It shows only where a marker is just in front of the last launch.
        let intervals = self.intervals.lock();
        let is_alone = |interval: &Interval| interval.upto == launched && interval.upto - interval.start == 1;
        let shows = completed == launched
            || self.marked.load(Ordering::Relaxed) + 1 == launched
            || intervals.queue.back().is_some_and(is_alone);
        // An end that nobody could foresee shows nothing of this machine.
        let foreseen = completed + 1 < launched || !intervals.ended_fresh;
        drop(intervals);
        if shows && foreseen {
            self.launch_ahead.judge(launched, completed, known.nanos);
        }
    }

    /// Records a marker behind everything launched; the next one is due after `spacing` launches.
    pub(crate) fn record(&self, _: &SubmitHeld, hw: &dyn HwQueue, spacing: u32) -> Result<(), HwError> {
        let launched = self.launched.load(Ordering::Relaxed);
        let unordered = self.provable_unordered();
        self.since_marker.store(0, Ordering::Relaxed);
        self.marker_after.store(spacing, Ordering::Relaxed);
        self.cost_since_marker.store(0, Ordering::Relaxed);
        let result = hw.record_marker();
        let mut intervals = self.intervals.lock();
        let keys = std::mem::take(&mut intervals.since_marker);
        let start = std::mem::replace(&mut intervals.start, launched);
        let unstarted = intervals.unstarted.filter(|(_, index)| start >= *index);
        let unstarted =
            unstarted.or(intervals.follows.filter(|(_, index)| start == *index)).map(|(at, _)| at);
        let cost = self.cost_launched.load(Ordering::Relaxed);
        let worked = self.worked.launched();
        let result = result.map(|mark| {
            intervals.queue.push_back(Interval {
                mark,
                start,
                upto: launched,
                unordered_upto: unordered,
                cost_upto: cost,
                worked_upto: worked,
                recorded: (keys.commands != 0).then(now),
                unstarted,
                seen_running: None,
                keys,
            });
            self.has_intervals.store(true, Ordering::Release);
        });
        drop(intervals);
        if result.is_err() {
            // Its completion can no longer be observed: fail open.
            self.complete(CompletionSnapshot { launched, unordered, cost, worked });
        }
        self.unordered_marked.fetch_max(unordered, Ordering::AcqRel);
        self.marked.store(launched, Ordering::Release);
        result
    }

    /// Returns the snapshot that a synchronisation which begins now will prove.
    pub(crate) fn snapshot(&self) -> CompletionSnapshot {
        // Costs first: a cost that is too small only keeps the window smaller for a while.
        let cost = self.cost_launched.load(Ordering::Acquire);
        let worked = self.worked.launched();
        let unordered = self.provable_unordered();
        CompletionSnapshot { launched: self.launched(), unordered, cost, worked }
    }

    /// Returns the snapshot of everything whose launch had begun, for a caller that has seen the submit lock
    /// free; none while an unordered launch is being made.
    pub(crate) fn whole_snapshot(&self) -> Option<CompletionSnapshot> {
        let snapshot = self.snapshot();
        (snapshot.unordered == self.unordered()).then_some(snapshot)
    }

    pub(crate) fn complete(&self, snapshot: CompletionSnapshot) {
        // Costs and unordered launches rarely change, and an exchange takes as long as ten loads.
        let raise = |sum: &AtomicU64, upto: u64| {
            if sum.load(Ordering::Acquire) < upto {
                sum.fetch_max(upto, Ordering::AcqRel);
            }
        };
        raise(&self.cost_completed, snapshot.cost);
        self.worked.complete(snapshot.worked);
        raise(&self.unordered_done, snapshot.unordered);
        raise(&self.completed, snapshot.launched);
    }

    /// Notes that everything in the snapshot, and everything launched since under the submit lock, has
    /// completed.
    pub(crate) fn complete_through(&self, _: &SubmitHeld, snapshot: CompletionSnapshot) {
        self.complete(CompletionSnapshot { launched: self.launched.load(Ordering::Relaxed), ..snapshot });
    }

    pub(crate) fn covers(&self, snapshot: CompletionSnapshot) -> bool {
        self.completed() >= snapshot.launched
            && self.unordered_done.load(Ordering::Acquire) >= snapshot.unordered
    }

    /// Notes, for a command that is to have an interval of its own, that it has not started. Called before its
    /// launch with nothing in flight.
    pub(crate) fn note_unstarted(&self, _: &SubmitHeld) {
        let launched = self.launched.load(Ordering::Relaxed);
        self.intervals.lock().unstarted = Some((now(), launched));
    }

    /// Returns what can be foreseen of what is in flight.
    pub(crate) fn expectation(&self) -> Option<Expectation> {
        let launches = self.launches();
        self.intervals.lock().expectation(&launches)
    }

    /// Returns the estimated remaining time of what is in flight, as far as it is known.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        // The times of unordered launches are unknown.
        if self.unordered_in_flight() != 0 {
            return None;
        }
        let foreseen = self.expectation().and_then(|expected| expected.remaining());
        foreseen.map(|(_, all)| all).or_else(|| self.takes())
    }

    /// Returns the estimated total time of what is in flight, an upper bound of the remaining time.
    fn takes(&self) -> Option<Duration> {
        let launches = self.launches();
        self.intervals.lock().takes(&launches)
    }

    fn launches(&self) -> Launches {
        let (completed, marked) = (self.completed(), self.marked.load(Ordering::Acquire));
        Launches { upto: self.launched(), marked, completed }
    }

    /// Returns the number of launches in flight behind the last marker.
    fn unmarked(&self) -> u64 {
        let Launches { upto, marked, completed } = self.launches();
        upto.saturating_sub(marked.max(completed))
    }

    /// Notes before a launch at this time that the queue was suspended since the last one.
    pub(crate) fn interrupt(&self, at: Instant) {
        self.interrupted.store(false, Ordering::Relaxed);
        self.intervals.lock().interrupt(at);
    }

    pub(crate) fn forget_times(&self) {
        self.intervals.lock().forget_times();
    }

    /// Returns true if a marker is recorded and not given back.
    pub(crate) fn has_markers(&self) -> bool {
        !self.intervals.lock().queue.is_empty()
    }

    /// Begins anew for another hardware queue with nothing in flight. The counts go on, so that a snapshot of
    /// the former queue stays complete and proves nothing of the new one.
    pub(crate) fn restart(&self, submit: &SubmitHeld) {
        self.complete_through(submit, self.snapshot());
        self.unordered_done.fetch_max(self.unordered(), Ordering::AcqRel);
        self.unordered_marked.fetch_max(self.unordered(), Ordering::AcqRel);
        self.marked.store(self.launched(), Ordering::Release);
        self.abandoned.store(0, Ordering::Release);
        self.since_marker.store(0, Ordering::Relaxed);
        self.marker_after.store(SPARSE, Ordering::Relaxed);
        self.cost_since_marker.store(0, Ordering::Relaxed);
        let mut intervals = self.intervals.lock();
        intervals.since_marker = Keys::default();
        intervals.start = self.launched();
        intervals.forget_times();
    }

    /// Stops recording and polling markers for what has been launched, until [`Flight::recover`]. The caller
    /// then gives the markers back.
    pub(crate) fn abandon(&self, _: &SubmitHeld) {
        self.abandoned.store(ABANDONED, Ordering::Release);
        self.marked.store(self.launched.load(Ordering::Relaxed), Ordering::Release);
        self.unordered_marked.fetch_max(self.unordered(), Ordering::AcqRel);
    }

    /// Permits markers again.
    pub(crate) fn allow_markers(&self) {
        let _ = self.abandoned.compare_exchange(ABANDONED, RECOVERABLE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns true if markers are permitted again and the abandoned launches have none yet.
    pub(crate) fn is_recoverable(&self) -> bool {
        self.abandoned.load(Ordering::Acquire) == RECOVERABLE
    }

    /// Counts the abandoned launches as unmarked.
    pub(crate) fn recover(&self, _: &SubmitHeld) {
        if self.abandoned.compare_exchange(RECOVERABLE, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
            && self.intervals.lock().queue.is_empty()
        {
            self.marked.store(self.completed(), Ordering::Release);
        }
    }

    /// Gives back all markers of a queue that is going away, or whose markers are abandoned. Returns false if
    /// another thread is polling.
    pub(crate) fn release_all(&self, hw: &dyn HwQueue) -> bool {
        if !self.poller.try_lock() {
            return false;
        }
        let intervals = {
            let mut intervals = self.intervals.lock();
            self.has_intervals.store(false, Ordering::Release);
            std::mem::take(&mut intervals.queue)
        };
        for interval in intervals {
            hw.release_marker(interval.mark);
        }
        self.poller.release();
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn long_command_is_studied_again_only_in_an_empty_queue() {
        let restudied = |in_flight: u64| {
            let flight = Flight::new();
            let launches = (in_flight..in_flight + 10 * RESTUDY).filter(|launched| {
                flight.launched.store(*launched, Ordering::Relaxed);
                flight.completed.store(launched - in_flight, Ordering::Relaxed);
                flight.is_restudied(Estimate { nanos: 5_000_000, fresh: false, settled: 2 }, 200_000)
            });
            launches.count()
        };
        assert_eq!(restudied(1), 0);
        assert!((2..50).contains(&restudied(0)), "about one in {RESTUDY}: {}", restudied(0));
    }
}
