//! The quality of forecasts of arrivals.
//!
//! `cargo bench -p policies --bench forecast` prints a row for each sequence. Everything is computed from fixed seeds, so
//! two runs differ only in the times that an arrival and a question take.

#[path = "../tests/arrivals/mod.rs"]
mod arrivals;
#[path = "forecast_traces/mod.rs"]
mod traces;

use arrivals::{Arrival, Random, follow, mean_error, pattern, periodic, poisson, renewal};
use policies::forecast::Forecast;
use std::f64::consts::TAU;
use std::hint::black_box;
use std::time::{Duration, Instant};
use traces::{Model, closed, served, two_clients};

/// Arrivals that are not counted.
const LEARNING: usize = 32;
const COUNT: usize = 4_000;
/// Twenty in a second.
const PERIOD_US: f64 = 50e3;

/// A name, the arrivals for a seed, and whether there is anything to foresee.
struct Case {
    name: String,
    make: Box<dyn Fn(u64) -> Vec<Arrival>>,
}

fn case(name: impl Into<String>, make: impl Fn(u64) -> Vec<Arrival> + 'static) -> Case {
    Case { name: name.into(), make: Box::new(make) }
}

fn synthetic() -> Vec<Case> {
    let mut cases = Vec::new();
    for percent in [0, 1, 5, 20] {
        let jitter = f64::from(percent) / 100.0;
        cases.push(case(format!("periodic, jitter {percent} %"), move |seed| {
            periodic(COUNT, PERIOD_US, jitter, 0.0, seed)
        }));
    }
    for percent in [1, 5] {
        let jitter = f64::from(percent) / 100.0;
        cases.push(case(format!("each interval varies by {percent} %"), move |seed| {
            let mut random = Random(seed);
            renewal(COUNT, |_| PERIOD_US * (1.0 + jitter * random.signed()), PERIOD_US / 10.0)
        }));
    }
    for percent in [2, 5, 20] {
        let dropped = f64::from(percent) / 100.0;
        cases.push(case(format!("periodic, jitter 1 %, {percent} % dropped"), move |seed| {
            periodic(COUNT, PERIOD_US, 0.01, dropped, seed)
        }));
    }
    let burst: &[f64] = &[0.0, 8e3, 16e3];
    cases.push(case("bursts of 3, jitter 0.2 ms", move |seed| pattern(COUNT / 3, 150e3, burst, 200.0, seed)));
    cases.push(case("bursts of 3, jitter 0.2 ms, 5 % dropped", move |seed| {
        let mut random = Random(seed ^ 77);
        let mut all = pattern(COUNT / 3, 150e3, burst, 200.0, seed);
        all.retain(|_| random.unit() >= 0.05);
        all
    }));
    cases.push(case("long and short in turn, jitter 0.5 ms", |seed| {
        pattern(COUNT / 2, 100e3, &[0.0, 30e3], 500.0, seed)
    }));
    let seven: &[f64] = &[0.0, 10e3, 20e3, 60e3, 75e3, 110e3, 190e3];
    cases
        .push(case("pattern of 7, jitter 0.2 ms", move |seed| pattern(COUNT / 7, 250e3, seven, 200.0, seed)));
    cases.push(case("bursts of 1 to 4, at random", |seed| {
        let mut random = Random(seed);
        let mut left = 0;
        renewal(
            COUNT,
            |_| {
                if left == 0 {
                    left = 1 + (random.unit() * 4.0) as usize;
                }
                left -= 1;
                if left == 0 { 60e3 } else { 8e3 + 200.0 * random.signed() }
            },
            800.0,
        )
    }));
    cases.push(case("interval swings by 30 % over 200, jitter 0.2 %", |seed| {
        let mut random = Random(seed);
        renewal(
            COUNT,
            |index| PERIOD_US * (1.0 + 0.3 * (TAU * index as f64 / 200.0).sin() + 0.002 * random.signed()),
            PERIOD_US / 10.0,
        )
    }));
    cases.push(case("interval grows by 0.05 % each, jitter 0.2 %", |seed| {
        let mut random = Random(seed);
        renewal(
            COUNT,
            |index| PERIOD_US * (1.0005f64.powi(index as i32 % 2_000) + 0.002 * random.signed()),
            PERIOD_US / 10.0,
        )
    }));
    cases.push(case("50 and 35 ms, 100 each, jitter 1 %", |seed| {
        let mut random = Random(seed);
        renewal(
            COUNT,
            |index| {
                let period = if index / 100 % 2 == 0 { 50e3 } else { 35e3 };
                period * (1.0 + 0.01 * random.signed())
            },
            PERIOD_US / 10.0,
        )
    }));
    cases.push(case("Poisson", |seed| poisson(COUNT, PERIOD_US, seed)));
    cases
}

fn recorded() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, period) in
        [("resnet18_bs1", 50e3), ("resnet50_bs1", 20e3), ("bert_bs8", 25e3), ("resnet50_bs256", 100e3)]
    {
        let file = format!("{name}.json");
        let load = move || Model::load(&file);
        let model = load();
        cases.push(case(format!("{name}, one in {} ms", period / 1e3), move |seed| {
            served(&model, COUNT, period, 200.0, seed)
        }));
        let model = load();
        cases.push(case(format!("{name}, each 2 ms after the last"), move |seed| {
            closed(&model, COUNT, 2e3, seed)
        }));
    }
    let model = Model::load("resnet18_bs1.json");
    cases.push(case("resnet18_bs1, clients of 50 and 33.3 ms", move |seed| {
        two_clients(&model, COUNT, [50e3, 100e3 / 3.0], seed)
    }));
    let model = Model::load("resnet18_bs1.json");
    cases.push(case("resnet18_bs1, one in 50 ms, no linger", move |seed| {
        served(&model, COUNT / 4, 50e3, 0.0, seed)
    }));
    cases
}

/// The quality of the forecasts for one sequence: means over the seeds, in percent.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    hit: f64,
    missed: f64,
    error: f64,
    wasted: f64,
    waited: f64,
}

const SEEDS: [u64; 3] = [1, 2, 3];

fn figures(case: &Case) -> Figures {
    let mut mean = Figures::default();
    for seed in SEEDS {
        let sequence = (case.make)(seed);
        let outcome = follow(&sequence, LEARNING);
        let part = 100.0 / SEEDS.len() as f64;
        mean.hit += part * outcome.hit_rate();
        mean.missed += part * outcome.missed_rate();
        mean.error += part * mean_error(&sequence, LEARNING);
        mean.wasted += part * outcome.wasted_share();
        mean.waited += part * outcome.waited_share();
    }
    mean
}

fn table(title: &str, cases: &[Case], sum: &mut Figures) {
    println!("\n{title}");
    println!(
        "hit, missed: % of the arrivals; error: mean absolute, % of the mean interval; wasted, waited: % of the time"
    );
    println!("{:46} {:>6} {:>6} {:>6} {:>6} {:>6}", "", "hit", "missed", "error", "wasted", "waited");
    for case in cases {
        let Figures { hit, missed, error, wasted, waited } = figures(case);
        println!("{:46} {hit:6.1} {missed:6.1} {error:6.2} {wasted:6.2} {waited:6.2}", case.name);
        sum.hit += hit;
        sum.missed += missed;
        sum.error += error;
        sum.wasted += wasted;
        sum.waited += waited;
    }
}

/// Nanoseconds that one arrival takes, and a question after it.
fn cost() -> (f64, f64) {
    const QUESTIONS: u32 = 20;
    let sequence = pattern(COUNT / 3, 150e3, &[0.0, 8e3, 16e3], 200.0, 1);
    let mut forecast = Forecast::default();
    let (mut arrivals, mut questions) = (Duration::ZERO, Duration::ZERO);
    for Arrival { at, idle } in &sequence {
        let start = Instant::now();
        forecast.arrived(black_box(*at));
        let arrived = Instant::now();
        for _ in 0..QUESTIONS {
            black_box(forecast.expect(black_box(*idle)));
        }
        arrivals += arrived - start;
        questions += arrived.elapsed() / QUESTIONS;
    }
    let each = |sum: Duration| sum.as_nanos() as f64 / sequence.len() as f64;
    (each(arrivals), each(questions))
}

fn main() {
    let mut sum = Figures::default();
    let (synthetic, recorded) = (synthetic(), recorded());
    table("Synthetic arrivals", &synthetic, &mut sum);
    table("Arrivals of recorded models", &recorded, &mut sum);
    let count = (synthetic.len() + recorded.len()) as f64;
    let (arrival, question) = cost();
    println!(
        "\nMeans over all {count} sequences: hit {:.1} %, missed {:.1} %, error {:.2} %, wasted {:.2} %, \
         waited {:.2} %; {arrival:.0} ns for an arrival, {question:.0} ns for a question",
        sum.hit / count,
        sum.missed / count,
        sum.error / count,
        sum.wasted / count,
        sum.waited / count,
    );
}
