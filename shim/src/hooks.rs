//! What happens to a call: one row of [`hook!`] for each function that is more than forwarded.
//!
//! A handler gets the [`Call`](crate::boundary::Call) and the caller's arguments. A row with a name that no function
//! has would never be used; its handler then is dead code, which the build refuses.

pub(crate) mod resolve;

/// The body of an exported function: its handler, or the call as it came.
macro_rules! hook {
    (hipGetProcAddress, $call:expr, ($($argument:expr),*)) => {
        $crate::hooks::resolve::get_proc_address($call, $($argument),*)
    };
    (hipGetDriverEntryPoint, $call:expr, ($($argument:expr),*)) => {
        $crate::hooks::resolve::get_driver_entry_point($call, $($argument),*)
    };
    (hipGetDriverEntryPoint_spt, $call:expr, ($($argument:expr),*)) => {
        $crate::hooks::resolve::get_driver_entry_point($call, $($argument),*)
    };
    ($name:ident, $call:expr, ($($argument:expr),*)) => {
        $call.forward(|real| real($($argument),*))
    };
}
pub(crate) use hook;
