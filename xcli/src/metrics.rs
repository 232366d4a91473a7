//! `xcli metrics`: the numbers of a server in the OpenMetrics text format, which Prometheus reads. Printed once, or served
//! over HTTP. The server itself serves no HTTP, so that no reader of metrics reaches the process that decides.

mod families;
mod http;
mod memory;

use crate::ask;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::output::{print, warn};
use families::{Limits, Numbers};
use http::{Address, Asked, Listener, Said};
use memory::Memory;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The content type of the text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The start page.
const INDEX: &str = "giveway: the metrics are at /metrics\n";

/// The options of `xcli metrics`.
#[derive(clap::Args)]
pub struct MetricsArgs {
    /// Serve the metrics over HTTP until xcli is stopped: 127.0.0.1:PORT (or another loopback address) or the absolute path of a Unix socket.
    /// Other addresses are refused. With port 0 the system chooses a free port, and a line on standard error names it
    #[arg(long, value_name = "ADDRESS", value_parser = http::address)]
    listen: Option<Address>,
    /// Answer only requests with this token (`Authorization: Bearer TOKEN`). The file is read at each request
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Serve the metrics of single programs at a TCP address without a token too. Every user of this machine can then read
    /// names and numbers of all programs
    #[arg(long, requires = "listen", conflicts_with = "token_file")]
    public: bool,
    /// The most programs with metrics of their own: those with the most work. `giveway_processes_left_out` counts the others
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    most_programs: u16,
}

/// Prints the metrics once, or serves them.
///
/// # Errors
/// The server does not answer, or the address cannot be used.
pub fn run(args: &MetricsArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let limits = Limits { programs: usize::from(args.most_programs), ..Limits::default() };
    let Some(address) = &args.listen else {
        let list = ask::list(endpoint)?;
        let memory = Memory::of_driver().read();
        return Ok(print(&Numbers::new(list, memory, limits).text()?)?);
    };
    // Before it listens, so that a mistake shows at once.
    if let Some(file) = &args.token_file {
        token(file)?;
    }
    let listener = Listener::new(address)?;
    warn(format_args!("serves metrics at {listener}"));
    let is_private = listener.is_private() || args.token_file.is_some() || args.public;
    if !is_private {
        warn(
            "leaves out the metrics of single programs, because every user of this machine can read them at a TCP address. \
             --token-file FILE or --public serves them",
        );
    }
    let exporter = Exporter {
        endpoint: endpoint.clone(),
        limits: if is_private { limits } else { Limits::NONE },
        memory: Memory::of_driver().watch()?,
        token: args.token_file.clone(),
    };
    let exporter = Arc::new(exporter);
    listener.serve(move |asked| exporter.answer(asked))?;
    Ok(())
}

/// What answers requests.
struct Exporter {
    endpoint: Endpoint,
    limits: Limits,
    memory: memory::Watch,
    token: Option<PathBuf>,
}

impl Exporter {
    fn answer(&self, asked: &Asked) -> Said {
        if let Some(file) = &self.token {
            match token(file) {
                Ok(token) if asked.bears(&token) => {}
                Ok(_) => return Said::unauthorized(),
                Err(error) => {
                    warn(format_args!("{error:#}"));
                    return Said::text(500, "the token cannot be read\n");
                }
            }
        }
        match asked.path() {
            "/" => Said::text(200, INDEX),
            "/metrics" => match self.metrics() {
                Ok(text) => Said::found(OPEN_METRICS, text),
                Err(error) => Said::text(500, format!("{error:#}\n")),
            },
            _ => Said::text(404, INDEX),
        }
    }

    /// The metrics now. Without an answer of the server, only `giveway_up` says so.
    fn metrics(&self) -> anyhow::Result<String> {
        Ok(match ask::list(&self.endpoint) {
            Ok(list) => Numbers::new(list, self.memory.read(), self.limits).text()?,
            Err(_) => families::down()?,
        })
    }
}

/// Reads the token.
fn token(file: &Path) -> anyhow::Result<String> {
    let fault = |error: io::Error| Error::Token { path: file.to_owned(), why: error.to_string() };
    let text = std::fs::read_to_string(file).map_err(fault)?;
    match text.trim() {
        "" => Err(fault(io::Error::new(ErrorKind::InvalidData, "it is empty")).into()),
        token => Ok(token.to_owned()),
    }
}
