//! When a program completed its rounds, and how long it went without.

use std::path::Path;
use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub type Nanos = u64;

/// Now.
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Both are positive on this clock.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The completion times of a program, in order.
#[derive(Debug, Default)]
pub struct Log(Vec<Nanos>);

impl Log {
    /// Reads the program's log so far; empty if it has not begun.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        // A number that is just being written is left out.
        Self(bytes.as_chunks().0.iter().map(|bytes| Nanos::from_ne_bytes(*bytes)).collect())
    }

    /// How many rounds the program has written so far.
    pub fn count(path: &Path) -> usize {
        std::fs::metadata(path).map_or(0, |meta| meta.len() as usize / size_of::<Nanos>())
    }

    /// How many rounds.
    pub fn rounds(&self) -> usize {
        self.0.len()
    }

    /// How many rounds from then on.
    pub fn rounds_after(&self, at: Nanos) -> usize {
        self.0.iter().filter(|time| **time > at).count()
    }

    /// How many rounds in between.
    pub fn rounds_between(&self, from: Nanos, to: Nanos) -> usize {
        self.0.iter().filter(|time| (from + 1..=to).contains(*time)).count()
    }

    /// The first round from then on.
    pub fn first_after(&self, at: Nanos) -> Option<Nanos> {
        self.0.iter().copied().find(|time| *time > at)
    }

    /// The last round until then; 0 if there is none.
    pub fn last_before(&self, at: Nanos) -> Nanos {
        self.0.iter().copied().filter(|time| *time <= at).max().unwrap_or(0)
    }

    /// The longest stall since `from`: the longest time between two rounds that follow each other, of which the second
    /// came after it, without the time in which the program itself was stopped. And when it was over.
    pub fn longest_stall(&self, from: Nanos, stopped: Option<(Nanos, Nanos)>) -> (Duration, Nanos) {
        let pairs = self.0.windows(2).filter(|pair| pair[1] > from);
        let stalls = pairs.map(|pair| {
            let (begin, end) = (pair[0], pair[1]);
            let own = stopped.map_or(0, |(stop, cont)| cont.min(end).saturating_sub(stop.max(begin)));
            ((end - begin).saturating_sub(own), end)
        });
        let (nanos, end) = stalls.max().unwrap_or((0, from));
        (Duration::from_nanos(nanos), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_the_longest_time_without_a_round() {
        let log = Log(vec![10, 20, 500, 530, 1000]);
        let stall = |from, stopped| log.longest_stall(from, stopped).0.as_nanos();
        assert_eq!(stall(0, None), 480);
        assert_eq!(stall(400, None), 480, "one that has begun before");
        assert_eq!(stall(500, None), 470);
        assert_eq!(stall(1000, None), 0);
        assert_eq!(stall(500, Some((600, 900))), 170);
        assert_eq!(stall(500, Some((100, 540))), 460);
        assert_eq!((log.last_before(25), log.last_before(5)), (20, 0));
        assert_eq!((log.first_after(20), log.first_after(1000)), (Some(500), None));
        assert_eq!((log.rounds_after(20), log.rounds_between(10, 500), log.rounds()), (3, 2, 5));
    }

    #[test]
    fn a_log_is_read_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        assert_eq!(Log::read(&path).rounds(), 0);
        std::fs::write(&path, [&7u64.to_ne_bytes()[..], &[1, 2, 3]].concat()).unwrap();
        assert_eq!(Log::read(&path).0, [7]);
        assert_eq!((Log::count(&path), Log::count(folder.path().join("none").as_path())), (1, 0));
    }
}
