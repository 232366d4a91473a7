//! The dynamic linker's own `dlsym` and `dlvsym`, and the loaded object of an address.
//!
//! Nothing here allocates or takes a lock of the library, so it works before any constructor has run.

use super::elf;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub(crate) type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// A function that is looked up once, in an object that is never unloaded.
pub(super) struct Cached(AtomicPtr<c_void>);

impl Cached {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the function, which the first successful `find` finds.
    pub(super) fn get(&self, find: impl FnOnce() -> Option<NonNull<c_void>>) -> Option<NonNull<c_void>> {
        NonNull::new(self.0.load(Ordering::Acquire)).or_else(|| {
            let found = find()?;
            self.0.store(found.as_ptr(), Ordering::Release);
            Some(found)
        })
    }
}

/// The versions under which glibc has exported `dlsym` on this architecture, newest first.
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// Returns the next `dlvsym` after ours ([`elf::find_of_libc`]).
pub(crate) fn dlvsym() -> Option<Dlvsym> {
    static DLVSYM: Cached = Cached::new();
    let found = DLVSYM.get(|| elf::find_of_libc(c"dlvsym"))?;
    // SAFETY: the pointer leads to a `dlvsym`.
    Some(unsafe { std::mem::transmute::<NonNull<c_void>, Dlvsym>(found) })
}

/// Returns the dynamic linker's own `dlsym`, for which RTLD_NEXT means the objects after this library.
pub(crate) fn dlsym() -> Option<Dlsym> {
    static DLSYM: Cached = Cached::new();
    let found = DLSYM.get(|| {
        let dlvsym = dlvsym()?;
        VERSIONS.iter().find_map(|version| {
            // SAFETY: RTLD_NEXT is a pseudo handle, and both names are C strings.
            NonNull::new(unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) })
        })
    })?;
    // SAFETY: the function of this name and version has this type.
    Some(unsafe { std::mem::transmute::<NonNull<c_void>, Dlsym>(found) })
}

/// Returns the next `dlsym` in the order of look-up, of any object: a program's call is forwarded to it.
pub(crate) fn next_dlsym() -> Option<Dlsym> {
    static NEXT_DLSYM: Cached = Cached::new();
    let found = NEXT_DLSYM.get(|| elf::find_of_libc(c"dlsym"))?;
    // SAFETY: the pointer leads to a `dlsym`.
    Some(unsafe { std::mem::transmute::<NonNull<c_void>, Dlsym>(found) })
}

/// Returns the next `dlopen` after ours ([`elf::find_of_libc`]).
pub(crate) fn dlopen() -> Option<NonNull<c_void>> {
    static DLOPEN: Cached = Cached::new();
    DLOPEN.get(|| elf::find_of_libc(c"dlopen"))
}

/// Looks a name up by the dynamic linker's own `dlsym`.
pub(crate) fn find(handle: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let dlsym = dlsym()?;
    // SAFETY: the handle is the dynamic linker's or a pseudo handle, and the name is a C string.
    NonNull::new(unsafe { dlsym(handle, name.as_ptr()) })
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Object {
    pub(crate) base: *const c_void,
    /// The path from which it was loaded; valid while it is loaded.
    path: *const c_char,
    /// The dynamic linker's description. It equals a handle of the object, but names cannot be looked up by
    /// it: an object that was loaded as a dependency has no scope of its own until it is opened.
    pub(crate) map: *mut c_void,
}

impl Object {
    pub(crate) fn of(address: *const c_void) -> Option<Self> {
        unsafe extern "C" {
            fn dladdr1(
                address: *const c_void,
                info: *mut libc::Dl_info,
                extra: *mut *mut c_void,
                flags: i32,
            ) -> i32;
        }
        const RTLD_DL_LINKMAP: i32 = 2;
        let mut info = MaybeUninit::<libc::Dl_info>::uninit();
        let mut map = ptr::null_mut();
        // SAFETY: any address may be asked for, and both places are valid.
        if unsafe { dladdr1(address, info.as_mut_ptr(), &mut map, RTLD_DL_LINKMAP) } == 0 {
            return None;
        }
        // SAFETY: the call succeeded, so it has filled the structure.
        let info = unsafe { info.assume_init() };
        Some(Self { base: info.dli_fbase, path: info.dli_fname, map })
    }

    /// Returns true if it comes before another one in the order of look-up. Only for libraries that the
    /// process was started with.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let mut map = other.map;
        while let Some(previous) = elf::previous(map) {
            if previous == self.map {
                return true;
            }
            map = previous;
        }
        false
    }

    /// Returns the object that contains this code.
    pub(crate) fn ours() -> Option<Self> {
        Self::of(Self::ours as *const () as *const c_void)
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.base == other.base
    }

    pub(crate) fn path(&self) -> &OsStr {
        if self.path.is_null() {
            return OsStr::new("");
        }
        // SAFETY: the path is a C string that is valid while the object is loaded. It is loaded: its code is
        // on the stack, or its address has just been looked up.
        OsStr::from_bytes(unsafe { CStr::from_ptr(self.path) }.to_bytes())
    }

    /// Runs `body` with a handle to look names up in the object and its dependencies.
    pub(crate) fn with_handle<R>(&self, body: impl FnOnce(*mut c_void) -> R) -> Option<R> {
        // SAFETY: the path is a C string as in `path`. The object is loaded, so no initialiser runs.
        let handle = unsafe { libc::dlopen(self.path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // Another thread may have unloaded this object and loaded another one from its path.
        let result = (handle == self.map).then(|| body(handle));
        // SAFETY: the handle was opened above. The object stays loaded by its other handles.
        unsafe { libc::dlclose(handle) };
        result
    }

    /// Returns true if the file name begins with one of these.
    pub(crate) fn is_named(&self, names: &[&str]) -> bool {
        let path = self.path().as_bytes();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        names.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_uses_the_real_dlsym() {
        let malloc = find(libc::RTLD_DEFAULT, c"malloc").expect("libc has malloc");
        assert_eq!(malloc.as_ptr().cast_const(), libc::malloc as *const () as *const c_void);
        assert_eq!(find(libc::RTLD_DEFAULT, c"no_such_function_anywhere"), None);
    }

    #[test]
    fn object_of_returns_the_containing_object() {
        let ours = Object::ours().expect("this code is in an object");
        let libc = Object::of(libc::malloc as *const () as *const c_void).expect("so is libc's");
        assert!(ours.is(&ours) && !ours.is(&libc));
        assert!(libc.is_named(&["libc.so"]) && !libc.is_named(&["libm.so"]), "{libc:?}");
        assert!(Object::of(ptr::null()).is_none());
        let found = libc.with_handle(|handle| {
            assert_eq!(handle, libc.map, "a handle can be recognised");
            find(handle, c"dlsym")
        });
        assert_eq!(found, Some(elf::find_after_us(c"dlsym")));
        let replaced = Object { map: ours.map, ..libc };
        assert_eq!(replaced.with_handle(|_| ()), None, "another object has its path now");
    }
}
