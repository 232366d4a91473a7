//! The account of one measured run, from the files that its processes wrote.

use super::entry::Entries;
use super::latency::{self, Latency};
use super::sweep::{Change, Class, Index, State, What, sweep};
use super::{decisions, timeline};
use crate::files::RunFiles;
use crate::replay::{Record, Request, launches};
use anyhow::{Context, Result};

/// A program of a run, and its results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) name: &'a str,
    pub(crate) class: Class,
    /// True if requests arrive; otherwise one inference follows the other.
    pub(crate) open: bool,
    /// The device time of one inference by its recorded model, microseconds.
    pub(crate) device_us: f64,
    pub(crate) record: &'a Record,
}

/// The account of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunAccount {
    pub(crate) entries: Entries,
    /// The programs of the run, in its order.
    pub(crate) parts: Vec<Part>,
    /// The requests of the urgent programs.
    pub(crate) latency: Vec<Latency>,
    /// Reasons why entries may be wrong, a sentence each.
    pub(crate) doubts: Vec<String>,
}

/// The counts of a program in the measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    pub(crate) class: Class,
    /// Inferences; of those that are only partly in the measured time, that part.
    pub(crate) inferences: f64,
    /// The device time of one, microseconds.
    pub(crate) device_us: f64,
    /// The time alone of the kernels that ended, nanoseconds; `None` if the device did not tell it.
    pub(crate) alone_ns: Option<f64>,
}

impl RunAccount {
    /// Reads the files of a run; `scheduled` is true if it had a server.
    ///
    /// The measured time is that in which all programs run, from the first arrival of a request, or the last
    /// program's first inference, to the end of the last request or of the first program to end its last
    /// inference.
    pub(crate) fn read(files: RunFiles<'_>, programs: &[Program<'_>], scheduled: bool) -> Result<Self> {
        let (from, to) = measured_time(programs).context("no time in which all programs run")?;
        let pids: Vec<u32> = programs.iter().map(|program| program.record.pid).collect();
        let classes: Vec<Class> = programs.iter().map(|program| program.class).collect();
        // All programs wait for the same start, and nothing is under way then.
        let start = programs.iter().map(|program| program.record.start_ns).min().unwrap_or(from);
        let (mut changes, mut doubts) = (Vec::new(), Vec::new());
        let kernels = timeline::read(&files.timeline(), &pids, start, &mut changes)?;
        if scheduled {
            match decisions::read(&files.decisions(), &pids, &mut changes)? {
                Some(0) => {}
                Some(lost) => doubts.push(format!("the server lost {lost} lines of its decisions")),
                None => doubts.push("the server's decisions have no end".to_owned()),
            }
        }
        let mut parts = Vec::new();
        for ((program, index), kernels) in programs.iter().zip(0..).zip(kernels) {
            let mut launched = launches::read(&files.launches(program.name))?;
            launched.retain(|at| *at >= start);
            let counts = Counts::new(&changes, index, from..to);
            doubts.extend(counts.doubt(program.name, launched.len() as u64));
            // The mean of all its kernels; those of the warm-up are the same ones.
            let mean = kernels.alone_ns as f64 / kernels.count as f64;
            parts.push(Part {
                class: program.class,
                inferences: inferences(program.record, from, to),
                device_us: program.device_us,
                alone_ns: (kernels.count > 0).then_some(mean * counts.ended_within as f64),
            });
            changes.extend(launched.iter().map(|at| Change { at: *at, what: What::Launched(index, 1) }));
            changes.extend(requests(program, &launched, index));
        }
        let entries = sweep(&classes, &mut changes, from, to);
        let urgent = programs.iter().zip(0..).filter(|(program, _)| program.class == Class::Urgent);
        let latency = urgent
            .map(|(program, index)| {
                Latency::new(
                    program.name,
                    State::new(&classes),
                    index,
                    &changes,
                    &times(program.record, from..to),
                )
            })
            .collect();
        Ok(Self { entries, parts, latency, doubts })
    }
}

/// Returns the time in which all programs run, nanoseconds of the monotonic clock; `None` if there is none.
fn measured_time(programs: &[Program<'_>]) -> Option<(u64, u64)> {
    // Of programs in which requests arrive the first begins and the last ends; the others run all the time.
    let bounds = |open: bool| {
        let of = programs.iter().filter(move |program| program.open == open);
        of.filter_map(|program| {
            let (first, last) = (program.record.requests.first()?, program.record.requests.last()?);
            Some((program.record.at_ns(first.arrived_us), program.record.at_ns(last.ended_us)))
        })
    };
    let requests = bounds(true).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    let within = bounds(false).chain(requests).reduce(|one, other| (one.0.max(other.0), one.1.min(other.1)));
    within.filter(|(from, to)| from < to)
}

/// Returns the arrival, begin and end of the requests that are wholly in this time, nanoseconds.
fn times(record: &Record, within: std::ops::Range<u64>) -> Vec<latency::Times> {
    let times = |one: &Request| [one.arrived_us, one.began_us, one.ended_us].map(|us| record.at_ns(us));
    let whole = |times: &latency::Times| times[0] >= within.start && times[2] <= within.end;
    record.requests.iter().map(times).filter(whole).collect()
}

/// Returns the inferences of a program in this time. One that is partly in it counts for that part.
fn inferences(record: &Record, from: u64, to: u64) -> f64 {
    let part = |(began, ended): (u64, u64)| {
        let within = ended.min(to).saturating_sub(began.max(from));
        within as f64 / ended.saturating_sub(began).max(1) as f64
    };
    let times = record.requests.iter().map(|one| (record.at_ns(one.began_us), record.at_ns(one.ended_us)));
    times.map(part).sum()
}

/// Returns the intervals from the first launch of each request of an urgent program to the end of its wait. A
/// program back to back is within an inference all the time.
fn requests(program: &Program<'_>, launched: &[u64], index: Index) -> Vec<Change> {
    let record = program.record;
    if let (Class::Batch, Some(first), Some(last)) =
        (program.class, record.requests.first(), record.requests.last())
    {
        let (from, to) = (record.at_ns(first.began_us), record.at_ns(last.ended_us));
        return Change::interval(from, to, |open| What::Request(index, open)).into();
    }
    let of_request = |request: &Request| {
        let (began, ended) = (record.at_ns(request.began_us), record.at_ns(request.ended_us));
        let first = launched.get(launched.partition_point(|at| *at < began));
        let from = first.copied().unwrap_or(began).min(ended);
        Change::interval(from, ended, |open| What::Request(index, open))
    };
    record.requests.iter().flat_map(of_request).collect()
}

/// The device's counts of a program's kernels since the start.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    arrived: u64,
    ended: u64,
    /// Those that ended in the measured time.
    ended_within: u64,
}

impl Counts {
    fn new(changes: &[Change], index: Index, within: std::ops::Range<u64>) -> Self {
        let mut counts = Self::default();
        for change in changes {
            match change.what {
                What::Arrived(of, count) if of == index => counts.arrived += u64::from(count),
                What::Ended(of, count) if of == index => {
                    counts.ended += u64::from(count);
                    counts.ended_within += u64::from(count) * u64::from(within.contains(&change.at));
                }
                _ => (),
            }
        }
        counts
    }

    /// Returns a sentence if the counts differ, which they may not when a program has ended.
    fn doubt(&self, name: &str, launched: u64) -> Option<String> {
        let Self { arrived, ended, .. } = *self;
        (arrived != launched || ended != launched).then(|| {
            format!(
                "{name} launched {launched} kernels, {arrived} arrived on the device and {ended} ended there"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::super::timeline::tests::{record as line, timeline};
    use super::*;
    use crate::files::{scratch, write};

    /// Returns a record of inferences: arrival, begin and end of each, microseconds after a start at 1 ms.
    fn record(pid: u32, times: &[[f64; 3]]) -> Record {
        let request = |times: &[f64; 3]| {
            let [arrived_us, began_us, ended_us] = *times;
            Request { arrived_us, began_us, ended_us }
        };
        let requests = times.iter().map(request).collect();
        Record { pid, start_ns: 1_000_000, requests, ..crate::replay::tests::blank() }
    }

    fn program<'a>(name: &'a str, open: bool, record: &'a Record) -> Program<'a> {
        let class = if open { Class::Urgent } else { Class::Batch };
        Program { name, class, open, device_us: 10.0, record }
    }

    #[test]
    fn measured_time_is_that_in_which_all_run() {
        let urgent = record(1, &[[20.0, 25.0, 40.0], [60.0, 60.0, 80.0]]);
        let second = record(2, &[[10.0, 10.0, 30.0]]);
        let batch = record(3, &[[1.0, 1.0, 50.0], [50.0, 50.0, 90.0]]);
        let of = |programs: &[Program<'_>]| {
            measured_time(programs).map(|(from, to)| ((from - 1_000_000) / 1000, (to - 1_000_000) / 1000))
        };
        let (high, middle) = (program("high", true, &urgent), program("middle", true, &second));
        let low = program("low", false, &batch);
        assert_eq!(of(&[high, low]), Some((20, 80)));
        assert_eq!(of(&[high, middle, low]), Some((10, 80)));
        assert_eq!(of(&[low]), Some((1, 90)));
        // Two closed loops, the second of which begins later.
        let server = record(4, &[[5.0, 5.0, 95.0]]);
        assert_eq!(of(&[low, program("server", false, &server)]), Some((5, 90)));
        assert_eq!(of(&[program("low", false, &record(5, &[]))]), None);
        assert_eq!(of(&[]), None);
        assert!((inferences(&batch, 1_020_000, 1_080_000) - (30.0 / 49.0 + 30.0 / 40.0)).abs() < 1e-9);
    }

    #[test]
    fn request_begins_with_its_first_launch() {
        let record = record(1, &[[0.0, 10.0, 20.0], [0.0, 30.0, 40.0]]);
        let found = |open: bool, launched: &[u64]| {
            let changes = requests(&program("program", open, &record), launched, 0);
            changes.iter().map(|change| change.at).collect::<Vec<_>>()
        };
        assert_eq!(found(true, &[1_012_000, 1_015_000]), [1_012_000, 1_020_000, 1_030_000, 1_040_000]);
        assert_eq!(found(false, &[1_012_000]), [1_010_000, 1_040_000]);
        // A launch that belongs to a later request.
        assert_eq!(found(true, &[1_035_000]), [1_020_000, 1_020_000, 1_035_000, 1_040_000]);
    }

    #[test]
    fn files_of_a_run_become_its_account() {
        let scratch = scratch().unwrap();
        let files = RunFiles(scratch.path());
        let (high, low) = (record(1, &[[10.0, 10.0, 30.0]]), record(2, &[[0.0, 0.0, 50.0]]));
        let programs = [program("high", true, &high), program("low", false, &low)];
        let ns = |us: u64| 1_000_000 + us * 1000;
        let words = |us: &[u64]| us.iter().flat_map(|us| ns(*us).to_le_bytes()).collect::<Vec<u8>>();
        write(&files.launches("high"), words(&[12])).unwrap();
        write(&files.launches("low"), words(&[1, 2])).unwrap();
        let device = timeline(&[
            // The warm-up.
            line(3, 2, 6, 900_000, 0),
            line(2, 2, 2, ns(2), ns(2)),
            line(1, 2, 0, ns(2), ns(11)),
            line(3, 2, 1, ns(11), ns(11)),
            line(4, 2, 0, ns(11), ns(13)),
            line(5, 2, 0, ns(11), ns(29)),
            line(2, 1, 1, ns(12), ns(12)),
            line(1, 1, 0, ns(13), ns(23)),
            line(3, 1, 1, ns(23), ns(23)),
            line(1, 2, 0, ns(29), ns(45)),
            line(3, 2, 1, ns(45), ns(45)),
            line(6, 1, 1, ns(60), 10_000),
            line(6, 2, 8, ns(60), 80_000),
        ]);
        write(&files.timeline(), device).unwrap();
        let text = format!(
            "{{\"at_ns\":{},\"kind\":\"permission\",\"client\":1,\"pid\":2,\"run\":false,\"why\":\"\"}}\n\
             {{\"at_ns\":{},\"kind\":\"permission\",\"client\":1,\"pid\":2,\"run\":true,\"why\":\"\"}}\n",
            ns(11),
            ns(28)
        );
        let end = |dropped: u32| format!("{text}{{\"at_ns\":9,\"kind\":\"end\",\"dropped\":{dropped}}}\n");
        write(&files.decisions(), end(0)).unwrap();
        let account = RunAccount::read(files, &programs, true).unwrap();
        let us = |entry: Entry| account.entries[entry] as f64 / 1e3;
        // From 10 to 30 µs.
        assert_eq!((us(Entry::Others), us(Entry::Switching), us(Entry::Urgent)), (2.0, 2.0, 10.0));
        assert_eq!((us(Entry::Gap), us(Entry::Resume)), (5.0, 1.0));
        assert_eq!(account.doubts, [""; 0]);
        let [high, low] = &account.parts[..] else { panic!("{account:?}") };
        assert_eq!((high.inferences, high.alone_ns, low.alone_ns), (1.0, Some(10_000.0), Some(10_000.0)));
        assert!((low.inferences - 0.4).abs() < 1e-9);
        let without = RunAccount::read(files, &programs, false).unwrap();
        assert_eq!((without.entries[Entry::Resume], without.entries[Entry::Gap]), (6_000, 0));
        write(&files.launches("low"), words(&[1])).unwrap();
        write(&files.decisions(), end(2)).unwrap();
        let doubts = RunAccount::read(files, &programs, true).unwrap().doubts;
        assert_eq!(doubts[0], "the server lost 2 lines of its decisions");
        assert_eq!(doubts[1], "low launched 1 kernels, 2 arrived on the device and 2 ended there");
    }
}
