//! Some programs in a row, natively and in each mode, and the comparison.

use std::path::PathBuf;

use super::plan::{Failure, Library, Mode, Outcome, PATIENCE, Plan};
use crate::{Run, Sanitized, runtime};

/// The built program and what it loads.
#[derive(Debug)]
pub struct Tools {
    pub(super) program: PathBuf,
    pub(super) code: PathBuf,
}

impl Tools {
    /// Builds what is not there yet. The error is one sentence.
    pub fn build() -> Result<Tools, String> {
        Ok(Tools { program: runtime::random_program(None)?, code: crate::program("module_kernels")? })
    }

    /// The same with ThreadSanitizer.
    pub fn build_sanitized(sanitized: &Sanitized) -> Result<Tools, String> {
        Ok(Tools {
            program: runtime::random_program(Some(sanitized))?,
            code: crate::program("module_kernels")?,
        })
    }
}

/// The output of one program in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) seed: u64,
    pub(super) digest: String,
    pub(super) wrong: Option<String>,
}

fn parse(line: &str) -> Option<Said> {
    let mut words = line.strip_prefix("program ")?.splitn(3, ' ');
    let seed = words.next()?.parse().ok()?;
    let digest = words.next()?.to_owned();
    let wrong = words.next().map(str::to_owned);
    Some(Said { seed, digest, wrong })
}

/// The output of one process, and the reason if it ended early.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) said: Vec<Said>,
    pub(super) broken: Option<String>,
    direct: u64,
    deferred: u64,
    suspensions: u64,
    holds: u64,
}

/// Carries out `count` programs from `first` on in one process, each `repeat` times, without the steps of `drop`.
pub(super) fn carry_out(
    plan: &Plan,
    tools: &Tools,
    mode: Option<Mode>,
    (first, count, repeat): (u64, u64, u64),
    drop: &str,
) -> Report {
    let folder = tempfile::tempdir().expect("a folder for what the library says");
    let log = folder.path().join("log");
    let mut run = Run::of_executable(&tools.program).limit(PATIENCE * (count * repeat) as u32);
    for argument in ["run", &tools.code.display().to_string()] {
        run = run.arg(argument);
    }
    for number in [first, count, repeat] {
        run = run.arg(number.to_string());
    }
    run = run.arg(drop);
    if let Some(mode) = mode {
        let preload = match &plan.library {
            Library::Other(library) => Some(library.clone()),
            Library::Built => {
                Some(crate::product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}")))
            }
            Library::Linked => None,
        };
        if let Some(library) = preload {
            run = run.env("LD_PRELOAD", &library.display().to_string());
        }
        run = run.env("XSCHED_AUTO_XQUEUE", "ON");
        run = run.env("XSCHED_LOG_LEVEL", "debug").env("XSCHED_LOG_FILE", &log.display().to_string());
        for (name, value) in mode.env {
            run = run.env(name, value);
        }
        if mode.chaos {
            run = run.env("XSCHED_TEST", &format!("chaos:{first}"));
        }
        for (name, value) in &plan.env {
            run = run.env(name, value);
        }
    }
    let mut running = run.start();
    let mut report = Report::default();
    let mut over = false;
    loop {
        match running.next_line(PATIENCE) {
            Ok(Some(line)) => match parse(&line) {
                Some(said) => report.said.push(said),
                None => over |= line == "ok",
            },
            Ok(None) => break,
            Err(hang) => {
                report.broken = Some(hang);
                return report;
            }
        }
    }
    match running.try_finish() {
        Err(hang) => report.broken = Some(hang),
        Ok(finished) if finished.code != 0 || !over => {
            let mut stderr: Vec<&str> =
                finished.stderr.lines().filter(|line| !line.contains("amdgpu_get_auth")).collect();
            let last = stderr.split_off(stderr.len().saturating_sub(8)).join("\n");
            report.broken = Some(format!("ended with code {}\n{last}", finished.code));
        }
        Ok(_) => {}
    }
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    report.direct = total(&log, "direct");
    report.deferred = total(&log, "deferred");
    report.suspensions = total(&log, "suspensions");
    report.holds = total(&log, "holds");
    report
}

/// The sum of `NAME=number` over all lines.
fn total(log: &str, name: &str) -> u64 {
    let words = log.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(key, _)| *key == name).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// The same over several processes, if one breaks: the program in which it did counts, and the others go on.
fn carry_out_all(
    plan: &Plan,
    tools: &Tools,
    mode: Option<Mode>,
    first: u64,
    count: u64,
) -> (Report, Vec<Failure>) {
    let name = mode.map_or("native", |mode| mode.name);
    let (mut all, mut failures) = (Report::default(), Vec::new());
    let (mut next, end) = (first, first + count);
    while next < end {
        let mut report = carry_out(plan, tools, mode, (next, end - next, plan.repeat), "");
        all.direct += report.direct;
        all.deferred += report.deferred;
        all.suspensions += report.suspensions;
        all.holds += report.holds;
        let whole = report.said.len() as u64 / plan.repeat;
        all.said.append(&mut report.said);
        let Some(what) = report.broken else { break };
        let seed = (next + whole).min(end - 1);
        failures.push(Failure { seed, mode: name.to_owned(), what, first: next });
        if !plan.keep_going && mode.is_some() {
            break;
        }
        next = seed + 1;
    }
    (all, failures)
}

/// How many times a program is made natively before it counts as wrong.
const TRIES: u32 = 3;
/// How many times a program that was wrong with the library is made natively, to see whether it is the runtime's own race.
const SUSPECTED: u64 = 1_000;

/// Natively a program has to do what it computes. One that does not, now and then, meets a race of the runtime's own, and is
/// made again alone; one that never does is a failure. How many were made again.
fn carry_out_natively(plan: &Plan, tools: &Tools, first: u64, count: u64) -> (Report, Vec<Failure>, u64) {
    let (mut native, mut failures) = carry_out_all(plan, tools, None, first, count);
    for said in &native.said {
        if let Some(what) = said.wrong.clone() {
            failures.push(Failure { seed: said.seed, mode: "native".to_owned(), what, first });
        }
    }
    failures.dedup_by_key(|failure| failure.seed);
    let again = failures.len() as u64;
    failures.retain(|failure| {
        native.said.retain(|said| said.seed != failure.seed);
        // Who asks for native runs alone wants to see it.
        let tries = if plan.modes.is_empty() { 0 } else { TRIES };
        let right = (0..tries).find_map(|_| {
            let report = carry_out(plan, tools, None, (failure.seed, 1, plan.repeat), "");
            let right = report.broken.is_none() && report.said.iter().all(|said| said.wrong.is_none());
            right.then_some(report.said)
        });
        native.said.extend(right.iter().flatten().cloned());
        right.is_none()
    });
    (native, failures, again)
}

/// Returns true if the program also fails natively when it is repeated.
fn is_wrong_natively(plan: &Plan, tools: &Tools, seed: u64) -> bool {
    let report = carry_out(plan, tools, None, (seed, 1, SUSPECTED), "");
    report.said.iter().any(|said| said.wrong.is_some())
}

/// Makes the programs of one batch, natively and in each mode.
pub(super) fn run(plan: &Plan, tools: &Tools, first: u64, count: u64) -> Outcome {
    let (native, mut failures, again) = carry_out_natively(plan, tools, first, count);
    let mut outcome = Outcome { again, ..Outcome::default() };
    let fail = |failures: &mut Vec<Failure>, said: &Said, mode: &str, what: String| {
        failures.push(Failure { seed: said.seed, mode: mode.to_owned(), what, first });
    };
    for mode in &plan.modes {
        let (shimmed, broken) = carry_out_all(plan, tools, Some(*mode), first, count);
        failures.extend(broken);
        outcome.direct += shimmed.direct;
        outcome.deferred += shimmed.deferred;
        outcome.suspensions += shimmed.suspensions;
        outcome.holds += shimmed.holds;
        for said in &shimmed.said {
            let want = native.said.iter().find(|native| native.seed == said.seed);
            match (&said.wrong, want) {
                (Some(_), _) if is_wrong_natively(plan, tools, said.seed) => outcome.again += 1,
                (Some(wrong), _) => fail(&mut failures, said, mode.name, wrong.clone()),
                (None, Some(want)) if want.digest != said.digest => {
                    let what = format!("digest {} instead of {}", said.digest, want.digest);
                    fail(&mut failures, said, mode.name, what);
                }
                _ => {}
            }
        }
    }
    let failed = |seed: &u64| failures.iter().any(|failure| failure.seed == *seed);
    let complete = |seed: &u64| native.said.iter().any(|said| said.seed == *seed);
    outcome.passed = (first..first + count).filter(|seed| complete(seed) && !failed(seed)).count() as u64;
    failures.sort_by_key(|failure| failure.seed);
    failures.dedup_by_key(|failure| (failure.seed, failure.mode.clone()));
    outcome.failures = failures;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let said = parse("program 17 00ff").expect("a line");
        assert_eq!((said.seed, said.digest.as_str(), said.wrong), (17, "00ff", None));
        let said = parse("program 17 00ff wrong: b2 differs").expect("a line");
        assert_eq!(said.wrong.as_deref(), Some("wrong: b2 differs"));
        assert_eq!(parse("ok"), None);
        assert_eq!(total("queues direct=3 deferred=4\nqueues direct=5", "direct"), 8);
    }
}
