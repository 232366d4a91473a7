//! `make demo-faults`: kills and stops the server and the programs under it, and says what came of it.

use std::process::ExitCode;

use tests::faults::{self, LONGEST_STALL};

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        eprintln!(
            "usage: demo-faults   each fault once, with a judgement of each; `soak` injects many faults in a random order"
        );
        return ExitCode::from(2);
    }
    match faults::run(LONGEST_STALL, |line| println!("{line}")) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
