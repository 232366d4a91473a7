//! `busy_traffic` of `examples/kernels`: a kernel of a given time that moves memory meanwhile.
//!
//! Moving as much as the kernel says would take the machine's own memory bandwidth and make the device late. So only
//! what the host checks becomes true: the counter, and the first vectors.

use super::arguments::Arguments;
use super::effect::Op;
use crate::device::Time;
use crate::space::Fault;

/// The bytes of a vector, `GW_VECTOR_BYTES` of the header.
const VECTOR: u64 = 16;
/// The vectors that are written, from the first on: as many as the host checks (`GW_CHECKED` of the header).
const CHECKED: u64 = 256;

impl Arguments<'_> {
    /// Returns the time that the kernel takes and its changes of memory.
    pub(super) fn busy_traffic(&self) -> Result<(Time, Vec<Op>), Fault> {
        let (memory, mask, first) = (self.u64(0)?, self.u64(2)?, self.u64(3)?);
        let (vectors, value, time) = (self.u64(4)?, self.u64(5)?, self.u64(6)?);
        let begin = first & mask;
        // Up to the end of the memory, and the rest from its begin on.
        let here = vectors.min(CHECKED).min((mask - begin).saturating_add(1));
        let fill = |index: u64, count: u64| Op::Fill {
            dst: memory.wrapping_add(index.wrapping_mul(VECTOR)),
            pattern: [value.to_le_bytes(), [0; 8]].concat(),
            len: count * VECTOR,
        };
        let rest = vectors.min(CHECKED) - here;
        let count = Op::Count { at: self.u64(1)?, by: vectors };
        Ok((time, vec![fill(begin, here), fill(0, rest), count]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Effect;
    use crate::space::testing::Memory;

    const MEMORY: u64 = 0x10_0000;
    const COUNTERS: u64 = 0x20_0000;
    const ARGS: u64 = 0x30_0000;

    /// Runs the kernel for memory of eight vectors. Returns its time, the first word of each vector, and the counter.
    fn run(first: u64, vectors: u64) -> (Time, Vec<u64>, u64) {
        let memory = Memory::new(&[(MEMORY, 0x1000), (COUNTERS, 0x1000), (ARGS, 0x1000)]);
        let view = memory.view();
        view.write(COUNTERS, &5u64.to_le_bytes()).unwrap();
        for (index, word) in (0..).zip([MEMORY, COUNTERS, 7, first, vectors, 9, 12_000]) {
            view.write(ARGS + index * 8, &u64::to_le_bytes(word)).unwrap();
        }
        let arguments = Arguments { view: &view, base: ARGS, layout: &[] };
        let (time, ops) = arguments.busy_traffic().unwrap();
        Effect::new(ops).finish(&view, 48).unwrap();
        let words = (0..9).map(|index| view.load_u64(MEMORY + index * VECTOR).unwrap()).collect();
        (time, words, view.load_u64(COUNTERS).unwrap())
    }

    #[test]
    fn traffic_goes_round_in_its_memory_and_is_counted() {
        assert_eq!(run(1, 3), (12_000, vec![0, 9, 9, 9, 0, 0, 0, 0, 0], 8));
        assert_eq!(run(14, 3), (12_000, vec![9, 0, 0, 0, 0, 0, 9, 9, 0], 8));
        assert_eq!(run(0, 0), (12_000, vec![0; 9], 5));
    }

    #[test]
    fn arguments_of_a_client_cause_no_panic() {
        let memory = Memory::new(&[(ARGS, 0x1000)]);
        let view = memory.view();
        for byte in [0, 1, 0x7f, 0xff] {
            view.fill(ARGS, &[byte], 0x1000).unwrap();
            let arguments = Arguments { view: &view, base: ARGS, layout: &[] };
            let (_, ops) = arguments.busy_traffic().unwrap();
            assert!(Effect::new(ops).finish(&view, 4096).is_err(), "{byte}");
        }
    }
}
