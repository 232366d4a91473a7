//! The names of the scheduling policies, as users write them.
//!
//! Names and numbers only: the crate of the policies makes the decisions, and callers tell the parser which
//! policies a build contains.

use std::fmt;

macro_rules! policy_kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal $long:literal;)*) => {
        /// A scheduling policy by name; the numbers are those of the C interface's `XPolicyType`. Those up to
        /// 100 are XSched's, the others are this project's own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum PolicyKind {
            $($(#[$doc])* $variant = $number,)*
        }

        impl PolicyKind {
            /// Every policy with a known name, built or not.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The short name, as in `XSCHED_POLICY=HPF`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The long name, as the C interface spells it.
            pub const fn long_name(self) -> &'static str {
                match self {
                    $(Self::$variant => $long,)*
                }
            }

            /// The number in the C interface (`XPolicyType`).
            pub const fn number(self) -> u32 {
                self as u32
            }
        }
    };
}

policy_kinds! {
    /// Highest priority first, per device.
    Hpf = 1 "HPF" "kPolicyHighestPriorityFirst";
    /// Highest priority first over all devices together.
    Hhpf = 2 "HHPF" "kPolicyHeterogeneousHighestPriorityFirst";
    /// Highest priority first, the priority taken from the process's CPU scheduling.
    Chpf = 3 "CHPF" "kPolicyCPUHighestPriorityFirst";
    /// Utilization partition between queues.
    Up = 4 "UP" "kPolicyUtilizationPartition";
    /// Utilization partition between processes.
    Pup = 5 "PUP" "kPolicyProcessUtilizationPartition";
    /// Strict utilization partition between processes.
    Spup = 6 "SPUP" "kPolicyStrictProcessUtilizationPartition";
    /// The k earliest deadlines.
    Kedf = 7 "KEDF" "kPolicyKEarliestDeadlineFirst";
    /// Laxity.
    Lax = 8 "LAX" "kPolicyLaxity";
    /// The process that owns the active window first.
    Awf = 9 "AWF" "kPolicyActiveWindowFirst";
    /// Completely fair.
    Cfs = 10 "CFS" "kPolicyCompletelyFairScheduler";
    /// Multi-level feedback queue.
    Mlfq = 11 "MLFQ" "kPolicyMultiLevelFeedbackQueue";
    /// Latency-critical classes before best effort, cleared for ahead of time.
    Lcbe = 101 "LCBE" "kPolicyLatencyCriticalBestEffort";
    /// Priority that rises as slack shrinks.
    Edf = 102 "EDF" "kPolicyEarliestDeadlineFirst";
    /// As much best effort as a latency target allows.
    Slo = 103 "SLO" "kPolicyServiceLevelObjective";
    /// Weights, caps and a boost for those that wake up.
    Credit = 104 "CREDIT" "kPolicyCredit";
    /// Weighted shares.
    Fair = 105 "FAIR" "kPolicyFairShare";
    /// The processes of a job together or not at all.
    Gang = 106 "GANG" "kPolicyGang";
    /// Best effort within a power budget.
    Power = 107 "POWER" "kPolicyPowerBudget";
}

impl PolicyKind {
    /// The policy with this number in the C interface.
    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| i64::from(kind.number()) == number)
    }

    /// The policy with this short name, upper or lower case.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_and_numbers_lead_back_to_their_policy() {
        let (known, own) = PolicyKind::ALL.split_at(11);
        for (kinds, first) in [(known, 1), (own, 101)] {
            for (kind, number) in kinds.iter().zip(first..) {
                assert_eq!(kind.number(), number, "{kind} keeps the number of the C interface");
            }
        }
        for a in PolicyKind::ALL {
            assert_eq!(PolicyKind::from_number(a.number().into()), Some(*a));
            assert_eq!(PolicyKind::by_name(&a.name().to_lowercase()), Some(*a));
        }
        assert_eq!(PolicyKind::by_name("FIFO"), None);
    }
}
