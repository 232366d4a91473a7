//! The cost of evicting a program's queues from a device, and its exchange between a server and its clients.
//!
//! A measurement disturbs others: on devices with hardware scheduling each eviction stops the queues of all
//! processes for a moment. Therefore the first program measures, the server keeps the results and shows them
//! on its page, and later programs take them from there. Their first evictions check the results.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// [`crate::page::ServerPage::takes`]: the server keeps costs and shows them on its page.
pub const ACCEPTS_COSTS: u32 = 1;
/// Costs that a server keeps: one for each device and mechanism. Its page has no room for more.
pub const COSTS: usize = 64;
/// The longest eviction or restore that a client reports, in nanoseconds. A client that measures more does
/// not evict at all.
pub const MOST_NS: u64 = 100_000_000;

/// The key of a cost: a number made of everything that the cost depends on (boot, kernel, driver, device,
/// mechanism). Only clients make keys; the server compares them.
pub type CostKey = NonZeroU64;

/// The durations of an eviction and of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictCost {
    /// Nanoseconds of an eviction, from 1 to [`MOST_NS`].
    hold_ns: NonZeroU64,
    /// Nanoseconds of a restore, from 1 to [`MOST_NS`].
    release_ns: NonZeroU64,
}

impl EvictCost {
    /// Creates a cost, or returns `None` if a time is out of range.
    pub fn new(hold_ns: u64, release_ns: u64) -> Option<Self> {
        let time = |ns: u64| NonZeroU64::new(ns).filter(|ns| ns.get() <= MOST_NS);
        Some(Self { hold_ns: time(hold_ns)?, release_ns: time(release_ns)? })
    }

    /// Returns the nanoseconds of an eviction.
    pub fn hold_ns(self) -> u64 {
        self.hold_ns.get()
    }

    /// Returns the nanoseconds of a restore.
    pub fn release_ns(self) -> u64 {
        self.release_ns.get()
    }
}

/// One cost on the server's page. All zero if there is none.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CostWords {
    key: AtomicU64,
    hold_ns: AtomicU64,
    release_ns: AtomicU64,
}

impl CostWords {
    /// Shows a cost, or none. A concurrent reader finds nothing or this cost. Only one thread may write.
    pub fn store(&self, cost: Option<(CostKey, EvictCost)>) {
        self.key.store(0, Ordering::SeqCst);
        let (key, times) =
            cost.map_or((0, [0; 2]), |(key, cost)| (key.get(), [cost.hold_ns(), cost.release_ns()]));
        self.hold_ns.store(times[0], Ordering::SeqCst);
        self.release_ns.store(times[1], Ordering::SeqCst);
        self.key.store(key, Ordering::SeqCst);
    }

    /// Returns the cost of this key, if these words show it.
    pub fn load(&self, key: CostKey) -> Option<EvictCost> {
        let is_shown = || self.key.load(Ordering::SeqCst) == key.get();
        if !is_shown() {
            return None;
        }
        let cost =
            EvictCost::new(self.hold_ns.load(Ordering::SeqCst), self.release_ns.load(Ordering::SeqCst));
        cost.filter(|_| is_shown())
    }
}

/// The origin of a program's knowledge about the cost of evictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CostOrigin {
    /// Unknown: level 1 is in force, or the client is older than this enumeration.
    #[default]
    None,
    /// The program measured the cost when it created its first queue.
    Measured,
    /// Another program measured the cost. No eviction of this program has checked it yet.
    Taken,
    /// Another program measured the cost, and evictions of this program took about as long.
    Confirmed,
    /// Evictions of this program took so much more or less time than the measured cost that their times count
    /// instead.
    Corrected,
    /// No program has measured the cost. Evictions of this program will show it.
    Unmeasured,
    /// No program had measured the cost. Evictions of this program have shown it.
    Learnt,
}

impl CostOrigin {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Measured,
        Self::Taken,
        Self::Confirmed,
        Self::Corrected,
        Self::Unmeasured,
        Self::Learnt,
    ];

    /// Returns the number for a client's page.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the origin with this number. An unknown number, as of a newer client, yields `None`.
    pub fn of_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|origin| origin.number() == number).unwrap_or_default()
    }

    /// Returns the name for JSON, or `None` if the cost is unknown.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Measured => "measured",
            Self::Taken => "taken",
            Self::Confirmed => "confirmed",
            Self::Corrected => "corrected",
            Self::Unmeasured => "unmeasured",
            Self::Learnt => "learnt",
        })
    }

    /// Returns the explanation of a name for users, to be shown behind the times, or `None` for an unknown
    /// name.
    pub fn meaning(name: &str) -> Option<&'static str> {
        Some(match Self::ALL.into_iter().find(|origin| origin.name() == Some(name))? {
            Self::None => return None,
            Self::Measured => "measured at the program's start",
            Self::Taken => "measured by an earlier program, not checked by a hold yet",
            Self::Confirmed => "measured by an earlier program, confirmed by holds",
            Self::Corrected => "from its holds, because what an earlier program measured was wrong",
            Self::Unmeasured => "not measured yet: its first holds will tell",
            Self::Learnt => "from its holds",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_cost_with_a_time_out_of_range_is_refused() {
        let cost = EvictCost::new(1, MOST_NS).expect("both ends of the range");
        assert_eq!((cost.hold_ns(), cost.release_ns()), (1, MOST_NS));
        for (hold, release) in [(0, 1), (1, 0), (MOST_NS + 1, 1), (1, u64::MAX)] {
            assert_eq!(EvictCost::new(hold, release), None);
        }
    }

    #[test]
    fn cost_words_are_read_only_under_their_key() {
        let (key, other) = (CostKey::MIN, CostKey::MAX);
        let words = CostWords::default();
        assert_eq!(words.load(key), None);
        let cost = EvictCost::new(70, 50);
        words.store(cost.map(|cost| (key, cost)));
        assert_eq!((words.load(key), words.load(other)), (cost, None));
        // Words of another version of the server do not count.
        words.release_ns.store(0, Ordering::SeqCst);
        assert_eq!(words.load(key), None);
        words.store(None);
        assert_eq!(words.load(key), None);
    }

    #[test]
    fn cost_origin_has_a_number_and_every_known_one_a_meaning() {
        for (number, origin) in CostOrigin::ALL.into_iter().enumerate() {
            assert_eq!(usize::try_from(origin.number()), Ok(number));
            assert_eq!(CostOrigin::of_number(origin.number()), origin);
            assert_eq!(origin.name().is_some(), origin != CostOrigin::None);
            assert!(origin.name().is_none_or(|name| CostOrigin::meaning(name).is_some()));
        }
        assert_eq!((CostOrigin::of_number(99), CostOrigin::meaning("new")), (CostOrigin::None, None));
    }
}
