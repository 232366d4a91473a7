//! Thread state that belongs to the program: errno, and the cancellation of threads (`pthread_cancel`).
//!
//! The library leaves errno as the program would see it without the library, and adds no cancellation point.
//! Natively there is none in the middle of a launch or of a queue request to the driver, and unwinding a
//! thread there would leave the runtime in an inconsistent state.

use libc::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of glibc's and musl's `pthread.h`.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Returns the calling thread's errno.
pub fn get() -> i32 {
    // SAFETY: the function returns the address of the calling thread's errno, valid as long as the thread is.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set(value: i32) {
    // SAFETY: the function returns the address of the calling thread's errno, which no other thread uses.
    unsafe { *libc::__errno_location() = value };
}

/// A guard that disables the cancellation of the calling thread. A request that comes meanwhile stays
/// pending.
#[derive(Debug)]
pub struct Uncancelled(c_int);

impl Uncancelled {
    /// Disables the cancellation until the guard is dropped.
    pub fn begin() -> Self {
        let mut before = PTHREAD_CANCEL_DISABLE;
        // SAFETY: the call changes the calling thread's state and writes the former one into `before`.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: the call restores the calling thread's former state and writes ours into a local.
        unsafe { pthread_setcancelstate(self.0, &raw mut ours) };
    }
}

/// Runs `body` without cancellation, and restores errno.
pub fn kept<R>(body: impl FnOnce() -> R) -> R {
    let _uncancelled = Uncancelled::begin();
    let before = get();
    let result = body();
    set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_failing_call_restores_errno() {
        set(42);
        // SAFETY: closing a number that is no descriptor fails, and only sets errno.
        let closed = kept(|| unsafe { libc::close(-1) });
        assert_eq!((closed, get()), (-1, 42));
    }
}
