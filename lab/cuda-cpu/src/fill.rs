//! Fills. A call without `Async` waits only if the memory is page-locked host memory.

use std::ffi::{c_uchar, c_uint, c_ushort};

use crate::abi::{Answer, Handle, INVALID_VALUE, MemsetNodeParams};
use crate::engine;
use crate::gate::enter;
use crate::graph::Kind as NodeKind;
use crate::memory;
use crate::stream::outcome;
use crate::work::{Filling, Work};

/// Checks the parameters of a fill, and makes it a command. `None`: it fills nothing.
///
/// # Errors
/// `INVALID_VALUE`: the memory is unknown, too small or misaligned.
pub fn plan(params: &MemsetNodeParams) -> Answer<Option<Filling>> {
    let MemsetNodeParams { dst, pitch, value, element_size, width, height } = *params;
    let size = element_size as usize;
    if !matches!(size, 1 | 2 | 4) || !dst.is_multiple_of(size) || (height > 1 && !pitch.is_multiple_of(size))
    {
        return Err(INVALID_VALUE);
    }
    if width == 0 || height == 0 {
        return Ok(None);
    }
    let row = width.checked_mul(size).ok_or(INVALID_VALUE)?;
    if height > 1 && pitch < row {
        return Err(INVALID_VALUE);
    }
    let above = pitch.checked_mul(height - 1).ok_or(INVALID_VALUE)?;
    let dst = memory::checked(dst, above.checked_add(row).ok_or(INVALID_VALUE)?)?;
    Ok(Some(Filling { dst, value, size, pitch, width, height }))
}

fn fill(params: MemsetNodeParams, stream: Handle, sync: bool) -> Answer {
    let mut call = enter()?;
    if sync {
        call.may_disturb()?;
    }
    let Some(fill) = plan(&params)? else { return Ok(()) };
    let waits = sync && fill.dst.mapping().on_host();
    let command = call.enqueue(stream, Work::Fill(fill), || NodeKind::Memset(params))?;
    if waits {
        engine::wait(&mut call.state, command.as_slice());
        return outcome(&call);
    }
    Ok(())
}

fn of(dst: usize, value: u32, element_size: c_uint, width: usize) -> MemsetNodeParams {
    MemsetNodeParams { dst, pitch: 0, value, element_size, width, height: 1 }
}

crate::api! {
    fn cuMemsetD8_v2(dst: usize, value: c_uchar, n: usize) {
        fill(of(dst, value.into(), 1, n), 0, true)
    }

    fn cuMemsetD16_v2(dst: usize, value: c_ushort, n: usize) {
        fill(of(dst, value.into(), 2, n), 0, true)
    }

    fn cuMemsetD32_v2(dst: usize, value: c_uint, n: usize) {
        fill(of(dst, value, 4, n), 0, true)
    }

    fn cuMemsetD8Async(dst: usize, value: c_uchar, n: usize, stream: Handle) {
        fill(of(dst, value.into(), 1, n), stream, false)
    }

    fn cuMemsetD16Async(dst: usize, value: c_ushort, n: usize, stream: Handle) {
        fill(of(dst, value.into(), 2, n), stream, false)
    }

    fn cuMemsetD32Async(dst: usize, value: c_uint, n: usize, stream: Handle) {
        fill(of(dst, value, 4, n), stream, false)
    }

    fn cuMemsetD2D8_v2(dst: usize, pitch: usize, value: c_uchar, width: usize, height: usize) {
        fill(MemsetNodeParams { pitch, height, ..of(dst, value.into(), 1, width) }, 0, true)
    }

    fn cuMemsetD2D16_v2(dst: usize, pitch: usize, value: c_ushort, width: usize, height: usize) {
        fill(MemsetNodeParams { pitch, height, ..of(dst, value.into(), 2, width) }, 0, true)
    }

    fn cuMemsetD2D32_v2(dst: usize, pitch: usize, value: c_uint, width: usize, height: usize) {
        fill(MemsetNodeParams { pitch, height, ..of(dst, value, 4, width) }, 0, true)
    }

    fn cuMemsetD2D8Async(dst: usize, pitch: usize, value: c_uchar, width: usize, height: usize, stream: Handle) {
        fill(MemsetNodeParams { pitch, height, ..of(dst, value.into(), 1, width) }, stream, false)
    }

    fn cuMemsetD2D16Async(dst: usize, pitch: usize, value: c_ushort, width: usize, height: usize, stream: Handle) {
        fill(MemsetNodeParams { pitch, height, ..of(dst, value.into(), 2, width) }, stream, false)
    }

    fn cuMemsetD2D32Async(dst: usize, pitch: usize, value: c_uint, width: usize, height: usize, stream: Handle) {
        fill(MemsetNodeParams { pitch, height, ..of(dst, value, 4, width) }, stream, false)
    }
}
