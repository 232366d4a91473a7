//! The daemon that schedules across processes.
//!
//! One thread decides everything: it hears of clients that come, go, turn ready or idle, asks the policy, and stores each
//! client's permission on the page that it shares with it. It waits for nobody: every descriptor is non-blocking, what
//! a client can make it keep is bounded, and whatever breaks a rule loses its own connection and nothing else.
//!
//! # Rooms
//! `core` decides, from what it sees on the pages and from the time that it is told; it knows no socket and reads no
//! clock · `place` where the server listens, and that it is the only one there · `peer` who has connected ·
//! `connection` frames in and out · `pages` the shared memory of one client · `list` answers for people · `attachments`
//! processes of which queues are held from outside, a thread each · `power` what devices draw, read by a
//! thread · `costs` what holds cost, kept for clients and in a file · `alarm` waits that are exact · `server` the loop · `log` lines that never make it wait.

mod alarm;
mod attachments;
mod connection;
pub mod core;
mod costs;
mod list;
pub mod log;
mod pages;
mod peer;
mod place;
mod power;
mod server;

pub use place::Place;
pub use power::{Hwmon, PowerMeter};
pub use server::{Options, Server, Unused};

use protocol::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC`, which the clients read as well.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock never stands before its own beginning.
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
