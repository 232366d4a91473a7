//! What can be set: the launch window of a queue, the bounds of what is pending, the test modes.

use std::time::Duration;

/// How much may be in flight while the limit is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchConfig {
    /// As much as fits a budget of estimated time ([`Config::budget`]), at least one command.
    Adaptive,
    /// At most `threshold` commands, with a mark every `batch` of them.
    Fixed {
        /// Most commands in flight, at least 1.
        threshold: u32,
        /// Commands from one mark to the next, 1 to `threshold`.
        batch: u32,
    },
}

impl LaunchConfig {
    /// The threshold where only the batch size is set.
    pub const DEFAULT_THRESHOLD: u32 = 16;
    /// The batch size where only the threshold is set.
    pub const DEFAULT_BATCH: u32 = 8;

    /// From what the user set; values out of range are brought into it.
    pub fn from_settings(threshold: Option<u32>, batch: Option<u32>) -> Self {
        if threshold.is_none() && batch.is_none() {
            return Self::Adaptive;
        }
        let threshold = threshold.unwrap_or(Self::DEFAULT_THRESHOLD).max(1);
        let batch = batch.unwrap_or(Self::DEFAULT_BATCH).clamp(1, threshold);
        Self::Fixed { threshold, batch }
    }

    /// With the values that are given replaced, as `XQueueSetLaunchConfig` means it.
    pub fn with(self, threshold: Option<u32>, batch: Option<u32>) -> Self {
        match self {
            Self::Adaptive => Self::from_settings(threshold, batch),
            Self::Fixed { threshold: t, batch: b } => {
                Self::from_settings(Some(threshold.unwrap_or(t)), Some(batch.unwrap_or(b)))
            }
        }
    }

    /// One word; zero is adaptive.
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::Adaptive => 0,
            Self::Fixed { threshold, batch } => u64::from(threshold) << 32 | u64::from(batch),
        }
    }

    pub(crate) fn unpack(word: u64) -> Self {
        match word {
            0 => Self::Adaptive,
            _ => Self::Fixed { threshold: (word >> 32) as u32, batch: word as u32 },
        }
    }
}

/// How much one queue may hold that is not launched; a caller beyond waits, holding nothing. One
/// command that exceeds a byte bound alone is admitted when nothing else is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Commands.
    pub commands: usize,
    /// Bytes of copied arguments.
    pub arguments: usize,
    /// Bytes of staged host memory.
    pub staged: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { commands: 4096, arguments: 16 << 20, staged: 64 << 20 }
    }
}

/// Modes that make the rare paths common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TestMode {
    /// None.
    #[default]
    Off,
    /// Everything takes the deferred path.
    Defer,
    /// Everything is deferred, and submissions suspend their queue at random, the first one always; the
    /// watcher resumes it at random, after a millisecond or so.
    Chaos(u64),
}

/// What the adaptive window admits at least where suspended work is taken off the hardware: then what is in flight does not
/// hold up who waits for the device, and more of it keeps the device busy.
pub(crate) const TAKEN_OFF: Duration = Duration::from_millis(1);

/// Settings of a [`crate::Domain`].
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The permission word until somebody stores or follows another one.
    pub permission: crate::Permission,
    /// Estimated time in flight that the adaptive window admits.
    pub budget: Duration,
    /// Bounds of each queue.
    pub bounds: Bounds,
    /// Test mode.
    pub test: TestMode,
    /// Whether a watcher thread may be started: it proves idleness where the program does not.
    pub watch: bool,
    /// Whether a held queue launches what a running one waits for. Off only to show that it is needed.
    pub inherit: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            permission: crate::Permission::limited(),
            budget: Duration::from_micros(200),
            bounds: Bounds::default(),
            test: TestMode::Off,
            watch: true,
            inherit: true,
        }
    }
}

/// Settings of a new [`crate::XQueue`].
#[derive(Debug, Clone, Copy)]
pub struct QueueConfig {
    /// Its default-stream rule.
    pub class: crate::OrderClass,
    /// Its window.
    pub launch: LaunchConfig,
    /// Orders the worker's launches among the queues of a device: bigger first.
    pub priority: i32,
    /// Whether the gang's permission covers it at first ([`crate::XQueue::set_covered`]).
    pub covered: bool,
    /// Handed to the [`crate::Observer`] with every word about this queue. The crate makes nothing of it.
    pub tag: usize,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            class: crate::OrderClass::Independent,
            launch: LaunchConfig::Adaptive,
            priority: 0,
            covered: true,
            tag: 0,
        }
    }
}
