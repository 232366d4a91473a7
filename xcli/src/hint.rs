//! `xcli hint`: hints from outside about running programs.

use crate::ask::{self, Cause, Failure};
use crate::endpoint::{self, Endpoint};
use crate::error::Error;
use crate::hint_options::HintOptions;
use crate::output::print;
use crate::table::plain;
use anyhow::anyhow;
use protocol::control::{HintUpdate, Request, Target};
use protocol::hint::table::Scope;
use protocol::ids::{Pid, QueueId};

/// `xcli hint`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("priority", |priority| priority.short('p')))]
pub struct HintArgs {
    /// A queue by its number in `xcli list`; needs --pid if several programs have a queue of that number
    #[arg(short = 'x', long = "queue", visible_alias = "xqueue", value_name = "QUEUE", value_parser = queue)]
    queue: Option<u64>,
    /// A process. Without -x, a hint for queues applies to all queues that the process has now, and -u sets
    /// the share of the process. -t without -x and --pid applies to every process, also to later ones
    #[arg(long)]
    pid: Option<u32>,
    #[command(flatten)]
    options: HintOptions<true>,
    /// The server, by the name of its instance (-p is the priority here)
    // It replaces the option of all commands that has this name.
    #[arg(long, visible_alias = "port", value_name = "INSTANCE", value_parser = endpoint::instance)]
    instance: Option<String>,
}

/// As `xcli list` has it, or as XSched's users write handles.
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

    fn said(&self, endpoint: &Endpoint) -> anyhow::Result<Vec<HintUpdate>> {
        if self.target() == Target::default() && !self.options.all(|spec| spec.scope == Scope::AnyProcess) {
            return Err(Error::Usage("specify a target: --pid PID or -x QUEUE").into());
        }
        self.options.resolve(endpoint)
    }
}

/// Sends the hints to the server.
///
/// # Errors
/// Wrong usage; the server does not answer, or has no priority of that name; or it refuses because no target or several
/// targets match.
pub fn run(args: &HintArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let (of, said) = (args.target(), args.said(endpoint)?);
    ask::order(endpoint, &Request::Hint { of, said }).map_err(|error| match error.downcast_ref() {
        Some(Failure { cause: Cause::Refused(why), .. }) => anyhow!("{}", refused(why, of, endpoint)),
        _ => error,
    })?;
    Ok(print(&format!("hinted: {of}\n"))?)
}

/// The server's reason, and the command that shows more about the target. The server does not know the
/// options that name it.
fn refused(why: &str, of: Target, endpoint: &Endpoint) -> String {
    let (command, shows) = match of {
        Target { pid: Some(pid), queue: None } => (format!("doctor {pid}"), "examines the process"),
        _ => ("list".to_owned(), "shows all queues"),
    };
    format!("{}; `{}` {shows}", plain(why), plain(&endpoint.command(&command)))
}
