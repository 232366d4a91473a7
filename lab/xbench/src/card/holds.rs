//! What it takes to take this process's queues off the hardware and put them back, by each mechanism.
//!
//! Only where that is allowed. The library refuses by itself where the driver does not save running waves. After a mechanism
//! that does not work no other is tried.

use super::{Parent, Preload, Said, hip, in_front, library, microseconds, spread};
use crate::hip::{HostBuffer, Stream};
use crate::kernels::{BusyShape, Kernels};
use anyhow::{Context, Result, anyhow, bail, ensure};
use library::Session;
use protocol::codes::KfdResult;
use protocol::report::{HoldRow, HoldTimes, Holds, Probe};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// What takes queues off, in the order in which it is tried.
pub(super) const MECHANISMS: [&str; 2] = ["update-queue", "debug-trap"];
/// How long the kernel takes that is interrupted.
const KERNEL: Duration = Duration::from_millis(4);
/// How long the work of one measurement may take beyond what it should.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a worker has measured, in microseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    queues: u64,
    idle: Vec<(f64, f64)>,
    busy: Vec<(f64, f64)>,
    interrupted: u64,
    stood: u64,
    holds: u64,
    /// Why it ended before its time.
    error: Option<String>,
    /// Whether it was refused before anything was held.
    refused: bool,
}

/// Measures each mechanism, if that is allowed.
pub(super) fn measure(parent: &Parent, shim: &Path, allowed: bool) -> Result<Holds> {
    ensure!(allowed, "nothing is held without --hold");
    let mut mechanisms: Vec<HoldRow> = Vec::new();
    let mut broken = false;
    for mechanism in MECHANISMS {
        if broken {
            let error = "not tried, because the one before did not work".to_owned();
            mechanisms.push(row(mechanism, Measured { error: Some(error), ..Measured::default() }, None)?);
            continue;
        }
        let environment = [("XSCHED_KFD_MECHANISM", mechanism)];
        let preload = Preload { library: shim, environment: &environment };
        let said: Result<Said<Measured>> = parent.worker("library", Some(preload));
        let made = match said {
            Ok(Said { mut answer, log }) => {
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
        // Whatever keeps this one from working keeps the other from being harmless.
        broken = made.error.is_some();
        mechanisms.push(made);
    }
    Ok(Holds { mechanisms })
}

fn row(mechanism: &str, measured: Measured, probe: Option<Probe>) -> Result<HoldRow> {
    let times = |samples: Vec<(f64, f64)>| -> Result<Option<HoldTimes>> {
        if samples.is_empty() {
            return Ok(None);
        }
        let (holds, releases) = samples.into_iter().unzip();
        Ok(Some(HoldTimes { hold_us: spread(holds)?, release_us: spread(releases)? }))
    };
    Ok(HoldRow {
        mechanism: mechanism.to_owned(),
        error: measured.error,
        queues: measured.queues,
        probe,
        idle: times(measured.idle)?,
        busy: times(measured.busy)?,
        busy_kernel_us: KERNEL.as_micros() as u64,
        stood: measured.stood,
        interrupted: measured.interrupted,
        holds: measured.holds,
    })
}

/// What the library says of its probe: `... holds by NAME (WHO) gpu_id=7 hold_us=1 release_us=2`.
fn probe(log: &str) -> Option<Probe> {
    let line = log.lines().find(|line| line.contains("holds by ") && line.contains("hold_us="))?;
    let number = |name: &str| {
        let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(word, _)| *word == name)?.1.parse().ok()
    };
    Some(Probe { hold_us: number("hold_us")?, release_us: number("release_us")? })
}

/// Why the library refuses, in its words: `GPU 7: level 3 is asked for and level 1 in force: WHY`.
fn refusal(log: &str) -> Option<String> {
    log.lines().find_map(|line| Some(line.split_once("level 1 in force: ")?.1.to_owned()))
}

/// A worker's measurements.
pub(super) fn work(short: bool) -> Result<Measured> {
    let library = in_front()?;
    // Before there is a queue: the library's probe wants one that is known to be idle, which a new one is.
    let session = library.session().map_err(|why| anyhow!("XKfdOpen returned {}", why.c_name()))?;
    let hip = hip()?;
    let kernels = Kernels::load(&hip, 0)?;
    let filling = kernels.filling_shape(&hip.device(0)?)?;
    let stream = hip.stream()?;
    let word = hip.host_malloc(size_of::<u64>())?;
    let mut bench = Bench { kernels, filling, stream, word, launched: 0 };
    bench.launch(Duration::ZERO, BusyShape::ONE)?;
    bench.stream.synchronize()?;
    let queues = session.compute_queues().map_err(|why| anyhow!("XKfdListQueues: {}", why.c_name()))?;
    let mut measured = Measured { queues: queues as u64, ..Measured::default() };
    if let Err(error) = bench.fill(&session, short, &mut measured) {
        measured.refused = measured.holds == 0;
        measured.error = Some(format!("{error:#}"));
        // Nothing that is off may keep this process from ending.
        let _ = session.resume();
    }
    Ok(measured)
}

#[derive(Debug)]
struct Bench {
    kernels: Kernels,
    filling: BusyShape,
    stream: Stream,
    /// Number of the last kernel that has ended.
    word: HostBuffer,
    launched: u64,
}

impl Bench {
    fn launch(&mut self, length: Duration, shape: BusyShape) -> Result<u64> {
        self.launched += 1;
        let length = length.as_nanos() as u64;
        self.kernels.busy_store(&self.stream, &self.word, self.launched, length, shape)?;
        Ok(self.launched)
    }

    fn fill(&mut self, session: &Session<'_>, short: bool, measured: &mut Measured) -> Result<()> {
        let (idle, busy) = if short { (8, 4) } else { (64, 24) };
        for _ in 0..idle {
            let hold = hold(session, measured)?;
            measured.idle.push((hold, release(session)?));
        }
        for _ in 0..busy {
            self.interrupt(session, measured)?;
        }
        Ok(())
    }

    /// Holds while a kernel fills the device, and sees that it does not end until it is released.
    fn interrupt(&mut self, session: &Session<'_>, measured: &mut Measured) -> Result<()> {
        let first = self.launch(Duration::ZERO, BusyShape::ONE)?;
        let number = self.launch(KERNEL, self.filling)?;
        self.until(first)?;
        let held = hold(session, measured)?;
        let running = self.word.load_word(0) < number;
        let mut stood = running;
        let begin = Instant::now();
        while stood && begin.elapsed() < 2 * KERNEL {
            stood = self.word.load_word(0) < number;
            std::thread::yield_now();
        }
        let released = release(session)?;
        self.stream.synchronize()?;
        let last = self.word.load_word(0);
        ensure!(last == number, "after a release kernel {number} has not run, the last was {last}");
        if running {
            measured.interrupted += 1;
            measured.stood += u64::from(stood);
            measured.busy.push((held, released));
        }
        Ok(())
    }

    fn until(&self, number: u64) -> Result<()> {
        let begin = Instant::now();
        while self.word.load_word(0) < number {
            ensure!(begin.elapsed() < PATIENCE, "kernels do not run");
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// How long it took, microseconds.
fn hold(session: &Session<'_>, measured: &mut Measured) -> Result<f64> {
    let begin = Instant::now();
    match session.suspend() {
        Ok(()) => {
            measured.holds += 1;
            Ok(microseconds(begin.elapsed()))
        }
        Err(KfdResult::ErrorNotSupported) if measured.holds == 0 => {
            bail!("the library holds nothing here, and does not say why; the findings of the doctor do")
        }
        Err(why) => bail!("a hold failed: {}", why.c_name()),
    }
}

fn release(session: &Session<'_>) -> Result<f64> {
    let begin = Instant::now();
    let released = session.resume().map_err(|why| anyhow!("{}", why.c_name()));
    released.context("a release failed")?;
    Ok(microseconds(begin.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_words_are_understood() {
        let log = "xsched: debug: holds by update-queue (HWS) gpu_id=51234 hold_us=12 release_us=34\n";
        assert_eq!(probe(log), Some(Probe { hold_us: 12, release_us: 34 }));
        assert_eq!(probe("xsched: debug: queues holds=3\n"), None);
        let log = "xsched: warn: GPU 7: level 3 is asked for and level 1 in force: too old\n";
        assert_eq!(refusal(log).as_deref(), Some("too old"));
        assert_eq!(refusal("xsched: warn: something"), None);
    }

    #[test]
    fn what_was_not_measured_has_no_figures() {
        let made = row("update-queue", Measured::default(), None).unwrap();
        assert_eq!((made.idle, made.busy, made.holds), (None, None, 0));
        let measured = Measured { busy: vec![(1.0, 2.0), (3.0, 4.0)], ..Measured::default() };
        let busy = row("debug-trap", measured, None).unwrap().busy.unwrap();
        assert_eq!((busy.hold_us.max, busy.release_us.min), (3.0, 2.0));
    }
}
