//! Preemption levels side by side: what the server says of the batch model's suspensions, whether a level was used at all,
//! and what level 3 is judged by.

use super::figures::ModeFigures;
use crate::report::{Figure, Limit, Report};
use crate::stats::Samples;
use protocol::control::Preemption;
use serde::Serialize;
use std::fmt::Write as _;

/// Most that the urgent model's p99 may be at level 3, over its p99 alone, by the first word of the model's name. Others are
/// not judged.
const P99_LIMITS: [(&str, f64); 2] = [("bert", 1.10), ("resnet18", 1.25)];
/// Least share of the free time that the batch model may keep at level 3.
const FREE_LIMIT: f64 = 0.85;

/// What became of the batch model's suspensions while requests arrived, in one block.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Held {
    /// The level in force; the lower one if it changed.
    pub(super) in_force: i32,
    /// By what, or why it is less than what is asked for.
    pub(super) how: String,
    pub(super) holds: u64,
    pub(super) waits: u64,
    pub(super) failures: u64,
    /// What a hold cost at last, and a release; nothing if none was made or expected.
    pub(super) hold_us: Option<f64>,
    pub(super) release_us: Option<f64>,
    /// Between the two looks.
    pub(super) seconds: f64,
}

impl Held {
    /// From what the server said before the first request and after the last.
    pub(super) fn between(before: &Preemption, after: &Preemption, seconds: f64) -> Self {
        let lower = if after.in_force.number() <= before.in_force.number() { after } else { before };
        let micros = |cost: Option<u64>| cost.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e3);
        Self {
            in_force: lower.in_force.number(),
            how: lower.how.clone(),
            holds: after.holds.saturating_sub(before.holds),
            waits: after.waits.saturating_sub(before.waits),
            failures: after.failures.saturating_sub(before.failures),
            hold_us: micros(after.hold_ns),
            release_us: micros(after.release_ns),
            seconds,
        }
    }
}

/// Both programs with the library, the batch model at one preemption level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Level {
    /// The level that was asked for.
    pub level: u8,
    /// The one in force, the least of all blocks. Where waves are saved, level 2 is 3.
    pub in_force: i32,
    /// By what, or why it is less than what is asked for.
    pub how: String,
    /// Why the figures are not those of this level; `null` if they are.
    pub missing: Option<String>,
    /// Suspensions in which the batch model's queues were taken off the hardware, all blocks together.
    pub holds: u64,
    /// Holds a second.
    pub holds_per_s: f64,
    /// Suspensions in which waiting was expected to cost less.
    pub waits: u64,
    /// Holds that failed and were taken back.
    pub failures: u64,
    /// What a hold cost at last, microseconds; median of the blocks, `null` without any.
    pub hold_us: Option<f64>,
    /// What a release cost.
    pub release_us: Option<f64>,
    /// Latencies and rates, as in every mode.
    #[serde(flatten)]
    pub figures: ModeFigures,
    /// The urgent model's median latency over that of it alone.
    pub p50_ratio: f64,
    /// The same of the 99th percentiles.
    pub p99_ratio: f64,
    /// What the batch model kept of what the urgent one leaves: its rate over `low_alone_per_s × (1 - high_busy_share)`.
    pub free_share: f64,
}

impl Level {
    /// `free_per_s`: what the batch model could have beside the urgent one.
    pub(super) fn new(
        level: u8,
        held: &[&Held],
        figures: ModeFigures,
        alone: &ModeFigures,
        free_per_s: f64,
    ) -> Self {
        let sum = |of: fn(&Held) -> u64| held.iter().map(|held| of(held)).sum::<u64>();
        let median = |of: fn(&Held) -> Option<f64>| {
            Samples::new(held.iter().filter_map(|held| of(held)).collect()).map(|costs| costs.median())
        };
        let least = held.iter().min_by_key(|held| held.in_force);
        let seconds: f64 = held.iter().map(|held| held.seconds).sum();
        let holds = sum(|held| held.holds);
        Self {
            level,
            in_force: least.map_or(0, |held| held.in_force),
            how: least.map_or_else(String::new, |held| held.how.clone()),
            missing: missing(level, held),
            holds,
            holds_per_s: if seconds > 0.0 { holds as f64 / seconds } else { 0.0 },
            waits: sum(|held| held.waits),
            failures: sum(|held| held.failures),
            hold_us: median(|held| held.hold_us),
            release_us: median(|held| held.release_us),
            p50_ratio: figures.p50_ms / alone.p50_ms,
            p99_ratio: figures.p99_ms / alone.p99_ms,
            free_share: figures.low_per_s / free_per_s,
            figures,
        }
    }
}

/// Why these blocks are none of this level.
fn missing(level: u8, blocks: &[&Held]) -> Option<String> {
    let Some(least) = blocks.iter().min_by_key(|held| held.in_force) else {
        return Some(format!("level {level}: the server said nothing of it"));
    };
    if least.in_force < i32::from(level) {
        let how = if least.how.is_empty() { "the server does not say why" } else { &least.how };
        return Some(format!("level {level} is not in force, level {} is: {how}", least.in_force));
    }
    let without = blocks.iter().filter(|held| held.holds == 0).count();
    (level > 1 && without > 0).then(|| {
        format!(
            "level {level} was not used: no queue was taken off the hardware in {without} of {} blocks",
            blocks.len()
        )
    })
}

/// The table of all levels.
pub(super) fn table(levels: &[Level]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<26} {:>9} {:>7} {:>8} {:>7} {:>7} {:>9} {:>11} {:>7} {:>7} {:>9}",
        "the batch model's",
        "in force",
        "holds",
        "holds/s",
        "waits",
        "failed",
        "hold µs",
        "release µs",
        "p50 x",
        "p99 x",
        "free kept"
    );
    let cost = |cost: Option<f64>| cost.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    for row in levels {
        let _ = writeln!(
            text,
            "{:<26} {:>9} {:>7} {:>8.1} {:>7} {:>7} {:>9} {:>11} {:>7.2} {:>7.2} {:>7.0} %",
            format!("level {}", row.level),
            if row.missing.is_none() { row.in_force.to_string() } else { format!("{}!", row.in_force) },
            row.holds,
            row.holds_per_s,
            row.waits,
            row.failures,
            cost(row.hold_us),
            cost(row.release_us),
            row.p50_ratio,
            row.p99_ratio,
            row.free_share * 100.0,
        );
    }
    for reason in levels.iter().filter_map(|row| row.missing.as_ref()) {
        let _ = writeln!(text, "! {reason}");
    }
    text
}

/// What is expected of level 3, where it was used. Nothing is judged otherwise.
pub(super) fn checks(model: &str, levels: &[Level]) -> Report {
    let mut report = Report::default();
    let Some(row) = levels.iter().find(|row| row.level == 3 && row.missing.is_none()) else { return report };
    let word = model.split_whitespace().next().unwrap_or_default();
    let what = format!("level 3: p99 of {word}, of alone");
    report.push(match P99_LIMITS.iter().find(|(name, _)| *name == word) {
        Some((_, most)) => Figure::judged("level3_p99_ratio", what, row.p99_ratio, "", Limit::at_most(*most)),
        None => Figure::info("level3_p99_ratio", what, row.p99_ratio, ""),
    });
    let at_least = Limit { min: Some(FREE_LIMIT), max: None };
    let what = "level 3: share of the free time that the batch model keeps";
    report.push(Figure::judged("level3_free_share", what, row.free_share, "", at_least));
    report
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use protocol::codes::PreemptLevel;

    /// A block in which a level was in force and made so many holds.
    pub(crate) fn held(in_force: i32, holds: u64) -> Held {
        let cost = (holds > 0).then_some(120.0);
        let how = if in_force > 1 { "update-queue" } else { "" };
        Held {
            in_force,
            how: how.into(),
            holds,
            waits: 2,
            hold_us: cost,
            release_us: cost,
            seconds: 2.0,
            ..Held::default()
        }
    }

    fn mode(p99_ms: f64, low_per_s: f64) -> ModeFigures {
        ModeFigures {
            p50_ms: 10.0,
            p90_ms: 10.0,
            p99_ms,
            spread: 1.0,
            high_n: 30,
            high_per_s: 10.0,
            low_per_s,
            suspensions: 9,
        }
    }

    fn level(level: u8, held: &[Held], p99_ms: f64, low_per_s: f64) -> Level {
        Level::new(level, &held.iter().collect::<Vec<_>>(), mode(p99_ms, low_per_s), &mode(20.0, 0.0), 8.0)
    }

    fn judged(row: Level, model: &str) -> Vec<(&'static str, Option<bool>)> {
        checks(model, &[row]).figures().iter().map(|figure| (figure.name, figure.met)).collect()
    }

    #[test]
    fn two_looks_make_a_difference() {
        let before = Preemption {
            in_force: PreemptLevel::from_number(3).unwrap(),
            how: "update-queue".into(),
            holds: 4,
            waits: 1,
            ..Preemption::default()
        };
        let after = Preemption { holds: 9, waits: 3, failures: 1, hold_ns: Some(90_500), ..before.clone() };
        let held = Held::between(&before, &after, 4.0);
        assert_eq!((held.in_force, held.holds, held.waits, held.failures), (3, 5, 2, 1));
        assert_eq!((held.hold_us, held.release_us), (Some(90.5), None));
        let level_1 = PreemptLevel::from_number(1).unwrap();
        let given_up = Preemption { in_force: level_1, how: "the driver failed".into(), ..after };
        let held = Held::between(&before, &given_up, 4.0);
        assert_eq!((held.in_force, held.how.as_str()), (1, "the driver failed"));
        assert_eq!(Held::between(&given_up, &before, 4.0).in_force, 1);
    }

    #[test]
    fn blocks_are_taken_together() {
        let row = level(3, &[held(3, 6), held(3, 4)], 21.0, 7.0);
        assert_eq!((row.holds, row.waits, row.in_force, &row.missing), (10, 4, 3, &None));
        assert!((row.holds_per_s - 2.5).abs() < 1e-12);
        assert_eq!((row.hold_us, row.p50_ratio), (Some(120.0), 1.0));
        assert!((row.p99_ratio - 1.05).abs() < 1e-12);
        assert!((row.free_share - 0.875).abs() < 1e-12);
        let json = serde_json::to_value(&row).unwrap();
        for key in
            ["level", "in_force", "holds", "holds_per_s", "p99_ms", "p99_ratio", "low_per_s", "free_share"]
        {
            assert!(json[key].is_number(), "{key}");
        }
        assert!(json["missing"].is_null());
    }

    #[test]
    fn a_level_that_was_not_used_is_not_passed_off_as_it() {
        let of = |level_: u8, blocks: &[Held]| level(level_, blocks, 20.0, 8.0).missing;
        assert_eq!(of(1, &[held(1, 0)]), None);
        assert_eq!(of(2, &[held(3, 1)]), None);
        let none = of(3, &[held(3, 5), held(3, 0)]).unwrap();
        assert_eq!(none, "level 3 was not used: no queue was taken off the hardware in 1 of 2 blocks");
        let backed_out = Held { how: "a time-out".into(), ..held(1, 7) };
        let less = of(3, &[held(3, 5), backed_out]).unwrap();
        assert_eq!(less, "level 3 is not in force, level 1 is: a time-out");
        assert!(of(2, &[]).is_some());
        let row = level(3, &[held(3, 0)], 20.0, 8.0);
        let text = table(std::slice::from_ref(&row));
        assert!(text.contains(" 3! ") && text.contains("\n! level 3 was not used"), "{text}");
        assert_eq!(judged(row, "bert bs8"), []);
    }

    #[test]
    fn level_3_is_judged_by_the_model() {
        let used = [held(3, 5)];
        let met = |p99: f64, low: f64, model: &str| judged(level(3, &used, p99, low), model);
        let [p99, free] = ["level3_p99_ratio", "level3_free_share"];
        assert_eq!(met(21.9, 7.0, "bert bs8"), [(p99, Some(true)), (free, Some(true))]);
        assert_eq!(met(22.1, 6.7, "bert bs8"), [(p99, Some(false)), (free, Some(false))]);
        assert_eq!(met(24.9, 7.0, "resnet18 bs1")[0], (p99, Some(true)));
        assert_eq!(met(25.1, 7.0, "resnet18 bs1")[0], (p99, Some(false)));
        assert_eq!(met(90.0, 7.0, "another bs1")[0], (p99, None));
        assert_eq!(judged(level(1, &[held(1, 0)], 90.0, 1.0), "bert bs8"), []);
    }
}
