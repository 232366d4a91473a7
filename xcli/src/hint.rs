//! What a person tells the policy about programs that run.

use crate::ask;
use crate::place::{self, Place};
use crate::say;
use crate::usage::usage;
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use protocol::bounds::{Priority, Timeslice, Utilization};
use protocol::control::{Reply, Request, Said, Target};
use protocol::hint::Laxity;
use protocol::ids::{Pid, QueueId};
use std::num::{NonZeroU32, NonZeroU64};

/// `xcli hint`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("said").required(true).multiple(true)))]
pub struct HintArgs {
    /// A queue by its number in `xcli list`; needs --pid where several programs have one of that number
    #[arg(short = 'x', long = "queue", value_name = "QUEUE", value_parser = queue)]
    queue: Option<u64>,
    /// A process. Without -x, what concerns queues concerns all that it has now
    #[arg(long)]
    pid: Option<u32>,
    /// How urgent the queue is, from -255 to 255: bigger is more urgent; -256 never runs, for a process of which all queues have it
    #[arg(short = 'p', long, group = "said", value_name = "N", value_parser = bounded::<Priority>, allow_hyphen_values = true)]
    priority: Option<Priority>,
    /// The share of the process, or with -x of the queue, in percent
    #[arg(short = 'u', long, group = "said", value_name = "PERCENT", value_parser = bounded::<Utilization>)]
    utilization: Option<Utilization>,
    /// The slice that the process asks for, in microseconds; without -x and --pid every process, also those that come
    #[arg(short = 't', long, group = "said", value_name = "US", value_parser = bounded::<Timeslice>)]
    timeslice: Option<Timeslice>,
    /// By when the queue's work should be done, in microseconds from when it turns ready; -1 takes it back
    #[arg(long, group = "said", value_name = "US", value_parser = or_none, allow_hyphen_values = true)]
    deadline: Option<OrNone>,
    /// How many of the earliest deadlines the process asks to let run at once; -1 takes it back
    #[arg(long, group = "said", value_name = "K", value_parser = or_none, allow_hyphen_values = true)]
    kdeadline: Option<OrNone>,
    /// When the queue turns critical, in microseconds from when it turns ready, and its priorities before and after; -1 takes
    /// it back
    #[arg(long, group = "said", value_name = "US,LAX,CRIT", value_parser = laxity, allow_hyphen_values = true)]
    laxity: Option<LaxityOrNone>,
    /// In how many microseconds work arrives on the queue; -1 takes it back
    #[arg(long, group = "said", value_name = "US", value_parser = or_none, allow_hyphen_values = true)]
    arrival: Option<OrNone>,
    /// Whether the queue may be suspended while it has work
    #[arg(long, group = "said", value_name = "on|off")]
    preemptible: Option<Switch>,
    /// The process owns the window that the user works in, and no other does
    #[arg(long, group = "said")]
    window: bool,
    /// The job that the process belongs to, a number that the processes of one job share; 0 for none
    #[arg(long, group = "said", value_name = "N")]
    job: Option<u64>,
    /// The server by the name of its instance (here -p is the priority)
    // Of the same name as the option of all commands, in the place of which it stands.
    #[arg(long, value_name = "INSTANCE", value_parser = place::instance)]
    instance: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A number, or -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OrNone(Option<u64>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LaxityOrNone(Option<Laxity>);

fn number(word: &str) -> Result<i64, String> {
    word.trim().parse().map_err(|_| format!("{word:?} is not a whole number"))
}

fn bounded<T: TryFrom<i64>>(word: &str) -> Result<T, String>
where
    T::Error: std::fmt::Display,
{
    number(word).and_then(|number| T::try_from(number).map_err(|error| error.to_string()))
}

/// As `xcli list` has it, or as XSched's users write handles.
pub fn queue(word: &str) -> Result<u64, String> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
    .ok_or_else(|| "a queue is a number, as `xcli list` shows it".to_owned())
}

fn or_none(word: &str) -> Result<OrNone, String> {
    match number(word)? {
        -1 => Ok(OrNone(None)),
        number => match u64::try_from(number) {
            Ok(number) => Ok(OrNone(Some(number))),
            Err(_) => Err("a number, or -1 to take it back".to_owned()),
        },
    }
}

fn laxity(word: &str) -> Result<LaxityOrNone, String> {
    if word == "-1" {
        return Ok(LaxityOrNone(None));
    }
    let [us, lax, critical] = word.split(',').collect::<Vec<_>>()[..] else {
        return Err("microseconds and two priorities, such as 5000,-10,10; or -1".to_owned());
    };
    let us = u64::try_from(number(us)?).map_err(|_| "microseconds are not negative".to_owned())?;
    Ok(LaxityOrNone(Some(Laxity { us, lax: bounded(lax)?, critical: bounded(critical)? })))
}

impl HintArgs {
    fn target(&self) -> Target {
        Target { pid: self.pid.map(Pid), queue: self.queue.map(QueueId) }
    }

    fn said(&self) -> anyhow::Result<Vec<Said>> {
        let k_deadline = match self.kdeadline {
            Some(OrNone(Some(k))) => match u32::try_from(k).ok().and_then(NonZeroU32::new) {
                None => return usage(format!("--kdeadline {k}: at least 1 runs, or -1 takes it back")),
                k => Some(Said::KDeadline(k)),
            },
            Some(OrNone(None)) => Some(Said::KDeadline(None)),
            None => None,
        };
        let deadline = match self.deadline {
            Some(OrNone(Some(0))) => {
                return usage("--deadline 0: a deadline is at least 1 us, or -1 takes it back");
            }
            deadline => deadline.map(|OrNone(us)| Said::Deadline(us.and_then(NonZeroU64::new))),
        };
        let said = [
            self.priority.map(Said::Priority),
            self.utilization.map(Said::Utilization),
            self.timeslice.map(Said::Timeslice),
            deadline,
            k_deadline,
            self.laxity.map(|LaxityOrNone(laxity)| Said::Laxity(laxity)),
            self.arrival.map(|OrNone(us)| Said::Arrival(us)),
            self.preemptible.map(|switch| Said::Preemptible(switch == Switch::On)),
            self.window.then_some(Said::Window),
            self.job.map(|job| Said::Job(NonZeroU64::new(job))),
        ];
        let said: Vec<_> = said.into_iter().flatten().collect();
        let Target { pid, queue } = self.target();
        if pid.is_none() && queue.is_none() && said.iter().any(|said| !matches!(said, Said::Timeslice(_))) {
            return usage("of whom this is said is missing: --pid PID, or -x QUEUE");
        }
        Ok(said)
    }
}

/// Tells the server.
///
/// # Errors
/// Wrong usage, or the server cannot be asked, or nobody or several are meant.
pub fn run(args: &HintArgs, place: &Place) -> anyhow::Result<()> {
    let (of, said) = (args.target(), args.said()?);
    match ask::ask(place, &Request::Hint { of, said }) {
        Ok(Reply::Done) => Ok(say(&format!("hinted: {of}\n"))?),
        Ok(other) => bail!("the server answers something that makes no sense here: {other:?}"),
        // It is not the server that anything is wrong with.
        Err(ask::Failure { cause: ask::Cause::Refused(why), .. }) => {
            Err(anyhow!("{}", crate::table::plain(&why)))
        }
        Err(failure) => Err(failure.into()),
    }
}
