//! The programs that use the GPU although this server does not schedule them: without the library, without a connection, or
//! under another server. They are why a scheduled program can be slow although nothing outranks it.

use hal_kfd::users;
use protocol::control::Outsider;
use protocol::ids::Pid;
use std::collections::BTreeSet;
use tracing::info;

/// The most that a list names.
const MOST: usize = 256;

/// The programs that were found at the last look.
#[derive(Debug, Default)]
pub(crate) struct Outsiders {
    found: BTreeSet<u32>,
    /// Those that the log has named.
    logged: BTreeSet<u32>,
}

impl Outsiders {
    /// Looks for them. A program that was there at the last look, too, is logged: one that starts connects a moment after it
    /// has made its first queue.
    pub fn look(&mut self, is_client: impl Fn(u32) -> bool) {
        // In another pid namespace than the driver's the numbers mean nothing.
        self.note(users::with_queues().unwrap_or_default(), is_client);
    }

    fn note(&mut self, users: Vec<u32>, is_client: impl Fn(u32) -> bool) {
        let own = std::process::id();
        let found: BTreeSet<u32> = users.into_iter().filter(|pid| *pid != own && !is_client(*pid)).collect();
        self.logged.retain(|pid| found.contains(pid));
        for pid in found.intersection(&self.found) {
            if self.logged.insert(*pid) {
                let name = name(*pid);
                info!(pid, name, "a program uses the GPU and is not scheduled by this server");
            }
        }
        self.found = found;
    }

    /// Names them, but for those that have connected since then.
    pub fn list(&self, is_client: impl Fn(u32) -> bool) -> Vec<Outsider> {
        let left = self.found.iter().filter(|pid| !is_client(**pid)).take(MOST);
        left.map(|pid| Outsider { pid: Pid(*pid), name: name(*pid) }).collect()
    }
}

/// The name of a process; empty if it has ended or is hidden.
fn name(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    // The kernel cuts a name at 15 bytes, possibly inside a character.
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_no_clients_are_listed_until_they_end_or_connect() {
        let mut outsiders = Outsiders::default();
        let own = std::process::id();
        let pids = |all: Vec<Outsider>| all.iter().map(|one| one.pid.0).collect::<Vec<_>>();
        outsiders.note(vec![1, 7, 9, own], |pid| pid == 9);
        assert_eq!(pids(outsiders.list(|pid| pid == 9)), [1, 7]);
        assert_eq!(pids(outsiders.list(|pid| pid != 1)), [1], "the other has connected");
        assert!(outsiders.logged.is_empty(), "both may be about to connect");
        outsiders.note(vec![1, 9], |pid| pid == 9);
        assert_eq!(outsiders.logged, [1].into());
        outsiders.note(vec![9], |pid| pid == 9);
        assert!(outsiders.list(|_| false).is_empty() && outsiders.logged.is_empty());
    }
}
