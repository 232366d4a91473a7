//! Priority and processors of the supervisor's threads.

use rustix::thread::CpuSet;

/// Asks for timely wake-ups of the calling thread. Without the rights it runs later, which the statistics
/// show.
pub fn run_promptly() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    set_policy(libc::SCHED_FIFO, 1);
}

/// Gives the calling thread back the priority and the processors that it inherited from a thread which runs
/// promptly.
pub fn run_normally() {
    set_policy(libc::SCHED_OTHER, 0);
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
    let _ = rustix::thread::sched_setaffinity(None, &all);
}

/// Keeps the calling thread on the last processor, if there are others. It runs before any program, and would
/// interrupt a program's thread on whichever processor it woke up.
pub fn keep_to_last_processor() {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    if let (Some(_), Some(last)) = (processors.next(), processors.next_back()) {
        keep_to(last);
    }
}

/// Keeps the calling thread on one processor.
pub fn keep_to(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

fn set_policy(policy: libc::c_int, priority: libc::c_int) {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure is valid during the call, which changes the calling thread (0) only.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_thread_keeps_to_one_processor_until_it_runs_normally() {
        let processors = || rustix::thread::sched_getaffinity(None).unwrap().count();
        let all = processors();
        std::thread::spawn(move || {
            keep_to_last_processor();
            assert_eq!(processors(), 1.min(all));
            run_normally();
            assert_eq!(processors(), all);
        })
        .join()
        .unwrap();
    }
}
