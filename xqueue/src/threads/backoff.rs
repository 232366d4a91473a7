//! Pauses between two checks of something that sends no notification.

use std::time::Duration;

use crate::sync::{Key, Signal, now, spin_hint};

/// The length of the first step, which spins.
pub(crate) const SPIN: Duration = Duration::from_micros(2);
/// Spin hints between two reads of the clock.
const HINTS: u32 = if cfg!(loom) { 1 } else { 8 };
/// The sleeps that follow, in microseconds; the last one repeats.
pub(crate) const SLEEPS: [u64; 3] = [20, 50, 100];

/// A sequence of growing pauses.
#[derive(Debug)]
pub(crate) struct Backoff(usize);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(0)
    }

    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }

    /// Pauses; a notification after `key` ends a sleep early.
    pub(crate) fn wait(&mut self, signal: &Signal, key: Key) {
        match self.0 {
            0 => spin(),
            step => {
                let sleep = SLEEPS[(step - 1).min(SLEEPS.len() - 1)];
                signal.wait_at_most(key, Duration::from_micros(sleep));
            }
        }
        self.0 += 1;
    }
}

/// Spins for [`SPIN`]. The clock decides, because the length of a spin hint differs tenfold between
/// processors.
pub(crate) fn spin() {
    let end = now() + SPIN;
    loop {
        (0..HINTS).for_each(|_| spin_hint());
        if now() >= end {
            return;
        }
    }
}
