//! `XSCHED_TEST=chaos:SEED`: suspends and resumes the whole process at random, and evicts its queues
//! meanwhile.

use crate::shared::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xqueue::{Domain, Permission};

/// The longest time of running, in microseconds.
const RUN: u64 = 400;
/// The longest time of being suspended, in microseconds.
const SUSPENDED: u64 = 1_500;

/// Starts the thread, which ends with the process.
pub(crate) fn start(domain: &'static Domain, shared: &Arc<Shared>, seed: u64) {
    let shared = shared.clone();
    shared.evictor.evict_always();
    let thread = std::thread::Builder::new().name("giveway-chaos".into());
    if let Err(error) = thread.spawn(move || run(domain, &shared, seed)) {
        tracing::error!(%error, "cannot start the thread of XSCHED_TEST=chaos: nothing is suspended");
    }
}

fn run(domain: &Domain, shared: &Shared, seed: u64) {
    let host = shared.preemption.host();
    host.adopt_thread();
    host::signals::block_all();
    let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut up_to = |micros: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        Duration::from_micros(seed % micros)
    };
    let step = || shared.evictor.step(domain, &shared.link);
    let mut generation = 0;
    while !shared.evictor.has_ended() && host.is_current(domain) {
        generation += 1;
        domain.store_permission(Permission::new(generation, false, true, 3));
        let end = Instant::now() + up_to(SUSPENDED);
        loop {
            let again = step();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(again.unwrap_or(left).min(left));
        }
        domain.store_permission(Permission::unlimited());
        // Repeated until queues whose restoring failed are restored as well.
        while step().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(up_to(RUN));
    }
}
