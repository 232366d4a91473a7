//! The policies of this build, one row each. Names and numbers come from [`PolicyKind`].

use crate::awf::{self, Awf};
use crate::cfs::{self, Cfs};
use crate::chpf::{self, Chpf};
use crate::credit::{self, Credit};
use crate::edf::{self, Edf};
use crate::fair::{self, Fair};
use crate::gang::{self, Gang};
use crate::hhpf::Hhpf;
use crate::hpf::{self, Hpf};
use crate::kedf::{self, Kedf};
use crate::lax::Lax;
use crate::lcbe::{self, Lcbe};
use crate::mlfq::{self, Mlfq};
use crate::parameter::Parameter;
use crate::policy::Policy;
use crate::power::{self, Power};
use crate::pup::{self, Pup};
use crate::reason::{PRIORITY, ReasonKind, UNINTERRUPTED};
use crate::slo::{self, Slo};
use crate::spup::{self, Spup};
use crate::up::{self, Up};
use crate::{deadline, round_robin, virtual_runtime};
use protocol::policy::PolicyKind;
use std::fmt::{self, Write as _};

/// A policy of this build.
#[derive(Clone, Copy)]
pub struct Row {
    /// The name, long name and number.
    pub kind: PolicyKind,
    /// The description, one sentence for a list.
    pub description: &'static str,
    /// Advice when to use it and when not, for the documentation.
    pub advice: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// The reasons for its ranks.
    pub reasons: &'static [&'static ReasonKind],
    /// True if an entity may wait for ever under it, so that the guard against starvation makes sense.
    pub goes_by_priority: bool,
    /// True if a device with work is always used, except while it is kept free for expected work; with the
    /// default of each parameter and without caps.
    pub conserves_work: bool,
    /// Creates the policy. It has decided nothing yet.
    pub new: fn() -> Box<dyn Policy>,
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Every policy of this build, in the order of their numbers.
pub const POLICIES: &[Row] = &[
    Row {
        kind: PolicyKind::Hpf,
        description: "On each device, everything of the highest priority that has work runs, and the rest \
                      is suspended.",
        advice: "For an urgent service beside batch work whose priorities are known. Not where urgent work \
                 never ends and the others must still make progress: set XSCHED_STARVATION_MS, or use FAIR.",
        parameters: hpf::PARAMETERS,
        reasons: &[PRIORITY, hpf::STREAM],
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::<Hpf>::default(),
    },
    Row {
        kind: PolicyKind::Hhpf,
        description: "On all devices together, everything of the highest priority that has work runs, and \
                      the rest is suspended.",
        advice: "Where urgent work on one device suffers from other work on another, because they share \
                 memory, a link or power. Not where devices are independent: HPF leaves none of them idle \
                 beside waiting work.",
        parameters: hpf::PARAMETERS,
        reasons: &[PRIORITY, hpf::STREAM],
        goes_by_priority: true,
        conserves_work: false,
        new: || Box::<Hhpf>::default(),
    },
    Row {
        kind: PolicyKind::Chpf,
        description: "On each device, the processes with the lowest nice value that have work run, and the \
                      rest is suspended.",
        advice: "Where nice values are set already and should hold for the GPU as well. Not in one process \
                 (the local scheduler), where all queues have the same value, and not where a program needs \
                 queues of different priority: use HPF.",
        parameters: chpf::PARAMETERS,
        reasons: &[chpf::NICE],
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::<Chpf>::default(),
    },
    Row {
        kind: PolicyKind::Up,
        description: "Entities run round robin, each for a slice as long as its utilization says.",
        advice: "For programs, or queues of one program, that have work most of the time and need a known \
                 part of the device each. Not for short urgent requests beside long work: an entity that \
                 wakes up waits for a whole round (use FAIR or CREDIT).",
        parameters: up::PARAMETERS,
        reasons: round_robin::REASONS,
        goes_by_priority: false,
        conserves_work: true,
        new: || Box::<Up>::default(),
    },
    Row {
        kind: PolicyKind::Pup,
        description: "Processes run round robin, each for a slice as long as its utilization says; a part \
                      of an unused rest counts in the next slice.",
        advice: "For several programs that need a known part of the device each, also where some of them \
                 pause now and then. Not for short urgent requests beside long work: a process that wakes \
                 up waits for a whole round (use FAIR or CREDIT).",
        parameters: pup::PARAMETERS,
        reasons: pup::REASONS,
        goes_by_priority: false,
        conserves_work: true,
        new: || Box::<Pup>::default(),
    },
    Row {
        kind: PolicyKind::Spup,
        description: "Processes run round robin as under PUP, idle ones as well: the slice of an idle \
                      process stays unused.",
        advice: "Where a program must be as fast as its part of the device and never faster, whatever its \
                 neighbours do. Not where throughput counts: time that a process does not use is lost.",
        parameters: spup::PARAMETERS,
        reasons: pup::REASONS,
        goes_by_priority: false,
        conserves_work: false,
        new: || Box::<Spup>::default(),
    },
    Row {
        kind: PolicyKind::Kedf,
        description: "On each device, the k entities with the earliest deadlines run, and the rest is \
                      suspended.",
        advice: "For work with deadlines of which k pieces fit beside each other. Not in an overload, where \
                 one miss leads to the next, and not where work without deadlines should use the slack: use \
                 EDF.",
        parameters: kedf::PARAMETERS,
        reasons: deadline::REASONS,
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::<Kedf>::default(),
    },
    Row {
        kind: PolicyKind::Lax,
        description: "On each device, everything of the highest priority that has work runs; a queue has \
                      another priority when it has been ready for its laxity.",
        advice: "For work that may wait for a known time and must run after it. Not where that time depends \
                 on how much work there is: use EDF.",
        parameters: &[],
        reasons: &[PRIORITY],
        goes_by_priority: true,
        // With a lax priority of -256, work waits beside an idle device.
        conserves_work: false,
        new: || Box::new(Lax::default()),
    },
    Row {
        kind: PolicyKind::Awf,
        description: "On each device, programs that own the active window and have work run alone; without \
                      them all run.",
        advice: "For a desktop where the program in front must be smooth and something tells which one that \
                 is. Not on a machine without windows: no program is ever suspended there.",
        parameters: &[],
        reasons: &[awf::WINDOW],
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::new(Awf),
    },
    Row {
        kind: PolicyKind::Cfs,
        description: "The entity that has used the least of the device runs, weighed by its priority, in \
                      short slices.",
        advice: "For programs of equal or nearly equal importance, of which some need the device now and \
                 then and must be served soon. Not where an urgent one must never wait (HPF), nor where \
                 parts are known in percent (FAIR).",
        parameters: cfs::PARAMETERS,
        reasons: virtual_runtime::REASONS,
        goes_by_priority: false,
        conserves_work: true,
        new: || Box::<Cfs>::default(),
    },
    Row {
        kind: PolicyKind::Mlfq,
        description: "On each device, one entity at a time runs; one that uses up its slice goes one level \
                      down, one that waits comes up again.",
        advice: "For short and long work where no hint says which is which. Not for shares that hold (use \
                 FAIR), and not for small work that leaves the device half empty, because one entity at a \
                 time runs.",
        parameters: mlfq::PARAMETERS,
        reasons: &[mlfq::LEVEL],
        goes_by_priority: false,
        conserves_work: true,
        new: || Box::<Mlfq>::default(),
    },
    Row {
        kind: PolicyKind::Lcbe,
        description: "Higher classes first; devices are cleared before critical work arrives, if its time \
                      is known.",
        advice: "For an urgent service beside batch work, if taking the device away takes long compared \
                 with the service's requests, and the requests are hinted or come regularly. Otherwise it \
                 is HPF; not for requests that come at random and are not hinted.",
        parameters: lcbe::PARAMETERS,
        reasons: lcbe::REASONS,
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::<Lcbe>::default(),
    },
    Row {
        kind: PolicyKind::Edf,
        description: "On each device, entities whose slack is used up run before all others, the earliest \
                      deadline first; the others rank by priority.",
        advice: "For periodic work with deadlines beside work without: it meets all deadlines that can be \
                 met, and slack is used by priority. Not where the mean counts: a deadline is met late as \
                 well as early.",
        parameters: edf::PARAMETERS,
        reasons: edf::REASONS,
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::<Edf>::default(),
    },
    Row {
        kind: PolicyKind::Slo,
        description: "Best effort gets as much of a device as the 99th percentile of critical requests \
                      allows.",
        advice: "For a service with a latency target that leaves room, beside batch work that must make \
                 progress even while the service is busy. Not for a target that HPF on an idle device does \
                 not reach, nor for a service with a few requests an hour, from which nothing can be \
                 learnt.",
        parameters: slo::PARAMETERS,
        reasons: &[PRIORITY, slo::BESIDE],
        goes_by_priority: true,
        conserves_work: false,
        new: || Box::<Slo>::default(),
    },
    Row {
        kind: PolicyKind::Credit,
        description: "Weighted shares by credit that is handed out each period, with caps and a boost for \
                      entities that wake up.",
        advice: "For programs with known parts of which some answer requests: those are served at once as \
                 long as they stay within their part. With a cap (`xcli hint --cap`, cap 1 for all) also \
                 where a part is a limit. Not where an urgent one may need all of the device (HPF, SLO).",
        parameters: credit::PARAMETERS,
        reasons: credit::REASONS,
        goes_by_priority: false,
        conserves_work: true,
        new: || Box::<Credit>::default(),
    },
    Row {
        kind: PolicyKind::Fair,
        description: "Weighted shares in short slices: within one point over any second of the time in \
                      which entities may run; work in flight at the end of a slice is not seen.",
        advice: "For programs, or queues of one program, that need a known part of the device each at any \
                 time, with short waits. Not where switching is expensive (level 1 with long kernels): UP \
                 has longer slices.",
        parameters: fair::PARAMETERS,
        reasons: virtual_runtime::REASONS,
        goes_by_priority: false,
        conserves_work: true,
        new: || Box::<Fair>::default(),
    },
    Row {
        kind: PolicyKind::Gang,
        description: "The processes of one job run together on all their devices or not at all; jobs of \
                      equal priority run round robin.",
        advice: "For jobs of several processes that wait for each other, such as collective operations over \
                 several devices, where two jobs share the devices. Not for independent programs on one \
                 device: their slices are long, and HPF or FAIR lets them run beside each other.",
        parameters: gang::PARAMETERS,
        reasons: &[PRIORITY],
        goes_by_priority: true,
        // A device is kept free for a job that has work on another device.
        conserves_work: false,
        new: || Box::<Gang>::default(),
    },
    Row {
        kind: PolicyKind::Power,
        description: "HPF, and best effort only as long as the device stays within a power budget.",
        advice: "For devices under a power or cooling limit, where batch work should give way before the \
                 clocks do. Not for latency: the average is kept, over some hundred milliseconds.",
        parameters: power::PARAMETERS,
        reasons: &[PRIORITY, UNINTERRUPTED],
        goes_by_priority: true,
        conserves_work: true,
        new: || Box::<Power>::default(),
    },
];

/// The kinds of [`POLICIES`], for [`protocol::config::Config::read`].
pub const BUILT: &[PolicyKind] = &{
    let mut kinds = [POLICIES[0].kind; POLICIES.len()];
    let mut index = 0;
    while index < POLICIES.len() {
        kinds[index] = POLICIES[index].kind;
        index += 1;
    }
    kinds
};

/// The policy that decides if the user chooses none.
pub const DEFAULT: &Row = &POLICIES[0];

/// Returns the policy of this kind, if this build contains it.
pub fn find(kind: PolicyKind) -> Option<&'static Row> {
    POLICIES.iter().find(|row| row.kind == kind)
}

/// Returns the policy with this short name, in upper or lower case.
///
/// # Errors
/// This build contains no such policy. The text is one line that names those that it contains.
pub fn by_name(name: &str) -> Result<&'static Row, String> {
    PolicyKind::by_name(name).and_then(find).ok_or_else(|| {
        let names: Vec<_> = BUILT.iter().map(|kind| kind.name()).collect();
        // Escaped, because a name from a command line may contain anything.
        format!("no policy {name:?} in this build (it contains {})", names.join(", "))
    })
}

/// Returns the policies as a table in Markdown.
pub fn markdown() -> String {
    let mut text = String::from("| name | number | long name | what it does |\n|---|---|---|---|\n");
    for Row { kind, description, .. } in POLICIES {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {kind} | {} | `{}` | {description} |", kind.number(), kind.long_name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::config::Config;

    #[test]
    fn parser_list_and_table_follow_from_the_rows() {
        assert!(POLICIES.is_sorted_by_key(|row| row.kind.number()));
        assert_eq!(BUILT.len(), POLICIES.len());
        for (row, kind) in POLICIES.iter().zip(BUILT) {
            assert_eq!(row.kind, *kind);
            assert_eq!(by_name(&kind.name().to_lowercase()).unwrap().kind, *kind);
            assert!(markdown().contains(&format!("`{}`", kind.long_name())));
            let get = |name: &str| (name == "XSCHED_POLICY").then(|| kind.name().into());
            assert_eq!(Config::read(get, BUILT).0.policy, Some(*kind));
        }
        let error = by_name("\nFIFO").unwrap_err();
        assert!(error.starts_with(r#"no policy "\nFIFO" in this build (it contains HPF"#), "{error}");
        assert!(POLICIES.iter().all(|row| error.contains(row.kind.name())), "{error}");
    }
}
