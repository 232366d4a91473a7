//! Types and function-pointer types of the HIP and KFD interfaces.
//!
//! This crate is data only. It calls nothing, and declares no `hip*` symbol as `extern`: in a preloaded
//! library such a name would bind to the library's own export.

pub mod kfd;
pub mod pfn;
pub mod types;
