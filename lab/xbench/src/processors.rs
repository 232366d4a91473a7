//! Sets of processors.

use rustix::thread::CpuSet;

/// Returns each processor of a set, as a set of one.
pub(crate) fn each(set: &CpuSet) -> impl Iterator<Item = CpuSet> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(only)
}

/// Returns the set of this processor.
pub(crate) fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}
