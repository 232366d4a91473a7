//! The results of a run for both programs.

use std::fmt;
use std::time::Duration;

use crate::faults::log::Nanos;
use crate::faults::stage::{Outcome, Worker};

/// The result of all faults of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub faults: usize,
    /// Faults that came while the low program was suspended, as the programs' own logs say.
    pub suspended: usize,
    /// Rounds of both programs.
    pub rounds: usize,
    /// Programs whose digest was right at the end.
    pub right: usize,
    /// The longest time between two rounds of a program since the first fault.
    pub longest: Duration,
}

impl Tally {
    /// Returns true if both digests are right, each gap is shorter than `longest_gap`, and a fault met a suspended program.
    pub fn is_right(&self, longest_gap: Duration) -> bool {
        self.right == 2 && self.longest < longest_gap && self.suspended > 0
    }

    /// Lets a program end, and adds what it has done since the first fault.
    pub fn judge(&mut self, worker: Worker, first: Nanos) -> Outcome<()> {
        let before = worker.rounds();
        self.rounds += before;
        self.longest = self.longest.max(worker.log().longest_stall(first, None).0);
        let log = worker.finish()?;
        self.right += 1;
        self.rounds += log.rounds().saturating_sub(before);
        self.longest = self.longest.max(log.longest_stall(first, None).0);
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, suspended, rounds, right, longest } = self;
        let longest = longest.as_millis();
        write!(
            f,
            "{faults} faults, {suspended} while the low program was suspended, {rounds} rounds, {right} of 2 digests right, longest \
             gap {longest} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_digest_or_a_long_gap_is_not_right() {
        let second = Duration::from_secs(1);
        let longest = Duration::from_millis(501);
        let good = Tally { faults: 200, suspended: 150, rounds: 100_000, right: 2, longest };
        assert!(good.is_right(second));
        assert!(!Tally { right: 1, ..good }.is_right(second));
        assert!(!Tally { longest: second, ..good }.is_right(second));
        assert!(!Tally { suspended: 0, ..good }.is_right(second), "a fault that meets nobody proves nothing");
        assert_eq!(
            good.to_string(),
            "200 faults, 150 while the low program was suspended, 100000 rounds, 2 of 2 digests right, longest gap 501 ms"
        );
    }
}
