//! The signal mask of the library's own threads. The program's threads are to receive its signals.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks all signals for the calling thread, and for those that it starts. Returns its previous mask.
pub fn block_all() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` fills `all`; `pthread_sigmask` reads it and fills `before`, as it cannot fail with
    // these arguments. Both outlive the calls, which change this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Gives the calling thread a mask that [`block_all`] has returned.
pub fn restore(mask: &libc::sigset_t) {
    // SAFETY: the call reads a signal set that outlives it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_blocked_until_the_mask_is_restored() {
        std::thread::spawn(|| {
            // SAFETY: the call reads a set that is filled.
            let blocked = |mask: &libc::sigset_t| unsafe { libc::sigismember(mask, libc::SIGUSR1) } == 1;
            let before = block_all();
            assert!(!blocked(&before) && blocked(&block_all()));
            restore(&before);
            assert!(!blocked(&block_all()));
        })
        .join()
        .unwrap();
    }
}
