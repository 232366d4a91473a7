//! Measures several launch windows: the throughput of kernels, and the time until the queue is idle after a
//! suspension at level 1.
//!
//! A suspension comes while more kernels have been submitted than may be in flight. Kernels in flight end
//! without a pause between them, so the last end before a long pause is the end of the work in flight. Some
//! kernels must be left then, which run after the resumption.

use super::parent::{Parent, Preload, spread};
use super::worker::{NumberedKernels, PATIENCE, hip};
use crate::clock::{microseconds, now_ns, wait_until};
use crate::hip::Stream;
use crate::kernels::BusyShape;
use crate::library::{Library, Queue};
use crate::random::{Purpose, Random};
use anyhow::{Context, Result, ensure};
use protocol::report::{Window, WindowRow};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Lengths of kernels, microseconds.
const KERNELS_US: [u64; 3] = [10, 100, 1000];
/// Thresholds; `None` is the adaptive window.
const THRESHOLDS: [Option<u64>; 8] = [None, Some(1), Some(2), Some(4), Some(8), Some(16), Some(32), Some(64)];
/// More kernels than the adaptive window has in flight.
const ADAPTIVE_MOST: u64 = 64;
/// Completions before a suspension.
const RUNNING: u64 = 8;
/// The pause, besides the length of some kernels, after which nothing is in flight.
const QUIET: Duration = Duration::from_millis(5);

/// The measurements of a worker. Its answer must be an object.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    rows: Vec<Row>,
    /// Lengths of kernels that are launched more slowly than they run, microseconds.
    left_out: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    kernel_us: u64,
    threshold: Option<u64>,
    kernels_per_s: f64,
    /// Microseconds until idle, and the number of kernels that ended meanwhile.
    suspensions: Vec<(f64, u64)>,
}

/// Measures without and with the library.
pub(super) fn measure(parent: &Parent, shim: &Path) -> Result<Window> {
    let (native, _) = parent.worker::<Measured>("native", None).context("without the library")?;
    let environment = [
        ("XSCHED_AUTO_XQUEUE", "ON"),
        // The program decides, so that only its suspensions and the window stop a queue.
        ("XSCHED_SCHEDULER", "APP"),
        ("XSCHED_KFD_MECHANISM", "off"),
    ];
    let preload = Preload { library: shim, environment: &environment };
    let worker = parent.worker::<Measured>("library", Some(preload));
    let (shimmed, _) = worker.context("with the library")?;
    let rows = shimmed.rows.into_iter().map(|row| row.beside(&native)).collect::<Result<_>>()?;
    Ok(Window { rows, left_out: shimmed.left_out })
}

impl Row {
    /// Returns the row with the measurement without the library beside it.
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

/// Returns half of the commands in flight, as the adaptive window does.
fn batch(threshold: u64) -> u64 {
    (threshold / 2).max(1)
}

/// Measures as a worker: throughput, and with the library suspensions as well.
pub(super) fn work(short: bool) -> Result<Measured> {
    let hip = hip()?;
    let kernels = NumberedKernels::new(&hip)?;
    let mut bench = Bench { kernels, kernel_us: 0, random: Random::new(1, 0, Purpose::Arrivals) };
    let library = Library::find();
    let thresholds = if library.is_some() { &THRESHOLDS[..] } else { &[None] };
    // The length of the counted work, and the number of suspensions.
    let (length, suspensions) =
        if short { (Duration::from_millis(20), 3) } else { (Duration::from_millis(300), 20) };
    let mut measured = Measured { rows: Vec::new(), left_out: Vec::new() };
    for kernel_us in KERNELS_US {
        bench.kernel_us = kernel_us;
        let mut rows = Vec::new();
        for &threshold in thresholds {
            // The adaptive window starts anew with each stream.
            let stream = hip.stream()?;
            let queue = library.map(|library| library.queue(&stream)).transpose()?;
            if let (Some(queue), Some(threshold)) = (queue, threshold) {
                queue.set_window(threshold, batch(threshold))?;
            }
            let kernels = (length.as_micros() as u64 / kernel_us).max(2 * threshold.unwrap_or(ADAPTIVE_MOST));
            // From the first kernels the library learns their length.
            bench.kernels_per_s(&stream, kernels.min(64))?;
            let kernels_per_s = bench.kernels_per_s(&stream, kernels)?;
            let mut samples = Vec::new();
            if let Some(queue) = queue {
                for _ in 0..suspensions {
                    match bench.suspension(&stream, queue, threshold)? {
                        Some(sample) => samples.push(sample),
                        None => break,
                    }
                }
                if samples.len() < suspensions {
                    break;
                }
            }
            rows.push(Row { kernel_us, threshold, kernels_per_s, suspensions: samples });
        }
        match rows.len() == thresholds.len() {
            true => measured.rows.append(&mut rows),
            false => measured.left_out.push(kernel_us),
        }
    }
    ensure!(!measured.rows.is_empty(), "all launched kernels had run when their queue was suspended");
    Ok(measured)
}

#[derive(Debug)]
struct Bench {
    kernels: NumberedKernels,
    kernel_us: u64,
    random: Random,
}

impl Bench {
    fn launch(&mut self, stream: &Stream, count: u64) -> Result<()> {
        let length = Duration::from_micros(self.kernel_us);
        (0..count).try_for_each(|_| self.kernels.launch(stream, length, BusyShape::ONE).map(drop))
    }

    fn kernels_per_s(&mut self, stream: &Stream, count: u64) -> Result<f64> {
        let begin = Instant::now();
        self.launch(stream, count)?;
        self.kernels.finish(stream)?;
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }

    /// Suspends the queue while kernels wait. Returns the microseconds until the last kernel in flight has
    /// ended, and how many ended meanwhile; none if no kernel waited, however many were launched.
    fn suspension(
        &mut self,
        stream: &Stream,
        queue: Queue,
        threshold: Option<u64>,
    ) -> Result<Option<(f64, u64)>> {
        let mut more = 2 * threshold.unwrap_or(ADAPTIVE_MOST) + 4 * RUNNING;
        // If this thread is delayed between its launches, all of them have run when it suspends.
        for _ in 0..6 {
            let begin = self.kernels.ended();
            self.launch(stream, more)?;
            self.kernels.await_end(begin + RUNNING)?;
            // Not at the end of a kernel, which is when the window moves.
            let moment = self.random.unit() * (RUNNING * self.kernel_us * 1000) as f64;
            wait_until(now_ns() + moment as u64);
            let before = self.kernels.ended();
            let at = Instant::now();
            queue.suspend()?;
            let outcome = self.await_quiet(at, before);
            let left = self.kernels.launched() - self.kernels.ended();
            queue.resume()?;
            self.kernels.finish(stream)?;
            let (last, ended) = outcome?;
            if left > 0 {
                return Ok(Some((microseconds(last), ended - before)));
            }
            more *= 2;
        }
        Ok(None)
    }

    /// Waits until nothing is in flight. Returns the end of the last kernel, counted from `at`, and its
    /// number.
    fn await_quiet(&self, at: Instant, before: u64) -> Result<(Duration, u64)> {
        let quiet = QUIET + 4 * Duration::from_micros(self.kernel_us);
        let (mut last, mut seen) = (Duration::ZERO, before);
        loop {
            let (now, ended) = (at.elapsed(), self.kernels.ended());
            if ended != seen {
                (last, seen) = (now, ended);
            }
            if now > last + quiet {
                return Ok((last, seen));
            }
            ensure!(now < PATIENCE, "a suspended queue continues to run");
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_stands_beside_the_native_one_of_its_kernel_length() {
        let row = |kernel_us, kernels_per_s, suspensions: &[(f64, u64)]| Row {
            kernel_us,
            threshold: Some(4),
            kernels_per_s,
            suspensions: suspensions.to_vec(),
        };
        let rows = vec![row(50, 19_000.0, &[]), row(500, 1_990.0, &[])];
        let native = Measured { rows, left_out: Vec::new() };
        let made = row(500, 1_980.0, &[(900.0, 2), (1400.0, 3)]).beside(&native).unwrap();
        assert_eq!((made.native_kernels_per_s, made.batch), (1_990.0, Some(2)));
        assert_eq!((made.idle_us.max, made.in_flight.p50), (1400.0, 2.0));
        assert!(row(7, 1.0, &[(1.0, 1)]).beside(&native).is_err());
        assert!(row(50, 1.0, &[]).beside(&native).is_err(), "no suspension was measured");
    }

    #[test]
    fn markers_are_half_a_window_apart() {
        assert_eq!([1, 2, 3, 64].map(batch), [1, 1, 1, 32]);
    }
}
