//! `make kfd-faults`: faults while queues are off the hardware, and what came of each; `make kfd-soak`: holds for minutes.

use std::process::ExitCode;
use std::time::Duration;

use tests::kfd_faults;

const USAGE: &str = "usage: kfd-faults [PART]                          the cases whose name, with the mechanism's, has this part
       kfd-faults --soak MINUTES [--processes N]  24 processes held and released at random";

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(String, Option<Duration>, usize), String> {
    let (mut part, mut soak, mut processes) = (String::new(), None, 24);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|value| value.parse::<f64>().ok());
            value.filter(|value| (0.05..=10_000.0).contains(value)).ok_or_else(|| USAGE.to_owned())
        };
        match argument.as_str() {
            "--soak" => soak = Some(Duration::from_secs_f64(number()? * 60.0)),
            "--processes" => processes = (number()? as usize).max(2),
            option if option.starts_with('-') => return Err(USAGE.to_owned()),
            name => part = name.to_owned(),
        }
    }
    Ok((part, soak, processes))
}

fn main() -> ExitCode {
    let right = match parse(std::env::args().skip(1)) {
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
        Ok((_, Some(length), processes)) => kfd_faults::soak(length, processes, |line| println!("{line}")),
        // One at a time: how soon the queues come back is judged here.
        Ok((part, None, _)) => kfd_faults::run(kfd_faults::LONGEST, &part, 1, |line| println!("{line}")),
    };
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
