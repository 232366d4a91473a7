//! The shared device in virtual time.

use super::*;
use proptest::prelude::*;

const A: QueueKey = QueueKey { pid: 1, id: 0 };
const B: QueueKey = QueueKey { pid: 2, id: 0 };

fn work(id: WorkId, queue: QueueKey, groups: u64, cost: u32, alone: Time) -> Work {
    Work { id, queue, groups, cost, alone }
}

/// Runs until all work has ended. Returns (id, start, end) in order of completion.
fn finish(model: &mut Shared, out: &mut Vec<Progress>) -> Vec<(WorkId, Time, Time)> {
    while let Some(t) = model.next() {
        step(model, t, out);
    }
    let done = |p: &Progress| match *p {
        Progress::Done { id, start, end } => Some((id, start, end)),
        Progress::Launched(_) => None,
    };
    out.iter().filter_map(done).collect()
}

/// Advances to `t`, and asserts that `next_visible` announced any progress.
fn step(model: &mut Shared, t: Time, out: &mut Vec<Progress>) {
    let (seen, visible) = (out.len(), model.next_visible());
    model.advance(t, out);
    assert!(out.len() == seen || visible.is_some_and(|visible| visible <= t), "{visible:?} {t} {out:?}");
}

#[test]
fn kernel_alone_takes_its_time_for_every_grid() {
    for groups in [1, 99, 100, 101, 1_000_000] {
        let (mut model, mut out) = (Shared::new(100), Vec::new());
        model.submit(10, work(1, A, groups, 1, 1_000_000), &mut out);
        let (_, start, end) = finish(&mut model, &mut out)[0];
        assert_eq!(start, 10);
        assert!((end - 10).abs_diff(1_000_000) <= groups.div_ceil(100), "{groups}: {end}");
    }
}

#[test]
fn endless_kernel_leaves_slots_to_others_while_evicted() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.submit(10, work(1, A, 100, 1, Time::MAX), &mut out);
    model.evict(20, &[A], &mut out);
    model.submit(20, work(2, B, 50, 1, 500), &mut out);
    model.restore(30, &[A], &mut out);
    assert_eq!(model.next(), Some(520));
}

#[test]
fn empty_kernel_of_a_huge_grid_is_done_at_once() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.submit(10, work(1, A, u64::MAX, 1, 0), &mut out);
    assert_eq!(finish(&mut model, &mut out), [(1, 10, 10)]);
}

#[test]
fn kernels_that_fit_together_do_not_slow_each_other() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.submit(0, work(1, A, 50, 1, 1000), &mut out);
    model.submit(0, work(2, B, 50, 1, 500), &mut out);
    assert_eq!(finish(&mut model, &mut out), [(2, 0, 500), (1, 0, 1000)]);
}

#[test]
fn second_kernel_waits_for_running_groups_then_shares_slots() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.submit(0, work(1, A, 400, 1, 4000), &mut out);
    model.submit(1, work(2, B, 100, 1, 1000), &mut out);
    // The device is full until 1000; then both get half of it each round.
    assert_eq!(finish(&mut model, &mut out), [(2, 1000, 3000), (1, 0, 5000)]);
}

#[test]
fn launched_is_reported_when_the_last_group_is_placed() {
    let (mut model, mut out) = (Shared::new(10), Vec::new());
    model.submit(0, work(1, A, 15, 1, 200), &mut out);
    assert!(out.is_empty());
    model.advance(100, &mut out);
    assert_eq!(out, [Progress::Launched(1)]);
}

#[test]
fn evicted_queue_keeps_its_remaining_time() {
    let (mut model, mut out) = (Shared::new(10), Vec::new());
    model.submit(0, work(1, A, 10, 1, 1000), &mut out);
    model.submit(5, work(2, B, 10, 1, 100), &mut out);
    model.evict(400, &[A], &mut out);
    assert_eq!(model.next(), Some(500), "the other queue got the slots at once");
    model.advance(500, &mut out);
    assert_eq!(model.next(), None);
    model.restore(5000, &[A], &mut out);
    assert_eq!(finish(&mut model, &mut out), [(2, 400, 500), (1, 0, 5600)]);
    assert!(!model.busy());
}

#[test]
fn queues_evicted_together_do_not_get_each_others_slots() {
    let (mut model, mut out) = (Shared::new(10), Vec::new());
    model.submit(0, work(1, A, 10, 1, 1000), &mut out);
    model.submit(0, work(2, B, 10, 1, 100), &mut out);
    assert!(model.runs(A) && !model.runs(B));
    let seen = out.len();
    model.evict(400, &[A, B], &mut out);
    assert!(!model.busy() && out.len() == seen);
    model.restore(900, &[A, B], &mut out);
    // Both are placed again round-robin: A with its remaining time, B for the first time.
    let starts: Vec<(WorkId, Time)> = finish(&mut model, &mut out).iter().map(|d| (d.0, d.1)).collect();
    assert!(
        starts.contains(&(1, 0)) && starts.iter().any(|(id, start)| *id == 2 && *start >= 900),
        "{starts:?}"
    );
}

#[test]
fn removed_queue_frees_its_slots() {
    let (mut model, mut out) = (Shared::new(10), Vec::new());
    model.submit(0, work(1, A, 10, 1, 1000), &mut out);
    model.submit(0, work(2, B, 10, 1, 100), &mut out);
    model.remove(10, A, &mut out);
    assert_eq!(finish(&mut model, &mut out), [(2, 10, 110)]);
}

#[test]
fn kernels_of_different_times_keep_large_batches() {
    let (mut model, mut out) = (Shared::new(3328), Vec::new());
    model.submit(0, work(1, A, 200_704, 2, 600_000), &mut out);
    model.submit(100, work(2, B, 20_000, 3, 470_000), &mut out);
    let mut steps = 0;
    while let Some(t) = model.next() {
        step(&mut model, t, &mut out);
        steps += 1;
    }
    // Together they take little more than a millisecond, at most two steps each microsecond.
    assert!(steps < 2_500, "{steps}");
    let ends: Vec<Time> = finish(&mut model, &mut out).iter().map(|done| done.2).collect();
    assert!(ends[1].abs_diff(1_070_000) < 60_000, "{ends:?}");
}

#[test]
fn next_visible_is_the_placement_of_the_last_group() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.submit(0, work(1, A, 1000, 1, 320_000), &mut out);
    assert_eq!(model.next(), Some(32_000));
    // Nine rounds are left. The last one is placed after eight more, each at most a 32nd shorter.
    assert_eq!(model.next_visible(), Some(32_000 + 8 * 31_000));
}

/// Returns properties with this priority and number of slots.
fn with(priority: u32, slots: Option<u32>) -> Properties {
    Properties { priority, slots }
}

#[test]
fn masked_queue_takes_the_rounds_of_its_slots_and_leaves_the_others() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.set_properties(0, A, with(0, Some(25)), &mut out);
    model.submit(0, work(1, A, 100, 1, 1000), &mut out);
    model.submit(0, work(2, A, 25, 1, 1000), &mut out);
    model.submit(0, work(3, B, 75, 1, 500), &mut out);
    assert_eq!(finish(&mut model, &mut out), [(3, 0, 500), (1, 0, 4000), (2, 4000, 5000)]);
    assert_eq!(model.free, 100);
}

#[test]
fn kernels_of_a_masked_queue_share_its_slots() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.set_properties(0, A, with(0, Some(32)), &mut out);
    model.submit(0, work(1, A, 20, 1, 1000), &mut out);
    // Two of its work-groups have room beside those of the first kernel, and each waits for its slots.
    model.submit(0, work(2, A, 4, 6, 1000), &mut out);
    assert_eq!(finish(&mut model, &mut out), [(1, 0, 1000), (2, 0, 2000)]);
}

#[test]
fn queue_without_room_for_one_group_places_one_at_a_time() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.set_properties(0, A, with(0, Some(4)), &mut out);
    model.submit(0, work(1, A, 3, 5, 100), &mut out);
    assert_eq!(finish(&mut model, &mut out), [(1, 0, 300)]);
}

#[test]
fn changed_mask_counts_for_work_groups_that_are_placed_later() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.submit(0, work(1, A, 200, 1, 2000), &mut out);
    model.set_properties(10, A, with(0, Some(50)), &mut out);
    assert_eq!(model.next(), Some(1000), "running work-groups go on");
    step(&mut model, 1000, &mut out);
    model.set_properties(1500, A, with(0, None), &mut out);
    // The second fifty began when the mask was gone.
    assert_eq!(finish(&mut model, &mut out), [(1, 0, 2500)]);
}

#[test]
fn higher_priority_is_placed_first_and_equal_ones_in_turn() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    const C: QueueKey = QueueKey { pid: 3, id: 0 };
    for (queue, priority) in [(A, 0), (B, 7), (C, 7)] {
        model.set_properties(0, queue, with(priority, None), &mut out);
    }
    model.submit(0, work(1, A, 200, 1, 2000), &mut out);
    model.submit(1, work(2, B, 150, 1, 2000), &mut out);
    model.submit(1, work(3, C, 50, 1, 1000), &mut out);
    // At 1000 both urgent ones get 50 slots each, at 2000 the rest of B takes all, and A waits until 3000.
    assert_eq!(finish(&mut model, &mut out), [(3, 1000, 2000), (2, 1000, 3000), (1, 0, 4000)]);
}

#[test]
fn small_groups_do_not_pass_a_large_one_of_higher_priority() {
    let (mut model, mut out) = (Shared::new(10), Vec::new());
    model.set_properties(0, B, with(1, None), &mut out);
    for id in 0..4 {
        model.submit(id, work(id, A, 5, 1, 100 + 50 * (id % 2)), &mut out);
    }
    model.submit(4, work(9, B, 1, 8, 10), &mut out);
    let times = finish(&mut model, &mut out);
    assert!(times.contains(&(9, 151, 161)), "{times:?}");
    assert!(times.iter().all(|(id, start, _)| *id < 2 || *start >= 151), "{times:?}");
}

#[test]
fn masked_queue_of_higher_priority_leaves_the_rest_to_others() {
    let (mut model, mut out) = (Shared::new(100), Vec::new());
    model.set_properties(0, B, with(1, Some(10)), &mut out);
    model.submit(0, work(1, B, 20, 1, 1000), &mut out);
    model.submit(0, work(2, A, 90, 1, 1000), &mut out);
    assert_eq!(finish(&mut model, &mut out), [(2, 0, 1000), (1, 0, 2000)]);
}

proptest! {
    /// Under any sequence of submissions, evictions and restorations: slots are never exceeded or lost,
    /// every kernel is launched and ends exactly once, and none ends earlier than alone, up to the
    /// tolerance of a batch.
    #[test]
    fn slots_and_kernels_are_never_lost(steps in proptest::collection::vec((0u8..9, 0i32..3, 1u64..200, 1u32..9, 0u64..2000), 1..60)) {
        let (mut model, mut out) = (Shared::new(64), Vec::new());
        let (mut now, mut submitted) = (0, BTreeMap::new());
        for (id, (action, pid, groups, cost, time)) in steps.into_iter().enumerate() {
            let queue = QueueKey { pid, id: 0 };
            let target = now + time;
            while let Some(t) = model.next().filter(|t| *t <= target) {
                step(&mut model, t, &mut out);
            }
            now = target;
            match action {
                0 => model.evict(now, &[queue], &mut out),
                1 => model.restore(now, &[queue], &mut out),
                2 => {
                    let slots = (groups % 3 > 0).then_some(groups as u32);
                    model.set_properties(now, queue, with(cost, slots), &mut out);
                }
                _ => {
                    let w = work(id as WorkId, queue, groups, cost, time);
                    submitted.insert(w.id, (now, time));
                    model.submit(now, w, &mut out);
                }
            }
            let used: u64 = model.kernels.values().map(|k| k.running.values().sum::<u64>() * u64::from(k.cost)).sum();
            prop_assert_eq!(used + u64::from(model.free), 64);
        }
        for pid in 0..3 {
            model.restore(now, &[QueueKey { pid, id: 0 }], &mut out);
        }
        let done = finish(&mut model, &mut out);
        prop_assert_eq!(done.len(), submitted.len());
        for (id, start, end) in done {
            let (at, alone) = submitted.remove(&id).expect("once");
            prop_assert!(start >= at && (end - at) * 4 >= alone * 3);
            let launched = out.iter().filter(|p| **p == Progress::Launched(id)).count();
            prop_assert_eq!(launched, 1);
        }
        prop_assert_eq!(model.free, 64);
    }
}
