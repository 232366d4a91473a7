//! The permissions to launch, as atomic words: the process permission, which a policy or the server writes,
//! and each queue's own permission. The launch path only reads them; writing them needs no lock of a queue.
//! Waking sleepers is the caller's part (`path/control.rs`).

use std::ptr;
use std::time::Duration;

use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// The estimated time that the adaptive window admits: a number of tenths of a millisecond that fits a
/// permission word.
///
/// ```
/// use std::time::Duration;
/// use xqueue::{Permission, Window};
///
/// let permission = Permission::limited().with_window(Window::from_units(3));
/// assert_eq!(permission.window().time(), Some(Duration::from_micros(300)));
/// assert_eq!(Window::DEFAULT.time(), None, "the domain's budget");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window(u8);

impl Window {
    /// The time of one unit.
    const UNIT: Duration = Duration::from_micros(100);

    /// The budget for which the domain is configured ([`crate::Config::budget`]).
    pub const DEFAULT: Self = Self(0);

    /// Converts the number in a word; 0 is the default.
    pub fn from_units(units: u8) -> Self {
        Self(units)
    }

    /// Returns the time; none for the default.
    pub fn time(self) -> Option<Duration> {
        (self.0 != 0).then(|| Self::UNIT * u32::from(self.0))
    }
}

/// The value of a permission word: generation (bits 32–63), window (bits 24–31), bystanders (bits 16–23),
/// level (bits 8–15), share (bits 2–7), limit (bit 1) and run (bit 0). A process that runs needs no share: bit 2 then
/// says that its queues go first.
///
/// Older libraries ignore bits 2 to 7, and older servers leave them 0.
///
/// ```
/// use xqueue::Permission;
///
/// let suspended = Permission::new(7, false, true, 1);
/// assert!(!suspended.run() && suspended.limit());
/// assert_eq!(Permission::from_word(suspended.word()), suspended);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission(u64);

impl Permission {
    const RUN: u64 = 1;
    const LIMIT: u64 = 2;
    /// The first bit of the share, and all its bits.
    const SHARE: u32 = 2;
    const SHARES: u64 = 0x3f << Self::SHARE;
    /// The bit of a process that runs, whose hardware queues go first.
    const FIRST: u64 = 1 << 2;
    /// The least level at which a share counts: below it a change of the units waits for the running kernels.
    const SHARE_LEVEL: u8 = 3;

    /// Composes a word with the default window, no share and no bystanders.
    pub fn new(generation: u32, run: bool, limit: bool, level: u8) -> Self {
        Self(
            u64::from(generation) << 32
                | u64::from(level) << 8
                | if limit { Self::LIMIT } else { 0 }
                | if run { Self::RUN } else { 0 },
        )
    }

    /// Returns the permission to run without a limit of the work in flight.
    pub fn unlimited() -> Self {
        Self::new(0, true, false, 1)
    }

    /// Returns the permission to run within the window: the state without a server.
    pub fn limited() -> Self {
        Self::new(0, true, true, 1)
    }

    /// Converts a word from memory.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word to store.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns the number of writes by the word's owner.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the preemption level in force.
    pub fn level(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Returns the number of running processes on the same devices, besides the one for which this process is
    /// suspended. They stop for a moment where the device cannot evict one queue alone.
    pub fn bystanders(self) -> u8 {
        (self.0 >> 16) as u8
    }

    /// Returns the window that counts if [`Permission::limit`] is set.
    pub fn window(self) -> Window {
        Window((self.0 >> 24) as u8)
    }

    /// Returns the permission with another window.
    pub fn with_window(self, window: Window) -> Self {
        Self(self.0 & !(0xff << 24) | u64::from(window.0) << 24)
    }

    /// Returns the part of the compute units on which the process goes on while it is suspended at level 3, in
    /// 64ths of those of the device. 0: none, as always below level 3 and while it runs.
    pub fn share(self) -> u8 {
        if self.run() || self.level() < Self::SHARE_LEVEL {
            return 0;
        }
        ((self.0 & Self::SHARES) >> Self::SHARE) as u8
    }

    /// Returns the permission with another share in 64ths. More than 63 are 63.
    pub fn with_share(self, share: u8) -> Self {
        Self(self.0 & !Self::SHARES | u64::from(share.min(0x3f)) << Self::SHARE)
    }

    /// Returns true if the process runs, and its hardware queues are to go before those of other processes.
    pub fn is_first(self) -> bool {
        self.run() && self.0 & Self::FIRST != 0
    }

    /// Returns the permission of a process that runs, whose hardware queues go first.
    pub fn first(self) -> Self {
        debug_assert!(self.run(), "a suspended process has its share there");
        Self(self.0 | Self::FIRST)
    }

    /// Returns true if launches are permitted at all.
    pub fn run(self) -> bool {
        self.0 & Self::RUN != 0
    }

    /// Returns true if the window limits the work in flight.
    pub fn limit(self) -> bool {
        self.0 & Self::LIMIT != 0
    }

    /// Returns true if the process is suspended but for a share of the compute units.
    #[inline]
    pub(crate) fn is_partial(self) -> bool {
        !self.run() && self.share() != 0
    }

    /// Returns the permission to launch within the window, of a process that keeps to its share.
    #[inline]
    pub(crate) fn within_share(self) -> Self {
        Self(self.0 & !Self::SHARES | Self::RUN | Self::LIMIT)
    }

    #[inline]
    pub(crate) fn is_unlimited_run(self) -> bool {
        self.0 & (Self::RUN | Self::LIMIT) == Self::RUN
    }
}

/// The permission word of the whole process: a word of its own, or one on a page that the server writes.
#[derive(Debug)]
pub(crate) struct ProcessPermission {
    own: AtomicU64,
    /// Null, or a `&'static` word.
    followed: AtomicPtr<AtomicU64>,
}

impl ProcessPermission {
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

/// One queue's own permission word. At 0 the process permission alone counts: the fast path asks no more.
#[derive(Debug)]
pub(crate) struct QueuePermission(AtomicU64);

impl QueuePermission {
    /// The program suspends the queue.
    pub(crate) const PROGRAM: u64 = 1;
    /// The local policy suspends the queue.
    pub(crate) const POLICY: u64 = 1 << 16;
    /// The chaos test suspends the queue.
    pub(crate) const CHAOS: u64 = 1 << 17;
    /// The local policy limits the work in flight.
    pub(crate) const LIMIT: u64 = 1 << 18;
    /// A test mode forbids the direct path.
    pub(crate) const TEST: u64 = 1 << 19;
    /// The queue is being destroyed: its own suspensions no longer count.
    pub(crate) const CLOSING: u64 = 1 << 20;
    /// Destroyed.
    pub(crate) const CLOSED: u64 = 1 << 21;
    /// The process permission does not cover the queue.
    pub(crate) const UNCOVERED: u64 = 1 << 22;

    /// The first bit of the local policy's window.
    const WINDOW: u32 = 24;

    const STOPS: u64 = Self::PROGRAM | Self::POLICY | Self::CHAOS;

    pub(crate) fn new(flags: u64) -> Self {
        Self(AtomicU64::new(flags))
    }

    /// Reads the word. Sequentially consistent, as are its changes and the submit lock: a thread that takes
    /// the lock after another saw it free reads what that one had stored before.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.load() & flag != 0
    }

    /// Returns true if this word lets submitting threads launch.
    #[inline]
    pub(crate) fn may_be_direct(word: u64) -> bool {
        word & (Self::TEST | Self::CLOSED) == 0 && Self::runs(word)
    }

    /// Returns true if this word suspends nothing, or the queue is being destroyed.
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

    /// Returns the window of the local policy.
    pub(crate) fn window(word: u64) -> Window {
        Window((word >> Self::WINDOW) as u8)
    }

    /// Sets or removes the limit of the local policy. Returns true if that is a change.
    pub(crate) fn set_limit(&self, window: Option<Window>) -> bool {
        let bits = window.map_or(0, |window| Self::LIMIT | u64::from(window.0) << Self::WINDOW);
        let changed = |word: u64| {
            let next = word & !(Self::LIMIT | 0xff << Self::WINDOW) | bits;
            (next != word).then_some(next)
        };
        self.0.fetch_update(Ordering::SeqCst, Ordering::Acquire, changed).is_ok()
    }

    /// Resets the word of a queue that is opened again; only the test flag stays.
    pub(crate) fn restart(&self, covered: bool) {
        self.set(Self::UNCOVERED, !covered);
        self.0.fetch_and(Self::TEST | Self::UNCOVERED, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// All fields of a word but the share.
    fn others(permission: Permission) -> (u32, u8, u8, Window, bool, bool) {
        let (generation, level, window) = (permission.generation(), permission.level(), permission.window());
        (generation, permission.bystanders(), level, window, permission.limit(), permission.run())
    }

    #[test]
    fn share_changes_no_other_field() {
        let mixed = Permission::new(0x1234_5678, false, true, 3).with_window(Window::from_units(31));
        let mixed = Permission::from_word(mixed.word() | 9 << 16);
        let plain = Permission::new(0, false, false, 3);
        for permission in [plain, Permission::from_word(!1), mixed] {
            for share in 0..=u8::MAX {
                let changed = permission.with_share(share);
                assert_eq!(changed.share(), share.min(63));
                assert_eq!(others(changed), others(permission));
                assert_eq!(changed.with_share(permission.share()), permission);
            }
        }
    }

    #[test]
    fn other_fields_do_not_change_the_share() {
        for run in [false, true] {
            assert_eq!(Permission::new(u32::MAX, run, true, u8::MAX).share(), 0);
        }
        assert_eq!(Permission::new(1, false, true, 2).with_share(16).share(), 0, "below level 3");
        let share = Permission::new(1, false, true, 3).with_share(16);
        assert_eq!(share.with_window(Window::from_units(u8::MAX)).share(), 16);
        assert!(!share.run() && share.limit());
        let within = share.within_share();
        assert!(within.run() && within.limit() && !within.is_first());
        assert_eq!(within.share(), 0, "it runs");
    }

    #[test]
    fn process_that_runs_can_go_first() {
        for (limit, level) in [(false, 1), (true, 1), (true, 3)] {
            let plain = Permission::new(1, true, limit, level).with_window(Window::from_units(9));
            let first = plain.first();
            assert!(first.is_first() && !plain.is_first());
            assert_eq!(others(first), others(plain));
            assert_eq!((first.share(), first.is_unlimited_run()), (0, !limit));
        }
        assert!(!Permission::new(1, false, true, 3).with_share(63).is_first(), "it is suspended");
    }
}
