//! What the simulated device and the preloaded library say about a run, and whether two modes did the same work.

use super::session::Role;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Commands that a device retired, by kind.
pub(crate) type Counts = BTreeMap<String, i64>;

/// The part of gpu-sim's statistics that is needed here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DeviceStats {
    /// Whether the device kept up with its virtual time.
    pub(crate) valid: bool,
    pub(crate) late_us: Late,
    processes: Vec<Process>,
    gpus: Vec<Gpu>,
}

/// How late completions became visible.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Late {
    pub(crate) p99: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Gpu {
    driver: Driver,
}

#[derive(Debug, Clone, Deserialize)]
struct Driver {
    /// Operations that took a queue off the hardware.
    unmaps: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct Process {
    pid: u32,
    commands: Counts,
}

impl DeviceStats {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("gpu-sim's statistics make no sense")
    }

    /// How often the driver took queues off the hardware, whoever asked for that.
    pub(crate) fn unmaps(&self) -> u64 {
        self.gpus.iter().map(|gpu| gpu.driver.unmaps).sum()
    }

    /// What process `pid` had retired beyond `inferences` of `kernels` kernels each: its start-up.
    ///
    /// Barriers are left out. They order and do no work, the runtime inserts them where it finds a queue still busy, and
    /// the library's marks are such packets: their number depends on timing and on the mode.
    pub(crate) fn beyond(&self, pid: u32, inferences: u64, kernels: u64) -> Result<Counts> {
        let mut of_pid = self.processes.iter().filter(|process| process.pid == pid);
        let process = of_pid.next().with_context(|| format!("gpu-sim knows no process {pid}"))?;
        ensure!(of_pid.next().is_none(), "gpu-sim knows process {pid} twice");
        let mut counts = process.commands.clone();
        counts.retain(|kind, _| !kind.starts_with("barrier"));
        *counts.entry("kernel".to_owned()).or_insert(0) -= (inferences * kernels) as i64;
        counts.retain(|_, count| *count != 0);
        Ok(counts)
    }
}

/// What the first mode that a role ran in had retired beyond its inferences, to compare the others with.
#[derive(Debug, Default)]
pub(super) struct Agreement(BTreeMap<Role, (String, Counts)>);

impl Agreement {
    /// Compares, or remembers the first. `run` names mode and block for the message.
    pub(super) fn check(&mut self, role: Role, run: &str, beyond: Counts) -> Result<()> {
        let lacking = beyond.iter().find(|(_, count)| **count < 0);
        if let Some((kind, count)) = lacking {
            let missing = -count;
            anyhow::bail!(
                "{run}: the device retired {missing} commands of kind {kind} too few for {}",
                role.name()
            );
        }
        let (first, expected) = self.0.entry(role).or_insert_with(|| (run.to_owned(), beyond.clone()));
        ensure!(
            beyond == *expected,
            "the device did not do the same work for {} in all modes: beyond the commands of its inferences it retired \
             {expected:?} in {first}, {beyond:?} in {run}",
            role.name()
        );
        Ok(())
    }
}

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

    const STATS: &str = r#"{
        "commands": {"kernel": 310}, "gpus": [{"driver": {"unmaps": 40, "saves": 3}}], "ioctls": {"alloc": 3}, "valid": true,
        "late_us": {"p50": 0.5, "p99": 38.0, "count": 310},
        "processes": [
            {"pid": 7, "name": "xbench", "commands": {"kernel": 202, "pm4": 2, "barrier_and": 90}, "queues": []},
            {"pid": 8, "name": "xbench", "commands": {"kernel": 100}, "queues": []}
        ]
    }"#;

    fn counts(pairs: &[(&str, i64)]) -> Counts {
        pairs.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
    }

    #[test]
    fn what_is_left_is_start_up() {
        let stats = DeviceStats::parse(STATS).unwrap();
        assert!(stats.valid);
        assert_eq!((stats.late_us.p99, stats.unmaps()), (38.0, 40));
        assert_eq!(stats.beyond(7, 20, 10).unwrap(), counts(&[("kernel", 2), ("pm4", 2)]));
        assert_eq!(stats.beyond(8, 10, 10).unwrap(), counts(&[]));
        assert_eq!(stats.beyond(9, 1, 1).unwrap_err().to_string(), "gpu-sim knows no process 9");
        assert!(DeviceStats::parse("{}").is_err());
    }

    #[test]
    fn modes_must_agree() {
        let mut agreement = Agreement::default();
        agreement.check(Role::High, "alone", counts(&[("kernel", 2)])).unwrap();
        agreement.check(Role::Low, "alone", counts(&[("kernel", 3)])).unwrap();
        agreement.check(Role::High, "native", counts(&[("kernel", 2)])).unwrap();
        for other in [counts(&[("kernel", 3)]), counts(&[]), counts(&[("kernel", 2), ("copy", 1)])] {
            let error = agreement.check(Role::High, "shim", other).unwrap_err().to_string();
            assert!(
                error.starts_with("the device did not do the same work for high in all modes"),
                "{error}"
            );
        }
        let error = agreement.check(Role::Low, "shim", counts(&[("kernel", -4)])).unwrap_err().to_string();
        assert_eq!(error, "shim: the device retired 4 commands of kind kernel too few for low");
    }

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
