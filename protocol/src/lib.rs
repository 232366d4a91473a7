//! What crosses a process border or an environment variable, as data with its parsing.
//!
//! Nothing here opens a socket, reads a clock, touches the environment or knows HIP: bytes come in, values go out.

pub mod config;
pub mod policy;
