//! `DBG_TRAP` on the own process: one request for all queues, kept apart from the percentage, so that the runtime's own
//! updates do not undo it. It needs ABI 1.13, hardware scheduling, an enabled runtime, and that nobody else debugs the
//! process; a suspended queue cannot be destroyed.

use hip_sys::kfd::debug::{self, Operation, QUEUE_ERROR, QUEUE_INVALID};

use super::{ATTEMPTS, Kind, Mechanism};
use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::registry::{Outcome, Queue};

/// What became of a queue in a suspend or resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is as asked.
    Done,
    /// New to the debugger, being destroyed, or not there: nothing was done.
    Invalid,
    /// The hardware failed: its state is unknown.
    Failed,
}

/// Reads a queue's fate out of its id as it came back.
pub fn fate(id: u32) -> Fate {
    match (id & QUEUE_ERROR != 0, id & QUEUE_INVALID != 0) {
        (true, _) => Fate::Failed,
        (false, true) => Fate::Invalid,
        (false, false) => Fate::Done,
    }
}

/// The mechanism, with its debug session.
#[derive(Debug, Default)]
pub struct DebugTrap {
    /// There is a session of ours.
    session: bool,
}

impl DebugTrap {
    /// Makes a request of DBG_TRAP on the own process.
    fn trap<A: Operation>(kernel: &dyn Kernel, operation: &A, outcome: &mut Outcome) -> Result<i32, Errno> {
        let result = kernel.call(&mut operation.on(std::process::id()));
        outcome.request(&result);
        result
    }

    /// Begins the session. A descriptor is asked for but nothing is told to it, as no exception is enabled.
    fn begin(&mut self, kernel: &dyn Kernel, outcome: &mut Outcome) -> bool {
        if !self.session {
            let mut info = debug::RuntimeInfo::default();
            // SAFETY: makes a descriptor or fails.
            let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            let enable = debug::Enable {
                rinfo_ptr: (&raw mut info) as u64,
                rinfo_size: size_of::<debug::RuntimeInfo>() as u32,
                dbg_fd: descriptor.cast_unsigned(),
                ..Default::default()
            };
            self.session = Self::trap(kernel, &enable, outcome).is_ok();
            // SAFETY: ours, and the driver has a reference of its own.
            unsafe { libc::close(descriptor) };
        }
        self.session
    }

    /// Tells the driver that the queues there are known: it suspends no new one.
    fn look(kernel: &dyn Kernel, outcome: &mut Outcome) {
        let count = 1024;
        let mut entries = vec![debug::QueueEntry::default(); count];
        let snapshot = debug::QueueSnapshot {
            exception_mask: debug::exception_bit(debug::EC_QUEUE_NEW),
            snapshot_buf_ptr: entries.as_mut_ptr() as u64,
            num_queues: count as u32,
            entry_size: size_of::<debug::QueueEntry>() as u32,
        };
        let _ = Self::trap(kernel, &snapshot, outcome);
    }

    /// Suspends or resumes; `None` if the request itself failed.
    fn change(kernel: &dyn Kernel, suspend: bool, ids: &[u32], outcome: &mut Outcome) -> Option<Vec<u32>> {
        let mut array = ids.to_vec();
        let (queue_array_ptr, num_queues) = (array.as_mut_ptr() as u64, array.len() as u32);
        let result = if suspend {
            let all =
                debug::SuspendQueues { exception_mask: 0, queue_array_ptr, num_queues, grace_period: 0 };
            Self::trap(kernel, &all, outcome)
        } else {
            let all = debug::ResumeQueues { queue_array_ptr, num_queues, pad: 0 };
            Self::trap(kernel, &all, outcome)
        };
        result.is_ok().then_some(array)
    }
}

impl Mechanism for DebugTrap {
    fn kind(&self) -> Kind {
        Kind::DebugTrap
    }

    fn merges(&self) -> bool {
        false
    }

    fn needs_runtime(&self) -> bool {
        true
    }

    fn apply(&mut self, kernel: &dyn Kernel, queues: &mut [&mut Queue], outcome: &mut Outcome) {
        for suspend in [false, true] {
            for attempt in 0..ATTEMPTS {
                let due =
                    |queue: &&mut Queue| queue.arbiter.held() == suspend && queue.suspended != Some(suspend);
                let ids: Vec<u32> =
                    queues.iter_mut().filter(|queue| due(queue)).map(|queue| queue.id).collect();
                if ids.is_empty() {
                    break;
                }
                if !self.begin(kernel, outcome) {
                    return;
                }
                if suspend && attempt == 0 {
                    Self::look(kernel, outcome);
                }
                let back = Self::change(kernel, suspend, &ids, outcome);
                for (i, id) in ids.iter().enumerate() {
                    let Some(queue) = queues.iter_mut().find(|queue| queue.id == *id) else { continue };
                    queue.suspended = match back.as_ref().map(|back| fate(back[i])) {
                        Some(Fate::Done) => Some(suspend),
                        Some(Fate::Invalid) => queue.suspended,
                        Some(Fate::Failed) => {
                            outcome.error = Some(Errno(libc::EIO));
                            None
                        }
                        None => None,
                    };
                }
            }
        }
    }

    fn state(&self, queue: &Queue) -> Option<bool> {
        let held = queue.arbiter.held();
        (queue.suspended == Some(held)).then_some(held)
    }

    fn end(&mut self, kernel: &dyn Kernel) -> bool {
        let mut outcome = Outcome::default();
        if self.session && Self::trap(kernel, &debug::Disable::default(), &mut outcome).is_ok() {
            self.session = false;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_with_their_fate() {
        assert_eq!(fate(7), Fate::Done);
        assert_eq!(fate(7 | QUEUE_INVALID), Fate::Invalid);
        assert_eq!(fate(7 | QUEUE_ERROR), Fate::Failed);
        assert_eq!(fate(7 | QUEUE_ERROR | QUEUE_INVALID), Fate::Failed);
    }
}
