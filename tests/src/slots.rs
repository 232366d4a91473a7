//! A limit on how many processes and threads do something at once, by locked files in `target/hip-programs`.

use std::fs::{File, TryLockError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tree::lock_file;

/// As many tests as [`crate::Gpu::take`] lets run at once.
pub const AT_ONCE: usize = 2;

/// Calls a function with each item, so many at a time. Returns the results in any order.
pub fn each<I: Sync, T: Send>(items: &[I], at_once: usize, one: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = one(item);
                    results.lock().expect("no thread fails with it").push(result);
                }
            });
        }
    });
    results.into_inner().expect("no thread fails with it")
}

/// One of the places; free again when dropped, also by the end of the process.
#[derive(Debug)]
pub(crate) struct Slot {
    _file: File,
}

/// Waits for one of `count` places of this kind.
pub(crate) fn take(kind: &str, count: usize) -> Slot {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let first = TURN.fetch_add(1, Ordering::Relaxed);
    let open = |i: usize| lock_file(&format!("{kind}-{}", (first + i) % count));
    for i in 0..count {
        let file = open(i);
        match file.try_lock() {
            Ok(()) => return Slot { _file: file },
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                panic!("cannot lock a file in target/hip-programs: {error}")
            }
        }
    }
    // All are taken: queue for one of them, a different one each time.
    let file = open(0);
    file.lock().expect("a lock in target/hip-programs");
    Slot { _file: file }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicIsize;

    #[test]
    fn no_more_than_the_count_at_once() {
        static NOW: AtomicIsize = AtomicIsize::new(0);
        static MOST: AtomicIsize = AtomicIsize::new(0);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..50 {
                        let _slot = take("slots-test", 2);
                        MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        NOW.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("a thread of the test");
        }
        assert!((1..=2).contains(&MOST.load(Ordering::SeqCst)), "{} at once", MOST.load(Ordering::SeqCst));
    }
}
