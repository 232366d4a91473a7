//! `dlsym` and `dlvsym`, exported: programs that look HIP functions up by name get the hooks. And `dlopen`, which is passed
//! on as it is, for what it says about libraries that are bound past us (`bindings`).
//!
//! glibc decides by the return address whose look-up RTLD_NEXT and RTLD_DEFAULT are. A wrapper that called the real
//! function would make this library the one that asks, and an interposer behind us would find itself, without end.
//! So the exported functions are naked: they ask [`decide`] and then jump to the real function, the stack and the
//! arguments as the caller left them. Only where a hook is the answer do they return by themselves.
//!
//! A hook is the answer if the name is one of the table and would be found without this library as well: by a handle, in
//! the very runtime that the hook leads to; in the global scope, anywhere. It never is for RTLD_NEXT. The runtime itself,
//! its tools, and everybody while `XSCHED_DISABLE` holds, get what they would find without this library. All of this
//! works before constructors have run, allocates nothing of its own, and leaves `dlerror` as the real look-up has set it.

use super::entry::{self, Entry};
use super::loader::{self, Object};
use super::{bindings, exports, runtime};
use crate::environment;
use crate::thread::Thread;
use agent::errno;
use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// What the exported function does: jump there with the caller's arguments, or return the address.
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

/// The body of an exported function: asks `decide` with the caller's arguments and, in `register`, the return address.
macro_rules! ask {
    ($decide:ident, return address in $register:literal) => {
        // On entry the stack is 8 off a multiple of 16; saving three words puts it right. The return address is above.
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

/// `dlopen`, as libc declares it: only notices who wants to be bound past us.
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
    bindings::look();
    let jump = Decision::jump(real as *const c_void);
    // SAFETY: the name is the caller's, a C string or null.
    let Some((entry, name)) = (unsafe { candidate(handle, name) }) else {
        return jump;
    };
    // What comes next by our own reckoning, and everything else by whoever is next to be asked.
    let look_up = |handle| match (handle == libc::RTLD_NEXT, loader::dlsym()) {
        // SAFETY: a pseudo handle, and the name is a C string.
        (true, Some(linkers)) => unsafe { linkers(handle, name.as_ptr()) },
        // SAFETY: the handle is the caller's or a pseudo handle, the name a C string.
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
    bindings::look();
    let jump = Decision::jump(real as *const c_void);
    // SAFETY: the name is the caller's, a C string or null.
    if let Some(ours) = unsafe { next_of_the_linkers(handle, name, caller) } {
        return Decision::answer(ours);
    }
    // SAFETY: the name is the caller's, a C string or null.
    let Some((entry, name)) = (unsafe { candidate(handle, name) }) else {
        return jump;
    };
    // SAFETY: the handle is the caller's or a pseudo handle, name and version are C strings.
    let look_up = |handle| unsafe { real(handle, name.as_ptr(), version) };
    errno::kept(|| decide(entry, handle, caller, look_up)).unwrap_or(jump)
}

/// Our own function, for a hook of `dlsym` in front of us that asks for the one after it. It asks with libc's version, as
/// such hooks do, and a definition without a version would not be found.
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
    // SAFETY: not null, so that it is a C string.
    let ours = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"dlsym" => dlsym as *const c_void,
        b"dlvsym" => dlvsym as *const c_void,
        b"dlopen" => dlopen as *const c_void,
        _ => return None,
    };
    let us = Object::ours()?;
    Object::of(caller).is_some_and(|caller| caller.is_before(&us)).then_some(ours)
}

/// The entry of a name that we export, unless the look-up is one for what comes next. Most names leave here.
///
/// # Safety
///
/// `name` is null or a C string; the result borrows it.
unsafe fn candidate<'a>(handle: *mut c_void, name: *const c_char) -> Option<(&'static Entry, &'a CStr)> {
    if handle == libc::RTLD_NEXT || name.is_null() {
        return None;
    }
    // SAFETY: not null, so that it is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !(bytes.starts_with(b"hip") || bytes.starts_with(b"__hip") || bytes.starts_with(b"_Z")) {
        return None;
    }
    Some((entry::find(name)?, name))
}

/// Decides for a name of the table; `None` leaves the look-up to the real function.
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
            // Whoever opened this very library asks for its own symbols.
            return None;
        }
        // The global scope, in which this library comes first. What would be found without it?
        found = look_up(libc::RTLD_NEXT);
        if found.is_null() && handle == libc::RTLD_DEFAULT {
            // Not in the global scope; perhaps among the libraries that the caller was loaded with.
            let local = caller.and_then(|caller| caller.with_handle(&look_up));
            found = local.filter(|&found| !is_in(found, &ours)).unwrap_or(ptr::null_mut());
            if found.is_null() {
                // Nowhere. Once more, for the error that the caller will ask for.
                found = look_up(libc::RTLD_NEXT);
            }
        }
    }
    let exempt = environment::is_disabled()
        || Thread::current().is_inside()
        || caller.is_some_and(|caller| runtime::is_one(&caller) || caller.is_named(&runtime::TOOLS));
    // In the global scope linked references lead here as well. Elsewhere it must be the runtime that the hook leads to:
    // of two copies, one's functions do not go with the other's.
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
    fn other_names_are_left_to_the_real_function() {
        for name in [c"malloc", c"hi", c"h", c"", c"hipNoSuchFunction", c"_Znwm"] {
            // SAFETY: the handle is a pseudo handle, the name a C string.
            let ours = unsafe { dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // SAFETY: as above.
            let theirs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(ours, theirs, "{name:?}");
            // SAFETY: as above; the version is a C string too.
            let ours = unsafe { dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
            // SAFETY: as above.
            let theirs = unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
            assert_eq!(ours, theirs, "{name:?}");
        }
    }

    #[test]
    fn the_next_object_is_that_after_the_caller() {
        // SAFETY: a pseudo handle and a C string.
        let next = unsafe { dlsym(libc::RTLD_NEXT, c"malloc".as_ptr()) };
        assert_eq!(next.cast_const(), libc::malloc as *const () as *const c_void);
    }
}
