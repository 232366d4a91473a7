//! What a dispatched kernel is and what it does: its name out of the loaded code object, its time, its effect on memory.

mod code_object;
mod cost;
mod effect;
mod native;
mod words;

pub use code_object::Kernel;
pub use cost::{Durations, link_move as link_time};
pub use effect::{Effect, Op, Rows};
pub use native::{Act, Dispatch, plan};
pub use words::Condition;
