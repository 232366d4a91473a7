//! The start and the end of the library in a process.
//!
//! The first hook reads the configuration and opens the log. The queues are made by the first call that needs
//! them: with `XSCHED_AUTO_XQUEUE` the first one that uses a device, without it the first function of the C
//! interface that makes a queue.

use crate::interpose::entry::Entry;
use crate::interpose::runtime;
use crate::process::this_process::PREEMPTION;
use crate::process::{self, Process, slow_path};
use crate::thread::Thread;
use crate::{environment, lifecycle, log, summary};
use agent::{Scheduler, errno};
use interception::Class;
use protocol::config::{Config, LogLevel, SchedulerKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// True while queues are to be made by the next call that uses a device.
static QUEUES_WANTED: AtomicBool = AtomicBool::new(false);
/// True once the environment does not count any more.
static SETTLED: AtomicBool = AtomicBool::new(false);

/// The longest time that a function of the C interface waits for the start by another thread.
const START: Duration = Duration::from_secs(2);
/// The longest time that the end of the process waits for a thread inside a call of the runtime.
const LAST_CALL: Duration = Duration::from_millis(500);

/// Starts the library if this call is the one to start with. Returns true if the library is in force.
#[cold]
pub(crate) fn ready_for(class: Class) -> bool {
    if lifecycle::begin_start(class) {
        start();
    }
    lifecycle::is_ready()
}

/// Runs the body of a function of the C interface as inside the runtime, after the library has started;
/// `otherwise` is the error if it has not. If another thread starts it, it waits for that.
pub(crate) fn started<E>(otherwise: E, body: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let is_ready = || {
        lifecycle::is_ready() || {
            lifecycle::await_start(START);
            ready_for(Class::Lifecycle)
        }
    };
    errno::kept(|| Thread::current().inside(|| if is_ready() { body() } else { Err(otherwise) }))
}

/// Reads the configuration. Runs once in a process, on the thread of the first hook.
fn start() {
    environment::refresh();
    SETTLED.store(false, Ordering::Relaxed);
    if environment::is_disabled() {
        return lifecycle::finish_start(false);
    }
    let (config, errors) = Config::read(environment::get, policies::registry::BUILT);
    if log::install(&config) {
        for error in &errors {
            tracing::warn!("{error}");
        }
    }
    summary::clear();
    slow_path::clear();
    PREEMPTION.begin(level(&config));
    let wanted = config.auto.enabled;
    process::begin(config);
    QUEUES_WANTED.store(wanted, Ordering::Release);
    handle_exit_for_summary();
    lifecycle::finish_start(true);
    runtime::log_pending();
}

fn level(config: &Config) -> u8 {
    if config.auto.enabled { config.auto.level } else { 1 }
}

/// Reads the environment again, because the process is about to use a device. The library may have started
/// before `main`, when the program's kernels were registered, and programs set variables for themselves.
/// Later changes do not count.
fn settle() {
    if SETTLED.load(Ordering::Relaxed) || SETTLED.swap(true, Ordering::Relaxed) || !environment::refresh() {
        return;
    }
    if environment::is_disabled() {
        return lifecycle::disable();
    }
    let (config, errors) = Config::read(environment::get, policies::registry::BUILT);
    let base = process::base();
    if base.is_none_or(|base| base.config().log_file != config.log_file) {
        log::aim(&config);
    }
    log::set_level(&config);
    for error in &errors {
        tracing::warn!("{error}");
    }
    if let Some(base) = base {
        PREEMPTION.set_requested(level(&config));
        let wanted = config.auto.enabled;
        base.set_config(config);
        QUEUES_WANTED.store(wanted, Ordering::Release);
    }
    handle_exit_for_summary();
}

/// Makes the queues if the configuration wants it and this call is the first one that uses a device.
#[cold]
pub(crate) fn start_queues_if_wanted(entry: &Entry) {
    if !lifecycle::uses_device(entry.class()) {
        return;
    }
    settle();
    if QUEUES_WANTED.load(Ordering::Acquire) && start_queues().is_some() {
        QUEUES_WANTED.store(false, Ordering::Release);
    }
}

/// Makes the queues, unless there are some; `None` if the runtime has no device. Makes HIP calls, perhaps the
/// first ones of the process. Other threads wait meanwhile: in 5.2.3 two first calls of different functions
/// at once find every device twice.
pub(crate) fn start_queues() -> Option<&'static Process> {
    if let Some(process) = process::get() {
        return Some(process);
    }
    settle();
    let scheduler = || Scheduler::new(&PREEMPTION);
    process::make(scheduler, |process| {
        // Again, because by now the runtime has registered its own exit handlers.
        handle_exit();
        let config = process.base.config();
        if config.auto.enabled {
            warn_of_settings(config);
        }
        process.scheduler.begin(&process.domain);
    })
}

/// Registers the exit handler, so that the end of the process is noticed before the runtime takes itself
/// apart. Handlers run in the reverse order of their registration, so this is called again once the runtime
/// is at work.
pub(crate) fn handle_exit() {
    // SAFETY: the handler is a plain function, and a preloaded library is never unloaded.
    unsafe { libc::atexit(at_exit) };
}

/// Registers the exit handler if the log shows the summary.
fn handle_exit_for_summary() {
    if log::is_enabled(LogLevel::Debug) {
        handle_exit();
    }
}

extern "C" fn at_exit() {
    if lifecycle::begin_exit() {
        end();
        summary::log();
    }
}

/// Ends the scheduling. No thread of the library calls HIP any more when this returns, unless one is stuck in
/// the runtime.
fn end() {
    let Some(process) = process::get() else { return PREEMPTION.shut_down() };
    // First, because the runtime then waits for its running work.
    let evictions = process.scheduler.end_evictions();
    tracing::debug!("queues {} {}", process.totals(evictions), slow_path::Counts);
    if !process.domain.quit(LAST_CALL) {
        tracing::warn!("a launch is still inside the HIP runtime while the process ends");
    }
}

/// Logs the settings that have no effect.
fn warn_of_settings(config: &Config) {
    let level = config.auto.level;
    let scheduler = config.scheduler_in_force();
    if level > 1 && scheduler != SchedulerKind::Global && config.test.is_none() {
        tracing::warn!(
            "XSCHED_AUTO_XQUEUE_LEVEL={level}: without xserver level 1 is in force, because evictions cover the whole process"
        );
    }
    let suspend = config.suspend;
    if suspend.sync_hw_queue || suspend.wait_all || suspend.wait_idle {
        // The agent, which suspends, must not wait: it has to react when the next queue turns ready.
        tracing::warn!(
            "XSCHED_SCHEDULER_SUSPEND_*: suspensions by a scheduler never wait \
             (those of XQueueSuspend wait as their flags say)"
        );
    }
    let is_set = |name| environment::get(name).is_some();
    if scheduler == SchedulerKind::AppManaged && config.test.is_none() && !is_set("XSCHED_SCHEDULER") {
        tracing::warn!(
            "XSCHED_AUTO_XQUEUE=ON without a scheduler: queues run until the program suspends them \
             (set XSCHED_SCHEDULER=LCL or GLB to schedule them, or APP to confirm this)"
        );
    }
}

/// Starts the library for a test. Tests share one process, so another test's start is waited for.
#[cfg(test)]
pub(crate) fn starts_for(class: Class) -> bool {
    while !ready_for(class) && lifecycle::is_unstarted() {
        std::thread::yield_now();
    }
    lifecycle::is_ready()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forked_child_starts_only_with_device_use() {
        assert!(starts_for(Class::Resolve), "the first hook starts the library, whatever its class");
        // SAFETY: the child runs only the code below, which takes no lock and ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let wiped = lifecycle::is_fresh();
            let ignores_memory = !ready_for(Class::Memory) && lifecycle::is_fresh();
            let starts = ready_for(Class::Launch);
            let code = i32::from(!wiped) | i32::from(!ignores_memory) << 1 | i32::from(!starts) << 2;
            // SAFETY: the call ends the child without the test harness's exit handlers.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: the status is a valid place.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 0, "bits: not wiped, started by Memory, did not start");
        assert!(lifecycle::is_ready(), "the parent is unchanged");
    }
}
