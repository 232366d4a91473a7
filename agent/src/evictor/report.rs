//! The counts and times of evictions that the server shows, and the log lines about them.

use super::cost::Costs;
use crate::clock::nanos;
use crate::link::ServerLink;
use hal_kfd::Errno;
use protocol::cost::CostOrigin;
use protocol::page::{ClientHeader, UNKNOWN};
use std::mem;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The numbers of a process's evictions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Report {
    pub(super) evictions: u64,
    pub(super) waits: u64,
    pub(super) failures: u64,
    pub(super) expected: Option<Duration>,
    /// The moments of the last eviction's last request and of its answer, until they are written.
    pub(super) last: Option<(Instant, Instant)>,
}

impl Report {
    /// Writes the numbers into the client's page.
    pub(super) fn write(
        &mut self,
        costs: Option<Costs>,
        origin: CostOrigin,
        header: &ClientHeader,
        link: &ServerLink,
    ) {
        let words = &header.holds;
        header.cost_origin.store(origin.number(), Ordering::Relaxed);
        let costs = costs.unwrap_or_default();
        words.waits.store(self.waits, Ordering::Relaxed);
        words.failures.store(self.failures, Ordering::Relaxed);
        words.expected_ns.store(self.expected.map_or(UNKNOWN, nanos), Ordering::Relaxed);
        let [evict, restore] = costs.medians();
        words.hold_ns.store(nanos(evict), Ordering::Relaxed);
        words.release_ns.store(nanos(restore), Ordering::Relaxed);
        if let Some((asked, answered)) = self.last.take() {
            // `Instant` and the server's clock run at the same rate, but may differ by an offset.
            let (instant, time) = (Instant::now(), link.now());
            let at =
                |moment: Instant| time.0.saturating_sub(nanos(instant.saturating_duration_since(moment)));
            words.asked_at.store(at(asked), Ordering::Relaxed);
            words.stood_at.store(at(answered), Ordering::Relaxed);
        }
        words.holds.store(self.evictions, Ordering::Release);
    }
}

/// The messages that were logged: each is logged once, however often its cause occurs (`xcli list` shows the
/// counts).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Logged {
    repeated: bool,
    not_evicted: bool,
    not_restored: bool,
    not_limited: bool,
    given_up: bool,
}

impl Logged {
    /// A request failed, and its repetition succeeded.
    pub(super) fn repeated(&mut self, errno: Errno) {
        if !mem::replace(&mut self.repeated, true) {
            tracing::warn!("the driver failed a request about a queue ({errno}); its repetition succeeded");
        }
    }

    /// An eviction failed.
    pub(super) fn not_evicted(&mut self, error: Option<Errno>) {
        if !mem::replace(&mut self.not_evicted, true) {
            let why = error.map_or_else(|| "its state is unknown".to_owned(), |errno| errno.to_string());
            tracing::warn!(
                "a queue could not be taken off the hardware ({why}): waiting for its work to complete"
            );
        }
    }

    /// Queues cannot be limited to a share of the compute units. Without an error, their number is unknown or
    /// too small.
    pub(super) fn not_limited(&mut self, error: Option<Errno>) {
        if mem::replace(&mut self.not_limited, true) {
            return;
        }
        match error {
            Some(Errno(libc::EBUSY)) => tracing::warn!(
                "the driver keeps the compute unit masks for a debugger ({}): evicting instead of leaving a share",
                Errno(libc::EBUSY)
            ),
            Some(errno) => tracing::warn!(
                "the driver refuses a compute unit mask ({errno}): evicting instead of leaving a share"
            ),
            None => tracing::warn!(
                "the device has too few compute units, or does not tell their number: evicting instead of leaving a share of them"
            ),
        }
    }

    /// Queues could not be restored.
    pub(super) fn not_restored(&mut self, errno: Errno) {
        if !mem::replace(&mut self.not_restored, true) {
            tracing::warn!("queues were not put back at once ({errno}): trying until they are");
        }
    }

    /// Evictions are off for good. The request that showed this error may have been any thread's.
    pub(super) fn given_up(&mut self, errno: Errno) {
        if mem::replace(&mut self.given_up, true) {
            return;
        }
        match errno.0 {
            // The program has made a further context: not a failure of the driver.
            libc::EOPNOTSUPP => {}
            libc::ETIME => tracing::error!(
                "a queue did not come off the hardware in time ({errno}), so the driver resets the GPU: level 1 from now on"
            ),
            _ => {
                tracing::error!("the driver has reset queues of this program ({errno}): level 1 from now on")
            }
        }
    }
}
