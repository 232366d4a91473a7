//! `make demo-faults`: kills and stops the server and the programs under it, and says what came of it.

use std::process::ExitCode;

use tests::faults::{self, LONGEST_STALL, many};

const USAGE: &str = "usage: demo-faults                             each fault once, with a judgement of each
       demo-faults --server-faults N [--seed S]   the server is killed, stopped and continued N times at random under two busy
                                                  programs; the last line has the numbers; exit code 1 if a digest is wrong or a
                                                  program goes without a round for 1 s or more";

/// How many faults of the server, and in which order; none if each case is to be run once.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<(usize, u64)>, String> {
    let (mut faults, mut seed) = (None, None);
    while let Some(argument) = arguments.next() {
        let number = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (argument.as_str(), number) {
            ("--server-faults", Some(count @ 1..=100_000)) => faults = Some(count as usize),
            ("--seed", Some(number)) => seed = Some(number),
            _ => return Err(USAGE.to_owned()),
        }
    }
    match (faults, seed) {
        (None, Some(_)) => Err(USAGE.to_owned()),
        (faults, seed) => Ok(faults.map(|faults| (faults, seed.unwrap_or(1)))),
    }
}

fn main() -> ExitCode {
    let say = |line: &str| println!("{line}");
    let right = match parse(std::env::args().skip(1)) {
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
        Ok(Some((count, seed))) => many::run(count, seed, LONGEST_STALL, say),
        Ok(None) => faults::run(LONGEST_STALL, say),
    };
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod parsing {
    use super::*;

    #[test]
    fn options_without_meaning_are_refused() {
        let parse = |words: &str| parse(words.split_whitespace().map(str::to_owned));
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("--server-faults 200"), Ok(Some((200, 1))));
        assert_eq!(parse("--seed 7 --server-faults 3"), Ok(Some((3, 7))));
        for wrong in
            ["--server-faults", "--server-faults 0", "--server-faults x", "--seed 7", "200", "--help"]
        {
            assert_eq!(parse(wrong), Err(USAGE.to_owned()), "{wrong}");
        }
    }
}
