//! Kernel launches, by all functions that HIP has for them.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use hip_sys::types::*;

use crate::errors::Answer;
use crate::modules::{Function, function};
use crate::registration::{Configuration, kernel};
use crate::state::{self, api, get, put, required, started};
use crate::{devices, events, stream_table};

/// One launch. As in CUDA, the grid counts blocks.
#[derive(Clone, Copy, Debug)]
struct Launch {
    grid: dim3,
    block: dim3,
    shared: usize,
    stream: hipStream_t,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    cooperative: bool,
    /// The events that are recorded before and after the kernel; null for none.
    events: [hipEvent_t; 2],
    /// True for functions that take a function handle, for which AMD's checks differ.
    of_module: bool,
}

/// The maximum number of threads in a block, on all devices.
const MOST_THREADS: u64 = 1024;

impl Launch {
    fn new(grid: dim3, block: dim3, shared: usize, stream: hipStream_t, params: *mut *mut c_void) -> Launch {
        Launch {
            grid,
            block,
            shared,
            stream,
            params,
            extra: ptr::null_mut(),
            cooperative: false,
            events: [hipEvent_t::NULL; 2],
            of_module: false,
        }
    }

    /// Makes AMD's checks, in AMD's order (`ihipLaunchKernel_validate`, `ihipModuleLaunchKernel`).
    fn check(&self, function: &Function) -> Answer {
        let sizes = [(self.grid.x, self.block.x), (self.grid.y, self.block.y), (self.grid.z, self.block.z)];
        let wide = sizes.map(|(grid, block)| u64::from(grid) * u64::from(block) > u64::from(u32::MAX));
        if wide[0] || (wide[1] || wide[2]) && !self.of_module {
            return Err(hipErrorInvalidConfiguration);
        }
        if !self.params.is_null() && !self.extra.is_null() {
            return Err(hipErrorInvalidValue);
        }
        if self.grid.count() == 0 || !(1..=MOST_THREADS).contains(&self.block.count()) {
            return Err(if self.of_module { hipErrorInvalidValue } else { hipErrorInvalidConfiguration });
        }
        let most = devices::shared_memory(function.device)?;
        if self.shared > usize::try_from(most).unwrap_or(0) {
            return Err(hipErrorInvalidValue);
        }
        if self.block.count() > u64::from(function.threads) {
            return Err(hipErrorLaunchFailure);
        }
        // Before anything is launched: from 7 on AMD's runtime looks at both first, and earlier ones do not look.
        self.events.iter().filter(|event| !event.is_null()).try_for_each(|&event| events::check(event))
    }

    fn go(self, function: &Function) -> Answer {
        self.check(function)?;
        if stream_table::device_of(self.stream)? != function.device {
            return Err(hipErrorInvalidDevice);
        }
        let [start, stop] = self.events;
        if !start.is_null() {
            events::record(start, self.stream)?;
        }
        let driver = stream_table::enter_on(self.stream)?;
        let (grid, block) = (self.grid, self.block);
        // A cooperative launch gets what it asks for, because its blocks were counted with that.
        let shared = if self.cooperative { self.shared } else { function.shared(self.shared, block.count()) };
        let shared = c_uint::try_from(shared).map_err(|_| hipErrorInvalidValue)?;
        if self.cooperative {
            driver.launch_cooperative(
                function.handle,
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared,
                self.stream,
                self.params,
            )?;
        } else {
            let mut list = [ptr::null_mut(); 5];
            let extra = self.list(&mut list)?;
            driver.launch(
                function.handle,
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared,
                self.stream,
                self.params,
                extra,
            )?;
        }
        if !stop.is_null() {
            events::record(stop, self.stream)?;
        }
        Ok(())
    }

    /// Converts `extra` for CUDA: HIP ends the list with 3, CUDA with 0. AMD's runtime accepts only this
    /// order.
    fn list(&self, list: &mut [*mut c_void; 5]) -> Answer<*mut *mut c_void> {
        if self.extra.is_null() {
            return Ok(ptr::null_mut());
        }
        let at = |index: usize| get(self.extra.wrapping_add(index));
        let keys = [at(0)?, at(2)?, at(4)?];
        if keys != [HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END] {
            return Err(hipErrorInvalidValue);
        }
        *list = [keys[0], at(1)?, keys[1], at(3)?, ptr::null_mut()];
        Ok(list.as_mut_ptr())
    }
}

/// Launches the kernel of a host function, on the device of the stream.
fn launch_host(host: *const c_void, launch: Launch) -> Answer {
    let function = kernel(host, stream_table::device_of(launch.stream)?)?;
    launch.go(&function)
}

fn launch_module(handle: hipFunction_t, launch: Launch) -> Answer {
    Launch { of_module: true, ..launch }.go(&function(handle)?)
}

/// Converts a grid in threads to blocks. The kernels are compiled for whole blocks.
fn blocks(threads: [u32; 3], block: dim3) -> Answer<dim3> {
    let divide = |threads: u32, block: u32| match (block, threads.checked_rem(block)) {
        (1.., Some(0)) => Ok(threads / block),
        _ => Err(hipErrorInvalidValue),
    };
    Ok(dim3::new(divide(threads[0], block.x)?, divide(threads[1], block.y)?, divide(threads[2], block.z)?))
}

/// Launches a cooperative kernel. Refuses more blocks than fit on the device at once.
fn cooperative(launch: Launch, function: &Function) -> Answer {
    let launch = Launch { cooperative: true, ..launch };
    launch.check(function)?;
    let driver = started()?.enter(function.device)?;
    let (mut blocks, mut units) = (0, 0);
    let threads = c_int::try_from(launch.block.count()).map_err(|_| hipErrorInvalidValue)?;
    driver.occupancy_blocks(&mut blocks, function.handle, threads, launch.shared)?;
    driver.device_attribute(&mut units, devices::MULTIPROCESSORS, function.device)?;
    if launch.grid.count() > u64::try_from(blocks).unwrap_or(0) * u64::try_from(units).unwrap_or(0) {
        return Err(hipErrorCooperativeLaunchTooLarge);
    }
    launch.go(function)
}

/// Returns true if a list of attributes asks for a cooperative launch.
fn is_cooperative(attributes: *const hipLaunchAttribute, count: c_uint) -> Answer<bool> {
    for index in 0..count as usize {
        let attribute = get(attributes.wrapping_add(index))?;
        if attribute.id == hipLaunchAttributeCooperative && attribute.value.words[0] as u32 != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes a list of launches, one for each device. The default stream is refused.
fn several(list: *const hipLaunchParams, count: c_int, one: impl Fn(&hipLaunchParams) -> Answer) -> Answer {
    required(list)?;
    if count < 1 || count > started()?.devices {
        return Err(hipErrorInvalidValue);
    }
    let all = (0..count as usize).map(|index| get(list.wrapping_add(index))).collect::<Answer<Vec<_>>>()?;
    if all.iter().any(|launch| launch.stream.is_legacy_default()) {
        return Err(hipErrorInvalidHandle);
    }
    all.iter().try_for_each(one)
}

thread_local! {
    /// The calls that `hipConfigureCall` has begun, with the bytes of their arguments.
    static CALLS: RefCell<Vec<(Configuration, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
}

fn ext_module(handle: hipFunction_t, threads: [u32; 3], launch: Launch) -> Answer {
    let grid = blocks(threads, launch.block)?;
    launch_module(handle, Launch { grid, ..launch })
}

macro_rules! ext_module {
    ($($name:ident)*) => { api! {$(
        [pfn] fn $name(f: hipFunction_t, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, shared: usize,
            stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t,
            stop: hipEvent_t, flags: u32) {
            let _ = flags;
            let launch = Launch::new(dim3::new(0, 0, 0), dim3::new(bx, by, bz), shared, stream, params);
            ext_module(f, [x, y, z], Launch { extra, events: [start, stop], ..launch })
        }
    )*} };
}

macro_rules! hcc_module {
    ($($name:ident)*) => { api! {$(
        [pfn] fn $name(f: hipFunction_t, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, shared: usize,
            stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void, start: hipEvent_t,
            stop: hipEvent_t) {
            let launch = Launch::new(dim3::new(0, 0, 0), dim3::new(bx, by, bz), shared, stream, params);
            ext_module(f, [x, y, z], Launch { extra, events: [start, stop], ..launch })
        }
    )*} };
}

ext_module! {
    hipExtModuleLaunchKernel
    _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j
}
hcc_module! {
    hipHccModuleLaunchKernel
    _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_
}

api! {
    [pfn] fn hipLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t) {
        launch_host(host, Launch::new(grid, block, shared, stream, params))
    }
    [pfn] fn hipLaunchKernel_spt(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void,
        shared: usize, stream: hipStream_t) {
        launch_host(host, Launch::new(grid, block, shared, stream_table::per_thread(stream), params))
    }
    [pfn] fn hipExtLaunchKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void, shared: usize,
        stream: hipStream_t, start: hipEvent_t, stop: hipEvent_t, flags: c_int) {
        let _ = flags;
        launch_host(host, Launch { events: [start, stop], ..Launch::new(grid, block, shared, stream, params) })
    }
    [pfn] fn hipModuleLaunchKernel(f: hipFunction_t, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint,
        bz: c_uint, shared: c_uint, stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void) {
        let launch =
            Launch::new(dim3::new(x, y, z), dim3::new(bx, by, bz), shared as usize, stream, params);
        launch_module(f, Launch { extra, ..launch })
    }
    [pfn] fn hipLaunchCooperativeKernel(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void,
        shared: c_uint, stream: hipStream_t) {
        let function = kernel(host, stream_table::device_of(stream)?)?;
        cooperative(Launch::new(grid, block, shared as usize, stream, params), &function)
    }
    [pfn] fn hipLaunchCooperativeKernel_spt(host: *const c_void, grid: dim3, block: dim3, params: *mut *mut c_void,
        shared: u32, stream: hipStream_t) {
        let stream = stream_table::per_thread(stream);
        let function = kernel(host, stream_table::device_of(stream)?)?;
        cooperative(Launch::new(grid, block, shared as usize, stream, params), &function)
    }
    [pfn] fn hipModuleLaunchCooperativeKernel(f: hipFunction_t, x: c_uint, y: c_uint, z: c_uint, bx: c_uint,
        by: c_uint, bz: c_uint, shared: c_uint, stream: hipStream_t, params: *mut *mut c_void) {
        let launch =
            Launch::new(dim3::new(x, y, z), dim3::new(bx, by, bz), shared as usize, stream, params);
        cooperative(Launch { of_module: true, ..launch }, &function(f)?)
    }
    [pfn] fn hipLaunchKernelExC(config: *const hipLaunchConfig_t, host: *const c_void, params: *mut *mut c_void) {
        let config = get(config)?;
        let launch =
            Launch::new(config.grid_dim, config.block_dim, config.dynamic_smem_bytes, config.stream, params);
        let function = kernel(host, stream_table::device_of(config.stream)?)?;
        if is_cooperative(config.attrs, config.num_attrs)? {
            return cooperative(launch, &function);
        }
        launch.go(&function)
    }
    [pfn] fn hipDrvLaunchKernelEx(config: *const HIP_LAUNCH_CONFIG, f: hipFunction_t, params: *mut *mut c_void,
        extra: *mut *mut c_void) {
        let config = get(config)?;
        let shared = config.shared_mem_bytes as usize;
        let launch = Launch::new(config.grid_dim, config.block_dim, shared, config.stream, params);
        let launch = Launch { extra, of_module: true, ..launch };
        if is_cooperative(config.attrs, config.num_attrs)? {
            return cooperative(launch, &function(f)?);
        }
        launch_module(f, launch)
    }
    [pfn] fn hipExtLaunchMultiKernelMultiDevice(list: *mut hipLaunchParams, count: c_int, flags: c_uint) {
        let _ = flags;
        several(list, count, |one| {
            let launch = Launch::new(one.grid_dim, one.block_dim, one.shared_mem, one.stream, one.args);
            launch_host(one.func, launch)
        })
    }
    [pfn] fn hipLaunchCooperativeKernelMultiDevice(list: *mut hipLaunchParams, count: c_int, flags: c_uint) {
        let _ = flags;
        several(list, count, |one| {
            let launch = Launch::new(one.grid_dim, one.block_dim, one.shared_mem, one.stream, one.args);
            cooperative(launch, &kernel(one.func, stream_table::device_of(one.stream)?)?)
        })
    }
    [pfn] fn hipConfigureCall(grid: dim3, block: dim3, shared: usize, stream: hipStream_t) {
        CALLS.with_borrow_mut(|calls| calls.push((Configuration { grid, block, shared, stream }, Vec::new())));
        Ok(())
    }
    [pfn] fn hipSetupArgument(argument: *const c_void, size: usize, offset: usize) {
        required(argument)?;
        CALLS.with_borrow_mut(|calls| {
            let (_, bytes) = calls.last_mut().ok_or(hipErrorMissingConfiguration)?;
            let end = offset.checked_add(size).ok_or(hipErrorInvalidValue)?;
            bytes.resize(bytes.len().max(end), 0);
            // SAFETY: HIP requires the program to pass an argument of this size.
            let given = unsafe { std::slice::from_raw_parts(argument.cast::<u8>(), size) };
            bytes[offset..end].copy_from_slice(given);
            Ok(())
        })
    }
    [pfn] fn hipLaunchByPtr(host: *const c_void) {
        let called = CALLS.with_borrow_mut(Vec::pop).ok_or(hipErrorMissingConfiguration)?;
        let (Configuration { grid, block, shared, stream }, mut bytes) = called;
        let mut size = bytes.len();
        let mut extra = [
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            bytes.as_mut_ptr().cast(),
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            ptr::from_mut(&mut size).cast(),
            HIP_LAUNCH_PARAM_END,
        ];
        let launch = Launch::new(grid, block, shared, stream, ptr::null_mut());
        launch_host(host, Launch { extra: extra.as_mut_ptr(), ..launch })
    }
    [pfn] fn hipGetFuncBySymbol(place: *mut hipFunction_t, host: *const c_void) {
        required(place)?;
        state::enter()?;
        put(place, hipFunction_t::from_raw(kernel(host, state::device())?.handle.0))
    }
    [value] fn hipKernelNameRefByPtr(host: *const c_void, stream: hipStream_t) -> *const c_char {
        let found = stream_table::device_of(stream).and_then(|device| kernel(host, device));
        found.map_or(ptr::null(), |function| function.name.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_in_threads_are_whole_blocks() {
        let block = dim3::new(64, 2, 1);
        assert_eq!(blocks([128, 2, 1], block), Ok(dim3::new(2, 1, 1)));
        assert_eq!(blocks([100, 2, 1], block), Err(hipErrorInvalidValue));
        assert_eq!(blocks([128, 2, 1], dim3::new(0, 1, 1)), Err(hipErrorInvalidValue));
    }

    #[test]
    fn an_unusual_order_of_extra_is_refused() {
        let mut extra = [
            HIP_LAUNCH_PARAM_BUFFER_SIZE,
            ptr::null_mut(),
            HIP_LAUNCH_PARAM_BUFFER_POINTER,
            ptr::null_mut(),
            HIP_LAUNCH_PARAM_END,
        ];
        let one = dim3::new(1, 1, 1);
        let launch = Launch {
            extra: extra.as_mut_ptr(),
            ..Launch::new(one, one, 0, hipStream_t::NULL, ptr::null_mut())
        };
        assert_eq!(launch.list(&mut [ptr::null_mut(); 5]), Err(hipErrorInvalidValue));
    }
}
