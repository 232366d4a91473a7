//! The only file that names a synchronisation primitive, a thread or a clock, so that the model
//! checker (`--cfg loom`) can replace all of them. Nothing here knows what a queue is.
//!
//! Two things are built here because no crate has them in the form that the launch path needs:
//! * [`TryLock`]: a lock that nobody ever waits for. Who fails may leave a wish; who releases is told.
//! * [`Signal`]: an event count. Take a key, look at the world, wait: nothing that was signalled
//!   after the key was taken is missed.

use std::time::Duration;

#[cfg(not(loom))]
mod imp {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread::JoinHandle;

    use std::time::Duration;
    pub(crate) use std::time::Instant;

    /// The monotonic clock. Not read on the direct path.
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Starts a thread; a failure is the caller's to report.
    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name.into()).spawn(body)
    }

    pub(crate) fn spin_hint() {
        std::hint::spin_loop();
    }

    /// Whether the thread has ended.
    pub(crate) fn is_finished(thread: &JoinHandle<()>) -> bool {
        thread.is_finished()
    }

    /// A moment in which others can run.
    pub(crate) fn pause() {
        std::thread::sleep(Duration::from_micros(20));
    }

    /// Between a sequentially consistent store and load of two words: nothing to do, the order of
    /// all such accesses is one.
    #[inline]
    pub(crate) fn store_load_barrier() {}

    /// Waits on `condvar` at most `limit`.
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

    /// Models run the loops of the threads themselves (see `model.rs`).
    pub(crate) fn spawn(_: &str, _: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        Err(std::io::Error::other("threads are the model's"))
    }

    pub(crate) fn spin_hint() {
        loom::thread::yield_now();
    }

    /// There is no way to ask.
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

/// What [`TryLock`] tells the one who asked.
const FREE: u32 = 0;
const HELD: u32 = 1;
const WISHED: u32 = 2;

/// A lock without waiting. One word holds both the owner and the wish, so that no wish is lost:
/// a wish made before the release is seen by it, one made after it takes the lock instead.
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

    /// Takes the lock if it is free, else leaves a wish that [`TryLock::release`] reports.
    pub(crate) fn lock_or_wish(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = if seen == FREE { HELD } else { WISHED };
            match self.0.compare_exchange_weak(seen, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    store_load_barrier();
                    return seen == FREE;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Releases the lock. True: somebody wished for it meanwhile and sleeps until told.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        self.0.swap(FREE, Ordering::AcqRel) == WISHED
    }

    /// Whether somebody holds it. If not, whoever takes it from now on reads what this thread stored
    /// before, as far as both use sequentially consistent accesses.
    pub(crate) fn is_held(&self) -> bool {
        store_load_barrier();
        self.0.load(Ordering::SeqCst) != FREE
    }
}

/// A point in the life of a [`Signal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

/// An event count: `key`, look, `wait(key)` returns at once if anything was notified after `key`.
///
/// The waiter counts itself and then reads the epoch, the notifier moves the epoch and then reads the
/// count: one of them sees the other. The waiter holds `sleep` from its count until it sleeps, so a
/// notifier that sees it wakes it.
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

    /// Wakes everybody whose key is older than this call.
    pub(crate) fn notify(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        store_load_barrier();
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            drop(self.sleep.lock());
            self.wake.notify_all();
        }
    }

    pub(crate) fn wait(&self, key: Key) {
        self.sleep_while(key, |sleep| {
            self.wake.wait(sleep);
            true
        });
    }

    /// As [`Signal::wait`], at most about `limit`; may return early.
    pub(crate) fn wait_at_most(&self, key: Key, limit: Duration) {
        self.sleep_while(key, |sleep| {
            wait_for(&self.wake, sleep, limit);
            false
        });
    }

    /// As [`Signal::wait`]; returns after `limit` at the latest, for a look at what nobody tells of. In a model, where nothing takes
    /// time and every thread gets on, it waits for the signal alone: a signal that is missing there must show.
    pub(crate) fn wait_and_look(&self, key: Key, limit: Duration) {
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
