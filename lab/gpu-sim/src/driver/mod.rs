//! The kernel driver's handling of hardware queues: which are mapped, how they are evicted and restored, and
//! what that costs.

mod batch;
mod debug;
mod exceptions;
mod operations;
mod queues;

pub use debug::{debug_trap, end_sessions_of, runtime_enable, target};
pub use exceptions::notify;
#[cfg(test)]
pub use operations::RESET;
pub use operations::{drive, forget_queues, next_due};
pub use queues::{create_queue, destroy_queue, keep_values, set_cu_mask, update_queue, wave_state};
