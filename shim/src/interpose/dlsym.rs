//! `dlsym` and `dlvsym`, exported: programs that look HIP functions up by name get the hooks. `dlopen` is
//! exported to notice libraries that are bound past this one (`bindings`), and forwarded unchanged.
//!
//! For RTLD_NEXT and RTLD_DEFAULT, glibc identifies the caller by the return address. A wrapper that called
//! the real function would make this library the caller, and an interposer after it would find itself,
//! without end. The exported functions are therefore naked: they ask [`decide`] and then jump to the real
//! function, with stack and arguments as the caller left them. They return by themselves only if a hook is
//! the answer.
//!
//! The answer is a hook if the name is in the table and is found without this library as well: by a handle,
//! in the runtime to which the hook leads; in the global scope, anywhere. For RTLD_NEXT it never is. The
//! runtime itself, its tools, and all callers while `XSCHED_DISABLE` is set get the functions that they would
//! find without this library. All of this works before constructors have run, allocates nothing of its own,
//! and keeps `dlerror` as the real look-up has set it.

use super::entry::{self, Entry};
use super::loader::{self, Object};
use super::{bindings, exports, runtime};
use crate::environment;
use crate::thread::Thread;
use agent::errno;
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// The decision of an exported function: a jump with the caller's arguments, or an address to return.
///
/// Two words, so that the calling convention returns it in `rax` and `rdx`.
#[repr(C)]
struct Decision {
    jump: *const c_void,
    address: *mut c_void,
}

impl Decision {
    fn jump(target: *const c_void) -> Self {
        Self { jump: target, address: ptr::null_mut() }
    }

    fn answer(address: *const c_void) -> Self {
        Self { jump: ptr::null(), address: address.cast_mut() }
    }
}

/// The body of an exported function: calls `decide` with the caller's arguments and, in `register`, the
/// return address.
macro_rules! ask {
    ($decide:ident, return address in $register:literal) => {
        // On entry the stack pointer is 8 off a multiple of 16, and saving three words aligns it. The return
        // address lies above them.
        naked_asm!(
            ".cfi_startproc",
            "push rdi",
            ".cfi_adjust_cfa_offset 8",
            "push rsi",
            ".cfi_adjust_cfa_offset 8",
            "push rdx",
            ".cfi_adjust_cfa_offset 8",
            concat!("mov ", $register, ", [rsp + 24]"),
            "call {decide}",
            "mov rcx, rdx",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "mov rax, rcx",
            "ret",
            ".cfi_endproc",
            decide = sym $decide,
        )
    };
}

/// `dlsym`, as libc declares it.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(any(test, races)), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    ask!(decide_dlsym, return address in "rdx")
}

/// `dlvsym`, as libc declares it.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(any(test, races)), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    ask!(decide_dlvsym, return address in "rcx")
}

/// `dlopen`, as libc declares it. Only notices RTLD_DEEPBIND.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(any(test, races)), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    ask!(decide_dlopen, return address in "rdx")
}

unsafe extern "C" fn decide_dlopen(_: *const c_char, flags: c_int, _: *const c_void) -> Decision {
    if flags & libc::RTLD_DEEPBIND != 0 && !environment::is_disabled() {
        bindings::expect();
    }
    match loader::dlopen() {
        Some(real) => Decision::jump(real.as_ptr()),
        None => Decision::answer(ptr::null()),
    }
}

unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> Decision {
    let Some(real) = loader::next_dlsym() else {
        return Decision::answer(ptr::null());
    };
    exports::register();
    bindings::correct();
    let jump = Decision::jump(real as *const c_void);
    // SAFETY: the name is a C string or null.
    let Some((entry, name)) = (unsafe { candidate(handle, name) }) else {
        return jump;
    };
    // RTLD_NEXT is looked up by the dynamic linker's own function, everything else by the next one.
    let look_up = |handle| match (handle == libc::RTLD_NEXT, loader::dlsym()) {
        // SAFETY: the handle is a pseudo handle, and the name is a C string.
        (true, Some(linkers)) => unsafe { linkers(handle, name.as_ptr()) },
        // SAFETY: the handle is the caller's or a pseudo handle, and the name is a C string.
        _ => unsafe { real(handle, name.as_ptr()) },
    };
    errno::kept(|| decide(entry, handle, caller, look_up)).unwrap_or(jump)
}

unsafe extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: *const c_void,
) -> Decision {
    let Some(real) = loader::dlvsym() else {
        return Decision::answer(ptr::null());
    };
    exports::register();
    bindings::correct();
    let jump = Decision::jump(real as *const c_void);
    // SAFETY: the name is a C string or null.
    if let Some(ours) = unsafe { next_of_the_linkers(handle, name, caller) } {
        return Decision::answer(ours);
    }
    // SAFETY: the name is a C string or null.
    let Some((entry, name)) = (unsafe { candidate(handle, name) }) else {
        return jump;
    };
    // SAFETY: the handle is the caller's or a pseudo handle, and name and version are C strings.
    let look_up = |handle| unsafe { real(handle, name.as_ptr(), version) };
    errno::kept(|| decide(entry, handle, caller, look_up)).unwrap_or(jump)
}

/// Returns our own function for an interposer of `dlsym` before this library that looks the next one up. Such
/// interposers ask for libc's version, which our unversioned definition does not match.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn next_of_the_linkers(
    handle: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
) -> Option<*const c_void> {
    if handle != libc::RTLD_NEXT || name.is_null() {
        return None;
    }
    // SAFETY: the name is not null, so it is a C string.
    let ours = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"dlsym" => dlsym as *const c_void,
        b"dlvsym" => dlvsym as *const c_void,
        b"dlopen" => dlopen as *const c_void,
        _ => return None,
    };
    let us = Object::ours()?;
    Object::of(caller).is_some_and(|caller| caller.is_before(&us)).then_some(ours)
}

/// Returns the entry of a name that this library exports, except for RTLD_NEXT. Most look-ups end here.
///
/// # Safety
///
/// `name` is null or a C string; the result borrows it.
unsafe fn candidate<'a>(handle: *mut c_void, name: *const c_char) -> Option<(&'static Entry, &'a CStr)> {
    if handle == libc::RTLD_NEXT || name.is_null() {
        return None;
    }
    // SAFETY: the name is not null, so it is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !(bytes.starts_with(b"hip") || bytes.starts_with(b"__hip") || bytes.starts_with(b"_Z")) {
        return None;
    }
    Some((entry::find(name)?, name))
}

/// Decides about a name of the table; `None` leaves the look-up to the real function.
fn decide(
    entry: &Entry,
    handle: *mut c_void,
    caller: *const c_void,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> Option<Decision> {
    let ours = Object::ours()?;
    let caller = Object::of(caller);
    if caller.is_some_and(|caller| caller.is(&ours)) {
        return None;
    }
    let mut found = look_up(handle);
    let in_global_scope = is_in(found, &ours);
    if in_global_scope {
        if handle == ours.map {
            // A caller that has opened this library asks for its own symbols.
            return None;
        }
        // This library comes first in the global scope. Find what it would find without it.
        found = look_up(libc::RTLD_NEXT);
        if found.is_null() && handle == libc::RTLD_DEFAULT {
            // It is not in the global scope, but may be among the caller's dependencies.
            let local = caller.and_then(|caller| caller.with_handle(&look_up));
            found = local.filter(|&found| !is_in(found, &ours)).unwrap_or(ptr::null_mut());
            if found.is_null() {
                // It is nowhere. Looked up again for the error that the caller will query.
                found = look_up(libc::RTLD_NEXT);
            }
        }
    }
    let exempt = environment::is_disabled()
        || Thread::current().is_inside()
        || caller.is_some_and(|caller| runtime::is_one(&caller) || caller.is_named(&runtime::TOOLS));
    // In the global scope, linked references lead here as well. Elsewhere it has to be the runtime to which
    // the hook leads: functions of two copies cannot be mixed.
    let hooked = !exempt && !found.is_null() && (in_global_scope || runtime::contains(found));
    if !hooked
        && !exempt
        && let Some(copy) = Object::of(found)
    {
        bindings::another_runtime(&copy);
    }
    Some(Decision::answer(if hooked { entry.hook() } else { found }))
}

fn is_in(address: *const c_void, object: &Object) -> bool {
    Object::of(address).is_some_and(|containing| containing.is(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dlsym_forwards_other_names() {
        for name in [c"malloc", c"hi", c"h", c"", c"hipNoSuchFunction", c"_Znwm"] {
            let (handle, version) = (libc::RTLD_DEFAULT, c"GLIBC_2.2.5");
            // SAFETY: the handle is a pseudo handle, and name and version are C strings.
            unsafe {
                assert_eq!(dlsym(handle, name.as_ptr()), libc::dlsym(handle, name.as_ptr()), "{name:?}");
                let ours = dlvsym(handle, name.as_ptr(), version.as_ptr());
                assert_eq!(ours, libc::dlvsym(handle, name.as_ptr(), version.as_ptr()), "{name:?}");
            }
        }
    }

    #[test]
    fn dlsym_next_is_relative_to_the_caller() {
        // SAFETY: the handle is a pseudo handle, and the name is a C string.
        let next = unsafe { dlsym(libc::RTLD_NEXT, c"malloc".as_ptr()) };
        assert_eq!(next.cast_const(), libc::malloc as *const () as *const c_void);
    }
}
