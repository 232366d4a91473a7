//! The shared pages: they stay at one address, onto which each connection's pages are mapped.
//!
//! Launching threads read the permission and write their queues' slots without checking for a server, so the
//! addresses must stay valid. A new connection's pages replace the old ones in place (`MAP_FIXED`: no access
//! falls between the two), and nothing is ever unmapped, so reconnecting costs no memory. A queue keeps its
//! slot on every connection: a thread that was about to write when the pages were replaced still writes the
//! state of its own queue.
//!
//! A forked child does not inherit the pages (`MADV_DONTFORK`): it would write into its parent's.

use protocol::page::{CLIENT_BYTES, ClientHeader, HEADER_SLOTS, SERVER_BYTES, SLOTS, ServerPage, Slot};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// The server's page and the client's page of this process.
#[derive(Debug)]
pub(crate) struct Pages {
    server: NonNull<c_void>,
    client: NonNull<c_void>,
}

// SAFETY: the mappings are never unmapped, and are only accessed as atomics.
unsafe impl Send for Pages {}
// SAFETY: the mappings are never unmapped, and are only accessed as atomics.
unsafe impl Sync for Pages {}

const _: () = assert!(SERVER_BYTES.is_multiple_of(4096) && CLIENT_BYTES.is_multiple_of(4096));

impl Pages {
    /// Reserves the addresses, with private memory until there is a connection.
    pub(crate) fn reserve() -> io::Result<Self> {
        let server = map(ptr::null_mut(), SERVER_BYTES, libc::PROT_READ | libc::PROT_WRITE, None)?;
        let client = map(ptr::null_mut(), CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE, None)?;
        Ok(Self { server, client })
    }

    /// Maps a connection's pages. The caller has checked that the files have the right sizes and are sealed.
    pub(crate) fn attach(&self, server: BorrowedFd<'_>, client: BorrowedFd<'_>) -> io::Result<()> {
        map(self.client.as_ptr(), CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE, Some(client))?;
        map(self.server.as_ptr(), SERVER_BYTES, libc::PROT_READ, Some(server))?;
        Ok(())
    }

    /// Returns the server's page.
    pub(crate) fn server(&self) -> &'static ServerPage {
        // SAFETY: the mapping is never unmapped, page-aligned and long enough; any bytes are valid atomics.
        unsafe { self.server.cast().as_ref() }
    }

    /// Returns the header of the client's page.
    pub(crate) fn header(&self) -> &'static ClientHeader {
        // SAFETY: the mapping is never unmapped, page-aligned and long enough; any bytes are valid atomics.
        unsafe { self.client.cast().as_ref() }
    }

    /// Returns the slot of this index, which is below [`SLOTS`].
    pub(crate) fn slot(&self, index: usize) -> &'static Slot {
        assert!(index < SLOTS);
        // SAFETY: the slots follow the header, and `SLOTS` of them end with the page, which is never
        // unmapped; any bytes are valid atomics.
        unsafe { self.client.cast::<Slot>().add(index + HEADER_SLOTS).as_ref() }
    }
}

/// Maps a file, or private memory, at this address, or anywhere if it is null.
pub(crate) fn map(
    address: *mut c_void,
    length: usize,
    access: c_int,
    file: Option<BorrowedFd<'_>>,
) -> io::Result<NonNull<c_void>> {
    let fixed = if address.is_null() { 0 } else { libc::MAP_FIXED };
    let (kind, number) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
    };
    // SAFETY: a given address is that of a mapping made here, of the same length, whose users expect any
    // content.
    let mapped = unsafe { libc::mmap(address, length, access, kind | fixed, number, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range was just mapped.
    if unsafe { libc::madvise(mapped, length, libc::MADV_DONTFORK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapped).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
