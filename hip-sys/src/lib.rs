//! Types and function-pointer types of the HIP and KFD interfaces, and the table of HIP functions as data.
//!
//! Data only: nothing here calls anything, and nothing names a `hip*` symbol as `extern`, because in a preloaded
//! library such a name would bind to our own export.

pub mod kfd;
pub mod pfn;
pub mod table;
pub mod types;
