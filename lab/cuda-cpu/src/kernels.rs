//! The kernels as native code, by name. Each has the same effects on memory as its source has for the whole
//! grid.
//!
//! Sources: `examples/kernels/giveway_kernels.h`, `tests/programs/errors/error_deferred.hip`,
//! `error_launch_bounds.hip`, `tests/programs/launch/{arguments_none,compressed,kernels,module_kernels}.hip`,
//! `tests/random/run.h`. The threads of these kernels are independent, so one loop over the elements has the
//! same result. If several threads write the same element (grids with y or z), the result is as if all of
//! them read before any of them writes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use crate::abi::{Answer, ILLEGAL_ADDRESS, LAUNCH_OUT_OF_RESOURCES};
use crate::memory::reached;
use crate::turns;

/// A parameter of a kernel, as its code declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The offset in the arguments, in bytes.
    pub offset: usize,
    /// The size in bytes.
    pub size: usize,
}

/// A kernel of a loaded module.
#[derive(Debug)]
pub struct Function {
    /// Its name in the module.
    pub name: String,
    /// Its parameters.
    pub params: Vec<Param>,
    /// Its native code. `None`: this library does not know it.
    pub native: Option<Native>,
    /// Its static shared memory, in bytes.
    pub shared: usize,
    /// The maximum number of threads in a block.
    pub threads: u32,
}

impl Function {
    /// Returns the size of all arguments in bytes.
    pub fn arguments(&self) -> usize {
        self.params.iter().map(|param| param.offset + param.size).max().unwrap_or(0)
    }
}

/// One launch, with its own copy of the arguments. It is shared and never cloned, because programs get the
/// addresses of its arguments.
#[derive(Debug)]
pub struct Launch {
    /// The kernel.
    pub function: Arc<Function>,
    /// The kernel's handle.
    pub handle: usize,
    /// The size of the grid in blocks.
    pub grid: [u32; 3],
    /// The size of a block in threads.
    pub block: [u32; 3],
    /// The dynamic shared memory in bytes.
    pub shared: u32,
    /// The arguments at their offsets.
    pub arguments: Vec<u8>,
    /// The addresses of the arguments, for programs that read a node.
    pub addresses: Vec<usize>,
    /// The device that runs it.
    pub device: usize,
}

/// The native code of a kernel, and the sizes of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    run: fn(&Launch) -> Answer,
    sizes: &'static [usize],
    /// True if it takes a time that its arguments say.
    pub lasts: bool,
}

const fn native(run: fn(&Launch) -> Answer, sizes: &'static [usize]) -> Native {
    Native { run, sizes, lasts: false }
}

/// Returns the name of the kernel that this one copies: `mix__3` is another function with the code of `mix`.
fn original(name: &str) -> &str {
    match name.rsplit_once("__") {
        Some((original, copy)) if !copy.is_empty() && copy.bytes().all(|b| b.is_ascii_digit()) => original,
        _ => name,
    }
}

/// Returns the native code of a kernel with these parameters.
pub fn find(name: &str, params: &[Param]) -> Option<Native> {
    let found = match original(name) {
        "busy" => Native { lasts: true, ..native(busy, &[8, 4]) },
        "busy_store" => Native { lasts: true, ..native(busy_store, &[8, 8, 8, 4]) },
        "busy_traffic" => Native { lasts: true, ..native(busy_traffic, &[8, 8, 8, 8, 8, 8, 8, 4, 4]) },
        "mix" => native(mix, &[8, 8, 4, 8]),
        "vector_add" => native(vector_add, &[8, 8, 8, 4]),
        "keep_few" => Native { lasts: true, ..native(keep::<8>, &[8, 8, 4, 8]) },
        "keep_many" => Native { lasts: true, ..native(keep::<192>, &[8, 8, 4, 8]) },
        "arguments_block" => native(digest, &[8, 4080]),
        "arguments_mixed" => native(digest, &[8, 1, 2, 3, 4, 8, 8, 40]),
        "mix_twice" => native(mix_twice, &[8, 4, 8]),
        "crowded" => native(crowded, &[8]),
        "_Z7crowdedPy" => native(crowded_shared, &[8]),
        "_Z6narrowPy" => native(narrow, &[8]),
        "_Z7nothingv" => native(nothing, &[]),
        "_Z11shared_onlyv" => native(shared_only, &[]),
        "_Z8strangerPyjy" => native(stranger, &[8, 4, 8]),
        _ => return None,
    };
    params.iter().map(|param| param.size).eq(found.sizes.iter().copied()).then_some(found)
}

impl Launch {
    fn bytes(&self, param: usize) -> &[u8] {
        // `find` has checked the number of parameters, and a launch has the bytes of all of them.
        let Param { offset, size } = self.function.params[param];
        &self.arguments[offset..offset + size]
    }

    fn u64(&self, param: usize) -> u64 {
        let bytes = self.bytes(param);
        let mut word = [0; 8];
        word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        u64::from_le_bytes(word)
    }

    fn address(&self, param: usize) -> usize {
        self.u64(param) as usize
    }

    /// Returns the number of values below `n` that `blockIdx.x * blockDim.x + threadIdx.x` takes.
    fn threads_below(&self, n: u64) -> usize {
        (u64::from(self.grid[0]) * u64::from(self.block[0])).min(n) as usize
    }

    /// Runs the kernel for the whole grid.
    ///
    /// # Errors
    /// The kernel's fault, such as an address that the device cannot access.
    pub fn run(&self) -> Answer {
        let Some(native) = self.function.native else { return Err(LAUNCH_OUT_OF_RESOURCES) };
        let _turn = turns::take(self.device);
        (native.run)(self)
    }
}

fn nothing(_: &Launch) -> Answer {
    Ok(())
}

/// `words[threadIdx.x] = threadIdx.x` in dynamic shared memory, whose end NVIDIA's devices check.
fn shared_only(launch: &Launch) -> Answer {
    let bytes = u64::from(launch.block[0]) * 8;
    if u64::from(launch.shared) < bytes { Err(ILLEGAL_ADDRESS) } else { Ok(()) }
}

fn busy(launch: &Launch) -> Answer {
    turns::occupy(Duration::from_nanos(launch.u64(0)));
    Ok(())
}

fn busy_store(launch: &Launch) -> Answer {
    turns::occupy(Duration::from_nanos(launch.u64(2)));
    reached(launch.address(0), 1, 8)?.words()[0].store(launch.u64(1), Release);
    Ok(())
}

/// Takes its time, and moves only what the host checks: the first vectors of its memory, two words each. The processor
/// would take longer for the rest than a GPU does.
fn busy_traffic(launch: &Launch) -> Answer {
    turns::occupy(Duration::from_nanos(launch.u64(6)));
    let [mask, first, vectors, value] = [2, 3, 4, 5].map(|param| launch.u64(param));
    let memory = reached(launch.address(0), (mask as usize).saturating_add(1).saturating_mul(2), 8)?;
    // `GW_CHECKED` of the header.
    for vector in 0..vectors.min(256) {
        let index = 2 * (first.wrapping_add(vector) & mask) as usize;
        let [word, other] = [0, 1].map(|at| &memory.words()[index + at]);
        let sum = word.load(Relaxed).wrapping_add(other.load(Relaxed));
        word.store(value, Release);
        other.store(sum, Release);
    }
    reached(launch.address(1), 1, 8)?.words()[0].fetch_add(vectors, Release);
    Ok(())
}

/// `gw_mix_step` of the header.
fn step(dst: u64, src: u64, i: u64, value: u64) -> u64 {
    let mut x = dst
        .wrapping_add(src.rotate_left(17))
        .wrapping_add(value)
        .wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn mix_all(launch: &Launch, dst: usize, src: usize, n: usize, value: u64) -> Answer {
    let count = launch.threads_below(n as u64);
    if count == 0 {
        return Ok(());
    }
    let (dst, src) = (reached(dst, count, 8)?, reached(src, count, 8)?);
    for (i, (dst, src)) in dst.words().iter().zip(src.words()).enumerate() {
        dst.store(step(dst.load(Relaxed), src.load(Relaxed), i as u64, value), Release);
    }
    Ok(())
}

fn mix(launch: &Launch) -> Answer {
    mix_all(launch, launch.address(0), launch.address(1), launch.address(2), launch.u64(3))
}

fn mix_twice(launch: &Launch) -> Answer {
    mix_all(launch, launch.address(0), launch.address(0), launch.address(1), launch.u64(2))
}

fn vector_add(launch: &Launch) -> Answer {
    let count = launch.threads_below(launch.u64(3));
    if count == 0 {
        return Ok(());
    }
    let spans = [0, 1, 2].map(|param| reached(launch.address(param), count, 4));
    let [a, b, c] = spans;
    let (a, b, c) = (a?, b?, c?);
    for ((a, b), c) in a.halves().iter().zip(b.halves()).zip(c.halves()) {
        c.store((f32::from_bits(a.load(Relaxed)) + f32::from_bits(b.load(Relaxed))).to_bits(), Release);
    }
    Ok(())
}

/// Stores the digest of the arguments after the first at the address in the first (FNV-1a of 64 bits).
fn digest(launch: &Launch) -> Answer {
    let bytes = (1..launch.function.params.len()).flat_map(|param| launch.bytes(param));
    let digest = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    });
    reached(launch.address(0), 1, 8)?.words()[0].store(digest, Release);
    Ok(())
}

/// Stores for each thread the digest of what it keeps in registers and in dynamic shared memory (`gw_keep` of the header).
fn keep<const REGISTERS: u64>(launch: &Launch) -> Answer {
    turns::occupy(Duration::from_nanos(launch.u64(3)));
    let (seed, local_words, block) = (launch.u64(1), launch.u64(2), u64::from(launch.block[0]));
    if u64::from(launch.shared) < local_words * 4 {
        return Err(ILLEGAL_ADDRESS);
    }
    let count = launch.threads_below(u64::MAX);
    for (i, out) in (0..).zip(reached(launch.address(0), count, 8)?.words()) {
        let first = step(seed, 0, i, 0) as u32;
        let registers = (0..REGISTERS).map(|k| first.wrapping_add((k as u32).wrapping_mul(0x9E37_79B9)));
        let shared = (i % block..local_words)
            .step_by(block as usize)
            .map(|w| (step(!seed, 0, local_words - 1 - w, i / block) >> 32) as u32);
        let digest = registers.chain(shared).fold(0xCBF2_9CE4_8422_2325_u64, |digest, word| {
            (digest ^ u64::from(word)).wrapping_mul(0x100_0000_01B3)
        });
        out.store(digest, Release);
    }
    Ok(())
}

/// `out[threadIdx.x] = value(threadIdx.x)`.
fn by_thread(launch: &Launch, value: impl Fn(u64) -> u64) -> Answer {
    let out = reached(launch.address(0), launch.block[0] as usize, 8)?;
    for (thread, word) in (0..).zip(out.words()) {
        word.store(value(thread), Release);
    }
    Ok(())
}

fn crowded(launch: &Launch) -> Answer {
    by_thread(launch, |thread| thread)
}

fn crowded_shared(launch: &Launch) -> Answer {
    // fixed[63 - thread] + more[thread], whose elements hold their own index.
    by_thread(launch, |thread| 63_u64.wrapping_sub(thread).wrapping_add(thread))
}

fn narrow(launch: &Launch) -> Answer {
    by_thread(launch, |_| 1)
}

fn stranger(launch: &Launch) -> Answer {
    let count = launch.threads_below(launch.u64(1));
    if count == 0 {
        return Ok(());
    }
    for word in reached(launch.address(0), count, 8)?.words() {
        word.store(launch.u64(2), Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{self, Block, Kind, Mapping};

    fn params(sizes: &[usize]) -> Vec<Param> {
        let mut offset = 0;
        let place = |size: &usize| {
            let param = Param { offset, size: *size };
            offset += size.next_multiple_of(8);
            param
        };
        sizes.iter().map(place).collect()
    }

    fn launch(name: &str, sizes: &[usize], words: &[u64], grid: u32, block: u32) -> Launch {
        let params = params(sizes);
        let native = find(name, &params);
        let function = Function { name: name.into(), native, params, shared: 0, threads: 1024 };
        let mut arguments: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        arguments.resize(arguments.len().max(function.arguments()), 0);
        let function = Arc::new(function);
        Launch {
            function,
            handle: 1,
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared: 0,
            arguments,
            addresses: Vec::new(),
            device: 0,
        }
    }

    fn words(n: usize) -> memory::Span {
        let block = Block::host(n * 8).unwrap();
        let (size, kind) = (n * 8, Kind::Pinned);
        let mapping = memory::insert(Mapping { block, size, kind, device: 0, flags: 0, pool: 0, id: 1 });
        memory::span(mapping.base(), size).unwrap()
    }

    #[test]
    fn copies_are_known_by_their_original_and_need_its_parameters() {
        assert!(find("mix__3", &params(&[8, 8, 4, 8])).is_some());
        assert!(find("mix__", &params(&[8, 8, 4, 8])).is_none());
        assert!(find("mix", &params(&[8, 8, 8, 8])).is_none());
        assert!(find("other", &[]).is_none());
    }

    #[test]
    fn mix_changes_what_the_grid_covers_below_n() {
        let span = words(100);
        let at = span.pointer() as u64;
        launch("mix", &[8, 8, 4, 8], &[at, at, 90, 5], 1, 64).run().unwrap();
        // Computed by the C function of the header.
        assert_eq!(span.words()[0].load(Relaxed), step(0, 0, 0, 5));
        assert_eq!(span.words()[63].load(Relaxed), step(0, 0, 63, 5));
        assert_eq!(span.words()[64].load(Relaxed), 0);
        let beyond = launch("mix", &[8, 8, 4, 8], &[at, at, 101, 5], 2, 64);
        assert_eq!(beyond.run(), Err(ILLEGAL_ADDRESS));
    }

    #[test]
    fn kept_words_have_the_digest_of_the_header() {
        let span = words(128);
        let at = span.pointer() as u64;
        let keep = |local_words, shared| {
            let launched = launch("keep_few", &[8, 8, 4, 8], &[at, 5, local_words, 0], 2, 64);
            Launch { shared, ..launched }.run()
        };
        assert_eq!(keep(0, 0), Ok(()));
        // Computed by the C functions of the header.
        assert_eq!(span.words()[0].load(Relaxed), 0x5a15_b4bf_a7a5_922d);
        assert_eq!(span.words()[64 + 3].load(Relaxed), 0x1c08_54bf_06b1_7265);
        assert_eq!(keep(130, 519), Err(ILLEGAL_ADDRESS));
        assert_eq!(keep(130, 520), Ok(()));
        assert_eq!(span.words()[64 + 3].load(Relaxed), 0x9c87_1555_45aa_e1d4);
    }

    #[test]
    fn traffic_goes_round_in_its_memory_and_is_counted() {
        let (memory, counters) = (words(16), words(1));
        let sizes = [8, 8, 8, 8, 8, 8, 8, 4, 4];
        let run = |mask: u64, first: u64, vectors: u64| {
            let (memory, counters) = (memory.pointer() as u64, counters.pointer() as u64);
            let arguments = [memory, counters, mask, first, vectors, 9, 1000, 1, 4];
            launch("busy_traffic", &sizes, &arguments, 1, 64).run()
        };
        run(7, 14, 3).unwrap();
        let firsts: Vec<u64> = memory.words().iter().step_by(2).map(|word| word.load(Relaxed)).collect();
        assert_eq!(firsts, [9, 0, 0, 0, 0, 0, 9, 9]);
        run(7, 1, 40).unwrap();
        assert!(memory.words().iter().step_by(2).all(|word| word.load(Relaxed) == 9));
        assert_eq!(counters.words()[0].load(Relaxed), 43);
        assert_eq!(run(15, 0, 1), Err(ILLEGAL_ADDRESS));
    }

    #[test]
    fn dynamic_shared_memory_has_an_end() {
        let launched = launch("_Z11shared_onlyv", &[], &[], 1, 64);
        assert_eq!(launched.run(), Err(ILLEGAL_ADDRESS));
        assert_eq!(Launch { shared: 512, ..launched }.run(), Ok(()));
    }

    #[test]
    fn digests_take_the_bytes_of_arguments_without_gaps() {
        let span = words(1);
        let at = span.pointer() as u64;
        let sizes = [8, 1, 2, 3, 4, 8, 8, 40];
        launch("arguments_mixed", &sizes, &[at, 0xFF61], 1, 1).run().unwrap();
        let mut bytes = vec![0x61u8];
        bytes.resize(66, 0);
        let want = bytes
            .iter()
            .fold(0xCBF2_9CE4_8422_2325_u64, |d, b| (d ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3));
        assert_eq!(span.words()[0].load(Relaxed), want);
    }
}
