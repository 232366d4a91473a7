//! The configuration that the environment yields, with its defaults.

use super::values::{KfdMechanism, KfdProbe, LogLevel, TestMode};
use crate::codes::SchedulerKind;
use crate::hint::Hints;
use crate::policy::PolicyKind;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of XQueues that the library creates by itself (`XSCHED_AUTO_XQUEUE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoXQueue {
    /// True if every stream gets an XQueue.
    pub enabled: bool,
    /// Preemption level, 1 to 3.
    pub level: u8,
    /// Most commands in flight. The window is adaptive if neither this nor the batch size is set.
    pub threshold: Option<u64>,
    /// Commands between two synchronization points.
    pub batch_size: Option<u64>,
    /// Hints of each queue and of the process.
    pub hints: Hints,
}

impl AutoXQueue {
    /// The threshold in force if only a batch size is set.
    pub const THRESHOLD: u64 = 16;
    /// The batch size in force if only a threshold is set, unless the threshold is smaller.
    pub const BATCH_SIZE: u64 = 8;

    /// Returns `(threshold, batch size)`, or `None` for the adaptive window. Either variable alone gives the
    /// other one its default.
    pub fn launch_config(&self) -> Option<(u64, u64)> {
        match (self.threshold, self.batch_size) {
            (None, None) => None,
            (threshold, batch) => {
                let threshold = threshold.unwrap_or(Self::THRESHOLD);
                Some((threshold, batch.unwrap_or(Self::BATCH_SIZE).min(threshold)))
            }
        }
    }
}

/// Flags of each suspension (`XSCHED_SCHEDULER_SUSPEND_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SuspendFlags {
    /// Synchronize the hardware queue.
    pub sync_hw_queue: bool,
    /// Wait for all submitted commands.
    pub wait_all: bool,
    /// Wait until the queue is idle.
    pub wait_idle: bool,
}

/// The complete configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// True if the library stays inert.
    pub disable: bool,
    /// The scheduler as the environment names it. Use [`Config::scheduler_in_force`] to decide.
    pub scheduler: SchedulerKind,
    /// The policy of a local scheduler.
    pub policy: Option<PolicyKind>,
    /// The queues that the library creates by itself.
    pub auto: AutoXQueue,
    /// Milliseconds of waiting after which a queue runs for a moment under policies that go by priority; 0
    /// for never.
    pub starvation_ms: u64,
    /// Flags of each suspension.
    pub suspend: SuspendFlags,
    /// The real HIP runtime; if not set, the library searches for it.
    pub hip_lib: Option<PathBuf>,
    /// The mechanism that evicts hardware queues.
    pub kfd_mechanism: KfdMechanism,
    /// The time at which a program measures the cost of evictions.
    pub kfd_probe: KfdProbe,
    /// The server's socket, if it is not the default one.
    pub socket: Option<PathBuf>,
    /// The amount of logging.
    pub log_level: LogLevel,
    /// The file for log lines; if not set, they go to standard error.
    pub log_file: Option<PathBuf>,
    /// Switches for tests.
    pub test: Option<TestMode>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            disable: false,
            scheduler: SchedulerKind::AppManaged,
            policy: None,
            auto: AutoXQueue {
                enabled: false,
                level: 1,
                threshold: None,
                batch_size: None,
                hints: Hints::default(),
            },
            starvation_ms: 0,
            suspend: SuspendFlags::default(),
            hip_lib: None,
            kfd_mechanism: KfdMechanism::Auto,
            kfd_probe: KfdProbe::Cached,
            socket: None,
            log_level: LogLevel::Warn,
            log_file: None,
            test: None,
        }
    }
}

impl Config {
    /// Returns the limit of the guard against starvation, or `None` while the guard is off.
    pub fn starvation(&self) -> Option<Duration> {
        (self.starvation_ms > 0).then(|| Duration::from_millis(self.starvation_ms))
    }

    /// Returns the scheduler that counts: a policy in the environment forces the local one.
    pub fn scheduler_in_force(&self) -> SchedulerKind {
        if self.policy.is_some() { SchedulerKind::Local } else { self.scheduler }
    }
}
