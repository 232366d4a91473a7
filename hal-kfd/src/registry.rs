//! The queues of one KFD context, between the runtime and the driver.
//!
//! The code that interposes `ioctl` hands the runtime's requests about queues to a [`Registry`]. It sends
//! them, merged with our evictions. One lock spans the decision and the request, so that no request of the
//! runtime falls between our decision and our request. Only the destruction of a queue, which can wait for
//! others, is sent without the lock, after the queue was removed from the registry.

mod indices;
mod limit;
mod named;
mod precedence;

pub use crate::queue::Queue;
pub use named::Refused;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hip_sys::kfd::{self, Ioctl, Plain as _, debug};
use parking_lot::{Mutex, MutexGuard};

use crate::arbiter::{Arbiter, Evictor, Precedence, Setting};
use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::mechanism::debug_trap::DebugTrap;
use crate::mechanism::update_queue::UpdateQueue;
use crate::mechanism::{Mechanism, MechanismKind, cu_mask};
use crate::outcome::Outcome;
use crate::queue::is_compute;
use crate::units::{UnitLimit, Units};

/// The write index of each queue of a device at one moment: number, serial number, write index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marker(Vec<(u32, u64, u64)>);

#[derive(Debug)]
struct Inner {
    kernel: Arc<dyn Kernel>,
    queues: BTreeMap<u32, Queue>,
    mechanism: Box<dyn Mechanism>,
    /// The devices whose queues are evicted for this process.
    holding: BTreeSet<u32>,
    /// The devices whose queues are limited to some compute units, and to how many.
    limited: BTreeMap<u32, (Units, u32)>,
    /// See [`Registry::refuses_limits`].
    refuses_limits: Option<Errno>,
    /// The place of the compute queues that are not limited.
    usual: Precedence,
    /// True once a queue could not be given another place.
    refuses_precedence: bool,
    /// See [`Registry::given_up`].
    given_up: Option<Errno>,
    /// True if the runtime, or this registry, has enabled the debugger's support.
    runtime_enabled: bool,
    /// The serial number of the last queue.
    serial: u64,
}

/// The queues of one KFD context.
#[derive(Debug)]
pub struct Registry {
    inner: Mutex<Inner>,
    /// True if a change was pending when the lock was released last.
    pending: AtomicBool,
}

/// The held lock. Its release updates [`Registry::pending`].
struct Locked<'a> {
    inner: MutexGuard<'a, Inner>,
    pending: &'a AtomicBool,
}

impl Deref for Locked<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.pending.store(!self.inner.pending().is_empty(), Ordering::Release);
    }
}

impl Registry {
    /// Makes a registry without queues.
    pub fn new(kernel: Arc<dyn Kernel>, mechanism: MechanismKind) -> Self {
        let mechanism: Box<dyn Mechanism> = match mechanism {
            MechanismKind::UpdateQueue => Box::new(UpdateQueue),
            MechanismKind::DebugTrap => Box::new(DebugTrap::default()),
        };
        let inner = Inner {
            kernel,
            queues: BTreeMap::new(),
            mechanism,
            holding: BTreeSet::new(),
            limited: BTreeMap::new(),
            refuses_limits: None,
            usual: Precedence::Own,
            refuses_precedence: false,
            given_up: None,
            runtime_enabled: false,
            serial: 0,
        };
        Self { inner: Mutex::new(inner), pending: AtomicBool::new(false) }
    }

    fn lock(&self) -> Locked<'_> {
        Locked { inner: self.inner.lock(), pending: &self.pending }
    }

    /// Executes a request of the runtime about queues. Returns `None` for all other requests, which the
    /// caller passes on.
    ///
    /// `argument` is the runtime's argument, at least as long as the command says; `runtime` executes
    /// requests on the runtime's own descriptor.
    ///
    /// # Errors
    /// The driver's errno.
    pub fn intercept(
        &self,
        runtime: &dyn Kernel,
        command: u32,
        argument: &mut [u8],
    ) -> Option<Result<i32, Errno>> {
        // By number: newer callers pass longer structures under the same number.
        Some(match kfd::request_number(command)? {
            kfd::CreateQueue::NR => self.create(runtime, command, argument),
            kfd::DestroyQueue::NR => self.destroy(runtime, command, argument),
            kfd::UpdateQueue::NR => self.update(runtime, command, argument),
            kfd::SetCuMask::NR => self.set_cu_mask(runtime, command, argument),
            debug::RuntimeEnable::NR => self.runtime_enable(runtime, command, argument),
            _ => return None,
        })
    }

    /// Creates a queue. While its device is evicted, the queue is created off the hardware.
    fn create(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let mut inner = self.lock();
        let asked = kfd::CreateQueue::from_bytes(argument);
        let by_debugger = inner.mechanism.kind() == MechanismKind::DebugTrap;
        if inner.queues.is_empty() && !inner.runtime_enabled && by_debugger {
            inner.runtime_enabled = enable_runtime(&*inner.kernel);
        }
        let compute = is_compute(asked.queue_type);
        let evicted = compute && inner.given_up.is_none() && inner.holding.contains(&asked.gpu_id);
        let merges = inner.mechanism.merges();
        let requested = Setting::of_creation(&asked);
        let limited = inner.limited.get(&asked.gpu_id).copied().filter(|_| compute);
        let precedence = match limited {
            _ if !compute || !merges => Precedence::Own,
            Some(_) => Precedence::Behind,
            None => inner.usual,
        };
        let mut arbiter = Arbiter::new(requested, evicted && merges, precedence);
        put_setting(argument, arbiter.merged(requested));
        let result = runtime.execute(command, argument);
        put_setting(argument, requested);
        let id = kfd::CreateQueue::from_bytes(argument).queue_id;
        inner.note_answer(result);
        result?;
        arbiter.set_evicted(Evictor::Scheduler, evicted);
        inner.serial += 1;
        let mut limit = UnitLimit::default();
        if let Some((units, keep)) = limited {
            limit.set(units, keep);
        }
        let queue = Queue {
            id,
            serial: inner.serial,
            gpu_id: asked.gpu_id,
            queue_type: asked.queue_type,
            write_pointer_address: asked.write_pointer_address,
            read_pointer_address: asked.read_pointer_address,
            save_area: asked.ctx_save_restore_address,
            cu_mask: Vec::new(),
            limit,
            arbiter,
            session: None,
            suspended: Some(false),
            quiet: 0,
            last_written: 0,
            activity: (false, 0),
        };
        inner.queues.insert(id, queue);
        if limited.is_some() || evicted && !merges {
            // The queue has no packets before this call returns to its creator.
            inner.apply(&[id]);
        }
        result
    }

    /// Destroys a queue. An evicted queue is restored first: the runtime can wait for its remaining packets,
    /// and a suspension by debug-trap blocks the request. Another debugger can block it as well; then only
    /// the calling thread waits.
    fn destroy(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let id = kfd::DestroyQueue::from_bytes(argument).queue_id;
        let queue = self.remove(id);
        let result = runtime.execute(command, argument);
        let mut inner = self.lock();
        // After a time-out the driver has destroyed the queue nevertheless.
        if !matches!(result, Ok(_) | Err(Errno(libc::ETIME | libc::EIO)))
            && let Some(mut queue) = queue
        {
            // The runtime may free the memory of its indices nevertheless.
            (queue.write_pointer_address, queue.read_pointer_address) = (0, 0);
            inner.queues.entry(id).or_insert(queue);
        }
        inner.note_answer(result);
        result
    }

    /// Restores a queue and removes it from the registry.
    fn remove(&self, id: u32) -> Option<Queue> {
        let mut inner = self.lock();
        if let Some(queue) = inner.queues.get_mut(&id)
            && (queue.arbiter.held() || queue.suspended != Some(false))
        {
            queue.arbiter.restore();
            inner.apply(&[id]);
            if inner.queues.get(&id).is_some_and(|queue| queue.suspended != Some(false)) {
                // Without the end of the session, the destruction would block forever.
                inner.end_session();
            }
        }
        inner.queues.remove(&id)
    }

    fn update(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let mut inner = self.lock();
        let asked = kfd::UpdateQueue::from_bytes(argument);
        let merges = inner.mechanism.merges();
        let Some(queue) = inner.queues.get_mut(&asked.queue_id).filter(|_| merges) else {
            let result = runtime.execute(command, argument);
            if let (Some(queue), Ok(_)) = (inner.queues.get_mut(&asked.queue_id), result) {
                queue.arbiter.runtime_answered(Setting::of(&asked), Ok(()));
            }
            inner.note_answer(result);
            return result;
        };
        let requested = Setting::of(&asked);
        let merged = queue.arbiter.merged(requested).update(asked.queue_id);
        let bytes = merged.as_bytes();
        let mut sent = argument.to_vec();
        let len = bytes.len().min(sent.len());
        sent[..len].copy_from_slice(&bytes[..len]);
        let result = runtime.execute(command, &mut sent);
        queue.arbiter.runtime_answered(requested, result.map(|_| ()));
        inner.note_answer(result);
        result
    }

    fn runtime_enable(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let mut inner = self.lock();
        let on = debug::RuntimeEnable::from_bytes(argument).mode_mask & debug::RUNTIME_ENABLE != 0;
        let result = runtime.execute(command, argument);
        if result.is_ok() {
            inner.runtime_enabled = on;
        }
        result
    }

    /// Evicts the compute queues with work of a device. Queues that are created from now on are created
    /// evicted. The caller has stopped launching. A further call evicts the queues that have got work
    /// meanwhile.
    ///
    /// # Safety
    /// The queues belong to this process, and it frees the memory of a queue's indices only after
    /// DESTROY_QUEUE.
    pub unsafe fn evict(&self, gpu_id: u32) -> Outcome {
        let mut inner = self.lock();
        if let Some(errno) = inner.given_up {
            return Outcome { error: Some(errno), ..Outcome::default() };
        }
        inner.holding.insert(gpu_id);
        // SAFETY: this function has the same precondition.
        let ids = unsafe { inner.with_work(gpu_id, false) };
        for id in &ids {
            if let Some(queue) = inner.queues.get_mut(id) {
                queue.arbiter.set_evicted(Evictor::Scheduler, true);
            }
        }
        inner.apply(&ids)
    }

    /// Restores the queues of a device, and removes their limits.
    pub fn restore(&self, gpu_id: u32) -> Outcome {
        let mut inner = self.lock();
        inner.holding.remove(&gpu_id);
        inner.limited.remove(&gpu_id);
        let usual = inner.usual;
        let mut restored = Vec::new();
        for queue in inner.queues.values_mut().filter(|queue| queue.gpu_id == gpu_id) {
            queue.arbiter.set_evicted(Evictor::Scheduler, false);
            queue.remove_limit(usual);
            restored.push((queue.activity, queue.id));
        }
        // The most active queue comes last: each request after it would save its waves once more.
        restored.sort_unstable();
        let ids: Vec<u32> = restored.into_iter().map(|(_, id)| id).collect();
        inner.apply(&ids)
    }

    /// Evicts or restores one queue for a measurement, independently of other reasons to evict it.
    pub(crate) fn set_for_measurement(&self, id: u32, evicted: bool) -> Outcome {
        let mut inner = self.lock();
        let given_up = inner.given_up.filter(|_| evicted);
        let Some(queue) = inner.queues.get_mut(&id) else {
            return Outcome { error: Some(Errno(libc::EINVAL)), ..Outcome::default() };
        };
        if given_up.is_some() {
            return Outcome { error: given_up, ..Outcome::default() };
        }
        queue.arbiter.set_evicted(Evictor::Measurement, evicted);
        inner.apply(&[id])
    }

    /// Returns for each device the compute queue that is most likely to be idle, and true if it is idle.
    ///
    /// # Safety
    /// The same as for [`Registry::evict`].
    pub unsafe fn quietest(&self) -> BTreeMap<u32, (u32, bool)> {
        let inner = self.lock();
        let mut found: BTreeMap<u32, (u32, bool)> = BTreeMap::new();
        for queue in inner.queues.values().filter(|queue| queue.is_compute() && !queue.arbiter.held()) {
            // SAFETY: a destruction takes this lock first, so that the queue is alive; it belongs to this
            // process by the precondition.
            let idle = !unsafe { queue.has_work() };
            let known = found.entry(queue.gpu_id).or_insert((queue.id, idle));
            if idle && !known.1 {
                *known = (queue.id, true);
            }
        }
        found
    }

    /// Restores all queues, and evicts none from now on, for this reason.
    pub fn abandon(&self, why: Errno) {
        let mut inner = self.lock();
        inner.given_up.get_or_insert(why);
        inner.release_devices();
        inner.mark(Precedence::Own);
        inner.restore_all(&mut Outcome::default());
    }

    /// Returns the serial number of the queue that has this number now.
    pub fn serial(&self, id: u32) -> Option<u64> {
        self.lock().queues.get(&id).map(|queue| queue.serial)
    }

    /// Returns true if a change that we want has not reached the driver; [`Registry::reconcile`] sends it again.
    pub fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Sends pending changes again, if there are any.
    pub fn reconcile(&self) -> Outcome {
        if !self.has_pending() {
            return Outcome::default();
        }
        let mut inner = self.lock();
        let ids = inner.pending();
        inner.apply(&ids)
    }

    /// Restores all queues and ends the session of the mechanism, before the process ends or executes another
    /// program.
    pub fn shut_down(&self) -> Outcome {
        let mut inner = self.lock();
        inner.release_devices();
        let ids: Vec<u32> = inner.queues.keys().copied().collect();
        let usual = inner.usual;
        inner.queues.values_mut().for_each(|queue| queue.release(usual));
        let outcome = inner.apply(&ids);
        inner.end_session();
        outcome
    }

    /// Returns copies of all queues.
    pub fn queues(&self) -> Vec<Queue> {
        self.lock().queues.values().cloned().collect()
    }

    /// Returns the devices with compute queues.
    pub fn devices(&self) -> BTreeSet<u32> {
        let inner = self.lock();
        inner.queues.values().filter(|queue| queue.is_compute()).map(|queue| queue.gpu_id).collect()
    }

    /// Returns the devices whose queues are evicted or limited.
    pub fn held_devices(&self) -> BTreeSet<u32> {
        let inner = self.lock();
        inner.holding.iter().chain(inner.limited.keys()).copied().collect()
    }

    /// Returns the reason why no queue is evicted any more: the driver could not evict a queue in time
    /// (ETIME), it has reset some queues of this process (EACCES), or the reason given to
    /// [`Registry::abandon`]. `None` while evictions are possible.
    pub fn given_up(&self) -> Option<Errno> {
        self.lock().given_up
    }

    /// Returns the mechanism in use.
    pub fn mechanism(&self) -> MechanismKind {
        self.lock().mechanism.kind()
    }
}

impl Inner {
    /// Forgets what is held: nothing is evicted or limited from now on.
    fn release_devices(&mut self) {
        self.holding.clear();
        self.limited.clear();
    }

    /// Returns the compute queues of a device that are evicted or have work, with `used` also those that ever had or are limited. Where
    /// each request stops all queues of the device, running waves are saved only once if their queue comes first: the
    /// likeliest to have some is the first.
    ///
    /// # Safety
    /// The same as for [`Registry::evict`].
    unsafe fn with_work(&mut self, gpu_id: u32, used: bool) -> Vec<u32> {
        let mut found = Vec::new();
        for queue in self.queues.values_mut().filter(|queue| queue.gpu_id == gpu_id && queue.is_compute()) {
            // SAFETY: a destruction takes the lock first, so that the queue is alive; it belongs to this process by
            // the precondition.
            let counts = queue.arbiter.held()
                || unsafe {
                    queue.update_activity();
                    queue.has_work() || used && (queue.limit.is_set() || queue.was_used())
                };
            if counts {
                found.push((Reverse(queue.activity), queue.id));
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    fn ids(&self, want: impl Fn(&Queue) -> bool) -> Vec<u32> {
        self.queues.values().filter(|queue| want(queue)).map(|queue| queue.id).collect()
    }

    /// Returns the queues with a pending change. After evictions were given up, none is pending: what could
    /// not be restored is lost.
    fn pending(&self) -> Vec<u32> {
        if self.given_up.is_some() {
            return Vec::new();
        }
        let merges = self.mechanism.merges();
        self.ids(|queue| {
            let unknown = self.mechanism.state(queue).is_none() && (!merges || queue.arbiter.has_pending());
            unknown || !queue.is_limit_settled()
        })
    }

    /// Applies the wanted settings of these queues, in their order, and counts the results.
    fn apply(&mut self, ids: &[u32]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut queues: Vec<&mut Queue> =
            self.queues.values_mut().filter(|queue| ids.contains(&queue.id)).collect();
        queues.sort_by_key(|queue| ids.iter().position(|id| *id == queue.id));
        // First, because a limit is removed while the queue is still off the hardware.
        cu_mask::apply(&*self.kernel, &mut queues, &mut outcome);
        self.mechanism.apply(&*self.kernel, &mut queues, &mut outcome);
        for queue in queues {
            match self.mechanism.state(queue).filter(|_| queue.is_limit_settled()) {
                Some(_) => outcome.queues += 1,
                None => outcome.unsettled += 1,
            }
        }
        if let Some(errno) = outcome.error {
            self.note(Err(errno));
            if self.given_up.is_some() {
                self.restore_all(&mut outcome);
            }
        }
        outcome
    }

    /// Records the answer to a request of the runtime: its time-out ends all evictions, as a time-out of our
    /// requests does.
    fn note_answer(&mut self, result: Result<i32, Errno>) {
        let before = self.given_up;
        self.note(result.map(|_| ()));
        if self.given_up != before {
            self.restore_all(&mut Outcome::default());
        }
    }

    /// Tries once to restore every queue.
    fn restore_all(&mut self, outcome: &mut Outcome) {
        let usual = self.usual;
        self.queues.values_mut().for_each(|queue| queue.release(usual));
        let mut queues: Vec<&mut Queue> = self.queues.values_mut().collect();
        cu_mask::apply(&*self.kernel, &mut queues, outcome);
        self.mechanism.apply(&*self.kernel, &mut queues, outcome);
    }

    /// Records an error. A time-out ends all evictions for good, because the driver resets the device for
    /// every process. So does EACCES: this process has lost queues in a reset that another process caused.
    fn note(&mut self, result: Result<(), Errno>) {
        if let Err(errno @ Errno(libc::ETIME | libc::EACCES)) = result
            && self.given_up.is_none()
        {
            self.given_up = Some(errno);
            self.release_devices();
        }
    }

    fn end_session(&mut self) {
        if self.mechanism.end(&*self.kernel) {
            self.queues.values_mut().for_each(|queue| queue.suspended = Some(false));
        }
    }
}

/// Enables the debugger's support where the runtime does not (ROCr before 5.5), which must precede the first
/// queue. Returns true if it is enabled.
fn enable_runtime(kernel: &dyn Kernel) -> bool {
    let mut enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    // EBUSY: it is enabled already.
    matches!(kernel.call(&mut enable), Ok(_) | Err(Errno(libc::EBUSY)))
}

/// Writes percentage and priority into the argument of CREATE_QUEUE, if the argument is long enough.
fn put_setting(argument: &mut [u8], setting: Setting) {
    let fields = [
        (std::mem::offset_of!(kfd::CreateQueue, queue_percentage), setting.percentage),
        (std::mem::offset_of!(kfd::CreateQueue, queue_priority), setting.priority),
    ];
    for (at, value) in fields {
        if let Some(bytes) = argument.get_mut(at..at + size_of::<u32>()) {
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
