//! `xsched/kfd.h`: evicting and restoring the hardware queues of this process or of another one, by their
//! names.

mod other;

use crate::process::this_process::PREEMPTION;
use crate::{lifecycle, process, startup};
use hal_kfd::attach::{Attachment, Problem};
use hal_kfd::registry::{Queue, Refused};
use hal_kfd::{Errno, Kfd};
use hip_sys::kfd as driver;
use other::Other;
use parking_lot::Mutex;
use protocol::codes::{KfdQueue, KfdQueueState, KfdQueueType, KfdResult, PreemptLevel};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io::ErrorKind;
use std::slice;
use std::sync::Arc;

struct Session {
    /// Its handle, which the registry uses as well.
    handle: u64,
    /// True once it is closed, for a thread that has looked it up before.
    closed: bool,
    about: About,
}

/// The process whose queues a session controls.
enum About {
    Own,
    Other(Other),
}

/// The open sessions of this process, by their handles.
struct Sessions {
    /// The process that has opened them. A forked child has none of its parent's.
    pid: u32,
    last: u64,
    open: BTreeMap<u64, Arc<Mutex<Session>>>,
}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { pid: 0, last: 0, open: BTreeMap::new() });

type Result<T> = std::result::Result<T, KfdResult>;

/// As [`super::run`].
fn run(body: impl FnOnce() -> Result<()>) -> c_int {
    startup::started(KfdResult::ErrorNotSupported, body).err().unwrap_or(KfdResult::Success).number()
}

/// Runs the body with an open session. Calls of one session are made one after the other.
fn with<T>(handle: u64, body: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    let session = {
        let sessions = SESSIONS.lock();
        let ours = sessions.pid == std::process::id();
        sessions.open.get(&handle).filter(|_| ours).cloned().ok_or(KfdResult::ErrorNotFound)?
    };
    let mut session = session.lock();
    if session.closed { Err(KfdResult::ErrorNotFound) } else { body(&mut session) }
}

/// Returns the result for a driver's error of a request about queues.
fn of_errno(errno: Errno) -> KfdResult {
    match errno.0 {
        libc::ETIME => KfdResult::ErrorTimeout,
        libc::EIO | libc::EACCES => KfdResult::ErrorGpuHung,
        libc::EPERM => KfdResult::ErrorNoPermission,
        // The driver does not know the queue.
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

fn of_refusal(refused: Refused) -> KfdResult {
    match refused {
        Refused::NotThere(_) => KfdResult::ErrorNotFound,
        Refused::NotCompute(_) => KfdResult::ErrorInvalidValue,
        Refused::Failed(Some(errno)) => of_errno(errno),
        Refused::Failed(None) => KfdResult::ErrorInvalidState,
    }
}

pub(super) unsafe extern "C" fn open(handle: *mut u64, pid: i32) -> c_int {
    run(|| {
        if handle.is_null() || pid < 0 {
            return Err(KfdResult::ErrorInvalidValue);
        }
        let about = match u32::try_from(pid) {
            Ok(other) if other != 0 && other != std::process::id() => {
                let kernel = Kfd::open().map_err(|error| match error.kind() {
                    ErrorKind::PermissionDenied => KfdResult::ErrorNoPermission,
                    _ => KfdResult::ErrorNotSupported,
                })?;
                let attachment = Attachment::new(Arc::new(kernel), pid).map_err(of_problem)?;
                About::Other(Other::new(attachment))
            }
            _ => {
                // This use needs no server.
                PREEMPTION.stop_waiting_for_server();
                // Lets the cost of an eviction be measured on the first queue, if there is none yet.
                PREEMPTION.request(PreemptLevel::Interrupt);
                About::Own
            }
        };
        let mut sessions = SESSIONS.lock();
        if sessions.pid != std::process::id() {
            sessions.pid = std::process::id();
            // The exit handler has to run before those of libraries that wait for queues.
            startup::handle_exit();
            // The parent's sessions are forgotten: dropping them would end sessions of another process.
            std::mem::take(&mut sessions.open).into_values().for_each(std::mem::forget);
        }
        sessions.last += 1;
        let last = sessions.last;
        let session = Session { handle: last, closed: false, about };
        sessions.open.insert(last, Arc::new(Mutex::new(session)));
        // SAFETY: the place is valid by the interface, and not null.
        unsafe { handle.write(last) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn close(handle: u64) -> c_int {
    run(|| {
        with(handle, |session| {
            session.end()?;
            session.closed = true;
            Ok(())
        })?;
        SESSIONS.lock().open.remove(&handle);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn list_queues(handle: u64, queues: *mut KfdQueue, count: *mut u32) -> c_int {
    run(|| {
        if count.is_null() {
            return Err(KfdResult::ErrorInvalidValue);
        }
        // SAFETY: the place is valid by the interface, and not null.
        let room = unsafe { count.read() };
        if queues.is_null() && room != 0 {
            return Err(KfdResult::ErrorInvalidValue);
        }
        let found = with(handle, Session::queues)?;
        for (index, queue) in found.iter().take(room as usize).enumerate() {
            // SAFETY: the index is below `room`, so it lies within the caller's array.
            unsafe { queues.add(index).write(*queue) };
        }
        // SAFETY: the place is valid by the interface, and not null.
        unsafe { count.write(u32::try_from(found.len()).unwrap_or(u32::MAX)) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn suspend(handle: u64, ids: *const u32, count: u32) -> c_int {
    run(|| {
        // SAFETY: by the interface `ids` is null or has `count` numbers.
        let named = unsafe { named(ids, count) }?;
        with(handle, |session| session.suspend(named.as_deref()))
    })
}

pub(super) unsafe extern "C" fn resume(handle: u64, ids: *const u32, count: u32) -> c_int {
    run(|| {
        // SAFETY: by the interface `ids` is null or has `count` numbers.
        let named = unsafe { named(ids, count) }?;
        with(handle, |session| session.resume(named.as_deref()))
    })
}

pub(super) unsafe extern "C" fn status(handle: u64, id: u32, state: *mut c_int) -> c_int {
    run(|| {
        if state.is_null() {
            return Err(KfdResult::ErrorInvalidValue);
        }
        let found = with(handle, Session::queues)?;
        let queue = found.iter().find(|queue| queue.queue_id == id).ok_or(KfdResult::ErrorNotFound)?;
        // SAFETY: the place is valid by the interface, and not null.
        unsafe { state.write(queue.state) };
        Ok(())
    })
}

/// Returns the queues that a caller names; `None` for all.
///
/// # Safety
///
/// `ids` is null or has `count` numbers.
unsafe fn named(ids: *const u32, count: u32) -> Result<Option<Vec<u32>>> {
    match (ids.is_null(), count) {
        (_, 0) => Ok(None),
        (true, _) => Err(KfdResult::ErrorInvalidValue),
        // SAFETY: `ids` is not null, so it has `count` numbers.
        (false, count) => Ok(Some(unsafe { slice::from_raw_parts(ids, count as usize) }.to_vec())),
    }
}

impl Session {
    fn queues(&mut self) -> Result<Vec<KfdQueue>> {
        match &mut self.about {
            About::Own => {
                let queues = PREEMPTION.queues().map(|queues| queues.registry.queues()).unwrap_or_default();
                Ok(queues.iter().map(own).collect())
            }
            About::Other(other) => other.queues(),
        }
    }

    fn suspend(&mut self, named: Option<&[u32]>) -> Result<()> {
        if let About::Other(other) = &mut self.about {
            return other.suspend(named);
        }
        if !PREEMPTION.request(PreemptLevel::Interrupt) || PREEMPTION.in_force().0 == PreemptLevel::Block {
            return Err(KfdResult::ErrorNotSupported);
        }
        let registry = &PREEMPTION.queues().ok_or(KfdResult::ErrorNotSupported)?.registry;
        registry.suspend_for(self.handle, named).map_err(of_refusal)?;
        note_eviction();
        if lifecycle::is_ready() {
            return Ok(());
        }
        // The process is ending, and may have restored everything before this.
        registry.resume_for(self.handle, None).map_err(of_refusal)?;
        Err(KfdResult::ErrorNotSupported)
    }

    fn resume(&mut self, named: Option<&[u32]>) -> Result<()> {
        match (&mut self.about, PREEMPTION.queues()) {
            (About::Other(other), _) => other.resume(named),
            (About::Own, Some(queues)) => {
                let resumed = queues.registry.resume_for(self.handle, named).map_err(of_refusal);
                note_eviction();
                resumed
            }
            (About::Own, None) if named.is_none() => Ok(()),
            (About::Own, None) => Err(KfdResult::ErrorNotFound),
        }
    }

    /// Resumes everything that it has suspended.
    fn end(&mut self) -> Result<()> {
        match &mut self.about {
            About::Own => self.resume(None),
            About::Other(other) => other.end(),
        }
    }
}

/// Tells the queues that the hardware interrupts or continues what is in flight.
fn note_eviction() {
    if let Some(process) = process::get() {
        process.domain.note_eviction();
    }
}

fn kind(queue_type: u32) -> KfdQueueType {
    match queue_type {
        _ if hal_kfd::queue::is_compute(queue_type) => KfdQueueType::Compute,
        driver::QUEUE_TYPE_SDMA | driver::QUEUE_TYPE_SDMA_XGMI | driver::QUEUE_TYPE_SDMA_BY_ENG_ID => {
            KfdQueueType::Sdma
        }
        _ => KfdQueueType::Other,
    }
}

fn own(queue: &Queue) -> KfdQueue {
    let wish = queue.arbiter.wish();
    let held = queue.arbiter.held();
    let state = match (held, queue.suspended) {
        // The debug-trap mechanism sets `suspended`, the update-queue mechanism the arbiter.
        (true, Some(true)) => KfdQueueState::Suspended,
        _ if queue.arbiter.is_off() => KfdQueueState::Suspended,
        (_, None) => KfdQueueState::Unknown,
        _ if !queue.arbiter.settled() && queue.suspended != Some(held) => KfdQueueState::Unknown,
        _ => KfdQueueState::Mapped,
    };
    KfdQueue {
        queue_id: queue.id,
        gpu_id: queue.gpu_id,
        kind: kind(queue.queue_type).number(),
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
    use host::process::Untraceable;

    #[test]
    fn errors_map_to_distinct_results() {
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
        assert_eq!(of_refusal(Refused::NotThere(3)), KfdResult::ErrorNotFound);
        assert_eq!(of_refusal(Refused::NotCompute(3)), KfdResult::ErrorInvalidValue);
        assert_eq!(of_refusal(Refused::Failed(Some(Errno(libc::ETIME)))), KfdResult::ErrorTimeout);
        assert_eq!(of_refusal(Refused::Failed(None)), KfdResult::ErrorInvalidState);
        assert_eq!(of_problem(Problem::NoProcess), KfdResult::ErrorNotFound);
        assert_eq!(of_problem(Problem::NotTraceable(Untraceable::Own)), KfdResult::ErrorNoPermission);
        assert_eq!(of_problem(Problem::Hung(Errno(libc::ETIME))), KfdResult::ErrorTimeout);
    }

    /// A thread uses a session after another one has closed it.
    #[test]
    fn closed_session_is_not_found() {
        // Not by `open`, which requests a level for the whole process.
        let handle = u64::MAX;
        let late = Arc::new(Mutex::new(Session { handle, closed: false, about: About::Own }));
        let insert = || {
            let mut sessions = SESSIONS.lock();
            sessions.pid = std::process::id();
            sessions.open.insert(handle, late.clone());
        };
        insert();
        assert_eq!(with(handle, |session| session.resume(None)), Ok(()));
        // SAFETY: any handle may be passed.
        assert_eq!(unsafe { close(handle) }, 0);
        assert!(late.lock().closed && !SESSIONS.lock().open.contains_key(&handle));
        insert();
        let result = with(handle, |session| session.resume(None));
        assert_eq!(result, Err(KfdResult::ErrorNotFound));
        SESSIONS.lock().open.remove(&handle);
    }
}
