//! `gpu-sim run --timeline`: the file has what the programs' kernels did, when the run has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tests::Gpu;

/// The events of the records (`docs/simulate.md`).
const RAN: u32 = 1;
const ARRIVED: u32 = 2;
const ENDED: u32 = 3;
const KERNEL_TIME: u32 = 6;

struct Record {
    event: u32,
    pid: i32,
    gpu: u32,
    count: u64,
    from: u64,
    to: u64,
}

fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).expect("a timeline");
    let (header, records) = bytes.split_at(8);
    assert_eq!(header, b"GWTIME01");
    assert_eq!(records.len() % 32, 0, "the last record is whole");
    let record = |record: &[u8]| {
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
        let time = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        Record {
            event: word(0),
            pid: word(4).cast_signed(),
            gpu: word(8),
            count: word(12).into(),
            from: time(16),
            to: time(24),
        }
    };
    records.chunks(32).map(record).collect()
}

/// Returns the counts of an event by process.
fn counts(records: &[Record], event: u32) -> BTreeMap<i32, u64> {
    let mut counts = BTreeMap::new();
    for record in records.iter().filter(|record| record.event == event) {
        *counts.entry(record.pid).or_insert(0) += record.count;
    }
    counts
}

/// Checks that intervals of one process do not overlap, and returns their sum for each.
fn ran(records: &[Record]) -> BTreeMap<i32, u64> {
    let mut intervals: Vec<_> =
        records.iter().filter(|record| record.event == RAN).map(|r| (r.pid, r.gpu, r.from, r.to)).collect();
    intervals.sort_unstable();
    let apart = |two: &[(i32, u32, u64, u64)]| two[0].0 != two[1].0 || two[0].3 <= two[1].2;
    assert!(intervals.iter().all(|ran| ran.2 < ran.3) && intervals.windows(2).all(apart), "{intervals:?}");
    let mut sums = BTreeMap::new();
    for (pid, _, from, to) in intervals {
        *sums.entry(pid).or_insert(0) += to - from;
    }
    sums
}

#[test]
fn kernels_of_the_statistics_arrived_ran_and_ended() {
    let gpu = Gpu::take();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("timeline");
    let run = gpu.run("kernels").sim("--cu-model", "fcfs").sim("--timeline", path.display()).with_stats();
    let finished = run.finish();
    let stats = finished.expect_success().stats().value();
    let kernels = stats["commands"]["kernel"].as_u64().expect("a count");
    let pid = stats["processes"][0]["pid"].as_i64().expect("a process") as i32;
    let records = read(&path);
    for event in [ARRIVED, ENDED, KERNEL_TIME] {
        assert_eq!(counts(&records, event), BTreeMap::from([(pid, kernels)]), "event {event}");
    }
    // One kernel runs at a time, so that they run as long as they take alone.
    let alone: u64 = records.iter().filter(|r| r.event == KERNEL_TIME).map(|r| r.to).sum();
    assert!(alone > 0);
    assert_eq!(ran(&records), BTreeMap::from([(pid, alone)]));
}

#[test]
fn programs_of_a_shared_gpu_are_in_the_file_of_the_run_that_made_it() {
    let gpu = Gpu::take();
    let folder = tempfile::tempdir().expect("a folder");
    let [path, other] = ["timeline", "other"].map(|name| folder.path().join(name));
    let mut keeper = gpu.keep_run().sim("--timeline", path.display()).start();
    for _ in 0..2 {
        gpu.shared("kernels").finish().expect_success();
    }
    let refused = gpu.shared("kernels").sim("--timeline", other.display()).finish();
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.stderr.contains("the running GPUs have timeline"), "{refused:?}");
    assert!(!other.exists());
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
    let records = read(&path);
    let (arrived, ended) = (counts(&records, ARRIVED), counts(&records, ENDED));
    assert_eq!(arrived.len(), 2, "{arrived:?}");
    assert_eq!(arrived, ended);
    let pids: BTreeSet<i32> = arrived.into_keys().collect();
    assert_eq!(ran(&records).into_keys().collect::<BTreeSet<_>>(), pids);
}

#[test]
fn file_that_cannot_be_written_is_reported_before_the_command_runs() {
    let gpu = Gpu::take();
    let finished =
        gpu.run_executable(Path::new("/bin/echo")).arg("ran").sim("--timeline", "/dev/full").finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (125, ""), "{finished:?}");
    assert!(finished.stderr.contains("--timeline: cannot write /dev/full"), "{finished:?}");
}
