//! Control of another process's queues, for programs that were not preloaded: what the driver allows a debugger.
//!
//! The driver asks that the calling thread traces the target (`ptrace`), which is done only as long as a request takes. The debug
//! session itself stays, and belongs to the attaching process: when that ends, the driver resumes everything.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use hip_sys::kfd::debug::{self, QueueEntry};

use crate::kernel::{Errno, Kernel, Kfd};
use crate::mechanism::Kind;
use crate::probe::{self, Choice, Facts, Refusal};
use crate::process::Untraceable;
use crate::session::{self, Fate};
use crate::trace::Target;

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

/// A hold on another process. When this is dropped, or this process ends, everything of it goes on.
#[derive(Debug)]
pub struct Attachment {
    kernel: Arc<dyn Kernel>,
    target: Target,
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
        let target = Target::new(pid)?;
        let info = target.traced(|seized| {
            seized?;
            session::begin(&*kernel, pid.cast_unsigned()).map_err(|errno| problem(pid, errno, false))
        })??;
        Ok(Self { kernel, target, info, ended: false })
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.target.pid
    }

    /// Whether its runtime has enabled debugging, without which queues can be seen and not suspended.
    pub fn can_suspend(&self) -> bool {
        self.info.runtime_state == debug::STATE_ENABLED
    }

    fn traced<T: Send>(&self, request: impl FnOnce(u32) -> Result<T, Errno> + Send) -> Result<T, Problem> {
        let own = self.target.pid;
        let pid = own.cast_unsigned();
        self.target.traced(|seized| match seized {
            // Somebody else traces it by now. The driver may know us all the same, as who has the session; what is held must
            // not stay so for want of a question.
            Err(why @ Problem::NotTraceable(_)) => request(pid).map_err(|errno| match errno {
                Errno(libc::EPERM) => why,
                errno => problem(own, errno, true),
            }),
            Err(why) => Err(why),
            Ok(()) => request(pid).map_err(|errno| problem(own, errno, true)),
        })?
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
    /// Why not. Where there is nothing left to be ended that counts as the end; else it can be tried again, and is when this is
    /// dropped.
    pub fn end(&mut self) -> Result<(), Problem> {
        if self.ended {
            return Ok(());
        }
        let pid = self.target.pid;
        // Whoever has the session needs not trace for this (`kfd_ioctl_set_debug_trap`, Linux 6.12), and no thread that may not be
        // had.
        let result = if self.target.has_ended() {
            Err(Problem::NoProcess)
        } else {
            match session::end(&*self.kernel, pid.cast_unsigned()) {
                Err(Errno(libc::EPERM)) => self.traced(|pid| session::end(&*self.kernel, pid)),
                result => result.map_err(|errno| problem(pid, errno, true)),
            }
        };
        self.ended = matches!(result, Ok(()) | Err(Problem::Lost | Problem::NoProcess | Problem::NoDevice));
        result
    }

    /// For a process that has gone, and its session with it: nothing is asked of it any more.
    pub fn forget(mut self) {
        self.ended = true;
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The process may have gone, and with it the session.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;

    fn attached(kernel: &Arc<FakeKernel>, target: Target) -> Attachment {
        Attachment { kernel: kernel.clone(), target, info: debug::RuntimeInfo::default(), ended: false }
    }

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
        let attachment = attached(&kernel, Target::new(pid).unwrap());
        // The runtime is not enabled: EPERM, for which there are two reasons then.
        assert!(matches!(attachment.resume_all(), Err(Problem::NotTraceable(_))));
        kernel.0.lock().runtime = true;
        assert_eq!(attachment.resume_all(), Ok(0));
        drop(attachment);
        assert!(!kernel.0.lock().session);
    }

    #[test]
    fn an_end_is_asked_for_until_it_is_one_and_not_at_all_of_a_process_that_has_gone() {
        let kernel = Arc::new(FakeKernel::default());
        let attachment = || attached(&kernel, Target::new(std::process::id().cast_signed()).unwrap());
        kernel.0.lock().session = true;
        attachment().forget();
        assert_eq!(kernel.asked(), []);
        // What fails can be tried again, and is at the latest when it is dropped.
        kernel.fail([Some(crate::fake::Failure { errno: libc::ENOMEM, after: false })]);
        let mut failing = attachment();
        assert_eq!(failing.end(), Err(Problem::Failed(Errno(libc::ENOMEM))));
        drop(failing);
        assert!(!kernel.0.lock().session);
        assert_eq!(kernel.asked(), [0x101; 2]);
        // There is no session any more.
        assert_eq!(attachment().end(), Err(Problem::Lost));
        assert_eq!(kernel.asked(), [0x101]);
        let mut ended = attachment();
        kernel.0.lock().session = true;
        assert_eq!([ended.end(), ended.end()], [Ok(()); 2]);
        drop(ended);
        assert_eq!(kernel.asked(), [0x101]);
    }

    /// The number is that of a process which lives, and is not the one that was meant.
    #[test]
    fn whoever_has_the_number_of_a_process_that_has_gone_is_asked_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let mut target = Target::new(child.id().cast_signed()).unwrap();
        child.wait().unwrap();
        target.pid = std::process::id().cast_signed();
        let kernel = Arc::new(FakeKernel::default());
        kernel.0.lock().session = true;
        kernel.0.lock().runtime = true;
        let mut attachment = attached(&kernel, target);
        assert_eq!(attachment.queues().map(|_| ()), Err(Problem::NoProcess));
        assert_eq!(attachment.suspend(&[0]), Err(Problem::NoProcess));
        assert_eq!(attachment.resume_all(), Err(Problem::NoProcess));
        assert_eq!(attachment.end(), Err(Problem::NoProcess));
        drop(attachment);
        assert_eq!(kernel.asked(), []);
    }

    #[test]
    fn what_is_not_there_cannot_be_attached_to() {
        let kernel = Arc::new(FakeKernel::default());
        assert_eq!(Attachment::new(kernel, i32::MAX).map(|_| ()), Err(Problem::NoProcess));
    }
}
