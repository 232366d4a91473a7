//! The same scenario in simulation, and whether both say the same of a policy.
//!
//! Requests arrive at the moments at which they arrived in the run. The model has what was measured of the host: a launch takes
//! a program with a rate so long that its requests take as long alone as they did on the simulated GPU; and so much longer while
//! others work that those of the first such program take as long as they did beside the others where all had one
//! priority. Everything else is the model's own; one for all policies.

use super::cast::{Part, Scene};
use super::figures::{Figures, ModeFigures};
use super::{EQUAL, HINT, WINDOW};
use crate::WrongInput;
use crate::policy_sim::{Announce, Arrivals, Case, Instance, Policy, Run, Scope, Setting, Span, Workload};
use crate::replay::schedule;
use crate::simulated::CuModel;
use protocol::bounds::Priority;
use serde::Serialize;
use std::fmt::Write as _;

/// How far simulation may be off, as a part of what was measured.
const WITHIN: f64 = 0.15;
/// The longest launch, microseconds; and how many times as long it is beside others at most.
const LONGEST_CALL_US: f64 = 500.0;
const MOST_SLOWER: f64 = 8.0;
/// Waves that gpu-sim's `gfx90a` holds: 104 compute units of 32. Where kernels share them that says how.
const WAVE_SLOTS: u32 = 104 * 32;

/// How the scenario was run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub level: u8,
    pub cu_model: CuModel,
    pub save_us: u32,
    pub seconds: f64,
    pub seed: u64,
    pub blocks: u32,
}

impl Terms {
    /// The seed of the arrivals of the program at this place, which are the same in all modes of a block.
    pub fn arrivals(&self, block: u64, place: usize) -> u64 {
        self.seed.wrapping_add(1000 * block + place as u64)
    }
}

/// What simulation says of the policies of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// How many kernels the modelled device runs at once.
    pub share: u32,
    /// Of each program with a rate, how many microseconds a launch takes its host.
    pub call_us: Vec<(String, f64)>,
    /// How many times as long, while others work.
    pub beside: f64,
    /// Each count under each policy.
    pub counts: Vec<Compared>,
}

/// A count that both have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The policy, with its parameters.
    pub mode: String,
    /// "suspensions", "decisions", or whose requests missed their deadline: "missed, urgent".
    pub what: String,
    /// On the simulated GPU.
    pub measured: u64,
    /// In simulation.
    pub simulated: u64,
    /// Whether they agree within 15 %; one more or less is no difference.
    pub met: bool,
}

impl Compared {
    fn new(mode: &str, what: String, measured: u64, simulated: u64) -> Self {
        let apart = measured.abs_diff(simulated);
        let met = apart <= 1 || apart as f64 <= WITHIN * measured as f64;
        Self { mode: mode.to_owned(), what, measured, simulated, met }
    }
}

impl Agreement {
    /// Simulates what the figures are of, under each policy without a fixed window.
    ///
    /// # Errors
    /// The scenario is no workload.
    pub(super) fn of(scene: &Scene, figures: &Figures, terms: Terms) -> Result<Self, WrongInput> {
        let model = Modelled { scene, terms, call_us: vec![0.0; scene.parts.len()], beside: 1.0 };
        let model = model.with_hosts(figures)?.with_beside(figures)?;
        let mut counts = Vec::new();
        let judged = |mode: &&ModeFigures| !mode.checks.is_empty() && !mode.mode.contains(WINDOW);
        for mode in figures.modes.iter().filter(judged) {
            let runs = (0..terms.blocks).map(|block| model.run(&mode.mode, block.into()));
            let runs = runs.collect::<Result<Vec<_>, _>>()?;
            let sum = |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>();
            let suspensions = |run: &Run| run.clients.iter().map(|client| client.suspensions).sum();
            let mut compare = |what: &str, measured: u64, simulated: u64| {
                counts.push(Compared::new(&mode.mode, what.to_owned(), measured, simulated));
            };
            compare("suspensions", mode.suspensions, sum(&suspensions));
            compare("decisions", mode.decisions, sum(&|run: &Run| run.decisions));
            for (place, part) in scene.parts.iter().enumerate() {
                let (Some(deadline), Some(measured)) = (part.deadline_ms, mode.parts[place].misses) else {
                    continue;
                };
                let late = |run: &Run| {
                    let client = &run.clients[place];
                    let all = client.latencies.iter().chain(&client.unfinished);
                    all.filter(|ns| **ns as f64 / 1e6 > deadline).count() as u64
                };
                compare(&format!("missed, {}", part.name), measured as u64, sum(&late));
            }
        }
        let open = scene.parts.iter().zip(&model.call_us).filter(|(part, _)| part.load.is_some());
        let call_us = open.map(|(part, call)| (part.name.clone(), *call)).collect();
        Ok(Self { share: share(terms.cu_model), call_us, beside: model.beside, counts })
    }

    /// The lines for people.
    pub(super) fn table(&self) -> String {
        let calls = self.call_us.iter().map(|(name, call)| format!("{name} {call:.1}")).collect::<Vec<_>>();
        let calls = if calls.is_empty() { "nothing".to_owned() } else { calls.join(", ") };
        let mut text = format!(
            "beside simulation, up to {} of the kernels at once; a launch takes the host, in µs, so that a request takes as long alone: {calls}; \
             {:.2} times that while others work, so that it takes as long at one priority\n",
            self.share, self.beside
        );
        for count in &self.counts {
            let Compared { mode, what, measured, simulated, met } = count;
            let word = if *met { "met" } else { "MISSED" };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{mode:<36} {what} within 15 %: {measured} here, {simulated} in simulation, {word}"
            );
        }
        text
    }
}

/// As many seconds as are needed for a median.
const SECONDS: f64 = 5.0;

fn median_ms(run: &Run, place: usize) -> f64 {
    let mut latencies = run.clients[place].latencies.clone();
    latencies.sort_unstable();
    latencies.get(latencies.len() / 2).map_or(0.0, |ns| *ns as f64 / 1e6)
}

fn share(model: CuModel) -> u32 {
    match model {
        CuModel::Shared => 2,
        CuModel::Fcfs => 1,
    }
}

/// The scenario as a workload.
#[derive(Debug)]
struct Modelled<'a> {
    scene: &'a Scene,
    terms: Terms,
    /// How many microseconds a launch takes each host.
    call_us: Vec<f64>,
    /// How many times as long while others work.
    beside: f64,
}

impl Modelled<'_> {
    /// What launches take the hosts of programs with a rate, by their medians alone.
    fn with_hosts(mut self, figures: &Figures) -> Result<Self, WrongInput> {
        for (place, part) in self.scene.parts.iter().enumerate().filter(|(_, part)| part.load.is_some()) {
            let alone = |mode: &&ModeFigures| mode.mode == format!("{} alone", part.name);
            let Some(measured) = figures.modes.iter().find(alone).map(|mode| mode.parts[0].p50_ms) else {
                continue;
            };
            let (mut least, mut most) = (0.0, LONGEST_CALL_US);
            for _ in 0..14 {
                let middle = (least + most) / 2.0;
                self.call_us[place] = middle;
                if self.alone_ms(place)? < measured { least = middle } else { most = middle }
            }
        }
        Ok(self)
    }

    /// The same while others work, by the median of the first of them beside the others where all have one priority.
    fn with_beside(mut self, figures: &Figures) -> Result<Self, WrongInput> {
        let equal = figures.modes.iter().find(|mode| mode.mode == EQUAL);
        let first = self.scene.parts.iter().position(|part| part.load.is_some());
        let Some((place, measured)) = first.and_then(|place| Some((place, equal?.parts.get(place)?.p50_ms)))
        else {
            return Ok(self);
        };
        // Never faster than alone.
        let (mut least, mut most) = (1.0, MOST_SLOWER);
        for _ in 0..10 {
            self.beside = f64::sqrt(least * most);
            if self.equal_ms(place)? < measured { least = self.beside } else { most = self.beside }
        }
        self.beside = least;
        Ok(self)
    }

    /// The median of a program beside all others where all have one priority, milliseconds.
    fn equal_ms(&self, place: usize) -> Result<f64, WrongInput> {
        let equal = |workload: &mut Workload| {
            for client in &mut workload.client {
                client.priority = Priority::DEFAULT;
                client.queues.iter_mut().for_each(|queue| queue.priority = None);
            }
        };
        let case = self.case_with("", self.terms.seconds.min(SECONDS), 0, equal)?;
        let (instances, policy) = (&case.instances()[..], &Policy::for_one());
        let (scope, seed) = (Scope::Global, self.terms.seed);
        Ok(median_ms(&Setting { case: &case, instances, policy, scope, seed }.run(), place))
    }

    /// The median of a program by itself, milliseconds.
    fn alone_ms(&self, place: usize) -> Result<f64, WrongInput> {
        let case = self.case("", self.terms.seconds.min(SECONDS), 0)?;
        let instances: &[Instance] = &[case.instances()[place]];
        let (policy, scope, seed) = (&Policy::for_one(), Scope::Global, self.terms.seed);
        Ok(median_ms(&Setting { case: &case, instances, policy, scope, seed }.run(), 0))
    }

    fn run(&self, policy: &str, block: u64) -> Result<Run, WrongInput> {
        let case = self.case(policy, self.terms.seconds, block)?;
        let words: Vec<_> = policy.split_whitespace().filter(|word| !word.starts_with('+')).collect();
        let policy = &Policy::by_name(&words.join(" ")).map_err(WrongInput)?;
        let (instances, scope) = (&case.instances()[..], Scope::Global);
        let seed = self.terms.seed.wrapping_add(1000 * block);
        Ok(Setting { case: &case, instances, policy, scope, seed }.run())
    }

    fn case(&self, policy: &str, seconds: f64, block: u64) -> Result<Case, WrongInput> {
        self.case_with(policy, seconds, block, |_| ())
    }

    fn case_with(
        &self,
        policy: &str,
        seconds: f64,
        block: u64,
        change: impl FnOnce(&mut Workload),
    ) -> Result<Case, WrongInput> {
        let hints = policy.split_whitespace().any(|word| word == HINT);
        Case::load_with(self.scene.name, |workload| {
            workload.duration_s = seconds;
            let model = &mut workload.model;
            // Without a level of its own 2 is 3, and the library waits where that costs less.
            model.level = if self.terms.level == 1 { 1 } else { 3 };
            model.wait = model.level == 3;
            model.share = share(self.terms.cu_model);
            model.slots = if model.share > 1 { WAVE_SLOTS } else { 0 };
            model.beside = self.beside;
            (model.save_us, model.restore_us) = (self.terms.save_us.into(), self.terms.save_us.into());
            let clients = workload.client.iter_mut().zip(&self.scene.parts).zip(&self.call_us);
            for (place, ((client, Part { prepare_us, load, .. }), call)) in clients.enumerate() {
                client.call_us = *call;
                client.prepare = client.prepare.map(|_| Span::Constant { us: f64::from(*prepare_us) });
                if let Some((rate, pattern)) = *load {
                    let arrivals = self.terms.arrivals(block, place);
                    let moments = schedule::moments(pattern, rate, self.terms.seconds, arrivals);
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
    use super::super::cast::scenes;
    use super::super::figures::PartFigures;
    use super::*;

    #[test]
    fn fifteen_percent_or_one_is_no_difference() {
        let met = |measured, simulated| Compared::new("HPF", "decisions".into(), measured, simulated).met;
        assert!(met(100, 115) && met(100, 85) && met(0, 1) && met(1, 0));
        assert!(!met(100, 116) && !met(100, 84) && !met(0, 2) && !met(13, 16));
    }

    #[test]
    fn launches_take_so_long_that_requests_take_as_long_as_measured() {
        let scenes = scenes().unwrap();
        let scene = scenes.iter().find(|scene| scene.name == "two-models").unwrap();
        let terms =
            Terms { level: 1, cu_model: CuModel::Shared, save_us: 50, seconds: 10.0, seed: 1, blocks: 1 };
        let part = |name: &str, p50_ms: f64, misses| PartFigures {
            part: name.into(),
            p50_ms,
            p99_ms: 2.0,
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
            checks: if judged {
                vec![super::super::figures::Judged { what: "it".into(), value: 1.0, met: true }]
            } else {
                vec![]
            },
        };
        let modes = vec![
            mode("urgent alone", vec![part("urgent", 1.4, Some(0))], 0, false),
            mode("batch alone", vec![part("batch", 34.0, None)], 0, false),
            mode(EQUAL, vec![part("urgent", 2.2, Some(0)), part("batch", 35.0, None)], 0, false),
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
            device: "simulated GPU",
            cu_model: "shared",
            level: 1,
            seconds: 10.0,
            modes,
            agreement: None,
        };
        let agreement = Agreement::of(scene, &figures, terms).unwrap();
        let [(name, call)] = &agreement.call_us[..] else { panic!("{agreement:?}") };
        assert!(name == "urgent" && (5.0..60.0).contains(call), "{call}");
        assert!((1.7..2.0).contains(&agreement.beside), "{}", agreement.beside);
        let model = Modelled { scene, terms, call_us: vec![*call, 0.0], beside: agreement.beside };
        assert!((model.alone_ms(0).unwrap() - 1.4).abs() < 0.01);
        assert!((model.equal_ms(0).unwrap() - 2.2).abs() < 0.02);
        let [suspensions, decisions, missed] = &agreement.counts[..] else { panic!("{agreement:?}") };
        // 20 a second, each of which suspends the batch unless it follows another one closely.
        assert!((150..260).contains(&suspensions.simulated), "{suspensions:?}");
        assert!(decisions.simulated > suspensions.simulated && missed.met, "{agreement:?}");
        assert!(agreement.table().contains("missed, urgent within 15 %: 0 here, 0 in simulation, met"));
    }
}
