//! The way through the markers of a queue: polls them, gives back those that are known to be complete, and learns
//! from both.

use std::time::Duration;

use super::{CompletionSnapshot, Flight};
use crate::error::HwError;
use crate::estimate::Estimates;
use crate::hw::HwQueue;
use crate::state::interval::Keys;
use crate::sync::{Ordering, now};

/// The result of a poll of the markers.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// True if this thread polled, and no other was doing so.
    pub(crate) polled: bool,
    /// True if something completed.
    pub(crate) progress: bool,
    /// The error of a marker that could not be queried.
    pub(crate) error: Option<HwError>,
}

/// How a poll learns from the times that it observes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lesson<'e> {
    /// The table to which it adds them.
    pub(crate) estimates: &'e Estimates,
    /// The time for which the device may have run other queues in between.
    pub(crate) others: Duration,
    /// True while the queue is suspended, so that another process may have the device.
    pub(crate) suspended: bool,
}

impl Flight {
    /// Queries the markers in order; returns at once if another thread is polling. `has_submit`: the caller
    /// holds the submit lock, so that no launch is being made.
    pub(crate) fn poll(&self, hw: &dyn HwQueue, learn: Option<Lesson<'_>>, has_submit: bool) -> Polled {
        self.sweep(hw, learn, has_submit, true)
    }

    /// Gives back, without a query, the markers of what is known to have completed. Otherwise a program that
    /// synchronizes before its window is full would collect markers, and its commands would not be learnt.
    /// Returns at once if another thread is polling.
    #[inline]
    pub(crate) fn settle<'e>(&self, hw: &dyn HwQueue, learn: impl FnOnce() -> Option<Lesson<'e>>) {
        if self.has_intervals.load(Ordering::Acquire) {
            self.sweep(hw, learn(), false, false);
        }
    }

    /// Goes through the markers in order, up to the first one that is not known to be complete and, with
    /// `query`, is not found complete.
    fn sweep(&self, hw: &dyn HwQueue, learn: Option<Lesson<'_>>, has_submit: bool, query: bool) -> Polled {
        let mut polled = Polled::default();
        if !self.poller.try_lock() {
            return polled;
        }
        polled.polled = true;
        let begun = learn.map(|_| now());
        // Times with a suspension in them teach nothing. The load keeps the exchange off the usual way.
        let is_interrupted =
            || self.interrupted.load(Ordering::Relaxed) && self.interrupted.swap(false, Ordering::Relaxed);
        let held = learn.is_some_and(|lesson| is_interrupted() || lesson.suspended);
        let launched = self.launched() + u64::from(!has_submit);
        loop {
            let Some(interval) = self.intervals.lock().queue.front().copied() else {
                break;
            };
            let snapshot = CompletionSnapshot {
                launched: interval.upto,
                unordered: interval.unordered_upto,
                cost: interval.cost_upto,
                worked: interval.worked_upto,
            };
            let known = self.covers(snapshot);
            if !known && !query {
                break;
            }
            let behind = known
                || match hw.query_marker(interval.mark) {
                    Ok(behind) => behind,
                    Err(error) => {
                        polled.error = Some(error);
                        true
                    }
                };
            if !behind {
                if let (Some(lesson), Some(begun)) = (learn, begun) {
                    let mut intervals = self.intervals.lock();
                    if held {
                        intervals.hold(begun);
                    }
                    let overdue = intervals.still_running(begun, lesson.others);
                    drop(intervals);
                    overdue.iter().flat_map(Keys::learnt).for_each(|key| lesson.estimates.forget(key));
                }
                break;
            }
            self.complete(snapshot);
            polled.progress |= !known;
            let seen =
                learn.filter(|_| !known || interval.keys.fresh).map(|lesson| (lesson.estimates, now()));
            let mut intervals = self.intervals.lock();
            let start_gap = intervals.start_gap(interval.start);
            intervals.end(&interval, seen.filter(|_| !known).map(|(_, at)| at), self.launched());
            self.has_intervals.store(!intervals.queue.is_empty(), Ordering::Release);
            drop(intervals);
            if let Some((estimates, at)) = seen.filter(|_| !held)
                && let Some(since) = interval.unstarted
            {
                let upper = at.saturating_duration_since(since);
                // A synchronization has shown the end at some time before.
                let running = interval.seen_running.filter(|_| !known).unwrap_or(since);
                let gap = at.saturating_duration_since(running);
                interval.learn(upper, [start_gap, gap], estimates);
            }
            hw.release_marker(interval.mark);
        }
        if let Some(begun) = begun {
            let mut intervals = self.intervals.lock();
            let index = match intervals.queue.front() {
                Some(front) if query => front.upto,
                _ => launched,
            };
            intervals.unstarted = Some((begun, index));
            // The first one may be running; those behind it were not.
            for interval in intervals.queue.iter_mut().skip(1).filter(|_| query) {
                interval.unstarted = Some(begun);
            }
        }
        // No thread registers for this lock: one that fails to get it need not poll.
        self.poller.release();
        polled
    }
}
