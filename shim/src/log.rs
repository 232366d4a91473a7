//! The log: each line is built in a buffer on the stack and written by one `write`.
//!
//! Everything is logged through `tracing`, and this is the subscriber. A line goes to standard error as it
//! was when the library started, or to the file of `XSCHED_LOG_FILE`. It never goes to standard output, nor
//! anywhere once the program has reused the descriptor's number. A line allocates nothing, takes no lock and
//! keeps errno. If its reader is gone or does not read, or the file's size is limited, the line is lost, and
//! the program goes on. The launch path logs nothing.

use agent::descriptor::{self, Identity};
use agent::errno;
use protocol::config::{Config, LogLevel};
use std::ffi::{CString, c_int};
use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The longest line; a longer one is cut off.
const LINE: usize = 1024;

/// The target of lines; its number is -1 if there is none.
static TARGET: Target = Target {
    number: AtomicI32::new(-1),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
    kind: AtomicU32::new(0),
};

/// A descriptor's number, and the identity of its file.
struct Target {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    kind: AtomicU32,
}

impl Target {
    /// Sends lines there from now on, or nowhere if the number is no descriptor.
    fn set(&self, number: c_int) {
        let Some(identity) = Identity::of(number) else {
            return self.number.store(-1, Ordering::Release);
        };
        self.device.store(identity.device, Ordering::Relaxed);
        self.inode.store(identity.inode, Ordering::Relaxed);
        self.kind.store(identity.kind, Ordering::Relaxed);
        self.number.store(number, Ordering::Release);
    }

    /// Returns the number and the kind of its file, if it is still the same file. Otherwise no line goes
    /// there again.
    fn get(&self) -> Option<(c_int, u32)> {
        let number = self.number.load(Ordering::Acquire);
        let identity = Identity {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
            kind: self.kind.load(Ordering::Relaxed),
        };
        if number >= 0 && Identity::of(number) != Some(identity) {
            self.number.store(-1, Ordering::Release);
            return None;
        }
        (number >= 0).then_some((number, identity.kind))
    }
}

/// The level in force, as the number of the last level that is written.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Error as u8);

/// Opens the log. Returns false if it was opened before in this process or in a parent, which then has logged
/// the errors of the configuration.
pub(crate) fn install(config: &Config) -> bool {
    set_level(config);
    if tracing::subscriber::set_global_default(Writer).is_err() {
        return false;
    }
    std::panic::set_hook(Box::new(|panic| {
        let mut line = Line::new();
        // A line that is too long is cut off.
        let _ = write!(line, "error: {panic}");
        line.send();
    }));
    aim(config);
    true
}

pub(crate) fn set_level(config: &Config) {
    LEVEL.store(config.log_level as u8, Ordering::Relaxed);
}

/// Sends lines to the target of the configuration from now on.
pub(crate) fn aim(config: &Config) {
    let error = match config.log_file.as_deref() {
        Some(path) => open(path).err(),
        None => {
            TARGET.set(standard_error());
            None
        }
    };
    if let (Some(path), Some(error)) = (&config.log_file, error) {
        TARGET.set(standard_error());
        tracing::warn!(
            "XSCHED_LOG_FILE={} is not usable (expected a file that can be written: {error}); \
             the default stays in force",
            path.as_os_str().to_string_lossy().escape_debug()
        );
    }
}

pub(crate) fn is_enabled(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Opens the log file, at a high number. A FIFO without a reader is refused, and a full one takes no line.
fn open(path: &Path) -> Result<(), std::io::Error> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags =
        libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: the path is a C string, and O_CREAT takes a mode.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
    if file < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else knows it.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // The low number is closed, unless the descriptor cannot be duplicated.
    TARGET.set(descriptor::lift(&file).unwrap_or_else(|_| file.into_raw_fd()));
    Ok(())
}

/// Returns standard error's number if it is open for writing, else -1. A process that was started without it
/// may have a data file there.
fn standard_error() -> c_int {
    // SAFETY: the call takes numbers; a number that is no descriptor is an error.
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
        // The buffer is longer than the prefix.
        let _ = line.write_str("xsched: ");
        line
    }

    /// Writes the line. Keeps errno.
    fn send(&mut self) {
        let end = self.length.min(LINE - 1);
        if let Some(last) = self.bytes.get_mut(end) {
            *last = b'\n';
        }
        let line = self.bytes.get(..=end).unwrap_or_default();
        errno::kept(|| {
            if let Some((number, kind)) = TARGET.get() {
                without_signals(|| write_all(number, kind, line));
            }
        });
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is left for the line break.
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

/// Writes without waiting for room: the reader may be slow, or be the program itself.
fn write_all(target: c_int, kind: u32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // Writing to a regular file does not block.
        if kind != libc::S_IFREG && !has_room(target) {
            return;
        }
        // SAFETY: pointer and length are those of the slice.
        let written = unsafe { libc::write(target, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) if errno::get() == libc::EINTR => {}
            // The target is full or closed, and the line is lost.
            Err(_) => return,
        }
    }
}

/// Returns true if a write of one line would not block: a pipe with any room has room for a page.
fn has_room(target: c_int) -> bool {
    const { assert!(LINE <= libc::PIPE_BUF) };
    let mut polled = libc::pollfd { fd: target, events: libc::POLLOUT, revents: 0 };
    // SAFETY: pointer and count are those of one structure.
    let ready = unsafe { libc::poll(&mut polled, 1, 0) };
    // A write to a closed target fails at once.
    ready > 0
}

/// The signals that a write may cause: the reader is gone, or the file has its largest size.
const CAUSED: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Runs `body`, and discards signals that its writes cause. A signal that was pending before stays pending.
fn without_signals(body: impl FnOnce()) {
    let pending = CAUSED.map(is_pending);
    let mut before = MaybeUninit::uninit();
    // SAFETY: both sets are valid. The call changes only this thread's mask, which is restored below.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(&CAUSED), before.as_mut_ptr()) };
    body();
    for (signal, pending) in CAUSED.into_iter().zip(pending) {
        if !pending && is_pending(signal) {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: all pointers are valid or null.
            unsafe { libc::sigtimedwait(&set_of(&[signal]), ptr::null_mut(), &at_once) };
        }
    }
    // SAFETY: the first call has filled `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
}

fn set_of(signals: &[c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set, to which the others add valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn is_pending(signal: c_int) -> bool {
    let mut set = MaybeUninit::uninit();
    // SAFETY: a successful first call fills the set that the second one reads.
    unsafe { libc::sigpending(set.as_mut_ptr()) == 0 && libc::sigismember(set.as_ptr(), signal) == 1 }
}

/// The subscriber of this library's copy of `tracing`.
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

    // `enabled` turns spans off, so these are never called.
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
        // A line that is too long is cut off.
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
    fn line_has_no_break_and_fits_the_buffer() {
        let mut line = Line::new();
        let _ = write!(line, "a\nb{}", "x".repeat(2 * LINE));
        assert_eq!(line.length, LINE - 1);
        assert!(line.bytes.starts_with(b"xsched: a bxxx"));
    }

    #[test]
    fn write_to_closed_pipe_keeps_errno_and_raises_no_signal() {
        let mut ends = [0; 2];
        // SAFETY: the call fills an array of two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the reading end was made above.
        unsafe { libc::close(ends[0]) };
        // The test harness ignores SIGPIPE; a program does not.
        // SAFETY: the call takes numbers.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        errno::set(42);
        errno::kept(|| without_signals(|| write_all(ends[1], libc::S_IFIFO, b"lost\n")));
        assert_eq!(errno::get(), 42);
        assert!(!is_pending(libc::SIGPIPE));
        // SAFETY: the writing end was made above.
        unsafe { libc::close(ends[1]) };
    }
}
