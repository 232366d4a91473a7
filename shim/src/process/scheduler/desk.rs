//! What launching threads do for the server: they write down that a queue has turned ready or idle, and ring if the
//! server wants to hear of it. No lock, no look-up, no system call unless they ring.

use super::global::bell::Bell;
use super::global::pages::Pages;
use super::now;
use protocol::page::{Slot, WANTS_IDLE, WANTS_PROGRESS, WANTS_READY, activity_word};
use protocol::status::Activity;
use protocol::time::Time;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Where one queue's state is written for the server. It lies in its stream, which is never freed.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Null while the server is told nothing of the queue. A queue keeps its slot as long as it exists.
    slot: AtomicPtr<Slot>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { slot: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The tag for a queue with this desk.
    pub(crate) fn tag(&'static self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }

    /// The desk with this tag.
    ///
    /// # Safety
    ///
    /// The tag comes from [`Desk::tag`].
    pub(crate) unsafe fn of_tag(tag: usize) -> &'static Self {
        // SAFETY: the address of a desk that is never freed, by the caller's promise.
        unsafe { &*ptr::with_exposed_provenance(tag) }
    }

    /// Gives the queue a slot, or takes it away.
    pub(super) fn set_slot(&self, slot: Option<&'static Slot>) {
        let slot = slot.map_or(ptr::null_mut(), |slot| ptr::from_ref(slot).cast_mut());
        self.slot.store(slot, Ordering::SeqCst);
    }

    fn slot(&self) -> Option<&'static Slot> {
        // SAFETY: null, or a slot of the pages, whose addresses stay valid for ever.
        unsafe { self.slot.load(Ordering::SeqCst).as_ref() }
    }
}

/// The way to the server: one for a process, whatever server is at its end.
pub(crate) struct Line {
    /// The pages; they exist from the first time that a server is meant to decide.
    pages: OnceLock<Pages>,
    /// What to add to the own clock to get the server's; wraps around.
    offset: AtomicU64,
    /// Wakes the server.
    pub(super) bell: Bell,
    /// Wakes the agent.
    pub(super) alarm: Bell,
    /// The agent keeps the numbers up to date by itself; else it has to be woken to do that.
    pub(super) counts: AtomicBool,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            pages: OnceLock::new(),
            offset: AtomicU64::new(0),
            bell: Bell::new(),
            alarm: Bell::new(),
            counts: AtomicBool::new(false),
        }
    }

    /// The pages, reserved by the first call.
    pub(super) fn pages(&self) -> std::io::Result<&Pages> {
        match self.pages.get() {
            Some(pages) => Ok(pages),
            None => {
                let pages = Pages::reserve()?;
                Ok(self.pages.get_or_init(|| pages))
            }
        }
    }

    /// The pages, if a server was ever meant to decide.
    pub(super) fn pages_in_use(&self) -> Option<&Pages> {
        self.pages.get()
    }

    /// Sets how the server's clock differs.
    pub(super) fn set_offset(&self, offset: u64) {
        self.offset.store(offset, Ordering::Release);
    }

    /// The server's clock.
    pub(super) fn now(&self) -> Time {
        self.to_server(now())
    }

    /// The server's time at a time of this process's.
    pub(super) fn to_server(&self, mine: Time) -> Time {
        Time(mine.0.wrapping_add(self.offset.load(Ordering::Acquire)))
    }

    /// A queue has its first unfinished command.
    pub(super) fn turned_ready(&self, desk: &Desk) {
        let Some(slot) = desk.slot() else { return };
        let wants = self.write(slot, Activity::Ready { since: self.now() });
        if wants & WANTS_READY != 0 {
            self.bell.ring();
        }
        if wants & WANTS_PROGRESS != 0 && !self.counts.swap(true, Ordering::AcqRel) {
            self.alarm.ring();
        }
    }

    /// A queue is proved to have nothing left.
    pub(super) fn turned_idle(&self, desk: &Desk) {
        let Some(slot) = desk.slot() else { return };
        if self.write(slot, Activity::Idle { since: Some(self.now()) }) & WANTS_IDLE != 0 {
            self.bell.ring();
        }
    }

    /// Writes the activity, then looks what the server wants: it does the same the other way round, so that one of both
    /// sees the other.
    fn write(&self, slot: &Slot, activity: Activity) -> u32 {
        slot.activity.store(activity_word(activity), Ordering::SeqCst);
        if self.bell.is_muted() {
            return 0;
        }
        self.pages.get().map_or(0, |pages| pages.server().wants.load(Ordering::SeqCst))
    }
}
