//! `DBG_TRAP` on the own process: one request for all queues, independent of the percentage, so that the
//! runtime's updates do not undo it. It needs ABI 1.13, hardware scheduling, an enabled runtime, and a
//! process that no debugger debugs. A suspended queue cannot be destroyed.

use super::{ATTEMPTS, Mechanism, MechanismKind};
use crate::kernel::{Errno, Kernel};
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::session::{self, SuspendStatus};

/// The mechanism, with its debug session.
#[derive(Debug, Default)]
pub struct DebugTrap {
    /// True while a session of ours is open.
    session: bool,
}

impl DebugTrap {
    /// Begins the session if there is none. Returns true if there is one.
    fn begin(&mut self, kernel: &dyn Kernel, outcome: &mut Outcome) -> bool {
        if !self.session {
            let result = outcome.request(|| session::begin(kernel, std::process::id()));
            self.session = result.is_ok();
        }
        self.session
    }
}

impl Mechanism for DebugTrap {
    fn kind(&self) -> MechanismKind {
        MechanismKind::DebugTrap
    }

    fn apply(&mut self, kernel: &dyn Kernel, queues: &mut [&mut Queue], outcome: &mut Outcome) {
        let me = std::process::id();
        for suspend in [false, true] {
            for attempt in 0..ATTEMPTS {
                let due = |queue: &Queue| queue.arbiter.held() == suspend && queue.suspended != Some(suspend);
                let ids: Vec<u32> = queues.iter().filter(|queue| due(queue)).map(|queue| queue.id).collect();
                if ids.is_empty() {
                    break;
                }
                let begun = !self.session;
                if !self.begin(kernel, outcome) {
                    return;
                }
                if suspend && (attempt == 0 || begun) {
                    // The driver suspends only queues that a snapshot has shown to the debugger.
                    let _ = outcome.request(|| session::queues(kernel, me));
                }
                let result = outcome.request(|| {
                    if suspend {
                        session::suspend(kernel, me, &ids)
                    } else {
                        session::resume(kernel, me, &ids)
                    }
                });
                if matches!(result, Err(Errno(libc::EINVAL))) {
                    // Another process has ended the session; the next attempt begins a new one.
                    self.session = false;
                }
                let mut hung = false;
                for (i, id) in ids.iter().enumerate() {
                    let Some(queue) = queues.iter_mut().find(|queue| queue.id == *id) else { continue };
                    queue.suspended = match result.as_ref().map(|fates| fates[i]) {
                        Ok(SuspendStatus::Done) => Some(suspend),
                        Ok(SuspendStatus::Invalid) => queue.suspended,
                        Ok(SuspendStatus::Failed) => {
                            hung = true;
                            None
                        }
                        Err(_) => None,
                    };
                }
                if hung {
                    // The driver reports no more than this: `execute_queues_cpsch` failed for a whole device.
                    // Its queues could not be evicted in time, and the device is being reset.
                    outcome.error = Some(Errno(libc::ETIME));
                    break;
                }
            }
        }
    }

    fn state(&self, queue: &Queue) -> Option<bool> {
        let held = queue.arbiter.held();
        (queue.suspended == Some(held)).then_some(held)
    }

    fn end(&mut self, kernel: &dyn Kernel) -> bool {
        // EINVAL: another process has ended it.
        let ended = self.session
            && matches!(session::end(kernel, std::process::id()), Ok(()) | Err(Errno(libc::EINVAL)));
        self.session &= !ended;
        ended
    }
}
