//! The link to the server as launching threads use it: they write that a queue has turned ready or idle, and
//! notify the server if it asks for that event. They take no lock, and make no system call unless they
//! notify.

use crate::clock::{nanos, now};
use crate::futex;
use crate::notifier::Notifier;
use crate::pages::Pages;
use crate::tracer::Tracer;
use protocol::page::{
    EVENT_IDLE, EVENT_PROGRESS, EVENT_READY, MAY_STAY_READY, ServerPage, Slot, activity_of, activity_word,
};
use protocol::status::Activity;
use protocol::time::Time;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;
use xqueue::Done;

/// The place of one queue's state for the server. It is never freed ([`QueueSlot::tag`]).
#[derive(Debug)]
pub struct QueueSlot {
    /// Null while the server does not know the queue. A queue keeps its slot as long as it exists.
    slot: AtomicPtr<Slot>,
}

impl QueueSlot {
    /// Makes a place that leads to no slot yet.
    #[expect(clippy::new_without_default, reason = "a queue slot has an identity, and is no value")]
    pub fn new() -> Self {
        Self { slot: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the tag for the queue with this slot (`xqueue::QueueConfig::tag`).
    pub fn tag(&'static self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }

    /// Returns the slot with this tag.
    ///
    /// # Safety
    ///
    /// The tag comes from [`QueueSlot::tag`].
    pub(crate) unsafe fn of_tag(tag: usize) -> &'static Self {
        // SAFETY: by the contract the tag is the exposed address of a `&'static Self`.
        unsafe { &*ptr::with_exposed_provenance(tag) }
    }

    /// Gives the queue a slot of the client's page, or takes it away.
    pub(crate) fn set(&self, slot: Option<&'static Slot>) {
        let slot = slot.map_or(ptr::null_mut(), |slot| ptr::from_ref(slot).cast_mut());
        self.slot.store(slot, Ordering::SeqCst);
    }

    fn get(&self) -> Option<&'static Slot> {
        // SAFETY: the pointer is null or was a `&'static Slot` in `set`.
        unsafe { self.slot.load(Ordering::SeqCst).as_ref() }
    }
}

/// The link to the server: one for a process, whichever server is connected.
#[derive(Debug)]
pub(crate) struct ServerLink {
    /// The shared pages; reserved when a server is first to decide.
    pages: OnceLock<Pages>,
    /// The difference of the server's clock to this process's; wraps around.
    clock_offset: AtomicU64,
    /// Notifies the server.
    pub(crate) server: Notifier,
    /// Wakes the agent.
    pub(crate) agent: Notifier,
    /// True while the agent updates the queues' counts by itself; otherwise a launch has to wake it for that.
    pub(crate) agent_counts: AtomicBool,
    /// The trace of this process.
    pub(crate) tracer: Tracer,
}

impl ServerLink {
    pub(crate) fn new() -> Self {
        Self {
            pages: OnceLock::new(),
            clock_offset: AtomicU64::new(0),
            server: Notifier::new(),
            agent: Notifier::new(),
            agent_counts: AtomicBool::new(false),
            tracer: Tracer::default(),
        }
    }

    /// Returns the pages; the first call reserves them.
    pub(crate) fn pages(&self) -> std::io::Result<&Pages> {
        match self.pages.get() {
            Some(pages) => Ok(pages),
            None => {
                let pages = Pages::reserve()?;
                Ok(self.pages.get_or_init(|| pages))
            }
        }
    }

    /// Returns the pages if they were reserved.
    pub(crate) fn reserved_pages(&self) -> Option<&Pages> {
        self.pages.get()
    }

    /// Sets the difference of the server's clock.
    pub(crate) fn set_clock_offset(&self, offset: u64) {
        self.clock_offset.store(offset, Ordering::Release);
    }

    /// Returns the present time of the server's clock.
    pub(crate) fn now(&self) -> Time {
        self.to_server(now())
    }

    /// Converts a time of this process to the server's clock.
    pub(crate) fn to_server(&self, time: Time) -> Time {
        Time(time.0.wrapping_add(self.clock_offset.load(Ordering::Acquire)))
    }

    /// Returns for how much longer the permission on the server's page is valid.
    pub(crate) fn lease_left(&self, page: &ServerPage) -> Duration {
        Time(page.deadline.load(Ordering::SeqCst)).since(self.now())
    }

    /// Wakes the listener, if there is one, to look at the permission again.
    pub(crate) fn wake_listener(&self) {
        if let Some(pages) = self.pages.get() {
            futex::wake(&pages.server().changes);
        }
    }

    /// Reports that a queue has its first unfinished command, or more behind brief work. If that counts already, the
    /// queue stays ready since then. `at` is the present time.
    pub(crate) fn turned_ready(&self, slot: &QueueSlot, at: Time) {
        if let Some(slot) = slot.get() {
            let now = self.to_server(at);
            let counts_since = match activity_of(slot.activity.load(Ordering::Relaxed)) {
                Activity::Ready { since } => since,
                Activity::Idle { .. } => now,
            };
            self.ready_from(slot, counts_since.min(now));
        }
    }

    /// Reports that a queue has only brief work, which counts as ready when this time has passed. `at` is the present time.
    pub(crate) fn turned_ready_briefly(&self, slot: &QueueSlot, at: Time, grace: Duration) {
        if let Some(slot) = slot.get() {
            self.ready_from(slot, self.to_server(at).after(grace));
        }
    }

    fn ready_from(&self, slot: &Slot, since: Time) {
        let events = self.write(slot, Activity::Ready { since });
        if events & EVENT_READY != 0 {
            self.server.notify();
        }
        if events & EVENT_PROGRESS != 0 && !self.agent_counts.swap(true, Ordering::AcqRel) {
            self.agent.notify_once();
        }
    }

    /// Reports since when a queue has nothing pending and nothing in flight, and what it has done.
    pub(crate) fn turned_idle(&self, slot: &QueueSlot, since: Time, done: Done) {
        let Some(slot) = slot.get() else { return };
        // Before the activity, because of which the server may look. The agent may have stored a later value.
        slot.worked_ns.fetch_max(nanos(done.worked), Ordering::Relaxed);
        slot.direct.fetch_max(done.direct, Ordering::Relaxed);
        slot.deferred.fetch_max(done.deferred, Ordering::Relaxed);
        // The server is notified behind brief work as well: it may have read the slot when that counted as ready.
        if self.write(slot, Activity::Idle { since: Some(self.to_server(since)) }) & EVENT_IDLE != 0 {
            self.server.notify();
        }
    }

    /// Returns true if the server permits queues to stay ready between synchronizations.
    pub(crate) fn may_stay_ready(&self) -> bool {
        let permits = |pages: &Pages| pages.server().wants.load(Ordering::Relaxed) & MAY_STAY_READY != 0;
        !self.server.is_muted() && self.pages.get().is_some_and(permits)
    }

    /// Writes the activity, then returns the server's event mask. The server writes the mask first and then
    /// reads the activity, so that at least one of the two sees the other's store.
    fn write(&self, slot: &Slot, activity: Activity) -> u32 {
        slot.activity.store(activity_word(activity), Ordering::SeqCst);
        if self.server.is_muted() {
            return 0;
        }
        self.pages.get().map_or(0, |pages| pages.server().wants.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> &'static Slot {
        // SAFETY: a slot consists of atomic integers, for which zero is a value.
        Box::leak(Box::new(unsafe { std::mem::zeroed() }))
    }

    #[test]
    fn brief_work_is_ready_from_a_time_ahead_on_and_leaves_the_idle_time() {
        let (queue, slot, link) = (QueueSlot::new(), slot(), ServerLink::new());
        let activity = || activity_of(slot.activity.load(Ordering::SeqCst));
        queue.set(Some(slot));
        let since = link.now();
        link.turned_ready_briefly(&queue, now(), xqueue::GRACE);
        assert!(
            matches!(activity(), Activity::Ready { since: ahead } if ahead > since.after(xqueue::GRACE / 2))
        );
        link.turned_idle(&queue, since, Done::default());
        assert_eq!(activity(), Activity::Idle { since: Some(since) });
        // More work comes when the brief work counts already, and before.
        link.turned_ready_briefly(&queue, now(), Duration::ZERO);
        let counts = activity();
        link.turned_ready(&queue, now());
        assert_eq!(activity(), counts);
        link.turned_idle(&queue, since, Done::default());
        link.turned_ready_briefly(&queue, now(), Duration::from_secs(3600));
        link.turned_ready(&queue, now());
        assert!(matches!(activity(), Activity::Ready { since } if since <= link.now()));
    }

    #[test]
    fn queue_that_turns_idle_says_what_it_has_done() {
        let (queue, slot, link) = (QueueSlot::new(), slot(), ServerLink::new());
        let done = |number: u64| Done {
            direct: number,
            deferred: 10 * number,
            worked: Duration::from_nanos(100 * number),
        };
        let seen = || [&slot.direct, &slot.deferred, &slot.worked_ns].map(|word| word.load(Ordering::SeqCst));
        link.turned_idle(&queue, Time(1), done(7));
        queue.set(Some(slot));
        link.turned_ready(&queue, now());
        assert_eq!(seen(), [0; 3]);
        link.turned_idle(&queue, Time(1), done(9));
        link.turned_idle(&queue, Time(2), done(8));
        assert_eq!(seen(), [9, 90, 900], "the agent can have stored what was later");
    }
}
