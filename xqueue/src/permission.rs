//! Who may launch, as atomic words: the gang's permission word, which a policy or the server writes,
//! and each queue's own word. Reading them is all that the launch path does; writing them needs no
//! lock of a queue. Waking sleepers is not done here (see `control.rs`).

use std::ptr;
use std::time::Duration;

use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// How much estimated time the adaptive window admits: a number of tenths of a millisecond that fits a permission word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window(u8);

impl Window {
    /// What one unit of it is.
    pub const UNIT: Duration = Duration::from_micros(100);

    /// As much as the domain is configured for ([`crate::Config::budget`]).
    pub const DEFAULT: Self = Self(0);

    /// From the number in a word; 0 is the default.
    pub fn from_units(units: u8) -> Self {
        Self(units)
    }

    /// The time; nothing stands for the default.
    pub fn time(self) -> Option<Duration> {
        (self.0 != 0).then(|| Self::UNIT * u32::from(self.0))
    }
}

/// The value of a permission word: generation (bits 32–63), window (bits 24–31), bystanders (bits 16–23), level (bits
/// 8–15), run (bit 0) and limit (bit 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission(u64);

impl Permission {
    const RUN: u64 = 1;
    const LIMIT: u64 = 2;

    /// Composes a word.
    pub fn new(generation: u32, run: bool, limit: bool, level: u8) -> Self {
        Self(
            u64::from(generation) << 32
                | u64::from(level) << 8
                | if limit { Self::LIMIT } else { 0 }
                | if run { Self::RUN } else { 0 },
        )
    }

    /// Everybody runs and nothing limits the work in flight.
    pub fn unlimited() -> Self {
        Self::new(0, true, false, 1)
    }

    /// Everybody runs within the window: the state without a server.
    pub fn limited() -> Self {
        Self::new(0, true, true, 1)
    }

    /// A word as it stands in memory.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word to store.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Counts the writes of the word's owner.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The preemption level in force.
    pub fn level(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// How many others than the one that this process makes way for run on its devices, and stop for a moment
    /// where the device cannot take off one queue alone.
    pub fn bystanders(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// What the window admits where it limits.
    pub fn window(self) -> Window {
        Window((self.0 >> 24) as u8)
    }

    /// The same with another window.
    pub fn with_window(self, window: Window) -> Self {
        Self(self.0 & !(0xff << 24) | u64::from(window.0) << 24)
    }

    /// Whether launches are permitted at all.
    pub fn run(self) -> bool {
        self.0 & Self::RUN != 0
    }

    /// Whether the window limits the work in flight.
    pub fn limit(self) -> bool {
        self.0 & Self::LIMIT != 0
    }

    #[inline]
    pub(crate) fn is_unlimited_run(self) -> bool {
        self.0 & (Self::RUN | Self::LIMIT) == Self::RUN
    }
}

/// The permission word of the whole process: an own word, or one on a page that the server writes.
#[derive(Debug)]
pub(crate) struct Gate {
    own: AtomicU64,
    /// Null, or a word that lives as long as the process.
    followed: AtomicPtr<AtomicU64>,
}

impl Gate {
    pub(crate) fn new(first: Permission) -> Self {
        Self { own: AtomicU64::new(first.word()), followed: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    pub(crate) fn load(&self) -> Permission {
        let followed = self.followed.load(Ordering::Acquire);
        if followed.is_null() {
            return Permission(self.own.load(Ordering::SeqCst));
        }
        // SAFETY: only `follow` stores a pointer that is not null, and it takes a `&'static`.
        Permission(unsafe { &*followed }.load(Ordering::SeqCst))
    }

    pub(crate) fn store(&self, permission: Permission) {
        self.own.store(permission.word(), Ordering::SeqCst);
        self.followed.store(ptr::null_mut(), Ordering::SeqCst);
    }

    #[cfg(not(loom))]
    pub(crate) fn follow(&self, word: &'static AtomicU64) {
        self.followed.store(ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
    }
}

/// One queue's own word. Zero means: nothing special, which is all that the fast path asks.
#[derive(Debug)]
pub(crate) struct OwnWord(AtomicU64);

impl OwnWord {
    /// The application's re-entrant count of suspensions.
    const COUNT: u64 = 0xffff;
    /// The process's policy holds the queue.
    pub(crate) const POLICY: u64 = 1 << 16;
    /// The chaos test holds the queue.
    pub(crate) const CHAOS: u64 = 1 << 17;
    /// The process's policy limits the work in flight.
    pub(crate) const LIMIT: u64 = 1 << 18;
    /// A test mode forbids the direct path.
    pub(crate) const TEST: u64 = 1 << 19;
    /// The queue is being destroyed: what holds it alone no longer counts.
    pub(crate) const CLOSING: u64 = 1 << 20;
    /// Destroyed.
    pub(crate) const CLOSED: u64 = 1 << 21;
    /// The gang's permission does not cover the queue.
    pub(crate) const FREE: u64 = 1 << 22;

    /// The window of that policy, from this bit on.
    const WINDOW: u32 = 24;

    const STOPS: u64 = Self::COUNT | Self::POLICY | Self::CHAOS;

    pub(crate) fn new(flags: u64) -> Self {
        Self(AtomicU64::new(flags))
    }

    /// Sequentially consistent, as are its changes and the taking of submit: who took submit after
    /// somebody saw it free reads what that one had stored before.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.load() & flag != 0
    }

    /// Whether commands may be launched by their submitting threads, as far as this word goes.
    #[inline]
    pub(crate) fn may_be_direct(word: u64) -> bool {
        word & (Self::TEST | Self::CLOSED) == 0 && Self::runs(word)
    }

    #[inline]
    pub(crate) fn runs(word: u64) -> bool {
        word & Self::STOPS == 0 || word & Self::CLOSING != 0
    }

    pub(crate) fn set(&self, flag: u64, on: bool) {
        if on {
            self.0.fetch_or(flag, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!flag, Ordering::SeqCst);
        }
    }

    /// What the window of the process's policy admits.
    pub(crate) fn window(word: u64) -> Window {
        Window((word >> Self::WINDOW) as u8)
    }

    /// The process's policy limits the work in flight to this, or does not. Says whether it was otherwise.
    pub(crate) fn set_limit(&self, window: Option<Window>) -> bool {
        let bits = window.map_or(0, |window| Self::LIMIT | u64::from(window.0) << Self::WINDOW);
        let changed = |word: u64| {
            let next = word & !(Self::LIMIT | 0xff << Self::WINDOW) | bits;
            (next != word).then_some(next)
        };
        self.0.fetch_update(Ordering::SeqCst, Ordering::Acquire, changed).is_ok()
    }

    /// The word of a queue that begins anew: of the flags only the test's stays.
    pub(crate) fn restart(&self, covered: bool) {
        self.set(Self::FREE, !covered);
        self.0.fetch_and(Self::TEST | Self::FREE, Ordering::SeqCst);
    }

    /// One more suspension of the application.
    pub(crate) fn count_up(&self) {
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::Acquire, |word| {
            (word & Self::COUNT != Self::COUNT).then(|| word + 1)
        });
    }

    /// One suspension of the application less; without one nothing changes.
    pub(crate) fn count_down(&self) {
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::Acquire, |word| {
            (word & Self::COUNT != 0).then(|| word - 1)
        });
    }

    pub(crate) fn count(&self) -> u16 {
        (self.load() & Self::COUNT) as u16
    }
}
