//! What the preloaded library says of a run.

use anyhow::{Context, Result};

/// The library's own count at the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShimSummary {
    /// Commands that it launched.
    pub(crate) launched: u64,
    /// How often a queue was suspended.
    pub(crate) suspensions: u64,
    /// Commands that had not been launched at the end.
    pub(crate) pending: u64,
}

impl ShimSummary {
    /// Out of what the library said at log level `debug`; the last line that has the words.
    pub(crate) fn parse(log: &str) -> Result<Self> {
        let line = log.lines().rev().find_map(|line| Some(line.split_once("queues created=")?.1));
        let line = line.context("the library's log does not end with its counts (`queues created=...`)")?;
        let field = |name: &str| {
            let words = line.split_whitespace().filter_map(|word| word.split_once('='));
            let value = words.filter(|(known, _)| *known == name).find_map(|(_, value)| value.parse().ok());
            value.with_context(|| format!("the library's counts have no {name}="))
        };
        Ok(Self {
            launched: field("direct")? + field("deferred")?,
            suspensions: field("suspensions")?,
            pending: field("pending")?,
        })
    }
}

/// The warnings and errors of a library's log.
pub(crate) fn complaints(log: &str) -> Vec<&str> {
    let serious = |line: &&str| line.contains("warn:") || line.contains("error:");
    log.lines().filter(serious).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_taken_at_its_last_word() {
        let log = "xsched: warn: no xserver at /run/xsched/1.sock (nobody listens there): queues run unscheduled\n\
            xsched: debug: queues created=9 direct=1 deferred=1 forced=0 suspensions=1 suspended_us=1 pending=1\n\
            xsched: debug: queues created=1 direct=100 deferred=30 forced=2 suspensions=4 suspended_us=7 pending=0\n\
            xsched: debug: calls launch=130\n";
        let expected = ShimSummary { launched: 130, suspensions: 4, pending: 0 };
        assert_eq!(ShimSummary::parse(log).unwrap(), expected);
        assert_eq!(
            complaints(log),
            ["xsched: warn: no xserver at /run/xsched/1.sock (nobody listens there): queues run unscheduled"]
        );
        assert!(ShimSummary::parse("").unwrap_err().to_string().contains("does not end with its counts"));
        let error =
            ShimSummary::parse("queues created=1 direct=x deferred=1 forced=0").unwrap_err().to_string();
        assert_eq!(error, "the library's counts have no direct=");
    }
}
