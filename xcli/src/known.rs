//! What `/proc` says of a process that somebody asks for: a name may be any bytes, and another user's process may be hidden.

use host::process::Status;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;

/// A process's name, whatever bytes it has; for a terminal it still has to be made [plain](crate::table::plain).
///
/// # Errors
/// There is no such process, or it cannot be seen; a sentence.
pub fn name(pid: u32) -> Result<String, String> {
    let name = fs::read(format!("/proc/{pid}/comm")).map_err(|_| unseen(pid))?;
    // Cut by the kernel at 15 bytes, also inside of a letter.
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// Its status.
///
/// # Errors
/// As of [`name`], or it has ended.
pub fn status(pid: u32) -> Result<Status, String> {
    let status = Status::read(pid).map_err(|_| unseen(pid))?;
    match status.has_ended() {
        true => Err(format!("process {pid} has ended, and its parent has not looked after it")),
        false => Ok(status),
    }
}

fn unseen(pid: u32) -> String {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Where /proc hides a process, it is as if there were none; whether there is one, a signal that is none tells.
    let exists = number.map(test_kill_process).is_some_and(|sent| matches!(sent, Ok(()) | Err(Errno::PERM)));
    if exists {
        format!("process {pid} may not be seen in /proc: ask as its user or root")
    } else {
        format!("there is no process {pid}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// The name of a program file, cut inside of a letter, and with a sequence for the terminal.
    #[test]
    fn a_name_of_any_bytes_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OsStr::from_bytes(b"\x1b]0;x\x07\xe3"));
        std::os::unix::fs::symlink("/bin/cat", &path).unwrap();
        let mut cat =
            Command::new(&path).arg0("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let found = loop {
            // Until it has become the other program it has our thread's name.
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
    fn whoever_has_no_name_is_not_there() {
        assert!(!name(std::process::id()).unwrap().is_empty());
        assert!(status(std::process::id()).is_ok());
        for none in [0, u32::MAX] {
            assert_eq!(name(none), Err(format!("there is no process {none}")));
            assert_eq!(status(none).map(|_| ()), Err(format!("there is no process {none}")));
        }
        // As if /proc hid it.
        assert!(unseen(std::process::id()).contains("ask as its user or root"));
    }
}
