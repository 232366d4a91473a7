//! giveway's measurements, for a user's own GPU as for the simulated one.
//!
//! Nothing here is shared with what it measures: the only giveway crates below it hold types and data, and the policies
//! that [`policy_sim`] asks. Timing decides what the other commands report, never a test.
//!
//! * [`sim`]: judges the simulated device by the host's clock
//! * [`launch_path`]: what the preloaded library adds to a launch
//! * [`corun`]: an urgent model's latency beside a batch model, without and with giveway
//! * [`preempt`]: from an urgent launch until it runs, for each preemption level
//! * [`scenario`]: several programs under one policy after the other
//! * [`session`]: one run of a co-run or a scenario on a simulated GPU of its own
//! * [`policy_sim`]: what scheduling policies make of a workload, in simulated time
//! * [`card`]: the measured parts of `xcli report`
//! * [`replay`]: a recorded model ([`trace`]) as load
//! * [`hip`]: the HIP runtime, loaded at run time, with handles that own what they name
//! * [`hsa`]: one hardware queue, used without HIP
//! * [`kernels`]: the project's kernels, compiled for the device at hand by [`rtc`] and kept in a [`cache`]
//! * [`random`]: random numbers that are the same on every machine
//! * [`stats`], [`compare`], [`report`]: quantiles, interleaved runs, figures with limits
//! * [`proc`]: processor time of a process and of the machine

mod ask;
pub mod cache;
pub mod card;
mod child;
pub mod compare;
pub mod corun;
mod daemon;
mod files;
pub mod hip;
pub mod hsa;
pub mod kernels;
pub mod launch_path;
pub mod policy_sim;
pub mod preempt;
pub mod proc;
pub mod random;
pub mod replay;
pub mod report;
pub mod rtc;
pub mod scenario;
pub mod session;
pub mod sim;
mod simulated;
pub mod stats;
mod svg;
pub mod trace;

/// An error that is the caller's to mend: an argument or a variable of the environment makes no sense. The program exits
/// with 2 for it, with 1 for every other error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongInput(
    /// One sentence that names what is wrong.
    pub String,
);

impl std::fmt::Display for WrongInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongInput {}
