//! MLFQ: levels, slices, promotion, and no starvation.

mod common;

use common::engine;
use common::play::{Actor, MS, Play, Setup, Work, play};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::policy::PolicyKind;

fn run(actors: &[Actor], until: u64) -> Play {
    play(&mut engine(PolicyKind::Mlfq, &[]), actors, Setup::until(until * MS))
}

fn jobs(jobs: &[(u64, u64)]) -> Actor {
    Actor::new(0, Work::Jobs(jobs.iter().map(|&(at, length)| (at * MS, length * MS)).collect()))
}

fn always() -> Actor {
    Actor::new(0, Work::Always)
}

fn in_ms(spans: &[(u64, u64)]) -> Vec<(u64, u64)> {
    spans.iter().map(|&(from, to)| (from / MS, to / MS)).collect()
}

#[test]
fn slices_double_from_level_to_level() {
    let play = run(&[always(), always()], 460);
    assert_eq!(in_ms(&play.spans[0]), [(0, 10), (20, 40), (60, 100), (140, 220), (300, 380)]);
    assert_eq!(in_ms(&play.spans[1]), [(10, 20), (40, 60), (100, 140), (220, 300), (380, 460)]);
    assert!(play.decisions <= 12, "one at the end of each slice: {}", play.decisions);
}

#[test]
fn short_work_comes_before_long_work_and_interrupts_no_slice_for_good() {
    let play = run(&[always(), always(), jobs(&[(150, 3)])], 300);
    assert_eq!(in_ms(&play.spans[2]), [(150, 153)]);
    assert_eq!(in_ms(&play.spans[0])[3..], [(140, 150), (153, 223)], "the rest of 80 ms");
}

#[test]
fn pause_before_the_end_of_a_slice_does_not_keep_the_level() {
    // It works 9 of every 10 ms. After 10 ms of device time it is on level 1, and interrupts no other entity.
    let sly: Vec<_> = (0..20).map(|number| (number * 10, 9)).collect();
    let play = run(&[jobs(&sly), jobs(&[(11, 9)])], 60);
    assert_eq!(in_ms(&play.spans[0])[..2], [(0, 9), (10, 11)]);
    // The new entity is on level 0 for all its 9 ms.
    assert_eq!(in_ms(&play.done[1]), [(11, 20)]);
}

#[test]
fn idle_time_promotes() {
    let burst = |gap: u64| [always(), jobs(&[(0, 150), (1_000 + gap, 5)])];
    let long = run(&burst(1_000), 2_200);
    assert_eq!(in_ms(&long.done[1]).last(), Some(&(2_000, 2_005)), "on level 0 it runs at once");
    // It goes on with its jobs without a pause: the second one waits for its slice on the lowest level.
    let busy = run(&[always(), jobs(&[(0, 400), (0, 300)])], 2_200);
    let (arrival, end) = busy.done[1][1];
    assert_eq!(arrival, 0);
    assert!(end > 1_000 * MS, "{end}");
}

#[test]
fn waiting_promotes() {
    // Three on the lowest level with slices of 80 ms wait for 160 ms: each gets one level up after 100 ms.
    let play = run(&[always(), always(), always()], 3_000);
    for spans in &play.spans {
        let gaps: Vec<_> = spans.windows(2).map(|pair| (pair[1].0 - pair[0].1) / MS).collect();
        assert!(gaps.iter().all(|gap| *gap <= 160), "{gaps:?}");
    }
    let used: Vec<_> = play.used.iter().map(|used| used / 3e9).collect();
    assert!(used.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.04), "{used:?}");
}

#[test]
fn device_runs_one_entity_at_a_time() {
    let mut both = always();
    both.queues.push(common::queue(2, 2, 0, false));
    let mut second = always();
    second.queues[0].device.0 = 2;
    let play = run(&[both, always(), second], 1_000);
    // The two single ones run side by side, and never beside the one with both devices.
    for (from, to) in &play.spans[0] {
        for spans in &play.spans[1..] {
            assert!(spans.iter().all(|(start, end)| end <= from || start >= to));
        }
    }
    assert!((play.used[0] + play.used[1] - 1e9).abs() < 1.0);
    assert!((play.used[0] + play.used[2] - 1e9).abs() < 1.0);
}

#[test]
fn parameters_change_between_decisions() {
    let actors = [always(), always()];
    let small = play(
        &mut engine(PolicyKind::Mlfq, &[("levels", 1.0), ("slice-ms", 2.5)]),
        &actors,
        Setup::until(20 * MS),
    );
    assert_eq!(
        small.spans[0],
        [(0, 5), (10, 15), (20, 25), (30, 35)].map(|(from, to)| (from * MS / 2, to * MS / 2))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn wait_is_bounded_by_the_promotion_to_the_highest_level(
        saturating in 1usize..6,
        pests in vec((1u64..10, 1u64..12, 0u64..8), 0..4),
        slice in 1u32..30, promote in 5u32..200, levels in 1u32..6,
    ) {
        let mut actors = vec![always(); saturating];
        // Those that come again and again, some of them with short work that keeps its level for long.
        actors.extend(pests.iter().map(|&(length, pause, first)| {
            let arrivals = (0..).map(|number| first + number * (length + pause)).take_while(|at| *at < 3_000);
            jobs(&arrivals.map(|at| (at, length)).collect::<Vec<_>>())
        }));
        let parameters = [("levels", levels.into()), ("slice-ms", slice.into()), ("promote-ms", promote.into())];
        let play = play(&mut engine(PolicyKind::Mlfq, &parameters), &actors, Setup::until(3_000 * MS));
        // The time until it reaches the highest level, then a slice of each other entity.
        let others = actors.len() as u64 - 1;
        let bound = u64::from(promote) * u64::from(levels - 1) + others * (u64::from(slice) + 1);
        for spans in play.spans.iter().take(saturating) {
            let mut last = 0;
            for (from, to) in spans.iter().copied().chain([(3_000 * MS, 3_000 * MS)]) {
                prop_assert!(from.saturating_sub(last) <= bound * MS, "{} > {bound}", (from - last) / MS);
                last = to;
            }
        }
        // Work conservation: an entity always works.
        prop_assert!((play.used.iter().sum::<f64>() - 3e9).abs() < 1.0);
    }
}
