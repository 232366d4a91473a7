//! The program `xcli`: starts programs under the scheduler, and queries and controls the server.
//!
//! Modules
//! * Server: `endpoint` (its socket), `ask` (requests and their replies), `server` (starts one), `daemon` (its
//!   process environment).
//! * Replies: `list`, `explain`, `policy`, `metrics`, `configuration`, `events`; `table` lays text out. `top`
//!   shows them live.
//! * Programs: `run` (environment of a scheduled program), `trial` (can the library be loaded), `hint` and
//!   `hint_options`.
//! * Processes: `process` (facts from `/proc`), `foreign` (files as another process sees them), `queues`
//!   (hardware queues), `amd_log` (queues by the runtime's log), `suspend` (`xcli suspend` and `resume`).
//! * Machine: `hooks` (table of HIP functions), `doctor`, `report`.
//! * `error` and `output`: every error type with its text, and the two standard streams.

mod amd_log;
mod ask;
mod configuration;
mod daemon;
mod doctor;
mod endpoint;
mod error;
mod events;
mod explain;
mod foreign;
mod hint;
mod hint_options;
mod hooks;
#[cfg(test)]
mod json_doc;
mod list;
mod metrics;
mod output;
mod policy;
mod process;
mod queues;
mod report;
mod run;
mod server;
mod suspend;
mod table;
mod top;
mod trace;
mod trial;

use clap::{Parser, Subcommand};
use protocol::control::Request;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use endpoint::Endpoint;
use error::Error;
use output::{print, show, warn};
use suspend::Order;

/// Exit code of wrong usage.
const EXIT_USAGE: u8 = 2;

/// Start programs whose GPU work is scheduled, and show and control the scheduler.
///
/// Exit code: 0; 1 if the server does not answer or refuses; 2 for wrong usage. See `run` for its own exit
/// codes.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(subcommand)]
    command: Command,
}

/// The options that name a server.
#[derive(clap::Args)]
struct EndpointArgs {
    /// The server by the name of its instance, the second word of `xserver POLICY INSTANCE` [default: 50000]
    #[arg(short = 'p', long, visible_alias = "port", global = true, value_name = "INSTANCE", value_parser = endpoint::instance)]
    instance: Option<String>,
    /// The server by its address: the path of its socket, or localhost for the default server
    #[arg(short = 'a', long, visible_alias = "addr", global = true, value_name = "ADDR", value_parser = endpoint::address)]
    address: Option<endpoint::Address>,
}

/// The process and queues to suspend or resume.
#[derive(clap::Args)]
struct SuspendArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,
    /// Only this queue, by its number in `xcli queues`; can be given several times [default: all queues for
    /// kernels]
    // The driver uses the two highest bits for the status of a queue.
    #[arg(long = "queue", value_name = "ID", value_parser = clap::value_parser!(u32).range(..1 << 30))]
    queues: Vec<u32>,
    /// Print JSON: `pid`, `name`; of each of the `queues` its `queue` and `fate` (done, invalid, failed); and
    /// `held`, the queues that are suspended now
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program whose GPU work is scheduled
    ///
    /// xcli preloads libshimhip.so, which makes a queue for every stream, and xserver decides which queues
    /// run. If no server runs, xcli starts one; it ends some time after its last program. If no server can be
    /// started or the library cannot be loaded, the program runs unscheduled and a line says why; with
    /// --strict it does not run. With --policy the program schedules its own queues, without a server. The
    /// program replaces xcli, so signals and the exit code are its own. xcli itself exits with 125 if it
    /// fails, 126 if the program cannot be run, and 127 if it cannot be found. The environment
    /// (XSCHED_AUTO_XQUEUE_*) supplies options that are not given; -1 removes such a variable. `xcli hint`
    /// changes hints later.
    Run(run::RunArgs),
    /// Show the server, the connected programs and their queues
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show programs and queues live: shares, launches, suspensions, and why
    ///
    /// Keys: up and down select, Enter shows queues, s sorts, / filters, + - p change the priority, z suspends, Z
    /// resumes, P changes the policy, o switches scheduling off or on, ? helps, q ends. SHARE% is the device time that
    /// the program's library knows of. If the output is no terminal, a table is printed for each interval, and exit
    /// code 1 says that the server does not answer; the view keeps asking. An open view counts as a use of the server.
    Top(top::TopArgs),
    /// Show what happens: who comes and goes, runs or is suspended and why, policies, refusals
    ///
    /// One line for each event, with the local time of the server's clock. The server keeps the last 1024 events of all
    /// programs. It notes when programs run and are suspended only while somebody follows, because that changes often, and
    /// does not keep it. A line `dropped` says how many events are missing because this reader was too slow. You see the
    /// events of your programs; administrators and observers see all. With --follow, the exit code is 1 when the server
    /// ends.
    Events(events::EventsArgs),
    /// Record what programs launch and why they are suspended, for ui.perfetto.dev
    ///
    /// The trace has each program that you may see: its launches with the names of kernels, when the program saw that they had
    /// completed, the states of its queues, its suspensions with the server's reasons, and evictions. While it is recorded, a
    /// launch takes some tens of nanoseconds longer.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Print the metrics of the server, or serve them to Prometheus
    ///
    /// In the text format of OpenMetrics, once or, with --listen, over HTTP at /metrics. docs/metrics.md describes each
    /// metric. Unknown values, such as the cost of eviction before the first one, are left out. If the server does not
    /// answer, nothing is printed, and over HTTP `giveway_up` is 0. The metrics are those of the programs that you may see:
    /// root, the user of the server, and users whose rule says `administer` or `observe` see all.
    Metrics(metrics::MetricsArgs),
    /// Switch scheduling off: every program runs until `xcli on`
    Off,
    /// Switch scheduling on: the policy decides again
    On,
    /// Show the configuration of the server for all users, or change the level and the window of a queue
    ///
    /// Without options, for administrators: the configuration file's keys, their values and where each comes from. FROM is
    /// `default`, `file`, or `request` for what `xcli policy set` has changed since the server started. With -x or --pid, the
    /// program's library gets the new settings, and replaces those of the environment and of the program.
    Config(configuration::ConfigArgs),
    /// Let the server for all users read its configuration file again
    ///
    /// For administrators. The file counts as a whole: if it has a mistake, nothing changes, and the exit code is 1. Sockets
    /// (`[[listen]]`) change only with a new start of the server.
    Reload,
    /// List the policies, and change the policy in force
    ///
    /// Without a command, the same as `xcli policy list`.
    Policy(policy::PolicyArgs),
    /// Give the policy a hint about a program or a queue
    ///
    /// A hint holds until the next hint of the same kind, from here or from the program itself. Only the
    /// server uses hints given here: the order in which a process launches its own work does not change.
    Hint(hint::HintArgs),
    /// Explain why a queue runs or is suspended
    ///
    /// Also shows the preemption level in force and the limit of work in flight. If several programs have a
    /// queue of that number, all are shown. Exit code 1 if there is no such queue.
    Explain(explain::ExplainArgs),
    /// Show what libshimhip.so does with each function of HIP
    ///
    /// CLASS: the subject of the function. HANDLER: `own`, a handler for this function; `conservative`, the
    /// work that the function affects is launched before the call; `translated`, only the calling thread's
    /// default stream is replaced; `none`, the call goes straight to the runtime. RELEASES: the supported
    /// releases of HIP that have the function. REASON: why `none` or `conservative` is right.
    Hooks {
        /// Show only functions with the conservative handler
        #[arg(long)]
        conservative: bool,
        /// Print JSON: `functions`, and the names of the `conservative` ones
        #[arg(long)]
        json: bool,
    },
    /// Show the hardware queues of any process, as the driver lists them
    ///
    /// QUEUE: the number within the process. GPU: the driver's number of the device. PCI: its bus address,
    /// which partitions of one device share. SIZE: of the command ring. The process can run in a container or
    /// on a simulated GPU. Exit code 1 if there is no such process or it does not use the driver.
    Queues {
        /// The process
        pid: u32,
        /// A log that HIP wrote for the program with AMD_LOG_LEVEL=3 or more: adds the queues of the runtime
        /// with their addresses. This needs neither rights nor a server
        #[arg(long, value_name = "FILE")]
        amd_log: Option<PathBuf>,
        /// Print JSON: `pid`, `name`, `held_from_outside`; of each of the `queues` `id`, `gpu_id`, `pci`,
        /// `type`, `size` in bytes, `ring_address`, `write_pointer_address`, `read_pointer_address`,
        /// `write_pointer`, `read_pointer` and `held_from_outside`; of each queue in the `log` `hsa_queue`,
        /// `ring_address`, `size`, `priority`, `cooperative` and `queue`, its `id`. Unknown values are null
        #[arg(long)]
        json: bool,
    },
    /// Check this machine, or find out why a process is scheduled or not
    ///
    /// Prints one line for each finding: `ok`, `note`, or `BAD` if something does not work because of it.
    /// With PID, checks the device as that process sees it. Exit code 1 if a finding is BAD.
    Doctor {
        /// The process
        pid: Option<u32>,
        /// Print JSON: `ok`, and the `findings` with `verdict` (good, note, bad), `about` and `text`
        #[arg(long)]
        json: bool,
    },
    /// Write a report about this machine and giveway's performance on it, for giveway's developers
    ///
    /// Takes 15 minutes at most. Contains releases, driver and devices, launch times, windows, two models on
    /// one GPU, and small programs whose memory is compared; with --try-level2 also the cost of evicting
    /// queues, and whether registers and local memory are right afterwards. xbench and xserver, which must lie
    /// beside xcli, measure. The report contains no names of hosts or users, no command lines and
    /// no paths (docs/report.md). On a simulated GPU: gpu-sim run -- xcli report -o FILE. Exit code 1 if a
    /// part is missing or has an error; 2 if nothing was done.
    Report(report::ReportArgs),
    /// Suspend any process: evict its queues from the GPU until `xcli resume`
    ///
    /// xserver evicts the queues through the driver's debugger (Linux 6.5, KFD 1.13); if no server runs, xcli
    /// starts one. When the server ends, for any reason, the driver resumes the queues. The server needs the
    /// right to trace the process: the process must belong to its user and, if Yama's ptrace_scope is 1 or 2,
    /// the server needs CAP_SYS_PTRACE, also in a container. The process's runtime must have enabled
    /// debugging, as ROCm 5.5 and later do. Queues that the process creates later run. A process that
    /// destroys a suspended queue waits until it is resumed. Exit code 1 if the server refuses or a queue
    /// fails.
    Suspend {
        #[command(flatten)]
        args: SuspendArgs,
    },
    /// Resume a process that `xcli suspend` has suspended
    ///
    /// Without --queue, or when no queue stays suspended, the server stops debugging the process. Exit code 1
    /// if the server has not suspended it.
    Resume {
        #[command(flatten)]
        args: SuspendArgs,
    },
    /// Start a server if none runs, and wait until it answers; used by `run`
    #[command(hide = true)]
    StartServer {
        /// Its socket
        socket: PathBuf,
    },
    /// Report if this library is loaded into this process; `run` and `doctor` start this with the library
    /// preloaded
    #[command(hide = true, name = trial::COMMAND)]
    TryLibrary {
        /// Its path
        library: PathBuf,
    },
    /// Run a program with more variables; `run --gpu-sim` starts this on the simulated GPU
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
    // The trial must not fail because of a wrong server setting.
    if let Command::TryLibrary { library } = &cli.command {
        trial::child(library);
        return ExitCode::SUCCESS;
    }
    let of_run = matches!(cli.command, Command::Run(_) | Command::With { .. });
    // A wrong variable does not stop `run`: the program falls back to the default endpoint as well.
    let by_variable = cli.endpoint.address.is_none() && cli.endpoint.instance.is_none();
    let tolerates = matches!(&cli.command, Command::Run(args) if by_variable && !args.strict);
    let endpoint = match Endpoint::new(cli.endpoint.address, cli.endpoint.instance.as_deref()) {
        Err(error) if tolerates => {
            warn(format_args!(
                "{error:#}. xcli uses the default server; with --strict the program does not run"
            ));
            Ok(Endpoint::default_of_user())
        }
        other => other,
    };
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = endpoint.and_then(|endpoint| match cli.command {
        Command::Run(args) => run::run(&args, &endpoint).map(ExitCode::from),
        Command::With { variables, command } => Ok(ExitCode::from(run::with(&variables, &command))),
        Command::List { json } => done(list(&endpoint, json)),
        Command::Events(args) => done(events::run(&args, &endpoint)),
        Command::Trace(command) => done(trace::run(&command, &endpoint)),
        Command::Top(args) => done(top::run(&args, &endpoint)),
        Command::Metrics(args) => done(metrics::run(&args, &endpoint)),
        Command::Off => {
            let on = table::plain(&endpoint.command("on"));
            let text = format!("off: every program runs unscheduled until `{on}`");
            done(switch(&endpoint, &Request::Off, &text))
        }
        Command::Config(args) => done(configuration::run(&args, &endpoint)),
        Command::Reload => {
            done(switch(&endpoint, &Request::Reload, "the server has read its configuration again"))
        }
        Command::On => done(switch(&endpoint, &Request::On, "on: the policy decides")),
        Command::Policy(args) => done(policy::run(&args, &endpoint)),
        Command::Hint(args) => done(hint::run(&args, &endpoint)),
        Command::Explain(args) => done(explain::run(&args, &endpoint)),
        Command::Hooks { conservative, json } => done(hooks(conservative, json)),
        Command::Doctor { pid, json } => doctor(&endpoint, pid, json),
        Command::Report(args) => report::run(&args, &endpoint),
        Command::Queues { pid, amd_log, json } => done(queues(&endpoint, pid, amd_log.as_deref(), json)),
        Command::Suspend { args } => order(Order::Suspend, &endpoint, &args),
        Command::Resume { args } => order(Order::Resume, &endpoint, &args),
        Command::StartServer { socket } => done(server::start(&socket)),
        // Done above.
        Command::TryLibrary { .. } => Ok(ExitCode::SUCCESS),
    });
    result.unwrap_or_else(|error| {
        warn(format_args!("{error:#}"));
        if of_run {
            ExitCode::from(run::EXIT_ERROR)
        } else if error.downcast_ref().is_some_and(Error::is_usage) {
            ExitCode::from(EXIT_USAGE)
        } else {
            ExitCode::FAILURE
        }
    })
}

/// Returns true if a wrong command line is one of `run`, whose exit codes 0 to 124 belong to the program.
fn is_run(args: impl Iterator<Item = OsString>) -> bool {
    args.skip(1).take_while(|word| word != "--").any(|word| word == OsStr::new("run"))
}

fn list(endpoint: &Endpoint, json: bool) -> anyhow::Result<()> {
    let list = ask::list(endpoint)?;
    show(json, &list, || list::text(&list, table::terminal_width(io::stdout())))
}

fn hooks(conservative: bool, json: bool) -> anyhow::Result<()> {
    let text = || hooks::text(conservative, table::terminal_width(io::stdout()));
    show(json, &hooks::json(conservative), text)
}

fn queues(endpoint: &Endpoint, pid: u32, log: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let mut queues = queues::Queues::of(pid)?;
    if let Some(snapshot) = suspend::look(endpoint, pid) {
        queues.add_debugger_view(&snapshot);
    }
    if let Some(log) = log {
        queues.read_log(log)?;
    }
    show(json, &queues, || queues.text(table::terminal_width(io::stdout())))
}

fn doctor(endpoint: &Endpoint, pid: Option<u32>, json: bool) -> anyhow::Result<ExitCode> {
    let findings = doctor::look(endpoint, pid);
    show(json, &findings, || findings.text())?;
    Ok(if findings.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn order(order: Order, endpoint: &Endpoint, args: &SuspendArgs) -> anyhow::Result<ExitCode> {
    let fates = suspend::order(order, endpoint, args.pid, &args.queues)?;
    let faults = suspend::faults(order, &fates);
    show(args.json, &fates, || suspend::text(order, endpoint, &fates).unwrap_or_default())?;
    for fault in &faults {
        warn(fault);
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn switch(endpoint: &Endpoint, request: &Request, done: &str) -> anyhow::Result<()> {
    ask::order(endpoint, request)?;
    Ok(print(&format!("{done}\n"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_of_run_is_recognized() {
        let is_run = |line: &str| is_run(line.split(' ').map(OsString::from));
        assert!(is_run("xcli -p 7 run --priority 999 -- true"));
        assert!(!is_run("xcli list -- run"));
        assert!(!is_run("run list"));
    }

    #[test]
    fn queue_numbers_exclude_the_drivers_status_bits() {
        let taken = |id: &str| Cli::try_parse_from(["xcli", "suspend", "1", "--queue", id]).is_ok();
        assert!(taken("0") && taken("1073741823"));
        assert!(!taken("1073741824") && !taken("2147483653"), "bits 30 and 31 are the driver's status bits");
    }
}
