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
use format::{Calibration, FORMAT, LaunchPath, Part, Parts, Report};
use measure::{Budget, within, xbench};
use protocol::report::{
    Conformance, Corun, Devices, EvictionRow, Holds, OccupiedRow, QueuePriority, UnitMasks, Window,
};
use redact::Words;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The most minutes of a report, as it is announced.
const MINUTES: u64 = 15;
/// The time limit of a report, which leaves some seconds to kill processes.
const TOTAL: Duration = Duration::from_secs(MINUTES * 60 - 20);
/// The time limits of the parts, which fit into that of the report together, so that no part takes another's time.
const LIMITS: Limits = Limits {
    look: Duration::from_secs(15),
    devices: Duration::from_secs(40),
    calibration: Duration::from_secs(50),
    launch_path: Duration::from_secs(130),
    window: Duration::from_secs(120),
    priority: Duration::from_secs(80),
    unit_masks: Duration::from_secs(40),
    holds: Duration::from_secs(120),
    corun: Duration::from_secs(140),
    conformance: Duration::from_secs(130),
};

/// The time limits of the parts.
struct Limits {
    /// For reading files, and for a request to the driver or the server.
    look: Duration,
    devices: Duration,
    calibration: Duration,
    launch_path: Duration,
    window: Duration,
    priority: Duration,
    unit_masks: Duration,
    holds: Duration,
    corun: Duration,
    conformance: Duration,
}

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

const CONTAINS: [&str; 11] = [
    "versions: giveway, kernel release, machine architecture, distribution, HIP's runtime, driver and its parameters, numbers from \
     the driver's topology of each GPU (target, capabilities, firmware, queues), support for saving running waves, and \
     environment variables that change the behaviour of HIP or giveway",
    "doctor: the findings of `xcli doctor`",
    "devices: HIP's release, each device's product name, target, compute units and memory",
    "calibration: whether kernels take the time that they are told to take, alone and in two processes, which shows whether another \
     program used the GPU",
    "launch path: the time of a launch natively and with the library, medians in nanoseconds",
    "window: kernels per second and the time of a suspension, for several numbers of commands in flight",
    "priority: kernels beside those of another program, with hardware queues of the same and of a higher priority",
    "unit masks: a kernel that fills the GPU, on all compute units, on half of them and on a quarter",
    "holds: the time to evict queues from the hardware and to restore them, by the registers and the local memory that kernels \
     occupy, and whether those are right afterwards; only with --try-level2",
    "corun: the latency of a recorded model beside another one, natively and with the library",
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
    for doubt in doubts(&report.parts) {
        warn(doubt);
    }
    target.write(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    if let Target::File { path, .. } = &target {
        warn(format_args!("wrote {}; read it before you send it", path.display()));
    }
    Ok(if report.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns what is to be said about figures that another program has disturbed.
fn doubts(parts: &Parts) -> impl Iterator<Item = &'static str> {
    let calibrated = parts.calibration.result.as_ref().is_none_or(|made| made.met);
    let undisturbed = parts.corun.result.as_ref().is_none_or(|made| made.undisturbed);
    let [calibration, corun] = [
        "calibration: kernels did not take the time that they were told to take. Does another program use the GPU? Then end it, and \
         make the report again",
        "corun: the GPU had other work after a run, so its figures are not reliable",
    ];
    (!calibrated).then_some(calibration).into_iter().chain((!undisturbed).then_some(corun))
}

/// The announcement of what the report does and contains, wrapped to the terminal.
fn notice(args: &ReportArgs, terminal: Option<usize>) -> String {
    let output = if args.output.as_os_str() == "-" { "to standard output" } else { "one file" };
    let mut lines = vec![format!(
        "This measures HIP on the first GPU, with and without giveway, for {MINUTES} minutes at most, and writes {output}."
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
    let look = || budget.at_most(LIMITS.look);
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
    let devices = part("devices", || {
        either(measure::card::<Devices>(&card(&["devices"]), budget.at_most(LIMITS.devices)))
    });
    let calibration = part("calibration", || {
        either(xbench::<Calibration>(&["calibrate", "--real", "--json"], budget.at_most(LIMITS.calibration)))
    });
    let launch_path = part("launch path", || {
        let (calls, rounds) = if args.short { ("500", "5") } else { ("10000", "100") };
        let words = ["launch-path", "--real", "--local", "--json", "--calls", calls, "--rounds", rounds];
        either(xbench::<LaunchPath>(&words, budget.at_most(LIMITS.launch_path)))
    });
    let window =
        part("window", || either(measure::card::<Window>(&card(&["window"]), budget.at_most(LIMITS.window))));
    let priority = part("priority", || {
        either(measure::card::<QueuePriority>(&card(&["priority"]), budget.at_most(LIMITS.priority)))
    });
    let unit_masks = possible(part("unit masks", || {
        either(measure::card::<UnitMasks>(&card(&["unit-masks"]), budget.at_most(LIMITS.unit_masks)))
    }));
    let holds = if args.try_level2 {
        part("holds", || {
            let words = card(&["holds", "--hold", "update-queue"]);
            held(measure::card::<Holds>(&words, budget.at_most(LIMITS.holds)))
        })
    } else {
        let skipped = Some("needs --try-level2".to_owned());
        Part { seconds: 0.0, skipped, error: None, result: None }
    };
    // A mechanism that failed is not tried again.
    let mechanism = holds.result.as_ref().filter(|_| holds.error.is_none()).and_then(mechanism);
    let evicting = |part: &'static str| {
        let mut words = card(&[part]);
        words.extend(mechanism.into_iter().flat_map(|mechanism| ["--hold", mechanism]));
        words
    };
    let corun =
        part("corun", || used(measure::card::<Corun>(&evicting("corun"), budget.at_most(LIMITS.corun))));
    let conformance = part("conformance", || {
        conforming(measure::card::<Conformance>(&evicting("conformance"), budget.at_most(LIMITS.conformance)))
    });
    let parts = Parts {
        versions,
        doctor,
        devices,
        calibration,
        launch_path,
        window,
        priority,
        unit_masks,
        holds,
        corun,
        conformance,
    };
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

/// Gives a part whose result is a refusal the reason why it is skipped, and no result.
fn possible(mut made: Part<UnitMasks>) -> Part<UnitMasks> {
    if let Some(why) = made.result.as_mut().and_then(|made| made.refused.take()) {
        (made.skipped, made.result) = (Some(why), None);
    }
    made
}

/// The first mechanism that works.
fn mechanism(holds: &Holds) -> Option<&'static str> {
    let works = holds.mechanisms.iter().find(|row| row.error.is_none() && row.holds > 0)?;
    ["update-queue", "debug-trap"].into_iter().find(|name| *name == works.mechanism)
}

/// Adds an error if no mechanism works, if a kernel ended while it was evicted, or if what it had kept is wrong afterwards.
fn held(made: Result<Holds, Error>) -> (Option<Holds>, Option<String>) {
    let (made, mut error) = either(made);
    if let Some(made) = &made {
        let first = made.mechanisms.iter().find_map(|row| row.error.clone());
        let failure =
            made.mechanisms.iter().find_map(|row| Some(format!("{}: {}", row.mechanism, failure(row)?)));
        if failure.is_some() {
            error = failure;
        } else if mechanism(made).is_none() {
            error = Some(first.unwrap_or_else(|| "no queue was evicted".to_owned()));
        }
    }
    (made, error)
}

/// Returns what an eviction did to a kernel and must not.
fn failure(row: &EvictionRow) -> Option<String> {
    let wrong = row.occupied.iter().find(|kernel| kernel.wrong > 0);
    if let Some(OccupiedRow { kernel, local_bytes, wrong, compared, .. }) = wrong {
        return Some(format!(
            "{wrong} of {compared} results of {kernel} with {local_bytes} bytes of local memory are wrong after a restore"
        ));
    }
    let sum = |of: fn(&OccupiedRow) -> u64| row.occupied.iter().map(of).sum::<u64>();
    let interrupted = row.interrupted + sum(|kernel| kernel.interrupted);
    let on = interrupted - (row.stood + sum(|kernel| kernel.stood)).min(interrupted);
    (on > 0).then(|| format!("{on} of {interrupted} evicted kernels went on"))
}

/// Adds an error if a level was not used.
fn used(made: Result<Corun, Error>) -> (Option<Corun>, Option<String>) {
    let (made, mut error) = either(made);
    if let Some(made) = &made {
        error = made.levels.iter().find_map(|level| level.missing.clone());
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
        // Two more were evicted while they kept words.
        assert_eq!(error.as_deref(), Some("update-queue: 1 of 6 evicted kernels went on"));
        assert!(holds(vec![]).1.is_some());
    }

    #[test]
    fn wrong_memory_after_a_restore_is_an_error() {
        let holds = |change: fn(&mut OccupiedRow)| {
            let mut row = row("update-queue", None, 4, 4);
            change(&mut row.occupied[0]);
            held(Ok(Holds { mechanisms: vec![row] })).1
        };
        assert_eq!(holds(|_| ()), None);
        let wrong = "update-queue: 3 of 512 results of keep_few with 16384 bytes of local memory are wrong after a restore";
        assert_eq!(holds(|row| row.wrong = 3).as_deref(), Some(wrong));
        let on = holds(|row| row.stood = 1);
        assert_eq!(on.as_deref(), Some("update-queue: 1 of 6 evicted kernels went on"));
    }

    #[test]
    fn refused_masks_are_skipped_with_the_reason() {
        let made = |refused: Option<&str>| {
            let refused = refused.map(str::to_owned);
            possible(part("x", || (Some(UnitMasks { kernel_us: 1, refused, rows: vec![] }), None)))
        };
        let refused = made(Some("no function"));
        assert_eq!((refused.skipped.as_deref(), refused.result.is_none()), (Some("no function"), true));
        let measured = made(None);
        assert_eq!((measured.skipped, measured.result.is_some()), (None, true));
    }

    #[test]
    fn level_that_was_not_used_is_an_error() {
        let mut corun = format::tests::example().parts.corun.result.unwrap();
        assert_eq!(used(Ok(corun.clone())).1, None);
        corun.levels[0].missing = Some("level 3 was not used".to_owned());
        assert_eq!(used(Ok(corun)).1.as_deref(), Some("level 3 was not used"));
        assert!(used(Err(Error::NoTimeLeft)).1.is_some());
    }

    #[test]
    fn disturbed_figures_are_said() {
        let mut parts = format::tests::example().parts;
        assert_eq!(doubts(&parts).count(), 0);
        parts.calibration.result.as_mut().unwrap().met = false;
        assert!(doubts(&parts).all(|doubt| doubt.starts_with("calibration: kernels did not take")));
        parts.corun.result.as_mut().unwrap().undisturbed = false;
        assert_eq!(doubts(&parts).count(), 2);
        (parts.calibration.result, parts.corun.result) = (None, None);
        assert_eq!(doubts(&parts).count(), 0);
    }

    #[test]
    fn limits_of_all_parts_fit_into_the_report() {
        let Limits { look, devices, calibration, launch_path, window, .. } = LIMITS;
        let Limits { priority, unit_masks, holds, corun, conformance, .. } = LIMITS;
        let tame =
            [2 * look, devices, calibration, launch_path, window, priority, unit_masks, corun, conformance];
        assert!(tame.iter().sum::<Duration>() + holds <= TOTAL);
        assert!(TOTAL < Duration::from_secs(60 * MINUTES));
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
                text.contains("15 minutes at most") && text.contains("names of hosts and users"),
                "{text}"
            );
        }
    }
}
