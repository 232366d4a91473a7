//! The client against a server of the test's own making, which says and sends what it likes.

use super::bell::Identity;
use super::connection::{Failure, shake_hands};
use super::*;
use crate::process::scheduler::GLOBAL;
use crate::process::scheduler::desk::Desk;
use parking_lot::Mutex;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::frame::{Decoder, Frame, REQUEST_LIMIT};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, QueueId};
use protocol::message::{ToClient, ToServer};
use protocol::page::{CLIENT_BYTES, SERVER_BYTES, Slot, WANTS_IDLE, WANTS_READY, activity_of};
use protocol::status::Activity;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::Instant;
use xqueue::{CostKey, Direct, HwError, HwQueue, HwResult, Mark, QueueConfig, Spec, XQueue};

/// How long anything may take before it counts as hung.
const HANG: Duration = Duration::from_secs(20);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "hang: {what}");
        std::thread::yield_now();
    }
}

/// Descriptors are the process's, and one test closes those of the client: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What is wrong with a welcome.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Faults {
    no_eventfd: bool,
    one_more: bool,
    short_server_page: bool,
    short_client_page: bool,
    unsealed_server_page: bool,
    unsealed_client_page: bool,
    no_memory_file: bool,
    blocking_eventfd: bool,
    no_eventfd_but_a_pipe: bool,
    more_words: bool,
}

/// The server's end of a connection.
struct End {
    stream: UnixStream,
    decoder: Decoder,
}

/// What a connection shares, as the server sees it.
struct Shared {
    server: &'static ServerPage,
    client: &'static ClientHeader,
    eventfd: OwnedFd,
}

fn owned(number: c_int) -> OwnedFd {
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a descriptor that was just made, and that nothing else knows.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn memory_file(bytes: usize) -> OwnedFd {
    // SAFETY: makes a descriptor; the name is a C string.
    let file =
        owned(unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) });
    // SAFETY: sets the size of the file made above.
    assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) }, 0);
    file
}

fn seal(file: &OwnedFd, seals: c_int) {
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
}

/// Mapped for ever.
fn mapped<T>(file: &OwnedFd, bytes: usize) -> &'static T {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: never unmapped, large enough for what lies there, which consists of atomics.
    unsafe { &*page.cast() }
}

impl End {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(HANG)).unwrap();
        Self { stream, decoder: Decoder::new(REQUEST_LIMIT) }
    }

    fn next(&mut self) -> ToServer {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return ToServer::decode(&frame).unwrap();
            }
            let mut bytes = [0; 256];
            let length = self.stream.read(&mut bytes).unwrap();
            assert_ne!(length, 0, "the client has closed the connection");
            self.decoder.push(&bytes[..length]);
        }
    }

    fn hello(&mut self) {
        assert!(matches!(self.next(), ToServer::Hello { pid, .. } if pid == std::process::id()));
    }

    fn welcome(&mut self, faults: Faults) -> Shared {
        self.hello();
        let server = memory_file(if faults.short_server_page { 1 } else { SERVER_BYTES });
        let client = memory_file(if faults.short_client_page { CLIENT_BYTES - 4096 } else { CLIENT_BYTES });
        let (page, header) = (mapped::<ServerPage>(&server, SERVER_BYTES), mapped(&client, CLIENT_BYTES));
        let sizes = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        const FUTURE_WRITE: c_int = 0x10;
        if !faults.unsealed_server_page {
            seal(&server, sizes | FUTURE_WRITE);
        }
        if !faults.unsealed_client_page {
            seal(&client, sizes);
        }
        let flags = if faults.blocking_eventfd { 0 } else { libc::EFD_NONBLOCK };
        // SAFETY: makes a descriptor.
        let eventfd = owned(unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) });
        if !faults.short_server_page {
            page.word.store(Permission::limited().word(), Ordering::SeqCst);
            let deadline = now().after(if faults == Faults::default() { LEASE } else { HANG });
            page.deadline.store(deadline.0, Ordering::SeqCst);
        }
        let mut files = vec![server.as_raw_fd(), client.as_raw_fd(), eventfd.as_raw_fd()];
        let (_pipe, other) = std::io::pipe().unwrap();
        if faults.no_eventfd {
            files.pop();
        }
        if faults.one_more {
            files.push(server.as_raw_fd());
        }
        if faults.no_memory_file {
            files[1] = eventfd.as_raw_fd();
        }
        if faults.no_eventfd_but_a_pipe {
            // SAFETY: takes numbers.
            unsafe { libc::fcntl(other.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
            files[2] = other.as_raw_fd();
        }
        let message = ToClient::Welcome { client: ClientId(7), now: now(), server: 1 };
        let mut bytes = message.encode();
        if faults.more_words {
            bytes.push(0);
        }
        self.send(&bytes, &files);
        Shared { server: page, client: header, eventfd }
    }

    fn send(&mut self, bytes: &[u8], files: &[c_int]) {
        let mut control = [0_u64; 8];
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: a header of numbers and pointers, for which zeros are valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        let length = size_of_val(files) as u32;
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: computes a length.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as usize;
        // SAFETY: computes a length.
        control[0] = unsafe { libc::CMSG_LEN(length) }.into();
        control[1] = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
        for (index, file) in files.iter().enumerate() {
            control[2 + index / 2] |= (*file as u64) << (32 * (index % 2));
        }
        // SAFETY: all that the header points to is valid and as long as it says.
        let sent = unsafe { libc::sendmsg(self.stream.as_raw_fd(), &header, 0) };
        assert_eq!(sent, bytes.len() as isize);
    }
}

impl Shared {
    fn permit(&self, run: bool, limit: bool) {
        self.server.word.store(Permission::new(1, run, limit, 1).word(), Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.server.changes.fetch_add(1, Ordering::SeqCst);
        futex_wake(&self.server.changes);
    }

    fn renew(&self) {
        self.server.deadline.store(now().after(LEASE).0, Ordering::SeqCst);
    }

    fn slot(&self, index: usize) -> &Slot {
        let slots = ptr::from_ref(self.client).cast::<Slot>();
        // SAFETY: the slots follow the head.
        let slot = unsafe { slots.add(index + protocol::page::HEAD_SLOTS) };
        // SAFETY: the page is mapped for ever, and the slot lies in it.
        unsafe { &*slot }
    }

    /// How often the server was rung for since the last time.
    fn rung(&self) -> u64 {
        let mut count = [0; 8];
        // SAFETY: pointer and length are those of the array.
        let read = unsafe { libc::read(self.eventfd.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        if read == 8 { u64::from_ne_bytes(count) } else { 0 }
    }
}

fn shaken(answer: impl FnOnce(&mut End) + Send + 'static) -> Result<Welcome, Failure> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || answer(&mut End::new(theirs)));
    let result = shake_hands(ours.into(), "test", HANG);
    server.join().unwrap();
    result
}

#[test]
fn a_welcome_is_taken_and_everything_else_is_not() {
    let _alone = ALONE.lock();
    let welcome = shaken(|end| drop(end.welcome(Faults::default()))).unwrap();
    assert_eq!((welcome.server, welcome.offset), (1, Default::default()));
    assert!(welcome.socket.number().unwrap() >= 500);

    let refused = shaken(|end| {
        end.hello();
        end.send(&ToClient::Refused { reason: "full".to_owned() }.encode(), &[]);
    });
    assert!(matches!(refused, Err(Failure::Refused(reason)) if reason == "full"));

    let broken = |what: &str, result: Result<Welcome, Failure>, part: &str| match result {
        Err(Failure::Broken(reason)) => assert!(reason.contains(part), "{what}: {reason}"),
        other => panic!("{what}: {other:?}"),
    };
    let said = |bytes: Vec<u8>| {
        shaken(move |end| {
            end.hello();
            end.stream.write_all(&bytes).unwrap();
        })
    };
    broken("another protocol", said(b"HTTP/1.1 400 Bad Request\r\n".to_vec()), "no frames of giveway");
    let mut newer = Frame::encode(0x101, &[]);
    newer[4] += 1;
    broken("another version", said(newer), "version");
    broken("no message", said(Frame::encode(0x999, &[])), "no sense");
    broken("too long", said(Frame::encode(0x101, &[0; 5000])[..16].to_vec()), "too long");
    broken("nothing", said(Vec::new()), "closes the connection");

    let with = |faults| shaken(move |end| drop(end.welcome(faults)));
    let none = Faults::default();
    broken("two files", with(Faults { no_eventfd: true, ..none }), "2 descriptors");
    broken("four files", with(Faults { one_more: true, ..none }), "4 descriptors");
    broken("short", with(Faults { short_server_page: true, ..none }), "the server's page has 1 bytes");
    broken("short", with(Faults { short_client_page: true, ..none }), "the client's page has");
    broken("seals", with(Faults { unsealed_server_page: true, ..none }), "the server's page has the seals");
    broken("seals", with(Faults { unsealed_client_page: true, ..none }), "the client's page has the seals");
    broken("no file", with(Faults { no_memory_file: true, ..none }), "the client's page has 0 bytes");
    broken("blocks", with(Faults { blocking_eventfd: true, ..none }), "could block");
    broken("too much", with(Faults { more_words: true, ..none }), "more than a welcome");
    // It is no eventfd, which only the bell sees.
    let pipe = with(Faults { no_eventfd_but_a_pipe: true, ..none }).unwrap();
    assert!(bell::Bell::new().hang(&pipe.eventfd).is_err());
}

#[test]
fn nobody_is_waited_for_without_an_end() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    assert!(connection::connect(&path).is_err(), "nobody has ever listened");
    let listener = UnixListener::bind(&path).unwrap();
    // It takes connections, and says nothing.
    let begun = Instant::now();
    let silent = shake_hands(connection::connect(&path).unwrap(), "test", Duration::from_millis(50));
    assert!(matches!(silent, Err(Failure::Absent(error)) if error.kind() == std::io::ErrorKind::TimedOut));
    assert!(begun.elapsed() < HANG);
    // One that does not even take them lets its queue fill up.
    // SAFETY: takes numbers; a second call changes the length of the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let mut waiting = Vec::new();
    let refused = loop {
        match connection::connect(&path) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100);
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    drop(listener);
    assert!(connection::connect(&path).is_err(), "nobody listens any more");
}

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

    // And as long as somebody waits for progress, by themselves.
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
