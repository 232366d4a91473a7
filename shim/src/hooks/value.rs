//! Stream operations on values in memory. A write is ordered in its stream and takes no time. A wait can
//! block a hardware queue without a limit, and streams share hardware queues, so everything earlier in the
//! process is launched before it.

use super::defer::{self, INSTANT};
use super::{drain, turn};
use crate::boundary::Call;
use crate::process::Process;
use crate::process::streams::Target;
use crate::process::subject;
use hal_hip::command::HipCommand;
use hal_hip::memory::{self, Deferral};
use hal_hip::real::{RuntimeFunctions, result};
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipStream_t, hipStreamBatchMemOpParams};
use std::ffi::{c_uint, c_void};
use xqueue::{CommandSpec, Direct};

/// The number of comparisons of a wait: at least, equal, and, nor.
const COMPARISONS: c_uint = 4;

/// `hipStreamWriteValue32` and `hipStreamWriteValue64`
pub(crate) unsafe fn write<V: Copy + 'static>(
    call: Call<unsafe extern "C" fn(hipStream_t, *mut c_void, V, c_uint) -> hipError_t>,
    stream: hipStream_t,
    ptr: *mut c_void,
    value: V,
    flags: c_uint,
) -> hipError_t {
    let later = |process: &Process| later(process.real, ptr, size_of::<V>());
    let invoke = move |real: unsafe extern "C" fn(_, _, _, _) -> _, stream| {
        // SAFETY: the arguments are the caller's own.
        unsafe { real(stream, ptr, value, flags) }
    };
    let command = ("write of a value", turn::spec(INSTANT).about(subject::VALUE));
    // SAFETY: the memory stays valid until the stream has written it, as natively.
    unsafe { defer::own(call, (stream, false), command, later, invoke) }
}

/// `hipStreamWaitValue32` and `hipStreamWaitValue64`
pub(crate) unsafe fn wait<V: Copy + 'static>(
    call: Call<unsafe extern "C" fn(hipStream_t, *mut c_void, V, c_uint, V) -> hipError_t>,
    stream: hipStream_t,
    ptr: *mut c_void,
    value: V,
    flags: c_uint,
    mask: V,
) -> hipError_t {
    let later = |process: &Process| match later(process.real, ptr, size_of::<V>()) {
        Deferral::AsItIs if flags >= COMPARISONS || !process.waits_anywhere => Deferral::No,
        later => later,
    };
    let invoke = move |real: unsafe extern "C" fn(_, _, _, _, _) -> _, stream| {
        // SAFETY: the arguments are the caller's own.
        unsafe { real(stream, ptr, value, flags, mask) }
    };
    let command = ("wait for a value", drain::blocks());
    // SAFETY: the memory stays valid until the stream has read it, as natively.
    unsafe { defer::own(call, (stream, false), command, later, invoke) }
}

/// Returns how an operation on this many bytes may be deferred. The runtime refuses memory that it does not
/// know (`ihipStreamOperation` in hipamd/src/hip_stream_ops.cpp; 5.2.3 tested).
fn later(real: &RuntimeFunctions, ptr: *const c_void, bytes: usize) -> Deferral {
    if ptr.is_null() {
        return Deferral::Nothing;
    }
    match memory::left(real, ptr) {
        None if memory::is_unknown(real, ptr) => Deferral::Nothing,
        None => Deferral::No,
        Some(left) => Deferral::if_certain(left >= bytes),
    }
}

/// The kinds of `hipStreamBatchMemOpType` that are waits and writes of these sizes.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;

/// The most operations of a batch; the runtime refuses more.
const MOST: usize = 256;

/// One operation of a batch, if it is a wait or a write.
struct Operation {
    address: *const c_void,
    bytes: usize,
    /// The comparison of a wait.
    compares: Option<c_uint>,
}

impl Operation {
    /// Reads an operation; `None` if it is no wait or write.
    fn of(params: &hipStreamBatchMemOpParams) -> Option<Self> {
        // Kind, address, value and flags have the same offsets in each member of the union.
        let [kind, address, _, flags, ..] = params.words;
        let (bytes, waits) = match kind as u32 {
            WAIT_32 => (4, true),
            WAIT_64 => (8, true),
            WRITE_32 => (4, false),
            WRITE_64 => (8, false),
            _ => return None,
        };
        let address = std::ptr::with_exposed_provenance(usize::try_from(address).ok()?);
        Some(Self { address, bytes, compares: waits.then_some(flags as c_uint) })
    }

    fn is_later(&self, process: &Process) -> bool {
        let waits = self.compares.is_none_or(|flags| flags < COMPARISONS && process.waits_anywhere);
        waits && later(process.real, self.address, self.bytes) == Deferral::AsItIs
    }
}

pub(crate) unsafe fn batch(
    call: Call<pfn::hipStreamBatchMemOp>,
    stream: hipStream_t,
    count: c_uint,
    params: *mut hipStreamBatchMemOpParams,
    flags: c_uint,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the arguments are the caller's own, or copies of them.
        let invoke = move |params| unsafe { real(raw, count, params, flags) };
        let length = count as usize;
        let given = if params.is_null() || length > MOST {
            &[]
        } else {
            // SAFETY: the list is the caller's, has this length and is not null.
            unsafe { std::slice::from_raw_parts(params, length) }
        };
        let waits = given.iter().any(|one| Operation::of(one).is_none_or(|one| one.compares.is_some()));
        let spec = match (waits, given) {
            (true, _) => drain::blocks(),
            (false, []) => CommandSpec { key: INSTANT, ..drain::blocks() },
            (false, _) => turn::spec(INSTANT),
        };
        let Some(found) = found else {
            drain::beside(own, &spec);
            return invoke(params);
        };
        if let Direct::Launched(_, launched) = found.queue.try_direct(&spec, || result(invoke(params))) {
            return turn::code(launched);
        }
        // Every release refuses these.
        let real = found.process.real;
        if params.is_null() || count == 0 || length > MOST {
            return invoke(params);
        }
        let is_later =
            |one: &_| Operation::of(one).is_some_and(|operation| operation.is_later(found.process));
        // 7.2.4 refuses every list (`ihipBatchMemOperation` compares with a constant), and later sources do
        // not, so the runtime has to decide.
        if real.major >= 7
            || !turn::is_at_home(found)
            || flags != 0
            || given.is_empty()
            || !given.iter().all(is_later)
        {
            return turn::take(found, &spec, || invoke(params));
        }
        let mut copies = given.to_vec();
        let footprint = turn::arguments(size_of_val(given));
        // SAFETY: the call owns its list; the memory stays valid until the stream is done with it, as
        // natively.
        let command = unsafe {
            HipCommand::new("batch of memory operations", footprint, move || invoke(copies.as_mut_ptr()))
        };
        turn::submit(found, &spec, Box::new(command))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_of_reads_waits_and_writes() {
        let read = |kind: u64| {
            let params = hipStreamBatchMemOpParams { words: [kind, 0x1000, 7, 0xffff_ffff_0000_0002, 0, 0] };
            Operation::of(&params).map(|one| (one.address.addr(), one.bytes, one.compares))
        };
        assert_eq!(read(1), Some((0x1000, 4, Some(2))));
        assert_eq!(read(4), Some((0x1000, 8, Some(2))));
        assert_eq!(read(2), Some((0x1000, 4, None)));
        assert_eq!(read(0xdead_0000_0000_0005), Some((0x1000, 8, None)));
        for other in [0, 3, 6, 99] {
            assert_eq!(read(other), None, "a flush, a barrier, or unknown");
        }
    }
}
