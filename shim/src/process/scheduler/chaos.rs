//! A test: the whole process is suspended and resumed at random, and its queues are off the hardware meanwhile.

use super::{Board, block_signals};
use crate::process::{Process, get};
use crate::thread::Thread;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xqueue::Permission;

/// The longest time for which it runs, and is suspended.
const RUN: u64 = 400;
const HELD: u64 = 1_500;

/// Begins, on a thread that ends with the process.
pub(super) fn start(process: &'static Process, board: &Arc<Board>, seed: u64) {
    let board = board.clone();
    board.hold.hold_always();
    let thread = std::thread::Builder::new().name("giveway-chaos".into());
    if let Err(error) = thread.spawn(move || run(process, &board, seed)) {
        tracing::error!(%error, "no chaos: nothing is held");
    }
}

fn run(process: &'static Process, board: &Board, seed: u64) {
    Thread::current().adopt();
    block_signals();
    let mut seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut up_to = |micros: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        Duration::from_micros(seed % micros)
    };
    let domain = &process.domain;
    let mut generation = 0;
    while !board.hold.has_ended() && get().is_some_and(|current| ptr::eq(current, process)) {
        generation += 1;
        domain.store_permission(Permission::new(generation, false, true, 3));
        let end = Instant::now() + up_to(HELD);
        loop {
            let again = board.hold.step(domain, &board.line);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(again.unwrap_or(left).min(left));
        }
        domain.store_permission(Permission::unlimited());
        // Also what could not be released at once.
        while board.hold.step(domain, &board.line).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(up_to(RUN));
    }
}
