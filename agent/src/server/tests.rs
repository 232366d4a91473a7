//! Tests of the client against a server in the test, which may send anything.

mod client;
mod endpoint;
mod handshake;
mod trace;

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The time after which a wait counts as hung.
const HANG: Duration = Duration::from_secs(20);

/// Waits until a condition holds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "{what}: not within {HANG:?}");
        std::thread::yield_now();
    }
}

/// Serializes the tests: descriptors belong to the process, and one test closes those of the client.
static ALONE: Mutex<()> = Mutex::new(());
