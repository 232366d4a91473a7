//! The effect of a kernel on memory, made in small steps so that the engine stays on time.

use std::collections::VecDeque;

use super::keep::Keep;
use crate::space::{Fault, View};

/// The largest number of elements of a step of `mix` and `vector_add`.
const ELEMENTS: usize = 512;

/// One change of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Copies `len` bytes from `src` to `dst`.
    Copy { dst: u64, src: u64, len: u64 },
    /// Repeats a pattern of 1 to 128 bytes for `len` bytes.
    Fill { dst: u64, pattern: Vec<u8>, len: u64 },
    /// Executes `mix` of examples/kernels for the elements `next..end`.
    Mix {
        dst: u64,
        src: u64,
        next: u32,
        end: u32,
        /// The command's value.
        value: u64,
    },
    /// Executes `vector_add` of examples/kernels for the elements `next..end`.
    Add { a: u64, b: u64, c: u64, next: u32, end: u32 },
    /// Executes `keep_few` or `keep_many` of examples/kernels.
    Keep(Keep),
    /// Adds a number to the word of 64 bits at `at`.
    Count { at: u64, by: u64 },
    /// Makes the same changes for every row of a rectangle.
    Rows(Rows),
}

/// The rows of a rectangle, from the first plane to the last. They are expanded one by one, because a client
/// chooses their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    pub first: Vec<Op>,
    pub rows: u32,
    pub planes: u32,
    /// The distances from row to row and from plane to plane in the destination, bytes.
    pub dst: [u64; 2],
    /// The same distances in the source.
    pub src: [u64; 2],
    /// The number of rows that have been expanded.
    pub next: u64,
}

impl Rows {
    fn left(&self) -> u64 {
        (u64::from(self.rows) * u64::from(self.planes)).saturating_sub(self.next)
    }

    /// Returns the changes of the next row; `None` after the last.
    fn next(&mut self) -> Option<Vec<Op>> {
        if self.left() == 0 {
            return None;
        }
        let rows = u64::from(self.rows);
        let (y, z) = (self.next % rows, self.next / rows);
        self.next += 1;
        let by = |step: [u64; 2]| y.wrapping_mul(step[0]).wrapping_add(z.wrapping_mul(step[1]));
        Some(self.first.iter().map(|op| op.moved_by(by(self.dst), by(self.src))).collect())
    }
}

#[derive(Clone, Debug, Default)]
pub struct Effect {
    ops: VecDeque<Op>,
}

impl Effect {
    pub fn new(ops: impl IntoIterator<Item = Op>) -> Self {
        Self { ops: ops.into_iter().collect() }
    }

    pub fn is_done(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns the number of bytes that remain to be written.
    pub fn bytes(&self) -> u64 {
        self.ops.iter().map(Op::bytes).fold(0, u64::saturating_add)
    }

    /// Makes all changes, in steps of about `budget` bytes.
    pub fn finish(&mut self, view: &View<'_>, budget: u64) -> Result<(), Fault> {
        while !self.is_done() {
            self.step(view, budget)?;
        }
        Ok(())
    }

    /// Makes changes of about `budget` bytes; call it until [`Effect::is_done`].
    ///
    /// # Errors
    /// The first address that is not mapped. The changes before it have been made.
    pub fn step(&mut self, view: &View<'_>, budget: u64) -> Result<(), Fault> {
        let mut left = budget.max(1);
        while let Some(op) = self.ops.front_mut() {
            let (used, finished) = match op {
                Op::Rows(rows) => match rows.next() {
                    Some(row) => {
                        row.into_iter().rev().for_each(|op| self.ops.push_front(op));
                        (0, false)
                    }
                    None => (0, true),
                },
                op => op.step(view, left)?,
            };
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
    fn bytes(&self) -> u64 {
        match self {
            Self::Copy { len, .. } | Self::Fill { len, .. } => *len,
            Self::Mix { next, end, .. } => u64::from(end - next) * 8,
            Self::Add { next, end, .. } => u64::from(end - next) * 4,
            Self::Keep(keep) => keep.bytes(),
            Self::Count { .. } => 8,
            Self::Rows(rows) => {
                let row = rows.first.iter().map(Self::bytes).fold(0, u64::saturating_add);
                row.saturating_mul(rows.left())
            }
        }
    }

    /// Returns the same change at other addresses. The addresses of a client can wrap around; each access is
    /// checked.
    fn moved_by(&self, dst_by: u64, src_by: u64) -> Self {
        let mut op = self.clone();
        match &mut op {
            Self::Copy { dst, src, .. } => {
                *dst = dst.wrapping_add(dst_by);
                *src = src.wrapping_add(src_by);
            }
            Self::Fill { dst, .. } => *dst = dst.wrapping_add(dst_by),
            Self::Mix { .. } | Self::Add { .. } | Self::Count { .. } | Self::Keep(_) | Self::Rows(_) => {}
        }
        op
    }

    fn step(&mut self, view: &View<'_>, budget: u64) -> Result<(u64, bool), Fault> {
        match self {
            Self::Copy { dst, src, len } => {
                let n = (*len).min(budget);
                if *src < *dst && *dst - *src < *len {
                    // From the end, so that no byte is overwritten before it was read, as in `memmove`.
                    let at = *len - n;
                    view.copy(dst.wrapping_add(at), src.wrapping_add(at), n)?;
                } else {
                    view.copy(*dst, *src, n)?;
                    *dst = dst.wrapping_add(n);
                    *src = src.wrapping_add(n);
                }
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
                let n = (*end - *next).min((budget / 8).max(1) as u32).min(ELEMENTS as u32);
                let at = u64::from(*next) * 8;
                let (mut words, mut others) = ([0; ELEMENTS * 8], [0; ELEMENTS * 8]);
                let (words, others) = (&mut words[..n as usize * 8], &mut others[..n as usize * 8]);
                view.read(dst.wrapping_add(at), words)?;
                view.read(src.wrapping_add(at), others)?;
                for ((word, other), i) in
                    words.as_chunks_mut().0.iter_mut().zip(others.as_chunks().0).zip(*next..)
                {
                    *word = mix_step(u64::from_le_bytes(*word), u64::from_le_bytes(*other), i, *value)
                        .to_le_bytes();
                }
                view.write(dst.wrapping_add(at), words)?;
                *next += n;
                Ok((u64::from(n) * 8, next == end))
            }
            Self::Add { a, b, c, next, end } => {
                let n = (*end - *next).min((budget / 4).max(1) as u32).min(ELEMENTS as u32);
                let at = u64::from(*next) * 4;
                let (mut sums, mut others) = ([0; ELEMENTS * 4], [0; ELEMENTS * 4]);
                let (sums, others) = (&mut sums[..n as usize * 4], &mut others[..n as usize * 4]);
                view.read(a.wrapping_add(at), sums)?;
                view.read(b.wrapping_add(at), others)?;
                for (sum, other) in sums.as_chunks_mut().0.iter_mut().zip(others.as_chunks().0) {
                    *sum = (f32::from_le_bytes(*sum) + f32::from_le_bytes(*other)).to_le_bytes();
                }
                view.write(c.wrapping_add(at), sums)?;
                *next += n;
                Ok((u64::from(n) * 4, next == end))
            }
            Self::Keep(keep) => keep.step(view, budget),
            Self::Count { at, by } => {
                let counted = view.load_u64(*at)?.wrapping_add(*by);
                view.write(*at, &counted.to_le_bytes())?;
                Ok((8, true))
            }
            Self::Rows(_) => Ok((0, true)),
        }
    }
}

/// `gw_mix_step` of examples/kernels/giveway_kernels.h.
pub(super) fn mix_step(dst: u64, src: u64, i: u32, value: u64) -> u64 {
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
    use crate::space::testing::Memory;
    use proptest::prelude::*;

    fn with_view<R>(run: impl FnOnce(&View<'_>) -> R) -> R {
        run(&Memory::new(&[(0x1000, 1 << 16)]).view())
    }

    #[test]
    fn mix_detects_order_repetition_and_loss() {
        let f = |x, v| mix_step(x, 3, 0, v);
        assert_ne!(f(f(1, 10), 20), f(f(1, 20), 10));
        assert_ne!(f(1, 10), f(f(1, 10), 10));
        assert_ne!(f(1, 10), 1);
    }

    #[test]
    fn fault_names_the_address() {
        with_view(|view| {
            let mut effect =
                Effect::new([Op::Fill { dst: 0x1000 + (1 << 16) - 4, pattern: vec![1], len: 8 }]);
            assert_eq!(effect.step(view, 64), Err(Fault { va: 0x1000 + (1 << 16) }));
        });
    }

    #[test]
    fn invalid_addresses_cause_faults() {
        with_view(|view| {
            let far = u64::MAX - 3;
            let row = Op::Copy { dst: far, src: far, len: 8 };
            let huge = [u64::MAX; 2];
            let rows =
                Rows { first: vec![row], rows: u32::MAX, planes: u32::MAX, dst: huge, src: huge, next: 0 };
            let mut all = Effect::new([Op::Rows(rows.clone()), Op::Rows(rows)]);
            assert_eq!(all.bytes(), u64::MAX);
            assert!(all.step(view, 64).is_err());
            for op in [
                Op::Copy { dst: 0x1000, src: far, len: u64::MAX },
                Op::Copy { dst: far, src: 0x1000, len: u64::MAX },
                Op::Fill { dst: far, pattern: vec![1], len: u64::MAX },
                Op::Mix { dst: far, src: far, next: 1, end: u32::MAX, value: 0 },
                Op::Add { a: far, b: far, c: far, next: 1, end: u32::MAX },
                Op::Count { at: far, by: 1 },
            ] {
                assert!(Effect::new([op]).step(view, 64).is_err());
            }
        });
    }

    #[test]
    fn overlapping_copy_behaves_like_memmove() {
        with_view(|view| {
            let bytes: Vec<u8> = (0..200).collect();
            for (dst, src) in [(0x1007u64, 0x1000u64), (0x1000, 0x1007), (0x1000, 0x1000)] {
                view.write(0x1000, &bytes).unwrap();
                Effect::new([Op::Copy { dst, src, len: 100 }]).finish(view, 9).unwrap();
                let from = (src - 0x1000) as usize;
                let mut out = [0; 100];
                view.read(dst, &mut out).unwrap();
                assert_eq!(out, bytes[from..from + 100]);
            }
        });
    }

    proptest! {
        #[test]
        fn result_does_not_depend_on_the_step_size(budget in 1u64..5000, n in 1u32..600, value in any::<u64>()) {
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
                effect.finish(view, budget).unwrap();
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
