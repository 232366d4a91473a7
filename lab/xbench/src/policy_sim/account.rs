//! The account of the device's time in simulation, with the entries of a measured run.

use super::case::{Case, Instance};
use super::scheduler::Scope;
use super::simulation::{Run, Setting};
use crate::WrongInput;
use crate::account::{Accounts, Class, Part, RunAccount, Runs, sweep};
use std::ops::Range;

/// The accounts of some modes.
#[derive(Debug, Default)]
pub(super) struct Collected(Vec<Runs>);

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
    /// Simulates one client alone, the one of this number.
    pub(super) fn run_alone(&mut self, setting: &Setting<'_>, number: usize) -> Run {
        let name = format!("{} alone", setting.case.client(setting.instances[0]).name);
        self.add(name, None, number..number + 1, setting)
    }

    /// Lets the last client that ran alone stand for the next one as well.
    pub(super) fn repeat_alone(&mut self) {
        if let Some(last) = self.0.last_mut() {
            last.programs.end += 1;
        }
    }

    /// Simulates all clients under a policy.
    pub(super) fn run(&mut self, setting: &Setting<'_>) -> Run {
        let name = setting.policy.words().to_owned();
        let level = Some(setting.case.model().level);
        self.add(name, level, 0..setting.instances.len(), setting)
    }

    fn add(&mut self, mode: String, level: Option<u8>, programs: Range<usize>, setting: &Setting<'_>) -> Run {
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
        let runs = vec![RunAccount { entries, parts, latency: Vec::new(), doubts }];
        self.0.push(Runs { mode, level, programs, alone: level.is_none(), runs });
        run
    }

    pub(super) fn finish(self) -> Accounts {
        Accounts::new(&self.0)
    }
}
