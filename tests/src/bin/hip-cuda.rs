//! The programs of `tests/programs` on hip-cuda (docs/hip-cuda.md), natively and with the library.
//!
//! ```text
//! hip-cuda [NAME...] [--mode MODE...] [--against-amd]
//! ```
//! NAME is a part of a program's name. The last line is `N passed, N failed`.

use std::process::ExitCode;

use tests::conformance::{MODES, Mode};
use tests::hip_cuda::{HipCuda, against_amd, compare, programs};
use tests::product;

/// What the command line asks for.
#[derive(Debug, Default)]
struct Wanted {
    names: Vec<String>,
    modes: Vec<&'static Mode>,
    against_amd: bool,
}

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("hip-cuda: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn wanted(mut words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--mode" => {
                let name = words.next().unwrap_or_default();
                let mode = MODES.iter().find(|mode| mode.name == name);
                wanted.modes.push(mode.ok_or_else(|| format!("there is no mode {name:?}"))?);
            }
            "--against-amd" => wanted.against_amd = true,
            _ if word.starts_with('-') => return Err(format!("unknown option {word}")),
            _ => wanted.names.push(word),
        }
    }
    Ok(wanted)
}

fn run(words: impl Iterator<Item = String>) -> Result<bool, String> {
    let wanted = wanted(words)?;
    let runtime = HipCuda::find()?;
    let programs = programs(&wanted.names)?;
    for needed in ["libshimhip.so", "xserver"] {
        product(needed)?;
    }
    let outcome = if wanted.against_amd {
        against_amd(&programs, &runtime)
    } else {
        compare(&programs, &runtime, &wanted.modes)
    };
    println!("\n{} cannot run on hip-cuda (tests/src/hip_cuda/omitted.rs)", outcome.omitted);
    println!("{} passed, {} failed", outcome.passed, outcome.failed);
    Ok(outcome.failed == 0 || wanted.against_amd)
}
