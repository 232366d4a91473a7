//! The hardware queues of this process, and the measured cost of evicting them.

use super::device::Capability;
use super::inputs::Inputs;
use hal_kfd::capabilities::{self, Choice, Facts, Refusal, Scheduler};
use hal_kfd::costs::{self, Cost};
use hal_kfd::registry::Marker;
use hal_kfd::{Errno, Kernel, Kfd, MechanismKind, Outcome, Registry};
use parking_lot::Mutex;
use protocol::codes::PreemptLevel;
use protocol::config::{KfdMechanism, KfdProbe};
use protocol::cost::{CostKey, CostOrigin, EvictCost};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The longest acceptable eviction or restoring of an idle queue: a longer one means that the machine has a
/// problem.
const LIMIT: Duration = Duration::from_millis(10);
/// The longest acceptable eviction or restoring of a queue that may have work, which is saved and restored.
const LIMIT_BUSY: Duration = Duration::from_millis(100);
/// The number of queues to try if one after the other is destroyed while it is measured.
const QUEUES_TRIED: usize = 3;
/// The pause before a failed request is repeated.
pub(crate) const RETRY: Duration = Duration::from_millis(5);
/// The number of repetitions for callers that must find no queue evicted. A driver that still fails then will
/// not recover soon.
pub(crate) const TRIES: usize = 200;

/// The hardware queues of this process, and the cost of evicting them.
#[derive(Debug)]
pub struct HardwareQueues {
    /// The queues.
    pub registry: Registry,
    kernel: Arc<Kfd>,
    choice: Choice,
    /// The reason why nothing is ever evicted, if it was known from the beginning.
    never: Option<Refusal>,
    /// The devices' capabilities, by their KFD ids.
    devices: Mutex<BTreeMap<u32, Result<Capability, Refusal>>>,
    /// Lets one measurement run at a time.
    measuring: Mutex<()>,
    inputs: &'static Inputs,
}

fn facts(kernel: &dyn Kernel, gpu_id: u32) -> Result<Facts, Refusal> {
    Facts::read(kernel, Path::new("/sys"), gpu_id, Kfd::is_simulated()).map_err(Refusal::Failed)
}

impl HardwareQueues {
    /// Makes the registry for the queues behind this descriptor; `None` if it is not the KFD's, or evictions
    /// are off.
    ///
    /// # Safety
    ///
    /// The descriptor is this process's, and the process frees the memory of a queue's indices only after it
    /// has destroyed the queue through the registry.
    pub(super) unsafe fn new(descriptor: c_int, gpu_id: u32, inputs: &'static Inputs) -> Option<Self> {
        let choice = match inputs.mechanism()? {
            KfdMechanism::Auto => Choice::Auto,
            KfdMechanism::UpdateQueue => Choice::Only(MechanismKind::UpdateQueue),
            KfdMechanism::DebugTrap => Choice::Only(MechanismKind::DebugTrap),
            KfdMechanism::Off => Choice::Off,
        };
        let kernel = Arc::new(Kfd::recognise(descriptor)?);
        let mut never = None;
        let kind = match choice {
            Choice::Off => return None,
            // Only this mechanism has to be chosen before there is a queue.
            Choice::Only(MechanismKind::DebugTrap) => {
                let chosen = facts(&*kernel, gpu_id)
                    .and_then(|facts| capabilities::choose(choice, &facts, inputs.drains(&facts)));
                chosen.unwrap_or_else(|refusal| {
                    never = Some(refusal);
                    MechanismKind::UpdateQueue
                })
            }
            _ => MechanismKind::UpdateQueue,
        };
        let registry = Registry::new(kernel.clone(), kind);
        let (devices, measuring) = (Mutex::new(BTreeMap::new()), Mutex::new(()));
        let queues = Self { registry, kernel, choice, never, devices, measuring, inputs };
        // The first queue is created in its place already.
        if queues.inputs.is_first() && queues.saves_waves(gpu_id) {
            queues.take_place();
        }
        Some(queues)
    }

    /// Returns true if a descriptor of the program leads to the driver of these queues.
    pub fn is_for(&self, descriptor: c_int) -> bool {
        self.kernel.is_same(descriptor)
    }

    /// Measures a new queue. Its creator does not know it yet, so it is idle.
    pub fn created(&self, queue_id: u32) {
        let queues = self.registry.queues();
        let Some(queue) = queues.iter().find(|queue| queue.id == queue_id) else { return };
        if !queue.is_compute() {
            return;
        }
        self.take_place();
        if self.registry.has_pending() {
            // No other thread may look at this queue soon.
            self.reconcile();
        }
        if self.inputs.requested() != PreemptLevel::Block && !queue.arbiter.held() {
            self.measure(queue.gpu_id, queue.id, true, LIMIT);
        }
        self.inputs.host.level_changed();
    }

    /// Lets the queues go before those of other processes, or not, as the permission says.
    pub(super) fn take_place(&self) {
        loop {
            let first = self.inputs.is_first();
            let before = self.registry.is_first();
            let outcome = self.registry.put_first(first && self.can_take_place());
            if first
                && outcome.unsettled != 0
                && let Some(errno) = outcome.error
            {
                tracing::warn!(
                    "the hardware queues keep their own priority, although the policy puts them first: the driver failed \
                     UPDATE_QUEUE ({errno})"
                );
            }
            if self.registry.is_first() != before {
                tracing::debug!(first = !before, queues = outcome.queues, "priority of the hardware queues");
            }
            // Another thread may have set the older place behind this one.
            if self.inputs.is_first() == first {
                return;
            }
        }
    }

    /// Returns true if the queues can get another place: the driver saves running waves. Where it does not, a request
    /// about a queue waits for its kernels, and resets the device if they take too long.
    fn can_take_place(&self) -> bool {
        self.never.is_none() && self.registry.devices().iter().all(|gpu_id| self.saves_waves(*gpu_id))
    }

    fn saves_waves(&self, gpu_id: u32) -> bool {
        // Refused: the driver says that it saves waves, and a measurement may have shown that it does not.
        let refused = matches!(self.devices.lock().get(&gpu_id), Some(Err(_)));
        !refused && facts(&*self.kernel, gpu_id).is_ok_and(|facts| facts.cwsr == Some(true))
    }

    /// Evicts the queues of a device that have work.
    pub(crate) fn evict(&self, gpu_id: u32) -> Outcome {
        // SAFETY: `new` requires what the registry does.
        unsafe { self.registry.evict(gpu_id) }
    }

    /// Returns true if every device with queues has such a share of its compute units, in 64ths, and the driver has
    /// refused no mask.
    pub(crate) fn can_limit(&self, share: u8) -> bool {
        let known = self.devices.lock();
        let has = |gpu_id: &u32| {
            let Some(Ok(known)) = known.get(gpu_id) else { return false };
            known.facts.units.is_some_and(|units| units.share(share).is_some())
        };
        self.registry.refuses_limits().is_none()
            && self.registry.given_up().is_none()
            && self.registry.devices().iter().all(has)
    }

    /// Limits the queues of a device that were used to a share of its compute units, in 64ths. `None` if that is not
    /// possible.
    pub(crate) fn limit(&self, gpu_id: u32, share: u8) -> Option<Outcome> {
        let units = self.devices.lock().get(&gpu_id)?.as_ref().ok()?.facts.units?;
        // SAFETY: `new` requires what the registry does.
        unsafe { self.registry.limit(gpu_id, units, units.share(share)?) }
    }

    /// Counts the compute queues that have work, which an eviction would evict; `None` while a request of the
    /// runtime is under way. Does not wait.
    pub(crate) fn count_with_work(&self) -> Option<usize> {
        // SAFETY: `new` requires what the registry does.
        unsafe { self.registry.count_with_work() }
    }

    /// Returns how many packets the devices have taken from the queues that exist; `None` while a request of the
    /// runtime is under way. Does not wait.
    pub(crate) fn taken(&self) -> Option<u64> {
        // SAFETY: `new` requires what the registry does.
        unsafe { self.registry.taken() }
    }

    /// Returns the write positions of all devices' queues.
    pub(crate) fn mark_all(&self) -> Vec<Marker> {
        // SAFETY: `new` requires what the registry does.
        self.registry.devices().into_iter().map(|gpu_id| unsafe { self.registry.marker(gpu_id) }).collect()
    }

    /// Measures the cost of an eviction, once for a device. A queue that may have work is measured only where
    /// running waves are saved.
    fn measure(&self, gpu_id: u32, queue: u32, idle: bool, limit: Duration) {
        let _measuring = self.measuring.lock();
        if self.never.is_some() || self.devices.lock().contains_key(&gpu_id) {
            return;
        }
        let facts = facts(&*self.kernel, gpu_id);
        let saves = facts.is_ok_and(|facts| facts.cwsr == Some(true));
        if !idle && !saves && facts.is_ok() {
            return;
        }
        let serial = self.registry.serial(queue);
        let found = facts.and_then(|facts| self.find_cost(facts, gpu_id, queue, limit, saves));
        // `None`: the server has to answer first.
        let Some(capability) = found.transpose() else { return };
        self.reconcile();
        if capability.is_err() && (serial.is_none() || self.registry.serial(queue) != serial) {
            // The queue was destroyed meanwhile, so its failure does not concern the device.
            return;
        }
        match &capability {
            Ok(capability) => tracing::debug!(
                gpu_id,
                hold_us = capability.cost.hold.as_micros(),
                release_us = capability.cost.release.as_micros(),
                "evictions by {} ({}), cost {}",
                self.registry.mechanism().name(),
                capability.facts.scheduler,
                capability.origin.name().unwrap_or("unknown")
            ),
            Err(refusal) => tracing::warn!(
                "GPU {gpu_id}: level {} is asked for and level 1 in force: {refusal}",
                self.inputs.requested()
            ),
        }
        self.devices.lock().insert(gpu_id, capability);
    }

    /// Returns the cost of an eviction from the server, or measures it; `None` if the server has to answer
    /// first.
    fn find_cost(
        &self,
        facts: Facts,
        gpu_id: u32,
        queue: u32,
        limit: Duration,
        saves: bool,
    ) -> Result<Option<Capability>, Refusal> {
        let host = self.inputs.host;
        let kind = capabilities::choose(self.choice, &facts, self.inputs.drains(&facts))?;
        let key = costs::key(&self.kernel, Path::new("/sys"), &facts, gpu_id, kind);
        let probe = self.inputs.probe();
        let known = key.filter(|_| probe != KfdProbe::Always).and_then(|key| host.cost_from_server(key));
        let (cost, origin) = match (known, probe) {
            (Some(known), _) => {
                let [hold, release] = [known.hold_ns(), known.release_ns()].map(Duration::from_nanos);
                (Cost { hold, release }, CostOrigin::Taken)
            }
            // Until the server answers nothing is evicted. By then the queue may have work, so that it can be
            // measured only where its waves are saved.
            (None, KfdProbe::Cached | KfdProbe::Never)
                if saves && !self.inputs.has_server_answered() && host.expects_server() =>
            {
                return Ok(None);
            }
            (None, KfdProbe::Never) => (Cost::default(), CostOrigin::Unmeasured),
            (None, _) => {
                let cost = costs::measure(&self.registry, &*self.kernel, queue, limit, saves)?;
                (cost, CostOrigin::Measured)
            }
        };
        Ok(Some(Capability::new(facts, cost, origin, key)))
    }

    /// Notes the duration of an eviction of a device's queues, or its failure. Returns false if this first
    /// eviction shows that the driver saves nothing: level 1 is then in force.
    pub(crate) fn learn_eviction(&self, gpu_id: u32, took: Option<Duration>) -> bool {
        let mut devices = self.devices.lock();
        let Some(Ok(capability)) = devices.get_mut(&gpu_id) else { return true };
        capability.evicted_in = took;
        capability.failed |= took.is_none();
        let unchecked = capability.trial.is_some() && capability.facts.cwsr == Some(true);
        if took.is_none() || !unchecked {
            return true;
        }
        // The measurement, which was skipped, would have checked this.
        let evicted = self.registry.queues().into_iter().find(|queue| {
            queue.gpu_id == gpu_id && queue.is_compute() && queue.arbiter.held() && queue.save_area != 0
        });
        let saves =
            evicted.map(|queue| capabilities::check_saves_waves(&self.registry, &*self.kernel, queue.id));
        let Some(Err(refusal @ Refusal::NoCwsr)) = saves else { return true };
        tracing::warn!("GPU {gpu_id}: level 1 is in force from now on: {refusal}");
        devices.insert(gpu_id, Err(refusal));
        false
    }

    /// Notes the duration of the restoring after an eviction. Returns true if the known cost has changed.
    pub(crate) fn learn_restore(&self, gpu_id: u32, release: Duration) -> bool {
        let mut devices = self.devices.lock();
        let Some(Ok(capability)) = devices.get_mut(&gpu_id) else { return false };
        capability.evicted_in.take().is_some_and(|hold| capability.learn(Cost { hold, release }))
    }

    /// Returns the origin of the cost; of several devices, that of the least known cost. Allocates nothing,
    /// because each suspension calls it.
    pub(crate) fn origin(&self) -> CostOrigin {
        const LEAST_FIRST: [CostOrigin; 6] = [
            CostOrigin::Unmeasured,
            CostOrigin::Taken,
            CostOrigin::Learnt,
            CostOrigin::Corrected,
            CostOrigin::Confirmed,
            CostOrigin::Measured,
        ];
        let devices = self.devices.lock();
        if devices.values().any(Result::is_err) {
            return CostOrigin::None;
        }
        let occurs =
            |origin: &CostOrigin| devices.values().flatten().any(|capability| capability.origin == *origin);
        LEAST_FIRST.into_iter().find(occurs).unwrap_or_default()
    }

    /// Returns the costs that this process found out by itself, for the server; without a cost where an
    /// eviction failed.
    pub(super) fn own_costs(&self) -> Vec<(CostKey, Option<EvictCost>)> {
        self.devices.lock().values().flatten().filter_map(Capability::own_cost).collect()
    }

    /// Measures the devices that are not measured yet.
    pub(super) fn measure_all(&self) {
        // Repeated, because a queue may be destroyed while it is measured.
        for _ in 0..QUEUES_TRIED {
            // SAFETY: `new` requires what the registry does.
            let quietest = unsafe { self.registry.quietest() };
            for (gpu_id, (queue, idle)) in quietest {
                // A queue that is idle now may be used while it is measured.
                self.measure(gpu_id, queue, idle, LIMIT_BUSY);
            }
            let known = self.devices.lock();
            if self.registry.devices().iter().all(|gpu_id| known.contains_key(gpu_id)) {
                break;
            }
        }
        self.inputs.host.level_changed();
    }

    /// Repeats failed requests until what is to be restored is restored.
    fn reconcile(&self) {
        for _ in 0..TRIES {
            if self.registry.reconcile().unsettled == 0 {
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Restores everything at the end of the process, also what is evicted by name.
    pub(super) fn shut_down(&self) {
        for _ in 0..TRIES {
            if self.registry.shut_down().unsettled == 0 || self.registry.given_up().is_some() {
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Returns true if it is known that nothing is ever evicted.
    pub(super) fn is_refused(&self) -> bool {
        self.never.is_some()
            || self.registry.given_up().is_some()
            || self.devices.lock().values().any(Result::is_err)
    }

    /// Returns the capabilities of all devices with queues.
    ///
    /// # Errors
    /// Queues of one of them cannot be evicted: the reason.
    fn capabilities(&self) -> Result<Vec<Capability>, String> {
        if let Some(refusal) = self.never {
            return Err(refusal.to_string());
        }
        if let Some(errno) = self.registry.given_up() {
            return Err(given_up(errno));
        }
        let devices = self.registry.devices();
        let known = self.devices.lock();
        if devices.is_empty() {
            return Err("the program has no hardware queue yet".to_owned());
        }
        devices
            .iter()
            .map(|gpu_id| match known.get(gpu_id) {
                Some(Ok(capability)) => Ok(*capability),
                Some(Err(refusal)) => Err(refusal.to_string()),
                None if !self.inputs.has_server_answered() => Err(format!(
                    "the cost of an eviction on GPU {gpu_id} is not known until an xserver has answered"
                )),
                None => Err(format!("the cost of an eviction on GPU {gpu_id} has not been measured yet")),
            })
            .collect()
    }

    /// Returns the level in force and the mechanism.
    ///
    /// # Errors
    /// Level 1 is in force: the reason.
    pub(super) fn in_force(&self) -> Result<(PreemptLevel, String), String> {
        let capabilities = self.capabilities()?;
        // An eviction that saves waves interrupts them, whichever level is requested.
        let saves = capabilities.iter().all(|capability| capability.facts.cwsr == Some(true));
        let level = if saves { PreemptLevel::Interrupt } else { PreemptLevel::Deactivate };
        Ok((level, self.registry.mechanism().name().to_owned()))
    }

    /// Returns the known cost for all devices together, and true if an update stops the queues of all
    /// processes for a moment; `None` while level 1 is in force.
    pub(crate) fn cost(&self) -> Option<(Cost, bool)> {
        let capabilities = self.capabilities().ok()?;
        let mut sum = Cost::default();
        for capability in &capabilities {
            sum.hold += capability.cost.hold;
            sum.release += capability.cost.release;
        }
        let stops_all = capabilities.iter().any(|capability| capability.facts.scheduler == Scheduler::Hws);
        Some((sum, stops_all))
    }
}

/// The reason why evictions are off for good.
fn given_up(errno: Errno) -> String {
    match errno.0 {
        libc::ETIME => format!("the driver did not get a queue off in time ({errno}): level 1 for good"),
        _ => format!("the driver has reset queues of this program ({errno}): level 1 for good"),
    }
}
