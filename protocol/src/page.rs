//! The two shared pages of a client: how what lies in them is laid out, and what may be concluded from it.
//!
//! Only words that a processor reads and writes whole lie there; both sides use them as atomics. The server makes both
//! as memory files whose sizes are sealed, and keeps the only writable mapping of its own page.
//!
//! # Who wakes whom
//! The client writes its queues' readiness ([`Slot::activity`]) and then looks at [`ServerPage::wants`]; the server
//! writes what it wants to hear of and then looks at the readiness. Both store and load sequentially consistent, so
//! that at least one of them sees the other's: either the client writes the eventfd or the server finds it ready. A
//! program that launches and synchronizes in turn, and disturbs nobody, therefore makes no system call for the server.
//!
//! The server writes the permission and then adds one to [`ServerPage::changes`], a futex on which the client's agent
//! sleeps.

use crate::cost::{COSTS, CostWords};
use crate::slow::SlowPath;
use crate::status::Activity;
use crate::time::Time;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Bytes of the server's page.
pub const SERVER_BYTES: usize = 4096;
/// Bytes of the client's page. Memory that nobody touches costs nothing.
pub const CLIENT_BYTES: usize = 256 * 1024;
/// The head of the client's page is as long as so many slots.
pub const HEAD_SLOTS: usize = size_of::<ClientHeader>() / size_of::<Slot>();
/// Queues that a client can tell the server of at a time.
pub const SLOTS: usize = CLIENT_BYTES / size_of::<Slot>() - HEAD_SLOTS;
/// For how long a permission holds after the server's last word.
pub const LEASE: Duration = Duration::from_millis(500);
/// How often the server renews every lease.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// [`ServerPage::wants`]: write the eventfd when a queue turns ready.
pub const WANTS_READY: u32 = 1;
/// [`ServerPage::wants`]: write the eventfd when a queue turns idle, because somebody waits for it.
pub const WANTS_IDLE: u32 = 2;
/// [`ServerPage::wants`]: keep [`ClientHeader::completed`] up to date, because somebody waits.
pub const WANTS_PROGRESS: u32 = 4;

/// What the server writes and the client reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ServerPage {
    /// The permission: generation in bits 32 to 63, in 24 to 31 the window ([`crate::operation::Window`]), in 16 to 23 how
    /// many others than the first run on the client's devices
    /// (written with a change of another part only), level in 8 to 15, limit in bit 1, run in bit 0.
    pub word: AtomicU64,
    /// Until then it holds, in nanoseconds of the server's `CLOCK_MONOTONIC`.
    pub deadline: AtomicU64,
    /// Counts what the client's agent should look at; a futex.
    pub changes: AtomicU32,
    /// `WANTS_*`: what the server wants to hear of.
    pub wants: AtomicU32,
    /// Counts requests to bring every number of the client's page up to date.
    pub report: AtomicU32,
    /// `TAKES_*`: what the server wants to be told besides ([`crate::cost`]). Zero from one that is older.
    pub takes: AtomicU32,
    /// What holds cost, as clients told; in any order.
    pub costs: [CostWords; COSTS],
}

/// The head of what the client writes and the server reads, as untrusted input. Slots follow.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ClientHeader {
    /// Commands of all its queues that are known to have completed.
    pub completed: AtomicU64,
    /// Until then (the server's clock) what runs is a command whose length is known: no progress is no stall.
    pub busy_until: AtomicU64,
    /// The last [`ServerPage::report`] that was answered.
    pub reported: AtomicU32,
    /// Launches of the process that were made in their turn on the calling thread, by reason ([`SlowPath::number`]); a count
    /// at its end stays there. Clients that do not count them leave them zero.
    pub slow: [AtomicU32; SlowPath::ALL.len()],
    /// Where the times in `holds` are from ([`crate::cost::CostOrigin::number`]).
    pub cost_origin: AtomicU32,
    /// What taking its queues off the hardware came to.
    pub holds: HoldWords,
}

/// What came of taking a client's queues off the hardware so far, for people and measurements.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct HoldWords {
    /// Suspensions in which its queues were taken off the hardware. Written after the others.
    pub holds: AtomicU64,
    /// Suspensions in which waiting for what was in flight was expected to cost less.
    pub waits: AtomicU64,
    /// Until when what was in flight at the last suspension was expected to run, in nanoseconds from then; [`UNKNOWN`] if
    /// nothing was known of it.
    pub expected_ns: AtomicU64,
    /// What taking its queues off the hardware costs, in nanoseconds, as measured lately.
    pub hold_ns: AtomicU64,
    /// What putting them back costs, likewise.
    pub release_ns: AtomicU64,
    /// When the last request of the last hold was made, by the server's clock.
    pub asked_at: AtomicU64,
    /// When that had been answered, so that all its queues stood.
    pub stood_at: AtomicU64,
    /// Holds that failed and were taken back.
    pub failures: AtomicU64,
}

/// [`HoldWords::expected_ns`]: nothing is known.
pub const UNKNOWN: u64 = u64::MAX;

/// One queue on the client's page.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// Whether it has work and since when, as [`activity_word`].
    pub activity: AtomicU64,
    /// Commands submitted and not launched.
    pub pending: AtomicU64,
    /// Commands launched and not completed.
    pub in_flight: AtomicU64,
    /// Launches by the submitting thread itself.
    pub direct: AtomicU64,
    /// Launches that had been pending.
    pub deferred: AtomicU64,
    /// How often it was suspended.
    pub suspensions: AtomicU64,
    /// For how many nanoseconds in all.
    pub suspended_ns: AtomicU64,
}

const _: () = {
    assert!(size_of::<ServerPage>() <= SERVER_BYTES);
    // Older clients and servers of the same version have them there.
    assert!(std::mem::offset_of!(ClientHeader, holds) == 64);
    assert!(std::mem::offset_of!(ClientHeader, cost_origin) == 48);
    assert!(std::mem::offset_of!(ServerPage, takes) == 28);
    assert!(std::mem::offset_of!(ServerPage, costs) == 32);
    assert!(size_of::<ClientHeader>().is_multiple_of(size_of::<Slot>()));
    assert!(size_of::<Slot>() == 64);
    assert!((SLOTS + HEAD_SLOTS) * size_of::<Slot>() == CLIENT_BYTES);
};

/// The word for an activity: 0 for a queue that was never used, else the time, in its place above bit 0, which says
/// ready. Times above 2^63 ns (292 years) are cut.
pub fn activity_word(activity: Activity) -> u64 {
    match activity {
        Activity::Ready { since } => since.0 << 1 | 1,
        Activity::Idle { since: None } => 0,
        // An idle time of 0 would be "never used"; a nanosecond does not matter.
        Activity::Idle { since: Some(since) } => since.0.max(1) << 1,
    }
}

/// What such a word says. Every word says something.
pub fn activity_of(word: u64) -> Activity {
    let since = Time(word >> 1);
    match word {
        0 => Activity::Idle { since: None },
        _ if word & 1 == 1 => Activity::Ready { since },
        _ => Activity::Idle { since: Some(since) },
    }
}

/// The client's clock and the server's, where time namespaces make them differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// From one exchange: the client's clock when it asked and when the answer had come, and the server's between.
    pub fn new(asked: Time, theirs: Time, answered: Time) -> Self {
        if asked <= theirs && theirs <= answered {
            // The same clock; half of the way's time would only make it wrong.
            return Self(0);
        }
        Self(theirs.0.wrapping_sub(answered.0).cast_signed())
    }

    /// The server's time at a time of the client's.
    pub fn to_server(self, mine: Time) -> Time {
        Time(mine.0.saturating_add_signed(self.0))
    }

    /// The client's time at a time of the server's.
    pub fn to_client(self, theirs: Time) -> Time {
        Time(theirs.0.saturating_add_signed(self.0.saturating_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_activity_survives_its_word() {
        let times = [1, 2, 1_000_000_000, u64::MAX >> 1];
        for since in times.map(Time) {
            for activity in [Activity::Ready { since }, Activity::Idle { since: Some(since) }] {
                assert_eq!(activity_of(activity_word(activity)), activity);
            }
        }
        assert_eq!(activity_word(Activity::Idle { since: None }), 0);
        assert_eq!(activity_of(0), Activity::Idle { since: None });
        assert_eq!(
            activity_of(activity_word(Activity::Ready { since: Time(0) })),
            Activity::Ready { since: Time(0) }
        );
    }

    #[test]
    fn clocks_of_one_namespace_do_not_differ() {
        assert_eq!(ClockOffset::new(Time(10), Time(15), Time(20)), ClockOffset::default());
        for (asked, theirs, answered) in [(10, 1_000_015, 20), (1_000_010, 15, 1_000_020)] {
            let offset = ClockOffset::new(Time(asked), Time(theirs), Time(answered));
            assert_eq!(offset.to_server(Time(answered)), Time(theirs));
            assert_eq!(offset.to_client(Time(theirs)), Time(answered));
        }
    }
}
