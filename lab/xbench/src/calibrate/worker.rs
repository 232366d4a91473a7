//! The processes that measure kernels. Each prints its answer as one line of JSON.

use super::traffic::{self, Moved};
use crate::card::Card;
use crate::clock::{now_ns, wait_until};
use crate::hip::{Event, Stream};
use crate::kernels::{BusyShape, Opened};
use crate::process::{PATIENCE, Program, clear_environment, pass_gate, print_word};
use crate::report::Limit;
use crate::stats::median;
use crate::table::value_name;
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The lengths of kernels alone, microseconds.
const LENGTHS_US: [u64; 4] = [10, 100, 1_000, 10_000];
/// The length that tells whether somebody else uses the GPU.
const CHECK_US: u64 = 1_000;
/// The length of the kernels that two processes run at the same time, microseconds.
pub(super) const BESIDE_US: u64 = 1_000;
/// The number of such kernels in a row.
const CHECKED: u64 = 30;
/// The work of each length, as kernels in a row.
const IN_A_ROW: Duration = Duration::from_millis(100);
/// The most kernels that are measured one by one.
const SINGLES: u64 = 50;
/// The time for which two processes run beside each other.
const BESIDE: Duration = Duration::from_secs(2);
/// Kernels that are submitted at once beside another process.
const AHEAD: u64 = 8;
/// The time between announcing the start of two processes and their start.
const RUN_UP: Duration = Duration::from_millis(50);

/// What a process measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Work {
    /// Kernels of all lengths, alone
    Alone,
    /// Kernels of one length, alone, for each line of standard input
    Check,
    /// Kernels at the same time as another process
    Beside,
    /// Kernels with memory traffic, alone
    Traffic,
}

/// The answer of a process alone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Alone {
    pub(super) card: Card,
    pub(super) lengths: Vec<Length>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Length {
    /// The requested duration of a kernel, microseconds.
    pub(super) asked_us: u64,
    /// The number of kernels that were measured one by one.
    pub(super) singles: usize,
    /// The time between an event before and one behind a kernel, microseconds; median.
    pub(super) single_us: f64,
    /// The time of many kernels without a pause over their number, microseconds.
    pub(super) in_a_row_us: f64,
}

/// One answer of a process that checks the GPU.
#[derive(Debug, Serialize, Deserialize)]
struct Checked {
    card: Card,
    /// The time of kernels of [`CHECK_US`] without a pause over their number, microseconds.
    in_a_row_us: f64,
}

/// The answer of a process beside another.
#[derive(Debug, Serialize, Deserialize)]
struct Share {
    /// The work that its kernels did, as a share of the time that passed.
    share: f64,
}

/// Is such a process; `traffic` is that of its kernels.
pub(super) fn run(work: Work, traffic: Traffic) -> Result<()> {
    let opened = Opened::new("there is no GPU: the HIP runtime finds no device")?;
    let bench = Bench::new(&opened)?;
    match work {
        Work::Traffic => answer(&traffic::measure(&opened, traffic)?),
        Work::Alone => answer(&Alone { card: Card::of(&opened.hip)?, lengths: bench.lengths(&LENGTHS_US)? }),
        Work::Check => std::io::stdin().lock().lines().try_for_each(|line| {
            line?;
            let in_a_row_us = bench.in_a_row(CHECK_US, CHECKED)?;
            answer(&Checked { card: Card::of(&opened.hip)?, in_a_row_us })
        }),
        Work::Beside => {
            bench.launch(BESIDE_US, AHEAD)?;
            opened.stream.synchronize()?;
            let share = bench.share(pass_gate()?)?;
            answer(&Share { share })
        }
    }
}

fn answer(answer: &impl Serialize) -> Result<()> {
    print_word(&serde_json::to_string(answer)?)
}

/// Returns the command line of a process that measures.
fn command(this: &Path, work: Work) -> Command {
    let mut command = Command::new(this);
    clear_environment(&mut command);
    command.args(["calibrate", "--worker", &value_name(work)]);
    command
}

/// The process that checks the GPU. It does nothing between two checks, and stays because opening the GPU takes longer than
/// a check.
static CHECKER: Mutex<Option<Program>> = Mutex::new(None);

fn checker() -> MutexGuard<'static, Option<Program>> {
    // A check takes the program out, so a panic leaves none in the middle of an answer.
    CHECKER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(this: &Path) -> Result<Checked> {
    let mut checker = checker();
    let mut program = match checker.take() {
        Some(program) => program,
        None => Program::start("calibrate", command(this, Work::Check))?,
    };
    program.tell("check")?;
    let line = program.line(PATIENCE)?;
    *checker = Some(program);
    parse(&line)
}

/// Ends the process that checks the GPU; the next check starts another one. Called before measurements with many
/// processes: KFD has 8 VMIDs on a GPU with graphics and 13 on one without (`gmc_v9_0_sw_init` in Linux's `gmc_v9_0.c`), and
/// more processes than that take turns.
pub(crate) fn close() -> Result<()> {
    let program = checker().take();
    program.map_or(Ok(()), |program| program.end().map(drop))
}

/// Returns the machine's own GPU. A process of its own opens it, so that this one never does. `this` is this program.
pub(crate) fn card(this: &Path) -> Result<Card> {
    Ok(check(this).context("--real measures this machine's own GPU")?.card)
}

/// Returns the times in which a kernel of this length may follow the one before, in microseconds: 5 % more, and what the
/// device needs between two kernels.
pub(super) fn limit(asked_us: u64) -> Limit {
    let asked = asked_us as f64;
    Limit::within(0.98 * asked, 1.05 * asked + 8.0)
}

/// Runs a process alone. `this` is this program.
pub(super) fn alone(this: &Path, work: Work) -> Result<Alone> {
    let mut process = Program::start("calibrate", command(this, work))?;
    read(process.line(PATIENCE)?, process)
}

/// Runs a process alone that measures kernels with traffic. `this` is this program.
pub(super) fn moved(this: &Path, traffic: Traffic) -> Result<Moved> {
    let mut command = command(this, Work::Traffic);
    command.args(["--traffic", &value_name(traffic)]);
    let mut process = Program::start("calibrate", command)?;
    read(process.line(PATIENCE)?, process)
}

/// Runs two processes beside each other, and returns the share of the time for which each one's kernels worked.
pub(super) fn beside(this: &Path) -> Result<[f64; 2]> {
    let start = |_| Program::start("calibrate", command(this, Work::Beside));
    let mut both = [0, 1].map(start).into_iter().collect::<Result<Vec<_>>>()?;
    for process in &mut both {
        process.expect("ready", PATIENCE)?;
    }
    let at = now_ns() + RUN_UP.as_nanos() as u64;
    for process in &mut both {
        process.tell(&format!("start {at}"))?;
    }
    let mut shares = [0.0; 2];
    for (mut process, share) in both.into_iter().zip(&mut shares) {
        let line = process.line(PATIENCE)?;
        *share = read::<Share>(line, process)?.share;
    }
    Ok(shares)
}

fn read<T: DeserializeOwned>(line: String, process: Program) -> Result<T> {
    process.end()?;
    parse(&line)
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).with_context(|| format!("the answer {line:?} is malformed"))
}

/// Checks that the machine's own GPU runs a kernel in the time that it is told to take. Returns the reason if it does not.
pub(crate) fn objection(this: &Path) -> Result<Option<String>> {
    let took_us = check(this)?.in_a_row_us;
    let is_wrong = !limit(CHECK_US).is_met(took_us);
    Ok(is_wrong.then(|| format!("kernels of {CHECK_US} µs took {took_us:.0} µs afterwards")))
}

struct Bench<'a> {
    opened: &'a Opened,
    shape: BusyShape,
    events: [Event; 2],
}

impl<'a> Bench<'a> {
    fn new(opened: &'a Opened) -> Result<Self> {
        let shape = opened.kernels.filling_shape(&opened.hip.device(0)?)?;
        Ok(Self { opened, shape, events: [opened.hip.event()?, opened.hip.event()?] })
    }

    fn stream(&self) -> &Stream {
        &self.opened.stream
    }

    fn launch(&self, length_us: u64, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.opened.kernels.busy(self.stream(), length_us * 1_000, self.shape))
    }

    /// Returns the time between two events around so many kernels, microseconds.
    fn between_events(&self, length_us: u64, count: u64) -> Result<f64> {
        let [before, behind] = &self.events;
        before.record(self.stream())?;
        self.launch(length_us, count)?;
        behind.record(self.stream())?;
        behind.synchronize()?;
        Ok(f64::from(behind.milliseconds_since(before)?) * 1e3)
    }

    /// Makes the first launches, which load the kernel and wake the GPU.
    fn warm_up(&self) -> Result<()> {
        self.launch(CHECK_US, 2 * AHEAD)?;
        self.stream().synchronize()
    }

    /// Returns the time of so many kernels without a pause over their number, microseconds.
    fn in_a_row(&self, asked_us: u64, count: u64) -> Result<f64> {
        self.warm_up()?;
        Ok(self.between_events(asked_us, count)? / count as f64)
    }

    fn lengths(&self, lengths_us: &[u64]) -> Result<Vec<Length>> {
        self.warm_up()?;
        lengths_us.iter().map(|&asked_us| self.length(asked_us)).collect()
    }

    fn length(&self, asked_us: u64) -> Result<Length> {
        let count = (IN_A_ROW.as_micros() as u64 / asked_us).max(AHEAD);
        let singles = (0..count.min(SINGLES)).map(|_| self.between_events(asked_us, 1));
        let singles = singles.collect::<Result<Vec<_>>>()?;
        let in_a_row_us = self.between_events(asked_us, count)? / count as f64;
        let number = singles.len();
        let single_us = median(singles).context("nothing was measured")?;
        Ok(Length { asked_us, singles: number, single_us, in_a_row_us })
    }

    /// Keeps the GPU busy from this moment on for [`BESIDE`]. Returns the work that its kernels did over the time that
    /// passed.
    fn share(&self, start: u64) -> Result<f64> {
        wait_until(start);
        let end = start + BESIDE.as_nanos() as u64;
        let mut kernels = 0;
        let mut now = start;
        while now < end {
            self.launch(BESIDE_US, AHEAD)?;
            self.stream().synchronize()?;
            kernels += AHEAD;
            now = now_ns();
        }
        Ok((kernels * BESIDE_US * 1_000) as f64 / (now - start) as f64)
    }
}
