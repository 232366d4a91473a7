//! Names and comparison of users.
//!
//! A user namespace shows every id that it does not map as one number, the overflow id (`from_kuid_munged`,
//! kernel/user_namespace.c; `kernel.overflowuid`). Two processes with this id can belong to two users.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::{fs, io, ptr};

/// `DEFAULT_OVERFLOWUID` of include/linux/highuid.h.
const OVERFLOW: u32 = 65_534;
/// The size of a map that contains every id (`4294967295`, `uid_map` of the first namespace).
const ALL: u64 = 0xffff_ffff;

/// Returns true if both ids certainly belong to the same user. Reads `/proc` to recognise the overflow id.
pub fn is_same(one: u32, other: u32) -> bool {
    one == other && Namespace::read().is_same(one, other)
}

/// The mapping of user ids in this process's user namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    overflow: String,
    map: String,
}

impl Namespace {
    /// Reads `/proc`.
    pub fn read() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { overflow: read("/proc/sys/kernel/overflowuid"), map: read("/proc/self/uid_map") }
    }

    /// Returns true if both ids certainly belong to the same user.
    pub fn is_same(&self, one: u32, other: u32) -> bool {
        one == other && names_a_user(one, &self.overflow, &self.map)
    }
}

/// Returns true if the user namespace does not map the user with this id, so that nobody here can tell who that is.
pub fn is_unmapped(uid: u32) -> bool {
    !is_same(uid, uid)
}

fn is_overflow(uid: u32, overflow: &str) -> bool {
    uid == overflow.trim().parse().unwrap_or(OVERFLOW)
}

/// Returns true if the id stands for a single user, by the contents of both files. Where every id is mapped,
/// the overflow id stands for its own user (`nobody`).
fn names_a_user(uid: u32, overflow: &str, map: &str) -> bool {
    let lengths = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    !is_overflow(uid, overflow) || lengths.sum::<u64>() >= ALL
}

/// The first size of the buffer for an entry of the user database. The kernel has no limit for an entry.
const ENTRY: usize = 1 << 12;
/// The largest size: a group with some ten thousand members.
const LARGEST_ENTRY: usize = 1 << 22;

/// Returns the number of a user by name, from the system's databases; `None` if there is none. May wait for a network service.
///
/// # Errors
/// A database cannot be read.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    // SAFETY: `getpwnam_r` fills the entry or sets the result to null, and keeps nothing.
    look_up(name, |name, entry: *mut libc::passwd, bytes, length, found| unsafe {
        libc::getpwnam_r(name, entry, bytes, length, found)
    })
    .map(|found| found.map(|user| user.pw_uid))
}

/// Returns the number of a group by name, like [`uid_of`].
///
/// # Errors
/// A database cannot be read.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    // SAFETY: as for `getpwnam_r`.
    look_up(name, |name, entry: *mut libc::group, bytes, length, found| unsafe {
        libc::getgrnam_r(name, entry, bytes, length, found)
    })
    .map(|found| found.map(|group| group.gr_gid))
}

/// Calls a function of the family of `getpwnam_r` with a buffer that is large enough. The texts of the entry are gone
/// afterwards.
fn look_up<T: Copy>(
    name: &str,
    call: impl Fn(*const c_char, *mut T, *mut c_char, usize, *mut *mut T) -> c_int,
) -> io::Result<Option<T>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut bytes: Vec<c_char> = vec![0; ENTRY];
    loop {
        let mut entry = MaybeUninit::<T>::uninit();
        let mut found = ptr::null_mut();
        match call(name.as_ptr(), entry.as_mut_ptr(), bytes.as_mut_ptr(), bytes.len(), &raw mut found) {
            // SAFETY: the result points to the entry, which the call has filled.
            0 if !found.is_null() => return Ok(Some(unsafe { entry.assume_init() })),
            // Some databases report a missing entry as an error (getpwnam(3)).
            0 | libc::ENOENT | libc::ESRCH => return Ok(None),
            libc::EINTR => {}
            libc::ERANGE if bytes.len() < LARGEST_ENTRY => bytes.resize(bytes.len() * 4, 0),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name() {
        assert_eq!(uid_of("root").unwrap(), Some(0));
        assert_eq!(gid_of("root").unwrap(), Some(0));
        for none in ["no such user", "", "a\0b"] {
            assert_eq!((uid_of(none).unwrap(), gid_of(none).unwrap()), (None, None), "{none:?}");
        }
    }

    #[test]
    fn unmapped_id_stands_for_no_single_user() {
        let (first, none) = ("         0          0 4294967295\n", "");
        assert!(names_a_user(65_534, "65534\n", first), "nobody has an id of its own");
        for map in [none, "0 1000 1\n", "0 0 65536\n"] {
            assert!(!names_a_user(65_534, "65534\n", map), "{map}");
            assert!(names_a_user(1000, "65534\n", map) && names_a_user(0, "65534\n", map));
        }
        assert!(!names_a_user(7, "7\n", none) && names_a_user(65_534, "7\n", none));
        assert!(!names_a_user(65_534, "", none), "the default of the kernel");
        assert!(names_a_user(65_534, "65534", "0 0 5\n5 5 4294967290\n"));
        assert!(is_same(1000, 1000) && !is_same(1000, 1001) && !is_same(1000, 65_534));
    }
}
