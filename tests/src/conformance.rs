//! Every program of `tests/programs` natively and with `libshimhip.so` in front of it: same exit code, same output, same
//! messages. What memory holds is the programs' own part: they check it, and print digests of it.
//!
//! A program runs once natively and then in each of its modes ([`MODES`]: a mode is one row). The library's own lines go to
//! a file; their counts show that the mode did what it is there for, because a run that counts nothing proves nothing.

mod compare;
mod modes;
mod rival;

pub use modes::{Beside, MODES, Mode, Of};
pub(crate) use rival::Rival;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::{Directions, End, Kind, Program};
use crate::{Finished, Gpu, Run, Runtime};

/// A difference between native and shimmed that is known and has its reason outside of this project.
#[derive(Debug)]
pub struct Known {
    /// The program's name.
    pub program: &'static str,
    /// The mode's name.
    pub mode: &'static str,
    /// Why it is so, with the place in AMD's sources.
    pub source: &'static str,
}

/// All of them; never more than five. A run that no longer differs is a failure as well.
pub const KNOWN: &[Known] = &[];

/// The result of one program.
#[derive(Debug)]
pub struct Verdict {
    /// The program's name.
    pub program: String,
    /// How often the library held something back, over all modes.
    pub held_back: u64,
    /// How often it was suspended for the rival.
    pub yielded: u64,
    /// How long it took, without building.
    pub took: Duration,
    /// The differences found; empty if there are none.
    pub problems: String,
}

/// Returns true if the suite compares a program in a mode by default.
pub fn is_usual(mode: &Mode, directions: &Directions) -> bool {
    directions.every_mode || mode.of != Of::Some
}

/// Compares one program in those of these modes that it can be compared in.
pub fn compare(program: &Program, modes: &[&Mode], runtime: &dyn Runtime) -> Verdict {
    let mut verdict = Verdict {
        program: program.name.clone(),
        held_back: 0,
        yielded: 0,
        took: Duration::ZERO,
        problems: String::new(),
    };
    if let Err(reason) = compare_into(&mut verdict, program, modes, runtime) {
        let _ = writeln!(verdict.problems, "{}: {reason}", program.name);
    }
    verdict
}

fn compare_into(
    verdict: &mut Verdict,
    program: &Program,
    modes: &[&Mode],
    runtime: &dyn Runtime,
) -> Result<(), String> {
    let directions = &program.directions;
    // Built before a turn is taken: others can run meanwhile.
    let built = runtime.build(program)?;
    if directions.kind != Kind::Executable {
        return if built.is_file() { Ok(()) } else { Err(format!("{} is no file", built.display())) };
    }
    // What a mode runs instead of the native program, where it does so.
    let fat = |mode: &Mode| match mode.of {
        Of::Fat { compressed } => runtime.fat(compressed).filter(|_| program.has_kernels()),
        Of::All | Of::Some => None,
    };
    for fat in modes.iter().filter_map(|mode| fat(mode)) {
        fat.build_all(program)?;
    }
    let gpu = Gpu::take();
    let started = Instant::now();
    let run = gpu.directed(program, runtime)?;
    let native = finish(run.clone(), directions.end).map_err(|reason| format!("native: {reason}"))?;
    as_directed(&native, directions.end).map_err(|reason| format!("native: {reason}"))?;
    let folder =
        tempfile::tempdir().map_err(|error| format!("no folder for what the library says: {error}"))?;
    for mode in modes.iter().filter(|mode| !(directions.holds && mode.holds())) {
        let run = match mode.of {
            Of::Fat { .. } => match fat(mode) {
                Some(fat) => gpu.directed(program, fat)?,
                None => continue,
            },
            Of::Some | Of::All => run.clone(),
        };
        let log = folder.path().join(mode.name);
        let known = KNOWN.iter().find(|known| known.program == program.name && known.mode == mode.name);
        let rival =
            mode.rival.map(|beside| Rival::start(&gpu, &directions.sim, beside, runtime)).transpose()?;
        let shimmed = match (&rival, mode.rival) {
            (Some(rival), Some(beside)) => {
                let (run, env) = rival.beside(run, beside.level);
                run.mode(mode.with(&log, env))
            }
            _ => run.mode(mode.with_log(&log)),
        };
        let mut problem = finish(shimmed, directions.end)
            .map(|shimmed| compare::difference(&native, &shimmed))
            .unwrap_or_else(Some);
        let said = read(&log)?;
        verdict.held_back += modes::held_back(&said);
        if let Some(rival) = rival {
            verdict.yielded += modes::suspensions(&said);
            problem = problem.or(rival.finish().err());
        }
        problem = problem.or_else(|| mode.objection(&said, directions));
        match (problem, known) {
            (Some(problem), None) => {
                // At length once: the modes mostly differ in the same.
                let shown = if verdict.problems.is_empty() { problem.as_str() } else { first_line(&problem) };
                let _ = writeln!(
                    verdict.problems,
                    "{}, {}: {shown}\nthe library said:\n{said}",
                    program.name, mode.name
                );
            }
            (None, Some(known)) => {
                let _ = writeln!(
                    verdict.problems,
                    "{}, {}: no longer differs; it is listed as known: {}",
                    program.name, mode.name, known.source
                );
            }
            _ => {}
        }
    }
    verdict.took = started.elapsed();
    Ok(())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn read(log: &Path) -> Result<String, String> {
    match std::fs::read_to_string(log) {
        Ok(said) => Ok(said),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("cannot read {}: {error}", log.display())),
    }
}

pub(crate) fn finish(run: Run, end: End) -> Result<Finished, String> {
    let mut running = run.start();
    if end == End::Killed {
        let line = running.try_line()?;
        if line != "ready" {
            return Err(format!("said {line:?} instead of \"ready\"\n{}", running.report()));
        }
        running.kill_program();
    }
    running.try_finish()
}

/// Checks that the native run ended as its directions say.
pub(crate) fn as_directed(native: &Finished, end: End) -> Result<(), String> {
    let (code, last) = match end {
        End::Ok => (0, Some("ok")),
        End::Code(code) => (code, None),
        End::Killed => (128 + 9, Some("ready")),
    };
    if native.code == 77 && code != 77 {
        return Err(format!("gpu-sim cannot run here: {}", native.stderr.trim_end()));
    }
    if native.code == code && last.is_none_or(|last| native.stdout.lines().last() == Some(last)) {
        return Ok(());
    }
    let last = last.map_or(String::new(), |last| format!(" after {last:?}"));
    Err(format!(
        "ended with code {} instead of {code}{last}\nits stdout:\n{}its stderr:\n{}",
        native.code, native.stdout, native.stderr
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_differences_are_few_and_have_their_source() {
        assert!(KNOWN.len() <= 5);
        for known in KNOWN {
            assert!(!known.source.is_empty(), "{known:?}");
            assert!(MODES.iter().any(|mode| mode.name == known.mode), "{known:?}");
            Program::find(known.program).unwrap_or_else(|reason| panic!("{reason}"));
        }
    }
}
