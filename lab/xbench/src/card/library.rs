//! The functions of `include/xsched` that a worker calls, found in the library in front of it.

use anyhow::{Result, bail};
use hip_sys::types::hipStream_t;
use libloading::os::unix::Library as Global;
use protocol::codes::{KfdQueue, KfdQueueType, KfdResult};
use std::ffi::c_int;
use std::ptr;

/// The functions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Library {
    hip_queue_create: unsafe extern "C" fn(*mut u64, hipStream_t) -> c_int,
    queue_get: unsafe extern "C" fn(*mut u64, u64) -> c_int,
    queue_set_launch_config: unsafe extern "C" fn(u64, i64, i64) -> c_int,
    queue_suspend: unsafe extern "C" fn(u64, i64) -> c_int,
    queue_resume: unsafe extern "C" fn(u64, i64) -> c_int,
    kfd_open: unsafe extern "C" fn(*mut u64, i32) -> c_int,
    kfd_list_queues: unsafe extern "C" fn(u64, *mut KfdQueue, *mut u32) -> c_int,
    kfd_suspend: unsafe extern "C" fn(u64, *const u32, u32) -> c_int,
    kfd_resume: unsafe extern "C" fn(u64, *const u32, u32) -> c_int,
}

/// More queues than a process has.
const MOST_QUEUES: usize = 256;

impl Library {
    /// The library that this process was started with, if there is one.
    pub(super) fn find() -> Option<Self> {
        let global = Global::this();
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the type of the field is the prototype of the public header; what is preloaded stays loaded.
                *unsafe { global.get(concat!($name, "\0").as_bytes()) }.ok()?
            }};
        }
        Some(Self {
            hip_queue_create: function!("HipQueueCreate"),
            queue_get: function!("XQueueGet"),
            queue_set_launch_config: function!("XQueueSetLaunchConfig"),
            queue_suspend: function!("XQueueSuspend"),
            queue_resume: function!("XQueueResume"),
            kfd_open: function!("XKfdOpen"),
            kfd_list_queues: function!("XKfdListQueues"),
            kfd_suspend: function!("XKfdSuspend"),
            kfd_resume: function!("XKfdResume"),
        })
    }

    /// The XQueue of a stream.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn queue(&self, stream: hipStream_t) -> Result<Queue<'_>> {
        let mut hardware = 0;
        // SAFETY: a place for the handle, and a live stream.
        done("HipQueueCreate", unsafe { (self.hip_queue_create)(&mut hardware, stream) })?;
        let mut handle = 0;
        // SAFETY: a place for the handle.
        done("XQueueGet", unsafe { (self.queue_get)(&mut handle, hardware) })?;
        Ok(Queue { library: self, handle })
    }

    /// A session about this process's own hardware queues.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn session(&self) -> Result<Session<'_>, KfdResult> {
        let mut handle = 0;
        // SAFETY: a place for the handle.
        kfd_done(unsafe { (self.kfd_open)(&mut handle, 0) })?;
        Ok(Session { library: self, handle })
    }
}

/// An XQueue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue<'a> {
    library: &'a Library,
    handle: u64,
}

impl Queue<'_> {
    /// At most so many commands in flight, and so many from mark to mark.
    pub(super) fn set_window(&self, threshold: u64, batch: u64) -> Result<()> {
        let (threshold, batch) = (i64::try_from(threshold)?, i64::try_from(batch)?);
        // SAFETY: takes numbers only, and checks them.
        let code = unsafe { (self.library.queue_set_launch_config)(self.handle, threshold, batch) };
        done("XQueueSetLaunchConfig", code)
    }

    pub(super) fn suspend(&self) -> Result<()> {
        // SAFETY: as above.
        done("XQueueSuspend", unsafe { (self.library.queue_suspend)(self.handle, 0) })
    }

    pub(super) fn resume(&self) -> Result<()> {
        // SAFETY: as above.
        done("XQueueResume", unsafe { (self.library.queue_resume)(self.handle, 0) })
    }
}

/// The hardware queues of this process. What it has suspended goes on when the process ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session<'a> {
    library: &'a Library,
    handle: u64,
}

impl Session<'_> {
    /// How many take kernels.
    pub(super) fn compute_queues(&self) -> Result<usize, KfdResult> {
        let mut queues = [KfdQueue::default(); MOST_QUEUES];
        let mut count = MOST_QUEUES as u32;
        // SAFETY: places for so many queues, and for their number.
        kfd_done(unsafe { (self.library.kfd_list_queues)(self.handle, queues.as_mut_ptr(), &mut count) })?;
        let known = queues.iter().take(count as usize);
        Ok(known.filter(|queue| queue.kind == KfdQueueType::Compute.number()).count())
    }

    /// Takes all of those off the hardware.
    pub(super) fn suspend(&self) -> Result<(), KfdResult> {
        // SAFETY: null with 0 means all.
        kfd_done(unsafe { (self.library.kfd_suspend)(self.handle, ptr::null(), 0) })
    }

    /// Puts them back.
    pub(super) fn resume(&self) -> Result<(), KfdResult> {
        // SAFETY: as above.
        kfd_done(unsafe { (self.library.kfd_resume)(self.handle, ptr::null(), 0) })
    }
}

fn done(call: &str, code: c_int) -> Result<()> {
    if code != 0 {
        bail!("{call} returned {code}");
    }
    Ok(())
}

fn kfd_done(code: c_int) -> Result<(), KfdResult> {
    match KfdResult::from_number(code.into()) {
        Some(KfdResult::Success) => Ok(()),
        Some(other) => Err(other),
        None => Err(KfdResult::ErrorUnknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_library_knows_that() {
        assert!(Library::find().is_none());
    }

    #[test]
    fn results_have_their_meaning() {
        assert_eq!(kfd_done(0), Ok(()));
        assert_eq!(kfd_done(6), Err(KfdResult::ErrorTimeout));
        assert_eq!(kfd_done(-7), Err(KfdResult::ErrorUnknown));
        assert!(done("X", 2).unwrap_err().to_string().contains("X returned 2"));
    }
}
