//! What a daemon must not have of whoever starts it: a server serves other programs as well, and outlives them.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::mem::MaybeUninit;

/// The first descriptor that is nobody's standard one.
const FIRST: u32 = 3;
/// Descriptors are looked for up to this number where neither `close_range` (Linux 5.9) nor `/proc` tells of them.
const MOST_DESCRIPTORS: u64 = 65_536;
/// `MPOL_DEFAULT` of linux/mempolicy.h.
const ANY_MEMORY: libc::c_long = 0;
/// Limits that would end a server, or keep clients from it.
const LIMITS: [Resource; 7] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::As,
    Resource::Nproc,
    Resource::Memlock,
    Resource::Sigpending,
];

/// Gives away what this process, which has one thread and is about to start a server, has inherited: descriptors, signals, priority,
/// class and processors, memory policy, limits, mask of file modes. What takes a right that it has not stays as it is.
pub fn be_nobodys() {
    close_all();
    heed_all_signals();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    be_ordinary();
    LIMITS.into_iter().for_each(lift);
    let open = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: open, maximum: open });
    // The kernel would end it first when memory is short.
    let score = fs::read_to_string("/proc/self/oom_score_adj").ok();
    if score.and_then(|score| score.trim().parse::<i32>().ok()).is_some_and(|score| score > 0) {
        let _ = fs::write("/proc/self/oom_score_adj", "0");
    }
}

fn close_all() {
    // SAFETY: nothing here uses a descriptor but the standard ones.
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
            // SAFETY: as above; that of the folder itself is closed already.
            unsafe { libc::close(descriptor) };
        }
    }
}

fn heed_all_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: a disposition that needs no function; of those that have only one it is refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // As a Rust program has it.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: filled above; this process has one thread.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
}

/// As a process that nobody has set apart.
fn be_ordinary() {
    // SAFETY: plain numbers, for which zeros are valid.
    let none: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: asks for a number.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        // SAFETY: a structure that lives through the call; this process alone.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) };
    }
    // SAFETY: takes numbers; this process alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    let all = [u8::MAX; size_of::<libc::cpu_set_t>()];
    // SAFETY: as many bytes as it says, alive through the call, which takes of them the processors that there are.
    unsafe { libc::sched_setaffinity(0, all.len(), all.as_ptr().cast()) };
    // SAFETY: no mask is read for this policy.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, ANY_MEMORY, 0, 0) };
}

fn lift(resource: Resource) {
    let none = Rlimit { current: None, maximum: None };
    if setrlimit(resource, none).is_err() {
        let most = getrlimit(resource).maximum;
        let _ = setrlimit(resource, Rlimit { current: most, maximum: most });
    }
}
