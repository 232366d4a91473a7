//! Devices that are kept free for expected work of critical entities.

use super::budget::Budgets;
use super::class::{self, QueueSums};
use crate::forecast::Forecast;
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::times::nanos;
use protocol::bounds::Priority;
use protocol::ids::DeviceId;
use protocol::time::Time;
use std::time::Duration;

/// The policy's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Settings {
    /// The priority above which entities are critical.
    pub above: i32,
    /// The time before the expected work at which the device is cleared.
    pub lead: Duration,
    /// The time after a hinted time for which the device stays clear.
    pub grace: Duration,
    /// The share of time in which a device may be kept free for work that does not come.
    pub waste: f64,
    /// True if arrivals are learnt.
    pub learn: bool,
}

/// A time in which devices are kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start: Time,
    expected: Time,
    until: Time,
}

/// The state of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    /// The devices are kept free since then.
    Open(Time),
    /// The budget was spent.
    Refused,
}

/// State of an entity.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// True if it had critical work at the last decision.
    ready: bool,
    /// True if that was work, and not only counted as work.
    works: bool,
    /// The time up to which hints are answered.
    answered: Time,
    window: Option<(Window, Stage)>,
    /// The devices that the open window was paid for on.
    devices: Vec<DeviceId>,
    /// The forecast of its arrivals, from its first critical work on.
    forecast: Option<Box<Forecast>>,
}

impl Watch {
    /// Returns the window for which its devices are kept free now, and the time at which it was opened.
    fn open(&self) -> Option<(Window, Time)> {
        match self.window {
            Some((window, Stage::Open(since))) => Some((window, since)),
            _ => None,
        }
    }
}

/// The expectation for an entity.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outlook {
    /// The time of the expected work for which its devices must be kept free.
    pub reserves: Option<Time>,
    /// The time at which to look again.
    pub wake: Option<Time>,
}

/// Counters of the windows.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    reserved: u64,
    hit: u64,
    missed: u64,
    withdrawn: u64,
    refused: u64,
    wasted: Duration,
}

/// The manager of all windows.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    settings: Settings,
    budgets: Budgets,
    counts: Counts,
    /// The number of open windows, and their total length.
    open: (u64, Duration),
    /// The windows that were open at the end of the last decision, and those of them whose entities were seen
    /// since.
    before: (u64, Duration),
    seen: (u64, Duration),
    /// The time of the last decision.
    last: Time,
}

impl Keeper {
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
        self.budgets.set_share(settings.waste);
    }

    /// Returns the limit of classes: greater ones are latency-critical.
    pub fn above(&self) -> i32 {
        self.settings.above
    }

    /// Returns the counters; see the head of the policy's file.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counts { reserved, hit, missed, withdrawn, refused, wasted } = self.counts;
        let wasted = u64::try_from(wasted.as_micros()).unwrap_or(u64::MAX);
        [
            ("reserved", reserved),
            ("hit", hit),
            ("missed", missed),
            ("withdrawn", withdrawn),
            ("refused", refused),
            ("wasted-us", wasted),
        ]
        .into()
    }

    /// Returns true if it learns when work arrives.
    pub fn learns(&self) -> bool {
        self.settings.learn
    }

    /// Returns the expectation for an entity with these queues. Call it once for each entity in each decision,
    /// between [`Keeper::begin`] and [`Keeper::end`].
    pub fn look(
        &mut self,
        watch: &mut Watch,
        entity: &SchedEntity,
        queues: QueueSums,
        entities: &SchedEntities,
        now: Time,
    ) -> Outlook {
        self.see(watch);
        let critical = queues.classes.class > self.settings.above && entity.priority != Priority::NO_EXECUTE;
        if entity.ready && critical {
            self.arrive(watch, entity, entities, now);
            return Outlook::default();
        }
        watch.ready = false;
        // While it has other work it ranks by that work.
        if entity.ready || !critical {
            self.withdraw(watch, now);
            return Outlook::default();
        }
        self.expire(watch, now);
        let next = self.next(watch, entity, queues, entities, now);
        if watch.window.map(|(window, _)| window) != next {
            self.withdraw(watch, now);
            watch.window = next.map(|window| (window, Stage::Coming));
        }
        if watch.open().is_some() && !same_devices(watch, entity, entities) {
            let again = watch.window.map(|(window, _)| (window, Stage::Coming));
            self.withdraw(watch, now);
            watch.window = again;
        }
        let Some((window, stage)) = watch.window else { return Outlook::default() };
        if stage == Stage::Coming {
            if window.start > now {
                return Outlook { reserves: None, wake: Some(window.start) };
            }
            self.begin_window(watch, window, entity, entities, now);
        }
        Outlook { reserves: watch.open().map(|_| window.expected), wake: Some(window.until) }
    }

    /// Ends the window of an entity that the policy no longer ranks.
    pub fn leave(&mut self, watch: &mut Watch, now: Time) {
        self.see(watch);
        self.withdraw(watch, now);
        watch.ready = false;
    }

    /// Begins a decision.
    pub fn begin(&mut self) {
        (self.open, self.seen) = Default::default();
    }

    /// Ends a decision. Windows that were open and have not been seen belonged to entities that have gone.
    pub fn end(&mut self, now: Time) {
        self.counts.withdrawn += self.before.0.saturating_sub(self.seen.0);
        // The wasted part is unknown, so all that was paid counts.
        let paid = self.before.1.saturating_sub(self.seen.1);
        self.counts.wasted = self.counts.wasted.saturating_add(paid);
        (self.before, self.last) = (self.open, now);
    }

    /// Enters the window that an entity has from the last decision.
    fn see(&mut self, watch: &Watch) {
        if let Some((window, since)) = watch.open() {
            self.seen = more(self.seen, window.until.since(since));
            self.open = more(self.open, window.until.since(since));
        }
    }

    fn arrive(&mut self, watch: &mut Watch, entity: &SchedEntity, entities: &SchedEntities, now: Time) {
        let above = self.settings.above;
        let critical = entities.queues(entity).iter().filter(|queue| class::of_queue(queue, above) > above);
        let ready = critical.filter_map(|queue| queue.ready_since).min();
        let at = ready.unwrap_or(entity.since).min(now);
        // If all its work has come since the last decision, it was idle in between without an event.
        let comes = !watch.ready || watch.works && at > self.last;
        (watch.ready, watch.works) = (true, entity.working);
        if !comes {
            return;
        }
        if let Some((window, since)) = self.close(watch) {
            if at <= window.until {
                self.counts.hit += 1;
                self.budgets.give_back(&watch.devices, window.until.since(since), since);
            } else {
                self.miss(watch, window, since, at);
            }
        }
        watch.window = None;
        let told = entities.queues(entity).iter().filter_map(|queue| queue.hints.arrival);
        let answered = told.filter(|hint| *hint <= at.after(self.settings.lead)).max();
        watch.answered = watch.answered.max(answered.unwrap_or_default());
        if self.settings.learn {
            let forecast = watch.forecast.get_or_insert_default();
            forecast.set_lead(self.settings.lead);
            forecast.arrived(at);
        }
    }

    /// Ends a window whose time has passed.
    fn expire(&mut self, watch: &mut Watch, now: Time) {
        let Some((window, since)) = watch.open().filter(|(window, _)| window.until <= now) else { return };
        self.close(watch);
        self.miss(watch, window, since, now);
    }

    fn miss(&mut self, watch: &Watch, window: Window, since: Time, now: Time) {
        self.counts.missed += 1;
        self.counts.wasted = self.counts.wasted.saturating_add(now.since(since));
        // The decision came too late.
        self.budgets.spend(&watch.devices, now.since(window.until), now);
    }

    /// Gives up a window that is not wanted any more.
    fn withdraw(&mut self, watch: &mut Watch, now: Time) {
        if let Some((window, since)) = self.close(watch) {
            self.counts.withdrawn += 1;
            self.counts.wasted = self.counts.wasted.saturating_add(now.since(since));
            self.budgets.give_back(&watch.devices, window.until.since(now), since);
            self.budgets.spend(&watch.devices, now.since(window.until), now);
        }
        watch.window = None;
    }

    /// Takes an open window away.
    fn close(&mut self, watch: &mut Watch) -> Option<(Window, Time)> {
        let (window, since) = watch.open()?;
        watch.window = None;
        self.open.0 -= 1;
        self.open.1 = self.open.1.saturating_sub(window.until.since(since));
        Some((window, since))
    }

    fn begin_window(
        &mut self,
        watch: &mut Watch,
        window: Window,
        entity: &SchedEntity,
        entities: &SchedEntities,
        now: Time,
    ) {
        watch.devices.clear();
        watch.devices.extend(entities.uses(entity).iter().map(|used| entities.devices()[used.device]));
        let span = window.until.since(now);
        let stage = if self.budgets.pay(&watch.devices, span, now) {
            self.counts.reserved += 1;
            self.open = more(self.open, span);
            Stage::Open(now)
        } else {
            self.counts.refused += 1;
            Stage::Refused
        };
        watch.window = Some((window, stage));
    }

    /// Returns the next window of an idle entity: the next one that was hinted, or else the learnt one.
    fn next(
        &self,
        watch: &mut Watch,
        entity: &SchedEntity,
        queues: QueueSums,
        entities: &SchedEntities,
        now: Time,
    ) -> Option<Window> {
        let Settings { lead, grace, learn, .. } = self.settings;
        let is_pending = |hint: &Time| {
            // An entity that had work at that time or later has had the work of the hint.
            let had_work = entity.idle_since.is_some_and(|idle| idle >= *hint);
            hint.after(grace) > now && *hint > watch.answered && !had_work
        };
        // If the latest one is not pending, no earlier one is.
        let first = queues.arrival.filter(is_pending).and_then(|_| {
            let told = entities.queues(entity).iter().filter_map(|queue| queue.hints.arrival);
            told.filter(is_pending).min()
        });
        if let Some(expected) = first {
            let start = Time(expected.0.saturating_sub(nanos(lead)));
            return Some(Window { start, expected, until: expected.after(grace) });
        }
        let forecast = watch.forecast.as_mut().filter(|_| learn)?;
        let window = forecast.expect(now)?;
        let expected = window.from.after(window.until.since(window.from) / 2);
        // Work may come at the last moment.
        Some(Window { start: window.start, expected, until: window.until.after(Duration::from_nanos(1)) })
    }
}

fn more((count, sum): (u64, Duration), span: Duration) -> (u64, Duration) {
    (count + 1, sum.saturating_add(span))
}

/// Returns true if the entity still has the devices that its window was paid for on.
fn same_devices(watch: &Watch, entity: &SchedEntity, entities: &SchedEntities) -> bool {
    let uses = entities.uses(entity);
    uses.len() == watch.devices.len()
        && uses.iter().all(|used| watch.devices.contains(&entities.devices()[used.device]))
}
