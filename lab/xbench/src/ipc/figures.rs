//! The figures of `xbench ipc` and their limits.

use super::load::Load;
use super::placement::Placement;
use super::upkeep::{Idle, Memory};
use super::way::Row;
use crate::report::{Limit, Report};
use crate::table::{Column, Table};
use serde::Serialize;

/// From ready to another client's permission with two clients, in microseconds.
const READY_P50: f64 = 8.0;
const READY_P99: f64 = 20.0;
/// The processor time of a server with idle clients, in percent of a core.
const IDLE_PERCENT: f64 = 0.1;
/// The part of the requested transitions that must be made.
const RATE: f64 = 0.99;
/// Resident memory for each client, in KiB.
const CLIENT_KIB: f64 = 64.0;
/// The cores used by other processes above which the times are not reliable.
const QUIET_CORES: f64 = 0.1;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    command: &'static str,
    met: bool,
    quick: bool,
    /// Processors that this process may use.
    cpus: usize,
    /// False if other processes kept the machine busy, which can make a time miss its limit.
    quiet: bool,
    way: Vec<Row>,
    idle: Option<Idle>,
    load: Option<Load>,
    memory: Option<Memory>,
    #[serde(flatten)]
    report: Report,
}

impl Figures {
    pub(super) fn new(
        quick: bool,
        rate: u32,
        way: Vec<Row>,
        idle: Option<Idle>,
        load: Option<Load>,
        memory: Option<Memory>,
    ) -> Self {
        let mut report = Report::default();
        if let Some(row) = way.iter().find(|row| row.clients == 2) {
            let times = row.best.suspended_us;
            for (name, what, us, most) in [
                ("ready_p50", "ready to another client's permission, p50", times.p50, READY_P50),
                ("ready_p99", "ready to another client's permission, p99", times.p99, READY_P99),
            ] {
                report.judged(name, format!("{what}, 2 clients, best block"), us, "us", Limit::at_most(most));
            }
            let wake = row.best.wake_us;
            report.info("wake_p50", "the same to a thread that does nothing else, p50", wake.p50, "us");
            report.info("wake_p99", "the same to a thread that does nothing else, p99", wake.p99, "us");
            // Where the kernel places both threads, it may place them differently.
            if row.placement != Placement::Free {
                let part = times.p50 - wake.p50;
                report.info("server_p50", "difference of both p50: the server's part", part, "us");
            }
            if let Some(most) = way.iter().filter(|row| row.clients > 2).max_by_key(|row| row.clients) {
                let growth = most.best.suspended_us.p50 / times.p50;
                let what = format!("the same p50 with {} clients, over 2 clients", most.clients);
                report.info("ready_growth", what, growth, "");
            }
        }
        if let Some(idle) = &idle {
            let what = format!("server with {} idle clients", idle.clients);
            report.judged("idle", what, idle.server_cores * 100.0, "%", Limit::at_most(IDLE_PERCENT));
            report.info("idle_alone", "server without clients", idle.without_clients * 100.0, "%");
        }
        if let Some(load) = &load {
            let least = Limit { min: Some(f64::from(rate) * RATE), max: None };
            report.judged("rate", "transitions a second", load.rate(), "", least);
            report.judged(
                "losses",
                "transitions lost or late, wrong clients",
                load.losses() as f64,
                "",
                Limit::at_most(0.0),
            );
            report.info("load_cpu", "server meanwhile", load.server_cores * 100.0, "%");
            let slowest = load.suspended_us.max.max(load.resumed_us.max);
            report.info("load_slowest", "longest wait for a permission meanwhile", slowest, "us");
        }
        if let Some(memory) = &memory {
            let what = format!("resident memory of the server for each of {} clients", memory.clients);
            report.judged("client_memory", what, memory.resident_kib, "KiB", Limit::at_most(CLIENT_KIB));
        }
        let best = way.iter().filter(|row| row.clients == 2).map(|row| row.best.other_cores);
        let others = best
            .chain(idle.iter().map(|idle| idle.other_cores))
            .chain(load.iter().map(|load| load.other_cores));
        let quiet = others.into_iter().all(|cores| cores <= QUIET_CORES);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self { command: "ipc", met: report.is_met(), quick, cpus, quiet, way, idle, load, memory, report }
    }

    /// Returns true if a transition was lost.
    pub(super) fn has_losses(&self) -> bool {
        self.load.as_ref().is_some_and(|load| load.lost + load.gone + load.wrong > 0)
    }

    /// The tables for people.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        if !self.way.is_empty() {
            let columns: [Column<'_, Row>; 10] = [
                ("clients", &|row| row.clients.to_string()),
                ("suspended p50", &|row| format!("{:.1}", row.best.suspended_us.p50)),
                ("p90", &|row| format!("{:.1}", row.best.suspended_us.p90)),
                ("p99", &|row| format!("{:.1}", row.best.suspended_us.p99)),
                ("all blocks p50", &|row| format!("{:.1}", row.all.suspended_us.p50)),
                ("p99", &|row| format!("{:.1}", row.all.suspended_us.p99)),
                ("resumed p50", &|row| format!("{:.1}", row.best.resumed_us.p50)),
                ("p99", &|row| format!("{:.1}", row.best.resumed_us.p99)),
                ("bare wake-up p50", &|row| format!("{:.1}", row.best.wake_us.p50)),
                ("other cores", &|row| format!("{:.2} of {:.2}", row.best.other_cores, row.all.other_cores)),
            ];
            text += &format!(
                "Microseconds from a client's transition to another client's permission; best of {} blocks:\n\n{}\n",
                self.way[0].blocks.len(),
                Table::of(0, columns, &self.way)
            );
        }
        if let Some(load) = &self.load {
            text += &format!(
                "{} transitions of {} clients in {:.1} s, {} notified, {} decisions, {} suspensions:\n\
                 {} lost, {} late, {} leases expired (least left {:.0} ms), {} clients gone, {} wrong; {} guard runs;\n\
                 suspended p50 {:.1}, p99 {:.1}, max {:.1} us; resumed p50 {:.1}, p99 {:.1}, max {:.1} us; other cores {:.2}\n\n",
                load.transitions,
                load.clients,
                load.seconds,
                load.notified,
                load.decisions,
                load.rounds,
                load.lost,
                load.late,
                load.expired,
                load.lease_left_ms,
                load.gone,
                load.wrong,
                load.guard_runs,
                load.suspended_us.p50,
                load.suspended_us.p99,
                load.suspended_us.max,
                load.resumed_us.p50,
                load.resumed_us.p99,
                load.resumed_us.max,
                load.other_cores
            );
        }
        text += &format!("{}\n", self.report);
        text += &match self.report.missed().count() {
            0 => "Every limit is met.\n".to_owned(),
            missed => format!("{missed} of the limits missed.\n"),
        };
        if !self.quiet {
            text += "Other processes kept this machine busy during the measurement: repeat it on an idle machine.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::way::{Block, Times};

    fn row(clients: usize, p50: f64, p99: f64) -> Row {
        let times = Times { p50, p90: p50, p99, max: p99 };
        let block = Block { suspended_us: times, resumed_us: times, wake_us: times, other_cores: 0.01 };
        Row {
            clients,
            placement: Placement::Apart,
            rounds: 10,
            best: block.clone(),
            all: block.clone(),
            blocks: vec![block],
        }
    }

    fn load(lost: u64, other_cores: f64) -> Load {
        let times = Times { p50: 1.0, p90: 1.0, p99: 2.0, max: 9.0 };
        Load {
            seconds: 2.0,
            clients: 8,
            transitions: 200_000,
            notified: 1,
            decisions: 1,
            rounds: 1,
            lost,
            late: 0,
            expired: 0,
            lease_left_ms: 400.0,
            gone: 0,
            wrong: 0,
            suspended_us: times,
            resumed_us: times,
            server_cores: 0.5,
            other_cores,
            guard_runs: 0,
            other_changes: 0,
        }
    }

    #[test]
    fn met_limits_are_met_and_growth_is_told() {
        let figures = Figures::new(
            false,
            100_000,
            vec![row(2, 5.0, 20.0), row(1024, 50.0, 70.0)],
            None,
            Some(load(0, 0.0)),
            None,
        );
        assert!(figures.met && figures.quiet && !figures.has_losses(), "{}", figures.table());
        let growth = figures.report.figures().iter().find(|figure| figure.name == "ready_growth").unwrap();
        assert_eq!(growth.value, 10.0);
        assert!(figures.table().contains("Every limit is met."), "{}", figures.table());
    }

    #[test]
    fn missed_limits_and_losses_are_named() {
        let idle = Idle {
            clients: 64,
            seconds: 10.0,
            server_cores: 0.002,
            without_clients: 0.0,
            decisions_per_s: 10.0,
            other_cores: 0.0,
        };
        let memory = Memory {
            clients: 9,
            resident_kib: 65.0,
            proportional_kib: 9.0,
            private_kib: 8.0,
            tables_kib: 1.0,
        };
        let figures = Figures::new(
            true,
            150_000,
            vec![row(2, 9.0, 21.0)],
            Some(idle),
            Some(load(1, 1.5)),
            Some(memory),
        );
        let missed: Vec<_> = figures.report.missed().map(|figure| figure.name).collect();
        assert_eq!(missed, ["ready_p50", "ready_p99", "idle", "rate", "losses", "client_memory"]);
        assert!(!figures.quiet && figures.has_losses());
        assert!(figures.table().contains("6 of the limits missed."), "{}", figures.table());
    }
}
