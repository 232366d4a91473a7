//! The server's end of a connection.

use super::super::*;
use super::HANG;
use crate::futex;
use protocol::frame::{Decoder, REQUEST_LIMIT};
use protocol::ids::ClientId;
use protocol::message::{ToClient, ToServer};
use protocol::page::{CLIENT_BYTES, ClientHeader, SERVER_BYTES, Slot};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The faults of a welcome.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Faults {
    pub(super) no_eventfd: bool,
    pub(super) one_more: bool,
    pub(super) short_server_page: bool,
    pub(super) short_client_page: bool,
    pub(super) unsealed_server_page: bool,
    pub(super) unsealed_client_page: bool,
    pub(super) no_memory_file: bool,
    pub(super) blocking_eventfd: bool,
    pub(super) no_eventfd_but_a_pipe: bool,
    pub(super) more_words: bool,
}

/// The server's end of a connection.
pub(super) struct End {
    pub(super) stream: UnixStream,
    decoder: Decoder,
}

/// The shared memory and the eventfd of a connection, as the server sees them.
pub(super) struct Shared {
    pub(super) server: &'static ServerPage,
    pub(super) client: &'static ClientHeader,
    eventfd: OwnedFd,
}

pub(super) fn owned(number: c_int) -> OwnedFd {
    assert!(number >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just made, and nothing else knows it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

pub(super) fn memory_file(bytes: usize) -> OwnedFd {
    // SAFETY: the call makes a descriptor; the name is a C string.
    let file =
        owned(unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) });
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), bytes as i64) }, 0);
    file
}

pub(super) fn seal(file: &OwnedFd, seals: c_int) -> Result<(), Option<i32>> {
    // SAFETY: the call takes numbers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error()),
    }
}

/// Maps the file; it is never unmapped.
pub(super) fn mapped<T>(file: &OwnedFd, bytes: usize) -> &'static T {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the address of the new mapping.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the mapping is never unmapped, and large enough for `T`, which consists of atomics.
    unsafe { &*page.cast() }
}

impl End {
    pub(super) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(HANG)).unwrap();
        Self { stream, decoder: Decoder::new(REQUEST_LIMIT) }
    }

    pub(super) fn next(&mut self) -> ToServer {
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

    pub(super) fn hello(&mut self) {
        assert!(matches!(self.next(), ToServer::Hello { pid, .. } if pid == std::process::id()));
    }

    pub(super) fn welcome(&mut self, faults: Faults) -> Shared {
        self.hello();
        let server = memory_file(if faults.short_server_page { 1 } else { SERVER_BYTES });
        let client = memory_file(if faults.short_client_page { CLIENT_BYTES - 4096 } else { CLIENT_BYTES });
        let (page, header) = (mapped::<ServerPage>(&server, SERVER_BYTES), mapped(&client, CLIENT_BYTES));
        let sizes = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        const FUTURE_WRITE: c_int = 0x10;
        if !faults.unsealed_server_page {
            match seal(&server, sizes | FUTURE_WRITE) {
                // A kernel before Linux 5.1.
                Err(Some(libc::EINVAL)) => seal(&server, sizes).unwrap(),
                sealed => sealed.unwrap(),
            }
        }
        if !faults.unsealed_client_page {
            seal(&client, sizes).unwrap();
        }
        let flags = if faults.blocking_eventfd { 0 } else { libc::EFD_NONBLOCK };
        // SAFETY: the call makes a descriptor.
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
            // SAFETY: the call takes numbers.
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

    pub(super) fn send(&mut self, bytes: &[u8], files: &[c_int]) {
        let mut control = [0_u64; 8];
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the header consists of numbers and pointers, for which zeros are valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
        let length = size_of_val(files) as u32;
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: both functions only compute a length.
        (header.msg_controllen, control[0]) =
            unsafe { (libc::CMSG_SPACE(length) as usize, libc::CMSG_LEN(length).into()) };
        control[1] = (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64;
        for (index, file) in files.iter().enumerate() {
            control[2 + index / 2] |= (*file as u64) << (32 * (index % 2));
        }
        // SAFETY: all pointers and lengths of the header are those of the variables here.
        let sent = unsafe { libc::sendmsg(self.stream.as_raw_fd(), &header, 0) };
        assert_eq!(sent, bytes.len() as isize);
    }
}

impl Shared {
    pub(super) fn permit(&self, run: bool, limit: bool) {
        self.server.word.store(Permission::new(1, run, limit, 1).word(), Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn wake(&self) {
        self.server.changes.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.server.changes);
    }

    pub(super) fn renew(&self) {
        self.server.deadline.store(now().after(LEASE).0, Ordering::SeqCst);
    }

    pub(super) fn slot(&self, index: usize) -> &Slot {
        let slots = ptr::from_ref(self.client).cast::<Slot>();
        // SAFETY: the slots follow the header of the page, which is never unmapped.
        unsafe { &*slots.add(index + protocol::page::HEADER_SLOTS) }
    }

    /// Returns the number of notifications since the last call.
    pub(super) fn notifications(&self) -> u64 {
        let mut count = [0; 8];
        // SAFETY: pointer and length are those of the array.
        let read = unsafe { libc::read(self.eventfd.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        if read == 8 { u64::from_ne_bytes(count) } else { 0 }
    }
}
