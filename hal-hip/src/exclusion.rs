//! What must not happen at the same time inside the runtime: a deferred kernel launch, and a call for a graph that sets a
//! kernel's arguments.
//!
//! Before 6.3 a kernel's arguments pass through a buffer of the kernel's own. A plain launch holds the kernel's lock for it
//! (CLR `hipamd/src/hip_module.cpp`, `dflock_`); the launch of a graph, a launch that is captured and the functions that
//! describe kernel nodes do not. A program of one thread never meets that; its launches that a worker makes would. What
//! a program's own threads do at the same time is left as it is; while a graph's launch is pending none of them launches
//! directly (docs/adr/0013).

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static INSIDE: RwLock<()> = RwLock::new(());

/// Held while a worker is inside a launch function of the runtime.
pub fn launching() -> RwLockReadGuard<'static, ()> {
    INSIDE.read()
}

/// Held while a call for a graph sets a kernel's arguments. Waits for the workers that are inside the runtime, and for
/// nothing that is pending.
pub fn setting_arguments() -> RwLockWriteGuard<'static, ()> {
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
        let graph = setting_arguments();
        assert!(INSIDE.try_read().is_none());
        drop(graph);
        drop(launching());
    }
}
