//! Random programs: natively and with the library in front, the same memory and results (docs/random-programs.md).
//!
//! `tests/random` makes a valid HIP program from a seed and carries it out; many in one process. Here the seeds are split
//! into batches, each batch runs natively and once in each of [`MODES`], and the lines that the processes print are
//! compared. A process that prints nothing for [`PATIENCE`] hangs. The library's own counts show how many commands it held
//! back: a run in which it did nothing proves nothing.

mod batch;
mod plan;
mod shrink;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use batch::Tools;
pub(crate) use plan::HOLD;
pub use plan::{Failure, Library, MODES, Mode, Outcome, PATIENCE, Plan};
pub use shrink::{shrink, text};

/// Programs in one process.
const BATCH: u64 = 100;

/// Programs that once showed a fault, which every run makes first; one line each in this file.
const SEEDS: &str = include_str!("../random/seeds");

/// The faults that a library with the feature `broken-order` can be given, by `XSCHED_BROKEN`.
pub const FAULTS: &[&str] = &["default-stream", "events", "swap", "drain", "argument"];

/// Within how many programs a fault must be found.
const FOUND_WITHIN: u64 = 200;

/// Looks for each fault with a library that can have them. How many were found.
pub fn find_faults(tools: &Tools, library: &Path, say: impl Fn(&str) + Sync) -> usize {
    let found = |fault: &&&str| {
        let plan = Plan {
            count: FOUND_WITHIN,
            first: 1,
            repeat: 1,
            keep_going: false,
            modes: MODES.iter().filter(|mode| mode.chaos && mode.name != HOLD).copied().collect(),
            kept: false,
            env: vec![("XSCHED_BROKEN".to_owned(), fault.to_string())],
            library: Library::Other(library.to_owned()),
        };
        let outcome = run(&plan, tools, |_| {});
        // What the runtime alone does wrong is no find.
        let first = outcome.failures.iter().find(|failure| failure.mode != "native");
        match first {
            Some(failure) => say(&format!("{fault}: found, by program {}", failure.seed)),
            None => say(&format!("{fault}: not found in {FOUND_WITHIN} programs")),
        }
        first.is_some()
    };
    FAULTS.iter().filter(found).count()
}

/// Makes these programs in this mode; the memory is not compared. How many came to their end, and what ended the process
/// before its time.
pub(crate) fn said(plan: &Plan, tools: &Tools, mode: Mode, first: u64, count: u64) -> (u64, Option<String>) {
    let report = batch::carry_out(plan, tools, Some(mode), (first, count, 1), "");
    (report.said.len() as u64, report.broken)
}

/// The kept seeds.
pub fn kept_seeds() -> impl Iterator<Item = u64> {
    SEEDS.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())
}

/// Carries a plan out, [`AT_ONCE`](crate::AT_ONCE) batches at a time. `say` gets a line for each failure and now and then one about the progress.
pub fn run(plan: &Plan, tools: &Tools, say: impl Fn(&str) + Sync) -> Outcome {
    let mut batches: VecDeque<(u64, u64)> = VecDeque::new();
    if plan.kept {
        batches.extend(kept_seeds().map(|seed| (seed, 1)));
    }
    let (mut first, end) = (plan.first, plan.first + plan.count);
    while first < end {
        let count = BATCH.min(end - first);
        batches.push_back((first, count));
        first += count;
    }
    let all: u64 = batches.iter().map(|(_, count)| count).sum();
    let queue = Mutex::new(batches);
    let result = Mutex::new((Outcome::default(), Instant::now()));
    std::thread::scope(|scope| {
        for _ in 0..crate::slots::AT_ONCE {
            scope.spawn(|| {
                loop {
                    // Not in a `while let`, which would keep the lock.
                    let next = lock(&queue).pop_front();
                    let Some((first, count)) = next else { break };
                    let _turn = crate::slots::take("gpu", crate::slots::AT_ONCE);
                    let batch = batch::run(plan, tools, first, count);
                    for failure in &batch.failures {
                        say(&failure.to_string());
                    }
                    if !batch.failures.is_empty() && !plan.keep_going {
                        lock(&queue).clear();
                    }
                    let mut result = lock(&result);
                    result.0.add(batch);
                    if result.1.elapsed() > Duration::from_secs(10) {
                        result.1 = Instant::now();
                        say(&format!("{} of {all} programs", result.0.passed));
                    }
                }
            });
        }
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner).0
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
