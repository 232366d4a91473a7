//! The environment `XSCHED_*` as one table: what each variable means, which values it takes, and how it is read.
//!
//! [`VARIABLES`] is the only list. The parser walks it, `docs/env.md` is printed from it, and a warning about a bad
//! value quotes it. Nothing here reads the environment: a getter comes in, so that the parser is pure. A value that
//! cannot be used leaves the default in force and yields one [`ConfigError`]; an empty value counts as not set.

mod doc;
mod hints;
mod parse;
mod variables;

pub use doc::markdown;
pub use variables::{VARIABLES, Variable};

use crate::bounds::{Priority, Utilization};
use crate::hint::Laxity;
use crate::policy::PolicyKind;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;
use variables::Expected;

/// Who decides which queues run (`XSCHED_SCHEDULER`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerKind {
    /// The application calls suspend and resume itself.
    App,
    /// A policy inside the process.
    Local,
    /// The daemon `xserver`.
    Global,
}

/// How much the library says (`XSCHED_LOG_LEVEL`), least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Only what keeps the library from working.
    Error,
    /// Also what the user should change.
    Warn,
    /// Also what the library decided.
    Info,
    /// Also counts and addresses.
    Debug,
    /// Everything.
    Trace,
}

/// Switches for tests (`XSCHED_TEST`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestMode {
    /// Every command takes the deferred path.
    Defer,
    /// Suspensions and resumptions at random, from this seed.
    Chaos(u64),
    /// In a client: a queue that a running one waits for gets no permission by that.
    NoInheritance,
    /// In a server: running programs that complete nothing keep the others suspended.
    NoGuard,
}

/// How an automatically created XQueue starts out (`XSCHED_AUTO_XQUEUE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoXQueue {
    /// Whether every stream gets an XQueue.
    pub enabled: bool,
    /// Preemption level, 1 to 3.
    pub level: u8,
    /// Most commands in flight; `None` with no batch size either is the adaptive window.
    pub threshold: Option<u64>,
    /// Commands between two synchronization points.
    pub batch_size: Option<u64>,
    /// Bigger is more urgent.
    pub priority: i32,
    /// Share in percent for the partitioning policies.
    pub utilization: u8,
    /// Microseconds for the policies that take turns; `None` leaves the policy's own.
    pub timeslice_us: Option<u64>,
    /// Microseconds from ready to deadline.
    pub deadline_us: Option<u64>,
    /// How many earliest deadlines run.
    pub k_deadline: Option<u64>,
    /// When the queue turns critical.
    pub laxity: Option<Laxity>,
    /// Whether the queue may be suspended while it has work.
    pub preemptible: bool,
    /// Which job the process belongs to.
    pub job: Option<NonZeroU64>,
    /// The most that the process gets of a device, in percent.
    pub cap: Option<u8>,
}

impl AutoXQueue {
    /// The threshold that is in force if only a batch size was given.
    pub const THRESHOLD: u64 = 16;
    /// The batch size that is in force if only a threshold was given (at most the threshold).
    pub const BATCH_SIZE: u64 = 8;

    /// `(threshold, batch size)`, or `None` for the adaptive window: either variable alone gives the other its default.
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

/// How queues are taken off the hardware, at preemption levels above 1 (`XSCHED_KFD_MECHANISM`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KfdMechanism {
    /// Whatever works.
    #[default]
    Auto,
    /// `AMDKFD_IOC_UPDATE_QUEUE`, or not at all.
    UpdateQueue,
    /// `KFD_IOC_DBG_TRAP_SUSPEND_QUEUES`, or not at all.
    DebugTrap,
    /// Not at all.
    Off,
}

/// Whether the cost of holds is measured at a program's start (`XSCHED_KFD_PROBE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KfdProbe {
    /// Always.
    Always,
    /// Unless a server knows it from an earlier program.
    #[default]
    Cached,
    /// Never.
    Never,
}

/// Everything the environment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether the library keeps out of the way altogether.
    pub disable: bool,
    /// Who decides, as written; [`Config::scheduler_in_force`] is what counts.
    pub scheduler: SchedulerKind,
    /// The policy for a local scheduler.
    pub policy: Option<PolicyKind>,
    /// The queues that are created without being asked for.
    pub auto: AutoXQueue,
    /// After how many milliseconds of waiting nobody waits on, under policies that go by priority; 0 for never.
    pub starvation_ms: u64,
    /// Flags of each suspension.
    pub suspend: SuspendFlags,
    /// The real HIP runtime, if not to be searched for.
    pub hip_lib: Option<PathBuf>,
    /// How queues are taken off the hardware.
    pub kfd_mechanism: KfdMechanism,
    /// Whether the cost of that is measured at the program's start.
    pub kfd_probe: KfdProbe,
    /// The daemon's socket, if not at its default place.
    pub socket: Option<PathBuf>,
    /// How much is said.
    pub log_level: LogLevel,
    /// Where it is said, if not on standard error.
    pub log_file: Option<PathBuf>,
    /// Switches for tests.
    pub test: Option<TestMode>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            disable: false,
            scheduler: SchedulerKind::App,
            policy: None,
            auto: AutoXQueue {
                enabled: false,
                level: 1,
                threshold: None,
                batch_size: None,
                priority: Priority::DEFAULT.get(),
                utilization: Utilization::DEFAULT.get(),
                timeslice_us: None,
                deadline_us: None,
                k_deadline: None,
                laxity: None,
                preemptible: true,
                job: None,
                cap: None,
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

/// Whether a switch such as `XSCHED_DISABLE` is on. Allocates nothing, so that it can be asked at any time.
pub fn is_on(value: &OsStr) -> bool {
    parse::switch(value) == Some(true)
}

impl Config {
    /// Reads every variable of [`VARIABLES`] through `get`; `built` are the policies that this build contains.
    ///
    /// Never fails: what cannot be used keeps its default and is one entry of the second value, in table order.
    pub fn read(get: impl Fn(&str) -> Option<OsString>, built: &[PolicyKind]) -> (Self, Vec<ConfigError>) {
        let mut config = Self::default();
        let mut errors = Vec::new();
        for variable in VARIABLES {
            let Some(value) = get(variable.name).filter(|value| !value.is_empty()) else {
                continue;
            };
            if let Err(expected) = (variable.read)(&mut config, &value, built) {
                let expected = match expected {
                    Expected::AsListed => variable.values.to_owned(),
                    Expected::Exactly(range) => range,
                };
                errors.push(ConfigError { var: variable.name, value, expected });
            }
        }
        (config, errors)
    }

    /// The limit of the guard against starvation; nothing while it is off.
    pub fn starvation(&self) -> Option<Duration> {
        (self.starvation_ms > 0).then(|| Duration::from_millis(self.starvation_ms))
    }

    /// The scheduler that counts: a policy in the environment forces the local one.
    pub fn scheduler_in_force(&self) -> SchedulerKind {
        if self.policy.is_some() { SchedulerKind::Local } else { self.scheduler }
    }
}

/// A value that cannot be used. Displayed, it is one line that names variable, value and range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable's name.
    pub var: &'static str,
    /// What it was set to.
    pub value: OsString,
    /// What it may be set to.
    pub expected: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More of a value than this says nothing more.
        const SHOWN: usize = 80;
        write!(f, "{}=", self.var)?;
        let value = self.value.to_string_lossy();
        // Escaped, because a line break in a value would make two lines of one warning.
        for shown in value.chars().take(SHOWN) {
            write!(f, "{}", shown.escape_debug())?;
        }
        if value.chars().nth(SHOWN).is_some() {
            f.write_str("...")?;
        }
        write!(f, " is not usable (expected {}); the default stays in force", self.expected)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
