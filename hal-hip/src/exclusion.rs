//! Mutual exclusion of calls that must not overlap inside the runtime. In a program with one thread they
//! never overlap. The library's workers could make them overlap, because they make deferred calls on threads
//! of their own.
//!
//! **A deferred kernel launch, and a call for a graph that sets a kernel's arguments.** Before 6.3 a kernel's
//! arguments pass through a buffer of the kernel. A plain launch holds the kernel's lock for it (CLR
//! `hipamd/src/hip_module.cpp`, `dflock_`). The launch of a graph, a captured launch and the functions that
//! describe kernel nodes do not. Calls of the program's own threads are not kept apart from each other; while
//! a graph's launch is pending none of them launches directly (docs/adr/0013).
//!
//! **A deferred call that reads other streams, and the end of a stream.** A wait for an event reads the
//! stream of its record, and a call on a default stream reads all blocking streams (CLR `Event::streamWait`,
//! `processWaitlist`). 7.2.4 reads freed memory if one of these streams ends meanwhile.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static LAUNCHES: RwLock<()> = RwLock::new(());
static STREAMS: RwLock<()> = RwLock::new(());
/// True if a reader has waited for the present end of a stream without success.
static END_IS_LONG: AtomicBool = AtomicBool::new(false);
/// The longest wait of one side for the other. The end of a stream may wait for the stream's work, so the
/// wait is bounded.
const PATIENCE: Duration = Duration::from_millis(20);

/// Locks for a worker that is about to enter a launch function of the runtime.
pub fn launching() -> RwLockReadGuard<'static, ()> {
    LAUNCHES.read()
}

/// Locks for a call for a graph that sets a kernel's arguments. Waits for the workers that are inside the
/// runtime, and for nothing that is pending.
pub fn lock_graph_arguments() -> RwLockWriteGuard<'static, ()> {
    LAUNCHES.write()
}

/// Locks for a worker's call that reads other streams. None if the end of a stream takes long: the call is
/// made beside it.
pub fn reading_streams() -> Option<RwLockReadGuard<'static, ()>> {
    if END_IS_LONG.load(Ordering::Relaxed) {
        return STREAMS.try_read();
    }
    let reading = STREAMS.try_read_for(PATIENCE);
    if reading.is_none() {
        END_IS_LONG.store(true, Ordering::Relaxed);
    }
    reading
}

/// Locks for the end of a stream. None if a reader is inside the runtime for long: the stream ends beside it.
pub fn lock_stream_end() -> Option<RwLockWriteGuard<'static, ()>> {
    let ending = STREAMS.try_write_for(PATIENCE);
    if ending.is_some() {
        // The length of this end is not known yet.
        END_IS_LONG.store(false, Ordering::Relaxed);
    }
    ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_and_the_end_of_a_stream_wait_for_each_other_within_a_bound() {
        let ending = lock_stream_end();
        assert!(ending.is_some());
        assert!(reading_streams().is_none(), "a long end does not block readers for ever");
        assert!(END_IS_LONG.load(Ordering::Relaxed), "and the next reader does not wait for it again");
        drop(ending);
        let both = (reading_streams(), reading_streams());
        assert!(both.0.is_some() && both.1.is_some(), "readers do not exclude each other");
        assert!(lock_stream_end().is_none(), "a long read does not block the end of a stream for ever");
        drop(both);
        let ending = lock_stream_end();
        assert!(ending.is_some() && !END_IS_LONG.load(Ordering::Relaxed), "readers wait for the next end");
    }

    #[test]
    fn graph_and_launch_exclude_each_other_and_launches_do_not() {
        let one = launching();
        let other = launching();
        assert!(LAUNCHES.try_write().is_none());
        drop((one, other));
        let graph = lock_graph_arguments();
        assert!(LAUNCHES.try_read().is_none());
        drop(graph);
        drop(launching());
    }
}
