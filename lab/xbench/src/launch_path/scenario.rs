//! What surrounds a worker with the library: how it is configured, which server and which rival there are.

use super::server::Server;
use super::target::Runtime;
use super::worker::{Kind, On, Round, Shim, Way, Worker};
use crate::compare::interleave;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::Path;

/// Why a launch takes the way it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// The library without queues.
    Forward,
    /// Queues, and nobody who could outrank them.
    Direct,
    /// Queues, and an idle rival of higher priority. Marks are recorded every so many commands, or, with none, as the
    /// adaptive window wants them.
    Contended(Option<u32>),
    /// Queues that defer everything.
    Deferred,
}

/// Most launches without a limit from one mark to the next.
const FREE_RUN: u32 = 64;

impl Scenario {
    /// The way that the launches must take.
    fn way(self) -> Way {
        match self {
            Self::Forward => Way::Forwarded,
            Self::Direct | Self::Contended(_) => Way::Direct,
            Self::Deferred => Way::Deferred,
        }
    }

    /// The environment, but for the scheduler.
    fn environment(self) -> Vec<(&'static str, OsString)> {
        let mut environment = match self {
            Self::Forward => return Vec::new(),
            _ => vec![("XSCHED_AUTO_XQUEUE", "ON".into())],
        };
        match self {
            Self::Contended(Some(batch)) => {
                environment.push(("XSCHED_AUTO_XQUEUE_THRESHOLD", (2 * batch).to_string().into()));
                environment.push(("XSCHED_AUTO_XQUEUE_BATCH_SIZE", batch.to_string().into()));
            }
            Self::Deferred => environment.push(("XSCHED_TEST", "defer".into())),
            _ => {}
        }
        environment
    }

    /// Whether so many marks among so many launches show that the limit was as it should be.
    fn has_marks(self, launches: u32, marks: u64) -> bool {
        match self {
            Self::Forward => marks == 0,
            // Synchronizations and quiet moments may add one each.
            Self::Direct => marks <= u64::from(launches / FREE_RUN) + 8,
            Self::Contended(Some(batch)) => marks + 1 >= u64::from(launches / batch),
            Self::Contended(None) | Self::Deferred => true,
        }
    }
}

/// Who schedules.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scheduler<'a> {
    /// This `xserver`, started for the measurement.
    Server(&'a Path),
    /// Nobody outside the process: a policy in it, or nobody.
    Local,
}

impl Scheduler<'_> {
    fn environment(self, scenario: Scenario, server: Option<&Server>) -> Vec<(&'static str, OsString)> {
        match (server, scenario) {
            (_, Scenario::Forward) => Vec::new(),
            (Some(server), _) => {
                vec![("XSCHED_SCHEDULER", "GLB".into()), ("XSCHED_SOCKET", server.socket().into())]
            }
            (None, Scenario::Direct) => vec![("XSCHED_POLICY", "HPF".into())],
            // Queues that no policy knows to be without rivals are limited.
            (None, _) => vec![("XSCHED_SCHEDULER", "APP".into())],
        }
    }
}

/// What the rounds of one kind took, per call: nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PerCall {
    pub(super) wall: f64,
    pub(super) cpu: f64,
}

/// One kind of round, natively and through the library; equally many rounds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) native: Vec<PerCall>,
    pub(super) shimmed: Vec<PerCall>,
}

/// What two workers took.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// One for each round of the plan, in its order.
    pub(super) pairs: Vec<Pair>,
    /// Calls that the library's worker made, all of which the library has counted.
    pub(super) counted: u64,
}

/// The files that take part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) library: &'a Path,
    pub(super) runtime: &'a Runtime,
    pub(super) scheduler: Scheduler<'a>,
}

impl Parts<'_> {
    fn worker(
        &self,
        scenario: Scenario,
        server: Option<&Server>,
        more: &[(&'static str, &str)],
    ) -> Result<Worker> {
        let mut environment = scenario.environment();
        environment.extend(self.scheduler.environment(scenario, server));
        environment.extend(more.iter().map(|(name, value)| (*name, OsString::from(value))));
        let shim = Shim { library: self.library, environment: &environment, way: scenario.way() };
        Worker::start(self.runtime, Some(shim))
    }

    /// Measures the rounds of a plan, each so often, natively and in the scenario.
    pub(super) fn measure(&self, scenario: Scenario, plan: &[Round], rounds: usize) -> Result<Measured> {
        let server = match self.scheduler {
            Scheduler::Server(program) if scenario != Scenario::Forward => Some(Server::start(program)?),
            _ => None,
        };
        let mut clients = 0;
        let mut connected = |worker: &mut Worker| {
            // The first call of a process connects it, and gives it a queue.
            worker.round(Round { kind: Kind::LaunchSync, on: On::Default, calls: 4 })?;
            clients += 1;
            server.as_ref().map_or(Ok(()), |server| server.wait_for(clients))
        };
        let rival = match scenario {
            Scenario::Contended(_) if server.is_some() => {
                let priority = [("XSCHED_AUTO_XQUEUE_PRIORITY", "10")];
                let mut rival = self.worker(Scenario::Direct, server.as_ref(), &priority)?;
                connected(&mut rival)?;
                Some(rival)
            }
            _ => None,
        };
        let mut shimmed = self.worker(scenario, server.as_ref(), &[])?;
        connected(&mut shimmed)?;
        let mut workers = [Worker::start(self.runtime, None)?, shimmed];
        let mut pairs = Vec::new();
        for &round in plan {
            // The first round of each worker looks functions up and warms caches; it is not one of the figures.
            for worker in &mut workers {
                worker.round(round)?;
            }
            let figures = interleave(&[0, 1], rounds, |_, &index: &usize| {
                let took = workers[index].round(round)?;
                ensure!(
                    index == 0 || round.kind != Kind::Launch || scenario.has_marks(round.calls, took.marks),
                    "{scenario:?}: {} marks among {} launches: the limit is not what it should be",
                    took.marks,
                    round.calls
                );
                let each = |time: u64| time as f64 / f64::from(round.calls);
                Ok(PerCall { wall: each(took.wall), cpu: each(took.cpu) })
            })?;
            let [native, shimmed] = figures.try_into().expect("two modes give two lists");
            pairs.push(Pair { native, shimmed });
        }
        let [native, shimmed] = workers;
        native.finish()?;
        let counted = shimmed.finish().with_context(|| format!("{scenario:?}"))?;
        if let Some(rival) = rival {
            rival.finish().context("the rival")?;
        }
        Ok(Measured { pairs, counted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_the_limit() {
        assert!(Scenario::Forward.has_marks(1000, 0) && !Scenario::Forward.has_marks(1000, 1));
        assert!(Scenario::Direct.has_marks(6400, 100) && !Scenario::Direct.has_marks(6400, 800));
        let batches = Scenario::Contended(Some(8));
        assert!(batches.has_marks(6400, 800) && batches.has_marks(6400, 799));
        assert!(!batches.has_marks(6400, 100));
    }

    #[test]
    fn a_library_without_queues_has_no_environment() {
        assert!(Scenario::Forward.environment().is_empty());
        assert!(Scheduler::Local.environment(Scenario::Forward, None).is_empty());
        let names: Vec<_> =
            Scenario::Contended(Some(8)).environment().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["XSCHED_AUTO_XQUEUE", "XSCHED_AUTO_XQUEUE_THRESHOLD", "XSCHED_AUTO_XQUEUE_BATCH_SIZE"]
        );
    }
}
