//! Settings: the launch window of a queue, the bounds of pending commands, the test modes.

use std::time::Duration;

/// Converts a time to nanoseconds. A time that is as good as infinite leaves room for sums.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 4)
}

/// The amount of work that may be in flight while the limit is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchConfig {
    /// A budget of estimated time ([`Config::budget`]), at least one command.
    Adaptive,
    /// At most `threshold` commands, with a marker after every `batch` of them.
    Fixed {
        /// Most commands in flight, at least 1.
        threshold: u32,
        /// Commands from one marker to the next, 1 to `threshold`.
        batch: u32,
    },
}

impl LaunchConfig {
    /// The threshold where only the batch size is set.
    const DEFAULT_THRESHOLD: u32 = 16;
    /// The batch size where only the threshold is set.
    const DEFAULT_BATCH: u32 = 8;

    /// Converts the user's settings; values out of range are clamped.
    pub fn from_settings(threshold: Option<u32>, batch: Option<u32>) -> Self {
        if threshold.is_none() && batch.is_none() {
            return Self::Adaptive;
        }
        let threshold = threshold.unwrap_or(Self::DEFAULT_THRESHOLD).max(1);
        let batch = batch.unwrap_or(Self::DEFAULT_BATCH).clamp(1, threshold);
        Self::Fixed { threshold, batch }
    }

    /// Replaces the given values, as `XQueueSetLaunchConfig` does.
    pub fn with(self, threshold: Option<u32>, batch: Option<u32>) -> Self {
        match self {
            Self::Adaptive => Self::from_settings(threshold, batch),
            Self::Fixed { threshold: t, batch: b } => {
                Self::from_settings(Some(threshold.unwrap_or(t)), Some(batch.unwrap_or(b)))
            }
        }
    }

    /// Returns the threshold and the batch size; `None` if the window adapts.
    pub fn settings(self) -> Option<(u32, u32)> {
        match self {
            Self::Adaptive => None,
            Self::Fixed { threshold, batch } => Some((threshold, batch)),
        }
    }

    /// Packs the value into one word; 0 is adaptive.
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

/// The bounds of the commands that one queue holds and has not launched. A caller beyond them waits, holding
/// nothing. A command that alone exceeds a byte bound is admitted when nothing else is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of commands.
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
    /// Normal operation.
    #[default]
    Off,
    /// Everything takes the deferred path.
    Defer,
    /// Everything is deferred, and submissions suspend their queue at random, the first one always. The
    /// watcher resumes it at random, after about a millisecond. The number is the seed.
    Chaos(u64),
}

/// The settings of a [`crate::Domain`].
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The process permission until another one is stored or followed.
    pub permission: crate::Permission,
    /// The estimated time in flight that the adaptive window admits.
    pub budget: Duration,
    /// The bounds of each queue.
    pub bounds: Bounds,
    /// The test mode.
    pub test: TestMode,
    /// True if a watcher thread may be started: it proves idleness where the program does not.
    pub watch: bool,
    /// True if a suspended queue launches what a running one waits for. False only to show that this is
    /// needed.
    pub inherit: bool,
    /// True if it is learnt which commands only begin a request (`state/prelude.rs`).
    pub preludes: bool,
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
            preludes: true,
        }
    }
}

/// The settings of a new [`crate::XQueue`].
#[derive(Debug, Clone, Copy)]
pub struct QueueConfig {
    /// The default-stream rule.
    pub class: crate::OrderClass,
    /// The window.
    pub launch: LaunchConfig,
    /// The rank among the queues of a device: the worker serves higher ones first.
    pub priority: i32,
    /// Decides between queues of equal priority.
    pub stream_priority: i32,
    /// True if the process permission covers the queue at first ([`crate::XQueue::set_covered`]).
    pub covered: bool,
    /// A value that the [`crate::Observer`] gets with every notification about this queue. The crate does not
    /// use it.
    pub tag: usize,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            class: crate::OrderClass::Independent,
            launch: LaunchConfig::Adaptive,
            priority: 0,
            stream_priority: 0,
            covered: true,
            tag: 0,
        }
    }
}
