//! Standard output and standard error of xcli.

use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _, stderr};

/// Writes to standard output. A reader that has closed the other end (`xcli list | head`) is not an error.
pub fn print(text: &str) -> io::Result<()> {
    print_on(text).map(drop)
}

/// Writes to standard output at once. Returns false if nobody reads any more.
pub fn print_on(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Writes a value to standard output, as JSON or as text.
pub fn show(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    Ok(print(&if json { serde_json::to_string_pretty(value)? + "\n" } else { text() })?)
}

/// Writes a line to standard error, and ignores a failure: a closed terminal or a full disk does not end
/// xcli.
pub fn warn(line: impl Display) {
    // A write beyond the limit of file sizes raises SIGXFSZ. The old disposition is restored for the program
    // that xcli becomes.
    // SAFETY: SIG_IGN runs no code, and no other thread changes the disposition of this signal.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // One write, so that the lines of several processes stay whole.
    let _ = stderr().write_all(format!("xcli: {line}\n").as_bytes());
    if before != libc::SIG_ERR {
        // SAFETY: `before` is the disposition that the kernel returned for this signal.
        unsafe { libc::signal(libc::SIGXFSZ, before) };
    }
}
