//! Writes the trace of this process while somebody records it ([`protocol::trace`]).
//!
//! Any thread writes: the launching ones, the worker, the listener. They find the memory file at an address that stays mapped
//! for the life of the process. While nobody records, private memory lies there, so that a thread that is late writes
//! into nothing.

use crate::clock::now;
use crate::pages::map;
use protocol::time::Time;
use protocol::trace::{Trace, TraceEvent, TraceKind};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use xqueue::{Domain, How, QueueId, Traced};

const BYTES: usize = size_of::<Trace>();
const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// The address range; never unmapped.
#[derive(Debug)]
struct Range(NonNull<c_void>);

// SAFETY: the mapping is never unmapped, and is only accessed as atomics.
unsafe impl Send for Range {}
// SAFETY: the mapping is never unmapped, and is only accessed as atomics.
unsafe impl Sync for Range {}

/// The trace of this process.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    range: OnceLock<Range>,
    on: AtomicBool,
    /// The last permission that was written.
    ran: AtomicBool,
}

impl Tracer {
    /// Returns true while somebody records.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Starts to write into a file.
    ///
    /// # Errors
    /// The file is not of the right size or could shrink, or it cannot be mapped.
    pub(crate) fn begin(&self, domain: &Domain, file: &OwnedFd, clock_offset: u64) -> io::Result<()> {
        check(file)?;
        let range = match self.range.get() {
            Some(range) => range,
            None => {
                let range = Range(map(ptr::null_mut(), BYTES, ACCESS, None)?);
                self.range.get_or_init(|| range)
            }
        };
        map(range.0.as_ptr(), BYTES, ACCESS, Some(file.as_fd()))?;
        if let Some(trace) = self.trace() {
            trace.set_clock_offset(clock_offset);
        }
        self.ran.store(domain.permission().run(), Ordering::Relaxed);
        self.on.store(true, Ordering::Release);
        domain.set_traced(true);
        self.write(now(), TraceKind::Permission, 0, 0, u64::from(domain.permission().run()));
        Ok(())
    }

    /// Stops to write.
    pub(crate) fn end(&self, domain: &Domain) {
        domain.set_traced(false);
        if self.on.swap(false, Ordering::AcqRel)
            && let Some(range) = self.range.get()
            && let Err(error) = map(range.0.as_ptr(), BYTES, ACCESS, None)
        {
            // The file stays mapped, and keeps its memory until the next trace.
            tracing::debug!(%error, "cannot give the trace's memory back");
        }
    }

    /// Returns the trace, or the private memory in its place; `None` before the first one.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        // SAFETY: the mapping is never unmapped, has the length of a `Trace` and is aligned to pages, as that is; any bytes
        // are valid atomics.
        self.range.get().map(|range| unsafe { range.0.cast::<Trace>().as_ref() })
    }

    /// Writes an event, if somebody records.
    pub(crate) fn write(&self, at: Time, kind: TraceKind, queue: u64, number: u64, value: u64) {
        if self.is_on()
            && let Some(trace) = self.trace()
        {
            // The lower bits are what an event has room for.
            let (queue, number) = (queue as u32, number as u32);
            trace.write(at, TraceEvent { kind, queue, number, value });
        }
    }

    /// Writes an event of a queue.
    pub(crate) fn traced(&self, at: Time, queue: QueueId, event: Traced) {
        let (kind, number, value) = match event {
            Traced::Launched { how, number, subject } => {
                let kind = match how {
                    How::Direct => TraceKind::Direct,
                    How::Deferred => TraceKind::Deferred,
                    How::InOrder => TraceKind::InOrder,
                };
                (kind, number, subject.0)
            }
            Traced::Submitted { subject } => (TraceKind::Submitted, 0, subject.0),
            Traced::Completed { number } => (TraceKind::Completed, number, 0),
        };
        self.write(at, kind, queue.0, number, value);
    }

    /// Writes the permission of the process, if it is another one than before.
    pub(crate) fn note_permission(&self, domain: &Domain) {
        let runs = domain.permission().run();
        if self.is_on() && self.ran.swap(runs, Ordering::Relaxed) != runs {
            self.write(now(), TraceKind::Permission, 0, 0, u64::from(runs));
        }
    }
}

/// Checks that the file has the right size and keeps it, so that no access to it fails.
fn check(file: &OwnedFd) -> io::Result<()> {
    let unfit = || io::Error::other("the file for the trace has another size, or can change it");
    // SAFETY: the structure consists of numbers, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills the structure.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes numbers and returns seals, or -1 for a file that has none.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    let fits = usize::try_from(stat.st_size) == Ok(BYTES) && seals >= 0 && seals & needed == needed;
    if fits { Ok(()) } else { Err(unfit()) }
}
