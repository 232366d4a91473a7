//! The default address of a server, and the checks of its directory.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The default instance: the port that users of XSched know.
pub const INSTANCE: &str = "50000";

/// The socket of the server for all users of a machine. Programs and users look for it first.
pub const SYSTEM_SOCKET: &str = "/run/giveway/xserver.sock";

/// The longest path that fits a Unix socket address, in bytes.
pub const LONGEST_PATH: usize = 107;

/// Returns the socket of an instance: `RUN/xsched/INSTANCE.sock`, where RUN is `/run` for root, else
/// `/run/user/UID` if that directory exists, else `/tmp/xsched-UID`, which only its owner may enter.
///
/// Server, client and user follow the same rule. It does not depend on the environment, so that a program
/// which cleans its environment before it starts another one does not lose the server.
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

/// Returns the sockets at which a program or a person of this user looks for the default server, in this order: the one for
/// all users, then the user's own.
pub fn candidates(uid: u32, is_directory: impl Fn(&Path) -> bool) -> [PathBuf; 2] {
    [PathBuf::from(SYSTEM_SOCKET), default_path(uid, INSTANCE, is_directory)]
}

/// Returns the number of directories above a server's socket that must belong to its user alone: those of
/// [`default_path`], also if the user has named that path. The rule does not restrict other paths.
pub fn private_directories(uid: u32, socket: &Path) -> usize {
    let folder = |exists| default_path(uid, INSTANCE, |_| exists).parent().map(Path::to_owned);
    match socket.parent().map(Path::to_owned) {
        // Includes `/tmp/xsched-UID`, which any user could have created.
        own if own == folder(false) && uid != 0 => 2,
        own if own == folder(true) => 1,
        _ => 0,
    }
}

/// Returns the reason why a directory is not one that only this user can enter, as the rest of a sentence
/// that begins with its path, or `None` if it is.
pub fn directory_fault(metadata: &Metadata, uid: u32) -> Option<String> {
    let why = if !metadata.is_dir() {
        "is not a directory".to_owned()
    } else if metadata.uid() != uid {
        format!("belongs to user {}", metadata.uid())
    } else if metadata.mode() & 0o077 != 0 {
        format!("has the mode {:o} instead of 700", metadata.mode() & 0o777)
    } else {
        return None;
    };
    Some(why + "; a server's directory is its user's alone")
}

/// Returns true if a word can name an instance: letters, digits, `-` and `_`, at most 32.
pub fn is_instance(word: &OsStr) -> bool {
    let word = word.as_encoded_bytes();
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=32).contains(&word.len()) && word.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_path_lies_in_the_run_directory_of_the_user() {
        let path = |uid, exists| default_path(uid, INSTANCE, |_| exists);
        assert_eq!(path(0, false), Path::new("/run/xsched/50000.sock"));
        assert_eq!(path(1000, true), Path::new("/run/user/1000/xsched/50000.sock"));
        assert_eq!(path(1000, false), Path::new("/tmp/xsched-1000/xsched/50000.sock"));
    }

    #[test]
    fn private_directories_are_those_of_the_default_path() {
        let private = |uid, path: &str| private_directories(uid, Path::new(path));
        assert_eq!(private(0, "/run/xsched/50000.sock"), 1);
        assert_eq!(private(1000, "/run/user/1000/xsched/night.sock"), 1);
        assert_eq!(private(1000, "/tmp/xsched-1000/xsched/50000.sock"), 2);
        let others = ["/tmp/xsched-1001/xsched/a.sock", "/run/xsched/a.sock", "/tmp/a.sock", "a.sock", "/"];
        assert_eq!(others.map(|path| private(1000, path)), [0; 5]);
        assert_eq!(private(0, "/tmp/xsched-0/xsched/a.sock"), 0);
    }

    #[test]
    fn instance_name_with_other_characters_is_refused() {
        for good in ["50000", "night-batch", "a_1"] {
            assert!(is_instance(good.as_ref()));
        }
        for bad in ["", "../x", "a b", "\n", &"x".repeat(33)] {
            assert!(!is_instance(bad.as_ref()));
        }
    }
}
