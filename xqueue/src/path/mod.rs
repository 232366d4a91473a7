//! The paths of a command through a queue, and the requests that control a queue.

pub(crate) mod admission;
pub(crate) mod chaos;
pub(crate) mod control;
pub(crate) mod deferred;
pub(crate) mod direct;
pub(crate) mod in_order;
pub(crate) mod launch;
pub(crate) mod markers;
pub(crate) mod order;
pub(crate) mod stand_in;
pub(crate) mod trace;
