//! The lines of JSON between a worker and its parent.
//!
//! The worker first prints the files in which the functions lie that it calls. The parent writes a [`Round`] for
//! each round, and the worker answers with what it [`Took`]. At `null` it prints its [`Calls`] and ends.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Launches, and nothing between them.
    Launch,
    /// Launches, each with a synchronization of its stream after it.
    LaunchSync,
    /// Launches, with a synchronization of their stream after each [`SHORT`] of them.
    ShortRounds,
    /// Launches of kernels of [`IN_A_ROW_NS`], and a synchronization after all of them, which is timed too.
    InARow,
}

/// The number of launches to a synchronization in short rounds.
pub(super) const SHORT: u32 = 100;

/// The length of a kernel in a row, nanoseconds.
pub(super) const IN_A_ROW_NS: u64 = 10_000;

impl Kind {
    /// Returns the number of synchronizations among so many launches.
    pub(super) fn synchronizations(self, launches: u32) -> u32 {
        match self {
            Self::Launch => 0,
            Self::LaunchSync => launches,
            Self::ShortRounds => launches / SHORT,
            Self::InARow => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum On {
    /// The default stream.
    Default,
    /// A stream that the worker has created.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) kind: Kind,
    pub(super) on: On,
    /// The number of timed calls.
    pub(super) calls: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Took {
    /// Nanoseconds on the calling thread.
    pub(super) wall: u64,
    /// Nanoseconds of processor time of all threads, until all launches have completed.
    pub(super) cpu: u64,
    /// Events recorded meanwhile, by the worker or the library.
    pub(super) markers: u64,
}

/// The calls of a worker so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) launches: u64,
    pub(super) synchronizations: u64,
}
