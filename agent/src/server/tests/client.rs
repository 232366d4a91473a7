//! Tests of a client while it is connected, and after it has lost its server.

use super::super::*;
use super::endpoint::{End, Faults, owned};
use super::{ALONE, until};
use crate::descriptor::Identity;
use crate::host::ManagedQueue;
use crate::link::QueueSlot;
use crate::preemption::Preemption;
use crate::shared::Decider;
use parking_lot::Mutex;
use protocol::bounds::{Priority, StreamPriority};
use protocol::hint::QueueHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::message::ToClient;
use protocol::page::{ACCEPTS_STREAM_PRIORITIES, EVENT_IDLE, EVENT_READY, MAY_STAY_READY, activity_of};
use protocol::status::Activity;
use std::collections::HashMap;
use std::io::Write;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Instant;
use xqueue::{
    CommandSpec, CostKey, Direct, HwError, HwQueue, HwResult, Marker, Observer, QueueConfig, XQueue,
};

struct Hw;

impl HwQueue for Hw {
    fn record_marker(&self) -> Result<Marker, HwError> {
        Ok(Marker(1))
    }
    fn query_marker(&self, _: Marker) -> Result<bool, HwError> {
        Ok(true)
    }
    fn release_marker(&self, _: Marker) {}
    fn synchronize(&self) -> HwResult {
        Ok(())
    }
}

impl xqueue::HwDevice for Hw {
    fn enter(&self) {}
}

type Queues = Arc<Mutex<Vec<(u64, Arc<XQueue>, &'static QueueSlot)>>>;
type Hints = Arc<Mutex<HashMap<u64, QueueHints>>>;

/// The settings that came for queues: handle, level, threshold, batch size.
type Settings = Arc<Mutex<Vec<(u64, Option<PreemptLevel>, Option<u32>, Option<u32>)>>>;

/// The program's side of a client.
#[derive(Debug)]
struct Program {
    queues: Queues,
    hints: Hints,
    settings: Settings,
}

impl Host for Program {
    fn config(&self) -> Option<&'static protocol::config::Config> {
        None
    }
    fn queues(&self) -> Vec<ManagedQueue> {
        let managed = |(handle, queue, slot): &(u64, Arc<XQueue>, &'static QueueSlot)| ManagedQueue {
            handle: *handle,
            device: 42,
            level: PreemptLevel::Block,
            hints: self.hints.lock().get(handle).copied().unwrap_or_default(),
            queue: queue.clone(),
            slot,
        };
        self.queues.lock().iter().map(managed).collect()
    }
    fn for_each_queue(&self, visit: &mut dyn FnMut(&XQueue)) {
        self.queues.lock().iter().for_each(|(_, queue, _)| visit(queue));
    }
    fn is_current(&self, _: &Domain) -> bool {
        true
    }
    fn has_launched(&self) -> bool {
        false
    }
    fn adopt_thread(&self) {}
    fn write_slow_counts(&self, _: &protocol::page::ClientHeader) {}
    fn expects_server(&self) -> bool {
        true
    }
    fn cost_from_server(&self, _: protocol::cost::CostKey) -> Option<EvictCost> {
        None
    }
    fn name_of_subject(&self, subject: u64) -> Option<String> {
        (subject == 900).then(|| "kernel 900".to_owned())
    }
    fn level_changed(&self) {}
    fn configure(
        &self,
        handle: u64,
        level: Option<PreemptLevel>,
        threshold: Option<u32>,
        batch: Option<u32>,
    ) {
        self.settings.lock().push((handle, level, threshold, batch));
    }
    fn settle_hints(&self) -> bool {
        false
    }
    fn has_ended_hints(&self) -> bool {
        false
    }
}

/// A program with a client, and the socket of a server.
pub(super) struct Bed {
    listener: UnixListener,
    domain: &'static Domain,
    pub(super) shared: Arc<Shared>,
    queues: Queues,
    hints: Hints,
    settings: Settings,
    agent: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
    _alone: parking_lot::MutexGuard<'static, ()>,
}

impl Bed {
    pub(super) fn new() -> Self {
        let alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let (absent, path) = (folder.path().join("absent"), folder.path().join("socket"));
        let listener = UnixListener::bind(&path).unwrap();
        let (queues, hints, settings) = (Queues::default(), Hints::default(), Settings::default());
        let program: &'static Program = Box::leak(Box::new(Program {
            queues: queues.clone(),
            hints: hints.clone(),
            settings: settings.clone(),
        }));
        let preemption: &'static Preemption = Box::leak(Box::new(Preemption::new(program)));
        let shared = Arc::new(Shared::new(preemption));
        shared.mode.set(Decider::Server);
        let config =
            xqueue::Config { permission: Permission::limited(), watch: false, ..xqueue::Config::default() };
        let domain: &'static Domain = Box::leak(Box::new(Domain::new(config, shared.clone())));
        domain.add_device(xqueue::DeviceId(0), Arc::new(Hw));
        let theirs = shared.clone();
        let agent = std::thread::spawn(move || Client::at(vec![absent, path], domain, theirs).run(0));
        Self {
            listener,
            domain,
            shared,
            queues,
            hints,
            settings,
            agent: Some(agent),
            _folder: folder,
            _alone: alone,
        }
    }

    pub(super) fn queue(&self, handle: u64, priority: i32) -> Arc<XQueue> {
        let slot: &'static QueueSlot = Box::leak(Box::new(QueueSlot::new()));
        let config = QueueConfig { priority, tag: slot.tag(), ..QueueConfig::default() };
        let queue = self.domain.create_queue(xqueue::DeviceId(0), Arc::new(Hw), config).unwrap();
        self.queues.lock().push((handle, queue.clone(), slot));
        self.shared.wake();
        queue
    }

    /// Changes the hints for a queue and for the process.
    fn hint(&self, handle: u64, hints: QueueHints, process: ProcessHints) {
        self.hints.lock().insert(handle, hints);
        *self.shared.hints.lock() = process;
        self.shared.wake();
    }

    pub(super) fn accept(&self) -> End {
        End::new(self.listener.accept().unwrap().0)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.shared.state.lock().epoch += 1;
        self.shared.wake();
        if let Some(agent) = self.agent.take().filter(|_| !std::thread::panicking()) {
            agent.join().unwrap();
        }
    }
}

fn launch(queue: &XQueue) -> bool {
    matches!(queue.try_direct(&CommandSpec::new(CostKey(1)), || Ok(())), Direct::Launched(_, Ok(())))
}

pub(super) fn synchronize(queue: &XQueue) {
    let proof = queue.begin_sync();
    queue.synced(proof);
    assert!(!queue.is_ready());
}

fn created(queue: u64, slot: u32, priority: i64) -> ToServer {
    let priority = Priority::try_from(priority).unwrap();
    let (queue, device, level) = (QueueId(queue), DeviceId(42), PreemptLevel::Block);
    ToServer::QueueCreated { queue, slot, device, priority, level }
}

#[test]
fn connected_client_obeys_and_reports() {
    let bed = Bed::new();
    let first = bed.queue(1, 5);
    assert!(launch(&first), "a queue runs without a server");
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    assert_eq!(end.next(), created(1, 0, 5));
    assert!(matches!(activity_of(shared.slot(0).activity.load(Ordering::SeqCst)), Activity::Ready { .. }));
    let _never = bed.queue(9, -256);
    assert_eq!(end.next(), created(9, 1, -256));
    until("a queue of priority -256 is suspended", || !bed.queues.lock()[1].1.may_run());
    shared.renew();

    shared.permit(false, false);
    assert!(
        !first.may_run() && !launch(&first),
        "the launching thread reads the permission on the server's page"
    );
    until("the suspension is counted", || first.stats().suspensions == 1);
    shared.permit(true, false);
    until("the queue runs without a window", || launch(&first) && launch(&first));
    shared.renew();

    // The server is notified only of the events in its mask.
    synchronize(&first);
    assert!(launch(&first));
    synchronize(&first);
    assert!(matches!(
        activity_of(shared.slot(0).activity.load(Ordering::SeqCst)),
        Activity::Idle { since: Some(_) }
    ));
    assert_eq!(shared.notifications(), 0);
    assert!(bed.shared.needs_idle_report(), "the server has not set the bit");
    shared.server.wants.store(MAY_STAY_READY, Ordering::SeqCst);
    assert!(!bed.shared.needs_idle_report());
    shared.server.wants.store(EVENT_READY, Ordering::SeqCst);
    assert!(launch(&first));
    synchronize(&first);
    assert_eq!(shared.notifications(), 1);
    shared.server.wants.store(EVENT_IDLE, Ordering::SeqCst);
    assert!(launch(&first));
    synchronize(&first);
    assert_eq!(shared.notifications(), 1);
    shared.renew();

    first.set_rank(6, 0);
    bed.shared.wake();
    assert_eq!(
        end.next(),
        ToServer::Priority { queue: QueueId(1), priority: Priority::try_from(6).unwrap() }
    );
    bed.queues.lock().remove(1);
    bed.shared.wake();
    assert_eq!(end.next(), ToServer::QueueDestroyed { queue: QueueId(9) });
    let _other = bed.queue(2, 0);
    assert_eq!(end.next(), created(2, 2, 0), "a slot is used again only when all others were");
    shared.renew();

    // The client updates its counts on request.
    shared.server.report.fetch_add(1, Ordering::SeqCst);
    shared.wake();
    until("the client answers the request", || shared.client.reported.load(Ordering::SeqCst) == 1);
    let direct = shared.slot(0).direct.load(Ordering::SeqCst);
    assert_eq!(direct, first.stats().direct);
    assert_eq!(shared.client.completed.load(Ordering::SeqCst), first.stats().completed);
    until("the client notifies the server of its answer", || shared.notifications() != 0);
    shared.renew();

    // The client updates its counts without a request.
    assert!(launch(&first));
    synchronize(&first);
    until("the client updates its counts", || {
        shared.renew();
        shared.slot(0).direct.load(Ordering::SeqCst) == direct + 1
    });
    let direct = direct + 1;

    // The client updates its counts sooner while the event mask asks for progress.
    shared.server.wants.store(EVENT_PROGRESS, Ordering::SeqCst);
    shared.wake();
    for round in 1..=3 {
        assert!(launch(&first));
        until("the client reports the launch", || {
            shared.renew();
            shared.slot(0).direct.load(Ordering::SeqCst) == direct + round
        });
        // After the agent has stopped counting by itself, a launch wakes it.
        synchronize(&first);
        until("the agent stops counting", || {
            shared.renew();
            !bed.shared.link.agent_counts.load(Ordering::SeqCst)
        });
    }
}

#[test]
fn lost_server_lets_client_run_and_reconnect() {
    let bed = Bed::new();
    let queue = bed.queue(3, 1);
    let mut last = None;
    for loss in 0..5 {
        let mut end = bed.accept();
        let shared = end.welcome(Faults::default());
        assert_eq!(end.next(), created(3, 0, 1), "the queue has the same slot on every connection");
        shared.permit(false, false);
        until("the queue is suspended", || !queue.may_run());
        let begun = Instant::now();
        match loss {
            0 => last = Some(end),
            1 => drop(end),
            2 => end.stream.write_all(b"now listen").unwrap(),
            3 => {
                // The program reuses the numbers of descriptors that it does not know.
                let socket = high_numbers();
                let null = owned(
                    // SAFETY: the path is a C string.
                    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) },
                );
                for number in &socket {
                    // SAFETY: the call takes numbers; only the client uses these descriptors.
                    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), *number) }, *number);
                }
                until("the queue runs without the server", || queue.may_run());
                for number in socket {
                    let ours = Identity::of(number);
                    assert!(
                        ours.is_some() && ours == Identity::of(null.as_raw_fd()),
                        "the program's files stay open"
                    );
                    // SAFETY: the descriptor was made by `dup2`.
                    unsafe { libc::close(number) };
                }
            }
            _ => end.stream.shutdown(std::net::Shutdown::Both).unwrap(),
        }
        until("the queue runs after the loss", || queue.may_run());
        if loss != 0 {
            assert!(begun.elapsed() < LEASE * 3, "{loss}: {:?}", begun.elapsed());
        }
        assert_eq!(bed.domain.permission(), Permission::limited());
        // The old page has no effect any more.
        shared.permit(false, false);
        assert!(queue.may_run());
        assert!(queue.stats().suspended < Duration::from_secs(1) * (loss + 1));
    }
    drop(last);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    shared.permit(false, false);
    until("the new server suspends the queue", || !queue.may_run());
    shared.permit(true, true);
    until("the new server resumes the queue", || queue.may_run());
}

#[test]
fn hints_are_reported_once_to_each_server() {
    let bed = Bed::new();
    let _queue = bed.queue(1, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    assert_eq!(end.next(), created(1, 0, 0));
    let deadline_us = NonZeroU64::new(900);
    let at = now().after(Duration::from_secs(1));
    let hints = QueueHints { deadline_us, arrival: Some(at), preemptible: false, ..QueueHints::default() };
    let process = ProcessHints { job: NonZeroU64::new(3), ..ProcessHints::default() };
    bed.hint(1, hints, process);
    // Client and server have the same clock here.
    let both = [ToServer::QueueHints { queue: QueueId(1), hints }, ToServer::ProcessHints { hints: process }];
    // The agent may see the first without the second.
    let mut reported = vec![end.next(), end.next()];
    reported.sort_by_key(|message| matches!(message, ToServer::ProcessHints { .. }));
    assert_eq!(reported, both);
    // Unchanged hints are not reported again: the next message is about another queue.
    bed.shared.wake();
    let _other = bed.queue(2, 0);
    assert_eq!(end.next(), created(2, 1, 0));
    shared.renew();
    drop(end);

    let mut end = bed.accept();
    end.welcome(Faults::default());
    let all: Vec<_> = (0..4).map(|_| end.next()).collect();
    let [first, hinted] = both;
    assert_eq!(all, [created(1, 0, 0), first, created(2, 1, 0), hinted]);
}

#[test]
fn stream_priority_is_reported_to_a_server_that_knows_it() {
    let bed = Bed::new();
    let _queue = bed.queue(1, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    assert_eq!(end.next(), created(1, 0, 0));
    let stream_priority = StreamPriority::MAX;
    let hints = QueueHints { stream_priority, preemptible: false, ..QueueHints::default() };
    bed.hint(1, hints, ProcessHints::default());
    let without = QueueHints { stream_priority: StreamPriority::DEFAULT, ..hints };
    assert_eq!(end.next(), ToServer::QueueHints { queue: QueueId(1), hints: without });
    shared.server.takes.store(ACCEPTS_STREAM_PRIORITIES, Ordering::SeqCst);
    bed.shared.wake();
    assert_eq!(end.next(), ToServer::QueueHints { queue: QueueId(1), hints });
    shared.renew();
}

/// Returns this process's descriptors in the range that the client uses.
fn high_numbers() -> Vec<c_int> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok());
    numbers.filter(|number: &c_int| *number >= 500).collect()
}

#[test]
fn forked_child_has_no_pages() {
    let bed = Bed::new();
    let queue = bed.queue(1, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    assert_eq!(end.next(), created(1, 0, 0));
    let pages = bed.shared.link.pages().unwrap();
    let (server, client) = (pages.server(), pages.header());
    // SAFETY: the child makes two system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let gone = |page: *const ()| {
            let mut there = 0_u8;
            // SAFETY: the call only asks the kernel whether the page is mapped.
            unsafe { libc::mincore(page.cast_mut().cast(), 1, &mut there) != 0 }
        };
        let gone = gone(ptr::from_ref(server).cast()) && gone(ptr::from_ref(client).cast());
        // SAFETY: the call ends the child without the test harness's exit handlers.
        unsafe { libc::_exit(i32::from(!gone)) };
    }
    let mut status = 0;
    // SAFETY: the status is a valid place.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0));
    shared.permit(false, false);
    until("the parent still follows the server", || !queue.may_run());
}

#[test]
fn settings_from_the_server_reach_the_program() {
    let bed = Bed::new();
    bed.queue(5, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    until("it says that it takes settings", || {
        shared.client.takes.load(Ordering::SeqCst) & TAKES_CONFIGURATION != 0
    });
    end.next();
    for (level, threshold, batch_size) in [(3, 8, 4), (0, 0, 2)] {
        let message = ToClient::Configure { queue: QueueId(5), level, threshold, batch_size };
        end.send(&message.encode(), &[]);
    }
    let expected = [(5, Some(PreemptLevel::Interrupt), Some(8), Some(4)), (5, None, None, Some(2))];
    until("both have come", || {
        shared.renew();
        *bed.settings.lock() == expected
    });
}
