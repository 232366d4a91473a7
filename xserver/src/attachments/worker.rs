//! The thread of one process: attaches the debugger for the first suspension, and detaches when no queue is
//! suspended.

use super::Open;
use crate::error::Refusal;
use hal_kfd::attach::{Attachment, Problem};
use hal_kfd::{session, users};
use hip_sys::kfd::debug::QueueEntry;
use hip_sys::kfd::{QUEUE_TYPE_COMPUTE, QUEUE_TYPE_COMPUTE_AQL};
use host::handle::Handle;
use protocol::control::Reply;
use protocol::ids::Pid;
use protocol::outside::{Fates, QueueSuspendStatus, SeenQueue, Snapshot, SuspendStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// The work of a job.
#[derive(Debug)]
pub(crate) enum Work {
    /// [`protocol::control::Request::Hold`].
    Hold(Vec<u32>),
    /// [`protocol::control::Request::Release`].
    Release(Vec<u32>),
    /// [`protocol::control::Request::Snapshot`].
    Snapshot,
}

#[derive(Debug)]
pub(super) struct Job {
    pub connection: u64,
    pub work: Work,
}

/// The result of a job.
#[derive(Debug)]
pub(super) struct Done {
    pub connection: u64,
    pub pid: Pid,
    pub number: u64,
    pub reply: Result<Reply, Refusal>,
    /// The suspended queues.
    pub held: Vec<u32>,
}

pub(super) struct Target {
    pub pid: Pid,
    pub number: u64,
    pub name: String,
    /// The handle for its end.
    pub process: Arc<Handle>,
    pub open: Open,
}

/// Runs the jobs of a process until the sender is dropped.
pub(super) fn run(target: Target, jobs: &Receiver<Job>, tell: impl Fn(Done)) {
    let mut worker = Worker { target, attachment: None, held: BTreeSet::new(), doubtful: BTreeSet::new() };
    for Job { connection, work } in jobs {
        let reply = worker.execute(&work);
        if worker.held.is_empty() {
            // Lets other debuggers attach to the process.
            worker.detach();
        }
        let held = worker.held.iter().copied().collect();
        let Target { pid, number, .. } = worker.target;
        tell(Done { connection, pid, number, reply, held });
    }
    worker.detach();
}

struct Worker {
    target: Target,
    attachment: Option<Attachment>,
    held: BTreeSet<u32>,
    /// Queues whose eviction failed, so that their state is unknown.
    doubtful: BTreeSet<u32>,
}

impl Worker {
    fn execute(&mut self, work: &Work) -> Result<Reply, Refusal> {
        if self.has_ended() {
            return Err(Refusal::EndedProcess(self.target.pid));
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

    /// Ends the attachment, which resumes the queues. No request is made for a process that has ended: its
    /// number may be reused.
    fn detach(&mut self) {
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

    /// Drops an attachment that is lost. Returns the refusal for the problem.
    fn failed(&mut self, problem: Problem) -> Refusal {
        if matches!(problem, Problem::Lost | Problem::NoDevice | Problem::NoProcess) {
            self.hold_nothing();
            if let Some(attachment) = self.attachment.take() {
                attachment.forget();
            }
        }
        self.refusal(problem)
    }

    fn refusal(&self, problem: Problem) -> Refusal {
        let Target { pid, name, .. } = &self.target;
        Refusal::Debugger { pid: *pid, name: name.clone(), problem }
    }

    fn attach(&mut self) -> Result<&Attachment, Refusal> {
        if self.attachment.is_none() {
            let pid = self.target.pid;
            let kernel = (self.target.open)().map_err(Refusal::NoDevice)?;
            if is_known_not_to_use_kfd(pid) {
                return Err(self.refusal(Problem::NoDevice));
            }
            let attachment =
                Attachment::new(kernel, pid.0.cast_signed()).map_err(|problem| self.refusal(problem))?;
            if !attachment.can_suspend() {
                return Err(self.refusal(Problem::NotEnabled));
            }
            self.attachment = Some(attachment);
        }
        self.attachment.as_ref().ok_or_else(|| self.refusal(Problem::Lost))
    }

    fn hold(&mut self, wanted: &[u32]) -> Result<Fates, Refusal> {
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
            return Err(Refusal::CopyQueue { pid, queue: copies.queue_id });
        }
        let ids: BTreeSet<u32> = match wanted {
            [] => entries.iter().filter(|entry| is_compute(entry)).map(|entry| entry.queue_id).collect(),
            some => some.iter().copied().collect(),
        };
        if ids.is_empty() {
            return Err(Refusal::NoComputeQueue { pid, name: self.target.name.clone() });
        }
        let ids: Vec<u32> = ids.into_iter().collect();
        let fates = self.attach()?.suspend(&ids).map_err(|problem| self.failed(problem))?;
        for (id, fate) in ids.iter().zip(&fates) {
            match fate {
                session::SuspendStatus::Done => {
                    self.doubtful.remove(id);
                    self.held.insert(*id);
                }
                session::SuspendStatus::Failed => drop(self.doubtful.insert(*id)),
                session::SuspendStatus::Invalid => {}
            }
        }
        Ok(self.fates(&ids, &fates))
    }

    fn release(&mut self, wanted: &[u32]) -> Result<Fates, Refusal> {
        let pid = self.target.pid;
        if self.attachment.is_none() {
            return Err(Refusal::NotSuspended(pid));
        }
        let wanted: BTreeSet<u32> = match wanted {
            [] => self.held.clone(),
            some => some.iter().copied().collect(),
        };
        // The other queues were never evicted, so the driver is not asked for them.
        let known = |id: &&u32| self.held.contains(*id) || self.doubtful.contains(*id);
        let ids: Vec<u32> = wanted.iter().filter(known).copied().collect();
        let fates = if self.held.is_subset(&wanted) {
            // No queue stays suspended: the end of the session resumes all queues in one request.
            let end = self.attachment.as_mut().map_or(Ok(()), Attachment::end);
            end.map_err(|problem| self.failed(problem))?;
            self.hold_nothing();
            self.attachment = None;
            vec![session::SuspendStatus::Done; ids.len()]
        } else {
            self.attach()?.resume(&ids).map_err(|problem| self.failed(problem))?
        };
        let fates: BTreeMap<u32, session::SuspendStatus> = ids.into_iter().zip(fates).collect();
        for (id, _) in fates.iter().filter(|(_, fate)| **fate != session::SuspendStatus::Failed) {
            self.held.remove(id);
            self.doubtful.remove(id);
        }
        let fate = |id: &u32| fates.get(id).copied().unwrap_or(session::SuspendStatus::Invalid);
        let all: Vec<_> = wanted.iter().map(fate).collect();
        Ok(self.fates(&wanted.into_iter().collect::<Vec<_>>(), &all))
    }

    fn fates(&self, ids: &[u32], fates: &[session::SuspendStatus]) -> Fates {
        let fate = |fate: &session::SuspendStatus| match fate {
            session::SuspendStatus::Done => SuspendStatus::Done,
            session::SuspendStatus::Invalid => SuspendStatus::Invalid,
            session::SuspendStatus::Failed => SuspendStatus::Failed,
        };
        let queues =
            ids.iter().zip(fates).map(|(queue, f)| QueueSuspendStatus { queue: *queue, fate: fate(f) });
        Fates {
            pid: self.target.pid,
            name: self.target.name.clone(),
            queues: queues.collect(),
            held: self.held.iter().copied().collect(),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, Refusal> {
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

/// Returns true if the process is known not to use the driver. Attaching to it would make the driver track
/// the process until it ends (`kfd_ioctl_set_debug_trap`). The check needs the driver's pid namespace.
fn is_known_not_to_use_kfd(pid: Pid) -> bool {
    let folder = Path::new(users::FOLDER);
    users::is_in_first_namespace() && folder.is_dir() && !folder.join(pid.to_string()).exists()
}
