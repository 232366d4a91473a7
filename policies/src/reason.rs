//! The kinds of reasons that policies give for their ranks, with their texts.
//!
//! A policy defines its reasons as [`ReasonKind`] beside its rule and lists them in its row of the registry. A reason
//! crosses the wire as a name and numbers ([`RankReason`]), so a new one changes nothing outside of this crate.

use protocol::rank_reason::{Label, RankReason, RankValue};
use std::fmt;

/// A kind of reason: its name on the wire and its text.
///
/// ```
/// use policies::reason::PRIORITY;
///
/// let reason = PRIORITY.number(10);
/// assert!(PRIORITY.is(&reason));
/// assert_eq!(serde_json::to_string(&reason).unwrap(), r#"{"Priority":10}"#);
/// ```
pub struct ReasonKind {
    name: Label<16>,
    /// Completes "queue 7 of pid 4242 ...".
    pub(crate) text: fn(RankReason) -> String,
    /// The same beside the reason of the entity that waits for this one; `None` if the two do not compare.
    pub(crate) compare: fn(RankReason, RankReason) -> Option<String>,
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

    /// The reason of this kind with two named numbers. The names must ascend, because JSON sorts them and the
    /// text goes by their order.
    pub fn pair(&self, names: [&'static str; 2], numbers: [i64; 2]) -> RankReason {
        debug_assert!(names[0] < names[1], "{names:?}");
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
