//! The counts of calls of each class through the hooks, and the line that shows them at the end of the
//! process.
//!
//! A thread counts in a block of its own, without a locked instruction, and the block outlives it. Threads
//! that find every block taken share the last one, with atomic additions. The counts are statistics: nothing
//! depends on them.

use interception::Class;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const BLOCKS: usize = 64;
/// The shared block, as an index plus one.
const SHARED: u32 = BLOCKS as u32;

/// The classes in the order of the line, with their names in it.
const CLASSES: [(Class, &str); 12] = [
    (Class::Launch, "launch"),
    (Class::Copy, "copy"),
    (Class::Memset, "memset"),
    (Class::Memory, "memory"),
    (Class::Event, "event"),
    (Class::Sync, "sync"),
    (Class::Query, "query"),
    (Class::Capture, "capture"),
    (Class::Graph, "graph"),
    (Class::Lifecycle, "lifecycle"),
    (Class::Resolve, "resolve"),
    (Class::Error, "error"),
];

/// One thread's counters, on cache lines that no other thread writes.
#[repr(align(128))]
struct Block([AtomicU64; Class::Passthrough as usize + 1]);

static COUNTERS: [Block; BLOCKS] =
    [const { Block([const { AtomicU64::new(0) }; Class::Passthrough as usize + 1]) }; BLOCKS];

/// The number of blocks given to threads.
static ASSIGNED: AtomicU32 = AtomicU32::new(0);

/// Gives the calling thread a block, as an index plus one.
#[cold]
pub(crate) fn assign() -> u32 {
    ASSIGNED.fetch_add(1, Ordering::Relaxed).saturating_add(1).min(SHARED)
}

/// Adds one to a counter of the block that [`assign`] gave to the calling thread.
#[inline(always)]
pub(crate) fn add(block: u32, class: Class) {
    let Some(counter) =
        COUNTERS.get(block.wrapping_sub(1) as usize).and_then(|block| block.0.get(class as usize))
    else {
        return;
    };
    if block == SHARED {
        counter.fetch_add(1, Ordering::Relaxed);
    } else {
        // Only this thread writes, so no count is lost between the load and the store.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Returns the count of a class in the block that [`assign`] gave to the calling thread; `None` if the block
/// is shared.
pub(crate) fn of(block: u32, class: Class) -> Option<u64> {
    let counters = COUNTERS.get(block.wrapping_sub(1) as usize).filter(|_| block != SHARED)?;
    counters.0.get(class as usize).map(|counter| counter.load(Ordering::Relaxed))
}

/// Clears all counts, which a forked child inherits from its parent.
pub(crate) fn clear() {
    for block in &COUNTERS {
        for counter in &block.0 {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

fn total(class: Class) -> u64 {
    COUNTERS
        .iter()
        .filter_map(|block| block.0.get(class as usize))
        .fold(0, |sum, counter| sum.wrapping_add(counter.load(Ordering::Relaxed)))
}

/// All counts, as `launch=3 copy=0 ...`.
struct Totals;

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (class, name)) in CLASSES.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{name}={}", total(*class))?;
        }
        Ok(())
    }
}

pub(crate) fn log() {
    tracing::debug!("calls {Totals}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_from_many_threads_loses_no_count() {
        const CALLS: u64 = 1000;
        let before = total(Class::Capture);
        let threads: Vec<_> = (0..BLOCKS + 10)
            .map(|_| {
                std::thread::spawn(|| {
                    let block = assign();
                    for _ in 0..CALLS {
                        add(block, Class::Capture);
                    }
                })
            })
            .collect();
        let threads: Vec<_> = threads.into_iter().map(|thread| thread.join().is_ok()).collect();
        assert!(threads.iter().all(|&done| done));
        assert_eq!(total(Class::Capture) - before, CALLS * threads.len() as u64);
        assert!(Totals.to_string().contains(" capture="), "{Totals}");
    }

    #[test]
    fn every_class_but_the_one_that_never_comes_has_a_name() {
        let named: Vec<_> = CLASSES.iter().map(|(class, _)| *class).collect();
        for function in interception::FUNCTIONS.iter().filter(|function| function.is_exported()) {
            assert!(named.contains(&function.class), "{}: {:?}", function.name, function.class);
        }
    }
}
