//! The figures of a scenario, computed from the runs of all modes, and their table.

use super::definition::{Check, Scenario};
use super::simulated::Agreement;
use crate::account::Accounts;
use crate::compare::spread;
use crate::experiment::{Mode, Outcome, ProcessorCost};
use crate::replay::Record;
use crate::simulated::Measured;
use crate::stats::{Samples, mean, median};
use crate::table::{Table, dash, verdict};
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PartFigures {
    pub(crate) part: String,
    /// Median latency in milliseconds, the median of the blocks; back to back, of one inference.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Largest p99 of a block over the smallest.
    pub(crate) spread: f64,
    /// Requests or inferences a second; mean of the blocks.
    pub(crate) per_s: f64,
    /// Requests that took longer than the program's deadline in this mode, all blocks; `null` without a deadline.
    pub(crate) misses: Option<usize>,
    /// Requests, all blocks.
    pub(crate) requests: usize,
    /// Share of the device time of all programs.
    pub(crate) share: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ModeFigures {
    /// The mode: "urgent alone", "without giveway", "all at one priority", or a policy with its parameters.
    pub(crate) mode: String,
    /// The figures of each program that ran.
    pub(crate) parts: Vec<PartFigures>,
    /// Device time of all programs, as recorded, a second of run time.
    pub(crate) busy: f64,
    /// Suspensions by the library, all programs and blocks.
    pub(crate) suspensions: u64,
    /// Decisions of the server, all blocks; 0 without a server.
    pub(crate) decisions: u64,
    /// The counters of the policy, by name (docs/policies.md), all blocks.
    pub(crate) counted: BTreeMap<String, u64>,
    /// The time for which the server was watched, seconds, all blocks; 0 without a server.
    pub(crate) server_s: f64,
    /// The processor time of giveway.
    pub(crate) processor: ProcessorCost,
    /// The limits of the scenario; empty where no policy decides.
    pub(crate) checks: Vec<Judged>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Judged {
    /// The figure that is judged, with the limit.
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) met: bool,
}

impl Judged {
    pub(super) fn new(what: String, value: f64, met: bool) -> Self {
        Self { what, value, met }
    }

    pub(super) fn at_most(what: &str, value: f64, most: f64) -> Self {
        Self::new(format!("{what} <= {most}"), value, value <= most)
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:.3}, {}", self.what, self.value, verdict(self.met))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) scenario: String,
    pub(crate) about: String,
    #[serde(flatten)]
    pub(crate) gpu: Measured,
    /// The requested preemption level.
    pub(crate) level: u8,
    /// The memory traffic of all programs' kernels.
    pub(crate) traffic: Traffic,
    /// Seconds in which requests arrived, each block.
    pub(crate) seconds: f64,
    pub(crate) modes: Vec<ModeFigures>,
    /// The comparison with simulation; `null` where the scenario is no workload of `xbench policy-sim`.
    pub(crate) agreement: Option<Agreement>,
    /// The account of the device's time; `null` without the option.
    pub(crate) account: Option<Accounts>,
}

impl Figures {
    /// Computes the figures. `device_us` is the device time of one inference of each program.
    pub(super) fn new(
        scenario: &Scenario,
        gpu: Measured,
        seconds: f64,
        level: u8,
        device_us: Vec<f64>,
        results: &[(Mode, Vec<Outcome>)],
    ) -> Result<Self> {
        let mut modes = Vec::new();
        for (mode, outcomes) in results {
            modes.push(mode_figures(scenario, mode, outcomes, &device_us)?);
        }
        for index in 0..modes.len() {
            if let (Mode::Policy(..), _) = &results[index] {
                let checks = scenario.checks.iter().map(|check| judge(*check, &modes[index], &modes));
                modes[index].checks = checks
                    .collect::<Option<_>>()
                    .context("a limit of the scenario needs a program that did not run")?;
            }
        }
        Ok(Self {
            scenario: scenario.name.to_owned(),
            about: scenario.about.clone(),
            gpu,
            level,
            traffic: Traffic::None,
            seconds,
            modes,
            agreement: None,
            account: None,
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{}: {}{}; {}, level {}\n\n",
            self.scenario,
            self.about,
            self.traffic.words(),
            self.gpu,
            self.level
        );
        let header = [
            "milliseconds",
            "program",
            "p50",
            "p99",
            "per s",
            "missed",
            "share",
            "busy",
            "suspensions",
            "decisions",
        ];
        let mut table = Table::new(2, header);
        for mode in &self.modes {
            let [busy, suspensions, decisions] =
                [format!("{:.2}", mode.busy), mode.suspensions.to_string(), mode.decisions.to_string()];
            let mut of_mode = [mode.mode.clone(), busy, suspensions, decisions];
            for part in &mode.parts {
                // Only the first row has the figures of the mode.
                let [mode, busy, suspensions, decisions] = std::mem::take(&mut of_mode);
                let [p50, p99, per_s] =
                    [part.p50_ms, part.p99_ms, part.per_s].map(|value| format!("{value:.2}"));
                let missed = part.misses.map_or_else(dash, |misses| format!("{misses}/{}", part.requests));
                let share = format!("{:.1}%", part.share * 100.0);
                let row =
                    [mode, part.part.clone(), p50, p99, per_s, missed, share, busy, suspensions, decisions];
                table.push(row);
            }
        }
        let _ = writeln!(text, "{table}");
        for mode in self.modes.iter().filter(|mode| mode.processor.library_ms.is_some()) {
            let _ = writeln!(text, "{:<36} {}", mode.mode, mode.processor);
        }
        for mode in &self.modes {
            for check in &mode.checks {
                let _ = writeln!(text, "{:<36} {check}", mode.mode);
            }
        }
        if let Some(agreement) = &self.agreement {
            text.push('\n');
            text += &agreement.table();
        }
        if let Some(accounts) = &self.account {
            let _ = write!(text, "\n{accounts}");
        }
        text
    }
}

fn mode_figures(
    scenario: &Scenario,
    mode: &Mode,
    outcomes: &[Outcome],
    device_us: &[f64],
) -> Result<ModeFigures> {
    let records = |index: usize| outcomes.iter().filter_map(move |outcome| outcome.records[index].as_ref());
    let per_s = |index: usize| {
        let open = scenario.programs[index].load.is_some();
        mean(records(index).map(|record| record.per_second(open))).unwrap_or(0.0)
    };
    let work = |index: usize| per_s(index) * device_us[index] / 1e6;
    let indices = mode.indices(scenario.programs.len());
    let busy: f64 = indices.clone().map(work).sum();
    let mut parts = Vec::new();
    for index in indices {
        let program = &scenario.programs[index];
        let of_blocks = |percent: f64| {
            let blocks = records(index).filter_map(|record| Samples::new(record.latencies_ms()));
            median(blocks.map(|samples| samples.percentile(percent)))
                .with_context(|| format!("{} finished nothing", program.name))
        };
        let p99s = records(index).filter_map(|record| Samples::new(record.latencies_ms()));
        let p99s: Vec<f64> = p99s.map(|samples| samples.percentile(99.0)).collect();
        let late = |deadline: f64| {
            records(index).flat_map(Record::latencies_ms).filter(|latency| *latency > deadline).count()
        };
        parts.push(PartFigures {
            part: program.name.clone(),
            p50_ms: of_blocks(50.0)?,
            p99_ms: of_blocks(99.0)?,
            spread: spread(&p99s).with_context(|| format!("a p99 of {} is nothing", program.name))?,
            per_s: per_s(index),
            misses: program.deadline_ms(mode.policy()).map(late),
            requests: records(index).map(|record| record.requests.len()).sum(),
            share: work(index) / busy,
        });
    }
    let suspensions = outcomes.iter().map(|outcome| outcome.suspensions).sum();
    let decisions = outcomes.iter().map(|outcome| outcome.decisions).sum();
    let server_s = outcomes.iter().map(|outcome| outcome.server_s).sum();
    let mut counted = BTreeMap::new();
    for (name, count) in outcomes.iter().flat_map(|outcome| &outcome.counted) {
        *counted.entry(name.clone()).or_default() += count;
    }
    let (mode, checks) = (mode.name(&scenario.programs), Vec::new());
    let processor = ProcessorCost::of(outcomes);
    Ok(ModeFigures { mode, parts, busy, suspensions, decisions, counted, server_s, processor, checks })
}

/// Judges a mode; `None` if a program of the limit did not run.
fn judge(check: Check, mode: &ModeFigures, all: &[ModeFigures]) -> Option<Judged> {
    let here = |name: &str| mode.parts.iter().find(|part| part.part == name);
    let mode_alone = |name: &str| all.iter().find(|mode| mode.mode == format!("{name} alone"));
    let alone = |name: &str| mode_alone(name)?.parts.first();
    let over_alone = |name: &str| Some(here(name)?.p99_ms / alone(name)?.p99_ms);
    let median_over_alone = |name: &str| Some(here(name)?.p50_ms / alone(name)?.p50_ms);
    let at_least = |what: String, value: f64, least: f64| {
        Judged::new(format!("{what} >= {least}"), value, value >= least)
    };
    Some(match check {
        Check::P50OverAlone(name, most) => {
            Judged::at_most(&format!("p50 of {name} over alone"), median_over_alone(name)?, most)
        }
        Check::P99OverAlone(name, most) => {
            Judged::at_most(&format!("p99 of {name} over alone"), over_alone(name)?, most)
        }
        Check::P99(name, most) => {
            let value = here(name)?.p99_ms;
            Judged::new(format!("p99 of {name} <= {most} ms"), value, value <= most)
        }
        Check::Keeps(name, least) => {
            at_least(format!("{name} over alone"), here(name)?.per_s / alone(name)?.per_s, least)
        }
        Check::KeepsOfRest(name, other, least) => {
            let used = here(other)?.share * mode.busy;
            let what = format!("work without {other} over {name} alone in the time that {other} leaves");
            at_least(what, (mode.busy - used) / (mode_alone(name)?.busy * (1.0 - used)), least)
        }
        Check::TotalOverAlone(name, least) => at_least(
            format!("work of all over that of {name} alone"),
            mode.busy / mode_alone(name)?.busy,
            least,
        ),
        Check::Share(name, share, within) => {
            let value = here(name)?.share;
            let what = format!("share of {name} is {share} within {within}");
            Judged::new(what, value, (value - share).abs() <= within)
        }
        Check::Total(least) => {
            let native = all.iter().find(|mode| mode.mode == Mode::WITHOUT)?;
            at_least("work of all over that without giveway".to_owned(), mode.busy / native.busy, least)
        }
        Check::Before(first, second) => {
            let value = over_alone(first)? / over_alone(second)?;
            Judged::new(format!("{first} is less delayed than {second}"), value, value <= 1.0)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::builtin::scenarios;
    use super::*;
    use crate::simulated::tests::gpu;

    fn record(latencies_ms: &[f64], seconds: f64) -> Option<Record> {
        Some(crate::experiment::tests::record(latencies_ms, 0.0, seconds))
    }

    /// A run of two programs: the latencies of the first, in milliseconds, and the inferences of the second; an
    /// empty list or 0 for a program that did not run.
    fn run(latencies_ms: &[f64], batch: usize) -> Outcome {
        Outcome {
            records: vec![
                record(latencies_ms, 1.0).filter(|_| !latencies_ms.is_empty()),
                record(&vec![1000.0; batch], 1.0).filter(|_| batch > 0),
            ],
            ..Outcome::default()
        }
    }

    fn hpf() -> Mode {
        Mode::Policy("HPF".parse().unwrap(), 1)
    }

    #[test]
    fn shares_and_limits_come_from_the_programs_that_ran() {
        let scenarios = scenarios().unwrap();
        let scenario = scenarios.iter().find(|scenario| scenario.name == "shares").unwrap();
        // Back to back the last one ends at the end of the run.
        let run = |ran: &[usize]| {
            let records = ran.iter().map(|&count| record(&vec![10_000.0; count], 10.0).filter(|_| count > 0));
            Outcome { records: records.collect(), suspensions: 5, decisions: 9, ..Outcome::default() }
        };
        let results = vec![
            (Mode::Alone(0), vec![run(&[1000, 0])]),
            (Mode::Alone(1), vec![run(&[0, 1000])]),
            (Mode::Native, vec![run(&[500, 500])]),
            (hpf(), vec![run(&[740, 250])]),
        ];
        let figures =
            Figures::new(scenario, Measured::new(&gpu(), None), 10.0, 1, vec![10_000.0; 2], &results)
                .unwrap();
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
    fn requests_after_the_deadline_are_misses() {
        let scenarios = scenarios().unwrap();
        let scenario = scenarios.iter().find(|scenario| scenario.name == "two-models").unwrap();
        let results = vec![
            (Mode::Alone(0), vec![run(&[2.0, 4.0], 0)]),
            (Mode::Alone(1), vec![run(&[], 100)]),
            (Mode::Native, vec![run(&[80.0, 90.0], 99)]),
            (hpf(), vec![run(&[3.0, 60.0], 98)]),
            (Mode::Policy("SLO target-ms=2".parse().unwrap(), 1), vec![run(&[3.0, 60.0], 98)]),
        ];
        // Alone the urgent one needs the device for a tenth of the time.
        let figures =
            Figures::new(scenario, Measured::new(&gpu(), None), 10.0, 1, vec![50_000.0, 1.0], &results)
                .unwrap();
        assert_eq!(figures.modes[2].parts[0].misses, Some(2));
        assert_eq!(figures.modes[3].parts[0].misses, Some(1));
        assert_eq!(figures.modes[4].parts[0].misses, Some(2), "of the target in the policy's words");
        let [p99, keeps, of_rest] = &figures.modes[3].checks[..] else { panic!() };
        assert!(!p99.met && !keeps.met && (keeps.value - 0.98).abs() < 1e-9);
        assert!(of_rest.met && (of_rest.value - 0.98 / 0.9).abs() < 1e-9);
    }

    #[test]
    fn batch_program_is_judged_by_the_time_that_the_server_leaves() {
        let scenarios = scenarios().unwrap();
        let scenario = scenarios.iter().find(|scenario| scenario.name == "tokens").unwrap();
        let results = vec![
            (Mode::Alone(0), vec![run(&[1000.0, 1000.0], 0)]),
            (Mode::Alone(1), vec![run(&[], 100)]),
            (Mode::Native, vec![run(&[1000.0, 1000.0], 99)]),
            (hpf(), vec![run(&[1000.0, 1050.0], 60)]),
        ];
        let figures =
            Figures::new(scenario, Measured::new(&gpu(), None), 10.0, 1, vec![200_000.0, 1.0], &results)
                .unwrap();
        let [p50, p99, of_rest] = &figures.modes[3].checks[..] else { panic!() };
        assert!(p50.met && p99.met, "{p50} {p99}");
        // Two steps of 200 ms in 1.05 s leave 0.65 s of a second.
        let rest = 1.0 - 0.4 / 1.05;
        assert!((of_rest.value - 0.6 / rest).abs() < 1e-6, "{of_rest}");
    }
}
