//! SLO: as much best effort as a latency target allows.
//!
//! # The rule
//! Entities whose priority is above `critical-above` are critical; they run by priority, before all others.
//! The work of a critical entity from the time at which it has work until it has none is a request. The 99th
//! percentile of the last `window` requests must stay below the target: the shortest deadline that the
//! entity's queues hint, or `target-ms`. By this measure a program whose queue runs empty within a request
//! has several requests, and requests that overlap are one. Where requests queue up, the measured time is
//! longer, and the target is kept with more room.
//!
//! A controller for each device decides at the end of each request how much best effort gets, 0 to 200 %:
//!
//! * Up to 100 % best effort has that share of the time in which no critical entity has work (a duty cycle of
//!   `period-ms`), and nothing beside critical work.
//! * Above 100 % it has all of that time. It also runs beside each critical request until the request is as
//!   old as the surplus says, in percent of the target. A request that takes longer has the device for itself
//!   from then on.
//!
//! Best-effort work in flight when a critical request arrives delays the request as well. With a surplus its
//! window admits as much time as it may run beside a request, a sixteenth of the target at most, instead of
//! the library's own window.
//!
//! The controller begins with 100 %, which is HPF. While the percentile of all critical entities is below
//! `room-percent` of their targets, each request adds `step-percent`. If the percentile of one is above its
//! target, the surplus is cut to 70 %, or without a surplus the share to half. Then earlier requests are
//! forgotten, and nothing is added for as many requests as make those that were too late 1 % of all (300 for
//! a window of 200).
//!
//! Best effort runs beside critical work only where all critical entities with work are of one priority, and
//! then only its highest priority. When no critical entity has had work for `quiet-ms`, best effort runs
//! freely.
//!
//! # What it can reach
//! It reaches no more than HPF with an idle device. If critical requests are too late although best effort is
//! at 0 %, it stays there (or at `least-percent`), and `unreachable` counts how often that was found. Where
//! 300 requests take long it follows slowly, because after a cut it waits for so many. Best effort beside
//! critical work is a gain where the device gets more done with both than with one after the other, or where
//! critical work keeps it busy nearly all the time; elsewhere `most-percent` of 100 keeps them apart.
//!
//! In simulated plants (5 to 90 % of the time busy, both programs at 0.6 of their speed beside each other)
//! best effort got 97 % and more of what the best fixed time beside each request would have given it, where
//! requests came at random, with a percentile of at most 1.06 of the target. Where all requests took the same
//! time it got 90 % and more of what is best for 80 % of the target, where the controller stops.
//!
//! Counters: `requests`; `late`, requests that took longer than the target; `raised` and `cut`, changes of a
//! share; `unreachable`; and `share-percent`, the present share of the device with the least best effort.
//!
//! # Parameters, wake-ups
//! It wakes up at the ends of a duty cycle, when a request is too old for best effort beside it, and after a
//! quiet time, if best-effort work waits or runs. It is asked at each end of a request. Where critical work
//! leaves no time, best effort can starve, unless `XSCHED_STARVATION_MS` is set; time that the duty cycle
//! withholds stays withheld even then.

mod controller;
mod window;

use crate::parameter::{CRITICAL_ABOVE, Parameter, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{PRIORITY, ReasonKind, first};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::times::earlier;
use controller::{Controller, Finding, Settings, Step};
use protocol::bounds::Priority;
use protocol::operation::{self, Throttle};
use protocol::time::Time;
use std::time::Duration;
use window::Window;

/// Priority of the critical work beside which the entity may run, higher than its own.
pub(crate) const BESIDE: &ReasonKind =
    &ReasonKind::new("Beside", |its| format!("runs beside work of priority {}", first(its))).comparing(
        |its, own| {
            let (its, own_priority) = (first(its), PRIORITY.is(&own).then(|| first(own))?);
            Some(format!("runs beside work of priority {its} > {own_priority}"))
        },
    );

pub(crate) const PARAMETERS: &[Parameter] = &[
    parameter!("target-ms" in (0.01, 100_000.0), default 10.0,
        "the time that 99 of 100 critical requests may take, where no deadline is hinted"),
    CRITICAL_ABOVE,
    parameter!("window" in (1.0, Window::LARGEST as f64), default 200.0,
        "the number of requests of an entity of which the percentile is taken"),
    parameter!("room-percent" in (1.0, 100.0), default 80.0,
        "best effort gets more while the percentile is below this part of the target"),
    parameter!("step-percent" in (0.001, 10.0), default 0.2, "the increase with each request"),
    parameter!("least-percent" in (0.0, 100.0), default 0.0,
        "the share of the time without critical work that best effort gets in any case"),
    parameter!("most-percent" in (100.0, 200.0), default 200.0,
        "the most that best effort gets; 100: never beside critical work"),
    parameter!("period-ms" in (0.5, 1_000.0), default 4.0,
        "the period of the duty cycle while best effort has less than all of that time"),
    parameter!("quiet-ms" in (1.0, 1_000_000.0), default 1_000.0,
        "the time without critical work after which best effort runs freely"),
];

/// As much best effort as a latency target allows; see the head of this file.
#[derive(Debug, Default)]
pub struct Slo {
    above: i32,
    target: Duration,
    room: f64,
    settings: Settings,
    entries: PerEntity<Entry>,
    /// In the order of the devices of the entities, followed by some of those that had no queue lately.
    controllers: Vec<Controller>,
    cells: Vec<Cell>,
    /// The requests that have ended: the index of the entity, and what the request says of the target.
    ended: Vec<(usize, Finding)>,
    counts: Counts,
    /// The time of the last decision.
    last: Time,
}

#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    late: u64,
    raised: u64,
    cut: u64,
    unreachable: u64,
}

/// State of an entity.
#[derive(Debug, Default)]
struct Entry {
    /// The time at which the present request began.
    request: Option<Time>,
    /// The times at which the last request began and ended.
    began: Time,
    ended: Time,
    window: Window,
    /// The number of cuts of its devices when its window began.
    epoch: u64,
    /// True if its last request left little room.
    tight: bool,
}

/// The state of a device in one decision.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// The priority of the critical entities that have work, if it is one.
    critical: Option<Priority>,
    mixed: bool,
    /// The time until which best effort may run beside them.
    beside: Time,
    /// The work that best effort may have in flight here when a critical entity comes.
    window: Option<Duration>,
    /// The highest priority of best effort that has work.
    best: Option<Priority>,
    /// True if a critical entity has little room.
    tight: bool,
    /// True if it was cut in this decision.
    cut: bool,
    /// True if best effort may run while no critical entity has work.
    open: bool,
}

impl Slo {
    /// The number of controllers that are kept for devices without a queue.
    const REMEMBERED: usize = 16;

    fn is_critical(&self, entity: &SchedEntity) -> bool {
        entity.priority.get() > self.above
    }

    fn target(&self, entity: &SchedEntity) -> Duration {
        entity.deadline.map_or(self.target, |(micros, _)| Duration::from_micros(micros.get()))
    }

    /// Brings the controllers into the order of the devices.
    fn align(&mut self, entities: &SchedEntities) {
        for (index, device) in entities.devices().iter().enumerate() {
            if self.controllers.get(index).is_some_and(|controller| controller.device == *device) {
                continue;
            }
            match self.controllers.iter().position(|controller| controller.device == *device) {
                Some(known) => self.controllers.swap(index, known),
                None => self.controllers.insert(index, Controller::new(*device)),
            }
        }
        self.controllers.truncate(entities.devices().len() + Self::REMEMBERED);
    }

    /// Notes whether a request of the entity has begun or ended. Returns what a request that has ended says
    /// of the target.
    fn watch(
        &mut self,
        entry: &mut Entry,
        entity: &SchedEntity,
        entities: &SchedEntities,
        now: Time,
    ) -> Option<Finding> {
        if entity.working && self.is_critical(entity) {
            let critical = entities.queues(entity).iter().filter(|queue| queue.priority.get() > self.above);
            // A queue that turned idle with the last request and only counts as ready does not belong to this
            // one.
            let ready = critical.filter_map(|queue| queue.ready_since).filter(|since| *since > entry.ended);
            let since = ready.min().unwrap_or(entity.since).min(now);
            // If all its work has come since the last decision, it was idle in between for an unknown time.
            if entry.request.is_none() || since > self.last {
                (entry.began, entry.request) = (since, Some(since));
            }
            return None;
        }
        let request = entry.request?;
        entry.request = None;
        entry.ended = entity.idle_since.unwrap_or(now).max(request);
        if entity.working {
            entry.ended = now;
        }
        let latency = entry.ended.since(request);
        let target = self.target(entity);
        let cuts = entities.uses(entity).iter().map(|used| self.controllers[used.device].cuts);
        let epoch = cuts.fold(0u64, u64::wrapping_add);
        if entry.epoch != epoch {
            // Earlier requests were made under another share.
            entry.epoch = epoch;
            entry.window.clear();
        }
        entry.window.note(latency, self.settings.window);
        self.counts.requests += 1;
        self.counts.late += u64::from(latency > target);
        let p99 = entry.window.p99(self.settings.window).unwrap_or_default();
        let finding = match p99 {
            p99 if p99 > target => Finding::Violated,
            p99 if p99 >= target.mul_f64(self.room) => Finding::Tight,
            _ => Finding::Room,
        };
        for used in entities.uses(entity) {
            let controller = &mut self.controllers[used.device];
            controller.heard = controller.heard.max(Some(entry.ended));
            if finding == Finding::Violated {
                controller.blame = (p99, target);
            }
        }
        entry.tight = finding != Finding::Room;
        Some(finding)
    }

    /// Looks at all critical entities: which requests have ended, and which entities have work.
    fn look(&mut self, input: &Input<'_>) {
        let Input { entities, now, .. } = *input;
        let fresh = Cell {
            critical: None,
            mixed: false,
            beside: Time(u64::MAX),
            window: None,
            best: None,
            tight: false,
            cut: false,
            open: true,
        };
        self.cells.clear();
        self.cells.resize(entities.devices().len(), fresh);
        self.ended.clear();
        let mut taken = std::mem::take(&mut self.entries);
        let entries = taken.align(entities.all());
        for (index, entity) in input.members() {
            let entry = &mut entries[index];
            if let Some(finding) = self.watch(entry, entity, entities, now) {
                self.ended.push((index, finding));
            }
            // An entity that has been quiet delays no other.
            let tight = entry.tight && entry.ended.after(self.settings.quiet) > now;
            for used in entities.uses(entity).iter().filter(|_| tight) {
                self.cells[used.device].tight = true;
            }
        }
        self.steer(entities);
        for (index, entity) in input.members() {
            let critical = self.is_critical(entity);
            let target = self.target(entity);
            for used in entities.uses(entity) {
                let (cell, controller) = (&mut self.cells[used.device], &mut self.controllers[used.device]);
                let beside = controller.beside(target);
                if critical {
                    let window = beside.min(target / 16);
                    cell.window = Some(cell.window.map_or(window, |least| least.min(window)));
                }
                if !entity.ready {
                    continue;
                }
                if !critical {
                    cell.best = cell.best.max(Some(entity.priority));
                } else if used.busy {
                    controller.heard = Some(now);
                    cell.mixed |= cell.critical.is_some_and(|other| other != entity.priority);
                    cell.critical = cell.critical.max(Some(entity.priority));
                    cell.beside = cell.beside.min(entries[index].began.after(beside));
                }
            }
        }
        self.entries = taken;
        self.last = now;
    }

    /// Lets the controllers take a step for the devices on which requests have ended.
    fn steer(&mut self, entities: &SchedEntities) {
        for (index, finding) in &self.ended {
            for used in entities.uses(&entities.all()[*index]) {
                let cell = &mut self.cells[used.device];
                let finding = match finding {
                    // Requests that end together count once.
                    Finding::Violated if std::mem::replace(&mut cell.cut, true) => Finding::Tight,
                    Finding::Room if cell.tight => Finding::Tight,
                    finding => *finding,
                };
                let count = match self.controllers[used.device].step(finding, &self.settings) {
                    Step::Kept => continue,
                    Step::Raised => &mut self.counts.raised,
                    Step::Cut => &mut self.counts.cut,
                    Step::Bottom => &mut self.counts.unreachable,
                };
                *count += 1;
            }
        }
    }

    /// Returns the priority with which a best-effort entity may run beside the critical ones of its devices,
    /// if it may.
    fn beside(&self, entity: &SchedEntity, entities: &SchedEntities, now: Time) -> Option<Priority> {
        let mut rank = None;
        for used in entities.uses(entity) {
            let cell = &self.cells[used.device];
            if cell.best.is_some_and(|best| best > entity.priority) {
                return None;
            }
            let Some(critical) = cell.critical else { continue };
            if cell.mixed || cell.beside <= now {
                return None;
            }
            // Never above any of them.
            rank = Some(rank.map_or(critical, |rank: Priority| rank.min(critical)));
        }
        rank
    }
}

impl Policy for Slo {
    fn configure(&mut self, values: &Values) {
        let share = |name| values.get(name) / 1e2;
        self.above = values.get(CRITICAL_ABOVE.name) as i32;
        self.target = values.millis("target-ms");
        self.room = share("room-percent");
        self.settings = Settings {
            step: share("step-percent"),
            least: share("least-percent"),
            most: share("most-percent"),
            window: values.get("window") as usize,
            period: values.millis("period-ms"),
            quiet: values.millis("quiet-ms"),
        };
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let Input { entities, now, .. } = input;
        self.align(entities);
        self.look(&input);
        let mut wake: Option<Time> = None;
        for (cell, controller) in self.cells.iter_mut().zip(&self.controllers) {
            let change = if cell.critical.is_some() {
                Some(cell.beside).filter(|_| !cell.mixed)
            } else {
                let (open, change) = controller.idle(now, &self.settings);
                cell.open = open;
                change
            };
            let change = change.filter(|change| cell.best.is_some() && *change > now);
            wake = earlier(wake, change);
        }
        let highest = input.members().map(|(_, entity)| entity.ceiling).max().unwrap_or_default();
        for (index, entity) in input.members() {
            let [mut rank, floor, mut ceiling] = [entity.priority, entity.floor, entity.ceiling];
            let (mut throttle, mut reason, mut window) =
                (None, PRIORITY.number(rank.into()), operation::Window::OWN);
            if !self.is_critical(entity) {
                let windows = entities.uses(entity).iter().filter_map(|used| self.cells[used.device].window);
                window = windows.min().map(operation::Window::at_most).unwrap_or_default();
                if let Some(beside) = self.beside(entity, entities, now) {
                    (rank, reason) = (beside, BESIDE.number(beside.into()));
                }
                let shut = entities.uses(entity).iter().find(|used| !self.cells[used.device].open);
                throttle = shut.map(|used| {
                    let (p99, target) = self.controllers[used.device].blame;
                    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
                    Throttle::Latency { p99_us: micros(p99), target_us: micros(target) }
                });
            }
            if floor.get() <= self.above {
                ceiling = highest;
            }
            let range = Some((floor.into(), ceiling.into()));
            rankings[index] = Ranking { range, window, throttle, ..Ranking::new(rank.into(), reason) };
        }
        wake
    }

    fn needs_idle_events(&self) -> bool {
        true
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counts { requests, late, raised, cut, unreachable } = self.counts;
        let least = self.controllers.iter().map(Controller::output).fold(f64::INFINITY, f64::min);
        let share = if least.is_finite() { (least * 100.0).round() as u64 } else { 100 };
        [
            ("requests", requests),
            ("late", late),
            ("raised", raised),
            ("cut", cut),
            ("unreachable", unreachable),
            ("share-percent", share),
        ]
        .into()
    }
}
