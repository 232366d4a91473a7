//! `xserver [POLICY] [INSTANCE]`: schedules across processes.

use anyhow::{Context, Result};
use clap::Parser;
use policies::{Choice, registry};
use protocol::config::{Config, LogLevel, TestMode};
use protocol::socket::INSTANCE;
use rustix::fd::{FromRawFd, OwnedFd};
use std::ffi::OsString;
use std::io::{Write, stderr};
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::ptr;
use xserver::core::Settings;
use xserver::{Options, Place, Server, Unused, log};

/// Schedules the GPU work of several processes. Programs preloaded with libshimhip.so and XSCHED_SCHEDULER=GLB (or
/// started by `xcli run`) connect to it; each launches only while the policy lets it.
///
/// It listens on a Unix socket that only its own user and root can use: XSCHED_SOCKET, or xsched/INSTANCE.sock in /run
/// (root), /run/user/UID or /tmp/xsched-UID. XSCHED_LOG_LEVEL (info if it is not set) says how much it tells on standard
/// error. It runs at normal CPU priority; where the CPUs are busy, `chrt -f 1 xserver` lets it decide in time.
///
/// It also holds queues of programs that were not preloaded (`xcli suspend`), with its own rights to trace them; when it ends,
/// they go on.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The scheduling policy
    #[arg(default_value = registry::DEFAULT.kind.name())]
    policy: String,
    /// A parameter of the policy; may be given several times. `xcli policy list` shows which there are
    #[arg(long = "set", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Which server this is, where there are several
    #[arg(default_value = INSTANCE)]
    instance: OsString,
    /// End when the last connection has gone and nothing is held, or if there was none within 10 seconds
    #[arg(long)]
    exit_when_unused: bool,
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
    // A limit of file sizes, which counts for shared pages as well, is an error to be said and no end.
    // SAFETY: a disposition that needs no function.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // Before there is a thread that could take them.
    let signals = signals().context("cannot wait for signals")?;
    let (config, faults) = Config::read(|name| std::env::var_os(name), registry::BUILT);
    // What concerns only the preloaded library is for it to complain of.
    for fault in faults.iter().filter(|fault| {
        ["XSCHED_SOCKET", "XSCHED_LOG_LEVEL", "XSCHED_TEST", "XSCHED_STARVATION_MS"].contains(&fault.var)
    }) {
        let _ = writeln!(stderr(), "xserver: {fault}");
    }
    let policy = choice(&cli)?;
    let starvation = config.starvation();
    let place = Place::new(&cli.instance, config.socket)?;
    let options = Options {
        policy,
        settings: Settings {
            guard: config.test != Some(TestMode::NoGuard),
            starvation,
            ..Settings::default()
        },
        unused: cli.exit_when_unused.then(Unused::default),
    };
    let name = options.policy.row.kind;
    let server = Server::new(&place, options, signals)?;
    // Whoever started it may have closed the other end; then nobody wants to know.
    let _ = writeln!(stderr(), "xserver: ready, policy {name}, socket {}", place.socket().display());
    let said = std::env::var_os("XSCHED_LOG_LEVEL").is_some_and(|level| !level.is_empty());
    let _log = log::start(if said { config.log_level } else { LogLevel::Info });
    server.run()
}

/// The policy with its parameters.
fn choice(cli: &Cli) -> Result<Choice> {
    let mut choice = Choice::new(registry::by_name(&cli.policy).map_err(anyhow::Error::msg)?);
    for parameter in &cli.parameters {
        let (name, value) = parameter
            .split_once('=')
            .with_context(|| format!("--set {parameter:?}: a parameter is NAME=VALUE"))?;
        let value = value.parse().with_context(|| format!("--set {parameter:?}: {value:?} is no number"))?;
        choice.values.set(name, value).with_context(|| format!("--set {parameter:?}"))?;
    }
    Ok(choice)
}

/// A descriptor that becomes readable when somebody wants the server to end.
fn signals() -> std::io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the set was filled above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: filled above; there is one thread, and only its mask changes.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: as above.
    let fd = unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
