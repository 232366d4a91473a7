//! What the library says: one line at a time, from a buffer on the stack, by one `write`.
//!
//! Everything logs through `tracing`; this is the receiver. A line goes to standard error, whatever that is at the
//! time, or to the file of `XSCHED_LOG_FILE`; never to standard output. Nothing is allocated for a line, no lock is
//! taken, errno stays as it was, and a reader that has gone away does not end the program. The launch path logs
//! nothing.

use crate::errno;
use protocol::config::{Config, LogLevel};
use std::ffi::{CString, c_int};
use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Longest line; the rest of a longer one is cut off.
const LINE: usize = 1024;

/// Where lines go; -1 where they cannot go anywhere.
static TARGET: AtomicI32 = AtomicI32::new(-1);
/// The level in force, as the number of the last level that is written.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Error as u8);

/// Sends lines where the configuration says. False if this was done before in this process or in a parent: then what is
/// wrong with the configuration has been said.
pub(crate) fn install(config: &Config) -> bool {
    LEVEL.store(config.log_level as u8, Ordering::Relaxed);
    if tracing::subscriber::set_global_default(Writer).is_err() {
        return false;
    }
    std::panic::set_hook(Box::new(|panic| {
        let mut line = Line::new();
        // A line that is cut short is still a line.
        let _ = write!(line, "error: {panic}");
        line.send();
    }));
    let error = match config.log_file.as_deref() {
        Some(path) => open(path).err(),
        None => {
            TARGET.store(standard_error(), Ordering::Relaxed);
            None
        }
    };
    if let (Some(path), Some(error)) = (&config.log_file, error) {
        TARGET.store(standard_error(), Ordering::Relaxed);
        tracing::warn!(
            "XSCHED_LOG_FILE={} is not usable (expected a file that can be written: {error}); \
             the default stays in force",
            path.as_os_str().to_string_lossy().escape_debug()
        );
    }
    true
}

/// Whether lines of this level are written.
pub(crate) fn is_enabled(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Opens the log file above the numbers that programs expect for their own first files.
fn open(path: &Path) -> Result<(), std::io::Error> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the path is a C string, and the mode goes with O_CREAT.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if file < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: duplicates a descriptor that was just opened; nothing else knows it.
    let above = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 100) };
    if above < 0 {
        TARGET.store(file, Ordering::Relaxed);
        return Ok(());
    }
    // SAFETY: closes the lower of the two descriptors, which nothing else knows.
    unsafe { libc::close(file) };
    TARGET.store(above, Ordering::Relaxed);
    Ok(())
}

/// Standard error if it is open for writing. A process that was started without one may have a data file there.
fn standard_error() -> c_int {
    // SAFETY: asks for flags only; a number that is no descriptor is an error, not undefined.
    let flags = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL) };
    let writable = flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    if writable { libc::STDERR_FILENO } else { -1 }
}

/// One line under construction.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    fn new() -> Self {
        let mut line = Self { bytes: [0; LINE], length: 0 };
        // The buffer is longer than this.
        let _ = line.write_str("xsched: ");
        line
    }

    /// Writes the line, and leaves errno alone.
    fn send(&mut self) {
        let target = TARGET.load(Ordering::Relaxed);
        if target < 0 {
            return;
        }
        let end = self.length.min(LINE - 1);
        if let Some(last) = self.bytes.get_mut(end) {
            *last = b'\n';
        }
        errno::kept(|| without_sigpipe(|| write_all(target, self.bytes.get(..=end).unwrap_or_default())));
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is kept for the line break.
        for byte in text.bytes() {
            match self.bytes.get_mut(self.length) {
                Some(place) if self.length < LINE - 1 => *place = if byte == b'\n' { b' ' } else { byte },
                _ => return Err(fmt::Error),
            }
            self.length += 1;
        }
        Ok(())
    }
}

fn write_all(target: c_int, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: pointer and length are those of a slice.
        let written = unsafe { libc::write(target, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) if errno::get() == libc::EINTR => {}
            // Full, closed or gone: the line is lost, the program is not.
            Err(_) => return,
        }
    }
}

/// Runs `body`; a SIGPIPE that it causes never arrives. One that was pending before stays pending.
fn without_sigpipe(body: impl FnOnce()) {
    let mut pipe = MaybeUninit::uninit();
    // SAFETY: initialises the set that it is given.
    unsafe { libc::sigemptyset(pipe.as_mut_ptr()) };
    // SAFETY: the set was initialised above, and SIGPIPE is a signal.
    unsafe { libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: initialised above.
    let pipe: libc::sigset_t = unsafe { pipe.assume_init() };
    let pending = is_pending(libc::SIGPIPE);
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are valid for the call; it changes only this thread's mask and is undone below.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr()) };
    body();
    if !pending && is_pending(libc::SIGPIPE) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: takes a pending, blocked signal off this thread; all pointers are valid or null.
        unsafe { libc::sigtimedwait(&pipe, ptr::null_mut(), &at_once) };
    }
    // SAFETY: `before` was filled by the first call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
}

fn is_pending(signal: c_int) -> bool {
    let mut set = MaybeUninit::uninit();
    // SAFETY: fills the set that it is given.
    if unsafe { libc::sigpending(set.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call above succeeded, so that the set is initialised.
    unsafe { libc::sigismember(set.as_ptr(), signal) == 1 }
}

/// The receiver of everything that is logged in this process's copy of `tracing`.
struct Writer;

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && is_enabled(level_of(*metadata.level()))
    }

    fn event(&self, event: &Event<'_>) {
        if !self.enabled(event.metadata()) {
            return;
        }
        let mut line = Line::new();
        let level = event.metadata().level().as_str().as_bytes();
        for &byte in level {
            let _ = line.write_char(byte.to_ascii_lowercase().into());
        }
        let _ = line.write_str(": ");
        event.record(&mut line);
        line.send();
    }

    // Spans are off: `enabled` says so, and these are never called.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // A line that is cut short is still a line.
        let _ = match field.name() {
            "message" => write!(self, "{value:?}"),
            name => write!(self, " {name}={value:?}"),
        };
    }
}

fn level_of(level: Level) -> LogLevel {
    match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => LogLevel::Trace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_break_and_ends_where_the_buffer_does() {
        let mut line = Line::new();
        let _ = write!(line, "a\nb{}", "x".repeat(2 * LINE));
        assert_eq!(line.length, LINE - 1);
        assert!(line.bytes.starts_with(b"xsched: a bxxx"));
    }

    #[test]
    fn a_reader_that_is_gone_ends_neither_the_program_nor_errno() {
        let mut ends = [0; 2];
        // SAFETY: fills an array of two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: closes the reading end made above.
        unsafe { libc::close(ends[0]) };
        // SAFETY: the test harness ignores SIGPIPE; a program does not.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        errno::set(42);
        errno::kept(|| without_sigpipe(|| write_all(ends[1], b"lost\n")));
        assert_eq!(errno::get(), 42);
        assert!(!is_pending(libc::SIGPIPE));
        // SAFETY: closes the writing end made above.
        unsafe { libc::close(ends[1]) };
    }
}
