//! Occupancy, as the CUDA driver computes it.

use std::ffi::{c_int, c_uint, c_void};

use hip_sys::types::*;

use crate::errors::Answer;
use crate::modules::{Function, function};
use crate::registration::kernel;
use crate::state::{self, api, enter, put, required, started};

fn of_host(host: *const c_void) -> Answer<Function> {
    enter()?;
    kernel(host, state::device())
}

fn blocks(place: *mut c_int, function: Function, threads: c_int, shared: usize) -> Answer {
    required(place)?;
    if threads <= 0 {
        return Err(hipErrorInvalidValue);
    }
    let mut found = 0;
    started()?.enter(function.device)?.occupancy_blocks(&mut found, function.handle, threads, shared)?;
    put(place, found)
}

fn size(grid: *mut c_int, block: *mut c_int, function: Function, shared: usize, limit: c_int) -> Answer {
    required(grid)?;
    required(block)?;
    let (mut blocks, mut threads) = (0, 0);
    let driver = started()?.enter(function.device)?;
    driver.occupancy_block_size(&mut blocks, &mut threads, function.handle, None, shared, limit)?;
    put(grid, blocks)?;
    put(block, threads)
}

api! {
    [pfn] fn hipOccupancyMaxActiveBlocksPerMultiprocessor(place: *mut c_int, host: *const c_void, threads: c_int,
        shared: usize) {
        blocks(place, of_host(host)?, threads, shared)
    }
    [own] fn hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(place: *mut c_int, host: *const c_void,
        threads: c_int, shared: usize, flags: c_uint) {
        let _ = flags;
        blocks(place, of_host(host)?, threads, shared)
    }
    [own] fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(place: *mut c_int, f: hipFunction_t, threads: c_int,
        shared: usize) {
        blocks(place, function(f)?, threads, shared)
    }
    [own] fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(place: *mut c_int, f: hipFunction_t,
        threads: c_int, shared: usize, flags: c_uint) {
        let _ = flags;
        blocks(place, function(f)?, threads, shared)
    }
    [pfn] fn hipOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, host: *const c_void,
        shared: usize, limit: c_int) {
        size(grid, block, of_host(host)?, shared, limit)
    }
    [pfn] fn hipModuleOccupancyMaxPotentialBlockSize(grid: *mut c_int, block: *mut c_int, f: hipFunction_t,
        shared: usize, limit: c_int) {
        size(grid, block, function(f)?, shared, limit)
    }
}
