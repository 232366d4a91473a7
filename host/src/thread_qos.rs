//! Early wake-ups for threads on the path from an urgent launch to an eviction: two wake-ups of such threads
//! lie between them.

use std::ptr;

/// The time slice that a thread asks for, in nanoseconds: the shortest that Linux grants (`sched(7)`,
/// `sched_setattr(2)`).
const SLICE: u64 = 100_000;

/// The task of a thread that must run early; the value is its real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Makes scheduling decisions: the lowest real-time priority, before every ordinary thread.
    Decides = 1,
    /// Evicts queues on such a decision. With the higher priority, Linux runs it at once on the processor of
    /// the decision and need not wake another processor (`select_task_rq_rt` sends a thread of the same
    /// priority to another one).
    Evicts = 2,
}

/// Asks the kernel to run the calling thread as soon as it is woken. The thread must sleep nearly always and
/// work for some microseconds only.
///
/// With the right to do so (CAP_SYS_NICE, or RLIMIT_RTPRIO of at least 2) the thread gets a low real-time
/// priority, which its children do not inherit. Otherwise it gets a short time slice, which needs no right:
/// from Linux 6.12 on it runs before a running thread with a longer slice, and gets no larger share of the
/// processor. A thread that already has a scheduling policy keeps it.
pub fn request_early_wakeup(role: Role) {
    request(Some(role));
}

/// Asks for a short time slice only, for a thread that can be busy for long. A thread that already has a
/// scheduling policy keeps it.
pub fn request_short_slice() {
    request(None);
}

fn request(role: Option<Role>) {
    // SAFETY: both calls take numbers only; 0 is the calling thread.
    let (nice, policy) = unsafe { (libc::getpriority(libc::PRIO_PROCESS, 0), libc::sched_getscheduler(0)) };
    if policy != libc::SCHED_OTHER {
        return;
    }
    // The user of a program with a positive nice value wants others to run first.
    let role = role.filter(|_| nice <= 0);
    if !role.is_some_and(|role| set(libc::SCHED_RR, 0, role as u32, 0)) {
        set(libc::SCHED_OTHER, nice, 0, SLICE);
    }
}

fn set(policy: libc::c_int, nice: libc::c_int, priority: u32, runtime: u64) -> bool {
    let reset = if priority == 0 { 0 } else { libc::SCHED_FLAG_RESET_ON_FORK };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy.cast_unsigned(),
        sched_flags: reset as u64,
        // The call sets the nice value as well, so it must be the present one.
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: runtime,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure states its size and outlives the call, which changes the calling thread only.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(&attributes), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: the call takes a number only; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    fn nice() -> libc::c_int {
        // SAFETY: the call takes numbers only; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn early_wakeup_is_not_inherited_by_child_threads() {
        let thread = std::thread::spawn(|| {
            let nice = nice();
            request_early_wakeup(Role::Decides);
            let own = policy();
            assert!(own == libc::SCHED_OTHER || own == libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, "{own}");
            assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
            assert_eq!(self::nice(), nice);
        });
        thread.join().unwrap();
    }

    #[test]
    fn nice_thread_keeps_its_nice_value() {
        let thread = std::thread::spawn(|| {
            // SAFETY: the call takes numbers only. It lowers the priority of the calling thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 3) };
            request_early_wakeup(Role::Evicts);
            assert_eq!(nice(), 3);
            assert_eq!(policy(), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }
}
