//! A server in this process, and a small client that implements the protocol without code of the shim.

#![allow(dead_code, reason = "each test file uses its own part")]

use policies::registry;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::control::{List, Reply, Request};
use protocol::frame::{Decoder, Frame, HEADER, REPLY_LIMIT};
use protocol::ids::{DeviceId, QueueId};
use protocol::message::{REQUEST, ToClient, ToServer};
use protocol::page::{
    CLIENT_BYTES, ClientHeader, EVENT_IDLE, EVENT_READY, SERVER_BYTES, ServerPage, Slot, activity_word,
};
use protocol::status::Activity;
use protocol::time::Time;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketType, recvmsg,
};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xserver::configuration::Configuration;
use xserver::core::Settings;
use xserver::limits::Limits;
use xserver::{Endpoint, Options, Server, System, Unused};

/// Two users without rights of their own, and one that a configuration can let observe.
pub const ALICE: u32 = 40_001;
pub const BOB: u32 = 40_002;
pub const MONITOR: u32 = 40_004;

/// The time limit of a wait.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A server in a thread of this process.
pub struct Running {
    pub path: PathBuf,
    stop: OwnedFd,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    _directory: tempfile::TempDir,
}

impl Running {
    /// Starts a server without the guard, which would let other clients run on a slow machine.
    pub fn new() -> Self {
        Self::with(Settings { guard: false, ..Settings::default() }, None)
    }

    pub fn with(settings: Settings, unused: Option<Unused>) -> Self {
        Self::by(|path, stop| start(path, stop, settings, unused))
    }

    /// Starts a server of one user with these limits.
    pub fn limited(limits: Limits) -> Self {
        Self::by(|path, stop| {
            let endpoint = Endpoint::new("test".as_ref(), Some(path.to_owned()))?;
            Server::new(&endpoint, Options { limits, ..options() }, stop)
        })
    }

    /// Starts a server for all users with this configuration, in which `DIR` is the directory of the socket. Returns the file
    /// as well.
    pub fn shared(configuration: &str) -> (Self, PathBuf) {
        let mut file = PathBuf::new();
        let server = Self::by(|path, stop| {
            let directory = path.parent().unwrap();
            // Other users enter it.
            std::fs::set_permissions(directory.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
            file = directory.with_file_name("giveway.toml");
            std::fs::write(&file, configuration.replace("DIR", directory.to_str().unwrap())).unwrap();
            let configuration = Configuration::read(&file)?;
            let system = System { file: file.clone(), configuration, sockets: Vec::new(), hang_up: None };
            let endpoint = Endpoint::of_system(Some(path.to_owned()))?;
            Server::new(&endpoint, Options { system: Some(system), ..options() }, stop)
        });
        (server, file)
    }

    fn by(start: impl FnOnce(&Path, OwnedFd) -> anyhow::Result<Server>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/s.sock");
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let server = start(&path, stop.try_clone().unwrap()).unwrap();
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { path, stop, thread, _directory: directory }
    }

    pub fn stop(&mut self) {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).unwrap();
        self.join();
    }

    /// Waits until the server has ended.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server thread has not panicked").unwrap();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn list(&self) -> List {
        match ask(&self.path, &Request::List) {
            Reply::List(list) => list,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until this number of clients is connected.
    #[track_caller]
    pub fn wait_for_clients(&self, count: usize) {
        wait_for(&format!("{count} clients are connected"), || self.list().clients.len() == count);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}

pub fn start(
    path: &Path,
    stop: OwnedFd,
    settings: Settings,
    unused: Option<Unused>,
) -> anyhow::Result<Server> {
    let endpoint = Endpoint::new("test".as_ref(), Some(path.to_owned()))?;
    Server::new(&endpoint, Options { settings, unused, ..options() }, stop)
}

/// A server of one user without the guard, which would let other clients run on a slow machine.
pub fn options() -> Options {
    Options {
        policy: registry::DEFAULT.into(),
        settings: Settings { guard: false, ..Settings::default() },
        unused: None,
        decisions: None,
        limits: Limits::of_one_user(),
        system: None,
    }
}

/// Connects as a user with one group. Needs root. The kernel reports the user of the calling thread.
pub fn connect_as(uid: u32, gid: u32, path: &Path) -> UnixStream {
    let path = path.to_owned();
    let thread = std::thread::spawn(move || {
        let (user, group) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[]).expect("the tests run as root");
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        UnixStream::connect(path).unwrap()
    });
    thread.join().unwrap()
}

/// A client of a user, with a queue in slot 0 on device 1.
pub fn client_of(uid: u32, path: &Path, priority: i64) -> Client {
    let client = Client::on(connect_as(uid, uid, path).into(), &format!("of-{uid}"));
    client.create(1, 0, 1, priority);
    client
}

pub fn ask_as(uid: u32, path: &Path, request: &Request) -> Reply {
    ask_on(&mut connect_as(uid, uid, path), request)
}

pub fn ask(path: &Path, request: &Request) -> Reply {
    let mut socket = UnixStream::connect(path).unwrap();
    ask_on(&mut socket, request)
}

pub fn ask_on(socket: &mut UnixStream, request: &Request) -> Reply {
    socket.write_all(&Frame::encode(REQUEST, &serde_json::to_vec(request).unwrap())).unwrap();
    read_reply(socket)
}

pub fn read_reply(socket: &mut UnixStream) -> Reply {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    // Reads exactly one frame.
    let mut header = [0; HEADER];
    socket.read_exact(&mut header).unwrap();
    let length = u32::from_le_bytes(*header.last_chunk().unwrap());
    let mut payload = vec![0; length as usize];
    socket.read_exact(&mut payload).unwrap();
    let mut decoder = Decoder::new(REPLY_LIMIT);
    decoder.push(&header);
    decoder.push(&payload);
    let frame = decoder.next_frame().unwrap().unwrap();
    serde_json::from_slice(&frame.payload).unwrap()
}

/// Returns true if the peer has closed the connection, after reading all bytes.
pub fn is_closed(socket: &impl AsFd) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Receives the bytes that are there, or waits for some, and the descriptors that come with them.
pub fn receive_files(socket: &OwnedFd, bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> usize {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    got.bytes
}

/// A client of the server.
pub struct Client {
    pub socket: OwnedFd,
    pub descriptors: Vec<OwnedFd>,
    pub page: &'static ServerPage,
    pub header: &'static ClientHeader,
    slots: &'static [Slot],
    pub writes: u64,
}

impl Client {
    pub fn new(path: &Path, name: &str) -> Self {
        let socket = UnixStream::connect(path).unwrap();
        Self::on(socket.into(), name)
    }

    /// Connects on an open socket.
    pub fn on(socket: OwnedFd, name: &str) -> Self {
        send(&socket, &ToServer::Hello { pid: std::process::id(), name: name.to_owned() });
        let (mut bytes, mut descriptors) = ([0; 256], Vec::new());
        let length = receive_files(&socket, &mut bytes, &mut descriptors);
        let mut decoder = Decoder::new(REPLY_LIMIT);
        decoder.push(&bytes[..length]);
        let welcome = ToClient::decode(&decoder.next_frame().unwrap().unwrap()).unwrap();
        assert!(matches!(welcome, ToClient::Welcome { .. }), "{welcome:?}");
        assert_eq!(descriptors.len(), 3);
        let map = |file: &OwnedFd, bytes, protection| {
            // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
            unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }.unwrap()
        };
        let page = map(&descriptors[0], SERVER_BYTES, ProtFlags::READ).cast::<ServerPage>();
        let own =
            map(&descriptors[1], CLIENT_BYTES, ProtFlags::READ | ProtFlags::WRITE).cast::<ClientHeader>();
        // SAFETY: both mappings consist of atomics, have the mapped sizes, and are never unmapped. In the
        // second, `SLOTS` slots follow the header.
        let (page, header, slots) = unsafe {
            let first = own.add(1).cast::<Slot>();
            (&*page, &*own, std::slice::from_raw_parts(first, protocol::page::SLOTS))
        };
        Self { socket, descriptors, page, header, slots, writes: 0 }
    }

    /// Connects, and creates a queue in slot 0 on device 1.
    pub fn with_queue(path: &Path, name: &str, priority: i64) -> Self {
        let client = Self::new(path, name);
        client.create(1, 0, 1, priority);
        client
    }

    pub fn say(&self, message: &ToServer) {
        send(&self.socket, message);
    }

    pub fn create(&self, queue: u64, slot: u32, device: u32, priority: i64) {
        self.say(&ToServer::QueueCreated {
            queue: QueueId(queue),
            slot,
            device: DeviceId(device),
            priority: Priority::try_from(priority).unwrap(),
            level: PreemptLevel::Block,
        });
    }

    pub fn runs(&self) -> bool {
        self.page.word.load(SeqCst) & 1 != 0
    }

    pub fn limited(&self) -> bool {
        self.page.word.load(SeqCst) & 2 != 0
    }

    pub fn generation(&self) -> u64 {
        self.page.word.load(SeqCst) >> 32
    }

    pub fn ready(&mut self, slot: usize) {
        self.store(slot, activity_word(Activity::Ready { since: xserver::now() }), EVENT_READY);
    }

    pub fn idle(&mut self, slot: usize) {
        self.store(slot, activity_word(Activity::Idle { since: Some(xserver::now()) }), EVENT_IDLE);
    }

    /// Writes the slot, then reads the event mask, in the order of the protocol.
    pub fn store(&mut self, slot: usize, word: u64, wanted: u32) {
        self.slots[slot].activity.store(word, SeqCst);
        if self.page.wants.load(SeqCst) & wanted != 0 {
            self.kick();
        }
    }

    pub fn kick(&mut self) {
        self.writes += 1;
        rustix::io::write(&self.descriptors[2], &1u64.to_ne_bytes()).unwrap();
    }

    /// Counts a completed command.
    pub fn complete(&self) {
        self.header.completed.fetch_add(1, SeqCst);
    }

    pub fn busy_until(&self, time: Time) {
        self.header.busy_until.store(time.0, SeqCst);
    }

    /// Answers the request for a report.
    pub fn report(&mut self, pending: u64) {
        self.slots[0].pending.store(pending, SeqCst);
        self.header.reported.store(self.page.report.load(SeqCst), SeqCst);
        self.kick();
    }
}

pub fn send(socket: &OwnedFd, message: &ToServer) {
    rustix::io::write(socket, &message.encode()).unwrap();
}

/// A child process that connects to a server and does nothing else. The test shares its socket, and sends and
/// receives in its place.
pub struct Child {
    pid: libc::pid_t,
}

impl Child {
    pub fn connect(path: &Path) -> (Self, OwnedFd) {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let address = SocketAddrUnix::new(path).unwrap();
        // SAFETY: the child makes only async-signal-safe calls and never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let _ = rustix::net::connect(&socket, &address);
            loop {
                // SAFETY: the call has no arguments.
                unsafe { libc::pause() };
            }
        }
        let child = Self { pid };
        wait_for("the child connects", || rustix::net::getpeername(&socket).is_ok());
        (child, socket)
    }

    pub fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes integers; the process is our child and not reaped before `drop`.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        // SAFETY: the process is our child; the status pointer may be null.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
    }
}

/// The number of a descriptor.
pub fn raw(socket: &OwnedFd) -> i32 {
    socket.as_raw_fd()
}
