//! `UPDATE_QUEUE`: percentage 0 evicts a queue, the percentage that the runtime set restores it. Needs no
//! rights and works with every version of the driver, with one request for each queue.

use std::collections::BTreeSet;

use super::{ATTEMPTS, Mechanism, MechanismKind};
use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::outcome::Outcome;
use crate::queue::Queue;

/// The mechanism, which has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateQueue;

impl Mechanism for UpdateQueue {
    fn kind(&self) -> MechanismKind {
        MechanismKind::UpdateQueue
    }

    fn apply(&mut self, kernel: &dyn Kernel, queues: &mut [&mut Queue], outcome: &mut Outcome) {
        let mut lost = BTreeSet::new();
        for queue in queues {
            for _ in 0..ATTEMPTS {
                if lost.contains(&queue.gpu_id) {
                    break;
                }
                let Some(next) = queue.arbiter.next() else { break };
                let result = outcome.request(|| kernel.call(&mut next.update(queue.id))).map(|_| ());
                queue.arbiter.answered(next, result);
                // The device is being reset, or lost to this process, and a retry cannot succeed. Other
                // devices work.
                if let Err(Errno(libc::ETIME | libc::EACCES | libc::ENODEV)) = result {
                    lost.insert(queue.gpu_id);
                }
            }
        }
    }

    fn state(&self, queue: &Queue) -> Option<bool> {
        queue.arbiter.settled().then(|| queue.arbiter.held())
    }
}
