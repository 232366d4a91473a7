//! The log on standard error. A thread writes it, so that a blocked reader loses lines but does not delay
//! clients.

use protocol::config::LogLevel;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

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
}

/// Starts logging, until the guard is dropped.
pub fn start(level: LogLevel, form: Form) -> WorkerGuard {
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES).finish(std::io::stderr());
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false);
    // Fails if a subscriber is set already, which then stays in use.
    let _ = match form {
        Form::Text => lines.try_init(),
        Form::Json => lines.json().try_init(),
    };
    guard
}
