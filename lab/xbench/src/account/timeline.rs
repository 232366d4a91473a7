//! Reads the timeline of the simulated device (`gpu-sim run --timeline`).
//!
//! After a header of 8 bytes come records of 32: kind, process id, GPU and count, 4 bytes each, then begin and
//! end in nanoseconds of the host's monotonic clock, 8 bytes each, little endian. They stand in the order in
//! which the device knew them. A last record that is cut off is left out.

use super::sweep::{Change, Index, What};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

const MAGIC: &[u8; 8] = b"GWTIME01";
const RECORD: usize = 32;

const RAN: u32 = 1;
const ARRIVED: u32 = 2;
const ENDED: u32 = 3;
const SWITCHING: u32 = 4;
const EVICTED: u32 = 5;
const KERNEL_TIME: u32 = 6;

/// The kernels of a program that ended in its whole life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kernels {
    pub(super) count: u64,
    /// The sum of their times alone, nanoseconds.
    pub(super) alone_ns: u64,
}

/// Reads a timeline: adds the changes to `changes`, and returns the kernels of each of `pids`. A program's
/// number is its place in `pids`; any other process has the number behind the last. Kernels that arrived or
/// ended before `start` are not counted.
pub(super) fn read(path: &Path, pids: &[u32], start: u64, changes: &mut Vec<Change>) -> Result<Vec<Kernels>> {
    let told = || format!("cannot read {}", path.display());
    let file = BufReader::with_capacity(1 << 16, File::open(path).with_context(told)?);
    read_from(file, pids, start, changes).with_context(told)
}

fn read_from(
    mut file: impl Read,
    pids: &[u32],
    start: u64,
    changes: &mut Vec<Change>,
) -> Result<Vec<Kernels>> {
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic)?;
    ensure!(magic == *MAGIC, "it is no timeline of this build's gpu-sim");
    let mut kernels = vec![Kernels::default(); pids.len()];
    let mut record = [0; RECORD];
    loop {
        match file.read_exact(&mut record) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        let word = |place: usize| u32::from_le_bytes(std::array::from_fn(|byte| record[place + byte]));
        let time = |place: usize| u64::from_le_bytes(std::array::from_fn(|byte| record[place + byte]));
        let ([kind, pid, count], [from, to]) = ([0, 4, 12].map(word), [16, 24].map(time));
        let place = pids.iter().position(|known| *known == pid);
        let index = place.unwrap_or(pids.len()) as Index;
        let mut interval = |what: fn(Index, bool) -> What| {
            changes.extend(Change::interval(from, to.max(from), |open| what(index, open)));
        };
        match kind {
            RAN => interval(What::Runs),
            EVICTED => interval(What::Evicted),
            SWITCHING => interval(|_, open| What::Switching(open)),
            ARRIVED if from >= start => changes.push(Change { at: from, what: What::Arrived(index, count) }),
            ENDED if from >= start => changes.push(Change { at: from, what: What::Ended(index, count) }),
            KERNEL_TIME => {
                if let Some(kernels) = place.and_then(|place| kernels.get_mut(place)) {
                    kernels.count += u64::from(count);
                    kernels.alone_ns += to;
                }
            }
            _ => (),
        }
    }
    Ok(kernels)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a record of GPU 0.
    pub(in super::super) fn record(kind: u32, pid: u32, count: u32, from: u64, to: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = [kind, pid, 0, count].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([from, to].iter().flat_map(|ns| ns.to_le_bytes()));
        bytes
    }

    pub(in super::super) fn timeline(records: &[Vec<u8>]) -> Vec<u8> {
        [MAGIC.to_vec(), records.concat()].concat()
    }

    fn parse(bytes: &[u8]) -> Result<(Vec<Change>, Vec<Kernels>)> {
        let mut changes = Vec::new();
        let kernels = read_from(bytes, &[7, 9], 100, &mut changes)?;
        Ok((changes, kernels))
    }

    #[test]
    fn records_become_changes_of_their_programs() {
        let long = u64::from(u32::MAX) + 7;
        let bytes = timeline(&[
            record(RAN, 9, 0, 5, long),
            record(ARRIVED, 7, 3, 110, 110),
            record(ENDED, 7, 2, 120, 120),
            // Before the start.
            record(ENDED, 7, 50, 99, 99),
            record(SWITCHING, 7, 0, 130, 140),
            record(EVICTED, 9, 0, 150, 160),
            record(RAN, 8, 0, 170, 180),
            record(KERNEL_TIME, 9, 4, 190, 1000),
            record(KERNEL_TIME, 9, 1, 200, 500),
            record(KERNEL_TIME, 8, 1, 200, 500),
            record(77, 7, 1, 1, 2),
        ]);
        let (changes, kernels) = parse(&bytes).unwrap();
        let at = |at, what| Change { at, what };
        let expected = [
            at(5, What::Runs(1, true)),
            at(long, What::Runs(1, false)),
            at(110, What::Arrived(0, 3)),
            at(120, What::Ended(0, 2)),
            at(130, What::Switching(true)),
            at(140, What::Switching(false)),
            at(150, What::Evicted(1, true)),
            at(160, What::Evicted(1, false)),
            at(170, What::Runs(2, true)),
            at(180, What::Runs(2, false)),
        ];
        assert_eq!(changes, expected);
        assert_eq!(kernels, [Kernels::default(), Kernels { count: 5, alone_ns: 1500 }]);
    }

    #[test]
    fn cut_off_record_is_left_out() {
        let bytes = timeline(&[record(RAN, 7, 0, 1, 2), record(RAN, 7, 0, 3, 4)]);
        assert_eq!(parse(&bytes[..bytes.len() - 1]).unwrap().0.len(), 2);
        assert_eq!(parse(&timeline(&[])).unwrap().0, []);
    }

    #[test]
    fn other_file_is_refused() {
        assert!(parse(b"GWTIME99").unwrap_err().to_string().contains("no timeline"));
        assert!(parse(b"GW").is_err());
    }
}
