//! The compute units of a device, and the limit of one queue to some of them.
//!
//! The driver spreads the bits of a mask: first over the dies of a device, then over the shader engines, then
//! over the arrays of each, then over the units of an array (`mqd_symmetrically_map_cu_mask` in
//! `kfd_mqd_manager.c`). The first bits of a mask, in multiples of the number of arrays, are therefore the
//! same number of units in each array, and leave the other queues the same number of units in each.

use crate::arbiter;
use crate::kernel::Errno;
use crate::topology::Device;

/// The bits of a word of a mask.
const WORD: u32 = u32::BITS;
/// The first `gfx_target_version` whose units are paired: both of a pair are set or none, or the driver refuses
/// the mask.
const PAIRED_FROM: u64 = 100_000;

/// The compute units of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Units {
    /// The number of units, at least `step`.
    pub all: u32,
    /// The number of units that are set or not together: 1 or 2.
    pub pair: u32,
    /// The number of units that a limit is a multiple of: one, or one pair, of each shader array.
    pub step: u32,
}

impl Units {
    /// Returns the units of a device; `None` if its properties do not tell.
    ///
    /// `simd_count` and `array_count` count all dies of the device (`node_show` in `kfd_topology.c`).
    pub fn of(device: &Device) -> Option<Self> {
        let property = |name| {
            device.property(name).and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0)
        };
        let all = property("simd_count")? / property("simd_per_cu")?;
        let pair = if device.property("gfx_target_version")? >= PAIRED_FROM { 2 } else { 1 };
        let step = property("array_count")?.checked_mul(pair)?;
        (step <= all).then_some(Self { all, pair, step })
    }

    /// Returns the number of units of a share in 64ths: rounded down to a whole number of units of each shader array,
    /// at least one of each. `None` if that is more than three quarters of a small device.
    pub fn share(self, of_64: u8) -> Option<u32> {
        let units = u64::from(self.all) * u64::from(of_64) / 64;
        // At most 64 64ths of `all`.
        let units = u32::try_from(units).unwrap_or(self.all);
        let units = (units - units % self.step).max(self.step);
        (u64::from(units) * 4 <= u64::from(self.all) * 3).then_some(units)
    }

    /// Returns a mask with all units, in words of 32 bits.
    fn full(self) -> Vec<u32> {
        vec![u32::MAX; self.all.div_ceil(WORD) as usize]
    }

    /// Returns a mask with the first `keep` units of a mask, in whole pairs; an empty mask has all units. `None` if it
    /// has no more than that.
    fn first(self, own: &[u32], keep: u32) -> Option<Vec<u32>> {
        let full = if own.is_empty() { self.full() } else { Vec::new() };
        let own = if own.is_empty() { full.as_slice() } else { own };
        let is_set =
            |unit: &u32| own.get((unit / WORD) as usize).is_some_and(|word| word >> (unit % WORD) & 1 != 0);
        let mut mask = vec![0; own.len()];
        let mut left = keep;
        for unit in (0..self.all).filter(is_set) {
            // The second unit of a pair follows the first one.
            if left == 0 && unit % self.pair == 0 {
                return Some(mask);
            }
            mask[(unit / WORD) as usize] |= 1 << (unit % WORD);
            left = left.saturating_sub(1);
        }
        None
    }
}

/// The mask that the driver is known to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// The mask that the runtime set, or none.
    #[default]
    Own,
    /// Our mask.
    Limited(Vec<u32>),
    /// A request failed after it may have had an effect.
    Unknown,
}

/// The limit of one queue to some of its compute units. Pure: answers of the driver come in, the next mask
/// goes out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitLimit {
    /// The number of units that the queue may use; `None` for all.
    keep: Option<u32>,
    /// The device's units, once there was a limit.
    units: Option<Units>,
    known: Known,
    /// True if the driver is not known to have what we want.
    open: bool,
}

impl UnitLimit {
    /// Limits the queue to so many units.
    pub fn set(&mut self, units: Units, keep: u32) {
        self.open |= (self.units, self.keep) != (Some(units), Some(keep));
        (self.units, self.keep) = (Some(units), Some(keep));
    }

    /// Removes the limit.
    pub fn remove(&mut self) {
        self.open |= self.keep.is_some();
        self.keep = None;
    }

    /// Returns true if the queue is wanted to be limited.
    pub fn is_set(&self) -> bool {
        self.keep.is_some()
    }

    /// Returns true if the driver is known to have what we want.
    pub fn is_settled(&self) -> bool {
        !self.open
    }

    /// Returns the mask to be sent, in words of 32 bits, given the runtime's own; `None` if the driver has it.
    pub fn next(&mut self, own: &[u32]) -> Option<Vec<u32>> {
        if !self.open {
            return None;
        }
        let units = self.units?;
        let limited = self.keep.and_then(|keep| units.first(own, keep));
        self.open = match (&limited, &self.known) {
            (None, Known::Own) => false,
            (Some(limited), Known::Limited(known)) => limited != known,
            _ => true,
        };
        let all = || if own.is_empty() { units.full() } else { own.to_vec() };
        self.open.then(|| limited.unwrap_or_else(all))
    }

    /// Records the answer to a request with the mask that [`UnitLimit::next`] returned. A limit that the driver
    /// refuses is withdrawn.
    pub fn answered(&mut self, sent: Vec<u32>, result: Result<(), Errno>) {
        match result {
            Ok(()) => {
                self.known = if self.keep.is_some() { Known::Limited(sent) } else { Known::Own };
                self.open = false;
            }
            Err(errno) if refuses_mask(errno) => {
                self.keep = None;
                self.open = self.known != Known::Own;
            }
            Err(_) => self.known = Known::Unknown,
        }
    }

    /// Records that the driver has the runtime's new mask.
    pub fn runtime_set(&mut self) {
        self.known = Known::Own;
        self.open = self.keep.is_some();
    }

    /// Records that a request of the runtime with a mask failed after it may have had an effect.
    pub fn invalidate(&mut self) {
        if self.keep.is_some() || self.known != Known::Own {
            (self.known, self.open) = (Known::Unknown, true);
        }
    }
}

/// Returns true if the driver refuses a mask with this error before it changes anything: a wrong value,
/// or a debugger that uses the mask itself (gfx11).
pub(crate) fn refuses_mask(errno: Errno) -> bool {
    arbiter::refused(errno) || errno.0 == libc::EBUSY
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Units = Units { all: 40, pair: 2, step: 8 };

    fn count(mask: &[u32], all: u32) -> u32 {
        (0..all).map(|unit| mask.get((unit / 32) as usize).map_or(0, |word| word >> (unit % 32) & 1)).sum()
    }

    fn device(properties: &str) -> Device {
        Device::with_properties(7, properties)
    }

    #[test]
    fn units_come_from_the_properties_of_the_device() {
        let mi300x = "simd_count 1216\nsimd_per_cu 4\narray_count 32\ngfx_target_version 90402\n";
        assert_eq!(Units::of(&device(mi300x)), Some(Units { all: 304, pair: 1, step: 32 }));
        let navi31 = "simd_count 192\nsimd_per_cu 2\narray_count 12\ngfx_target_version 110000\n";
        assert_eq!(Units::of(&device(navi31)), Some(Units { all: 96, pair: 2, step: 24 }));
        for missing in ["simd_count", "simd_per_cu", "array_count", "gfx_target_version"] {
            assert_eq!(Units::of(&device(&mi300x.replace(missing, "x"))), None, "{missing}");
        }
        assert_eq!(Units::of(&device(&mi300x.replace("array_count 32", "array_count 400"))), None);
        assert_eq!(Units::of(&device(&mi300x.replace("simd_per_cu 4", "simd_per_cu 0"))), None);
    }

    #[test]
    fn share_is_a_whole_number_of_units_of_each_array() {
        let units = Units { all: 304, pair: 1, step: 32 };
        assert_eq!([1, 8, 16, 32, 48].map(|share| units.share(share)), [32, 32, 64, 128, 224].map(Some));
        assert_eq!(units.share(64), None);
        let small = Units { all: 2, pair: 2, step: 2 };
        assert_eq!([1, 16, 48].map(|share| small.share(share)), [None; 3], "all of them are no share");
    }

    #[test]
    fn mask_has_the_first_units_of_the_own_mask() {
        assert_eq!(SMALL.first(&[], 8), Some(vec![0xff, 0]));
        assert_eq!(SMALL.first(&[], 40), None);
        assert_eq!(SMALL.first(&[0xf0f0_f0f0, 0xff], 8), Some(vec![0xf0f0, 0]));
        assert_eq!(SMALL.first(&[0xff], 8), None, "the own mask has no more");
        assert_eq!(SMALL.first(&[0xff, !0xff], 8), None, "bits beyond the units do not count");
        assert_eq!(SMALL.first(&[], 7), Some(vec![0xff, 0]), "whole pairs");
    }

    #[test]
    fn limit_is_sent_once_and_removed_by_the_own_mask() {
        let mut limit = UnitLimit::default();
        assert_eq!(limit.next(&[]), None);
        limit.remove();
        assert!(limit.is_settled(), "there was no limit");
        limit.set(SMALL, 8);
        let mask = limit.next(&[]).unwrap();
        assert_eq!(mask, [0xff, 0]);
        limit.answered(mask, Ok(()));
        assert!(limit.is_settled());
        limit.set(SMALL, 8);
        assert_eq!(limit.next(&[]), None);
        // The runtime sets a mask of its own.
        limit.runtime_set();
        let mask = limit.next(&[!0xff, 0]).unwrap();
        assert_eq!(mask, [0xff00, 0]);
        limit.answered(mask, Ok(()));
        limit.remove();
        let mask = limit.next(&[!0xff, 0]).unwrap();
        assert_eq!(mask, [!0xff, 0]);
        limit.answered(mask, Ok(()));
        assert!(limit.is_settled() && !limit.is_set());
    }

    #[test]
    fn refused_limit_is_withdrawn() {
        let mut limit = UnitLimit::default();
        limit.set(SMALL, 8);
        let mask = limit.next(&[]).unwrap();
        limit.answered(mask, Err(Errno(libc::EBUSY)));
        assert!(limit.is_settled() && !limit.is_set());
        assert_eq!(limit.next(&[]), None);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(u32),
        Remove,
        /// A request of ours: the error, and true if it had an effect nevertheless.
        Send(Option<(i32, bool)>),
        Runtime(u64, Option<(i32, bool)>),
    }

    fn failure() -> impl Strategy<Value = Option<(i32, bool)>> {
        prop_oneof![
            4 => Just(None),
            1 => Just(Some((libc::EBUSY, false))),
            1 => Just(Some((libc::EINVAL, false))),
            2 => any::<bool>().prop_map(|after| Some((libc::EIO, after))),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..5u32).prop_map(|steps| Step::Set(8 * steps)),
            Just(Step::Remove),
            failure().prop_map(Step::Send),
            (any::<u32>(), failure()).prop_map(|(pairs, failure)| {
                let own = (0..20)
                    .filter(|pair| pairs >> pair & 1 != 0)
                    .fold(0u64, |own, pair| own | 3 << (2 * pair));
                Step::Runtime(own, failure)
            }),
        ]
    }

    /// Makes the next request to a driver with this mask. Returns false if there is none to make.
    fn send(limit: &mut UnitLimit, own: &[u32], driver: &mut Vec<u32>, failure: Option<(i32, bool)>) -> bool {
        let Some(mask) = limit.next(own) else { return false };
        assert!(mask.iter().all(|word| word & 0x5555_5555 == word >> 1 & 0x5555_5555), "whole pairs");
        if failure.is_none_or(|(_, after)| after) {
            driver.clone_from(&mask);
        }
        limit.answered(mask, failure.map_or(Ok(()), |(errno, _)| Err(Errno(errno))));
        true
    }

    proptest! {
        /// Whatever fails: once the requests succeed, the driver has the wanted mask, and it asks for no more. Without
        /// a limit it has exactly the runtime's units.
        #[test]
        fn driver_has_the_wanted_mask_in_the_end(steps in prop::collection::vec(step(), 0..40)) {
            let all = |mask: &[u32]| if mask.is_empty() { vec![u32::MAX, 0xff] } else { mask.to_vec() };
            let mut limit = UnitLimit::default();
            let (mut own, mut driver): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Set(keep) => limit.set(SMALL, keep),
                    Step::Remove => limit.remove(),
                    Step::Send(failure) => {
                        send(&mut limit, &own, &mut driver, failure);
                    }
                    Step::Runtime(bits, failure) => {
                        let mask = vec![bits as u32, (bits >> 32) as u32];
                        match failure {
                            None => {
                                (own, driver) = (mask.clone(), mask);
                                limit.runtime_set();
                            }
                            Some((errno, after)) if !refuses_mask(Errno(errno)) => {
                                if after && (limit.is_set() || limit.known != Known::Own) {
                                    driver = mask;
                                }
                                limit.invalidate();
                            }
                            Some(_) => {}
                        }
                    }
                }
            }
            while send(&mut limit, &own, &mut driver, None) {}
            prop_assert!(limit.is_settled());
            let (has, may) = (count(&all(&driver), 40), count(&all(&own), 40));
            match limit.keep {
                Some(keep) => prop_assert_eq!(has, may.min(keep)),
                None => prop_assert_eq!(has, may),
            }
        }
    }
}
