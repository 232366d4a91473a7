//! `xcli hint`: hints for the policy about running programs.

use crate::ask::{self, Cause, Failure};
use crate::endpoint::{self, Endpoint};
use crate::error::Error;
use crate::hint_options::{HintOptions, OrNone, or_none};
use crate::output::print;
use crate::table::plain;
use anyhow::anyhow;
use protocol::control::{Request, Said, Target};
use protocol::ids::{Pid, QueueId};

/// The arguments of `xcli hint`.
#[derive(Debug, clap::Args)]
#[command(mut_group("hints", |hints| hints.required(true)), mut_arg("priority", |priority| priority.short('p')))]
pub struct HintArgs {
    /// A queue by its number in `xcli list`; needs --pid if several programs have a queue of that number
    #[arg(short = 'x', long = "queue", value_name = "QUEUE", value_parser = queue)]
    queue: Option<u64>,
    /// A process. Without -x, hints for queues apply to all queues that it has now, and a share applies to the process. Without
    /// -x and --pid, a slice applies to every process, also to those that connect later
    #[arg(long)]
    pid: Option<u32>,
    #[command(flatten)]
    options: HintOptions,
    /// Work arrives on the queue in this many microseconds; -1 removes the hint
    #[arg(long, group = "hints", value_name = "US", value_parser = or_none::<u64>, allow_hyphen_values = true)]
    arrival: Option<OrNone<u64>>,
    /// The process owns the window in which the user works. At most one process does
    #[arg(long, group = "hints")]
    window: bool,
    /// The server by the name of its instance (here -p is the priority)
    // Same id as the global option, which it replaces.
    #[arg(long, value_name = "INSTANCE", value_parser = endpoint::instance)]
    instance: Option<String>,
}

/// Parses a queue's number, as `xcli list` shows it or as users of XSched write handles (`0x...`).
pub fn queue(word: &str) -> Result<u64, Error> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
    .ok_or(Error::NotAQueue)
}

impl HintArgs {
    fn target(&self) -> Target {
        Target { pid: self.pid.map(Pid), queue: self.queue.map(QueueId) }
    }

    fn hints(&self) -> Result<Vec<Said>, Error> {
        let mut hints = self.options.hints();
        hints.extend(self.arrival.map(|OrNone(us)| Said::Arrival(us)));
        hints.extend(self.window.then_some(Said::Window));
        let Target { pid, queue } = self.target();
        if pid.is_none() && queue.is_none() && hints.iter().any(|hint| !matches!(hint, Said::Timeslice(_))) {
            return Err(Error::Usage("specify a target: --pid PID or -x QUEUE"));
        }
        Ok(hints)
    }
}

/// Sends the hints to the server.
///
/// # Errors
/// Wrong usage; the server does not answer; or it refuses because no target or several targets match.
pub fn run(args: &HintArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let (of, said) = (args.target(), args.hints()?);
    ask::order(endpoint, &Request::Hint { of, said }).map_err(|error| match error.downcast_ref() {
        Some(Failure { cause: Cause::Refused(why), .. }) => anyhow!("{}", refused(why, of, endpoint)),
        _ => error,
    })?;
    Ok(print(&format!("hinted: {of}\n"))?)
}

/// The server's reason, and the command that shows more about the target. The server does not know the options that name it.
fn refused(why: &str, of: Target, endpoint: &Endpoint) -> String {
    let (command, shows) = match of {
        Target { pid: Some(pid), queue: None } => (format!("doctor {pid}"), "examines the process"),
        _ => ("list".to_owned(), "shows all queues"),
    };
    format!("{}; `{}` {shows}", plain(why), plain(&endpoint.command(&command)))
}
