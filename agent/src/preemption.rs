//! The preemption level of this process: the level that is requested, and the one in force.
//!
//! Levels above 1 evict hardware queues. The cost of an eviction is measured on the first queue of each
//! device, before its creator knows it, and only if such a level is requested ([`Preemption::request`]). Each
//! measurement may stop the queues of all processes for a moment. If the server knows the cost from an
//! earlier program, that cost is used instead, and the first evictions check it (`XSCHED_KFD_PROBE`).

mod device;
mod inputs;
mod queues;

use crate::host::Host;
use hal_kfd::Errno;
use hal_kfd::capabilities::Refusal;
use inputs::Inputs;
use parking_lot::Mutex;
use protocol::codes::PreemptLevel;
use protocol::config::KfdMechanism;
use protocol::cost::{CostKey, EvictCost};
pub use queues::HardwareQueues;
pub(crate) use queues::{RETRY, TRIES};
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The preemption level of this process, and its hardware queues.
#[derive(Debug)]
pub struct Preemption {
    inputs: Inputs,
    /// Null until the first queue is made; never freed.
    queues: AtomicPtr<HardwareQueues>,
    /// Lets one thread at a time create `queues`.
    making: Mutex<()>,
    /// True once the program has made a further context (CREATE_PROCESS, ABI 1.19), whose queues have numbers
    /// of their own: queues are not followed from then on, and level 1 is in force.
    has_further_context: AtomicBool,
}

impl Preemption {
    /// Makes the state of a process without queues.
    pub const fn new(host: &'static dyn Host) -> Self {
        Self {
            inputs: Inputs::new(host),
            queues: AtomicPtr::new(ptr::null_mut()),
            making: Mutex::new(()),
            has_further_context: AtomicBool::new(false),
        }
    }

    pub(crate) fn host(&self) -> &'static dyn Host {
        self.inputs.host
    }

    /// Starts a process. A forked child's parent had queues that are not the child's.
    pub fn begin(&self, level: u8) {
        self.queues.store(ptr::null_mut(), Ordering::Release);
        self.has_further_context.store(false, Ordering::Release);
        self.inputs.server_answered.store(false, Ordering::Release);
        self.inputs.set_first(false);
        self.inputs.set_requested(level);
    }

    /// Replaces the requested level, before the process uses a device.
    pub fn set_requested(&self, level: u8) {
        self.inputs.set_requested(level);
    }

    /// Requests a level, and measures idle queues that are not measured yet. Returns false if it is known
    /// that level 1 stays in force.
    pub fn request(&self, level: PreemptLevel) -> bool {
        self.inputs.raise_requested(level);
        if level == PreemptLevel::Block {
            return true;
        }
        if self.is_off() {
            return false;
        }
        self.queues().is_none_or(|queues| {
            queues.measure_all();
            !queues.is_refused()
        })
    }

    /// Returns true if the configuration turns evictions off, or there is no configuration.
    fn is_off(&self) -> bool {
        self.inputs.mechanism().is_none_or(|mechanism| mechanism == KfdMechanism::Off)
    }

    /// Measures the devices whose cost the server does not know: its page shows the known costs by now, or no
    /// server is waited for any more.
    pub fn stop_waiting_for_server(&self) {
        self.inputs.server_answered.store(true, Ordering::Release);
        if self.inputs.requested() != PreemptLevel::Block
            && let Some(queues) = self.queues()
        {
            queues.measure_all();
        }
    }

    /// Sets whether the process's queues go before those of other processes, those that are created from now on too.
    pub(crate) fn put_first(&self, first: bool) {
        if self.inputs.set_first(first)
            && let Some(queues) = self.queues()
        {
            queues.take_place();
        }
    }

    /// Returns the hardware queues, once the first one is made. Only for the program's own calls and threads
    /// of the library.
    pub fn queues(&self) -> Option<&'static HardwareQueues> {
        self.all_queues().filter(|_| !self.has_further_context.load(Ordering::Acquire))
    }

    fn all_queues(&self) -> Option<&'static HardwareQueues> {
        // SAFETY: the pointer is null, or was leaked by `queues_for`.
        unsafe { self.queues.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the hardware queues behind this descriptor, on which a queue of this device is about to be
    /// made. The first one makes the registry, and `made` runs then.
    ///
    /// # Safety
    ///
    /// The descriptor is this process's, and the process frees the memory of a queue's indices only after it
    /// has destroyed the queue through the registry.
    pub unsafe fn queues_for(
        &'static self,
        descriptor: c_int,
        gpu_id: u32,
        made: impl FnOnce(),
    ) -> Option<&'static HardwareQueues> {
        let _making = self.making.lock();
        if let Some(queues) = self.queues() {
            return queues.is_for(descriptor).then_some(queues);
        }
        if self.has_further_context.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: this function requires what `new` does.
        let queues = unsafe { HardwareQueues::new(descriptor, gpu_id, &self.inputs) }?;
        let queues = Box::leak(Box::new(queues));
        self.queues.store(queues, Ordering::Release);
        made();
        Some(queues)
    }

    /// Stops following the queues and turns evictions off for good: the program has made a further context.
    /// `ready`: the library has started in this process.
    pub fn further_context_made(&self, ready: bool) {
        if self.has_further_context.swap(true, Ordering::AcqRel) || !ready {
            return;
        }
        if let Some(queues) = self.all_queues() {
            queues.registry.abandon(Errno(libc::EOPNOTSUPP));
        }
        self.host().level_changed();
    }

    /// Restores everything at the end of the process.
    pub fn shut_down(&self) {
        if let Some(queues) = self.queues() {
            queues.shut_down();
        }
    }

    /// Returns the costs that this process found out by itself, for the server; without a cost where an
    /// eviction failed.
    pub(crate) fn own_costs(&self) -> Vec<(CostKey, Option<EvictCost>)> {
        self.queues().map(HardwareQueues::own_costs).unwrap_or_default()
    }

    /// Returns the level in force, and its mechanism or the reason why it is not the requested one.
    pub fn in_force(&self) -> (PreemptLevel, String) {
        if self.inputs.requested() == PreemptLevel::Block {
            return (PreemptLevel::Block, String::new());
        }
        let why = match self.queues() {
            Some(queues) => match queues.in_force() {
                Ok(found) => return found,
                Err(why) => why,
            },
            None if self.inputs.mechanism() == Some(KfdMechanism::Off) => Refusal::Off.to_string(),
            None if self.has_further_context.load(Ordering::Acquire) => {
                "the program has further contexts (CREATE_PROCESS), whose queues cannot be told from the others"
                    .to_owned()
            }
            None => self.inputs.no_queues().why().to_owned(),
        };
        (PreemptLevel::Block, why)
    }

    /// Logs once that a deeper level is requested and cannot be had, if the reason is that no queue is known.
    pub(crate) fn warn_if_no_queues(&self) {
        static LOGGED: AtomicBool = AtomicBool::new(false);
        if self.inputs.requested() == PreemptLevel::Block || self.queues().is_some() || self.is_off() {
            return;
        }
        let found = self.inputs.no_queues();
        if !found.may_come() && !LOGGED.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "level {} is asked for and level 1 in force: {}",
                self.inputs.requested().number(),
                found.why()
            );
        }
    }
}
