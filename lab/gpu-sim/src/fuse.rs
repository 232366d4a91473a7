//! The file in place of the character device: a FUSE mount whose root is the file at `/dev/kfd`.
//!
//! This module contains the wire protocol only. FUSE executes each ioctl exactly once and can interrupt it,
//! and a store to an invalidated page causes a read request, by which an idle device notices a doorbell. No
//! crate supports interrupts and a file as root; see `docs/adr/0001-kfd-as-a-fuse-file.md`. Protocol:
//! `include/uapi/linux/fuse.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use hip_sys::kfd::Plain;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The apparent size of the file. Every mmap offset in use lies below it, because a fault beyond the end is a
/// SIGBUS.
pub const FILE_SIZE: u64 = 1 << 62;
/// The largest size of a request, bytes. The kernel requires at least 8 KiB; ioctl arguments are far smaller.
const BUFFER: usize = 128 << 10;
const MAX_WRITE: u32 = 64 << 10;
const ROOT: u64 = 1;
/// `FUSE_DEV_IOC_BACKING_OPEN`.
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
const INIT_EXT: u32 = 1 << 30;
/// `FUSE_PASSTHROUGH`, in the second word of flags.
const PASSTHROUGH: u32 = 1 << (37 - 32);
const FOPEN_PASSTHROUGH: u32 = 1 << 7;

hip_sys::plain! {
    InHeader = 40 { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, ext: u16, pad: u16 }
    OutHeader = 16 { len: u32, error: i32, unique: u64 }
    InitIn = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        unused: [u32; 6],
    }
    Attr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    AttrOut = 104 { valid: u64, valid_nsec: u32, dummy: u32, attr: Attr }
    OpenOut = 16 { fh: u64, open_flags: u32, backing: i32 }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    ReadIn = 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, pad: u32 }
    WriteOut = 8 { size: u32, pad: u32 }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    InterruptIn = 8 { unique: u64 }
    InvalInode = 24 { ino: u64, off: i64, len: i64 }
    BackingMap = 16 { fd: i32, flags: u32, padding: u64 }
}

/// Identifies a request until it is answered.
pub type Unique = u64;

/// The result of a successful ioctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The return value; not negative.
    pub result: i32,
    /// The argument as the driver changed it.
    pub out: Vec<u8>,
}

/// A request of the kernel that the user of the connection answers. The connection answers all others itself.
#[derive(Debug)]
pub enum Request<'a> {
    /// A process opens the file; answer with [`Connection::opened`].
    Open { unique: Unique, tid: i32 },
    /// The last descriptor and mapping of an open file have been closed.
    Release { handle: u64 },
    /// An ioctl; answer with [`Connection::ioctl`] or [`Connection::error`], once.
    Ioctl {
        unique: Unique,
        tid: i32,
        handle: u64,
        command: u32,
        /// The argument as the caller passed it; empty if the command does not read it.
        argument: &'a [u8],
        /// The number of bytes that the caller takes back.
        out_size: usize,
    },
    /// A thread that waits for an ioctl has got a signal: answer the ioctl now, with EINTR if nothing was
    /// done. The kernel sends this once; if the ioctl is not known yet, answer with
    /// [`Connection::interrupt_again`].
    Interrupt { unique: Unique, interrupt: Unique },
    /// A thread accesses a page of the file: notify the device first, then continue the thread with
    /// [`Connection::touched`], which would otherwise compete for the processor.
    Touched {
        unique: Unique,
        /// The number of bytes.
        size: usize,
    },
}

/// The server's end of the mount.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
    /// The kernel's id of the file that is mapped in place of this one.
    backing: Option<i32>,
}

impl Connection {
    /// Opens a connection and makes its mount: a detached mount object whose root is a regular file.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN or `/dev/fuse` is missing, or the kernel is older than 5.2.
    pub fn mount() -> io::Result<(Self, OwnedFd)> {
        use rustix::fs::{Mode, OFlags};
        use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
        let fd =
            rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
        let fs = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &str| fsconfig_set_string(&fs, key, value);
        set("source", "gpu-sim")?;
        set("fd", &fd.as_raw_fd().to_string())?;
        set("rootmode", "100666")?;
        set("user_id", "0")?;
        set("group_id", "0")?;
        fsconfig_set_flag(&fs, "allow_other")?;
        fsconfig_create(&fs)?;
        let mount = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok((Self { fd, backing: None }, mount))
    }

    /// Makes a connection whose file maps `memory` (FUSE passthrough).
    ///
    /// # Errors
    /// The same as for [`Connection::mount`]; or the kernel is older than 6.9 or lacks
    /// CONFIG_FUSE_PASSTHROUGH.
    pub fn mount_over(memory: BorrowedFd<'_>) -> io::Result<(Self, OwnedFd)> {
        let (mut connection, mount) = Self::mount()?;
        // The first request of a new connection is INIT; only after its answer can a file be registered.
        rustix::event::poll(&mut [PollFd::new(&connection.fd, PollFlags::IN)], None)?;
        let mut buffer = vec![0u8; BUFFER];
        let n = rustix::io::read(&connection.fd, &mut buffer)?;
        connection.backing = Some(0);
        connection.decode(&buffer[..n]);
        let map = BackingMap { fd: memory.as_raw_fd(), ..BackingMap::default() };
        // SAFETY: the request reads a structure of this layout, which outlives the call.
        let id = unsafe { libc::ioctl(connection.fd.as_raw_fd(), BACKING_OPEN, &raw const map) };
        if id <= 0 {
            return Err(io::Error::last_os_error());
        }
        connection.backing = Some(id);
        Ok((connection, mount))
    }

    /// Returns the descriptor, which is readable while requests wait.
    pub fn pending(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Serves requests by `handle` until the mount is removed or, if `patience` is given, until there was no
    /// request for so long. Several threads may serve.
    pub fn serve(&self, patience: Option<Duration>, handle: impl Fn(Request<'_>)) {
        let limit = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let mut buffer = vec![0u8; BUFFER];
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(n) => {
                    if let Some(request) = self.decode(&buffer[..n]) {
                        handle(request);
                    }
                }
                // ENOENT: the request was cancelled before it could be read.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::NOENT) => {}
                // A wait in `poll`, unlike one in `read`, wakes every serving thread, and the nearest one is
                // first.
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
                    if let Ok(0) = rustix::event::poll(&mut fds, limit.as_ref()) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn decode<'a>(&self, message: &'a [u8]) -> Option<Request<'a>> {
        let (head, body) = message.split_at_checked(size_of::<InHeader>())?;
        let head = InHeader::from_bytes(head);
        let unique = head.unique;
        let tid = i32::try_from(head.pid).ok()?;
        match head.opcode {
            2 | 42 => return None,                            // FORGET, BATCH_FORGET: no answer
            3 => self.reply(unique, attributes().as_bytes()), // GETATTR
            4 => self.reply(unique, attributes().as_bytes()), // SETATTR: a device ignores it (O_TRUNC, touch)
            14 => return Some(Request::Open { unique, tid }),
            15 => {
                let read = ReadIn::from_bytes(body);
                return Some(Request::Touched { unique, size: (read.size as usize).min(BUFFER) });
            }
            16 => {
                // A write-back of a doorbell page, whose contents have no meaning.
                let size = ReadIn::from_bytes(body).size;
                self.reply(unique, WriteOut { size, pad: 0 }.as_bytes());
            }
            17 => self.reply(unique, &[0; 80]), // STATFS
            18 => {
                self.reply(unique, &[]);
                return Some(Request::Release { handle: ReleaseIn::from_bytes(body).fh });
            }
            20 | 25 => self.reply(unique, &[]), // FSYNC, FLUSH
            26 => self.init(unique, InitIn::from_bytes(body)),
            36 => {
                let target = InterruptIn::from_bytes(body).unique;
                return Some(Request::Interrupt { unique: target, interrupt: unique });
            }
            39 => {
                let (fixed, data) = body.split_at_checked(size_of::<IoctlIn>())?;
                let call = IoctlIn::from_bytes(fixed);
                return Some(Request::Ioctl {
                    unique,
                    tid,
                    handle: call.fh,
                    command: call.cmd,
                    argument: &data[..data.len().min(call.in_size as usize)],
                    out_size: call.out_size as usize,
                });
            }
            _ => self.error(unique, libc::ENOSYS),
        }
        None
    }

    fn init(&self, unique: Unique, ask: InitIn) {
        // Without readahead, a page enters the cache only when it is accessed.
        let answer = InitOut {
            major: 7,
            minor: ask.minor.min(38),
            max_background: 64,
            congestion: 48,
            max_write: MAX_WRITE,
            time_gran: 1,
            ..InitOut::default()
        };
        let answer = match self.backing {
            None => answer,
            Some(_) => InitOut {
                minor: ask.minor.min(40),
                flags: INIT_EXT,
                flags2: PASSTHROUGH,
                max_stack_depth: 1,
                ..answer
            },
        };
        self.reply(unique, answer.as_bytes());
    }

    /// Answers an open with a handle that later requests carry.
    pub fn opened(&self, unique: Unique, handle: u64) {
        let open_flags = if self.backing.is_some() { FOPEN_PASSTHROUGH } else { 0 };
        let backing = self.backing.unwrap_or(0);
        self.reply(unique, OpenOut { fh: handle, open_flags, backing }.as_bytes());
    }

    /// Answers an access to a page with zeros.
    pub fn touched(&self, unique: Unique, size: usize) {
        self.reply(unique, &vec![0; size]);
    }

    pub fn ioctl(&self, unique: Unique, reply: &Reply) {
        let mut body = IoctlOut { result: reply.result, ..IoctlOut::default() }.as_bytes().to_vec();
        body.extend_from_slice(&reply.out);
        self.reply(unique, &body);
    }

    pub fn error(&self, unique: Unique, errno: i32) {
        self.send(&OutHeader { len: size_of::<OutHeader>() as u32, error: -errno, unique }, &[]);
    }

    /// Makes the kernel repeat an interrupt whose request another thread has not begun. The kernel does not
    /// repeat it after the answer.
    pub fn interrupt_again(&self, interrupt: Unique) {
        self.error(interrupt, libc::EAGAIN);
    }

    /// Unmaps every page of the file from all processes, so that the next store to one is a
    /// [`Request::Touched`]. The call can wait for a request that another thread must serve: never hold a
    /// lock that a handler takes.
    pub fn invalidate_pages(&self) {
        const NOTIFY_INVAL_INODE: i32 = 2;
        let body = InvalInode { ino: ROOT, off: 0, len: 0 };
        let len = (size_of::<OutHeader>() + size_of::<InvalInode>()) as u32;
        self.send(&OutHeader { len, error: NOTIFY_INVAL_INODE, unique: 0 }, body.as_bytes());
    }

    fn reply(&self, unique: Unique, body: &[u8]) {
        let len = (size_of::<OutHeader>() + body.len()) as u32;
        self.send(&OutHeader { len, error: 0, unique }, body);
    }

    fn send(&self, head: &OutHeader, body: &[u8]) {
        let parts = [io::IoSlice::new(head.as_bytes()), io::IoSlice::new(body)];
        // An error means that the caller was killed or the mount removed, so that the answer is not needed.
        let _ = rustix::io::writev(&self.fd, &parts);
    }
}

fn attributes() -> AttrOut {
    let attr = Attr {
        ino: ROOT,
        size: FILE_SIZE,
        mode: libc::S_IFREG | 0o666,
        nlink: 1,
        blksize: 4096,
        ..Attr::default()
    };
    AttrOut { valid: u64::from(u32::MAX), attr, ..AttrOut::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Connection, OwnedFd) {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (Connection { fd: a, backing: None }, b)
    }

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let head = InHeader { opcode, unique: 9, pid: 77, nodeid: ROOT, ..InHeader::default() };
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn ioctl_carries_its_argument_and_its_answer() {
        let (connection, peer) = pair();
        let call = IoctlIn { fh: 3, cmd: 0xc008_4b03, arg: 0x1000, in_size: 8, out_size: 8, flags: 0 };
        let bytes = message(39, &[call.as_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
        match connection.decode(&bytes) {
            Some(Request::Ioctl {
                unique: 9, tid: 77, handle: 3, command, argument, out_size: 8, ..
            }) => {
                assert_eq!((command, argument[0]), (0xc008_4b03, 1));
            }
            other => panic!("{other:?}"),
        }
        connection.ioctl(9, &Reply { result: 0, out: vec![4, 5] });
        let mut answer = [0; 64];
        let n = rustix::io::read(&peer, &mut answer).unwrap();
        assert_eq!((n, &answer[n - 2..n]), (16 + 16 + 2, &[4u8, 5][..]));
        connection.error(9, libc::EINTR);
        let n = rustix::io::read(&peer, &mut answer).unwrap();
        assert_eq!((n, OutHeader::from_bytes(&answer).error), (16, -libc::EINTR));
    }

    #[test]
    fn access_to_a_page_is_reported_and_answered() {
        let (connection, peer) = pair();
        let read = ReadIn { size: 4096, ..ReadIn::default() };
        match connection.decode(&message(15, read.as_bytes())) {
            Some(Request::Touched { unique, size }) => connection.touched(unique, size),
            other => panic!("{other:?}"),
        }
        assert_eq!(rustix::io::read(&peer, &mut [0; 8192]).unwrap(), 16 + 4096);
    }

    #[test]
    fn short_or_unknown_message_is_ignored_or_refused() {
        let (connection, peer) = pair();
        assert!(connection.decode(&[]).is_none());
        assert!(connection.decode(&message(39, &[0; 4])).is_none());
        assert!(connection.decode(&message(9999, &[])).is_none());
        let mut answer = [0; 64];
        let n = rustix::io::read(&peer, &mut answer).unwrap();
        assert_eq!((n, OutHeader::from_bytes(&answer).error), (16, -libc::ENOSYS));
    }
}
