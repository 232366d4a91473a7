//! `SET_CU_MASK`: limits queues to some of the compute units, and gives them all back.

use std::collections::BTreeSet;

use hip_sys::kfd;

use super::ATTEMPTS;
use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::units::refuses_mask;

/// Sends the wanted masks of those of these queues that are not evicted.
pub(crate) fn apply(kernel: &dyn Kernel, queues: &mut [&mut Queue], outcome: &mut Outcome) {
    let mut lost = BTreeSet::new();
    for queue in queues {
        for _ in 0..ATTEMPTS {
            if lost.contains(&queue.gpu_id) || queue.arbiter.held() {
                break;
            }
            let Some(mask) = queue.limit.next(&queue.cu_mask) else { break };
            let mut set = kfd::SetCuMask {
                queue_id: queue.id,
                // A device has far fewer than 2^32 units.
                num_cu_mask: 32 * mask.len() as u32,
                cu_mask_ptr: mask.as_ptr() as u64,
            };
            let result = outcome.request(|| kernel.call(&mut set)).map(|_| ());
            queue.limit.answered(mask, result);
            match result {
                // As after an update: no retry can succeed.
                Err(Errno(libc::ETIME | libc::EACCES | libc::ENODEV)) => {
                    lost.insert(queue.gpu_id);
                }
                Err(errno) if !refuses_mask(errno) => queue.arbiter.invalidate(),
                _ => {}
            }
        }
    }
}
