//! `xcli report`: writes a file about the machine and giveway's performance on it.
//!
//! The parts are made one after the other ([`versions`], the doctor's findings, and [`measure`] for the
//! rest), each with a time limit. A part that fails has an error, and the others are still made. [`redact`]
//! reduces the texts to words that are known to be safe, and the file is written as a whole or not at all.

mod file;
mod format;
mod measure;
mod redact;
mod versions;

use crate::doctor::{self, Machine};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::output::warn;
use crate::table::{plain, terminal_width, wrapped};
use file::Target;
use format::{FORMAT, LaunchPath, Part, Parts, Report};
use measure::{Budget, within, xbench};
use protocol::report::{Conformance, Devices, Holds, QueuePriority, Window};
use redact::Words;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The time limit of a report, which leaves some seconds to kill processes.
const TOTAL: Duration = Duration::from_secs(560);
/// The time limit for reading files or for a request to the driver or the server.
const LOOK: Duration = Duration::from_secs(15);
/// The time limit of a measured part.
const MEASURE: Duration = Duration::from_secs(130);

/// The arguments of `xcli report`.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArgs {
    /// The file to write; `-` is standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: PathBuf,
    /// Also evict queues from the hardware, to measure levels 2 and 3. Hazardous: explains the hazard and
    /// asks first
    #[arg(long)]
    try_level2: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Make few repetitions: some seconds for each part, with less precise figures
    #[arg(long)]
    short: bool,
}

const CONTAINS: [&str; 8] = [
    "versions: giveway, kernel release, machine architecture, distribution, HIP's runtime, driver and its parameters, numbers from \
     the driver's topology of each GPU (target, capabilities, firmware, queues), support for saving running waves, and \
     environment variables that change the behaviour of HIP or giveway",
    "doctor: the findings of `xcli doctor`",
    "devices: HIP's release, each device's product name, target, compute units and memory",
    "launch path: the time of a launch natively and with the library, medians in nanoseconds",
    "window: kernels per second and the time of a suspension, for several numbers of commands in flight",
    "priority: kernels beside those of another program, with hardware queues of the same and of a higher priority",
    "holds: the time to evict queues from the hardware and to restore them; only with --try-level2",
    "conformance: nine small programs, whose memory is compared natively and with the library in several modes",
];

const LEFT_OUT: [&str; 6] = [
    "names of hosts and users",
    "command lines, and names of other programs",
    "paths, except those of devices",
    "other environment variables, and values that are not numbers or known settings",
    "serial numbers, unique ids and bus addresses of devices; the date",
    "every word of a message that is not on giveway's list of words",
];

const HAZARD: &str = "\
--try-level2 evicts the queues of this program from the GPU while kernels run. That needs a driver that saves running waves \
(CWSR); without it, eviction is not tried. But a faulty driver or firmware can hang or reset the GPU, and then every program \
that uses the GPU loses its work, including the desktop. Save your work first, and do not run this on a machine that others \
need.";

/// Makes a report. The exit code is 0 if all parts are complete, 1 if a part is missing or has an error, and
/// 2 if the command line prevents the report.
///
/// # Errors
/// The file cannot be written.
pub fn run(args: &ReportArgs, endpoint: &Endpoint) -> anyhow::Result<ExitCode> {
    let target = Target::new(&args.output, args.force)?;
    eprintln!("{}", notice(args, terminal_width(std::io::stderr())));
    if args.try_level2 && !args.yes {
        if !std::io::stdin().is_terminal() {
            return Err(Error::Usage("nothing was done: without a terminal, --try-level2 needs --yes").into());
        }
        if !confirmed()? {
            return Err(Error::Usage("nothing was done").into());
        }
    }
    let (mut report, gpus) = make(args, endpoint.clone());
    Words::new(gpus).redact(&mut report.parts);
    for (name, good, error) in report.parts.state() {
        if !good {
            warn(format_args!("{name}: {}", plain(error.unwrap_or("the part is missing"))));
        }
    }
    target.write(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    if let Target::File { path, .. } = &target {
        warn(format_args!("wrote {}; read it before you send it", path.display()));
    }
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The announcement of what the report does and contains, wrapped to the terminal.
fn notice(args: &ReportArgs, terminal: Option<usize>) -> String {
    let output = if args.output.as_os_str() == "-" { "to standard output" } else { "one file" };
    let mut lines = vec![format!(
        "This measures HIP on the first GPU, with and without giveway, for 10 minutes at most, and writes {output}."
    )];
    lines.push("It contains:".to_owned());
    lines.extend(CONTAINS.map(|line| format!("  * {line}")));
    lines.push("It does not contain:".to_owned());
    lines.extend(LEFT_OUT.map(|line| format!("  * {line}")));
    let busy = "The GPU is busy during that time, and other programs on it make the figures worse.";
    if args.try_level2 {
        lines.extend([busy, "", "HAZARD", HAZARD].map(str::to_owned));
    } else {
        lines.push(format!("{busy} No queue is evicted from the hardware."));
    }
    lines.iter().map(|line| wrapped(line, terminal)).collect::<Vec<_>>().join("\n")
}

/// Asks for confirmation. Returns true for yes.
fn confirmed() -> std::io::Result<bool> {
    eprint!("\nType yes to continue: ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case("yes"))
}

/// Makes a part, and prints its name first.
fn part<T>(name: &str, work: impl FnOnce() -> (Option<T>, Option<String>)) -> Part<T> {
    warn(format_args!("{name} ..."));
    let begin = Instant::now();
    let (result, error) = work();
    Part { seconds: begin.elapsed().as_secs_f64(), skipped: None, error, result }
}

/// The result and the error of a part that has either.
fn either<T>(made: Result<T, Error>) -> (Option<T>, Option<String>) {
    match made {
        Ok(made) => (Some(made), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// Makes all parts. Returns the driver's numbers of the GPUs with the report, which is not redacted yet.
fn make(args: &ReportArgs, endpoint: Endpoint) -> (Report, Vec<u32>) {
    let budget = Budget::new(TOTAL);
    let look = || budget.at_most(LOOK);
    let time = || budget.at_most(MEASURE);
    let (mut simulated, mut gpus) = (false, Vec::new());
    let versions = part("versions", || {
        match within(look(), || {
            let machine = Machine::look(None);
            let gpus: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.gpu_id).collect();
            (machine.simulated, gpus, versions::look(&machine))
        }) {
            Ok((is_simulated, found, (versions, error))) => {
                (simulated, gpus) = (is_simulated, found);
                (Some(versions), error)
            }
            Err(error) => (None, Some(error.to_string())),
        }
    });
    let doctor = part("doctor", || either(within(look(), move || doctor::look(&endpoint, None))));
    let card = |words: &[&'static str]| {
        let mut all = words.to_vec();
        if args.short {
            all.push("--short");
        }
        all
    };
    let devices = part("devices", || either(measure::card::<Devices>(&card(&["devices"]), time())));
    let launch_path = part("launch path", || {
        let (calls, rounds) = if args.short { ("500", "5") } else { ("10000", "100") };
        let words = ["launch-path", "--real", "--local", "--json", "--calls", calls, "--rounds", rounds];
        either(xbench::<LaunchPath>(&words, time()))
    });
    let window = part("window", || either(measure::card::<Window>(&card(&["window"]), time())));
    let priority = part("priority", || either(measure::card::<QueuePriority>(&card(&["priority"]), time())));
    let holds = if args.try_level2 {
        part("holds", || held(measure::card::<Holds>(&card(&["holds", "--hold", "update-queue"]), time())))
    } else {
        let skipped = Some("needs --try-level2".to_owned());
        Part { seconds: 0.0, skipped, error: None, result: None }
    };
    // A mechanism that failed is not tried again.
    let mechanism = holds.result.as_ref().filter(|_| holds.error.is_none()).and_then(mechanism);
    let conformance = part("conformance", || {
        let mut words = card(&["conformance"]);
        words.extend(mechanism.into_iter().flat_map(|mechanism| ["--hold", mechanism]));
        conforming(measure::card::<Conformance>(&words, time()))
    });
    let parts = Parts { versions, doctor, devices, launch_path, window, priority, holds, conformance };
    let report = Report {
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
    };
    (report, gpus)
}

/// The first mechanism that works.
fn mechanism(holds: &Holds) -> Option<&'static str> {
    let works = holds.mechanisms.iter().find(|row| row.error.is_none() && row.holds > 0)?;
    ["update-queue", "debug-trap"].into_iter().find(|name| *name == works.mechanism)
}

/// Adds an error if no mechanism works, or if a kernel ended while it was evicted.
fn held(made: Result<Holds, Error>) -> (Option<Holds>, Option<String>) {
    let (made, mut error) = either(made);
    if let Some(made) = &made {
        let first = made.mechanisms.iter().find_map(|row| row.error.clone());
        let went_on = made.mechanisms.iter().find(|row| row.stood < row.interrupted);
        if let Some(row) = went_on {
            let (on, all) = (row.interrupted - row.stood, row.interrupted);
            error = Some(format!("{}: {on} of {all} evicted kernels went on", row.mechanism));
        } else if mechanism(made).is_none() {
            error = Some(first.unwrap_or_else(|| "no queue was evicted".to_owned()));
        }
    }
    (made, error)
}

/// Adds an error if a mode has not passed.
fn conforming(made: Result<Conformance, Error>) -> (Option<Conformance>, Option<String>) {
    let (made, mut error) = either(made);
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
    use protocol::report::EvictionRow;

    fn row(mechanism: &str, error: Option<&str>, interrupted: u64, stood: u64) -> EvictionRow {
        let (mechanism, error) = (mechanism.to_owned(), error.map(str::to_owned));
        EvictionRow { mechanism, error, interrupted, stood, holds: interrupted, ..format::tests::eviction() }
    }

    #[test]
    fn one_working_mechanism_is_enough() {
        let holds = |rows: Vec<EvictionRow>| held(Ok(Holds { mechanisms: rows }));
        let (made, error) =
            holds(vec![row("update-queue", None, 4, 4), row("debug-trap", Some("old"), 0, 0)]);
        assert_eq!((made.as_ref().and_then(mechanism), error), (Some("update-queue"), None));
        let (made, error) = holds(vec![row("update-queue", Some("no waves"), 0, 0)]);
        assert_eq!((made.as_ref().and_then(mechanism), error.as_deref()), (None, Some("no waves")));
        let (_, error) = holds(vec![row("update-queue", None, 4, 3)]);
        assert_eq!(error.as_deref(), Some("update-queue: 1 of 4 evicted kernels went on"));
        assert!(holds(vec![]).1.is_some());
    }

    #[test]
    fn failed_modes_are_named() {
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
    fn hazard_is_explained_only_with_try_level2() {
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
}
