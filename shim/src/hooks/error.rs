//! The last error. The runtime keeps it for each thread; an error that it does not know of is kept here.

use crate::boundary::Call;
use crate::process;
use crate::thread::Thread;
use hip_sys::types::{hipError_t, hipSuccess};

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
        let kept = thread.error();
        if clears {
            thread.keep_error(0);
        }
        if code == hipSuccess && kept != 0 { hipError_t(kept) } else { code }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}
