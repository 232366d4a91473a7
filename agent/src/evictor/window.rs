//! How much a process may have in flight while evictions interrupt its kernels (ADR 17).
//!
//! What is in flight delays no other process then, as long as evictions succeed and cost little. The wider the
//! window, the less the device waits for the host. An eviction that fails, or a suspension that waits, leaves
//! the whole of it to run.

use std::time::Duration;

/// The window until an eviction has succeeded, and while evictions are expensive.
pub(super) const NARROW: Duration = Duration::from_millis(1);
/// The window otherwise. A failed eviction delays the urgent program by so much, once.
const WIDE: Duration = Duration::from_millis(30);
/// The most that evicting and restoring may cost for the wide window. Otherwise a suspension may rather wait
/// for what is in flight.
const CHEAP: Duration = Duration::from_millis(1);
/// The suspensions that must evict after one that did not.
const AFTER_FAILURE: u32 = 64;

/// What is known of the evictions of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// True while evictions interrupt kernels: level 3 is in force.
    interrupts: bool,
    /// The suspensions that must evict before the window is wide.
    missing: u32,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { interrupts: false, missing: 1 }
    }

    pub(super) fn set_interrupts(&mut self, interrupts: bool) {
        self.interrupts = interrupts;
    }

    /// Notes a suspension that has evicted, or that could not or rather waited for long.
    pub(super) fn note(&mut self, evicted: bool) {
        self.missing = if evicted { self.missing.saturating_sub(1) } else { AFTER_FAILURE };
    }

    /// Returns the estimated time that every queue may have in flight at least; zero leaves it to the library.
    /// `cost` is that of evicting and restoring.
    pub(super) fn least(&self, cost: Option<Duration>) -> Duration {
        match self.interrupts {
            false => Duration::ZERO,
            true if self.missing == 0 && cost.is_some_and(|cost| cost <= CHEAP) => WIDE,
            true => NARROW,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_wide_while_evictions_succeed_and_cost_little() {
        let mut window = Window::new();
        assert_eq!(window.least(Some(CHEAP)), Duration::ZERO, "level 1");
        window.set_interrupts(true);
        assert_eq!(window.least(Some(CHEAP)), NARROW, "no eviction was seen");
        window.note(true);
        assert_eq!(window.least(Some(CHEAP)), WIDE);
        assert_eq!(window.least(Some(CHEAP + Duration::from_nanos(1))), NARROW);
        assert_eq!(window.least(None), NARROW);
        window.set_interrupts(false);
        assert_eq!(window.least(Some(CHEAP)), Duration::ZERO);
    }

    #[test]
    fn failure_is_forgotten_after_many_evictions() {
        let mut window = Window::new();
        window.set_interrupts(true);
        window.note(true);
        window.note(false);
        for _ in 1..AFTER_FAILURE {
            window.note(true);
            assert_eq!(window.least(Some(CHEAP)), NARROW);
        }
        window.note(true);
        assert_eq!(window.least(Some(CHEAP)), WIDE);
    }
}
