//! Where a server listens if nobody says otherwise.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of the server that is meant if none is named: the port that users of XSched know.
pub const INSTANCE: &str = "50000";

/// The socket of an instance: `RUN/xsched/INSTANCE.sock`, where RUN is `/run` for root, else `/run/user/UID` if that
/// directory exists, else `/tmp/xsched-UID`, which only its owner may enter.
///
/// Server, client and user find it by the same rule, which asks nothing of the environment: a program that cleans its
/// environment before it starts another one does not lose the server.
pub fn default_path(uid: u32, instance: &str, is_directory: impl Fn(&Path) -> bool) -> PathBuf {
    let run = match uid {
        0 => PathBuf::from("/run"),
        _ => {
            let own = PathBuf::from(format!("/run/user/{uid}"));
            if is_directory(&own) { own } else { PathBuf::from(format!("/tmp/xsched-{uid}")) }
        }
    };
    run.join("xsched").join(format!("{instance}.sock"))
}

/// Whether a word can name an instance: letters, digits, `-` and `_`, at most 32.
pub fn is_instance(word: &OsStr) -> bool {
    let word = word.as_encoded_bytes();
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=32).contains(&word.len()) && word.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_lies_in_the_run_directory() {
        let path = |uid, exists| default_path(uid, INSTANCE, |_| exists);
        assert_eq!(path(0, false), Path::new("/run/xsched/50000.sock"));
        assert_eq!(path(1000, true), Path::new("/run/user/1000/xsched/50000.sock"));
        assert_eq!(path(1000, false), Path::new("/tmp/xsched-1000/xsched/50000.sock"));
    }

    #[test]
    fn an_instance_is_a_word() {
        for good in ["50000", "night-batch", "a_1"] {
            assert!(is_instance(good.as_ref()));
        }
        for bad in ["", "../x", "a b", "\n", &"x".repeat(33)] {
            assert!(!is_instance(bad.as_ref()));
        }
    }
}
