//! Comparison of users.
//!
//! A user namespace shows every id that it does not map as one number, the overflow id (`from_kuid_munged`,
//! kernel/user_namespace.c; `kernel.overflowuid`). Two processes with this id can belong to two users.

use std::fs;

/// `DEFAULT_OVERFLOWUID` of include/linux/highuid.h.
const OVERFLOW: u32 = 65_534;
/// The size of a map that contains every id (`4294967295`, `uid_map` of the first namespace).
const ALL: u64 = 0xffff_ffff;

/// Returns true if both ids certainly belong to the same user. Reads `/proc` to recognise the overflow id.
pub fn is_same(one: u32, other: u32) -> bool {
    one == other && {
        let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        let map = if is_overflow(one, &overflow) {
            fs::read_to_string("/proc/self/uid_map")
        } else {
            Ok(String::new())
        };
        names_a_user(one, &overflow, &map.unwrap_or_default())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
