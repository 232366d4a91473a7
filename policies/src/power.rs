//! POWER: best-effort work within a power budget.
//!
//! # The rule
//! Entities above the priority `critical-above` are critical: the highest priority runs, as under HPF, and is
//! never throttled. The others are best effort. With each reading of the device's power, the part of the time
//! in which best effort may run changes by a tenth of the relative distance to the budget `budget-w`. Best
//! effort may run for that part of each `period-ms`, and is withheld for the rest. A device whose power
//! cannot be read is not throttled.
//!
//! To suspend running work costs energy as well, because it is saved and restored (`switch-mj`). Energy that
//! the device stays below its budget is saved up, at most as much as the budget allows in one second. If
//! critical work arrives while best effort runs, and the energy saved up pays for a suspension, best effort
//! is suspended at once and the account is charged. Otherwise best effort runs on until it has no work, or
//! until critical work has waited for `wait-us`.
//!
//! # Parameters, wake-ups
//! `xserver` reads the power every 50 ms from the amdgpu driver's hwmon (`power1_average`, or `power1_input`
//! if that is all there is). A preloaded library does not read it, so under the local scheduler nothing is
//! throttled. With 0 as `budget-w` it ranks as HPF does, and an idle entity
//! keeps its devices for 200 µs. An entity of low priority can starve, unless
//! `XSCHED_STARVATION_MS` is set; time that is withheld for the budget stays withheld even then.

use crate::hpf::Hpf;
use crate::parameter::{CRITICAL_ABOVE, Parameter, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{PRIORITY, UNINTERRUPTED};
use crate::sched_entity::SchedEntity;
use crate::times::{earlier, nanos};
use protocol::ids::DeviceId;
use protocol::operation::Throttle;
use protocol::time::Time;
use std::time::Duration;

pub(crate) const PARAMETERS: &[Parameter] = &[
    parameter!("budget-w" in (0.0, 10_000.0), default 0.0,
        "the average power of a device, in watts; 0: no limit"),
    CRITICAL_ABOVE,
    parameter!("period-ms" in (1.0, 10_000.0), default 20.0,
        "the period of which best effort gets its part, in milliseconds"),
    parameter!("switch-mj" in (0.0, 1e6), default 10.0,
        "the energy that suspending and resuming running work costs, in millijoules"),
    parameter!("wait-us" in (0.0, 1e6), default 1000.0,
        "the longest time that critical work waits to save that energy, in microseconds"),
];

/// The interval between two readings of a device's power.
const READ: Duration = Duration::from_millis(50);
/// The part of the distance to the budget by which a reading changes the throttle.
const STEP: f64 = 0.1;
/// The time for which a reading is valid.
const STALE: Duration = Duration::from_secs(1);

/// HPF within a power budget; see the head of this file.
#[derive(Debug, Default)]
pub struct Power {
    budget_mw: f64,
    critical_above: i64,
    period: Duration,
    switch_uj: f64,
    wait: Duration,
    devices: Vec<Device>,
    entities: PerEntity<Grace>,
}

/// State of a device.
#[derive(Debug, Clone, Copy)]
struct Device {
    id: DeviceId,
    /// The part of the time in which best effort may run.
    part: f64,
    /// Energy that may be spent on suspensions, in microjoules.
    saved_uj: f64,
    /// The last reading.
    read: Option<(u64, Time)>,
}

/// A best-effort entity beside critical work: the time until which it runs on to save energy, and whether its
/// suspension has been charged.
#[derive(Debug, Clone, Copy, Default)]
struct Grace {
    until: Option<Time>,
    charged: bool,
}

impl Device {
    fn new(id: DeviceId) -> Self {
        Self { id, part: 1.0, saved_uj: 0.0, read: None }
    }

    /// Takes a reading, unless it is not newer than the last one.
    fn hear(&mut self, milliwatts: u64, at: Time, budget_mw: f64) {
        if self.read.is_some_and(|(_, last)| at <= last) {
            return;
        }
        let room = budget_mw - milliwatts as f64;
        if let Some((_, last)) = self.read {
            // Milliwatts times nanoseconds are picojoules.
            let span = at.since(last).min(STALE).as_nanos() as f64;
            self.saved_uj = (self.saved_uj + room * span / 1e6).clamp(0.0, budget_mw * 1e3);
        }
        self.part = (self.part + STEP * room / budget_mw).clamp(0.0, 1.0);
        self.read = Some((milliwatts, at));
    }
}

impl Policy for Power {
    fn configure(&mut self, values: &Values) {
        self.budget_mw = values.get("budget-w") * 1e3;
        self.critical_above = values.get(CRITICAL_ABOVE.name) as i64;
        self.period = values.millis("period-ms");
        self.switch_uj = values.get("switch-mj") * 1e3;
        self.wait = values.micros("wait-us");
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        if self.budget_mw <= 0.0 {
            return Hpf::default().rank(input, rankings);
        }
        let now = input.now;
        self.hear(input);
        let mut wake = None;
        let mut sooner = |at: Time| wake = earlier(wake, at);
        let phase = Duration::from_nanos(now.0 % nanos(self.period));
        let entities = input.entities;
        let graces = self.entities.align(entities.all());
        for (index, entity) in input.members() {
            let reason = PRIORITY.number(entity.priority.into());
            rankings[index] = Ranking::new(i64::from(entity.priority), reason);
            let grace = &mut graces[index];
            rankings[index].may_withhold = i64::from(entity.priority) <= self.critical_above;
            if i64::from(entity.priority) > self.critical_above || !entity.ready {
                *grace = Grace::default();
                continue;
            }
            let own = entities.uses(entity).iter().map(|used| entities.devices()[used.device]);
            let fresh = |device: &Device| device.read.filter(|(_, at)| now.since(*at) < STALE);
            let known =
                |id| self.devices.iter().position(|device| device.id == id && fresh(device).is_some());
            let mut own = own.filter_map(known).peekable();
            let Some(least) =
                own.clone().min_by(|a, b| self.devices[*a].part.total_cmp(&self.devices[*b].part))
            else {
                *grace = Grace::default();
                continue;
            };
            // All are off for the rest of each period, at the same time, so that the device rests.
            let on = self.period.mul_f64(self.devices[least].part);
            if phase >= on {
                let milliwatts = self.devices[least].read.map_or(0, |(milliwatts, _)| milliwatts);
                rankings[index].throttle =
                    Some(Throttle::Power { milliwatts, budget: self.budget_mw as u64 });
                sooner(now.after(self.period - phase));
                *grace = Grace::default();
                continue;
            }
            if on < self.period {
                sooner(now.after(on - phase));
            }
            if !entity.running {
                *grace = Grace::default();
                continue;
            }
            let rival = critical(input, entity, self.critical_above);
            match (rival, grace.until) {
                (None, _) => *grace = Grace::default(),
                (Some(since), None) if !grace.charged => {
                    let first = own.peek().copied().unwrap_or(least);
                    if self.devices[first].saved_uj >= self.switch_uj {
                        self.devices[first].saved_uj -= self.switch_uj;
                        grace.charged = true;
                    } else {
                        grace.until = Some(since.after(self.wait));
                    }
                }
                _ => {}
            }
            if let Some(until) = grace.until.filter(|until| *until > now) {
                // Nothing suspends it, and no entity runs beside it.
                rankings[index] = Ranking::new(i64::from(i32::MAX), UNINTERRUPTED.plain());
                sooner(until);
            }
        }
        wake
    }

    fn reads_power(&self) -> Option<Duration> {
        (self.budget_mw > 0.0).then_some(READ)
    }
}

impl Power {
    fn hear(&mut self, input: Input<'_>) {
        self.devices.retain(|device| input.entities.devices().contains(&device.id));
        for (id, reading) in input.entities.devices().iter().zip(input.power) {
            let index = self.devices.iter().position(|device| device.id == *id).unwrap_or_else(|| {
                self.devices.push(Device::new(*id));
                self.devices.len() - 1
            });
            if let Some((milliwatts, at)) = reading {
                self.devices[index].hear(*milliwatts, *at, self.budget_mw);
            }
        }
    }
}

/// Returns the time since which there is critical work that would suspend the entity.
fn critical(input: Input<'_>, entity: &SchedEntity, above: i64) -> Option<Time> {
    let entities = input.entities;
    let meets = |other: &SchedEntity| {
        entities
            .uses(other)
            .iter()
            .any(|used| used.busy && entities.uses(entity).iter().any(|own| own.device == used.device))
    };
    let rivals = input.members().map(|(_, other)| other);
    let rivals = rivals.filter(|other| other.ready && i64::from(other.priority) > above && meets(other));
    rivals.map(|other| other.since).min()
}

#[cfg(test)]
mod tests;
