//! Processes of which queues are held from outside, through the driver's debugger.
//!
//! The driver resumes everything when the debugging process ends, so the hold is this process's and lasts as long as that.
//! Its requests stop the target for a moment and can wait for the hardware for seconds, so each such process has a thread
//! ([`worker`]), and the loop only hands it jobs and hears what came of them. Nobody here waits.

mod worker;

#[cfg(test)]
mod tests;

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

/// Processes at a time: each takes a thread and two descriptors.
const PROCESSES: usize = 64;
/// Events heard in one go.
const EVENTS: usize = 16;
/// The event of an answer; a process's is its own number, which begins above.
const BELL: u64 = 0;

/// How the driver is reached.
pub(crate) type Open = Arc<dyn Fn() -> std::io::Result<Arc<dyn Kernel>> + Send + Sync>;

/// A process with its thread.
#[derive(Debug)]
struct Process {
    /// Never used again.
    number: u64,
    name: String,
    /// Its end. The thread has it as well.
    handle: Arc<Handle>,
    jobs: Sender<Job>,
    /// Jobs without an answer.
    outstanding: usize,
    /// Each queue that is held, and since when.
    held: BTreeMap<u32, Time>,
}

/// All of them, and what they have to say.
pub(crate) struct Attachments {
    open: Open,
    processes: BTreeMap<u32, Process>,
    /// The number of the last process.
    last: u64,
    answers: Receiver<Done>,
    answer: Sender<Done>,
    /// Readable when there is an answer.
    bell: Arc<OwnedFd>,
    /// Readable when there is anything to be heard.
    epoll: OwnedFd,
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachments").field("processes", &self.processes).finish_non_exhaustive()
    }
}

impl Attachments {
    /// None yet; the driver is reached when the first is asked for.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> rustix::io::Result<Self> {
        Self::with(Arc::new(|| Ok(Arc::new(Kfd::open()?))))
    }

    fn with(open: Open) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let (answer, answers) = channel();
        Ok(Self {
            open,
            processes: BTreeMap::new(),
            last: BELL,
            answers,
            answer,
            bell: Arc::new(bell),
            epoll,
        })
    }

    /// Becomes readable when [`hear`](Self::hear) has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Whether nothing is held or being asked for.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Hands a process's thread a job of this user's. Nothing if the answer comes later, by [`hear`](Self::hear), for this
    /// connection.
    ///
    /// # Errors
    /// Why not, one line.
    pub fn ask(&mut self, connection: u64, uid: u32, pid: Pid, work: Work) -> Result<Option<Reply>, String> {
        if let Work::Hold(queues) | Work::Release(queues) = &work
            && queues.len() > QUEUES
        {
            return Err(format!("at most {QUEUES} queues can be named at once"));
        }
        if !self.processes.contains_key(&pid.0) {
            match work {
                Work::Hold(_) => self.admit(uid, pid)?,
                Work::Release(_) => {
                    return Err(format!("this server holds no queue of process {pid}"));
                }
                Work::Snapshot => return Ok(Some(Reply::Snapshot(Snapshot { pid, queues: None }))),
            }
        } else {
            // It may be root who has asked for it before.
            peer::may_hold(uid, pid)?;
        }
        let process = self.processes.get_mut(&pid.0).ok_or("it is gone")?;
        if process.jobs.send(Job { connection, work }).is_err() {
            // Its thread has died.
            self.processes.remove(&pid.0);
            return Err(format!("what was held of process {pid} is lost; it runs"));
        }
        process.outstanding += 1;
        Ok(None)
    }

    /// Starts the thread of a process.
    fn admit(&mut self, uid: u32, pid: Pid) -> Result<(), String> {
        if self.processes.len() >= PROCESSES {
            return Err(format!("queues of {PROCESSES} processes are held already"));
        }
        if !i32::try_from(pid.0).is_ok_and(|number| number > 0) {
            return Err(format!("{pid} is no process"));
        }
        let handle = Handle::open(pid.0).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => format!("there is no process {pid}"),
            // A thread that is not its process's first (EINVAL, since Linux 6.9 ENOENT).
            Some(libc::EINVAL | libc::ENOENT) => format!("{pid} is a thread and no process"),
            _ => format!("process {pid} cannot be watched: {error}"),
        })?;
        // Of the process that is meant: if that has ended meanwhile, its thread finds that out.
        peer::may_hold(uid, pid)?;
        let handle = Arc::new(handle);
        self.last += 1;
        let number = self.last;
        if let Some(descriptor) = handle.descriptor() {
            epoll::add(&self.epoll, descriptor, EventData::new_u64(number), EventFlags::IN)
                .map_err(|error| format!("process {pid} cannot be watched: {error}"))?;
        }
        let target =
            Target { pid, number, name: name(pid), process: handle.clone(), open: self.open.clone() };
        let name = target.name.clone();
        let (jobs, taken) = channel();
        let (answer, bell) = (self.answer.clone(), self.bell.clone());
        let tell = move |done| {
            // Both last as long as the server.
            let _ = answer.send(done);
            let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
        };
        let started = thread::Builder::new()
            .name("attachment".to_owned())
            .spawn(move || worker::run(target, &taken, tell));
        if let Err(error) = started {
            self.forget(&handle);
            return Err(format!("the server has no thread for process {pid}: {error}"));
        }
        self.processes
            .insert(pid.0, Process { number, name, handle, jobs, outstanding: 0, held: BTreeMap::new() });
        Ok(())
    }

    /// Takes what has come: the answers, each for its connection. Processes that have ended are forgotten.
    pub fn hear(&mut self, now: Time) -> Vec<(u64, Reply)> {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If it fails the events are still there.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&at_once));
        let mut replies = Vec::new();
        for event in &events {
            match event.data.u64() {
                BELL => {
                    let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
                    while let Ok(done) = self.answers.try_recv() {
                        replies.push(self.book(done, now));
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

    /// Looks for the end of processes that an old kernel does not tell of.
    pub fn look(&mut self) {
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
            info!(pid, name = process.name, "a process has ended, held or not");
        }
        self.remove(pid);
    }

    /// Notes what came of a job.
    fn book(&mut self, done: Done, now: Time) -> (u64, Reply) {
        let Done { connection, pid, number, reply, held } = done;
        if let Some(process) = self.processes.get_mut(&pid.0).filter(|process| process.number == number) {
            process.outstanding -= 1;
            let before = std::mem::take(&mut process.held);
            process.held =
                held.iter().map(|queue| (*queue, before.get(queue).copied().unwrap_or(now))).collect();
            if before.len() != process.held.len() {
                let queues = process.held.len();
                info!(pid = pid.0, name = process.name, queues, "queues are held from outside");
            }
            // The thread lets a process go by itself when it holds nothing of it.
            if process.outstanding == 0 && process.held.is_empty() {
                self.remove(pid.0);
            }
        }
        (connection, reply.unwrap_or_else(Reply::Error))
    }

    fn remove(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            self.forget(&process.handle);
        }
    }

    /// Hears of it no more: the thread may keep it open for a while.
    fn forget(&self, handle: &Handle) {
        if let Some(descriptor) = handle.descriptor() {
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// Whether queues of this process are held.
    pub fn holds(&self, pid: Pid) -> bool {
        self.processes.get(&pid.0).is_some_and(|process| !process.held.is_empty())
    }

    /// What is held.
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

/// A process's name; nobody else's, because its pidfd was there before.
fn name(pid: Pid) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}
