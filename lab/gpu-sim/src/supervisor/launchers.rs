//! The launchers (`gpu-sim run`, `gpu-sim info`): their requests, messages to them, and the end of the last
//! one.

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::Supervisor;
use crate::clock::now;
use crate::control::{self, Receiver, ToLauncher, ToSupervisor};
use crate::machine::Faults;
use crate::procfs::ancestors;

/// The time that a new set waits for its first launcher.
const FIRST_JOIN: Duration = Duration::from_secs(10);
#[derive(Debug, Default)]
pub(super) struct Launchers {
    streams: BTreeMap<u64, (UnixStream, Option<i32>)>,
    next: u64,
    /// True once the last launcher has left: no further one can join.
    closing: bool,
}

impl Launchers {
    /// Sends a message to all launchers.
    pub(super) fn send_to_all(&self, text: &str) {
        for (stream, _) in self.streams.values() {
            let _ = control::send(stream, &ToLauncher::Message(text.to_owned()));
        }
    }

    /// Sends a message about a process to its launcher, or to all launchers if none of them started it.
    pub(super) fn send_message(&self, pid: i32, text: &str) {
        let ancestors = ancestors(pid);
        let mine = |child: Option<i32>| child.is_some_and(|child| ancestors.contains(&child));
        let to_all = !self.streams.values().any(|(_, child)| mine(*child));
        for (stream, child) in self.streams.values() {
            if to_all || mine(*child) {
                let _ = control::send(stream, &ToLauncher::Message(text.to_owned()));
            }
        }
    }
}

/// Serves launchers until the last one has left, and then ends all processes that still use the device.
pub(super) fn wait_for_the_last(shared: &Arc<Supervisor>, listener: UnixListener) {
    let (last, end) = mpsc::channel();
    let acceptor = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // An error such as missing descriptors can be temporary.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let (shared, last) = (Arc::clone(&acceptor), last.clone());
            let _ = std::thread::Builder::new().spawn(move || {
                if shared.serve_launcher(&stream) {
                    let _ = last.send(());
                }
            });
        }
    });
    // The launcher that started this set may have been killed before it joined.
    if end.recv_timeout(FIRST_JOIN).is_err() && !shared.close(None) {
        let _ = end.recv();
    }
    // The last launcher has left: the remaining processes lose the device.
    shared.end_clients();
    shared.pace.stop();
}

impl Supervisor {
    fn end_clients(&self) {
        let pids: Vec<i32> = self.machine.lock().processes.keys().copied().collect();
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Serves one launcher until it leaves. Returns true if it was the last one.
    fn serve_launcher(&self, stream: &UnixStream) -> bool {
        let Ok(mut receiver) = Receiver::new(stream) else { return false };
        let (mut me, mut unexecuted) = (None, None);
        while let Some(message) = receiver.next() {
            let answer = match message {
                ToSupervisor::Join(wanted) => match self.setup.conflict(&wanted) {
                    Some(conflict) => ToLauncher::Refused(format!(
                        "the running GPUs have {conflict}; omit the option or choose another --name"
                    )),
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
                        // Before the answer, so that all processes of the launcher are counted.
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
                ToSupervisor::Record => {
                    self.write_timeline();
                    ToLauncher::Report(serde_json::Value::Null)
                }
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

    /// Removes a launcher. If none is left, closes the set and returns true.
    fn close(&self, leaving: Option<u64>) -> bool {
        let mut launchers = self.launchers.lock();
        if let Some(id) = leaving {
            launchers.streams.remove(&id);
        }
        if launchers.closing || !launchers.streams.is_empty() {
            return false;
        }
        // Under the lock, so that no run finds the socket missing and binds a new one of this name before.
        launchers.closing = true;
        for file in [self.socket.clone(), self.socket.with_extension("log")] {
            let _ = std::fs::remove_file(file);
        }
        true
    }

    /// Makes ioctls fail from now on, in the syntax of `--fail-ioctls`.
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
