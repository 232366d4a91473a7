//! A debug session on a process: typed requests of DBG_TRAP. The mechanism `debug-trap` uses it on its own
//! process, and [`attach`](crate::attach) on another one.

use hip_sys::kfd::debug::{self, Operation, QUEUE_ERROR, QUEUE_INVALID, QueueEntry};

use crate::kernel::{Errno, Kernel, KernelExt as _};

/// The largest number of queues of one request that the driver accepts.
const MOST: usize = 1024;

/// The status of a queue after a suspend or resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspendStatus {
    /// The queue was suspended or resumed.
    Done,
    /// The queue was not changed: it is new to the debugger, being destroyed, or missing.
    Invalid,
    /// The hardware failed; the state of the queue is unknown.
    Failed,
}

/// Returns the status in the id of a queue, as the driver returned it.
fn fate(id: u32) -> SuspendStatus {
    match (id & QUEUE_ERROR != 0, id & QUEUE_INVALID != 0) {
        (true, _) => SuspendStatus::Failed,
        (false, true) => SuspendStatus::Invalid,
        (false, false) => SuspendStatus::Done,
    }
}

fn trap<A: Operation>(kernel: &dyn Kernel, pid: u32, operation: &mut A) -> Result<i32, Errno> {
    let mut argument = operation.on(pid);
    let result = kernel.call(&mut argument);
    *operation = argument.get();
    result
}

/// Begins a session on a process, without reports of exceptions. Returns the driver's record of its runtime.
///
/// # Errors
/// EPERM: the calling thread does not trace the other process. EALREADY: another debugger debugs it. ESRCH:
/// it has not opened the device. EINVAL: there is no hardware scheduling, or the driver is older than 1.13.
pub fn begin(kernel: &dyn Kernel, pid: u32) -> Result<debug::RuntimeInfo, Errno> {
    let mut info = debug::RuntimeInfo::default();
    // SAFETY: the call takes numbers only. It makes a descriptor or fails.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let mut enable = debug::Enable {
        rinfo_ptr: (&raw mut info) as u64,
        rinfo_size: size_of::<debug::RuntimeInfo>() as u32,
        dbg_fd: descriptor.cast_unsigned(),
        ..Default::default()
    };
    let result = trap(kernel, pid, &mut enable);
    // SAFETY: only this function uses the descriptor (or -1), and the driver has its own reference.
    unsafe { libc::close(descriptor) };
    result.map(|_| info)
}

/// Ends a session. Suspended queues run again.
///
/// # Errors
/// EINVAL: there is no session. EPERM: the calling thread does not trace the other process.
pub fn end(kernel: &dyn Kernel, pid: u32) -> Result<(), Errno> {
    trap(kernel, pid, &mut debug::Disable::default()).map(|_| ())
}

/// Returns the queues of the process, and marks new ones as known to the debugger, so that they can be
/// suspended.
///
/// # Errors
/// EINVAL: there is no session. EPERM: the calling thread does not trace the other process.
pub fn queues(kernel: &dyn Kernel, pid: u32) -> Result<Vec<QueueEntry>, Errno> {
    let mut entries = vec![QueueEntry::default(); MOST];
    let mut snapshot = debug::QueueSnapshot {
        exception_mask: debug::exception_bit(debug::EC_QUEUE_NEW),
        snapshot_buf_ptr: entries.as_mut_ptr() as u64,
        num_queues: MOST as u32,
        entry_size: size_of::<QueueEntry>() as u32,
    };
    trap(kernel, pid, &mut snapshot)?;
    entries.truncate(snapshot.num_queues as usize);
    Ok(entries)
}

/// Suspends queues. Returns the status of each, in order.
///
/// # Errors
/// The request as a whole failed. EPERM: the runtime of the process is not enabled for debugging, or the
/// calling thread does not trace the other process.
pub fn suspend(kernel: &dyn Kernel, pid: u32, ids: &[u32]) -> Result<Vec<SuspendStatus>, Errno> {
    each(ids, |at, count| {
        let mut all = debug::SuspendQueues {
            exception_mask: 0,
            queue_array_ptr: at,
            num_queues: count,
            grace_period: 0,
        };
        trap(kernel, pid, &mut all)
    })
}

/// Resumes suspended queues. Returns the status of each, in order.
///
/// # Errors
/// The same as for [`suspend`].
pub fn resume(kernel: &dyn Kernel, pid: u32, ids: &[u32]) -> Result<Vec<SuspendStatus>, Errno> {
    each(ids, |at, count| {
        trap(kernel, pid, &mut debug::ResumeQueues { queue_array_ptr: at, num_queues: count, pad: 0 })
    })
}

fn each(
    ids: &[u32],
    mut request: impl FnMut(u64, u32) -> Result<i32, Errno>,
) -> Result<Vec<SuspendStatus>, Errno> {
    let mut fates = Vec::with_capacity(ids.len());
    for part in ids.chunks(MOST) {
        let mut array = part.to_vec();
        request(array.as_mut_ptr() as u64, array.len() as u32)?;
        fates.extend(array.into_iter().map(fate));
    }
    Ok(fates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_from_returned_ids() {
        assert_eq!(fate(7), SuspendStatus::Done);
        assert_eq!(fate(7 | QUEUE_INVALID), SuspendStatus::Invalid);
        assert_eq!(fate(7 | QUEUE_ERROR), SuspendStatus::Failed);
        assert_eq!(fate(7 | QUEUE_ERROR | QUEUE_INVALID), SuspendStatus::Failed);
    }
}
