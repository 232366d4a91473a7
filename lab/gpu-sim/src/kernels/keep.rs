//! The kernels `keep_few` and `keep_many` of examples/kernels, which store a digest of what they kept in registers and in local
//! memory. The simulated device has neither, so it computes the digest from the kernel's arguments.

use super::arguments::{Arguments, Dispatch};
use super::effect::mix_step;
use crate::space::{Fault, View};

/// The registers of the two kernels, in words of a work-item.
pub(super) const FEW: u32 = 8;
pub(super) const MANY: u32 = 192;

/// The work-items of a kernel whose digests are not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    out: u64,
    seed: u64,
    registers: u32,
    local_words: u32,
    /// Work-items of a work-group, at least 1.
    group: u32,
    next: u32,
    end: u32,
}

impl Keep {
    /// Reads the arguments `(out, seed, local_words, duration_ns)` of a kernel with so many registers.
    pub(super) fn new(args: &Arguments<'_>, dispatch: &Dispatch, registers: u32) -> Result<Self, Fault> {
        let [out, seed, local_words] = [args.u64(0)?, args.u64(1)?, args.u64(2)?];
        let (group, end) = (dispatch.group.max(1), dispatch.grid[0]);
        // A client wrote the number. A work-group has at most 160 KiB of local memory.
        let local_words = (local_words as u32).min(40 << 10);
        Ok(Self { out, seed, registers, local_words, group, next: 0, end })
    }

    /// Returns the bytes that are left to store.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.end - self.next) * 8
    }

    /// Stores the next digests. Returns the bytes of memory whose writing takes about as long, and true at the end.
    pub(super) fn step(&mut self, view: &View<'_>, budget: u64) -> Result<(u64, bool), Fault> {
        let cost = 8 * (1 + u64::from(self.registers) + u64::from(self.local_words.div_ceil(self.group)));
        let mut used = 0;
        while self.next < self.end && used < budget {
            let at = self.out.wrapping_add(u64::from(self.next) * 8);
            view.write(at, &self.digest(self.next).to_le_bytes())?;
            self.next += 1;
            used += cost;
        }
        Ok((used, self.next == self.end))
    }

    /// `gw_keep` of the header for work-item `i`.
    fn digest(&self, i: u32) -> u64 {
        let (group, item) = (i / self.group, i % self.group);
        let first = mix_step(self.seed, 0, i, 0) as u32;
        let registers = (0..self.registers).map(|k| first.wrapping_add(k.wrapping_mul(0x9E37_79B9)));
        let local = (item..self.local_words).step_by(self.group as usize).map(|w| {
            let word = mix_step(!self.seed, 0, self.local_words - 1 - w, group.into());
            (word >> 32) as u32
        });
        registers.chain(local).fold(0xCBF2_9CE4_8422_2325, |digest: u64, word| {
            (digest ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::testing::Memory;

    const OUT: u64 = 0x1000;

    fn keep(registers: u32, seed: u64, local_words: u32, group: u32, end: u32) -> Keep {
        Keep { out: OUT, seed, registers, local_words, group, next: 0, end }
    }

    /// Values of the C functions of the header, compiled by gcc.
    #[test]
    fn digest_is_that_of_the_kernel() {
        assert_eq!(keep(FEW, 5, 0, 64, 64).digest(0), 0x5a15_b4bf_a7a5_922d);
        assert_eq!(keep(FEW, 5, 0, 64, 128).digest(64 + 3), 0x1c08_54bf_06b1_7265);
        assert_eq!(keep(FEW, 5, 130, 64, 128).digest(64 + 3), 0x9c87_1555_45aa_e1d4);
        let many = keep(MANY, 0xfedc_ba98_7654_3210, 4096, 256, 768);
        assert_eq!(many.digest(2 * 256 + 255), 0x93b5_61d3_22a5_2351);
    }

    #[test]
    fn digests_are_stored_in_steps_and_stop_at_unmapped_memory() {
        let memory = Memory::new(&[(OUT, 0x1000)]);
        let view = memory.view();
        let mut keep = keep(FEW, 7, 0, 64, 100);
        let mut steps = 0;
        while !keep.step(&view, 200).unwrap().1 {
            steps += 1;
        }
        assert!(steps > 10 && keep.bytes() == 0, "{steps}");
        assert_eq!(view.load_u64(OUT + 99 * 8).unwrap(), keep.digest(99));
        assert_eq!(view.load_u64(OUT + 100 * 8).unwrap(), 0);
        let mut beyond = Keep { end: 600, next: 0, ..keep };
        assert_eq!(beyond.step(&view, u64::MAX), Err(Fault { va: OUT + 0x1000 }));
    }
}
