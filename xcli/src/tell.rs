//! Lines for people on standard error, whatever becomes of them: a terminal that is gone, a full disk or a limit of file sizes is
//! no reason to end.

use std::fmt::Display;
use std::io::{Write as _, stderr};

/// Says a line.
pub fn tell(line: impl Display) {
    // A write beyond the limit of file sizes would end the process (SIGXFSZ), and a program that xcli becomes finds the signal as
    // it was.
    // SAFETY: a disposition that needs no function; nothing else here changes that of this signal.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // In one write, so that lines of several processes stay lines.
    let _ = stderr().write_all(format!("xcli: {line}\n").as_bytes());
    if before != libc::SIG_ERR {
        // SAFETY: what it was before.
        unsafe { libc::signal(libc::SIGXFSZ, before) };
    }
}
