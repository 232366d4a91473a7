//! The dispatched kernels: their names from the loaded code objects, their times, and their effects on
//! memory.

mod arguments;
mod code_object;
mod cost;
mod effect;
mod keep;
mod names;
mod native;
mod stream_ops;
mod traffic;

pub use arguments::Dispatch;
pub use code_object::Kernel;
pub use cost::{Durations, link_move};
pub use effect::{Effect, Op, Rows};
pub use native::{Act, plan};
pub use stream_ops::Condition;
