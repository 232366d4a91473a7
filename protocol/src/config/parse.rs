//! How single values are read: pure functions from what is written to what is meant. They know no variable.

use super::{KfdMechanism, KfdProbe, LogLevel, SchedulerKind, TestMode};
use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The meaning of a word out of a list, upper or lower case.
fn word<T: Copy>(value: &OsStr, words: &[(&str, T)]) -> Option<T> {
    let value = value.to_str()?;
    words.iter().find(|(word, _)| word.eq_ignore_ascii_case(value)).map(|&(_, meaning)| meaning)
}

pub(super) fn switch(value: &OsStr) -> Option<bool> {
    word(value, &[("ON", true), ("OFF", false), ("1", true), ("0", false)])
}

pub(super) fn scheduler(value: &OsStr) -> Option<SchedulerKind> {
    word(value, &[("APP", SchedulerKind::App), ("LCL", SchedulerKind::Local), ("GLB", SchedulerKind::Global)])
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

/// A path may hold any bytes; whether it exists is found out by whoever opens it.
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
                ("no-guard", TestMode::NoGuard),
            ],
        ),
        Some(("chaos", seed)) => seed.parse().ok().map(TestMode::Chaos),
        Some(_) => None,
    }
}
