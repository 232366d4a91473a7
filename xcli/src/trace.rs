//! `xcli trace record`: what programs launch, and why the server lets them or not, on one time line.

mod perfetto;
mod record;
mod ring;
mod tracks;

use crate::endpoint::Endpoint;
use crate::output::{print, warn};
use anyhow::{Context as _, bail};
use record::{Recorder, Summary};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;

/// The arguments of `xcli trace`.
#[derive(Debug, clap::Subcommand)]
pub enum TraceCommand {
    /// Record the programs that you may see, for ui.perfetto.dev. Ctrl-C ends early
    Record(RecordArgs),
}

/// The arguments of `xcli trace record`.
#[derive(Debug, clap::Args)]
pub struct RecordArgs {
    /// The file to write; `-` is standard output. An existing file is replaced when the recording is complete
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long to record
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number from 0.01 to 86400".to_owned()),
    }
}

/// Runs the command. What was recorded before a failure is kept.
///
/// # Errors
/// The file cannot be written, or the server does not answer, is too old or ends.
pub fn run(command: &TraceCommand, endpoint: &Endpoint) -> anyhow::Result<()> {
    let TraceCommand::Record(args) = command;
    let span = Duration::from_secs_f64(args.seconds);
    let path = &args.output;
    // Beyond the limit of file sizes a write is to fail, and not to end xcli.
    // SAFETY: SIG_IGN runs no code, and no other thread changes the disposition of this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if path.as_os_str() == "-" {
        if io::stdout().is_terminal() {
            bail!("the trace is not text: name a file with --output, or redirect standard output");
        }
        let (summary, result) = Recorder::start(endpoint, io::stdout())?.record(span);
        report(&summary);
        return result;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A bad path fails before the recording.
    let failed = || format!("cannot write {}", path.display());
    let file = NamedTempFile::new_in(folder).with_context(failed)?;
    let writer = file.reopen().with_context(failed)?;
    let (summary, result) = Recorder::start(endpoint, writer)?.record(span);
    // A packet that could not be written as a whole would make the file unreadable.
    file.as_file().set_len(summary.bytes).with_context(failed)?;
    file.persist(path).map_err(|error| error.error).with_context(failed)?;
    report(&summary);
    print(&format!(
        "{}: {:.1} s, {} programs, {} events, {} bytes. Open it at https://ui.perfetto.dev\n",
        path.display(),
        summary.span.as_secs_f64(),
        summary.programs,
        summary.events,
        summary.bytes
    ))?;
    result
}

/// Prints what is missing in the file.
fn report(summary: &Summary) {
    for line in &summary.missing {
        warn(line);
    }
    if summary.lost != 0 {
        warn(format!(
            "{} events of programs are missing in the trace: they were replaced before they were read",
            summary.lost
        ));
    }
}
