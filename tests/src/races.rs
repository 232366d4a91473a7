//! Looks for data races of the library with ThreadSanitizer (docs/races.md): random programs and some of `tests/programs`,
//! with a `libshimhip.so` that is instrumented. A race that is planted must be found first.

use std::path::{Path, PathBuf};

use crate::conformance::{self, MODES, as_directed, finish};
use crate::program::Program;
use crate::random::{self, Library, Plan, Tools};
use crate::{Gpu, Mode, Runtime, Sanitized, slots, workspace};

/// Programs in one process: few, because now and then the runtime ends one (docs/random-programs.md).
const BATCH: u64 = 25;

/// Programs of `tests/programs` in which threads meet: at queues, events, frees, callbacks, ends.
pub const PROGRAMS: &[&str] = &[
    "callbacks",
    "copies_async",
    "copy_source_gone",
    "event_destroy_pending",
    "event_rerecord",
    "events",
    "free_pending",
    "graph_changes",
    "host_free_pending",
    "life_event_reuse",
    "life_exit_pending",
    "life_stream_reuse",
    "life_thread_churn",
    "life_thread_end",
    "module",
    "per_thread_stream",
    "pools",
    "stream_cycles",
    "threads",
];

/// The modes of conformance in which they run.
const PROGRAM_MODES: &[&str] = &["queues", "defer", "chaos"];

/// The runs made and the races found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Programs that came to their end, without a report.
    pub passed: u64,
    /// Programs with a report, or with a wrong end.
    pub failed: u64,
    /// Random programs in which the runtime ended the process.
    pub lost: u64,
}

/// Reads ThreadSanitizer's reports in this folder, each distinct one once.
fn reports(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter(|file| file.file_name().to_string_lossy().starts_with("race."));
    let mut found: Vec<(String, String)> = Vec::new();
    for text in texts.filter_map(|file| std::fs::read_to_string(file.path()).ok()) {
        for block in
            text.split("==================\n").filter(|block| block.contains("WARNING: ThreadSanitizer"))
        {
            let summary = block.lines().find(|line| line.starts_with("SUMMARY")).unwrap_or(block);
            if found.iter().all(|(known, _)| known != summary) {
                found.push((summary.to_owned(), block.to_owned()));
            }
        }
    }
    found.into_iter().map(|(_, block)| block).collect()
}

/// `TSAN_OPTIONS` for reports into this folder. A program ends with its own exit code, and with the signal that it gets;
/// the library's threads live until the process ends.
fn options(folder: &Path) -> String {
    let suppressions = workspace().join("tests/races.suppressions");
    format!(
        "suppressions={} log_path={} exitcode=0 handle_segv=0 handle_abort=0 report_thread_leaks=0 history_size=4",
        suppressions.display(),
        folder.join("race").display()
    )
}

/// Makes random programs in one mode, in several processes. The reports, how many programs ended, and what ended processes.
fn random_programs(
    tools: &Tools,
    mode: random::Mode,
    (first, count): (u64, u64),
    broken: Option<&str>,
) -> (Vec<String>, u64, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder for reports");
    let mut env = vec![("TSAN_OPTIONS".to_owned(), options(folder.path()))];
    env.extend(broken.map(|fault| ("XSCHED_BROKEN".to_owned(), fault.to_owned())));
    let plan = Plan {
        count,
        first,
        repeat: 1,
        keep_going: true,
        modes: vec![mode],
        kept: false,
        env,
        library: Library::Linked,
    };
    let (mut made, mut ends) = (0, Vec::new());
    let (mut next, end) = (first, first + count);
    while next < end {
        let _turn = slots::take("gpu", slots::AT_ONCE);
        let many = BATCH.min(end - next);
        let (said, broken) = random::said(&plan, tools, mode, next, many);
        made += said;
        // The program in which the process ended is lost, and the others go on.
        next += if broken.is_some() { said + 1 } else { many };
        ends.extend(broken);
    }
    (reports(folder.path()), made, ends)
}

/// Returns true if a race planted between the submitting threads and the worker is found: a run that can find nothing
/// proves nothing.
pub fn planted_is_found(sanitized: &Sanitized) -> Result<bool, String> {
    let tools = Tools::build_sanitized(sanitized)?;
    let mode = random::MODES.iter().find(|mode| mode.name == "defer").ok_or("no mode defer")?;
    let (reports, ..) = random_programs(&tools, *mode, (1, 10), Some("race"));
    Ok(reports.iter().any(|report| report.contains("count_unordered")))
}

/// Random programs in each of their modes.
pub fn watch_random(
    sanitized: &Sanitized,
    first: u64,
    count: u64,
    mut say: impl FnMut(&str),
) -> Result<Outcome, String> {
    let tools = Tools::build_sanitized(sanitized)?;
    let mut outcome = Outcome::default();
    // The library that ThreadSanitizer looks at does not see the runtime's requests (docs/races.md), and holds nothing.
    for mode in random::MODES.iter().filter(|mode| mode.name != random::HOLD) {
        let (reports, made, ends) = random_programs(&tools, *mode, (first, count), None);
        say(&format!(
            "random programs, {}: {made} of {count} came to their end, {} reports",
            mode.name,
            reports.len()
        ));
        ends.iter().for_each(|end| say(&format!("  a process ended: {}", end.trim_end())));
        reports.iter().for_each(|report| say(report));
        let failed = (reports.len() as u64).min(made);
        outcome.passed += made - failed;
        outcome.failed += reports.len() as u64;
        outcome.lost += count - made;
    }
    Ok(outcome)
}

/// These programs of `tests/programs` in the modes of conformance, on a runtime that links them with the sanitized library.
pub fn watch_programs(
    runtime: &dyn Runtime,
    names: &[String],
    mut say: impl FnMut(&str),
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for name in names {
        let program = Program::find(name)?;
        for mode in MODES.iter().filter(|mode| PROGRAM_MODES.contains(&mode.name)) {
            match watch_program(runtime, &program, mode)? {
                None => outcome.passed += 1,
                Some(problem) => {
                    outcome.failed += 1;
                    say(&format!("{name}, {}: {problem}", mode.name));
                }
            }
        }
        say(&format!("{name}: looked at"));
    }
    Ok(outcome)
}

fn watch_program(
    runtime: &dyn Runtime,
    program: &Program,
    mode: &conformance::Mode,
) -> Result<Option<String>, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for reports: {error}"))?;
    let gpu = Gpu::take();
    let mut run = gpu.directed(program, runtime)?.env("TSAN_OPTIONS", &options(folder.path()));
    let log: PathBuf = folder.path().join("log");
    if let Mode::Shimmed { env } = mode.with_log(&log) {
        for (name, value) in &env {
            run = run.env(name, value);
        }
    }
    let ended = finish(run, program.directions.end)
        .and_then(|finished| as_directed(&finished, program.directions.end));
    let reports = reports(folder.path());
    if !reports.is_empty() {
        return Ok(Some(reports.join("\n")));
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    Ok(ended.err().or_else(|| mode.objection(&said, &program.directions)))
}
