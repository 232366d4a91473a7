//! Tracing another process for the time of one request, from inside a program with children, waits and signal
//! handlers of its own.
//!
//! The driver requires that the calling thread traces the target. A traced thread stops at each signal until
//! its tracer continues it. Only a stopped thread can be detached by request, and the stop is visible to the
//! tracer's whole process (SIGCHLD, `waitpid`). Therefore a new thread traces, makes the request and ends.
//! The end of this thread ends the trace, whether the target runs, is stopped or is dead, and no wait is
//! needed. Exit statuses stay available to the parent of the target.

use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use host::handle::Handle;
use host::process::Untraceable;
use host::signals;

use crate::kernel::Errno;
use crate::problem::Problem;

/// `PTRACE_EVENT_STOP`, in the upper byte of a stop without a signal.
const EVENT_STOP: libc::c_int = 128;
/// The stack size of a thread that makes one request, in bytes.
const STACK: usize = 256 << 10;
/// The longest time for which the kernel still shows a thread that has ended.
const LAST_SEEN: Duration = Duration::from_millis(100);
/// The interval of the checks for it.
const LOOK: Duration = Duration::from_micros(20);

/// The process to be traced.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: libc::pid_t,
    handle: Handle,
}

impl Target {
    /// Opens the process that has this pid now.
    pub(crate) fn new(pid: libc::pid_t) -> Result<Self, Problem> {
        let handle = Handle::open(pid.cast_unsigned()).map_err(|error| match error.raw_os_error() {
            // EINVAL, from Linux 6.9 on ENOENT: the pid is that of a thread.
            Some(libc::ESRCH | libc::EINVAL | libc::ENOENT) => Problem::NoProcess,
            errno => Problem::Failed(Errno(errno.unwrap_or(libc::EIO))),
        })?;
        Ok(Self { pid, handle })
    }

    /// Returns true once the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.handle.has_ended()
    }

    /// Makes a request on a thread that traces the process. If it cannot be traced, the request gets the
    /// reason ([`Problem::NotTraceable`]) and may go on without.
    ///
    /// # Errors
    /// The request was not made: the process has ended, or no thread can be started.
    pub(crate) fn traced<T: Send>(
        &self,
        request: impl FnOnce(Result<(), Problem>) -> T + Send,
    ) -> Result<T, Problem> {
        let work = || {
            // SAFETY: the call takes no arguments and cannot fail.
            let tid = unsafe { libc::gettid() };
            (tid, self.on_this_thread(request))
        };
        let (tid, result) = thread::scope(|scope| {
            // The new thread inherits this mask: it must not handle signals of the program.
            let mask = signals::block_all();
            let started =
                Builder::new().name("xsched-trace".to_owned()).stack_size(STACK).spawn_scoped(scope, work);
            signals::restore(&mask);
            let started = started
                .map_err(|error| Problem::Failed(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))))?;
            Ok(started.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        await_thread_end(tid);
        result
    }

    fn on_this_thread<T>(&self, request: impl FnOnce(Result<(), Problem>) -> T) -> Result<T, Problem> {
        if self.has_ended() {
            return Err(Problem::NoProcess);
        }
        let seized = seize(self.pid);
        // If the process ended in between, the pid may belong to another one, which the end of this thread
        // releases.
        if seized == Err(Problem::NoProcess) || self.has_ended() {
            return Err(Problem::NoProcess);
        }
        let result = request(seized);
        if seized.is_ok() {
            forward_pending_signal(self.pid);
        }
        Ok(result)
    }
}

/// Begins to trace, without stopping the process.
fn seize(pid: libc::pid_t) -> Result<(), Problem> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the request accesses no memory of this process. It fails if there is no such process.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) } == 0 {
        return Ok(());
    }
    Err(match Errno::last() {
        Errno(libc::ESRCH) => Problem::NoProcess,
        Errno(libc::EPERM) => Problem::NotTraceable(Untraceable::of(pid.cast_unsigned())),
        errno => Problem::Failed(errno),
    })
}

/// Continues a process that is stopped at a signal, and delivers the signal. The end of the tracer would do
/// that as well, unless another thread of the tracer's process has waited for the stop meanwhile, as a loop
/// around `waitpid(-1)` does: then the signal would be lost.
fn forward_pending_signal(pid: libc::pid_t) {
    let none = std::ptr::null_mut::<libc::c_void>();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes a `siginfo_t` to `info`, which outlives the call. It fails if the process is
    // not stopped.
    if unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, pid, none, info.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: it was zeroed, which is a valid value, and then filled.
    let info = unsafe { info.assume_init() };
    // A group stop has no pending signal.
    let signal = if info.si_code >> 8 == EVENT_STOP { 0 } else { info.si_signo };
    let signal = std::ptr::without_provenance_mut::<libc::c_void>(signal as usize);
    // SAFETY: the request accesses no memory of this process.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, none, signal) };
}

/// Waits until a joined thread has ended for the kernel as well: before, the process is still traced, and no
/// other thread can trace it.
fn await_thread_end(tid: libc::pid_t) {
    let (begin, pid) = (Instant::now(), std::process::id());
    // SAFETY: the call takes numbers only. Signal 0 checks that the thread exists and sends nothing.
    let is_there = || unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) } == 0;
    while is_there() && begin.elapsed() < LAST_SEEN {
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    /// A child process that echoes each line, and prints a line for SIGUSR1.
    struct Echo {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
    }

    impl Echo {
        fn new() -> Self {
            let script = "trap 'echo signal' USR1; echo ready; while read line; do echo \"$line\"; done";
            let mut child = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a shell");
            let input = child.stdin.take().expect("a pipe");
            let output = BufReader::new(child.stdout.take().expect("a pipe"));
            let mut new = Self { child, input, output };
            assert_eq!(new.line(), "ready");
            new
        }

        fn pid(&self) -> libc::pid_t {
            self.child.id().cast_signed()
        }

        fn target(&self) -> Target {
            Target::new(self.pid()).expect("it lives")
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.output.read_line(&mut line).expect("a line");
            line.trim_end().to_owned()
        }

        fn answers(&mut self) {
            writeln!(self.input, "hello").expect("it reads");
            assert_eq!(self.line(), "hello");
        }

        fn send(&self, signal: libc::c_int) {
            // SAFETY: the call takes numbers only. The pid is that of a child that was not waited for.
            assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
        }
    }

    /// Waits until a child has ended or, with `WSTOPPED`, is stopped before its tracer, and leaves the status
    /// to be waited for.
    fn await_state(pid: libc::pid_t, what: libc::c_int) {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = what | libc::WNOWAIT | libc::__WALL;
        // SAFETY: the call fills `info`, which outlives it.
        let waited = unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), info.as_mut_ptr(), flags) };
        assert_eq!(waited, 0);
    }

    #[test]
    fn traced_process_goes_on_and_can_be_traced_again_at_once() {
        let mut child = Echo::new();
        let target = child.target();
        for _ in 0..50 {
            assert_eq!(target.traced(|seized| seized), Ok(Ok(())));
        }
        child.answers();
        assert!(!target.has_ended());
        // No status is left for a parent that waits for stops as well.
        let mut status = 0;
        // SAFETY: the call fills `status`, which outlives it.
        let waited = unsafe {
            libc::waitpid(child.pid(), &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::__WALL)
        };
        assert_eq!((waited, status), (0, 0));
    }

    #[test]
    fn exit_status_of_a_traced_child_stays_for_its_parent() {
        let mut child = Echo::new();
        let target = child.target();
        let pid = child.pid();
        let made = target.traced(|seized| {
            child.send(libc::SIGKILL);
            await_state(pid, libc::WEXITED);
            seized
        });
        assert_eq!(made, Ok(Ok(())));
        assert_eq!(child.child.wait().expect("it is still there").signal(), Some(libc::SIGKILL));
        assert_eq!(target.traced(|seized| seized), Err(Problem::NoProcess));
    }

    /// A grandchild whose parent waits for it.
    #[test]
    fn exit_status_of_a_traced_grandchild_reaches_its_parent() {
        let mut parent = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait $!; echo ended $?"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let mut output = BufReader::new(parent.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a number");
        let pid: libc::pid_t = line.trim().parse().expect("a number");
        let target = Target::new(pid).expect("it lives");
        let made = target.traced(|seized| {
            // SAFETY: the call takes numbers only. The grandchild cannot be waited for while it is traced.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
            // A tracer can wait for its tracee as for a child.
            await_state(pid, libc::WEXITED);
            seized
        });
        assert_eq!(made, Ok(Ok(())));
        line.clear();
        output.read_line(&mut line).expect("the shell has waited for it");
        assert_eq!(line.trim(), "ended 137");
        assert!(parent.wait().expect("the shell").success());
    }

    /// Sends a signal during the trace. If `waited_for`, another thread of the tracer's process waits for the
    /// stop.
    fn signalled(signal: libc::c_int, waited_for: bool) -> Echo {
        let child = Echo::new();
        let pid = child.pid();
        let made = child.target().traced(|seized| {
            child.send(signal);
            await_state(pid, libc::WSTOPPED);
            if waited_for {
                let mut status = 0;
                // SAFETY: the call fills `status`, which outlives it.
                let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
                assert!(waited == pid && libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == signal);
            }
            seized
        });
        assert_eq!(made, Ok(Ok(())));
        child
    }

    #[test]
    fn signal_during_the_trace_is_delivered() {
        for waited_for in [false, true] {
            let mut child = signalled(libc::SIGUSR1, waited_for);
            // The child ends at the end of its input, so that a lost signal does not block the test.
            drop(child.input);
            let mut output = String::new();
            child.output.read_to_string(&mut output).expect("the output until the end");
            assert_eq!(output, "signal\n", "{waited_for}");
            let Echo { mut child, input, .. } = signalled(libc::SIGTERM, waited_for);
            drop(input);
            assert_eq!(child.wait().expect("it is ours").signal(), Some(libc::SIGTERM), "{waited_for}");
        }
    }

    #[test]
    fn stopped_process_stays_stopped() {
        let mut child = Echo::new();
        child.send(libc::SIGSTOP);
        let stopped = |child: &Echo| {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let (id, flags) = (child.child.id(), libc::WSTOPPED | libc::WNOWAIT);
            // SAFETY: the call fills `info`, which outlives it.
            assert_eq!(unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), flags) }, 0);
        };
        stopped(&child);
        assert_eq!(child.target().traced(|seized| seized), Ok(Ok(())));
        stopped(&child);
        child.send(libc::SIGCONT);
        child.answers();
    }

    #[test]
    fn target_of_a_thread_or_missing_process_is_refused() {
        let not_there = Target::new(i32::MAX).map(|_| ());
        assert_eq!(not_there, Err(Problem::NoProcess));
        let tid = thread::spawn(|| {
            // SAFETY: the call takes no arguments and cannot fail.
            let tid = unsafe { libc::gettid() };
            Target::new(tid).map(|_| ())
        });
        assert_eq!(tid.join().expect("it ends"), Err(Problem::NoProcess));
    }
}
