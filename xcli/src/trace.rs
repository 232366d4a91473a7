//! `xcli trace record`: what programs launch, and why the server lets them or not, on one time line.

mod perfetto;
mod record;
mod ring;
mod tracks;

use crate::endpoint::Endpoint;
use crate::output::{print, warn};
use anyhow::Context as _;
use record::{Recorder, Summary};
use std::fs::File;
use std::io::{self, BufWriter, Write};
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

/// Runs the command.
///
/// # Errors
/// The file cannot be written, or the server does not answer or is too old.
pub fn run(command: &TraceCommand, endpoint: &Endpoint) -> anyhow::Result<()> {
    let TraceCommand::Record(args) = command;
    let span = Duration::from_secs_f64(args.seconds);
    let path = &args.output;
    if path.as_os_str() == "-" {
        let summary = Recorder::start(endpoint, BufWriter::new(io::stdout()))?.record(span)?;
        report(&summary, path, false)
    } else {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A bad path fails before the recording.
        let failed = || format!("cannot write {}", path.display());
        let file = NamedTempFile::new_in(folder).with_context(failed)?;
        let writer: BufWriter<File> = BufWriter::new(file.reopen().with_context(failed)?);
        let summary = Recorder::start(endpoint, writer)?.record(span)?;
        file.persist(path).map_err(|error| error.error).with_context(failed)?;
        report(&summary, path, true)
    }
}

/// Says what was recorded. Standard output may be the trace itself.
fn report(summary: &Summary, path: &Path, is_file: bool) -> anyhow::Result<()> {
    for line in &summary.missing {
        warn(line);
    }
    if summary.lost != 0 {
        warn(format!(
            "{} events of programs are missing in the trace: they were replaced before they were read",
            summary.lost
        ));
    }
    if is_file {
        print(&format!(
            "{}: {:.1} s, {} programs, {} events, {} bytes. Open it at https://ui.perfetto.dev\n",
            path.display(),
            summary.span.as_secs_f64(),
            summary.programs,
            summary.events,
            summary.bytes
        ))?;
    }
    Ok(())
}

/// Counts the bytes that are written.
#[derive(Debug)]
struct Counted<W> {
    writer: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
