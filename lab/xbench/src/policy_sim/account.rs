//! The account of the device's time in simulation, with the entries of a measured run.

use super::case::{Case, Instance};
use super::scheduler::{Policy, Scope};
use super::simulation::{Run, Setting};
use crate::WrongInput;
use crate::account::{Accounts, Class, Part, RunAccount, Runs, sweep};
use std::ops::Range;

/// The accounts of some modes.
#[derive(Debug)]
pub(super) struct Collected(Vec<Mode>);

#[derive(Debug)]
struct Mode {
    name: String,
    level: Option<u8>,
    programs: Range<usize>,
    account: RunAccount,
}

/// Checks that there is an account of this workload.
pub(super) fn check(case: &Case, scope: Scope) -> Result<(), WrongInput> {
    let why = match (case.devices(), scope) {
        (1, Scope::Global) => return Ok(()),
        (1, Scope::Local) => "with --scheduler local queues have no account of their own",
        _ => "the workload has several devices",
    };
    Err(WrongInput(format!("--account: {why}")))
}

impl Collected {
    /// Simulates each client alone under the default policy.
    pub(super) fn new(case: &Case, seed: u64) -> Self {
        let mut collected = Self(Vec::new());
        for (place, instance) in case.instances().into_iter().enumerate() {
            let (policy, scope, instances) = (&Policy::for_one(), Scope::Global, &[instance]);
            let name = format!("{} alone", case.client(instance).name);
            let setting = Setting { case, instances, policy, scope, seed };
            collected.add(name, None, place..place + 1, &setting);
        }
        collected
    }

    /// Simulates all clients under a policy.
    pub(super) fn run(&mut self, setting: &Setting<'_>) -> Run {
        let name = setting.policy.words().to_owned();
        let level = Some(setting.case.model().level);
        self.add(name, level, 0..setting.instances.len(), setting)
    }

    fn add(&mut self, name: String, level: Option<u8>, programs: Range<usize>, setting: &Setting<'_>) -> Run {
        let (run, mut changes) = setting.run_with_changes();
        let class = |instance: &Instance| match setting.case.client(*instance).is_critical() {
            true => Class::Urgent,
            false => Class::Batch,
        };
        let classes: Vec<Class> = setting.instances.iter().map(class).collect();
        let parts = run.clients.iter().zip(&classes).map(|(client, class)| {
            let inferences = client.latencies.len() as f64;
            let (work, class) = (client.work as f64, *class);
            Part { class, inferences, device_us: work / 1e3 / inferences.max(1.0), alone_ns: Some(work) }
        });
        let (entries, parts, doubts) =
            (sweep(&classes, &mut changes, 0, run.time), parts.collect(), Vec::new());
        self.0.push(Mode { name, level, programs, account: RunAccount { entries, parts, doubts } });
        run
    }

    pub(super) fn finish(self) -> Accounts {
        let runs = self.0.iter().map(|mode| Runs {
            mode: mode.name.clone(),
            level: mode.level,
            programs: mode.programs.clone(),
            alone: mode.level.is_none(),
            runs: vec![&mode.account],
        });
        Accounts::new(&runs.collect::<Vec<_>>())
    }
}
