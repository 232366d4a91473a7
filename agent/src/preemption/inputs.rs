//! The inputs of measurements: the process, the requested level, and the server's answer.

use crate::host::Host;
use hal_kfd::Kfd;
use hal_kfd::capabilities::Facts;
use protocol::codes::PreemptLevel;
use protocol::config::{KfdMechanism, KfdProbe, TestMode};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) host: &'static dyn Host,
    /// The deepest requested level.
    requested: AtomicI32,
    /// True once a server has shown the costs that it knows, or none is waited for: other costs are then
    /// measured.
    pub(super) server_answered: AtomicBool,
    /// True if the process's queues are to go before those of other processes.
    first: AtomicBool,
}

impl Inputs {
    pub(super) const fn new(host: &'static dyn Host) -> Self {
        let requested = AtomicI32::new(PreemptLevel::Block.number());
        Self { host, requested, server_answered: AtomicBool::new(false), first: AtomicBool::new(false) }
    }

    pub(super) fn requested(&self) -> PreemptLevel {
        PreemptLevel::from_number(i64::from(self.requested.load(Ordering::Acquire))).unwrap_or_default()
    }

    pub(super) fn set_requested(&self, level: u8) {
        self.requested.store(i32::from(level), Ordering::Release);
    }

    pub(super) fn raise_requested(&self, level: PreemptLevel) {
        self.requested.fetch_max(level.number(), Ordering::AcqRel);
    }

    pub(super) fn has_server_answered(&self) -> bool {
        self.server_answered.load(Ordering::Acquire)
    }

    /// Returns true if the process's queues are to go before those of other processes.
    pub(super) fn is_first(&self) -> bool {
        let by_test = || self.host.config().is_some_and(|config| config.test == Some(TestMode::QueuesFirst));
        self.first.load(Ordering::SeqCst) || by_test()
    }

    /// Sets the place of the process's queues. Returns true if that changes it.
    pub(super) fn set_first(&self, first: bool) -> bool {
        self.first.swap(first, Ordering::SeqCst) != first
    }

    pub(super) fn mechanism(&self) -> Option<KfdMechanism> {
        self.host.config().map(|config| config.kfd_mechanism)
    }

    pub(super) fn probe(&self) -> KfdProbe {
        self.host.config().map_or(KfdProbe::Always, |config| config.kfd_probe)
    }

    /// Returns true if an eviction may wait for running kernels: on a simulated device where exactly that is
    /// requested.
    pub(super) fn drains(&self, facts: &Facts) -> bool {
        facts.simulated && self.requested() == PreemptLevel::Deactivate
    }

    /// Returns the reason why no hardware queue is known.
    pub(super) fn no_queues(&self) -> NoQueues {
        NoQueues { driver: Kfd::exists(), launched: self.host.has_launched() }
    }
}

/// The reason why no hardware queue is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoQueues {
    /// True if the machine has a KFD.
    pub(super) driver: bool,
    /// True if the program has launched anything.
    pub(super) launched: bool,
}

impl NoQueues {
    pub(super) fn why(self) -> &'static str {
        match (self.driver, self.launched) {
            (false, _) => "this machine has no KFD (/dev/kfd), by which queues are taken off the hardware",
            (true, true) => "the program's hardware queues are made where the library does not see it",
            (true, false) => "the program has no hardware queue yet",
        }
    }

    /// Returns true if a queue may still come.
    pub(super) fn may_come(self) -> bool {
        self.driver && !self.launched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_queues_names_its_cause() {
        let why = |driver, launched| NoQueues { driver, launched }.why();
        assert!(why(false, true).contains("/dev/kfd"));
        assert_ne!(why(true, true), why(true, false));
    }
}
