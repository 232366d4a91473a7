//! The process's `XSCHED_*` variables: their values at its start, and those that the program has set since, until
//! it uses a device.
//!
//! A constructor copies them into static memory, which is all that ever happens in a process without HIP: no
//! allocation, no call into libc. When HIP is first used they are read once more ([`refresh`]), when the runtime
//! reads its own, and never later, because the program's threads may change them at any time. A variable that is
//! gone by then keeps its value: a program that clears its environment does not do it to change this library. A hook
//! that runs before the constructor (another library's constructor may call HIP) reads the environment in place: so
//! early no other thread changes it.

use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Room for all variables together, their names included.
const CAPACITY: usize = 8192;

/// The entries `NAME=value`, each with a final NUL, and their total length.
struct Remembered {
    bytes: UnsafeCell<[u8; CAPACITY]>,
    /// The number of bytes in use plus one; 0 until the constructor has run.
    used: AtomicUsize,
}

// SAFETY: only the constructor writes `bytes`, before it stores `used` with release. A reader has first seen `used`
// not zero by an acquiring load.
unsafe impl Sync for Remembered {}

static REMEMBERED: Remembered =
    Remembered { bytes: UnsafeCell::new([0; CAPACITY]), used: AtomicUsize::new(0) };

/// The variables as [`refresh`] last read them, if they had changed: null, or leaked.
static CHANGED: AtomicPtr<Vec<u8>> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Runs before `main`, in every process that the library is preloaded into.
#[ctor::ctor(unsafe)]
fn remember() {
    // SAFETY: the dynamic linker runs a constructor once, so this is the only writer, and `used` is still zero, so
    // that there is no reader.
    let bytes = unsafe { &mut *REMEMBERED.bytes.get() };
    let mut used = 0;
    for entry in in_place() {
        let end = used + entry.len();
        // An entry that does not fit is left out as a whole. No real environment has 8 KiB of these variables.
        if let Some(room) = bytes.get_mut(used..end + 1) {
            let (text, nul) = room.split_at_mut(entry.len());
            text.copy_from_slice(entry);
            nul.fill(0);
            used = end + 1;
        }
    }
    REMEMBERED.used.store(used + 1, Ordering::Release);
}

/// Reads the variables again. Returns true if they have changed.
///
/// Called when HIP is first used: the runtime reads its own variables then, so a thread that changes the environment
/// at that time disturbs the runtime as well.
pub(crate) fn refresh() -> bool {
    let mut now = Vec::new();
    for entry in in_place() {
        now.extend_from_slice(entry);
        now.push(0);
    }
    if now == changed().unwrap_or_else(remembered) {
        return false;
    }
    // Leaks a few bytes at each first use of HIP, in this process and in those that it was forked from.
    CHANGED.store(Box::into_raw(Box::new(now)), Ordering::Release);
    true
}

/// Returns the variables that were read last.
fn changed() -> Option<&'static [u8]> {
    // SAFETY: null, or leaked by `refresh`.
    unsafe { CHANGED.load(Ordering::Acquire).as_ref() }.map(Vec::as_slice)
}

/// Returns the variables that the constructor has read; empty before it has run.
fn remembered() -> &'static [u8] {
    let used = REMEMBERED.used.load(Ordering::Acquire);
    if used == 0 {
        return &[];
    }
    // SAFETY: `used` is not zero, so the constructor has written the bytes, and nothing writes them again.
    let bytes: &'static [u8; CAPACITY] = unsafe { &*REMEMBERED.bytes.get() };
    bytes.get(..used - 1).unwrap_or_default()
}

/// Returns the value of a variable. An empty one counts as not set.
pub(crate) fn get(name: &str) -> Option<OsString> {
    with(name, OsStr::to_owned)
}

/// Returns true if `XSCHED_DISABLE` switches the library off. Allocates nothing.
pub(crate) fn is_disabled() -> bool {
    with("XSCHED_DISABLE", protocol::config::is_on).unwrap_or(false)
}

/// Calls `read` with the value that [`get`] would return. Allocates nothing.
pub(crate) fn with<T>(name: &str, read: impl FnOnce(&OsStr) -> T) -> Option<T> {
    let value_in = |entry: &'static [u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(OsStr::from_bytes(value))
    };
    let value = if REMEMBERED.used.load(Ordering::Acquire) == 0 {
        in_place().find_map(value_in)
    } else {
        let both = [changed().unwrap_or_default(), remembered()];
        both.iter().find_map(|entries| entries.split(|&byte| byte == 0).find_map(value_in))
    };
    value.filter(|value| !value.is_empty()).map(read)
}

/// Returns the entries of the environment that begin with `XSCHED_`.
fn in_place() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: libc keeps `environ` either null or at an array of C strings that a null pointer ends; this runs only
    // while the process starts up, before anything can change it, and where the runtime reads it as well ([`refresh`]).
    let mut next = unsafe { environ };
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: `next` is inside the array, whose null pointer has not been reached.
        let entry = unsafe { *next };
        if entry.is_null() {
            return None;
        }
        // SAFETY: the entry was not the last one, so that the array goes on.
        next = unsafe { next.add(1) };
        // SAFETY: an entry of the environment is a C string; libc never frees one.
        Some(unsafe { CStr::from_ptr(entry) }.to_bytes())
    })
    .filter(|entry| entry.starts_with(b"XSCHED_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constructor_has_run_before_any_test() {
        assert_ne!(REMEMBERED.used.load(Ordering::Acquire), 0);
        assert_eq!(get("XSCHED_NO_SUCH_VARIABLE"), None);
        assert_eq!(get("PATH"), None, "only the project's variables are kept");
    }

    #[test]
    fn variable_set_by_the_program_counts_from_the_next_read() {
        const NAME: &str = "XSCHED_TEST_OF_THE_ENVIRONMENT";
        assert_eq!(get(NAME), None);
        // SAFETY: no other test changes the environment, and libc's look-ups are safe beside one that adds a variable.
        unsafe { std::env::set_var(NAME, "1") };
        assert_eq!(get(NAME), None);
        assert!(refresh() && !refresh());
        assert_eq!(get(NAME).as_deref(), Some(OsStr::new("1")));
        // SAFETY: as above.
        unsafe { std::env::set_var(NAME, "") };
        assert!(refresh());
        assert_eq!(get(NAME), None, "empty is not set");
    }
}
