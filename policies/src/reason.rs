//! The reasons that policies give for their ranks, as text for users.
//!
//! A policy defines its reasons as [`ReasonKind`] beside its rule and names them in its row of the registry
//! ([`crate::registry::Row::reasons`]). A reason crosses the wire as a name and numbers ([`RankReason`]), so a new one
//! changes nothing outside of this crate.

use crate::registry::POLICIES;
use protocol::bounds::Priority;
use protocol::operation::{Reason, Rival, Throttle};
use protocol::rank_reason::{Label, RankReason, RankValue};
use std::fmt;

/// A kind of reason: its name on the wire and its text.
///
/// ```
/// use policies::reason::{self, PRIORITY};
///
/// let reason = PRIORITY.number(10);
/// assert!(PRIORITY.is(&reason));
/// assert_eq!(serde_json::to_string(&reason).unwrap(), r#"{"Priority":10}"#);
/// ```
pub struct ReasonKind {
    name: Label<16>,
    /// Completes "queue 7 of pid 4242 ...".
    text: fn(RankReason) -> String,
    /// The same beside the reason of the entity that waits for this one; `None` if the two do not compare.
    compare: fn(RankReason, RankReason) -> Option<String>,
}

impl ReasonKind {
    /// A kind whose reasons compare with no other.
    pub(crate) const fn new(name: &str, text: fn(RankReason) -> String) -> Self {
        Self { name: Label::new(name), text, compare: |_, _| None }
    }

    /// The same kind with a comparison: first the reason of the entity that runs, then that of the one that waits.
    pub(crate) const fn comparing(self, compare: fn(RankReason, RankReason) -> Option<String>) -> Self {
        Self { compare, ..self }
    }

    /// The reason of this kind without a number.
    pub fn plain(&self) -> RankReason {
        RankReason { name: self.name, value: RankValue::None }
    }

    /// The reason of this kind with a truth value.
    pub fn flag(&self, flag: bool) -> RankReason {
        RankReason { name: self.name, value: RankValue::Flag(flag) }
    }

    /// The reason of this kind with a number.
    pub fn number(&self, number: i64) -> RankReason {
        RankReason { name: self.name, value: RankValue::Number(number) }
    }

    /// The reason of this kind with two named numbers.
    pub fn pair(&self, names: [&'static str; 2], numbers: [i64; 2]) -> RankReason {
        let [first, second] = names.map(Label::new);
        let pair = [(first, numbers[0]), (second, numbers[1])];
        RankReason { name: self.name, value: RankValue::Pair(pair) }
    }

    /// Returns true if the reason is of this kind.
    pub fn is(&self, reason: &RankReason) -> bool {
        reason.name == self.name
    }
}

impl fmt::Debug for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReasonKind").field(&self.name).finish()
    }
}

/// Priority of the entity.
pub const PRIORITY: &ReasonKind = &ReasonKind::new("Priority", |its| format!("has priority {}", first(its)))
    .comparing(|its, own| {
        let (its, own) = (first(its), PRIORITY.is(&own).then(|| first(own))?);
        match its.cmp(&own) {
            std::cmp::Ordering::Greater => Some(format!("has priority {its} > {own}")),
            std::cmp::Ordering::Equal => {
                Some(format!("has priority {its} as well, and its turn comes first"))
            }
            std::cmp::Ordering::Less => None,
        }
    });

/// Rest of the slice that the entity has now, in microseconds.
pub const SLICE: &ReasonKind =
    &ReasonKind::new("Turn", |its| format!("has its turn for {} more", Millis(first(its))))
        .comparing(|its, own| WAITS.is(&own).then(|| slice_before(first(its), first(own))));

/// Number of others whose slices come first.
pub const WAITS: &ReasonKind =
    &ReasonKind::new("Waits", |its| format!("waits for its turn behind {}", first(its)));

/// Time until work of the entity is expected, in microseconds; negative if the work is late. Its devices are kept free.
pub const EXPECTED: &ReasonKind =
    &ReasonKind::new("Expected", expected).comparing(|its, _| Some(expected(its)));

/// The entity must not be suspended before its work is done.
pub(crate) const UNINTERRUPTED: &ReasonKind =
    &ReasonKind::new("Uninterrupted", |_| "is not to be interrupted".to_owned());

/// Time that the entity had waited when the guard against starvation let it run, in milliseconds.
pub(crate) const STARVED: &ReasonKind =
    &ReasonKind::new("Starved", |its| format!("had waited for {} ms", first(its)));

fn expected(its: RankReason) -> String {
    match first(its) {
        us if us < 0 => format!("was expected to have work {} ago", Millis(us.saturating_neg())),
        us => format!("is expected to have work in {}", Millis(us)),
    }
}

/// Returns the comparison of a slice with so many microseconds left with an entity that waits behind so many others.
pub(crate) fn slice_before(left: i64, others: i64) -> String {
    match others {
        0 => format!("has its turn for {} more, this one is next", Millis(left)),
        _ => format!("has its turn for {} more, and {others} are before this one", Millis(left)),
    }
}

/// The first number of a reason; a truth value counts as 0 or 1.
pub(crate) fn first(reason: RankReason) -> i64 {
    match reason.value {
        RankValue::None => 0,
        RankValue::Flag(flag) => flag.into(),
        RankValue::Number(number) | RankValue::Pair([(_, number), _]) => number,
    }
}

/// The second number of a reason with two.
pub(crate) fn second(reason: RankReason) -> i64 {
    if let RankValue::Pair([_, (_, number)]) = reason.value { number } else { 0 }
}

/// Microseconds, displayed as milliseconds.
pub(crate) struct Millis(pub i64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0 as f64 / 1e3)
    }
}

/// Returns the reason of a permission, as it completes "runs: ..." or "suspended: ...".
pub fn text(reason: &Reason) -> String {
    match *reason {
        Reason::Unrivalled => "nobody stands higher on its devices".to_owned(),
        Reason::NoExecute => format!("priority {} never runs", Priority::NO_EXECUTE),
        Reason::Outranked { by: Rival { pid, queue, reason, .. }, own } => {
            format!("queue {queue} of pid {pid} {}", comparison(reason, own))
        }
        Reason::Throttled(throttle) => throttled(throttle),
        Reason::Job { pid } => format!("pid {pid} of the same job cannot run, and they run together"),
        Reason::Starved { waited_ms } => format!("it had waited for {waited_ms} ms, and runs for a moment"),
        Reason::Guard => "those of higher priority complete nothing, all run for a moment".to_owned(),
        Reason::Off => "scheduling is switched off".to_owned(),
    }
}

fn comparison(its: RankReason, own: RankReason) -> String {
    let compared = kind(its).and_then(|kind| (kind.compare)(its, own));
    compared.unwrap_or_else(|| format!("{}, this one {}", sentence(its), sentence(own)))
}

fn sentence(reason: RankReason) -> String {
    match kind(reason) {
        Some(kind) => (kind.text)(reason),
        None => format!("ranks by {:?}, which this version does not know", reason.name),
    }
}

fn kind(reason: RankReason) -> Option<&'static ReasonKind> {
    let of_policies = POLICIES.iter().flat_map(|row| row.reasons);
    of_policies.copied().chain([STARVED]).find(|kind| kind.is(&reason))
}

fn throttled(throttle: Throttle) -> String {
    match throttle {
        Throttle::Share { percent } => format!("it has used its share of {percent} % for now"),
        Throttle::Turn => "another one has its turn, and keeps the device with work or without".to_owned(),
        Throttle::Power { milliwatts, budget } => {
            let watts = |milliwatts: u64| milliwatts as f64 / 1e3;
            format!("the device draws {:.1} W of {:.1} W", watts(milliwatts), watts(budget))
        }
        Throttle::NoExecute => format!("its priority is {} for now", Priority::NO_EXECUTE),
        Throttle::Latency { p99_us, target_us } => {
            let (p99, target) = (p99_us as f64 / 1e3, target_us as f64 / 1e3);
            format!("critical work has a p99 of {p99:.1} ms, the target is {target:.1} ms")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chpf, deadline, lcbe, mlfq, slo};
    use protocol::ids::{DeviceId, Pid, QueueId};

    fn outranked(reason: RankReason, own: RankReason) -> String {
        let by = Rival { pid: Pid(4242), queue: QueueId(7), device: DeviceId(51_234), reason };
        let text = text(&Reason::Outranked { by, own });
        text.strip_prefix("queue 7 of pid 4242 ").unwrap().to_owned()
    }

    #[test]
    fn outranked_reasons_are_sentences() {
        let [ten, one] = [10, 1].map(|number| PRIORITY.number(number));
        let slice = |class| lcbe::CLASS_SLICE.pair(["class", "us"], [class, 3_100]);
        let waits = |class| lcbe::CLASS_WAITS.pair(["class", "others"], [class, 0]);
        let level = mlfq::LEVEL.number(2);
        let date = |us| deadline::DEADLINE.number(us);
        let undated = deadline::NO_DEADLINE.plain();
        let unknown = ReasonKind::new("Moon", |_| unreachable!()).plain();
        let cases = [
            (ten, one, "has priority 10 > 1"),
            (one, one, "has priority 1 as well, and its turn comes first"),
            (one, ten, "has priority 1, this one has priority 10"),
            (SLICE.number(3_100), WAITS.number(0), "has its turn for 3.1 ms more, this one is next"),
            (SLICE.number(3_100), WAITS.number(2), "has its turn for 3.1 ms more, and 2 are before this one"),
            (date(-200), undated, "missed its deadline 0.2 ms ago, this one has no deadline"),
            (date(3_000), date(-200), "has a deadline in 3.0 ms, this one missed its deadline 0.2 ms ago"),
            (date(-200), date(3_000), "has a deadline -0.2 ms < 3.0 ms"),
            (undated, undated, "has no deadline either, and had work earlier"),
            (level, level, "is on level 2 as well, and its turn comes first"),
            (chpf::NICE.number(-5), chpf::NICE.number(10), "has nice value -5 < 10"),
            (slice(5), waits(1), "is of class 5 > 1"),
            (slice(1), waits(1), "has its turn for 3.1 ms more, this one is next"),
            (
                waits(1),
                slice(1),
                "waits for the turn of class 1 behind 0, this one has the turn of class 1 for 3.1 ms more",
            ),
            (EXPECTED.number(-1_200), waits(1), "was expected to have work 1.2 ms ago"),
            (slo::BESIDE.number(10), one, "runs beside work of priority 10 > 1"),
            (STARVED.number(50), one, "had waited for 50 ms, this one has priority 1"),
            (unknown, one, "ranks by Moon, which this version does not know, this one has priority 1"),
        ];
        for (its, own, expected) in cases {
            assert_eq!(outranked(its, own), expected);
        }
    }

    #[test]
    fn other_reasons_are_sentences() {
        assert_eq!(text(&Reason::NoExecute), "priority -256 never runs");
        assert_eq!(text(&Reason::Throttled(Throttle::NoExecute)), "its priority is -256 for now");
    }
}
