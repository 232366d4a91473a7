//! The last error. The runtime keeps it for each thread; the library keeps an error that the runtime does not
//! know.
//!
//! To know when such an error is overwritten or cleared, the library makes the runtime keep a placeholder
//! error instead. A call that replaces the placeholder (up to 6.x any call, from 7.0 on only an error) would
//! have replaced the program's error. If a call of the program returns the same code as the placeholder, the
//! boundary notices (`Thread::refused`).

use crate::boundary::Call;
use crate::process;
use crate::thread::Thread;
use hal_hip::real::RuntimeFunctions;
use hip_sys::types::{hipError_t, hipErrorNotReady, hipSuccess};

/// Makes this the calling thread's last error, if the runtime would keep it.
pub(crate) fn keep(real: &RuntimeFunctions, code: hipError_t) {
    if code == hipErrorNotReady && !real.keeps_every_result() {
        return;
    }
    let placeholder = real.plant_error().map_or(hipSuccess.0, |error| error.code());
    Thread::current().keep_error(code.0, placeholder);
}

/// The functions that return the last error.
#[derive(Clone, Copy)]
pub(crate) enum Asks {
    /// `hipGetLastError`, which clears the error.
    Forget,
    /// `hipPeekAtLastError`, which keeps it.
    Peek,
    /// `hipExtGetLastError`, which clears the result of the last call.
    Result,
}

/// Handles a function that returns the last error.
pub(crate) fn last(call: Call<unsafe extern "C" fn() -> hipError_t>, asks: Asks) -> hipError_t {
    call.handle(|real, own| {
        // SAFETY: the function takes no argument.
        let code = unsafe { real() };
        let Some(process) = process::for_call(own) else { return code };
        let thread = Thread::current();
        let (kept, placeholder) = thread.error();
        let holds = kept != 0 && code.0 == placeholder;
        // Where the runtime keeps only errors, the result of the last call is a state of its own.
        let forgets = match asks {
            Asks::Forget => true,
            Asks::Peek => !holds,
            Asks::Result => process.real.keeps_every_result(),
        };
        if forgets {
            thread.keep_error(0, 0);
        }
        if holds { hipError_t(kept) } else { code }
    })
}
