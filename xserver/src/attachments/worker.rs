//! The thread of one process: attaches when it is first asked to hold, and lets go when nothing is held any more.

use super::Open;
use hal_kfd::outside::{Attachment, Problem};
use hal_kfd::session;
use hip_sys::kfd::debug::QueueEntry;
use hip_sys::kfd::{QUEUE_TYPE_COMPUTE, QUEUE_TYPE_COMPUTE_AQL};
use host::handle::Handle;
use protocol::control::Reply;
use protocol::ids::Pid;
use protocol::outside::{Fate, Fates, QueueFate, SeenQueue, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// The pid namespace that the driver's sysfs counts in (`PROC_PID_INIT_INO` of `include/uapi/linux/nsfs.h`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Where the driver shows who uses it.
const USERS: &str = "/sys/class/kfd/kfd/proc";

/// What is to be done with a process.
#[derive(Debug)]
pub(crate) enum Work {
    /// [`protocol::control::Request::Hold`].
    Hold(Vec<u32>),
    /// [`protocol::control::Request::Release`].
    Release(Vec<u32>),
    /// [`protocol::control::Request::Snapshot`].
    Snapshot,
}

/// Work, and who wants it.
#[derive(Debug)]
pub(super) struct Job {
    pub connection: u64,
    pub work: Work,
}

/// What came of a job.
#[derive(Debug)]
pub(super) struct Done {
    pub connection: u64,
    pub pid: Pid,
    pub number: u64,
    pub reply: Result<Reply, String>,
    /// What is held now.
    pub held: Vec<u32>,
}

/// A process.
pub(super) struct Target {
    pub pid: Pid,
    pub number: u64,
    pub name: String,
    /// Its end.
    pub process: Arc<Handle>,
    pub open: Open,
}

/// Does the jobs of a process until nobody can send one any more.
pub(super) fn run(target: Target, jobs: &Receiver<Job>, tell: impl Fn(Done)) {
    let mut worker = Worker { target, attachment: None, held: BTreeSet::new(), doubtful: BTreeSet::new() };
    for Job { connection, work } in jobs {
        let reply = worker.execute(&work);
        if worker.held.is_empty() {
            // Without it the process can be debugged by others.
            worker.let_go();
        }
        let held = worker.held.iter().copied().collect();
        let Target { pid, number, .. } = worker.target;
        tell(Done { connection, pid, number, reply, held });
    }
    worker.let_go();
}

struct Worker {
    target: Target,
    attachment: Option<Attachment>,
    held: BTreeSet<u32>,
    /// Queues that may stand: the hardware has failed to take them off.
    doubtful: BTreeSet<u32>,
}

impl Worker {
    fn execute(&mut self, work: &Work) -> Result<Reply, String> {
        if self.has_ended() {
            return Err(format!("process {} has ended", self.target.pid));
        }
        match work {
            Work::Hold(queues) => self.hold(queues).map(Reply::Fates),
            Work::Release(queues) => self.release(queues).map(Reply::Fates),
            Work::Snapshot => self.snapshot().map(Reply::Snapshot),
        }
    }

    fn has_ended(&self) -> bool {
        self.target.process.has_ended()
    }

    /// Ends the attachment, and so what is held. A process that has ended is not asked: its number may be another's.
    fn let_go(&mut self) {
        self.hold_nothing();
        if let Some(attachment) = self.attachment.take()
            && self.has_ended()
        {
            attachment.forget();
        }
    }

    fn hold_nothing(&mut self) {
        self.held.clear();
        self.doubtful.clear();
    }

    /// What a problem with the attachment means for it, and why.
    fn failed(&mut self, problem: Problem) -> String {
        if matches!(problem, Problem::Lost | Problem::NoDevice | Problem::NoProcess) {
            // There is nothing left to be ended.
            self.hold_nothing();
            if let Some(attachment) = self.attachment.take() {
                attachment.forget();
            }
        }
        self.sentence(problem)
    }

    fn sentence(&self, problem: Problem) -> String {
        let Target { pid, name, .. } = &self.target;
        format!("process {pid} ({name}): {problem}")
    }

    fn attach(&mut self) -> Result<&Attachment, String> {
        if self.attachment.is_none() {
            let pid = self.target.pid;
            let kernel = (self.target.open)().map_err(|error| {
                format!("the server (pid {}) cannot open /dev/kfd: {error}", std::process::id())
            })?;
            if is_known_not_to_use_it(pid) {
                return Err(self.sentence(Problem::NoDevice));
            }
            let attachment =
                Attachment::new(kernel, pid.0.cast_signed()).map_err(|problem| self.sentence(problem))?;
            if !attachment.can_suspend() {
                return Err(self.sentence(Problem::NotEnabled));
            }
            self.attachment = Some(attachment);
        }
        self.attachment.as_ref().ok_or_else(|| "there is no attachment".to_owned())
    }

    fn hold(&mut self, wanted: &[u32]) -> Result<Fates, String> {
        let pid = self.target.pid;
        let entries = match self.attach()?.queues() {
            Err(problem @ Problem::Lost) => {
                self.failed(problem);
                self.attach()?.queues()
            }
            entries => entries,
        };
        let entries = entries.map_err(|problem| self.failed(problem))?;
        if let Some(copies) =
            entries.iter().find(|entry| wanted.contains(&entry.queue_id) && !is_compute(entry))
        {
            return Err(format!(
                "queue {} of process {pid} copies: only queues for kernels can be held",
                copies.queue_id
            ));
        }
        let ids: BTreeSet<u32> = match wanted {
            [] => entries.iter().filter(|entry| is_compute(entry)).map(|entry| entry.queue_id).collect(),
            some => some.iter().copied().collect(),
        };
        if ids.is_empty() {
            return Err(format!("process {pid} ({}) has no queue for kernels", self.target.name));
        }
        let ids: Vec<u32> = ids.into_iter().collect();
        let fates = self.attach()?.suspend(&ids).map_err(|problem| self.failed(problem))?;
        for (id, fate) in ids.iter().zip(&fates) {
            match fate {
                session::Fate::Done => {
                    self.doubtful.remove(id);
                    self.held.insert(*id);
                }
                session::Fate::Failed => drop(self.doubtful.insert(*id)),
                session::Fate::Invalid => {}
            }
        }
        Ok(self.fates(&ids, &fates))
    }

    fn release(&mut self, wanted: &[u32]) -> Result<Fates, String> {
        let pid = self.target.pid;
        if self.attachment.is_none() {
            return Err(format!("this server holds no queue of process {pid}"));
        }
        let wanted: BTreeSet<u32> = match wanted {
            [] => self.held.clone(),
            some => some.iter().copied().collect(),
        };
        // The others were never taken off: the driver is not asked for them.
        let known = |id: &&u32| self.held.contains(*id) || self.doubtful.contains(*id);
        let ids: Vec<u32> = wanted.iter().filter(known).copied().collect();
        let fates = if self.held.is_subset(&wanted) {
            // Nothing is held any more: the end of the session puts everything back in one request.
            let end = self.attachment.as_mut().map_or(Ok(()), Attachment::end);
            end.map_err(|problem| self.failed(problem))?;
            self.hold_nothing();
            self.attachment = None;
            vec![session::Fate::Done; ids.len()]
        } else {
            self.attach()?.resume(&ids).map_err(|problem| self.failed(problem))?
        };
        let fates: BTreeMap<u32, session::Fate> = ids.into_iter().zip(fates).collect();
        for (id, _) in fates.iter().filter(|(_, fate)| **fate != session::Fate::Failed) {
            self.held.remove(id);
            self.doubtful.remove(id);
        }
        let fate = |id: &u32| fates.get(id).copied().unwrap_or(session::Fate::Invalid);
        let all: Vec<_> = wanted.iter().map(fate).collect();
        Ok(self.fates(&wanted.into_iter().collect::<Vec<_>>(), &all))
    }

    fn fates(&self, ids: &[u32], fates: &[session::Fate]) -> Fates {
        let fate = |fate: &session::Fate| match fate {
            session::Fate::Done => Fate::Done,
            session::Fate::Invalid => Fate::Invalid,
            session::Fate::Failed => Fate::Failed,
        };
        let queues = ids.iter().zip(fates).map(|(queue, f)| QueueFate { queue: *queue, fate: fate(f) });
        Fates {
            pid: self.target.pid,
            name: self.target.name.clone(),
            queues: queues.collect(),
            held: self.held.iter().copied().collect(),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, String> {
        let pid = self.target.pid;
        let Some(attachment) = &self.attachment else { return Ok(Snapshot { pid, queues: None }) };
        let entries = attachment.queues();
        let entries = entries.map_err(|problem| self.failed(problem))?;
        let memory = File::open(format!("/proc/{pid}/mem")).ok();
        let word = |address: u64| -> Option<u64> {
            let mut bytes = [0; 8];
            memory.as_ref()?.read_exact_at(&mut bytes, address).ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let queue = |entry: &QueueEntry| SeenQueue {
            queue: entry.queue_id,
            ring_address: entry.ring_base_address,
            write_pointer_address: entry.write_pointer_address,
            read_pointer_address: entry.read_pointer_address,
            write_pointer: word(entry.write_pointer_address),
            read_pointer: word(entry.read_pointer_address),
            held: self.held.contains(&entry.queue_id),
        };
        Ok(Snapshot { pid, queues: Some(entries.iter().map(queue).collect()) })
    }
}

fn is_compute(entry: &QueueEntry) -> bool {
    matches!(entry.queue_type, QUEUE_TYPE_COMPUTE | QUEUE_TYPE_COMPUTE_AQL)
}

/// Attaching makes the driver keep books of a process that it did not know before (`kfd_ioctl_set_debug_trap`), for as long as
/// that lives. So it is looked up first where the driver's numbers are ours.
fn is_known_not_to_use_it(pid: Pid) -> bool {
    let ours = fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name == Path::new(FIRST_NAMESPACE));
    let users = Path::new(USERS);
    ours && users.is_dir() && !users.join(pid.to_string()).exists()
}
