//! Measures the eviction of this process's queues from the hardware and their restoration, by each mechanism.
//!
//! Kernels of several sizes are evicted as well, and what they keep in registers and local memory is compared afterwards
//! ([`super::kept`]). It needs the permission `--hold`. The library refuses where the driver does not save running waves. After
//! a mechanism that fails no other is tried.

use super::kept::{self, Kept, times};
use super::parent::{Parent, Preload};
use super::worker::{NumberedKernels, hip};
use crate::clock::{microseconds, now_ns, wait_until};
use crate::hip::{Hip, Stream};
use crate::kernels::BusyShape;
use crate::library::{Library, Session};
use anyhow::{Context, Result, anyhow, bail, ensure};
use protocol::codes::KfdResult;
use protocol::report::{EvictionRow, Holds, Probe};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// The eviction mechanisms, in the order in which they are tried.
pub(super) const MECHANISMS: [&str; 2] = ["update-queue", "debug-trap"];
const KERNEL: Duration = Duration::from_millis(4);

/// The measurements of a worker, in microseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    queues: u64,
    idle: Vec<(f64, f64)>,
    busy: Vec<(f64, f64)>,
    interrupted: u64,
    stood: u64,
    occupied: Vec<kept::Measured>,
    holds: u64,
    /// The error that ended the measurement early.
    error: Option<String>,
    /// True if the library refused the first eviction.
    refused: bool,
}

pub(super) fn measure(parent: &Parent, shim: &Path, allowed: bool) -> Result<Holds> {
    ensure!(allowed, "queues are not evicted without --hold");
    let mut mechanisms: Vec<EvictionRow> = Vec::new();
    let mut broken = false;
    for mechanism in MECHANISMS {
        if broken {
            let error = "not tried, because the mechanism before it failed".to_owned();
            mechanisms.push(row(mechanism, Measured { error: Some(error), ..Measured::default() }, None)?);
            continue;
        }
        let environment = [("XSCHED_KFD_MECHANISM", mechanism)];
        let preload = Preload { library: shim, environment: &environment };
        let made = match parent.worker::<Measured>("library", Some(preload)) {
            Ok((mut answer, log)) => {
                if let (true, Some(error)) = (answer.refused, &mut answer.error)
                    && let Some(why) = refusal(&log)
                {
                    *error = why;
                }
                row(mechanism, answer, probe(&log))
            }
            Err(error) => {
                let error = Some(format!("{error:#}"));
                row(mechanism, Measured { error, ..Measured::default() }, None)
            }
        }?;
        // The cause of the failure may make the other mechanism dangerous.
        broken = made.error.is_some();
        mechanisms.push(made);
    }
    Ok(Holds { mechanisms })
}

fn row(mechanism: &str, measured: Measured, probe: Option<Probe>) -> Result<EvictionRow> {
    Ok(EvictionRow {
        mechanism: mechanism.to_owned(),
        error: measured.error,
        queues: measured.queues,
        probe,
        idle: times(measured.idle)?,
        busy: times(measured.busy)?,
        busy_kernel_us: KERNEL.as_micros() as u64,
        stood: measured.stood,
        interrupted: measured.interrupted,
        occupied: measured.occupied.into_iter().map(kept::Measured::row).collect::<Result<_>>()?,
        holds: measured.holds,
    })
}

/// Parses the library's log of its probe: `... evictions by NAME (WHO) gpu_id=7 hold_us=1 release_us=2`.
fn probe(log: &str) -> Option<Probe> {
    let line = log.lines().find(|line| line.contains("evictions by ") && line.contains("hold_us="))?;
    let number = |name: &str| {
        let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(word, _)| *word == name)?.1.parse().ok()
    };
    Some(Probe { hold_us: number("hold_us")?, release_us: number("release_us")? })
}

/// Parses the library's reason to refuse: `GPU 7: level 3 is asked for and level 1 in force: WHY`.
fn refusal(log: &str) -> Option<String> {
    log.lines().find_map(|line| Some(line.split_once("level 1 in force: ")?.1.to_owned()))
}

pub(super) fn work(short: bool) -> Result<Measured> {
    // Before there is a queue: the library's probe needs one that is known to be idle, such as a new one.
    let library = Library::find().context("the library is not preloaded into its worker")?;
    let session = library.session().map_err(|why| anyhow!("XKfdOpen returned {}", why.c_name()))?;
    let hip = hip()?;
    let kernels = NumberedKernels::new(&hip)?;
    let filling = kernels.kernels.filling_shape(&hip.device(0)?)?;
    let mut bench = Bench { hip, kernels, filling, stream: hip.stream()?, session };
    bench.launch(Duration::ZERO, BusyShape::ONE)?;
    bench.stream.synchronize()?;
    let queues =
        session.compute_queues().map_err(|why| anyhow!("XKfdListQueues returned {}", why.c_name()))?;
    let mut measured = Measured { queues: queues as u64, ..Measured::default() };
    if let Err(error) = bench.fill(short, &mut measured) {
        measured.refused = measured.holds == 0;
        measured.error = Some(format!("{error:#}"));
        // An evicted queue must not keep this process from ending.
        let _ = session.resume();
    }
    Ok(measured)
}

#[derive(Debug)]
struct Bench {
    hip: Hip,
    kernels: NumberedKernels,
    filling: BusyShape,
    stream: Stream,
    session: Session,
}

impl Bench {
    fn launch(&mut self, length: Duration, shape: BusyShape) -> Result<u64> {
        self.kernels.launch(&self.stream, length, shape)
    }

    fn fill(&mut self, short: bool, measured: &mut Measured) -> Result<()> {
        let (idle, busy, occupied) = if short { (8, 4, 2) } else { (64, 24, 12) };
        for _ in 0..idle {
            let evicted = self.evict(measured)?;
            measured.idle.push((evicted, self.restore()?));
        }
        for _ in 0..busy {
            self.interrupt(measured)?;
        }
        for (keep, local_bytes) in kept::ROWS {
            let mut kept = Kept::new(&self.hip, &self.kernels.kernels, keep, local_bytes)?;
            // The row is reported also if a later eviction fails.
            let made = (0..occupied).try_for_each(|_| self.interrupt_kept(&mut kept, measured));
            if made.is_err() {
                // Freeing the results waits for the kernel, which an evicted queue keeps from ending.
                let _ = self.session.resume();
            }
            measured.occupied.push(kept.measured);
            made?;
        }
        Ok(())
    }

    /// Evicts the queues while a kernel fills the device, and checks that it does not end before they are
    /// restored.
    fn interrupt(&mut self, measured: &mut Measured) -> Result<()> {
        let first = self.launch(Duration::ZERO, BusyShape::ONE)?;
        let number = self.launch(KERNEL, self.filling)?;
        self.kernels.await_end(first)?;
        if let Some((sample, stood)) = self.evict_before_end(number, KERNEL, measured)? {
            measured.interrupted += 1;
            measured.stood += u64::from(stood);
            measured.busy.push(sample);
        }
        Ok(())
    }

    /// The same for a kernel that keeps words, whose results are compared at its end.
    fn interrupt_kept(&mut self, kept: &mut Kept, measured: &mut Measured) -> Result<()> {
        kept.clear(&self.stream)?;
        let first = self.launch(Duration::ZERO, BusyShape::ONE)?;
        kept.launch(&self.kernels.kernels, &self.stream)?;
        let behind = self.launch(Duration::ZERO, BusyShape::ONE)?;
        self.kernels.await_end(first)?;
        wait_until(now_ns() + kept::PLACED.as_nanos() as u64);
        if let Some((sample, stood)) = self.evict_before_end(behind, kept::KERNEL, measured)? {
            kept.measured.interrupted += 1;
            kept.measured.stood += u64::from(stood);
            kept.measured.samples.push(sample);
        }
        kept.compare(&self.hip)
    }

    /// Evicts the queues, and restores them after twice the length of the kernels in them. Returns the microseconds of both, and
    /// true if kernel `number` did not end before the restore; `None` if it had ended before the eviction.
    fn evict_before_end(
        &self,
        number: u64,
        length: Duration,
        measured: &mut Measured,
    ) -> Result<Option<((f64, f64), bool)>> {
        let evicted = self.evict(measured)?;
        let running = self.kernels.ended() < number;
        let mut stood = running;
        let begin = Instant::now();
        while stood && begin.elapsed() < 2 * length {
            stood = self.kernels.ended() < number;
            std::thread::yield_now();
        }
        let restored = self.restore()?;
        self.kernels.finish(&self.stream).context("after the queues were restored")?;
        Ok(running.then_some(((evicted, restored), stood)))
    }

    /// Evicts all compute queues, and returns the microseconds that this took.
    fn evict(&self, measured: &mut Measured) -> Result<f64> {
        let begin = Instant::now();
        match self.session.suspend() {
            Ok(()) => {
                measured.holds += 1;
                Ok(microseconds(begin.elapsed()))
            }
            Err(KfdResult::ErrorNotSupported) if measured.holds == 0 => {
                bail!("the library evicts no queues here and gives no reason; `xcli doctor` does")
            }
            Err(why) => bail!("an eviction failed: {}", why.c_name()),
        }
    }

    /// Restores all compute queues, and returns the microseconds that this took.
    fn restore(&self) -> Result<f64> {
        let begin = Instant::now();
        self.session.resume().map_err(|why| anyhow!("restoring queues failed: {}", why.c_name()))?;
        Ok(microseconds(begin.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_and_refusal_parse_the_log() {
        let log = "xsched: debug: evictions by update-queue (HWS) gpu_id=51234 hold_us=12 release_us=34\n";
        assert_eq!(probe(log), Some(Probe { hold_us: 12, release_us: 34 }));
        assert_eq!(probe("xsched: debug: queues holds=3\n"), None);
        let log = "xsched: warn: GPU 7: level 3 is asked for and level 1 in force: too old\n";
        assert_eq!(refusal(log).as_deref(), Some("too old"));
        assert_eq!(refusal("xsched: warn: something"), None);
    }

    #[test]
    fn row_without_samples_has_no_times() {
        let made = row("update-queue", Measured::default(), None).unwrap();
        assert_eq!((made.idle, made.busy, made.holds), (None, None, 0));
        let measured = Measured { busy: vec![(1.0, 2.0), (3.0, 4.0)], ..Measured::default() };
        let busy = row("debug-trap", measured, None).unwrap().busy.unwrap();
        assert_eq!((busy.hold_us.max, busy.release_us.min), (3.0, 2.0));
    }
}
