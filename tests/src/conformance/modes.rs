//! The ways of having the library in front of a program.

use std::path::Path;

use crate::program::{Directions, End};

/// One way.
#[derive(Debug)]
pub struct Mode {
    /// Its name, for people and for the command line.
    pub name: &'static str,
    /// Besides the two variables that make the library write its counts into a file.
    env: &'static [(&'static str, &'static str)],
    /// Words of the counts (`launch=12`) whose sum over all processes of a program must not be zero. None: the library
    /// must not say anything at all.
    counts: &'static [&'static str],
    /// True if these count work submitted to streams. A program with `no-work` submits none.
    of_work: bool,
    /// True if the library may write more than its counts. Without the file that would go to stderr.
    warns: bool,
    /// Which programs are compared in it.
    pub of: Of,
    /// Under a server and beside an urgent program.
    pub rival: Option<Beside>,
}

/// The settings of a mode with an urgent program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The preemption level.
    pub level: &'static str,
    /// The parameters of the server's policy.
    pub parameters: &'static [&'static str],
}

/// Which programs a mode compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Every one.
    All,
    /// Those with `every-mode`: the mode differs from others in who decides and not in how a call is carried out.
    Some,
    /// Those with kernels of their own (`.hip`), built for several architectures of which only the device's counts, also as
    /// compressed bundles. Where the runtime cannot have them there is nothing to compare: HIP 5.2 knows no compressed ones.
    Fat {
        /// True if they are compressed.
        compressed: bool,
    },
}

/// Evicted while the urgent program has work.
const HELD: Beside = Beside { level: "3", parameters: &[] };

const QUEUES: (&str, &str) = ("XSCHED_AUTO_XQUEUE", "ON");

/// Everything takes the deferred path.
const DEFERRED: Mode = Mode {
    name: DEFER,
    env: &[QUEUES, ("XSCHED_TEST", "defer")],
    counts: &["deferred", "forced"],
    of_work: true,
    warns: true,
    of: Of::All,
    rival: None,
};

/// All of them.
pub const MODES: &[Mode] = &[
    Mode {
        name: "preloaded",
        env: &[],
        counts: &["launch", "copy", "memset"],
        of_work: true,
        warns: false,
        of: Of::Some,
        rival: None,
    },
    Mode {
        name: "inert",
        env: &[("XSCHED_DISABLE", "1")],
        counts: &[],
        of_work: false,
        warns: false,
        of: Of::Some,
        rival: None,
    },
    Mode {
        name: "queues",
        env: &[QUEUES],
        counts: &["direct", "deferred", "forced"],
        of_work: true,
        warns: true,
        of: Of::All,
        rival: None,
    },
    DEFERRED,
    Mode { name: "fat", of: Of::Fat { compressed: false }, ..DEFERRED },
    Mode { name: "fat-compressed", of: Of::Fat { compressed: true }, ..DEFERRED },
    Mode {
        name: "chaos",
        env: &[QUEUES, ("XSCHED_TEST", "chaos:1")],
        counts: &["suspensions"],
        of_work: true,
        warns: true,
        of: Of::All,
        rival: None,
    },
    // The whole process off the hardware at random, kernels and all.
    Mode {
        name: HOLD,
        env: &[QUEUES, ("XSCHED_TEST", "chaos:2"), ("XSCHED_AUTO_XQUEUE_LEVEL", "3")],
        // The runtime has work of its own as well.
        counts: &["holds"],
        of_work: true,
        warns: true,
        of: Of::All,
        rival: None,
    },
    Mode {
        name: "local",
        env: &[QUEUES, ("XSCHED_POLICY", "HPF")],
        counts: &["direct", "deferred"],
        of_work: true,
        warns: true,
        of: Of::Some,
        rival: None,
    },
    // What users have: low priority, and an urgent program that launches at intervals.
    Mode {
        name: "rival",
        env: &[],
        counts: &["direct", "deferred", "forced"],
        of_work: true,
        warns: true,
        of: Of::Some,
        rival: Some(Beside { level: "1", parameters: &[] }),
    },
    Mode {
        name: "rival-hold",
        env: &[],
        counts: &["direct", "deferred", "forced"],
        of_work: true,
        warns: true,
        of: Of::Some,
        rival: Some(HELD),
    },
    // The same on a quarter of the compute units, where it is not evicted.
    Mode {
        name: "rival-share",
        env: &[],
        counts: &["direct", "deferred", "forced"],
        of_work: true,
        warns: true,
        of: Of::Some,
        rival: Some(Beside { parameters: &["share-percent=25", "slowdown-percent=0"], ..HELD }),
    },
];

/// The mode whose log the directions can ask for a text.
const DEFER: &str = "defer";

/// The mode that takes queues off the hardware.
const HOLD: &str = "hold";

impl Mode {
    /// Returns true if the mode evicts queues.
    pub(crate) fn holds(&self) -> bool {
        self.name == HOLD || self.rival.is_some_and(|beside| beside.level != "1")
    }

    /// Returns true if everything takes the deferred path.
    fn defers(&self) -> bool {
        self.env == DEFERRED.env
    }

    /// The library's log goes into this file.
    pub(crate) fn with_log(&self, log: &Path) -> crate::Mode {
        self.with(log, Vec::new())
    }

    /// The same with further variables.
    pub(crate) fn with(&self, log: &Path, mut env: Vec<(String, String)>) -> crate::Mode {
        let log = log.display().to_string();
        let said = [("XSCHED_LOG_LEVEL", "debug"), ("XSCHED_LOG_FILE", log.as_str())];
        env.extend(said.iter().chain(self.env).map(|(name, value)| (name.to_string(), value.to_string())));
        crate::Mode::Shimmed { env }
    }

    /// Returns the fault in the library's log, if there is one.
    pub(crate) fn objection(&self, said: &str, directions: &Directions) -> Option<String> {
        if self.counts.is_empty() {
            return (!said.is_empty()).then(|| "it should have said nothing".to_owned());
        }
        if let Some(line) = said.lines().find(|line| !self.warns && !line.starts_with("xsched: debug: ")) {
            return Some(format!("a line that it should not have said: {line}"));
        }
        if let Some(text) = &directions.logs
            && self.name == DEFER
            && !said.contains(text.as_str())
        {
            return Some(format!("it did not say {text:?}"));
        }
        let slow = total(said, "slow");
        if self.defers() && slow != 0 && !directions.slow_path {
            return Some(format!(
                "{slow} launches were not deferred; a program that is about that says `slow-path`"
            ));
        }
        if directions.end == End::Killed {
            return (!said.contains("HIP runtime: ")).then(|| "it never started".to_owned());
        }
        let nothing = self.counts.iter().all(|name| total(said, name) == 0);
        match (nothing, self.of_work && directions.no_work) {
            (true, false) => Some(format!("{} came to nothing", self.counts.join(" + "))),
            (false, true) if !self.holds() => {
                Some(format!("{} came to something, in spite of no-work", self.counts.join(" + ")))
            }
            _ => None,
        }
    }
}

/// How often a log says that the process was suspended.
pub(super) fn suspensions(said: &str) -> u64 {
    total(said, "suspensions")
}

/// How many launches a log says were held back.
pub(super) fn held_back(said: &str) -> u64 {
    total(said, "deferred") + suspensions(said)
}

/// The sum of `NAME=number` over all lines; each process that used HIP has one.
fn total(said: &str, name: &str) -> u64 {
    let words = said.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(key, _)| *key == name).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(mode: &str, said: &str, line: &str) -> Option<String> {
        let mode = MODES.iter().find(|each| each.name == mode).expect("a mode of this name");
        mode.objection(said, &Directions::parse(line).unwrap())
    }

    #[test]
    fn counts_are_added_up() {
        let said = "xsched: debug: calls launch=0 copy=3\nxsched: debug: calls launch=2 copy=0 relaunch=7\n";
        assert_eq!((total(said, "launch"), total(said, "copy"), total(said, "deferrals")), (2, 3, 0));
    }

    #[test]
    fn a_mode_that_did_nothing_is_a_failure() {
        let some = "xsched: debug: queues direct=0 deferred=3 forced=0 suspensions=0\n";
        assert_eq!(objection("defer", some, "// run: plain"), None);
        assert!(objection("defer", "", "// run: plain").is_some());
        assert!(objection("chaos", some, "// run: plain").is_some());
        assert_eq!(objection("chaos", some, "// run: no-work"), None);
        assert!(objection("defer", some, "// run: no-work").is_some());
        assert!(objection("inert", some, "// run: plain").is_some());
        assert_eq!(objection("inert", "", "// run: plain"), None);
        assert!(objection("preloaded", "xsched: warn: launch=3\n", "// run: plain").is_some());
        assert_eq!(objection("defer", some, "// run: logs deferred=3 forced"), None);
        assert!(objection("defer", some, "// run: logs of kernel mix").is_some());
        assert!(objection("queues", some, "// run: killed").is_some());
        let slow = format!("{some}xsched: debug: queues deferred=3 slow=2 slow_code=2\n");
        for (mode, line, good) in [
            ("defer", "// run: plain", false),
            ("fat", "// run: plain", false),
            ("defer", "// run: slow-path", true),
            ("queues", "// run: plain", true),
        ] {
            assert_eq!(objection(mode, &slow, line).is_none(), good, "{mode} {line}");
        }
    }
}
