//! errno, which belongs to the program: whatever this library does between its calls leaves it as it was.

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

/// Runs `body` and gives errno back its value.
pub(crate) fn kept<R>(body: impl FnOnce() -> R) -> R {
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
