//! What idle clients cost the server: processor time and memory.

use super::bed::Bed;
use super::crowd::Crowd;
use crate::files::read;
use crate::processor_time::{OtherLoad, process_cpu};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time in which a server comes to rest after its clients have connected.
const REST: Duration = Duration::from_millis(500);

/// Processor time of a server whose clients are idle.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Idle {
    pub(super) clients: usize,
    pub(super) seconds: f64,
    /// Cores that the server used.
    pub(super) server_cores: f64,
    /// The same without clients.
    pub(super) without_clients: f64,
    /// Decisions a second.
    pub(super) decisions_per_s: f64,
    pub(super) other_cores: f64,
}

/// Measures for `length` with and without clients.
pub(super) fn idle(clients: usize, length: Duration) -> Result<Idle> {
    let bed = Bed::start()?;
    std::thread::sleep(REST);
    let without_clients = cores(bed.pid(), length)?;
    let crowd = Crowd::gather(&bed.socket, clients)?;
    let before = bed.wait_for_queues(clients)?;
    std::thread::sleep(REST);
    let load = OtherLoad::start(&bed.pids(&crowd))?;
    let begin = Instant::now();
    let server_cores = cores(bed.pid(), length)?;
    let (seconds, other_cores) = (begin.elapsed().as_secs_f64(), load.cores()?);
    let after = bed.list()?;
    let apart = after.server.now.0.saturating_sub(before.server.now.0) as f64 / 1e9;
    let decisions_per_s = (after.server.decisions - before.server.decisions) as f64 / apart;
    drop(crowd);
    bed.end()?;
    Ok(Idle { clients, seconds, server_cores, without_clients, decisions_per_s, other_cores })
}

/// The cores that a process uses on average.
fn cores(pid: u32, length: Duration) -> Result<f64> {
    let (begin, used) = (Instant::now(), process_cpu(pid)?);
    std::thread::sleep(length);
    Ok(process_cpu(pid)?.saturating_sub(used).as_secs_f64() / begin.elapsed().as_secs_f64())
}

/// Memory of a server for each client.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Memory {
    pub(super) clients: usize,
    /// Resident memory for each client, in KiB. The pages that the client has in common with the server count as the server's.
    pub(super) resident_kib: f64,
    /// The same, with half of each page that both have in common.
    pub(super) proportional_kib: f64,
    /// Memory that the server has for itself.
    pub(super) private_kib: f64,
    /// Page tables.
    pub(super) tables_kib: f64,
}

/// Measures with this many clients and without any.
pub(super) fn memory(clients: usize) -> Result<Memory> {
    let bed = Bed::start()?;
    // The first list and the first client take memory that the server keeps.
    let first = Crowd::gather(&bed.socket, 1)?;
    bed.wait_for_queues(1)?;
    drop(first);
    bed.wait_for_queues(0)?;
    let before = Resident::of(bed.pid())?;
    let crowd = Crowd::gather(&bed.socket, clients)?;
    bed.wait_for_queues(clients)?;
    let after = Resident::of(bed.pid())?;
    drop(crowd);
    bed.end()?;
    let each = |of: fn(&Resident) -> f64| (of(&after) - of(&before)) / clients as f64;
    Ok(Memory {
        clients,
        resident_kib: each(|memory| memory.resident),
        proportional_kib: each(|memory| memory.proportional),
        private_kib: each(|memory| memory.private),
        tables_kib: each(|memory| memory.tables),
    })
}

/// Memory of a process in KiB.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Resident {
    resident: f64,
    proportional: f64,
    private: f64,
    tables: f64,
}

impl Resident {
    fn of(pid: u32) -> Result<Self> {
        let file = |name: &str| read(&PathBuf::from(format!("/proc/{pid}/{name}")));
        Self::parse(&file("smaps_rollup")?, &file("status")?)
    }

    fn parse(rollup: &str, status: &str) -> Result<Self> {
        Ok(Self {
            resident: kib(rollup, "Rss")?,
            proportional: kib(rollup, "Pss")?,
            private: kib(rollup, "Private_Clean")? + kib(rollup, "Private_Dirty")?,
            tables: kib(status, "VmPTE")?,
        })
    }
}

/// The number of KiB behind a name.
fn kib(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse().ok());
    number.with_context(|| format!("/proc has no valid line {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let rollup = "00400000-7fff r--p 00000000 00:00 0 [rollup]\nRss:   120 kB\nPss:    60 kB\nPss_Dirty: 9 kB\n\
                      Private_Clean:  4 kB\nPrivate_Dirty: 30 kB\n";
        let memory = Resident::parse(rollup, "Name:\tx\nVmPTE:\t  44 kB\n").unwrap();
        assert_eq!(memory, Resident { resident: 120.0, proportional: 60.0, private: 34.0, tables: 44.0 });
        assert!(Resident::parse(rollup, "").is_err());
        assert!(kib("Rss: many kB", "Rss").is_err());
        assert!(Resident::of(std::process::id()).unwrap().resident > 0.0);
    }

    #[test]
    fn working_process_uses_a_part_of_a_core() {
        let cores = cores(std::process::id(), Duration::from_millis(5)).unwrap();
        assert!(cores.is_finite() && cores >= 0.0, "{cores}");
    }
}
