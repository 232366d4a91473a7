//! The project's own kernels (`examples/kernels/giveway_kernels.h`), compiled at run time for the device at
//! hand, so that every measurement runs on a user's own GPU as it does on the simulated one.

use crate::cache::Cache;
use crate::hip::{Device, Dims, Function, Hip, Memory, Occupied, Stream};
use crate::rtc;
use anyhow::{Context, Result, ensure};
use std::ffi::c_void;
use std::ptr;

/// The source of the kernels; hipcc builds the test programs from the same file.
const SOURCE: &str = include_str!("../../../examples/kernels/giveway_kernels.h");

/// Threads of a work-group in the kernels that work on an array.
const BLOCK: u32 = 256;

/// The bytes that `busy_traffic` reads, and writes, at a time: `GW_VECTOR_BYTES` of the source.
pub(crate) const VECTOR: u64 = 16;
/// The most vectors behind the first one whose contents are known: `GW_CHECKED` of the source.
pub(crate) const CHECKED: u64 = 256;
/// The bytes of its counters: `GW_COUNTERS` lines of `GW_COUNTER_WORDS` words.
pub(crate) const COUNTER_BYTES: usize = 64 * 16 * size_of::<u64>();

#[derive(Debug)]
pub struct Kernels {
    vector_add: Function,
    mix: Function,
    busy: Function,
    busy_store: Function,
    keep_few: Function,
    keep_many: Function,
    busy_traffic: Function,
}

/// Launches a kernel with these arguments, each of exactly the type of the kernel's parameter.
macro_rules! launch {
    ($stream:expr, $kernel:expr, $dims:expr, $($argument:expr),*) => {
        $stream.launch($kernel, $dims, &mut [$(ptr::from_mut(&mut { $argument }).cast()),*])
    };
}

impl Kernels {
    /// Compiles the kernels for device `ordinal`, or takes them from the user's cache, and loads them there.
    /// The device is the calling thread's current one afterwards.
    pub fn load(hip: &Hip, ordinal: u32) -> Result<Self> {
        hip.set_device(ordinal)?;
        let arch = hip.device(ordinal)?.arch;
        ensure!(!arch.is_empty(), "the HIP runtime names no architecture for device {ordinal}");
        let build = || rtc::compile(hip.library(), SOURCE, &arch);
        let code = match Cache::of_user() {
            Some(cache) => cache.get_or_build(&cache_key(&arch, hip.runtime_version()?), build),
            None => build(),
        };
        let module = hip.load_module(&code?).context("the compiled kernels do not load")?;
        Ok(Self {
            vector_add: module.function(c"vector_add")?,
            mix: module.function(c"mix")?,
            busy: module.function(c"busy")?,
            busy_store: module.function(c"busy_store")?,
            keep_few: module.function(c"keep_few")?,
            keep_many: module.function(c"keep_many")?,
            busy_traffic: module.function(c"busy_traffic")?,
        })
    }

    /// Launches `busy`: the grid `shape` occupies the device for `duration_ns` when it is alone there.
    pub fn busy(&self, stream: &Stream, duration_ns: u64, shape: BusyShape) -> Result<()> {
        let rounds: u32 = shape.rounds;
        // SAFETY: `busy` takes (u64, u32), which is what it gets, and touches no memory.
        unsafe { launch!(stream, &self.busy, shape.dims, duration_ns, rounds) }
    }

    /// Launches `busy_store`: as [`Self::busy`], and at its end the first word of `memory`, which must stay
    /// allocated until then, is `value`. On a GPU that is the end of the first work-group, on the simulated
    /// one that of the grid.
    ///
    /// # Panics
    /// If the memory has no word.
    pub fn busy_store(
        &self,
        stream: &Stream,
        memory: &Memory,
        value: u64,
        duration_ns: u64,
        shape: BusyShape,
    ) -> Result<()> {
        assert!(memory.bytes() >= size_of::<u64>(), "busy_store reaches past its memory");
        let (word, rounds): (*mut c_void, u32) = (memory.device_address(), shape.rounds);
        // SAFETY: `busy_store` takes (pointer, u64, u64, u32), which is what it gets, and stores one word,
        // which the memory holds (checked above).
        unsafe { launch!(stream, &self.busy_store, shape.dims, word, value, duration_ns, rounds) }
    }

    /// Launches `busy_traffic`: as [`Self::busy`], and meanwhile it reads and writes these vectors of `memory`. Its
    /// counters, [`COUNTER_BYTES`], grow by their number in all. Both must stay allocated until the kernel has run;
    /// freeing them waits for it.
    ///
    /// # Panics
    /// If one of the two is smaller than that.
    pub(crate) fn busy_traffic(
        &self,
        stream: &Stream,
        memory: &Memory,
        counters: &Memory,
        vectors: Vectors,
        duration_ns: u64,
        shape: BusyShape,
    ) -> Result<()> {
        let Vectors { mask, first, count, value, depth } = vectors;
        assert!(
            mask < memory.bytes() as u64 / VECTOR && counters.bytes() >= COUNTER_BYTES,
            "busy_traffic reaches past its memory"
        );
        let rounds: u32 = shape.rounds;
        let (memory, counters): (*mut c_void, *mut c_void) =
            (memory.device_address(), counters.device_address());
        // SAFETY: `busy_traffic` takes (pointer, pointer, u64, u64, u64, u64, u64, u32, u32), which is what it gets. It
        // stays at the vectors 0 to `mask` and in the counters, which the memory holds (checked above).
        unsafe {
            launch!(
                stream,
                &self.busy_traffic,
                shape.dims,
                memory,
                counters,
                mask,
                first,
                count,
                value,
                duration_ns,
                rounds,
                depth
            )
        }
    }

    /// Returns a grid of `busy_store` that fills `device` exactly once, with work-groups of 256 threads.
    pub fn filling_shape(&self, device: &Device) -> Result<BusyShape> {
        Ok(BusyShape { dims: Self::filling(&self.busy_store, device)?, rounds: 1 })
    }

    /// Returns the dimensions of a `busy_traffic` kernel that fills `device` exactly once, with work-groups of 256 threads.
    pub(crate) fn filling_traffic(&self, device: &Device) -> Result<Dims> {
        Self::filling(&self.busy_traffic, device)
    }

    fn filling(kernel: &Function, device: &Device) -> Result<Dims> {
        let mut dims = Dims { grid: [1, 1, 1], block: [BLOCK, 1, 1], shared_bytes: 0 };
        dims.grid[0] = kernel.groups_per_unit(&dims)?.max(1) * device.compute_units.max(1);
        Ok(dims)
    }

    /// Returns the shape of a `busy` kernel of these dimensions on `device`.
    pub fn busy_shape(&self, device: &Device, dims: Dims) -> Result<BusyShape> {
        Self::shape(&self.busy, device, dims)
    }

    /// Returns the shape of a `busy_traffic` kernel of these dimensions on `device`.
    pub(crate) fn traffic_shape(&self, device: &Device, dims: Dims) -> Result<BusyShape> {
        Self::shape(&self.busy_traffic, device, dims)
    }

    fn shape(kernel: &Function, device: &Device, dims: Dims) -> Result<BusyShape> {
        let at_once = u64::from(kernel.groups_per_unit(&dims)?) * u64::from(device.compute_units);
        let groups: u64 = dims.grid.iter().map(|n| u64::from(*n)).product();
        let rounds = groups.div_ceil(at_once.max(1));
        Ok(BusyShape { dims, rounds: u32::try_from(rounds).unwrap_or(u32::MAX) })
    }

    /// Launches `mix` over the first `count` 64-bit words of `dst` and `src`, which may be the same memory.
    /// Both must stay allocated until the kernel has run; freeing them waits for it.
    ///
    /// # Panics
    /// If one of the two is smaller than that.
    pub fn mix(&self, stream: &Stream, dst: &Memory, src: &Memory, count: u32, value: u64) -> Result<()> {
        let bytes = count as usize * size_of::<u64>();
        assert!(bytes <= dst.bytes() && bytes <= src.bytes(), "mix reaches past its buffers");
        let (dst, src): (*mut c_void, *mut c_void) = (dst.device_address(), src.device_address());
        // SAFETY: `mix` takes (pointer, pointer, u32, u64), which is what it gets; it stays below `count`
        // words, which both buffers hold (checked above).
        unsafe { launch!(stream, &self.mix, linear(count), dst, src, count, value) }
    }

    /// Launches `vector_add`: `c[i] = a[i] + b[i]` for the first `count` floats. The three must stay
    /// allocated until the kernel has run; freeing them waits for it.
    ///
    /// # Panics
    /// If one of the three is smaller than that.
    pub fn vector_add(&self, stream: &Stream, a: &Memory, b: &Memory, c: &Memory, count: u32) -> Result<()> {
        let bytes = count as usize * size_of::<f32>();
        let fits = [a.bytes(), b.bytes(), c.bytes()].into_iter().all(|size| bytes <= size);
        assert!(fits, "vector_add reaches past its buffers");
        let [a, b, c]: [*mut c_void; 3] = [a, b, c].map(Memory::device_address);
        // SAFETY: `vector_add` takes (pointer, pointer, pointer, u32), which is what it gets; it stays below
        // `count` floats, which all three buffers hold (checked above).
        unsafe { launch!(stream, &self.vector_add, linear(count), a, b, c, count) }
    }
}

/// A kernel that keeps words in registers and in local memory while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// `keep_few`
    Few,
    /// `keep_many`
    Many,
}

impl Keep {
    /// Returns the kernel's name in the source.
    pub fn name(self) -> &'static str {
        match self {
            Self::Few => "keep_few",
            Self::Many => "keep_many",
        }
    }

    /// Returns the number of words that a work-item keeps in registers.
    pub fn registers(self) -> u32 {
        match self {
            Self::Few => 8,
            Self::Many => 192,
        }
    }
}

impl Kernels {
    fn keeping(&self, keep: Keep) -> &Function {
        match keep {
            Keep::Few => &self.keep_few,
            Keep::Many => &self.keep_many,
        }
    }

    /// Returns what a kernel occupies by itself. See [`Function::occupied`].
    pub fn occupied(&self, keep: Keep) -> Result<Occupied> {
        self.keeping(keep).occupied()
    }

    /// Returns a grid of a keeping kernel that fills `device` exactly once, with work-groups of 256 threads that have so many
    /// bytes of local memory each.
    pub fn keeping_shape(&self, keep: Keep, device: &Device, shared_bytes: u32) -> Result<Dims> {
        let mut dims = Dims { grid: [1, 1, 1], block: [BLOCK, 1, 1], shared_bytes };
        dims.grid[0] = self.keeping(keep).groups_per_unit(&dims)?.max(1) * device.compute_units.max(1);
        Ok(dims)
    }

    /// Launches a keeping kernel that runs for `duration_ns` and then stores a digest in a word of `out` for each of its threads
    /// ([`kept_digest`]). The memory must stay allocated until then; freeing it waits for the kernel.
    ///
    /// # Panics
    /// If the memory has fewer words than the grid has threads.
    pub fn keep(
        &self,
        keep: Keep,
        stream: &Stream,
        out: &Memory,
        seed: u64,
        duration_ns: u64,
        dims: Dims,
    ) -> Result<()> {
        let threads = dims.grid[0] as usize * dims.block[0] as usize;
        assert!(threads * size_of::<u64>() <= out.bytes(), "a keeping kernel reaches past its memory");
        let (out, words): (*mut c_void, u32) = (out.device_address(), dims.shared_bytes / 4);
        // SAFETY: both kernels take (pointer, u64, u32, u64), which is what they get. They store one word for each thread, which
        // the memory holds (checked above), and stay in the local memory that the launch gives them.
        unsafe { launch!(stream, self.keeping(keep), dims, out, seed, words, duration_ns) }
    }
}

/// Returns what a keeping kernel with `registers` words in registers stores for work-item `item` of work-group `group`, by the
/// host's implementation of the kernel's formula.
pub fn kept_digest(registers: u32, dims: Dims, seed: u64, group: u32, item: u32) -> u64 {
    let (block, words) = (dims.block[0].max(1), dims.shared_bytes / 4);
    let first = mix_step(seed, 0, group * block + item, 0) as u32;
    let held = (0..registers).map(|k| first.wrapping_add(k.wrapping_mul(0x9E37_79B9)));
    let local = (item..words)
        .step_by(block as usize)
        .map(|w| (mix_step(!seed, 0, words - 1 - w, group.into()) >> 32) as u32);
    held.chain(local).fold(0xCBF2_9CE4_8422_2325, |digest: u64, word| {
        (digest ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The runtime, its first device with the kernels on it, and a stream.
#[derive(Debug)]
pub struct Opened {
    pub hip: Hip,
    pub kernels: Kernels,
    pub stream: Stream,
}

impl Opened {
    /// Opens them; `no_gpu` is the error where the runtime sees no device.
    pub fn new(no_gpu: &'static str) -> Result<Self> {
        let hip = Hip::load()?;
        ensure!(hip.device_count()? > 0, no_gpu);
        let (kernels, stream) = (Kernels::load(&hip, 0)?, hip.stream()?);
        Ok(Self { hip, kernels, stream })
    }
}

/// The vectors of [`VECTOR`] bytes that a `busy_traffic` kernel reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vectors {
    /// The last vector of the memory; the number behind it, where the kernel goes on at the begin, is a power of two.
    pub(crate) mask: u64,
    /// The first vector that it moves.
    pub(crate) first: u64,
    /// The number of vectors that it moves.
    pub(crate) count: u64,
    /// The first word of each moved vector afterwards.
    pub(crate) value: u64,
    /// The vectors that a thread moves at a time: 1 or 4.
    pub(crate) depth: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyShape {
    pub dims: Dims,
    /// The number of times that the grid fills the device; 1 if it fits at once.
    pub rounds: u32,
}

impl BusyShape {
    /// A work-group of one wavefront, which fits any device.
    pub const ONE: Self =
        Self { dims: Dims { grid: [1, 1, 1], block: [64, 1, 1], shared_bytes: 0 }, rounds: 1 };
}

/// Returns the result of `mix` for element `index`, by the host's implementation of the kernel's formula.
pub fn mix_step(dst: u64, src: u64, index: u32, value: u64) -> u64 {
    let mut x = dst
        .wrapping_add(src.rotate_left(17))
        .wrapping_add(value)
        .wrapping_add(u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns a one-dimensional grid with at least one thread for each of `count` elements.
fn linear(count: u32) -> Dims {
    Dims { grid: [count.div_ceil(BLOCK).max(1), 1, 1], block: [BLOCK, 1, 1], shared_bytes: 0 }
}

/// Returns a key of everything that the code object depends on.
fn cache_key(arch: &str, runtime: i32) -> String {
    let source = crate::cache::fnv1a(SOURCE.as_bytes());
    format!("source {source:016x} length {} arch {arch} runtime {runtime}", SOURCE.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the C function of the header, compiled by gcc.
    #[test]
    fn mix_step_is_the_kernels_formula() {
        assert_eq!(mix_step(0, 0, 0, 0), 0);
        assert_eq!(mix_step(1, 2, 3, 4), 0x4d6b_bf59_dd53_3fb2);
        let (dst, src) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
        assert_eq!(mix_step(dst, src, u32::MAX, u64::MAX), 0x39df_fe19_4e7a_bed0);
    }

    /// Values of the C functions of the header, compiled by gcc.
    #[test]
    fn kept_digest_is_the_kernels_formula() {
        let dims =
            |block, words: u32| Dims { grid: [3, 1, 1], block: [block, 1, 1], shared_bytes: 4 * words };
        assert_eq!(kept_digest(8, dims(64, 0), 5, 0, 0), 0x5a15_b4bf_a7a5_922d);
        assert_eq!(kept_digest(8, dims(64, 0), 5, 1, 3), 0x1c08_54bf_06b1_7265);
        assert_eq!(kept_digest(8, dims(64, 130), 5, 1, 3), 0x9c87_1555_45aa_e1d4);
        let seed = 0xfedc_ba98_7654_3210;
        assert_eq!(kept_digest(192, dims(256, 4096), seed, 2, 255), 0x93b5_61d3_22a5_2351);
    }

    #[test]
    fn mix_depends_on_order_and_number_of_commands() {
        let step = |x, value| mix_step(x, x, 0, value);
        assert_ne!(step(step(5, 1), 2), step(step(5, 2), 1));
        assert_ne!(step(step(5, 1), 1), step(5, 1));
    }

    #[test]
    fn grids_cover_their_elements() {
        for (count, groups) in [(0, 1), (1, 1), (256, 1), (257, 2), (u32::MAX, 1 << 24)] {
            assert_eq!(linear(count).grid, [groups, 1, 1]);
        }
    }

    #[test]
    fn cache_key_has_architecture_and_runtime() {
        let key = cache_key("gfx90a", 50_221_153);
        assert!(key.ends_with(" arch gfx90a runtime 50221153"), "{key}");
        assert_ne!(key, cache_key("gfx942", 50_221_153));
    }

    #[test]
    fn source_has_all_kernels() {
        for kernel in [
            "void vector_add(",
            "void mix(",
            "void busy(",
            "void busy_store(",
            "void keep_few(",
            "void keep_many(",
        ] {
            assert!(SOURCE.contains(kernel), "{kernel}");
        }
        for keep in [Keep::Few, Keep::Many] {
            let body = SOURCE.split_once(&format!("void {}(", keep.name())).unwrap().1;
            let call = format!("gw_keep<{}>(", keep.registers());
            assert!(body.split_once('}').unwrap().0.contains(&call), "{keep:?}");
        }
    }

    #[test]
    fn traffic_has_the_sources_sizes() {
        let sizes = [("GW_VECTOR_BYTES", VECTOR), ("GW_CHECKED", CHECKED)];
        for (name, value) in sizes {
            assert!(SOURCE.contains(&format!("#define {name} {value}ull\n")), "{name}");
        }
        let number = |name: &str| {
            let line =
                SOURCE.lines().find_map(|line| line.strip_prefix(&format!("#define {name} "))).unwrap();
            line.trim_end_matches('u').parse::<usize>().unwrap()
        };
        assert_eq!(COUNTER_BYTES, number("GW_COUNTERS") * number("GW_COUNTER_WORDS") * 8);
        assert!(SOURCE.contains("void busy_traffic("));
    }
}
