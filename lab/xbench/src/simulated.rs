//! The GPU of a measurement: the simulated one, its start and its statistics of a run; or the machine's own.

use crate::card::{Card, SIMULATED};
use crate::table::value_name;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// The GPU of a measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct GpuArgs {
    /// This machine's own GPU instead of a simulated one. Nobody else must use it meanwhile
    #[arg(long, conflicts_with_all = ["save_us", "cu_model"])]
    pub(crate) real: bool,
    /// Cost of saving evicted work on the simulated GPU, and of restoring it, in microseconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1_000_000), allow_negative_numbers = true)]
    pub(crate) save_us: u32,
    /// Sharing of the simulated GPU's compute units
    #[arg(long, value_enum, default_value_t = CuModel::Shared)]
    pub(crate) cu_model: CuModel,
    /// Count runs in which the GPU was late. For tests, which check the work and never times
    #[arg(long, hide = true)]
    pub(crate) allow_late: bool,
}

impl GpuArgs {
    /// Returns the files that must lie beside this program.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &'static &'static str> {
        let gpu_sim = Some(&"gpu-sim").filter(|_| !self.real);
        [&"xserver", &"libshimhip.so"].into_iter().chain(gpu_sim)
    }
}

/// The GPU of a measurement, as its figures name it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// `simulated GPU`, or the name of the machine's own.
    device: String,
    /// The machine's own GPU; `null` if gpu-sim was started for the measurement.
    card: Option<Card>,
    /// The sharing of the simulated GPU's compute units; `null` with a card.
    cu_model: Option<CuModel>,
    /// The cost of saving evicted work on the simulated GPU, and of restoring it, microseconds; `null` with a card.
    save_us: Option<u32>,
}

impl Measured {
    /// `card` is the machine's own GPU, if that is measured.
    pub(crate) fn new(args: &GpuArgs, card: Option<Card>) -> Self {
        let device = card.as_ref().map_or_else(|| SIMULATED.to_owned(), |card| card.title.clone());
        let simulated = card.is_none();
        let (cu_model, save_us) = (simulated.then_some(args.cu_model), simulated.then_some(args.save_us));
        Self { device, card, cu_model, save_us }
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Returns true for the simulated GPU, also if the command itself runs on it.
    pub(crate) fn is_simulated(&self) -> bool {
        self.device == SIMULATED
    }

    /// Returns true if the machine's own GPU is measured.
    pub(crate) fn is_own(&self) -> bool {
        self.card.is_some()
    }
}

/// Writes it for people.
impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.card {
            Some(card) => card.fmt(f)?,
            None => f.write_str(&self.device)?,
        }
        if let Some(cu_model) = self.cu_model {
            write!(f, ", compute units {}", value_name(cu_model))?;
        }
        self.save_us.map_or(Ok(()), |us| write!(f, ", save cost {us} µs"))
    }
}

/// See `docs/gpu-model.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CuModel {
    /// Work-groups of all programs are placed in turn
    Shared,
    /// One kernel at a time, in order of arrival
    Fcfs,
}

/// Returns the command of the gpu-sim beside `this`, which runs this program on the device. Saving and
/// restoring evicted work cost `save_us` each; statistics go to a file, and the timeline if there is a path for it.
pub(crate) fn gpu_sim(
    this: &Path,
    cu_model: CuModel,
    save_us: u32,
    stats: &Path,
    timeline: Option<&Path>,
) -> Command {
    let mut command = Command::new(this.with_file_name("gpu-sim"));
    let (cu_model, save_us) = (value_name(cu_model), save_us.to_string());
    command.args(["run", "--cu-model", &cu_model, "--save-us", &save_us, "--restore-us", &save_us]);
    if let Some(path) = timeline {
        command.arg("--timeline").arg(path);
    }
    command.arg("--stats").arg(stats).arg("--").arg(this);
    command
}

/// The numbers of commands that a device retired, by kind.
pub(crate) type Counts = BTreeMap<String, i64>;

/// The part of gpu-sim's statistics that is used here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DeviceStats {
    /// True if the device kept up with its virtual time.
    pub(crate) valid: bool,
    pub(crate) late_us: Late,
    processes: Vec<Process>,
    gpus: Vec<Gpu>,
}

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
    /// The operations that evicted a queue from the hardware.
    unmaps: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct Process {
    pid: u32,
    commands: Counts,
}

impl DeviceStats {
    /// Returns the reason why the figures of this run do not count; `None` if they do.
    pub(crate) fn objection(&self) -> Option<String> {
        (!self.valid).then(|| format!("the simulated GPU was late (p99 {:.0} µs)", self.late_us.p99))
    }

    /// Returns the driver's evictions of queues from the hardware, on any request.
    pub(crate) fn unmaps(&self) -> u64 {
        self.gpus.iter().map(|gpu| gpu.driver.unmaps).sum()
    }

    /// Returns the commands of process `pid` beyond `inferences` of `kernels` kernels each, which belong to
    /// its start-up.
    ///
    /// Barriers are left out. They do no work, the runtime inserts them where it finds a queue still busy,
    /// and the library's markers are such packets: their number depends on timing and on the mode. So are time stamps,
    /// which the copy engine takes around a copy whose time the library asks for.
    pub(crate) fn beyond(&self, pid: u32, inferences: u64, kernels: u64) -> Result<Counts> {
        let mut of_pid = self.processes.iter().filter(|process| process.pid == pid);
        let process = of_pid.next().with_context(|| format!("gpu-sim knows no process {pid}"))?;
        ensure!(of_pid.next().is_none(), "gpu-sim knows process {pid} twice");
        let mut counts = process.commands.clone();
        counts.retain(|kind, _| !kind.starts_with("barrier") && kind != "timestamp");
        *counts.entry("kernel".to_owned()).or_insert(0) -= (inferences * kernels) as i64;
        counts.retain(|_, count| *count != 0);
        Ok(counts)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn gpu() -> GpuArgs {
        GpuArgs { real: false, save_us: 50, cu_model: CuModel::Shared, allow_late: false }
    }

    #[test]
    fn own_gpu_is_named_and_has_no_simulated_parameters() {
        let own = Measured::new(&gpu(), Some(crate::card::tests::card()));
        let json = serde_json::to_value(&own).unwrap();
        assert_eq!(
            (&json["device"], &json["card"]["driver"]),
            (&"Card (gfx90a)".into(), &"amdgpu 6.8".into())
        );
        assert!(json["save_us"].is_null() && json["cu_model"].is_null());
        assert!(own.to_string().starts_with("Card (gfx90a), 104 compute units") && !own.is_simulated());
        let simulated = Measured::new(&gpu(), None);
        assert_eq!(simulated.to_string(), "simulated GPU, compute units shared, save cost 50 µs");
        assert!(simulated.is_simulated() && !simulated.is_own());
    }

    pub(crate) fn stats(valid: bool, p99: f64) -> DeviceStats {
        DeviceStats { valid, late_us: Late { p99 }, processes: Vec::new(), gpus: Vec::new() }
    }

    const STATS: &str = r#"{
        "commands": {"kernel": 310}, "gpus": [{"driver": {"unmaps": 40, "saves": 3}}], "ioctls": {"alloc": 3}, "valid": true,
        "late_us": {"p50": 0.5, "p99": 38.0, "count": 310},
        "processes": [
            {"pid": 7, "name": "xbench", "commands": {"kernel": 202, "pm4": 2, "barrier_and": 90, "timestamp": 4}, "queues": []},
            {"pid": 8, "name": "xbench", "commands": {"kernel": 100}, "queues": []}
        ]
    }"#;

    fn counts(pairs: &[(&str, i64)]) -> Counts {
        pairs.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
    }

    #[test]
    fn commands_beyond_the_inferences_are_counted() {
        let stats = serde_json::from_str::<DeviceStats>(STATS).unwrap();
        assert!(stats.valid);
        assert_eq!((stats.late_us.p99, stats.unmaps()), (38.0, 40));
        assert_eq!(stats.beyond(7, 20, 10).unwrap(), counts(&[("kernel", 2), ("pm4", 2)]));
        assert_eq!(stats.beyond(8, 10, 10).unwrap(), counts(&[]));
        assert_eq!(stats.beyond(9, 1, 1).unwrap_err().to_string(), "gpu-sim knows no process 9");
    }
}
