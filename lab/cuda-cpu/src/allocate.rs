//! Allocation of device, managed and page-locked memory, registered memory, and queries about addresses.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::abi::{
    Answer, HOST_DEVICEMAP, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, HOST_PORTABLE,
    HOST_READ_ONLY, HOST_WRITECOMBINED, Handle, INVALID_VALUE, MEMORY_DEVICE, MEMORY_HOST, NOT_FOUND,
    NOT_SUPPORTED, OUT_OF_MEMORY,
};
use crate::device;
use crate::engine;
use crate::gate::{Call, In, Out, enter};
use crate::memory::{self, Block, Kind, Mapping};
use crate::pool;

/// Waits until all streams of the device are idle.
pub fn drain(call: &mut Call) {
    let contexts = call.state.contexts.iter().filter(|(_, context)| context.device == call.device);
    let ends: Vec<u64> = contexts.flat_map(|(handle, _)| engine::all_ends(&call.state, *handle)).collect();
    engine::wait(&mut call.state, &ends);
}

/// Allocates memory of the call's device. If none is left, pools return their unused memory first.
fn on_device(call: &mut Call, size: usize, kind: Kind) -> Answer<usize> {
    call.may_disturb()?;
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    let arena = device::arena(call.device)?;
    let managed = kind == Kind::Managed;
    let block = match Block::device(&arena, size, managed) {
        Err(OUT_OF_MEMORY) => {
            pool::trim_all(&mut call.state, call.device);
            Block::device(&arena, size, managed)?
        }
        block => block?,
    };
    let (id, device) = (call.state.number(), call.device);
    Ok(memory::insert(Mapping { block, size, kind, device, flags: 0, pool: 0, id }).base())
}

fn on_host(to: Out<usize>, size: usize, flags: c_uint) -> Answer {
    let mut call = enter()?;
    call.may_disturb()?;
    if size == 0 || to.is_null() || flags & !(HOST_PORTABLE | HOST_DEVICEMAP | HOST_WRITECOMBINED) != 0 {
        return Err(INVALID_VALUE);
    }
    let block = Block::host(size)?;
    let (id, device) = (call.state.number(), call.device);
    // With unified addressing all page-locked memory is mapped for the device, whatever the program asked
    // for.
    let flags = flags | HOST_DEVICEMAP;
    to.set(memory::insert(Mapping { block, size, kind: Kind::Pinned, device, flags, pool: 0, id }).base())
}

/// Returns the allocation that begins at this address, if it is of one of these kinds.
fn exactly(address: usize, kinds: &[Kind]) -> Option<Arc<Mapping>> {
    memory::find(address).filter(|mapping| mapping.base() == address && kinds.contains(&mapping.kind))
}

/// Returns true if all pages of the program's range are mapped.
fn mapped(address: usize, size: usize) -> bool {
    let begin = address & !0xFFF;
    let Some(len) = address.checked_add(size).and_then(|end| end.checked_next_multiple_of(0x1000)) else {
        return false;
    };
    let len = len - begin;
    let mut resident = vec![0; len / 0x1000];
    // SAFETY: the vector has a byte for each page; the kernel checks the range.
    unsafe { libc::mincore(begin as *mut libc::c_void, len, resident.as_mut_ptr()) == 0 }
}

/// Writes a value of `CUpointer_attribute`.
fn attribute(mapping: &Mapping, context: Handle, which: c_uint, address: usize, to: Out<u8>) -> Answer {
    match which {
        1 => to.cast::<Handle>().set(context),
        2 => to.cast::<c_uint>().set(if mapping.on_host() { MEMORY_HOST } else { MEMORY_DEVICE }),
        3 => to.cast::<usize>().set(address),
        4 if mapping.kind == Kind::Device || mapping.kind == Kind::Imported => Err(INVALID_VALUE),
        4 => to.cast::<usize>().set(address),
        6 => to.cast::<c_uint>().set(0),
        7 => to.cast::<u64>().set(mapping.id),
        8 => to.cast::<c_uint>().set((mapping.kind == Kind::Managed) as c_uint),
        9 => to.cast::<c_int>().set(mapping.device as c_int),
        10 => to.cast::<c_uint>().set((mapping.kind == Kind::Device && mapping.pool == 0) as c_uint),
        11 => to.cast::<usize>().set(mapping.base()),
        12 => to.cast::<usize>().set(mapping.size),
        13 => to.cast::<c_uint>().set(1),
        14 => to.cast::<u64>().set(0),
        15 => to.cast::<c_uint>().set(0),
        // `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
        16 => to.cast::<c_uint>().set(3),
        17 => to.cast::<Handle>().set(mapping.pool),
        5 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

/// Returns the size of an attribute, which `cuPointerGetAttributes` clears for an unknown address. 0: no such
/// attribute.
fn size_of_attribute(which: c_uint) -> usize {
    match which {
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 => 8,
        2 | 6 | 8 | 9 | 10 | 13 | 15 | 16 => 4,
        _ => 0,
    }
}

/// Returns a context of the memory's device: the current one if it is of that device.
fn context_of(call: &Call, mapping: &Mapping) -> Handle {
    let same = |(_, context): &(&Handle, &crate::state::Context)| context.device == mapping.device;
    if call.device == mapping.device {
        return call.context;
    }
    call.state.contexts.iter().find(same).map_or(call.context, |(handle, _)| *handle)
}

crate::api! {
    /// The free bytes and all bytes of the device.
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let call = enter()?;
        let arena = device::arena(call.device)?;
        free.set(arena.free_bytes())?;
        total.set(arena.size())
    }

    fn cuMemAlloc_v2(to: Out<usize>, size: usize) {
        let mut call = enter()?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        to.set(on_device(&mut call, size, Kind::Device)?)
    }

    fn cuMemAllocPitch_v2(to: Out<usize>, pitch: Out<usize>, width: usize, height: usize, element: c_uint) {
        let mut call = enter()?;
        if to.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(512).ok_or(OUT_OF_MEMORY)?;
        to.set(on_device(&mut call, row.checked_mul(height).ok_or(OUT_OF_MEMORY)?, Kind::Device)?)?;
        pitch.set(row)
    }

    fn cuMemAllocManaged(to: Out<usize>, size: usize, flags: c_uint) {
        let mut call = enter()?;
        // Attached to all streams, or to the host.
        if to.is_null() || !matches!(flags, 1 | 2) {
            return Err(INVALID_VALUE);
        }
        to.set(on_device(&mut call, size, Kind::Managed)?)
    }

    /// Waits for all work on the device first.
    fn cuMemFree_v2(address: usize) {
        let mut call = enter()?;
        call.may_disturb()?;
        if address == 0 {
            return Ok(());
        }
        let mapping = exactly(address, &[Kind::Device, Kind::Managed]).ok_or(INVALID_VALUE)?;
        if mapping.pool != 0 {
            pool::live(&call.state, &mapping)?;
        }
        drain(&mut call);
        if mapping.flags & memory::OF_GRAPH != 0 {
            // The graph keeps the memory, because the next launch uses the same address.
            return Ok(());
        }
        if mapping.pool != 0 {
            return pool::give_back(&mut call.state, &mapping, 0, 0);
        }
        memory::remove(address).map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuMemGetAddressRange_v2(base: Out<usize>, size: Out<usize>, address: usize) {
        enter()?;
        let mapping = memory::find(address).ok_or(NOT_FOUND)?;
        base.offer(mapping.base());
        size.offer(mapping.size);
        Ok(())
    }

    fn cuMemAllocHost_v2(to: Out<usize>, size: usize) {
        on_host(to, size, 0)
    }

    fn cuMemHostAlloc(to: Out<usize>, size: usize, flags: c_uint) {
        on_host(to, size, flags)
    }

    fn cuMemFreeHost(address: usize) {
        let mut call = enter()?;
        call.may_disturb()?;
        exactly(address, &[Kind::Pinned]).ok_or(INVALID_VALUE)?;
        drain(&mut call);
        memory::remove(address).map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuMemHostRegister_v2(address: usize, size: usize, flags: c_uint) {
        let mut call = enter()?;
        call.may_disturb()?;
        // `CU_MEMHOSTREGISTER_IOMEMORY` is for other devices' memory and is refused.
        if address == 0 || size == 0 || flags & !(HOST_PORTABLE | HOST_DEVICEMAP | HOST_READ_ONLY) != 0 {
            return Err(INVALID_VALUE);
        }
        if memory::overlaps(address, size) {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        if !mapped(address, size) {
            return Err(INVALID_VALUE);
        }
        let (id, device) = (call.state.number(), call.device);
        let (block, flags) = (Block::program(address), flags | HOST_DEVICEMAP);
        memory::insert(Mapping { block, size, kind: Kind::Registered, device, flags, pool: 0, id });
        Ok(())
    }

    fn cuMemHostUnregister(address: usize) {
        let mut call = enter()?;
        call.may_disturb()?;
        exactly(address, &[Kind::Registered]).ok_or(HOST_MEMORY_NOT_REGISTERED)?;
        drain(&mut call);
        memory::remove(address).map(|_| ()).ok_or(HOST_MEMORY_NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(to: Out<usize>, address: usize, flags: c_uint) {
        enter()?;
        memory::find(address).filter(|mapping| flags == 0 && mapping.on_host()).ok_or(INVALID_VALUE)?;
        to.set(address)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, address: usize) {
        enter()?;
        let mapping = memory::find(address).filter(|mapping| mapping.kind == Kind::Pinned);
        flags.set(mapping.ok_or(INVALID_VALUE)?.flags)
    }

    fn cuPointerGetAttribute(to: Out<u8>, which: c_uint, address: usize) {
        let call = enter()?;
        let mapping = memory::find(address).ok_or(INVALID_VALUE)?;
        attribute(&mapping, context_of(&call, &mapping), which, address, to)
    }

    fn cuPointerGetAttributes(count: c_uint, which: In<c_uint>, to: In<Out<u8>>, address: usize) {
        let call = enter()?;
        let mapping = memory::find(address);
        for (which, to) in which.all(count as usize)?.into_iter().zip(to.all(count as usize)?) {
            let size = size_of_attribute(which);
            match &mapping {
                Some(mapping) if attribute(mapping, context_of(&call, mapping), which, address, to).is_ok() => {}
                _ if size == 0 => return Err(INVALID_VALUE),
                _ => (0..size).try_for_each(|index| to.at(index).set(0))?,
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: In<c_uint>, which: c_uint, address: usize) {
        enter()?;
        memory::find(address).ok_or(INVALID_VALUE)?;
        // The only attribute that can be set is `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, which has no effect here.
        if which == 6 { value.get().map(|_| ()) } else { Err(INVALID_VALUE) }
    }

    /// Advice has no effect here.
    fn cuMemAdvise(address: usize, size: usize, advice: c_uint, _device: c_int) {
        enter()?;
        let span = memory::checked(address, size)?;
        let fits = span.mapping().kind == Kind::Managed && (1..=6).contains(&advice);
        if fits { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// This library keeps no advice, and managed memory does not migrate, so all values are defaults.
    fn cuMemRangeGetAttribute(to: Out<c_int>, len: usize, which: c_uint, address: usize, size: usize) {
        enter()?;
        if memory::checked(address, size)?.mapping().kind != Kind::Managed || len < 4 || !len.is_multiple_of(4) {
            return Err(INVALID_VALUE);
        }
        // Read-mostly: no. The preferred location, the devices with access and the last prefetch: none (-2).
        let value = match which {
            1 => 0,
            2..=4 => -2,
            _ => return Err(INVALID_VALUE),
        };
        (0..len / 4).try_for_each(|index| to.at(index).set(value))
    }

    fn cuMemPrefetchAsync(address: usize, size: usize, _device: c_int, stream: Handle) {
        let mut call = enter()?;
        if memory::checked(address, size)?.mapping().kind != Kind::Managed {
            return Err(INVALID_VALUE);
        }
        call.enqueue(stream, crate::work::Work::Nothing, || crate::graph::Kind::Empty).map(|_| ())
    }
}
