//! Preemption levels side by side: the server's counts of the batch model's suspensions, the reason if a
//! level was not used, and the judgement of level 3.

use super::figures::ModeFigures;
use crate::experiment::Suspensions;
use crate::report::{Limit, Report};
use crate::stats::median;
use crate::table::{Column, Table, number};
use serde::Serialize;
use std::fmt::Write as _;

/// The highest p99 of the urgent model at level 3, over its p99 alone, by the first word of the model's name.
/// Other models are not judged.
const P99_LIMITS: [(&str, f64); 2] = [("bert", 1.10), ("resnet18", 1.25)];
/// The smallest share of the free time that the batch model may keep at level 3.
const FREE_LIMIT: f64 = 0.85;

/// The figures of both programs with the library, the batch model at one preemption level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Level {
    /// The requested level.
    pub(crate) level: u8,
    /// The one in force, the least of all blocks. Where waves are saved, level 2 is 3.
    pub(crate) in_force: i32,
    /// The mechanism, or the reason why the level is lower than the requested one.
    pub(crate) how: String,
    /// The reason why the level was not used; `null` if it was.
    pub(crate) missing: Option<String>,
    /// Suspensions in which the batch model's queues were evicted from the hardware, all blocks together.
    pub(crate) holds: u64,
    pub(crate) holds_per_s: f64,
    /// Suspensions in which waiting was expected to cost less.
    pub(crate) waits: u64,
    /// Evictions that failed and were undone.
    pub(crate) failures: u64,
    /// The last measured cost of an eviction, microseconds; median of the blocks, `null` without any.
    pub(crate) hold_us: Option<f64>,
    /// The last measured cost of a restoration.
    pub(crate) release_us: Option<f64>,
    #[serde(flatten)]
    pub(crate) figures: ModeFigures,
    /// The urgent model's median latency over that of the model alone.
    pub(crate) p50_ratio: f64,
    /// The same of the 99th percentiles.
    pub(crate) p99_ratio: f64,
    /// The batch model's share of the time that the urgent one leaves: its rate over
    /// `low_alone_per_s × (1 - high_busy_share)`.
    pub(crate) free_share: f64,
}

impl Level {
    /// Computes the row from each block's suspensions. `free_per_s` is the rate of the batch model that fits
    /// beside the urgent one.
    pub(super) fn new(
        level: u8,
        blocks: &[&Suspensions],
        figures: ModeFigures,
        alone: &ModeFigures,
        free_per_s: f64,
    ) -> Self {
        let sum = |of: fn(&Suspensions) -> u64| blocks.iter().map(|block| of(block)).sum::<u64>();
        let median =
            |of: fn(&Suspensions) -> Option<f64>| median(blocks.iter().filter_map(|block| of(block)));
        let least = blocks.iter().min_by_key(|block| block.in_force);
        let seconds: f64 = blocks.iter().map(|block| block.seconds).sum();
        let holds = sum(|block| block.holds);
        Self {
            level,
            in_force: least.map_or(0, |block| block.in_force),
            how: least.map_or_else(String::new, |block| block.how.clone()),
            missing: missing(level, blocks),
            holds,
            holds_per_s: if seconds > 0.0 { holds as f64 / seconds } else { 0.0 },
            waits: sum(|block| block.waits),
            failures: sum(|block| block.failures),
            hold_us: median(|block| block.hold_us),
            release_us: median(|block| block.release_us),
            p50_ratio: figures.p50_ms / alone.p50_ms,
            p99_ratio: figures.p99_ms / alone.p99_ms,
            free_share: figures.low_per_s / free_per_s,
            figures,
        }
    }
}

/// Returns the reason why these blocks did not use this level; `None` if they did.
fn missing(level: u8, blocks: &[&Suspensions]) -> Option<String> {
    let Some(least) = blocks.iter().min_by_key(|block| block.in_force) else {
        return Some(format!("level {level}: the server reported nothing about it"));
    };
    if least.in_force < i32::from(level) {
        let how = if least.how.is_empty() { "the server gives no reason" } else { &least.how };
        return Some(format!("level {level} is not in force, level {} is: {how}", least.in_force));
    }
    let without = blocks.iter().filter(|block| block.holds == 0).count();
    (level > 1 && without > 0).then(|| {
        format!(
            "level {level} was not used: no queue was evicted from the hardware in {without} of {} blocks",
            blocks.len()
        )
    })
}

pub(super) fn table(levels: &[Level]) -> String {
    let mark = |row: &Level| if row.missing.is_none() { "" } else { "!" };
    let columns: [Column<'_, Level>; 11] = [
        ("the batch model's", &|row| format!("level {}", row.level)),
        ("in force", &|row| format!("{}{}", row.in_force, mark(row))),
        ("holds", &|row| row.holds.to_string()),
        ("holds/s", &|row| format!("{:.1}", row.holds_per_s)),
        ("waits", &|row| row.waits.to_string()),
        ("failed", &|row| row.failures.to_string()),
        ("hold µs", &|row| number(row.hold_us, 0)),
        ("release µs", &|row| number(row.release_us, 0)),
        ("p50 x", &|row| format!("{:.2}", row.p50_ratio)),
        ("p99 x", &|row| format!("{:.2}", row.p99_ratio)),
        ("free kept", &|row| format!("{:.0} %", row.free_share * 100.0)),
    ];
    let mut text = Table::of(1, columns, levels).to_string();
    for reason in levels.iter().filter_map(|row| row.missing.as_ref()) {
        let _ = writeln!(text, "! {reason}");
    }
    text
}

/// Judges level 3, if it was used.
pub(super) fn checks(model: &str, levels: &[Level]) -> Report {
    let mut report = Report::default();
    let Some(row) = levels.iter().find(|row| row.level == 3 && row.missing.is_none()) else { return report };
    let word = model.split_whitespace().next().unwrap_or_default();
    let what = format!("level 3: p99 of {word}, of alone");
    let limit = P99_LIMITS.iter().find(|(name, _)| *name == word).map(|(_, most)| Limit::at_most(*most));
    report.push("level3_p99_ratio", what, row.p99_ratio, "", limit);
    let at_least = Limit { min: Some(FREE_LIMIT), max: None };
    let what = "level 3: share of the free time that the batch model keeps";
    report.judged("level3_free_share", what, row.free_share, "", at_least);
    report
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a block in which a level was in force and made so many evictions.
    pub(crate) fn suspended(in_force: i32, holds: u64) -> Suspensions {
        let cost = (holds > 0).then_some(120.0);
        let how = if in_force > 1 { "update-queue" } else { "" };
        Suspensions {
            in_force,
            how: how.into(),
            holds,
            waits: 2,
            hold_us: cost,
            release_us: cost,
            seconds: 2.0,
            ..Suspensions::default()
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

    fn level(level: u8, blocks: &[Suspensions], p99_ms: f64, low_per_s: f64) -> Level {
        Level::new(level, &blocks.iter().collect::<Vec<_>>(), mode(p99_ms, low_per_s), &mode(20.0, 0.0), 8.0)
    }

    fn judged(row: Level, model: &str) -> Vec<(&'static str, Option<bool>)> {
        checks(model, &[row]).figures().iter().map(|figure| (figure.name, figure.met)).collect()
    }

    #[test]
    fn row_sums_its_blocks() {
        let row = level(3, &[suspended(3, 6), suspended(3, 4)], 21.0, 7.0);
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
    fn unused_level_has_its_reason_and_no_judgement() {
        let of = |level_: u8, blocks: &[Suspensions]| level(level_, blocks, 20.0, 8.0).missing;
        assert_eq!(of(1, &[suspended(1, 0)]), None);
        assert_eq!(of(2, &[suspended(3, 1)]), None);
        let none = of(3, &[suspended(3, 5), suspended(3, 0)]).unwrap();
        assert_eq!(none, "level 3 was not used: no queue was evicted from the hardware in 1 of 2 blocks");
        let backed_out = Suspensions { how: "a time-out".into(), ..suspended(1, 7) };
        let less = of(3, &[suspended(3, 5), backed_out]).unwrap();
        assert_eq!(less, "level 3 is not in force, level 1 is: a time-out");
        assert!(of(2, &[]).is_some());
        let row = level(3, &[suspended(3, 0)], 20.0, 8.0);
        let text = table(std::slice::from_ref(&row));
        assert!(text.contains(" 3! ") && text.contains("\n! level 3 was not used"), "{text}");
        assert_eq!(judged(row, "bert bs8"), []);
    }

    #[test]
    fn limit_of_level_3_depends_on_the_model() {
        let used = [suspended(3, 5)];
        let met = |p99: f64, low: f64, model: &str| judged(level(3, &used, p99, low), model);
        let [p99, free] = ["level3_p99_ratio", "level3_free_share"];
        assert_eq!(met(21.9, 7.0, "bert bs8"), [(p99, Some(true)), (free, Some(true))]);
        assert_eq!(met(22.1, 6.7, "bert bs8"), [(p99, Some(false)), (free, Some(false))]);
        assert_eq!(met(24.9, 7.0, "resnet18 bs1")[0], (p99, Some(true)));
        assert_eq!(met(25.1, 7.0, "resnet18 bs1")[0], (p99, Some(false)));
        assert_eq!(met(90.0, 7.0, "another bs1")[0], (p99, None));
        assert_eq!(judged(level(1, &[suspended(1, 0)], 90.0, 1.0), "bert bs8"), []);
    }
}
