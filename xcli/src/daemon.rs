//! Resets the process attributes that a daemon must not inherit: the server outlives the program that starts
//! it, and serves others.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::mem::MaybeUninit;

/// The first descriptor after the standard ones.
const FIRST: u32 = 3;
/// The highest descriptor to close if neither `close_range` (Linux 5.9) nor `/proc` is available.
const MOST_DESCRIPTORS: u64 = 65_536;
/// `MPOL_DEFAULT` of linux/mempolicy.h.
const DEFAULT_MEMORY_POLICY: libc::c_long = 0;
/// Limits that could end the server or refuse clients.
const LIMITS: [Resource; 7] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::As,
    Resource::Nproc,
    Resource::Memlock,
    Resource::Sigpending,
];

/// Resets what this single-threaded process has inherited: descriptors, signals, scheduling class and
/// priority, CPU affinity, memory policy, limits, umask and OOM score. Attributes that it has no right to
/// change stay.
pub fn reset_process() {
    close_all();
    reset_signals();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    reset_scheduling();
    LIMITS.into_iter().for_each(lift);
    let open = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: open, maximum: open });
    // With a positive score the kernel would kill the server first when memory is short.
    let score = fs::read_to_string("/proc/self/oom_score_adj").ok();
    if score.and_then(|score| score.trim().parse::<i32>().ok()).is_some_and(|score| score > 0) {
        let _ = fs::write("/proc/self/oom_score_adj", "0");
    }
}

fn close_all() {
    // SAFETY: this process uses no descriptor beyond the standard ones.
    if unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0) } == 0 {
        return;
    }
    let listed = || -> io::Result<Vec<i32>> {
        let entries = fs::read_dir("/proc/self/fd")?.flatten();
        Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    };
    let all = || {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(MOST_DESCRIPTORS).min(MOST_DESCRIPTORS);
        (0..most as i32).collect()
    };
    for descriptor in listed().unwrap_or_else(|_| all()) {
        if descriptor.cast_unsigned() >= FIRST {
            // SAFETY: this process uses no descriptor beyond the standard ones; the folder has been closed.
            unsafe { libc::close(descriptor) };
        }
    }
}

fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL runs no code of this process. The kernel refuses it for SIGKILL and SIGSTOP.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // The disposition that a Rust program expects.
    // SAFETY: SIG_IGN runs no code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initializes the set before `sigprocmask` reads it; the old mask may be null.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Resets scheduling class, nice value, CPU affinity and memory policy to the defaults.
fn reset_scheduling() {
    let all = [u8::MAX; size_of::<libc::cpu_set_t>()];
    // SAFETY: pid 0 is this process. `sched_param` is made of integers, and `all` has the given length; both
    // live through the calls. `set_mempolicy` reads no mask for the default policy.
    unsafe {
        let none: libc::sched_param = std::mem::zeroed();
        if libc::sched_getscheduler(0) != libc::SCHED_OTHER {
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none);
        }
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        libc::sched_setaffinity(0, all.len(), all.as_ptr().cast());
        libc::syscall(libc::SYS_set_mempolicy, DEFAULT_MEMORY_POLICY, 0, 0);
    }
}

fn lift(resource: Resource) {
    let none = Rlimit { current: None, maximum: None };
    if setrlimit(resource, none).is_err() {
        let most = getrlimit(resource).maximum;
        let _ = setrlimit(resource, Rlimit { current: most, maximum: most });
    }
}
