//! Several windows: how many kernels a second get through, and how long a suspension at level 1 takes to leave the queue
//! idle.
//!
//! Each kernel leaves its number in memory that the host looks at. A suspension comes while more kernels have been
//! submitted than may be in flight; those that are complete it without a pause, so the last number that comes before a
//! long one is the end of what was in flight. Something must be left then, which the resumption lets run.

use super::{Parent, Preload, hip, in_front, library, microseconds, spread};
use crate::hip::{Hip, HostBuffer, Stream};
use crate::kernels::{BusyShape, Kernels};
use crate::random::{Purpose, Random};
use crate::replay::{now_ns, wait_until};
use anyhow::{Context, Result, bail, ensure};
use protocol::report::{Window, WindowRow};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Lengths of kernels, microseconds.
const KERNELS_US: [u64; 2] = [50, 500];
/// Thresholds; nothing is the window that adapts itself.
const THRESHOLDS: [Option<u64>; 8] = [None, Some(1), Some(2), Some(4), Some(8), Some(16), Some(32), Some(64)];
/// More in flight than the window that adapts itself has with these kernels.
const ADAPTIVE_MOST: u64 = 64;
/// Completions before a suspension.
const RUNNING: u64 = 8;
/// How long the work of one measurement may take beyond what it should.
const PATIENCE: Duration = Duration::from_secs(20);
/// Nothing has been in flight if nothing ends for so long and some kernels' time.
const QUIET: Duration = Duration::from_millis(5);

/// What a worker has measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    kernel_us: u64,
    threshold: Option<u64>,
    kernels_per_s: f64,
    /// Time until idle in microseconds, and kernels that ended meanwhile.
    suspensions: Vec<(f64, u64)>,
}

/// Measures natively and with the library.
pub(super) fn measure(parent: &Parent, shim: &Path) -> Result<Window> {
    let native: Measured = parent.worker("native", None).context("without the library")?.answer;
    let environment = [
        ("XSCHED_AUTO_XQUEUE", "ON"),
        // The program decides, so that nothing but its suspensions and the window holds a queue back.
        ("XSCHED_SCHEDULER", "APP"),
        ("XSCHED_KFD_MECHANISM", "off"),
    ];
    let preload = Preload { library: shim, environment: &environment };
    let shimmed: Measured = parent.worker("library", Some(preload)).context("with the library")?.answer;
    let rows = shimmed.rows.into_iter().map(|row| row.beside(&native)).collect::<Result<_>>()?;
    Ok(Window { rows })
}

impl Row {
    /// With what was measured natively.
    fn beside(self, native: &Measured) -> Result<WindowRow> {
        let same = native.rows.iter().find(|other| other.kernel_us == self.kernel_us);
        let native = same.context("nothing was measured without the library")?.kernels_per_s;
        let (times, in_flight): (Vec<f64>, Vec<u64>) = self.suspensions.into_iter().unzip();
        Ok(WindowRow {
            kernel_us: self.kernel_us,
            threshold: self.threshold,
            batch: self.threshold.map(batch),
            kernels_per_s: self.kernels_per_s,
            native_kernels_per_s: native,
            idle_us: spread(times)?,
            in_flight: spread(in_flight.into_iter().map(|count| count as f64).collect())?,
        })
    }
}

/// Half of what may be in flight, as the window that adapts itself has it.
fn batch(threshold: u64) -> u64 {
    (threshold / 2).max(1)
}

/// A worker's measurements: everything with the library, work only without.
pub(super) fn work(short: bool) -> Result<Measured> {
    let hip = hip()?;
    let mut bench = Bench {
        kernels: Kernels::load(&hip, 0)?,
        word: hip.host_malloc(size_of::<u64>())?,
        launched: 0,
        kernel_us: 0,
        random: Random::new(1, 0, Purpose::Arrivals),
        hip,
    };
    let library = library::Library::find();
    let thresholds = if library.is_some() { &THRESHOLDS[..] } else { &[None] };
    // How long the work is that is counted, and how many suspensions there are.
    let (span, suspensions) =
        if short { (Duration::from_millis(20), 3) } else { (Duration::from_millis(300), 20) };
    let mut rows = Vec::new();
    for kernel_us in KERNELS_US {
        bench.kernel_us = kernel_us;
        for &threshold in thresholds {
            // What adapts itself begins anew with each stream.
            let stream = bench.hip.stream()?;
            let queue = match &library {
                Some(_) => Some(in_front()?),
                None => None,
            };
            let queue = queue.as_ref().map(|library| library.queue(stream.handle())).transpose()?;
            if let (Some(queue), Some(threshold)) = (&queue, threshold) {
                queue.set_window(threshold, batch(threshold))?;
            }
            let kernels = (span.as_micros() as u64 / kernel_us).max(2 * threshold.unwrap_or(ADAPTIVE_MOST));
            // The first ones teach the library how long they take.
            bench.kernels_per_s(&stream, kernels.min(64))?;
            let kernels_per_s = bench.kernels_per_s(&stream, kernels)?;
            let mut samples = Vec::new();
            if let Some(queue) = &queue {
                for _ in 0..suspensions {
                    samples.push(bench.suspension(&stream, queue, threshold)?);
                }
            }
            rows.push(Row { kernel_us, threshold, kernels_per_s, suspensions: samples });
        }
    }
    Ok(Measured { rows })
}

#[derive(Debug)]
struct Bench {
    kernels: Kernels,
    /// Number of the last kernel that has ended.
    word: HostBuffer,
    launched: u64,
    kernel_us: u64,
    random: Random,
    hip: Hip,
}

impl Bench {
    fn launch(&mut self, stream: &Stream, count: u64) -> Result<()> {
        for _ in 0..count {
            self.launched += 1;
            let (value, length) = (self.launched, self.kernel_us * 1000);
            self.kernels.busy_store(stream, &self.word, value, length, BusyShape::ONE)?;
        }
        Ok(())
    }

    fn ended(&self) -> u64 {
        self.word.load_word(0)
    }

    /// Everything has run, and in its order.
    fn finish(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        let ended = self.ended();
        ensure!(ended == self.launched, "of {} kernels the last to end was number {ended}", self.launched);
        Ok(())
    }

    fn kernels_per_s(&mut self, stream: &Stream, count: u64) -> Result<f64> {
        let begin = Instant::now();
        self.launch(stream, count)?;
        self.finish(stream)?;
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }

    /// One suspension while kernels wait: until the last one that was in flight has ended, and how many ended.
    fn suspension(
        &mut self,
        stream: &Stream,
        queue: &library::Queue<'_>,
        threshold: Option<u64>,
    ) -> Result<(f64, u64)> {
        let mut more = 2 * threshold.unwrap_or(ADAPTIVE_MOST) + 4 * RUNNING;
        // A program that is held up between its launches finds that everything has run when it suspends.
        for _ in 0..6 {
            let begin = self.ended();
            self.launch(stream, more)?;
            self.until(|ended| ended >= begin + RUNNING)?;
            // Not at the end of a kernel, which is when the window moves.
            let moment = self.random.unit() * (RUNNING * self.kernel_us * 1000) as f64;
            wait_until(now_ns() + moment as u64);
            let before = self.ended();
            let at = Instant::now();
            queue.suspend()?;
            let outcome = self.quiet(at, before);
            let left = self.launched - self.ended();
            queue.resume()?;
            self.finish(stream)?;
            let (last, ended) = outcome?;
            if left > 0 {
                return Ok((microseconds(last), ended - before));
            }
            more *= 2;
        }
        bail!("whatever was submitted had run when the queue was suspended")
    }

    /// Waits until nothing is in flight: when the last kernel ended, as seen from `at`, and its number.
    fn quiet(&self, at: Instant, before: u64) -> Result<(Duration, u64)> {
        let quiet = QUIET + 4 * Duration::from_micros(self.kernel_us);
        let (mut last, mut seen) = (Duration::ZERO, before);
        loop {
            let (now, ended) = (at.elapsed(), self.ended());
            if ended != seen {
                (last, seen) = (now, ended);
            }
            if now > last + quiet {
                return Ok((last, seen));
            }
            ensure!(now < PATIENCE, "a suspended queue goes on");
            std::thread::yield_now();
        }
    }

    fn until(&self, condition: impl Fn(u64) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !condition(self.ended()) {
            ensure!(begin.elapsed() < PATIENCE, "kernels do not run");
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_beside_the_native_one_of_their_length() {
        let row = |kernel_us, kernels_per_s, suspensions: &[(f64, u64)]| Row {
            kernel_us,
            threshold: Some(4),
            kernels_per_s,
            suspensions: suspensions.to_vec(),
        };
        let native = Measured { rows: vec![row(50, 19_000.0, &[]), row(500, 1_990.0, &[])] };
        let made = row(500, 1_980.0, &[(900.0, 2), (1400.0, 3)]).beside(&native).unwrap();
        assert_eq!((made.native_kernels_per_s, made.batch), (1_990.0, Some(2)));
        assert_eq!((made.idle_us.max, made.in_flight.p50), (1400.0, 2.0));
        assert!(row(7, 1.0, &[(1.0, 1)]).beside(&native).is_err());
        assert!(row(50, 1.0, &[]).beside(&native).is_err(), "nothing was suspended");
    }

    #[test]
    fn marks_are_half_a_window_apart() {
        assert_eq!([1, 2, 3, 64].map(batch), [1, 1, 1, 32]);
    }
}
