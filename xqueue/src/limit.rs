//! The limit under which one command is launched: data that admission computes and `flight` applies.

use crate::config::LaunchConfig;
use crate::estimate::Estimate;
use crate::hw::CostKey;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) config: LaunchConfig,
    /// The estimated time that may be in flight, in nanoseconds.
    pub(crate) budget: u64,
    /// The command's share of the budget. An unknown command fills it.
    pub(crate) cost: u64,
    /// The command's key at its place in the program.
    pub(crate) placed: CostKey,
    /// The estimated time of the command, where it is known.
    pub(crate) known: Option<Estimate>,
}

impl Limit {
    /// Returns true if the command deserves an interval of its own: it can be learnt, and little is known of
    /// it. In an interval with others its own time does not show, and a first estimate, probably too long,
    /// would stay.
    pub(crate) fn is_studied(&self) -> bool {
        self.config == LaunchConfig::Adaptive
            && self.placed != CostKey::UNKNOWN
            && self.known.is_none_or(|known| known.fresh)
    }
}

pub(crate) type Limited = Option<Limit>;
