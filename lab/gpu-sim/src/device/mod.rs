//! The compute units of one GPU in virtual time: which work-groups run when.

mod fcfs;
mod model;
mod shared;

pub use fcfs::Fcfs;
pub use model::{Model, Progress, Properties, QueueKey, Time, Work, WorkId, group_cost, rounds, slots};
pub use shared::Shared;
