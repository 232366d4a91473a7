//! What an execution does to memory, in steps small enough that the device's clock stays on time.

use std::collections::VecDeque;

use crate::space::{Fault, View};

/// One change of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `len` bytes from `src` to `dst`.
    Copy {
        /// Destination address.
        dst: u64,
        /// Source address.
        src: u64,
        /// Bytes.
        len: u64,
    },
    /// A pattern of 1 to 128 bytes, over and over, for `len` bytes.
    Fill {
        /// Destination address.
        dst: u64,
        /// The pattern.
        pattern: Vec<u8>,
        /// Bytes.
        len: u64,
    },
    /// `mix` of examples/kernels for the elements `next..end`.
    Mix {
        /// Destination address.
        dst: u64,
        /// Source address.
        src: u64,
        /// Next element.
        next: u32,
        /// One past the last element.
        end: u32,
        /// The command's value.
        value: u64,
    },
    /// `vector_add` of examples/kernels for the elements `next..end`.
    Add {
        /// First operand's address.
        a: u64,
        /// Second operand's address.
        b: u64,
        /// Result's address.
        c: u64,
        /// Next element.
        next: u32,
        /// One past the last element.
        end: u32,
    },
}

/// Changes still to be made, in order.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    ops: VecDeque<Op>,
}

impl Effect {
    /// These changes, in order.
    pub fn new(ops: impl IntoIterator<Item = Op>) -> Self {
        Self { ops: ops.into_iter().collect() }
    }

    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes that are still to be written.
    pub fn bytes(&self) -> u64 {
        let bytes = |op: &Op| match op {
            Op::Copy { len, .. } | Op::Fill { len, .. } => *len,
            Op::Mix { next, end, .. } => u64::from(end - next) * 8,
            Op::Add { next, end, .. } => u64::from(end - next) * 4,
        };
        self.ops.iter().map(bytes).sum()
    }

    /// Makes changes of about `budget` bytes; call until [`Effect::is_done`].
    ///
    /// # Errors
    /// The first address that is not mapped; what came before it has been written.
    pub fn step(&mut self, view: &View<'_>, budget: u64) -> Result<(), Fault> {
        let mut left = budget.max(1);
        while let Some(op) = self.ops.front_mut() {
            let (used, finished) = op.step(view, left)?;
            if finished {
                self.ops.pop_front();
            }
            left = left.saturating_sub(used.max(1));
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

impl Op {
    fn step(&mut self, view: &View<'_>, budget: u64) -> Result<(u64, bool), Fault> {
        match self {
            Self::Copy { dst, src, len } => {
                // Overlapping ranges are moved in one piece, as a whole is defined and parts would not be.
                let overlap = *dst < *src + *len && *src < *dst + *len;
                let n = if overlap { *len } else { (*len).min(budget) };
                view.copy(*dst, *src, n)?;
                *dst += n;
                *src += n;
                *len -= n;
                Ok((n, *len == 0))
            }
            Self::Fill { dst, pattern, len } => {
                let unit = pattern.len() as u64;
                let n = (*len).min(budget.div_ceil(unit) * unit);
                view.fill(*dst, pattern, n)?;
                *dst += n;
                *len -= n;
                Ok((n, *len == 0))
            }
            Self::Mix { dst, src, next, end, value } => {
                let n = (*end - *next).min((budget / 8).max(1) as u32);
                for i in *next..*next + n {
                    let at = u64::from(i) * 8;
                    let mixed = mix_step(view.load_u64(*dst + at)?, view.load_u64(*src + at)?, i, *value);
                    view.write(*dst + at, &mixed.to_le_bytes())?;
                }
                *next += n;
                Ok((u64::from(n) * 8, next == end))
            }
            Self::Add { a, b, c, next, end } => {
                let n = (*end - *next).min((budget / 4).max(1) as u32);
                for i in *next..*next + n {
                    let at = u64::from(i) * 4;
                    let sum =
                        f32::from_bits(view.load_u32(*a + at)?) + f32::from_bits(view.load_u32(*b + at)?);
                    view.write(*c + at, &sum.to_le_bytes())?;
                }
                *next += n;
                Ok((u64::from(n) * 4, next == end))
            }
        }
    }
}

/// `gw_mix_step` of examples/kernels/giveway_kernels.h.
fn mix_step(dst: u64, src: u64, i: u32, value: u64) -> u64 {
    let mut x = dst
        .wrapping_add(src.rotate_left(17))
        .wrapping_add(value)
        .wrapping_add(u64::from(i).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::space::{Backing, Range, Space};
    use proptest::prelude::*;

    fn with_view<R>(run: impl FnOnce(&View<'_>) -> R) -> R {
        let mut arena = Arena::new().unwrap();
        let at = arena.alloc(1 << 16).unwrap();
        let mut space = Space::default();
        space.insert(0x1000, Range { len: 1 << 16, backing: Backing::Arena(at), gpus: 1 });
        run(&View { arena: &arena, space: &space, pid: 0, gpu: 0 })
    }

    fn finish(effect: &mut Effect, view: &View<'_>, budget: u64) {
        while !effect.is_done() {
            effect.step(view, budget).unwrap();
        }
    }

    #[test]
    fn order_repetition_and_loss_change_a_mix() {
        let f = |x, v| mix_step(x, 3, 0, v);
        assert_ne!(f(f(1, 10), 20), f(f(1, 20), 10));
        assert_ne!(f(1, 10), f(f(1, 10), 10));
        assert_ne!(f(1, 10), 1);
    }

    #[test]
    fn a_fault_names_the_address() {
        with_view(|view| {
            let mut effect =
                Effect::new([Op::Fill { dst: 0x1000 + (1 << 16) - 4, pattern: vec![1], len: 8 }]);
            assert_eq!(effect.step(view, 64), Err(Fault { va: 0x1000 + (1 << 16) }));
        });
    }

    proptest! {
        #[test]
        fn steps_of_any_size_give_the_same(budget in 1u64..5000, n in 1u32..600, value in any::<u64>()) {
            with_view(|view| {
                for i in 0..2048u64 {
                    view.write(0x1000 + i * 8, &(i * 77).to_le_bytes()).unwrap();
                }
                let src = 0x1000 + 8192;
                let ops = [
                    Op::Mix { dst: 0x1000, src, next: 0, end: n, value },
                    Op::Copy { dst: 0x8000, src: 0x1000, len: u64::from(n) * 8 },
                    Op::Fill { dst: 0xa000, pattern: vec![1, 2, 3], len: u64::from(n) },
                    Op::Add { a: 0x8000, b: 0x8000, c: 0xc000, next: 0, end: n },
                ];
                let mut effect = Effect::new(ops);
                assert_eq!(effect.bytes(), u64::from(n) * 21);
                finish(&mut effect, view, budget);
                for i in 0..n {
                    let at = u64::from(i) * 8;
                    let expected = mix_step(u64::from(i) * 77, (1024 + u64::from(i)) * 77, i, value);
                    assert_eq!(view.load_u64(0x8000 + at).unwrap(), expected);
                    assert_eq!(view.load::<1>(0xa000 + u64::from(i)).unwrap()[0], (i % 3) as u8 + 1);
                }
            });
        }
    }
}
