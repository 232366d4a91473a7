//! What must not happen at the same time inside the runtime: a deferred kernel launch and the launch of a graph.
//!
//! Before 6.0 the launch of a graph sets a kernel's arguments in the kernel's own buffer without the lock that a plain
//! launch of the same kernel holds (CLR `hipamd/src/hip_graph_internal.hpp`: later releases take `dflock_` there). A
//! program of one thread never meets that; its launches that a worker makes would. What a program's own threads do at
//! the same time is left as it is.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static INSIDE: RwLock<()> = RwLock::new(());

/// Held while a worker is inside a launch function of the runtime.
pub(crate) fn launching() -> RwLockReadGuard<'static, ()> {
    INSIDE.read()
}

/// Held while a graph is launched. Waits for the workers that are inside the runtime, and for nothing that is pending.
pub fn graph_launch() -> RwLockWriteGuard<'static, ()> {
    INSIDE.write()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_and_a_launch_exclude_each_other_and_launches_do_not() {
        let one = launching();
        let other = launching();
        assert!(INSIDE.try_write().is_none());
        drop((one, other));
        let graph = graph_launch();
        assert!(INSIDE.try_read().is_none());
        drop(graph);
        drop(launching());
    }
}
