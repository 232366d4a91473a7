//! How much of the server one program or one user can take.

pub use crate::configuration::keys::Limits;

use std::ops::RangeInclusive;

/// The most queues of all clients together. A heartbeat reads each of them.
pub const QUEUES: usize = 65_536;
/// The most devices of all clients together. A host has some dozens, including partitions.
pub const DEVICES: usize = 256;
/// The most connections at a time; further ones are refused.
pub const CONNECTIONS: usize = 1_024;
/// The last of these connections are for administrators, so that they can look and change something whatever others do.
pub const RESERVED: usize = 32;
/// The most connections of xcli among them: each may hold a reply that lists all clients.
pub const REQUESTS: usize = 64;
/// The last of these are for administrators as well.
pub const RESERVED_REQUESTS: usize = 16;
/// The most connections of xcli of one user.
pub const REQUESTS_PER_USER: usize = 16;

/// The values that can be set for the requests of a user in a second. With the least of them, [`REQUESTS_PER_USER`] requests that wait
/// are answered before `xcli` gives up (2 s).
pub const REQUEST_RATES: RangeInclusive<usize> = 10..=1_000_000;

impl Limits {
    /// The limits of a server of one user, who can take all of it, but not with one process.
    pub fn of_one_user() -> Self {
        Self { connections_per_user: CONNECTIONS, queues_per_user: usize::MAX, ..Self::default() }
    }
}
