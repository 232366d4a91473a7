//! What happens to the server.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::bed::Bed;
use crate::faults::stage::{Outcome, Stage, Trouble, await_some};
use crate::product;

/// The longest that the server is away or stopped, in milliseconds: three times as long as a lease lasts.
const LONGEST_ABSENCE_MS: u64 = 1_500;
/// The longest that it lacks something.
const LONGEST_WANT_MS: u64 = 500;

/// The length of a fault itself: nothing is waited for.
fn endure(bed: &mut Bed<'_>, most_ms: u64) {
    std::thread::sleep(Duration::from_millis(bed.dice.below(most_ms + 1)));
}

fn again(bed: &mut Bed<'_>) -> Outcome<()> {
    bed.stage.start_server()
}

pub fn killed(bed: &mut Bed<'_>) -> Outcome<()> {
    bed.stage.server.signal(Signal::KILL);
    endure(bed, LONGEST_ABSENCE_MS);
    again(bed)
}

pub fn stopped(bed: &mut Bed<'_>) -> Outcome<()> {
    bed.stage.server.signal(Signal::STOP);
    endure(bed, LONGEST_ABSENCE_MS);
    bed.stage.server.signal(Signal::CONT);
    Ok(())
}

pub fn stopped_and_killed(bed: &mut Bed<'_>) -> Outcome<()> {
    bed.stage.server.signal(Signal::STOP);
    endure(bed, LONGEST_ABSENCE_MS);
    killed(bed)
}

pub fn restarted(bed: &mut Bed<'_>) -> Outcome<()> {
    bed.stage.server.signal(Signal::TERM);
    again(bed)
}

/// Sets a limit of the server for a while.
fn limited(
    bed: &mut Bed<'_>,
    resource: libc::__rlimit_resource_t,
    current: u64,
    meanwhile: impl FnOnce(&mut Bed<'_>),
) -> Outcome<()> {
    let pid = bed.stage.server.pid();
    let before = limit(pid, resource, None)?;
    limit(pid, resource, Some(libc::rlimit { rlim_cur: current, ..before }))?;
    meanwhile(bed);
    endure(bed, LONGEST_WANT_MS);
    limit(pid, resource, Some(before))?;
    answers(&bed.stage)
}

/// Sets a limit of a process, if there is a new one. Returns the one before.
fn limit(pid: Pid, resource: libc::__rlimit_resource_t, new: Option<libc::rlimit>) -> Outcome<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the call reads `new`, which is null or outlives it, and writes `before`.
    match unsafe { libc::prlimit(pid.as_raw_nonzero().get(), resource, new, &raw mut before) } {
        0 => Ok(before),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Trouble::Wrong(format!("cannot set a limit of the server: {error}")))
        }
    }
}

/// Waits until the server answers.
fn answers(stage: &Stage) -> Outcome<()> {
    await_some("xserver did not answer after the fault", || stage.list().map(|_| ()))
}

/// New connections wait. Those that are there go on.
pub fn without_descriptors(bed: &mut Bed<'_>) -> Outcome<()> {
    let folder = format!("/proc/{}/fd", bed.stage.server.pid().as_raw_nonzero());
    let open = std::fs::read_dir(folder).map_or(16, Iterator::count) as u64;
    limited(bed, libc::RLIMIT_NOFILE, open, |bed| {
        for _ in 0..4 {
            // It waits in the backlog, or is refused.
            drop(std::os::unix::net::UnixStream::connect(bed.stage.socket()));
        }
    })
}

/// No file of the server can grow: neither its log, nor the file of costs.
pub fn on_a_full_disk(bed: &mut Bed<'_>) -> Outcome<()> {
    limited(bed, libc::RLIMIT_FSIZE, 0, |bed| {
        // Something to log.
        let _ = xcli(&bed.stage, &["policy", "set", "HPF"]);
    })
}

/// The server makes its socket again.
pub fn without_a_socket(bed: &mut Bed<'_>) -> Outcome<()> {
    let socket = bed.stage.socket().to_owned();
    std::fs::remove_file(&socket).map_err(|error| format!("cannot remove the socket: {error}"))?;
    answers(&bed.stage)
}

/// A second server on the same socket ends by itself.
pub fn second(bed: &mut Bed<'_>) -> Outcome<()> {
    let mut other = bed.stage.another_server(&[])?;
    await_some("the second server did not end", || other.has_ended().then_some(()))?;
    answers(&bed.stage)
}

/// The next server is in a time namespace whose clock is a day ahead.
pub fn with_another_clock(bed: &mut Bed<'_>) -> Outcome<()> {
    bed.stage.server.signal(Signal::TERM);
    await_some("xserver did not end", || bed.stage.server.has_ended().then_some(()))?;
    bed.stage.server = bed.stage.another_server(&["unshare", "--time", "--monotonic", "86400", "--"])?;
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/time")).ok();
    let started = await_some("xserver did not answer in a time namespace", || {
        let pid = bed.stage.server.pid().as_raw_nonzero().to_string();
        bed.stage.list()?;
        Some(namespace(&pid))
    });
    match started {
        Ok(other) if other.is_some() && other != namespace("self") => Ok(()),
        // An old kernel, or no right to make a namespace.
        _ => again(bed).and(Err(Trouble::Missed)),
    }
}

/// The server gets what all others leave, beside processes that leave nothing.
pub fn idle_beside_load(bed: &mut Bed<'_>) -> Outcome<()> {
    let pid = bed.stage.server.pid();
    let before = policies(pid);
    for &(task, ..) in &before {
        schedule(task, libc::SCHED_IDLE, 0);
    }
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let burn = || {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn()
    };
    let load: Vec<_> = (0..processors).filter_map(|_| burn().ok()).collect();
    endure(bed, LONGEST_ABSENCE_MS);
    for mut process in load {
        let _ = process.kill();
        let _ = process.wait();
    }
    for (task, policy, priority) in before {
        schedule(task, policy, priority);
    }
    answers(&bed.stage)
}

/// The tasks of a process with their scheduling policies and priorities.
fn policies(pid: Pid) -> Vec<(i32, i32, i32)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let tasks = tasks.into_iter().flatten().flatten();
    let policy = |task: i32| {
        let mut parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call writes one `sched_param`. A task that has ended is an error.
        let known = unsafe { libc::sched_getparam(task, &raw mut parameter) } == 0;
        // SAFETY: the call reads no memory of this process.
        let policy = unsafe { libc::sched_getscheduler(task) };
        (known && policy >= 0).then_some((task, policy, parameter.sched_priority))
    };
    tasks.filter_map(|task| policy(task.file_name().to_str()?.parse().ok()?)).collect()
}

fn schedule(task: i32, policy: i32, priority: i32) {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the call reads one `sched_param`. A task that has ended is an error.
    unsafe { libc::sched_setscheduler(task, policy, &raw const parameter) };
}

/// A file with a mistake changes nothing.
pub fn bad_configuration(bed: &mut Bed<'_>) -> Outcome<()> {
    let file = bed.stage.configuration();
    let wrong = |error| format!("cannot write the configuration: {error}");
    let before = std::fs::read_to_string(&file).map_err(wrong)?;
    let reload = |bed: &Bed<'_>| xcli(&bed.stage, &["reload"]);
    for text in ["[policy]\nname = \"NONE\"\n", "[limits]\nqueues_per_user = 0\n", "]"] {
        std::fs::write(&file, text).map_err(wrong)?;
        if reload(bed)? {
            return Err(Trouble::Wrong(format!("the server has taken {text:?}")));
        }
    }
    std::fs::write(&file, before).map_err(wrong)?;
    match reload(bed)? {
        true => Ok(()),
        false => Err(Trouble::Wrong("the server has refused its own configuration".to_owned())),
    }
}

/// Asks the server for something. Returns true if it has done it.
fn xcli(stage: &Stage, arguments: &[&str]) -> Outcome<bool> {
    let mut command = Command::new(product("xcli")?);
    command.arg("-a").arg(stage.socket()).args(arguments);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.map_err(|error| format!("cannot run xcli: {error}"))?.success())
}
