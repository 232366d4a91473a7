//! The log of the preloaded library: the counts at its end, and its complaints.

use anyhow::{Context, Result, ensure};

/// The counts in a line such as `xsched: debug: queues created=1 direct=3`. The library writes one line of
/// each kind at the end of a process, if its log level is `debug`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts<'a>(&'a str);

impl<'a> Counts<'a> {
    /// Returns the last counts of this kind; `None` if the log has none.
    pub(crate) fn last(log: &'a str, kind: &str) -> Option<Self> {
        let prefix = format!("xsched: debug: {kind} ");
        log.lines().rev().find_map(|line| line.strip_prefix(&prefix)).map(Self)
    }

    pub(crate) fn get(self, name: &str) -> Option<u64> {
        let mut counts = self.0.split(' ').filter_map(|count| count.split_once('='));
        counts.find(|(known, _)| *known == name)?.1.parse().ok()
    }

    pub(crate) fn require(self, name: &str) -> Result<u64> {
        self.get(name).with_context(|| format!("the library's counts have no {name}="))
    }
}

/// Checks that the library of `name` has launched `least` commands, and that none is left. Returns the number of its
/// suspensions.
pub(crate) fn check_launched(log: &str, name: &str, least: u64) -> Result<u64> {
    let counts = Counts::last(log, "queues");
    let counts = counts.context("the library's log does not end with its counts (`queues created=...`)")?;
    let launched = counts.require("direct")? + counts.require("deferred")?;
    let pending = counts.require("pending")?;
    ensure!(
        launched >= least && pending == 0,
        "the library launched {launched} of the {least} commands of {name} and has {pending} pending: some commands bypassed it"
    );
    counts.require("suspensions")
}

pub(crate) fn complaints(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter(|line| line.contains("warn:") || line.contains("error:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "xsched: warn: no xserver at /run/xsched/1.sock (nobody listens there): queues run unscheduled\n\
                       xsched: debug: queues created=9 direct=1 deferred=1 suspensions=1 pending=1\nother\n\
                       xsched: debug: queues created=1 direct=100 deferred=30 suspensions=4 pending=0\n\
                       xsched: debug: calls launch=130 copy=x\n";

    #[test]
    fn last_line_of_a_kind_has_the_counts() {
        let queues = Counts::last(LOG, "queues").unwrap();
        assert_eq!((queues.get("direct"), queues.get("suspensions")), (Some(100), Some(4)));
        let calls = Counts::last(LOG, "calls").unwrap();
        assert_eq!((calls.get("launch"), calls.get("copy"), calls.get("deferred")), (Some(130), None, None));
        assert_eq!(calls.require("copy").unwrap_err().to_string(), "the library's counts have no copy=");
        assert!(Counts::last("", "calls").is_none());
    }

    #[test]
    fn complaints_are_warnings_and_errors() {
        assert_eq!(complaints(LOG).collect::<Vec<_>>(), [LOG.lines().next().unwrap()]);
    }
}
