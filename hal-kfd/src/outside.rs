//! Control of another process's queues, for programs that were not preloaded: what the driver allows a debugger.
//!
//! The driver asks that the calling thread traces the target (`ptrace`). A traced thread stops at each signal until its tracer
//! lets it go on, so that the target is traced only as long as a request takes. The debug session itself stays, and belongs
//! to the attaching process: when that ends, the driver resumes everything.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use hip_sys::kfd::debug::{self, QueueEntry};

use crate::kernel::{Errno, Kernel, Kfd};
use crate::mechanism::Kind;
use crate::probe::{self, Choice, Facts, Refusal};
use crate::process::Untraceable;
use crate::session::{self, Fate};

/// Why a process cannot be controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no such process.
    NoProcess,
    /// The process must not be traced, and why.
    NotTraceable(Untraceable),
    /// It has not opened the device.
    NoDevice,
    /// Somebody debugs its GPU work already.
    Debugged,
    /// The session has ended without our doing, and what was held goes on: so it happens when somebody else who tried to debug the
    /// process, in vain, ends (`kfd_ioctl_set_debug_trap` notes the last who tried as the debugger).
    Lost,
    /// Its runtime has not enabled debugging (ROCr before 5.5 never does), or a device cannot (gfx11 with masked queues).
    NotEnabled,
    /// The driver is too old, or schedules queues by itself.
    NotSupported,
    /// The driver must not take the queues off: what it would do is worse.
    Unsafe(Refusal),
    /// The device did not get a queue off in time, and is being reset.
    Hung(Errno),
    /// Anything else.
    Failed(Errno),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("there is no such process"),
            Self::NotTraceable(why) => write!(f, "the process must not be traced: {why}"),
            Self::NoDevice => f.write_str("the process has not opened /dev/kfd"),
            Self::Debugged => f.write_str("the GPU work of the process is being debugged already"),
            Self::Lost => f.write_str("the hold was lost to another debugger, and the process goes on"),
            Self::NotEnabled => f.write_str(
                "the runtime of the process has not enabled debugging, as before ROCm 5.5, or a device of it cannot be debugged",
            ),
            Self::NotSupported => {
                f.write_str("the driver has no debugger: it is older than KFD 1.13, or hardware scheduling is off")
            }
            Self::Unsafe(refusal) => refusal.fmt(f),
            Self::Hung(errno) => write!(f, "a queue did not come off, and the GPU is being reset ({errno})"),
            Self::Failed(errno) => write!(f, "the driver refused: {errno}"),
        }
    }
}

/// What an error of a session's request on a process means; `begun` if there is a session.
fn problem(pid: libc::pid_t, errno: Errno, begun: bool) -> Problem {
    match errno.0 {
        libc::ESRCH => Problem::NoDevice,
        libc::EALREADY => Problem::Debugged,
        libc::EINVAL if begun => Problem::Lost,
        libc::EPERM if begun => Problem::NotEnabled,
        libc::EPERM => Problem::NotTraceable(Untraceable::of(pid.cast_unsigned())),
        libc::EINVAL | libc::ENOTTY if !begun => Problem::NotSupported,
        libc::ETIME | libc::EIO => Problem::Hung(errno),
        _ => Problem::Failed(errno),
    }
}

/// The calling thread traces a process as long as this lives.
#[derive(Debug)]
struct Trace {
    pid: libc::pid_t,
}

impl Trace {
    /// Begins to trace, without stopping the process.
    fn new(pid: libc::pid_t) -> Result<Self, Problem> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: touches no memory of ours; a process that is not there is an error.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) } == 0 {
            return Ok(Self { pid });
        }
        Err(match io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => Problem::NoProcess,
            Some(libc::EPERM) => Problem::NotTraceable(Untraceable::of(pid.cast_unsigned())),
            errno => Problem::Failed(Errno(errno.unwrap_or(libc::EIO))),
        })
    }
}

impl Drop for Trace {
    /// Lets it go: a process can be let go only while it stands, and what it stands at may be a signal that it must get.
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.pid, none, none) };
        let mut status = 0;
        loop {
            // SAFETY: a status to be filled, alive through the call.
            let waited = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
            match waited {
                _ if waited == self.pid => break,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
        if !libc::WIFSTOPPED(status) {
            return;
        }
        // A stop without an event of ptrace's is the delivery of a signal.
        let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
        let signal = std::ptr::without_provenance_mut::<libc::c_void>(signal as usize);
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, none, signal) };
    }
}

/// A hold on another process. When this is dropped, or this process ends, everything of it goes on.
#[derive(Debug)]
pub struct Attachment {
    kernel: Arc<dyn Kernel>,
    pid: libc::pid_t,
    info: debug::RuntimeInfo,
    /// The session has ended.
    ended: bool,
}

impl Attachment {
    /// Attaches to a process that uses the device.
    ///
    /// # Errors
    /// Why not.
    pub fn new(kernel: Arc<dyn Kernel>, pid: i32) -> Result<Self, Problem> {
        let trace = Trace::new(pid)?;
        let begun = session::begin(&*kernel, pid.cast_unsigned());
        drop(trace);
        let info = begun.map_err(|errno| problem(pid, errno, false))?;
        Ok(Self { kernel, pid, info, ended: false })
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether its runtime has enabled debugging, without which queues can be seen and not suspended.
    pub fn can_suspend(&self) -> bool {
        self.info.runtime_state == debug::STATE_ENABLED
    }

    fn traced<T>(&self, request: impl FnOnce(u32) -> Result<T, Errno>) -> Result<T, Problem> {
        let trace = match Trace::new(self.pid) {
            // Somebody else traces it by now. The driver may know us all the same, as who has the session; what is held must
            // not stay so for want of a question.
            Err(why @ Problem::NotTraceable(_)) => Err(why),
            other => Ok(other?),
        };
        let result = request(self.pid.cast_unsigned());
        match (result, trace) {
            (Err(Errno(libc::EPERM)), Err(why)) => Err(why),
            (result, _) => result.map_err(|errno| problem(self.pid, errno, true)),
        }
    }

    /// Its queues, with addresses and sizes.
    ///
    /// # Errors
    /// Why not.
    pub fn queues(&self) -> Result<Vec<QueueEntry>, Problem> {
        self.traced(|pid| session::queues(&*self.kernel, pid))
    }

    /// Takes queues off the hardware; the fate of each, in order. One that the process has not is invalid, and the driver is
    /// not asked for it: it overlooks the upper bit of a number ([`debug::QUEUE_INVALID`]), and would suspend another queue.
    ///
    /// # Errors
    /// The request as a whole failed.
    pub fn suspend(&self, ids: &[u32]) -> Result<Vec<Fate>, Problem> {
        // Also tells the driver that new queues are known here, or it would leave them alone.
        let queues = self.queues()?;
        let queues: Vec<_> = queues.iter().filter(|queue| ids.contains(&queue.queue_id)).collect();
        let devices: BTreeSet<u32> = queues.iter().map(|queue| queue.gpu_id).collect();
        for gpu_id in devices {
            self.check(gpu_id)?;
        }
        let known: Vec<u32> = queues.iter().map(|queue| queue.queue_id).collect();
        let fates = self.traced(|pid| session::suspend(&*self.kernel, pid, &known))?;
        let fate = |id: &u32| known.iter().zip(&fates).find(|(known, _)| *known == id).map(|(_, fate)| *fate);
        Ok(ids.iter().map(|id| fate(id).unwrap_or(Fate::Invalid)).collect())
    }

    /// Refuses a device that would wait for running kernels, unless it is simulated: see [`probe`].
    fn check(&self, gpu_id: u32) -> Result<(), Problem> {
        let Some(sys) = self.kernel.sys() else { return Ok(()) };
        let facts = Facts::read(&*self.kernel, sys, gpu_id, Kfd::is_simulated()).map_err(Problem::Failed)?;
        let chosen = probe::choose(Choice::Only(Kind::DebugTrap), &facts, true);
        chosen.map(|_| ()).map_err(Problem::Unsafe)
    }

    /// Puts queues back; the fate of each, in order.
    ///
    /// # Errors
    /// The request as a whole failed.
    pub fn resume(&self, ids: &[u32]) -> Result<Vec<Fate>, Problem> {
        self.traced(|pid| session::resume(&*self.kernel, pid, ids))
    }

    /// Puts all back; how many queues there are.
    ///
    /// # Errors
    /// The request failed.
    pub fn resume_all(&self) -> Result<usize, Problem> {
        self.traced(|pid| session::resume_all(&*self.kernel, pid))
    }

    /// Ends the hold and says how that went.
    ///
    /// # Errors
    /// Why not. It is not tried again.
    pub fn end(mut self) -> Result<(), Problem> {
        self.ended = true;
        self.traced(|pid| session::end(&*self.kernel, pid))
    }

    /// For a process that has gone, and its session with it: nothing is asked of it any more, because its number may be
    /// another process's by now.
    pub fn forget(mut self) {
        self.ended = true;
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The process may have gone, and with it the session.
        let _ = self.traced(|pid| session::end(&*self.kernel, pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;

    #[test]
    fn errors_say_what_to_do() {
        let own = std::process::id().cast_signed();
        let problem = |errno, begun| problem(own, Errno(errno), begun);
        assert_eq!(problem(libc::EPERM, true), Problem::NotEnabled);
        assert_eq!(problem(libc::EPERM, false), Problem::NotTraceable(Untraceable::Own));
        assert_eq!(problem(libc::EALREADY, false), Problem::Debugged);
        assert_eq!(problem(libc::ETIME, true), Problem::Hung(Errno(libc::ETIME)));
        assert_eq!(problem(libc::EINVAL, false), Problem::NotSupported);
        assert_eq!(problem(libc::EINVAL, true), Problem::Lost);
        let text = Problem::NotTraceable(Untraceable::Yama(2)).to_string();
        assert!(text.starts_with("the process must not be traced: Yama"), "{text}");
    }

    /// No process can trace itself, which stands for one that another debugger traces.
    #[test]
    fn what_is_held_is_let_go_although_the_process_cannot_be_traced_any_more() {
        let kernel = Arc::new(FakeKernel::default());
        kernel.0.lock().session = true;
        let pid = std::process::id().cast_signed();
        let info = debug::RuntimeInfo::default();
        let attachment = Attachment { kernel: kernel.clone(), pid, info, ended: false };
        // The runtime is not enabled: EPERM, for which there are two reasons then.
        assert!(matches!(attachment.resume_all(), Err(Problem::NotTraceable(_))));
        kernel.0.lock().runtime = true;
        assert_eq!(attachment.resume_all(), Ok(0));
        drop(attachment);
        assert!(!kernel.0.lock().session);
    }

    #[test]
    fn an_end_is_asked_for_once_and_not_at_all_of_a_process_that_has_gone() {
        let kernel = Arc::new(FakeKernel::default());
        let pid = std::process::id().cast_signed();
        let attachment =
            || Attachment { kernel: kernel.clone(), pid, info: debug::RuntimeInfo::default(), ended: false };
        kernel.0.lock().session = true;
        attachment().forget();
        assert_eq!(kernel.asked(), []);
        assert_eq!(attachment().end(), Ok(()));
        assert_eq!(kernel.asked(), [0x101]);
        // There is no session any more.
        assert_eq!(attachment().end(), Err(Problem::Lost));
        assert_eq!(kernel.asked(), [0x101]);
    }

    #[test]
    fn what_is_not_there_cannot_be_attached_to() {
        let kernel = Arc::new(FakeKernel::default());
        assert_eq!(Attachment::new(kernel, i32::MAX).map(|_| ()), Err(Problem::NoProcess));
    }
}
