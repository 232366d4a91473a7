//! The C functions of `include/xsched`, found in the library that is preloaded into this process.

use crate::hip::{Stream, function_table};
use anyhow::{Result, bail};
use hip_sys::types::hipStream_t;
use libloading::os::unix::Library as Global;
use protocol::codes::{KfdQueue, KfdQueueType, KfdResult, XResult};
use std::ffi::c_int;
use std::ptr;

function_table! {
    Library {
        hip_queue_create: unsafe extern "C" fn(*mut u64, hipStream_t) -> c_int = "HipQueueCreate";
        queue_get: unsafe extern "C" fn(*mut u64, u64) -> c_int = "XQueueGet";
        queue_set_launch_config: unsafe extern "C" fn(u64, i64, i64) -> c_int = "XQueueSetLaunchConfig";
        queue_suspend: unsafe extern "C" fn(u64, i64) -> c_int = "XQueueSuspend";
        queue_resume: unsafe extern "C" fn(u64, i64) -> c_int = "XQueueResume";
        hint_priority: unsafe extern "C" fn(u64, i32) -> c_int = "XHintPriority";
        hint_arrival: unsafe extern "C" fn(u64, i64) -> c_int = "XHintArrival";
        kfd_open: unsafe extern "C" fn(*mut u64, i32) -> c_int = "XKfdOpen";
        kfd_list_queues: unsafe extern "C" fn(u64, *mut KfdQueue, *mut u32) -> c_int = "XKfdListQueues";
        kfd_suspend: unsafe extern "C" fn(u64, *const u32, u32) -> c_int = "XKfdSuspend";
        kfd_resume: unsafe extern "C" fn(u64, *const u32, u32) -> c_int = "XKfdResume";
    }
}

/// More queues than a process has.
const MOST_QUEUES: usize = 256;

impl Library {
    /// Finds the library that this process was started with; `None` if there is none.
    pub(crate) fn find() -> Option<Self> {
        let this = Box::leak(Box::new(Global::this().into()));
        // SAFETY: each type is the prototype of the public header; a preloaded library stays loaded.
        unsafe { Self::of(this) }.ok()
    }

    pub(crate) fn queue(self, stream: &Stream) -> Result<Queue> {
        let (mut hardware, mut handle) = (0, 0);
        // SAFETY: `hardware` is writable and the stream is live.
        check("HipQueueCreate", unsafe { (self.hip_queue_create)(&mut hardware, stream.handle()) })?;
        // SAFETY: `handle` is writable, and the function refuses a number that is no handle.
        check("XQueueGet", unsafe { (self.queue_get)(&mut handle, hardware) })?;
        Ok(Queue { library: self, handle })
    }

    /// Opens a session for this process's own hardware queues.
    pub(crate) fn session(self) -> Result<Session, KfdResult> {
        let mut handle = 0;
        // SAFETY: `handle` is writable.
        check_kfd(unsafe { (self.kfd_open)(&mut handle, 0) })?;
        Ok(Session { library: self, handle })
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    library: Library,
    handle: u64,
}

impl Queue {
    /// Sets how many commands may be in flight, and how many lie between two markers.
    pub(crate) fn set_window(self, threshold: u64, batch: u64) -> Result<()> {
        let (threshold, batch) = (i64::try_from(threshold)?, i64::try_from(batch)?);
        // SAFETY: takes numbers only, and checks them.
        let code = unsafe { (self.library.queue_set_launch_config)(self.handle, threshold, batch) };
        check("XQueueSetLaunchConfig", code)
    }

    pub(crate) fn suspend(self) -> Result<()> {
        // SAFETY: takes numbers only, and checks them.
        check("XQueueSuspend", unsafe { (self.library.queue_suspend)(self.handle, 0) })
    }

    pub(crate) fn resume(self) -> Result<()> {
        // SAFETY: takes numbers only, and checks them.
        check("XQueueResume", unsafe { (self.library.queue_resume)(self.handle, 0) })
    }

    /// Sets the priority: a bigger number is more urgent.
    pub(crate) fn set_priority(self, priority: i32) -> Result<()> {
        // SAFETY: takes numbers only, and checks them.
        check("XHintPriority", unsafe { (self.library.hint_priority)(self.handle, priority) })
    }

    /// Announces that work arrives in so many microseconds.
    pub(crate) fn hint_arrival(self, us: i64) -> Result<()> {
        // SAFETY: takes numbers only, and checks them.
        check("XHintArrival", unsafe { (self.library.hint_arrival)(self.handle, us) })
    }
}

/// The hardware queues of this process. The driver restores those that are evicted when the process ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    library: Library,
    handle: u64,
}

impl Session {
    pub(crate) fn compute_queues(self) -> Result<usize, KfdResult> {
        let mut queues = [KfdQueue::default(); MOST_QUEUES];
        let mut count = MOST_QUEUES as u32;
        // SAFETY: `queues` has room for `count` queues, and `count` is writable.
        check_kfd(unsafe { (self.library.kfd_list_queues)(self.handle, queues.as_mut_ptr(), &mut count) })?;
        let known = queues.iter().take(count as usize);
        Ok(known.filter(|queue| queue.kind == KfdQueueType::Compute.number()).count())
    }

    pub(crate) fn suspend(self) -> Result<(), KfdResult> {
        // SAFETY: a null list of length 0 means all queues.
        check_kfd(unsafe { (self.library.kfd_suspend)(self.handle, ptr::null(), 0) })
    }

    pub(crate) fn resume(self) -> Result<(), KfdResult> {
        // SAFETY: a null list of length 0 means all queues.
        check_kfd(unsafe { (self.library.kfd_resume)(self.handle, ptr::null(), 0) })
    }
}

fn check(call: &str, code: c_int) -> Result<()> {
    match XResult::from_number(code.into()) {
        Some(XResult::Success) => Ok(()),
        Some(known) => bail!("{call} returned {}", known.c_name()),
        None => bail!("{call} returned {code}"),
    }
}

fn check_kfd(code: c_int) -> Result<(), KfdResult> {
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
    fn process_without_the_library_finds_none() {
        assert!(Library::find().is_none());
    }

    #[test]
    fn result_codes_become_errors() {
        assert_eq!(check_kfd(0), Ok(()));
        assert_eq!(check_kfd(6), Err(KfdResult::ErrorTimeout));
        assert_eq!(check_kfd(-7), Err(KfdResult::ErrorUnknown));
        check("X", 0).unwrap();
        assert_eq!(check("X", -77).unwrap_err().to_string(), "X returned -77");
    }
}
