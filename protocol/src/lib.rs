//! What crosses a process border or an environment variable, as data with its parsing.
//!
//! Nothing here opens a socket, reads a clock, touches the environment or knows HIP: bytes come in, values go out.

pub mod bounds;
pub mod codes;
pub mod config;
pub mod event;
pub mod hint;
pub mod ids;
pub mod operation;
pub mod policy;
pub mod status;
pub mod time;
