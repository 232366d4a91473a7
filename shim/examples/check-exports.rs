//! `check-exports LIBRARY VERSION_SCRIPT` checks the exports of a built `libshimhip.so`.
//!
//! Prints each fault and, last, `N passed, N failed`. Run it by `scripts/check-exports`.

#[path = "../tests/support/exports.rs"]
mod exports;

use std::path::Path;
use std::process::ExitCode;

fn check(library: &Path, script: &Path) -> Result<exports::Checked, String> {
    let symbols = exports::read(library)?;
    let script = std::fs::read_to_string(script).map_err(|error| format!("{}: {error}", script.display()))?;
    Ok(exports::check(&symbols, exports::unversioned(), &exports::names_of(&script)?))
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [library, script] = arguments.as_slice() else {
        eprintln!("usage: check-exports LIBRARY VERSION_SCRIPT");
        return ExitCode::from(2);
    };
    let checked = check(Path::new(library), Path::new(script))
        .unwrap_or_else(|error| exports::Checked { passed: 0, failures: vec![error] });
    for failure in &checked.failures {
        println!("{failure}");
    }
    println!("{} passed, {} failed", checked.passed, checked.failures.len());
    if checked.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
