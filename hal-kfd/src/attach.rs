//! Control of another process's queues, for programs without the preloaded library: the driver allows it to a
//! debugger.
//!
//! The driver requires that the calling thread traces the target (`ptrace`); the trace lasts as long as one
//! request. The debug session stays and belongs to the attaching process. When that process ends, the driver
//! resumes all queues.

use std::collections::BTreeSet;
use std::sync::Arc;

use hip_sys::kfd::debug::{self, QueueEntry};

pub use crate::problem::Problem;

use crate::capabilities::{self, Choice, Facts};
use crate::kernel::{Errno, Kernel, Kfd};
use crate::mechanism::MechanismKind;
use crate::problem::problem;
use crate::session::{self, SuspendStatus};
use crate::trace::Target;

/// A debug session on another process. All its queues run again when this is dropped, or when this process
/// ends.
#[derive(Debug)]
pub struct Attachment {
    kernel: Arc<dyn Kernel>,
    target: Target,
    info: debug::RuntimeInfo,
    /// True once the session has ended.
    ended: bool,
}

impl Attachment {
    /// Attaches to a process that uses the device.
    ///
    /// # Errors
    /// The reason why the process cannot be controlled.
    pub fn new(kernel: Arc<dyn Kernel>, pid: i32) -> Result<Self, Problem> {
        let target = Target::new(pid)?;
        let info = target.traced(|seized| {
            seized?;
            session::begin(&*kernel, pid.cast_unsigned()).map_err(|errno| problem(pid, errno, false))
        })??;
        Ok(Self { kernel, target, info, ended: false })
    }

    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.target.pid
    }

    /// Returns true if the runtime of the process has enabled debugging. Otherwise queues can be listed and
    /// not suspended.
    pub fn can_suspend(&self) -> bool {
        self.info.runtime_state == debug::STATE_ENABLED
    }

    fn traced<T: Send>(&self, request: impl FnOnce(u32) -> Result<T, Errno> + Send) -> Result<T, Problem> {
        let own = self.target.pid;
        let pid = own.cast_unsigned();
        self.target.traced(|seized| match seized {
            // Another process traces the target. The driver may still accept the request from the owner of
            // the session, and suspended queues must not stay suspended because it was not sent.
            Err(why @ Problem::NotTraceable(_)) => request(pid).map_err(|errno| match errno {
                Errno(libc::EPERM) => why,
                errno => problem(own, errno, true),
            }),
            Err(why) => Err(why),
            Ok(()) => request(pid).map_err(|errno| problem(own, errno, true)),
        })?
    }

    /// Returns the queues of the process, with addresses and sizes.
    ///
    /// # Errors
    /// The reason why the process cannot be controlled.
    pub fn queues(&self) -> Result<Vec<QueueEntry>, Problem> {
        self.traced(|pid| session::queues(&*self.kernel, pid))
    }

    /// Suspends queues. Returns the status of each, in order. A number that the process does not have is
    /// invalid and is not sent: the driver ignores the upper bit of a number ([`debug::QUEUE_INVALID`]) and
    /// would suspend another queue.
    ///
    /// # Errors
    /// The request as a whole failed.
    pub fn suspend(&self, ids: &[u32]) -> Result<Vec<SuspendStatus>, Problem> {
        // The snapshot also marks new queues as known to the debugger; the driver does not suspend unknown
        // ones.
        let queues = self.queues()?;
        let queues: Vec<_> = queues.iter().filter(|queue| ids.contains(&queue.queue_id)).collect();
        let devices: BTreeSet<u32> = queues.iter().map(|queue| queue.gpu_id).collect();
        for gpu_id in devices {
            self.check(gpu_id)?;
        }
        let known: Vec<u32> = queues.iter().map(|queue| queue.queue_id).collect();
        let fates = self.traced(|pid| session::suspend(&*self.kernel, pid, &known))?;
        let fate = |id: &u32| known.iter().zip(&fates).find(|(known, _)| *known == id).map(|(_, fate)| *fate);
        Ok(ids.iter().map(|id| fate(id).unwrap_or(SuspendStatus::Invalid)).collect())
    }

    /// Refuses a device that would wait for running kernels, unless it is simulated: see [`capabilities`].
    fn check(&self, gpu_id: u32) -> Result<(), Problem> {
        let Some(sys) = self.kernel.sys() else { return Ok(()) };
        let facts = Facts::read(&*self.kernel, sys, gpu_id, Kfd::is_simulated()).map_err(Problem::Failed)?;
        let chosen = capabilities::choose(Choice::Only(MechanismKind::DebugTrap), &facts, true);
        chosen.map(|_| ()).map_err(Problem::Unsafe)
    }

    /// Resumes queues. Returns the status of each, in order.
    ///
    /// # Errors
    /// The request as a whole failed.
    pub fn resume(&self, ids: &[u32]) -> Result<Vec<SuspendStatus>, Problem> {
        self.traced(|pid| session::resume(&*self.kernel, pid, ids))
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The reason why the request failed. If no session is left, that counts as the end. Otherwise the caller
    /// can try again, and `drop` does.
    pub fn end(&mut self) -> Result<(), Problem> {
        if self.ended {
            return Ok(());
        }
        let pid = self.target.pid;
        // The owner of the session need not trace for this request (`kfd_ioctl_set_debug_trap`, Linux 6.12),
        // so that it works even where no thread can be started.
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

    /// Forgets the session of a process that has ended, without a request.
    pub fn forget(mut self) {
        self.ended = true;
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // If the process has ended, so has the session.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;
    use host::process::Untraceable;

    fn attached(kernel: &Arc<FakeKernel>, target: Target) -> Attachment {
        Attachment { kernel: kernel.clone(), target, info: debug::RuntimeInfo::default(), ended: false }
    }

    #[test]
    fn errno_maps_to_problem_with_and_without_session() {
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

    /// No process can trace itself, which stands for a process that another debugger traces.
    #[test]
    fn queues_are_resumed_although_the_process_cannot_be_traced() {
        let kernel = Arc::new(FakeKernel::default());
        kernel.0.lock().session = true;
        let pid = std::process::id().cast_signed();
        let attachment = attached(&kernel, Target::new(pid).unwrap());
        // The runtime is not enabled: EPERM, which has two possible reasons here.
        assert!(matches!(attachment.resume(&[0]), Err(Problem::NotTraceable(_))));
        kernel.0.lock().runtime = true;
        assert_eq!(attachment.resume(&[0]), Ok(vec![SuspendStatus::Invalid]));
        drop(attachment);
        assert!(!kernel.0.lock().session);
    }

    #[test]
    fn session_end_is_retried_until_it_succeeds_and_never_sent_after_forget() {
        let kernel = Arc::new(FakeKernel::default());
        let attachment = || attached(&kernel, Target::new(std::process::id().cast_signed()).unwrap());
        kernel.0.lock().session = true;
        attachment().forget();
        assert_eq!(kernel.asked(), []);
        // A failed end can be tried again; `drop` does.
        kernel.fail([Some(crate::fake::Failure { errno: libc::ENOMEM, after: false })]);
        let mut failing = attachment();
        assert_eq!(failing.end(), Err(Problem::Failed(Errno(libc::ENOMEM))));
        drop(failing);
        assert!(!kernel.0.lock().session);
        assert_eq!(kernel.asked(), [0x101; 2]);
        // No session is left.
        assert_eq!(attachment().end(), Err(Problem::Lost));
        assert_eq!(kernel.asked(), [0x101]);
        let mut ended = attachment();
        kernel.0.lock().session = true;
        assert_eq!([ended.end(), ended.end()], [Ok(()); 2]);
        drop(ended);
        assert_eq!(kernel.asked(), [0x101]);
    }

    /// The pid now belongs to another process.
    #[test]
    fn reused_pid_gets_no_requests() {
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
        assert_eq!(attachment.resume(&[0]), Err(Problem::NoProcess));
        assert_eq!(attachment.end(), Err(Problem::NoProcess));
        drop(attachment);
        assert_eq!(kernel.asked(), []);
    }

    #[test]
    fn attach_to_missing_process_fails() {
        let kernel = Arc::new(FakeKernel::default());
        assert_eq!(Attachment::new(kernel, i32::MAX).map(|_| ()), Err(Problem::NoProcess));
    }
}
