//! Deliberate faults, to show that the random programs find a broken order (docs/random-programs.md) and that
//! ThreadSanitizer finds a race (docs/races.md). They need the feature `broken-order`, which no optimized
//! build accepts.

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fault, named by the variable `XSCHED_BROKEN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The default stream and the blocking ones do not wait for each other.
    DefaultStream,
    /// Waits for events do not wait for a deferred record.
    Events,
    /// Sometimes two commands of one queue change places.
    Swap,
    /// Frees and other draining calls do not wait for deferred commands.
    Drain,
    /// Sometimes the last argument of a deferred launch is not copied.
    Argument,
    /// Submitting threads and the worker write a word without synchronisation.
    Race,
}

/// Returns true if the variable names this fault.
pub fn is(fault: Fault) -> bool {
    static NAMED: OnceLock<Option<Fault>> = OnceLock::new();
    let named = NAMED.get_or_init(|| match std::env::var("XSCHED_BROKEN").ok()?.as_str() {
        "default-stream" => Some(Fault::DefaultStream),
        "events" => Some(Fault::Events),
        "swap" => Some(Fault::Swap),
        "drain" => Some(Fault::Drain),
        "argument" => Some(Fault::Argument),
        "race" => Some(Fault::Race),
        _ => None,
    });
    *named == Some(fault)
}

/// Returns true if the variable names this fault, at one call in eight.
pub fn is_now(fault: Fault) -> bool {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    is(fault) && TIMES.fetch_add(1, Ordering::Relaxed) % 8 == 7
}

/// Counts without synchronisation, if that is the fault.
pub(crate) fn count_unordered() {
    struct Count(UnsafeCell<u64>);
    // SAFETY: none, it must not be shared: that is the deliberate fault.
    unsafe impl Sync for Count {}
    static COUNT: Count = Count(UnsafeCell::new(0));
    if is(Fault::Race) {
        // SAFETY: none, the write races: that is the deliberate fault. The count is never read, so a torn one
        // has no effect.
        unsafe { *COUNT.0.get() += 1 };
    }
}
