//! What crosses a process border or an environment variable, as data with its parsing.
//!
//! Nothing here opens a socket, reads a clock, touches the environment or knows HIP: bytes come in, values go out.

pub mod bounds;
pub mod codes;
pub mod config;
pub mod control;
pub mod cost;
pub mod event;
pub mod frame;
pub mod hint;
pub mod ids;
pub mod message;
pub mod operation;
pub mod outside;
pub mod page;
pub mod policy;
pub mod rank_reason;
pub mod report;
pub mod slow;
pub mod socket;
pub mod status;
pub mod time;
