//! Forecasts: guarantees for any arrivals, and quality for some.

mod arrivals;

use arrivals::{Arrival, Random, follow, pattern, periodic, poisson, renewal};
use policies::forecast::{Counts, Forecast, Window};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::time::Time;
use std::time::Duration;

const LEARNING: usize = 32;

/// An event of a forecast, each some microseconds after the one before.
#[derive(Debug, Clone, Copy)]
enum Step {
    Arrival { after: u64 },
    Ask { after: u64 },
}

/// Arrivals that repeat a short pattern with some noise, so that there is something to learn and to be wrong about,
/// with questions between them; and now and then anything.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let segment = (vec(600u64..60_000, 1..4), 1usize..40, 0u64..2_000, any::<u64>());
    let regular = segment.prop_map(|(intervals, seasons, noise, seed)| {
        let mut random = Random(seed);
        let mut steps = Vec::new();
        for interval in intervals.iter().cycle().take(intervals.len() * seasons) {
            let asks = (random.unit() * 4.0) as u64;
            steps.extend((0..asks).map(|_| Step::Ask { after: interval / (asks + 1) }));
            steps.push(Step::Ask { after: 0 });
            if random.unit() < 0.9 {
                let noise = (random.unit() * noise as f64) as u64;
                steps.push(Step::Arrival { after: interval / (asks + 1) + noise });
            }
        }
        steps
    });
    let span = prop_oneof![0u64..100, 0u64..100_000, 0u64..1 << 44];
    let wild = vec(
        (any::<bool>(), span).prop_map(|(arrival, after)| match arrival {
            true => Step::Arrival { after },
            false => Step::Ask { after },
        }),
        0..20,
    );
    vec(prop_oneof![4 => regular, 1 => wild], 1..6).prop_map(|parts| parts.concat())
}

/// Lets the steps happen, and checks each answer.
fn happen(forecast: &mut Forecast, steps: &[Step]) {
    let mut now = Time(7_000_000_000);
    let mut open: Option<Window> = None;
    let mut wasted = Duration::ZERO;
    for step in steps {
        let (Step::Arrival { after } | Step::Ask { after }) = step;
        now = now.after(Duration::from_micros(*after));
        if let Some(window) = open.filter(|window| window.until < now) {
            wasted += window.until.since(window.start);
            open = None;
        }
        match step {
            Step::Arrival { .. } => {
                let before = forecast.counts();
                forecast.arrived(now);
                let came = forecast.counts().hit > before.hit;
                let too_early = forecast.counts().early > before.early;
                if let Some(window) = open {
                    assert!(!came || window.from <= now);
                    assert!(!too_early || now < window.from);
                    // A second command of the same work leaves a window that has not begun.
                    assert!(came || too_early || now < window.start);
                }
                open = open.filter(|_| !came && !too_early);
            }
            Step::Ask { .. } => {
                let window = forecast.expect(now);
                assert!(open.is_none() || window == open, "{open:?} became {window:?}");
                if let Some(window) = window {
                    assert!(
                        now <= window.until && window.start <= window.from && window.from <= window.until
                    );
                    assert!(open.is_some() || now <= window.start, "{window:?} began before {now:?}");
                }
                assert_eq!(forecast.expect(now), window);
                open = window;
            }
        }
    }
    // A window that is over, but that was not asked about since, is not counted yet.
    forecast.expect(now);
    let Counts { announced, hit, early, missed, wasted: counted, .. } = forecast.counts();
    let over = hit + early + missed;
    assert!(over <= announced && announced <= over + 1);
    assert_eq!(counted, wasted);
}

proptest! {
    #[test]
    fn windows_lie_ahead_and_are_reproducible(
        steps in steps(),
        lead in 0u64..2_000,
    ) {
        let run = || {
            let mut forecast = Forecast::default();
            forecast.set_lead(Duration::from_micros(lead));
            happen(&mut forecast, &steps);
            format!("{forecast:?}")
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn periodic_source_is_foreseen_with_any_period(
        period_us in 1_500.0f64..400_000.0,
        jitter in 0.0f64..0.01,
        seed: u64,
    ) {
        let sequence = periodic(1_000, period_us, jitter, 0.0, seed);
        let outcome = follow(&sequence, LEARNING);
        prop_assert!(outcome.hit_rate() >= 0.93, "{outcome:?}");
    }

    #[test]
    fn any_pattern_is_foreseen(
        gaps in vec(2_000.0f64..200_000.0, 1..8),
        seed: u64,
    ) {
        let mut offsets = vec![0.0];
        let mut period = gaps[0];
        for gap in &gaps[1..] {
            offsets.push(period);
            period += gap;
        }
        let sequence = pattern(200, period, &offsets, 20.0, seed);
        // Lengths that are close to each other, or multiples, can be taken for a shorter pattern for a while.
        let outcome = follow(&sequence, sequence.len() / 2);
        prop_assert!(outcome.hit_rate() >= 0.9, "{:?}", (outcome.hit_rate(), outcome.counts));
    }
}

#[test]
fn small_jitter_leaves_95_percent_of_hits() {
    for seed in 0..10 {
        for (jitter, dropped) in [(0.0, 0.0), (0.001, 0.0), (0.01, 0.0), (0.01, 0.02)] {
            let sequence = periodic(4_000, 50e3, jitter, dropped, seed);
            let outcome = follow(&sequence, LEARNING);
            assert!(outcome.hit_rate() >= 0.95, "seed {seed}, {jitter}, {dropped}: {}", outcome.hit_rate());
        }
    }
}

#[test]
fn random_arrivals_are_not_expected() {
    for seed in 0..10 {
        let sequence = poisson(4_000, 50e3, seed);
        let outcome = follow(&sequence, LEARNING);
        assert!(outcome.counts.announced <= 20, "{seed}: {:?}", outcome.counts);
        assert!(outcome.wasted_share() < 0.001);
    }
}

/// Returns the number of arrivals after a change until five in a row are hits.
fn learnt_after(before_us: f64, after_us: f64, seed: u64) -> usize {
    const CHANGE: usize = 200;
    let mut random = Random(seed);
    let sequence = renewal(
        2 * CHANGE,
        |index| (if index < CHANGE { before_us } else { after_us }) * (1.0 + 0.01 * random.signed()),
        100.0,
    );
    let mut forecast = Forecast::default();
    let (mut hits, mut row) = (0, 0);
    for (index, Arrival { at, idle }) in sequence.iter().enumerate() {
        forecast.arrived(*at);
        row = if forecast.counts().hit > hits { row + 1 } else { 0 };
        hits = forecast.counts().hit;
        if index > CHANGE && row == 5 {
            return index - CHANGE;
        }
        let mut now = *idle;
        while let Some(window) = forecast.expect(now) {
            if sequence.get(index + 1).is_none_or(|next| window.until >= next.at) {
                break;
            }
            now = Time(window.until.0 + 1);
        }
    }
    usize::MAX
}

#[test]
fn change_of_the_rate_is_learnt() {
    for (before, after) in
        [(50e3, 35e3), (35e3, 50e3), (50e3, 52e3), (50e3, 100e3), (100e3, 50e3), (20e3, 500e3)]
    {
        for seed in 0..5 {
            let arrivals = learnt_after(before, after, seed);
            assert!(arrivals <= 60, "from {before} to {after}, seed {seed}: {arrivals} arrivals");
        }
    }
}

const MS: u64 = 1_000_000;

#[test]
fn commands_of_one_work_are_one_arrival() {
    let mut forecast = Forecast::default();
    for index in 0..40 {
        for command in 0..100 {
            forecast.arrived(Time(index * 50 * MS + command * 20_000));
        }
    }
    let next = forecast.expect(Time(39 * 50 * MS + 5 * MS)).unwrap();
    assert!(next.from < Time(2_000 * MS) && Time(2_000 * MS) < next.until);
}

#[test]
fn stopped_source_is_given_up() {
    let mut forecast = Forecast::default();
    (1..=40).for_each(|index| forecast.arrived(Time(index * 50 * MS)));
    let mut now = Time(2_001 * MS);
    while let Some(window) = forecast.expect(now) {
        now = Time(window.until.0 + 1);
    }
    assert_eq!(forecast.counts().missed, 3);
    assert_eq!(forecast.expect(Time(1 << 50)), None);
    forecast.arrived(Time(1 << 50));
    let next = forecast.expect(Time((1 << 50) + MS)).unwrap();
    assert!(next.from < Time((1 << 50) + 50 * MS) && Time((1 << 50) + 50 * MS) < next.until);
}
