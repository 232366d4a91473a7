//! How long it takes from a store of one client's readiness to the store of another one's permission: `cargo
//! bench -p xserver --bench way`. The design wants a p99 below 20 µs on an otherwise idle machine.
//!
//! The client waits by looking at its page again and again, so it needs a CPU, and the server another one.
//! Under `cargo test` it runs a few rounds only.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::spin_loop;
use std::time::{Duration, Instant};
use support::{Client, Running, wait_for};

fn main() {
    let rounds = if std::env::args().any(|word| word == "--bench") { 10_000 } else { 100 };
    // One process has 64 connections at most.
    for others in [0, 8, 60] {
        let server = Running::new();
        let mut low = Client::with_queue(&server.path, "low", 0);
        let mut high = Client::with_queue(&server.path, "high", 10);
        // Idle ones, which every decision looks at.
        let idle: Vec<_> = (0..others).map(|_| Client::with_queue(&server.path, "idle", 5)).collect();
        wait_for("all queues", || {
            let clients = server.list().clients;
            clients.len() == others + 2 && clients.iter().all(|client| client.queues.len() == 1)
        });
        low.ready(0);
        let (mut stops, mut resumes) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            // The server sleeps by now, as it does when a client turns ready.
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(100) {
                spin_loop();
            }
            stops.push(timed(|| high.ready(0), || !low.runs()));
            resumes.push(timed(|| high.idle(0), || low.runs()));
        }
        println!("{others} idle clients besides");
        say("ready to the other's suspension", &mut stops);
        say("idle to the other's resumption (with a linger of 200 µs)", &mut resumes);
        drop(idle);
    }
}

fn timed(act: impl FnOnce(), is_so: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    act();
    while !is_so() {
        spin_loop();
    }
    start.elapsed()
}

fn say(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 1_000].as_nanos() as f64 / 1e3;
    println!("  {what}: p50 {:.1} µs, p90 {:.1} µs, p99 {:.1} µs", at(500), at(900), at(990));
}
