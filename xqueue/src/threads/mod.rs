//! The threads of the library: a worker for each device and one watcher.

pub(crate) mod backoff;
pub(crate) mod service;
pub(crate) mod watcher;
pub(crate) mod watcher_handle;
pub(crate) mod worker;
