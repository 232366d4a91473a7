//! What the server says, on standard error, through a thread of its own: if nobody takes the lines, lines are lost, and
//! no client waits.

use protocol::config::LogLevel;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// Lines that wait to be taken.
const LINES: usize = 1_024;

/// Says what is said from now on, until the guard is dropped.
pub fn start(level: LogLevel) -> WorkerGuard {
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINES).finish(std::io::stderr());
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    // It fails if somebody has done so before, who then decides.
    let _ = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        .try_init();
    guard
}
