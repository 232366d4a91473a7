//! The log on standard error, or in systemd's journal. A thread writes it, so that a blocked reader loses lines but does not delay
//! clients.

mod journal;

use journal::Journal;
use protocol::config::LogLevel;
use std::path::Path;
use tracing::Subscriber;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;

/// The most lines in the buffer.
const LINES: usize = 1_024;

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Form {
    /// Text for people: time, level, message, and fields as `name=value`.
    #[default]
    Text,
    /// One JSON object a line: `timestamp`, `level`, and `fields` with `message` and the other ones.
    Json,
    /// Entries of systemd's journal, whose fields have names such as `GIVEWAY_PID`. Text on standard error if there is no journal.
    Journal,
}

/// Starts logging, until the guard is dropped.
pub fn start(level: LogLevel, form: Form) -> WorkerGuard {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES);
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let journal = (form == Form::Journal).then(|| Journal::connect(Path::new(journal::SOCKET)));
    let (form, problem, (writer, guard)) = match journal {
        Some(Ok(journal)) => (form, None, builder.finish(journal)),
        Some(Err(error)) => (Form::Text, Some(error), builder.finish(std::io::stderr())),
        None => (form, None, builder.finish(std::io::stderr())),
    };
    // Fails if a subscriber is set already, which then stays in use.
    let _ = tracing::subscriber::set_global_default(subscriber(level, writer, form));
    if let Some(error) = problem {
        tracing::warn!(%error, "cannot reach the journal at {}; the log goes to standard error", journal::SOCKET);
    }
    guard
}

/// Makes lines of this form, up to this level.
fn subscriber(
    level: tracing::Level,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
    form: Form,
) -> Box<dyn Subscriber + Send + Sync> {
    let lines = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false);
    match form {
        Form::Text => Box::new(lines.finish()),
        // The journal gets its entries from these lines.
        Form::Json | Form::Journal => Box::new(lines.json().finish()),
    }
}
