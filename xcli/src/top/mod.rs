//! `xcli top`: a live view of the clients of a server.
//!
//! `rows` computes rates from two lists, `columns` formats and orders them, `model` holds the state of the view and says
//! what keys do, `orders` makes the requests behind keys, and `view` draws. These are pure. `poller` asks the server,
//! `terminal` owns the terminal and runs the loop, `plain` prints tables where there is no terminal.

mod columns;
mod model;
mod orders;
mod plain;
mod poller;
mod rows;
mod terminal;
mod view;

#[cfg(test)]
pub(crate) use plain::tests::json as example_json;

use crate::endpoint::Endpoint;
use std::io::{self, IsTerminal as _};
use std::num::NonZeroU64;
use std::time::Duration;

/// The arguments of `xcli top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// How often a second the server is asked, from 0.1 to 30. A server with many clients may answer less often
    #[arg(short = 'f', long, value_name = "HZ", default_value = "1", value_parser = frequency)]
    frequency: Duration,
    /// End after this many updates [default: no end]
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<NonZeroU64>,
    /// Print a table for each interval instead of the view, as if the output were not a terminal
    #[arg(long)]
    plain: bool,
    /// Print JSON, one object in a line for each interval: `interval_s`, and the `programs` with `pid`, `name`, `uid`,
    /// `priority`, `level`, `state` (running, suspended, stopped, idle), `launches_per_second`, `share_percent`,
    /// `suspended_percent`, `evictions_per_second`, `mean_suspension_us`, `why` and the `queues`. Unknown values are null
    #[arg(long)]
    json: bool,
    /// Use no colors; so does the variable NO_COLOR
    #[arg(long)]
    no_color: bool,
}

/// Parses a frequency. Returns the interval.
fn frequency(word: &str) -> Result<Duration, &'static str> {
    match word.parse() {
        Ok(hertz @ 0.1..=30.0) => Ok(Duration::from_secs_f64(1.0 / hertz)),
        _ => Err("a frequency is a number from 0.1 to 30"),
    }
}

/// Shows the view, or prints tables if the output is not a terminal.
///
/// # Errors
/// The terminal cannot be used. Without the view: the server does not answer.
pub fn run(args: &TopArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let is_dumb = matches!(of("TERM").as_str(), "" | "dumb");
    let wants_plain = args.plain || args.json;
    if wants_plain || !io::stdout().is_terminal() || is_dumb {
        if !wants_plain && io::stdout().is_terminal() {
            crate::output::warn("this terminal cannot move its cursor (variable TERM): xcli prints tables");
        }
        let count = args.count.map_or(u64::MAX, NonZeroU64::get);
        return plain::run(endpoint, args.frequency, count, args.json);
    }
    let theme = view::Theme {
        colors: !args.no_color && of("NO_COLOR").is_empty(),
        unicode: is_unicode(["LC_ALL", "LC_CTYPE", "LANG"].map(of)),
    };
    terminal::run(endpoint, args.frequency, args.count.map(NonZeroU64::get), theme)
}

/// Returns true if a locale says that the terminal shows UTF-8. The first one that is set counts.
fn is_unicode(locales: [String; 3]) -> bool {
    let locale = locales.into_iter().find(|locale| !locale.is_empty()).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_have_bounds() {
        assert_eq!(frequency("4"), Ok(Duration::from_millis(250)));
        assert_eq!(frequency("0.1"), Ok(Duration::from_secs(10)));
        for wrong in ["0", "-1", "31", "inf", "nan", "x"] {
            assert!(frequency(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn first_locale_that_is_set_counts() {
        let is = |all: [&str; 3]| is_unicode(all.map(str::to_owned));
        assert!(
            is(["", "", "en_US.UTF-8"])
                && is(["C.utf8", "C", "C"])
                && !is(["C", "", "en_US.UTF-8"])
                && !is([""; 3])
        );
    }
}
