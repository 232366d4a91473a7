//! Whether two user ids are one user's.
//!
//! In a user namespace every id that it does not map looks like one number, the overflow id (`from_kuid_munged`, kernel/user_namespace.c;
//! `kernel.overflowuid`): there two processes that seem to be the same user's may be two users'.

use std::fs;

/// `DEFAULT_OVERFLOWUID` of include/linux/highuid.h.
const OVERFLOW: u32 = 65_534;
/// The size of a map that leaves no id out (`4294967295`, `uid_map` of the first namespace).
const ALL: u64 = 0xffff_ffff;

/// Whether both are the same user's, as far as this process's user namespace can tell them apart. Reads `/proc` where it matters.
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

/// By the contents of both files. Where every id is mapped, the overflow id is that of its user (`nobody`).
fn names_a_user(uid: u32, overflow: &str, map: &str) -> bool {
    let lengths = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    !is_overflow(uid, overflow) || lengths.sum::<u64>() >= ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_mapped_is_nobodys() {
        let (first, none) = ("         0          0 4294967295\n", "");
        assert!(names_a_user(65_534, "65534\n", first), "nobody has an id of its own");
        for map in [none, "0 1000 1\n", "0 0 65536\n"] {
            assert!(!names_a_user(65_534, "65534\n", map), "{map}");
            assert!(names_a_user(1000, "65534\n", map) && names_a_user(0, "65534\n", map));
        }
        assert!(!names_a_user(7, "7\n", none) && names_a_user(65_534, "7\n", none));
        assert!(!names_a_user(65_534, "", none), "as the kernel has it if nobody says otherwise");
        assert!(names_a_user(65_534, "65534", "0 0 5\n5 5 4294967290\n"));
        assert!(is_same(1000, 1000) && !is_same(1000, 1001) && !is_same(1000, 65_534));
    }
}
