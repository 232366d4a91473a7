//! The chaos test mode: submissions suspend their queue at random, the watcher resumes it at random.

use crate::config::TestMode;
use crate::permission::QueuePermission;
use crate::state::queue::XQueue;
use crate::sync::Ordering;

impl XQueue {
    /// Suspends the queue at random after an append; always after the first one.
    pub(crate) fn chaos_step(&self, deferred: u64) {
        if !matches!(self.core.config.test, TestMode::Chaos(_)) || !self.core.watcher.is_running() {
            return;
        }
        let mut seed = self.chaos.load(Ordering::Relaxed);
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        self.chaos.store(seed, Ordering::Relaxed);
        if deferred == 1 || seed.is_multiple_of(8) {
            self.state.permission.set(QueuePermission::CHAOS, true);
            self.note_permission();
            self.core.arm_watcher();
        }
    }

    /// Resumes the queue at one check of the watcher in eight.
    pub(crate) fn chaos_release(&self) {
        if self.state.permission.has(QueuePermission::CHAOS) {
            let mut seed = self.chaos.load(Ordering::Relaxed);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) | 1;
            self.chaos.store(seed, Ordering::Relaxed);
            if (seed >> 32).is_multiple_of(8) {
                self.state.permission.set(QueuePermission::CHAOS, false);
                self.note_permission();
                self.wake();
            }
        }
    }
}
