//! Streams.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{
    Answer, Handle, HostFunction, HostNodeParams, INVALID_HANDLE, INVALID_VALUE, NOT_READY,
    STREAM_NON_BLOCKING, StreamCallback,
};
use crate::capture::stream_ends;
use crate::context::PRIORITIES;
use crate::engine;
use crate::gate::{Call, Out, enter, initialised};
use crate::graph::Kind;
use crate::memory;
use crate::pool;
use crate::state::thread;
use crate::work::{Compare, User, Work};

/// Returns the context's error after a call has waited.
///
/// # Errors
/// The context's error, if it has one.
pub fn outcome(call: &Call) -> Answer {
    match call.state.contexts.get(&call.context).map_or(0, |context| context.error) {
        0 => Ok(()),
        error => Err(error),
    }
}

fn create(to: Out<Handle>, flags: c_uint, priority: c_int) -> Answer {
    let mut call = enter()?;
    if to.is_null() || flags > STREAM_NON_BLOCKING {
        return Err(INVALID_VALUE);
    }
    let context = call.context;
    let priority = priority.clamp(PRIORITIES[1], PRIORITIES[0]);
    to.set(call.state.add_stream(context, false, flags, priority))
}

/// Checks the address of a wait for a value or of a write.
fn word(address: usize, size: usize) -> Answer<memory::Span> {
    if !address.is_multiple_of(size) {
        return Err(INVALID_VALUE);
    }
    memory::checked(address, size)
}

fn wait_value(stream: Handle, address: usize, value: u64, size: usize, flags: c_uint) -> Answer {
    let mut call = enter()?;
    // `CU_STREAM_WAIT_VALUE_FLUSH` has no effect here.
    let how = match flags & !(1 << 30) {
        0 => Compare::Reached,
        1 => Compare::Equal,
        2 => Compare::And,
        3 => Compare::Nor,
        _ => return Err(INVALID_VALUE),
    };
    call.enqueue(stream, Work::Wait(word(address, size)?, value, how), || Kind::MemOp).map(|_| ())
}

fn write_value(stream: Handle, address: usize, value: u64, size: usize, flags: c_uint) -> Answer {
    let mut call = enter()?;
    // `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
    if flags > 1 {
        return Err(INVALID_VALUE);
    }
    call.enqueue(stream, Work::Write(word(address, size)?, value), || Kind::MemOp).map(|_| ())
}

crate::api! {
    fn cuStreamCreate(to: Out<Handle>, flags: c_uint) {
        create(to, flags, 0)
    }

    fn cuStreamCreateWithPriority(to: Out<Handle>, flags: c_uint, priority: c_int) {
        create(to, flags, priority)
    }

    /// The stream's remaining commands still run.
    fn cuStreamDestroy_v2(stream: Handle) {
        let mut call = enter()?;
        if stream <= crate::abi::STREAM_PER_THREAD {
            return Err(INVALID_HANDLE);
        }
        let stream = call.stream(stream)?;
        stream_ends(&mut call.state, stream);
        call.state.close(stream);
        Ok(())
    }

    /// A capture in global mode forbids queries of other streams too, although they change nothing: NVIDIA's driver
    /// 580 refuses them.
    fn cuStreamQuery(stream: Handle) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        call.not_capturing(stream)?;
        call.may_disturb()?;
        if engine::ends(&call.state, stream)?.is_empty() { Ok(()) } else { Err(NOT_READY) }
    }

    /// A capture forbids it like a query.
    fn cuStreamSynchronize(stream: Handle) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        call.not_capturing(stream)?;
        call.may_disturb()?;
        let ends = engine::ends(&call.state, stream)?;
        engine::wait(&mut call.state, &ends);
        let device = call.device;
        pool::trim_device(&mut call.state, device);
        outcome(&call)
    }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        let mut call = enter()?;
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        call.wait_event(stream, event, flags == 1)
    }

    fn cuStreamGetFlags(stream: Handle, to: Out<c_uint>) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        to.set(call.state.streams[&stream].flags)
    }

    fn cuStreamGetPriority(stream: Handle, to: Out<c_int>) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        to.set(call.state.streams[&stream].priority)
    }

    fn cuStreamGetId(stream: Handle, to: Out<u64>) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        to.set(call.state.streams[&stream].id)
    }

    fn cuStreamGetCtx(stream: Handle, to: Out<Handle>) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        to.set(call.state.streams[&stream].context)
    }

    fn cuStreamGetDevice(stream: Handle, to: Out<c_int>) {
        let mut call = enter()?;
        let stream = call.stream(stream)?;
        let context = call.state.streams[&stream].context;
        to.set(call.state.contexts[&context].device as c_int)
    }

    /// The attributes are about caches and have no effect here.
    fn cuStreamCopyAttributes(dst: Handle, src: Handle) {
        let mut call = enter()?;
        call.stream(dst)?;
        call.stream(src)?;
        Ok(())
    }

    fn cuStreamAttachMemAsync(stream: Handle, address: usize, _len: usize, flags: c_uint) {
        let mut call = enter()?;
        if !matches!(flags, 1 | 2 | 4) {
            return Err(INVALID_VALUE);
        }
        memory::checked(address, 0)?;
        call.enqueue(stream, Work::Nothing, || Kind::Empty).map(|_| ())
    }

    /// The documentation forbids callbacks while the stream captures.
    fn cuStreamAddCallback(
        argument: Handle, function: Option<StreamCallback>, user: *mut c_void, flags: c_uint,
    ) {
        let mut call = enter()?;
        let function = function.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        let stream = call.stream(argument)?;
        call.not_capturing(stream)?;
        engine::submit(&mut call.state, stream, Work::Callback(function, User(user), argument), &[]).map(|_| ())
    }

    fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, user: *mut c_void) {
        let mut call = enter()?;
        let work = Work::Host(function.ok_or(INVALID_VALUE)?, User(user));
        call.enqueue(stream, work, || Kind::Host(HostNodeParams { function, user: user as usize })).map(|_| ())
    }

    fn cuStreamWaitValue32_v2(stream: Handle, address: usize, value: u32, flags: c_uint) {
        wait_value(stream, address, value.into(), 4, flags)
    }

    fn cuStreamWaitValue64_v2(stream: Handle, address: usize, value: u64, flags: c_uint) {
        wait_value(stream, address, value, 8, flags)
    }

    fn cuStreamWriteValue32_v2(stream: Handle, address: usize, value: u32, flags: c_uint) {
        write_value(stream, address, value.into(), 4, flags)
    }

    fn cuStreamWriteValue64_v2(stream: Handle, address: usize, value: u64, flags: c_uint) {
        write_value(stream, address, value, 8, flags)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) {
        initialised()?;
        let new = mode.get()?;
        if new > 2 {
            return Err(INVALID_VALUE);
        }
        let before = thread(|own| std::mem::replace(&mut own.mode, new)).unwrap_or(0);
        mode.set(before)
    }
}
