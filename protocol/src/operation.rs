//! What a scheduler tells a client: who runs, who is limited, and why.

use crate::bounds::Priority;
use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// What a decision is about: under the global scheduler a gang, under the local one a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnitId {
    /// A process on all its devices.
    Gang(ClientId),
    /// A queue of the deciding process.
    Queue(QueueId),
}

/// The permission that a unit has from now on. Complete: carrying one out twice is carrying it out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Who.
    pub unit: UnitId,
    /// What.
    pub permit: Permit,
}

/// What a unit may do, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// Whether it may launch.
    pub run: bool,
    /// Whether its window limits what it has in flight. A suspended unit has this bit as well: it counts when
    /// something other than the policy (a lease that ended, the progress guard) lets the unit run.
    pub limit: bool,
    /// How much the window admits where it limits.
    pub window: Window,
    /// Why it runs or does not.
    pub reason: Reason,
}

/// How much work a limited unit may have in flight at a time, by what its commands are estimated to take: in tenths of a
/// millisecond, or the library's own choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Window(u8);

impl Window {
    /// One step of it.
    pub const UNIT: Duration = Duration::from_micros(100);
    /// The library's own choice: 200 µs, 1 ms while level 3 is in force.
    pub const OWN: Self = Self(0);
    /// Narrower than this is no choice of a policy's.
    const LEAST: u8 = 3;

    /// The largest that is not above this time: 25.5 ms at most; below 300 µs the library's own.
    pub fn at_most(time: Duration) -> Self {
        let units = u8::try_from(time.as_nanos() / Self::UNIT.as_nanos()).unwrap_or(u8::MAX);
        if units < Self::LEAST { Self::OWN } else { Self(units) }
    }

    /// As it stands in a permission word; 0 is the library's own.
    pub fn units(self) -> u8 {
        self.0
    }

    /// The time; of the library's own choice nothing.
    pub fn time(self) -> Option<Duration> {
        (self != Self::OWN).then(|| Self::UNIT * u32::from(self.0))
    }
}

/// Why a unit runs or does not. Displayed, it completes "runs: ..." or "suspended: ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Nobody ranks higher where it runs.
    Unrivalled,
    /// Its priority says never.
    NoExecute,
    /// Somebody who ranks higher runs where it would.
    Outranked {
        /// Who.
        by: Rival,
        /// The unit's own merit, for comparison.
        own: Merit,
    },
    /// The policy withholds the device, whoever else wants it.
    Barred(Bar),
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
    /// Whoever is more urgent completes nothing, perhaps because they wait for somebody suspended: all run for a
    /// moment.
    Guard,
    /// Nobody decides: all run until somebody switches deciding on again.
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
    /// By what it ranks where it does.
    pub merit: Merit,
}

/// What a unit's rank comes from, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Merit {
    /// Its priority.
    Priority(Priority),
    /// The nice value of its process on the processor, lower first.
    Nice(i64),
    /// Its deadline, in so many microseconds; one that has passed is negative.
    Deadline(i64),
    /// It has no deadline.
    NoDeadline,
    /// It has its turn, for so many microseconds more.
    Turn(i64),
    /// Its turn comes after so many others.
    Waits(i64),
    /// It has used so many microseconds of the device, weighed by its share.
    Runtime(i64),
    /// Its level among those that change with what it uses, 0 first.
    Level(i64),
    /// Whether it owns the window that the user works in.
    Window(bool),
    /// So many microseconds of credit are left to it.
    Credit(i64),
    /// Its class, higher first.
    Class(i64),
    /// It has the turn of its class.
    ClassTurn {
        /// Its class.
        class: i64,
        /// For so many microseconds more.
        us: i64,
    },
    /// It waits for the turn of its class.
    ClassWaits {
        /// Its class.
        class: i64,
        /// So many others come before it.
        others: i64,
    },
    /// The device is cleared for its work, which is expected in so many microseconds; negative if it is late.
    Expected(i64),
    /// It is not to be suspended before its work is done.
    Uninterrupted,
    /// It may run beside work of this priority, which is higher than its own.
    Beside(Priority),
    /// It has waited for so many milliseconds that it runs for a moment.
    Starved(i64),
}

/// Why a policy withholds the device from a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bar {
    /// It has used its share for now.
    Share {
        /// The share in percent.
        percent: u32,
    },
    /// It is the turn of another unit, which keeps the device also while it has no work.
    Turn,
    /// The device draws too much power.
    Power {
        /// What it draws, in milliwatts.
        milliwatts: u64,
        /// What it may draw.
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrivalled => f.write_str("nobody stands higher on its devices"),
            Self::NoExecute => write!(f, "priority {} never runs", Priority::NO_EXECUTE),
            Self::Outranked { by, own } => {
                write!(f, "queue {} of pid {} {}", by.queue, by.pid, Compared(by.merit, *own))
            }
            Self::Barred(bar) => bar.fmt(f),
            Self::Job { pid } => write!(f, "pid {pid} of the same job cannot run, and they run together"),
            Self::Starved { waited_ms } => {
                write!(f, "it had waited for {waited_ms} ms, and runs for a moment")
            }
            Self::Guard => f.write_str("those of higher priority complete nothing, all run for a moment"),
            Self::Off => f.write_str("scheduling is switched off"),
        }
    }
}

/// The merit of one that runs, beside that of one that waits for it.
struct Compared(Merit, Merit);

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Merit::{
            Beside, Class, ClassTurn, ClassWaits, Credit, Deadline, Level, Nice, NoDeadline, Priority,
            Runtime, Turn, Waits,
        };
        match (self.0, self.1) {
            (Priority(its), Priority(own)) if its > own => write!(f, "has priority {its} > {own}"),
            (Priority(its), Priority(own)) if its == own => {
                write!(f, "has priority {its} as well, and its turn comes first")
            }
            (Nice(its), Nice(own)) => write!(f, "has nice value {its} < {own}"),
            (Beside(its), Priority(own)) => write!(f, "runs beside work of priority {its} > {own}"),
            (Class(its), Class(own)) => write!(f, "is of class {its} > {own}"),
            (Level(its), Level(own)) if its == own => {
                write!(f, "is on level {its} as well, and its turn comes first")
            }
            (Level(its), Level(own)) => write!(f, "is on level {its} < {own}"),
            (Deadline(its), Deadline(own)) if its < own => {
                write!(f, "has a deadline {} < {}", Millis(its), Millis(own))
            }
            (NoDeadline, NoDeadline) => f.write_str("has no deadline either, and had work earlier"),
            (Runtime(its), Runtime(own)) => {
                write!(f, "has used {} of the device < {}, by its share", Millis(its), Millis(own))
            }
            (Credit(its), Credit(own)) => write!(f, "has {} of credit > {}", Millis(its), Millis(own)),
            (Turn(left), Waits(0)) => write!(f, "has its turn for {} more, this one is next", Millis(left)),
            (Turn(left), Waits(others)) => {
                write!(f, "has its turn for {} more, and {others} are before this one", Millis(left))
            }
            (
                Class(its) | ClassTurn { class: its, .. } | ClassWaits { class: its, .. },
                Class(own) | ClassTurn { class: own, .. } | ClassWaits { class: own, .. },
            ) if its != own => Compared(Class(its), Class(own)).fmt(f),
            (ClassTurn { us, .. }, ClassWaits { others, .. }) => Compared(Turn(us), Waits(others)).fmt(f),
            (its @ Merit::Expected(_), _) => its.fmt(f),
            (its, own) => write!(f, "{its}, this one {own}"),
        }
    }
}

impl fmt::Display for Merit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Priority(priority) => write!(f, "has priority {priority}"),
            Self::Nice(nice) => write!(f, "has nice value {nice}"),
            Self::Deadline(us) if us < 0 => {
                write!(f, "missed its deadline {} ago", Millis(us.saturating_neg()))
            }
            Self::Deadline(us) => write!(f, "has a deadline in {}", Millis(us)),
            Self::NoDeadline => f.write_str("has no deadline"),
            Self::Turn(us) => write!(f, "has its turn for {} more", Millis(us)),
            Self::Waits(others) => write!(f, "waits for its turn behind {others}"),
            Self::Runtime(us) => write!(f, "has used {} of the device by its share", Millis(us)),
            Self::Level(level) => write!(f, "is on level {level}"),
            Self::Window(true) => f.write_str("owns the active window"),
            Self::Window(false) => f.write_str("does not own the active window"),
            Self::Credit(us) => write!(f, "has {} of credit", Millis(us)),
            Self::Class(class) => write!(f, "is of class {class}"),
            Self::ClassTurn { class, us } => {
                write!(f, "has the turn of class {class} for {} more", Millis(us))
            }
            Self::ClassWaits { class, others } => {
                write!(f, "waits for the turn of class {class} behind {others}")
            }
            Self::Expected(us) if us < 0 => {
                write!(f, "was expected to have work {} ago", Millis(us.saturating_neg()))
            }
            Self::Expected(us) => write!(f, "is expected to have work in {}", Millis(us)),
            Self::Beside(priority) => write!(f, "runs beside work of priority {priority}"),
            Self::Uninterrupted => f.write_str("is not to be interrupted"),
            Self::Starved(ms) => write!(f, "had waited for {ms} ms"),
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Share { percent } => write!(f, "it has used its share of {percent} % for now"),
            Self::Turn => f.write_str("another one has its turn, and keeps the device with work or without"),
            Self::Power { milliwatts, budget } => {
                let watts = |milliwatts: u64| milliwatts as f64 / 1e3;
                write!(f, "the device draws {:.1} W of {:.1} W", watts(milliwatts), watts(budget))
            }
            Self::NoExecute => write!(f, "its priority is {} for now", Priority::NO_EXECUTE),
            Self::Latency { p99_us, target_us } => {
                let (p99, target) = (p99_us as f64 / 1e3, target_us as f64 / 1e3);
                write!(f, "critical work has a p99 of {p99:.1} ms, the target is {target:.1} ms")
            }
        }
    }
}

/// Microseconds as milliseconds.
struct Millis(i64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0 as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_sentence() {
        let priority = |number| Priority::try_from(number).unwrap();
        let outranked = |merit, own| {
            let by = Rival { pid: Pid(4242), queue: QueueId(7), device: DeviceId(51_234), merit };
            Reason::Outranked { by, own }.to_string()
        };
        let [ten, one] = [10, 1].map(|number| Merit::Priority(priority(number)));
        assert_eq!(outranked(ten, one), "queue 7 of pid 4242 has priority 10 > 1");
        assert_eq!(
            outranked(Merit::Turn(3_100), Merit::Waits(0)),
            "queue 7 of pid 4242 has its turn for 3.1 ms more, this one is next"
        );
        assert_eq!(
            outranked(Merit::Deadline(-200), Merit::NoDeadline),
            "queue 7 of pid 4242 missed its deadline 0.2 ms ago, this one has no deadline"
        );
        assert_eq!(
            outranked(Merit::Deadline(3_000), Merit::Deadline(-200)),
            "queue 7 of pid 4242 has a deadline in 3.0 ms, this one missed its deadline 0.2 ms ago"
        );
        assert_eq!(
            outranked(one, one),
            "queue 7 of pid 4242 has priority 1 as well, and its turn comes first"
        );
        assert_eq!(
            outranked(Merit::Level(2), Merit::Level(2)),
            "queue 7 of pid 4242 is on level 2 as well, and its turn comes first"
        );
        assert_eq!(outranked(Merit::Nice(-5), Merit::Nice(10)), "queue 7 of pid 4242 has nice value -5 < 10");
        let turn = |class| Merit::ClassTurn { class, us: 3_100 };
        let waits = |class| Merit::ClassWaits { class, others: 0 };
        assert_eq!(outranked(turn(5), waits(1)), "queue 7 of pid 4242 is of class 5 > 1");
        assert_eq!(
            outranked(turn(1), waits(1)),
            "queue 7 of pid 4242 has its turn for 3.1 ms more, this one is next"
        );
        assert_eq!(
            outranked(Merit::Expected(-1_200), waits(1)),
            "queue 7 of pid 4242 was expected to have work 1.2 ms ago"
        );
        assert_eq!(
            outranked(Merit::Beside(priority(10)), one),
            "queue 7 of pid 4242 runs beside work of priority 10 > 1"
        );
        assert_eq!(Reason::NoExecute.to_string(), "priority -256 never runs");
        assert_eq!(Reason::Barred(Bar::NoExecute).to_string(), "its priority is -256 for now");
    }

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
}
