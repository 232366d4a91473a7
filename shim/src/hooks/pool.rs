//! Memory of pools (`process::pools`). An allocation depends on no pending command: a pool hands out returned
//! or new memory, and the runtime keeps that safe between streams (`hip_mempool_impl.cpp` of 5.2.3 and
//! later). Returning memory is work of the stream: a deferred kernel that uses the memory is launched first.

use super::{drain, turn};
use crate::boundary::Call;
use crate::process;
use crate::process::lost;
use crate::process::streams::{Found, Target};
use crate::process::subject;
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipErrorOutOfMemory, hipMemPool_t, hipStream_t, hipSuccess};
use std::ffi::c_void;
use xqueue::{Direct, Footprint, Scope};

/// `hipMallocAsync` and `hipMallocFromPoolAsync`
///
/// # Safety
///
/// `place` is null or valid for the address.
pub(crate) unsafe fn allocate<F: Copy>(
    call: Call<F>,
    place: *mut *mut c_void,
    size: usize,
    pool: Option<hipMemPool_t>,
    stream: hipStream_t,
    invoke: impl Fn(F, hipStream_t) -> hipError_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        let invoke = || match process::for_call(own) {
            Some(process) => process.pools.allocating(|| invoke(real, raw)),
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
            // SAFETY: `place` is not null, so it is valid.
            unsafe { *place = address };
            process.real.reset_last_error();
            return hipSuccess;
        }
        let mut code = invoke();
        // 5.2.3 succeeds without memory.
        // SAFETY: `place` is not null, so it is valid.
        let failed = |code| code == hipErrorOutOfMemory || code == hipSuccess && unsafe { *place }.is_null();
        if failed(code) && process.domain.has_pending() {
            // The deferred calls may return memory.
            process.drain(Scope::Process);
            code = invoke();
        }
        if let Some(pool) = pool.filter(|_| code == hipSuccess && !failed(code)) {
            // SAFETY: `place` is not null, so it is valid.
            process.pools.allocated(unsafe { *place }, size, pool);
        }
        code
    })
}

pub(crate) unsafe fn give_back(
    call: Call<pfn::hipFreeAsync>,
    address: *mut c_void,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the arguments are the caller's own.
        let invoke = move || unsafe { real(address, raw) };
        if address.is_null() {
            return invoke(); // The runtime refuses it, whatever is pending.
        }
        let Some(found) = found else {
            drain::beside(own, &drain::after_all());
            return invoke();
        };
        let pools = &found.process.pools;
        let Some(block) = pools.remove(address) else {
            // The runtime frees it as hipFree does, or refuses it.
            return turn::take(found, &drain::after_all(), invoke);
        };
        let invoke = move || match block.is_lent() {
            // SAFETY: the program has given the block up on this stream.
            true => unsafe { pools.return_lent(address, block, raw, invoke) },
            false => invoke(),
        };
        let spec = turn::spec(super::defer::INSTANT).about(subject::MEMORY);
        let code = match found.queue.try_direct(&spec, || result(invoke())) {
            Direct::Launched(_, launched) => turn::code(launched),
            Direct::NotNow if !turn::is_at_home(found) => turn::take(found, &spec, invoke),
            Direct::NotNow => {
                let returning = pools.prepare_return(address, block, found.queue.id());
                let launched = returning.clone();
                let call = move || launched.launch().map_or(hipSuccess, |_in_flight| invoke());
                // Kept, because the memory would leak if the command were dropped.
                // SAFETY: the program has given the memory up, so any thread may return it.
                let command = unsafe { HipCommand::new("hipFreeAsync", Footprint::default(), call) }.kept();
                let submitted = |ticket| pools.submitted(returning, found.after(ticket));
                turn::append(found, &spec, Box::new(command), submitted)
            }
        };
        if code != hipSuccess {
            pools.add_again(address, block);
        }
        code
    })
}

/// The functions that query or trim a pool: they must find all returned memory there.
pub(crate) fn settled<F: Copy>(call: Call<F>, invoke: impl FnOnce(F) -> hipError_t) -> hipError_t {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            process.pools.wait_for_returns();
        }
        invoke(real)
    })
}

pub(crate) unsafe fn destroy(call: Call<pfn::hipMemPoolDestroy>, pool: hipMemPool_t) -> hipError_t {
    call.handle(|real, own| {
        let process = process::for_call(own);
        if let Some(process) = process {
            process.pools.wait_for_returns();
            // Its blocks stay, and it hands out no memory any more.
            process.pools.pool_ends(pool);
        }
        // SAFETY: the argument is the caller's own.
        unsafe { real(pool) }
    })
}

/// `hipFree`, which takes memory of pools as well. The freed memory can be allocated when it returns:
/// completed commands do not hold it any longer.
pub(crate) unsafe fn free(call: Call<pfn::hipFree>, address: *mut c_void) -> hipError_t {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            process.drain(Scope::Process);
            process.pools.remove(address);
        }
        // SAFETY: the argument is the caller's own.
        let code = unsafe { real(address) };
        if let Some(process) = process::for_call(own).filter(|_| code == hipSuccess && !address.is_null()) {
            process.wait_for_handlers();
        }
        code
    })
}

/// The functions that allocate device memory. They wait only if there is none left and a deferred call
/// returns some.
pub(crate) fn memory<F: Copy>(call: Call<F>, invoke: impl Fn(F) -> hipError_t) -> hipError_t {
    call.handle(|real, own| {
        let code = invoke(real);
        match process::for_call(own).filter(|_| code == hipErrorOutOfMemory) {
            Some(process) if process.pools.wait_for_returns() => invoke(real),
            _ => code,
        }
    })
}
