//! Functions that make something and return its handle, which the library notes.

use crate::boundary::Call;
use hip_sys::types::{hipError_t, hipSuccess};

/// Makes the call, and notes the handle of what it has made if the call is the program's own.
///
/// # Safety
///
/// `place` is null or valid for the handle, which `invoke` writes there.
pub(crate) unsafe fn note<F: Copy, H: Copy>(
    call: Call<F>,
    place: *mut H,
    note: impl FnOnce(H),
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    call.handle(|real, own| {
        let code = invoke(real);
        if own && code == hipSuccess && !place.is_null() {
            // SAFETY: the place is not null, so it is valid, and the runtime has just written the handle there.
            note(unsafe { *place });
        }
        code
    })
}
