//! The way of a permission: from the store of one client's readiness to the store of another one's permission.

use super::bed::Bed;
use super::client::{Client, DEVICE};
use super::crowd::Crowd;
use super::echo::Echo;
use super::placement::{Placed, Placement};
use crate::clock::{microseconds, now_ns};
use crate::process::{SERVER_PATIENCE, poll};
use crate::processor_time::OtherLoad;
use crate::stats::Samples;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::hint::spin_loop;
use std::time::Duration;

/// The pause before a transition, in which the server falls asleep.
const PAUSE: Duration = Duration::from_micros(100);
/// The transitions before the first block.
const WARM_UP: usize = 200;
/// The time after which a permission counts as lost.
const LIMIT: Duration = Duration::from_secs(10);

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Times {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Times {
    pub(super) fn of(us: Vec<f64>) -> Result<Self> {
        let samples = Samples::new(us).context("nothing was measured")?;
        let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| samples.percentile(percent));
        Ok(Self { p50, p90, p99, max: samples.max() })
    }
}

/// One block of transitions.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Block {
    /// From ready to the suspension of the other client.
    pub(super) suspended_us: Times,
    /// From idle to the resumption of the other client; the time for which an idle client still counts as ready included.
    pub(super) resumed_us: Times,
    /// From a notification to the store of a thread that does nothing else.
    pub(super) wake_us: Times,
    /// Cores that other processes kept busy meanwhile.
    pub(super) other_cores: f64,
}

/// All blocks with one number of clients.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// Connected clients, the two that are measured included.
    pub(super) clients: usize,
    pub(super) placement: Placement,
    /// Transitions to ready in each block, and as many to idle.
    pub(super) rounds: usize,
    /// The block with the lowest p99 of `suspended_us`.
    pub(super) best: Block,
    /// All blocks together.
    pub(super) all: Block,
    pub(super) blocks: Vec<Block>,
}

/// Measures with this many clients, two of which are not idle.
pub(super) fn measure(clients: usize, blocks: usize, rounds: usize, placement: Placement) -> Result<Row> {
    let bed = Bed::start()?;
    let crowd = Crowd::gather(&bed.socket, clients - 2)?;
    let mut low = Client::connect(&bed.socket, "low", DEVICE, 0)?;
    bed.wait_for_queues(clients - 1)?;
    // The list took a connection, which the server may not have closed yet: with all its clients there is no other left.
    let mut why = None;
    let high = poll(SERVER_PATIENCE, || match Client::connect(&bed.socket, "high", DEVICE, 10) {
        Ok(client) => Ok(Some(client)),
        Err(error) => {
            why = Some(error);
            Ok(None)
        }
    })?;
    let mut high = match (high, why) {
        (Some(high), _) => high,
        (None, why) => return Err(why.unwrap_or_else(|| anyhow::anyhow!("no client can connect"))),
    };
    low.ready()?;
    let placed = Placed::here(placement)?;
    placed.place(bed.pid())?;
    let echo = placed.there(Echo::start)?;
    rounds_of(&mut high, &low, &echo, WARM_UP)?;
    let (mut measured, mut all) = (Vec::new(), Waits::default());
    let all_load = OtherLoad::start(&bed.pids(&crowd))?;
    for _ in 0..blocks {
        let load = OtherLoad::start(&bed.pids(&crowd))?;
        let waits = rounds_of(&mut high, &low, &echo, rounds)?;
        all.add(&waits);
        measured.push(waits.block(load.cores()?)?);
    }
    let all = all.block(all_load.cores()?)?;
    let best = best(&measured).context("nothing was measured")?.clone();
    drop((low, high, crowd, echo, placed));
    bed.end()?;
    Ok(Row { clients, placement, rounds, best, all, blocks: measured })
}

/// The block with the lowest p99.
fn best(blocks: &[Block]) -> Option<&Block> {
    blocks.iter().min_by(|a, b| a.suspended_us.p99.total_cmp(&b.suspended_us.p99))
}

/// Times in microseconds.
#[derive(Debug, Default)]
struct Waits {
    suspended: Vec<f64>,
    resumed: Vec<f64>,
    wake: Vec<f64>,
}

impl Waits {
    fn add(&mut self, more: &Self) {
        self.suspended.extend_from_slice(&more.suspended);
        self.resumed.extend_from_slice(&more.resumed);
        self.wake.extend_from_slice(&more.wake);
    }

    fn block(self, other_cores: f64) -> Result<Block> {
        let Self { suspended, resumed, wake } = self;
        let (suspended_us, resumed_us) = (Times::of(suspended)?, Times::of(resumed)?);
        Ok(Block { suspended_us, resumed_us, wake_us: Times::of(wake)?, other_cores })
    }
}

/// Lets a client turn ready and idle, and times both until they show at the other one.
fn rounds_of(high: &mut Client, low: &Client, echo: &Echo, rounds: usize) -> Result<Waits> {
    let mut waits = Waits::default();
    for _ in 0..rounds {
        pause();
        waits.wake.push(timed(|| echo.ask(), || echo.has_answered())?);
        pause();
        waits.suspended.push(timed(|| high.ready(), || !low.runs())?);
        waits.resumed.push(timed(|| high.idle(), || low.runs())?);
    }
    Ok(waits)
}

/// Keeps this processor awake while the other threads fall asleep.
fn pause() {
    let begin = now_ns();
    while now_ns() - begin < PAUSE.as_nanos() as u64 {
        spin_loop();
    }
}

fn timed(act: impl FnOnce() -> Result<()>, is_so: impl Fn() -> bool) -> Result<f64> {
    let begin = now_ns();
    act()?;
    let mut looks = 0_u32;
    while !is_so() {
        spin_loop();
        looks += 1;
        // The clock is read rarely, so that it costs no precision.
        if looks.is_multiple_of(1 << 16) {
            ensure!(
                now_ns() - begin < LIMIT.as_nanos() as u64,
                "nothing has happened within {} s",
                LIMIT.as_secs()
            );
        }
    }
    Ok(microseconds(Duration::from_nanos(now_ns() - begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_block_has_the_lowest_p99() {
        let block = |p99| {
            let times = Times { p50: 1.0, p90: 2.0, p99, max: 100.0 };
            Block { suspended_us: times, resumed_us: times, wake_us: times, other_cores: 0.0 }
        };
        let blocks = [block(9.0), block(4.0), block(7.0)];
        assert_eq!(best(&blocks).unwrap().suspended_us.p99, 4.0);
        assert!(best(&[]).is_none());
    }

    #[test]
    fn what_never_comes_true_is_waited_for_and_what_is_true_is_not() {
        assert!(timed(|| Ok(()), || true).unwrap() >= 0.0);
        assert!(timed(|| anyhow::bail!("no"), || true).is_err());
    }
}
