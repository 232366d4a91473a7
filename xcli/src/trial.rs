//! Whether the dynamic loader takes the library here, tried before a program depends on it.
//!
//! A library that needs a newer C library than the machine's ends every program that it is preloaded into, before `main`. So `xcli`
//! first starts itself with the library preloaded and inert. The child looks whether the library is there and writes a word. Where no
//! trial can be made nothing is known, and the library counts as good.

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
/// What the child writes if the library is in its process.
const LOADED: &str = "loaded";
/// What the child writes if it is not.
const IGNORED: &str = "ignored";
/// A trial takes 5 ms. A machine that takes longer than this is too busy for one.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest output of a child that is read, in bytes.
const LONGEST: usize = 4096;

/// Tries the library.
///
/// # Errors
/// The loader refuses it; the text is the loader's reason.
pub fn load(library: &Path) -> Result<(), String> {
    // With rights that its caller lacks a program ignores LD_PRELOAD, and the child has xcli's rights and not the program's.
    // SAFETY: reads a number that the kernel has left.
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
    // It has ended, or it hangs. Where SIGCHLD is ignored the kernel has reaped it.
    let _ = child.kill();
    let _ = child.wait();
    match output {
        Some((said, why)) => judge(&said, &why),
        None => Ok(()),
    }
}

/// What a child has written on both outputs until it closed them; `None` if it did not in time.
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

/// Keeps what was read; returns whether more may come.
fn take(all: &mut Vec<u8>, bytes: &[u8]) -> bool {
    all.extend_from_slice(&bytes[..bytes.len().min(LONGEST - all.len())]);
    !bytes.is_empty()
}

fn judge(said: &str, why: &str) -> Result<(), String> {
    let reason = why.lines().map(str::trim).find(|line| !line.is_empty());
    match (said.trim(), reason) {
        (LOADED, _) => Ok(()),
        // A child that was killed before it came to anything shows nothing.
        ("", None) => Ok(()),
        (_, Some(reason)) => Err(plain(reason.trim_start_matches("ERROR: ld.so: "))),
        (_, None) => Err("the dynamic loader does not load it".to_owned()),
    }
}

/// The work of the child: says whether the library is in this process.
pub fn child(library: &Path) {
    let Ok(path) = CString::new(library.as_os_str().as_bytes()) else { return };
    // SAFETY: a path that ends with a zero; with this flag nothing is loaded that is not loaded already.
    let found = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // Nobody may be reading any more.
    let _ = writeln!(stdout(), "{}", if found.is_null() { IGNORED } else { LOADED });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judge_refuses_only_what_the_loader_refused() {
        assert_eq!(judge("loaded\n", "some warning\n"), Ok(()));
        assert_eq!(judge("", ""), Ok(()), "a child that was killed shows nothing");
        let refused = "ERROR: ld.so: object '/x/lib.so' from LD_PRELOAD cannot be preloaded: ignored.\n";
        let reason = "object '/x/lib.so' from LD_PRELOAD cannot be preloaded: ignored.";
        assert_eq!(judge("ignored\n", refused), Err(reason.to_owned()));
        assert!(judge("ignored\n", "").unwrap_err().contains("does not load it"));
        let newer = "xcli: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /x/lib.so)\n";
        assert!(judge("", newer).unwrap_err().contains("version `GLIBC_2.99' not found"));
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
        // One that holds its output open is not waited for.
        let mut child = shell("exec sleep 600");
        assert_eq!(read(&mut child, within(Duration::from_millis(50))), None);
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }
}
