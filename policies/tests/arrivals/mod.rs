//! Sequences of arrivals, and what a forecast makes of them. Shared by the tests and the benchmark.

#![allow(dead_code, reason = "each user takes its own part")]

use policies::forecast::{Counts, Forecast, Seasonal};
use protocol::time::Time;
use std::time::Duration;

/// Work that arrives, and the time at which the queue is idle again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    pub at: Time,
    pub idle: Time,
}

/// Numbers that look random; the same seed gives the same ones.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// From 0 to below 1 (the generator "splitmix64").
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From -1 to below 1.
    pub fn signed(&mut self) -> f64 {
        self.unit() * 2.0 - 1.0
    }

    /// With mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// The beginning of all sequences in microseconds: a clock does not start at 0.
const BEGIN_US: f64 = 5e6;

/// Arrivals at these times in microseconds, each of which takes so long or, if the next one comes before, half the
/// time until then.
pub fn arrivals(times_us: &[f64], work_us: f64) -> Vec<Arrival> {
    let mut sorted: Vec<Time> = times_us.iter().map(|us| Time(((BEGIN_US + us) * 1e3) as u64)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let work = Duration::from_nanos((work_us * 1e3) as u64);
    let next = sorted.iter().skip(1).map(|next| Some(*next)).chain([None]);
    sorted
        .iter()
        .zip(next)
        .map(|(&at, next)| Arrival {
            at,
            idle: at.after(next.map_or(work, |next| work.min(next.since(at) / 2))),
        })
        .collect()
}

/// One arrival in each period, up to `jitter` of the period off its place; each is missing with probability `dropped`.
pub fn periodic(count: usize, period_us: f64, jitter: f64, dropped: f64, seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed);
    let mut times = Vec::new();
    for index in 0..count {
        let place = index as f64 + jitter * random.signed();
        if random.unit() >= dropped {
            times.push(place * period_us);
        }
    }
    arrivals(&times, period_us / 10.0)
}

/// Intervals that `interval_us` gives for each index, one after the other.
pub fn renewal(count: usize, mut interval_us: impl FnMut(usize) -> f64, work_us: f64) -> Vec<Arrival> {
    let mut now = 0.0;
    let times: Vec<f64> = (0..count)
        .map(|index| {
            now += interval_us(index);
            now
        })
        .collect();
    arrivals(&times, work_us)
}

/// Independent arrivals.
pub fn poisson(count: usize, mean_us: f64, seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed);
    renewal(count, |_| mean_us * random.exponential(), mean_us / 10.0)
}

/// In each period arrivals at these offsets, each up to `jitter_us` off.
pub fn pattern(
    seasons: usize,
    period_us: f64,
    offsets_us: &[f64],
    jitter_us: f64,
    seed: u64,
) -> Vec<Arrival> {
    let mut random = Random(seed);
    let mut times = Vec::new();
    for season in 0..seasons {
        for offset in offsets_us {
            times.push(season as f64 * period_us + offset + jitter_us * random.signed());
        }
    }
    let mean = period_us / offsets_us.len() as f64;
    arrivals(&times, mean / 10.0)
}

/// The result of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Counts of the forecast, without the first arrivals that it may learn from.
    pub counts: Counts,
    /// Arrivals behind the first ones, and the time that they span.
    pub arrivals: usize,
    pub span: Duration,
}

impl Outcome {
    pub fn hit_rate(&self) -> f64 {
        self.counts.hit as f64 / self.arrivals as f64
    }

    pub fn missed_rate(&self) -> f64 {
        self.counts.missed as f64 / self.arrivals as f64
    }

    pub fn wasted_share(&self) -> f64 {
        self.counts.wasted.as_secs_f64() / self.span.as_secs_f64()
    }

    pub fn waited_share(&self) -> f64 {
        self.counts.waited.as_secs_f64() / self.span.as_secs_f64()
    }
}

/// Lets a forecast follow the arrivals as a policy would: it asks when the queue has turned idle and whenever a window
/// is over. The first `learning` arrivals are not counted.
pub fn follow(sequence: &[Arrival], learning: usize) -> Outcome {
    let mut forecast = Forecast::default();
    forecast.set_lead(Duration::from_micros(300));
    let mut before = Counts::default();
    for (index, arrival) in sequence.iter().enumerate() {
        forecast.arrived(arrival.at);
        if index == learning {
            before = forecast.counts();
        }
        let Some(next) = sequence.get(index + 1) else { break };
        let mut now = arrival.idle;
        while let Some(window) = forecast.expect(now) {
            assert!(now <= window.start && window.start <= window.from && window.from < window.until);
            if window.until >= next.at {
                break;
            }
            now = Time(window.until.0 + 1);
        }
    }
    let after = forecast.counts();
    let counted = merged(&sequence[learning..], Forecast::APART);
    let counts = Counts {
        announced: after.announced - before.announced,
        hit: after.hit - before.hit,
        early: after.early - before.early,
        missed: after.missed - before.missed,
        wasted: after.wasted - before.wasted,
        waited: after.waited - before.waited,
    };
    let last = sequence[sequence.len() - 1].at;
    Outcome { counts, arrivals: counted.len() - 1, span: last.since(sequence[learning].at) }
}

/// The arrivals that are farther than this from the one before.
pub fn merged(sequence: &[Arrival], apart: Duration) -> Vec<Time> {
    let mut latest: Option<Time> = None;
    let times = sequence.iter().map(|arrival| arrival.at);
    times.filter(|at| latest.replace(*at).is_none_or(|latest| at.since(latest) > apart)).collect()
}

/// Returns the mean distance of an arrival from its forecast at the arrival before, as a share of the mean interval. The
/// first `learning` arrivals do not count. An arrival without a forecast counts as a whole interval. Arrivals that a
/// forecast takes for one are one here as well.
pub fn mean_error(sequence: &[Arrival], learning: usize) -> f64 {
    let mut pattern = Seasonal::default();
    let times = merged(sequence, Forecast::APART);
    let span = times[times.len() - 1].since(times[learning]).as_nanos() as f64;
    let mean = span / (times.len() - 1 - learning) as f64;
    let mut sum = 0.0;
    for (index, pair) in times.windows(2).enumerate() {
        pattern.arrived(pair[0]);
        if index >= learning {
            sum += pattern.next(pair[0]).map_or(mean, |foreseen| foreseen.0.abs_diff(pair[1].0) as f64);
        }
    }
    sum / span
}
