//! The lines between a worker and its parent.

use anyhow::{Context, Result};
use std::str::FromStr;

/// The calls of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Launches, and nothing between them.
    Launch,
    /// Launches, each with a synchronization of its stream after it.
    LaunchSync,
}

/// The stream that a round works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// The default stream.
    Default,
    /// A stream that the worker has created.
    Own,
}

/// One round, as a line from the parent to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) kind: Kind,
    pub(super) on: On,
    /// The number of timed calls.
    pub(super) calls: u32,
}

impl Round {
    const KINDS: [(&str, Kind, On); 4] = [
        ("launch", Kind::Launch, On::Default),
        ("launch-own", Kind::Launch, On::Own),
        ("launch-sync", Kind::LaunchSync, On::Default),
        ("launch-sync-own", Kind::LaunchSync, On::Own),
    ];

    pub(super) fn line(self) -> String {
        let known = Self::KINDS.iter().find(|(_, kind, on)| (*kind, *on) == (self.kind, self.on));
        let (name, ..) = known.expect("the table has every pair");
        format!("{name} {}", self.calls)
    }
}

impl FromStr for Round {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let (name, calls) = line.split_once(' ').with_context(|| format!("not a round: {line}"))?;
        let known = Self::KINDS.iter().find(|(known, ..)| *known == name);
        let &(_, kind, on) = known.with_context(|| format!("not a kind of round: {name}"))?;
        Ok(Self { kind, on, calls: calls.parse().context("not a number of calls")? })
    }
}

/// Parses a line of `N` numbers.
pub(super) fn numbers<const N: usize>(line: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The cost of a round, as a line from the worker to the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Took {
    /// Nanoseconds on the calling thread.
    pub(super) wall: u64,
    /// Nanoseconds of processor time of all threads, until all launches have completed.
    pub(super) cpu: u64,
    /// Events recorded meanwhile, by the worker or the library.
    pub(super) markers: u64,
}

impl Took {
    pub(super) fn line(&self) -> String {
        format!("{} {} {}", self.wall, self.cpu, self.markers)
    }
}

/// The calls of a worker so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) launches: u64,
    pub(super) synchronizations: u64,
}

impl Calls {
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.launches, self.synchronizations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_line_parses_back() {
        for (_, kind, on) in Round::KINDS {
            let round = Round { kind, on, calls: 7 };
            assert_eq!(round.line().parse::<Round>().unwrap(), round);
        }
        for wrong in ["launch", "copy 3", "launch x", "end"] {
            assert!(wrong.parse::<Round>().is_err(), "{wrong}");
        }
        assert_eq!(numbers("1 2 3"), Some([1, 2, 3]));
        assert_eq!(numbers::<2>("1 2 3"), None);
        assert_eq!(numbers::<1>("-1"), None);
    }
}
