//! From the runs of all modes to the figures: pure arithmetic, and the table.

use super::agreement::Agreement;
use super::cast::{Check, Scene};
use super::{EQUAL, WITHOUT};
use crate::replay::Record;
use crate::stats::Samples;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What runs at the same time, and who decides.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mode {
    /// One program, by its place.
    Alone(usize),
    /// All, without the library.
    Native,
    /// All, with the library under `xserver`, at one priority: nobody is suspended.
    Equal,
    /// All, with the library under `xserver` with this policy.
    Policy(String),
}

impl Mode {
    pub fn name(&self, scene: &Scene) -> String {
        match self {
            Self::Alone(place) => format!("{} alone", scene.parts[*place].name),
            Self::Native => WITHOUT.to_owned(),
            Self::Equal => EQUAL.to_owned(),
            Self::Policy(policy) => policy.clone(),
        }
    }

    /// The policy, where one decides.
    pub fn policy(&self) -> Option<&str> {
        match self {
            Self::Policy(policy) => Some(policy),
            Self::Equal => Some("HPF"),
            Self::Alone(_) | Self::Native => None,
        }
    }

    /// The places of the programs that run.
    pub fn parts(&self, scene: &Scene) -> std::ops::Range<usize> {
        match self {
            Self::Alone(place) => *place..*place + 1,
            _ => 0..scene.parts.len(),
        }
    }
}

/// What one run of one mode gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Of each program that ran.
    pub records: Vec<Option<Record>>,
    /// Suspensions by the library, of all programs.
    pub suspensions: u64,
    /// How often the server decided.
    pub decisions: u64,
    /// What the policy counted, by its names.
    pub counted: BTreeMap<String, u64>,
    /// For how long the server was watched, seconds.
    pub server_s: f64,
}

impl Outcome {
    /// A few words, for the one who waits.
    pub fn words(&self, scene: &Scene) -> String {
        let one = |(part, record): (&super::cast::Part, &Option<Record>)| {
            let record = record.as_ref()?;
            let latencies = Samples::new(record.latencies_ms())?;
            Some(match part.load {
                Some(_) => format!(
                    "{} p50 {:.2}, p99 {:.2} ms",
                    part.name,
                    latencies.median(),
                    latencies.percentile(99.0)
                ),
                None => format!("{} {:.2}/s", part.name, record.per_second(false)),
            })
        };
        let words: Vec<_> = scene.parts.iter().zip(&self.records).filter_map(one).collect();
        words.join("; ")
    }
}

/// The figures of one program in one mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartFigures {
    /// Which program.
    pub part: String,
    /// Median latency in milliseconds, the median of the blocks; back to back, of one inference.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Requests or inferences a second; mean of the blocks.
    pub per_s: f64,
    /// Requests that took longer than the program's deadline, all blocks; nothing without one.
    pub misses: Option<usize>,
    /// Requests, all blocks.
    pub requests: usize,
    /// Its part of the device time of all programs.
    pub share: f64,
}

/// The figures of one mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModeFigures {
    /// Which mode: "urgent alone", "without giveway", "all at one priority", or a policy with its parameters.
    pub mode: String,
    /// Of each program that ran.
    pub parts: Vec<PartFigures>,
    /// Device time of all programs, as recorded, a second of run time.
    pub busy: f64,
    /// Suspensions by the library, all programs and blocks.
    pub suspensions: u64,
    /// How often the server decided, all blocks; 0 where there is none.
    pub decisions: u64,
    /// What the policy counted meanwhile, by its names (docs/policies.md), all blocks.
    pub counted: BTreeMap<String, u64>,
    /// For how long it decided, seconds, all blocks; 0 where nobody does.
    pub server_s: f64,
    /// What the scenario asks of a policy; empty where none decides.
    pub checks: Vec<Judged>,
}

/// A limit, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// What is judged, with the limit.
    pub what: String,
    /// What it came to.
    pub value: f64,
    /// Whether that is within the limit.
    pub met: bool,
}

/// All figures of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Its name.
    pub scenario: String,
    /// What it is.
    pub about: String,
    /// Always: no figure here is a GPU measurement.
    pub device: &'static str,
    /// How the simulated device shares its compute units.
    pub cu_model: &'static str,
    /// The preemption level that was asked for.
    pub level: u8,
    /// Seconds in which requests arrived, each block.
    pub seconds: f64,
    /// Of each mode.
    pub modes: Vec<ModeFigures>,
    /// What simulation says; nothing where the scenario is no workload of `xbench policy-sim`.
    pub agreement: Option<Agreement>,
}

impl Figures {
    /// `device_us` is what the device works for one inference of each program.
    pub(super) fn new(
        scene: &Scene,
        cu_model: &'static str,
        level: u8,
        seconds: f64,
        device_us: Vec<f64>,
        results: Vec<(Mode, Vec<Outcome>)>,
    ) -> Result<Self> {
        let mut modes = Vec::new();
        for (mode, outcomes) in &results {
            modes.push(mode_figures(scene, mode, outcomes, &device_us)?);
        }
        for place in 0..modes.len() {
            if let (Mode::Policy(_), _) = &results[place] {
                let checks = scene.checks.iter().map(|check| judge(*check, &modes[place], &modes));
                modes[place].checks =
                    checks.collect::<Option<_>>().context("a scenario judges what did not run")?;
            }
        }
        Ok(Self {
            scenario: scene.name.to_owned(),
            about: scene.about.clone(),
            device: "simulated GPU",
            cu_model,
            level,
            seconds,
            modes,
            agreement: None,
        })
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}: {}; simulated GPU, compute units {}, level {}\n\n",
            self.scenario, self.about, self.cu_model, self.level
        );
        let _ = writeln!(
            text,
            "{:<36} {:<8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7} {:>12} {:>10}",
            "milliseconds",
            "program",
            "p50",
            "p99",
            "per s",
            "missed",
            "share",
            "busy",
            "suspensions",
            "decisions"
        );
        for mode in &self.modes {
            for (number, part) in mode.parts.iter().enumerate() {
                let first = number == 0;
                let missed =
                    part.misses.map_or("-".to_owned(), |misses| format!("{misses}/{}", part.requests));
                let _ = writeln!(
                    text,
                    "{:<36} {:<8} {:>9.2} {:>9.2} {:>9.2} {:>8} {:>7.1}% {:>7} {:>12} {:>10}",
                    if first { mode.mode.as_str() } else { "" },
                    part.part,
                    part.p50_ms,
                    part.p99_ms,
                    part.per_s,
                    missed,
                    part.share * 100.0,
                    if first { format!("{:.2}", mode.busy) } else { String::new() },
                    if first { mode.suspensions.to_string() } else { String::new() },
                    if first { mode.decisions.to_string() } else { String::new() },
                );
            }
        }
        text.push('\n');
        for mode in &self.modes {
            for check in &mode.checks {
                let word = if check.met { "met" } else { "MISSED" };
                let _ = writeln!(text, "{:<36} {}: {:.3}, {word}", mode.mode, check.what, check.value);
            }
        }
        if let Some(agreement) = &self.agreement {
            text.push('\n');
            text += &agreement.table();
        }
        text
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}

fn mode_figures(scene: &Scene, mode: &Mode, outcomes: &[Outcome], device_us: &[f64]) -> Result<ModeFigures> {
    let records = |place: usize| outcomes.iter().filter_map(move |outcome| outcome.records[place].as_ref());
    let work = |place: usize| {
        let open = scene.parts[place].load.is_some();
        mean(records(place).map(|record| record.per_second(open))) * device_us[place] / 1e6
    };
    let busy: f64 = mode.parts(scene).map(work).sum();
    let mut parts = Vec::new();
    for place in mode.parts(scene) {
        let part = &scene.parts[place];
        let of_blocks = |percent: f64| {
            let blocks = records(place).filter_map(|record| Samples::new(record.latencies_ms()));
            Samples::new(blocks.map(|samples| samples.percentile(percent)).collect())
                .map(|samples| samples.median())
                .with_context(|| format!("{} finished nothing", part.name))
        };
        let late = |deadline: f64| {
            records(place).flat_map(Record::latencies_ms).filter(|latency| *latency > deadline).count()
        };
        parts.push(PartFigures {
            part: part.name.clone(),
            p50_ms: of_blocks(50.0)?,
            p99_ms: of_blocks(99.0)?,
            per_s: mean(records(place).map(|record| record.per_second(part.load.is_some()))),
            misses: part.deadline_ms.map(late),
            requests: records(place).map(|record| record.requests.len()).sum(),
            share: work(place) / busy,
        });
    }
    let suspensions = outcomes.iter().map(|outcome| outcome.suspensions).sum();
    let decisions = outcomes.iter().map(|outcome| outcome.decisions).sum();
    let server_s = outcomes.iter().map(|outcome| outcome.server_s).sum();
    let mut counted = BTreeMap::new();
    for (name, count) in outcomes.iter().flat_map(|outcome| &outcome.counted) {
        *counted.entry(name.clone()).or_default() += count;
    }
    let (mode, checks) = (mode.name(scene), Vec::new());
    Ok(ModeFigures { mode, parts, busy, suspensions, decisions, counted, server_s, checks })
}

/// Judges a mode; nothing if a program that is meant did not run.
fn judge(check: Check, mode: &ModeFigures, all: &[ModeFigures]) -> Option<Judged> {
    let here = |name: &str| mode.parts.iter().find(|part| part.part == name);
    let mode_alone = |name: &str| all.iter().find(|mode| mode.mode == format!("{name} alone"));
    let alone = |name: &str| mode_alone(name)?.parts.first();
    let over_alone = |name: &str| Some(here(name)?.p99_ms / alone(name)?.p99_ms);
    Some(match check {
        Check::P99OverAlone(name, most) => {
            let value = over_alone(name)?;
            Judged { what: format!("p99 of {name} over alone <= {most}"), value, met: value <= most }
        }
        Check::P99(name, most) => {
            let value = here(name)?.p99_ms;
            Judged { what: format!("p99 of {name} <= {most} ms"), value, met: value <= most }
        }
        Check::Keeps(name, least) => {
            let value = here(name)?.per_s / alone(name)?.per_s;
            Judged { what: format!("{name} over alone >= {least}"), value, met: value >= least }
        }
        Check::KeepsOfRest(name, other, least) => {
            let rest = 1.0 - mode_alone(other)?.busy;
            let value = here(name)?.per_s / (alone(name)?.per_s * rest);
            let what = format!("{name} over alone in the time that {other} leaves >= {least}");
            Judged { what, value, met: value >= least }
        }
        Check::TotalOverAlone(name, least) => {
            let value = mode.busy / mode_alone(name)?.busy;
            Judged {
                what: format!("work of all over that of {name} alone >= {least}"),
                value,
                met: value >= least,
            }
        }
        Check::Share(name, share, within) => {
            let value = here(name)?.share;
            let what = format!("share of {name} is {share} within {within}");
            Judged { what, value, met: (value - share).abs() <= within }
        }
        Check::Total(least) => {
            let native = all.iter().find(|mode| mode.mode == WITHOUT)?;
            let value = mode.busy / native.busy;
            Judged {
                what: format!("work of all over that without giveway >= {least}"),
                value,
                met: value >= least,
            }
        }
        Check::Before(first, second) => {
            let value = over_alone(first)? / over_alone(second)?;
            Judged { what: format!("{first} is less delayed than {second}"), value, met: value <= 1.0 }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::cast::scenes;
    use super::*;
    use crate::replay::Request;

    fn record(latencies_ms: &[f64], seconds: f64) -> Option<Record> {
        let request = |ms: &f64| Request { arrived_us: 0.0, began_us: 0.0, ended_us: ms * 1e3 };
        Some(Record {
            pid: 1,
            trace: "t".into(),
            warm_up: 3,
            seconds,
            digest: "0".into(),
            requests: latencies_ms.iter().map(request).collect(),
        })
    }

    #[test]
    fn shares_and_limits_are_of_what_ran() {
        let scenes = scenes().unwrap();
        let scene = scenes.iter().find(|scene| scene.name == "shares").unwrap();
        // Back to back the last one ends at the end of the run.
        let run = |ran: &[usize]| {
            let records = ran.iter().map(|&count| record(&vec![10_000.0; count], 10.0).filter(|_| count > 0));
            Outcome { records: records.collect(), suspensions: 5, decisions: 9, ..Outcome::default() }
        };
        let results = vec![
            (Mode::Alone(0), vec![run(&[1000, 0])]),
            (Mode::Alone(1), vec![run(&[0, 1000])]),
            (Mode::Native, vec![run(&[500, 500])]),
            (Mode::Policy("UP".into()), vec![run(&[740, 250])]),
        ];
        let figures = Figures::new(scene, "shared", 1, 10.0, vec![10_000.0, 10_000.0], results).unwrap();
        let up = &figures.modes[3];
        assert!((up.parts[0].share - 740.0 / 990.0).abs() < 1e-9);
        assert_eq!(up.checks.iter().map(|check| check.met).collect::<Vec<_>>(), [true; 3]);
        assert!((up.checks[1].value - 0.99).abs() < 1e-9, "{:?}", up.checks);
        assert!((up.checks[2].value - 0.99).abs() < 1e-9, "{:?}", up.checks);
        assert!(figures.modes[2].checks.is_empty());
        assert!(
            figures.table().contains("share of first is 0.75 within 0.01: 0.747, met"),
            "{}",
            figures.table()
        );
    }

    #[test]
    fn misses_are_counted_against_the_deadline() {
        let scenes = scenes().unwrap();
        let scene = scenes.iter().find(|scene| scene.name == "two-models").unwrap();
        let run = |urgent: &[f64], batch: usize| Outcome {
            records: vec![
                record(urgent, 1.0).filter(|_| !urgent.is_empty()),
                record(&vec![1000.0; batch], 1.0).filter(|_| batch > 0),
            ],
            ..Outcome::default()
        };
        let results = vec![
            (Mode::Alone(0), vec![run(&[2.0, 4.0], 0)]),
            (Mode::Alone(1), vec![run(&[], 100)]),
            (Mode::Native, vec![run(&[80.0, 90.0], 99)]),
            (Mode::Policy("HPF".into()), vec![run(&[3.0, 60.0], 98)]),
        ];
        // Alone the urgent one needs the device for a tenth of the time.
        let figures = Figures::new(scene, "shared", 1, 1.0, vec![50_000.0, 1.0], results).unwrap();
        assert_eq!(figures.modes[2].parts[0].misses, Some(2));
        assert_eq!(figures.modes[3].parts[0].misses, Some(1));
        let [p99, keeps, of_rest] = &figures.modes[3].checks[..] else { panic!() };
        assert!(!p99.met && !keeps.met && (keeps.value - 0.98).abs() < 1e-9);
        assert!(of_rest.met && (of_rest.value - 0.98 / 0.9).abs() < 1e-9);
    }
}
