//! giveway's measurements, on a user's own GPU or on the simulated one.
//!
//! No code here is shared with what it measures: of giveway's crates it uses those that hold types and data,
//! and the policies that [`policy_sim`] asks. Timing decides the reports of the commands, never a test.
//!
//! Commands, a module each
//! * [`sim`]: judges the simulated device by the host's clock
//! * [`launch_path`]: the time that the preloaded library adds to a launch
//! * [`calibrate`]: checks that kernels take the time that they are told to take
//! * [`replay`]: a recorded model (`trace`) as load, with or without memory `traffic`
//! * [`corun`]: an urgent model's latency beside a batch model, without and with giveway
//! * [`scenario`]: several programs under one policy after the other; `prepreempt` as well
//! * [`one_process`]: two models on two streams of one process
//! * [`tenants`]: the same program 1 to 16 times
//! * [`preempt`]: the time from an urgent launch until it runs, for each preemption level
//! * [`ipc`]: the way between programs and xserver, without a device
//! * [`policy_sim`]: scheduling policies and a workload in simulated time
//! * [`selftest`]: the measured parts of `xcli report` (`xbench card`)
//! * [`session`]: one run of a co-run or a scenario
//!
//! Measuring: `experiment` (modes in interleaved blocks), `account` (for the device's time), `compare`,
//! `stats`, `report` (figures with limits), `table`, `svg`, `card` (the machine's own GPU). Programs: `process`, `server` (questions to
//! xserver), `simulated` (gpu-sim, or the machine's own GPU), `library`, `library_log`, `processor_time`, `processors`. Devices: `hip`, `hsa`,
//! `kernels`, which `rtc` compiles and a `cache` keeps, and `contents`, which checks what they compute.

mod account;
mod cache;
pub mod calibrate;
mod card;
mod clock;
mod compare;
mod contents;
pub mod corun;
mod experiment;
mod files;
mod hip;
mod hsa;
pub mod ipc;
mod kernels;
pub mod launch_path;
mod library;
mod library_log;
pub mod one_process;
pub mod policy_sim;
pub mod preempt;
mod process;
mod processor_time;
mod processors;
mod random;
pub mod replay;
mod report;
mod rtc;
pub mod scenario;
pub mod selftest;
mod server;
pub mod session;
pub mod sim;
mod simulated;
mod stats;
mod svg;
mod table;
pub mod tenants;
mod trace;
mod traffic;

/// An error in an argument, an input file or an environment variable. The program exits with 2 for it, with 1
/// for every other error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongInput(
    /// The reason, as one sentence.
    pub String,
);

impl WrongInput {
    /// Puts the place of the error before the reason.
    pub(crate) fn within(self, place: impl std::fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

/// Checks that a number is in its range, ends included.
pub(crate) fn ensure_in<T: Copy + PartialOrd + std::fmt::Display>(
    name: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), WrongInput> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(WrongInput(format!("{name} = {value} is not in {low}..{high}")))
}

impl std::fmt::Display for WrongInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongInput {}

#[cfg(test)]
mod tests {
    /// Parses the options of a command.
    pub(crate) fn parse<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
        let command = A::augment_args(clap::Command::new("x").no_binary_name(true));
        A::from_arg_matches(&command.try_get_matches_from(words)?)
    }
}
