//! The state of a process: its devices and queues, what is pending, what is in flight and what has completed.

pub(crate) mod accounting;
pub(crate) mod completion;
pub(crate) mod device;
pub(crate) mod flight;
pub(crate) mod interval;
pub(crate) mod launch_ahead;
pub(crate) mod lease;
pub(crate) mod pending;
pub(crate) mod prelude;
pub(crate) mod queue;
pub(crate) mod queue_permission;
pub(crate) mod ready;
pub(crate) mod stall;
pub(crate) mod storage;
pub(crate) mod worked;
