//! The options for hints, which `xcli hint` (a running program) and `xcli run` (a program to start) share.

use crate::error::Error;
use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use protocol::control::Said;
use protocol::hint::Laxity;
use std::num::{NonZeroU32, NonZeroU64};

/// The options.
#[derive(Debug, clap::Args)]
#[group(id = "hints")]
pub struct HintOptions {
    /// The priority of its queues, from -255 to 255 (default 0): a bigger number is more urgent. A process
    /// never runs while all of its queues have -256
    #[arg(long, value_name = "N", value_parser = bounded::<Priority>, allow_hyphen_values = true)]
    priority: Option<Priority>,
    /// Its share of the device in percent, for policies that divide a device by shares
    #[arg(short = 'u', long, value_name = "PERCENT", value_parser = bounded::<Utilization>)]
    utilization: Option<Utilization>,
    /// The time slice that it asks for, in microseconds, for policies with time slices
    #[arg(short = 't', long, value_name = "US", value_parser = bounded::<Timeslice>)]
    timeslice: Option<Timeslice>,
    /// The deadline of a queue's work, in microseconds after the queue turns ready; -1 removes it
    #[arg(long, value_name = "US", value_parser = or_none::<NonZeroU64>, allow_hyphen_values = true)]
    deadline: Option<OrNone<NonZeroU64>>,
    /// How many queues with the earliest deadlines may run at once; -1 removes the setting
    #[arg(long, value_name = "K", value_parser = or_none::<NonZeroU64>, allow_hyphen_values = true)]
    kdeadline: Option<OrNone<NonZeroU64>>,
    /// The time after which a queue turns critical, in microseconds after it turns ready, and its priorities
    /// before and after; -1 removes the setting
    #[arg(long, value_name = "US,LAX,CRIT", value_parser = laxity, allow_hyphen_values = true)]
    laxity: Option<OrNone<Laxity>>,
    /// Allow or forbid suspending its queues while they have work
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    preemptible: Option<Switch>,
    /// The number of its job, which all processes of one job share; 0 for none
    #[arg(long, value_name = "N")]
    job: Option<u64>,
    /// Its upper limit of a device in percent, also while no other program wants it; -1 removes the limit
    #[arg(long, value_name = "PERCENT", value_parser = cap, allow_hyphen_values = true)]
    cap: Option<OrNone<Cap>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A value, or nothing for -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

/// Parses a whole number.
pub fn number(word: &str) -> Result<i64, Error> {
    word.trim().parse().map_err(|_| Error::NotANumber(word.to_owned()))
}

fn bounded<T: TryFrom<i64>>(word: &str) -> Result<T, Error>
where
    T::Error: std::fmt::Display,
{
    let error = |error: T::Error| Error::Bounds { expected: error.to_string(), removable: false };
    number(word).and_then(|number| T::try_from(number).map_err(error))
}

/// Parses a number that is not negative, or -1.
///
/// # Errors
/// The word is neither, or the number is too small.
pub fn or_none<T: TryFrom<u64>>(word: &str) -> Result<OrNone<T>, Error> {
    match number(word)? {
        -1 => Ok(OrNone(None)),
        number => match u64::try_from(number).ok().and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(OrNone(Some(number))),
            None => Err(Error::TooSmall(number)),
        },
    }
}

fn cap(word: &str) -> Result<OrNone<Cap>, Error> {
    match number(word)? {
        -1 => Ok(OrNone(None)),
        number => removable(Cap::try_from(number)),
    }
}

fn laxity(word: &str) -> Result<OrNone<Laxity>, Error> {
    match word {
        "-1" => Ok(OrNone(None)),
        word => removable(word.parse()),
    }
}

fn removable<T>(parsed: Result<T, impl std::fmt::Display>) -> Result<OrNone<T>, Error> {
    match parsed {
        Ok(value) => Ok(OrNone(Some(value))),
        Err(error) => Err(Error::Bounds { expected: error.to_string(), removable: true }),
    }
}

impl HintOptions {
    /// The hints, for a server.
    pub fn hints(&self) -> Vec<Said> {
        // There are fewer queues than fit into 32 bits.
        let k = |k: NonZeroU64| NonZeroU32::try_from(k).unwrap_or(NonZeroU32::MAX);
        let hints = [
            self.priority.map(Said::Priority),
            self.utilization.map(Said::Utilization),
            self.timeslice.map(Said::Timeslice),
            self.deadline.map(|OrNone(us)| Said::Deadline(us)),
            self.kdeadline.map(|OrNone(count)| Said::KDeadline(count.map(k))),
            self.laxity.map(|OrNone(laxity)| Said::Laxity(laxity)),
            self.preemptible.map(|switch| Said::Preemptible(switch == Switch::On)),
            self.job.map(|job| Said::Job(NonZeroU64::new(job))),
            self.cap.map(|OrNone(cap)| Said::Cap(cap)),
        ];
        hints.into_iter().flatten().collect()
    }

    /// The same for the environment of a program: each option, its variable, and the value. Without a value
    /// the variable is removed.
    pub fn variables(&self) -> Vec<(&'static str, &'static str, Option<String>)> {
        fn text(value: impl ToString) -> Option<String> {
            Some(value.to_string())
        }
        let variable = |hint| {
            Some(match hint {
                Said::Priority(priority) => ("--priority", "XSCHED_AUTO_XQUEUE_PRIORITY", text(priority)),
                Said::Utilization(share) => ("--utilization", "XSCHED_AUTO_XQUEUE_UTILIZATION", text(share)),
                Said::Timeslice(us) => ("--timeslice", "XSCHED_AUTO_XQUEUE_TIMESLICE", text(us)),
                Said::Deadline(us) => ("--deadline", "XSCHED_AUTO_XQUEUE_DEADLINE", us.and_then(text)),
                Said::KDeadline(k) => ("--kdeadline", "XSCHED_AUTO_XQUEUE_KDEADLINE", k.and_then(text)),
                Said::Laxity(laxity) => ("--laxity", "XSCHED_AUTO_XQUEUE_LAXITY", laxity.and_then(text)),
                Said::Preemptible(may) => {
                    ("--preemptible", "XSCHED_AUTO_XQUEUE_PREEMPTIBLE", text(if may { "ON" } else { "OFF" }))
                }
                Said::Job(job) => ("--job", "XSCHED_AUTO_XQUEUE_JOB", job.and_then(text)),
                Said::Cap(cap) => ("--cap", "XSCHED_AUTO_XQUEUE_CAP", cap.and_then(text)),
                // Only for running programs.
                Said::Arrival(_) | Said::Window => return None,
            })
        };
        self.hints().into_iter().filter_map(variable).collect()
    }
}
