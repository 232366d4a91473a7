//! `xserver [POLICY] [INSTANCE]` and `xserver --system`: schedules across processes.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use policies::{Choice, registry};
use protocol::config::{Config, LogLevel, TestMode};
use protocol::socket::INSTANCE;
use rustix::fd::{FromRawFd, OwnedFd};
use std::ffi::OsString;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::ptr;
use xserver::configuration::{Configuration, FILE};
use xserver::core::Settings;
use xserver::limits::Limits;
use xserver::{Endpoint, Options, Server, System, Unused, log};

/// Schedules the GPU work of several processes. Programs that are started by `xcli run`, or preloaded with
/// libshimhip.so and XSCHED_SCHEDULER=GLB, connect to it. Each launches work only while the policy lets it
/// run.
///
/// It listens on a Unix socket that only its own user and root can use: XSCHED_SOCKET, or
/// xsched/INSTANCE.sock in /run (root), /run/user/UID or /tmp/xsched-UID. XSCHED_LOG_LEVEL (default: info)
/// sets the detail of its log on standard error. With CAP_SYS_NICE (root has it) it decides at the lowest
/// real-time priority; without that right, run `chrt -f 1 xserver` if the CPUs are busy.
///
/// With --system it serves all users: it listens on /run/giveway/xserver.sock, or on the sockets that the service manager
/// passes, and /etc/giveway/giveway.toml says who may do what. SIGHUP reads that file again.
///
/// It also suspends processes that were not preloaded (`xcli suspend`), with its own rights to trace them.
/// When it ends, they resume.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The scheduling policy. HPF unless it is given
    policy: Option<String>,
    /// A parameter of the policy; can be given several times. `xcli policy list` shows the parameters
    #[arg(long = "set", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// The name of this server, if there are several. 50000 unless it is given
    instance: Option<OsString>,
    /// Serve all users of this machine, by the rules of the configuration file
    #[arg(long, conflicts_with_all = ["policy", "instance", "parameters", "exit_when_unused"])]
    system: bool,
    /// The configuration file of the server for all users. /etc/giveway/giveway.toml unless it is given; if that is
    /// missing, everything has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration file and end. The exit code is 1 if it has a mistake
    #[arg(long, conflicts_with_all = ["policy", "instance", "parameters", "exit_when_unused", "system"])]
    check: bool,
    /// End after the last connection if no process is suspended, or if no connection is made within 10
    /// seconds
    #[arg(long)]
    exit_when_unused: bool,
    /// The form of the log on standard error, or `journal` for systemd's journal
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: log::Form,
    /// Write what the server sees and decides to this file, one JSON object a line. An existing file is
    /// replaced. For measurements only, because the file grows without limit
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
}

fn main() -> ExitCode {
    if let Some(code) = manual::asked::<Cli>() {
        return code;
    }
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(stderr(), "xserver: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    if cli.check {
        return check(&cli);
    }
    ensure!(cli.system || cli.config.is_none(), "--config is for --system and --check");
    // Before other descriptors are opened.
    let sockets = if cli.system { passed_sockets()? } else { Vec::new() };
    // The limit of file sizes also applies to shared pages: let writes fail instead of ending the server.
    // SAFETY: SIG_IGN runs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // Before other threads start, which inherit the mask.
    let signals = signals(&[libc::SIGTERM, libc::SIGINT]).context("cannot wait for signals")?;
    let (config, faults) = Config::read(|name| std::env::var_os(name), registry::BUILT);
    // The library reports errors in its own variables.
    for fault in faults.iter().filter(|fault| {
        fault.var == "XSCHED_SOCKET" || protocol::config::SERVER_VARIABLES.contains(&fault.var)
    }) {
        let _ = writeln!(stderr(), "xserver: {fault}");
    }
    let system = if cli.system { Some(system(&cli, sockets)?) } else { None };
    let policy = match &system {
        Some(system) => system.configuration.policy.clone(),
        None => choice(&cli)?,
    };
    let starvation = config.starvation();
    let endpoint = match &cli.instance {
        _ if cli.system => Endpoint::of_system(config.socket)?,
        instance => Endpoint::new(instance.as_deref().unwrap_or(INSTANCE.as_ref()), config.socket)?,
    };
    let options = Options {
        policy,
        settings: Settings {
            guard: config.test != Some(TestMode::NoGuard),
            starvation,
            ..Settings::default()
        },
        unused: cli.exit_when_unused.then(Unused::default),
        decisions: cli.decisions,
        limits: Limits::of_one_user(),
        system,
    };
    let (name, form) = (options.policy.row.kind, cli.log_format);
    let server = Server::new(&endpoint, options, signals)?;
    // Standard error may be closed.
    let _ = writeln!(stderr(), "xserver: ready, policy {name}, socket {}", server.socket().display());
    // The service manager, if there is one, starts what waits for this service.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let is_set = std::env::var_os("XSCHED_LOG_LEVEL").is_some_and(|level| !level.is_empty());
    let _log = log::start(if is_set { config.log_level } else { LogLevel::Info }, form);
    server.run()
}

/// The file of the configuration.
fn file(cli: &Cli) -> PathBuf {
    cli.config.clone().unwrap_or_else(|| FILE.into())
}

/// Checks the configuration file.
fn check(cli: &Cli) -> Result<()> {
    let file = file(cli);
    let what = match read(cli, &file)? {
        Some(_) => "is valid",
        None => "does not exist: everything has its default",
    };
    // Standard output may be closed.
    let _ = writeln!(stdout(), "{} {what}", file.display());
    Ok(())
}

/// Reads the configuration file. The default one can be missing.
fn read(cli: &Cli, file: &Path) -> Result<Option<Configuration>> {
    let is_missing =
        || std::fs::symlink_metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    match cli.config.is_none() && is_missing() {
        true => Ok(None),
        false => Configuration::read(file).map(Some),
    }
}

/// The sockets that the service manager has passed.
fn passed_sockets() -> Result<Vec<OwnedFd>> {
    let numbers = sd_notify::listen_fds().context("the sockets of the service manager cannot be used")?;
    // SAFETY: the service manager has opened them for this process, which has opened nothing yet. They are open: the call has
    // set a flag of each.
    Ok(numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect())
}

/// What a server for all users has.
fn system(cli: &Cli, sockets: Vec<OwnedFd>) -> Result<System> {
    let file = file(cli);
    let configuration = read(cli, &file)?.unwrap_or_default();
    let hang_up = signals(&[libc::SIGHUP]).context("cannot wait for signals")?;
    Ok(System { file, configuration, sockets, hang_up: Some(hang_up) })
}

/// The policy with its parameters.
fn choice(cli: &Cli) -> Result<Choice> {
    let name = cli.policy.as_deref().unwrap_or(registry::DEFAULT.kind.name());
    let mut choice = Choice::new(registry::by_name(name).map_err(anyhow::Error::msg)?);
    for parameter in &cli.parameters {
        let (name, value) = parameter
            .split_once('=')
            .with_context(|| format!("--set {parameter:?}: write a parameter as NAME=VALUE"))?;
        let value =
            value.parse().with_context(|| format!("--set {parameter:?}: {value:?} is not a number"))?;
        choice.values.set(name, value).with_context(|| format!("--set {parameter:?}"))?;
    }
    Ok(choice)
}

/// A descriptor that becomes readable when one of these signals comes.
fn signals(numbers: &[libc::c_int]) -> std::io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set before the other calls use it; the old mask may be null. This
    // is the only thread.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        match libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) {
            0 => libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK),
            error => error,
        }
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `signalfd` has returned this new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
