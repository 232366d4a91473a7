//! Slices of device time: the account and the devices that all policies with slices have in common.
//!
//! `round_robin` (UP, PUP, SPUP), `virtual_runtime` (CFS, FAIR) and `credit` (CREDIT) keep a [`SliceAccount`] for each
//! entity and add their own rule: who is next, and how long its slice is.

use crate::sched_entity::{DeviceUse, SchedEntity};
use protocol::time::Time;
use std::time::Duration;

/// A slice with less left than this is over, in nanoseconds; the rest counts in the next one.
pub(crate) const GRAIN: i64 = 10_000;

/// The shortest slice in nanoseconds, unless all slices together are shorter: switching takes hundreds of microseconds.
pub(crate) const SHORTEST: i64 = 500_000;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SliceAccount {
    /// Its part of the device, relative to the others.
    pub weight: u64,
    /// Device time that is left of its slice, in nanoseconds.
    pub left: i64,
    /// True from the beginning of a slice to its end.
    pub begun: bool,
    /// True if the last decision gave it its devices.
    pub owns: bool,
    /// True while it has its slice but another policy's decision keeps it from running. It keeps its devices from no entity
    /// then.
    pub held: bool,
    /// True if another entity wants one of its devices, so that the time that it runs counts.
    pub contended: bool,
}

impl SliceAccount {
    /// Notes whether another policy's decision keeps the entity from running. Returns true if that has just ended.
    pub fn note_held(&mut self, entity: &SchedEntity) -> bool {
        let held = (self.owns || self.held) && entity.ready && !entity.running;
        std::mem::replace(&mut self.held, held) && entity.running
    }

    /// Returns true if its slice has begun and nothing of it is left.
    pub fn is_over(&self) -> bool {
        self.begun && self.left <= GRAIN
    }
}

/// Returns the time at which a span of device time is over. The time of an entity that does not run stands still, so
/// the next look at it comes no sooner than a short slice.
pub(crate) fn end(now: Time, left: i64, runs: bool, slice: i64) -> Time {
    let least = if runs { GRAIN } else { SHORTEST.min(slice) };
    now.after(Duration::from_nanos(left.max(least).unsigned_abs()))
}

/// Limits the length of a slice to what is worth a switch and to the longest slice.
pub(crate) fn limited(slice: i64, longest: i64) -> i64 {
    slice.clamp(longest.min(SHORTEST), longest)
}

/// A device during one decision.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Device {
    /// The number of entities that would disturb each other here.
    rivals: u32,
    /// True if an entity has the device.
    claimed: bool,
    /// The largest weight.
    pub heaviest: u64,
    /// The sum of the weights.
    pub sum: u64,
}

/// The devices during one decision, in the order of the entities' devices.
#[derive(Debug, Default)]
pub(crate) struct Devices(pub Vec<Device>);

impl Devices {
    /// Begins a decision.
    pub fn reset(&mut self, count: usize) {
        self.0.clear();
        self.0.resize(count, Device::default());
    }

    /// Adds a rival.
    pub fn add_rival(&mut self, uses: &[DeviceUse]) {
        uses.iter().for_each(|used| self.0[used.device].rivals += 1);
    }

    /// Returns the largest weight on any of these devices.
    pub fn heaviest<'a>(&self, uses: impl Iterator<Item = &'a DeviceUse>) -> u64 {
        uses.map(|used| self.0[used.device].heaviest).max().unwrap_or(0)
    }

    /// Returns true if two entities or more want one of these devices.
    pub fn is_contended(&self, uses: &[DeviceUse]) -> bool {
        uses.iter().any(|used| self.0[used.device].rivals > 1)
    }

    /// Returns true if an entity has one of these devices.
    pub fn is_claimed(&self, uses: &[DeviceUse]) -> bool {
        uses.iter().any(|used| self.0[used.device].claimed)
    }

    /// Gives these devices to an entity.
    pub fn claim<'a>(&mut self, uses: impl Iterator<Item = &'a DeviceUse>) {
        uses.for_each(|used| self.0[used.device].claimed = true);
    }
}

/// Returns the uses of the devices on which the entity has work.
pub(crate) fn busy(uses: &[DeviceUse]) -> impl Iterator<Item = &DeviceUse> + Clone {
    uses.iter().filter(|used| used.busy)
}

/// Returns the time × a weight ÷ a sum of weights.
pub(crate) fn part(time: i64, weight: u64, sum: u64) -> i64 {
    // Weights are small; a product that does not fit saturates.
    let [weight, sum] = [weight, sum.max(1)].map(|weight| i64::try_from(weight).unwrap_or(i64::MAX));
    time.saturating_mul(weight) / sum
}

/// Returns the nanoseconds of a span, limited to what fits.
pub(crate) fn nanos(span: Duration) -> i64 {
    span.as_nanos().try_into().unwrap_or(i64::MAX)
}
