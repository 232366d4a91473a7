//! The processes that use the driver, as it lists them in sysfs (`kfd_procfs_add_queue` of `kfd_process.c`).

use crate::Kfd;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The folder of the driver, with a folder for each process.
pub const FOLDER: &str = "/sys/class/kfd/kfd/proc";
/// The inode of the pid namespace whose numbers the driver uses (`PROC_PID_INIT_INO` of `include/uapi/linux/nsfs.h`).
const FIRST_NAMESPACE: u64 = 0xeffffffc;

/// Returns true if this process is in the pid namespace whose numbers the driver uses.
pub fn is_in_first_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|about| about.ino() == FIRST_NAMESPACE)
}

/// Returns the processes that have queues, in ascending order.
///
/// # Errors
/// The numbers are those of another pid namespace: the number of processes.
pub fn with_queues() -> Result<Vec<u32>, usize> {
    with_queues_below(Path::new(FOLDER))
}

fn with_queues_below(folder: &Path) -> Result<Vec<u32>, usize> {
    let has_queues = |pid: &u32| !numbers(&folder.join(format!("{pid}/queues"))).is_empty();
    let pids: Vec<u32> = numbers(folder).into_iter().filter(has_queues).collect();
    // A simulated device uses the numbers of this namespace.
    if pids.is_empty() || is_in_first_namespace() || Kfd::is_simulated() { Ok(pids) } else { Err(pids.len()) }
}

/// Returns the names in a folder that are numbers, in ascending order; none if the folder cannot be read.
pub fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_with_queues_use_the_driver() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(with_queues_below(&folder.path().join("none")), Ok(Vec::new()));
        for (pid, rest) in [(7, "queues/0"), (31, "queues/2"), (8, "queues"), (9, "")] {
            fs::create_dir_all(folder.path().join(format!("{pid}/{rest}"))).unwrap();
        }
        match with_queues_below(folder.path()) {
            Ok(pids) => assert_eq!(pids, [7, 31]),
            Err(number) => assert_eq!(number, 2),
        }
    }
}
