//! The two shared pages of a client: their layout, and the meaning of their contents.
//!
//! The pages contain only words that a processor reads and writes as a whole. Both sides use them as atomics.
//! The server creates both pages as memory files of sealed sizes, and keeps the only writable mapping of its
//! own page.
//!
//! # Wake-ups
//! The client writes the readiness of its queues ([`Slot::activity`]) and then reads [`ServerPage::wants`].
//! The server writes its event mask there and then reads the readiness. Both use sequentially consistent
//! stores and loads, so that at least one of them sees the other's store: either the client writes the
//! eventfd, or the server finds the queue ready. Therefore a program that launches and synchronizes in turn,
//! and disturbs no other, makes no system call for the server.
//!
//! The server relies on the eventfd: while the mask has [`EVENT_READY`] and all queues of the client are idle, it reads the
//! readiness only after a notification, and at heartbeats.
//!
//! The server writes the permission and then increments [`ServerPage::changes`], a futex on which the
//! client's agent sleeps.

use crate::cost::{COSTS, CostWords};
use crate::slow::SlowPath;
use crate::status::Activity;
use crate::time::Time;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Bytes of the server's page.
pub const SERVER_BYTES: usize = 4096;
/// Bytes of the client's page. Untouched memory costs nothing.
pub const CLIENT_BYTES: usize = 256 * 1024;
/// Length of the header of the client's page, in slots.
pub const HEADER_SLOTS: usize = size_of::<ClientHeader>() / size_of::<Slot>();
/// Most queues of a client at a time.
pub const SLOTS: usize = CLIENT_BYTES / size_of::<Slot>() - HEADER_SLOTS;
/// Duration of a permission after the server's last renewal.
pub const LEASE: Duration = Duration::from_millis(500);
/// The most by which a queue's ready time may lie ahead. A queue with brief work only is ready from a time ahead on, and
/// counts as idle until then. Clients write at most 1 ms; the server may compare that with an older time, or with a
/// clock that is a little behind.
pub const AHEAD: Duration = Duration::from_millis(10);
/// Interval at which the server renews every lease.
pub const HEARTBEAT: Duration = Duration::from_millis(100);

/// [`ServerPage::wants`]: write the eventfd when a queue becomes ready.
pub const EVENT_READY: u32 = 1;
/// [`ServerPage::wants`]: write the eventfd when a queue becomes idle, because another client waits for it.
pub const EVENT_IDLE: u32 = 2;
/// [`ServerPage::wants`]: keep [`ClientHeader::completed`] up to date, because another client waits.
pub const EVENT_PROGRESS: u32 = 4;
/// [`ServerPage::wants`]: no other client waits for this one. After a synchronization a queue may stay ready until the
/// client's watcher turns it idle. An older server never sets this bit.
pub const MAY_STAY_READY: u32 = 8;

/// [`ClientHeader::takes`]: the client takes [`crate::message::ToClient::Trace`].
pub const TAKES_TRACES: u32 = 1;
/// [`ServerPage::takes`]: the server knows the hint of a stream's priority
/// ([`QueueHints::stream_priority`](crate::hint::QueueHints::stream_priority)). An older one refuses a message with it.
pub const ACCEPTS_STREAM_PRIORITIES: u32 = 2;
/// [`ClientHeader::takes`]: the client takes [`crate::message::ToClient::Configure`].
pub const TAKES_CONFIGURATION: u32 = 2;

/// The page that the server writes and the client reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ServerPage {
    /// The permission: bits 32 to 63 are the generation, 24 to 31 the window ([`crate::operation::Window`]),
    /// 16 to 23 the number of other clients that run on the client's devices beside the first one (written
    /// only together with another change), 8 to 15 the level, 1 the limit, and 0 the permission to run.
    pub word: AtomicU64,
    /// End of the permission, in nanoseconds of the server's `CLOCK_MONOTONIC`.
    pub deadline: AtomicU64,
    /// Counter of changes that concern the client's agent; a futex.
    pub changes: AtomicU32,
    /// Event mask of the server: `EVENT_*`, and [`MAY_STAY_READY`].
    pub wants: AtomicU32,
    /// Counter of requests to update every number of the client's page.
    pub report: AtomicU32,
    /// Further messages that the server accepts: [`crate::cost::ACCEPTS_COSTS`], [`ACCEPTS_STREAM_PRIORITIES`]. An older
    /// server leaves it zero.
    pub takes: AtomicU32,
    /// Costs of evictions, as clients reported them, in any order.
    pub costs: [CostWords; COSTS],
}

/// The header of the page that the client writes. The server reads it as untrusted input. Slots follow.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ClientHeader {
    /// Commands of all queues that are known to have completed.
    pub completed: AtomicU64,
    /// Time (of the server's clock) until which a command of known duration runs. A lack of progress until
    /// then is no stall.
    pub busy_until: AtomicU64,
    /// The last [`ServerPage::report`] that the client answered.
    pub reported: AtomicU32,
    /// In-order launches that the calling thread made, by reason ([`SlowPath::number`]). A counter stays at
    /// its greatest value. Clients that do not count them leave them zero.
    pub slow: [AtomicU32; SlowPath::ALL.len()],
    /// Origin of the times in `holds` ([`crate::cost::CostOrigin::number`]).
    pub cost_origin: AtomicU32,
    /// Messages that the client takes: [`TAKES_TRACES`], [`TAKES_CONFIGURATION`]. An older client leaves it zero.
    pub takes: AtomicU32,
    /// Packets that the devices have taken from the process's compute queues, by the read indices of those queues that
    /// exist. A change is progress, also where no marker shows that a command has completed. Clients that do not follow
    /// their queues leave it zero.
    pub taken: AtomicU64,
    /// Statistics of evictions.
    pub holds: EvictCounters,
}

/// Statistics of the evictions of a client so far, for users and measurements.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EvictCounters {
    /// Suspensions in which the client's queues were evicted. Written after the other fields.
    pub holds: AtomicU64,
    /// Suspensions in which waiting for the commands in flight was expected to cost less.
    pub waits: AtomicU64,
    /// Expected remaining duration of the commands in flight at the last suspension, in nanoseconds;
    /// [`UNKNOWN`] if there was no estimate.
    pub expected_ns: AtomicU64,
    /// Cost of evicting as many queues as at the last suspension, in nanoseconds, by recent measurements.
    pub hold_ns: AtomicU64,
    /// Cost of restoring as many, in nanoseconds, by recent measurements.
    pub release_ns: AtomicU64,
    /// Time of the last request of the last eviction, by the server's clock.
    pub asked_at: AtomicU64,
    /// Time at which the driver had answered it and all queues were evicted.
    pub stood_at: AtomicU64,
    /// Evictions that failed and were taken back.
    pub failures: AtomicU64,
}

/// [`EvictCounters::expected_ns`]: there is no estimate.
pub const UNKNOWN: u64 = u64::MAX;

/// One queue on the client's page.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// State of the queue, as [`activity_word`]. A ready time may lie ahead by up to [`AHEAD`].
    pub activity: AtomicU64,
    /// Commands submitted and not launched.
    pub pending: AtomicU64,
    /// Commands launched and not completed.
    pub in_flight: AtomicU64,
    /// Launches by the submitting thread itself; only grows. Up to date whenever the queue turns idle (older clients: as
    /// recent as the other counters).
    pub direct: AtomicU64,
    /// Launches of deferred commands; only grows, and as recent as `direct`.
    pub deferred: AtomicU64,
    /// Number of suspensions.
    pub suspensions: AtomicU64,
    /// Total duration of suspensions in nanoseconds.
    pub suspended_ns: AtomicU64,
    /// Device time of the completed commands in nanoseconds, as far as the client knows it; only grows. Up to date
    /// whenever the queue turns idle, and as recent as the other counters otherwise. Clients that do not count it
    /// leave it zero.
    pub worked_ns: AtomicU64,
}

const _: () = {
    assert!(size_of::<ServerPage>() <= SERVER_BYTES);
    // Older clients and servers of the same version expect the fields there.
    assert!(std::mem::offset_of!(ClientHeader, holds) == 64);
    assert!(std::mem::offset_of!(ClientHeader, cost_origin) == 48);
    assert!(std::mem::offset_of!(ClientHeader, takes) == 52);
    assert!(std::mem::offset_of!(ClientHeader, taken) == 56);
    assert!(std::mem::offset_of!(ServerPage, takes) == 28);
    assert!(std::mem::offset_of!(ServerPage, costs) == 32);
    assert!(size_of::<ClientHeader>().is_multiple_of(size_of::<Slot>()));
    assert!(size_of::<Slot>() == 64);
    assert!(std::mem::offset_of!(Slot, worked_ns) == 56);
    assert!((SLOTS + HEADER_SLOTS) * size_of::<Slot>() == CLIENT_BYTES);
};

/// Encodes an activity: 0 for a queue that was never used, else the time, shifted left by one, with bit 0 set
/// if the queue is ready. Times above 2^63 ns (292 years) are truncated.
///
/// ```
/// use protocol::page::{activity_of, activity_word};
/// use protocol::status::Activity;
/// use protocol::time::Time;
///
/// let ready = Activity::Ready { since: Time(5) };
/// assert_eq!(activity_word(ready), 11);
/// assert_eq!(activity_of(11), ready);
/// ```
pub fn activity_word(activity: Activity) -> u64 {
    match activity {
        Activity::Ready { since } => since.0 << 1 | 1,
        Activity::Idle { since: None } => 0,
        // An idle time of 0 would mean "never used"; a nanosecond does not matter.
        Activity::Idle { since: Some(since) } => since.0.max(1) << 1,
    }
}

/// Decodes such a word. Every word is valid.
pub fn activity_of(word: u64) -> Activity {
    let since = Time(word >> 1);
    match word {
        0 => Activity::Idle { since: None },
        _ if word & 1 == 1 => Activity::Ready { since },
        _ => Activity::Idle { since: Some(since) },
    }
}

/// The difference between the clocks of client and server in different time namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// Computes the difference from one exchange: the client's clock at the request and at the answer, and
    /// the server's clock in between.
    pub fn new(asked: Time, theirs: Time, answered: Time) -> Self {
        if asked <= theirs && theirs <= answered {
            // The clocks are the same. Half of the round trip would only add an error.
            return Self(0);
        }
        Self(theirs.0.wrapping_sub(answered.0).cast_signed())
    }

    /// Converts a time of the client's clock to the server's clock.
    pub fn to_server(self, mine: Time) -> Time {
        Time(mine.0.saturating_add_signed(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_encoded_and_decoded_is_the_same() {
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
    fn clock_offset_of_one_namespace_is_zero_and_of_two_converts() {
        assert_eq!(ClockOffset::new(Time(10), Time(15), Time(20)), ClockOffset::default());
        for (asked, theirs, answered) in [(10, 1_000_015, 20), (1_000_010, 15, 1_000_020)] {
            let offset = ClockOffset::new(Time(asked), Time(theirs), Time(answered));
            assert_eq!(offset.to_server(Time(answered)), Time(theirs));
        }
    }
}
