//! A driver for tests: it keeps queues as the real one does, logs requests, and fails on request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hip_sys::kfd::{self, Ioctl as _, Plain as _, debug, debug::Operation as _};
use parking_lot::Mutex;
use std::sync::{Arc, Barrier};

use crate::arbiter::Setting;
use crate::capabilities::{Facts, Scheduler};
use crate::kernel::{Errno, Kernel};

/// The facts of a driver and a device on which each mechanism works.
pub const FACTS: Facts = Facts {
    version: (1, 17),
    scheduler: Scheduler::Hws,
    cwsr: Some(true),
    debugger: true,
    simulated: false,
    units: None,
};

/// A queue in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeQueue {
    pub kept: Setting,
    /// True while the queue is on the hardware.
    pub mapped: bool,
    pub suspended: bool,
    pub new: bool,
}

/// The failure of a call.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub errno: i32,
    /// True if the call took effect nevertheless.
    pub after: bool,
}

#[derive(Debug, Default)]
pub struct State {
    pub queues: BTreeMap<u32, FakeQueue>,
    /// The masks of compute units that were set.
    pub masks: BTreeMap<u32, Vec<u32>>,
    pub runtime: bool,
    pub session: bool,
    /// True if a debugger cannot evict queues.
    pub hangs: bool,
    /// Queues that a debugger's suspend ignores, like those that are being destroyed.
    pub ignored: BTreeSet<u32>,
    /// The request numbers; 0x100 plus the operation for DBG_TRAP.
    pub log: Vec<u32>,
    /// The queues of update requests, in order.
    pub updated: Vec<u32>,
    /// The results of the next calls about queues; `None` succeeds.
    pub failures: VecDeque<Option<Failure>>,
    /// The barriers at which a destruction waits, in turn.
    pub gate: Option<Arc<[Barrier; 2]>>,
}

#[derive(Debug, Default)]
pub struct FakeKernel(pub Mutex<State>);

impl FakeKernel {
    /// Sets the results of the next calls.
    pub fn fail(&self, failures: impl IntoIterator<Item = Option<Failure>>) {
        self.0.lock().failures = failures.into_iter().collect();
    }

    pub fn queue(&self, id: u32) -> FakeQueue {
        self.0.lock().queues[&id]
    }

    /// Returns the mask of compute units of a queue; empty if none was set.
    pub fn mask(&self, id: u32) -> Vec<u32> {
        self.0.lock().masks.get(&id).cloned().unwrap_or_default()
    }

    /// Returns true if work of the queue runs.
    pub fn runs(&self, id: u32) -> bool {
        let queue = self.queue(id);
        queue.mapped && !queue.suspended
    }

    /// Returns the request numbers since the last call.
    pub fn asked(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().log)
    }
}

impl State {
    fn update(&mut self, a: &kfd::UpdateQueue, failure: Option<Failure>) -> Result<i32, Errno> {
        self.updated.push(a.queue_id);
        if a.queue_percentage & 0xff > 100 || a.queue_priority > 15 {
            return Err(Errno(libc::EINVAL));
        }
        let queue = self.queues.get_mut(&a.queue_id).ok_or(Errno(libc::EFAULT))?;
        queue.kept = Setting::of(a);
        if failure.is_none_or(|failure| failure.after) {
            queue.mapped = a.queue_percentage & 0xff > 0;
        }
        failure.map_or(Ok(0), |failure| Err(Errno(failure.errno)))
    }

    fn set_mask(&mut self, a: &kfd::SetCuMask, failure: Option<Failure>) -> Result<i32, Errno> {
        if a.num_cu_mask == 0 || !a.num_cu_mask.is_multiple_of(32) {
            return Err(Errno(libc::EINVAL));
        }
        if !self.queues.contains_key(&a.queue_id) {
            return Err(Errno(libc::EFAULT));
        }
        let mut mask = vec![0u32; a.num_cu_mask.min(1024) as usize / 32];
        // SAFETY: the request's mask of so many bits, which the caller keeps alive until this call returns.
        unsafe {
            std::ptr::copy_nonoverlapping(
                a.cu_mask_ptr as *const u8,
                mask.as_mut_ptr().cast(),
                4 * mask.len(),
            )
        };
        if failure.is_none_or(|failure| failure.after) {
            self.masks.insert(a.queue_id, mask);
        }
        failure.map_or(Ok(0), |failure| Err(Errno(failure.errno)))
    }

    fn trap(&mut self, trap: &mut debug::DbgTrap) -> Result<i32, Errno> {
        assert_eq!(trap.pid, std::process::id(), "the fake has only this process");
        self.log.push(0x100 + trap.op);
        if let Some(Some(failure)) = self.failures.pop_front() {
            return Err(Errno(failure.errno));
        }
        if trap.op != debug::Enable::OP && !self.session {
            return Err(Errno(libc::EINVAL));
        }
        if matches!(trap.op, debug::SuspendQueues::OP | debug::ResumeQueues::OP) && !self.runtime {
            return Err(Errno(libc::EPERM));
        }
        match trap.op {
            debug::Enable::OP if self.session => Err(Errno(libc::EALREADY)),
            debug::Enable::OP => {
                self.session = true;
                Ok(0)
            }
            debug::Disable::OP => {
                self.session = false;
                self.queues.values_mut().for_each(|queue| queue.suspended = false);
                Ok(0)
            }
            debug::QueueSnapshot::OP => {
                self.queues.values_mut().for_each(|queue| queue.new = false);
                Ok(0)
            }
            debug::SuspendQueues::OP => {
                let a: debug::SuspendQueues = trap.get();
                if self.hangs {
                    return Ok(self.each(a.queue_array_ptr, a.num_queues, |_, _| None));
                }
                let ignored = self.ignored.clone();
                Ok(self.each(a.queue_array_ptr, a.num_queues, |id, queue| {
                    let takes = !queue.new && !ignored.contains(&id);
                    queue.suspended |= takes;
                    Some(takes)
                }))
            }
            debug::ResumeQueues::OP => {
                let a: debug::ResumeQueues = trap.get();
                Ok(self.each(a.queue_array_ptr, a.num_queues, |_, queue| {
                    queue.suspended = false;
                    Some(true)
                }))
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    /// Calls `change` for each queue of an array: true if it changed the queue, false if it ignored it,
    /// `None` if it failed. Returns the number of changed queues.
    fn each(
        &mut self,
        at: u64,
        count: u32,
        mut change: impl FnMut(u32, &mut FakeQueue) -> Option<bool>,
    ) -> i32 {
        // SAFETY: the request's array of `count` ids, which the caller keeps alive until this call returns.
        let ids = unsafe { std::slice::from_raw_parts_mut(at as *mut u32, count as usize) };
        let mut done = 0;
        for id in ids {
            match self.queues.get_mut(id).map(|queue| change(*id, queue)) {
                Some(Some(true)) => done += 1,
                Some(None) => *id |= debug::QUEUE_ERROR,
                Some(Some(false)) | None => *id |= debug::QUEUE_INVALID,
            }
        }
        done
    }
}

impl Kernel for FakeKernel {
    fn execute(&self, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let nr = kfd::request_number(command).expect("a request of the KFD");
        let gate = self.0.lock().gate.clone().filter(|_| nr == kfd::DestroyQueue::NR);
        gate.iter().flat_map(|gate| gate.iter()).for_each(|barrier| {
            barrier.wait();
        });
        let mut state = self.0.lock();
        if nr == debug::DbgTrap::NR {
            let mut trap = debug::DbgTrap::from_bytes(argument);
            return state.trap(&mut trap);
        }
        state.log.push(nr.into());
        if nr == debug::RuntimeEnable::NR {
            if !state.queues.is_empty() {
                return Err(Errno(libc::EEXIST));
            }
            state.runtime = true;
            return Ok(0);
        }
        let failure = state.failures.pop_front().flatten();
        match (nr, failure) {
            (kfd::UpdateQueue::NR, _) => state.update(&kfd::UpdateQueue::from_bytes(argument), failure),
            (kfd::SetCuMask::NR, _) => state.set_mask(&kfd::SetCuMask::from_bytes(argument), failure),
            (_, Some(failure)) => Err(Errno(failure.errno)),
            (kfd::CreateQueue::NR, _) => {
                let mut a = kfd::CreateQueue::from_bytes(argument);
                a.queue_id = (0..).find(|id| !state.queues.contains_key(id)).unwrap();
                let kept = Setting::of_creation(&a);
                let (mapped, new) = (kept.percentage & 0xff > 0, state.session);
                state.queues.insert(a.queue_id, FakeQueue { kept, mapped, suspended: false, new });
                let len = argument.len().min(size_of::<kfd::CreateQueue>());
                argument[..len].copy_from_slice(&a.as_bytes()[..len]);
                Ok(0)
            }
            (kfd::DestroyQueue::NR, _) => {
                let id = kfd::DestroyQueue::from_bytes(argument).queue_id;
                let queue = state.queues.remove(&id).ok_or(Errno(libc::EINVAL))?;
                state.masks.remove(&id);
                assert!(!queue.suspended, "the real driver would block now");
                Ok(0)
            }
            _ => Ok(0),
        }
    }
}
