//! Devices that are kept free for work of critical units that is on its way.

use super::budget::Budgets;
use super::class;
use crate::forecast::{Forecast, Method};
use crate::times::nanos;
use crate::unit::{Unit, Units};
use protocol::bounds::Priority;
use protocol::ids::DeviceId;
use protocol::time::Time;
use std::time::Duration;

/// What is set by the policy's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Settings {
    /// Units of a higher priority are critical.
    pub above: i32,
    /// How long before the work is expected the device is cleared.
    pub lead: Duration,
    /// How long it stays clear when a hinted time has passed.
    pub grace: Duration,
    /// The share of time in which a device may be kept free in vain.
    pub waste: f64,
    /// How it is learnt when work comes, if it is.
    pub method: Option<Method>,
}

/// When devices are kept free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start: Time,
    expected: Time,
    until: Time,
}

/// How far it is with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    /// It is kept free since then.
    Open(Time),
    /// The budget was spent.
    Refused,
}

/// What is remembered of a unit.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// It had critical work at the last decision.
    ready: bool,
    /// And did not only count as having it.
    works: bool,
    /// Hints of this time and earlier ones are answered.
    answered: Time,
    window: Option<(Window, Stage)>,
    /// What the open window was paid for on.
    devices: Vec<DeviceId>,
    /// What is learnt of it, from its first critical work on.
    forecast: Option<Box<Forecast>>,
}

impl Watch {
    /// The window that its devices are kept free for, if they are.
    fn open(&self) -> Option<(Window, Time)> {
        match self.window {
            Some((window, Stage::Open(since))) => Some((window, since)),
            _ => None,
        }
    }
}

/// What is expected of a unit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outlook {
    /// Its devices are to be kept free, for work that is expected then.
    pub reserves: Option<Time>,
    /// When to look again.
    pub wake: Option<Time>,
}

/// What came of the windows.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    reserved: u64,
    hit: u64,
    missed: u64,
    withdrawn: u64,
    refused: u64,
    wasted: Duration,
}

/// Looks after all windows.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    settings: Settings,
    budgets: Budgets,
    counts: Counts,
    /// How many windows are open, and how long all of them together.
    open: (u64, Duration),
    /// Those that were open at the end of the last decision, and those of them that were seen since.
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

    /// Classes greater than this are latency-critical.
    pub fn above(&self) -> i32 {
        self.settings.above
    }

    /// What people see; see the head of the policy's file.
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

    /// Whether it learns when work comes.
    pub fn learns(&self) -> bool {
        self.settings.method.is_some()
    }

    /// What is expected of a unit; to be asked once for each at each decision, between [`Keeper::begin`] and
    /// [`Keeper::end`].
    pub fn look(&mut self, watch: &mut Watch, unit: &Unit, class: i32, units: &Units, now: Time) -> Outlook {
        self.see(watch);
        let critical = class > self.settings.above && unit.priority != Priority::NO_EXECUTE;
        if unit.ready && critical {
            self.arrive(watch, unit, units, now);
            return Outlook::default();
        }
        watch.ready = false;
        // While it has other work it stands where that puts it.
        if unit.ready || !critical {
            self.withdraw(watch, now);
            return Outlook::default();
        }
        self.expire(watch, now);
        let next = self.next(watch, unit, units, now);
        if watch.window.map(|(window, _)| window) != next {
            self.withdraw(watch, now);
            watch.window = next.map(|window| (window, Stage::Coming));
        }
        if watch.open().is_some() && !same_devices(watch, unit, units) {
            let again = watch.window.map(|(window, _)| (window, Stage::Coming));
            self.withdraw(watch, now);
            watch.window = again;
        }
        let Some((window, stage)) = watch.window else { return Outlook::default() };
        if stage == Stage::Coming {
            if window.start > now {
                return Outlook { reserves: None, wake: Some(window.start) };
            }
            self.begin_window(watch, window, unit, units, now);
        }
        Outlook { reserves: watch.open().map(|_| window.expected), wake: Some(window.until) }
    }

    /// For a unit that is none of the policy's any more.
    pub fn leave(&mut self, watch: &mut Watch, now: Time) {
        self.see(watch);
        self.withdraw(watch, now);
        watch.ready = false;
    }

    /// A decision begins.
    pub fn begin(&mut self) {
        (self.open, self.seen) = Default::default();
    }

    /// It ends: windows that were open and that nobody has shown belonged to units that have gone.
    pub fn end(&mut self, now: Time) {
        self.counts.withdrawn += self.before.0.saturating_sub(self.seen.0);
        // How much of them was wasted is not known: all that was paid.
        let paid = self.before.1.saturating_sub(self.seen.1);
        self.counts.wasted = self.counts.wasted.saturating_add(paid);
        (self.before, self.last) = (self.open, now);
    }

    /// Enters the window that a unit has brought along.
    fn see(&mut self, watch: &Watch) {
        if let Some((window, since)) = watch.open() {
            self.seen = more(self.seen, window.until.since(since));
            self.open = more(self.open, window.until.since(since));
        }
    }

    fn arrive(&mut self, watch: &mut Watch, unit: &Unit, units: &Units, now: Time) {
        let above = self.settings.above;
        let critical = units.queues(unit).iter().filter(|queue| class::of_queue(queue, above) > above);
        let ready = critical.filter_map(|queue| queue.ready_since).min();
        let at = ready.unwrap_or(unit.since).min(now);
        // If all its work has come since the last decision, it was idle in between, and nobody has told.
        let comes = !watch.ready || watch.works && at > self.last;
        (watch.ready, watch.works) = (true, unit.working);
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
        let told = units.queues(unit).iter().filter_map(|queue| queue.hints.arrival);
        let answered = told.filter(|hint| *hint <= at.after(self.settings.lead)).max();
        watch.answered = watch.answered.max(answered.unwrap_or_default());
        if let Some(method) = self.settings.method {
            let known = watch.forecast.take().filter(|forecast| forecast.method() == method);
            let mut forecast = known.unwrap_or_else(|| Box::new(Forecast::new(method)));
            forecast.set_lead(self.settings.lead);
            forecast.arrived(at);
            watch.forecast = Some(forecast);
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
        // Nobody has decided when it was time.
        self.budgets.spend(&watch.devices, now.since(window.until), now);
    }

    /// Gives up a window because it is not wanted any more.
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

    fn begin_window(&mut self, watch: &mut Watch, window: Window, unit: &Unit, units: &Units, now: Time) {
        watch.devices.clear();
        watch.devices.extend(units.uses(unit).iter().map(|used| units.devices()[used.device]));
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

    /// The next window of an idle unit: the next that was hinted, or else what is learnt.
    fn next(&self, watch: &mut Watch, unit: &Unit, units: &Units, now: Time) -> Option<Window> {
        let Settings { lead, grace, method, .. } = self.settings;
        let told = units.queues(unit).iter().filter_map(|queue| queue.hints.arrival);
        let pending = told.filter(|hint| {
            // One that had work at the time or after it has had what was told.
            let had_work = unit.idle_since.is_some_and(|idle| idle >= *hint);
            hint.after(grace) > now && *hint > watch.answered && !had_work
        });
        if let Some(expected) = pending.min() {
            let start = Time(expected.0.saturating_sub(nanos(lead)));
            return Some(Window { start, expected, until: expected.after(grace) });
        }
        let forecast = watch.forecast.as_mut().filter(|forecast| Some(forecast.method()) == method)?;
        let window = forecast.expect(now)?;
        let expected = window.from.after(window.until.since(window.from) / 2);
        // Work may come at the last moment still.
        Some(Window { start: window.start, expected, until: window.until.after(Duration::from_nanos(1)) })
    }
}

fn more((count, sum): (u64, Duration), span: Duration) -> (u64, Duration) {
    (count + 1, sum.saturating_add(span))
}

/// Whether the unit has the devices still that its window was paid for on.
fn same_devices(watch: &Watch, unit: &Unit, units: &Units) -> bool {
    let uses = units.uses(unit);
    uses.len() == watch.devices.len()
        && uses.iter().all(|used| watch.devices.contains(&units.devices()[used.device]))
}
