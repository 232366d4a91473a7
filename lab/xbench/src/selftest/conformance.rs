//! Runs the programs of [`super::programs`] in several modes of the library, and checks that each mode was
//! effective.

use super::parent::{Parent, Preload};
use crate::library_log::Counts;
use anyhow::Result;
use protocol::report::{Conformance, Mode, Program};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checked {
    pub(super) programs: Vec<Program>,
    /// The number of runs of each program.
    pub(super) rounds: u64,
}

/// The name of the work of a worker that runs long enough for random events.
pub(super) const PATIENT: &str = "patient";

/// The evidence that a mode was effective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// The library was not loaded.
    Absent,
    /// Calls went through the library.
    Calls,
    /// Launches went through its queues.
    Queued,
    /// Commands were deferred.
    Deferred,
    /// Queues were suspended.
    Suspended,
    /// The process was evicted from the hardware.
    Held,
}

const QUEUES: (&str, &str) = ("XSCHED_AUTO_XQUEUE", "ON");
const NO_HOLDS: (&str, &str) = ("XSCHED_KFD_MECHANISM", "off");

type Environment = &'static [(&'static str, &'static str)];

/// The modes: name, environment of the library, evidence.
const CASES: [(&str, Environment, Evidence); 6] = [
    ("native", &[], Evidence::Absent),
    ("forward", &[NO_HOLDS], Evidence::Calls),
    ("queues", &[QUEUES, NO_HOLDS, ("XSCHED_POLICY", "HPF")], Evidence::Queued),
    ("defer", &[QUEUES, NO_HOLDS, ("XSCHED_TEST", "defer")], Evidence::Deferred),
    ("chaos:1", &[QUEUES, NO_HOLDS, ("XSCHED_TEST", "chaos:1")], Evidence::Suspended),
    ("hold", &[QUEUES, ("XSCHED_TEST", "chaos:2"), ("XSCHED_AUTO_XQUEUE_LEVEL", "3")], Evidence::Held),
];

/// Runs the programs in each mode; in the mode with evictions by this mechanism, if one is given.
pub(super) fn measure(parent: &Parent, shim: &Path, hold: Option<&str>) -> Result<Conformance> {
    let mut modes = Vec::new();
    for (name, environment, evidence) in CASES {
        let mut environment = environment.to_vec();
        if evidence == Evidence::Held {
            let Some(mechanism) = hold else { continue };
            environment.push(("XSCHED_KFD_MECHANISM", mechanism));
        }
        let preload = Preload { library: shim, environment: &environment };
        let preload = (evidence != Evidence::Absent).then_some(preload);
        let random = matches!(evidence, Evidence::Suspended | Evidence::Held);
        let answer = parent.worker(if random { PATIENT } else { "once" }, preload);
        modes.push(judge(name, evidence, answer));
    }
    Ok(Conformance { modes })
}

fn judge(name: &str, evidence: Evidence, answer: Result<(Checked, String)>) -> Mode {
    let mut mode = Mode { name: name.to_owned(), ..Mode::default() };
    let log = match answer {
        Ok((answer, log)) => {
            (mode.programs, mode.rounds) = (answer.programs, answer.rounds);
            log
        }
        Err(error) => {
            mode.error = Some(format!("{error:#}"));
            return mode;
        }
    };
    let queues = |name| Counts::last(&log, "queues")?.get(name);
    (mode.direct, mode.deferred, mode.suspensions) =
        (queues("direct"), queues("deferred"), queues("suspensions"));
    mode.holds = queues("holds").unwrap_or(0);
    let (direct, deferred) = (mode.direct.unwrap_or(0), mode.deferred.unwrap_or(0));
    let launches = Counts::last(&log, "calls").and_then(|calls| calls.get("launch"));
    let missing = match evidence {
        Evidence::Absent if launches.is_some() => Some("the library was loaded"),
        Evidence::Calls if launches.unwrap_or(0) == 0 => Some("no launch went through the library"),
        Evidence::Queued if direct + deferred == 0 => Some("no launch went through a queue"),
        Evidence::Deferred if deferred == 0 => Some("nothing was deferred"),
        Evidence::Suspended if mode.suspensions.unwrap_or(0) == 0 => Some("nothing was suspended"),
        Evidence::Held if mode.holds == 0 => Some("nothing was held"),
        _ => None,
    };
    mode.error = missing.map(str::to_owned);
    let run = !mode.programs.is_empty();
    mode.passed = run && missing.is_none() && mode.programs.iter().all(|program| program.error.is_none());
    mode
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn answer(error: Option<&str>, log: &str) -> Result<(Checked, String)> {
        let program = Program { name: "copies".to_owned(), error: error.map(str::to_owned) };
        Ok((Checked { programs: vec![program], rounds: 1 }, log.to_owned()))
    }

    const LOG: &str = "xsched: debug: queues created=1 direct=5 deferred=0 suspensions=2 holds=0 pending=0\n\
                       xsched: debug: calls launch=5 copy=1\n";

    #[test]
    fn mode_without_effect_has_not_passed() {
        assert!(judge("native", Evidence::Absent, answer(None, "")).passed);
        assert!(!judge("native", Evidence::Absent, answer(None, LOG)).passed);
        assert!(judge("forward", Evidence::Calls, answer(None, LOG)).passed);
        assert!(!judge("forward", Evidence::Calls, answer(None, "")).passed);
        assert!(judge("queues", Evidence::Queued, answer(None, LOG)).passed);
        assert!(judge("chaos:1", Evidence::Suspended, answer(None, LOG)).passed);
        let mode = judge("defer", Evidence::Deferred, answer(None, LOG));
        assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("nothing was deferred")));
        let mode = judge("hold", Evidence::Held, answer(None, LOG));
        assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("nothing was held")));
        let mode = judge("hold", Evidence::Held, answer(None, &LOG.replace("holds=0", "holds=9")));
        assert_eq!((mode.passed, mode.holds), (true, 9));
    }

    #[test]
    fn failed_and_missing_programs_are_reported() {
        let mode = judge("queues", Evidence::Queued, answer(Some("word 3 is wrong"), LOG));
        assert_eq!((mode.passed, mode.error), (false, None));
        let mode = judge("queues", Evidence::Queued, Err(anyhow!("signal 11")));
        assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("signal 11")));
    }
}
