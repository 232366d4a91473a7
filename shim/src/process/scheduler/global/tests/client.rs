//! What a client does as long as it is connected, and when it is not any more.

use super::super::bell::Identity;
use super::super::*;
use super::server::{End, Faults, owned};
use super::{ALONE, until};
use crate::process::scheduler::GLOBAL;
use crate::process::scheduler::desk::Desk;
use parking_lot::Mutex;
use protocol::bounds::Priority;
use protocol::hint::QueueHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::page::{WANTS_IDLE, WANTS_READY, activity_of};
use protocol::status::Activity;
use std::collections::HashMap;
use std::io::Write;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::Instant;
use xqueue::{CostKey, Direct, HwError, HwQueue, HwResult, Mark, QueueConfig, Spec, XQueue};

struct Hw;

impl HwQueue for Hw {
    fn record_mark(&self) -> Result<Mark, HwError> {
        Ok(Mark(1))
    }
    fn query_mark(&self, _: Mark) -> Result<bool, HwError> {
        Ok(true)
    }
    fn release_mark(&self, _: Mark) {}
    fn synchronize(&self) -> HwResult {
        Ok(())
    }
}

impl xqueue::HwDevice for Hw {
    fn enter(&self) {}
}

type Queues = Arc<Mutex<Vec<(u64, Arc<XQueue>, &'static Desk)>>>;
/// What is said of them.
type Hints = Arc<Mutex<HashMap<u64, QueueHints>>>;

/// A process as the client sees it, and a server.
struct Bed {
    listener: UnixListener,
    domain: &'static Domain,
    board: Arc<Board>,
    queues: Queues,
    hints: Hints,
    agent: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
    _alone: parking_lot::MutexGuard<'static, ()>,
}

impl Bed {
    fn new() -> Self {
        let alone = ALONE.lock();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let board = Arc::new(Board::new());
        board.told.store(GLOBAL, Ordering::SeqCst);
        let config =
            xqueue::Config { permission: Permission::limited(), watch: false, ..xqueue::Config::default() };
        let domain: &'static Domain = Box::leak(Box::new(Domain::new(config, board.clone())));
        domain.add_device(xqueue::DeviceId(0), Arc::new(Hw));
        let (queues, hints) = (Queues::default(), Hints::default());
        let (theirs, listed, hinted) = (board.clone(), queues.clone(), hints.clone());
        let agent = std::thread::spawn(move || {
            let members = move || {
                let member = |(handle, queue, desk): &(u64, Arc<XQueue>, &'static Desk)| Member {
                    handle: *handle,
                    device: 42,
                    level: PreemptLevel::Block,
                    hints: hinted.lock().get(handle).copied().unwrap_or_default(),
                    queue: queue.clone(),
                    desk,
                };
                listed.lock().iter().map(member).collect()
            };
            Client::new(domain, theirs, path, members).run(0);
        });
        Self { listener, domain, board, queues, hints, agent: Some(agent), _folder: folder, _alone: alone }
    }

    fn queue(&self, handle: u64, priority: i32) -> Arc<XQueue> {
        let desk: &'static Desk = Box::leak(Box::new(Desk::new()));
        let config = QueueConfig { priority, tag: desk.tag(), ..QueueConfig::default() };
        let queue = self.domain.create_queue(xqueue::DeviceId(0), Arc::new(Hw), config).unwrap();
        self.queues.lock().push((handle, queue.clone(), desk));
        self.board.wake();
        queue
    }

    /// Something else is said of a queue, or of the process.
    fn hint(&self, handle: u64, hints: QueueHints, process: ProcessHints) {
        self.hints.lock().insert(handle, hints);
        *self.board.hints.lock() = process;
        self.board.wake();
    }

    fn accept(&self) -> End {
        End::new(self.listener.accept().unwrap().0)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.board.state.lock().turn += 1;
        self.board.wake();
        if let Some(agent) = self.agent.take().filter(|_| !std::thread::panicking()) {
            // It sets nothing any more: whoever ended its turn has done that.
            agent.join().unwrap();
        }
    }
}

fn launch(queue: &XQueue) -> bool {
    matches!(queue.try_direct(&Spec::new(CostKey(1)), || Ok(())), Direct::Launched(_, Ok(())))
}

fn synchronize(queue: &XQueue) {
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
fn a_client_obeys_and_tells() {
    let bed = Bed::new();
    let first = bed.queue(1, 5);
    assert!(launch(&first), "without a server everything runs");
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    assert_eq!(end.next(), created(1, 0, 5));
    assert!(matches!(activity_of(shared.slot(0).activity.load(Ordering::SeqCst)), Activity::Ready { .. }));
    let _never = bed.queue(9, -256);
    assert_eq!(end.next(), created(9, 1, -256));
    until("a queue that never runs is held", || !bed.queues.lock()[1].1.may_run());
    shared.renew();

    shared.permit(false, false);
    assert!(!first.may_run() && !launch(&first), "the launching thread reads the server's word itself");
    until("the suspension is booked", || first.stats().suspensions == 1);
    shared.permit(true, false);
    until("it may run, and without a limit: its own word has none any more", || {
        launch(&first) && launch(&first)
    });
    shared.renew();

    // Nobody is rung for who does not want it.
    synchronize(&first);
    assert!(launch(&first));
    synchronize(&first);
    assert!(matches!(
        activity_of(shared.slot(0).activity.load(Ordering::SeqCst)),
        Activity::Idle { since: Some(_) }
    ));
    assert_eq!(shared.rung(), 0);
    shared.server.wants.store(WANTS_READY, Ordering::SeqCst);
    assert!(launch(&first));
    synchronize(&first);
    assert_eq!(shared.rung(), 1);
    shared.server.wants.store(WANTS_IDLE, Ordering::SeqCst);
    assert!(launch(&first));
    synchronize(&first);
    assert_eq!(shared.rung(), 1);
    shared.renew();

    first.set_priority(6);
    bed.board.wake();
    assert_eq!(
        end.next(),
        ToServer::Priority { queue: QueueId(1), priority: Priority::try_from(6).unwrap() }
    );
    bed.queues.lock().remove(1);
    bed.board.wake();
    assert_eq!(end.next(), ToServer::QueueDestroyed { queue: QueueId(9) });
    let _other = bed.queue(2, 0);
    assert_eq!(end.next(), created(2, 2, 0), "a slot is used again only when all others were");
    shared.renew();

    // Numbers, when asked for.
    shared.server.report.fetch_add(1, Ordering::SeqCst);
    shared.wake();
    until("the report", || shared.client.reported.load(Ordering::SeqCst) == 1);
    let direct = shared.slot(0).direct.load(Ordering::SeqCst);
    assert_eq!(direct, first.stats().direct);
    assert_eq!(shared.client.completed.load(Ordering::SeqCst), first.stats().completed);
    until("a ring for the report", || shared.rung() != 0);
    shared.renew();

    // And by themselves, because a process that leaves by `_exit` says nothing more.
    assert!(launch(&first));
    synchronize(&first);
    until("a look without a question", || {
        shared.renew();
        shared.slot(0).direct.load(Ordering::SeqCst) == direct + 1
    });
    let direct = direct + 1;

    // And as long as somebody waits for progress, sooner.
    shared.server.wants.store(WANTS_PROGRESS, Ordering::SeqCst);
    shared.wake();
    for round in 1..=3 {
        assert!(launch(&first));
        until("progress", || {
            shared.renew();
            shared.slot(0).direct.load(Ordering::SeqCst) == direct + round
        });
        // Idle for longer than it goes on counting by itself: then the launch wakes the agent.
        synchronize(&first);
        until("no more counting", || {
            shared.renew();
            !bed.board.line.counts.load(Ordering::SeqCst)
        });
    }
}

#[test]
fn whoever_loses_its_server_runs_and_comes_back() {
    let bed = Bed::new();
    let queue = bed.queue(3, 1);
    let mut last = None;
    for loss in 0..5 {
        let mut end = bed.accept();
        let shared = end.welcome(Faults::default());
        assert_eq!(end.next(), created(3, 0, 1), "the same slot on every connection");
        shared.permit(false, false);
        until("suspended", || !queue.may_run());
        let begun = Instant::now();
        match loss {
            0 => last = Some(end),
            1 => drop(end),
            2 => end.stream.write_all(b"now listen").unwrap(),
            3 => {
                // The program closes what it does not know, and uses the numbers for files of its own.
                let socket = high_numbers();
                let null = owned(
                    // SAFETY: opens a file that exists.
                    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) },
                );
                for number in &socket {
                    // SAFETY: takes numbers, of descriptors that the client has in this test alone.
                    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), *number) }, *number);
                }
                until("open", || queue.may_run());
                for number in socket {
                    let ours = Identity::of(number);
                    assert!(ours.is_some() && ours == Identity::of(null.as_raw_fd()), "its files stay open");
                    // SAFETY: the descriptor was made above.
                    unsafe { libc::close(number) };
                }
            }
            _ => end.stream.shutdown(std::net::Shutdown::Both).unwrap(),
        }
        until("it runs", || queue.may_run());
        if loss != 0 {
            assert!(begun.elapsed() < LEASE * 3, "{loss}: {:?}", begun.elapsed());
        }
        assert_eq!(bed.domain.permission(), Permission::limited());
        // The old page says what it likes.
        shared.permit(false, false);
        assert!(queue.may_run());
        assert!(queue.stats().suspended < Duration::from_secs(1) * (loss + 1));
    }
    drop(last);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    shared.permit(false, false);
    until("suspended again", || !queue.may_run());
    shared.permit(true, true);
    until("and runs again", || queue.may_run());
}

#[test]
fn hints_are_told_whole_once_and_to_each_server_anew() {
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
    // The server's clock is this one's.
    let both = [ToServer::QueueHints { queue: QueueId(1), hints }, ToServer::ProcessHints { hints: process }];
    // One look may see the first without the second.
    let mut told = vec![end.next(), end.next()];
    told.sort_by_key(|message| matches!(message, ToServer::ProcessHints { .. }));
    assert_eq!(told, both);
    // What has not changed is not told again: the next that comes is another queue.
    bed.board.wake();
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

/// The numbers of this process's descriptors that lie where the client keeps its own.
fn high_numbers() -> Vec<c_int> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok());
    numbers.filter(|number: &c_int| *number >= 500).collect()
}

#[test]
fn a_child_has_no_pages() {
    let bed = Bed::new();
    let queue = bed.queue(1, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    assert_eq!(end.next(), created(1, 0, 0));
    let pages = bed.board.line.pages().unwrap();
    let (server, client) = (pages.server(), pages.header());
    // SAFETY: the child asks the kernel two questions, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let gone = |page: *const ()| {
            let mut there = 0_u8;
            // SAFETY: only asks what is mapped there.
            unsafe { libc::mincore(page.cast_mut().cast(), 1, &mut there) != 0 }
        };
        let gone = gone(ptr::from_ref(server).cast()) && gone(ptr::from_ref(client).cast());
        // SAFETY: ends the child without running the test harness's handlers.
        unsafe { libc::_exit(i32::from(!gone)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0));
    shared.permit(false, false);
    until("the parent is who it was", || !queue.may_run());
}
