//! A choice of random programs and modes, and the result of making them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How long a process may need for one program.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One program in so many may differ natively from what it computes, without a failure: it is made again.
const NATIVELY: u64 = 200;

/// The least share of all commands that the library must have held back, in percent.
const DEFERRED: u64 = 30;

/// One way of having the library in front of the programs.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// For messages and the command line.
    pub name: &'static str,
    pub(super) env: &'static [(&'static str, &'static str)],
    /// True if `XSCHED_TEST=chaos:SEED` is set as well.
    pub(super) chaos: bool,
}

/// `chaos` holds everything back and suspends at random; `defer` holds everything back; in `window` commands go straight
/// through as long as one is in flight, so that what is held back must not be overtaken; `hold` is `chaos`, and besides the
/// whole process is off the hardware at random.
pub const MODES: &[Mode] = &[
    Mode { name: "chaos", env: &[], chaos: true },
    Mode { name: HOLD, env: &[("XSCHED_AUTO_XQUEUE_LEVEL", "3")], chaos: true },
    Mode { name: "defer", env: &[("XSCHED_TEST", "defer")], chaos: false },
    Mode { name: "window", env: &[("XSCHED_AUTO_XQUEUE_THRESHOLD", "1")], chaos: false },
];

/// The mode in which something must have been off the hardware.
pub(crate) const HOLD: &str = "hold";

/// A choice of random programs and modes.
#[derive(Debug)]
pub struct Plan {
    /// Programs, besides the kept seeds.
    pub count: u64,
    /// The first seed.
    pub first: u64,
    /// How many times each is made, in one process.
    pub repeat: u64,
    /// Goes on after a failure.
    pub keep_going: bool,
    /// The ways to run them.
    pub modes: Vec<Mode>,
    /// The kept seeds first.
    pub kept: bool,
    /// More of the environment of the library.
    pub env: Vec<(String, String)>,
    /// Which library.
    pub library: Library,
}

/// A `libshimhip.so`.
#[derive(Debug, Clone)]
pub enum Library {
    /// The one beside this program, preloaded.
    Built,
    /// Another one, preloaded.
    Other(PathBuf),
    /// The one that the programs are linked with.
    Linked,
}

/// The result of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Programs that were the same in all modes.
    pub passed: u64,
    /// The failures, in the order in which they were found.
    pub failures: Vec<Failure>,
    /// Programs that were not right natively, and were made again until they were; and those that were wrong with the library, and
    /// then natively as well.
    pub again: u64,
    /// Commands that went straight through, and that were held back.
    pub direct: u64,
    /// See `direct`.
    pub deferred: u64,
    /// Suspensions.
    pub suspensions: u64,
    /// How often a process was off the hardware.
    pub holds: u64,
}

impl Outcome {
    /// Returns true if the library deferred enough work for the run to count.
    pub fn deferred_enough(&self) -> bool {
        self.deferred * 100 >= (self.direct + self.deferred) * DEFERRED && self.deferred > 0
    }

    /// Returns true if queues were evicted, where the plan evicts any.
    pub fn held_enough(&self, plan: &Plan) -> bool {
        self.holds > 0 || plan.modes.iter().all(|mode| mode.name != HOLD)
    }

    /// Returns true if too many programs failed natively for the run to count.
    pub fn too_many_again(&self) -> bool {
        self.again > 1 + (self.passed + self.failures.len() as u64) / NATIVELY
    }

    pub(super) fn add(&mut self, batch: Outcome) {
        self.passed += batch.passed;
        self.again += batch.again;
        self.failures.extend(batch.failures);
        self.direct += batch.direct;
        self.deferred += batch.deferred;
        self.suspensions += batch.suspensions;
        self.holds += batch.holds;
    }
}

/// A program that was not as it should be.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// `native`, or the mode.
    pub mode: String,
    /// The difference.
    pub what: String,
    /// The first program of its process, in which streams may come from programs before it.
    pub first: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, mode, what, first } = self;
        writeln!(f, "program {seed}, {mode}: {what}")?;
        let count = seed - first + 1;
        write!(f, "  again: random-programs --seed {seed} --count 1 --modes {mode} --repeat 20")?;
        if count > 1 {
            write!(f, "\n  as it was: random-programs --seed {first} --count {count} --modes {mode}")?;
        }
        write!(f, "\n  smaller: random-programs --shrink {seed} --modes {mode}")
    }
}
