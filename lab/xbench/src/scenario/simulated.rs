//! The same scenario in simulation, and the comparison of both.
//!
//! Requests arrive at the moments at which they arrived in the run. Two parameters of the model are fitted to
//! measurements: the host time of a launch, for each program with a rate, so that its requests take as long
//! alone as on the simulated GPU; and the factor by which launches are slower while other programs work, so
//! that the requests of the first such program take as long as beside the others at one priority. All other
//! parameters are the model's own, and the same for all policies.

use super::definition::Scenario;
use super::figures::{Figures, ModeFigures};
use crate::WrongInput;
use crate::experiment::{Mode, PolicyWords, Program, Setup};
use crate::policy_sim::{
    Announce, Arrivals, Case, Distribution, Instance, Policy, Run, Scope, Setting, Workload,
};
use crate::replay::schedule;
use crate::simulated::CuModel;
use crate::table::verdict;
use protocol::bounds::Priority;
use serde::Serialize;
use std::fmt::Write as _;
use std::num::NonZeroU64;

/// The largest difference between simulation and measurement, relative to the measurement.
const WITHIN: f64 = 0.15;
/// The longest launch, microseconds, and its largest factor beside other programs.
const LONGEST_CALL_US: f64 = 500.0;
const MOST_SLOWER: f64 = 8.0;
/// The waves that gpu-sim's `gfx90a` holds: 104 compute units of 32. They decide how kernels share the
/// device.
const WAVE_SLOTS: u32 = 104 * 32;

/// The comparison of simulation and measurement for the policies of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Agreement {
    /// The number of kernels that the modelled device runs at once.
    pub(crate) share: u32,
    /// Microseconds of host time for a launch, of each program with a rate.
    pub(crate) call_us: Vec<(String, f64)>,
    /// The factor of that time while other programs work.
    pub(crate) beside: f64,
    pub(crate) counts: Vec<Compared>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Compared {
    /// The policy, with its parameters.
    pub(crate) mode: String,
    /// "suspensions", "decisions", or the missed deadlines of a program: "missed, urgent".
    pub(crate) what: String,
    /// The count on the simulated GPU.
    pub(crate) measured: u64,
    /// The count in simulation.
    pub(crate) simulated: u64,
    /// True if they agree within 15 %; a difference of one never counts.
    pub(crate) met: bool,
}

impl Compared {
    fn new(mode: &str, what: String, measured: u64, simulated: u64) -> Self {
        let apart = measured.abs_diff(simulated);
        let met = apart <= 1 || apart as f64 <= WITHIN * measured as f64;
        Self { mode: mode.to_owned(), what, measured, simulated, met }
    }
}

impl Agreement {
    /// Simulates a measured scenario, under each policy without a fixed window.
    pub(super) fn new(scenario: &Scenario, figures: &Figures, setup: Setup<'_>) -> Result<Self, WrongInput> {
        let (level, call_us) = (figures.level, vec![0.0; scenario.programs.len()]);
        let model = Modelled { scenario, setup, level, call_us, beside: 1.0 };
        let model = model.with_hosts(figures)?.with_beside(figures)?;
        let mut counts = Vec::new();
        for mode in figures.modes.iter().filter(|mode| !mode.checks.is_empty()) {
            let words: PolicyWords = mode.mode.parse()?;
            if words.window.is_some() {
                continue;
            }
            let runs = (0..setup.blocks).map(|block| model.run(&words, block.into()));
            let runs = runs.collect::<Result<Vec<_>, _>>()?;
            let sum = |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>();
            let suspensions = |run: &Run| run.clients.iter().map(|client| client.suspensions).sum();
            let mut compare = |what: &str, measured: u64, simulated: u64| {
                counts.push(Compared::new(&mode.mode, what.to_owned(), measured, simulated));
            };
            compare("suspensions", mode.suspensions, sum(&suspensions));
            compare("decisions", mode.decisions, sum(&|run: &Run| run.decisions));
            for (index, program) in scenario.programs.iter().enumerate() {
                let (Some(deadline), Some(measured)) =
                    (program.deadline_ms(Some(&words)), mode.parts[index].misses)
                else {
                    continue;
                };
                let late = |run: &Run| {
                    let client = &run.clients[index];
                    let all = client.latencies.iter().chain(&client.unfinished);
                    all.filter(|ns| **ns as f64 / 1e6 > deadline).count() as u64
                };
                compare(&format!("missed, {}", program.name), measured as u64, sum(&late));
            }
        }
        let open = scenario.programs.iter().zip(&model.call_us).filter(|(program, _)| program.has_latency());
        let call_us = open.map(|(program, call)| (program.name.clone(), *call)).collect();
        Ok(Self { share: share(setup.gpu.cu_model), call_us, beside: model.beside, counts })
    }

    pub(super) fn table(&self) -> String {
        let calls = self.call_us.iter().map(|(name, call)| format!("{name} {call:.1}")).collect::<Vec<_>>();
        let calls = if calls.is_empty() { "none".to_owned() } else { calls.join(", ") };
        let mut text = format!(
            "beside simulation, with up to {} kernels at once. Fitted so that requests take as long as measured: µs of host time \
             a launch alone: {calls}; {:.2} times that while other programs work\n",
            self.share, self.beside
        );
        for Compared { mode, what, measured, simulated, met } in &self.counts {
            let word = verdict(*met);
            let _ = writeln!(
                text,
                "{mode:<36} {what} within 15 %: {measured} measured, {simulated} in simulation, {word}"
            );
        }
        text
    }
}

/// The seconds of simulation that suffice for a median.
const SECONDS: f64 = 5.0;

fn share(model: CuModel) -> u32 {
    match model {
        CuModel::Shared => 2,
        CuModel::Fcfs => 1,
    }
}

#[derive(Debug)]
struct Modelled<'a> {
    scenario: &'a Scenario,
    setup: Setup<'a>,
    level: u8,
    /// Microseconds of host time for a launch, of each program.
    call_us: Vec<f64>,
    /// The factor of that time while other programs work.
    beside: f64,
}

impl Modelled<'_> {
    /// Fits the host time of a launch of each program with a latency, by its median alone.
    fn with_hosts(mut self, figures: &Figures) -> Result<Self, WrongInput> {
        let programs = self.scenario.programs.iter().enumerate();
        for (index, program) in programs.filter(|(_, program)| program.has_latency()) {
            let alone = |mode: &&ModeFigures| mode.mode == format!("{} alone", program.name);
            let Some(measured) = figures.modes.iter().find(alone).map(|mode| mode.parts[0].p50_ms) else {
                continue;
            };
            let (mut least, mut most) = (0.0, LONGEST_CALL_US);
            for _ in 0..14 {
                let middle = (least + most) / 2.0;
                self.call_us[index] = middle;
                if self.alone_ms(index)? < measured { least = middle } else { most = middle }
            }
        }
        Ok(self)
    }

    /// Fits the factor while other programs work, by the median latency of the first program that has one, at
    /// one priority.
    fn with_beside(mut self, figures: &Figures) -> Result<Self, WrongInput> {
        let equal = figures.modes.iter().find(|mode| mode.mode == Mode::EQUAL);
        let first = self.scenario.programs.iter().position(Program::has_latency);
        let Some((index, measured)) = first.and_then(|index| Some((index, equal?.parts.get(index)?.p50_ms)))
        else {
            return Ok(self);
        };
        // Never faster than alone.
        let (mut least, mut most) = (1.0, MOST_SLOWER);
        for _ in 0..10 {
            self.beside = f64::sqrt(least * most);
            if self.equal_ms(index)? < measured { least = self.beside } else { most = self.beside }
        }
        self.beside = least;
        Ok(self)
    }

    /// Returns the median latency of a program beside all others at one priority, milliseconds.
    fn equal_ms(&self, index: usize) -> Result<f64, WrongInput> {
        let equal = |workload: &mut Workload| {
            for client in &mut workload.client {
                client.priority = Priority::DEFAULT;
                client.queues.iter_mut().for_each(|queue| queue.priority = None);
            }
        };
        self.median_ms(index, equal, |all| all)
    }

    /// Returns the median latency of a program alone, milliseconds.
    fn alone_ms(&self, index: usize) -> Result<f64, WrongInput> {
        self.median_ms(0, |_| (), |all| &all[index..=index])
    }

    /// Returns the median latency of one of the chosen programs under the default policy.
    fn median_ms(
        &self,
        index: usize,
        change: impl FnOnce(&mut Workload),
        choose: impl FnOnce(&[Instance]) -> &[Instance],
    ) -> Result<f64, WrongInput> {
        let case = self.case(false, self.setup.seconds.min(SECONDS), 0, change)?;
        let (all, policy) = (case.instances(), &Policy::for_one());
        let (instances, scope, seed) = (choose(&all), Scope::Global, self.setup.seed);
        let run = Setting { case: &case, instances, policy, scope, seed }.run();
        let mut latencies = run.clients[index].latencies.clone();
        latencies.sort_unstable();
        Ok(latencies.get(latencies.len() / 2).map_or(0.0, |ns| *ns as f64 / 1e6))
    }

    fn run(&self, words: &PolicyWords, block: u64) -> Result<Run, WrongInput> {
        let case = self.case(words.hint, self.setup.seconds, block, |workload| {
            for (client, program) in workload.client.iter_mut().zip(&self.scenario.programs) {
                let deadline = program.deadline_ms(Some(words)).map(|ms| (ms * 1e3).round() as u64);
                client.hints.deadline_us = deadline.and_then(NonZeroU64::new);
            }
        })?;
        let (instances, policy, scope) = (&case.instances()[..], &words.policy, Scope::Global);
        let seed = self.setup.arrivals_seed(block, 0);
        Ok(Setting { case: &case, instances, policy, scope, seed }.run())
    }

    /// Returns the scenario as a workload, after a change; with `hints` programs announce requests.
    fn case(
        &self,
        hints: bool,
        seconds: f64,
        block: u64,
        change: impl FnOnce(&mut Workload),
    ) -> Result<Case, WrongInput> {
        Case::load_with(self.scenario.name, |workload| {
            workload.duration_s = seconds;
            let model = &mut workload.model;
            // Level 2 is 3 on the simulated GPU, where the library waits if that costs less.
            model.level = if self.level == 1 { 1 } else { 3 };
            model.wait = model.level == 3;
            model.share = share(self.setup.gpu.cu_model);
            model.slots = if model.share > 1 { WAVE_SLOTS } else { 0 };
            model.beside = self.beside;
            let save_us = self.setup.gpu.save_us.into();
            (model.save_us, model.restore_us) = (save_us, save_us);
            let clients = workload.client.iter_mut().zip(&self.scenario.programs).zip(&self.call_us);
            for (index, ((client, Program { prepare_us, load, .. }), call)) in clients.enumerate() {
                client.call_us = *call;
                client.prepare =
                    client.prepare.map(|_| Distribution::Constant { us: f64::from(*prepare_us) });
                if let Some((rate, pattern)) = *load {
                    let seed = self.setup.arrivals_seed(block, index);
                    let moments = schedule::moments(pattern, rate, self.setup.seconds, seed);
                    let at_ms = moments.into_iter().map(|ns| ns as f64 / 1e6).collect();
                    client.arrivals = Arrivals::Recorded { at_ms, repeat_ms: None };
                }
                client.announce =
                    (hints && *prepare_us > 0).then_some(Announce { error_us: 0.0, missing: 0.0 });
            }
            change(workload);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin::scenarios;
    use super::super::figures::{Judged, PartFigures};
    use super::*;
    use crate::simulated::tests::gpu;
    use crate::simulated::{GpuArgs, Measured};
    use crate::traffic::Traffic;
    use std::path::Path;

    fn setup(gpu: &GpuArgs) -> Setup<'_> {
        let (programs, traces, seconds) = (&[][..], Path::new(""), 10.0);
        let (alone_seconds, seed_step) = (10.0, 1000);
        let (blocks, seed, account) = (1, 1, false);
        let traffic = Traffic::None;
        Setup {
            name: "x",
            programs,
            traces,
            gpu,
            traffic,
            blocks,
            seconds,
            alone_seconds,
            seed,
            seed_step,
            account,
        }
    }

    #[test]
    fn counts_within_fifteen_percent_or_one_agree() {
        let met = |measured, simulated| Compared::new("HPF", "decisions".into(), measured, simulated).met;
        assert!(met(100, 115) && met(100, 85) && met(0, 1) && met(1, 0));
        assert!(!met(100, 116) && !met(100, 84) && !met(0, 2) && !met(13, 16));
    }

    #[test]
    fn launch_time_is_fitted_to_measured_latencies() {
        let scenarios = scenarios().unwrap();
        let scenario = scenarios.iter().find(|scenario| scenario.name == "two-models").unwrap();
        let part = |name: &str, p50_ms: f64, misses| PartFigures {
            part: name.into(),
            p50_ms,
            p99_ms: 2.0,
            spread: 1.0,
            per_s: 20.0,
            misses,
            requests: 200,
            share: 0.5,
        };
        let mode = |mode: &str, parts: Vec<PartFigures>, suspensions, judged: bool| ModeFigures {
            mode: mode.into(),
            parts,
            busy: 1.0,
            suspensions,
            decisions: 700,
            counted: Default::default(),
            server_s: 10.0,
            processor: Default::default(),
            checks: if judged { vec![Judged::new("it".into(), 1.0, true)] } else { vec![] },
        };
        let modes = vec![
            mode("urgent alone", vec![part("urgent", 1.4, Some(0))], 0, false),
            mode("batch alone", vec![part("batch", 34.0, None)], 0, false),
            mode(Mode::EQUAL, vec![part("urgent", 2.2, Some(0)), part("batch", 35.0, None)], 0, false),
            mode("HPF", vec![part("urgent", 1.5, Some(0)), part("batch", 36.0, None)], 190, true),
            mode(
                "HPF +window=16/8",
                vec![part("urgent", 1.5, Some(0)), part("batch", 36.0, None)],
                190,
                true,
            ),
        ];
        let figures = Figures {
            scenario: "two-models".into(),
            about: String::new(),
            gpu: Measured::new(&gpu(), None),
            level: 1,
            traffic: Traffic::None,
            seconds: 10.0,
            modes,
            agreement: None,
            account: None,
        };
        let agreement = Agreement::new(scenario, &figures, setup(&gpu())).unwrap();
        let [(name, call)] = &agreement.call_us[..] else { panic!("{agreement:?}") };
        assert!(name == "urgent" && (5.0..60.0).contains(call), "{call}");
        assert!((1.7..2.0).contains(&agreement.beside), "{}", agreement.beside);
        let (gpu, call_us, beside) = (gpu(), vec![*call, 0.0], agreement.beside);
        let model = Modelled { scenario, setup: setup(&gpu), level: 1, call_us, beside };
        assert!((model.alone_ms(0).unwrap() - 1.4).abs() < 0.01);
        assert!((model.equal_ms(0).unwrap() - 2.2).abs() < 0.02);
        let [suspensions, decisions, missed] = &agreement.counts[..] else { panic!("{agreement:?}") };
        // 20 a second, each of which suspends the batch unless it follows another one closely.
        assert!((150..260).contains(&suspensions.simulated), "{suspensions:?}");
        assert!(decisions.simulated > suspensions.simulated && missed.met, "{agreement:?}");
        assert!(agreement.table().contains("missed, urgent within 15 %: 0 measured, 0 in simulation, met"));
    }
}
