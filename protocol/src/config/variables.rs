//! The table of variables, one row each. A new variable is one row and one field of [`Config`]; a new hint is
//! a row of [`crate::hint::table`] instead.

use super::settings::{AutoXQueue, Config};
use super::values::{count, kfd_mechanism, kfd_probe, log_level, number, path, scheduler, switch, test_mode};
use crate::codes::PreemptLevel;
use crate::hint::table::{HINTS, HintSpec, HintVariable};
use crate::policy::PolicyKind;
use crate::time::Time;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The accepted values, for the error about another one.
pub(super) enum Expected {
    /// The `values` column of the row.
    AsListed,
    /// A range that depends on the build or on another variable.
    Exactly(String),
}

/// The parser of a variable.
#[derive(Clone, Copy)]
enum Read {
    /// Stores the value in the configuration. The policies are those that this build contains.
    Setting(fn(&mut Config, &OsStr, &[PolicyKind]) -> Result<(), Expected>),
    /// Applies a hint to the queues that the library creates by itself.
    Hint(&'static HintSpec),
}

/// One environment variable.
#[derive(Clone, Copy)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// The accepted values.
    pub values: &'static str,
    /// The value in force if it is not set.
    pub default: &'static str,
    /// Its effect.
    pub meaning: &'static str,
    read: Read,
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variable")
            .field("name", &self.name)
            .field("values", &self.values)
            .finish_non_exhaustive()
    }
}

const SWITCH: &str = "ON, OFF, 1, 0";

impl Variable {
    /// Parses a value into the configuration.
    pub(super) fn read(
        &self,
        config: &mut Config,
        value: &OsStr,
        built: &[PolicyKind],
    ) -> Result<(), Expected> {
        match self.read {
            Read::Setting(read) => read(config, value, built),
            Read::Hint(spec) => {
                let update = value.to_str().and_then(|value| spec.read(value, &config.auto.hints));
                set(update, |update| update.apply(&mut config.auto.hints, Time::default()))
            }
        }
    }
}

/// Returns every variable that the project reads, in the order of the documentation.
pub fn variables() -> impl Iterator<Item = Variable> {
    let of_hint = |spec: &'static HintSpec| {
        let HintVariable { name, values, default, .. } = *spec.variable.as_ref()?;
        Some(Variable { name, values, default, meaning: spec.meaning, read: Read::Hint(spec) })
    };
    let hints = HINTS.iter().filter_map(of_hint);
    BEFORE_HINTS.iter().copied().chain(hints).chain(AFTER_HINTS.iter().copied())
}

/// The variables before the hints.
const BEFORE_HINTS: &[Variable] = &[
    Variable {
        name: "XSCHED_DISABLE",
        values: SWITCH,
        default: "OFF",
        meaning: "Makes the preloaded library inert: every call goes to the runtime untouched.",
        read: Read::Setting(|config, value, _| set(switch(value), |on| config.disable = on)),
    },
    Variable {
        name: "XSCHED_SCHEDULER",
        values: "APP, LCL, GLB",
        default: "APP",
        meaning: "Who decides which queues run: the application itself, a policy inside the process, or `xserver`.",
        read: Read::Setting(|config, value, _| set(scheduler(value), |kind| config.scheduler = kind)),
    },
    Variable {
        name: "XSCHED_POLICY",
        values: "HPF, HHPF, CHPF, UP, PUP, SPUP, KEDF, LAX, AWF, CFS, MLFQ, LCBE, EDF, SLO, CREDIT, FAIR, GANG, POWER",
        default: "not set",
        meaning: "If set, a scheduler inside the process runs this policy and `XSCHED_SCHEDULER` is ignored. \
                  A policy that the build does not contain is refused with a warning.",
        read: Read::Setting(policy),
    },
    Variable {
        name: "XSCHED_AUTO_XQUEUE",
        values: SWITCH,
        default: "OFF",
        meaning: "Creates an XQueue for every stream.",
        read: Read::Setting(|config, value, _| set(switch(value), |on| config.auto.enabled = on)),
    },
    Variable {
        name: "XSCHED_AUTO_XQUEUE_LEVEL",
        values: "1..3",
        default: "1",
        meaning: "Preemption level of these queues under `xserver`: 1 launches no more, 2 and 3 take the process's \
                  queues off the hardware, which needs a driver that saves running waves (docs/levels.md).",
        read: Read::Setting(|config, value, _| {
            set(number(value, PreemptLevel::RANGE), |level| config.auto.level = level)
        }),
    },
    Variable {
        name: "XSCHED_AUTO_XQUEUE_THRESHOLD",
        values: "a whole number >= 1",
        default: "adaptive; 16 if only the batch size is set",
        meaning: "Most commands in flight.",
        read: Read::Setting(|config, value, _| {
            set(count(value, 1), |threshold| config.auto.threshold = Some(threshold))
        }),
    },
    // After the threshold, which bounds it.
    Variable {
        name: "XSCHED_AUTO_XQUEUE_BATCH_SIZE",
        values: "1..threshold",
        default: "adaptive; 8, or a smaller threshold, if only the threshold is set",
        meaning: "Commands between two synchronization points.",
        read: Read::Setting(batch_size),
    },
];

/// The variables after the hints.
const AFTER_HINTS: &[Variable] = &[
    Variable {
        name: "XSCHED_STARVATION_MS",
        values: "a whole number >= 0",
        default: "0, off",
        meaning: "After so many milliseconds of waiting, a waiting program runs for a moment, under policies that go by \
                  priority. Read by who decides: `xserver`, or the library where it decides itself.",
        read: Read::Setting(|config, value, _| set(count(value, 0), |ms| config.starvation_ms = ms)),
    },
    Variable {
        name: "XSCHED_SCHEDULER_SUSPEND_SYNC_HWQ",
        values: SWITCH,
        default: "OFF",
        meaning: "Each suspension synchronizes the hardware queue. Not in this build, which says so.",
        read: Read::Setting(|config, value, _| set(switch(value), |on| config.suspend.sync_hw_queue = on)),
    },
    Variable {
        name: "XSCHED_SCHEDULER_SUSPEND_WAIT_ALL",
        values: SWITCH,
        default: "OFF",
        meaning: "Each suspension waits for everything submitted. Not in this build, which says so.",
        read: Read::Setting(|config, value, _| set(switch(value), |on| config.suspend.wait_all = on)),
    },
    Variable {
        name: "XSCHED_SCHEDULER_SUSPEND_WAIT_IDLE",
        values: SWITCH,
        default: "OFF",
        meaning: "Each suspension waits until the queue is idle. Not in this build, which says so.",
        read: Read::Setting(|config, value, _| set(switch(value), |on| config.suspend.wait_idle = on)),
    },
    Variable {
        name: "XSCHED_HIP_LIB",
        values: "a path",
        default: "the loaded libamdhip64, else the library search path",
        meaning: "The real HIP runtime.",
        read: Read::Setting(|config, value, _| set(path(value), |path| config.hip_lib = Some(path))),
    },
    Variable {
        name: "XSCHED_KFD_MECHANISM",
        values: "auto, update-queue, debug-trap, off",
        default: "auto",
        meaning: "How levels 2 and 3 take queues off the hardware; with `off` level 1 is in force whatever is \
                  asked for.",
        read: Read::Setting(|config, value, _| {
            set(kfd_mechanism(value), |mechanism| config.kfd_mechanism = mechanism)
        }),
    },
    Variable {
        name: "XSCHED_KFD_PROBE",
        values: "always, cached, never",
        default: "cached",
        meaning: "Whether a program measures at its start what taking a queue off the hardware costs, by 8 holds of an idle \
                  queue. With `cached` it does so unless `xserver` knows that from an earlier program on this device since \
                  the machine was started; with `never` its first real holds show it.",
        read: Read::Setting(|config, value, _| set(kfd_probe(value), |probe| config.kfd_probe = probe)),
    },
    Variable {
        name: "XSCHED_SOCKET",
        values: "a path of at most 107 bytes",
        default: "`xsched/50000.sock` in `/run` (root), `/run/user/UID` or `/tmp/xsched-UID`",
        meaning: "The socket of `xserver`. `xserver` and `xcli` refuse the directory of the default path, even if it is named explicitly, unless it \
                  belongs to the user and has the mode 700; they do not check other directories.",
        read: Read::Setting(|config, value, _| {
            let fits = value.as_bytes().len() <= crate::socket::LONGEST_PATH;
            set(path(value).filter(|_| fits), |path| config.socket = Some(path))
        }),
    },
    Variable {
        name: "XSCHED_LOG_LEVEL",
        values: "error, warn, info, debug, trace",
        default: "warn",
        meaning: "How much the library says. At `debug`, a process that used HIP ends with one line of call counts.",
        read: Read::Setting(|config, value, _| set(log_level(value), |level| config.log_level = level)),
    },
    Variable {
        name: "XSCHED_LOG_FILE",
        values: "a path",
        default: "standard error",
        meaning: "Where the library says it; lines are appended.",
        read: Read::Setting(|config, value, _| set(path(value), |path| config.log_file = Some(path))),
    },
    Variable {
        name: "XSCHED_TEST",
        values: "defer, chaos:SEED, no-inheritance, no-preludes, queues-first, no-guard",
        default: "not set",
        meaning: "For this project's tests: every command takes the deferred path, or queues are suspended and \
                  resumed at random, or a queue that others wait for gets no permission by that, or the first \
                  command of a request always counts as work, or the program's hardware queues have a higher \
                  priority than those of others, or (read by `xserver`) programs that complete nothing keep the \
                  others suspended.",
        read: Read::Setting(|config, value, _| set(test_mode(value), |mode| config.test = Some(mode))),
    },
];

fn set<T>(read: Option<T>, store: impl FnOnce(T)) -> Result<(), Expected> {
    read.map(store).ok_or(Expected::AsListed)
}

fn policy(config: &mut Config, value: &OsStr, built: &[PolicyKind]) -> Result<(), Expected> {
    let known = value.to_str().and_then(PolicyKind::by_name);
    match known {
        Some(kind) if built.contains(&kind) => {
            config.policy = Some(kind);
            Ok(())
        }
        _ if built.is_empty() => {
            Err(Expected::Exactly("a policy of this build, which contains none yet".to_owned()))
        }
        _ => {
            let names: Vec<_> = built.iter().map(|kind| kind.name()).collect();
            Err(Expected::Exactly(format!("a policy of this build: {}", names.join(", "))))
        }
    }
}

fn batch_size(config: &mut Config, value: &OsStr, _: &[PolicyKind]) -> Result<(), Expected> {
    let threshold = config.auto.threshold.unwrap_or(AutoXQueue::THRESHOLD);
    match count(value, 1).filter(|&batch| batch <= threshold) {
        Some(batch) => {
            config.auto.batch_size = Some(batch);
            Ok(())
        }
        None => Err(Expected::Exactly(format!("1..{threshold}, the threshold"))),
    }
}
