//! `xbench card`: measures one part of `xcli report` that needs HIP, and prints it as JSON
//! ([`protocol::report`]).
//!
//! A process is started either with the library or without it, so each part starts this program again as its
//! worker, without and with the library. A worker dies with its parent, and has a time limit.

mod conformance;
mod devices;
mod evictions;
mod kept;
mod parent;
mod priority;
mod programs;
mod unit_masks;
mod window;
mod worker;

use crate::corun;
use crate::process::{LIBRARY, beside, this_program};
use anyhow::{Context, Result, ensure};
use clap::Args;
use parent::{Parent, Part};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Options of `xbench card`.
#[derive(Debug, Clone, Args)]
pub struct CardArgs {
    /// The part to measure
    #[arg(value_enum)]
    part: Part,
    /// Few repetitions
    #[arg(long)]
    short: bool,
    /// The library; without the option, the one beside this program
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Allow that queues are evicted from the hardware, in `conformance` and `corun` by this mechanism
    #[arg(long, value_name = "MECHANISM", value_parser = evictions::MECHANISMS)]
    hold: Option<String>,
    /// The time limit of all workers together; no worker is started after it
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u32>,
    /// Be a worker of the part: native, library, or a mode.
    #[arg(long, hide = true, value_name = "WORK")]
    worker: Option<String>,
}

/// Measures the part and prints it.
///
/// # Errors
/// The part could not be measured at all. Errors of a single measurement are in the JSON.
pub fn run(args: &CardArgs) -> Result<()> {
    if let Some(work) = &args.worker {
        return match args.part {
            Part::Devices => print(&devices::work()?),
            Part::Window => print(&window::work(args.short)?),
            Part::Priority => priority::work(work, args.short),
            Part::Holds => print(&evictions::work(args.short)?),
            Part::UnitMasks => print(&unit_masks::work(args.short)?),
            // Its programs are started by other commands.
            Part::Corun => anyhow::bail!("a co-run has no worker of this kind"),
            Part::Conformance => print(&programs::work(args.short, work == conformance::PATIENT)?),
        };
    }
    let end = args.limit.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let parent = Parent { part: args.part, short: args.short, end };
    let shim = || shim(args.shim.as_deref());
    match args.part {
        Part::Devices => print(&devices::measure(&parent)?),
        Part::Window => print(&window::measure(&parent, &shim()?)?),
        Part::Priority => print(&priority::measure(&parent, &shim()?)?),
        Part::UnitMasks => print(&unit_masks::measure(&parent)?),
        Part::Holds => print(&evictions::measure(&parent, &shim()?, args.hold.is_some())?),
        Part::Corun => {
            ensure!(args.shim.is_none(), "a co-run uses the library beside xbench: leave out --shim");
            print(&corun::for_report(args.short, args.hold.as_deref())?)
        }
        Part::Conformance => print(&conformance::measure(&parent, &shim()?, args.hold.as_deref())?),
    }
}

fn print(answer: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}

/// Returns the path of the library for workers.
fn shim(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => beside(&this_program()?, LIBRARY),
    };
    path.canonicalize().with_context(|| format!("cannot find the library {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::parent::{LIMIT, spread};
    use super::*;
    use protocol::report::Spread;

    #[test]
    fn worker_gets_the_time_that_is_left() {
        let now = Instant::now();
        let parent = |end| Parent { part: Part::Conformance, short: true, end };
        assert_eq!(parent(None).limit(now).unwrap(), LIMIT);
        assert_eq!(parent(Some(now + 2 * LIMIT)).limit(now).unwrap(), LIMIT);
        assert_eq!(parent(Some(now + LIMIT / 2)).limit(now).unwrap(), LIMIT / 2);
        assert!(parent(Some(now)).limit(now + LIMIT).is_err());
        // Every mode is reported, although none is started.
        let made = conformance::measure(&parent(Some(now)), Path::new("/nowhere"), Some("update-queue"));
        let modes = made.unwrap().modes;
        assert_eq!(modes.len(), 6);
        for mode in modes {
            assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("no time was left for it")));
        }
    }

    #[test]
    fn spread_of_no_samples_is_an_error() {
        assert!(spread(vec![]).is_err());
        assert_eq!(spread(vec![3.0, 1.0]).unwrap(), Spread { n: 2, min: 1.0, p50: 1.0, p90: 3.0, max: 3.0 });
    }
}
