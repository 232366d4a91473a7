//! LCBE: latency-critical and best-effort classes, and devices that are clear when critical work comes.
//!
//! # The rule
//! The priority of a unit is its class; classes above `critical-above` are latency-critical, the others best effort. On
//! each device the units of the highest class that has work run, and the rest is suspended. The class hint of a queue
//! (`XHintClass`) goes before its priority: a latency-critical queue has at least the class `critical-above` + 1, a
//! best-effort queue at most `critical-above`.
//!
//! Within a class all run together, or one after the other if `slice-ms` is set: whoever has used up its slice, or turns
//! ready, stands at the end of the line. With a `slice-growth` of 2 each class has a slice twice as long as the class
//! above it: the lower, the longer and the rarer. A unit that a higher class interrupts keeps its place and what is left
//! of its slice.
//!
//! A unit with a queue that has work and is hinted not to be preemptible is not suspended once it runs, until that is idle,
//! whatever its class: critical work runs *beside* it and shares the device with it, and a device that is cleared ahead of
//! time is not cleared of it. So each such hint is paid for with the latency of the classes above. It is for work that
//! would be lost or blocks others when it is stopped, in short pieces. Under `xserver` the unit is the whole process, with
//! its other queues. The guards against starvation and standstill may suspend it all the same. No other policy looks at
//! this hint.
//!
//! # Cleared ahead of time
//! Taking a device away from best-effort work takes time. If it is known when an idle critical unit will have work, its
//! devices are kept free from `lead-us` before that time on: lower classes are suspended already when the work arrives.
//! The same and higher classes are not. A hint says when that is (the arrival of a queue's hints, an absolute time; of
//! several the next one counts); the devices are given back `grace-us` after that time if no work has come.
//!
//! Without a hint it is learnt from the arrivals before (`learn`, `method`), if they are regular enough: then the devices
//! are kept free from `lead-us` and a margin before the expected time until a margin after it. The margins follow the
//! errors; for work that comes at random they would be too large, and nothing is kept free. After three misses in a row
//! nothing is expected until work comes.
//!
//! A hint is answered by the first work that arrives later than `lead-us` before its time, and by work that the unit has
//! at its time. One that is told too late to be prepared for holds at once.
//!
//! # What may be lost
//! A device may be kept free for nothing for `waste-percent` of any 10 s, whatever is hinted and whatever comes; whether
//! anybody would have used it makes no difference. Each time is paid for in advance: if too little is left, the devices
//! are not kept free. Work that does come costs best effort `lead-us` and the margin of the device, which is not counted.
//!
//! Counted are: `reserved`, how often devices were kept free; of these `hit` if work came, `missed` if it did not, and
//! `withdrawn` if it was not expected any more or the unit had gone; `refused`, how often the budget was spent;
//! `wasted-us`, what was missed and withdrawn, in microseconds.
//!
//! # Parameters, wake-ups
//! It wakes up when a device has to be cleared or given back, and when a slice ends for which somebody waits. Hints of a
//! slice are not looked at. At level 3, where taking a device away is fast, `lead-us` can be about 100; at level 1 it
//! should be about as long as the longest kernel. A lower class can starve, unless `XSCHED_STARVATION_MS` is set.

mod budget;
mod class;
mod expectation;
mod order;

use crate::forecast::Method;
use crate::ledger::Ledger;
use crate::parameter::{CRITICAL_ABOVE, Parameter, Values};
use crate::policy::{Input, Policy, Standing};
use crate::times::earlier;
use crate::unit::{Unit, Units};
use class::ClassRange;
use expectation::{Keeper, Outlook, Settings, Watch};
use order::{Classes, Order, Slices, Turn};
use protocol::operation::Merit;
use protocol::time::Time;
use std::time::Duration;

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[
    CRITICAL_ABOVE,
    Parameter {
        name: "slice-ms",
        meaning: "how long a unit runs before the next one of its class; 0: all of a class run together",
        range: (0.0, 10_000.0),
        default: 0.0,
    },
    Parameter {
        name: "slice-growth",
        meaning: "how many times as long the slice of each lower class is, up to 10 s",
        range: (1.0, 16.0),
        default: 1.0,
    },
    Parameter {
        name: "lead-us",
        meaning: "how long before expected work its devices are cleared",
        range: (0.0, 100_000.0),
        default: 500.0,
    },
    Parameter {
        name: "grace-us",
        meaning: "how long after a hinted time the devices stay clear for work that has not come",
        range: (0.0, 100_000.0),
        default: 1_000.0,
    },
    Parameter {
        name: "waste-percent",
        meaning: "the share of time in which a device may be kept free for work that does not come",
        range: (0.0, 100.0),
        default: 2.0,
    },
    Parameter {
        name: "learn",
        meaning: "1: it is learnt when a unit has work, and used where nothing is hinted; 0: it is not",
        range: (0.0, 1.0),
        default: 1.0,
    },
    Parameter {
        name: "method",
        meaning: "how it is learnt; 0: smoothed intervals, 1: a repeating pattern, 2: a line through the last arrivals",
        range: (0.0, (Method::ALL.len() - 1) as f64),
        default: Method::DEFAULT as usize as f64,
    },
];

/// Ranks of one class lie within so many.
const STRIDE: i64 = 1 << 32;

/// Latency-critical and best-effort classes; see the head of this file.
#[derive(Debug, Default)]
pub struct Lcbe {
    keeper: Keeper,
    slices: Slices,
    order: Order,
    ledger: Ledger<Entry>,
}

/// What is remembered of a unit.
#[derive(Debug, Default)]
struct Entry {
    watch: Watch,
    classes: ClassRange,
    turn: Turn,
    /// It has begun what is not to be interrupted.
    begun: bool,
}

fn settings(values: &Values) -> Settings {
    Settings {
        above: values.get(CRITICAL_ABOVE.name) as i32,
        lead: values.micros("lead-us"),
        grace: values.micros("grace-us"),
        waste: values.get("waste-percent") / 1e2,
        method: (values.get("learn") >= 0.5).then(|| method(values.get("method"))),
    }
}

/// The method of this number.
fn method(number: f64) -> Method {
    Method::ALL[(number as usize).min(Method::ALL.len() - 1)]
}

fn slices(values: &Values) -> Slices {
    Slices { first: values.millis("slice-ms"), growth: values.get("slice-growth") }
}

impl Policy for Lcbe {
    fn configure(&mut self, values: &Values) {
        self.keeper.configure(settings(values));
        self.slices = slices(values);
    }

    fn rank(&mut self, input: Input<'_>, standings: &mut [Standing]) -> Option<Time> {
        let Input { units, now, .. } = input;
        let takes_turns = !self.slices.first.is_zero();
        let entries = self.ledger.align(units.all());
        let mut wake = None;
        let mut classes = Classes::default();
        let mut highest = i64::MIN;
        let mut members = input.members.iter().copied().peekable();
        self.order.firm.clear();
        self.keeper.begin();
        for (place, (unit, entry)) in units.all().iter().zip(entries.iter_mut()).enumerate() {
            if members.next_if_eq(&place).is_none() {
                self.keeper.leave(&mut entry.watch, now);
                (entry.turn, entry.begun) = Default::default();
                continue;
            }
            entry.classes = class::of_unit(unit, units, self.keeper.above());
            let ClassRange { class, ceiling, .. } = entry.classes;
            let Outlook { reserves, wake: look } =
                self.keeper.look(&mut entry.watch, unit, class, units, now);
            wake = earlier(wake, look);
            classes.insert(class);
            highest = highest.max(ceiling.into());
            entry.begun = unit.working && is_firm(unit, units) && (unit.running || entry.begun);
            if entry.begun {
                self.order.firm.push(place);
            }
            let class = i64::from(class);
            let merit = match reserves {
                Some(expected) => Merit::Expected(micros(now, expected)),
                None => Merit::Class(class),
            };
            standings[place] =
                Standing { reserves: reserves.is_some(), ..Standing::new(class * STRIDE, merit) };
        }
        self.keeper.end(now);
        for (place, unit) in input.members() {
            let Entry { turn, begun, classes: ClassRange { class, floor, ceiling }, .. } =
                &mut entries[place];
            if takes_turns {
                let slice = self.slices.of(classes.above(*class));
                turn.note(unit.ready, *begun, unit.ran, slice, now);
            } else {
                let may_rise = units.queues(unit).iter().any(|queue| !queue.hints.preemptible);
                let ceiling = if may_rise { highest } else { i64::from(*ceiling) };
                standings[place].range = Some((i64::from(*floor) * STRIDE, ceiling * STRIDE));
            }
        }
        if takes_turns || !self.order.firm.is_empty() {
            let turn =
                |place: usize| (entries[place].classes.class, entries[place].turn, entries[place].begun);
            wake = earlier(wake, self.order.arrange(&input, turn, takes_turns, standings));
        }
        wake
    }

    fn hears_idle(&self) -> bool {
        self.keeper.learns()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.keeper.counters()
    }
}

/// Whether a queue with work is not to be interrupted.
fn is_firm(unit: &Unit, units: &Units) -> bool {
    units.queues(unit).iter().any(|queue| queue.ready_since.is_some() && !queue.hints.preemptible)
}

/// Microseconds from now until then; negative if that has passed.
fn micros(now: Time, then: Time) -> i64 {
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    if then >= now { micros(then.since(now)) } else { -micros(now.since(then)) }
}
