//! Access to the program's memory that this library does not know. The operating system's kernel copies it,
//! and refuses addresses that are not mapped instead of ending the process.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{Answer, INVALID_VALUE};

/// True once the system has refused the calls below, as some sandboxes do.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// The direction of a copy between this library's memory and the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

fn transfer(ours: *mut u8, theirs: usize, len: usize, way: Way) -> Answer {
    let mut done = 0;
    while done < len && !PLAIN.load(Ordering::Relaxed) {
        let local = libc::iovec { iov_base: ours.wrapping_add(done).cast(), iov_len: len - done };
        let remote =
            libc::iovec { iov_base: theirs.wrapping_add(done) as *mut libc::c_void, iov_len: len - done };
        // SAFETY: the callers guarantee that the local range is valid for `len` bytes; the kernel checks the
        // remote one.
        let moved = unsafe {
            let pid = libc::getpid();
            match way {
                Way::In => libc::process_vm_readv(pid, &local, 1, &remote, 1, 0),
                Way::Out => libc::process_vm_writev(pid, &local, 1, &remote, 1, 0),
            }
        };
        match usize::try_from(moved) {
            Ok(moved) if moved > 0 => done += moved,
            _ => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EPERM | libc::ENOSYS) => PLAIN.store(true, Ordering::Relaxed),
                Some(libc::EINTR) => {}
                _ => return Err(INVALID_VALUE),
            },
        }
    }
    let (ours, theirs) = (ours.wrapping_add(done), theirs.wrapping_add(done) as *mut u8);
    // SAFETY: either the kernel has copied everything and no bytes are left, or it refuses such copies. Then
    // the program is responsible for its pointer, as CUDA requires. The callers guarantee `ours`. The ranges
    // may overlap.
    unsafe {
        match way {
            Way::In => ptr::copy(theirs, ours, len - done),
            Way::Out => ptr::copy(ours, theirs, len - done),
        }
    }
    Ok(())
}

/// Copies `len` bytes from the program to `ours`.
///
/// # Errors
/// `INVALID_VALUE`: they are not mapped.
///
/// # Safety
/// `ours` is valid for writes of `len` bytes.
pub unsafe fn read(ours: *mut u8, theirs: usize, len: usize) -> Answer {
    transfer(ours, theirs, len, Way::In)
}

/// Copies `len` bytes from `ours` to the program.
///
/// # Errors
/// `INVALID_VALUE`: the program's bytes are not mapped for writing.
///
/// # Safety
/// `ours` is valid for reads of `len` bytes.
pub unsafe fn write(ours: *const u8, theirs: usize, len: usize) -> Answer {
    transfer(ours.cast_mut(), theirs, len, Way::Out)
}

/// Returns a copy of the program's bytes.
///
/// # Errors
/// `INVALID_VALUE`: they are not mapped.
pub fn bytes(theirs: usize, len: usize) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: the vector has `len` bytes.
    unsafe { read(bytes.as_mut_ptr(), theirs, len)? };
    Ok(bytes)
}

/// Returns a copy of the program's C string, without the zero byte, of about `most` bytes at most.
///
/// # Errors
/// `INVALID_VALUE`: the string is not mapped, or is too long.
pub fn text(theirs: usize, most: usize) -> Answer<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < most {
        // Each read ends with the page, because the next page may not be mapped.
        let at = theirs.wrapping_add(text.len());
        let piece = bytes(at, 4096 - at % 4096)?;
        match piece.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&piece[..end]);
                return Ok(text);
            }
            None => text.extend_from_slice(&piece),
        }
    }
    Err(INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_mapped_are_refused() {
        assert_eq!(bytes(b"abc".as_ptr() as usize, 3), Ok(b"abc".to_vec()));
        assert_eq!(text(c"text".as_ptr() as usize, 100), Ok(b"text".to_vec()));
        assert_eq!(bytes(16, 4), Err(INVALID_VALUE));
        assert_eq!(text(16, 100), Err(INVALID_VALUE));
        // SAFETY: the source has one byte, and `write` reads one.
        assert_eq!(unsafe { write([1u8].as_ptr(), 16, 1) }, Err(INVALID_VALUE));
    }
}
