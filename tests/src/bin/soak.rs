//! `make soak`: faults of twenty-one kinds under two busy programs, each many times in a random order.

use std::process::ExitCode;

use tests::faults::LONGEST_STALL;
use tests::faults::soak::{self, Plan};

const USAGE: &str = "usage: soak [--each N] [--seed S] [PART]   each kind of fault N times (50), or only the kinds with PART in their names;
                                           exit code 1 if a kind fails, a digest is wrong or a program goes without a
                                           round for 1 s or more";

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut plan = Plan { each: 50, seed: 1, part: String::new(), longest_gap: LONGEST_STALL };
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|value| value.parse::<u64>().ok());
        match argument.as_str() {
            "--each" => match number() {
                Some(each @ 1..=100_000) => plan.each = each as usize,
                _ => return Err(USAGE.to_owned()),
            },
            "--seed" => plan.seed = number().ok_or_else(|| USAGE.to_owned())?,
            option if option.starts_with('-') => return Err(USAGE.to_owned()),
            part => plan.part = part.to_owned(),
        }
    }
    Ok(plan)
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(2)
        }
        Ok(plan) if soak::run(&plan, |line| println!("{line}")) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod parsing {
    use super::*;

    #[test]
    fn options_without_meaning_are_refused() {
        let parse = |words: &str| parse(words.split_whitespace().map(str::to_owned));
        let default = parse("").unwrap();
        assert_eq!((default.each, default.seed, default.part.as_str()), (50, 1, ""));
        let some = parse("--each 3 --seed 7 server").unwrap();
        assert_eq!((some.each, some.seed, some.part.as_str()), (3, 7, "server"));
        for wrong in ["--each", "--each 0", "--each x", "--seed", "--help"] {
            assert_eq!(parse(wrong), Err(USAGE.to_owned()), "{wrong}");
        }
    }
}
