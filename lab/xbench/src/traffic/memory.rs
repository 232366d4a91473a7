//! The memory that kernels with traffic work on, and the check that they did.

use super::Class;
use crate::hip::{Device, DeviceBuffer, Dims, Hip, Stream};
use crate::kernels::{BusyShape, CHECKED, COUNTER_BYTES, Kernels, VECTOR, Vectors};
use anyhow::{Result, bail, ensure};

/// The threads of a full compute unit: 32 wavefronts of 64 on AMD's CDNA, 64 warps of 32 on an H200.
const THREADS_OF_A_UNIT: u64 = 2048;
/// Most vectors that a thread moves at a time.
const DEPTH: u32 = 4;
/// The time that a thread needs at least for a move, microseconds; an assumption, about twice what a load takes on an idle
/// device. It limits the traffic of grids that do not fill the device.
const MOVE_US: f64 = 2.0;

/// A kernel's traffic, ready to be launched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moving {
    class: Class,
    /// The vectors that it moves, at least one.
    vectors: u64,
    shape: BusyShape,
    /// The vectors that a thread moves at a time, 1 or 4.
    depth: u32,
    duration_ns: u64,
}

impl Moving {
    /// Returns the traffic of a kernel with these dimensions that takes `duration_ns`.
    pub(crate) fn new(
        kernels: &Kernels,
        device: &Device,
        class: Class,
        dims: Dims,
        duration_ns: u64,
    ) -> Result<Self> {
        let shape = kernels.traffic_shape(device, dims)?;
        let (vectors, depth) = vectors(device, class, shape, duration_ns);
        Ok(Self { class, vectors, shape, depth, duration_ns })
    }

    /// Returns the bytes that it reads and writes.
    pub(crate) fn bytes(&self) -> u64 {
        2 * VECTOR * self.vectors
    }
}

/// Returns the number of vectors, and how many of them a thread moves at a time.
///
/// Threads that are on the device at the same time can together move no more than the moves under way let through. The
/// smaller the grid is, the more each moves at a time.
fn vectors(device: &Device, class: Class, shape: BusyShape, duration_ns: u64) -> (u64, u32) {
    let product = |numbers: [u32; 3]| numbers.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    let threads = product(shape.dims.grid).saturating_mul(product(shape.dims.block));
    let threads = threads / u64::from(shape.rounds.max(1));
    let room = THREADS_OF_A_UNIT * u64::from(device.compute_units.max(1));
    let depth = if threads <= room / u64::from(DEPTH) { DEPTH } else { 1 };
    let most = threads as f64 * f64::from(depth) * (2 * VECTOR) as f64 / MOVE_US;
    let bytes = class.bytes_per_us(device).min(most) * duration_ns as f64 / 1e3;
    (((bytes / (2 * VECTOR) as f64).round() as u64).max(1), depth)
}

/// Memory for all traffic of one stream, and what was launched for it.
#[derive(Debug)]
pub(crate) struct TrafficMemory {
    memory: DeviceBuffer,
    counters: DeviceBuffer,
    /// The vector at which the next kernel begins.
    next: u64,
    /// The number of launches so far.
    launches: u64,
    /// The vectors of all launches.
    vectors: u64,
    /// Where the last kernel began, and its vectors.
    last: (u64, u64),
}

impl TrafficMemory {
    /// Allocates the memory for kernels of these classes on the calling thread's device.
    pub(crate) fn new(hip: &Hip, stream: &Stream, classes: impl Iterator<Item = Class>) -> Result<Self> {
        let bytes = classes.map(Class::window).max().unwrap_or(VECTOR * CHECKED);
        let (memory, counters) = (hip.malloc(bytes as usize)?, hip.malloc(COUNTER_BYTES)?);
        stream.memset(&counters, 0, COUNTER_BYTES)?;
        stream.synchronize()?;
        Ok(Self { memory, counters, next: 0, launches: 0, vectors: 0, last: (0, 0) })
    }

    /// Launches a kernel with its traffic. All launches must be on one stream: the check knows the last one.
    pub(crate) fn launch(&mut self, kernels: &Kernels, stream: &Stream, moving: &Moving) -> Result<()> {
        // A small kernel finds the data of the one before in the caches, and a large one the end of a long tensor.
        let first = if moving.class == Class::Small { 0 } else { self.next };
        let window = moving.class.window().min(self.memory.bytes() as u64) / VECTOR;
        self.launches += 1;
        let vectors = Vectors {
            mask: window - 1,
            first,
            count: moving.vectors,
            value: self.value(),
            depth: moving.depth,
        };
        kernels.busy_traffic(
            stream,
            &self.memory,
            &self.counters,
            vectors,
            moving.duration_ns,
            moving.shape,
        )?;
        self.vectors += moving.vectors;
        self.last = (first, moving.vectors.min(window));
        if moving.class != Class::Small {
            self.next = (first + moving.vectors) % window;
        }
        Ok(())
    }

    /// Returns the bytes that all launches read and wrote.
    pub(crate) fn bytes(&self) -> u64 {
        2 * VECTOR * self.vectors
    }

    /// Returns the word that the last launch writes. Memory of another process cannot hold it by chance.
    fn value(&self) -> u64 {
        u64::from(std::process::id()) << 32 | self.launches & 0xffff_ffff
    }

    /// Checks that all traffic took place: the device's counters are the sum of all launches, and what the last one wrote
    /// first is there. The stream must have been waited for.
    pub(crate) fn check(&self, hip: &Hip) -> Result<()> {
        let counters = words(hip, &self.counters, 0, COUNTER_BYTES)?;
        let (first, count) = self.last;
        let all = self.memory.bytes() as u64 / VECTOR;
        // Behind the end of the memory the kernel goes on at its begin, which is not looked at.
        let count = count.min(CHECKED).min(all - first);
        let held = words(hip, &self.memory, (first * VECTOR) as usize, (count * VECTOR) as usize)?;
        judge(&counters, self.vectors, &held, self.value())
    }
}

/// Checks that the counters are this number of vectors, and that each vector in `held` begins with this value.
fn judge(counters: &[u64], vectors: u64, held: &[u64], value: u64) -> Result<()> {
    let counted = counters.iter().copied().fold(0, u64::wrapping_add);
    ensure!(
        counted == vectors,
        "the kernels moved {counted} vectors of {VECTOR} bytes instead of {vectors}: traffic was lost or doubled"
    );
    if let Some(vector) = held.iter().step_by(2).position(|word| *word != value) {
        bail!("the last kernel did not write vector {vector} of its traffic");
    }
    Ok(())
}

/// Returns the words of this part of a buffer.
fn words(hip: &Hip, buffer: &DeviceBuffer, offset: usize, bytes: usize) -> Result<Vec<u64>> {
    let mut held = vec![0; bytes];
    hip.copy_part_from_device(&mut held, buffer, offset)?;
    Ok(held.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::device;
    use super::*;

    fn moved(class: Class, groups: u32, threads: u32, rounds: u32) -> (u64, u32) {
        let dims = Dims { grid: [groups, 1, 1], block: [threads, 1, 1], shared_bytes: 0 };
        let (vectors, depth) = vectors(&device(1600, 4096), class, BusyShape { dims, rounds }, 100_000);
        (vectors * 2 * VECTOR / 100, depth)
    }

    #[test]
    fn grid_that_fills_the_device_has_the_rate_of_its_class() {
        // 104 units with eight groups of 256 threads each, once and ten times.
        for rounds in [1, 10] {
            let groups = 832 * rounds;
            assert_eq!(moved(Class::Streaming, groups, 256, rounds), (983_040, 1));
            assert_eq!(moved(Class::Matrix, groups, 256, rounds), (409_600, 1));
            assert_eq!(moved(Class::Small, groups, 256, rounds), (81_920, 1));
        }
    }

    #[test]
    fn small_grid_moves_what_its_threads_can() {
        // Threads for a quarter of the device move four vectors at a time.
        assert_eq!(moved(Class::Streaming, 208, 256, 1), (983_040, 4));
        assert_eq!(moved(Class::Matrix, 8, 128, 1), (1024 * 4 * 32 / 2, 4));
        let dims = BusyShape::ONE;
        assert_eq!(vectors(&device(0, 0), Class::Small, dims, 1), (1, 4));
    }

    #[test]
    fn lost_doubled_and_unwritten_traffic_is_told() {
        let why = |counters: &[u64], held: &[u64]| judge(counters, 50, held, 9).unwrap_err().to_string();
        assert!(judge(&[20, 0, 30], 50, &[9, 1, 9, 2], 9).is_ok());
        assert!(why(&[20, 0, 29], &[9, 1]).contains("moved 49 vectors of 16 bytes instead of 50"));
        assert!(why(&[20, 0, 31], &[9, 1]).contains("moved 51 vectors"));
        assert_eq!(why(&[50], &[9, 1, 8, 9]), "the last kernel did not write vector 1 of its traffic");
    }
}
