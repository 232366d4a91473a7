//! Allocations, copies, pools and modules.

use std::ffi::{c_uint, c_void};

use crate::support::begin;

const INVALID_VALUE: c_uint = 1;
const NOT_READY: c_uint = 600;

#[test]
fn copies_go_between_all_kinds_of_memory() {
    let s = begin();
    let device = s.words(100);
    let (mut pinned, mut managed) = (0, 0);
    assert_eq!(s.driver.cuMemHostAlloc(&mut pinned, 800, 0), 0);
    assert_eq!(s.driver.cuMemAllocManaged(&mut managed, 800, 1), 0);
    let pageable: Vec<u64> = (0..100).map(|i| i * i).collect();
    for (to, from) in [(device, pageable.as_ptr() as usize), (managed, device), (pinned, managed)] {
        assert_eq!(s.driver.cuMemcpy(to, from, 800), 0);
    }
    assert_eq!(s.driver.cuCtxSynchronize(), 0);
    for at in [pinned, managed] {
        // SAFETY: the CPU can access both, they have 100 words each, and all copies have completed.
        assert_eq!(unsafe { std::slice::from_raw_parts(at as *const u64, 100) }, pageable);
    }
    assert_eq!(
        s.driver.cuMemcpy(device + 8, pageable.as_ptr() as usize, 800),
        INVALID_VALUE,
        "beyond the end"
    );
    assert_eq!(s.driver.cuMemcpy(device, 16, 800), INVALID_VALUE, "not mapped");
    assert_eq!(s.driver.cuMemFree_v2(device + 8), INVALID_VALUE);
    assert_eq!(s.driver.cuMemFree_v2(pinned), INVALID_VALUE);
    assert_eq!(s.driver.cuMemFree_v2(device), 0);
    assert_eq!(s.driver.cuMemFree_v2(device), INVALID_VALUE, "twice");
    assert_eq!(s.driver.cuMemFreeHost(pinned), 0);
    assert_eq!(s.driver.cuMemFree_v2(managed), 0);
}

#[test]
fn a_small_copy_from_pageable_memory_takes_its_bytes_along() {
    let s = begin();
    let (stream, at) = (s.stream(1), s.words(2));
    let gate = s.gate(stream);
    let mut bytes = [1_u64, 2];
    assert_eq!(s.driver.cuMemcpyAsync(at, bytes.as_ptr() as usize, 16, stream), 0);
    assert_eq!(s.driver.cuStreamQuery(stream), NOT_READY);
    bytes.fill(9);
    gate.open();
    assert_eq!(s.read(at, 2, stream), [1, 2]);
    assert_eq!(bytes, [9, 9]);
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let s = begin();
    let at = s.words(64);
    let rows: Vec<u8> = (0..30).collect();
    // Three rows with a pitch of 10 bytes from column 2 on, to rows with a pitch of 32 bytes from row 1 and
    // column 4 on.
    let (host, device) = (1, 2);
    let copy = [2, 0, host, rows.as_ptr() as usize, 0, 0, 10, 4, 1, device, 0, at, 0, 32, 8, 3];
    assert_eq!(s.driver.cuMemcpy2DUnaligned_v2(&copy), 0);
    let got: Vec<u8> = s.read(at, 16, 0).iter().flat_map(|word| word.to_le_bytes()).collect();
    for row in 0..3 {
        let begin = (row + 1) * 32 + 4;
        assert_eq!(got[begin..begin + 8], rows[row * 10 + 2..row * 10 + 10]);
        assert_eq!((got[begin - 1], got[begin + 8]), (0, 0));
    }
    let narrow = [2, 0, host, rows.as_ptr() as usize, 0, 0, 9, 4, 1, device, 0, at, 0, 32, 8, 3];
    assert_eq!(s.driver.cuMemcpy2DUnaligned_v2(&narrow), INVALID_VALUE, "a pitch below the width");
}

#[test]
fn registered_memory_is_reached_by_the_device() {
    let s = begin();
    let words = vec![0_u64; 64];
    let at = words.as_ptr() as usize;
    assert_eq!(s.mix(0, at, 64, 1), 0);
    // The kernel's fault ends the context (errors.rs), so the rest uses a new one.
    assert_ne!(s.driver.cuCtxSynchronize(), 0);
    assert_eq!(s.driver.cuDevicePrimaryCtxReset_v2(0), 0);
    drop(s);
    let s = begin();
    assert_eq!(s.driver.cuMemHostRegister_v2(at, 512, 0), 0);
    assert_eq!(s.driver.cuMemHostRegister_v2(at + 8, 8, 0), 712);
    assert_eq!(s.mix(0, at, 64, 1), 0);
    assert_eq!(s.driver.cuMemHostUnregister(at), 0);
    assert_eq!(s.driver.cuMemHostUnregister(at), 713);
    assert_eq!(words[63], crate::support::step(0, 0, 63, 1), "unregistering waits");
    assert_eq!(s.driver.cuMemHostRegister_v2(1 << 30, 1 << 20, 0), INVALID_VALUE, "not mapped");
}

#[test]
fn attributes_tell_what_an_address_is() {
    let s = begin();
    let at = s.words(4);
    let of = |which, at| {
        let mut value = 0_u64;
        let error = s.driver.cuPointerGetAttribute((&raw mut value).cast::<c_void>(), which, at);
        (error, value)
    };
    assert_eq!(of(2, at + 8), (0, 2));
    assert_eq!(of(11, at + 8), (0, at as u64));
    assert_eq!(of(12, at + 8), (0, 32));
    assert_eq!(of(1, at), (0, s.context as u64));
    assert_eq!(of(2, (&raw const s) as usize).0, INVALID_VALUE);
    assert_eq!(of(99, at).0, INVALID_VALUE);
}

#[test]
fn a_pool_gives_a_stream_back_what_it_has_returned() {
    let s = begin();
    let (stream, other) = (s.stream(1), s.stream(1));
    let gate = s.gate(stream);
    let [mut a, mut b, mut c] = [0; 3];
    assert_eq!(s.driver.cuMemAllocAsync(&mut a, 5000, stream), 0);
    assert_eq!(s.driver.cuMemFreeAsync(a, stream), 0);
    assert_eq!(s.driver.cuMemFreeAsync(a, stream), INVALID_VALUE, "twice");
    assert_eq!(s.driver.cuMemAllocAsync(&mut c, 5000, other), 0);
    assert_eq!(s.driver.cuMemAllocAsync(&mut b, 5000, stream), 0);
    assert_eq!(b, a, "the same stream gets it while its return has not completed");
    assert_ne!(c, a, "another stream does not");
    let (mut pool, mut used, mut reserved) = (0, 0_u64, 0_u64);
    assert_eq!(s.driver.cuDeviceGetDefaultMemPool(&mut pool, 0), 0);
    assert_eq!(s.driver.cuMemPoolGetAttribute(pool, 7, (&raw mut used).cast()), 0);
    assert_eq!(used, 2 * 8192);
    gate.open();
    assert_eq!(s.driver.cuMemFreeAsync(b, stream), 0);
    assert_eq!(s.driver.cuMemFreeAsync(c, other), 0);
    assert_eq!(s.driver.cuCtxSynchronize(), 0);
    assert_eq!(s.driver.cuMemPoolGetAttribute(pool, 5, (&raw mut reserved).cast()), 0);
    assert_eq!(reserved, 0, "synchronizing returns what nobody uses");
    let mut keep = u64::MAX;
    assert_eq!(s.driver.cuMemPoolSetAttribute(pool, 4, (&raw mut keep).cast()), 0);
    assert_eq!(s.driver.cuMemAllocAsync(&mut a, 5000, stream), 0);
    assert_eq!(s.driver.cuMemFreeAsync(a, stream), 0);
    assert_eq!(s.driver.cuCtxSynchronize(), 0);
    assert_eq!(s.driver.cuMemPoolGetAttribute(pool, 5, (&raw mut reserved).cast()), 0);
    assert_eq!(reserved, 8192, "up to the threshold it is kept");
    keep = 0;
    assert_eq!(s.driver.cuMemPoolSetAttribute(pool, 4, (&raw mut keep).cast()), 0);
    assert_eq!(s.driver.cuCtxSynchronize(), 0);
}

#[test]
fn a_pool_keeps_no_account_of_a_refused_allocation() {
    let s = begin();
    let (stream, mut pool, mut at, mut used) = (s.stream(0), 0, 0, 1_u64);
    assert_eq!(s.driver.cuDeviceGetDefaultMemPool(&mut pool, 0), 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, 2), 0);
    assert_eq!(s.driver.cuMemAllocAsync(&mut at, 5000, 0), 906);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut 0), 901);
    assert_eq!(s.driver.cuMemPoolGetAttribute(pool, 7, (&raw mut used).cast()), 0);
    assert_eq!(used, 0);
}

#[test]
fn memory_that_is_freed_can_be_had_again() {
    let s = begin();
    let (mut before, mut after, mut total, mut at) = (0, 0, 0, 0);
    assert_eq!(s.driver.cuMemGetInfo_v2(&mut before, &mut total), 0);
    assert_eq!(s.driver.cuMemAlloc_v2(&mut at, total + 1), 2);
    assert_eq!(s.driver.cuMemAlloc_v2(&mut at, 1 << 20), 0);
    assert_eq!(s.driver.cuMemGetInfo_v2(&mut after, &mut total), 0);
    assert_eq!(before - after, 1 << 20);
    assert_eq!(s.driver.cuMemFree_v2(at), 0);
    assert_eq!(s.driver.cuMemGetInfo_v2(&mut after, &mut total), 0);
    assert_eq!(before, after);
}

#[test]
fn a_module_has_functions_and_variables() {
    let s = begin();
    let (mut at, mut size, mut offset, mut bytes) = (0, 0, 0, 0);
    assert_eq!(s.driver.cuModuleGetGlobal_v2(&mut at, &mut size, s.module, c"module_table".as_ptr()), 0);
    assert_eq!(size, 16);
    assert_eq!(s.read(at, 2, 0), [1 << 32 | 1, 3 << 32 | 2]);
    let mix = s.function(c"mix");
    assert_eq!(s.driver.cuFuncGetParamInfo(mix, 3, &mut offset, &mut bytes), 0);
    assert_eq!((offset, bytes), (24, 8));
    assert_eq!(s.driver.cuFuncGetParamInfo(mix, 4, &mut offset, &mut bytes), INVALID_VALUE);
    let mut function = 0;
    assert_eq!(s.driver.cuModuleGetFunction(&mut function, s.module, c"none".as_ptr()), 500);
    assert_eq!(s.driver.cuModuleLoadData(&mut function, c"no module".as_ptr().cast()), 218);
    assert_eq!(s.driver.cuModuleUnload(s.module), 0);
    assert_eq!(s.driver.cuModuleUnload(s.module), 400);
    assert_eq!(s.driver.cuFuncGetParamInfo(mix, 0, &mut offset, &mut bytes), 400);
}
