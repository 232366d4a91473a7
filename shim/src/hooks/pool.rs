//! Memory of pools (`process::pools`). What an allocation returns depends on nothing that is pending: a pool hands out
//! what was given back, or new memory, and its safety between streams is the runtime's (`hip_mempool_impl.cpp` of 5.2.3 and
//! later). Giving back is work of the stream: a deferred kernel that uses the memory is launched first.

use super::{drain, turn};
use crate::boundary::Call;
use crate::process::lost;
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipErrorOutOfMemory, hipMemPool_t, hipStream_t, hipSuccess};
use std::ffi::c_void;
use xqueue::{Direct, Footprint, Scope};

fn of(own: bool) -> Option<&'static Process> {
    process::get().filter(|_| own)
}

/// `hipMallocAsync` and `hipMallocFromPoolAsync`
///
/// # Safety
///
/// `F` is the type of the call's function; `place` is null or the caller's place for the address.
pub(crate) unsafe fn allocate<F: Copy>(
    call: Call<F>,
    place: *mut *mut c_void,
    size: usize,
    pool: Option<hipMemPool_t>,
    stream: hipStream_t,
    invoke: impl Fn(F, hipStream_t) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        let invoke = || match process::get().filter(|_| own) {
            Some(process) => process.pools.ask(|| invoke(real, raw)),
            None => invoke(real, raw),
        };
        let Some(Found { process, stream, queue }) = found.filter(|_| !place.is_null() && size != 0) else {
            return invoke();
        };
        let pool = pool.or_else(|| process.pools.current(stream.hw.device()));
        if let Some(pool) = pool
            && lost::answer(process.real).is_none()
            && let Some(address) = process.pools.take_back(queue.id(), pool, size)
        {
            // SAFETY: the caller's place, which is not null.
            unsafe { *place = address };
            process.real.forget_result();
            return hipSuccess;
        }
        let mut code = invoke();
        // SAFETY: the caller's place, which is not null. 5.2.3 succeeds without memory.
        let failed = |code| code == hipErrorOutOfMemory || code == hipSuccess && unsafe { *place }.is_null();
        if failed(code) && process.domain.has_pending() {
            // Perhaps there is some when everything that is to be given back is.
            process.drain(Scope::Process);
            code = invoke();
        }
        if let Some(pool) = pool.filter(|_| code == hipSuccess && !failed(code)) {
            // SAFETY: as above.
            process.pools.has(unsafe { *place }, size, pool);
        }
        code
    };
    call.handle(body)
}

/// `hipFreeAsync`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn give_back(
    call: Call<pfn::hipFreeAsync>,
    address: *mut c_void,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipFreeAsync, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the caller's own arguments.
        let invoke = move || unsafe { real(address, raw) };
        if address.is_null() {
            return invoke(); // refused, whatever is in front of it
        }
        let Some(found) = found else {
            super::defer::beside(own, &drain::after_all());
            return invoke();
        };
        let pools = &found.process.pools;
        let Some(block) = pools.gives_up(address) else {
            // The runtime frees it as hipFree does, or refuses.
            return turn::take(found, &drain::after_all(), invoke);
        };
        let invoke = move || match block.is_lent() {
            // SAFETY: the program has given the block up on this stream.
            true => unsafe { pools.return_lent(address, block, raw, invoke) },
            false => invoke(),
        };
        let spec = turn::spec(super::defer::INSTANT);
        if let Direct::Launched(_, launched) = found.queue.try_direct(&spec, || result(invoke())) {
            if launched.is_err() {
                pools.keeps(address, block);
            }
            return turn::code(launched);
        }
        if !turn::is_at_home(found) {
            let code = turn::take(found, &spec, invoke);
            if code != hipSuccess {
                pools.keeps(address, block);
            }
            return code;
        }
        let returning = pools.returns(address, block, found.queue.id());
        let launched = returning.clone();
        let call = move || if launched.launch() { invoke() } else { hipSuccess };
        // SAFETY: the program has given the memory up, and that belongs to no thread. It would be lost if it were dropped.
        let command = unsafe { HipCommand::new("hipFreeAsync", Footprint::default(), call) }.kept();
        match turn::append(found, &spec, Box::new(command)) {
            Ok(ticket) => {
                pools.submitted(returning, found.queue, ticket);
                hipSuccess
            }
            Err(error) => {
                pools.keeps(address, block);
                turn::refused(error)
            }
        }
    };
    call.handle(body)
}

/// The functions that ask a pool what it holds, or empty it: what was given back before must be there.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn settled<F: Copy>(call: Call<F>, invoke: impl FnOnce(F) -> hipError_t) -> hipError_t {
    let body = |real: F, own| {
        if let Some(process) = of(own) {
            process.pools.settle();
        }
        invoke(real)
    };
    call.handle(body)
}

/// `hipMemPoolDestroy`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn destroy(call: Call<pfn::hipMemPoolDestroy>, pool: hipMemPool_t) -> hipError_t {
    let body = |real: pfn::hipMemPoolDestroy, own| {
        let process = of(own);
        if let Some(process) = process {
            process.pools.settle();
            // Before it is gone: its blocks stay, and nobody may ask it for memory any more.
            process.pools.ends(pool);
        }
        // SAFETY: the caller's own argument.
        unsafe { real(pool) }
    };
    call.handle(body)
}

/// `hipFree`, which takes memory of pools as well. What it frees can be had again when it returns: commands that have
/// completed do not hold it any longer.
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn free(call: Call<pfn::hipFree>, address: *mut c_void) -> hipError_t {
    let body = |real: pfn::hipFree, own| {
        if let Some(process) = of(own) {
            process.drain(Scope::Process);
            process.pools.gives_up(address);
        }
        // SAFETY: the caller's own argument.
        let code = unsafe { real(address) };
        if let Some(process) = of(own).filter(|_| code == hipSuccess && !address.is_null()) {
            process.wait_for_handlers();
        }
        code
    };
    call.handle(body)
}

/// The functions that allocate memory of a device. They wait for nothing, unless there is none left and some is given back
/// by a call that is deferred.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn memory<F: Copy>(call: Call<F>, invoke: impl Fn(F) -> hipError_t) -> hipError_t {
    let body = |real: F, own| {
        let code = invoke(real);
        match of(own).filter(|_| code == hipErrorOutOfMemory) {
            Some(process) if process.pools.settle() => invoke(real),
            _ => code,
        }
    };
    call.handle(body)
}
