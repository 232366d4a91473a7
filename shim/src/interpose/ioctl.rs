//! `ioctl`, exported: the runtime's requests to the KFD pass through here, so that its hardware queues are
//! known.
//!
//! A request that is not about queues is forwarded unchanged. A request about queues is recognised by its
//! number *and* by its descriptor, because consoles use the type byte `K` as well. The registry of the queues
//! makes it, under the lock that evictions take too (except a queue's destruction). A forked child's requests
//! are forwarded: the parent's registry is never used there, and a child that starts HIP itself begins with
//! none.

mod argument;

use super::elf;
use super::loader::Cached;
use crate::process::this_process::PREEMPTION;
use crate::{lifecycle, startup};
use agent::errno::{self, Uncancelled};
use argument::Argument;
use hal_kfd::kernel::Descriptor;
use hal_kfd::{Errno, Kfd};
use hip_sys::kfd::{self, CreateQueue, Ioctl as _, Plain as _, debug};
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::NonNull;

type Real = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// `ioctl`, as libc declares it: its optional argument is a word in the third register.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(any(test, races)), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let command = request as u32;
    if kfd::request_number(command) == Some(kfd::CREATE_PROCESS) {
        further_context(descriptor);
    }
    if is_about_queues(command)
        && lifecycle::is_ready()
        && let Some(answer) = intercept(descriptor, command, argument)
    {
        return answer;
    }
    // SAFETY: the arguments are the caller's own.
    unsafe { forward(descriptor, request, argument) }
}

/// Forwards the call to the next `ioctl`, or to the kernel if there is none.
///
/// # Safety
///
/// That of libc's function.
unsafe fn forward(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    static NEXT: Cached = Cached::new();
    let next = NEXT.get(|| elf::find_of_libc(c"ioctl"));
    // SAFETY: the arguments are the caller's own. A definition of `ioctl` in an object that is never unloaded
    // has the type `Real`, its third argument apart, which is a word in any case; the kernel takes the same
    // three words.
    unsafe {
        let Some(next) = next else {
            return libc::syscall(libc::SYS_ioctl, libc::c_long::from(descriptor), request, argument)
                as c_int;
        };
        std::mem::transmute::<NonNull<c_void>, Real>(next)(descriptor, request, argument)
    }
}

/// Returns true if a request with this number may be about the KFD's queues.
fn is_about_queues(command: u32) -> bool {
    matches!(
        kfd::request_number(command),
        Some(
            CreateQueue::NR
                | kfd::DestroyQueue::NR
                | kfd::UpdateQueue::NR
                | kfd::SetCuMask::NR
                | debug::RuntimeEnable::NR
        )
    )
}

/// Makes a request about this process's queues, and answers as libc does; `None` for any other request. The
/// argument may be any address.
#[cold]
fn intercept(descriptor: c_int, command: u32, argument: *mut c_void) -> Option<c_int> {
    let _uncancelled = Uncancelled::begin();
    let before = errno::get();
    let answer = make_request(descriptor, command, argument);
    let failed = answer.as_ref().and_then(|answer| answer.as_ref().err());
    errno::set(failed.map_or(before, |errno| errno.0));
    answer.map(|answer| answer.unwrap_or(-1))
}

/// Makes a request about this process's queues, and may change errno; `None` for any other request.
fn make_request(descriptor: c_int, command: u32, argument: *mut c_void) -> Option<Result<i32, Errno>> {
    let creates = kfd::request_number(command) == Some(CreateQueue::NR);
    let known = PREEMPTION.queues();
    if !known.map_or(creates, |queues| queues.is_for(descriptor)) {
        return None;
    }
    // An argument that the driver could not read, or not write its answer into, is the driver's to refuse.
    let mut bytes = Argument::copy(command, argument)?;
    let queues = match known {
        Some(queues) => queues,
        None => {
            let gpu_id = CreateQueue::from_bytes(&bytes.copy).gpu_id;
            // The exit handler has to run before those of libraries that wait for queues.
            // SAFETY: the descriptor is this process's. The runtime destroys a queue, which passes through
            // here, before it frees the memory of the queue's indices.
            unsafe { PREEMPTION.queues_for(descriptor, gpu_id, startup::handle_exit) }?
        }
    };
    let result = queues.registry.intercept(&Descriptor(descriptor), command, &mut bytes.copy)?;
    bytes.give_back();
    if creates && result.is_ok() {
        queues.created(CreateQueue::from_bytes(&bytes.copy).queue_id);
    }
    Some(result)
}

/// Reports that the program makes a further context, if the descriptor is the KFD's. Runs in any state of the
/// library.
#[cold]
fn further_context(descriptor: c_int) {
    if errno::kept(|| Kfd::recognise(descriptor).is_some()) {
        let _uncancelled = Uncancelled::begin();
        PREEMPTION.further_context_made(lifecycle::is_ready());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::ptr;

    /// Calls the exported function.
    fn call(descriptor: c_int, request: u32, argument: *mut c_void) -> c_int {
        // SAFETY: each caller passes an argument for its request, or one that the kernel refuses.
        unsafe { ioctl(descriptor, c_ulong::from(request), argument) }
    }

    #[test]
    fn ioctl_not_about_queues_is_forwarded_with_its_errno() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"12345").unwrap();
        let mut waiting: c_int = 0;
        errno::set(0);
        let asked = call(reader.as_raw_fd(), libc::FIONREAD as u32, ptr::from_mut(&mut waiting).cast());
        assert_eq!((asked, waiting, errno::get()), (0, 5, 0));
        assert_eq!((call(-1, libc::FIONREAD as u32, ptr::null_mut()), errno::get()), (-1, libc::EBADF));
    }

    #[test]
    fn ioctl_of_the_same_number_for_another_device_is_forwarded() {
        assert!(startup::starts_for(interception::Class::Resolve));
        let null = std::fs::File::open("/dev/null").unwrap();
        for command in [CreateQueue::COMMAND, kfd::DestroyQueue::COMMAND, kfd::UpdateQueue::COMMAND] {
            assert!(is_about_queues(command));
            let mut argument = [0u8; 256];
            let answer = call(null.as_raw_fd(), command, argument.as_mut_ptr().cast());
            assert_eq!((answer, errno::get()), (-1, libc::ENOTTY));
            // A null argument is the kernel's to refuse.
            assert_eq!(call(null.as_raw_fd(), command, ptr::null_mut()), -1);
        }
        assert!(PREEMPTION.queues().is_none());
        // A console's request, with the same letter.
        assert!(!is_about_queues(0x4b46));
    }
}
