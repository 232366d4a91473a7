//! The interface of the models of compute units.
//!
//! A [`Model`] knows kernels only as work-groups that need slots for a time. It reads no clock and touches no
//! memory: the caller states the time and acts on the reported progress. `docs/gpu-model.md` describes both
//! models, their parameters and the reasons, which were fixed before any co-run was measured.

use std::collections::BTreeMap;

use crate::topology::Arch;

/// Virtual time: nanoseconds of the host's monotonic clock.
pub type Time = u64;

/// Identifies a hardware queue within the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// The owning process.
    pub pid: i32,
    /// The KFD's queue id, unique within the process.
    pub id: u32,
}

/// The properties of a queue that decide when its work-groups are placed, and on how much of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Work-groups of the queue with the highest number are placed first.
    pub priority: u32,
    /// The number of slots that its work-groups can hold together; `None` for all.
    pub slots: Option<u32>,
}

/// The properties of all queues. A queue has the default ones until others are set.
#[derive(Debug, Default)]
pub struct PropertyMap(BTreeMap<QueueKey, Properties>);

impl PropertyMap {
    pub fn of(&self, queue: QueueKey) -> Properties {
        self.0.get(&queue).copied().unwrap_or_default()
    }

    /// Sets the properties of a queue. Returns true if that changes them.
    pub fn set(&mut self, queue: QueueKey, properties: Properties) -> bool {
        let changes = self.of(queue) != properties;
        if changes {
            self.0.insert(queue, properties);
        }
        changes
    }

    pub fn remove(&mut self, queue: QueueKey) {
        self.0.remove(&queue);
    }
}

/// Identifies a kernel execution within a model.
pub type WorkId = u64;

/// A kernel execution as the compute units see it.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The id, which the caller chooses and never reuses.
    pub id: WorkId,
    pub queue: QueueKey,
    /// The number of work-groups, at least 1.
    pub groups: u64,
    /// The number of wave slots that one work-group holds.
    pub cost: u32,
    /// The time that the whole kernel takes alone on the device.
    pub alone: Time,
}

/// An event of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its last work-group has been placed: the packet processor may look at the next packet.
    Launched(WorkId),
    /// Its last work-group has ended.
    Done {
        /// The execution.
        id: WorkId,
        /// The time at which the first work-group was placed.
        start: Time,
        /// The time at which the last work-group ended.
        end: Time,
    },
}

/// A model of the compute units.
pub trait Model: Send + std::fmt::Debug {
    /// Takes a kernel at time `now`, which never runs backwards between calls.
    fn submit(&mut self, now: Time, work: Work, out: &mut Vec<Progress>);
    /// Returns the time at which the next work-group ends.
    fn next(&self) -> Option<Time>;
    /// Returns the earliest time of the next [`Progress`], if nothing is submitted or changed before.
    /// Work-groups that end earlier matter to the model only, which can catch up later.
    fn next_visible(&self) -> Option<Time> {
        self.next()
    }
    /// Ends the work-groups that end at `now`, which is [`Model::next`], and places those that wait for
    /// slots.
    fn advance(&mut self, now: Time, out: &mut Vec<Progress>);
    /// Evicts queues at once. Running work-groups are saved with their remaining time.
    fn evict(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>);
    /// Restores evicted queues. Saved work-groups are placed first.
    fn restore(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>);
    fn properties(&self, queue: QueueKey) -> Properties;
    /// Changes the properties of a queue; those of a new one are the default. Running work-groups go on.
    fn set_properties(&mut self, now: Time, queue: QueueKey, properties: Properties, out: &mut Vec<Progress>);
    /// Removes a queue and its work.
    fn remove(&mut self, now: Time, queue: QueueKey, out: &mut Vec<Progress>);
    /// Returns true if any work-group runs.
    fn busy(&self) -> bool;
    /// Returns true if any work-group of this queue runs.
    fn runs(&self, queue: QueueKey) -> bool;
    /// Adds the processes that have running work-groups; one may appear several times.
    fn running(&self, pids: &mut Vec<i32>);
}

/// Returns the number of wave slots of a device.
pub fn slots(arch: &Arch) -> u32 {
    arch.compute_units() * arch.waves_per_cu()
}

/// Returns the number of wave slots that a work-group of `items` work-items with `lds` bytes of local memory
/// holds: its waves, or the share of a compute unit that its local memory blocks, whichever is more.
pub fn group_cost(arch: &Arch, items: u32, lds: u32) -> u32 {
    let per_cu = arch.waves_per_cu();
    let waves = items.max(1).div_ceil(arch.wave_front_size);
    let memory = (u64::from(lds) * u64::from(per_cu)).div_ceil(u64::from(arch.lds())) as u32;
    waves.max(memory).min(per_cu)
}

/// Returns the number of times that a device with `slots` must be filled to place `groups` of `cost`.
pub fn rounds(slots: u32, groups: u64, cost: u32) -> u64 {
    groups.div_ceil(u64::from((slots / cost).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ARCHS;

    #[test]
    fn group_cost_is_the_larger_of_waves_and_local_memory() {
        let arch = &ARCHS[0];
        assert_eq!(slots(arch), 3328);
        assert_eq!(group_cost(arch, 1, 0), 1);
        assert_eq!(group_cost(arch, 256, 0), 4);
        assert_eq!(group_cost(arch, 64, 32 << 10), 16);
        assert_eq!(group_cost(arch, 1024, 64 << 10), 32);
        assert_eq!(group_cost(arch, 0, 0), 1);
        let larger = Arch::find("gfx950").unwrap();
        assert_eq!((slots(larger), group_cost(larger, 64, 80 << 10)), (8192, 16));
        assert_eq!(rounds(3328, 832, 4), 1);
        assert_eq!(rounds(3328, 833, 4), 2);
    }
}
