//! Contexts: primary and other contexts, each thread's stack of contexts, limits, and peer access.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use crate::abi::{
    Answer, CUdevice, Handle, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED,
};
use crate::device;
use crate::engine;
use crate::gate::{Out, enter, enter_anyway, initialised};
use crate::memory;
use crate::pool;
use crate::state::{Context, STATE, State, thread};

/// The priorities of streams, from the least to the greatest.
pub const PRIORITIES: [i32; 2] = [0, -5];

/// The valid `CU_CTX_*` flags: how threads wait, mapped host memory, `CU_CTX_LMEM_RESIZE_TO_MAX`, synchronous
/// memory operations.
const FLAGS: c_uint = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x80;

/// `CUlimit` and initial values: stack, printf buffer, heap, depth and number of launches, fetch size, L2.
const LIMITS: [(u32, usize); 7] =
    [(0, 1024), (1, 1 << 20), (2, 8 << 20), (3, 2), (4, 2048), (5, 128), (6, 0)];

fn add(state: &mut State, device: usize, primary: bool, flags: u32) -> Handle {
    let handle = state.handle();
    let legacy = state.add_stream(handle, true, 0, 0);
    let context = Context {
        device,
        legacy,
        error: 0,
        primary,
        retained: 0,
        flags,
        limits: BTreeMap::from(LIMITS),
        cache: 0,
        shared: 0,
        peers: Vec::new(),
    };
    state.contexts.insert(handle, context);
    handle
}

/// Returns a device's primary context, which the first call creates.
fn primary(state: &mut State, device: usize) -> Handle {
    let found = state.contexts.iter().find(|(_, context)| context.primary && context.device == device);
    match found.map(|(handle, _)| *handle) {
        Some(handle) => handle,
        None => add(state, device, true, 0),
    }
}

/// Destroys a context with its streams, events and modules, after all submitted commands have completed.
fn end(state: &mut engine::Held, handle: Handle) {
    let ends = engine::all_ends(state, handle);
    engine::wait(state, &ends);
    let captures: Vec<u64> = state
        .captures
        .iter()
        .filter(|(_, capture)| capture.context == handle)
        .map(|(number, _)| *number)
        .collect();
    for capture in captures {
        crate::capture::forget(state, capture);
    }
    let streams: Vec<Handle> = state
        .streams
        .iter()
        .filter(|(_, stream)| stream.context == handle)
        .map(|(stream, _)| *stream)
        .collect();
    for stream in streams {
        state.close(stream);
    }
    state.of_threads.retain(|(_, context), _| *context != handle);
    state.events.retain(|_, event| event.context != handle);
    state.modules.retain(|_, module| module.context != handle);
    let State { modules, functions, .. } = &mut **state;
    functions.retain(|_, entry| modules.contains_key(&entry.module));
    let device = state.contexts.remove(&handle).map(|context| context.device);
    if let Some(device) = device
        && !state.contexts.values().any(|other| other.device == device)
    {
        // The device's allocations end with its last context.
        pool::forget(state, device);
        memory::forget(device);
    }
}

fn known(state: &State, handle: Handle) -> Answer<&Context> {
    state.contexts.get(&handle).ok_or(INVALID_CONTEXT)
}

/// Replaces this thread's current context. 0: none.
fn set_current(handle: Handle) -> Answer {
    thread(|own| {
        own.contexts.pop();
        if handle != 0 {
            own.contexts.push(handle);
        }
    })
    .ok_or(INVALID_CONTEXT)
}

crate::api! {
    fn cuDevicePrimaryCtxRetain(to: Out<Handle>, device: CUdevice) {
        initialised()?;
        let device = device::index(device)?;
        device::arena(device)?;
        let mut state = STATE.lock();
        let handle = primary(&mut state, device);
        pool::of_device(&mut state, device);
        to.set(handle)?;
        if let Some(context) = state.contexts.get_mut(&handle) {
            context.retained += 1;
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        initialised()?;
        let device = device::index(device)?;
        let mut state = STATE.lock();
        let handle = primary(&mut state, device);
        match state.contexts.get_mut(&handle) {
            Some(context) if context.retained > 0 => {
                context.retained -= 1;
                if context.retained == 0 {
                    end(&mut state, handle);
                }
                Ok(())
            }
            _ => Err(INVALID_CONTEXT),
        }
    }

    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        initialised()?;
        let device = device::index(device)?;
        let mut state = STATE.lock();
        let handle = primary(&mut state, device);
        end(&mut state, handle);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) {
        initialised()?;
        let device = device::index(device)?;
        let state = STATE.lock();
        let found = state.contexts.values().find(|context| context.primary && context.device == device);
        flags.set(found.map_or(0, |context| context.flags))?;
        active.set(found.is_some_and(|context| context.retained > 0) as c_int)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) {
        initialised()?;
        let device = device::index(device)?;
        if flags & !FLAGS != 0 {
            return Err(INVALID_VALUE);
        }
        let mut state = STATE.lock();
        let handle = primary(&mut state, device);
        if let Some(context) = state.contexts.get_mut(&handle) {
            context.flags = flags;
        }
        Ok(())
    }

    fn cuCtxCreate_v2(to: Out<Handle>, flags: c_uint, device: CUdevice) {
        initialised()?;
        let device = device::index(device)?;
        if flags & !FLAGS != 0 || to.is_null() {
            return Err(INVALID_VALUE);
        }
        device::arena(device)?;
        let mut state = STATE.lock();
        pool::of_device(&mut state, device);
        let handle = add(&mut state, device, false, flags);
        thread(|own| own.contexts.push(handle));
        to.set(handle)
    }

    fn cuCtxDestroy_v2(context: Handle) {
        initialised()?;
        let mut state = STATE.lock();
        if known(&state, context)?.primary {
            return Err(INVALID_CONTEXT);
        }
        end(&mut state, context);
        thread(|own| own.contexts.pop_if(|current| *current == context));
        Ok(())
    }

    fn cuCtxSetCurrent(context: Handle) {
        initialised()?;
        if context != 0 {
            known(&STATE.lock(), context)?;
        }
        set_current(context)
    }

    fn cuCtxGetCurrent(to: Out<Handle>) {
        initialised()?;
        to.set(thread(|own| own.contexts.last().copied()).flatten().unwrap_or(0))
    }

    fn cuCtxPushCurrent_v2(context: Handle) {
        initialised()?;
        known(&STATE.lock(), context)?;
        thread(|own| own.contexts.push(context)).ok_or(INVALID_CONTEXT)
    }

    fn cuCtxPopCurrent_v2(to: Out<Handle>) {
        initialised()?;
        let popped = thread(|own| own.contexts.pop()).flatten().ok_or(INVALID_CONTEXT)?;
        to.offer(popped);
        Ok(())
    }

    fn cuCtxGetDevice(to: Out<CUdevice>) {
        to.set(enter_anyway()?.device as CUdevice)
    }

    fn cuCtxGetId(context: Handle, to: Out<u64>) {
        let call = enter_anyway()?;
        let context = if context == 0 { call.context } else { context };
        known(&call.state, context)?;
        to.set(context as u64)
    }

    fn cuCtxGetFlags(to: Out<c_uint>) {
        let call = enter_anyway()?;
        to.set(call.state.contexts[&call.context].flags)
    }

    fn cuCtxGetApiVersion(context: Handle, to: Out<c_uint>) {
        let call = enter_anyway()?;
        if context != 0 {
            known(&call.state, context)?;
        }
        to.set(3020)
    }

    fn cuCtxSynchronize() {
        let mut call = enter()?;
        call.nothing_captures()?;
        let ends = engine::all_ends(&call.state, call.context);
        engine::wait(&mut call.state, &ends);
        pool::trim_device(&mut call.state, call.device);
        match call.state.contexts.get(&call.context).map_or(0, |context| context.error) {
            0 => Ok(()),
            error => Err(error),
        }
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        enter()?;
        least.offer(PRIORITIES[0]);
        greatest.offer(PRIORITIES[1]);
        Ok(())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: c_uint) {
        let call = enter()?;
        let known = call.state.contexts[&call.context].limits.get(&limit).copied();
        value.set(known.ok_or(INVALID_VALUE)?)
    }

    fn cuCtxSetLimit(limit: c_uint, value: usize) {
        let mut call = enter()?;
        let context = call.context;
        let context = call.state.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        *context.limits.get_mut(&limit).ok_or(INVALID_VALUE)? = value;
        Ok(())
    }

    fn cuCtxGetCacheConfig(to: Out<c_uint>) {
        let call = enter()?;
        to.set(call.state.contexts[&call.context].cache)
    }

    fn cuCtxSetCacheConfig(config: c_uint) {
        let mut call = enter()?;
        let context = call.context;
        if config > 3 {
            return Err(INVALID_VALUE);
        }
        call.state.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?.cache = config;
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(to: Out<c_uint>) {
        let call = enter()?;
        to.set(call.state.contexts[&call.context].shared)
    }

    fn cuCtxSetSharedMemConfig(config: c_uint) {
        let mut call = enter()?;
        let context = call.context;
        if config > 2 {
            return Err(INVALID_VALUE);
        }
        call.state.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?.shared = config;
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        enter()?;
        Ok(())
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: CUdevice, peer: CUdevice) {
        initialised()?;
        can.set((device::index(device)? != device::index(peer)?) as c_int)
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, which: c_uint, from: CUdevice, to: CUdevice) {
        initialised()?;
        if device::index(from)? == device::index(to)? {
            return Err(crate::abi::INVALID_DEVICE);
        }
        // Rank, access, atomics, access to arrays.
        value.set(match which {
            1 => 0,
            2 | 3 => 1,
            4 => 0,
            _ => return Err(INVALID_VALUE),
        })
    }

    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) {
        let mut call = enter()?;
        let other = known(&call.state, peer)?.device;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if other == call.device {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        let context = call.context;
        let context = call.state.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        if context.peers.contains(&peer) {
            return Err(PEER_ACCESS_ALREADY_ENABLED);
        }
        context.peers.push(peer);
        Ok(())
    }

    fn cuCtxDisablePeerAccess(peer: Handle) {
        let mut call = enter()?;
        known(&call.state, peer)?;
        let context = call.context;
        let context = call.state.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        let at = context.peers.iter().position(|known| *known == peer).ok_or(PEER_ACCESS_NOT_ENABLED)?;
        context.peers.remove(at);
        Ok(())
    }

    /// There is no profiler, so the call has no effect.
    fn cuProfilerStart() {
        enter()?;
        Ok(())
    }

    fn cuProfilerStop() {
        enter()?;
        Ok(())
    }

    fn cuProfilerInitialize(_config: Handle, _output: Handle, _mode: c_uint) {
        initialised()?;
        Err(NOT_SUPPORTED)
    }
}
