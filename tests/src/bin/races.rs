//! `make test-races`: looks for data races of the library with ThreadSanitizer (docs/races.md).

use std::path::PathBuf;
use std::process::ExitCode;

use tests::hip_cuda::HipCuda;
use tests::{Sanitized, races};

const USAGE: &str = "usage: races --library FILE --sanitizer FILE [--count N] [--seed FIRST] [--hip-cuda] [PROGRAM...]
LIBRARY is a libshimhip.so for ThreadSanitizer with the feature broken-order, SANITIZER its compiler's runtime of
ThreadSanitizer. N random programs in each mode, and these programs of tests/programs; scripts/test-races makes the rest.
With --hip-cuda only the programs, on hip-cuda instead of the simulated GPU.";

/// The options of the command line.
#[derive(Debug)]
struct Options {
    sanitized: Sanitized,
    count: u64,
    first: u64,
    programs: Vec<String>,
    hip_cuda: bool,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let (mut library, mut sanitizer, mut count, mut first, mut programs) = (None, None, 150, 1, Vec::new());
    let mut hip_cuda = false;
    while let Some(name) = arguments.next() {
        if name == "--hip-cuda" {
            hip_cuda = true;
            continue;
        }
        if !name.starts_with("--") {
            programs.push(name);
            continue;
        }
        let value = arguments.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is not a number"));
        match name.as_str() {
            "--library" => library = Some(PathBuf::from(&value)),
            "--sanitizer" => sanitizer = Some(PathBuf::from(&value)),
            "--count" => count = number()?,
            "--seed" => first = number()?,
            _ => return Err(format!("no option {name}\n{USAGE}")),
        }
    }
    if programs.is_empty() {
        programs = races::PROGRAMS.iter().map(|name| (*name).to_owned()).collect();
    }
    let sanitized = Sanitized { library: library.ok_or(USAGE)?, sanitizer: sanitizer.ok_or(USAGE)? };
    Ok(Options { sanitized, count, first, programs, hip_cuda })
}

fn watch(options: &Options) -> Result<bool, String> {
    let say = |line: &str| println!("{line}");
    if !races::planted_is_found(&options.sanitized)? {
        return Err("a race that was planted was not found: nothing would be".to_owned());
    }
    say("the planted race was found");
    if options.hip_cuda {
        let runtime = HipCuda::find()?.sanitized(&options.sanitized);
        let programs = races::watch_programs(&runtime, &options.programs, say)?;
        println!("{} passed, {} failed", programs.passed, programs.failed);
        return Ok(programs.failed == 0);
    }
    let random = races::watch_random(&options.sanitized, options.first, options.count, say)?;
    let programs = races::watch_programs(&options.sanitized, &options.programs, say)?;
    // In three modes: not more than every sixth.
    if random.lost * 2 > options.count {
        return Err(format!("{} random programs were lost: too many to prove anything", random.lost));
    }
    let failed = random.failed + programs.failed;
    println!("{} passed, {failed} failed", random.passed + programs.passed);
    Ok(failed == 0)
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|options| watch(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}
