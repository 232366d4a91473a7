//! The decisions of a scheduler for its clients: which of them run, which are limited, and why.

use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use crate::rank_reason::RankReason;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The entity that a decision is about: a gang under the global scheduler, a queue under the local one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EntityId {
    /// A process on all its devices.
    Gang(ClientId),
    /// A queue of the deciding process.
    Queue(QueueId),
}

/// The complete permission of an entity from now on. To apply it twice is to apply it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The entity.
    pub unit: EntityId,
    /// Its permission.
    pub permit: Permit,
}

/// The permission of an entity, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// True if it may launch.
    pub run: bool,
    /// True if its window limits the work in flight. A suspended entity has this bit as well: it counts when
    /// something other than the policy (a lease that ended, the progress guard) lets the entity run.
    pub limit: bool,
    /// The window, if it limits.
    pub window: Window,
    /// The part of the compute units on which it goes on while it is suspended. It counts only if
    /// `run` is false, at level 3. Older recordings have none.
    #[serde(default)]
    pub share: Share,
    /// True if its hardware queues go before those of others on the device. It counts only if `run` is true. Older
    /// recordings have none.
    #[serde(default)]
    pub first: bool,
    /// The reason why it runs or does not.
    pub reason: Reason,
}

impl Permit {
    /// Returns the permission to launch without the advice of a policy: the library's own window, if it limits.
    pub const fn running(limit: bool, reason: Reason) -> Self {
        Self { run: true, limit, window: Window::OWN, share: Share::NONE, first: false, reason }
    }
}

/// The limit of estimated work in flight of a limited entity, in tenths of a millisecond, or the library's own
/// limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Window(u8);

impl Window {
    /// The time of one unit.
    pub const UNIT: Duration = Duration::from_micros(100);
    /// The library's own limit: 200 µs, 1 ms while level 3 is in force.
    pub const OWN: Self = Self(0);
    /// The smallest window that a policy can set, in units.
    const LEAST: u8 = 3;

    /// Returns the largest window that is not longer than this time, 25.5 ms at most; [`Window::OWN`] below 300 µs.
    pub fn at_most(time: Duration) -> Self {
        let units = u8::try_from(time.as_nanos() / Self::UNIT.as_nanos()).unwrap_or(u8::MAX);
        if units < Self::LEAST { Self::OWN } else { Self(units) }
    }

    /// Returns the number for a permission word; 0 for the library's own limit.
    pub fn units(self) -> u8 {
        self.0
    }

    /// Returns the time; `None` for the library's own limit.
    pub fn time(self) -> Option<Duration> {
        (self != Self::OWN).then(|| Self::UNIT * u32::from(self.0))
    }
}

/// A part of the compute units of a device, in 64ths.
///
/// ```
/// use protocol::operation::Share;
///
/// assert_eq!(Share::of_percent(25.0).units(), 16);
/// assert_eq!(Share::of_percent(0.0), Share::NONE);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Share(u8);

impl Share {
    /// No compute unit: work in flight is evicted.
    pub const NONE: Self = Self(0);
    /// The number of units of a whole device.
    pub const WHOLE: u8 = 64;
    /// The largest share in units: the work that goes first keeps a quarter of the device for itself alone.
    const MOST: u8 = 48;

    /// Returns the largest share that is not larger than this percentage, 75 % at most. A percentage above 0 is at
    /// least one unit.
    pub fn of_percent(percent: f64) -> Self {
        if percent > 0.0 {
            let units = percent * f64::from(Self::WHOLE) / 100.0;
            // The conversion saturates.
            Self((units as u8).clamp(1, Self::MOST))
        } else {
            // NaN as well.
            Self::NONE
        }
    }

    /// Returns so many quarters of this share, rounded down to units, but at least one unit of a share that is not
    /// none. More than four quarters are four.
    pub fn quarters(self, quarters: u8) -> Self {
        match quarters.min(4) {
            0 => Self::NONE,
            quarters => {
                Self((u16::from(self.0) * u16::from(quarters) / 4).max(u16::from(self.0).min(1)) as u8)
            }
        }
    }

    /// Returns the number for a permission word, which has 6 bits for it; 0 for none.
    pub fn units(self) -> u8 {
        self.0
    }
}

/// The reason why an entity runs or does not. The policies' crate has its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// No entity ranks higher on its devices.
    Unrivalled,
    /// Its priority says never.
    NoExecute,
    /// An entity that ranks higher runs on its devices.
    Outranked {
        /// The entity that goes first.
        by: Rival,
        /// The reason for the rank of the entity itself, for comparison.
        own: RankReason,
    },
    /// An entity of another user that ranks higher runs on this device. The server says no more to a user who may not
    /// see that program.
    OutrankedByOthers {
        /// Where it runs.
        device: DeviceId,
        /// The reason for the rank of the entity itself.
        own: RankReason,
    },
    /// The policy withholds the device, also while no other wants it.
    #[serde(rename = "Barred")]
    Throttled(Throttle),
    /// Another process of its job cannot run, and they run together or not at all.
    Job {
        /// The process.
        pid: Pid,
    },
    /// It has waited for so many milliseconds that it runs for a moment, whatever its rank.
    Starved {
        /// For how long it had waited.
        waited_ms: u64,
    },
    /// More urgent clients make no progress, perhaps because they wait for a suspended one: all run for a moment.
    Guard,
    /// The server has no room for a queue of its process, which therefore runs unscheduled.
    NoRoom,
    /// Scheduling is off: all run until a user switches it on again.
    Off,
}

/// A queue that stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// Its process.
    pub pid: Pid,
    /// The queue from which the process has its rank.
    pub queue: QueueId,
    /// Where it stands in the way.
    pub device: DeviceId,
    /// The reason for its rank there.
    #[serde(rename = "merit")]
    pub reason: RankReason,
}

/// The reason why a policy withholds the device from an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Throttle {
    /// It has used its share for now.
    Share {
        /// The share in percent.
        percent: u32,
    },
    /// Another entity has the slice, and keeps the device also while it has no work.
    Turn,
    /// The device draws too much power.
    Power {
        /// The power that it draws, in milliwatts.
        milliwatts: u64,
        /// The power that it may draw, in milliwatts.
        budget: u64,
    },
    /// Its priority for now says never.
    NoExecute,
    /// Critical work would miss its latency target.
    Latency {
        /// The 99th percentile of late, in microseconds.
        p99_us: u64,
        /// The target.
        target_us: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_never_more_than_was_said() {
        let time = |micros| Window::at_most(Duration::from_micros(micros)).time();
        assert_eq!(
            Window::at_most(Duration::from_micros(299)),
            Window::OWN,
            "no narrower than the library's own"
        );
        assert_eq!(time(300), Some(Duration::from_micros(300)));
        assert_eq!(time(3_199), Some(Duration::from_micros(3_100)));
        assert_eq!(time(10_000_000), Some(Duration::from_micros(25_500)));
    }

    #[test]
    fn a_share_is_never_more_than_was_said_unless_that_would_be_none() {
        let units = |percent| Share::of_percent(percent).units();
        assert_eq!([0.0, -1.0, f64::NAN].map(units), [0; 3]);
        assert_eq!([1e-9, 1.0, 1.6].map(units), [1; 3]);
        assert_eq!([12.5, 24.9, 25.0, 50.0].map(units), [8, 15, 16, 32]);
        assert_eq!([75.0, 100.0, f64::INFINITY].map(units), [48; 3]);
    }

    #[test]
    fn quarters_of_a_share_are_none_only_if_it_is() {
        let quarters = |share: Share| [0, 1, 2, 3, 4, 5].map(|quarters| share.quarters(quarters).units());
        assert_eq!(quarters(Share::of_percent(75.0)), [0, 12, 24, 36, 48, 48]);
        assert_eq!(quarters(Share::of_percent(1.0)), [0, 1, 1, 1, 1, 1]);
        assert_eq!(quarters(Share::NONE), [0; 6]);
    }

    #[test]
    fn permission_without_a_share_is_one_of_an_older_build() {
        let permit = r#"{"run":false,"limit":true,"window":0,"reason":"Off"}"#;
        assert_eq!(serde_json::from_str::<Permit>(permit).unwrap().share, Share::NONE);
    }
}
