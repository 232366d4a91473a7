//! The urgent program: one arrival after the other, each while the low program's kernels fill the device.
//!
//! An arrival is a kernel that fills the device as well. When it has started is known from a word that it stores at the
//! end of its fixed time. Behind it short kernels keep the program ready until the low one has completed nothing for
//! longer than its kernels take: then its queue stands, and the last completion was the end of what had been in flight.

use super::board::Board;
use super::session::{Files, PartArgs};
use super::{ALONE, Record, Sample};
use crate::ask::Server;
use crate::files::write_json;
use crate::hip::{Hip, HostBuffer, Stream};
use crate::kernels::{BusyShape, Kernels};
use crate::random::{Purpose, Random};
use crate::replay::{now_ns, wait_until};
use anyhow::{Result, bail, ensure};
use protocol::control::Preemption;

/// Arrivals before the measured ones: code is mapped, and the library knows how long kernels take and what a hold costs here.
const WARM_UP: usize = 20;
/// How long the kernel of an arrival takes.
const URGENT_NS: u64 = 5_000;
/// Completions of the low program after which it counts as running again.
const RUNNING: u64 = 2;
/// What one arrival may take beside kernels of the low program.
const PATIENCE_NS: u64 = 20_000_000_000;

pub(super) fn run(args: &PartArgs) -> Result<()> {
    let files = Files(&args.dir);
    let board = Board::open(&files.board())?;
    let hip = Hip::load()?;
    ensure!(hip.device_count()? > 0, "the HIP runtime sees no GPU");
    let kernels = Kernels::load(&hip, 0)?;
    let device = hip.device(0)?;
    let filling = kernels.filling_shape(&device)?;
    let kernel_ns = args.kernel().as_nanos() as u64;
    let mut urgent = Urgent {
        stream: hip.stream()?,
        word: hip.host_malloc(size_of::<u64>())?,
        kernels,
        filling,
        board: (args.level != ALONE).then_some(board),
        kernel_ns,
        random: Random::new(args.seed, 0, Purpose::Arrivals),
        arrivals: 0,
    };
    let mut server = Server::connect(&files.socket())?;
    let mut preemption = |board: &Option<Board>| match board {
        Some(board) => server.preemption(board.pid()),
        None => Ok(Preemption::default()),
    };
    let mut samples = Vec::with_capacity(args.samples);
    urgent.await_running()?;
    let mut before = preemption(&urgent.board)?;
    for index in 0..WARM_UP + args.samples {
        let arrival = urgent.arrive()?;
        urgent.await_running()?;
        let after = preemption(&urgent.board)?;
        if index >= WARM_UP {
            samples.push(arrival.sample(&before, &after));
        }
        before = after;
    }
    let record =
        Record { card: device.title(), in_force: before.in_force.number(), how: before.how, samples };
    write_json(&files.record(), &record)?;
    println!("done");
    Ok(())
}

#[derive(Debug)]
struct Urgent {
    stream: Stream,
    /// Which arrival's kernel has ended.
    word: HostBuffer,
    kernels: Kernels,
    filling: BusyShape,
    /// What the low program has completed; nothing if there is no such program.
    board: Option<Board>,
    kernel_ns: u64,
    random: Random,
    arrivals: u64,
}

/// What the host saw of an arrival, nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// Before the launch.
    launched: u64,
    /// When its kernel had the device.
    started: u64,
    /// When the last kernel of the low program ended; nothing if none did after the launch.
    stopped: Option<u64>,
}

impl Urgent {
    /// Waits until the low program completes kernels again.
    fn await_running(&self) -> Result<()> {
        self.await_completions(RUNNING)
    }

    /// Waits until the low program has completed so many more kernels; alone as long as they would take.
    fn await_completions(&self, more: u64) -> Result<()> {
        let begin = now_ns();
        let target = self.completed() + more;
        let is_over = || match &self.board {
            Some(board) => board.completed() >= target,
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
        self.board.as_ref().map_or(0, Board::completed)
    }

    fn end_of_patience(&self) -> u64 {
        now_ns() + PATIENCE_NS + 20 * self.kernel_ns
    }

    /// One arrival at a random moment of a kernel of the low program, until that program's queue stands.
    fn arrive(&mut self) -> Result<Arrival> {
        self.await_completions(1)?;
        wait_until(now_ns() + (self.random.unit() * self.kernel_ns as f64) as u64);

        self.arrivals += 1;
        let end = self.end_of_patience();
        // Longer than the next completion would take if the low program ran: half a kernel for work-groups that wait for
        // each other and a device that is late, and the time between two commands.
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
                    // The next one is there before this one ends.
                    kept = now + quiet * 4 / 5;
                    self.kernels.busy(&self.stream, quiet, BusyShape::ONE)?;
                }
            }
            if now > end {
                bail!("the urgent kernel has not run, or the low program does not stop");
            }
            // The device, the library and the server need the processors while this looks.
            std::thread::yield_now();
        }
    }
}

impl Arrival {
    /// With what the server said before and after it.
    fn sample(self, before: &Preemption, after: &Preemption) -> Sample {
        let since = |moment: u64| moment.saturating_sub(self.launched) as f64 / 1e3;
        let (held, waited) = (after.holds > before.holds, after.waits > before.waits);
        // Of this hold, whose moments lie behind the launch.
        let of_hold = |moment: Option<u64>| moment.filter(|at| held && *at >= self.launched).map(since);
        let (asked, stood) = (of_hold(after.asked_at), of_hold(after.stood_at));
        Sample {
            to_started_us: since(self.started),
            // What was not in flight stands already.
            to_stopped_us: stood.unwrap_or(self.stopped.map_or(0.0, since)),
            // A hold that comes because waiting took too long says nothing about how long one takes to come.
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
    fn without_a_hold_the_last_completion_counts() {
        let before = Preemption { asked_at: Some(5), stood_at: Some(7), holds: 3, ..Preemption::default() };
        let after = Preemption { waits: 1, ..before.clone() };
        let sample = ARRIVAL.sample(&before, &after);
        assert_eq!((sample.to_started_us, sample.to_stopped_us, sample.software_us), (90.0, 80.0, None));
        assert_eq!((sample.held, sample.waited), (false, true));
        let none = Arrival { stopped: None, ..ARRIVAL }.sample(&before, &before);
        assert_eq!((none.to_stopped_us, none.waited), (0.0, false));
    }

    #[test]
    fn a_hold_says_itself_when_the_queues_stood() {
        let before = Preemption::default();
        let after = Preemption {
            asked_at: Some(1_030_000),
            stood_at: Some(1_085_000),
            holds: 1,
            ..Preemption::default()
        };
        let sample = ARRIVAL.sample(&before, &after);
        assert_eq!((sample.to_stopped_us, sample.software_us, sample.held), (85.0, Some(30.0), true));
        // It came because waiting took longer than was expected.
        let late = Preemption { waits: 1, ..after.clone() };
        let sample = ARRIVAL.sample(&before, &late);
        assert_eq!((sample.to_stopped_us, sample.software_us, sample.held), (85.0, None, true));
        // Moments of an older hold say nothing about this one.
        let stale = Preemption { asked_at: Some(1), stood_at: Some(2), ..after };
        let sample = ARRIVAL.sample(&before, &stale);
        assert_eq!((sample.to_stopped_us, sample.software_us, sample.held), (80.0, None, true));
    }
}
