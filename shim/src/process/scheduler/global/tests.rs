//! The client against a server of the test's own making, which says and sends what it likes.

mod client;
mod handshake;
mod server;

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as hung.
const HANG: Duration = Duration::from_secs(20);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "hang: {what}");
        std::thread::yield_now();
    }
}

/// Descriptors are the process's, and one test closes those of the client: one at a time.
static ALONE: Mutex<()> = Mutex::new(());
