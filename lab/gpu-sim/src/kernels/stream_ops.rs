//! The runtime's kernels for stream operations, which wait for values in memory and write them.

use super::arguments::{Arguments, Dispatch};
use super::effect::Op;
use crate::space::{Fault, View};

/// The condition of a stream wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    address: u64,
    wide: bool,
    value: u64,
    compare: u64,
    mask: u64,
}

impl Condition {
    /// Returns true if all conditions hold now.
    pub fn all_hold(all: &[Condition], view: &View<'_>) -> Result<bool, Fault> {
        for one in all {
            if !one.holds(view)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if the condition holds now.
    fn holds(&self, view: &View<'_>) -> Result<bool, Fault> {
        let (now, value, mask) = if self.wide {
            (view.load_u64(self.address)?, self.value, self.mask)
        } else {
            (u64::from(view.load_u32(self.address)?), self.value & 0xffff_ffff, self.mask & 0xffff_ffff)
        };
        Ok(match self.compare {
            0 if self.wide => (now & mask).cast_signed() >= value.cast_signed(),
            0 => ((now & mask) as u32).cast_signed() >= (value as u32).cast_signed(),
            1 => now & mask == value,
            2 => now & mask & value != 0,
            _ => (now | value) & mask != mask,
        })
    }
}

/// The largest number of operations of a batch (`ihipBatchMemOperation` in hipamd/src/hip_stream_ops.cpp).
const MOST: u64 = 256;
/// The size of an operation, bytes (`hipStreamBatchMemOpParams`).
const OPERATION: u64 = 48;

fn write(dst: u64, wide: bool, value: u64) -> Op {
    let len = if wide { 8 } else { 4 };
    Op::Fill { dst, pattern: value.to_le_bytes()[..len as usize].to_vec(), len }
}

impl Arguments<'_> {
    /// Returns the 32-bit location if set, otherwise the 64-bit one; true if it is the 64-bit one.
    fn location(&self) -> Result<(u64, bool), Fault> {
        let narrow = self.u64(0)?;
        if narrow != 0 { Ok((narrow, false)) } else { Ok((self.u64(1)?, true)) }
    }

    pub(super) fn stream_write(&self) -> Result<Vec<Op>, Fault> {
        let (dst, wide) = self.location()?;
        Ok(vec![write(dst, wide, self.u64(2)?)])
    }

    pub(super) fn stream_wait(&self) -> Result<Condition, Fault> {
        let (address, wide) = self.location()?;
        Ok(Condition { address, wide, value: self.u64(2)?, compare: self.u64(3)?, mask: self.u64(4)? })
    }

    /// Arguments: (list, count). Each work-item executes one operation of the list. They run concurrently, so
    /// that one that waits for a write of another can wait forever. The simulation makes all writes after all
    /// waits.
    pub(super) fn batch(&self, dispatch: &Dispatch) -> Result<(Vec<Condition>, Vec<Op>), Fault> {
        let (list, count) = (self.u64(0)?, self.u64(1)? & 0xffff_ffff);
        let (mut waits, mut writes) = (Vec::new(), Vec::new());
        for i in 0..count.min(dispatch.grid[0].into()).min(MOST) {
            let at = list.wrapping_add(i * OPERATION);
            let word = |n: u64| self.view.load_u64(at.wrapping_add(n * 8));
            let (kind, address, value, flags) = (word(0)? as u32, word(1)?, word(2)?, word(3)?);
            let wide = kind > 3;
            match kind {
                1 | 4 => {
                    let compare = flags & 0xffff_ffff;
                    waits.push(Condition { address, wide, value, compare, mask: u64::MAX });
                }
                2 | 5 => writes.push(write(address, wide, value)),
                // The kernel ignores other kinds.
                _ => {}
            }
        }
        Ok((waits, writes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::testing::Memory;

    const DATA: u64 = 0x10_0000;

    #[test]
    fn batch_is_read_up_to_the_number_of_work_items() {
        let memory = Memory::new(&[(DATA, 0x1000)]);
        let view = memory.view();
        let list = DATA + 0x100;
        let operations: [[u64; 4]; 5] = [
            [4, DATA, 7, 1],
            [2, DATA + 8, 0x1_0000_0009, 0],
            [6, DATA, 0, 0],
            [5, DATA + 16, 11, 0],
            [1, DATA + 24, 3, 0],
        ];
        for (i, operation) in operations.iter().enumerate() {
            for (n, word) in operation.iter().enumerate() {
                view.write(list + i as u64 * OPERATION + n as u64 * 8, &word.to_le_bytes()).unwrap();
            }
        }
        view.write(DATA + 0x800, &list.to_le_bytes()).unwrap();
        view.write(DATA + 0x808, &5u64.to_le_bytes()).unwrap();
        let arguments = Arguments { view: &view, base: DATA + 0x800, layout: &[(0, 8), (8, 4)] };
        let dispatch = |items| Dispatch { object: 0, arguments: 0, grid: [items, 1, 1], group: 1, rounds: 1 };
        let (waits, writes) = arguments.batch(&dispatch(4)).unwrap();
        assert_eq!(waits.len(), 1);
        let narrow = Op::Fill { dst: DATA + 8, pattern: vec![9, 0, 0, 0], len: 4 };
        let wide = Op::Fill { dst: DATA + 16, pattern: vec![11, 0, 0, 0, 0, 0, 0, 0], len: 8 };
        assert_eq!(writes, [narrow, wide]);
        assert_eq!(Condition::all_hold(&waits, &view), Ok(false));
        view.write(DATA, &7u64.to_le_bytes()).unwrap();
        assert_eq!(Condition::all_hold(&waits, &view), Ok(true));
        let (waits, _) = arguments.batch(&dispatch(64)).unwrap();
        assert_eq!(Condition::all_hold(&waits, &view), Ok(false), "the fifth operation waits as well");
    }
}
