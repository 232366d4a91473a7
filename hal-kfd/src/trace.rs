//! Tracing another process for as long as one request takes, from inside a program that has children, waits and handlers of
//! its own.
//!
//! The driver asks that the calling thread traces the target. A traced thread stops at each signal until its tracer lets it go
//! on, and only a thread that stands can be let go by request, which its tracer's whole process hears of (SIGCHLD, `waitpid`).
//! So a thread is started that traces, makes the request and ends: with it the kernel ends the tracing, whether the target runs,
//! stands or is dead, and nothing was waited for. Exit statuses stay with whoever waits for them.

use std::io;
use std::mem::MaybeUninit;
use std::panic::resume_unwind;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crate::handle::Handle;
use crate::kernel::Errno;
use crate::outside::Problem;
use crate::process::Untraceable;

/// `PTRACE_EVENT_STOP`, in the upper byte of a stop that is none for a signal.
const EVENT_STOP: libc::c_int = 128;
/// The stack of a thread that makes one request, in bytes.
const STACK: usize = 256 << 10;
/// A thread that has ended is still seen for so long at most.
const LAST_SEEN: Duration = Duration::from_millis(100);
/// Between two looks at it.
const LOOK: Duration = Duration::from_micros(20);

fn last_errno() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Identifies one process, even if the kernel gives its pid to another one later.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) pid: libc::pid_t,
    handle: Handle,
}

impl Target {
    /// The process that has this number now.
    pub(crate) fn new(pid: libc::pid_t) -> Result<Self, Problem> {
        let handle = Handle::open(pid.cast_unsigned()).map_err(|error| match error.raw_os_error() {
            // EINVAL, from Linux 6.9 on ENOENT: a thread's number.
            Some(libc::ESRCH | libc::EINVAL | libc::ENOENT) => Problem::NoProcess,
            errno => Problem::Failed(Errno(errno.unwrap_or(libc::EIO))),
        })?;
        Ok(Self { pid, handle })
    }

    /// Whether it has ended. Its number may be another process's from then on.
    pub(crate) fn has_ended(&self) -> bool {
        self.handle.has_ended()
    }

    /// Makes a request on a thread that traces the process, or that could not ([`Problem::NotTraceable`], said to the request,
    /// which may do without).
    ///
    /// # Errors
    /// The process has ended, or no thread can be started: the request was not made.
    pub(crate) fn traced<T: Send>(
        &self,
        request: impl FnOnce(Result<(), Problem>) -> T + Send,
    ) -> Result<T, Problem> {
        let work = || {
            // SAFETY: takes nothing.
            let tid = unsafe { libc::gettid() };
            (tid, self.on_this_thread(request))
        };
        let (tid, result) = thread::scope(|scope| {
            // The thread is started with this one's mask: signals of the program are not for it.
            let mask = block_all();
            let started =
                Builder::new().name("xsched-trace".to_owned()).stack_size(STACK).spawn_scoped(scope, work);
            restore(&mask);
            let started = started
                .map_err(|error| Problem::Failed(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))))?;
            Ok(started.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        wait_for_the_end_of(tid);
        result
    }

    fn on_this_thread<T>(&self, request: impl FnOnce(Result<(), Problem>) -> T) -> Result<T, Problem> {
        if self.has_ended() {
            return Err(Problem::NoProcess);
        }
        let seized = seize(self.pid);
        // What ended in between may have another's number by now: this thread's end lets it go.
        if seized == Err(Problem::NoProcess) || self.has_ended() {
            return Err(Problem::NoProcess);
        }
        let result = request(seized);
        if seized.is_ok() {
            pass_signal_on(self.pid);
        }
        Ok(result)
    }
}

/// Begins to trace, without stopping the process.
fn seize(pid: libc::pid_t) -> Result<(), Problem> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: touches no memory of ours; a process that is not there is an error.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) } == 0 {
        return Ok(());
    }
    Err(match last_errno() {
        Errno(libc::ESRCH) => Problem::NoProcess,
        Errno(libc::EPERM) => Problem::NotTraceable(Untraceable::of(pid.cast_unsigned())),
        errno => Problem::Failed(errno),
    })
}

/// If the process stands at a signal, it goes on and gets it. The end of its tracer would see to that as well, unless somebody
/// in the tracer's process has waited for that stop meanwhile, as a loop around `waitpid(-1)` does: then the signal would be
/// lost.
fn pass_signal_on(pid: libc::pid_t) {
    let none = std::ptr::null_mut::<libc::c_void>();
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: a place for what is told, alive through the call. Fails where the process does not stand, or has ended.
    if unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, pid, none, info.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: zeroes are a value of it, and it was filled.
    let info = unsafe { info.assume_init() };
    // A stop of the whole process is no signal that it has yet to get.
    let signal = if info.si_code >> 8 == EVENT_STOP { 0 } else { info.si_signo };
    let signal = std::ptr::without_provenance_mut::<libc::c_void>(signal as usize);
    // SAFETY: touches no memory of ours.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, none, signal) };
}

/// `pthread_join` returns before the kernel has ended what the thread traced; the next one could not trace it yet.
fn wait_for_the_end_of(tid: libc::pid_t) {
    let (begin, pid) = (Instant::now(), std::process::id());
    // SAFETY: sends nothing: looks whether the thread is there.
    let is_there = || unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) } == 0;
    while is_there() && begin.elapsed() < LAST_SEEN {
        thread::sleep(LOOK);
    }
}

/// Blocks all signals for the calling thread; the mask that it had.
fn block_all() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: a set that was filled, and a place for another one; both live through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: filled, as the call cannot fail with such arguments.
    unsafe { before.assume_init() }
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY: a set that lives through the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    /// A child that answers each line, and says so when it gets SIGUSR1.
    struct Answering {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
    }

    impl Answering {
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
            // SAFETY: a child of ours, not yet waited for.
            assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
        }
    }

    /// Looks at a child without taking anything: whether it has ended, or (with `WSTOPPED`) stands before its tracer.
    fn await_state(pid: libc::pid_t, what: libc::c_int) {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = what | libc::WNOWAIT | libc::__WALL;
        // SAFETY: a place for what is told, alive through the call.
        let waited = unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), info.as_mut_ptr(), flags) };
        assert_eq!(waited, 0);
    }

    #[test]
    fn a_process_goes_on_and_can_be_traced_again_at_once() {
        let mut child = Answering::new();
        let target = child.target();
        for _ in 0..50 {
            assert_eq!(target.traced(|seized| seized), Ok(Ok(())));
        }
        child.answers();
        assert!(!target.has_ended());
        // Nothing of it is left for a parent that waits for stops as well.
        let mut status = 0;
        // SAFETY: a place for a status; does not wait.
        let waited = unsafe {
            libc::waitpid(child.pid(), &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::__WALL)
        };
        assert_eq!((waited, status), (0, 0));
    }

    #[test]
    fn the_exit_status_of_a_child_that_ends_meanwhile_is_its_parents() {
        let mut child = Answering::new();
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

    /// What belongs to somebody else's child is not kept from them either: here a grandchild, whose parent waits for it.
    #[test]
    fn the_end_of_somebody_elses_child_is_told_to_its_parent() {
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
            // SAFETY: the grandchild, whose parent cannot wait for it as long as it is traced.
            assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
            // From the thread that traces it, this is told of its tracee as of a child.
            await_state(pid, libc::WEXITED);
            seized
        });
        assert_eq!(made, Ok(Ok(())));
        line.clear();
        output.read_line(&mut line).expect("the shell has waited");
        assert_eq!(line.trim(), "ended 137");
        assert!(parent.wait().expect("the shell").success());
    }

    /// As by a thread or a handler of the program's that waits for all children.
    fn meanwhile_gets(signal: libc::c_int, waited_for: bool) -> Answering {
        let child = Answering::new();
        let pid = child.pid();
        let made = child.target().traced(|seized| {
            child.send(signal);
            await_state(pid, libc::WSTOPPED);
            if waited_for {
                let mut status = 0;
                // SAFETY: a place for a status.
                let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
                assert!(waited == pid && libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == signal);
            }
            seized
        });
        assert_eq!(made, Ok(Ok(())));
        child
    }

    #[test]
    fn a_signal_that_comes_meanwhile_arrives_whoever_waited_for_the_stop() {
        for waited_for in [false, true] {
            let mut child = meanwhile_gets(libc::SIGUSR1, waited_for);
            // At the end of its input it ends by itself: a signal that was lost is no wait for ever.
            drop(child.input);
            let mut said = String::new();
            child.output.read_to_string(&mut said).expect("what it says until then");
            assert_eq!(said, "signal\n", "{waited_for}");
            let Answering { mut child, input, .. } = meanwhile_gets(libc::SIGTERM, waited_for);
            drop(input);
            assert_eq!(child.wait().expect("it is ours").signal(), Some(libc::SIGTERM), "{waited_for}");
        }
    }

    #[test]
    fn a_stopped_process_stays_stopped() {
        let mut child = Answering::new();
        child.send(libc::SIGSTOP);
        let stopped = |child: &Answering| {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let (id, flags) = (child.child.id(), libc::WSTOPPED | libc::WNOWAIT);
            // SAFETY: a place for what is told, alive through the call.
            assert_eq!(unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), flags) }, 0);
        };
        stopped(&child);
        assert_eq!(child.target().traced(|seized| seized), Ok(Ok(())));
        stopped(&child);
        child.send(libc::SIGCONT);
        child.answers();
    }

    #[test]
    fn a_thread_is_no_process_and_what_has_gone_is_none() {
        let not_there = Target::new(i32::MAX).map(|_| ());
        assert_eq!(not_there, Err(Problem::NoProcess));
        let tid = thread::spawn(|| {
            // SAFETY: takes nothing.
            let tid = unsafe { libc::gettid() };
            Target::new(tid).map(|_| ())
        });
        assert_eq!(tid.join().expect("it ends"), Err(Problem::NoProcess));
    }
}
