//! Tries to load the library before a program depends on it.
//!
//! A library that needs a newer C library ends every program that it is preloaded into, before `main`. So
//! xcli first starts itself with the library preloaded but disabled. The child checks if the library is
//! loaded, and writes a word. If the trial cannot be made, the library counts as loadable.

use crate::error::Error;
use crate::table::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::CString;
use std::io::{Read as _, Write as _, stdout};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden command of `xcli` that the child runs.
pub const COMMAND: &str = "try-library";
/// The output of the child if the library is loaded.
const LOADED: &str = "loaded";
/// The output of the child if it is not.
const IGNORED: &str = "ignored";
/// The time limit. A trial takes about 5 ms.
const LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of output that are read.
const LONGEST: usize = 4096;

/// Tries to load the library in a child process.
///
/// # Errors
/// The dynamic loader refuses the library.
pub fn load(library: &Path) -> Result<(), Error> {
    // A program that gains rights when it starts ignores LD_PRELOAD, so a trial says nothing about other
    // programs.
    // SAFETY: reads a number from the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Ok(());
    }
    let Ok(this) = std::env::current_exe() else { return Ok(()) };
    let child = Command::new(this)
        .arg(COMMAND)
        .arg(library)
        .env("LD_PRELOAD", library)
        .env("XSCHED_DISABLE", "1")
        .env_remove("LD_DEBUG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return Ok(()) };
    let output = read(&mut child, Instant::now() + LIMIT);
    // The child has ended or hangs. If SIGCHLD is ignored the kernel has reaped it.
    let _ = child.kill();
    let _ = child.wait();
    match output {
        Some((output, errors)) => judge(&output, &errors),
        None => Ok(()),
    }
}

/// Reads both outputs of a child until it closes them; `None` after the time limit.
fn read(child: &mut Child, until: Instant) -> Option<(String, String)> {
    let (mut out, mut err) = (child.stdout.take()?, child.stderr.take()?);
    let (mut said, mut why) = (Vec::new(), Vec::new());
    let mut open = [true, true];
    while open != [false, false] {
        let left = Timespec::try_from(until.checked_duration_since(Instant::now())?).ok()?;
        let all = [PollFd::new(&out, PollFlags::IN), PollFd::new(&err, PollFlags::IN)];
        let mut ends: Vec<_> =
            all.into_iter().zip(open).filter(|(_, open)| *open).map(|(end, _)| end).collect();
        if poll(&mut ends, Some(&left)).ok()? == 0 {
            return None;
        }
        let mut ready = ends.iter().map(|end| !end.revents().is_empty());
        let ready = open.map(|open| open && ready.next().unwrap_or_default());
        let mut bytes = [0; 1024];
        if ready[0] {
            let length = out.read(&mut bytes).ok()?;
            open[0] = take(&mut said, &bytes[..length]);
        }
        if ready[1] {
            let length = err.read(&mut bytes).ok()?;
            open[1] = take(&mut why, &bytes[..length]);
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some((text(said), text(why)))
}

/// Keeps the bytes that were read. Returns true if more may come.
fn take(all: &mut Vec<u8>, bytes: &[u8]) -> bool {
    all.extend_from_slice(&bytes[..bytes.len().min(LONGEST - all.len())]);
    !bytes.is_empty()
}

fn judge(output: &str, errors: &str) -> Result<(), Error> {
    let reason = errors.lines().map(str::trim).find(|line| !line.is_empty());
    match (output.trim(), reason) {
        (LOADED, _) => Ok(()),
        // The child was killed before it wrote anything.
        ("", None) => Ok(()),
        (_, Some(reason)) => Err(Error::LibraryRefused(plain(reason.trim_start_matches("ERROR: ld.so: ")))),
        (_, None) => Err(Error::LibraryIgnored),
    }
}

/// The work of the child: reports if the library is loaded into this process.
pub fn child(library: &Path) {
    let Ok(path) = CString::new(library.as_os_str().as_bytes()) else { return };
    // SAFETY: the path ends with a zero, and RTLD_NOLOAD loads nothing.
    let found = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // The parent may have stopped reading.
    let _ = writeln!(stdout(), "{}", if found.is_null() { IGNORED } else { LOADED });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judge_refuses_only_what_the_loader_refused() {
        assert_eq!(judge("loaded\n", "some warning\n"), Ok(()));
        assert_eq!(judge("", ""), Ok(()), "a killed child proves nothing");
        let refused = "ERROR: ld.so: object '/x/lib.so' from LD_PRELOAD cannot be preloaded: ignored.\n";
        let reason = "object '/x/lib.so' from LD_PRELOAD cannot be preloaded: ignored.";
        assert_eq!(judge("ignored\n", refused), Err(Error::LibraryRefused(reason.to_owned())));
        assert_eq!(judge("ignored\n", ""), Err(Error::LibraryIgnored));
        let newer = "xcli: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /x/lib.so)\n";
        assert!(matches!(judge("", newer), Err(Error::LibraryRefused(why)) if why.contains("GLIBC_2.99")));
    }

    #[test]
    fn read_takes_both_outputs_and_not_more_than_it_may() {
        let shell = |script: &str| {
            Command::new("sh")
                .args(["-c", script])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("a shell")
        };
        let within = |time: Duration| Instant::now() + time;
        let mut child = shell("echo why >&2; exec 2>&-; echo said");
        let both = Some(("said\n".to_owned(), "why\n".to_owned()));
        assert_eq!(read(&mut child, within(LIMIT)), both);
        child.wait().expect("it has ended");
        let mut child = shell("head -c 100000 /dev/zero");
        assert_eq!(read(&mut child, within(LIMIT)).map(|(said, _)| said.len()), Some(LONGEST));
        child.wait().expect("it has ended");
        // A child that keeps its output open is abandoned.
        let mut child = shell("exec sleep 600");
        assert_eq!(read(&mut child, within(Duration::from_millis(50))), None);
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }
}
