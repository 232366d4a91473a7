//! The programs that use the GPU although this server does not schedule them: without the library, without a connection, or
//! under another server. They are why a scheduled program can be slow although nothing outranks it.
//!
//! A thread reads the driver's list once a second, because sysfs and `/proc` must not delay decisions.

use hal_kfd::users;
use protocol::control::Outsider;
use protocol::ids::Pid;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{io, thread};
use tracing::info;

/// The most programs that use the GPU and are known.
const MOST: usize = 1_024;
/// The most that a list names.
const LISTED: usize = 256;
/// The time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The programs that the thread has found.
type Found = Mutex<Vec<Outsider>>;

/// The programs that use the GPU. The thread ends some time after this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Outsiders {
    users: Arc<Found>,
    /// Those that were no clients at the last look.
    before: BTreeSet<Pid>,
    /// Those that the log has named.
    logged: BTreeSet<Pid>,
}

impl Outsiders {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread is left.
    pub fn start(&self) -> io::Result<()> {
        let found = Arc::downgrade(&self.users);
        thread::Builder::new().name("outsiders".to_owned()).spawn(move || read_until_dropped(&found))?;
        Ok(())
    }

    /// Logs those that were there at the last look, too: a program that starts connects a moment after it has made its first
    /// queue.
    pub fn look(&mut self, is_client: impl Fn(Pid) -> bool) {
        let found = self.found(is_client);
        let pids: BTreeSet<Pid> = found.iter().map(|one| one.pid).collect();
        self.logged.retain(|pid| pids.contains(pid));
        for Outsider { pid, name } in found {
            if self.before.contains(&pid) && self.logged.insert(pid) {
                info!(pid = pid.0, name, "a program uses the GPU and is not scheduled by this server");
            }
        }
        self.before = pids;
    }

    /// Names them.
    pub fn list(&self, is_client: impl Fn(Pid) -> bool) -> Vec<Outsider> {
        let mut found = self.found(is_client);
        found.truncate(LISTED);
        found
    }

    fn found(&self, is_client: impl Fn(Pid) -> bool) -> Vec<Outsider> {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.iter().filter(|one| !is_client(one.pid)).cloned().collect()
    }
}

fn read_until_dropped(found: &Weak<Found>) {
    let own = std::process::id();
    while found.strong_count() > 0 {
        // In another pid namespace than the driver's the numbers mean nothing.
        let pids = users::with_queues().unwrap_or_default().into_iter().filter(|pid| *pid != own);
        let named = pids.take(MOST).map(|pid| {
            // It may have ended, or be hidden.
            let name = host::process::name(pid).unwrap_or_default();
            Outsider { pid: Pid(pid), name }
        });
        let named = named.collect();
        if let Some(found) = found.upgrade() {
            *found.lock().unwrap_or_else(PoisonError::into_inner) = named;
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_no_clients_are_listed_until_they_end_or_connect() {
        let mut outsiders = Outsiders::default();
        let read = |outsiders: &Outsiders, pids: &[u32]| {
            let one = |pid: &u32| Outsider { pid: Pid(*pid), name: "x".to_owned() };
            *outsiders.users.lock().unwrap() = pids.iter().map(one).collect();
        };
        let pids = |all: Vec<Outsider>| all.iter().map(|one| one.pid.0).collect::<Vec<_>>();
        read(&outsiders, &[1, 7, 9]);
        outsiders.look(|pid| pid.0 == 9);
        assert_eq!(pids(outsiders.list(|pid| pid.0 == 9)), [1, 7]);
        assert_eq!(pids(outsiders.list(|pid| pid.0 != 1)), [1], "the other has connected");
        assert!(outsiders.logged.is_empty(), "both may be about to connect");
        read(&outsiders, &[1, 9]);
        outsiders.look(|pid| pid.0 == 9);
        assert_eq!(outsiders.logged, [Pid(1)].into());
        read(&outsiders, &[9]);
        outsiders.look(|pid| pid.0 == 9);
        assert!(outsiders.list(|pid| pid.0 == 9).is_empty() && outsiders.logged.is_empty());
    }

    #[test]
    fn thread_ends_with_its_owner() {
        let outsiders = Outsiders::default();
        let found = Arc::downgrade(&outsiders.users);
        drop(outsiders);
        read_until_dropped(&found);
    }
}
