//! The memory that the server shares with one client.
//!
//! There are two memory files of sealed size. The server maps its page, seals it against further writing
//! (Linux 5.1), and sends the client a read-only descriptor. The server maps the client's page for reading
//! with atomic loads: its content is untrusted and can change at any time.

use crate::core::ClientPage;
use host::process::Status;
use protocol::control::Preemption;
use protocol::cost::{ACCEPTS_COSTS, CostKey, CostOrigin, EvictCost};
use protocol::ids::Pid;
use protocol::page::{
    ACCEPTS_STREAM_PRIORITIES, CLIENT_BYTES, ClientHeader, HEADER_SLOTS, LEASE, SERVER_BYTES, SLOTS,
    ServerPage, Slot, UNKNOWN,
};
use protocol::slow::SlowPath;
use protocol::status::Counts;
use protocol::time::Time;
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create, open,
};
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::thread::futex;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Both pages of one client.
#[derive(Debug)]
pub(crate) struct Pages {
    server: Mapping<ServerPage, SERVER_BYTES>,
    client: Mapping<ClientHeader, CLIENT_BYTES>,
    /// The process; 0 if it has no number in this namespace.
    pid: Pid,
    /// True if `xcli suspend` has suspended queues of it.
    held: Cell<bool>,
}

/// The descriptors for the client.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The server's page, read-only.
    pub server: OwnedFd,
    /// The client's page.
    pub client: OwnedFd,
}

impl Pages {
    /// Creates the pages of a client process.
    ///
    /// # Errors
    /// No descriptor or no memory is left, or `/proc` is not mounted.
    pub fn new(pid: Pid) -> io::Result<(Self, Descriptors)> {
        let sizes = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let file = memory_file(c"xserver-page", SERVER_BYTES)?;
        // SAFETY: the file has `SERVER_BYTES` bytes, and its size is sealed below before another process gets
        // it.
        let server = unsafe { Mapping::new(&file, ProtFlags::READ | ProtFlags::WRITE)? };
        match fcntl_add_seals(&file, sizes | SealFlags::FUTURE_WRITE) {
            // Before Linux 5.1. The client's descriptor is read-only, but a process that may reopen the file
            // could write.
            Err(io::Errno::INVAL) => {
                fchmod(&file, Mode::RUSR)?;
                fcntl_add_seals(&file, sizes)?;
            }
            sealed => sealed?,
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reading = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;

        let file = memory_file(c"xserver-client", CLIENT_BYTES)?;
        fcntl_add_seals(&file, sizes)?;
        // SAFETY: the file has `CLIENT_BYTES` bytes, and its size is sealed.
        let client = unsafe { Mapping::new(&file, ProtFlags::READ)? };
        Ok((
            Self { server, client, pid, held: Cell::new(false) },
            Descriptors { server: reading, client: file },
        ))
    }

    /// The process; 0 if it has no number in this namespace.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sets if `xcli suspend` has suspended queues of the process.
    pub fn set_held(&self, held: bool) {
        self.held.set(held);
    }

    /// Renews the lease of the permission.
    pub fn renew(&self, now: Time) {
        self.server.head().deadline.store(now.after(LEASE).0, SeqCst);
    }

    /// Shows the costs of eviction, as many as fit.
    pub fn show_costs(&self, known: &[(CostKey, EvictCost)]) {
        let head = self.server.head();
        head.takes.store(ACCEPTS_COSTS | ACCEPTS_STREAM_PRIORITIES, SeqCst);
        let known = known.iter().copied().map(Some).chain(std::iter::repeat(None));
        for (words, cost) in head.costs.iter().zip(known) {
            words.store(cost);
        }
    }

    /// The cost that is shown under this key.
    #[cfg(test)]
    pub fn cost(&self, key: CostKey) -> Option<EvictCost> {
        self.server.head().costs.iter().find_map(|words| words.load(key))
    }

    /// Requests a report of the client. Returns the number of the report.
    pub fn ask_report(&self) -> u32 {
        let number = self.server.head().report.fetch_add(1, SeqCst).wrapping_add(1);
        self.wake();
        number
    }

    /// Returns true if the client has made this report or a later one.
    pub fn has_reported(&self, number: u32) -> bool {
        let reported = self.client.head().reported.load(SeqCst);
        reported.wrapping_sub(number) < u32::MAX / 2
    }

    /// A slot of the client's page.
    fn slot(&self, index: u32) -> Option<&Slot> {
        let index = usize::try_from(index).ok().filter(|index| *index < SLOTS)?;
        // Slots follow the head.
        let slots = self.client.address.cast::<Slot>();
        // SAFETY: the mapping holds the head and `SLOTS` slots and lives as long as `self`; its start is
        // page-aligned, and a slot consists of atomics.
        Some(unsafe { slots.add(HEADER_SLOTS + index).as_ref() })
    }
}

impl ClientPage for Pages {
    fn activity(&self, slot: u32) -> u64 {
        self.slot(slot).map_or(0, |slot| slot.activity.load(SeqCst))
    }

    fn counts(&self, slot: u32) -> Counts {
        self.slot(slot).map_or_else(Counts::default, |slot| Counts {
            pending: slot.pending.load(Relaxed),
            in_flight: slot.in_flight.load(Relaxed),
            direct: slot.direct.load(Relaxed),
            deferred: slot.deferred.load(Relaxed),
            suspensions: slot.suspensions.load(Relaxed),
            suspended_ns: slot.suspended_ns.load(Relaxed),
        })
    }

    fn worked_ns(&self, slot: u32) -> u64 {
        self.slot(slot).map_or(0, |slot| slot.worked_ns.load(Relaxed))
    }

    fn completed(&self) -> u64 {
        self.client.head().completed.load(SeqCst)
    }

    fn taken(&self) -> u64 {
        self.client.head().taken.load(Relaxed)
    }

    fn busy_until(&self) -> Time {
        Time(self.client.head().busy_until.load(SeqCst))
    }

    fn preemption(&self) -> Preemption {
        let words = &self.client.head().holds;
        let holds = words.holds.load(SeqCst);
        let some = |word: u64| Some(word).filter(|_| holds != 0);
        let expected = words.expected_ns.load(Relaxed);
        let suspended = holds + words.waits.load(Relaxed) != 0;
        Preemption {
            holds,
            waits: words.waits.load(Relaxed),
            failures: words.failures.load(Relaxed),
            expected_ns: Some(expected).filter(|expected| suspended && *expected != UNKNOWN),
            hold_ns: Some(words.hold_ns.load(Relaxed)).filter(|cost| *cost != 0),
            release_ns: Some(words.release_ns.load(Relaxed)).filter(|cost| *cost != 0),
            cost_origin: CostOrigin::of_number(self.client.head().cost_origin.load(Relaxed))
                .name()
                .map(str::to_owned),
            asked_at: some(words.asked_at.load(Relaxed)),
            stood_at: some(words.stood_at.load(Relaxed)),
            ..Preemption::default()
        }
    }

    fn slow_path(&self, reason: SlowPath) -> u64 {
        self.client.head().slow.get(reason.number()).map_or(0, |count| count.load(Relaxed).into())
    }

    fn takes(&self) -> u32 {
        self.client.head().takes.load(SeqCst)
    }

    fn is_stopped(&self) -> bool {
        // A process of another namespace cannot be looked up; then only the guard helps.
        self.held.get() || self.pid.0 != 0 && Status::read(self.pid.0).is_ok_and(|status| status.is_stopped())
    }

    fn set_event_mask(&self, event_mask: u32) {
        self.server.head().wants.store(event_mask, SeqCst);
    }

    fn set_permission(&self, word: u64) {
        self.server.head().word.store(word, SeqCst);
    }

    fn wake(&self) {
        let changes = &self.server.head().changes;
        changes.fetch_add(1, SeqCst);
        // It cannot fail for a mapped address.
        let _ = futex::wake(changes, futex::Flags::empty(), u32::MAX >> 1);
    }
}

/// Makes a memory file of this size.
pub(crate) fn memory_file(name: &std::ffi::CStr, bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
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
    unsafe fn new(file: &OwnedFd, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
        let address = unsafe { mmap(ptr::null_mut(), BYTES, protection, MapFlags::SHARED, file, 0)? };
        NonNull::new(address.cast()).map(|address| Self { address }).ok_or(io::Errno::NOMEM)
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping lives from `new` until `drop`, is page-aligned and large enough, and `Head`
        // consists of atomics.
        unsafe { self.address.as_ref() }
    }
}

impl<Head, const BYTES: usize> Drop for Mapping<Head, BYTES> {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all references to it borrow `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), BYTES) };
    }
}

/// Sends the welcome with its descriptors. A new socket has room for it; otherwise the connection is given
/// up.
pub(crate) fn send_welcome(
    socket: &OwnedFd,
    frame: &[u8],
    pages: &Descriptors,
    eventfd: &OwnedFd,
) -> io::Result<()> {
    let descriptors = [pages.server.as_fd(), pages.client.as_fd(), eventfd.as_fd()];
    let sent = send_files(socket, frame, &descriptors)?;
    if sent == frame.len() { Ok(()) } else { Err(io::Errno::AGAIN) }
}

/// Sends as many bytes as the socket accepts, with at most three descriptors beside the first one. Returns their number.
///
/// # Errors
/// The socket accepts nothing now, or has failed.
pub(crate) fn send_files(socket: &OwnedFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Errno::NOBUFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_sealed_and_the_servers_page_is_read_only() {
        let (pages, descriptors) = Pages::new(Pid(0)).unwrap();
        for file in [&descriptors.server, &descriptors.client] {
            assert!(ftruncate(file, 0).is_err());
            assert!(ftruncate(file, 1 << 20).is_err());
        }
        let path = format!("/proc/self/fd/{}", descriptors.server.as_raw_fd());
        let again = open(path, OFlags::RDWR, Mode::empty());
        // A kernel before Linux 5.1 refuses the unknown seal before it checks the file (`memfd_add_seals`).
        let seal = fcntl_add_seals(&descriptors.client, SealFlags::FUTURE_WRITE);
        if seal == Err(io::Errno::INVAL) {
            // Then the mode protects the file.
            let mode = rustix::fs::fstat(&descriptors.server).unwrap().st_mode & 0o777;
            let is_root = rustix::process::geteuid().is_root();
            assert!(mode == 0o400 && (again.is_err() || is_root), "{mode:o}");
            assert!(io::write(&descriptors.server, &[1]).is_err());
        } else {
            assert!(again.is_err() || io::write(again.unwrap(), &[1]).is_err());
        }
        // SAFETY: the mapping must fail, and is not used.
        let mapping =
            unsafe { Mapping::<ServerPage, SERVER_BYTES>::new(&descriptors.server, ProtFlags::WRITE) };
        assert!(mapping.is_err());

        pages.set_permission(7);
        let mut word = [0; 8];
        rustix::io::pread(&descriptors.server, &mut word, 0).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 7);
        let at = (64 * (HEADER_SLOTS + 2)) as u64;
        rustix::io::pwrite(&descriptors.client, &9u64.to_ne_bytes(), at).unwrap();
        assert_eq!(pages.activity(2), 9);
        assert_eq!((pages.activity(3), pages.activity(u32::MAX)), (0, 0));
    }

    #[test]
    fn later_report_answers_earlier_requests() {
        let (pages, descriptors) = Pages::new(Pid(0)).unwrap();
        let (first, second) = (pages.ask_report(), pages.ask_report());
        assert!(!pages.has_reported(first));
        rustix::io::pwrite(&descriptors.client, &second.to_ne_bytes(), 16).unwrap();
        assert!(pages.has_reported(first) && pages.has_reported(second));
        assert!(!pages.has_reported(second.wrapping_add(1)));
    }
}
