//! Facts about a process from `/proc`. A name can be any bytes, and `/proc` can hide the processes of other
//! users.

use crate::error::Error;
use host::process::Status;

/// Reads the name of a process. It can hold control characters: make it [plain](crate::table::plain) for a
/// terminal.
///
/// # Errors
/// There is no such process, or `/proc` hides it.
pub fn name(pid: u32) -> Result<String, Error> {
    host::process::name(pid).map_err(|_| unseen(pid))
}

/// Reads the status of a process.
///
/// # Errors
/// There is no such process, `/proc` hides it, or it has ended.
pub fn status(pid: u32) -> Result<Status, Error> {
    let status = Status::read(pid).map_err(|_| unseen(pid))?;
    match status.has_ended() {
        true => Err(Error::EndedProcess(pid)),
        false => Ok(status),
    }
}

fn unseen(pid: u32) -> Error {
    // A hidden process looks like a missing one in /proc.
    if host::process::exists(pid) { Error::HiddenProcess(pid) } else { Error::NoProcess(pid) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// A name that the kernel cut inside a character, with an escape sequence for the terminal.
    #[test]
    fn name_of_arbitrary_bytes_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OsStr::from_bytes(b"\x1b]0;x\x07\xe3"));
        std::os::unix::fs::symlink("/bin/cat", &path).unwrap();
        let mut cat =
            Command::new(&path).arg0("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let found = loop {
            // Before `exec` the child has the name of our thread.
            let found = name(cat.id()).unwrap();
            if found.starts_with('\x1b') || cat.try_wait().unwrap().is_some() {
                break found;
            }
        };
        drop(cat.stdin.take());
        cat.wait().unwrap();
        assert_eq!(found, "\x1b]0;x\x07\u{fffd}");
    }

    #[test]
    fn missing_and_hidden_processes_are_told_apart() {
        assert!(!name(std::process::id()).unwrap().is_empty());
        assert!(status(std::process::id()).is_ok());
        for none in [0, u32::MAX] {
            assert_eq!(name(none), Err(Error::NoProcess(none)));
            assert_eq!(status(none).map(|_| ()), Err(Error::NoProcess(none)));
        }
        // This process exists: `unseen` takes it for one that /proc hides.
        assert_eq!(unseen(std::process::id()), Error::HiddenProcess(std::process::id()));
    }
}
