//! What can be said of a program that runs (`xcli hint`) and of one that is started (`xcli run`), in the same words.

use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use protocol::control::Said;
use protocol::hint::Laxity;
use std::num::{NonZeroU32, NonZeroU64};

/// The words.
#[derive(Debug, clap::Args)]
#[group(id = "said")]
pub struct Words {
    /// How urgent its queues are, from -255 to 255: bigger is more urgent, nothing said is 0; -256 never runs, for a process of
    /// which all queues have it
    #[arg(long, value_name = "N", value_parser = bounded::<Priority>, allow_hyphen_values = true)]
    priority: Option<Priority>,
    /// Its share in percent, for the policies that divide the device by shares
    #[arg(short = 'u', long, value_name = "PERCENT", value_parser = bounded::<Utilization>)]
    utilization: Option<Utilization>,
    /// The slice that it asks for, in microseconds, for the policies that take turns
    #[arg(short = 't', long, value_name = "US", value_parser = bounded::<Timeslice>)]
    timeslice: Option<Timeslice>,
    /// By when a queue's work should be done, in microseconds from when it turns ready; -1 takes it back
    #[arg(long, value_name = "US", value_parser = or_none::<NonZeroU64>, allow_hyphen_values = true)]
    deadline: Option<OrNone<NonZeroU64>>,
    /// How many of the earliest deadlines it asks to let run at once; -1 takes it back
    #[arg(long, value_name = "K", value_parser = or_none::<NonZeroU64>, allow_hyphen_values = true)]
    kdeadline: Option<OrNone<NonZeroU64>>,
    /// When a queue turns critical, in microseconds from when it turns ready, and its priorities before and after; -1 takes
    /// it back
    #[arg(long, value_name = "US,LAX,CRIT", value_parser = laxity, allow_hyphen_values = true)]
    laxity: Option<OrNone<Laxity>>,
    /// Whether its queues may be suspended while they have work
    #[arg(long, value_name = "on|off", hide_possible_values = true)]
    preemptible: Option<Switch>,
    /// The job that it belongs to, a number that the processes of one job share; 0 for none
    #[arg(long, value_name = "N")]
    job: Option<u64>,
    /// The most that it gets of a device in percent, also while nobody else wants it; -1 takes it back
    #[arg(long, value_name = "PERCENT", value_parser = cap, allow_hyphen_values = true)]
    cap: Option<OrNone<Cap>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Something, or -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

/// A whole number.
///
/// # Errors
/// It is none.
pub fn number(word: &str) -> Result<i64, String> {
    word.trim().parse().map_err(|_| format!("{word:?} is not a whole number"))
}

fn bounded<T: TryFrom<i64>>(word: &str) -> Result<T, String>
where
    T::Error: std::fmt::Display,
{
    number(word).and_then(|number| T::try_from(number).map_err(|error| error.to_string()))
}

/// A number that is not negative, or -1.
///
/// # Errors
/// It is neither, or too small.
pub fn or_none<T: TryFrom<u64>>(word: &str) -> Result<OrNone<T>, String> {
    match number(word)? {
        -1 => Ok(OrNone(None)),
        number => match u64::try_from(number).ok().and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(OrNone(Some(number))),
            None => Err(format!("{number} is too small; -1 takes it back")),
        },
    }
}

fn cap(word: &str) -> Result<OrNone<Cap>, String> {
    match number(word)? {
        -1 => Ok(OrNone(None)),
        number => match Cap::try_from(number) {
            Ok(cap) => Ok(OrNone(Some(cap))),
            Err(error) => Err(format!("{error}; -1 takes it back")),
        },
    }
}

fn laxity(word: &str) -> Result<OrNone<Laxity>, String> {
    match word {
        "-1" => Ok(OrNone(None)),
        word => word.parse().map(|laxity| OrNone(Some(laxity))).map_err(|error| format!("{error}; or -1")),
    }
}

impl Words {
    /// What is said with them, for a server.
    pub fn said(&self) -> Vec<Said> {
        // More than there are queues is all of them.
        let k = |k: NonZeroU64| NonZeroU32::try_from(k).unwrap_or(NonZeroU32::MAX);
        let said = [
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
        said.into_iter().flatten().collect()
    }

    /// The same for a program that is started: the option, the variable, and its value; without one it is taken away.
    pub fn variables(&self) -> Vec<(&'static str, &'static str, Option<String>)> {
        fn text(value: impl ToString) -> Option<String> {
            Some(value.to_string())
        }
        let variable = |said| {
            Some(match said {
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
                // Said only of what runs.
                Said::Arrival(_) | Said::Window => return None,
            })
        };
        self.said().into_iter().filter_map(variable).collect()
    }
}
