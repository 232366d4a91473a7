//! The surroundings of a worker with the library: its configuration, the server and the rival.

use super::protocol::{Kind, On, Round, Took};
use super::target::Runtime;
use super::worker::{LaunchPath, Shim, Worker};
use crate::compare::interleave;
use crate::files::scratch;
use crate::process::{Program, SERVER_PATIENCE, poll};
use crate::processors;
use crate::server::Connection;
use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

/// The condition that decides the path of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// The library without queues.
    Forward,
    /// Queues without a rival of higher priority.
    Direct,
    /// The same, while somebody records the program.
    Traced,
    /// Queues with an idle rival of higher priority. Markers are recorded every so many commands; `None`
    /// leaves that to the adaptive window.
    Contended(Option<u32>),
    /// Queues that defer everything.
    Deferred,
}

/// The most launches between two markers without a limit.
const FREE_RUN: u32 = 64;

impl Condition {
    /// Returns the path of launches on this runtime. On one that runs kernels, the window can be full.
    fn path(self, runtime: &Runtime) -> LaunchPath {
        match self {
            Self::Contended(_) if matches!(runtime, Runtime::Real) => LaunchPath::Window,
            Self::Forward => LaunchPath::Forwarded,
            Self::Direct | Self::Traced | Self::Contended(_) => LaunchPath::Direct,
            Self::Deferred => LaunchPath::Deferred,
        }
    }

    /// Returns the environment without the scheduler.
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

    /// Returns true if the markers of a round show that the launch window had the right limit.
    fn has_right_limit(self, round: Round, took: Took) -> bool {
        round.kind != Kind::Launch || self.has_markers(round.calls, took.markers)
    }

    /// Returns true if so many markers among so many launches show that the launch window had the right
    /// limit.
    fn has_markers(self, launches: u32, markers: u64) -> bool {
        match self {
            Self::Forward => markers == 0,
            // Synchronizations and quiet moments may add one each.
            Self::Direct | Self::Traced => markers <= u64::from(launches / FREE_RUN) + 8,
            Self::Contended(Some(batch)) => markers + 1 >= u64::from(launches / batch),
            Self::Contended(None) | Self::Deferred => true,
        }
    }
}

/// Returns the environment of the scheduler: this server, or without one a policy in the process, or none.
fn scheduler(condition: Condition, server: Option<&Server>) -> Vec<(&'static str, OsString)> {
    match (server, condition) {
        (_, Condition::Forward) => Vec::new(),
        (Some(server), _) => {
            vec![("XSCHED_SCHEDULER", "GLB".into()), ("XSCHED_SOCKET", server.socket.clone().into())]
        }
        (None, Condition::Direct) => vec![("XSCHED_POLICY", "HPF".into())],
        // Without a policy the library must assume a rival, and limits the queues.
        (None, _) => vec![("XSCHED_SCHEDULER", "APP".into())],
    }
}

/// The cost of a call, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PerCall {
    pub(super) wall: f64,
    pub(super) cpu: f64,
}

/// Rounds of one kind, as many with the library as without it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) native: Vec<PerCall>,
    pub(super) shimmed: Vec<PerCall>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// A pair for each round of the plan, in its order.
    pub(super) pairs: Vec<Pair>,
    /// The calls of the worker with the library, all of which the library has counted.
    pub(super) counted: u64,
}

impl Measured {
    /// Adds the rounds of the same plan in other processes.
    fn append(&mut self, other: Self) {
        self.counted += other.counted;
        self.pairs.resize(other.pairs.len(), Pair { native: Vec::new(), shimmed: Vec::new() });
        for (pair, more) in self.pairs.iter_mut().zip(other.pairs) {
            pair.native.extend(more.native);
            pair.shimmed.extend(more.shimmed);
        }
    }
}

/// The worker that is started first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Shimmed,
    Native,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Setup<'a> {
    pub(super) library: &'a Path,
    pub(super) runtime: &'a Runtime,
    /// The `xserver` that is started for the measurement, if one schedules.
    pub(super) xserver: Option<&'a Path>,
}

/// An `xserver` of this measurement on a socket of its own.
#[derive(Debug)]
struct Server {
    program: Program,
    socket: PathBuf,
    _directory: TempDir,
}

impl Server {
    fn start(program: &Path) -> Result<Self> {
        let directory = scratch()?;
        let socket = directory.path().join("socket");
        let program = Program::server(program, &["HPF".to_owned()], &socket)?;
        Ok(Self { program, socket, _directory: directory })
    }

    fn await_clients(&self, clients: usize) -> Result<()> {
        let (mut server, mut connected) = (Connection::open(&self.socket)?, 0);
        let all = poll(SERVER_PATIENCE, || {
            connected = server.list()?.clients.len();
            Ok((connected >= clients).then_some(()))
        })?;
        all.with_context(|| format!("only {connected} of {clients} processes have connected to xserver"))
    }
}

/// Returns the processors that this process may use, as sets of one. Both workers make a round on the same processor. Every
/// two rounds they take the next one, so that both orders meet each processor. On the machine of an H200 two workers on
/// different processors differed by more than the library adds, for as long as they stayed there.
fn processors() -> Vec<CpuSet> {
    sched_getaffinity(None).map_or_else(|_| Vec::new(), |allowed| processors::each(&allowed).collect())
}

/// Makes rounds that do not count, until one has the right limit; at most for [`SERVER_PATIENCE`]. The first
/// looks functions up and warms caches. On a loaded machine the scheduler's first decision comes late, and
/// until then the launch window has another limit.
fn warm_up(mut round: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !round()? && begin.elapsed() < SERVER_PATIENCE {}
    Ok(())
}

impl Setup<'_> {
    fn worker(
        &self,
        condition: Condition,
        server: Option<&Server>,
        more: &[(&'static str, &str)],
    ) -> Result<Worker> {
        let mut environment = condition.environment();
        environment.extend(scheduler(condition, server));
        environment.extend(more.iter().map(|(name, value)| (*name, OsString::from(value))));
        let shim =
            Shim { library: self.library, environment: &environment, path: condition.path(self.runtime) };
        Worker::start(self.runtime, Some(shim))
    }

    /// Measures the rounds of a plan, each so often, without the library and under the condition. Divides the rounds among
    /// this number of pairs of processes. On the machine of an H200, the ratio of one pair was 0.97 to 1.04.
    pub(super) fn measure_in(
        &self,
        processes: usize,
        condition: Condition,
        plan: &[Round],
        rounds: usize,
    ) -> Result<Measured> {
        let mut all = Measured { pairs: Vec::new(), counted: 0 };
        for number in 0..processes {
            let first = if number % 2 == 0 { First::Shimmed } else { First::Native };
            // An even number, so that each begins as often as the other.
            let each = rounds.div_ceil(processes).next_multiple_of(2);
            all.append(self.measure_pair(first, number * each, condition, plan, each)?);
        }
        Ok(all)
    }

    /// Measures the rounds of a plan, each so often, without the library and under the condition.
    pub(super) fn measure(&self, condition: Condition, plan: &[Round], rounds: usize) -> Result<Measured> {
        self.measure_in(1, condition, plan, rounds)
    }

    /// Measures one pair of processes. `before`: the rounds of the pairs before it.
    fn measure_pair(
        &self,
        first: First,
        before: usize,
        condition: Condition,
        plan: &[Round],
        rounds: usize,
    ) -> Result<Measured> {
        let server = self.xserver.filter(|_| condition != Condition::Forward);
        let server = server.map(Server::start).transpose()?;
        let mut clients = 0;
        let mut connected = |worker: &mut Worker| {
            // The first call of a process connects it, and gives it a queue.
            worker.round(Round { kind: Kind::LaunchSync, on: On::Default, calls: 4 })?;
            clients += 1;
            server.as_ref().map_or(Ok(()), |server| server.await_clients(clients))
        };
        let rival = match condition {
            Condition::Contended(_) if server.is_some() => {
                let priority = [("XSCHED_AUTO_XQUEUE_PRIORITY", "10")];
                let mut rival = self.worker(Condition::Direct, server.as_ref(), &priority)?;
                connected(&mut rival)?;
                Some(rival)
            }
            _ => None,
        };
        let native = || Worker::start(self.runtime, None);
        let early = (first == First::Native).then(native).transpose()?;
        let mut shimmed = self.worker(condition, server.as_ref(), &[])?;
        connected(&mut shimmed)?;
        let _recorder = match &server {
            Some(server) if condition == Condition::Traced => {
                let mut recorder = Connection::open(&server.socket)?;
                recorder.trace_one()?;
                Some(recorder)
            }
            _ => None,
        };
        let mut workers = [early.map_or_else(native, Ok)?, shimmed];
        let processors = processors();
        let mut pairs = Vec::new();
        for &round in plan {
            let [native, shimmed] = &mut workers;
            native.round(round)?;
            warm_up(|| Ok(condition.has_right_limit(round, shimmed.round(round)?)))?;
            let figures = interleave(&[0, 1], rounds, |number, &index: &usize| {
                workers[index].keep_on(processors.get((before + number) / 2 % processors.len().max(1)));
                let took = workers[index].round(round)?;
                ensure!(
                    index == 0 || condition.has_right_limit(round, took),
                    "{condition:?}: {} markers among {} launches: the launch window has the wrong limit",
                    took.markers,
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
        let counted = shimmed.finish().with_context(|| format!("{condition:?}"))?;
        if let Some(rival) = rival {
            rival.finish().context("the rival")?;
        }
        if let Some(server) = server {
            server.program.terminate()?;
        }
        Ok(Measured { pairs, counted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_count_shows_the_limit() {
        assert!(Condition::Forward.has_markers(1000, 0) && !Condition::Forward.has_markers(1000, 1));
        assert!(Condition::Direct.has_markers(6400, 100) && !Condition::Direct.has_markers(6400, 800));
        let batches = Condition::Contended(Some(8));
        assert!(batches.has_markers(6400, 800) && batches.has_markers(6400, 799));
        assert!(!batches.has_markers(6400, 100));
    }

    #[test]
    fn rounds_of_several_processes_are_added() {
        let measured = |wall: f64| {
            let round = vec![PerCall { wall, cpu: 0.0 }];
            let pair = Pair { native: round.clone(), shimmed: round };
            Measured { pairs: vec![pair.clone(), pair], counted: 7 }
        };
        let mut all = Measured { pairs: Vec::new(), counted: 0 };
        all.append(measured(1.0));
        all.append(measured(2.0));
        assert_eq!((all.pairs.len(), all.counted), (2, 14));
        let walls = |rounds: &[PerCall]| rounds.iter().map(|round| round.wall).collect::<Vec<_>>();
        assert!(
            all.pairs
                .iter()
                .all(|pair| walls(&pair.native) == [1.0, 2.0] && walls(&pair.shimmed) == [1.0, 2.0])
        );
    }

    #[test]
    fn warm_up_lasts_until_the_limit_is_right() {
        let mut rounds = [false, false, true, false].into_iter();
        warm_up(|| Ok(rounds.next().expect("a round"))).unwrap();
        assert_eq!(rounds.len(), 1);
        assert!(warm_up(|| anyhow::bail!("the worker ended")).is_err());
    }

    #[test]
    fn library_without_queues_has_no_environment() {
        assert!(Condition::Forward.environment().is_empty());
        assert!(scheduler(Condition::Forward, None).is_empty());
        let names: Vec<_> =
            Condition::Contended(Some(8)).environment().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["XSCHED_AUTO_XQUEUE", "XSCHED_AUTO_XQUEUE_THRESHOLD", "XSCHED_AUTO_XQUEUE_BATCH_SIZE"]
        );
    }
}
