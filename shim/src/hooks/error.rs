//! The last error. The runtime keeps it for each thread; an error that it does not know of is kept here.
//!
//! When such an error ends, the runtime decides: in its place the runtime is made to keep another error. Whatever
//! overwrites or clears that one (up to 6.x any call, from 7 on only an error) would have overwritten or cleared the
//! program's; if it is the very error that a call of the program returns, the boundary notices (`Thread::refused`).

use crate::boundary::Call;
use crate::process;
use crate::thread::Thread;
use hal_hip::real::Real;
use hip_sys::types::{hipError_t, hipSuccess};

/// Makes this the calling thread's last error.
pub(crate) fn keep(real: &Real, code: hipError_t) {
    let place = real.leave_error().map_or(hipSuccess.0, |error| error.code());
    Thread::current().keep_error(code.0, place);
}

/// The functions that return the last error; `clears`: and forget it.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn last(call: Call<unsafe extern "C" fn() -> hipError_t>, clears: bool) -> hipError_t {
    let body = |real: unsafe extern "C" fn() -> hipError_t, own: bool| {
        // SAFETY: it takes no argument.
        let code = unsafe { real() };
        if !own || process::get().is_none() {
            return code;
        }
        let thread = Thread::current();
        let (kept, place) = thread.error();
        let holds = kept != 0 && code.0 == place;
        if clears || !holds {
            thread.keep_error(0, 0);
        }
        if holds { hipError_t(kept) } else { code }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}
