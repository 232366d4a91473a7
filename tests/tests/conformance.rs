//! The conformance suite: every program of `tests/programs`, natively and with the library in front of it
//! ([`tests::conformance`]). `make conformance`, or with a part of the names and of the modes:
//!
//! ```text
//! cargo test -p tests --test conformance -- events copies --mode defer --mode chaos
//! ```
//! Without a mode each program is compared in its usual ones; a mode that is named, with every program.
//! One line for each program; the last line is `N passed, N failed`, and the exit code 1 if one failed.

use std::process::ExitCode;

use tests::conformance::{MODES, Mode, Verdict, compare, is_usual};
use tests::program::Program;
use tests::{Installed, product};

struct Wanted {
    names: Vec<String>,
    modes: Vec<&'static Mode>,
    list: bool,
}

fn main() -> ExitCode {
    match wanted(std::env::args().skip(1)).and_then(|wanted| suite(&wanted)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Words are parts of names, as with any test of cargo's; of cargo's own options those that make sense here are accepted.
fn wanted(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted { names: Vec::new(), modes: Vec::new(), list: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => wanted.list = true,
            "--mode" => {
                let name = words.next().unwrap_or_default();
                let names = || MODES.iter().map(|mode| mode.name).collect::<Vec<_>>().join(", ");
                let mode = MODES.iter().find(|mode| mode.name == name);
                wanted.modes.push(mode.ok_or_else(|| format!("no mode {name:?}; there are {}", names()))?);
            }
            "--nocapture" | "--no-capture" | "--quiet" | "-q" => {}
            _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
            _ => wanted.names.push(word),
        }
    }
    Ok(wanted)
}

fn suite(wanted: &Wanted) -> Result<bool, String> {
    let hip = tests::hip_major();
    let is_wanted = |program: &Program| {
        program.directions.from_hip <= hip
            && (wanted.names.is_empty()
                || wanted.names.iter().any(|part| program.name.contains(part.as_str())))
    };
    let programs: Vec<Program> = Program::all()?.into_iter().filter(is_wanted).collect();
    if wanted.list {
        for program in &programs {
            println!("{}: test", program.name);
        }
        return Ok(true);
    }
    for needed in ["gpu-sim", "libshimhip.so"] {
        product(needed)?;
    }
    let verdicts = compare_all(&programs, &wanted.modes);
    let failed = verdicts.iter().filter(|verdict| !verdict.problems.is_empty()).count();
    for verdict in verdicts.iter().filter(|verdict| !verdict.problems.is_empty()) {
        print!("\n{}", verdict.problems);
    }
    let yielded: u64 = verdicts.iter().map(|verdict| verdict.yielded).sum();
    // A single program can be too short to meet the rival; of many that never happens.
    let beside = wanted.modes.is_empty() || wanted.modes.iter().any(|mode| mode.rival.is_some());
    let met = yielded > 0 || verdicts.len() < 50 || !beside;
    if !met {
        println!("\nno program was ever suspended for its rival: the modes beside one compared nothing");
    }
    println!("\n{} passed, {failed} failed", verdicts.len() - failed);
    Ok(failed == 0 && met)
}

/// In these modes, or in each program's usual ones if there are none.
fn compare_all(programs: &[Program], modes: &[&Mode]) -> Vec<Verdict> {
    let mut verdicts = tests::each(programs, tests::AT_ONCE, |program| {
        let usual = MODES.iter().filter(|mode| is_usual(mode, &program.directions));
        let modes = if modes.is_empty() { &usual.collect::<Vec<_>>()[..] } else { modes };
        let verdict = compare(program, modes, &Installed);
        let word = if verdict.problems.is_empty() { "ok" } else { "FAILED" };
        let took = verdict.took.as_secs_f32();
        println!("{word:6} {:24} {:8} held back {took:6.1} s", verdict.program, verdict.held_back);
        verdict
    });
    verdicts.sort_by(|a, b| a.program.cmp(&b.program));
    verdicts
}
