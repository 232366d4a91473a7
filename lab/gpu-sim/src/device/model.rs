//! The compute units of one GPU in virtual time: which work-groups run when.
//!
//! A [`Model`] knows kernels only as work-groups that need slots for a time. It reads no clock and touches no memory:
//! the engine says what time it is and acts on what it is told. Both models, their parameters and the reasons stand
//! in `docs/gpu-model.md` and were fixed before any co-run was measured.

use crate::topology::Arch;

/// Virtual time: nanoseconds of the host's monotonic clock.
pub type Time = u64;

/// Names a hardware queue within the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// The owning process.
    pub pid: i32,
    /// The KFD's queue id, unique within the process.
    pub id: u32,
}

/// Names a kernel execution within a model.
pub type WorkId = u64;

/// A kernel execution as the compute units see it.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Chosen by the engine, never reused.
    pub id: WorkId,
    /// Where it came from.
    pub queue: QueueKey,
    /// Work-groups, at least 1.
    pub groups: u64,
    /// Wave slots that one work-group holds.
    pub cost: u32,
    /// How long the whole kernel takes alone on the device.
    pub alone: Time,
}

/// What happened to an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its last work-group has been placed: the packet processor may look at the next packet.
    Launched(WorkId),
    /// Its last work-group has ended.
    Done {
        /// Which.
        id: WorkId,
        /// When the first work-group was placed.
        start: Time,
        /// When the last one ended.
        end: Time,
    },
}

/// A model of the compute units.
pub trait Model: Send + std::fmt::Debug {
    /// Takes a kernel at time `now`, which never runs backwards between calls.
    fn submit(&mut self, now: Time, work: Work, out: &mut Vec<Progress>);
    /// The next time at which something ends by itself.
    fn next(&self) -> Option<Time>;
    /// No sooner than this there is [`Progress`], if nothing is submitted or changed before: what ends until then matters
    /// to the model alone, and can be caught up with later.
    fn next_visible(&self) -> Option<Time> {
        self.next()
    }
    /// Ends whatever ends at `now`, which is [`Model::next`], and places what waits for its slots.
    fn advance(&mut self, now: Time, out: &mut Vec<Progress>);
    /// Takes queues off the hardware at once: running work-groups are saved with their remaining time.
    fn hold(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>);
    /// Puts held queues back; saved work-groups are placed again first.
    fn resume(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>);
    /// Forgets a queue and its work.
    fn remove(&mut self, now: Time, queue: QueueKey, out: &mut Vec<Progress>);
    /// Whether any work-group runs.
    fn busy(&self) -> bool;
    /// Whether any work-group of this queue runs.
    fn runs(&self, queue: QueueKey) -> bool;
}

/// Wave slots of a device.
pub fn slots(arch: &Arch) -> u32 {
    arch.compute_units() * arch.waves_per_cu()
}

/// Wave slots that a work-group of `items` work-items with `lds` bytes of local memory holds: its waves, or the share
/// of a compute unit that its local memory keeps others from using, whichever is more.
pub fn group_cost(arch: &Arch, items: u32, lds: u32) -> u32 {
    let per_cu = arch.waves_per_cu();
    let waves = items.max(1).div_ceil(arch.wave_size());
    let memory = (u64::from(lds) * u64::from(per_cu)).div_ceil(u64::from(arch.lds())) as u32;
    waves.max(memory).min(per_cu)
}

/// How often a device with `slots` must be filled to place `groups` of `cost`.
pub fn rounds(slots: u32, groups: u64, cost: u32) -> u64 {
    groups.div_ceil(u64::from((slots / cost).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ARCHS;

    #[test]
    fn cost_is_waves_or_local_memory() {
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
