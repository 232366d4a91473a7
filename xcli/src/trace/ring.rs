//! The memory file of a program's trace, mapped to read. Its content is untrusted.

use protocol::trace::Trace;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

/// The mapping.
#[derive(Debug)]
pub(super) struct Ring(NonNull<Trace>);

// SAFETY: a mapping belongs to the process, not to a thread, and its content consists of atomics.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a file.
    ///
    /// # Errors
    /// It has another size, or could get one.
    pub fn new(file: &OwnedFd) -> io::Result<Self> {
        let size = size_of::<Trace>();
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        let fits =
            usize::try_from(fstat(file)?.st_size) == Ok(size) && fcntl_get_seals(file)?.contains(sealed);
        if !fits {
            return Err(io::Error::other("the file of a trace has another size, or can change it"));
        }
        // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
        let address = unsafe { mmap(ptr::null_mut(), size, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        NonNull::new(address.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub fn trace(&self) -> &Trace {
        // SAFETY: the mapping lives until `drop`, is aligned to pages as a `Trace` is, and has its size, which is sealed. A
        // `Trace` consists of atomics, for which all bytes are valid, and only loads are made here.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all references to it borrow `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<Trace>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    #[test]
    fn only_files_of_the_right_and_sealed_size_are_mapped() {
        let file = |size: usize, seals| {
            let file = memfd_create("trace", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, size as u64).unwrap();
            fcntl_add_seals(&file, seals).unwrap();
            Ring::new(&file).is_ok()
        };
        let (size, sealed) = (size_of::<Trace>(), SealFlags::SHRINK | SealFlags::GROW);
        assert!(file(size, sealed));
        assert!(!file(size - 1, sealed) && !file(size, SealFlags::GROW) && !file(size, SealFlags::empty()));
        assert!(Ring::new(&std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
