//! `xsched/kfd.h`: hardware queues of this process or of another one, taken off the hardware and put back.

use crate::lifecycle;
use crate::thread::Thread;
use crate::{errno, kfd};
use hal_kfd::outside::{Attachment, Problem};
use hal_kfd::queue::By;
use hal_kfd::registry::Queue;
use hal_kfd::session::Fate;
use hal_kfd::{Errno, Kfd, Outcome};
use hip_sys::kfd as driver;
use hip_sys::table::Class;
use parking_lot::Mutex;
use protocol::codes::{KfdQueueState, KfdResult, PreemptLevel};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::io::ErrorKind;
use std::slice;
use std::sync::Arc;

/// A hardware queue, as C has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct XKfdQueue {
    queue_id: u32,
    gpu_id: u32,
    kind: c_int,
    state: c_int,
    ring_address: u64,
    ring_size: u64,
    write_pointer_address: u64,
    read_pointer_address: u64,
}

const COMPUTE: c_int = 0;
const SDMA: c_int = 1;
const OTHER: c_int = 2;

/// Whose queues a session is about.
enum Session {
    /// This process; what was suspended by it.
    Own { suspended: BTreeSet<u32> },
    /// Another one, likewise.
    Other { attachment: Attachment, suspended: BTreeSet<u32> },
}

/// The open sessions of this process, by their handles.
struct Sessions {
    /// The process that they belong to: a forked child has none of them.
    pid: u32,
    last: u64,
    open: BTreeMap<u64, Arc<Mutex<Session>>>,
}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { pid: 0, last: 0, open: BTreeMap::new() });

type Result<T> = std::result::Result<T, KfdResult>;

/// Runs the body of a function: started, counted as being inside, its result as a number.
fn run(body: impl FnOnce() -> Result<()>) -> c_int {
    let thread = Thread::current();
    let outcome = errno::kept(|| {
        thread.inside(|| {
            if !(lifecycle::is_ready() || lifecycle::ready_for(Class::Lifecycle)) {
                return Err(KfdResult::ErrorNotSupported);
            }
            body()
        })
    });
    outcome.err().unwrap_or(KfdResult::Success).number()
}

fn session(handle: u64) -> Result<Arc<Mutex<Session>>> {
    let sessions = SESSIONS.lock();
    let ours = sessions.pid == std::process::id();
    sessions.open.get(&handle).filter(|_| ours).cloned().ok_or(KfdResult::ErrorNotFound)
}

/// What an error of the driver's means for a request about queues.
fn of_errno(errno: Errno) -> KfdResult {
    match errno.0 {
        libc::ETIME => KfdResult::ErrorTimeout,
        libc::EIO | libc::EACCES => KfdResult::ErrorGpuHung,
        libc::EPERM => KfdResult::ErrorNoPermission,
        // The driver's answer for a queue that it does not know.
        libc::EINVAL | libc::EFAULT => KfdResult::ErrorNotFound,
        libc::EBUSY | libc::EALREADY => KfdResult::ErrorNoPermission,
        libc::ENODEV | libc::ENOTTY => KfdResult::ErrorNotSupported,
        _ => KfdResult::ErrorUnknown,
    }
}

fn of_problem(problem: Problem) -> KfdResult {
    match problem {
        Problem::NoProcess | Problem::NoDevice => KfdResult::ErrorNotFound,
        Problem::NotTraceable(_) | Problem::Debugged => KfdResult::ErrorNoPermission,
        Problem::NotEnabled | Problem::NotSupported | Problem::Unsafe(_) => KfdResult::ErrorNotSupported,
        Problem::Lost => KfdResult::ErrorInvalidState,
        Problem::Hung(errno) | Problem::Failed(errno) => of_errno(errno),
    }
}

fn of_fate(fate: Fate) -> Result<()> {
    match fate {
        Fate::Done => Ok(()),
        Fate::Invalid => Err(KfdResult::ErrorInvalidState),
        Fate::Failed => Err(KfdResult::ErrorSaveFailed),
    }
}

pub(super) unsafe extern "C" fn open(handle: *mut u64, pid: i32) -> c_int {
    run(|| {
        if handle.is_null() || pid < 0 {
            return Err(KfdResult::ErrorInvalidValue);
        }
        let session = match u32::try_from(pid) {
            Ok(other) if other != 0 && other != std::process::id() => {
                let kernel = Kfd::open().map_err(|error| match error.kind() {
                    ErrorKind::PermissionDenied => KfdResult::ErrorNoPermission,
                    _ => KfdResult::ErrorNotSupported,
                })?;
                let attachment = Attachment::new(Arc::new(kernel), pid).map_err(of_problem)?;
                Session::Other { attachment, suspended: BTreeSet::new() }
            }
            _ => {
                // So that what a hold costs is measured on the first queue, if there is none yet.
                kfd::ask(PreemptLevel::Interrupt);
                Session::Own { suspended: BTreeSet::new() }
            }
        };
        let mut sessions = SESSIONS.lock();
        if sessions.pid != std::process::id() {
            sessions.pid = std::process::id();
            // The parent's: dropped here, they would end sessions that are none of this process's.
            std::mem::take(&mut sessions.open).into_values().for_each(std::mem::forget);
        }
        sessions.last += 1;
        let last = sessions.last;
        sessions.open.insert(last, Arc::new(Mutex::new(session)));
        // SAFETY: the caller's place, which is not null.
        unsafe { handle.write(last) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn close(handle: u64) -> c_int {
    run(|| {
        let session = session(handle)?;
        SESSIONS.lock().open.remove(&handle);
        // An attachment's end resumes what it has suspended.
        if let Session::Own { suspended } = &mut *session.lock()
            && let Some(context) = kfd::context()
        {
            for id in std::mem::take(suspended) {
                context.registry.set(id, false);
            }
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn list_queues(handle: u64, queues: *mut XKfdQueue, count: *mut u32) -> c_int {
    run(|| {
        if count.is_null() {
            return Err(KfdResult::ErrorInvalidValue);
        }
        // SAFETY: the caller's place, which is not null.
        let room = unsafe { count.read() };
        if queues.is_null() && room != 0 {
            return Err(KfdResult::ErrorInvalidValue);
        }
        let found = session(handle)?.lock().queues()?;
        for (index, queue) in found.iter().take(room as usize).enumerate() {
            // SAFETY: below `room`, so within the caller's array.
            let place = unsafe { queues.add(index) };
            // SAFETY: as above.
            unsafe { place.write(*queue) };
        }
        // SAFETY: as above.
        unsafe { count.write(u32::try_from(found.len()).unwrap_or(u32::MAX)) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn suspend(handle: u64, ids: *const u32, count: u32) -> c_int {
    run(|| {
        // SAFETY: as the caller of the function promises.
        let named = unsafe { named(ids, count) }?;
        session(handle)?.lock().suspend(named)
    })
}

pub(super) unsafe extern "C" fn resume(handle: u64, ids: *const u32, count: u32) -> c_int {
    run(|| {
        // SAFETY: as the caller of the function promises.
        let named = unsafe { named(ids, count) }?;
        session(handle)?.lock().resume(named)
    })
}

pub(super) unsafe extern "C" fn status(handle: u64, id: u32, state: *mut c_int) -> c_int {
    run(|| {
        if state.is_null() {
            return Err(KfdResult::ErrorInvalidValue);
        }
        let found = session(handle)?.lock().queues()?;
        let queue = found.iter().find(|queue| queue.queue_id == id).ok_or(KfdResult::ErrorNotFound)?;
        // SAFETY: the caller's place, which is not null.
        unsafe { state.write(queue.state) };
        Ok(())
    })
}

/// The queues that a caller names; nothing for all.
///
/// # Safety
///
/// `count` numbers are there, if the address is not null.
unsafe fn named(ids: *const u32, count: u32) -> Result<Option<Vec<u32>>> {
    match (ids.is_null(), count) {
        (_, 0) => Ok(None),
        (true, _) => Err(KfdResult::ErrorInvalidValue),
        // SAFETY: the caller's promise.
        (false, count) => Ok(Some(unsafe { slice::from_raw_parts(ids, count as usize) }.to_vec())),
    }
}

impl Session {
    fn queues(&self) -> Result<Vec<XKfdQueue>> {
        match self {
            Self::Own { .. } => {
                let queues = kfd::context().map(|context| context.registry.queues()).unwrap_or_default();
                Ok(queues.iter().map(own).collect())
            }
            Self::Other { attachment, suspended } => {
                let queues = attachment.queues().map_err(of_problem)?;
                Ok(queues
                    .iter()
                    .map(|queue| XKfdQueue {
                        queue_id: queue.queue_id,
                        gpu_id: queue.gpu_id,
                        kind: kind(queue.queue_type),
                        state: if suspended.contains(&queue.queue_id) {
                            KfdQueueState::Suspended.number()
                        } else {
                            KfdQueueState::Mapped.number()
                        },
                        ring_address: queue.ring_base_address,
                        ring_size: queue.ring_size.into(),
                        write_pointer_address: queue.write_pointer_address,
                        read_pointer_address: queue.read_pointer_address,
                    })
                    .collect())
            }
        }
    }

    /// The queues that are meant: those that were named, or all compute queues.
    fn meant(&self, named: Option<Vec<u32>>) -> Result<Vec<u32>> {
        match named {
            Some(ids) => Ok(ids),
            None => {
                let compute = self.queues()?.into_iter().filter(|queue| queue.kind == COMPUTE);
                Ok(compute.map(|queue| queue.queue_id).collect())
            }
        }
    }

    fn suspend(&mut self, named: Option<Vec<u32>>) -> Result<()> {
        let ids = self.meant(named)?;
        let known: BTreeSet<u32> = self.queues()?.iter().map(|queue| queue.queue_id).collect();
        if ids.iter().any(|id| !known.contains(id)) {
            return Err(KfdResult::ErrorNotFound);
        }
        match self {
            Self::Own { suspended } => {
                if !kfd::ask(PreemptLevel::Interrupt) || kfd::in_force().0 == PreemptLevel::Block {
                    return Err(KfdResult::ErrorNotSupported);
                }
                let context = kfd::context().ok_or(KfdResult::ErrorNotSupported)?;
                // A number can be another queue's by now.
                let held = |id: &u32| {
                    let queues = context.registry.queues();
                    queues.iter().any(|queue| queue.id == *id && queue.arbiter.held_by(By::User))
                };
                let mut begun = Vec::new();
                for id in ids.into_iter().filter(|id| !held(id)) {
                    begun.push(id);
                    if let Err(why) = of_outcome(&context.registry.set(id, true)) {
                        for id in begun {
                            context.registry.set(id, false);
                        }
                        return Err(why);
                    }
                }
                suspended.extend(begun);
                Ok(())
            }
            Self::Other { attachment, suspended } => {
                let ids: Vec<u32> = ids.into_iter().filter(|id| !suspended.contains(id)).collect();
                if ids.is_empty() {
                    return Ok(());
                }
                let fates = attachment.suspend(&ids).map_err(of_problem)?;
                let done: Vec<u32> = ids
                    .iter()
                    .zip(&fates)
                    .filter(|(_, fate)| **fate == Fate::Done)
                    .map(|(id, _)| *id)
                    .collect();
                match fates.into_iter().try_for_each(of_fate) {
                    Ok(()) => {
                        suspended.extend(done);
                        Ok(())
                    }
                    Err(why) => {
                        if !done.is_empty() && attachment.resume(&done).is_err() {
                            suspended.extend(done);
                        }
                        Err(why)
                    }
                }
            }
        }
    }

    fn resume(&mut self, named: Option<Vec<u32>>) -> Result<()> {
        match self {
            Self::Own { suspended } => {
                let ids = named.unwrap_or_else(|| suspended.iter().copied().collect());
                let Some(context) = kfd::context() else {
                    return if ids.is_empty() { Ok(()) } else { Err(KfdResult::ErrorNotFound) };
                };
                let mut first = Ok(());
                for id in ids {
                    // From here on it is not meant to be held; the registry goes on until the driver knows.
                    suspended.remove(&id);
                    first = first.and(of_outcome(&context.registry.set(id, false)));
                }
                first
            }
            Self::Other { attachment, suspended } => {
                let ids = match named {
                    Some(ids) => ids,
                    None => suspended.iter().copied().collect(),
                };
                if ids.is_empty() {
                    return Ok(());
                }
                let fates = attachment.resume(&ids).map_err(of_problem)?;
                for (id, fate) in ids.iter().zip(&fates) {
                    if *fate == Fate::Done {
                        suspended.remove(id);
                    }
                }
                fates.into_iter().try_for_each(of_fate)
            }
        }
    }
}

/// What became of one queue of this process.
fn of_outcome(outcome: &Outcome) -> Result<()> {
    match outcome.error {
        Some(errno) if outcome.unsettled != 0 || outcome.queues == 0 => Err(of_errno(errno)),
        _ => Ok(()),
    }
}

fn kind(queue_type: u32) -> c_int {
    match queue_type {
        driver::QUEUE_TYPE_COMPUTE | driver::QUEUE_TYPE_COMPUTE_AQL => COMPUTE,
        driver::QUEUE_TYPE_SDMA | driver::QUEUE_TYPE_SDMA_XGMI | driver::QUEUE_TYPE_SDMA_BY_ENG_ID => SDMA,
        _ => OTHER,
    }
}

fn own(queue: &Queue) -> XKfdQueue {
    let wish = queue.arbiter.wish();
    let held = queue.arbiter.held();
    let state = match (held, queue.suspended) {
        // The debugger's way keeps the one, the other way the other.
        (true, Some(true)) => KfdQueueState::Suspended,
        _ if queue.arbiter.is_off() => KfdQueueState::Suspended,
        (_, None) => KfdQueueState::Unknown,
        _ if !queue.arbiter.settled() && queue.suspended != Some(held) => KfdQueueState::Unknown,
        _ => KfdQueueState::Mapped,
    };
    XKfdQueue {
        queue_id: queue.id,
        gpu_id: queue.gpu_id,
        kind: kind(queue.queue_type),
        state: state.number(),
        ring_address: wish.ring_base_address,
        ring_size: wish.ring_size.into(),
        write_pointer_address: queue.write_pointer_address,
        read_pointer_address: queue.read_pointer_address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal_kfd::process::Untraceable;

    #[test]
    fn results_tell_apart_what_went_wrong() {
        let errnos = [libc::ETIME, libc::EIO, libc::EACCES, libc::EPERM, libc::EFAULT, libc::ENOMEM];
        let results = errnos.map(|errno| of_errno(Errno(errno)));
        let want = [
            KfdResult::ErrorTimeout,
            KfdResult::ErrorGpuHung,
            KfdResult::ErrorGpuHung,
            KfdResult::ErrorNoPermission,
            KfdResult::ErrorNotFound,
            KfdResult::ErrorUnknown,
        ];
        assert_eq!(results, want);
        assert_eq!(of_fate(Fate::Failed), Err(KfdResult::ErrorSaveFailed));
        assert_eq!(of_fate(Fate::Invalid), Err(KfdResult::ErrorInvalidState));
        assert_eq!(of_problem(Problem::NoProcess), KfdResult::ErrorNotFound);
        assert_eq!(of_problem(Problem::NotTraceable(Untraceable::Own)), KfdResult::ErrorNoPermission);
        assert_eq!(of_problem(Problem::Hung(Errno(libc::ETIME))), KfdResult::ErrorTimeout);
    }
}
