//! A client of `xserver` without HIP: it has work all the time, "launches" while it may, and counts that on its page. The
//! protocol is written by hand (`protocol/src/message.rs`, `page.rs`). Ends with its standard input.

use std::fs::File;
use std::io::{IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::time::{ClockId, clock_gettime};

const USAGE: &str = "usage: plain-client SOCKET NAME PRIORITY";

/// Offsets on the client's page.
const COMPLETED: u64 = 0;
const REPORTED: u64 = 16;
/// Slot 0 follows the header; then the words of the slot.
const SLOT: u64 = 128;
const ACTIVITY: u64 = SLOT;
const PENDING: u64 = SLOT + 8;
const DIRECT: u64 = SLOT + 24;
const SUSPENSIONS: u64 = SLOT + 40;
const SUSPENDED_NS: u64 = SLOT + 48;
const WORKED_NS: u64 = SLOT + 56;
/// Offset on the server's page.
const REPORT: u64 = 24;

static STDIN_ENDED: AtomicBool = AtomicBool::new(false);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, name, priority] = &words[..] else { panic!("{USAGE}") };
    let mut client = Client::connect(socket, name, priority.parse().expect(USAGE));
    std::thread::spawn(|| {
        // Whatever it is, the end matters.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        STDIN_ENDED.store(true, Ordering::Relaxed);
    });
    while !STDIN_ENDED.load(Ordering::Relaxed) {
        client.work();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Sends a frame.
fn send(socket: &UnixStream, kind: u16, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a short message");
    let head = [&b"GIVW\x03\x00"[..], &kind.to_le_bytes(), &length.to_le_bytes()].concat();
    rustix::io::write(socket, &[&head, payload].concat()).expect("the server reads");
}

struct Client {
    _socket: UnixStream,
    server: File,
    own: File,
    notifier: File,
    at: u64,
    ran: bool,
}

impl Client {
    /// Connects, and creates queue 1 on device 1 with work.
    fn connect(path: &str, name: &str, priority: i32) -> Self {
        let socket = UnixStream::connect(path).expect("the server listens");
        let length = u8::try_from(name.len()).expect("a short name");
        send(&socket, 1, &[&std::process::id().to_le_bytes()[..], &[length], name.as_bytes()].concat());
        let [server, own, notifier] = welcome(&socket).map(File::from);
        let (queue, slot, device, level) = (1_u64, 0_u32, 1_u32, 1_i32);
        let created = [
            &queue.to_le_bytes()[..],
            &slot.to_le_bytes(),
            &device.to_le_bytes(),
            &priority.to_le_bytes(),
            &level.to_le_bytes(),
        ];
        send(&socket, 2, &created.concat());
        let client = Self { _socket: socket, server, own, notifier, at: now(), ran: true };
        client.set(ACTIVITY, now() << 1 | 1);
        client.notify();
        client
    }

    fn set(&self, offset: u64, value: u64) {
        self.own.write_all_at(&value.to_le_bytes(), offset).expect("the own page");
    }

    fn add(&self, offset: u64, more: u64) {
        let mut word = [0; 8];
        self.own.read_exact_at(&mut word, offset).expect("the own page");
        self.set(offset, u64::from_le_bytes(word) + more);
    }

    fn notify(&self) {
        rustix::io::write(&self.notifier, &1_u64.to_ne_bytes()).expect("the eventfd");
    }

    /// Counts what happened since the last call: work if it may run, else suspension.
    fn work(&mut self) {
        let passed = now() - std::mem::replace(&mut self.at, now());
        let mut word = [0; 8];
        self.server.read_exact_at(&mut word, 0).expect("the server's page");
        let runs = u64::from_le_bytes(word) & 1 == 1;
        if runs {
            self.add(DIRECT, 1);
            self.add(COMPLETED, 1);
            self.add(WORKED_NS, passed / 2);
        } else {
            self.add(SUSPENDED_NS, passed);
        }
        if std::mem::replace(&mut self.ran, runs) && !runs {
            self.add(SUSPENSIONS, 1);
        }
        self.set(PENDING, u64::from(!runs));
        self.report();
    }

    /// Answers a request for the numbers.
    fn report(&self) {
        let (mut asked, mut answered) = ([0; 4], [0; 4]);
        self.server.read_exact_at(&mut asked, REPORT).expect("the server's page");
        self.own.read_exact_at(&mut answered, REPORTED).expect("the own page");
        if asked != answered {
            self.own.write_all_at(&asked, REPORTED).expect("the own page");
            self.notify();
        }
    }
}

/// Receives the server's page, the own page and the eventfd.
fn welcome(socket: &UnixStream) -> [OwnedFd; 3] {
    let mut bytes = [0; 256];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).expect("a welcome");
    assert_eq!(bytes[..8], *b"GIVW\x03\x00\x01\x01", "{} bytes that are no welcome", got.bytes);
    let all = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(some) => some.collect(),
        _ => Vec::new(),
    });
    all.collect::<Vec<_>>().try_into().expect("three descriptors")
}
