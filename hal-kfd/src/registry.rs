//! The queues of one KFD context, in between the runtime and the driver.
//!
//! Whoever interposes `ioctl` hands the runtime's requests about queues to a [`Registry`], which makes them, merged with what
//! we want. One lock spans deciding and issuing each of them, so that no request of the runtime's can fall between our
//! decision and our request; only a queue's destruction, which may wait for others, is issued without it, once the queue is
//! not known any more.

mod entry;
mod named;
mod outcome;

pub use entry::Queue;
pub use named::Refused;
pub use outcome::Outcome;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hip_sys::kfd::{self, Ioctl, Plain as _, debug};
use parking_lot::{Mutex, MutexGuard};

use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::mechanism::{DebugTrap, Kind, Mechanism, UpdateQueue};
use crate::queue::{Arbiter, By, Setting};

/// Bits of a mask of compute units that the driver reads at most (`max_num_cus` of `kfd_ioctl_set_cu_mask`).
const MAX_CU_MASK: u32 = 1024;

/// How far each queue of a device was written at a moment: number, serial number, write index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark(Vec<(u32, u64, u64)>);

#[derive(Debug)]
struct Inner {
    queues: BTreeMap<u32, Queue>,
    mechanism: Box<dyn Mechanism>,
    /// Devices on which this process is to stand still.
    holding: BTreeSet<u32>,
    /// See [`Registry::given_up`].
    given_up: Option<Errno>,
    /// Whether the runtime (or we) enabled the debugger's support.
    runtime_enabled: bool,
    /// Of the next queue.
    serial: u64,
}

/// The queues of one KFD context.
#[derive(Debug)]
pub struct Registry {
    kernel: Arc<dyn Kernel>,
    inner: Mutex<Inner>,
    /// As it was when the lock was given back.
    owes: AtomicBool,
}

/// The lock, which notes at its end whether something is owed.
struct Locked<'a> {
    inner: MutexGuard<'a, Inner>,
    owes: &'a AtomicBool,
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
        self.owes.store(!self.inner.owing().is_empty(), Ordering::Release);
    }
}

impl Registry {
    /// No queues yet.
    pub fn new(kernel: Arc<dyn Kernel>, mechanism: Kind) -> Self {
        let mechanism: Box<dyn Mechanism> = match mechanism {
            Kind::UpdateQueue => Box::new(UpdateQueue),
            Kind::DebugTrap => Box::new(DebugTrap::default()),
        };
        let inner = Inner {
            queues: BTreeMap::new(),
            mechanism,
            holding: BTreeSet::new(),
            given_up: None,
            runtime_enabled: false,
            serial: 0,
        };
        Self { kernel, inner: Mutex::new(inner), owes: AtomicBool::new(false) }
    }

    fn lock(&self) -> Locked<'_> {
        Locked { inner: self.inner.lock(), owes: &self.owes }
    }

    /// Executes a request of the runtime's, if it is about queues; `None` for all others, which the caller passes on.
    ///
    /// `argument` is what the runtime passed, as long as the command says or longer; `runtime` is its own way to the driver.
    ///
    /// # Errors
    /// The driver's errno.
    pub fn intercept(
        &self,
        runtime: &dyn Kernel,
        command: u32,
        argument: &mut [u8],
    ) -> Option<Result<i32, Errno>> {
        // By number: newer callers pass longer structures under the same one.
        Some(match kfd::request_number(command)? {
            kfd::CreateQueue::NR => self.create(runtime, command, argument),
            kfd::DestroyQueue::NR => self.destroy(runtime, command, argument),
            kfd::UpdateQueue::NR => self.update(runtime, command, argument),
            kfd::SetCuMask::NR => self.set_cu_mask(runtime, command, argument),
            debug::RuntimeEnable::NR => self.runtime_enable(runtime, command, argument),
            _ => return None,
        })
    }

    /// A queue that comes into being while its device is held is born off the hardware.
    fn create(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let mut inner = self.lock();
        let asked = kfd::CreateQueue::from_bytes(argument);
        if inner.queues.is_empty() && !inner.runtime_enabled && inner.mechanism.needs_runtime() {
            inner.runtime_enabled = enable_runtime(&*self.kernel);
        }
        let compute = matches!(asked.queue_type, kfd::QUEUE_TYPE_COMPUTE | kfd::QUEUE_TYPE_COMPUTE_AQL);
        let held = compute && inner.given_up.is_none() && inner.holding.contains(&asked.gpu_id);
        let merges = inner.mechanism.merges();
        let wish = Setting::of_creation(&asked);
        let mut arbiter = Arbiter::new(wish, held && merges);
        put_percentage(argument, arbiter.merged(wish).percentage);
        let result = runtime.execute(command, argument);
        put_percentage(argument, asked.queue_percentage);
        let id = kfd::CreateQueue::from_bytes(argument).queue_id;
        inner.answered(&*self.kernel, result);
        result?;
        arbiter.hold(By::Scheduler, held);
        inner.serial += 1;
        let queue = Queue {
            id,
            serial: inner.serial,
            gpu_id: asked.gpu_id,
            queue_type: asked.queue_type,
            write_pointer_address: asked.write_pointer_address,
            read_pointer_address: asked.read_pointer_address,
            save_area: asked.ctx_save_restore_address,
            cu_mask: Vec::new(),
            arbiter,
            session: None,
            suspended: Some(false),
            quiet: 0,
            looked: 0,
            rush: (false, 0),
        };
        inner.queues.insert(id, queue);
        if held && !merges {
            // It has no packets before its creator knows it.
            let mut outcome = Outcome::default();
            inner.apply(&*self.kernel, &[id], &mut outcome);
        }
        result
    }

    /// A held queue is released first: whoever destroys it may wait for what is left in it, and the debugger's hold blocks the
    /// request. Somebody else's debugger can hold it as well; who waits for that does so alone.
    fn destroy(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let id = kfd::DestroyQueue::from_bytes(argument).queue_id;
        let queue = self.take_out(id);
        let result = runtime.execute(command, argument);
        let mut inner = self.lock();
        // After a time-out the driver lets the queue go all the same.
        if !matches!(result, Ok(_) | Err(Errno(libc::ETIME | libc::EIO)))
            && let Some(mut queue) = queue
        {
            // The runtime may give the memory of its indices back all the same.
            (queue.write_pointer_address, queue.read_pointer_address) = (0, 0);
            inner.queues.entry(id).or_insert(queue);
        }
        inner.answered(&*self.kernel, result);
        result
    }

    /// Forgets a queue, which nobody of us holds then.
    fn take_out(&self, id: u32) -> Option<Queue> {
        let mut inner = self.lock();
        if let Some(queue) = inner.queues.get_mut(&id)
            && (queue.arbiter.held() || queue.suspended != Some(false))
        {
            queue.arbiter.let_go();
            let mut outcome = Outcome::default();
            inner.apply(&*self.kernel, &[id], &mut outcome);
            if inner.queues.get(&id).is_some_and(|queue| queue.suspended != Some(false)) {
                // Better no session than a thread that waits for ever.
                inner.end_session(&*self.kernel);
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
            inner.answered(&*self.kernel, result);
            return result;
        };
        let wish = Setting::of(&asked);
        let merged = queue.arbiter.merged(wish).update(asked.queue_id);
        let bytes = merged.as_bytes();
        let mut sent = argument.to_vec();
        let len = bytes.len().min(sent.len());
        sent[..len].copy_from_slice(&bytes[..len]);
        let result = runtime.execute(command, &mut sent);
        queue.arbiter.runtime_answered(wish, result.map(|_| ()));
        inner.answered(&*self.kernel, result);
        result
    }

    fn set_cu_mask(&self, runtime: &dyn Kernel, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let mut inner = self.lock();
        let asked = kfd::SetCuMask::from_bytes(argument);
        let result = runtime.execute(command, argument);
        if let Some(queue) = inner.queues.get_mut(&asked.queue_id) {
            match result {
                Ok(_) => {
                    // As much as the driver takes; it drops the rest unread, and asks for no alignment.
                    let mut mask = vec![0u32; asked.num_cu_mask.min(MAX_CU_MASK) as usize / 32];
                    let bytes = size_of_val(mask.as_slice());
                    // SAFETY: the driver has just read so many bytes there on behalf of the caller, who waits for us; the
                    // words are ours and as long.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            asked.cu_mask_ptr as *const u8,
                            mask.as_mut_ptr().cast::<u8>(),
                            bytes,
                        );
                    }
                    queue.cu_mask = mask;
                }
                Err(errno) if crate::queue::refused(errno) || errno.0 == libc::EBUSY => {}
                Err(_) => queue.arbiter.shaken(),
            }
        }
        inner.answered(&*self.kernel, result);
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

    /// How far the queues of a device are written now, for [`Registry::complete`].
    ///
    /// # Safety
    /// As [`Registry::hold`].
    pub unsafe fn mark(&self, gpu_id: u32) -> Mark {
        let inner = self.lock();
        let queues = inner.queues.values().filter(|queue| queue.gpu_id == gpu_id && queue.is_compute());
        // SAFETY: the queues are alive, as their destruction takes the lock that we have; else as the caller promises.
        Mark(queues.filter_map(|queue| Some((queue.id, queue.serial, unsafe { queue.written() }?))).collect())
    }

    /// Everything that was written before the mark has completed: a synchronization that began after it has returned. A
    /// queue into which nothing has been written since has no work.
    pub fn complete(&self, mark: &Mark) {
        let mut inner = self.lock();
        for (id, serial, written) in &mark.0 {
            if let Some(queue) = inner.queues.get_mut(id).filter(|queue| queue.serial == *serial) {
                queue.quiet = queue.quiet.max(*written);
            }
        }
    }

    /// Takes the compute queues with work of a device off the hardware; those that come into being from now on are born
    /// off it. The caller has stopped launching. Called again, it takes the queues that have got work meanwhile.
    ///
    /// # Safety
    /// This is the process whose queues these are, and it gives the memory of a queue's indices back after DESTROY_QUEUE.
    pub unsafe fn hold(&self, gpu_id: u32) -> Outcome {
        let mut inner = self.lock();
        if let Some(errno) = inner.given_up {
            return Outcome { error: Some(errno), ..Outcome::default() };
        }
        inner.holding.insert(gpu_id);
        let of = |queue: &&mut Queue| queue.gpu_id == gpu_id && queue.is_compute();
        let mut taken = Vec::new();
        for queue in inner.queues.values_mut().filter(of) {
            let held = queue.arbiter.held();
            if !held {
                // SAFETY: the queue is alive, as its destruction takes the lock that we have; else as the caller promises.
                unsafe { queue.look() };
            }
            // SAFETY: as above.
            if held || unsafe { queue.has_work() } {
                queue.arbiter.hold(By::Scheduler, true);
                taken.push((Reverse(queue.rush), queue.id));
            }
        }
        // Where the driver takes all queues off for each, what runs is saved only once if it comes first.
        taken.sort_unstable();
        let ids: Vec<u32> = taken.into_iter().map(|(_, id)| id).collect();
        let mut outcome = Outcome::default();
        inner.apply(&*self.kernel, &ids, &mut outcome);
        outcome
    }

    /// Puts the queues of a device back.
    pub fn release(&self, gpu_id: u32) -> Outcome {
        let mut inner = self.lock();
        inner.holding.remove(&gpu_id);
        let of = |queue: &&mut Queue| queue.gpu_id == gpu_id;
        let mut back = Vec::new();
        for queue in inner.queues.values_mut().filter(of) {
            queue.arbiter.hold(By::Scheduler, false);
            back.push((queue.rush, queue.id));
        }
        // What runs comes last: each request after it would save it once more.
        back.sort_unstable();
        let ids: Vec<u32> = back.into_iter().map(|(_, id)| id).collect();
        let mut outcome = Outcome::default();
        inner.apply(&*self.kernel, &ids, &mut outcome);
        outcome
    }

    /// Holds or releases one queue for a measurement, whatever is in it. That stays beside all other holds.
    pub(crate) fn set_for_probe(&self, id: u32, held: bool) -> Outcome {
        let mut inner = self.lock();
        let given_up = inner.given_up;
        let mut outcome = Outcome::default();
        match inner.queues.get_mut(&id) {
            Some(_) if held && given_up.is_some() => outcome.error = given_up,
            Some(queue) => {
                queue.arbiter.hold(By::Probe, held);
                inner.apply(&*self.kernel, &[id], &mut outcome);
            }
            None => outcome.error = Some(Errno(libc::EINVAL)),
        }
        outcome
    }

    /// For each device one of its compute queues, the one that is most likely to be idle, and whether it is.
    ///
    /// # Safety
    /// As [`Registry::hold`].
    pub unsafe fn quietest(&self) -> BTreeMap<u32, (u32, bool)> {
        let inner = self.lock();
        let mut found: BTreeMap<u32, (u32, bool)> = BTreeMap::new();
        for queue in inner.queues.values().filter(|queue| queue.is_compute() && !queue.arbiter.held()) {
            // SAFETY: the queue is alive, as its destruction takes the lock that we have; else as the caller promises.
            let idle = !unsafe { queue.has_work() };
            let known = found.entry(queue.gpu_id).or_insert((queue.id, idle));
            if idle && !known.1 {
                *known = (queue.id, true);
            }
        }
        found
    }

    /// From now on nothing is held, for this reason; what is held is released.
    pub fn abandon(&self, why: Errno) {
        let mut inner = self.lock();
        inner.given_up.get_or_insert(why);
        inner.holding.clear();
        inner.release_all(&*self.kernel, &mut Outcome::default());
    }

    /// The serial number of the queue that has this number now.
    pub fn serial(&self, id: u32) -> Option<u64> {
        self.lock().queues.get(&id).map(|queue| queue.serial)
    }

    /// Whether something that we want has not reached the driver: [`Registry::settle`] sends it again.
    pub fn owes(&self) -> bool {
        self.owes.load(Ordering::Acquire)
    }

    /// Sends again what has failed. Nothing happens where nothing is owed.
    pub fn settle(&self) -> Outcome {
        let mut outcome = Outcome::default();
        if self.owes() {
            let mut inner = self.lock();
            let ids = inner.owing();
            inner.apply(&*self.kernel, &ids, &mut outcome);
        }
        outcome
    }

    /// Releases everything and ends what the mechanism has begun: before the process ends or starts anew.
    pub fn shut_down(&self) -> Outcome {
        let mut inner = self.lock();
        inner.holding.clear();
        let ids: Vec<u32> = inner.queues.keys().copied().collect();
        inner.queues.values_mut().for_each(|queue| queue.arbiter.let_go());
        let mut outcome = Outcome::default();
        inner.apply(&*self.kernel, &ids, &mut outcome);
        inner.end_session(&*self.kernel);
        outcome
    }

    /// The queues as they are known.
    pub fn queues(&self) -> Vec<Queue> {
        self.lock().queues.values().cloned().collect()
    }

    /// Devices on which there are compute queues.
    pub fn devices(&self) -> BTreeSet<u32> {
        let inner = self.lock();
        inner.queues.values().filter(|queue| queue.is_compute()).map(|queue| queue.gpu_id).collect()
    }

    /// Devices that are held.
    pub fn holding(&self) -> BTreeSet<u32> {
        self.lock().holding.clone()
    }

    /// Why nothing is held any more, if that is so: the driver did not get queues off in time (ETIME), or has reset some of
    /// this process's (EACCES), or [`Registry::abandon`]'s reason.
    pub fn given_up(&self) -> Option<Errno> {
        self.lock().given_up
    }

    /// Which mechanism it holds by.
    pub fn mechanism(&self) -> Kind {
        self.lock().mechanism.kind()
    }
}

impl Inner {
    /// Queues that are not as we want them. What was not put back when all was given up is lost.
    fn owing(&self) -> Vec<u32> {
        if self.given_up.is_some() {
            return Vec::new();
        }
        let merges = self.mechanism.merges();
        let owed =
            |queue: &&Queue| self.mechanism.state(queue).is_none() && (!merges || queue.arbiter.owes());
        self.queues.values().filter(owed).map(|queue| queue.id).collect()
    }

    /// Brings the driver where it is to be for these queues, in their order, and counts.
    fn apply(&mut self, kernel: &dyn Kernel, ids: &[u32], outcome: &mut Outcome) {
        let mut queues: Vec<&mut Queue> =
            self.queues.values_mut().filter(|queue| ids.contains(&queue.id)).collect();
        queues.sort_by_key(|queue| ids.iter().position(|id| *id == queue.id));
        self.mechanism.apply(kernel, &mut queues, outcome);
        for queue in queues {
            match self.mechanism.state(queue) {
                Some(_) => outcome.queues += 1,
                None => outcome.unsettled += 1,
            }
        }
        if let Some(errno) = outcome.error {
            self.note(Err(errno));
            if self.given_up.is_some() {
                self.release_all(kernel, outcome);
            }
        }
    }

    /// The answer to a request of the runtime's: its time-out ends holding as that of ours does.
    fn answered(&mut self, kernel: &dyn Kernel, result: Result<i32, Errno>) {
        let before = self.given_up;
        self.note(result.map(|_| ()));
        if self.given_up != before {
            self.release_all(kernel, &mut Outcome::default());
        }
    }

    /// Whatever can be released is, once.
    fn release_all(&mut self, kernel: &dyn Kernel, outcome: &mut Outcome) {
        self.queues.values_mut().for_each(|queue| queue.arbiter.let_go());
        let mut queues: Vec<&mut Queue> = self.queues.values_mut().collect();
        self.mechanism.apply(kernel, &mut queues, outcome);
    }

    /// A time-out of the driver's ends holding for good: it resets the device, for everybody on it. So does the word that this
    /// process has lost queues in a reset that came from somebody else (EACCES).
    fn note(&mut self, result: Result<(), Errno>) {
        if let Err(errno @ Errno(libc::ETIME | libc::EACCES)) = result
            && self.given_up.is_none()
        {
            self.given_up = Some(errno);
            self.holding.clear();
        }
    }

    fn end_session(&mut self, kernel: &dyn Kernel) {
        if self.mechanism.end(kernel) {
            self.queues.values_mut().for_each(|queue| queue.suspended = Some(false));
        }
    }
}

/// Enables the debugger's support where the runtime does not (ROCr before 5.5): it must be before the first queue.
fn enable_runtime(kernel: &dyn Kernel) -> bool {
    let mut enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    // EBUSY: somebody has.
    matches!(kernel.call(&mut enable), Ok(_) | Err(Errno(libc::EBUSY)))
}

/// Puts a percentage into CREATE_QUEUE's argument, of whatever length.
fn put_percentage(argument: &mut [u8], percentage: u32) {
    let at = std::mem::offset_of!(kfd::CreateQueue, queue_percentage);
    if let Some(bytes) = argument.get_mut(at..at + size_of::<u32>()) {
        bytes.copy_from_slice(&percentage.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
