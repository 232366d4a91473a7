//! The kernels that are executed: ROCr's blit shaders, the runtime's fill, copy and stream-operation kernels,
//! and the kernels of this project. Every other kernel takes time and does not change memory.
//!
//! The meanings of arguments follow ROCr (`amd_blit_kernel.cpp`), ROCclr (`blitcl.cpp`, `rocblitcl.cpp`) and
//! the device libraries (`amdblit.cl`), of 5.2.3, 6.4.3 and 7.2.4; see `docs/gpu-model.md`.

use super::arguments::{Arguments, Dispatch};
use super::code_object::Kernel;
use super::cost::{self, Durations};
use super::effect::{Effect, Op, Rows};
use super::keep::{FEW, Keep, MANY};
use super::names::original;
use super::stream_ops::Condition;
use crate::device::Time;
use crate::space::{Fault, View};

/// The action of a dispatched kernel.
#[derive(Debug)]
pub enum Act {
    /// It runs for `time` when alone, and then has this effect.
    Run { time: Time, effect: Effect },
    /// It is not executed: it runs for this time when alone, and does not change memory.
    Pass(Time),
    /// It spins until all conditions hold, and then has this effect.
    Wait(Vec<Condition>, Effect),
}

/// Returns the time of a kernel in the table. A numbered copy has the time of its original unless the table
/// states its own.
fn stated(table: &Durations, name: &str) -> Option<Time> {
    table.get(name).or_else(|| table.get(original(name)))
}

/// Returns the action of a dispatch.
///
/// # Errors
/// The reason: the kernel belongs to the runtime and has an effect that is not simulated, or its arguments
/// cannot be read.
pub fn plan(
    view: &View<'_>,
    kernel: Option<&Kernel>,
    dispatch: &Dispatch,
    table: &Durations,
) -> Result<Act, String> {
    let fault = |f: Fault| format!("its arguments at {:#x} are not mapped", f.va);
    let Some(kernel) = kernel else {
        let effect = blit_shader(view, dispatch).map_err(fault)?;
        return Ok(match effect {
            Some(effect) => Act::Run { time: cost::device_move(effect.bytes()), effect },
            None => Act::Pass(cost::by_grid(dispatch.rounds)),
        });
    };
    let args = Arguments { view, base: dispatch.arguments, layout: &kernel.args };
    let name = original(&kernel.name);
    let mut act = match name {
        "busy" => Ok(Act::Run { time: args.u64(0).map_err(fault)?, effect: Effect::default() }),
        "busy_store" => args.busy_store(),
        "keep_few" => args.keep(dispatch, FEW),
        "keep_many" => args.keep(dispatch, MANY),
        "busy_traffic" => args.busy_traffic().map(|(time, ops)| Act::Run { time, effect: Effect::new(ops) }),
        "mix" => moved(args.mix(dispatch)),
        "vector_add" => moved(args.vector_add(dispatch)),
        "arguments_block" | "arguments_mixed" => moved(args.digest()),
        // From HIP 6 on, these two kernels get their end address and their stride as arguments.
        "__amd_rocclr_fillBufferAligned" if matches!(kernel.args.len(), 6 | 7) => moved(args.fill_to_end()),
        "__amd_rocclr_copyBuffer" if kernel.args.len() > 6 => moved(args.copy_to_end()),
        "__amd_rocclr_fillBufferAligned" => moved(args.fill_aligned(dispatch)),
        "__amd_rocclr_fillBufferAligned2D" => moved(args.fill_aligned_2d(dispatch)),
        "__amd_rocclr_copyBuffer" => moved(args.copy_buffer(dispatch)),
        "__amd_rocclr_copyBufferAligned" => moved(args.copy_buffer_aligned(dispatch)),
        "__amd_rocclr_copyBufferRect" => moved(args.copy_rect(1, dispatch)),
        "__amd_rocclr_copyBufferRectAligned" => moved(args.copy_rect(4, dispatch)),
        "__amd_rocclr_streamOpsWrite" => moved(args.stream_write()),
        "__amd_rocclr_streamOpsWait" => args.stream_wait().map(|one| Act::Wait(vec![one], Effect::default())),
        "__amd_rocclr_batchMemOp" => args.batch(dispatch).map(|(waits, writes)| match waits.is_empty() {
            true => Act::Run { time: 0, effect: Effect::new(writes) },
            false => Act::Wait(waits, Effect::new(writes)),
        }),
        // Counters and the heap of device-side malloc, which no executed kernel uses.
        "__amd_rocclr_gwsInit" | "__amd_rocclr_initHeap" => {
            Ok(Act::Run { time: 0, effect: Effect::default() })
        }
        _ if name.starts_with("__amd_rocclr_") => {
            return Err(format!(
                "the runtime's kernel {name} is not simulated (image and device-enqueue kernels are not)"
            ));
        }
        _ => Ok(Act::Pass(cost::by_grid(dispatch.rounds))),
    }
    .map_err(fault)?;
    if let (Act::Run { time, .. } | Act::Pass(time), Some(stated)) = (&mut act, stated(table, &kernel.name))
        && !matches!(name, "busy" | "busy_store" | "busy_traffic" | "keep_few" | "keep_many")
    {
        *time = stated;
    }
    Ok(act)
}

fn moved(ops: Result<Vec<Op>, Fault>) -> Result<Act, Fault> {
    let effect = Effect::new(ops?);
    Ok(Act::Run { time: cost::device_move(effect.bytes()), effect })
}

/// Recognises a shader of ROCr. Such a shader has no name: its code follows a 256-byte header, and the number
/// of argument quadruples that it loads identifies it (`amd_gpu_shaders.h` of ROCr 5.2, `blit_shaders/*.s` of
/// newer ones, which take the same arguments).
fn blit_shader(view: &View<'_>, dispatch: &Dispatch) -> Result<Option<Effect>, Fault> {
    let Ok(code) = view.load::<48>(dispatch.object.wrapping_add(0x100)) else { return Ok(None) };
    let (words, _) = code.as_chunks::<4>();
    let word = |i: usize| u32::from_le_bytes(words[i]);
    let arg = |i: u64| view.load_u64(dispatch.arguments.wrapping_add(i * 8));
    // s_load_dwordx4 s[4 + 4i..], s[0:1], 16i: the two words of the first one as gfx8 and gfx9 encode it, and
    // gfx11.
    let encodings = [[0xC00A_0100, 0], [0xF408_0100, 0xF800_0000]];
    let Some([load, offset]) = encodings.into_iter().find(|first| [word(0), word(1)] == *first) else {
        return Ok(None);
    };
    let is_quad = |i: &usize| {
        let n = *i as u32;
        [word(2 * i), word(2 * i + 1)] == [load + n * 0x100, offset + n * 0x10]
    };
    let quads = (0..5).take_while(is_quad).count();
    // After them the shader loads the number of work-items (s_load_dword), or nothing more (s_waitcnt).
    match (quads, word(2 * quads) >> 16) {
        // The phases of a copy are contiguous, so that its first start and last end describe it.
        (5 | 3, 0xC002 | 0xF400) => {
            let (src, dst, end) = (arg(0)?, arg(1)?, arg(if quads == 5 { 8 } else { 4 })?);
            Ok(Some(Effect::new([Op::Copy { dst, src, len: end.saturating_sub(src) }])))
        }
        (2, 0xBF8C | 0xBF89) => {
            let (dst, end) = (arg(0)?, arg(2)?);
            let pattern = view.load::<4>(dispatch.arguments.wrapping_add(24))?.to_vec();
            Ok(Some(Effect::new([Op::Fill { dst, pattern, len: end.saturating_sub(dst) }])))
        }
        _ => Ok(None),
    }
}

impl Arguments<'_> {
    fn busy_store(&self) -> Result<Act, Fault> {
        let word = Op::Fill { dst: self.u64(0)?, pattern: self.u64(1)?.to_le_bytes().to_vec(), len: 8 };
        Ok(Act::Run { time: self.u64(2)?, effect: Effect::new([word]) })
    }

    fn keep(&self, dispatch: &Dispatch, registers: u32) -> Result<Act, Fault> {
        let keep = Keep::new(self, dispatch, registers)?;
        Ok(Act::Run { time: self.u64(3)?, effect: Effect::new([Op::Keep(keep)]) })
    }

    fn mix(&self, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let end = (self.u64(2)? as u32).min(dispatch.grid[0]);
        Ok(vec![Op::Mix { dst: self.u64(0)?, src: self.u64(1)?, next: 0, end, value: self.u64(3)? }])
    }

    fn vector_add(&self, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let end = (self.u64(3)? as u32).min(dispatch.grid[0]);
        Ok(vec![Op::Add { a: self.u64(0)?, b: self.u64(1)?, c: self.u64(2)?, next: 0, end }])
    }

    /// Returns the change that stores the digest of all arguments but the first, which is its address.
    fn digest(&self) -> Result<Vec<Op>, Fault> {
        // A client wrote the metadata, so limit the size of arguments to 4 KiB.
        let mut digest = 0xCBF2_9CE4_8422_2325_u64;
        let mut bytes = [0; 4096];
        for (offset, size) in self.layout.iter().skip(1).take(64) {
            let bytes = &mut bytes[..(*size).min(4096) as usize];
            self.view.read(self.base.wrapping_add(*offset), bytes)?;
            digest = bytes
                .iter()
                .fold(digest, |so_far, byte| (so_far ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3));
        }
        Ok(vec![Op::Fill { dst: self.u64(0)?, pattern: digest.to_le_bytes().to_vec(), len: 8 }])
    }

    /// Returns the buffer among (uchar, ushort, uint, ulong) that is set, and its element size.
    fn typed_buffer(&self) -> Result<(u64, u64), Fault> {
        for (i, size) in [(3, 8), (2, 4), (1, 2)] {
            let buffer = self.u64(i)?;
            if buffer != 0 {
                return Ok((buffer, size));
            }
        }
        Ok((self.u64(0)?, 1))
    }

    fn pattern(&self, unit: u64) -> Result<Vec<u8>, Fault> {
        let mut pattern = vec![0; (unit * (self.u64(5)? & 0xffff_ffff)).clamp(unit, 128) as usize];
        self.view.read(self.u64(4)?, &mut pattern)?;
        Ok(pattern)
    }

    /// Returns the number of active work-items: the kernels compare their id with a size, and ids are limited
    /// by the grid. (ROCclr 5.2.3 passes a size of 2^61 - 1 for some small unaligned fills.)
    fn items(&self, i: usize, dispatch: &Dispatch) -> Result<u64, Fault> {
        Ok(limit(self.u64(i)?, dispatch.grid[0]).into())
    }

    fn fill_aligned(&self, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let (buffer, unit) = self.typed_buffer()?;
        let pattern = self.pattern(unit)?;
        let len = self.items(7, dispatch)? * pattern.len() as u64;
        Ok(vec![Op::Fill { dst: place(buffer, self.u64(6)?, unit), pattern, len }])
    }

    /// Arguments: (buffer, pattern, elements of the pattern, bytes of an element, end, ...). Every work-item
    /// writes whole patterns that begin before the end.
    fn fill_to_end(&self) -> Result<Vec<Op>, Fault> {
        let (dst, elements, unit, end) = (self.u64(0)?, self.u64(2)?, self.u64(3)?, self.u64(4)?);
        let size = elements.saturating_mul(unit).clamp(1, 1024);
        let mut pattern = vec![0; size as usize];
        self.view.read(self.u64(1)?, &mut pattern)?;
        let len = end.saturating_sub(dst).div_ceil(size).saturating_mul(size);
        Ok(vec![Op::Fill { dst, pattern, len }])
    }

    /// Arguments: (source, destination, size, rest, bytes of an element, end of the elements, ...). The
    /// kernel copies elements up to the end, and the last `rest` bytes of the size.
    fn copy_to_end(&self) -> Result<Vec<Op>, Fault> {
        let (src, dst, size, end) = (self.u64(0)?, self.u64(1)?, self.u64(2)?, self.u64(5)?);
        let unit = if self.u64(4)? == 16 { 16 } else { 4 };
        let rest = self.u64(3)?.min(size);
        let len = end.saturating_sub(dst).div_ceil(unit).saturating_mul(unit);
        let tail = size - rest;
        Ok(vec![
            Op::Copy { dst, src, len },
            Op::Copy { dst: dst.wrapping_add(tail), src: src.wrapping_add(tail), len: rest },
        ])
    }

    fn fill_aligned_2d(&self, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let (buffer, unit) = self.typed_buffer()?;
        let pattern = self.pattern(unit)?;
        let (width, pitch) = (self.items(7, dispatch)?, self.u64(9)?);
        // Each work-item writes the whole pattern at its element, and the next one overwrites its tail.
        let dst = place(buffer, self.u64(6)?, unit);
        let first = pattern[..unit as usize].to_vec();
        let last = place(dst, width.saturating_sub(1), unit);
        let tail = pattern.len() as u64;
        Ok(vec![Op::Rows(Rows {
            first: vec![
                Op::Fill { dst, pattern: first, len: width * unit },
                Op::Fill { dst: last, pattern, len: tail },
            ],
            rows: limit(self.u64(8)?, dispatch.grid[1]),
            planes: 1,
            dst: [pitch.wrapping_mul(unit), 0],
            src: [0; 2],
            next: 0,
        })])
    }

    fn copy_buffer(&self, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let (src, dst) = (place(self.u64(0)?, self.u64(2)?, 1), place(self.u64(1)?, self.u64(3)?, 1));
        let (size, remain) = (self.items(4, dispatch)?, self.u64(5)? & 0xffff_ffff);
        let len = if remain == 8 { size } else { size.saturating_sub(1) * 4 + remain };
        Ok(vec![Op::Copy { dst, src, len }])
    }

    fn copy_buffer_aligned(&self, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let unit = if self.u64(5)? & 0xffff_ffff == 16 { 16 } else { 4 };
        let (src, dst) = (place(self.u64(0)?, self.u64(2)?, unit), place(self.u64(1)?, self.u64(3)?, unit));
        Ok(vec![Op::Copy { dst, src, len: self.items(4, dispatch)? * unit }])
    }

    fn copy_rect(&self, element: u64, dispatch: &Dispatch) -> Result<Vec<Op>, Fault> {
        let (src, dst) = (self.u64(0)?, self.u64(1)?);
        let (from, to, size) = (self.four(2)?, self.four(3)?, self.four(4)?);
        let unit = if element == 4 && size[3] == 16 { 16 } else { element };
        let step = |rect: [u64; 4]| [rect[0].wrapping_mul(unit), rect[1].wrapping_mul(unit)];
        let len = u64::from(limit(size[0], dispatch.grid[0])) * unit;
        Ok(vec![Op::Rows(Rows {
            first: vec![Op::Copy { dst: place(dst, to[2], unit), src: place(src, from[2], unit), len }],
            rows: limit(size[1], dispatch.grid[1]),
            planes: limit(size[2], dispatch.grid[2]),
            dst: step(to),
            src: step(from),
            next: 0,
        })])
    }
}

/// Returns the address of an element. The address of a client can wrap around; each access is checked.
fn place(base: u64, index: u64, unit: u64) -> u64 {
    base.wrapping_add(index.wrapping_mul(unit))
}

/// Returns the size, limited by the work-items of one dimension.
fn limit(size: u64, grid: u32) -> u32 {
    u32::try_from(size).map_or(grid, |size| size.min(grid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::testing::Memory;

    const DATA: u64 = 0x10_0000;
    const ARGS: u64 = 0x20_0000;

    /// Runs a kernel with these 8-byte arguments on memory with the bytes 0, 1, 2, ... Returns the memory
    /// from `DATA` on.
    fn run(name: &str, args: &[u64], grid: u32, layout: &[(u64, u64)]) -> Vec<u8> {
        let memory = Memory::new(&[(DATA, 0x1000), (ARGS, 0x1000)]);
        let view = memory.view();
        let bytes: Vec<u8> = (0..0x1000).map(|i| i as u8).collect();
        view.write(DATA, &bytes).unwrap();
        for (i, arg) in args.iter().enumerate() {
            let offset = layout.get(i).map_or(i as u64 * 8, |l| l.0);
            view.write(ARGS + offset, &arg.to_le_bytes()).unwrap();
        }
        let kernel = Kernel { name: name.into(), args: layout.to_vec() };
        let dispatch = Dispatch { object: 0, arguments: ARGS, grid: [grid, grid, 1], group: 1, rounds: 1 };
        match plan(&view, Some(&kernel), &dispatch, &Durations::default()).unwrap() {
            Act::Run { mut effect, .. } => effect.finish(&view, 64).unwrap(),
            Act::Pass(_) => {}
            Act::Wait(..) => panic!("waits"),
        }
        let mut out = vec![0; 0x1000];
        view.read(DATA, &mut out).unwrap();
        out
    }

    #[test]
    fn numbered_copy_has_the_effect_and_time_of_its_original() {
        use crate::kernels::names::executes;
        let others = ["mix", "mix__", "mix__a", "__amd_rocclr_copyBuffer", "gemm__12"];
        assert_eq!(others.map(original), others);
        assert_eq!(original("mix__3"), "mix");
        assert!(executes("mix__3") && !executes("mix__a"));
        let table = Durations::parse(r#"{"mix": 2, "mix__4": 3, "gemm__12": 4}"#).unwrap();
        let times = ["mix__3", "mix__4", "gemm__12", "gemm__13"].map(|name| stated(&table, name));
        assert_eq!(times, [Some(2000), Some(3000), Some(4000), None]);
    }

    #[test]
    fn kernels_of_hip_5_copy_and_fill() {
        // copyBuffer: 10 bytes are two words and two bytes in the third item.
        let out = run("__amd_rocclr_copyBuffer", &[DATA, DATA, 16, 1024, 3, 2], 256, &[]);
        assert_eq!(out[1024..1036], [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 10, 11]);
        let pattern = DATA + 0x80;
        let out = run("__amd_rocclr_fillBufferAligned", &[0, 0, DATA, 0, pattern, 1, 4, 3], 256, &[]);
        assert_eq!(
            out[12..32],
            [12, 13, 14, 15, 128, 129, 130, 131, 128, 129, 130, 131, 128, 129, 130, 131, 28, 29, 30, 31]
        );
        let out =
            run("__amd_rocclr_fillBufferAligned2D", &[DATA, 0, 0, 0, pattern, 1, 2, 2, 2, 16], 256, &[]);
        assert_eq!((&out[..5], &out[16..21]), (&[0, 1, 128, 128, 4][..], &[16, 17, 128, 128, 20][..]));
    }

    /// Returns the layout of arguments with these sizes.
    fn layout(sizes: &[u64]) -> Vec<(u64, u64)> {
        sizes
            .iter()
            .scan(0u64, |at, size| {
                let offset = at.next_multiple_of(*size);
                *at = offset + size;
                Some((offset, *size))
            })
            .collect()
    }

    #[test]
    fn kernels_of_hip_6_and_7_copy_and_fill_to_the_end() {
        let pattern = DATA + 0x80;
        for sizes in [&[8, 8, 4, 4, 8, 4][..], &[8, 8, 4, 4, 8, 4, 4]] {
            // A pattern of two words in three words of space: the whole pattern is written.
            let args = [DATA + 16, pattern, 2, 4, DATA + 28, 256, 64];
            let out = run("__amd_rocclr_fillBufferAligned", &args[..sizes.len()], 64, &layout(sizes));
            let want: Vec<u8> = (12..16).chain(128..136).chain(128..136).chain(32..36).collect();
            assert_eq!(out[12..36], want);
        }
        for sizes in [&[8, 8, 8, 4, 4, 8, 4][..], &[8, 8, 8, 4, 4, 8, 4, 4]] {
            // 19 bytes: four elements of a word, and three more bytes.
            let args = [DATA, DATA + 1024, 19, 3, 4, DATA + 1024 + 16, 64, 64];
            let out = run("__amd_rocclr_copyBuffer", &args[..sizes.len()], 64, &layout(sizes));
            let want: Vec<u8> = (0..19).chain(19..24).collect();
            assert_eq!(out[1024..1048], want);
        }
    }

    #[test]
    fn blit_shader_of_each_generation_is_recognised_by_its_loads() {
        let memory = Memory::new(&[(DATA, 0x1000), (ARGS, 0x1000)]);
        let view = memory.view();
        let args = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x90];
        for (i, arg) in args.iter().enumerate() {
            view.write(ARGS + i as u64 * 8, &u64::to_le_bytes(*arg)).unwrap();
        }
        let shader = |quad: u32, offset: u32, quads: u32, next: u32| {
            let loads = (0..quads).flat_map(|i| [quad + i * 0x100, offset + i * 0x10]);
            let code: Vec<u8> = loads.chain([next, 0]).flat_map(u32::to_le_bytes).collect();
            view.fill(DATA, &[0], 0x400).unwrap();
            view.write(DATA + 0x100, &code).unwrap();
            let dispatch = Dispatch { object: DATA, arguments: ARGS, grid: [64; 3], group: 1, rounds: 1 };
            blit_shader(&view, &dispatch).unwrap().map(|effect| effect.bytes())
        };
        // gfx9 of ROCr 5.2, gfx9 of newer ones, gfx11.
        for (quad, offset, count, wait) in [
            (0xC00A_0100, 0, 0xC002_0000, 0xBF8C_007F),
            (0xC00A_0100, 0, 0xC002_0000, 0xBF8C_C07F),
            (0xF408_0100, 0xF800_0000, 0xF400_0000, 0xBF89_FC07),
        ] {
            assert_eq!(shader(quad, offset, 5, count), Some(0x90 - 0x10));
            assert_eq!(shader(quad, offset, 3, count), Some(0x50 - 0x10));
            assert_eq!(shader(quad, offset, 2, wait), Some(0x30 - 0x10));
            assert_eq!(shader(quad, offset, 4, count), None);
            assert_eq!(shader(quad, offset, 2, count), None);
        }
        assert_eq!(shader(0xC006_0100, 0, 5, 0xC002_0000), None);
    }

    #[test]
    fn rectangle_is_copied_row_by_row() {
        let layout = [(0, 8), (8, 8), (32, 32), (64, 32), (96, 32)];
        let mut args = [0u64; 16];
        (args[0], args[1]) = (DATA, DATA);
        args[4..7].copy_from_slice(&[16, 256, 4]);
        args[8..11].copy_from_slice(&[32, 512, 1024]);
        args[12..15].copy_from_slice(&[3, 2, 1]);
        let memory = Memory::new(&[(DATA, 0x1000), (ARGS, 0x1000)]);
        let view = memory.view();
        for (i, arg) in args.iter().enumerate() {
            view.write(ARGS + i as u64 * 8, &arg.to_le_bytes()).unwrap();
        }
        let arguments = Arguments { view: &view, base: ARGS, layout: &layout };
        let dispatch = Dispatch { object: 0, arguments: ARGS, grid: [256, 16, 4], group: 1, rounds: 1 };
        let rows = arguments.copy_rect(1, &dispatch).unwrap();
        let first = vec![Op::Copy { dst: DATA + 1024, src: DATA + 4, len: 3 }];
        assert_eq!(
            rows,
            [Op::Rows(Rows { first, rows: 2, planes: 1, dst: [32, 512], src: [16, 256], next: 0 })]
        );
        let bytes: Vec<u8> = (0..64).collect();
        view.write(DATA, &bytes).unwrap();
        Effect::new(rows).finish(&view, 2).unwrap();
        assert_eq!(view.load::<4>(DATA + 1024), Ok([4, 5, 6, 0]));
        assert_eq!(view.load::<4>(DATA + 1056), Ok([20, 21, 22, 0]));
    }

    #[test]
    fn narrow_argument_is_read_by_its_size() {
        // mix on fewer elements than the grid; the bytes after `n` are not part of it.
        let layout = [(0, 8), (8, 8), (16, 4), (24, 8)];
        let out = run("mix", &[DATA, DATA + 64, 0xffff_ffff_0000_0001, 5], 64, &layout);
        assert_ne!(out[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(out[8..16], [8, 9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn busy_store_writes_its_word() {
        let out = run("busy_store", &[DATA + 8, 0x0102_0304_0506_0708, 1_000, 1], 64, &[]);
        assert_eq!(out[7..17], [7, 8, 7, 6, 5, 4, 3, 2, 1, 16]);
    }

    #[test]
    fn digest_skips_gaps_between_arguments() {
        let layout = [(0, 8), (8, 1), (10, 2)];
        let out = run("arguments_mixed", &[DATA, 0x61, 0xAAAA_AAAA_6362], 64, &layout);
        // The published FNV-1a hash of "abc".
        assert_eq!(out[..8], 0xe71f_a219_0541_574b_u64.to_le_bytes());
        assert_eq!(out[8..10], [8, 9]);
    }

    #[test]
    fn invalid_arguments_cause_no_panic() {
        let memory = Memory::new(&[(ARGS, 0x1000)]);
        let view = memory.view();
        for fill in [0u8, 1, 0x7f, 0xff] {
            view.fill(ARGS, &[fill], 0x1000).unwrap();
            // A readable pattern of length 0.
            view.write(ARGS + 32, &ARGS.to_le_bytes()).unwrap();
            view.write(ARGS + 40, &0u64.to_le_bytes()).unwrap();
            let names = "fillBufferAligned fillBufferAligned2D copyBuffer copyBufferAligned copyBufferRect \
                         copyBufferRectAligned streamOpsWrite streamOpsWait batchMemOp";
            let runtimes = names.split(' ').map(|name| (format!("__amd_rocclr_{name}"), vec![]));
            let own = [("arguments_block".to_owned(), vec![(u64::MAX, u64::MAX); 70])];
            for (name, args) in runtimes.chain(own) {
                for (arguments, object) in [(ARGS, ARGS), (u64::MAX - 20, u64::MAX)] {
                    let kernel = Kernel { name: name.clone(), args: args.clone() };
                    let dispatch =
                        Dispatch { object, arguments, grid: [u32::MAX; 3], group: 1, rounds: u64::MAX };
                    for kernel in [Some(&kernel), None] {
                        if let Ok(Act::Run { mut effect, .. }) =
                            plan(&view, kernel, &dispatch, &Durations::default())
                        {
                            let _ = effect.step(&view, 4096);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn unknown_kernel_changes_no_memory_and_runtime_kernel_fails() {
        assert_eq!(run("gemm", &[DATA], 64, &[])[..4], [0, 1, 2, 3]);
        let memory = Memory::new(&[]);
        let view = memory.view();
        let dispatch = Dispatch { object: 0, arguments: 0, grid: [1; 3], group: 1, rounds: 1 };
        let gemm = Kernel { name: "gemm".into(), args: vec![] };
        let stated = Durations::parse(r#"{"gemm": 7}"#).unwrap();
        for (kernel, want) in [(Some(&gemm), 7_000), (None, 5_000)] {
            let act = plan(&view, kernel, &dispatch, &stated);
            assert!(matches!(act, Ok(Act::Pass(time)) if time == want), "{act:?}");
        }
        let kernel = Kernel { name: "__amd_rocclr_copyImage".into(), args: vec![] };
        let error = plan(&view, Some(&kernel), &dispatch, &Durations::default()).unwrap_err();
        assert!(error.contains("__amd_rocclr_copyImage"));
    }
}
