//! `make demo-faults`: kills and stops the server and the programs under it, and says what came of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    if tests::faults::run(tests::faults::LONGEST_STALL, |line| println!("{line}")) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
