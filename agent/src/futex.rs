//! Sleeping on a word of shared memory, and waking its sleepers.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Converts a duration for a system call.
pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(1),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Sleeps until another thread wakes the word or the limit is over. Returns at once if the word is not `seen`
/// any more.
pub(crate) fn wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit.map(timespec);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: word and time are valid, and the kernel only reads them. Not private: the server wakes the
    // word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, limit) };
}

/// Wakes all sleepers of the word.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid, and the kernel writes nothing.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}
