//! Measures a scenario in all its modes.

use super::definition::Scenario;
use super::figures::Figures;
use crate::experiment::{Experiment, Mode, PolicyWords, Setup, Suspensions};
use crate::replay;
use crate::simulated::GpuArgs;
use crate::traffic::Traffic;
use anyhow::{Result, bail, ensure};
use clap::Args;
use std::path::PathBuf;

/// The most seconds that a program back to back runs alone.
const ALONE_SECONDS: f64 = 10.0;
/// The difference between the seeds of two blocks, which leaves room for a seed of each program.
const SEED_STEP: u64 = 1000;

/// Options of all measurements of scenarios.
#[derive(Debug, Clone, Args)]
pub(super) struct Common {
    #[command(flatten)]
    gpu: GpuArgs,
    /// Memory traffic of all programs' kernels while they run
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Traffic::None)]
    pub(super) traffic: Traffic,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), allow_negative_numbers = true)]
    blocks: u32,
    /// Seconds in which requests arrive in each mode; by default those of the scenario
    #[arg(long, value_name = "S", value_parser = replay::seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Seed of the arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Folder of the recorded models
    #[arg(long, value_name = "DIRECTORY", default_value = "examples/traces")]
    traces: PathBuf,
}

impl Common {
    /// Returns the experiment of a scenario; with `account` it accounts for the device's time.
    pub(super) fn experiment<'a>(&'a self, scenario: &'a Scenario, account: bool) -> Result<Experiment<'a>> {
        Experiment::new(Setup {
            name: scenario.name,
            programs: &scenario.programs,
            traces: &self.traces,
            gpu: &self.gpu,
            traffic: self.traffic,
            blocks: self.blocks,
            seconds: self.seconds.unwrap_or(scenario.seconds),
            alone_seconds: ALONE_SECONDS,
            seed: self.seed,
            seed_step: SEED_STEP,
            account,
        })
    }
}

/// Measures all modes of a scenario. `equal` adds the mode at one priority; an empty `policies` means those
/// of the scenario.
pub(super) fn measure(
    scenario: &Scenario,
    experiment: &Experiment<'_>,
    level: u8,
    equal: bool,
    policies: &[PolicyWords],
) -> Result<Figures> {
    let own = scenario.policies.iter().filter(|_| policies.is_empty()).map(|policy| policy.parse());
    let own = own.collect::<Result<Vec<PolicyWords>, _>>()?;
    let mut modes: Vec<Mode> = (0..scenario.programs.len()).map(Mode::Alone).collect();
    modes.push(Mode::Native);
    modes.extend(equal.then_some(Mode::Equal(level)));
    modes.extend(policies.iter().cloned().chain(own).map(|policy| Mode::Policy(policy, level)));
    let results = experiment.run(modes, |name, mode, outcome| {
        mode.level().map_or(Ok(()), |level| check_level(name, level, &outcome.suspended))
    })?;
    let device_us = (0..scenario.programs.len()).map(|index| experiment.device_us(index)).collect();
    let mut figures =
        Figures::new(scenario, experiment.gpu.clone(), experiment.setup.seconds, level, device_us, &results)?;
    figures.traffic = experiment.setup.traffic;
    figures.account = experiment.accounts(&results);
    Ok(figures)
}

/// Checks that the programs had at least the level that the figures are about, as far as the server reported it.
fn check_level(name: &str, level: u8, programs: &[Option<Suspensions>]) -> Result<()> {
    let least = programs.iter().flatten().min_by_key(|program| program.in_force);
    ensure!(least.is_some() || level == 1, "{name}: the server reported nothing about level {level}");
    match least.and_then(|least| least.below(level)) {
        Some(below) => bail!("{name}: {below}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_level_that_is_not_in_force_are_refused() {
        let at = |in_force| {
            Some(Suspensions { in_force, how: "switched off".to_owned(), ..Suspensions::default() })
        };
        assert!(check_level("a run", 3, &[None, at(3), at(3)]).is_ok());
        assert!(check_level("a run", 1, &[at(1), at(3)]).is_ok());
        let refused = check_level("a run", 3, &[at(3), at(1)]).unwrap_err().to_string();
        assert!(check_level("a run", 3, &[None]).is_err() && check_level("a run", 1, &[None]).is_ok());
        assert_eq!(refused, "a run: level 3 is not in force, level 1 is: switched off");
    }
}
