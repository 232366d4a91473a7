//! The numbers of the C interface (`include/xsched/*.h`), with their names there.
//!
//! A test compiles the headers and compares every number with these.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident $prefix:literal { $($(#[$row:meta])* $variant:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(i32)]
        pub enum $name {
            $($(#[$row])* $variant = $number,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the number in the C interface.
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// Returns the value with this number in the C interface.
            pub fn from_number(number: i64) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| i64::from(value.number()) == number)
            }

            /// Returns the name in the C interface.
            pub const fn c_name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($prefix, stringify!($variant)),)*
                }
            }
        }
    )*};
}

numbered! {
    /// The result of a function of the C interface (`XResult`).
    XResult "kXSched" {
        /// Success.
        Success = 0,
        /// The runtime or the device reported an error.
        ErrorHardware = 1,
        /// An argument is out of its range, or a pointer is null.
        ErrorInvalidValue = 2,
        /// No such queue.
        ErrorNotFound = 3,
        /// The object is in a state that does not permit the operation.
        ErrorNotAllowed = 4,
        /// Not supported by this build or by this device.
        ErrorNotSupported = 5,
        /// The scheduler's answer is invalid.
        ErrorBadResponse = 6,
        /// Any other error.
        ErrorUnknown = 999,
    }

    /// The depth of a suspension (`XPreemptLevel`, without its `Unknown`, 0).
    PreemptLevel "kPreemptLevel" {
        /// Level 1: no further command is launched; commands in flight complete.
        Block = 1,
        /// Level 2: commands in flight that have not started do not start.
        Deactivate = 2,
        /// Level 3: the running command is interrupted as well.
        Interrupt = 3,
    }

    /// The result of a function of `xsched/kfd.h` (`XKfdResult`).
    KfdResult "kXKfd" {
        /// Success.
        Success = 0,
        /// An argument is out of its range, or a pointer is null.
        ErrorInvalidValue = 1,
        /// No such session, process or queue.
        ErrorNotFound = 2,
        /// The caller may not debug the process.
        ErrorNoPermission = 3,
        /// The driver or the device does not support it, or it is not permitted there.
        ErrorNotSupported = 4,
        /// The queue is new, or being destroyed.
        ErrorInvalidState = 5,
        /// The queue was not evicted in time.
        ErrorTimeout = 6,
        /// The device failed to save or restore.
        ErrorSaveFailed = 7,
        /// The GPU is or was reset.
        ErrorGpuHung = 8,
        /// Any other error.
        ErrorUnknown = 999,
    }

    /// The kind of commands of a hardware queue (`XKfdQueueType`).
    KfdQueueType "kXKfdQueue" {
        /// Kernels.
        Compute = 0,
        /// Copies.
        Sdma = 1,
        /// Any other commands.
        Other = 2,
    }

    /// The state of a hardware queue (`XKfdQueueState`).
    KfdQueueState "kXKfdQueueState" {
        /// Unknown.
        Unknown = 0,
        /// The queue may be on the hardware.
        Mapped = 1,
        /// The queue is evicted.
        Suspended = 2,
    }

    /// The class of a queue (`XQueueClass`, without its `None`, 0).
    QueueClass "kQueueClass" {
        /// Its work must start at once.
        LatencyCritical = 1,
        /// Its work may wait.
        BestEffort = 2,
    }

    /// The decider of which queues run (`XSCHED_SCHEDULER`, `XSchedulerType`).
    SchedulerKind "kScheduler" {
        /// The application calls suspend and resume itself.
        AppManaged = 1,
        /// A policy inside the process.
        Local = 2,
        /// The daemon `xserver`.
        Global = 3,
    }

    /// The state of an XQueue (`XQueueState`).
    QueueState "kQueueState" {
        /// Unknown.
        Unknown = 0,
        /// Everything submitted has completed.
        Idle = 1,
        /// A submitted command has not completed.
        Ready = 2,
    }
}

/// A hardware queue (`XKfdQueue`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KfdQueue {
    /// Number within its process.
    pub queue_id: u32,
    /// Number of the device in the driver.
    pub gpu_id: u32,
    /// A [`KfdQueueType`].
    pub kind: i32,
    /// A [`KfdQueueState`].
    pub state: i32,
    /// Address of the ring.
    pub ring_address: u64,
    /// Bytes of the ring.
    pub ring_size: u64,
    /// Address of the write index in its process.
    pub write_pointer_address: u64,
    /// Address of the read index in its process.
    pub read_pointer_address: u64,
}

impl PreemptLevel {
    /// The numbers of the levels.
    pub const RANGE: RangeInclusive<i64> = 1..=3;
}

#[expect(clippy::derivable_impls, reason = "the rows of the macro take no attributes of that kind")]
impl Default for PreemptLevel {
    fn default() -> Self {
        Self::Block
    }
}

/// A level as its number, for `#[serde(with)]`.
pub mod level_number {
    use super::PreemptLevel;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    /// Writes the number.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(level: &PreemptLevel, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(level.number())
    }

    /// Reads a number.
    ///
    /// # Errors
    /// The deserializer fails, or no level has the number.
    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<PreemptLevel, D::Error> {
        let number = i64::deserialize(from)?;
        PreemptLevel::from_number(number)
            .ok_or_else(|| de::Error::custom(format!("there is no level {number}")))
    }
}

impl fmt::Display for PreemptLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl fmt::Display for QueueClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LatencyCritical => "latency-critical",
            Self::BestEffort => "best-effort",
        })
    }
}

impl fmt::Display for XResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.c_name())
    }
}

/// Bits of `XQueueCreateFlag`.
pub mod create_flag {
    /// A submission returns only when its command is launched.
    pub const BLOCKING_SUBMIT: i64 = 1;
}

/// Bits of `XQueueSuspendFlag`.
pub mod suspend_flag {
    /// After suspending, wait until everything launched has completed.
    pub const SYNC_HW_QUEUE: i64 = 1;
    /// Before suspending, wait until everything submitted so far has completed.
    pub const WAIT_ALL: i64 = 2;
    /// Before suspending, wait until the queue is idle.
    pub const WAIT_IDLE: i64 = 4;
}

/// Bits of `XQueueResumeFlag`.
pub mod resume_flag {
    /// Pending commands are discarded instead of launched.
    pub const DROP_COMMANDS: i64 = 1;
}

/// In place of the handle of an XQueue: the streams that the calling thread creates (`XQUEUE_OF_NEW_STREAMS`).
pub const OF_NEW_STREAMS: u64 = u64::MAX;
/// In [`HintSet`]: the priority stays (`XHINT_KEEP`).
pub const KEEP_PRIORITY: i32 = i32::MIN;

/// The hints of a part of a program (`XHintSet`). The header describes the fields.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header describes the fields")]
pub struct HintSet {
    pub priority: i32,
    pub class: i32,
    pub deadline: i64,
}

/// The counters and the configuration of an XQueue (`XQueueStatistics`). The header describes the fields. A later version of
/// the library adds fields at the end and still accepts this size.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header describes the fields")]
pub struct QueueStatistics {
    pub direct: u64,
    pub deferred: u64,
    pub pending: u64,
    pub launched: u64,
    pub in_flight: u64,
    pub suspensions: u64,
    pub suspended_ns: u64,
    pub device_ns: u64,
    pub threshold: i64,
    pub batch_size: i64,
    pub priority: i32,
    pub level: i32,
    pub state: i32,
    pub running: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_values() {
        assert!(XResult::ALL.iter().all(|&v| XResult::from_number(v.number().into()) == Some(v)));
        assert!(QueueState::ALL.iter().all(|&v| QueueState::from_number(v.number().into()) == Some(v)));
        assert!(SchedulerKind::ALL.iter().all(|&v| SchedulerKind::from_number(v.number().into()) == Some(v)));
        for number in -1..6 {
            let level = PreemptLevel::from_number(number);
            assert_eq!(level.is_some(), PreemptLevel::RANGE.contains(&number));
        }
        assert_eq!(XResult::from_number(i64::from(u32::MAX) + 1), None);
        assert_eq!(XResult::ErrorNotFound.to_string(), "kXSchedErrorNotFound");
    }
}
