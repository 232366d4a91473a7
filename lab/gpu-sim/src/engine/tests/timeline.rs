//! The timeline of a run.

use super::*;
use crate::device::Fcfs;
use crate::machine::Timeline;
use crate::recording::Event;
use crate::recording::testing::{Tape, record};

const T0: Time = 300_000_000;

/// Returns a device with a queue of each process, which is recorded from now on.
fn recorded(arch: &str, settings: Settings) -> (Bench, [u32; 2], Tape) {
    let mut bench = Bench::new(arch, settings);
    let ids = [bench.create(0, me(), 0), bench.create(100_000_000, OTHER, 0)];
    let (recording, tape) = record();
    bench.machine.timeline = Some(Timeline::new(recording));
    (bench, ids, tape)
}

/// Returns what was recorded until `now`, and not before.
fn flushed(bench: &mut Bench, tape: &Tape, now: Time) -> Records {
    engine::record_until(&mut bench.machine, now).expect("a recording").recv().expect("written");
    Records(tape.take())
}

struct Records(Vec<(u32, i32, u32, u64, u64)>);

impl Records {
    /// Returns the intervals of an event and a process in order, relative to `T0`.
    fn times(&self, event: Event, pid: i32) -> Vec<(u64, u64)> {
        let these = self.0.iter().filter(|record| record.0 == event as u32 && record.1 == pid);
        let mut times: Vec<_> = these.map(|record| (record.3 - T0, record.4 - T0)).collect();
        times.sort_unstable();
        times
    }

    /// Returns the sum of the counts of an event and a process.
    fn count(&self, event: Event, pid: i32) -> u32 {
        self.0
            .iter()
            .filter(|record| record.0 == event as u32 && record.1 == pid)
            .map(|record| record.2)
            .sum()
    }

    fn kernel_time(&self, pid: i32) -> Time {
        let these = self.0.iter().filter(|record| record.0 == Event::KernelTime as u32 && record.1 == pid);
        these.map(|record| record.4).sum()
    }
}

#[test]
fn kernels_that_run_one_at_a_time_ran_for_the_sum_of_their_times() {
    let (mut bench, _, tape) = recorded("gfx90a", Settings::default());
    bench.machine.gpus[0].model = Box::new(Fcfs::default());
    for signal in 0..3 {
        bench.launch(me(), 0, signal);
    }
    bench.launch(OTHER, 0, 0);
    bench.launch(OTHER, 0, 1);
    bench.tick(T0);
    bench.tick(T0 + 100_000);
    let records = flushed(&mut bench, &tape, T0 + 100_000);
    let mut all = Vec::new();
    for (pid, kernels) in [(me(), 3), (OTHER, 2)] {
        let ran = records.times(Event::Ran, pid);
        let sum: Time = ran.iter().map(|(from, to)| to - from).sum();
        assert_eq!(sum, Time::from(kernels) * KERNEL, "{ran:?}");
        assert_eq!(records.kernel_time(pid), sum);
        for event in [Event::Arrived, Event::Ended, Event::KernelTime] {
            assert_eq!(records.count(event, pid), kernels, "{event:?}");
        }
        assert_eq!(records.times(Event::Arrived, pid), [(0, 0)]);
        assert_eq!(records.times(Event::Evicted, pid), []);
        all.extend(ran);
    }
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0].1 <= two[1].0), "{all:?}");
    assert_eq!((all[0].0, all[all.len() - 1].1), (0, 5 * KERNEL));
}

#[test]
fn eviction_interrupts_all_processes_while_the_device_switches() {
    let (mut bench, [mine, _], tape) = recorded("gfx90a", COSTS);
    bench.launch(me(), 0, 0);
    bench.launch(OTHER, 0, 0);
    bench.tick(T0);
    bench.call(T0 + 2_000, me(), &update(mine, 0, 0));
    bench.tick(T0 + 50_000);
    bench.call(T0 + 60_000, me(), &update(mine, 0, 100));
    bench.tick(T0 + 100_000);
    let records = flushed(&mut bench, &tape, T0 + 100_000);
    assert_eq!(records.times(Event::Ran, OTHER), [(0, 2_000), (3_500, KERNEL + 1_500)]);
    assert_eq!(records.times(Event::Ran, me()), [(0, 2_000), (60_500, 60_500 + KERNEL - 2_000)]);
    assert_eq!(records.times(Event::Switching, me()), [(2_000, 3_000), (3_000, 3_500), (60_000, 60_500)]);
    assert_eq!(records.times(Event::Switching, OTHER), []);
    assert_eq!(records.times(Event::Evicted, me()), [(2_000, 60_500)]);
    assert_eq!(records.times(Event::Evicted, OTHER), [(2_000, 3_500), (60_000, 60_500)]);
    assert_eq!((records.count(Event::Ended, me()), records.kernel_time(me())), (1, KERNEL));
}

#[test]
fn queue_that_is_drained_is_off_when_its_kernels_have_ended() {
    let (mut bench, [mine, _], tape) = recorded("gfx90a", Settings { cwsr: false, ..Settings::default() });
    bench.launch(me(), 0, 0);
    bench.tick(T0);
    bench.call(T0 + 1_000, me(), &update(mine, 0, 0));
    bench.tick(T0 + 100_000);
    let records = flushed(&mut bench, &tape, T0 + 100_000);
    assert_eq!(records.times(Event::Ran, me()), [(0, KERNEL)]);
    assert_eq!(records.times(Event::Evicted, me()), [(KERNEL, 100_000)]);
    assert_eq!(records.times(Event::Switching, me()), []);
}

#[test]
fn flush_divides_intervals_and_the_end_of_a_process_ends_them() {
    let (mut bench, [_, theirs], tape) = recorded("gfx90a", Settings::default());
    bench.launch(me(), 0, 0);
    bench.call(T0, OTHER, &update(theirs, 0, 0));
    bench.tick(T0);
    let records = flushed(&mut bench, &tape, T0 + 3_000);
    assert_eq!(records.times(Event::Ran, me()), [(0, 3_000)]);
    assert_eq!(records.times(Event::Evicted, OTHER), [(0, 3_000)]);
    engine::remove_process(&mut bench.machine, T0 + 4_000, me());
    engine::remove_process(&mut bench.machine, T0 + 4_500, OTHER);
    let records = flushed(&mut bench, &tape, T0 + 100_000);
    assert_eq!(records.times(Event::Ran, me()), [(3_000, 4_000)]);
    assert_eq!(records.times(Event::Evicted, OTHER), [(3_000, 4_500)]);
    assert_eq!((records.count(Event::Ended, me()), records.kernel_time(me())), (0, 0));
    assert_eq!(flushed(&mut bench, &tape, T0 + 200_000).0, []);
}

#[test]
fn reset_ends_what_ran_and_was_off() {
    let settings = Settings { cwsr: false, timeout: 1_000, ..Settings::default() };
    let (mut bench, [mine, theirs], tape) = recorded("gfx90a", settings);
    bench.call(T0, OTHER, &update(theirs, 0, 0));
    bench.launch(me(), 0, 0);
    bench.tick(T0);
    bench.call(T0 + 1_000, me(), &update(mine, 0, 0));
    bench.tick(T0 + 100_000);
    let records = flushed(&mut bench, &tape, T0 + 100_000);
    assert_eq!(records.times(Event::Ran, me()), [(0, 2_000)]);
    assert_eq!(records.times(Event::Evicted, OTHER), [(0, 2_000)]);
    assert_eq!(records.count(Event::Ended, me()), 0);
}
