//! Handles of XQueues, which are unique on the machine.

use parking_lot::Mutex;
use protocol::ids::QueueId;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::MetadataExt as _;
use std::process;

/// The inode of the initial pid namespace (`PROC_PID_INIT_INO` in Linux's include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;
/// A process id is below this (`PID_MAX_LIMIT` in Linux's include/linux/threads.h).
const PIDS: u64 = 1 << 22;
/// The number of a process is below this: a handle stays below 2^53, so that every reader of JSON reads it exactly.
const PROCESSES: u64 = (1 << 53) / QueueId::PER_PROCESS;

/// The handles of a process.
#[derive(Debug)]
pub(crate) struct Handles(Mutex<Next>);

#[derive(Debug)]
struct Next {
    process: u64,
    queue: u64,
}

impl Handles {
    /// Numbers the calling process.
    pub(crate) fn new() -> Self {
        let namespace = fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino());
        // In another namespace many processes can have the same process id.
        let process = match namespace {
            Ok(INITIAL_PID_NAMESPACE) => process::id().into(),
            _ => random_number(),
        };
        Self(Mutex::new(Next { process, queue: 1 }))
    }

    /// Returns a handle that no other XQueue of the machine has, or has had in this process.
    pub(crate) fn take(&self) -> u64 {
        let mut next = self.0.lock();
        if next.queue == QueueId::PER_PROCESS {
            *next = Next { process: random_number(), queue: 1 };
        }
        let handle = next.process * QueueId::PER_PROCESS + next.queue;
        next.queue += 1;
        handle
    }
}

/// Returns a number that is no process id.
fn random_number() -> u64 {
    // A forked child has the parent's random numbers, and its own process id.
    PIDS + RandomState::new().hash_one(process::id()) % (PROCESSES - PIDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn handles_differ_beyond_the_numbers_of_one_process() {
        let handles = Handles(Mutex::new(Next { process: 4242, queue: QueueId::PER_PROCESS - 2 }));
        let taken: Vec<_> = (0..4).map(|_| handles.take()).collect();
        assert_eq!(taken[..2], [4_242_999_998, 4_242_999_999]);
        assert!(taken[2] > PIDS * QueueId::PER_PROCESS && taken[3] == taken[2] + 1, "{taken:?}");
        assert_eq!(QueueId(taken[2]).within_process(), 1);
    }

    #[test]
    fn random_numbers_differ_and_are_no_process_ids() {
        let numbers: BTreeSet<_> = (0..1000).map(|_| random_number()).collect();
        assert_eq!(numbers.len(), 1000);
        assert!(numbers.iter().all(|number| (PIDS..PROCESSES).contains(number)));
        const { assert!(PROCESSES * QueueId::PER_PROCESS <= 1 << 53) };
    }

    #[test]
    fn process_of_the_initial_namespace_is_known_by_its_process_id() {
        let (first, second) = (Handles::new().take(), Handles::new().take());
        let is_initial = fs::metadata("/proc/self/ns/pid").is_ok_and(|ns| ns.ino() == INITIAL_PID_NAMESPACE);
        match is_initial {
            true => assert_eq!(first, u64::from(process::id()) * QueueId::PER_PROCESS + 1),
            false => assert!(first >= PIDS * QueueId::PER_PROCESS && first != second),
        }
    }
}
