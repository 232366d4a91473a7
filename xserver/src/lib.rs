//! The daemon `xserver`: schedules the GPU work of several processes.
//!
//! One thread decides everything: it notices clients that connect, disconnect, turn ready or idle, asks the
//! policy, and stores each client's permission on a shared page. This thread never blocks: every descriptor
//! is non-blocking, the memory for each client is bounded, and a client that breaks a rule loses its own
//! connection and nothing else.
//!
//! # Modules
//! * `core`: the decisions, from shared pages and the given time. It knows no socket and reads no clock.
//! * `server`: the event loop, with `server/admission` (who may connect), `server/control` (requests of xcli),
//!   `server/lists`, `server/events` (who follows what happens), `server/reload` (the configuration file), `server/power` and `server/upkeep` (checks once a second).
//! * `access`: who may do what. `configuration`: the file of a server for all users. `programs`: hints for programs by
//!   their names. `limits`: how much one program or user can take. `system`: the sockets of the service manager, and reading the file again.
//! * `endpoint`: the socket and the lock that makes a server the only one. `peer`: the process at the other
//!   end of a connection. `connection`: frames of one connection. `list`: requests for the list of clients.
//!   `throttle`: how many requests a user can make.
//! * `pages`: the shared memory of one client. `costs`: measured costs of eviction, kept for clients and in a
//!   file.
//! * `attachments`: processes that `xcli suspend` has suspended, each with a thread. `power`: power draw,
//!   read by a thread. `recording`: the file of decisions, written by a thread. `events`: what has happened, for people.
//! * `alarm`: precise waits. `clock`, `log`, and `error` (refusals of requests, with their texts).

pub mod access;
mod alarm;
mod attachments;
mod clock;
pub mod configuration;
mod connection;
pub mod core;
mod costs;
mod endpoint;
pub mod error;
mod events;
pub mod limits;
mod list;
pub mod log;
mod outsiders;
mod pages;
mod peer;
mod power;
pub mod programs;
mod recording;
mod server;
mod system;
mod throttle;
mod traces;

pub use clock::now;
pub use endpoint::Endpoint;
pub use power::{Hwmon, PowerMeter};
pub use server::{Options, Server, Unused};
pub use system::System;
