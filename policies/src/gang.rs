//! GANG: the processes of one job together, or not at all.
//!
//! # The rule
//! Processes with the same job hint are one job; a process without the hint is a job of its own. Two jobs
//! conflict if one has work on a device on which the other one has a queue. Jobs are taken in the order of
//! falling priority, and round robin among equals. Each runs as a whole unless it conflicts with one that was
//! taken before. So two jobs never share a device, every job that waits conflicts with one before it, and
//! jobs without a conflict run beside each other.
//!
//! As long as one process of a job has work, all devices of the job count as its own, so that the parts of a
//! collective operation find each other at once on all of them. A job has the highest priority of its
//! processes with work. A queue of priority -256 never runs and is no part of the job.
//!
//! # Slices
//! Among equals a job keeps the first place until it has run for `slice-ms`; then it goes to the end of the
//! line. Time counts only while it runs, so neither a job of higher priority nor a pause of its own costs it
//! its slice. With `slice-ms` 0 jobs of equal priority run beside each other, as under HPF, and only the
//! members of each stay together.
//!
//! The number of a job is what its processes say: a process that gives the number of another job becomes a
//! part of it. The number belongs to the process and is forgotten with it; the used part of the slice is
//! forgotten with the last process of the job.
//!
//! # Where devices have policies of their own
//! Jobs hold together on the devices that this policy rules. A process that also uses a device of another
//! policy has its slices with its job; while it is held up there, the others run without it.
//!
//! # Parameters, wake-ups
//! `slice-ms`. While another job waits for its slice, a decision comes when the present slice ends. Jobs of
//! low priority can starve unless `XSCHED_STARVATION_MS` is set; when a process has waited for that long, its
//! whole job runs.

use crate::parameter::{Parameter, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::PRIORITY;
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::operation::EntityId;
use protocol::time::Time;
use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

pub(crate) const PARAMETERS: &[Parameter] = &[parameter!("slice-ms" in (0.0, 1e6), default 100.0,
    "the slice of a job among equals, in milliseconds; with 0 they run beside each other")];

/// The shortest time to a wake-up. Without it a slice that stands still shortly before its end would cause
/// one wake-up after the other.
const GRAIN: Duration = Duration::from_micros(100);

/// The position of a job in its line; each of its members stores it.
#[derive(Debug, Clone, Copy, Default)]
struct JobSlice {
    /// The time at which it joined the line.
    queued: Option<Time>,
    /// The used part of its slice.
    used: Duration,
}

/// An entity in its job: the hinted number, the owner or what tells those without a number apart, and the index.
type Member = ((u64, usize), usize);

/// Entities that run together.
#[derive(Debug, Clone)]
struct Job {
    /// The order in which jobs are taken: the priority, the time in the line, and what makes the order
    /// complete.
    order: (Reverse<Priority>, Time, EntityId),
    /// True if any member has work.
    ready: bool,
    /// Time that is left of its slice.
    left: Duration,
    members: Range<usize>,
    runs: bool,
}

/// The use of a device by the jobs that run.
#[derive(Debug, Clone, Copy, Default)]
struct Device {
    used: bool,
    busy: bool,
}

/// All or nothing; see the head of this file.
#[derive(Debug, Default)]
pub struct Gang {
    slice: Duration,
    slices: PerEntity<JobSlice>,
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
                let alone = number == 0 && matches!(entity.id, EntityId::Gang(_));
                rankings[index] = Ranking {
                    job: (!alone).then_some(number),
                    reserves: job.ready,
                    // A job that runs conflicts with none. One that does not run conflicts with one of these,
                    // which ranks higher and keeps all its devices.
                    ..Ranking::new(i64::from(job.runs), reason)
                };
            }
        }
        left.map(|left| input.now.after(left.max(GRAIN)))
    }

    fn needs_idle_events(&self) -> bool {
        // Otherwise short work in quick succession would never use up a slice.
        true
    }
}

impl Gang {
    /// Collects the jobs, and brings their slices up to date.
    fn note_jobs(&mut self, input: Input<'_>) {
        let all = input.entities.all();
        let slices = self.slices.align(all);
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
            let known = || members.iter().map(|&(_, index)| slices[index]);
            let ran = entities().map(|entity| entity.ran).max().unwrap_or_default();
            let mut used = known().map(|slice| slice.used).max().unwrap_or_default() + ran;
            let mut queued = known().filter_map(|slice| slice.queued).min();
            if ready {
                queued = queued.or(Some(since));
            }
            if used >= self.slice {
                (queued, used) = (queued.map(|_| input.now), Duration::ZERO);
            }
            for &(_, index) in members {
                slices[index] = JobSlice { queued, used };
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

    /// Finds the jobs that run. Returns the time until the first of their slices ends, if another job waits
    /// for that.
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
                    // An idle job may get work on any of its devices.
                    busy || taken && (used.busy || !job.ready)
                });
                job.runs = !blocked;
                if !slice.is_zero() {
                    keep(devices, job);
                }
            }
            if slice.is_zero() {
                // Equals do not conflict.
                equals.iter().for_each(|job| keep(devices, job));
            } else if equals.iter().any(|job| job.ready && !job.runs) {
                let running = equals.iter().filter(|job| job.ready && job.runs);
                ends = earlier(ends, running.map(|job| job.left).min());
            }
        }
        ends
    }
}

/// Returns the job of an entity. Under the local scheduler all queues belong to one process, and so to one
/// job.
fn key(entity: &SchedEntity, index: usize) -> (u64, usize) {
    match (entity.process.job, entity.id) {
        // Jobs of different owners are different jobs.
        (Some(job), _) => (job.get(), entity.owner as usize),
        (None, EntityId::Queue(_)) => (0, 0),
        (None, EntityId::Gang(_)) => (0, index),
    }
}
