//! GANG: the processes of one job together, or not at all.
//!
//! # The rule
//! Processes with the same job hint are one job; a process without the hint is a job of its own. Two jobs are in each
//! other's way if one has work on a device on which the other has a queue. Jobs are taken in the order of falling
//! priority, and among equals in turn; each runs as a whole unless one that was taken before is in its way. So two jobs
//! never mix on a device, every job that waits has one before it in its way, and those that are in nobody's way run beside
//! each other.
//!
//! As long as one process of a job has work, all devices of the job count as its own, so that the parts of a collective
//! operation find each other at once on all of them. A job has the highest priority of its processes with work. A queue
//! of priority -256 never runs and is no part of the job.
//!
//! # Turns
//! Among equals a job keeps the first place until it has run for `slice-ms`; then it goes to the end of the line. The time
//! counts only while it runs: neither a job of higher priority nor a pause of its own costs it its turn. With `slice-ms` 0
//! jobs of equal priority run beside each other, as under HPF, and only the members of each stay together.
//!
//! The number of a job is what its processes say. A process that gives the number of another's job becomes a part of it.
//! The number goes with the process, and is forgotten with it; of a turn nothing is left when the last of the job has gone.
//!
//! # Where devices have policies of their own
//! Jobs hold together on the devices that this policy rules. A process that also uses a device of another policy has its
//! turns with its job, but while it is held up there the others run without it.
//!
//! # Parameters, wake-ups
//! `slice-ms`. While another waits for its turn, it is decided anew when the turn ends. Jobs of low priority can starve
//! unless `XSCHED_STARVATION_MS` is set; when a process has waited for that long, its whole job runs.

use crate::parameter::{Parameter, Values};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::PRIORITY;
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::operation::UnitId;
use protocol::time::Time;
use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[Parameter {
    name: "slice-ms",
    meaning: "how long the turn of a job among equals is, in milliseconds; with 0 they run beside each other",
    range: (0.0, 1e6),
    default: 100.0,
}];

/// No wake-up comes sooner, so that a turn that stands still shortly before its end does not cause one after the other.
const GRAIN: Duration = Duration::from_micros(100);

/// Where a job is in its line; each of its members knows it.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Since when it has been in the line.
    queued: Option<Time>,
    /// How much of its turn it has had.
    used: Duration,
}

/// An entity in its job: the hinted number and, for those without one, what tells them apart.
type Member = ((u64, usize), usize);

/// Those that run together.
#[derive(Debug, Clone)]
struct Job {
    /// What jobs are taken by: the priority, since when in the line, and what makes the order complete.
    order: (Reverse<Priority>, Time, UnitId),
    /// Any of it has work.
    ready: bool,
    /// What is left of its turn.
    left: Duration,
    members: Range<usize>,
    runs: bool,
}

/// What those who run do on a device.
#[derive(Debug, Clone, Copy, Default)]
struct Device {
    used: bool,
    busy: bool,
}

/// All or nothing; see the head of this file.
#[derive(Debug, Default)]
pub struct Gang {
    slice: Duration,
    turns: PerEntity<Turn>,
    members: Vec<Member>,
    jobs: Vec<Job>,
    devices: Vec<Device>,
}

impl Policy for Gang {
    fn configure(&mut self, values: &Values) {
        self.slice = values.millis("slice-ms");
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        self.members.clear();
        for (index, entity) in input.members().filter(|(_, entity)| entity.priority != Priority::NO_EXECUTE) {
            self.members.push((key(entity, index), index));
        }
        self.members.sort_unstable();
        self.note_jobs(input);
        self.jobs.sort_unstable_by_key(|job| job.order);
        let left = self.choose(input.entities);
        for job in &self.jobs {
            let reason = PRIORITY.number(job.order.0.0.into());
            for &((number, _), index) in &self.members[job.members.clone()] {
                let entity = &input.entities.all()[index];
                let alone = number == 0 && matches!(entity.id, UnitId::Gang(_));
                rankings[index] = Ranking {
                    job: (!alone).then_some(number),
                    reserves: job.ready,
                    // Who runs is in nobody's way. Who does not has one of these in its own, which ranks higher and
                    // keeps all its devices.
                    ..Ranking::new(i64::from(job.runs), reason)
                };
            }
        }
        left.map(|left| input.now.after(left.max(GRAIN)))
    }

    fn hears_idle(&self) -> bool {
        // Or else steps that follow each other would never use up a turn.
        true
    }
}

impl Gang {
    /// Collects the jobs, and brings their turns up to date.
    fn note_jobs(&mut self, input: Input<'_>) {
        let all = input.entities.all();
        let turns = self.turns.align(all);
        self.jobs.clear();
        let mut first = 0;
        for members in self.members.chunk_by(|one, other| one.0 == other.0) {
            let entities = || members.iter().map(|&(_, index)| &all[index]);
            let ready = entities().any(|entity| entity.ready);
            let counts = || entities().filter(|entity| entity.ready || !ready);
            // A chunk has at least one entity.
            let priority = counts().map(|entity| entity.priority).max().unwrap_or_default();
            let since = counts().map(|entity| entity.since).min().unwrap_or(input.now);
            let id = entities().map(|entity| entity.id).min().unwrap_or(all[members[0].1].id);
            let known = || members.iter().map(|&(_, index)| turns[index]);
            let ran = entities().map(|entity| entity.ran).max().unwrap_or_default();
            let mut used = known().map(|turn| turn.used).max().unwrap_or_default() + ran;
            let mut queued = known().filter_map(|turn| turn.queued).min();
            if ready {
                queued = queued.or(Some(since));
            }
            if used >= self.slice {
                (queued, used) = (queued.map(|_| input.now), Duration::ZERO);
            }
            for &(_, index) in members {
                turns[index] = Turn { queued, used };
            }
            self.jobs.push(Job {
                order: (Reverse(priority), queued.unwrap_or(since), id),
                ready,
                left: self.slice.saturating_sub(used),
                members: first..first + members.len(),
                runs: false,
            });
            first += members.len();
        }
    }

    /// Finds the jobs that run; returns when the first of their turns ends, if somebody waits for that.
    fn choose(&mut self, entities: &SchedEntities) -> Option<Duration> {
        let Self { slice, members, jobs, devices, .. } = self;
        devices.clear();
        devices.resize(entities.devices().len(), Device::default());
        let uses = |job: &Job| {
            let members = &members[job.members.clone()];
            members.iter().flat_map(|&(_, index)| entities.uses(&entities.all()[index]))
        };
        let keep = |devices: &mut [Device], job: &Job| {
            for used in uses(job).filter(|_| job.runs && job.ready) {
                devices[used.device].used = true;
                devices[used.device].busy |= used.busy;
            }
        };
        let mut ends = None;
        for equals in jobs.chunk_by_mut(|one, other| one.order.0 == other.order.0) {
            for job in equals.iter_mut() {
                let blocked = uses(job).any(|used| {
                    let Device { used: taken, busy } = devices[used.device];
                    // One that is idle may get work on any of its devices.
                    busy || taken && (used.busy || !job.ready)
                });
                job.runs = !blocked;
                if !slice.is_zero() {
                    keep(devices, job);
                }
            }
            if slice.is_zero() {
                // Equals are not in each other's way.
                equals.iter().for_each(|job| keep(devices, job));
            } else if equals.iter().any(|job| job.ready && !job.runs) {
                let turns = equals.iter().filter(|job| job.ready && job.runs);
                ends = earlier(ends, turns.map(|job| job.left).min());
            }
        }
        ends
    }
}

/// Which job an entity belongs to. Under the local scheduler all queues are of one process, and so of one job.
fn key(entity: &SchedEntity, index: usize) -> (u64, usize) {
    match (entity.process.job, entity.id) {
        (Some(job), _) => (job.get(), 0),
        (None, UnitId::Queue(_)) => (0, 0),
        (None, UnitId::Gang(_)) => (0, index),
    }
}
