//! A client of `xserver` without a library: it speaks the protocol, and its queues have no work.

use crate::clock::now_ns;
use anyhow::{Context, Result, bail, ensure};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::frame::{Decoder, REPLY_LIMIT};
use protocol::ids::{ClientId, DeviceId, QueueId};
use protocol::message::{ToClient, ToServer, WELCOME_DESCRIPTORS};
use protocol::page::{
    CLIENT_BYTES, ClientHeader, EVENT_IDLE, EVENT_READY, HEADER_SLOTS, SERVER_BYTES, ServerPage, Slot,
    activity_word,
};
use protocol::status::Activity;
use protocol::time::Time;
use rustix::fd::OwnedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::thread::futex;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The device of all queues. A server takes every number.
pub(super) const DEVICE: u32 = 1;
/// The only queue of a client.
pub(super) const QUEUE: QueueId = QueueId(1);
/// The bytes of a frame that the server sends to a client: a header and at most a text.
const FRAME: usize = 512;

/// A connected client with one queue.
#[derive(Debug)]
pub(super) struct Client {
    /// Its name at the server.
    pub(super) id: ClientId,
    server: Mapping<ServerPage, SERVER_BYTES>,
    own: Mapping<ClientHeader, CLIENT_BYTES>,
    eventfd: OwnedFd,
    /// The last state of its queue.
    activity: Activity,
    notifications: u64,
    /// The server disconnects the client when it closes.
    _socket: UnixStream,
}

impl Client {
    /// Connects, and creates a queue of this priority on a device.
    pub(super) fn connect(socket: &Path, name: &str, device: u32, priority: i64) -> Result<Self> {
        let mut stream = UnixStream::connect(socket).context("cannot connect to xserver")?;
        let hello = ToServer::Hello { pid: std::process::id(), name: name.to_owned() };
        stream.write_all(&hello.encode()).context("cannot greet xserver")?;
        let (answer, mut descriptors) = receive(&stream)?;
        let id = match answer {
            ToClient::Welcome { client, .. } => client,
            ToClient::Refused { reason } => bail!("xserver refuses a client: {reason}"),
            ToClient::Trace {} | ToClient::TraceEnd {} | ToClient::Configure { .. } => {
                bail!("xserver does not welcome a client")
            }
        };
        ensure!(descriptors.len() == WELCOME_DESCRIPTORS, "xserver sent {} descriptors", descriptors.len());
        let (eventfd, own, server) = (descriptors.pop(), descriptors.pop(), descriptors.pop());
        let (eventfd, own, server) =
            eventfd.zip(own).zip(server).map(|((a, b), c)| (a, b, c)).context("none")?;
        // SAFETY: the server has sealed the sizes of both files, which are those of the mappings, and both types consist of
        // atomics.
        let (server, own) = unsafe {
            (Mapping::new(&server, ProtFlags::READ)?, Mapping::new(&own, ProtFlags::READ | ProtFlags::WRITE)?)
        };
        let level = PreemptLevel::Block;
        let (device, priority) = (DeviceId(device), Priority::try_from(priority)?);
        let created = ToServer::QueueCreated { queue: QUEUE, slot: 0, device, priority, level };
        stream.write_all(&created.encode()).context("cannot announce a queue to xserver")?;
        let activity = Activity::Idle { since: None };
        Ok(Self { id, server, own, eventfd, activity, notifications: 0, _socket: stream })
    }

    /// The queue turns ready.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.turn(Activity::Ready { since: Time(now_ns()) }, EVENT_READY)
    }

    /// The queue turns idle.
    pub(super) fn idle(&mut self) -> Result<()> {
        self.turn(Activity::Idle { since: Some(Time(now_ns())) }, EVENT_IDLE)
    }

    /// Stores the state, then reads the event mask, and notifies the server if it asks for this event.
    fn turn(&mut self, activity: Activity, event: u32) -> Result<()> {
        self.activity = activity;
        self.slot().activity.store(activity_word(activity), SeqCst);
        if self.server.head().wants.load(SeqCst) & event != 0 {
            self.notifications += 1;
            rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes()).context("cannot notify xserver")?;
        }
        Ok(())
    }

    /// Returns true if the queue may launch.
    pub(super) fn runs(&self) -> bool {
        self.server.head().word.load(SeqCst) & 1 != 0
    }

    /// The number of changes of the permission, modulo 2^32.
    pub(super) fn generation(&self) -> u32 {
        (self.server.head().word.load(SeqCst) >> 32) as u32
    }

    /// The nanoseconds until the lease ends; negative if it has ended.
    pub(super) fn lease_left_ns(&self) -> i64 {
        // The clock first: if this thread loses its processor in between, the lease looks longer and never shorter.
        let now = now_ns();
        self.server.head().deadline.load(SeqCst).wrapping_sub(now).cast_signed()
    }

    /// Sleeps until the client may run, or may not, as a program's agent does. Returns false if that does not come within
    /// `limit`.
    pub(super) fn wait_until_runs(&self, runs: bool, limit: Duration) -> bool {
        let end = now_ns() + limit.as_nanos() as u64;
        loop {
            let seen = self.server.head().changes.load(SeqCst);
            if self.runs() == runs {
                return true;
            }
            let left = end.saturating_sub(now_ns());
            if left == 0 {
                return false;
            }
            let left = Duration::from_nanos(left).try_into().ok();
            // Every return leads to another look.
            let _ = futex::wait(&self.server.head().changes, futex::Flags::empty(), seen, left.as_ref());
        }
    }

    /// The last state of the queue.
    pub(super) fn activity(&self) -> Activity {
        self.activity
    }

    /// The number of system calls by which it has notified the server.
    pub(super) fn notifications(&self) -> u64 {
        self.notifications
    }

    fn slot(&self) -> &Slot {
        let slots = self.own.address.cast::<Slot>();
        // SAFETY: the first slot follows the header on the page, which is mapped as long as `self` lives; a slot consists of
        // atomics.
        unsafe { slots.add(HEADER_SLOTS).as_ref() }
    }
}

/// Receives the server's answer to a hello.
fn receive(stream: &UnixStream) -> Result<(ToClient, Vec<OwnedFd>)> {
    let mut decoder = Decoder::new(REPLY_LIMIT);
    let mut descriptors = Vec::new();
    loop {
        let mut bytes = [0; FRAME];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(WELCOME_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let got = got.context("xserver does not answer")?;
        ensure!(got.bytes > 0, "xserver closed the connection");
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        decoder.push(&bytes[..got.bytes]);
        if let Some(frame) = decoder.next_frame().context("the answer of xserver is damaged")? {
            return Ok((
                ToClient::decode(&frame).context("the answer of xserver is malformed")?,
                descriptors,
            ));
        }
    }
}

/// A shared mapping of `BYTES` bytes, with a `Head` at its start.
#[derive(Debug)]
struct Mapping<Head, const BYTES: usize> {
    address: NonNull<Head>,
}

// SAFETY: a mapping belongs to the process, not to a thread, and its content consists of atomics.
unsafe impl<Head: Sync, const BYTES: usize> Send for Mapping<Head, BYTES> {}

impl<Head, const BYTES: usize> Mapping<Head, BYTES> {
    /// Maps a file.
    ///
    /// # Safety
    /// The file has at least `BYTES` bytes and never shrinks. `Head` fits into them and consists of atomics.
    unsafe fn new(file: &OwnedFd, protection: ProtFlags) -> Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
        let address = unsafe { mmap(ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0) };
        let address = NonNull::new(address.context("cannot map a page of xserver")?.cast());
        Ok(Self { address: address.context("a mapping at address 0")? })
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping lives from `new` until `drop`, is page-aligned and large enough, and `Head` consists of atomics.
        unsafe { self.address.as_ref() }
    }
}

impl<Head, const BYTES: usize> Drop for Mapping<Head, BYTES> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all references to it borrow `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), BYTES) };
    }
}
