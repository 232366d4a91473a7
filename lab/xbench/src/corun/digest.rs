//! A short co-run on the machine's own GPU for `xcli report`: BERT beside ResNet-50, the programs of `xbench scenario two-models`.
//!
//! The recorded models are part of this program, because an installed one has no `examples`.

use super::figures::{Figures, ModeFigures};
use super::levels::Level;
use super::{CorunArgs, High, measure};
use crate::experiment::PolicyWords;
use crate::files::{scratch, write};
use crate::simulated::{CuModel, GpuArgs};
use crate::traffic::Traffic;
use anyhow::Result;
use protocol::report::{Corun, CorunLevel, CorunMode};

const HIGH: &str = include_str!("../../../../examples/traces/bert_bs8.json");
const LOW: &str = include_str!("../../../../examples/traces/resnet50_bs256.json");
/// Requests of the urgent model per second.
const RATE: f64 = 10.0;
/// Seconds in which requests arrive in each mode, and in a short run.
const SECONDS: f64 = 15.0;
const SHORT_SECONDS: f64 = 3.0;

/// Measures the modes, with level 3 as well if there is a mechanism that evicts queues.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub(crate) fn for_report(short: bool, mechanism: Option<&str>) -> Result<Corun> {
    let folder = scratch()?;
    let [high, low] = ["high.json", "low.json"].map(|name| folder.path().join(name));
    write(&high, HIGH)?;
    write(&low, LOW)?;
    let args = CorunArgs {
        high: High { trace: high, rate: RATE },
        low,
        scale: 1.0,
        traffic: Traffic::None,
        level: if mechanism.is_some() { vec![1, 3] } else { vec![1] },
        policy: "HPF".parse::<PolicyWords>()?,
        // A disturbed run is reported as such, and not repeated: a report has a time limit.
        gpu: GpuArgs { real: true, save_us: 0, cu_model: CuModel::Shared, allow_late: true },
        mechanism: mechanism.unwrap_or("off").to_owned(),
        blocks: 1,
        seconds: if short { SHORT_SECONDS } else { SECONDS },
        seed: 1,
        threshold: None,
        batch: None,
        account: false,
        json: None,
    };
    Ok(digest(&measure(&args)?.0))
}

fn digest(figures: &Figures) -> Corun {
    Corun {
        high: figures.setting.high.clone(),
        low: figures.setting.low.clone(),
        blocks: figures.setting.blocks as u64,
        seconds: figures.setting.seconds,
        undisturbed: figures.device_valid,
        alone: mode(&figures.alone),
        native: mode(&figures.native),
        low_alone_per_s: figures.low_alone_per_s,
        levels: figures.levels.iter().map(level).collect(),
    }
}

fn mode(figures: &ModeFigures) -> CorunMode {
    let ModeFigures { p50_ms, p99_ms, low_per_s, .. } = *figures;
    CorunMode { requests: figures.high_n as u64, p50_ms, p99_ms, low_per_s }
}

fn level(row: &Level) -> CorunLevel {
    CorunLevel {
        level: row.level,
        in_force: row.in_force.into(),
        missing: row.missing.clone(),
        suspensions: row.figures.suspensions,
        holds: row.holds,
        hold_us: row.hold_us,
        release_us: row.release_us,
        mode: mode(&row.figures),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn models_are_those_of_the_scenario() {
        let [high, low] = [HIGH, LOW].map(|text| Trace::parse(text).unwrap());
        assert_eq!((high.name.as_str(), low.name.as_str()), ("bert bs8", "resnet50 bs256"));
        assert!(high.device_us() < low.device_us());
    }

    #[test]
    fn digest_has_the_figures_of_each_mode() {
        let figures = super::super::figures::tests::figures();
        let made = digest(&figures);
        assert_eq!((made.high.as_str(), made.blocks, made.undisturbed), ("bert bs8@10", 3, true));
        assert_eq!((made.alone.p50_ms, made.alone.low_per_s), (11.0, 0.0));
        assert_eq!((made.native.p50_ms, made.native.requests), (70.0, 9));
        let [level_1, level_3] = &made.levels[..] else { panic!("two levels") };
        assert_eq!((level_1.level, level_1.holds, level_1.suspensions), (1, 0, 15));
        assert_eq!((level_3.level, level_3.in_force, level_3.holds), (3, 3, 18));
        assert_eq!((level_3.hold_us, level_3.missing.as_deref()), (Some(120.0), None));
        assert_eq!(level_3.mode.p99_ms, 12.0);
        let disturbed = Figures { device_valid: false, ..figures };
        assert!(!digest(&disturbed).undisturbed);
    }
}
