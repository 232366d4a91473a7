//! Synchronisation primitives, threads and the clock. Only this file names them, so that the model checker
//! (`--cfg loom`) can replace all of them. It knows nothing of queues.
//!
//! Two primitives are built here because no crate has them in the form that the launch path needs:
//! * [`TryLock`]: a lock that is only tried. A thread that fails may register as a waiter; the release
//!   reports that.
//! * [`Signal`]: an event count. Take a key, check the condition, wait: no notification after the key was
//!   taken is missed.

use std::time::Duration;

#[cfg(not(loom))]
mod imp {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread::JoinHandle;

    use std::time::Duration;
    pub(crate) use std::time::Instant;

    #[cfg(test)]
    thread_local! {
        /// The time of a test in virtual time, on its thread.
        pub(crate) static SIMULATED: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
    }

    /// Reads the monotonic clock. On the direct path only a limited queue calls this, and one that turns ready.
    pub(crate) fn now() -> Instant {
        #[cfg(test)]
        if let Some(at) = SIMULATED.get() {
            return at;
        }
        Instant::now()
    }

    /// Starts a thread; the caller reports a failure.
    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.into()).spawn(body)
    }

    pub(crate) fn spin_hint() {
        #[cfg(test)]
        SIMULATED.set(SIMULATED.get().map(|at| at + Duration::from_nanos(10)));
        std::hint::spin_loop();
    }

    pub(crate) fn is_finished(thread: &JoinHandle<()>) -> bool {
        thread.is_finished()
    }

    /// Lets other threads run for a moment.
    pub(crate) fn pause() {
        std::thread::sleep(Duration::from_micros(20));
    }

    /// Separates a sequentially consistent store and load of two words. Nothing to do: all such accesses have
    /// one order.
    #[inline]
    pub(crate) fn store_load_barrier() {}

    pub(crate) fn wait_for<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, limit: Duration) {
        let _ = condvar.wait_for(guard, limit);
    }
}

#[cfg(loom)]
mod imp {
    //! loom's primitives with the interface of `parking_lot`; time stands still.
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    };
    pub(crate) use loom::thread::JoinHandle;

    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("a modelled thread panicked")))
        }
    }
    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("present outside a wait")
        }
    }
    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("present outside a wait")
        }
    }

    #[derive(Debug)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);
    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }
        pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("a modelled thread panicked")
        }
        pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("a modelled thread panicked")
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);
    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("present outside a wait");
            guard.0 = Some(self.0.wait(inner).expect("a modelled thread panicked"));
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A timed wait may end at any moment, so in the model it ends at once.
    pub(crate) fn wait_for<T>(_: &Condvar, _: &mut MutexGuard<'_, T>, _: Duration) {
        loom::thread::yield_now();
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Instant;
    impl Instant {
        pub(crate) fn saturating_duration_since(&self, _: Instant) -> Duration {
            Duration::ZERO
        }
    }
    impl std::ops::Add<Duration> for Instant {
        type Output = Instant;
        fn add(self, _: Duration) -> Instant {
            self
        }
    }
    impl std::ops::AddAssign<Duration> for Instant {
        fn add_assign(&mut self, _: Duration) {}
    }
    pub(crate) fn now() -> Instant {
        Instant
    }

    /// Fails: models run the loops of the threads themselves (see `tests.rs`).
    pub(crate) fn spawn(_: &str, _: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        Err(std::io::Error::other("threads are the model's"))
    }

    pub(crate) fn spin_hint() {
        loom::thread::yield_now();
    }

    /// Returns true: loom offers no way to ask.
    pub(crate) fn is_finished(_: &JoinHandle<()>) -> bool {
        true
    }

    pub(crate) fn pause() {
        loom::thread::yield_now();
    }

    /// loom weakens sequentially consistent accesses to acquire and release, but not the fence.
    pub(crate) fn store_load_barrier() {
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
    }
}

pub(crate) use imp::*;
pub(crate) use std::sync::atomic::Ordering;

/// The values of a [`TryLock`].
const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// A lock without waiting. One word holds both the owner and the registered waiter, so that no registration
/// is lost: the release sees one made before it, and an attempt after it takes the lock instead.
#[derive(Debug)]
pub(crate) struct TryLock(AtomicU32);

impl TryLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free. The caller releases it with [`TryLock::release`].
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let taken = self.0.compare_exchange(FREE, HELD, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        store_load_barrier();
        taken
    }

    /// Takes the lock if it is free, otherwise registers a waiter, which [`TryLock::release`] reports.
    pub(crate) fn lock_or_register(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = if seen == FREE { HELD } else { AWAITED };
            match self.0.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    store_load_barrier();
                    return seen == FREE;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Releases the lock. Returns true if a waiter has registered meanwhile and has to be woken.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        self.0.swap(FREE, Ordering::AcqRel) == AWAITED
    }

    /// Returns true if a thread holds the lock. If not, a thread that takes it from now on reads what this
    /// thread stored before, as far as both use sequentially consistent accesses.
    pub(crate) fn is_held(&self) -> bool {
        store_load_barrier();
        self.0.load(Ordering::SeqCst) != FREE
    }
}

/// A point in the sequence of notifications of a [`Signal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

/// An event count: take a `key`, check the condition, `wait(key)`, which returns at once after a notification
/// later than `key`.
///
/// The waiter counts itself and then reads the epoch; the notifier advances the epoch and then reads the
/// count. One of them sees the other. The waiter holds `sleep` from its count until it sleeps, so a notifier
/// that sees it wakes it.
#[derive(Debug)]
pub(crate) struct Signal {
    epoch: AtomicU64,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key(self.epoch.load(Ordering::SeqCst))
    }

    /// Wakes every waiter whose key is older than this call.
    pub(crate) fn notify(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        store_load_barrier();
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            drop(self.sleep.lock());
            self.wake.notify_all();
        }
    }

    /// Waits for a notification after `key`.
    pub(crate) fn wait(&self, key: Key) {
        self.sleep_while(key, |sleep| {
            self.wake.wait(sleep);
            true
        });
    }

    /// Waits for a notification after `key`, at most about `limit`; may return early.
    pub(crate) fn wait_at_most(&self, key: Key, limit: Duration) {
        self.sleep_while(key, |sleep| {
            wait_for(&self.wake, sleep, limit);
            false
        });
    }

    /// Waits for a notification after `key`, at most `limit`, so that the caller can check what sends no
    /// notification. In a model, where time stands still, it waits for the notification alone: a missing one
    /// must show.
    pub(crate) fn wait_or_check(&self, key: Key, limit: Duration) {
        if cfg!(loom) {
            self.wait(key);
        } else {
            self.wait_at_most(key, limit);
        }
    }

    fn sleep_while(&self, key: Key, mut once: impl FnMut(&mut MutexGuard<'_, ()>) -> bool) {
        let mut sleep = self.sleep.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        store_load_barrier();
        while self.key() == key && once(&mut sleep) {}
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
