//! The relations between processes and threads, as `/proc` shows them.

/// The number of attempts to read a path to the first process that no process leaves meanwhile.
const ATTEMPTS: usize = 8;

/// Returns the process that a thread belongs to.
pub fn thread_group(tid: i32) -> Option<i32> {
    status_number(tid, "Tgid:")
}

/// Returns the thread that traces a process.
pub fn tracer(pid: i32) -> Option<i32> {
    status_number(pid, "TracerPid:").filter(|tracer| *tracer != 0)
}

/// Returns the name of a process; empty if the process has ended.
pub fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Returns the process and its ancestors, the process first.
pub fn ancestors(pid: i32) -> Vec<i32> {
    let mut path = Vec::new();
    for _ in 0..ATTEMPTS {
        let complete;
        (path, complete) = path_to_init(pid, |pid| status_number(pid, "PPid:"));
        if complete {
            break;
        }
    }
    path
}

/// Returns the descendants of a process, without zombies.
pub fn descendants(root: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let lives = |pid: i32| status_field(pid, "State:").is_some_and(|state| !state.starts_with('Z'));
    pids.filter(|pid| *pid != root && lives(*pid) && ancestors(*pid).contains(&root)).collect()
}

/// Returns the path to the first process, and true if it is complete: when a process on it ends, its children
/// get another parent.
fn path_to_init(pid: i32, parent: impl Fn(i32) -> Option<i32>) -> (Vec<i32>, bool) {
    let (mut path, mut at) = (Vec::new(), pid);
    // The parent of the first process, and of one that comes from another pid namespace, is 0.
    while at > 0 {
        if path.contains(&at) {
            return (path, false);
        }
        path.push(at);
        match parent(at) {
            Some(parent) => at = parent,
            None => return (path, false),
        }
    }
    (path, true)
}

fn status_field(pid: i32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix(field))?.trim().to_owned())
}

fn status_number(pid: i32, field: &str) -> Option<i32> {
    status_field(pid, field)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_ancestors_ends_at_the_first_process() {
        let parent = |pid| [(9, 5), (5, 1), (1, 0), (7, 8), (3, 4), (4, 3)].into_iter().find(|p| p.0 == pid);
        let path = |pid| path_to_init(pid, |pid| parent(pid).map(|(_, parent)| parent));
        assert_eq!(path(9), (vec![9, 5, 1], true));
        assert_eq!(path(7), (vec![7, 8], false), "8 has just ended");
        assert_eq!(path(3), (vec![3, 4], false), "the kernel has reused numbers");
        let me = std::process::id().cast_signed();
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_pid());
        assert_eq!(ancestors(me)[..2], [me, parent]);
    }
}
