//! Preemption levels side by side: the server's counts of the batch model's suspensions, the reason if a
//! level was not used, and the judgement of each level that was.

use super::figures::ModeFigures;
use crate::experiment::Suspensions;
use crate::report::{Limit, Report};
use crate::stats::median;
use crate::table::{Column, Table, number};
use serde::Serialize;
use std::fmt::Write as _;

/// The highest p99 of the urgent model, over its p99 alone.
const P99_LIMIT: f64 = 1.10;
/// The smallest share of the free time that the batch model may keep.
const FREE_LIMIT: f64 = 0.95;
/// The least device time that both models may use, over that without giveway.
const USED_LIMIT: f64 = 0.97;

/// The names of the figures of each level, from level 1 on.
const NAMES: [[&str; 3]; 3] = [
    ["level1_p99_ratio", "level1_free_share", "level1_used_ratio"],
    ["level2_p99_ratio", "level2_free_share", "level2_used_ratio"],
    ["level3_p99_ratio", "level3_free_share", "level3_used_ratio"],
];

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
    /// The device time that both models' inferences take alone, over that of the inferences without giveway.
    pub(crate) used_ratio: f64,
}

/// What the levels are compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    /// The urgent model alone, and both models without the library.
    pub(super) alone: &'a ModeFigures,
    pub(super) native: &'a ModeFigures,
    /// The device time of one request of the urgent model, seconds.
    pub(super) high_s: f64,
    /// The batch model's inferences a second, alone, and those that fit beside the urgent one.
    pub(super) low_alone_per_s: f64,
    pub(super) free_per_s: f64,
}

impl Base<'_> {
    /// Returns the device time that the inferences of a second take alone, seconds. It can exceed 1, because
    /// kernels run beside each other.
    fn used(&self, figures: &ModeFigures) -> f64 {
        figures.high_per_s * self.high_s + figures.low_per_s / self.low_alone_per_s
    }
}

impl Level {
    /// Computes the row from each block's suspensions.
    pub(super) fn new(level: u8, blocks: &[&Suspensions], figures: ModeFigures, base: Base<'_>) -> Self {
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
            p50_ratio: figures.p50_ms / base.alone.p50_ms,
            p99_ratio: figures.p99_ms / base.alone.p99_ms,
            free_share: figures.low_per_s / base.free_per_s,
            used_ratio: base.used(&figures) / base.used(base.native),
            figures,
        }
    }
}

/// Returns the reason why these blocks did not use this level; `None` if they did.
fn missing(level: u8, blocks: &[&Suspensions]) -> Option<String> {
    let Some(least) = blocks.iter().min_by_key(|block| block.in_force) else {
        return Some(format!("level {level}: the server reported nothing about it"));
    };
    if let Some(below) = least.below(level) {
        return Some(below);
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
    let columns: [Column<'_, Level>; 12] = [
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
        ("free kept", &|row| format!("{:.1} %", row.free_share * 100.0)),
        ("used x", &|row| format!("{:.3}", row.used_ratio)),
    ];
    let mut text = Table::of(1, columns, levels).to_string();
    for reason in levels.iter().filter_map(|row| row.missing.as_ref()) {
        let _ = writeln!(text, "! {reason}");
    }
    text
}

/// Judges each level that was used.
pub(super) fn checks(levels: &[Level]) -> Report {
    let mut report = Report::default();
    for row in levels.iter().filter(|row| row.missing.is_none()) {
        let Some([p99, free, used]) = NAMES.get(usize::from(row.level).wrapping_sub(1)) else { continue };
        let what = |text: &str| format!("level {}: {text}", row.level);
        let at_least = |least| Limit { min: Some(least), max: None };
        report.judged(
            p99,
            what("p99 of the urgent model, of alone"),
            row.p99_ratio,
            "",
            Limit::at_most(P99_LIMIT),
        );
        let kept = what("share of the free time that the batch model keeps");
        report.judged(free, kept, row.free_share, "", at_least(FREE_LIMIT));
        let of_native = what("device time used, of that without giveway");
        report.judged(used, of_native, row.used_ratio, "", at_least(USED_LIMIT));
    }
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
            processor: Default::default(),
        }
    }

    fn level(level: u8, blocks: &[Suspensions], p99_ms: f64, low_per_s: f64) -> Level {
        // Without giveway both use 0.2 s and 0.8 s a second.
        let base = Base {
            alone: &mode(20.0, 0.0),
            native: &mode(60.0, 8.0),
            high_s: 0.02,
            low_alone_per_s: 10.0,
            free_per_s: 8.0,
        };
        Level::new(level, &blocks.iter().collect::<Vec<_>>(), mode(p99_ms, low_per_s), base)
    }

    fn judged(row: Level) -> Vec<(&'static str, Option<bool>)> {
        checks(&[row]).figures().iter().map(|figure| (figure.name, figure.met)).collect()
    }

    #[test]
    fn row_sums_its_blocks() {
        let row = level(3, &[suspended(3, 6), suspended(3, 4)], 21.0, 7.0);
        assert_eq!((row.holds, row.waits, row.in_force, &row.missing), (10, 4, 3, &None));
        assert!((row.holds_per_s - 2.5).abs() < 1e-12);
        assert_eq!((row.hold_us, row.p50_ratio), (Some(120.0), 1.0));
        assert!((row.p99_ratio - 1.05).abs() < 1e-12);
        assert!((row.free_share - 0.875).abs() < 1e-12);
        assert!((row.used_ratio - 0.9).abs() < 1e-12);
        let json = serde_json::to_value(&row).unwrap();
        for key in [
            "level",
            "in_force",
            "holds",
            "holds_per_s",
            "p99_ms",
            "p99_ratio",
            "low_per_s",
            "free_share",
            "used_ratio",
        ] {
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
        assert_eq!(judged(row), []);
    }

    #[test]
    fn each_used_level_is_judged() {
        let used = [suspended(3, 5)];
        let [p99, free, ratio] = NAMES[2];
        let [good, bad] = [[21.9, 7.8], [22.1, 7.5]].map(|[p99, low]| judged(level(3, &used, p99, low)));
        assert_eq!(good, [p99, free, ratio].map(|name| (name, Some(true))));
        assert_eq!(bad, [p99, free, ratio].map(|name| (name, Some(false))));
        let first = judged(level(1, &[suspended(1, 0)], 20.0, 7.65));
        assert_eq!(
            first,
            NAMES[0].iter().map(|name| (*name, Some(*name != NAMES[0][2]))).collect::<Vec<_>>()
        );
    }
}
