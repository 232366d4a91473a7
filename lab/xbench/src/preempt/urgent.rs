//! The urgent program: one arrival after the other, each while the low program's kernels fill the device.
//!
//! An arrival is a kernel that fills the device as well. It stores a word at the end of its fixed time, from
//! which its start follows. Short kernels behind it keep the program ready until the low one has completed
//! nothing for longer than its kernels take: then its queue has stopped, and the last completion was the end
//! of the work that was in flight.

use super::process::{NO_GPU, PartArgs, RECORD};
use super::sample::{ALONE, Record, Sample};
use super::shared_page::SharedPage;
use crate::clock::{now_ns, wait_until};
use crate::files::{RunFiles, write_json};
use crate::hip::{HostBuffer, Stream};
use crate::kernels::{BusyShape, Kernels, Opened};
use crate::random::{Purpose, Random};
use crate::server::Connection;
use anyhow::{Result, bail, ensure};
use protocol::control::Preemption;

/// The arrivals before the measured ones: code is mapped, and the library knows the lengths of kernels and
/// the cost of an eviction.
const WARM_UP: usize = 20;
const URGENT_NS: u64 = 5_000;
/// The completions after which the low program counts as running again.
const RUNNING: u64 = 2;
/// The time that one arrival may take beside kernels of the low program.
const PATIENCE_NS: u64 = 20_000_000_000;

pub(super) fn run(args: &PartArgs) -> Result<()> {
    let files = RunFiles(&args.dir);
    let page = SharedPage::open(&files.page())?;
    let Opened { hip, kernels, stream } = Opened::new(NO_GPU)?;
    let device = hip.device(0)?;
    let filling = kernels.filling_shape(&device)?;
    let kernel_ns = args.kernel().as_nanos() as u64;
    let mut urgent = Urgent {
        stream,
        word: hip.host_malloc(size_of::<u64>())?,
        kernels,
        filling,
        page: (args.level != ALONE).then_some(page),
        kernel_ns,
        random: Random::new(args.seed, 0, Purpose::Arrivals),
        arrivals: 0,
    };
    let mut server = Connection::open(&files.socket())?;
    let mut preemption = |page: &Option<SharedPage>| match page {
        Some(page) => server.preemption(page.pid()),
        None => Ok(Preemption::default()),
    };
    let mut samples = Vec::with_capacity(args.samples);
    urgent.await_running()?;
    let mut before = preemption(&urgent.page)?;
    for index in 0..WARM_UP + args.samples {
        let arrival = urgent.arrive()?;
        urgent.await_running()?;
        let after = preemption(&urgent.page)?;
        if index >= WARM_UP {
            samples.push(arrival.sample(&before, &after));
        }
        before = after;
    }
    let record = Record { in_force: before.in_force.number(), how: before.how, samples };
    write_json(&files.record(RECORD), &record)?;
    println!("done");
    Ok(())
}

#[derive(Debug)]
struct Urgent {
    stream: Stream,
    /// The number of the last arrival whose kernel has ended.
    word: HostBuffer,
    kernels: Kernels,
    filling: BusyShape,
    /// The page of the low program, if there is one.
    page: Option<SharedPage>,
    kernel_ns: u64,
    random: Random,
    arrivals: u64,
}

/// An arrival as the host sees it, nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// The moment before the launch.
    launched: u64,
    /// The start of its kernel.
    started: u64,
    /// The end of the last kernel of the low program; `None` if none ended after the launch.
    stopped: Option<u64>,
}

impl Urgent {
    /// Waits until the low program completes kernels again.
    fn await_running(&self) -> Result<()> {
        self.await_completions(RUNNING)
    }

    /// Waits until the low program has completed so many more kernels; without that program, as long as they
    /// would take.
    fn await_completions(&self, more: u64) -> Result<()> {
        let begin = now_ns();
        let target = self.completed() + more;
        let is_over = || match &self.page {
            Some(page) => page.completed() >= target,
            None => now_ns() >= begin + more * self.kernel_ns,
        };
        let end = self.end_of_patience();
        while !is_over() {
            ensure!(now_ns() < end, "the low program does not run");
            std::thread::yield_now();
        }
        Ok(())
    }

    fn completed(&self) -> u64 {
        self.page.as_ref().map_or(0, SharedPage::completed)
    }

    fn end_of_patience(&self) -> u64 {
        now_ns() + PATIENCE_NS + 20 * self.kernel_ns
    }

    /// Makes one arrival at a random moment of a kernel of the low program, and waits until that program's
    /// queue has stopped.
    fn arrive(&mut self) -> Result<Arrival> {
        self.await_completions(1)?;
        wait_until(now_ns() + (self.random.unit() * self.kernel_ns as f64) as u64);

        self.arrivals += 1;
        let end = self.end_of_patience();
        // Longer than the next completion takes while the low program runs: half a kernel more for
        // work-groups that wait for each other and a late device, and the time between two commands.
        let quiet = self.kernel_ns + self.kernel_ns / 2 + 300_000;
        let mut completed = self.completed();
        let (mut started, mut stopped, mut kept) = (None, None, 0);
        let launched = now_ns();
        self.kernels.busy_store(&self.stream, &self.word, self.arrivals, URGENT_NS, self.filling)?;
        loop {
            let now = now_ns();
            let count = self.completed();
            if count != completed {
                (completed, stopped) = (count, Some(now));
            }
            if started.is_none() && self.word.load_word(0) == self.arrivals {
                started = Some(now - URGENT_NS);
            }
            if let Some(started) = started {
                if now >= stopped.unwrap_or(started).max(started) + quiet {
                    self.stream.synchronize()?;
                    return Ok(Arrival { launched, started, stopped });
                }
                if now >= kept {
                    // The next kernel is launched before this one ends.
                    kept = now + quiet * 4 / 5;
                    self.kernels.busy(&self.stream, quiet, BusyShape::ONE)?;
                }
            }
            if now > end {
                bail!("the urgent kernel has not run, or the low program does not stop");
            }
            // The device, the library and the server need the processors as well.
            std::thread::yield_now();
        }
    }
}

impl Arrival {
    /// Returns the sample, from the server's state before and after the arrival.
    fn sample(self, before: &Preemption, after: &Preemption) -> Sample {
        let since = |moment: u64| moment.saturating_sub(self.launched) as f64 / 1e3;
        let (held, waited) = (after.holds > before.holds, after.waits > before.waits);
        // Moments before the launch belong to an earlier eviction.
        let of_hold = |moment: Option<u64>| moment.filter(|at| held && *at >= self.launched).map(since);
        let (asked, stood) = (of_hold(after.asked_at), of_hold(after.stood_at));
        Sample {
            to_started_us: since(self.started),
            // Without work in flight the queue has stopped already.
            to_stopped_us: stood.unwrap_or(self.stopped.map_or(0.0, since)),
            // An eviction after waiting for too long does not show how fast an eviction is.
            software_us: asked.filter(|_| !waited),
            held,
            waited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVAL: Arrival = Arrival { launched: 1_000_000, started: 1_090_000, stopped: Some(1_080_000) };

    #[test]
    fn sample_without_eviction_stops_at_the_last_completion() {
        let before = Preemption { asked_at: Some(5), stood_at: Some(7), holds: 3, ..Preemption::default() };
        let after = Preemption { waits: 1, ..before.clone() };
        let sample = ARRIVAL.sample(&before, &after);
        assert_eq!((sample.to_started_us, sample.to_stopped_us, sample.software_us), (90.0, 80.0, None));
        assert_eq!((sample.held, sample.waited), (false, true));
        let none = Arrival { stopped: None, ..ARRIVAL }.sample(&before, &before);
        assert_eq!((none.to_stopped_us, none.waited), (0.0, false));
    }

    #[test]
    fn sample_with_eviction_stops_when_the_queues_stood() {
        let before = Preemption::default();
        let after = Preemption {
            asked_at: Some(1_030_000),
            stood_at: Some(1_085_000),
            holds: 1,
            ..Preemption::default()
        };
        let sample = ARRIVAL.sample(&before, &after);
        assert_eq!((sample.to_stopped_us, sample.software_us, sample.held), (85.0, Some(30.0), true));
        // It came because waiting took longer than expected.
        let late = Preemption { waits: 1, ..after.clone() };
        let sample = ARRIVAL.sample(&before, &late);
        assert_eq!((sample.to_stopped_us, sample.software_us, sample.held), (85.0, None, true));
        // Moments of an earlier eviction are ignored.
        let stale = Preemption { asked_at: Some(1), stood_at: Some(2), ..after };
        let sample = ARRIVAL.sample(&before, &stale);
        assert_eq!((sample.to_stopped_us, sample.software_us, sample.held), (80.0, None, true));
    }
}
