//! Threads that somebody waits for: between an urgent launch and a hold lie two wake-ups of such threads.

use std::ptr;

/// The slice that the calling thread asks for, in nanoseconds: the least that Linux gives (`sched(7)`, `sched_setattr(2)`).
const SLICE: u64 = 100_000;
/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Who decides: the lowest real-time priority, in front of every ordinary thread.
    Decides = 1,
    /// Who takes queues off, on a decision: above it, so that Linux runs it at once where the decision was made, and need not wake
    /// a processor that sleeps (`select_task_rq_rt`: a thread of the same priority is sent to another one).
    Holds = 2,
}

/// Asks the kernel to let the calling thread run as soon as it was woken. It sleeps nearly always, and works for some microseconds.
///
/// With the right to do so (CAP_SYS_NICE, or RLIMIT_RTPRIO of at least 2) it gets a low real-time priority, which its
/// children do not inherit. Without, a short slice, for which nobody needs a right: with Linux 6.12 and newer such a thread comes
/// before one with a longer slice that is running, and gets no more of the processor than before. A thread for which somebody else
/// has chosen a policy or a priority keeps both.
pub fn be_prompt(who: Who) {
    ask(Some(who));
}

/// Asks for a short slice alone, for a thread that does work of the program's own: it may be busy for long, and no real-time
/// priority is meant for that. As above, whom somebody else has given a policy keeps it.
pub fn ask_short_slice() {
    ask(None);
}

fn ask(real_time: Option<Who>) {
    // SAFETY: asks for a number; 0 is the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: asks for a number.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return;
    }
    // Who has made the program nice wants others to come first.
    let who = real_time.filter(|_| nice <= 0);
    if !who.is_some_and(|who| set(libc::SCHED_RR, 0, who as u32, 0)) {
        set(libc::SCHED_OTHER, nice, 0, SLICE);
    }
}

fn set(policy: libc::c_int, nice: libc::c_int, priority: u32, runtime: u64) -> bool {
    let reset = if priority == 0 { 0 } else { libc::SCHED_FLAG_RESET_ON_FORK };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy.cast_unsigned(),
        sched_flags: reset as u64,
        // As it is: the call sets it as well.
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: runtime,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: a structure of the size that it says, alive through the call; only the calling thread changes.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(&attributes), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: asks for a number.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn the_thread_itself_is_prompt_and_nobody_that_it_starts() {
        let thread = std::thread::spawn(|| {
            // SAFETY: asks for a number.
            let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            be_prompt(Who::Decides);
            let own = policy();
            assert!(own == libc::SCHED_OTHER || own == libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, "{own}");
            assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
            // SAFETY: asks for a number.
            assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, nice);
        });
        thread.join().unwrap();
    }

    #[test]
    fn who_is_nice_stays_so() {
        let thread = std::thread::spawn(|| {
            // SAFETY: lowers the calling thread's own priority, which is always allowed.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 3) };
            be_prompt(Who::Holds);
            // SAFETY: asks for a number.
            assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }, 3);
            assert_eq!(policy(), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }
}
