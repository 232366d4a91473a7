//! The report's file, as data. Whoever reads one back gets the same values, and nothing that is not described here.

use protocol::report::{Conformance, Devices, Holds, Window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Raised with every change after which an older reader does not understand the file.
pub const FORMAT: u32 = 1;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// What this file is.
    pub about: String,
    /// What is in it, in words.
    pub contains: Vec<String>,
    /// What was left out.
    pub left_out: Vec<String>,
    /// Whether the GPU is `gpu-sim`'s: then no time in here is one of a GPU.
    pub simulated: bool,
    /// Whether queues might be taken off the hardware.
    pub try_level2: bool,
    /// Whether there were few repetitions.
    pub short: bool,
    /// Whether no part is missing or has an error.
    pub complete: bool,
    /// What all of it took.
    pub seconds: f64,
    /// How often the process's queues were taken off the hardware, the probe's own tries apart.
    pub holds: u64,
    /// The parts.
    pub parts: Parts,
}

/// The parts, in the order in which they are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Releases, driver and devices.
    pub versions: Part<Versions>,
    /// What `xcli doctor` finds.
    pub doctor: Part<Doctor>,
    /// What HIP says of the devices.
    pub devices: Part<Devices>,
    /// What the library adds to a launch.
    pub launch_path: Part<LaunchPath>,
    /// Work and suspensions with several windows.
    pub window: Part<Window>,
    /// Queues taken off the hardware.
    pub holds: Part<Holds>,
    /// Programs whose memory was compared.
    pub conformance: Part<Conformance>,
}

/// One part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part<T> {
    /// What it took.
    pub seconds: f64,
    /// Why it was not made, where nobody wanted it.
    pub skipped: Option<String>,
    /// Why it is missing, or what is wrong in it.
    pub error: Option<String>,
    /// What came of it.
    pub result: Option<T>,
}

/// Releases, driver and devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// Of giveway.
    pub giveway: String,
    /// The kernel's release.
    pub kernel: String,
    /// The machine's architecture.
    pub machine: String,
    /// `ID` of /etc/os-release.
    pub distribution: Option<String>,
    /// `VERSION_ID` of it.
    pub distribution_version: Option<String>,
    /// Names of the files of HIP's runtime that were found.
    pub runtimes: Vec<String>,
    /// The driver's interface, such as `1.14`.
    pub kfd: Option<String>,
    /// The release of an amdgpu that is not the kernel's own.
    pub amdgpu: Option<String>,
    /// Parameters of amdgpu that matter here.
    pub parameters: BTreeMap<String, String>,
    /// Variables of the environment that matter here.
    pub environment: BTreeMap<String, String>,
    /// Each GPU.
    pub gpus: Vec<Gpu>,
}

/// A GPU as the driver shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Such as `gfx90a`.
    pub target: String,
    /// Numbers out of the topology that matter here.
    pub properties: BTreeMap<String, u64>,
    /// Who schedules queues: HWS, MES, or nobody in hardware.
    pub scheduler: Option<String>,
    /// Whether running waves are saved; nothing if nothing says so.
    pub cwsr: Option<bool>,
    /// Whether the device and its firmware can be debugged.
    pub debugger: Option<bool>,
    /// Whether each mechanism would be tried ("yes"), or why not.
    pub mechanisms: BTreeMap<String, String>,
    /// Why nothing is known.
    pub error: Option<String>,
}

/// What `xcli doctor` finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doctor {
    /// Whether nothing is bad.
    pub ok: bool,
    /// Each finding.
    pub findings: Vec<Finding>,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// `good`, `note` or `bad`.
    pub verdict: String,
    /// What it is about.
    pub about: String,
    /// In words.
    pub text: String,
}

/// What `xbench launch-path` measures; of its JSON what is not in here is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchPath {
    /// Calls that the library counted on a runtime that does nothing.
    pub calls_counted: u64,
    /// The same on the machine's own HIP.
    pub real_calls_counted: Option<u64>,
    /// Medians over rounds that alternate.
    pub figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// For programs.
    pub name: String,
    /// For people.
    pub what: String,
    /// In the unit.
    pub value: f64,
    /// Empty for a ratio.
    pub unit: String,
}

impl<T> Part<T> {
    /// Whether it was made without an error, or nobody wanted it.
    fn is_good(&self) -> bool {
        self.error.is_none() && (self.result.is_some() || self.skipped.is_some())
    }
}

impl Parts {
    /// Each by its name in the file: whether it is good, and what is wrong with it.
    pub fn state(&self) -> [(&'static str, bool, Option<&str>); 7] {
        fn of<'a, T>(name: &'static str, part: &'a Part<T>) -> (&'static str, bool, Option<&'a str>) {
            (name, part.is_good(), part.error.as_deref())
        }
        [
            of("versions", &self.versions),
            of("doctor", &self.doctor),
            of("devices", &self.devices),
            of("launch_path", &self.launch_path),
            of("window", &self.window),
            of("holds", &self.holds),
            of("conformance", &self.conformance),
        ]
    }

    /// How often queues were held.
    pub fn holds(&self) -> u64 {
        let holds = self.holds.result.iter().flat_map(|holds| &holds.mechanisms).map(|row| row.holds);
        let modes = self.conformance.result.iter().flat_map(|made| &made.modes).map(|mode| mode.holds);
        holds.chain(modes).sum()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use protocol::report::{HoldRow, HoldTimes, Mode, Probe, Program, Spread, WindowRow};

    fn part<T>(result: T) -> Part<T> {
        Part { seconds: 0.25, skipped: None, error: None, result: Some(result) }
    }

    /// A report with something everywhere.
    pub fn example() -> Report {
        let spread = Spread { n: 4, min: 1.0, p50: 2.5, p90: 4.0, max: 4.0 };
        let times = HoldTimes { hold_us: spread, release_us: spread };
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
        let finding = Finding { verdict: "note".into(), about: "server".into(), text: "none".into() };
        let figure =
            Figure { name: "direct_native_ns".into(), what: "x".into(), value: 1.5, unit: "ns".into() };
        let row = WindowRow {
            kernel_us: 50,
            threshold: None,
            batch: None,
            kernels_per_s: 1.0,
            native_kernels_per_s: 2.0,
            idle_us: spread,
            in_flight: spread,
        };
        let hold = HoldRow {
            mechanism: "update-queue".into(),
            error: None,
            queues: 2,
            probe: Some(Probe { hold_us: 1, release_us: 2 }),
            idle: Some(times),
            busy: None,
            busy_kernel_us: 4000,
            stood: 3,
            interrupted: 3,
            holds: 12,
        };
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
            doctor: part(Doctor { ok: true, findings: vec![finding] }),
            devices: part(Devices { runtime_version: 5, devices: vec![] }),
            launch_path: part(LaunchPath {
                calls_counted: 7,
                real_calls_counted: None,
                figures: vec![figure],
            }),
            window: part(Window { rows: vec![row] }),
            holds: part(Holds { mechanisms: vec![hold] }),
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
    fn a_report_is_read_back_as_it_was() {
        let report = example();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let more = text.replacen("\"format\"", "\"host\": \"x\", \"format\"", 1);
        assert!(serde_json::from_str::<Report>(&more).is_err(), "nothing unknown is in it");
    }

    #[test]
    fn holds_are_summed_and_parts_judged() {
        let mut report = example();
        assert_eq!(report.holds, 42);
        assert!(report.parts.state().iter().all(|(_, good, _)| *good));
        report.parts.holds = Part { seconds: 0.0, skipped: Some("x".into()), error: None, result: None };
        assert!(report.parts.state().iter().all(|(_, good, _)| *good), "nobody wanted it");
        assert_eq!(report.parts.holds(), 30);
        report.parts.window.error = Some("late".into());
        report.parts.devices.result = None;
        let state = report.parts.state();
        let bad: Vec<_> = state.iter().filter(|(_, good, _)| !good).map(|(name, ..)| *name).collect();
        assert_eq!(bad, ["devices", "window"]);
    }
}
