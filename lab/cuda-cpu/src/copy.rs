//! Copies. They synchronize with the calling thread as NVIDIA documents ("API synchronization behavior").

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::{
    Answer, Handle, INVALID_VALUE, MEMORY_DEVICE, MEMORY_HOST, MEMORY_UNIFIED, Memcpy2D, Memcpy3D,
    NOT_SUPPORTED,
};
use crate::engine;
use crate::gate::{Call, In, enter};
use crate::graph::Kind as NodeKind;
use crate::host;
use crate::memory::{self, Kind};
use crate::stream::outcome;
use crate::work::{Copying, Place, Shape, Work};

/// The maximum size in bytes of an asynchronous copy from pageable memory, whose bytes the call stages. A
/// call with more waits for its end. Source: the same section, "transfers from pageable host memory to device
/// memory".
const STAGED: usize = 64 << 10;

/// The kind of memory that the call declares for one end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Device,
    /// The address determines the kind.
    Unified,
}

impl Side {
    fn of(kind: u32) -> Answer<Side> {
        match kind {
            MEMORY_HOST => Ok(Side::Host),
            MEMORY_DEVICE => Ok(Side::Device),
            MEMORY_UNIFIED => Ok(Side::Unified),
            // This library has no arrays.
            3 => Err(NOT_SUPPORTED),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// Checks one end of a copy: `extent` bytes from `address` on.
fn place(address: usize, extent: usize, side: Side) -> Answer<Place> {
    if address == 0 {
        return Err(INVALID_VALUE);
    }
    match memory::find(address) {
        Some(mapping) if side == Side::Host && matches!(mapping.kind, Kind::Device | Kind::Imported) => {
            Err(INVALID_VALUE)
        }
        Some(_) => memory::checked(address, extent).map(Place::Mapped),
        None if side == Side::Device => Err(INVALID_VALUE),
        None => Ok(Place::Pageable(address)),
    }
}

/// Checks the addresses of a copy, and makes it a command.
///
/// # Errors
/// `INVALID_VALUE`: an end is not memory of the declared kind, or is too small.
pub fn plan(dst: (usize, Side), src: (usize, Side), shape: Shape) -> Answer<Copying> {
    let extent = |pitch, slice| shape.extent(pitch, slice).ok_or(INVALID_VALUE);
    let dst = place(dst.0, extent(shape.dst_pitch, shape.dst_slice)?, dst.1)?;
    let src = place(src.0, extent(shape.src_pitch, shape.src_slice)?, src.1)?;
    Ok(Copying { dst, src, shape, report: None })
}

fn on_host(place: &Place) -> bool {
    match place {
        Place::Mapped(span) => span.mapping().on_host(),
        Place::Pageable(_) | Place::Staged(_) => true,
    }
}

/// Submits a copy to a stream. `sync`: the function's name has no `Async`.
fn give(call: &mut Call, argument: Handle, mut copy: Copying, sync: bool, node: Memcpy3D) -> Answer {
    if sync {
        call.may_disturb()?;
    }
    let stream = call.stream(argument)?;
    let captured = call.capture_of(stream)?.is_some();
    let shape = copy.shape;
    let mut waits = match (&copy.dst, &copy.src) {
        (Place::Pageable(_), _) => true,
        (Place::Mapped(_), Place::Pageable(_)) => shape.width * shape.height * shape.depth > STAGED,
        // A call that copies within device memory does not wait. A synchronous one with page-locked memory
        // does.
        (dst, src) => sync && (on_host(dst) || on_host(src)),
    };
    if captured {
        waits = false;
    } else if let Place::Pageable(from) = copy.src
        && !waits
    {
        let mut bytes = Vec::with_capacity(shape.width * shape.height * shape.depth);
        for (slice, row) in (0..shape.depth).flat_map(|slice| (0..shape.height).map(move |row| (slice, row)))
        {
            let at = from.wrapping_add(slice * shape.src_slice + row * shape.src_pitch);
            bytes.extend(host::bytes(at, shape.width)?);
        }
        copy.src = Place::Staged(Arc::from(bytes));
        copy.shape.src_pitch = shape.width;
        copy.shape.src_slice = shape.width * shape.height;
    }
    // The program's memory may not be mapped, which only the copy itself finds out.
    let report = waits.then(|| Arc::new(AtomicU32::new(0)));
    copy.report.clone_from(&report);
    let command = call.enqueue(argument, Work::Copy(copy), || NodeKind::Memcpy(Box::new(node)))?;
    if waits {
        engine::wait(&mut call.state, command.as_slice());
        return match report.map_or(0, |report| report.load(Ordering::Acquire)) {
            0 => outcome(call),
            error => Err(error),
        };
    }
    Ok(())
}

/// Returns the parameters of a node that copies one row.
pub fn node_of_row(dst: usize, src: usize, len: usize) -> Memcpy3D {
    Memcpy3D {
        src_x: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_type: MEMORY_UNIFIED,
        src_host: 0,
        src_device: src,
        src_array: 0,
        src_context: 0,
        src_pitch: len,
        src_height: 1,
        dst_x: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_type: MEMORY_UNIFIED,
        dst_host: 0,
        dst_device: dst,
        dst_array: 0,
        dst_context: 0,
        dst_pitch: len,
        dst_height: 1,
        width: len,
        height: 1,
        depth: 1,
    }
}

fn row(dst: (usize, Side), src: (usize, Side), len: usize, stream: Handle, sync: bool) -> Answer {
    let mut call = enter()?;
    if len == 0 {
        call.stream(stream)?;
        return Ok(());
    }
    let copy = plan(dst, src, Shape::row(len))?;
    give(&mut call, stream, copy, sync, node_of_row(dst.0, src.0, len))
}

/// Converts a 2D copy to a 3D one.
fn widened(copy: &Memcpy2D) -> Memcpy3D {
    Memcpy3D {
        src_x: copy.src_x,
        src_y: copy.src_y,
        src_type: copy.src_type,
        src_host: copy.src_host,
        src_device: copy.src_device,
        src_array: copy.src_array,
        src_pitch: copy.src_pitch,
        src_height: 0,
        dst_x: copy.dst_x,
        dst_y: copy.dst_y,
        dst_type: copy.dst_type,
        dst_host: copy.dst_host,
        dst_device: copy.dst_device,
        dst_array: copy.dst_array,
        dst_pitch: copy.dst_pitch,
        dst_height: 0,
        width: copy.width,
        height: copy.height,
        ..node_of_row(0, 0, 0)
    }
}

/// Returns the address, the pitch and the slice of one end.
fn corner(
    kind: u32,
    host: usize,
    device: usize,
    at: [usize; 3],
    mut pitch: usize,
    mut height: usize,
    copy: &Memcpy3D,
) -> Answer<((usize, Side), usize, usize)> {
    let side = Side::of(kind)?;
    let base = if side == Side::Host { host } else { device };
    // A pitch or a height of 0 means that there are no gaps between rows or slices.
    if pitch == 0 {
        pitch = at[0] + copy.width;
    }
    if height == 0 {
        height = at[1] + copy.height;
    }
    if pitch < at[0] + copy.width || (copy.depth > 1 && height < at[1] + copy.height) {
        return Err(INVALID_VALUE);
    }
    let slice = pitch.checked_mul(height).ok_or(INVALID_VALUE)?;
    let offset = [at[2].checked_mul(slice), at[1].checked_mul(pitch), Some(at[0])];
    let address =
        offset.into_iter().try_fold(base, |sum, part| sum.checked_add(part?)).ok_or(INVALID_VALUE)?;
    if base == 0 {
        return Err(INVALID_VALUE);
    }
    Ok(((address, side), pitch, slice))
}

/// Checks the parameters of a copy of up to three dimensions, and makes it a command. `None`: it copies
/// nothing.
///
/// # Errors
/// `INVALID_VALUE`; `NOT_SUPPORTED` for arrays.
pub fn plan_box(copy: &Memcpy3D) -> Answer<Option<Copying>> {
    let limit = isize::MAX as usize >> 20;
    let sizes =
        [copy.width, copy.height, copy.depth, copy.src_x, copy.src_y, copy.src_z, copy.dst_x, copy.dst_y];
    if sizes.iter().chain([&copy.dst_z, &copy.src_height, &copy.dst_height]).any(|size| *size > limit) {
        return Err(INVALID_VALUE);
    }
    if copy.width == 0 || copy.height == 0 || copy.depth == 0 {
        return Ok(None);
    }
    let at = [copy.src_x, copy.src_y, copy.src_z];
    let (src, src_pitch, src_slice) =
        corner(copy.src_type, copy.src_host, copy.src_device, at, copy.src_pitch, copy.src_height, copy)?;
    let at = [copy.dst_x, copy.dst_y, copy.dst_z];
    let (dst, dst_pitch, dst_slice) =
        corner(copy.dst_type, copy.dst_host, copy.dst_device, at, copy.dst_pitch, copy.dst_height, copy)?;
    let (width, height, depth) = (copy.width, copy.height, copy.depth);
    plan(dst, src, Shape { width, height, depth, src_pitch, src_slice, dst_pitch, dst_slice }).map(Some)
}

fn boxed(copy: Memcpy3D, stream: Handle, sync: bool) -> Answer {
    let mut call = enter()?;
    match plan_box(&copy)? {
        Some(plan) => give(&mut call, stream, plan, sync, copy),
        None => Ok(()),
    }
}

use Side::{Device, Host, Unified};

crate::api! {
    fn cuMemcpy(dst: usize, src: usize, len: usize) {
        row((dst, Unified), (src, Unified), len, 0, true)
    }

    fn cuMemcpyAsync(dst: usize, src: usize, len: usize, stream: Handle) {
        row((dst, Unified), (src, Unified), len, stream, false)
    }

    fn cuMemcpyPeer(dst: usize, _to: Handle, src: usize, _from: Handle, len: usize) {
        row((dst, Unified), (src, Unified), len, 0, true)
    }

    fn cuMemcpyPeerAsync(dst: usize, _to: Handle, src: usize, _from: Handle, len: usize, stream: Handle) {
        row((dst, Unified), (src, Unified), len, stream, false)
    }

    fn cuMemcpyHtoD_v2(dst: usize, src: usize, len: usize) {
        row((dst, Device), (src, Host), len, 0, true)
    }

    fn cuMemcpyHtoDAsync_v2(dst: usize, src: usize, len: usize, stream: Handle) {
        row((dst, Device), (src, Host), len, stream, false)
    }

    fn cuMemcpyDtoH_v2(dst: usize, src: usize, len: usize) {
        row((dst, Host), (src, Device), len, 0, true)
    }

    fn cuMemcpyDtoHAsync_v2(dst: usize, src: usize, len: usize, stream: Handle) {
        row((dst, Host), (src, Device), len, stream, false)
    }

    fn cuMemcpyDtoD_v2(dst: usize, src: usize, len: usize) {
        row((dst, Device), (src, Device), len, 0, true)
    }

    fn cuMemcpyDtoDAsync_v2(dst: usize, src: usize, len: usize, stream: Handle) {
        row((dst, Device), (src, Device), len, stream, false)
    }

    fn cuMemcpy2D_v2(copy: In<Memcpy2D>) {
        boxed(widened(&copy.get()?), 0, true)
    }

    fn cuMemcpy2DUnaligned_v2(copy: In<Memcpy2D>) {
        boxed(widened(&copy.get()?), 0, true)
    }

    fn cuMemcpy2DAsync_v2(copy: In<Memcpy2D>, stream: Handle) {
        boxed(widened(&copy.get()?), stream, false)
    }

    fn cuMemcpy3D_v2(copy: In<Memcpy3D>) {
        boxed(copy.get()?, 0, true)
    }

    fn cuMemcpy3DAsync_v2(copy: In<Memcpy3D>, stream: Handle) {
        boxed(copy.get()?, stream, false)
    }

    fn cuMemcpy3DPeer(copy: In<Memcpy3D>) {
        boxed(copy.get()?, 0, true)
    }

    fn cuMemcpy3DPeerAsync(copy: In<Memcpy3D>, stream: Handle) {
        boxed(copy.get()?, stream, false)
    }
}
