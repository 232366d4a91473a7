//! What belongs to the program's thread: errno, and when it acts on a request to cancel it (`pthread_cancel`). Whatever this
//! library does between the program's calls leaves the one as it was, and is no point of cancellation: natively there is none in the
//! middle of a launch, or in the driver's request for a queue, and a thread that is unwound there leaves the runtime in pieces.

use libc::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// glibc's and musl's `pthread.h`.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// The calling thread's errno.
pub(crate) fn get() -> i32 {
    // SAFETY: takes no argument and returns the address of the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread is.
    unsafe { *place }
}

/// Sets the calling thread's errno.
pub(crate) fn set(value: i32) {
    // SAFETY: takes no argument and returns the address of the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread is, and no other thread uses it.
    unsafe { *place = value };
}

/// While it lives the thread is not cancelled. A request that comes meanwhile stays.
#[derive(Debug)]
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    pub(crate) fn begin() -> Self {
        let mut before = PTHREAD_CANCEL_DISABLE;
        // SAFETY: writes a word of the calling thread's and the place that it is given; fails for unknown states only.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut ours = 0;
        // SAFETY: as above, with the state that was in force before.
        unsafe { pthread_setcancelstate(self.0, &raw mut ours) };
    }
}

/// Runs `body`, is not cancelled meanwhile, and gives errno back its value.
pub(crate) fn kept<R>(body: impl FnOnce() -> R) -> R {
    let _whole = Uncancelled::begin();
    let before = get();
    let result = body();
    set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_what_it_was() {
        set(42);
        // SAFETY: closing a number that is no descriptor fails, and does nothing but set errno.
        let closed = kept(|| unsafe { libc::close(-1) });
        assert_eq!((closed, get()), (-1, 42));
    }
}
