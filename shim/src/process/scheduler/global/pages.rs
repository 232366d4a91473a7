//! Where the shared pages lie in this process: one place for ever, on which each connection's pages are mapped.
//!
//! Launching threads read the permission and write their queues' slots without asking whether a server is there, so the
//! addresses must stay valid whatever happens to it. A new connection's pages therefore replace the old ones in place
//! (`MAP_FIXED`: the kernel lets no access through between the two), and nothing is ever unmapped: reconnecting costs no
//! memory. A queue has the same slot on every connection, so that a thread that was about to write when the pages
//! were replaced still writes what is true of its own queue.
//!
//! A forked child does not inherit them (`MADV_DONTFORK`): it could only write into its parent's affairs.

use protocol::page::{CLIENT_BYTES, ClientHeader, HEAD_SLOTS, SERVER_BYTES, SLOTS, ServerPage, Slot};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// The two pages.
#[derive(Debug)]
pub(crate) struct Pages {
    server: NonNull<c_void>,
    client: NonNull<c_void>,
}

// SAFETY: addresses of mappings that stay for ever; what lies there is only read and written as atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

const _: () = assert!(SERVER_BYTES.is_multiple_of(4096) && CLIENT_BYTES.is_multiple_of(4096));

impl Pages {
    /// The place, with memory of its own until there is a connection.
    pub(in super::super) fn reserve() -> io::Result<Self> {
        let server = map(ptr::null_mut(), SERVER_BYTES, libc::PROT_READ | libc::PROT_WRITE, None)?;
        let client = map(ptr::null_mut(), CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE, None)?;
        Ok(Self { server, client })
    }

    /// Puts a connection's pages in place. The sizes of the files were checked, and are sealed.
    pub(super) fn attach(&self, server: BorrowedFd<'_>, client: BorrowedFd<'_>) -> io::Result<()> {
        map(self.client.as_ptr(), CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE, Some(client))?;
        map(self.server.as_ptr(), SERVER_BYTES, libc::PROT_READ, Some(server))?;
        Ok(())
    }

    /// The server's page.
    pub(in super::super) fn server(&self) -> &'static ServerPage {
        // SAFETY: mapped for ever, aligned to pages, and long enough; any bytes are valid atomics.
        unsafe { self.server.cast().as_ref() }
    }

    /// The head of the client's page.
    pub(in super::super) fn header(&self) -> &'static ClientHeader {
        // SAFETY: as above.
        unsafe { self.client.cast().as_ref() }
    }

    /// A slot, counted from 0 to [`SLOTS`].
    pub(super) fn slot(&self, index: usize) -> &'static Slot {
        assert!(index < SLOTS);
        // SAFETY: the slots follow the head, and the last one ends with the page.
        let slot = unsafe { self.client.cast::<Slot>().add(index + HEAD_SLOTS) };
        // SAFETY: mapped for ever and aligned; any bytes are valid atomics.
        unsafe { slot.as_ref() }
    }
}

/// Maps a file, or memory of its own, at this place, or anywhere if it is null.
fn map(
    place: *mut c_void,
    length: usize,
    access: c_int,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<NonNull<c_void>> {
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let (kind, number) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: a place that is given is a mapping made here, of the same length, whose every user expects any content.
    let mapped = unsafe { libc::mmap(place, length, access, kind | fixed, number, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range was just mapped.
    if unsafe { libc::madvise(mapped, length, libc::MADV_DONTFORK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapped).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
