//! The data that crosses process borders and environment variables, with its encoding and parsing.
//!
//! This crate opens no socket, reads no clock, does not access the environment and does not depend on HIP: it
//! converts between bytes and values.

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
pub mod totals;
pub mod trace;
