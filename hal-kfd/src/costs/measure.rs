//! The measurement of the costs on a queue of this process.

use std::time::Duration;

use super::trial::Cost;
use crate::capabilities::{Refusal, check_saves_waves};
use crate::kernel::Kernel;
use crate::registry::Registry;

/// The number of evictions and restorations of a measurement.
const ROUNDS: usize = 8;
/// The multiple of the limit at which a single duration ends the measurement.
const OUTLIER: u32 = 10;

/// Evicts and restores a queue of this process several times. While kernels run on the device, the costs
/// include the saving of their waves. The caller runs one measurement at a time.
///
/// # Errors
/// A request failed; the median duration exceeded `limit`, or one duration exceeded it tenfold; or, with
/// `cwsr`, the driver does not return the saved state of the evicted queue, so that it saves none. In each
/// case the queue is restored, or [`Registry::reconcile`] sends the request again.
pub fn measure(
    registry: &Registry,
    kernel: &dyn Kernel,
    queue: u32,
    limit: Duration,
    cwsr: bool,
) -> Result<Cost, Refusal> {
    let mut times = [Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS)];
    for _ in 0..ROUNDS {
        for (evict, times) in [true, false].into_iter().zip(&mut times) {
            let outcome = registry.set_for_measurement(queue, evict);
            let verdict = match outcome.error {
                Some(errno) => Err(Refusal::Failed(errno)),
                // A busy machine can exceed the limit once, but not that far.
                None if outcome.took > limit * OUTLIER => Err(Refusal::TooSlow(outcome.took)),
                None if evict && cwsr => check_saves_waves(registry, kernel, queue),
                None => Ok(()),
            };
            if let Err(refusal) = verdict {
                registry.set_for_measurement(queue, false);
                return Err(refusal);
            }
            times.push(outcome.took);
        }
    }
    let [hold, release] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let longer = hold.max(release);
    if longer > limit { Err(Refusal::TooSlow(longer)) } else { Ok(Cost { hold, release }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Failure, FakeKernel};
    use crate::kernel::Errno;
    use crate::mechanism::MechanismKind;
    use hip_sys::kfd::{self, Ioctl as _, Plain as _};
    use std::sync::Arc;

    #[test]
    fn measured_queue_is_always_restored() {
        let kernel = Arc::new(FakeKernel::default());
        let registry = Registry::new(kernel.clone(), MechanismKind::UpdateQueue);
        let create = kfd::CreateQueue {
            queue_percentage: 100,
            queue_type: kfd::QUEUE_TYPE_COMPUTE_AQL,
            ctx_save_restore_address: 0x1000,
            ..Default::default()
        };
        let made = registry.intercept(&*kernel, kfd::CreateQueue::COMMAND, &mut create.as_bytes().to_vec());
        made.unwrap().unwrap();
        let long = Duration::from_secs(60);
        let cost = measure(&registry, &*kernel, 0, long, true).unwrap();
        assert!(!cost.hold.is_zero() && !cost.release.is_zero());
        assert_eq!(kernel.asked().iter().filter(|nr| **nr == 0x07).count(), 2 * ROUNDS);
        assert!(kernel.runs(0));
        assert!(matches!(measure(&registry, &*kernel, 0, Duration::ZERO, true), Err(Refusal::TooSlow(_))));
        assert!(kernel.runs(0));
        kernel.fail([None, Some(Failure { errno: libc::EINVAL, after: false })]);
        assert_eq!(measure(&registry, &*kernel, 0, long, true), Err(Refusal::NoCwsr));
        assert!(kernel.runs(0));
        kernel.fail([Some(Failure { errno: libc::EIO, after: false })]);
        assert_eq!(measure(&registry, &*kernel, 0, long, true), Err(Refusal::Failed(Errno(libc::EIO))));
        assert!(kernel.runs(0));
        // A measurement does not resume a queue that a user has suspended.
        registry.suspend_for(1, Some(&[0])).unwrap();
        measure(&registry, &*kernel, 0, long, true).unwrap();
        assert!(!kernel.runs(0));
        assert!(matches!(measure(&registry, &*kernel, 5, long, true), Err(Refusal::Failed(_))));
    }
}
