//! What taking a program's queues off a device costs, and how a server and its clients tell each other.
//!
//! Measuring that disturbs others: on devices with hardware scheduling each hold stops the queues of all processes for a
//! moment. The first program measures, the server keeps the figures and shows them on its page, and later programs take
//! them and see at their first holds whether they are right.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

/// [`crate::page::ServerPage::takes`]: the server keeps what holds cost, and its page shows it.
pub const TAKES_COSTS: u32 = 1;
/// How many a server keeps: one for each device and mechanism. Its page has room for no more.
pub const COSTS: usize = 64;
/// The longest hold or release that somebody can tell of, in nanoseconds: whoever measures more does not hold at all.
pub const MOST_NS: u64 = 100_000_000;

/// What a hold costs is known under this key: a number made of all that it depends on (boot, kernel, driver, device,
/// mechanism). Only clients make keys, and the server compares them.
pub type CostKey = NonZeroU64;

/// What a hold and a release take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldCost {
    /// Nanoseconds of a hold, from 1 to [`MOST_NS`].
    hold_ns: NonZeroU64,
    /// Nanoseconds of a release, likewise.
    release_ns: NonZeroU64,
}

impl HoldCost {
    /// These times, if they are in range.
    pub fn new(hold_ns: u64, release_ns: u64) -> Option<Self> {
        let time = |ns: u64| NonZeroU64::new(ns).filter(|ns| ns.get() <= MOST_NS);
        Some(Self { hold_ns: time(hold_ns)?, release_ns: time(release_ns)? })
    }

    /// Nanoseconds of a hold.
    pub fn hold_ns(self) -> u64 {
        self.hold_ns.get()
    }

    /// Nanoseconds of a release.
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
    /// Shows a cost, or none. Whoever reads meanwhile finds nothing, or this one. (One writer.)
    pub fn store(&self, cost: Option<(CostKey, HoldCost)>) {
        self.key.store(0, Ordering::SeqCst);
        let (key, times) =
            cost.map_or((0, [0; 2]), |(key, cost)| (key.get(), [cost.hold_ns(), cost.release_ns()]));
        self.hold_ns.store(times[0], Ordering::SeqCst);
        self.release_ns.store(times[1], Ordering::SeqCst);
        self.key.store(key, Ordering::SeqCst);
    }

    /// The cost of this key, if it is the one that is shown.
    pub fn load(&self, key: CostKey) -> Option<HoldCost> {
        let is_shown = || self.key.load(Ordering::SeqCst) == key.get();
        if !is_shown() {
            return None;
        }
        let cost = HoldCost::new(self.hold_ns.load(Ordering::SeqCst), self.release_ns.load(Ordering::SeqCst));
        cost.filter(|_| is_shown())
    }
}

/// Where a program has what it knows of its holds' cost from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CostOrigin {
    /// Nothing is known: level 1 is in force, or the client is older than this.
    #[default]
    None,
    /// The program measured it when it made its first queue.
    Measured,
    /// Another program measured it, and no hold of this one has shown yet whether it is right.
    Taken,
    /// Another program measured it, and holds of this one took about as long.
    Confirmed,
    /// Holds of this program took so much more or less than it was told that their times count instead.
    Corrected,
    /// Nobody has measured it: holds of this program show it.
    Unmeasured,
    /// Nobody had measured it, and holds of this program have shown it.
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

    /// Its number on a client's page.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// What such a number says. A newer client's may say nothing here.
    pub fn of_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|origin| origin.number() == number).unwrap_or_default()
    }

    /// Its name in JSON; nothing where nothing is known.
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

    /// What such a name means for people, behind the times. A newer server's name may mean nothing here.
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
    fn a_cost_has_two_times_in_range() {
        let cost = HoldCost::new(1, MOST_NS).expect("both ends of the range");
        assert_eq!((cost.hold_ns(), cost.release_ns()), (1, MOST_NS));
        for (hold, release) in [(0, 1), (1, 0), (MOST_NS + 1, 1), (1, u64::MAX)] {
            assert_eq!(HoldCost::new(hold, release), None);
        }
    }

    #[test]
    fn words_show_one_cost_under_its_key() {
        let (key, other) = (CostKey::MIN, CostKey::MAX);
        let words = CostWords::default();
        assert_eq!(words.load(key), None);
        let cost = HoldCost::new(70, 50);
        words.store(cost.map(|cost| (key, cost)));
        assert_eq!((words.load(key), words.load(other)), (cost, None));
        // What another version of the server wrote there does not count.
        words.release_ns.store(0, Ordering::SeqCst);
        assert_eq!(words.load(key), None);
        words.store(None);
        assert_eq!(words.load(key), None);
    }

    #[test]
    fn each_origin_has_a_number_and_each_that_says_something_a_meaning() {
        for (number, origin) in CostOrigin::ALL.into_iter().enumerate() {
            assert_eq!(usize::try_from(origin.number()), Ok(number));
            assert_eq!(CostOrigin::of_number(origin.number()), origin);
            assert_eq!(origin.name().is_some(), origin != CostOrigin::None);
            assert!(origin.name().is_none_or(|name| CostOrigin::meaning(name).is_some()));
        }
        assert_eq!((CostOrigin::of_number(99), CostOrigin::meaning("new")), (CostOrigin::None, None));
    }
}
