//! Kernels that keep words in registers and local memory while they are evicted, and the check of what they kept.
//!
//! A kernel's digest is right only if each register and each word of local memory came back as it was, in the right work-item.

use super::parent::spread;
use crate::hip::{DeviceBuffer, Dims, Hip, Stream};
use crate::kernels::{Keep, Kernels, kept_digest};
use anyhow::Result;
use protocol::report::{EvictionTimes, OccupiedRow};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kernels, and the local memory of a work-group in bytes. 64 KiB is the most that every AMD GPU has.
pub(super) const ROWS: [(Keep, u32); 5] =
    [(Keep::Few, 0), (Keep::Few, 16 << 10), (Keep::Few, 64 << 10), (Keep::Many, 0), (Keep::Many, 64 << 10)];
/// The duration of a kernel.
pub(super) const KERNEL: Duration = Duration::from_millis(8);
/// The time from its begin to the eviction, in which all its work-groups are placed.
pub(super) const PLACED: Duration = Duration::from_millis(2);
/// What the memory for the results has before a kernel, in each byte.
const UNWRITTEN: u8 = 0xA5;
/// From which the kept words follow.
const SEED: u64 = 0x5EED_0F0C_CAD0;

/// The measurements of one kernel, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    kernel: String,
    registers: Option<u64>,
    local_bytes: u64,
    groups: u64,
    group_size: u64,
    pub(super) samples: Vec<(f64, f64)>,
    pub(super) interrupted: u64,
    pub(super) stood: u64,
    compared: u64,
    wrong: u64,
}

impl Measured {
    /// Returns the row of the report.
    pub(super) fn row(self) -> Result<OccupiedRow> {
        let Self { kernel, registers, local_bytes, groups, group_size, .. } = self;
        let Self { interrupted, stood, compared, wrong, .. } = self;
        Ok(OccupiedRow {
            kernel,
            registers,
            local_bytes,
            groups,
            group_size,
            kernel_us: KERNEL.as_micros() as u64,
            times: times(self.samples)?,
            interrupted,
            stood,
            compared,
            wrong,
        })
    }

    /// Counts results that were compared with the host's.
    fn compare(&mut self, results: &[u8], expected: &[u64]) {
        let (words, _) = results.as_chunks();
        let differ = words.iter().zip(expected).filter(|(word, want)| u64::from_le_bytes(**word) != **want);
        self.wrong += differ.count() as u64;
        // A result that is missing is wrong.
        self.wrong += expected.len().saturating_sub(words.len()) as u64;
        self.compared += expected.len() as u64;
    }
}

/// Returns the statistics of evictions and restores; `None` without any.
pub(super) fn times(samples: Vec<(f64, f64)>) -> Result<Option<EvictionTimes>> {
    if samples.is_empty() {
        return Ok(None);
    }
    let (holds, releases) = samples.into_iter().unzip();
    Ok(Some(EvictionTimes { hold_us: spread(holds)?, release_us: spread(releases)? }))
}

/// A kernel that fills the device, the memory for its results, and the results that it must have.
#[derive(Debug)]
pub(super) struct Kept {
    keep: Keep,
    dims: Dims,
    out: DeviceBuffer,
    expected: Vec<u64>,
    pub(super) measured: Measured,
}

impl Kept {
    /// Prepares a kernel with so many bytes of local memory for each work-group.
    pub(super) fn new(hip: &Hip, kernels: &Kernels, keep: Keep, local_bytes: u32) -> Result<Self> {
        let dims = kernels.keeping_shape(keep, &hip.device(0)?, local_bytes)?;
        let occupied = kernels.occupied(keep).ok();
        let expected = expected(keep, dims);
        let measured = Measured {
            kernel: keep.name().to_owned(),
            registers: occupied.map(|occupied| occupied.registers.into()),
            local_bytes: u64::from(local_bytes)
                + occupied.map_or(0, |occupied| u64::from(occupied.shared_bytes)),
            groups: dims.grid[0].into(),
            group_size: dims.block[0].into(),
            samples: Vec::new(),
            interrupted: 0,
            stood: 0,
            compared: 0,
            wrong: 0,
        };
        let out = hip.malloc(expected.len() * size_of::<u64>())?;
        Ok(Self { keep, dims, out, expected, measured })
    }

    /// Clears the results behind the stream's work so far.
    pub(super) fn clear(&self, stream: &Stream) -> Result<()> {
        stream.memset(&self.out, UNWRITTEN, self.out.bytes())
    }

    pub(super) fn launch(&self, kernels: &Kernels, stream: &Stream) -> Result<()> {
        kernels.keep(self.keep, stream, &self.out, SEED, KERNEL.as_nanos() as u64, self.dims)
    }

    /// Compares the results of the last kernel, which has ended.
    pub(super) fn compare(&mut self, hip: &Hip) -> Result<()> {
        let mut results = vec![0; self.out.bytes()];
        hip.copy_from_device(&mut results, &self.out)?;
        self.measured.compare(&results, &self.expected);
        Ok(())
    }
}

/// Returns the result of each work-item, in their order.
fn expected(keep: Keep, dims: Dims) -> Vec<u64> {
    let items =
        |group| (0..dims.block[0]).map(move |item| kept_digest(keep.registers(), dims, SEED, group, item));
    (0..dims.grid[0]).flat_map(items).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            kernel: "keep_few".to_owned(),
            registers: Some(21),
            local_bytes: 1024,
            groups: 2,
            group_size: 64,
            samples: vec![(3.0, 4.0)],
            interrupted: 1,
            stood: 1,
            compared: 0,
            wrong: 0,
        }
    }

    #[test]
    fn wrong_memory_is_counted() {
        let dims = Dims { grid: [2, 1, 1], block: [64, 1, 1], shared_bytes: 1024 };
        let expected = expected(Keep::Few, dims);
        let right: Vec<u8> = expected.iter().flat_map(|word| word.to_le_bytes()).collect();
        let wrong = |results: &[u8]| {
            let mut measured = measured();
            measured.compare(results, &expected);
            (measured.compared, measured.wrong)
        };
        assert_eq!(wrong(&right), (128, 0));
        // One bit of one work-item.
        let mut flipped = right.clone();
        flipped[8 * 77 + 5] ^= 1;
        assert_eq!(wrong(&flipped), (128, 1));
        // Two work-items, each with the other's registers.
        let mut swapped = right.clone();
        let (first, second) = swapped.split_at_mut(8);
        first.swap_with_slice(&mut second[..8]);
        assert_eq!(wrong(&swapped), (128, 2));
        // A kernel that did not run, and one that ran in part.
        assert_eq!(wrong(&vec![UNWRITTEN; right.len()]), (128, 128));
        assert_eq!(wrong(&right[..8 * 100]), (128, 28));
    }

    #[test]
    fn lost_registers_and_local_memory_change_every_result() {
        let dims = Dims { grid: [2, 1, 1], block: [64, 1, 1], shared_bytes: 1024 };
        let of = |registers, dims| kept_digest(registers, dims, SEED, 1, 5);
        let right = of(8, dims);
        assert_ne!(of(7, dims), right, "a register less");
        assert_ne!(of(8, Dims { shared_bytes: 512, ..dims }), right, "half of the local memory");
        assert_ne!(kept_digest(8, dims, SEED + 1, 1, 5), right, "other words");
        assert_ne!(kept_digest(8, dims, SEED, 0, 5), right, "another work-group's words");
    }

    #[test]
    fn row_has_the_times_of_its_samples() {
        let row = measured().row().unwrap();
        assert_eq!((row.registers, row.kernel_us), (Some(21), 8000));
        assert_eq!(row.times.unwrap().release_us.p50, 4.0);
        assert_eq!(Measured { samples: vec![], ..measured() }.row().unwrap().times, None);
    }
}
