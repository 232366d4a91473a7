//! The account of a program's latency: what each of its requests waited for.

use super::sweep::{Change, Index, State};
use crate::stats::Samples;
use crate::table::Table;
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::fmt;

/// What a request waits for at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// An earlier request of its program: it has arrived and not begun.
    Earlier,
    /// Its host, which has launched nothing that has not ended.
    Host,
    /// Its own kernels, which run alone.
    Own,
    /// Its own kernels, which run beside those of others.
    Beside,
    /// Kernels of others: its own are launched, and only others run.
    Others,
    /// The driver, which saves or restores running work.
    Switching,
    /// Nothing runs: its kernels are on their way to the device, or it is between two.
    Dispatch,
}

/// All waits with their names and meanings, in the order of the table.
const WAITS: [(Wait, &str, &str); 7] = [
    (Wait::Earlier, "earlier", "requests that came before"),
    (Wait::Host, "host", "its host's time"),
    (Wait::Own, "own", "its kernels ran alone"),
    (Wait::Beside, "beside", "its kernels ran beside those of others"),
    (Wait::Others, "others", "its kernels were launched, and only others ran"),
    (Wait::Switching, "switching", "its kernels were launched, and the driver saved or restored work"),
    (Wait::Dispatch, "dispatch", "its kernels were launched, and nothing ran"),
];

/// The part of the requests that the table shows as the slowest.
const SLOWEST: f64 = 0.01;

/// The time of each wait of a request, nanoseconds.
type Waits = [u64; WAITS.len()];

/// The requests of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Latency {
    program: String,
    requests: Vec<Waits>,
}

/// When a request arrived, began and ended, nanoseconds.
pub(super) type Times = [u64; 3];

impl Latency {
    /// Accounts for requests, which begin one after the other, from changes in the order of time.
    pub(super) fn new(
        program: &str,
        state: State,
        index: Index,
        changes: &[Change],
        requests: &[Times],
    ) -> Self {
        let mut state = state;
        let mut steps = vec![(0, Wait::Host)];
        for change in changes {
            state.apply(change.what);
            let wait = state.wait(index);
            if steps.last().is_some_and(|(_, last)| *last != wait) {
                steps.push((change.at, wait));
            }
        }
        let mut last_ended = 0;
        let account = |[arrived, began, ended]: &Times| {
            let mut waits = Waits::default();
            let before = began.saturating_sub(*arrived);
            // The rest is what the host needs to begin: its preparation, or to be woken.
            waits[Wait::Earlier as usize] =
                std::mem::replace(&mut last_ended, *ended).saturating_sub(*arrived).min(before);
            waits[Wait::Host as usize] = before - waits[Wait::Earlier as usize];
            let mut now = *began;
            let first = steps.partition_point(|(at, _)| at <= began);
            let after = steps[first..].iter().map(|(at, _)| *at).chain([u64::MAX]);
            // The step before the first one holds at the begin.
            for ((_, wait), until) in steps[first.saturating_sub(1)..].iter().zip(after) {
                let until = until.min(*ended);
                waits[*wait as usize] += until.saturating_sub(now);
                now = now.max(until);
                if until == *ended {
                    break;
                }
            }
            waits
        };
        Self { program: program.to_owned(), requests: requests.iter().map(account).collect() }
    }

    /// Adds the requests of another run.
    pub(super) fn extend(&mut self, other: &Self) {
        self.requests.extend_from_slice(&other.requests);
    }

    /// Returns the means; `None` without requests.
    pub(super) fn means(&self) -> Option<Means> {
        let mut slowest = self.requests.clone();
        slowest.sort_by_key(|waits| std::cmp::Reverse(waits.iter().sum::<u64>()));
        let all = mean(&slowest)?;
        let p99 = |of: fn(&Waits) -> u64| {
            let samples = Samples::new(slowest.iter().map(|waits| of(waits) as f64 / 1e6).collect());
            samples.map_or(0.0, |samples| samples.percentile(99.0))
        };
        let p99_ms = p99(|waits| waits.iter().sum());
        let p99_without_host_ms = p99(|waits| waits.iter().sum::<u64>() - waits[Wait::Host as usize]);
        slowest.truncate(((slowest.len() as f64 * SLOWEST).ceil() as usize).max(1));
        Some(Means {
            program: self.program.clone(),
            requests: self.requests.len(),
            all,
            slowest: mean(&slowest)?,
            p99_ms,
            p99_without_host_ms,
        })
    }
}

fn mean(requests: &[Waits]) -> Option<MeanWaits> {
    let count = Some(requests.len()).filter(|count| *count > 0)? as f64;
    let of = |wait: usize| requests.iter().map(|waits| waits[wait]).sum::<u64>() as f64 / count / 1e6;
    Some(MeanWaits(std::array::from_fn(of)))
}

/// The mean waits of a program's requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Means {
    program: String,
    requests: usize,
    all: MeanWaits,
    /// Of the slowest hundredth, at least of one.
    slowest: MeanWaits,
    /// The 99th percentile of the latency, and of what remains without the host's time.
    p99_ms: f64,
    p99_without_host_ms: f64,
}

/// Milliseconds. In JSON an object by name.
#[derive(Debug, Clone, PartialEq)]
struct MeanWaits([f64; WAITS.len()]);

impl Serialize for MeanWaits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(WAITS.len()))?;
        for (wait, name, _) in WAITS {
            map.serialize_entry(name, &self.0[wait as usize])?;
        }
        map.end()
    }
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a request's time, {}: {} requests", self.program, self.requests)?;
        let mut table = Table::without_header([false, true, true, false]);
        table.push(["", "mean ms", "slowest 1 %", ""].map(str::to_owned));
        let ms = |ms: f64| format!("{ms:.3}");
        for (wait, name, what) in WAITS {
            let [all, slowest] = [&self.all, &self.slowest].map(|waits| waits.0[wait as usize]);
            if all > 0.0 {
                table.push([name.to_owned(), ms(all), ms(slowest), what.to_owned()]);
            }
        }
        let [all, slowest] = [&self.all, &self.slowest].map(|waits| waits.0.iter().sum());
        table.push(["latency".to_owned(), ms(all), ms(slowest), "the sum".to_owned()]);
        table.fmt(f)?;
        let Self { p99_ms, p99_without_host_ms, .. } = self;
        writeln!(f, "p99 {p99_ms:.3} ms, without the host's time {p99_without_host_ms:.3} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::super::sweep::{Class, What};
    use super::*;

    fn latency(changes: &mut [Change], requests: &[Times]) -> Latency {
        changes.sort_by_key(|change| change.at);
        Latency::new("server", State::new(&[Class::Urgent, Class::Batch]), 0, changes, requests)
    }

    fn change(at: u64, what: What) -> Change {
        Change { at, what }
    }

    #[test]
    fn each_moment_of_a_request_has_one_reason() {
        let mut changes = vec![
            change(100, What::Launched(0, 2)),
            change(106, What::Arrived(0, 2)),
            change(180, What::Ended(0, 1)),
            change(200, What::Ended(0, 1)),
            // Work that came before the program's request, and after it.
            change(10, What::Launched(1, 3)),
            change(210, What::Launched(0, 1)),
        ];
        changes.extend(Change::interval(20, 130, |open| What::Runs(1, open)));
        changes.extend(Change::interval(130, 145, What::Switching));
        changes.extend(Change::interval(150, 200, |open| What::Runs(0, open)));
        changes.extend(Change::interval(170, 175, |open| What::Runs(1, open)));
        let found = latency(&mut changes, &[[10, 10, 62], [50, 70, 205]]);
        let [earlier, host, own, beside, others, switching, dispatch] = found.requests[1];
        assert_eq!((earlier, host), (12, 8 + 30 + 5));
        assert_eq!((own, beside, others), (45, 5, 30));
        assert_eq!((switching, dispatch), (15, 5));
        assert_eq!(found.requests[1].iter().sum::<u64>(), 205 - 50);
    }

    #[test]
    fn requests_before_and_after_all_changes_wait_for_the_host() {
        let mut changes = vec![change(100, What::Launched(0, 1)), change(110, What::Ended(0, 1))];
        let found = latency(&mut changes, &[[5, 5, 40], [120, 120, 150], [160, 160, 160]]);
        let host: Vec<u64> = found.requests.iter().map(|waits| waits[Wait::Host as usize]).collect();
        assert_eq!(host, [35, 30, 0]);
        let whole = latency(&mut changes, &[[90, 90, 130]]);
        assert_eq!(whole.requests[0][Wait::Dispatch as usize], 10);
        assert_eq!(whole.requests[0].iter().sum::<u64>(), 40);
    }

    #[test]
    fn slowest_hundredth_is_told_apart() {
        let mut found = latency(&mut [], &[[0, 0, 1_000_000]; 99]);
        let behind = latency(&mut [], &[[0, 0, 2_000_000], [0, 2_000_000, 5_000_000]]);
        found.requests.push(behind.requests[1]);
        let means = found.means().unwrap();
        assert_eq!(means.requests, 100);
        assert!((means.all.0[Wait::Host as usize] - 1.02).abs() < 1e-9);
        assert!((means.slowest.0[Wait::Earlier as usize] - 2.0).abs() < 1e-9);
        assert!((means.slowest.0[Wait::Host as usize] - 3.0).abs() < 1e-9);
        assert!(means.to_string().contains("slowest 1 %"));
        assert_eq!(latency(&mut [], &[]).means(), None);
        let json = serde_json::to_value(&means).unwrap();
        assert_eq!(json["slowest"]["earlier"], 2.0);
        let mut changes = vec![change(1_000_000, What::Launched(0, 1)), change(4_000_000, What::Ended(0, 1))];
        let means = latency(&mut changes, &[[0, 0, 5_000_000]]).means().unwrap();
        assert_eq!((means.p99_ms, means.p99_without_host_ms), (5.0, 3.0));
    }
}
