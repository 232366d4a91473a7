//! What a person tells the policy about programs that run.

use crate::ask;
use crate::place::{self, Place};
use crate::say;
use crate::usage::usage;
use crate::words::Running;
use anyhow::anyhow;
use protocol::control::{Request, Said, Target};
use protocol::hint::table::Scope;
use protocol::ids::{Pid, QueueId};

/// `xcli hint`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("priority", |priority| priority.short('p')))]
pub struct HintArgs {
    /// A queue by its number in `xcli list`; needs --pid where several programs have one of that number
    #[arg(short = 'x', long = "queue", value_name = "QUEUE", value_parser = queue)]
    queue: Option<u64>,
    /// A process. Without -x, what concerns queues concerns all that it has now, and a share is its own. A slice without -x and
    /// --pid is asked for by every process, also by those that come
    #[arg(long)]
    pid: Option<u32>,
    #[command(flatten)]
    words: Running,
    /// The server by the name of its instance (here -p is the priority)
    // Of the same name as the option of all commands, in the place of which it stands.
    #[arg(long, value_name = "INSTANCE", value_parser = place::instance)]
    instance: Option<String>,
}

/// As `xcli list` has it, or as XSched's users write handles.
pub fn queue(word: &str) -> Result<u64, String> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
    .ok_or_else(|| "a queue is a number, as `xcli list` shows it".to_owned())
}

impl HintArgs {
    fn target(&self) -> Target {
        Target { pid: self.pid.map(Pid), queue: self.queue.map(QueueId) }
    }

    fn said(&self) -> anyhow::Result<Vec<Said>> {
        let said = self.words.said.clone();
        let of_all = |said: &Said| said.spec().scope == Scope::AnyProcess;
        if self.target() == Target::default() && !said.iter().all(of_all) {
            return usage("the target is missing: specify --pid PID, or -x QUEUE");
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
    ask::order(place, &Request::Hint { of, said }).map_err(|error| match error.downcast_ref() {
        // It is not the server that anything is wrong with. It names commands, and does not know how it is named itself.
        Some(ask::Failure { cause: ask::Cause::Refused(why), .. }) => {
            anyhow!("{}", crate::table::plain(&why.replace("`xcli ", &format!("`{}", place.command("")))))
        }
        _ => error,
    })?;
    Ok(say(&format!("hinted: {of}\n"))?)
}
