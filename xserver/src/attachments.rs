//! Processes that `xcli suspend` has suspended through the driver's debugger.
//!
//! The driver resumes the queues when the debugging process ends, so a suspension lasts as long as this
//! server at most. A request of the debugger stops the target briefly and can wait for the hardware for
//! seconds. So each process has a thread ([`worker`]), and the event loop only sends it jobs and receives the
//! results, without blocking.

mod worker;

#[cfg(test)]
mod tests;

use crate::error::Refusal;
use crate::peer;
use hal_kfd::{Kernel, Kfd};
use host::handle::Handle;
use protocol::control::Reply;
use protocol::ids::Pid;
use protocol::outside::{Held, HeldQueue, QUEUES, Snapshot};
use protocol::time::Time;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tracing::info;
pub(crate) use worker::Work;
use worker::{Done, Job, Target};

/// The most processes at a time. Each takes a thread and two descriptors.
const PROCESSES: usize = 64;
/// The most events that one call handles.
const EVENTS: usize = 16;
/// The event of a result. The event of the end of a process is its number, which is above.
const NOTIFIER: u64 = 0;

/// Opens the driver.
pub(crate) type Open = Arc<dyn Fn() -> std::io::Result<Arc<dyn Kernel>> + Send + Sync>;

/// A process with its thread.
#[derive(Debug)]
struct Process {
    /// A number that is never used again.
    number: u64,
    name: String,
    /// The handle for its end, shared with the thread.
    handle: Arc<Handle>,
    jobs: Sender<Job>,
    /// The number of jobs without a result.
    outstanding: usize,
    /// The suspended queues, each with the time since when.
    held: BTreeMap<u32, Time>,
}

/// All suspended processes.
pub(crate) struct Attachments {
    open: Open,
    processes: BTreeMap<u32, Process>,
    /// The number of the last process.
    last: u64,
    answers: Receiver<Done>,
    answer: Sender<Done>,
    /// Becomes readable when there is a result.
    notifier: Arc<OwnedFd>,
    /// Becomes readable for any event.
    epoll: OwnedFd,
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachments").field("processes", &self.processes).finish_non_exhaustive()
    }
}

impl Attachments {
    /// No process yet. The driver is opened for the first one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> rustix::io::Result<Self> {
        Self::with(Arc::new(|| Ok(Arc::new(Kfd::open()?))))
    }

    fn with(open: Open) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let notifier = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &notifier, EventData::new_u64(NOTIFIER), EventFlags::IN)?;
        let (answer, answers) = channel();
        Ok(Self {
            open,
            processes: BTreeMap::new(),
            last: NOTIFIER,
            answers,
            answer,
            notifier: Arc::new(notifier),
            epoll,
        })
    }

    /// Becomes readable when [`handle_events`](Self::handle_events) has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns true if no process is suspended and no job is running.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Sends a job of a user to the thread of a process. Returns no reply if it comes later, from
    /// [`handle_events`](Self::handle_events).
    ///
    /// # Errors
    /// The job is refused.
    pub fn ask(&mut self, connection: u64, uid: u32, pid: Pid, work: Work) -> Result<Option<Reply>, Refusal> {
        if let Work::Hold(queues) | Work::Release(queues) = &work
            && queues.len() > QUEUES
        {
            return Err(Refusal::TooManyQueues(QUEUES));
        }
        if !self.processes.contains_key(&pid.0) {
            match work {
                Work::Hold(_) => self.admit(uid, pid)?,
                Work::Release(_) => return Err(Refusal::NotSuspended(pid)),
                Work::Snapshot => return Ok(Some(Reply::Snapshot(Snapshot { pid, queues: None }))),
            }
        } else {
            // The process may have been suspended by root.
            peer::check_may_suspend(uid, pid)?;
        }
        let process = self.processes.get_mut(&pid.0).ok_or(Refusal::NotSuspended(pid))?;
        if process.jobs.send(Job { connection, work }).is_err() {
            self.processes.remove(&pid.0);
            return Err(Refusal::Lost(pid));
        }
        process.outstanding += 1;
        Ok(None)
    }

    /// Starts the thread of a process.
    fn admit(&mut self, uid: u32, pid: Pid) -> Result<(), Refusal> {
        if self.processes.len() >= PROCESSES {
            return Err(Refusal::TooManyProcesses(PROCESSES));
        }
        if !i32::try_from(pid.0).is_ok_and(|number| number > 0) {
            return Err(Refusal::NotAProcess(pid));
        }
        let handle = Handle::open(pid.0).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => Refusal::NoProcess(pid),
            // A thread that is not the first of its process (EINVAL, since Linux 6.9 ENOENT).
            Some(libc::EINVAL | libc::ENOENT) => Refusal::Thread(pid),
            _ => Refusal::CannotWatch { pid, error },
        })?;
        // Checked after opening the handle. If the process has ended meanwhile, its thread finds out.
        peer::check_may_suspend(uid, pid)?;
        let handle = Arc::new(handle);
        self.last += 1;
        let number = self.last;
        if let Some(descriptor) = handle.descriptor() {
            epoll::add(&self.epoll, descriptor, EventData::new_u64(number), EventFlags::IN)
                .map_err(|errno| Refusal::CannotWatch { pid, error: errno.into() })?;
        }
        let target =
            Target { pid, number, name: name(pid), process: handle.clone(), open: self.open.clone() };
        let name = target.name.clone();
        let (jobs, taken) = channel();
        let (answer, notifier) = (self.answer.clone(), self.notifier.clone());
        let tell = move |done| {
            // Sending fails only while the server ends.
            let _ = answer.send(done);
            let _ = rustix::io::write(&*notifier, &1_u64.to_ne_bytes());
        };
        let started = thread::Builder::new()
            .name("attachment".to_owned())
            .spawn(move || worker::run(target, &taken, tell));
        if let Err(error) = started {
            self.forget(&handle);
            return Err(Refusal::NoThread { pid, error });
        }
        self.processes
            .insert(pid.0, Process { number, name, handle, jobs, outstanding: 0, held: BTreeMap::new() });
        Ok(())
    }

    /// Handles pending events. Returns the replies, each with its connection, and removes processes that have
    /// ended.
    pub fn handle_events(&mut self, now: Time) -> Vec<(u64, Reply)> {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // After a failure the events are still pending.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&at_once));
        let mut replies = Vec::new();
        for event in &events {
            match event.data.u64() {
                NOTIFIER => {
                    let _ = rustix::io::read(&*self.notifier, &mut [0; 8]);
                    while let Ok(done) = self.answers.try_recv() {
                        replies.push(self.finish_job(done, now));
                    }
                }
                number => {
                    let ended = self.processes.iter().find(|(_, process)| process.number == number);
                    if let Some(pid) = ended.map(|(pid, _)| *pid) {
                        self.end(pid);
                    }
                }
            }
        }
        replies
    }

    /// Removes processes that have ended, on kernels without pidfds.
    pub fn check_processes(&mut self) {
        let ended = |(_, process): &(&u32, &Process)| {
            process.handle.descriptor().is_none() && process.handle.has_ended()
        };
        let ended: Vec<_> = self.processes.iter().filter(ended).map(|(pid, _)| *pid).collect();
        for pid in ended {
            self.end(pid);
        }
    }

    fn end(&mut self, pid: u32) {
        if let Some(process) = self.processes.get(&pid) {
            info!(pid, name = process.name, "process with attached debugger has ended");
        }
        self.remove(pid);
    }

    /// Applies the result of a job.
    fn finish_job(&mut self, done: Done, now: Time) -> (u64, Reply) {
        let Done { connection, pid, number, reply, held } = done;
        if let Some(process) = self.processes.get_mut(&pid.0).filter(|process| process.number == number) {
            process.outstanding -= 1;
            let before = std::mem::take(&mut process.held);
            process.held =
                held.iter().map(|queue| (*queue, before.get(queue).copied().unwrap_or(now))).collect();
            if before.len() != process.held.len() {
                let queues = process.held.len();
                info!(pid = pid.0, name = process.name, queues, "number of suspended queues has changed");
            }
            // The thread has detached already if no queue is suspended.
            if process.outstanding == 0 && process.held.is_empty() {
                self.remove(pid.0);
            }
        }
        (connection, reply.unwrap_or_else(|refusal| Reply::Error(refusal.to_string())))
    }

    fn remove(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            self.forget(&process.handle);
        }
    }

    /// Stops watching a process. The thread may keep its handle open for a while.
    fn forget(&self, handle: &Handle) {
        if let Some(descriptor) = handle.descriptor() {
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// Returns true if queues of this process are suspended.
    pub fn holds(&self, pid: Pid) -> bool {
        self.processes.get(&pid.0).is_some_and(|process| !process.held.is_empty())
    }

    /// The suspended queues of all processes.
    pub fn held(&self, now: Time) -> Vec<Held> {
        let held = |(pid, process): (&u32, &Process)| {
            let queue = |(queue, since): (&u32, &Time)| {
                let held_ms = u64::try_from(now.since(*since).as_millis()).unwrap_or(u64::MAX);
                HeldQueue { queue: *queue, held_ms }
            };
            let queues: Vec<_> = process.held.iter().map(queue).collect();
            (!queues.is_empty()).then(|| Held { pid: Pid(*pid), name: process.name.clone(), queues })
        };
        self.processes.iter().filter_map(held).collect()
    }
}

/// The name of a process. Its pidfd is open already, so the number cannot mean another process.
fn name(pid: Pid) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}
