//! A device with one critical program that takes requests in order, and one best-effort program that always has work.
//!
//! Beside each other both are slower by a factor; when best effort is suspended it keeps the device for a moment.

use super::{local, queue};
use policies::Engine;
use protocol::hint::QueueHints;
use protocol::status::{Activity, QueueStatus};
use protocol::time::Time;
use std::collections::VecDeque;

#[derive(Debug, Clone)]
pub struct Plant {
    /// The time at which it begins.
    pub begin: u64,
    /// Arrival and service time of each critical request, rising.
    pub requests: Vec<(u64, u64)>,
    /// The speed of critical work beside best effort; 1 is its speed alone.
    pub critical_beside: f64,
    /// The speed of best effort beside critical work.
    pub best_beside: f64,
    /// The time for which best effort keeps the device when it is suspended while critical work waits.
    pub drains: u64,
    pub hints: QueueHints,
}

/// The decider about best effort. It gets the time and the state of the critical queue, and returns how long
/// that holds.
pub trait Decider {
    fn best_runs(&mut self, now: u64, critical: Activity, hints: QueueHints) -> (bool, Option<u64>);
}

/// The result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Arrival and latency of each request.
    pub latencies: Vec<(u64, u64)>,
    /// Beginning and length of each time in which there was critical work: what the policy can see.
    pub busy: Vec<(u64, u64)>,
    /// The times at which best effort ran: from, to, and its speed.
    pub best: Vec<(u64, u64, f64)>,
}

impl Decider for Engine {
    fn best_runs(&mut self, now: u64, critical: Activity, hints: QueueHints) -> (bool, Option<u64>) {
        let best = queue(1, 1, 0, true);
        let critical = QueueStatus { activity: critical, hints, ..queue(2, 1, 5, false) };
        let decision = self.decide(&local(vec![best, critical]), Time(now));
        let [best, critical] = [0, 1].map(|entity| decision.operations[entity].permit.run);
        assert!(critical, "the critical program always runs");
        (best, decision.wake.map(|wake| wake.0))
    }
}

/// Best effort beside each request from its beginning on for so long, and while there is none.
pub struct Fixed(pub u64);

impl Decider for Fixed {
    fn best_runs(&mut self, now: u64, critical: Activity, _: QueueHints) -> (bool, Option<u64>) {
        match critical {
            Activity::Idle { .. } => (true, None),
            Activity::Ready { since } => {
                let end = since.0 + self.0;
                (now < end, Some(end).filter(|end| now < *end))
            }
        }
    }
}

impl Plant {
    pub fn run(&self, decider: &mut impl Decider) -> Outcome {
        let mut outcome = Outcome::default();
        let mut arrivals = self.requests.iter().copied().peekable();
        let mut waiting: VecDeque<(u64, f64)> = VecDeque::new();
        let (mut activity, mut permitted) = (Activity::Idle { since: None }, true);
        let (mut now, mut wake, mut drains_until, mut changed) = (self.begin, None::<u64>, 0, true);
        loop {
            while let Some((at, service)) = arrivals.next_if(|(at, _)| *at <= now) {
                if waiting.is_empty() {
                    (activity, changed) = (Activity::Ready { since: Time(now) }, true);
                }
                waiting.push_back((at, service as f64));
            }
            if changed || wake.is_some_and(|wake| wake <= now) {
                let (runs, next) = decider.best_runs(now, activity, self.hints);
                assert!(next.is_none_or(|next| next > now));
                if permitted && !runs && !waiting.is_empty() {
                    drains_until = now + self.drains;
                }
                (permitted, wake, changed) = (runs, next, false);
            }
            let works = !waiting.is_empty();
            let (critical, best) = match (works, permitted, drains_until > now) {
                (true, _, true) => (0.0, 1.0),
                (true, true, false) => (self.critical_beside, self.best_beside),
                (true, false, false) => (1.0, 0.0),
                (false, runs, _) => (1.0, if runs { 1.0 } else { 0.0 }),
            };
            let arrival = arrivals.peek().map(|(at, _)| *at);
            let done = waiting
                .front()
                .filter(|_| critical > 0.0)
                .map(|(_, left)| now + (left / critical).ceil() as u64);
            let drained = Some(drains_until).filter(|until| *until > now);
            let Some(next) = [arrival, done].into_iter().flatten().min().or(drained) else { return outcome };
            let next = [wake, drained].into_iter().flatten().fold(next, u64::min).max(now + 1);
            let span = (next - now) as f64;
            if best > 0.0 {
                outcome.best.push((now, next, best));
            }
            now = next;
            if let Some((at, left)) = waiting.front_mut() {
                *left -= span * critical;
                if *left < 0.5 {
                    outcome.latencies.push((*at, now - *at));
                    waiting.pop_front();
                    if let (true, Activity::Ready { since }) = (waiting.is_empty(), activity) {
                        outcome.busy.push((since.0, now - since.0));
                        (activity, changed) = (Activity::Idle { since: Some(Time(now)) }, true);
                    }
                }
            }
        }
    }
}

impl Outcome {
    /// The 99th percentile of the times of critical work that began within this time.
    pub fn p99(&self, from: u64, to: u64) -> u64 {
        p99(&self.busy, from, to)
    }

    /// The 99th percentile of the requests that arrived within this time.
    pub fn request_p99(&self, from: u64, to: u64) -> u64 {
        p99(&self.latencies, from, to)
    }

    /// Returns the progress of best effort within this time, as a share of the time.
    pub fn best(&self, from: u64, to: u64) -> f64 {
        let within = |&(begin, end, speed): &(u64, u64, f64)| {
            end.min(to).saturating_sub(begin.max(from)) as f64 * speed
        };
        self.best.iter().map(within).fold(0.0, |sum, part| sum + part) / (to - from) as f64
    }
}

fn p99(latencies: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let within = latencies.iter().filter(|(at, _)| (from..to).contains(at));
    let mut within: Vec<_> = within.map(|(_, latency)| *latency).collect();
    within.sort_unstable();
    within[(within.len() * 99).div_ceil(100) - 1]
}
