//! `xcli report`: one file that says what a machine is and how giveway fares on it, for whoever has a real GPU.
//!
//! Parts are made one after the other ([`versions`], the doctor's findings, and [`measure`] for the rest), each with a limit of
//! its own. A part that cannot be had says why, and the others are made all the same. At the end the texts go
//! through [`redact`], and the file appears whole or not at all.

mod file;
mod format;
mod measure;
mod redact;
mod versions;

use crate::doctor::{self, Machine};
use crate::place::Place;
use crate::table::{plain, terminal_width, wrapped};
use crate::tell::tell;
use anyhow::Context as _;
use file::Target;
use format::{Doctor, FORMAT, LaunchPath, Part, Parts, Report};
use measure::{Budget, within, xbench};
use protocol::report::{Conformance, Devices, Holds, Window};
use redact::Secrets;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// All of it, with some seconds for what has to be killed.
const TOTAL: Duration = Duration::from_secs(560);
/// A look at files and one request to a driver or a server.
const LOOK: Duration = Duration::from_secs(15);
/// A measured part.
const MEASURE: Duration = Duration::from_secs(130);

/// What `xcli report` is told.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArgs {
    /// The file that is written; `-` is standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: PathBuf,
    /// Also take queues off the hardware, which measures levels 2 and 3. Hazardous: it says how, and asks
    #[arg(long)]
    try_level2: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Few repetitions: some seconds for each part, and figures that say less
    #[arg(long)]
    short: bool,
}

const CONTAINS: [&str; 7] = [
    "versions: giveway, kernel release, machine architecture, distribution, HIP's runtime, driver and its parameters, numbers of \
     each GPU out of the driver's topology (target, capabilities, firmware, queues), whether running waves are saved, and \
     variables of the environment that change what HIP or giveway does",
    "doctor: what `xcli doctor` finds",
    "devices: HIP's release, each device's product name, target, compute units and memory",
    "launch path: what a launch takes natively and with the library, medians in nanoseconds",
    "window: kernels a second, and how long a suspension takes, for several numbers of commands in flight",
    "holds: how long it takes to take queues off the hardware and to put them back; only with --try-level2",
    "conformance: nine small programs, whose memory is compared natively and with the library in several modes",
];

const LEFT_OUT: [&str; 5] = [
    "names of hosts and users",
    "command lines, and other programs than the report's own",
    "paths, but of the system's own folders",
    "variables of the environment, but those that change what HIP or giveway does",
    "serial numbers, unique ids and bus addresses of devices; the date",
];

const HAZARD: &str = "\
--try-level2 takes this program's own queues off the GPU while kernels run. That needs a driver that saves running waves \
(CWSR). Where it does not, it is not tried; but with a faulty driver or firmware it can hang or reset the GPU, and every \
program that uses it loses its work then, the desktop included. Save your work first, and do not do this on a machine \
that others need.";

/// Makes a report. The exit code is 0 if all parts are there, 1 if one is missing or has an error, 2 if nothing was done
/// because of the command line.
///
/// # Errors
/// The file cannot be written.
pub fn run(args: &ReportArgs, place: &Place) -> anyhow::Result<ExitCode> {
    let target = match Target::new(&args.output, args.force) {
        Ok(target) => target,
        Err(why) => return Ok(refuse(&why)),
    };
    eprintln!("{}", notice(args, terminal_width(std::io::stderr())));
    if args.try_level2 && !args.yes {
        if !std::io::stdin().is_terminal() {
            return Ok(refuse("nothing was done: where nobody can be asked --try-level2 needs --yes"));
        }
        if !confirmed()? {
            return Ok(refuse("nothing was done"));
        }
    }
    let report = make(args, place.clone());
    let mut value = serde_json::to_value(&report)?;
    secrets(place).clean(&mut value["parts"]);
    // What was taken out has left a report.
    let report: Report = serde_json::from_value(value).context("the report without names makes no sense")?;
    for (name, good, error) in report.parts.state() {
        if !good {
            tell(format_args!("{name}: {}", plain(error.unwrap_or("it is missing"))));
        }
    }
    target.write(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    if let Target::File { path, .. } = &target {
        tell(format_args!("{} is written; read it before you send it", path.display()));
    }
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn refuse(why: &str) -> ExitCode {
    tell(why);
    ExitCode::from(crate::EXIT_USAGE)
}

/// What is going to happen, for whoever waits, as wide as the terminal.
fn notice(args: &ReportArgs, terminal: Option<usize>) -> String {
    let goes = if args.output.as_os_str() == "-" { "to standard output" } else { "one file" };
    let mut lines = vec![format!(
        "This measures HIP on the first GPU, with and without giveway, for 10 minutes at most, and writes {goes}."
    )];
    lines.push("It contains:".to_owned());
    lines.extend(CONTAINS.map(|line| format!("  * {line}")));
    lines.push("It does not contain:".to_owned());
    lines.extend(LEFT_OUT.map(|line| format!("  * {line}")));
    let busy = "The GPU is busy meanwhile, and other programs on it make the figures worse.";
    if args.try_level2 {
        lines.extend([busy, "", "HAZARD", HAZARD].map(str::to_owned));
    } else {
        lines.push(format!("{busy} No queue is taken off the hardware."));
    }
    lines.iter().map(|line| wrapped(line, terminal)).collect::<Vec<_>>().join("\n")
}

/// Whether whoever is at the terminal says yes.
fn confirmed() -> std::io::Result<bool> {
    eprint!("\nType yes to go on: ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}

fn secrets(place: &Place) -> Secrets {
    let mut secrets = Secrets::of_this_process();
    secrets.place(place);
    let machine = within(Ok(LOOK), || Machine::look(None));
    for (index, gpu) in machine.iter().flat_map(|machine| &machine.gpus).enumerate() {
        secrets.gpu(gpu.gpu_id, index);
    }
    secrets
}

/// Makes a part, and says so.
fn part<T>(name: &str, work: impl FnOnce() -> (Option<T>, Option<String>)) -> Part<T> {
    tell(format_args!("{name} ..."));
    let begin = Instant::now();
    let (result, error) = work();
    Part { seconds: begin.elapsed().as_secs_f64(), skipped: None, error, result }
}

/// What has no error of its own.
fn whole<T>(made: Result<T, String>) -> (Option<T>, Option<String>) {
    match made {
        Ok(made) => (Some(made), None),
        Err(error) => (None, Some(error)),
    }
}

fn make(args: &ReportArgs, place: Place) -> Report {
    let budget = Budget::new(TOTAL);
    let look = || budget.at_most(LOOK);
    let time = || budget.at_most(MEASURE);
    let mut simulated = false;
    let versions = part("versions", || {
        match within(look(), || {
            let machine = Machine::look(None);
            (machine.simulated, versions::look(&machine))
        }) {
            Ok((is_simulated, (versions, error))) => {
                simulated = is_simulated;
                (Some(versions), error)
            }
            Err(error) => (None, Some(error)),
        }
    });
    let doctor = part("doctor", || {
        let found = within(look(), move || serde_json::to_value(doctor::look(&place, None)));
        whole(found.and_then(|found| {
            found.and_then(serde_json::from_value::<Doctor>).map_err(|error| error.to_string())
        }))
    });
    let card = |words: &[&'static str]| {
        let mut all = words.to_vec();
        if args.short {
            all.push("--short");
        }
        all
    };
    let devices = part("devices", || whole(measure::card::<Devices>(&card(&["devices"]), time())));
    let launch_path = part("launch path", || {
        let (calls, rounds) = if args.short { ("500", "5") } else { ("10000", "100") };
        let words = ["launch-path", "--real", "--local", "--json", "--calls", calls, "--rounds", rounds];
        whole(xbench::<LaunchPath>(&words, time()))
    });
    let window = part("window", || whole(measure::card::<Window>(&card(&["window"]), time())));
    let holds = if args.try_level2 {
        part("holds", || held(measure::card::<Holds>(&card(&["holds", "--hold", "update-queue"]), time())))
    } else {
        let skipped = Some("not without --try-level2".to_owned());
        Part { seconds: 0.0, skipped, error: None, result: None }
    };
    // Not again what went wrong once.
    let mechanism = holds.result.as_ref().filter(|_| holds.error.is_none()).and_then(mechanism);
    let conformance = part("conformance", || {
        let mut words = card(&["conformance"]);
        words.extend(mechanism.into_iter().flat_map(|mechanism| ["--hold", mechanism]));
        conforming(measure::card::<Conformance>(&words, time()))
    });
    let parts = Parts { versions, doctor, devices, launch_path, window, holds, conformance };
    Report {
        format: FORMAT,
        about: "A report of giveway about one machine, made by `xcli report`".to_owned(),
        contains: CONTAINS.map(str::to_owned).into(),
        left_out: LEFT_OUT.map(str::to_owned).into(),
        simulated,
        try_level2: args.try_level2,
        short: args.short,
        complete: parts.state().iter().all(|(_, good, _)| *good),
        seconds: budget.spent().as_secs_f64(),
        holds: parts.holds(),
        parts,
    }
}

/// The first mechanism that works.
fn mechanism(holds: &Holds) -> Option<&'static str> {
    let works = holds.mechanisms.iter().find(|row| row.error.is_none() && row.holds > 0)?;
    ["update-queue", "debug-trap"].into_iter().find(|name| *name == works.mechanism)
}

/// An error if no mechanism works, or a kernel went on that was held.
fn held(made: Result<Holds, String>) -> (Option<Holds>, Option<String>) {
    let (made, mut error) = whole(made);
    if let Some(made) = &made {
        let first = made.mechanisms.iter().find_map(|row| row.error.clone());
        let went_on = made.mechanisms.iter().find(|row| row.stood < row.interrupted);
        if let Some(row) = went_on {
            let (on, all) = (row.interrupted - row.stood, row.interrupted);
            error = Some(format!("{}: of {all} kernels that were held {on} went on", row.mechanism));
        } else if mechanism(made).is_none() {
            error = Some(first.unwrap_or_else(|| "nothing was held".to_owned()));
        }
    }
    (made, error)
}

/// An error if a mode has not passed.
fn conforming(made: Result<Conformance, String>) -> (Option<Conformance>, Option<String>) {
    let (made, mut error) = whole(made);
    if let Some(made) = &made {
        let failed: Vec<_> = made.modes.iter().filter(|mode| !mode.passed).collect();
        if !failed.is_empty() || made.modes.is_empty() {
            let names: Vec<&str> = failed.iter().map(|mode| mode.name.as_str()).collect();
            let why =
                failed.iter().find_map(|mode| Some(format!("; {}: {}", mode.name, mode.error.as_ref()?)));
            error = Some(format!("not passed: {}{}", names.join(", "), why.unwrap_or_default()));
        }
    }
    (made, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::report::HoldRow;

    fn row(mechanism: &str, error: Option<&str>, interrupted: u64, stood: u64) -> HoldRow {
        HoldRow {
            mechanism: mechanism.to_owned(),
            error: error.map(str::to_owned),
            queues: 1,
            probe: None,
            idle: None,
            busy: None,
            busy_kernel_us: 4000,
            stood,
            interrupted,
            holds: interrupted,
        }
    }

    #[test]
    fn one_mechanism_that_works_is_enough() {
        let holds = |rows: Vec<HoldRow>| held(Ok(Holds { mechanisms: rows }));
        let (made, error) =
            holds(vec![row("update-queue", None, 4, 4), row("debug-trap", Some("old"), 0, 0)]);
        assert_eq!((made.as_ref().and_then(mechanism), error), (Some("update-queue"), None));
        let (made, error) = holds(vec![row("update-queue", Some("no waves"), 0, 0)]);
        assert_eq!((made.as_ref().and_then(mechanism), error.as_deref()), (None, Some("no waves")));
        let (_, error) = holds(vec![row("update-queue", None, 4, 3)]);
        assert_eq!(error.as_deref(), Some("update-queue: of 4 kernels that were held 1 went on"));
        assert!(holds(vec![]).1.is_some());
    }

    #[test]
    fn modes_that_fail_are_named() {
        let mut report = format::tests::example();
        let conformance = report.parts.conformance.result.take().unwrap();
        assert_eq!(conforming(Ok(conformance.clone())).1, None);
        let mut failed = conformance;
        failed.modes[0].passed = false;
        assert_eq!(conforming(Ok(failed.clone())).1.as_deref(), Some("not passed: hold"));
        failed.modes[0].error = Some("no GPU".to_owned());
        assert_eq!(conforming(Ok(failed)).1.as_deref(), Some("not passed: hold; hold: no GPU"));
        assert!(conforming(Ok(Conformance { modes: vec![] })).1.is_some());
    }

    #[test]
    fn the_hazard_is_said_only_where_there_is_one() {
        let args = |try_level2| ReportArgs {
            output: "x".into(),
            try_level2,
            yes: false,
            force: false,
            short: false,
        };
        let (tame, wild) = (notice(&args(false), None), notice(&args(true), None));
        assert!(!tame.contains("HAZARD") && wild.contains("hang or reset the GPU"), "{wild}");
        for text in [tame, wild] {
            assert!(
                text.contains("10 minutes at most") && text.contains("names of hosts and users"),
                "{text}"
            );
        }
    }

    #[test]
    fn names_are_gone_from_every_part() {
        let mut report = format::tests::example();
        let mut secrets = Secrets::default();
        secrets.user("ann");
        secrets.folder("/home/ann", "<home>");
        let doctor = report.parts.doctor.result.as_mut().unwrap();
        doctor.findings[0].text = "at /home/ann/s.sock of ann".to_owned();
        report.parts.window.error = Some("/home/ann/libshimhip.so: no".to_owned());
        let mut value = serde_json::to_value(&report).unwrap();
        secrets.clean(&mut value["parts"]);
        assert!(!value.to_string().contains("ann"), "{value}");
        let report: Report = serde_json::from_value(value).unwrap();
        assert_eq!(report.parts.window.error.as_deref(), Some("<home>/libshimhip.so: no"));
    }
}
