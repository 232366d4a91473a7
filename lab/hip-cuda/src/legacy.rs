//! Which devices' default streams may have work that no call has waited for.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// One device's default stream.
#[derive(Debug)]
struct Uses {
    /// Counts the uses: once before and once after each call, because either may come before another thread's wait.
    made: AtomicU64,
    /// Uses up to this number have completed.
    waited: AtomicU64,
}

/// The maximum number of devices.
const DEVICES: usize = 64;
static USES: [Uses; DEVICES] =
    [const { Uses { made: AtomicU64::new(0), waited: AtomicU64::new(0) } }; DEVICES];

thread_local! {
    /// The device whose default stream the thread's current call uses.
    static IN_CALL: Cell<Option<c_int>> = const { Cell::new(None) };
}

fn of(device: c_int) -> &'static Uses {
    &USES[usize::try_from(device).unwrap_or(0) % DEVICES]
}

/// Notes that the current call may submit work.
pub(crate) fn used(device: c_int) {
    of(device).made.fetch_add(1, Ordering::AcqRel);
    IN_CALL.set(Some(device));
}

/// Notes that the current call ends: what it has submitted counts for every later wait.
pub(crate) fn call_ends() {
    if let Some(device) = IN_CALL.take() {
        of(device).made.fetch_add(1, Ordering::AcqRel);
    }
}

/// Returns the number of uses so far. A call reads it before it waits.
pub(crate) fn uses(device: c_int) -> u64 {
    of(device).made.load(Ordering::Acquire)
}

/// Notes that the current call has seen the stream idle after that many uses, and has submitted nothing since.
pub(crate) fn waited(device: c_int, uses: u64) {
    of(device).waited.fetch_max(uses, Ordering::AcqRel);
    IN_CALL.set(None);
}

/// Returns true if the stream may have work.
pub(crate) fn is_busy(device: c_int) -> bool {
    let uses = of(device);
    uses.waited.load(Ordering::Acquire) < uses.made.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_another_thread_stays_noted() {
        // A call waits while another thread's call submits work, before or after the stream was seen idle.
        for device in [61, 62] {
            let seen = uses(device);
            std::thread::spawn(move || {
                used(device);
                call_ends();
            })
            .join()
            .unwrap();
            waited(device, seen);
            assert!(is_busy(device));
        }
        waited(61, uses(61));
        assert!(!is_busy(61) && is_busy(62), "each device has its own");
    }

    #[test]
    fn a_call_that_began_before_the_wait_counts_at_its_end() {
        used(63);
        let seen = uses(63);
        std::thread::spawn(move || waited(63, seen)).join().unwrap();
        call_ends();
        assert!(is_busy(63));
    }
}
