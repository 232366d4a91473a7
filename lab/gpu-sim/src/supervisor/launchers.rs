//! The launchers (`gpu-sim run`, `gpu-sim info`): what they ask, what they are told, and the end of the last one.

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::Shared;
use crate::clock::now;
use crate::control::{self, Receiver, ToLauncher, ToSupervisor};
use crate::machine::Faults;
use crate::procfs::ancestors;

/// How long a new set waits for its first launcher.
const FIRST_JOIN: Duration = Duration::from_secs(10);
#[derive(Debug, Default)]
pub(super) struct Launchers {
    streams: BTreeMap<u64, (UnixStream, Option<i32>)>,
    next: u64,
    /// The last one has gone: nobody is taken in any more.
    closing: bool,
}

impl Launchers {
    /// Says something about a process to whoever started it, or to all if that is none of them.
    pub(super) fn tell(&self, pid: i32, text: &str) {
        let ancestors = ancestors(pid);
        let mine = |child: Option<i32>| child.is_some_and(|child| ancestors.contains(&child));
        let anyone = !self.streams.values().any(|(_, child)| mine(*child));
        for (stream, child) in self.streams.values() {
            if anyone || mine(*child) {
                let _ = control::send(stream, &ToLauncher::Message(text.to_owned()));
            }
        }
    }
}

/// Serves launchers until the last one has gone, and ends what still uses the device then.
pub(super) fn wait_for_the_last(shared: &Arc<Shared>, listener: UnixListener) {
    let (last, end) = mpsc::channel();
    let acceptor = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, say: later there may be some.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let (shared, last) = (Arc::clone(&acceptor), last.clone());
            let _ = std::thread::Builder::new().spawn(move || {
                if shared.converse(&stream) {
                    let _ = last.send(());
                }
            });
        }
    });
    // Whoever started us may have been killed before it joined.
    if end.recv_timeout(FIRST_JOIN).is_err() && !shared.close(None) {
        let _ = end.recv();
    }
    // The last launcher has gone: what still uses the device has lost it.
    shared.end_clients();
    shared.pace.stop();
}

impl Shared {
    fn end_clients(&self) {
        let pids: Vec<i32> = self.machine.lock().processes.keys().copied().collect();
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Talks to one launcher until it goes; `true` if it was the last.
    fn converse(&self, stream: &UnixStream) -> bool {
        let Ok(mut receiver) = Receiver::new(stream) else { return false };
        let (mut me, mut unexecuted) = (None, None);
        while let Some(message) = receiver.next() {
            let answer = match message {
                ToSupervisor::Join(wanted) => match self.setup.conflict(&wanted) {
                    Some(conflict) => ToLauncher::Refused(format!("these GPUs are running with {conflict}")),
                    None if me.is_some() => ToLauncher::Refused("this run has joined already".to_owned()),
                    None => {
                        let Ok(copy) = stream.try_clone() else { return false };
                        let mut launchers = self.launchers.lock();
                        if launchers.closing {
                            return false;
                        }
                        launchers.next += 1;
                        let id = launchers.next;
                        launchers.streams.insert(id, (copy, None));
                        me = Some(id);
                        // Before it is told, and so before it starts anything.
                        unexecuted = Some(self.launches.join(control::peer(stream)));
                        ToLauncher::Joined { place: self.place, pid: std::process::id().cast_signed() }
                    }
                },
                ToSupervisor::Child(pid) => {
                    let mut launchers = self.launchers.lock();
                    if let Some(entry) = me.and_then(|me| launchers.streams.get_mut(&me)) {
                        entry.1 = Some(pid);
                    }
                    continue;
                }
                ToSupervisor::Stats => ToLauncher::Report(self.machine.lock().report(now())),
                ToSupervisor::Unexecuted => ToLauncher::Unexecuted(
                    unexecuted.as_ref().map(|counts| counts.summary()).unwrap_or_default(),
                ),
                ToSupervisor::Info => ToLauncher::Report(self.info()),
                ToSupervisor::FailIoctls(text) => self.fail_ioctls(&text),
            };
            if control::send(stream, &answer).is_err() {
                break;
            }
        }
        if let Some(counts) = unexecuted {
            self.launches.leave(&counts);
        }
        me.is_some() && self.close(me)
    }

    /// Lets a launcher go and, if nobody is left, takes nobody in any more: `true` then.
    fn close(&self, leaving: Option<u64>) -> bool {
        let mut launchers = self.launchers.lock();
        if let Some(id) = leaving {
            launchers.streams.remove(&id);
        }
        if launchers.closing || !launchers.streams.is_empty() {
            return false;
        }
        // Under the lock, and before anybody who finds no socket can make a new one of this name.
        launchers.closing = true;
        for file in [self.socket.clone(), self.socket.with_extension("log")] {
            let _ = std::fs::remove_file(file);
        }
        true
    }

    /// Has ioctls fail from now on as the text says.
    fn fail_ioctls(&self, text: &str) -> ToLauncher {
        let mut faults = match Faults::parse(text) {
            Ok(faults) if !text.is_empty() => Some(faults),
            Err(why) if !text.is_empty() => return ToLauncher::Refused(why),
            _ => None,
        };
        let mut machine = self.machine.lock();
        if let Some(faults) = &mut faults {
            faults.count = machine.driver.faults.as_ref().map_or(0, |before| before.count);
        }
        machine.driver.faults = faults;
        ToLauncher::Report(serde_json::Value::Null)
    }

    fn info(&self) -> serde_json::Value {
        let machine = self.machine.lock();
        let processes: Vec<serde_json::Value> = machine
            .processes
            .iter()
            .map(|(pid, process)| {
                let queues = process.queues.iter().map(|(id, queue)| queue.describe(*id)).collect::<Vec<_>>();
                serde_json::json!({ "pid": pid, "name": process.stats.name, "queues": queues })
            })
            .collect();
        serde_json::json!({
            "setup": self.setup,
            "supervisor": std::process::id(),
            "gpus": machine.report(now())["gpus"],
            "processes": processes,
        })
    }
}
