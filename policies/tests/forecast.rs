//! What a forecast promises for any arrivals, and what it reaches for some.

mod arrivals;

use arrivals::{Arrival, Random, follow, most_wasted, pattern, periodic, poisson, renewal};
use policies::forecast::{Counts, Forecast, Method, Parameters, Window};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::time::Time;
use std::time::Duration;

const LEARNING: usize = 32;

fn method() -> impl Strategy<Value = Method> {
    proptest::sample::select(Method::ALL)
}

/// What happens to a forecast, each some microseconds after the one before.
#[derive(Debug, Clone, Copy)]
enum Step {
    Arrival { after: u64 },
    Ask { after: u64 },
    Hint { after: u64, ahead: u64 },
}

/// Arrivals that repeat a short pattern with some noise, so that there is something to learn and to be wrong about,
/// with questions and hints between them; and now and then anything.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let segment = (vec(600u64..60_000, 1..4), 1usize..40, 0u64..2_000, any::<u64>());
    let regular = segment.prop_map(|(intervals, seasons, noise, seed)| {
        let mut random = Random(seed);
        let mut steps = Vec::new();
        for interval in intervals.iter().cycle().take(intervals.len() * seasons) {
            let asks = (random.unit() * 4.0) as u64;
            steps.extend((0..asks).map(|_| Step::Ask { after: interval / (asks + 1) }));
            if random.unit() < 0.2 {
                steps.push(Step::Hint { after: 0, ahead: (random.unit() * 3_000.0) as u64 });
            }
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
        (0u8..3, span.clone(), span).prop_map(|(kind, after, ahead)| match kind {
            0 => Step::Arrival { after },
            1 => Step::Ask { after },
            _ => Step::Hint { after, ahead },
        }),
        0..20,
    );
    vec(prop_oneof![4 => regular, 1 => wild], 1..6).prop_map(|parts| parts.concat())
}

/// Lets the steps happen, checks each answer, and returns what was wasted.
fn happen(forecast: &mut Forecast, steps: &[Step]) -> Vec<(Time, Time)> {
    let mut now = Time(7_000_000_000);
    let mut open: Option<Window> = None;
    let mut wasted = Vec::new();
    for step in steps {
        let (Step::Arrival { after } | Step::Ask { after } | Step::Hint { after, .. }) = step;
        now = now.after(Duration::from_micros(*after));
        if let Some(window) = open.filter(|window| window.until < now) {
            wasted.push((window.start, window.until));
            open = None;
        }
        match step {
            Step::Arrival { .. } => {
                let hits = forecast.learnt().hit + forecast.hints().hit;
                let early = forecast.learnt().early + forecast.hints().early;
                forecast.arrived(now);
                let came = forecast.learnt().hit + forecast.hints().hit > hits;
                let too_early = forecast.learnt().early + forecast.hints().early > early;
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
            Step::Hint { ahead, .. } => {
                let at = now.after(Duration::from_micros(*ahead));
                let told = forecast.announce(at, now);
                assert_eq!(told, at > now);
                if let Some(window) = open.filter(|window| told && window.start < now) {
                    wasted.push((window.start, now));
                }
                open = open.filter(|_| !told);
            }
        }
    }
    for counts in [forecast.learnt(), forecast.hints()] {
        let Counts { announced, hit, early, missed, withdrawn, .. } = counts;
        let over = hit + early + missed + withdrawn;
        assert!(over <= announced && announced <= over + 1);
    }
    wasted
}

proptest! {
    #[test]
    fn what_is_expected_lies_ahead_and_what_is_wasted_within_the_budget(
        steps in steps(),
        method in method(),
        lead in 0u64..2_000,
        horizon in 1u64..2_000,
        budget in 0.0f64..0.1,
    ) {
        let horizon = Duration::from_millis(horizon);
        let parameters = Parameters { budget, horizon, ..Parameters::default() };
        let mut forecast = Forecast::new(method, parameters);
        forecast.set_lead(Duration::from_micros(lead));
        let wasted = happen(&mut forecast, &steps);
        prop_assert!(most_wasted(&wasted, horizon) as f64 <= horizon.as_nanos() as f64 * budget);
        // Windows that are over, but that nobody has asked about since, are not counted yet.
        let counted = forecast.learnt().wasted + forecast.hints().wasted;
        let sum = wasted.iter().map(|(start, end)| end.since(*start)).sum::<Duration>();
        prop_assert!(counted <= sum);
    }

    #[test]
    fn the_same_arrivals_give_the_same_windows(steps in steps(), method in method()) {
        let run = || {
            let mut forecast = Forecast::new(method, Parameters::default());
            let wasted = happen(&mut forecast, &steps);
            (wasted, forecast.learnt(), forecast.hints(), format!("{forecast:?}"))
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_periodic_source_is_foreseen_whatever_its_period(
        period_us in 1_500.0f64..400_000.0,
        jitter in 0.0f64..0.01,
        seed: u64,
        method in method(),
    ) {
        let sequence = periodic(1_000, period_us, jitter, 0.0, seed);
        let outcome = follow(method, Parameters::default(), &sequence, LEARNING);
        prop_assert!(outcome.hit_rate() >= 0.93, "{outcome:?}");
    }

    #[test]
    fn a_pattern_is_foreseen_whatever_it_is(
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
        let outcome = follow(Method::DEFAULT, Parameters::default(), &sequence, sequence.len() / 2);
        prop_assert!(outcome.hit_rate() >= 0.9, "{:?}", (outcome.hit_rate(), outcome.counts));
    }
}

#[test]
fn small_jitter_leaves_95_percent_of_hits() {
    for seed in 0..10 {
        for (jitter, dropped) in [(0.0, 0.0), (0.001, 0.0), (0.01, 0.0), (0.01, 0.02)] {
            let sequence = periodic(4_000, 50e3, jitter, dropped, seed);
            let outcome = follow(Method::DEFAULT, Parameters::default(), &sequence, LEARNING);
            assert!(outcome.hit_rate() >= 0.95, "seed {seed}, {jitter}, {dropped}: {}", outcome.hit_rate());
        }
    }
}

#[test]
fn random_arrivals_are_not_expected() {
    for method in Method::ALL {
        for seed in 0..10 {
            let sequence = poisson(4_000, 50e3, seed);
            let outcome = follow(*method, Parameters::default(), &sequence, LEARNING);
            assert!(outcome.counts.announced <= 20, "{method} {seed}: {:?}", outcome.counts);
            assert!(outcome.wasted_share() < 0.001);
        }
    }
}

/// How many arrivals after a change pass until five in a row are hit.
fn learnt_after(before_us: f64, after_us: f64, seed: u64) -> usize {
    const CHANGE: usize = 200;
    let mut random = Random(seed);
    let sequence = renewal(
        2 * CHANGE,
        |index| (if index < CHANGE { before_us } else { after_us }) * (1.0 + 0.01 * random.signed()),
        100.0,
    );
    let mut forecast = Forecast::new(Method::DEFAULT, Parameters::default());
    let (mut hits, mut row) = (0, 0);
    for (index, Arrival { at, idle }) in sequence.iter().enumerate() {
        forecast.arrived(*at);
        row = if forecast.learnt().hit > hits { row + 1 } else { 0 };
        hits = forecast.learnt().hit;
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
fn a_change_of_the_rate_is_learnt() {
    for (before, after) in
        [(50e3, 35e3), (35e3, 50e3), (50e3, 52e3), (50e3, 100e3), (100e3, 50e3), (20e3, 500e3)]
    {
        for seed in 0..5 {
            let arrivals = learnt_after(before, after, seed);
            assert!(arrivals <= 60, "from {before} to {after}, seed {seed}: {arrivals} arrivals");
        }
    }
}

#[test]
fn a_source_that_deceives_spends_the_budget_and_no_more() {
    // Of three requests one is dropped: each is waited for in vain.
    let sequence = periodic(6_000, 50e3, 0.01, 0.33, 3);
    for method in Method::ALL {
        let horizon = Duration::from_secs(10);
        let parameters = Parameters { budget: 0.001, horizon, ..Parameters::default() };
        let outcome = follow(*method, parameters, &sequence, LEARNING);
        assert!(most_wasted(&outcome.wasted, horizon) <= 10_000_000, "{method}");
    }
    // With a larger one the same source wastes more than that: it was the budget that held it back.
    let free =
        follow(Method::Regression, Parameters { budget: 0.5, ..Parameters::default() }, &sequence, LEARNING);
    assert!(most_wasted(&free.wasted, Duration::from_secs(10)) > 10_000_000, "{:?}", free.counts);
}

const MS: u64 = 1_000_000;

fn hinted(parameters: Parameters) -> Forecast {
    let mut forecast = Forecast::new(Method::DEFAULT, parameters);
    forecast.set_lead(Duration::from_micros(100));
    forecast
}

#[test]
fn a_hint_is_expected_and_hit() {
    let mut forecast = hinted(Parameters::default());
    assert_eq!(forecast.expect(Time(MS)), None);
    assert!(!forecast.announce(Time(MS), Time(MS)), "a hint for now is no hint");
    assert_eq!(forecast.expect(Time(MS)), None);
    assert!(forecast.announce(Time(5 * MS), Time(MS)));
    let window =
        Window { start: Time(4_700_000), from: Time(4_800_000), until: Time(5_200_000), hinted: true };
    assert_eq!(forecast.expect(Time(2 * MS)), Some(window));
    assert_eq!(forecast.expect(Time(5_200_000)), Some(window));
    forecast.arrived(Time(5_100_000));
    assert_eq!(forecast.expect(Time(5_150_000)), None);
    let waited = Duration::from_micros(300);
    assert_eq!(forecast.hints(), Counts { announced: 1, hit: 1, waited, ..Counts::default() });
    assert_eq!(forecast.learnt(), Counts::default());
}

#[test]
fn a_hint_comes_before_what_is_learnt_and_then_learning_goes_on() {
    let mut forecast = hinted(Parameters::default());
    (1..=20).for_each(|index| forecast.arrived(Time(index * 50 * MS)));
    let learnt = forecast.expect(Time(1_001 * MS)).unwrap();
    assert!(!learnt.hinted && learnt.from < Time(1_050 * MS) && Time(1_050 * MS) < learnt.until);
    assert!(forecast.announce(Time(1_020 * MS), Time(1_001 * MS)));
    assert!(forecast.expect(Time(1_001 * MS)).unwrap().hinted);
    // It does not come true, and the one that was learnt does.
    assert_eq!(forecast.expect(Time(1_021 * MS)).unwrap(), learnt);
    forecast.arrived(Time(1_050 * MS));
    let wasted = Duration::from_micros(500);
    assert_eq!(forecast.hints(), Counts { announced: 1, missed: 1, wasted, ..Counts::default() });
    let Counts { announced, hit, withdrawn, .. } = forecast.learnt();
    assert_eq!((announced, hit, withdrawn), (2, 1, 1));
}

#[test]
fn hints_that_are_off_get_a_wider_margin() {
    let mut forecast = hinted(Parameters::default());
    let mut now = 0;
    for _ in 0..10 {
        now += 50 * MS;
        assert!(forecast.announce(Time(now + 2 * MS), Time(now)));
        forecast.expect(Time(now));
        forecast.arrived(Time(now + 5 * MS));
    }
    let missed = forecast.hints().missed;
    assert!(missed >= 6);
    now += 50 * MS;
    assert!(forecast.announce(Time(now + 10 * MS), Time(now)));
    let window = forecast.expect(Time(now)).unwrap();
    assert!(window.until >= Time(now + 13 * MS));
    forecast.arrived(Time(now + 13 * MS));
    assert_eq!(forecast.hints().missed, missed);
}

#[test]
fn hints_that_lie_cost_no_more_than_the_budget() {
    let parameters = Parameters { horizon: Duration::from_secs(1), ..Parameters::default() };
    let mut forecast = hinted(parameters);
    let mut wasted = Vec::new();
    for now in (0..10_000).map(|index| Time(index * MS)) {
        forecast.announce(now.after(Duration::from_micros(300)), now);
        if let Some(window) = forecast.expect(now) {
            wasted.push((window.start, window.until));
        }
    }
    let most = most_wasted(&wasted, parameters.horizon);
    assert!((10_000_000..=20_000_000).contains(&most), "{most}");
    assert!(forecast.hints().missed > 200);
}

#[test]
fn a_later_hint_takes_the_place_of_an_earlier_one() {
    let mut forecast = hinted(Parameters::default());
    forecast.announce(Time(5 * MS), Time(MS));
    assert!(forecast.expect(Time(4_750_000)).is_some());
    assert!(forecast.announce(Time(9 * MS), Time(4_750_000)));
    assert_eq!(forecast.expect(Time(5 * MS)).unwrap().from, Time(8_800_000));
    let wasted = forecast.hints().wasted;
    assert_eq!(
        (forecast.hints().withdrawn, wasted),
        (1, Duration::ZERO),
        "asked when it was to begin already"
    );
    assert!(forecast.announce(Time(12 * MS), Time(8_900_000)));
    assert_eq!((forecast.hints().withdrawn, forecast.hints().wasted), (2, Duration::from_micros(200)));
}

#[test]
fn commands_of_one_work_are_one_arrival() {
    let mut forecast = hinted(Parameters::default());
    for index in 0..40 {
        for command in 0..100 {
            forecast.arrived(Time(index * 50 * MS + command * 20_000));
        }
    }
    let next = forecast.expect(Time(39 * 50 * MS + 5 * MS)).unwrap();
    assert!(next.from < Time(2_000 * MS) && Time(2_000 * MS) < next.until);
}

#[test]
fn a_source_that_has_stopped_is_given_up() {
    let mut forecast = hinted(Parameters::default());
    (1..=40).for_each(|index| forecast.arrived(Time(index * 50 * MS)));
    let mut now = Time(2_001 * MS);
    while let Some(window) = forecast.expect(now) {
        now = Time(window.until.0 + 1);
    }
    assert_eq!(forecast.learnt().missed, 3);
    assert_eq!(forecast.expect(Time(1 << 50)), None);
    forecast.arrived(Time(1 << 50));
    let next = forecast.expect(Time((1 << 50) + MS)).unwrap();
    assert!(next.from < Time((1 << 50) + 50 * MS) && Time((1 << 50) + 50 * MS) < next.until);
}

#[test]
fn parameters_out_of_range_allow_nothing_or_all() {
    let never = [
        Parameters { share: f64::NAN, ..Parameters::default() },
        Parameters { share: -1.0, ..Parameters::default() },
        Parameters { budget: f64::NAN, ..Parameters::default() },
        Parameters { budget: -1.0, ..Parameters::default() },
        Parameters { horizon: Duration::ZERO, ..Parameters::default() },
    ];
    let sequence = periodic(200, 50e3, 0.0, 0.0, 1);
    for parameters in never {
        assert_eq!(follow(Method::DEFAULT, parameters, &sequence, 100).counts, Counts::default());
    }
    let all =
        Parameters { share: f64::INFINITY, budget: 9.0, horizon: Duration::MAX, ..Parameters::default() };
    assert_eq!(follow(Method::DEFAULT, all, &sequence, 100).counts.hit, 99);
}
