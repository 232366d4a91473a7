//! Tests with a fake driver and real processes, which are traced and end.

use super::*;
use hal_kfd::Errno as KfdErrno;
use hip_sys::kfd::Plain as _;
use hip_sys::kfd::debug::{self, DbgTrap, Operation as _, QueueEntry};
use protocol::outside::{Fates, QueueSuspendStatus, SeenQueue, SuspendStatus};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The time limit of a wait.
const HANG: Duration = Duration::from_secs(60);
/// Two queues for kernels and one for copies.
const QUEUES: [(u32, u32); 3] = [(1, 2), (2, 0), (5, 1)];

#[derive(Debug, Default)]
struct State {
    session: bool,
    suspended: BTreeSet<u32>,
    /// True while suspend requests block.
    blocked: bool,
    /// The number of suspend requests that have begun.
    begun: usize,
}

/// A fake driver for one process.
#[derive(Debug)]
struct Driver {
    state: Mutex<State>,
    changed: Condvar,
    enabled: bool,
}

impl Driver {
    fn new(enabled: bool) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new(), enabled })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let (_state, timeout) = self.changed.wait_timeout_while(state, HANG, |state| !is_so(state)).unwrap();
        assert!(!timeout.timed_out(), "hang: {what}");
    }

    fn suspended(&self) -> Vec<u32> {
        self.state.lock().unwrap().suspended.iter().copied().collect()
    }
}

/// Reads and marks the ids in the caller's array, ignoring their upper bit (`q_array_get_index`).
fn each(at: u64, count: u32, mut change: impl FnMut(u32) -> bool) -> i32 {
    // SAFETY: the caller passes an array of `count` ids that lives through the request.
    let ids = unsafe { std::slice::from_raw_parts_mut(at as *mut u32, count as usize) };
    let mut done = 0;
    for id in ids {
        *id &= !debug::QUEUE_INVALID;
        if change(*id) {
            done += 1;
        } else {
            *id |= debug::QUEUE_INVALID;
        }
    }
    done
}

impl Kernel for Driver {
    fn sys(&self) -> Option<&Path> {
        None
    }

    fn execute(&self, _command: u32, argument: &mut [u8]) -> Result<i32, KfdErrno> {
        let mut trap = DbgTrap::from_bytes(argument);
        let mut state = self.state.lock().unwrap();
        if (trap.op == debug::Enable::OP) == state.session {
            return Err(KfdErrno(if state.session { libc::EALREADY } else { libc::EINVAL }));
        }
        let known = |id: u32| QUEUES.iter().any(|(known, _)| *known == id);
        let result = match trap.op {
            debug::Enable::OP => {
                let a: debug::Enable = trap.get();
                let runtime_state = if self.enabled { debug::STATE_ENABLED } else { debug::STATE_DISABLED };
                let info = debug::RuntimeInfo { runtime_state, ..Default::default() };
                // SAFETY: the caller passes a `RuntimeInfo` that lives through the request.
                unsafe { (a.rinfo_ptr as *mut debug::RuntimeInfo).write(info) };
                state.session = true;
                0
            }
            debug::Disable::OP => {
                *state = State::default();
                0
            }
            debug::QueueSnapshot::OP => {
                let mut a: debug::QueueSnapshot = trap.get();
                for (i, (queue_id, queue_type)) in QUEUES.into_iter().enumerate() {
                    let address = 0x1000 * u64::from(queue_id);
                    let entry = QueueEntry {
                        queue_id,
                        queue_type,
                        ring_base_address: address,
                        write_pointer_address: address + 56,
                        read_pointer_address: address + 128,
                        ..Default::default()
                    };
                    let at = (a.snapshot_buf_ptr as *mut QueueEntry).wrapping_add(i);
                    // SAFETY: the caller's array has room for more entries than these.
                    unsafe { at.write(entry) };
                }
                a.num_queues = QUEUES.len() as u32;
                trap.put(&a);
                0
            }
            debug::SuspendQueues::OP => {
                state.begun += 1;
                self.changed.notify_all();
                state = self.changed.wait_while(state, |state| state.blocked).unwrap();
                let a: debug::SuspendQueues = trap.get();
                each(a.queue_array_ptr, a.num_queues, |id| {
                    if known(id) {
                        state.suspended.insert(id);
                    }
                    known(id)
                })
            }
            debug::ResumeQueues::OP => {
                let a: debug::ResumeQueues = trap.get();
                each(a.queue_array_ptr, a.num_queues, |id| {
                    state.suspended.remove(&id);
                    known(id)
                })
            }
            other => panic!("unexpected operation {other}"),
        };
        drop(state);
        self.changed.notify_all();
        argument.copy_from_slice(trap.as_bytes());
        Ok(result)
    }
}

/// A process to suspend, killed when dropped.
struct Victim(Child);

impl Victim {
    fn new() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep"))
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

fn attachments(driver: &Arc<Driver>) -> Attachments {
    let driver = driver.clone();
    Attachments::with(Arc::new(move || Ok(driver.clone()))).expect("descriptors")
}

/// Waits for an event, and handles it.
fn handle(attachments: &mut Attachments, now: u64) -> Vec<(u64, Reply)> {
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut ready =
        [rustix::event::PollFd::from_borrowed_fd(attachments.descriptor(), rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut ready, Some(&limit)), Ok(1), "hang: no event");
    attachments.handle_events(Time(now))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sends a job, and waits for the reply.
fn ask(attachments: &mut Attachments, pid: Pid, work: Work, now: u64) -> Reply {
    match attachments.ask(7, own_uid(), pid, work) {
        Ok(Some(reply)) => reply,
        Err(refusal) => Reply::Error(refusal.to_string()),
        Ok(None) => loop {
            if let Some((connection, reply)) = handle(attachments, now).pop() {
                assert_eq!(connection, 7);
                break reply;
            }
        },
    }
}

fn fates(pid: Pid, queues: &[(u32, SuspendStatus)], held: &[u32]) -> Reply {
    let queues =
        queues.iter().map(|(queue, fate)| QueueSuspendStatus { queue: *queue, fate: *fate }).collect();
    Reply::Fates(Fates { pid, name: "sleep".to_owned(), queues, held: held.to_vec() })
}

const MS: u64 = 1_000_000;

#[test]
fn queues_are_suspended_one_by_one_or_all() {
    let (driver, mut victim) = (Driver::new(true), Victim::new());
    let mut all = attachments(&driver);
    let pid = victim.pid();
    // Before `exec` the child has our name.
    while name(pid) != "sleep" {
        thread::yield_now();
    }
    let reply = ask(&mut all, pid, Work::Hold(vec![9, 2, 2]), 5 * MS);
    assert_eq!(reply, fates(pid, &[(2, SuspendStatus::Done), (9, SuspendStatus::Invalid)], &[2]));
    assert_eq!(
        ask(&mut all, pid, Work::Hold(vec![]), 8 * MS),
        fates(pid, &[(1, SuspendStatus::Done), (2, SuspendStatus::Done)], &[1, 2])
    );
    assert_eq!(driver.suspended(), [1, 2]);
    let queue = |queue, held_ms| HeldQueue { queue, held_ms };
    let held = Held { pid, name: "sleep".to_owned(), queues: vec![queue(1, 2), queue(2, 5)] };
    assert_eq!(all.held(Time(10 * MS)), [held]);

    let Reply::Snapshot(Snapshot { queues: Some(seen), .. }) = ask(&mut all, pid, Work::Snapshot, 0) else {
        panic!("no snapshot")
    };
    let one = SeenQueue {
        queue: 1,
        ring_address: 0x1000,
        write_pointer_address: 0x1038,
        read_pointer_address: 0x1080,
        write_pointer: None,
        read_pointer: None,
        held: true,
    };
    assert_eq!((seen[0], seen[2].held), (one, false));

    // A queue that is not suspended is invalid.
    assert_eq!(
        ask(&mut all, pid, Work::Release(vec![1, 9]), 0),
        fates(pid, &[(1, SuspendStatus::Done), (9, SuspendStatus::Invalid)], &[2])
    );
    assert_eq!(
        ask(&mut all, pid, Work::Release(vec![1]), 0),
        fates(pid, &[(1, SuspendStatus::Invalid)], &[2])
    );
    assert_eq!(driver.suspended(), [2]);
    assert!(!all.is_empty());
    assert_eq!(
        ask(&mut all, pid, Work::Release(vec![1, 2]), 0),
        fates(pid, &[(1, SuspendStatus::Invalid), (2, SuspendStatus::Done)], &[])
    );
    assert!(all.is_empty() && !driver.state.lock().unwrap().session, "other debuggers can attach");
    let nothing = format!("this server has suspended no queue of process {pid}");
    assert_eq!(ask(&mut all, pid, Work::Release(vec![]), 0), Reply::Error(nothing));
    assert_eq!(ask(&mut all, pid, Work::Snapshot, 0), Reply::Snapshot(Snapshot { pid, queues: None }));
    victim.kill();
}

/// The driver uses two bits of a queue's number for its answer, and ignores one of them in a request.
#[test]
fn queue_number_with_status_bits_is_invalid() {
    let (driver, victim) = (Driver::new(true), Victim::new());
    let mut all = attachments(&driver);
    let pid = victim.pid();
    let mut hold = |queues: &[u32]| match ask(&mut all, pid, Work::Hold(queues.to_vec()), 0) {
        Reply::Fates(fates) => (fates.queues, fates.held),
        other => panic!("{other:?}"),
    };
    let invalid = |queue| QueueSuspendStatus { queue, fate: SuspendStatus::Invalid };
    let marks = [debug::QUEUE_INVALID, debug::QUEUE_ERROR];
    for queue in marks.iter().flat_map(|mark| [1 | mark, 5 | mark]) {
        assert_eq!(hold(&[queue]), (vec![invalid(queue)], vec![]));
    }
    assert_eq!(driver.state.lock().unwrap().begun, 0, "the driver is not asked");
    let marked = 1 | debug::QUEUE_INVALID;
    let want = vec![QueueSuspendStatus { queue: 1, fate: SuspendStatus::Done }, invalid(marked)];
    assert_eq!(hold(&[1, marked]), (want, vec![1]));
    let Reply::Fates(fates) = ask(&mut all, pid, Work::Release(vec![marked]), 0) else {
        panic!("it is held")
    };
    assert_eq!((fates.queues, fates.held), (vec![invalid(marked)], vec![1]));
    assert_eq!(driver.suspended(), [1]);
}

/// A server with `CAP_SYS_PTRACE` has more rights than its clients.
#[test]
fn process_of_another_user_is_refused() {
    let (driver, victim) = (Driver::new(true), Victim::new());
    let mut all = attachments(&driver);
    let pid = victim.pid();
    let stranger = own_uid() + 1;
    let refused = all.ask(7, stranger, pid, Work::Hold(vec![])).unwrap_err();
    assert!(
        matches!(refused, Refusal::ForeignProcess { user: Some(user), .. } if user == own_uid()),
        "{refused}"
    );
    assert!(all.is_empty());
    // Also if root has suspended it before.
    assert!(matches!(ask(&mut all, pid, Work::Hold(vec![]), 0), Reply::Fates(_)));
    for work in [Work::Release(vec![]), Work::Snapshot, Work::Hold(vec![1])] {
        assert!(matches!(all.ask(7, stranger, pid, work), Err(Refusal::ForeignProcess { .. })));
    }
    assert_eq!(driver.suspended(), [1, 2]);
}

#[test]
fn slow_queue_does_not_delay_other_processes() {
    let (driver, other) = (Driver::new(true), Driver::new(true));
    let (slow, quick) = (Victim::new(), Victim::new());
    driver.change(|state| state.blocked = true);
    let drivers = Mutex::new(vec![other, driver.clone()]);
    // The first process gets the driver that blocks.
    let mut all =
        Attachments::with(Arc::new(move || Ok(drivers.lock().unwrap().pop().expect("one of two")))).unwrap();
    assert!(matches!(all.ask(1, own_uid(), slow.pid(), Work::Hold(vec![])), Ok(None)));
    driver.wait("the suspend begins", |state| state.begun == 1);
    // Another process is suspended meanwhile.
    assert!(matches!(ask(&mut all, quick.pid(), Work::Hold(vec![]), 0), Reply::Fates(_)));
    assert_eq!(all.held(Time(0)).len(), 1);
    assert!(!all.is_empty());
    driver.change(|state| state.blocked = false);
    let replies = handle(&mut all, 0);
    assert!(matches!(&replies[..], [(1, Reply::Fates(_))]), "{replies:?}");
    assert_eq!(all.held(Time(0)).len(), 2);
}

#[test]
fn ended_process_is_removed_and_drop_resumes_all() {
    let (driver, mut victim) = (Driver::new(true), Victim::new());
    let mut all = attachments(&driver);
    assert!(matches!(ask(&mut all, victim.pid(), Work::Hold(vec![]), 0), Reply::Fates(_)));
    let has_pidfd = all.processes.values().all(|process| process.handle.descriptor().is_some());
    victim.kill();
    if has_pidfd {
        assert_eq!(handle(&mut all, 0), []);
    } else {
        // An old kernel has no pidfd: the server checks regularly.
        all.check_processes();
    }
    assert!(all.is_empty() && all.held(Time(0)).is_empty());

    let (driver, victim) = (Driver::new(true), Victim::new());
    let mut all = attachments(&driver);
    assert!(matches!(ask(&mut all, victim.pid(), Work::Hold(vec![]), 0), Reply::Fates(_)));
    drop(all);
    driver.wait("the session ends", |state| !state.session);
    assert!(driver.suspended().is_empty());
}

/// As after the failed attempt of another debugger (`Problem::Lost`).
#[test]
fn lost_session_is_detected() {
    let (driver, victim) = (Driver::new(true), Victim::new());
    let mut all = attachments(&driver);
    assert!(matches!(ask(&mut all, victim.pid(), Work::Hold(vec![1]), 0), Reply::Fates(_)));
    driver.change(|state| *state = State::default());
    let Reply::Error(lost) = ask(&mut all, victim.pid(), Work::Release(vec![]), 0) else {
        panic!("it was held")
    };
    assert!(lost.ends_with("was lost to another debugger, and the process goes on"), "{lost}");
    assert!(all.is_empty());

    assert!(matches!(ask(&mut all, victim.pid(), Work::Hold(vec![1]), 0), Reply::Fates(_)));
    driver.change(|state| *state = State::default());
    let Reply::Fates(anew) = ask(&mut all, victim.pid(), Work::Hold(vec![2]), 0) else {
        panic!("it is not held")
    };
    assert_eq!((anew.held, driver.suspended()), (vec![2], vec![2]));
}

#[test]
fn impossible_requests_are_refused() {
    let driver = Driver::new(false);
    let mut victim = Victim::new();
    let mut all = attachments(&driver);
    let mut refused = |pid: Pid, queues: Vec<u32>| match ask(&mut all, pid, Work::Hold(queues), 0) {
        Reply::Error(reason) => reason,
        other => panic!("{other:?}"),
    };
    let reason = refused(victim.pid(), vec![]);
    assert!(reason.contains("has not enabled debugging"), "{reason}");
    assert!(!driver.state.lock().unwrap().session, "the attachment has ended");
    assert_eq!(refused(Pid(i32::MAX.cast_unsigned()), vec![]), "there is no process 2147483647");
    assert_eq!(refused(Pid(0), vec![]), "0 is not a process id");
    assert_eq!(refused(Pid(u32::MAX), vec![]), "4294967295 is not a process id");
    assert_eq!(refused(victim.pid(), vec![1; 257]), "a request can name at most 256 queues");
    assert!(all.is_empty());

    let driver = Driver::new(true);
    let mut all = attachments(&driver);
    let copies = Reply::Error(format!(
        "queue 5 of process {} is for copies: only queues for kernels can be suspended",
        victim.pid()
    ));
    assert_eq!(ask(&mut all, victim.pid(), Work::Hold(vec![1, 5]), 0), copies);
    driver.change(|state| state.session = true);
    let Reply::Error(debugged) = ask(&mut all, victim.pid(), Work::Hold(vec![]), 0) else {
        panic!("it is held")
    };
    assert!(debugged.ends_with("is being debugged already"), "{debugged}");
    victim.kill();

    let mut all =
        Attachments::with(Arc::new(|| Err(std::io::Error::from_raw_os_error(libc::ENOENT)))).unwrap();
    let victim = Victim::new();
    let Reply::Error(none) = ask(&mut all, victim.pid(), Work::Hold(vec![]), 0) else { panic!("it is held") };
    assert!(none.contains("cannot open /dev/kfd: No such file"), "{none}");
}
