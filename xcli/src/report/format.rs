//! The format of a report's file.

use crate::doctor::Findings;
use protocol::report::{Conformance, Corun, Devices, Holds, QueuePriority, UnitMasks, Window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format, which increases with each incompatible change.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// A description of the file.
    pub about: String,
    /// Descriptions of the parts.
    pub contains: Vec<String>,
    /// Descriptions of what a report does not contain.
    pub left_out: Vec<String>,
    /// True if `gpu-sim` simulates the GPU. Then the times are not those of a GPU.
    pub simulated: bool,
    /// True if evicting queues was allowed.
    pub try_level2: bool,
    /// True if the measurements had few repetitions.
    pub short: bool,
    /// True if no part is missing or has an error.
    pub complete: bool,
    /// The total time.
    pub seconds: f64,
    /// The number of evictions, without those of the probe.
    pub holds: u64,
    pub parts: Parts,
}

/// The parts, in the order in which they are made.
#[derive(Debug, Clone, Serialize)]
pub struct Parts {
    /// Releases, driver and devices.
    pub versions: Part<Versions>,
    /// The findings of `xcli doctor`.
    pub doctor: Part<Findings>,
    /// The devices as HIP shows them.
    pub devices: Part<Devices>,
    /// Kernels that take what they are told to take, which shows whether another program used the GPU.
    pub calibration: Part<Calibration>,
    /// The time that the library adds to a launch.
    pub launch_path: Part<LaunchPath>,
    /// Throughput and suspensions with several windows.
    pub window: Part<Window>,
    /// Kernels beside those of another program, with hardware queues of several priorities.
    pub priority: Part<QueuePriority>,
    /// Kernels on streams with masks of compute units.
    pub unit_masks: Part<UnitMasks>,
    /// The time of evictions.
    pub holds: Part<Holds>,
    /// Two recorded models on the GPU, without and with the library.
    pub corun: Part<Corun>,
    /// Programs whose memory was compared.
    pub conformance: Part<Conformance>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Part<T> {
    /// The time that it took.
    pub seconds: f64,
    /// The reason why the part was not requested, or is not possible on this machine.
    pub skipped: Option<String>,
    /// The reason why the part is missing or incomplete.
    pub error: Option<String>,
    pub result: Option<T>,
}

/// Releases, driver and devices.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Versions {
    pub giveway: String,
    /// The kernel's release.
    pub kernel: String,
    /// The machine's architecture.
    pub machine: String,
    /// `ID` of /etc/os-release.
    pub distribution: Option<String>,
    /// `VERSION_ID` of it.
    pub distribution_version: Option<String>,
    /// The names of the files of HIP's runtime.
    pub runtimes: Vec<String>,
    /// The driver's interface, such as `1.14`.
    pub kfd: Option<String>,
    /// The release of amdgpu, if it is not part of the kernel.
    pub amdgpu: Option<String>,
    /// Listed parameters of amdgpu.
    pub parameters: BTreeMap<String, String>,
    /// Listed environment variables.
    pub environment: BTreeMap<String, String>,
    pub gpus: Vec<Gpu>,
}

/// A GPU as the driver shows it.
#[derive(Debug, Clone, Serialize)]
pub struct Gpu {
    /// Such as `gfx90a`.
    pub target: String,
    /// Listed numbers of the topology.
    pub properties: BTreeMap<String, u64>,
    /// The scheduler of hardware queues.
    pub scheduler: Option<String>,
    /// True if running waves are saved; none if unknown.
    pub cwsr: Option<bool>,
    /// True if the device and its firmware support a debugger.
    pub debugger: Option<bool>,
    /// For each eviction mechanism "yes", or the reason why it cannot be used.
    pub mechanisms: BTreeMap<String, String>,
    /// The reason why the driver does not describe it.
    pub error: Option<String>,
}

/// The result of `xbench calibrate`. Other fields of its JSON are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// True if every kernel took what it was told to take. False means that another program used the GPU, or that the figures of
    /// this report are not those of the work that they name.
    pub met: bool,
    pub figures: Vec<Judged>,
}

/// A figure with a limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub name: String,
    pub what: String,
    /// The value in the unit.
    pub value: f64,
    /// Empty for a ratio.
    pub unit: String,
    /// True if the value is within its limit; none without a limit.
    pub met: Option<bool>,
}

/// The result of `xbench launch-path`. Other fields of its JSON are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchPath {
    /// The calls that the library counted on a runtime that does nothing.
    pub calls_counted: u64,
    /// The calls that the library counted on the machine's HIP.
    pub real_calls_counted: Option<u64>,
    /// Medians over alternating rounds.
    pub figures: Vec<Figure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub what: String,
    /// The value in the unit.
    pub value: f64,
    /// Empty for a ratio.
    pub unit: String,
}

impl<T> Part<T> {
    /// Returns true if the part has no error, or was not requested.
    fn is_good(&self) -> bool {
        self.error.is_none() && (self.result.is_some() || self.skipped.is_some())
    }
}

impl Parts {
    /// For each part its name in the file, true if it is good, and its error.
    pub fn state(&self) -> [(&'static str, bool, Option<&str>); 11] {
        fn of<'a, T>(name: &'static str, part: &'a Part<T>) -> (&'static str, bool, Option<&'a str>) {
            (name, part.is_good(), part.error.as_deref())
        }
        [
            of("versions", &self.versions),
            of("doctor", &self.doctor),
            of("devices", &self.devices),
            of("calibration", &self.calibration),
            of("launch_path", &self.launch_path),
            of("window", &self.window),
            of("priority", &self.priority),
            of("unit_masks", &self.unit_masks),
            of("holds", &self.holds),
            of("corun", &self.corun),
            of("conformance", &self.conformance),
        ]
    }

    /// The number of evictions.
    pub fn holds(&self) -> u64 {
        let holds = self.holds.result.iter().flat_map(|holds| &holds.mechanisms).map(|row| row.holds);
        let levels = self.corun.result.iter().flat_map(|corun| &corun.levels).map(|level| level.holds);
        let modes = self.conformance.result.iter().flat_map(|made| &made.modes).map(|mode| mode.holds);
        holds.chain(levels).chain(modes).sum()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::doctor::finding::note;
    use protocol::report::{
        CorunLevel, CorunMode, EvictionRow, EvictionTimes, Mode, OccupiedRow, Probe, Program, Spread,
        WindowRow,
    };

    fn part<T>(result: T) -> Part<T> {
        Part { seconds: 0.25, skipped: None, error: None, result: Some(result) }
    }

    const SPREAD: Spread = Spread { n: 4, min: 1.0, p50: 2.5, p90: 4.0, max: 4.0 };

    pub fn occupied() -> OccupiedRow {
        OccupiedRow {
            kernel: "keep_few".into(),
            registers: Some(21),
            local_bytes: 16384,
            groups: 104,
            group_size: 256,
            kernel_us: 8000,
            times: Some(EvictionTimes { hold_us: SPREAD, release_us: SPREAD }),
            interrupted: 2,
            stood: 2,
            compared: 512,
            wrong: 0,
        }
    }

    fn corun() -> Corun {
        let mode = CorunMode { requests: 150, p50_ms: 4.5, p99_ms: 9.0, low_per_s: 7.5 };
        let level = CorunLevel {
            level: 3,
            in_force: 3,
            missing: None,
            suspensions: 40,
            holds: 5,
            hold_us: Some(90.0),
            release_us: Some(80.0),
            mode,
        };
        Corun {
            high: "bert bs8@10".into(),
            low: "resnet50 bs256".into(),
            blocks: 1,
            seconds: 15.0,
            undisturbed: true,
            alone: mode,
            native: mode,
            low_alone_per_s: 9.5,
            levels: vec![level],
        }
    }

    pub fn eviction() -> EvictionRow {
        EvictionRow {
            mechanism: "update-queue".into(),
            error: None,
            queues: 2,
            probe: Some(Probe { hold_us: 1, release_us: 2 }),
            idle: Some(EvictionTimes { hold_us: SPREAD, release_us: SPREAD }),
            busy: None,
            busy_kernel_us: 4000,
            stood: 3,
            interrupted: 3,
            occupied: vec![occupied()],
            holds: 12,
        }
    }

    /// A report with something everywhere.
    pub fn example() -> Report {
        let mut findings = Findings::default();
        findings.add("server", note("none"));
        let map = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let versions = Versions {
            giveway: "0.1.0".to_owned(),
            kfd: Some("1.14".to_owned()),
            environment: map("HSA_XNACK", "1"),
            gpus: vec![Gpu {
                target: "gfx90a".to_owned(),
                properties: BTreeMap::from([("num_cp_queues".to_owned(), 24)]),
                scheduler: Some("HWS".to_owned()),
                cwsr: Some(true),
                debugger: None,
                mechanisms: map("update-queue", "yes"),
                error: None,
            }],
            ..Versions::default()
        };
        let figure =
            Figure { name: "direct_native_ns".into(), what: "x".into(), value: 1.5, unit: "ns".into() };
        let row = WindowRow {
            kernel_us: 50,
            threshold: None,
            batch: None,
            kernels_per_s: 1.0,
            native_kernels_per_s: 2.0,
            idle_us: SPREAD,
            in_flight: SPREAD,
        };
        let hold = eviction();
        let mode = Mode {
            name: "hold".into(),
            passed: true,
            error: None,
            programs: vec![Program { name: "copies".into(), error: None }],
            rounds: 1,
            direct: Some(1),
            deferred: Some(2),
            suspensions: Some(3),
            holds: 30,
        };
        let parts = Parts {
            versions: part(versions),
            doctor: part(findings),
            devices: part(Devices { runtime_version: 5, devices: vec![] }),
            calibration: part(Calibration { met: true, figures: vec![] }),
            launch_path: part(LaunchPath {
                calls_counted: 7,
                real_calls_counted: None,
                figures: vec![figure],
            }),
            window: part(Window { rows: vec![row], left_out: vec![10] }),
            priority: part(QueuePriority { kernel_us: 200, other_kernel_us: 800, rows: vec![] }),
            unit_masks: part(UnitMasks { kernel_us: 2000, refused: None, rows: vec![] }),
            holds: part(Holds { mechanisms: vec![hold] }),
            corun: part(corun()),
            conformance: part(Conformance { modes: vec![mode] }),
        };
        Report {
            format: FORMAT,
            about: "a report".into(),
            contains: vec!["versions".into()],
            left_out: vec!["names".into()],
            simulated: true,
            try_level2: true,
            short: true,
            complete: true,
            seconds: 12.5,
            holds: parts.holds(),
            parts,
        }
    }

    #[test]
    fn report_has_the_documented_fields() {
        let json = serde_json::to_value(example()).unwrap();
        let names = |value: &serde_json::Value| {
            value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        let top = "about complete contains format holds left_out parts seconds short simulated try_level2";
        assert_eq!(names(&json), top);
        assert_eq!(
            names(&json["parts"]),
            "calibration conformance corun devices doctor holds launch_path priority unit_masks versions window"
        );
        assert_eq!(names(&json["parts"]["doctor"]["result"]["findings"][0]), "about text verdict");
        assert_eq!(json["parts"]["doctor"]["result"]["findings"][0]["verdict"], "note");
    }

    #[test]
    fn evictions_are_summed_and_parts_judged() {
        let mut report = example();
        assert_eq!(report.holds, 47);
        assert!(report.parts.state().iter().all(|(_, good, _)| *good));
        report.parts.holds = Part { seconds: 0.0, skipped: Some("x".into()), error: None, result: None };
        assert!(report.parts.state().iter().all(|(_, good, _)| *good), "the part was not requested");
        assert_eq!(report.parts.holds(), 35);
        report.parts.window.error = Some("late".into());
        report.parts.devices.result = None;
        let state = report.parts.state();
        let bad: Vec<_> = state.iter().filter(|(_, good, _)| !good).map(|(name, ..)| *name).collect();
        assert_eq!(bad, ["devices", "window"]);
    }
}
