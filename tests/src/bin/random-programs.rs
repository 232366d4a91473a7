//! `make random-programs`: valid HIP programs made at random, natively and with the library, compared.

use std::path::PathBuf;
use std::process::ExitCode;

use tests::random::{self, Library, MODES, Mode, Plan, Tools};

const USAGE: &str = "usage: random-programs [--count N] [--seed FIRST] [--repeat N] [--modes NAME,...] [--keep-going]
                       [--env NAME=VALUE]
       random-programs --show SEED
       random-programs --shrink SEED [--modes NAME]
       random-programs --broken LIBRARY      a libshimhip.so with the feature broken-order: every fault must be found
Modes: chaos, hold, defer, window; native is always there.";

/// The options of the command line.
#[derive(Debug)]
struct Options {
    plan: Plan,
    show: Option<u64>,
    shrink: Option<u64>,
    broken: Option<PathBuf>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let (modes, env) = (MODES.to_vec(), Vec::new());
    let plan = Plan {
        count: 200,
        first: 1,
        repeat: 1,
        keep_going: false,
        modes,
        kept: true,
        env,
        library: Library::Built,
    };
    let mut options = Options { plan, show: None, shrink: None, broken: None };
    while let Some(name) = arguments.next() {
        let plan = &mut options.plan;
        match name.as_str() {
            "--keep-going" => plan.keep_going = true,
            "--help" => return Err(USAGE.to_owned()),
            _ => {
                let value = arguments.next().ok_or_else(|| format!("{name} wants a value\n{USAGE}"))?;
                let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is not a number"));
                match name.as_str() {
                    "--count" => plan.count = number()?,
                    "--seed" => plan.first = number()?,
                    "--repeat" => plan.repeat = number()?.max(1),
                    "--show" => options.show = Some(number()?),
                    "--shrink" => options.shrink = Some(number()?),
                    "--broken" => options.broken = Some(PathBuf::from(value)),
                    "--modes" => plan.modes = modes_of(&value)?,
                    "--env" => {
                        let (name, value) = value.split_once('=').ok_or("--env wants NAME=VALUE")?;
                        plan.env.push((name.to_owned(), value.to_owned()));
                    }
                    _ => return Err(format!("no option {name}\n{USAGE}")),
                }
            }
        }
    }
    // A single program is looked at alone.
    options.plan.kept = options.plan.count > 1;
    Ok(options)
}

fn modes_of(names: &str) -> Result<Vec<Mode>, String> {
    let named = names.split(',').filter(|name| *name != "native");
    let mode = |name: &str| MODES.iter().find(|mode| mode.name == name).copied();
    named.map(|name| mode(name).ok_or_else(|| format!("no mode {name}\n{USAGE}"))).collect()
}

fn main() -> ExitCode {
    let options = parse(std::env::args().skip(1));
    let tools = Tools::build();
    let (options, tools) = match (options, tools) {
        (Ok(options), Ok(tools)) => (options, tools),
        (Err(reason), _) | (_, Err(reason)) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    let plan = &options.plan;
    if let Some(seed) = options.show {
        print!("{}", random::text(&tools, seed, ""));
        return ExitCode::SUCCESS;
    }
    if let Some(seed) = options.shrink {
        let smaller =
            random::shrink(plan, &tools, seed, plan.modes.first().copied(), |line| eprintln!("{line}"));
        println!("{}", smaller.unwrap_or_else(|| format!("program {seed} does not fail")));
        return ExitCode::SUCCESS;
    }
    if let Some(library) = options.broken {
        let found = random::find_faults(&tools, &library, |line| println!("{line}"));
        println!("{found} passed, {} failed", random::FAULTS.len() - found);
        return if found == random::FAULTS.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let outcome = random::run(plan, &tools, |line| println!("{line}"));
    let commands = outcome.direct + outcome.deferred;
    let share = outcome.deferred * 100 / commands.max(1);
    println!(
        "{commands} commands with the library, {share} % held back; {} suspensions; {} times off the hardware",
        outcome.suspensions, outcome.holds
    );
    let enough = plan.modes.is_empty() || outcome.deferred_enough() && outcome.held_enough(plan);
    if !enough {
        println!("that is too little to prove anything");
    }
    if outcome.again > 0 {
        println!("{} were not right natively at first, and were made again", outcome.again);
    }
    let valid = !outcome.too_many_again();
    if !valid {
        println!("that is too many for the programs to be valid ones");
    }
    let mut seeds: Vec<u64> = outcome.failures.iter().map(|failure| failure.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let unproved = usize::from(!enough) + usize::from(!valid);
    println!("{} passed, {} failed", outcome.passed, seeds.len() + unproved);
    if seeds.is_empty() && unproved == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
