//! The programs of [`super::programs`] in several modes of the library, each of which must have done what it is there for.

use super::{Parent, Preload, Said, count};
use anyhow::Result;
use protocol::report::{Conformance, Mode, Program};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a worker leaves.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checked {
    pub(super) programs: Vec<Program>,
    /// How often each was run.
    pub(super) rounds: u64,
}

/// A worker that goes on for some time, so that what comes at random comes.
pub(super) const PATIENT: &str = "patient";

/// What shows that a mode was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// There is no library.
    Absent,
    /// Calls came through the library.
    Calls,
    /// Launches went through its queues.
    Queued,
    /// Commands were deferred.
    Deferred,
    /// Queues were suspended.
    Suspended,
    /// The process was taken off the hardware.
    Held,
}

struct Case {
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    proof: Proof,
}

const QUEUES: (&str, &str) = ("XSCHED_AUTO_XQUEUE", "ON");
const NO_HOLDS: (&str, &str) = ("XSCHED_KFD_MECHANISM", "off");

const CASES: [Case; 6] = [
    Case { name: "native", environment: &[], proof: Proof::Absent },
    Case { name: "forward", environment: &[NO_HOLDS], proof: Proof::Calls },
    Case { name: "queues", environment: &[QUEUES, NO_HOLDS, ("XSCHED_POLICY", "HPF")], proof: Proof::Queued },
    Case {
        name: "defer",
        environment: &[QUEUES, NO_HOLDS, ("XSCHED_TEST", "defer")],
        proof: Proof::Deferred,
    },
    Case {
        name: "chaos:1",
        environment: &[QUEUES, NO_HOLDS, ("XSCHED_TEST", "chaos:1")],
        proof: Proof::Suspended,
    },
    Case {
        name: "hold",
        environment: &[QUEUES, ("XSCHED_TEST", "chaos:2"), ("XSCHED_AUTO_XQUEUE_LEVEL", "3")],
        proof: Proof::Held,
    },
];

/// Runs the programs in each mode; in that which holds by this mechanism, if one is given.
pub(super) fn measure(parent: &Parent, shim: &Path, hold: Option<&str>) -> Result<Conformance> {
    let mut modes = Vec::new();
    for case in &CASES {
        let mut environment = case.environment.to_vec();
        if case.proof == Proof::Held {
            let Some(mechanism) = hold else { continue };
            environment.push(("XSCHED_KFD_MECHANISM", mechanism));
        }
        let preload = Preload { library: shim, environment: &environment };
        let preload = (case.proof != Proof::Absent).then_some(preload);
        let random = matches!(case.proof, Proof::Suspended | Proof::Held);
        let said = parent.worker(if random { PATIENT } else { "once" }, preload);
        modes.push(judge(case.name, case.proof, said));
    }
    Ok(Conformance { modes })
}

fn judge(name: &str, proof: Proof, said: Result<Said<Checked>>) -> Mode {
    let mut mode = Mode {
        name: name.to_owned(),
        passed: false,
        error: None,
        programs: Vec::new(),
        rounds: 0,
        direct: None,
        deferred: None,
        suspensions: None,
        holds: 0,
    };
    let log = match said {
        Ok(Said { answer, log }) => {
            (mode.programs, mode.rounds) = (answer.programs, answer.rounds);
            log
        }
        Err(error) => {
            mode.error = Some(format!("{error:#}"));
            return mode;
        }
    };
    let queues = |name| count(&log, "queues", name);
    (mode.direct, mode.deferred, mode.suspensions) =
        (queues("direct"), queues("deferred"), queues("suspensions"));
    mode.holds = queues("holds").unwrap_or(0);
    let (direct, deferred) = (mode.direct.unwrap_or(0), mode.deferred.unwrap_or(0));
    let launches = count(&log, "calls", "launch");
    let missing = match proof {
        Proof::Absent if launches.is_some() => Some("the library was there"),
        Proof::Calls if launches.unwrap_or(0) == 0 => Some("no launch came through the library"),
        Proof::Queued if direct + deferred == 0 => Some("no launch went through a queue"),
        Proof::Deferred if deferred == 0 => Some("nothing was deferred"),
        Proof::Suspended if mode.suspensions.unwrap_or(0) == 0 => Some("nothing was suspended"),
        Proof::Held if mode.holds == 0 => Some("nothing was held"),
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

    fn said(error: Option<&str>, log: &str) -> Result<Said<Checked>> {
        let program = Program { name: "copies".to_owned(), error: error.map(str::to_owned) };
        Ok(Said { answer: Checked { programs: vec![program], rounds: 1 }, log: log.to_owned() })
    }

    const LOG: &str = "xsched: debug: queues created=1 direct=5 deferred=0 suspensions=2 holds=0 pending=0\n\
                       xsched: debug: calls launch=5 copy=1\n";

    #[test]
    fn a_mode_that_did_nothing_has_not_passed() {
        assert!(judge("native", Proof::Absent, said(None, "")).passed);
        assert!(!judge("native", Proof::Absent, said(None, LOG)).passed);
        assert!(judge("forward", Proof::Calls, said(None, LOG)).passed);
        assert!(!judge("forward", Proof::Calls, said(None, "")).passed);
        assert!(judge("queues", Proof::Queued, said(None, LOG)).passed);
        assert!(judge("chaos:1", Proof::Suspended, said(None, LOG)).passed);
        let mode = judge("defer", Proof::Deferred, said(None, LOG));
        assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("nothing was deferred")));
        let mode = judge("hold", Proof::Held, said(None, LOG));
        assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("nothing was held")));
        let mode = judge("hold", Proof::Held, said(None, &LOG.replace("holds=0", "holds=9")));
        assert_eq!((mode.passed, mode.holds), (true, 9));
    }

    #[test]
    fn a_program_that_failed_and_one_that_did_not_run_are_told() {
        let mode = judge("queues", Proof::Queued, said(Some("word 3 is wrong"), LOG));
        assert_eq!((mode.passed, mode.error), (false, None));
        let mode = judge("queues", Proof::Queued, Err(anyhow!("signal 11")));
        assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("signal 11")));
    }
}
