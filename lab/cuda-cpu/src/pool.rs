//! Memory pools, whose allocations and returns are ordered by streams.
//!
//! As in CUDA's pools, a stream can reuse memory that it has returned itself before the return completes.
//! Other streams can use it once the return has completed.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::abi::{
    AccessDesc, Answer, CUdevice, Handle, INVALID_HANDLE, INVALID_VALUE, Location, NOT_SUPPORTED,
    OUT_OF_MEMORY, PoolProps,
};
use crate::arena;
use crate::device;
use crate::gate::{Call, In, Out, enter, initialised};
use crate::graph::Kind as NodeKind;
use crate::memory::{self, Block, Kind, Mapping};
use crate::state::{Pool, STATE, State};
use crate::work::Work;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: c_uint = 1;

fn new_pool(state: &mut State, device: usize, created: bool, most: u64) -> Handle {
    let handle = state.handle();
    let pool = Pool {
        device,
        created,
        reuse: [1; 3],
        threshold: 0,
        reserved: 0,
        reserved_high: 0,
        used: 0,
        used_high: 0,
        most,
        free: Vec::new(),
        closing: false,
    };
    state.pools.insert(handle, pool);
    handle
}

/// Returns a device's default pool and its current one. The first call creates the default pool.
pub fn of_device(state: &mut State, device: usize) -> (Handle, Handle) {
    if let Some(pools) = state.device_pools.get(&device) {
        return *pools;
    }
    let pool = new_pool(state, device, false, 0);
    state.device_pools.insert(device, (pool, pool));
    (pool, pool)
}

/// Returns a pool's unused memory to its device until at most `keep` bytes are unused.
fn trim(state: &mut State, handle: Handle, keep: u64) {
    let State { pools, commands, .. } = state;
    let Some(pool) = pools.get_mut(&handle) else { return };
    let (mut unused, reserved) = (pool.reserved - pool.used, &mut pool.reserved);
    pool.free.retain(|(mapping, _, command)| {
        if unused <= keep || commands.contains_key(command) {
            return true;
        }
        let bytes = mapping.block.capacity() as u64;
        unused -= bytes.min(unused);
        *reserved -= bytes;
        if memory::find(mapping.base()).is_some_and(|known| Arc::ptr_eq(&known, mapping)) {
            memory::remove(mapping.base());
        }
        false
    });
    if pool.closing && pool.reserved == 0 {
        pools.remove(&handle);
    }
}

fn pools_of(state: &State, device: usize) -> Vec<(Handle, u64)> {
    let of = state.pools.iter().filter(|(_, pool)| pool.device == device);
    of.map(|(handle, pool)| (*handle, if pool.closing { 0 } else { pool.threshold })).collect()
}

/// Ends the pools of a device with all their memory.
pub fn forget(state: &mut State, device: usize) {
    state.pools.retain(|_, pool| pool.device != device);
    state.device_pools.remove(&device);
}

/// Trims a device's pools to their thresholds, after a call has synchronized.
pub fn trim_device(state: &mut State, device: usize) {
    for (pool, keep) in pools_of(state, device) {
        trim(state, pool, keep);
    }
}

/// Returns all unused memory of a device's pools to the device.
pub fn trim_all(state: &mut State, device: usize) {
    for (pool, _) in pools_of(state, device) {
        trim(state, pool, 0);
    }
}

/// Checks that memory of a pool has not been returned yet.
///
/// # Errors
/// `INVALID_VALUE`: it has been returned, or does not come from a pool.
pub fn live(state: &State, mapping: &Arc<Mapping>) -> Answer {
    let pool = state.pools.get(&mapping.pool).ok_or(INVALID_VALUE)?;
    let returned = pool.free.iter().any(|(free, ..)| Arc::ptr_eq(free, mapping));
    if returned { Err(INVALID_VALUE) } else { Ok(()) }
}

/// Returns memory to its pool once this command of this stream completes. Command 0: at once.
///
/// # Errors
/// As [`live`].
pub fn give_back(state: &mut State, mapping: &Arc<Mapping>, stream: Handle, command: u64) -> Answer {
    live(state, mapping)?;
    let pool = state.pools.get_mut(&mapping.pool).ok_or(INVALID_VALUE)?;
    pool.used -= mapping.block.capacity() as u64;
    pool.free.push((mapping.clone(), stream, command));
    Ok(())
}

fn allocate(call: &mut Call, to: Out<usize>, size: usize, pool: Handle, argument: Handle) -> Answer {
    let stream = call.stream(argument)?;
    if to.is_null() || size == 0 {
        return Err(INVALID_VALUE);
    }
    if call.capture_of(stream)?.is_some() {
        return allocate_in_graph(call, to, size, pool, stream);
    }
    known(&mut call.state, pool)?;
    // First, because the pool keeps no account of memory whose call fails.
    call.enqueue(argument, Work::Nothing, || NodeKind::Empty)?;
    let known = call.state.pools.get(&pool).filter(|pool| !pool.closing).ok_or(INVALID_HANDLE)?;
    let (device, most, reuse) = (known.device, known.most, known.reuse);
    let bytes = arena::pages(size).ok_or(OUT_OF_MEMORY)?;
    let usable = |(mapping, by, command): &&(Arc<Mapping>, Handle, u64)| {
        let ordered = *by == stream || *command == 0;
        mapping.block.capacity() == bytes && (ordered || (reuse[1] != 0 && call.state.done(*command)))
    };
    let again = known.free.iter().position(|free| usable(&free));
    let id = call.state.number();
    let known = call.state.pools.get_mut(&pool).ok_or(INVALID_HANDLE)?;
    let block = match again {
        Some(index) => known.free.remove(index).0.block.clone(),
        None => {
            if most != 0 && known.reserved + bytes as u64 > most {
                return Err(OUT_OF_MEMORY);
            }
            let arena = device::arena(device)?;
            let block = match Block::device(&arena, size, false) {
                Err(OUT_OF_MEMORY) => {
                    trim_all(&mut call.state, device);
                    Block::device(&arena, size, false)?
                }
                block => block?,
            };
            let known = call.state.pools.get_mut(&pool).ok_or(INVALID_HANDLE)?;
            known.reserved += bytes as u64;
            known.reserved_high = known.reserved_high.max(known.reserved);
            block
        }
    };
    let known = call.state.pools.get_mut(&pool).ok_or(INVALID_HANDLE)?;
    known.used += bytes as u64;
    known.used_high = known.used_high.max(known.used);
    let mapping = memory::insert(Mapping { block, size, kind: Kind::Device, device, flags: 0, pool, id });
    to.set(mapping.base())
}

/// Allocates memory while the stream captures. Its address is the same in every launch of the graph.
fn allocate_in_graph(call: &mut Call, to: Out<usize>, size: usize, pool: Handle, stream: Handle) -> Answer {
    let device = call.state.pools.get(&pool).filter(|pool| !pool.closing).ok_or(INVALID_HANDLE)?.device;
    let block = Block::device(&device::arena(device)?, size, false)?;
    let (id, flags) = (call.state.number(), memory::OF_GRAPH);
    let mapping = memory::insert(Mapping { block, size, kind: Kind::Device, device, flags, pool: 0, id });
    let base = mapping.base();
    let work = Work::Keep(Arc::new(memory::Owned(mapping)));
    call.add_captured(stream, NodeKind::Alloc, work)?;
    to.set(base)
}

fn attribute(pool: &Pool, which: c_uint, to: Out<u64>) -> Answer {
    match which {
        1..=3 => to.cast::<c_int>().set(pool.reuse[which as usize - 1]),
        4 => to.set(pool.threshold),
        5 => to.set(pool.reserved),
        6 => to.set(pool.reserved_high),
        7 => to.set(pool.used),
        8 => to.set(pool.used_high),
        _ => Err(INVALID_VALUE),
    }
}

fn set_attribute(pool: &mut Pool, which: c_uint, from: In<u64>) -> Answer {
    match which {
        1..=3 => pool.reuse[which as usize - 1] = In::<c_int>::from_address(from.address()).get()?,
        4 => pool.threshold = from.get()?,
        // The maxima can only be reset.
        6 if from.get()? == 0 => pool.reserved_high = pool.reserved,
        8 if from.get()? == 0 => pool.used_high = pool.used,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn known(state: &mut State, pool: Handle) -> Answer<&mut Pool> {
    state.pools.get_mut(&pool).filter(|pool| !pool.closing).ok_or(INVALID_HANDLE)
}

crate::api! {
    fn cuDeviceGetDefaultMemPool(to: Out<Handle>, device: CUdevice) {
        initialised()?;
        let device = device::index(device)?;
        to.set(of_device(&mut STATE.lock(), device).0)
    }

    fn cuDeviceGetMemPool(to: Out<Handle>, device: CUdevice) {
        initialised()?;
        let device = device::index(device)?;
        to.set(of_device(&mut STATE.lock(), device).1)
    }

    fn cuDeviceSetMemPool(device: CUdevice, pool: Handle) {
        initialised()?;
        let device = device::index(device)?;
        let mut state = STATE.lock();
        if known(&mut state, pool)?.device != device {
            return Err(INVALID_VALUE);
        }
        let (default, _) = of_device(&mut state, device);
        state.device_pools.insert(device, (default, pool));
        Ok(())
    }

    /// Only pools of pinned device memory that is not shared with other processes.
    fn cuMemPoolCreate(to: Out<Handle>, props: In<PoolProps>) {
        initialised()?;
        let props = props.get()?;
        // `CU_MEM_ALLOCATION_TYPE_PINNED`.
        if props.kind != 1 || props.location.kind != DEVICE || to.is_null() {
            return Err(INVALID_VALUE);
        }
        let device = device::index(props.location.id)?;
        if props.handles != 0 {
            return Err(NOT_SUPPORTED);
        }
        to.set(new_pool(&mut STATE.lock(), device, true, props.max_size as u64))
    }

    /// The pool ends once the program has returned all its memory. If it is its device's current pool, the
    /// default pool replaces it.
    fn cuMemPoolDestroy(pool: Handle) {
        initialised()?;
        let mut state = STATE.lock();
        let known = known(&mut state, pool)?;
        if !known.created {
            return Err(INVALID_VALUE);
        }
        known.closing = true;
        let device = known.device;
        let (default, current) = of_device(&mut state, device);
        if current == pool {
            state.device_pools.insert(device, (default, default));
        }
        trim(&mut state, pool, 0);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: Handle, keep: usize) {
        initialised()?;
        let mut state = STATE.lock();
        let used = known(&mut state, pool)?.used;
        trim(&mut state, pool, (keep as u64).saturating_sub(used));
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: Handle, which: c_uint, to: Out<u64>) {
        initialised()?;
        attribute(known(&mut STATE.lock(), pool)?, which, to)
    }

    fn cuMemPoolSetAttribute(pool: Handle, which: c_uint, from: In<u64>) {
        initialised()?;
        set_attribute(known(&mut STATE.lock(), pool)?, which, from)
    }

    /// All devices can access all memory, so valid descriptions have no effect.
    fn cuMemPoolSetAccess(pool: Handle, descriptions: In<AccessDesc>, count: usize) {
        initialised()?;
        let own = known(&mut STATE.lock(), pool)?.device;
        for description in descriptions.all(count)? {
            let device = device::index(description.location.id)?;
            let takes_own = device == own && description.flags != 3;
            if description.location.kind != DEVICE || !matches!(description.flags, 0 | 3) || takes_own {
                return Err(INVALID_VALUE);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: Handle, location: Out<Location>) {
        initialised()?;
        known(&mut STATE.lock(), pool)?;
        let location = location.get()?;
        device::index(location.id)?;
        flags.set(3)
    }

    fn cuMemAllocAsync(to: Out<usize>, size: usize, stream: Handle) {
        let mut call = enter()?;
        let device = call.device;
        let (_, pool) = of_device(&mut call.state, device);
        allocate(&mut call, to, size, pool, stream)
    }

    fn cuMemAllocFromPoolAsync(to: Out<usize>, size: usize, pool: Handle, stream: Handle) {
        let mut call = enter()?;
        allocate(&mut call, to, size, pool, stream)
    }

    fn cuMemFreeAsync(address: usize, argument: Handle) {
        let mut call = enter()?;
        let stream = call.stream(argument)?;
        let mapping = memory::find(address).filter(|mapping| mapping.base() == address).ok_or(INVALID_VALUE)?;
        if mapping.flags & memory::OF_GRAPH != 0 {
            // The graph keeps the memory, because the next launch uses the same address.
            return call.enqueue(argument, Work::Nothing, || NodeKind::Free(address)).map(|_| ());
        }
        live(&call.state, &mapping)?;
        match call.enqueue(argument, Work::Nothing, || NodeKind::Free(address))? {
            Some(command) => give_back(&mut call.state, &mapping, stream, command),
            // Each launch of the graph would return it again, so a graph cannot free memory of a pool.
            None => Err(INVALID_VALUE),
        }
    }

    fn cuDeviceGraphMemTrim(device: CUdevice) {
        initialised()?;
        device::index(device).map(|_| ())
    }

    fn cuDeviceGetGraphMemAttribute(device: CUdevice, which: c_uint, to: Out<u64>) {
        initialised()?;
        let device = device::index(device)?;
        let state = STATE.lock();
        let nodes = state.graphs.values().flat_map(|graph| graph.nodes.values());
        let sizes = nodes.filter_map(|node| match &node.work {
            Work::Keep(owned) if owned.0.device == device => Some(owned.0.size as u64),
            _ => None,
        });
        let sum: u64 = sizes.sum();
        if which < 4 { to.set(sum) } else { Err(INVALID_VALUE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_memory_goes_back_beyond_the_threshold() {
        let mut state = STATE.lock();
        let pool = new_pool(&mut state, 0, true, 0);
        let arena = Arc::new(arena::Arena::new(1 << 20).unwrap());
        for _ in 0..2 {
            let block = Block::device(&arena, 4096, false).unwrap();
            let mapping = memory::insert(Mapping {
                block,
                size: 100,
                kind: Kind::Device,
                device: 0,
                flags: 0,
                pool,
                id: 0,
            });
            let known = state.pools.get_mut(&pool).unwrap();
            (known.reserved, known.used) = (known.reserved + 4096, known.used + 4096);
            give_back(&mut state, &mapping, 0, 0).unwrap();
            assert_eq!(give_back(&mut state, &mapping, 0, 0), Err(INVALID_VALUE), "twice");
        }
        trim(&mut state, pool, 4096);
        assert_eq!(state.pools[&pool].reserved, 4096);
        trim(&mut state, pool, 0);
        assert_eq!((state.pools[&pool].reserved, arena.free_bytes()), (0, 1 << 20));
        state.pools.remove(&pool);
    }
}
