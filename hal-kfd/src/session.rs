//! A debug session on a process: DBG_TRAP's requests, typed. Used on the own process by the mechanism `debug-trap`, and on
//! another one from [`outside`](crate::outside).

use hip_sys::kfd::debug::{self, Operation, QUEUE_ERROR, QUEUE_INVALID, QueueEntry};

use crate::kernel::{Errno, Kernel, KernelExt as _};

/// Queues of one request at most, as the driver takes them.
pub const MOST: usize = 1024;

/// What became of a queue in a suspend or resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is as asked.
    Done,
    /// New to the debugger, being destroyed, or not there: nothing was done.
    Invalid,
    /// The hardware failed: its state is unknown.
    Failed,
}

/// Reads a queue's fate out of its id as it came back.
pub fn fate(id: u32) -> Fate {
    match (id & QUEUE_ERROR != 0, id & QUEUE_INVALID != 0) {
        (true, _) => Fate::Failed,
        (false, true) => Fate::Invalid,
        (false, false) => Fate::Done,
    }
}

fn trap<A: Operation>(kernel: &dyn Kernel, pid: u32, operation: &mut A) -> Result<i32, Errno> {
    let mut argument = operation.on(pid);
    let result = kernel.call(&mut argument);
    *operation = argument.get();
    result
}

/// Begins a session on a process, and tells what the driver knows of its runtime. Nothing is told of exceptions.
///
/// # Errors
/// EPERM: another process that the calling thread does not trace. EALREADY: somebody debugs it. ESRCH: it has not opened
/// the device. EINVAL: no hardware scheduling, or a driver before 1.13.
pub fn begin(kernel: &dyn Kernel, pid: u32) -> Result<debug::RuntimeInfo, Errno> {
    let mut info = debug::RuntimeInfo::default();
    // SAFETY: makes a descriptor or fails.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    let mut enable = debug::Enable {
        rinfo_ptr: (&raw mut info) as u64,
        rinfo_size: size_of::<debug::RuntimeInfo>() as u32,
        dbg_fd: descriptor.cast_unsigned(),
        ..Default::default()
    };
    let result = trap(kernel, pid, &mut enable);
    // SAFETY: ours (or no descriptor at all), and the driver has a reference of its own.
    unsafe { libc::close(descriptor) };
    result.map(|_| info)
}

/// Ends a session; everything suspended goes on.
///
/// # Errors
/// EINVAL: there is none. EPERM as above.
pub fn end(kernel: &dyn Kernel, pid: u32) -> Result<(), Errno> {
    trap(kernel, pid, &mut debug::Disable::default()).map(|_| ())
}

/// The process's queues. Those that were new are not any more, so that they can be suspended.
///
/// # Errors
/// EINVAL: there is no session. EPERM as above.
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

/// Takes queues off the hardware; the fate of each, in order.
///
/// # Errors
/// The request as a whole failed. EPERM: the process's runtime is not enabled for debugging, or the permission is gone.
pub fn suspend(kernel: &dyn Kernel, pid: u32, ids: &[u32]) -> Result<Vec<Fate>, Errno> {
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

/// Puts suspended queues back; the fate of each, in order.
///
/// # Errors
/// As [`suspend`].
pub fn resume(kernel: &dyn Kernel, pid: u32, ids: &[u32]) -> Result<Vec<Fate>, Errno> {
    each(ids, |at, count| {
        trap(kernel, pid, &mut debug::ResumeQueues { queue_array_ptr: at, num_queues: count, pad: 0 })
    })
}

/// Puts all suspended queues back; how many queues there are.
///
/// # Errors
/// As [`suspend`].
pub fn resume_all(kernel: &dyn Kernel, pid: u32) -> Result<usize, Errno> {
    trap(kernel, pid, &mut debug::ResumeQueues::default()).map(|count| usize::try_from(count).unwrap_or(0))
}

fn each(ids: &[u32], mut request: impl FnMut(u64, u32) -> Result<i32, Errno>) -> Result<Vec<Fate>, Errno> {
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
    fn ids_come_back_with_their_fate() {
        assert_eq!(fate(7), Fate::Done);
        assert_eq!(fate(7 | QUEUE_INVALID), Fate::Invalid);
        assert_eq!(fate(7 | QUEUE_ERROR), Fate::Failed);
        assert_eq!(fate(7 | QUEUE_ERROR | QUEUE_INVALID), Fate::Failed);
    }
}
