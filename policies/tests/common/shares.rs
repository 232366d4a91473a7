//! Scenarios for the policies with shares: the part of a device that each actor got.

use super::play::{Actor, MS, Play, Setup, US, Work, play};
use policies::Engine;
use proptest::collection::vec;
use proptest::prelude::*;

/// An actor whose queue and process have this utilization.
pub fn actor(percent: u64, work: Work) -> Actor {
    let mut actor = Actor::new(0, work);
    set_utilization(&mut actor, percent);
    actor
}

pub fn set_utilization(actor: &mut Actor, percent: u64) {
    let percent = i64::try_from(percent).unwrap().try_into().unwrap();
    actor.process.utilization = percent;
    for queue in &mut actor.queues {
        queue.hints.utilization = percent;
    }
}

/// The actors of these that always have work.
pub fn saturating(percents: &[u64]) -> Vec<Actor> {
    percents.iter().map(|percent| actor(*percent, Work::Always)).collect()
}

/// Jobs of one length, one every period.
pub fn every(period: u64, length: u64, count: u64) -> Work {
    Work::Jobs((0..count).map(|number| (number * period, length)).collect())
}

/// Some time of up to 300 us that looks random.
pub fn late(decision: u64) -> u64 {
    let mut bits = decision.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (bits >> 33) % (300 * US)
}

/// Weights of 2, 3 or 5 entities.
pub fn weights() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![vec(1u64..=100, 2), vec(1u64..=100, 3), vec(1u64..=100, 5)]
}

/// The part of the time that each had, in percent.
pub fn percents(play: &Play, until: u64) -> Vec<f64> {
    play.used.iter().map(|used| used * 100.0 / until as f64).collect()
}

/// The largest difference in points between what each had and what its weight says.
pub fn error(play: &Play, until: u64, weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let got = percents(play, until);
    got.iter().zip(weights).map(|(got, weight)| (got - weight * 100.0 / sum).abs()).fold(0.0, f64::max)
}

/// The longest time for which an actor did not run, of one that always has work.
pub fn longest_wait(play: &Play, actor: usize, until: u64) -> u64 {
    let mut last = 0;
    let mut longest = 0;
    for (from, to) in play.spans[actor].iter().copied().chain([(until, until)]) {
        longest = longest.max(from - last);
        last = to;
    }
    longest
}

/// Returns the time that an actor ran between two times.
pub fn ran(play: &Play, actor: usize, from: u64, to: u64) -> u64 {
    play.spans[actor].iter().map(|&(a, b)| b.min(to).saturating_sub(a.max(from))).sum()
}

/// Plays saturating entities for ten seconds; the error of their shares in points.
pub fn ten_seconds(engine: &mut Engine, percents: &[u64], local: bool, late: fn(u64) -> u64) -> f64 {
    let until = 10_000 * MS;
    let setup = Setup { local, late, ..Setup::until(until) };
    let play = play(engine, &saturating(percents), setup);
    let weights: Vec<_> = percents.iter().map(|percent| *percent as f64).collect();
    error(&play, until, &weights)
}
