//! Faults on purpose: whether the random programs find a broken order (docs/random-programs.md), and ThreadSanitizer a race
//! (docs/races.md). Only there with the feature `broken-order`, which no optimized build accepts.

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is broken, by the variable `XSCHED_BROKEN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The default stream and the blocking ones do not wait for each other.
    DefaultStream,
    /// Waits for events do not wait for a deferred record.
    Events,
    /// Now and then two commands of one queue change places.
    Swap,
    /// Frees and the like do not wait for what is deferred.
    Drain,
    /// Now and then the last argument of a deferred launch is not copied.
    Argument,
    /// Submitting threads and the worker write a word without any order.
    Race,
}

/// Whether this is what the variable names.
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

/// The same, one time in eight.
pub fn is_now(fault: Fault) -> bool {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    is(fault) && TIMES.fetch_add(1, Ordering::Relaxed) % 8 == 7
}

/// Counts without any order, if that is the fault.
pub(crate) fn count_unordered() {
    struct Count(UnsafeCell<u64>);
    // SAFETY: there is no reason why it could be shared: that is the fault.
    unsafe impl Sync for Count {}
    static COUNT: Count = Count(UnsafeCell::new(0));
    if is(Fault::Race) {
        // SAFETY: as above; a torn or lost count harms nobody, because nobody reads it.
        unsafe { *COUNT.0.get() += 1 };
    }
}
