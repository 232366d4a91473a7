//! The program `xcli`: starts a program so that it is scheduled, and asks the server what it does.
//!
//! Rooms
//! * The server: `place` says which one is meant, `ask` makes one request and has its reply, `server` starts one where none runs, which
//!   `daemon` keeps free of what the program has.
//! * What it says: `list` is the reply for people, `table` lays it out, `tell` says what went wrong, `metrics` is the reply for monitors, `explain` is why a queue
//!   runs or does not.
//! * What it is told: `policy` says who decides, `hint` what the policy shall know, in `words` that `run` has as well.
//! * Processes: `run` makes the environment of a scheduled one, `known` is what `/proc` says of one, `queues` what the driver shows
//!   of it (`foreign` reads files as that process sees them), `amd_log` what the runtime's own log tells of its queues, `outside` suspends and resumes those of any process.
//! * The machine: `hooks` is what the library does with HIP's functions, `doctor` what the machine offers and why a process is
//!   scheduled or is not, `report` what the machine is and how giveway fares on it, in a file to be sent.

mod amd_log;
mod ask;
mod daemon;
mod doctor;
mod explain;
mod foreign;
mod hint;
mod hooks;
mod known;
mod list;
mod metrics;
mod outside;
mod place;
mod policy;
mod queues;
mod report;
mod run;
mod server;
mod table;
mod tell;
mod trial;
mod usage;
mod words;

use clap::{Parser, Subcommand};
use protocol::control::{List, Reply, Request};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use outside::Order;
use place::Place;
use tell::tell;
use usage::Usage;

/// Exit code of wrong usage.
const EXIT_USAGE: u8 = 2;

/// Start a program so that its work on the GPU is scheduled, and see and switch what the scheduler does.
///
/// Exit code: of `run` see there; else 0, 1 if the server cannot be asked or refuses, 2 for wrong usage.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(subcommand)]
    command: Command,
}

/// Which server is meant.
#[derive(clap::Args)]
struct PlaceArgs {
    /// The server by the name of its instance, the second word of `xserver POLICY INSTANCE` [default: 50000]
    #[arg(short = 'p', long, global = true, value_name = "INSTANCE", value_parser = place::instance)]
    instance: Option<String>,
    /// The server by its address: the path of its socket, or this machine's name (localhost)
    #[arg(short = 'a', long, global = true, value_name = "ADDR", value_parser = place::address)]
    address: Option<place::Address>,
}

/// What is suspended or resumed.
#[derive(clap::Args)]
struct OutsideArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,
    /// Only this queue of it, by its number in `xcli queues`; may be given several times [default: all that take kernels]
    // The driver keeps the two bits above for what it says of a queue.
    #[arg(long = "queue", value_name = "ID", value_parser = clap::value_parser!(u32).range(..1 << 30))]
    queues: Vec<u32>,
    /// Print JSON: `pid`, `name`, of each of the `queues` its `queue` and `fate` (done, invalid, failed), and `held`, the queues
    /// that are held now
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program so that its work on the GPU is scheduled
    ///
    /// Preloads libshimhip.so, makes a queue for every stream, and lets xserver decide which queues run; where no
    /// server runs, one is started, which ends some time after its last program. If there is none and none can be started, or if the
    /// library cannot be loaded here, the program runs unscheduled, and a line says why; --strict refuses instead. With --policy the program decides for
    /// itself, without a server. The program takes the place of xcli, so signals and the exit code are its own; 125
    /// for errors of xcli, 126 and 127 if the program cannot be run or found. What is not said by an option may be said by the
    /// environment (XSCHED_AUTO_XQUEUE_*), and -1 takes that away. `xcli hint` changes it later.
    Run(run::RunArgs),
    /// Show the server, its programs and their queues
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what `list` shows as metrics, in the text format of OpenMetrics and Prometheus
    ///
    /// For a collector that reads files, as node_exporter does: a timer writes the output there. Times are in seconds. What is not
    /// known, as the costs of holds before the first one, is left out. `giveway_policy_in_force` is 1 for the policy of all devices
    /// and, with the label `device`, for each that a device has of its own; `giveway_policy_parameter` and `giveway_policy_counted`
    /// are what is set of them and what they have counted. If the server cannot be asked nothing is printed.
    Metrics,
    /// Let every program run unscheduled, until `xcli on`
    Off,
    /// Let the policy decide again
    On,
    /// Show which policies there are and which decide, and let others decide
    ///
    /// Without a command as `xcli policy list`.
    Policy(policy::PolicyArgs),
    /// Tell the policy something about a program or a queue, until it or the program itself says something else
    ///
    /// Of what is told here only the server hears: the order in which a process launches its own work does not change.
    Hint(hint::HintArgs),
    /// Say why a queue runs or does not, in one sentence
    ///
    /// With the level that is in force for it, and what it may have in flight. Where several programs have a queue of that number,
    /// all are shown. Exit code 1 if there is none.
    Explain(explain::ExplainArgs),
    /// Show what libshimhip.so does with each function of HIP
    ///
    /// CLASS: what the function is about. HANDLER: `own`, one for this function; `conservative`, what the function concerns is
    /// launched before it is called; `translated`, only the calling thread's default stream is another one; `none`, calls
    /// reach the runtime without the library. RELEASES: the supported releases of HIP that have it. REASON: why `none` or
    /// `conservative` is right.
    Hooks {
        /// Only those with the conservative handler
        #[arg(long)]
        conservative: bool,
        /// Print JSON: `functions`, and the names of the `conservative` ones
        #[arg(long)]
        json: bool,
    },
    /// Show the hardware queues of a process, preloaded or not, as the driver shows them
    ///
    /// QUEUE: its number within the process. GPU: the driver's number of the device. PCI: where that is; partitions of one device
    /// share a place. SIZE: of the ring that takes the commands. The process may run in a container or on a simulated GPU. Exit
    /// code 1 if there is no such process or it does not use the driver.
    Queues {
        /// The process
        pid: u32,
        /// A log of the program, made by HIP with AMD_LOG_LEVEL=3 or more: adds the queues that the runtime has by it, with
        /// their addresses. This needs no rights and no server
        #[arg(long, value_name = "FILE")]
        amd_log: Option<PathBuf>,
        /// Print JSON: `pid`, `name`, `held_from_outside`; of each of the `queues` `id`, `gpu_id`, `pci`, `type`, `size` in bytes,
        /// `ring_address`, `write_pointer_address`, `read_pointer_address`, `write_pointer`, `read_pointer` and
        /// `held_from_outside`; of each queue in the `log` `hsa_queue`, `ring_address`, `size`, `priority`, `cooperative` and
        /// `queue`, its `id`. What is not known is null
        #[arg(long)]
        json: bool,
    },
    /// Say what this machine offers, and why a process is scheduled or is not
    ///
    /// One line for each thing that was found: `ok`, `note`, or `BAD` for what keeps something from working. With PID the device is
    /// looked at as that process sees it. Exit code 1 if anything is bad.
    Doctor {
        /// The process
        pid: Option<u32>,
        /// Print JSON: `ok`, and the `findings` with `verdict` (good, note, bad), `about` and `text`
        #[arg(long)]
        json: bool,
    },
    /// Write a file that says what this machine is and how giveway fares on it, to be sent to its developers
    ///
    /// Takes 10 minutes at most: releases, driver and devices, what a launch takes, windows, small programs whose memory is
    /// compared; with --try-level2 what it takes to take queues off the hardware. Measured by xbench, which lies beside xcli. No
    /// names of hosts or users, no command lines, no paths (docs/report.md). On a simulated GPU: gpu-sim run -- xcli report -o FILE.
    /// Exit code 1 if a part is missing or has an error; 2 if nothing was done.
    Report(report::ReportArgs),
    /// Suspend a process that was not preloaded: take its queues off the GPU, until `xcli resume`
    ///
    /// xserver does it through the driver's debugger (Linux 6.5, KFD 1.13), and one is started where none runs: when it ends,
    /// however it ends, all that it holds goes on. The server needs the right to trace the process: its own user's, and where
    /// Yama's ptrace_scope is 1 or 2 CAP_SYS_PTRACE; in containers that has to be given. The process's runtime must have enabled
    /// debugging, as ROCm 5.5 and later do. Queues that the process makes later run; one that is held cannot be destroyed, and
    /// the process waits if it tries. Exit code 1 if it is refused, or not done for each queue.
    Suspend {
        #[command(flatten)]
        outside: OutsideArgs,
    },
    /// Let a process go on that `xcli suspend` has suspended
    ///
    /// Without --queue, or when none is left, the process is not debugged any more. Exit code 1 if the server holds nothing of it.
    Resume {
        #[command(flatten)]
        outside: OutsideArgs,
    },
    /// Start a server where none runs, and wait until it accepts; `run` starts this
    #[command(hide = true)]
    StartServer {
        /// Its socket
        socket: PathBuf,
    },
    /// Say whether this library is in this process; `run` and `doctor` start this with the library preloaded
    #[command(hide = true, name = trial::COMMAND)]
    TryLibrary {
        /// Its path
        library: PathBuf,
    },
    /// Run a program with further variables; `run --gpu-sim` starts this on the simulated GPU
    #[command(hide = true)]
    With {
        /// Variables as NAME=VALUE, `--`, the program and its arguments
        #[arg(num_args = 0.., value_terminator = "--")]
        variables: Vec<OsString>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    if let Some(code) = manual::asked::<Cli>() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(match error.use_stderr() {
                true if is_run(std::env::args_os()) => run::EXIT_ERROR,
                true => EXIT_USAGE,
                false => 0,
            });
        }
    };
    // No setting of a server may keep it from answering.
    if let Command::TryLibrary { library } = &cli.command {
        trial::child(library);
        return ExitCode::SUCCESS;
    }
    let of_run = matches!(cli.command, Command::Run(_) | Command::With { .. });
    // Nobody has said this on the command line, and the program finds the default as well.
    let by_variable = cli.place.address.is_none() && cli.place.instance.is_none();
    let tolerates = matches!(&cli.command, Command::Run(args) if by_variable && !args.strict);
    let place = match Place::new(cli.place.address, cli.place.instance.as_deref()) {
        Err(error) if tolerates => {
            tell(format_args!("{error:#}; the default is used, and --strict refuses to run"));
            Ok(Place::by_default())
        }
        other => other,
    };
    let result = place.and_then(|place| match cli.command {
        Command::Run(args) => run::run(&args, &place).map(ExitCode::from),
        Command::With { variables, command } => Ok(ExitCode::from(run::with(&variables, &command))),
        Command::List { json } => list(&place, json),
        Command::Metrics => metrics(&place),
        Command::Off => {
            let on = table::plain(&place.command("on"));
            switch(&place, &Request::Off, &format!("off: every program runs unscheduled, until `{on}`"))
        }
        Command::On => switch(&place, &Request::On, "on: the policy decides"),
        Command::Policy(args) => policy::run(&args, &place).map(|()| ExitCode::SUCCESS),
        Command::Hint(args) => hint::run(&args, &place).map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => explain::run(&args, &place).map(|()| ExitCode::SUCCESS),
        Command::Hooks { conservative, json } => hooks(conservative, json),
        Command::Doctor { pid, json } => doctor(&place, pid, json),
        Command::Report(args) => report::run(&args, &place),
        Command::Queues { pid, amd_log, json } => queues(&place, pid, amd_log.as_deref(), json),
        Command::Suspend { outside } => order(Order::Suspend, &place, &outside),
        Command::Resume { outside } => order(Order::Resume, &place, &outside),
        Command::StartServer { socket } => server::start(&socket).map(|()| ExitCode::SUCCESS),
        // Answered above.
        Command::TryLibrary { .. } => Ok(ExitCode::SUCCESS),
    });
    result.unwrap_or_else(|error| {
        tell(format_args!("{error:#}"));
        if of_run {
            ExitCode::from(run::EXIT_ERROR)
        } else if error.is::<Usage>() {
            ExitCode::from(EXIT_USAGE)
        } else {
            ExitCode::FAILURE
        }
    })
}

/// Whether a command line that makes no sense was meant to run something: 0 to 124 are the exit codes of that.
fn is_run(args: impl Iterator<Item = OsString>) -> bool {
    args.skip(1).take_while(|word| word != "--").any(|word| word == OsStr::new("run"))
}

fn ask_list(place: &Place) -> anyhow::Result<List> {
    match ask::ask(place, &Request::List)? {
        Reply::List(list) => Ok(list),
        other => anyhow::bail!("the server answers something else than a list: {other:?}"),
    }
}

fn metrics(place: &Place) -> anyhow::Result<ExitCode> {
    say(&metrics::text(&ask_list(place)?)?)?;
    Ok(ExitCode::SUCCESS)
}

fn list(place: &Place, json: bool) -> anyhow::Result<ExitCode> {
    let list = ask_list(place)?;
    let text = match json {
        true => serde_json::to_string_pretty(&list)? + "\n",
        false => list::text(&list, table::terminal_width(io::stdout())),
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn hooks(conservative: bool, json: bool) -> anyhow::Result<ExitCode> {
    say(&match json {
        true => serde_json::to_string_pretty(&hooks::json(conservative))? + "\n",
        false => hooks::text(conservative, table::terminal_width(io::stdout())),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn queues(place: &Place, pid: u32, log: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let mut queues = queues::Queues::of(pid)?;
    if let Some(snapshot) = outside::look(place, pid) {
        queues.see(&snapshot);
    }
    if let Some(log) = log {
        queues.read_log(log)?;
    }
    say(&match json {
        true => serde_json::to_string_pretty(&queues)? + "\n",
        false => queues.text(table::terminal_width(io::stdout())),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn doctor(place: &Place, pid: Option<u32>, json: bool) -> anyhow::Result<ExitCode> {
    let report = doctor::look(place, pid);
    say(&match json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.text(),
    })?;
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn order(order: Order, place: &Place, args: &OutsideArgs) -> anyhow::Result<ExitCode> {
    let fates = outside::order(order, place, args.pid, &args.queues)?;
    let faults = outside::faults(order, &fates);
    if args.json {
        say(&(serde_json::to_string_pretty(&fates)? + "\n"))?;
    } else if let Some(text) = outside::text(order, place, &fates) {
        say(&text)?;
    }
    for fault in &faults {
        tell(fault);
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn switch(place: &Place, request: &Request, done: &str) -> anyhow::Result<ExitCode> {
    ask::order(place, request)?;
    say(&format!("{done}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// To standard output; that nobody reads on (`xcli list | head`) is no error.
fn say(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_made() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_of_run_have_their_own_code() {
        let is_run = |line: &str| is_run(line.split(' ').map(OsString::from));
        assert!(is_run("xcli -p 7 run --priority 999 -- true"));
        assert!(!is_run("xcli list -- run"));
        assert!(!is_run("run list"));
    }

    #[test]
    fn queues_have_the_drivers_numbers() {
        let taken = |id: &str| Cli::try_parse_from(["xcli", "suspend", "1", "--queue", id]).is_ok();
        assert!(taken("0") && taken("1073741823"));
        assert!(!taken("1073741824") && !taken("2147483653"), "bits 30 and 31 are the driver's marks");
    }
}
