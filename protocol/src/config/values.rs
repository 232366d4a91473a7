//! The types of single values, and their parsers: pure functions from the text of a variable to its value.
//! They know no variable.

use crate::codes::SchedulerKind;
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The amount of logging (`XSCHED_LOG_LEVEL`), least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Faults that keep the library from working.
    Error,
    /// Also conditions that the user should change.
    Warn,
    /// Also decisions of the library.
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
    /// In a client: a queue gets no permission from the fact that a running queue waits for it.
    NoInheritance,
    /// In a client: the first command of a request always counts.
    NoPreludes,
    /// In a client: its hardware queues go before those of other programs, whatever the policy says.
    QueuesFirst,
    /// In a server: running programs that complete nothing keep the others suspended.
    NoGuard,
}

/// The mechanism that evicts hardware queues, at preemption levels above 1 (`XSCHED_KFD_MECHANISM`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KfdMechanism {
    /// The first one that works.
    #[default]
    Auto,
    /// `AMDKFD_IOC_UPDATE_QUEUE`, or none.
    UpdateQueue,
    /// `KFD_IOC_DBG_TRAP_SUSPEND_QUEUES`, or none.
    DebugTrap,
    /// None.
    Off,
}

/// The time at which a program measures the cost of evictions (`XSCHED_KFD_PROBE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KfdProbe {
    /// Always at its start.
    Always,
    /// At its start, unless a server knows the cost from an earlier program.
    #[default]
    Cached,
    /// Never at its start.
    Never,
}

/// Returns the value of a word out of a list, in upper or lower case.
fn word<T: Copy>(value: &OsStr, words: &[(&str, T)]) -> Option<T> {
    let value = value.to_str()?;
    words.iter().find(|(word, _)| word.eq_ignore_ascii_case(value)).map(|&(_, meaning)| meaning)
}

pub(super) fn switch(value: &OsStr) -> Option<bool> {
    word(value, &[("ON", true), ("OFF", false), ("1", true), ("0", false)])
}

pub(super) fn scheduler(value: &OsStr) -> Option<SchedulerKind> {
    word(
        value,
        &[("APP", SchedulerKind::AppManaged), ("LCL", SchedulerKind::Local), ("GLB", SchedulerKind::Global)],
    )
}

pub(super) fn kfd_mechanism(value: &OsStr) -> Option<KfdMechanism> {
    word(
        value,
        &[
            ("auto", KfdMechanism::Auto),
            ("update-queue", KfdMechanism::UpdateQueue),
            ("debug-trap", KfdMechanism::DebugTrap),
            ("off", KfdMechanism::Off),
        ],
    )
}

pub(super) fn kfd_probe(value: &OsStr) -> Option<KfdProbe> {
    word(value, &[("always", KfdProbe::Always), ("cached", KfdProbe::Cached), ("never", KfdProbe::Never)])
}

pub(super) fn log_level(value: &OsStr) -> Option<LogLevel> {
    word(
        value,
        &[
            ("error", LogLevel::Error),
            ("warn", LogLevel::Warn),
            ("info", LogLevel::Info),
            ("debug", LogLevel::Debug),
            ("trace", LogLevel::Trace),
        ],
    )
}

/// A decimal number of the range.
pub(super) fn number<T: TryFrom<i64>>(value: &OsStr, range: RangeInclusive<i64>) -> Option<T> {
    let number: i64 = value.to_str()?.parse().ok()?;
    if range.contains(&number) { T::try_from(number).ok() } else { None }
}

/// A decimal number from `min` on that fits the signed 64 bits of the C interface.
pub(super) fn count(value: &OsStr, min: i64) -> Option<u64> {
    number(value, min..=i64::MAX)
}

/// A path may hold any bytes. The caller that opens it finds out whether it exists.
pub(super) fn path(value: &OsStr) -> Option<PathBuf> {
    (!value.is_empty()).then(|| PathBuf::from(value))
}

/// A word, or `chaos:` and a seed.
pub(super) fn test_mode(value: &OsStr) -> Option<TestMode> {
    match value.to_str()?.split_once(':') {
        None => word(
            value,
            &[
                ("defer", TestMode::Defer),
                ("no-inheritance", TestMode::NoInheritance),
                ("no-preludes", TestMode::NoPreludes),
                ("queues-first", TestMode::QueuesFirst),
                ("no-guard", TestMode::NoGuard),
            ],
        ),
        Some(("chaos", seed)) => seed.parse().ok().map(TestMode::Chaos),
        Some(_) => None,
    }
}
