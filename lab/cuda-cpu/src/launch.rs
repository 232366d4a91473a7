//! Kernel launches and occupancy.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::abi::{Answer, COOPERATIVE_LAUNCH_TOO_LARGE, Handle, INVALID_VALUE, LaunchConfig, NOT_SUPPORTED};
use crate::device::{BLOCK, MULTIPROCESSORS, RESIDENT, RESIDENT_BLOCKS, SHARED};
use crate::gate::{Call, In, Out, enter};
use crate::graph::Kind as NodeKind;
use crate::kernels::{Function, Launch};
use crate::module::function;
use crate::state::FunctionEntry;
use crate::work::Work;

/// The maximum size of a launch's arguments in bytes (CUDA C++ Programming Guide, "Technical specifications",
/// from 12.1 on).
const ARGUMENTS: usize = 32764;

/// The maximum number of threads in each dimension of a block, and of blocks in each dimension of a grid.
const BLOCKS: [u32; 3] = [BLOCK, BLOCK, 64];
const GRIDS: [u32; 3] = [i32::MAX as u32, 65535, 65535];

/// The program's pointers to a launch's arguments.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// An address for each argument.
    pub params: In<In<u8>>,
    /// A list of keys and values that ends with `CU_LAUNCH_PARAM_END`.
    pub extra: In<usize>,
}

/// The grid, the block and the dynamic shared memory of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
}

/// Copies a launch's arguments.
fn arguments(function: &Function, from: Arguments) -> Answer<Vec<u8>> {
    let len = function.arguments();
    if len > ARGUMENTS {
        return Err(INVALID_VALUE);
    }
    let mut bytes = vec![0; len];
    match (from.params.address(), from.extra.address()) {
        (0, 0) if function.params.is_empty() => {}
        (0, 0) => return Err(INVALID_VALUE),
        (_, 0) => {
            // A kernel without parameters does not read the list.
            for (param, value) in function.params.iter().zip(from.params.all(function.params.len())?) {
                bytes[param.offset..param.offset + param.size].copy_from_slice(&value.all(param.size)?);
            }
        }
        (0, extra) => {
            let (mut buffer, mut size) = (0, 0);
            for index in 0_usize.. {
                let word =
                    |at| In::<usize>::from_address(extra + (2 * index + at) * size_of::<usize>()).get();
                match word(0)? {
                    0 => break,
                    1 => buffer = word(1)?,
                    2 => size = In::<usize>::from_address(word(1)?).get()?,
                    _ => return Err(INVALID_VALUE),
                }
            }
            if size < len || size > ARGUMENTS || (buffer == 0 && len > 0) {
                return Err(INVALID_VALUE);
            }
            bytes.copy_from_slice(&In::<u8>::from_address(buffer).all(len)?);
        }
        // The documentation of cuLaunchKernel permits only one of the two.
        _ => return Err(INVALID_VALUE),
    }
    Ok(bytes)
}

/// Returns the number of blocks of this size that fit on a multiprocessor.
fn resident(function: &Function, threads: u32, dynamic: usize) -> u32 {
    if threads == 0 || threads > function.threads {
        return 0;
    }
    // Threads count in whole warps. Shared memory includes the driver's part of each block.
    let by_threads = RESIDENT / threads.next_multiple_of(32);
    let by_memory = SHARED[2] / (function.shared + dynamic + SHARED[3]);
    by_threads.min(RESIDENT_BLOCKS).min(u32::try_from(by_memory).unwrap_or(u32::MAX))
}

/// Checks a launch as the driver does, and makes it a command.
///
/// # Errors
/// `INVALID_HANDLE` for the function, `INVALID_VALUE` for the sizes or the arguments, `NOT_SUPPORTED` for a
/// kernel that this library does not know, `COOPERATIVE_LAUNCH_TOO_LARGE`.
pub fn plan(call: &Call, handle: Handle, size: Size, from: Arguments, cooperative: bool) -> Answer<Launch> {
    let FunctionEntry { function, dynamic, .. } = function(call, handle)?;
    let within = |sizes: [u32; 3], most: [u32; 3]| {
        sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size))
    };
    if !within(size.block, BLOCKS) || !within(size.grid, GRIDS) {
        return Err(INVALID_VALUE);
    }
    let threads: u32 = size.block.iter().product();
    if threads > function.threads || size.shared > *dynamic {
        return Err(INVALID_VALUE);
    }
    if function.native.is_none() {
        let sizes: Vec<usize> = function.params.iter().map(|param| param.size).collect();
        eprintln!(
            "cuda-cpu: no native code for the kernel {} with parameters of {sizes:?} bytes: add it to \
             lab/cuda-cpu/src/kernels.rs",
            function.name
        );
        return Err(NOT_SUPPORTED);
    }
    let blocks: u64 = size.grid.iter().map(|blocks| u64::from(*blocks)).product();
    let room = u64::from(resident(function, threads, size.shared as usize)) * u64::from(MULTIPROCESSORS);
    if cooperative && blocks > room {
        return Err(COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    let arguments = arguments(function, from)?;
    let (grid, block, shared, device) = (size.grid, size.block, size.shared, call.device);
    let addresses = function.params.iter().map(|param| arguments.as_ptr() as usize + param.offset).collect();
    let function = function.clone();
    Ok(Launch { function, handle, grid, block, shared, arguments, addresses, device })
}

fn launch(handle: Handle, size: Size, stream: Handle, from: Arguments, cooperative: bool) -> Answer {
    let mut call = enter()?;
    let launch = plan(&call, handle, size, from, cooperative)?;
    call.enqueue(stream, Work::Kernel(Arc::new(launch)), || NodeKind::Kernel).map(|_| ())
}

crate::api! {
    fn cuLaunchKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Handle, params: In<In<u8>>, extra: In<usize>,
    ) {
        let size = Size { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        launch(function, size, stream, Arguments { params, extra }, false)
    }

    fn cuLaunchKernelEx(config: In<LaunchConfig>, function: Handle, params: In<In<u8>>, extra: In<usize>) {
        let config = config.get()?;
        let attributes = In::from_address(config.attributes as usize);
        let attributes: Vec<crate::abi::LaunchAttribute> = attributes.all(config.count as usize)?;
        // `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
        let cooperative = attributes.iter().any(|one| one.id == 2 && one.value[0] as c_int != 0);
        let size = Size { grid: config.grid, block: config.block, shared: config.shared };
        launch(function, size, config.stream, Arguments { params, extra }, cooperative)
    }

    fn cuLaunchCooperativeKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Handle, params: In<In<u8>>,
    ) {
        let size = Size { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        launch(function, size, stream, Arguments { params, extra: In::from_address(0) }, true)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, handle: Handle, threads: c_int, dynamic: usize,
    ) {
        let call = enter()?;
        let function = &function(&call, handle)?.function;
        let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(INVALID_VALUE)?;
        blocks.set(resident(function, threads, dynamic.min(1 << 30)) as c_int)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>, handle: Handle, threads: c_int, dynamic: usize, flags: c_uint,
    ) {
        let call = enter()?;
        let function = &function(&call, handle)?.function;
        let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0 && flags <= 1).ok_or(INVALID_VALUE)?;
        blocks.set(resident(function, threads, dynamic.min(1 << 30)) as c_int)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, handle: Handle, by_block: *mut c_void, dynamic: usize, limit: c_int,
    ) {
        potential(grid, block, handle, by_block, dynamic, limit, 0)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, handle: Handle, by_block: *mut c_void, dynamic: usize, limit: c_int,
        flags: c_uint,
    ) {
        potential(grid, block, handle, by_block, dynamic, limit, flags)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(to: Out<usize>, handle: Handle, blocks: c_int, threads: c_int) {
        let call = enter()?;
        let function = &function(&call, handle)?.function;
        let blocks = usize::try_from(blocks).ok().filter(|blocks| *blocks > 0 && threads > 0).ok_or(INVALID_VALUE)?;
        let each = (SHARED[2] / blocks).min(SHARED[1] + SHARED[3]);
        to.set(each.saturating_sub(function.shared + SHARED[3]))
    }
}

/// Writes the block size with which most threads run at once, and the number of such blocks that fill the
/// device.
fn potential(
    grid: Out<c_int>,
    block: Out<c_int>,
    handle: Handle,
    by_block: *mut c_void,
    dynamic: usize,
    limit: c_int,
    flags: c_uint,
) -> Answer {
    let call = enter()?;
    let function = &function(&call, handle)?.function;
    if flags > 1 || limit < 0 {
        return Err(INVALID_VALUE);
    }
    if !by_block.is_null() {
        // The callback would run under this library's lock.
        eprintln!("cuda-cpu: a callback for the shared memory of a block is not supported: pass its size");
        return Err(NOT_SUPPORTED);
    }
    let most = if limit == 0 { function.threads } else { function.threads.min(limit as u32) };
    let running = |threads: &u32| resident(function, *threads, dynamic.min(1 << 30)) * threads;
    // Of equally good sizes the largest, because the threads of one block can cooperate.
    let best = (32..=most).step_by(32).chain([most]).max_by_key(running).filter(|best| running(best) > 0);
    let best = best.ok_or(INVALID_VALUE)?;
    grid.set((resident(function, best, dynamic.min(1 << 30)) * MULTIPROCESSORS) as c_int)?;
    block.set(best as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fit_by_threads_and_by_shared_memory() {
        let function = Function { name: "f".into(), params: vec![], native: None, shared: 0, threads: 1024 };
        assert_eq!(resident(&function, 256, 0), 8);
        assert_eq!(resident(&function, 1, 0), 32);
        assert_eq!(resident(&function, 64, 60 << 10), 3);
        assert_eq!(resident(&Function { threads: 64, ..function }, 65, 0), 0);
    }
}
