//! Threads that somebody waits for: between an urgent launch and a hold lie two wake-ups of such threads.

use std::ptr;

/// The slice that the calling thread asks for, in nanoseconds: the least that Linux gives (`sched(7)`, `sched_setattr(2)`).
const SLICE: u64 = 100_000;

/// Asks the kernel to let the calling thread run soon after it was woken, for a short time at a time: with Linux 6.12 and newer a
/// thread with a short slice comes before one with a longer one that is running. It gets no more of the processor than before,
/// and needs no right. Where the kernel does not know slices nothing changes.
pub fn be_prompt() {
    // SAFETY: asks for a number; 0 is the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: asks for a number.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return;
    }
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER.cast_unsigned(),
        sched_flags: 0,
        // As it is: the call sets it as well.
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: a structure of the size that it says, alive through the call; only the calling thread changes.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(&attributes), 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_slice_changes() {
        std::thread::spawn(|| {
            // SAFETY: lowers the calling thread's own priority, which is always allowed.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 3) };
            be_prompt();
            // SAFETY: asks for a number.
            assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, 3);
            // SAFETY: asks for a number.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
        })
        .join()
        .unwrap();
    }
}
