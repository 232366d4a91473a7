//! The device, its driver, and where HIP's runtime and the library are.

use super::{Report, Verdict};
use crate::run;
use hal_kfd::Kfd;
use hal_kfd::probe::{self, Choice, Facts};
use hal_kfd::topology::{self, Device};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A GPU of the topology.
#[derive(Debug)]
pub struct Gpu {
    /// The driver's number of it.
    pub gpu_id: u32,
    target: u64,
    device: Option<Device>,
    /// What holding is decided by.
    pub facts: Result<Facts, String>,
}

impl Gpu {
    /// Such as `gfx90a`.
    pub fn target(&self) -> String {
        target(self.target)
    }

    /// A number from its properties.
    pub fn property(&self, name: &str) -> Option<u64> {
        self.device.as_ref()?.property(name)
    }
}

/// What there is to see.
#[derive(Debug)]
pub struct Machine {
    /// Seen as a process sees it, in its root.
    of: Option<u32>,
    /// Whether the device can be opened, or why not; the device file is there.
    pub device: Result<(), io::Error>,
    /// The device is `gpu-sim`'s.
    pub simulated: bool,
    /// By their numbers.
    pub gpus: Vec<Gpu>,
    /// Files of HIP's runtime.
    pub runtimes: Vec<PathBuf>,
    library: Result<PathBuf, String>,
}

impl Machine {
    /// Looks, with the eyes of a process if one is named: it may be in a container, or on a simulated GPU.
    pub fn look(pid: Option<u32>) -> Self {
        let root = pid.map_or_else(|| PathBuf::from("/"), |pid| PathBuf::from(format!("/proc/{pid}/root")));
        let path = root.join("dev/kfd");
        let simulated = path.metadata().is_ok_and(|metadata| metadata.is_file());
        let (device, gpus) = match Kfd::open_at(&path) {
            Ok(kfd) => (Ok(()), gpus(&kfd, &root.join("sys"), simulated)),
            Err(error) => (Err(error), Vec::new()),
        };
        Self {
            of: pid,
            device,
            simulated,
            gpus,
            runtimes: runtimes(&root),
            library: run::library(None).map_err(|error| format!("{error:#}")),
        }
    }
}

fn gpus(kfd: &Kfd, sys: &Path, simulated: bool) -> Vec<Gpu> {
    let mut devices = topology::devices(&sys.join("class/kfd/kfd"));
    devices.sort_by_key(|device| device.gpu_id);
    let gpu = |device: Device| Gpu {
        gpu_id: device.gpu_id,
        target: device.property("gfx_target_version").unwrap_or(0),
        facts: Facts::read(kfd, sys, device.gpu_id, simulated).map_err(|errno| errno.to_string()),
        device: Some(device),
    };
    devices.into_iter().map(gpu).collect()
}

/// Files of HIP's runtime where it usually is, and where the environment says.
fn runtimes(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|list| std::env::split_paths(&list).collect())
        .unwrap_or_default();
    let opt = std::fs::read_dir(root.join("opt")).into_iter().flatten().flatten();
    let rocm = opt.filter(|entry| entry.file_name().to_string_lossy().starts_with("rocm"));
    folders.extend(rocm.map(|entry| entry.path().join("lib")));
    folders
        .extend(["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib"].map(|folder| root.join(folder)));
    let mut found = Vec::new();
    for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        // The file itself, whose name has the release, and not the links to it.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_string_lossy().starts_with("libamdhip64.so") {
            found.push(entry.path());
        }
    }
    found
}

/// `90010` is gfx90a: major, minor and stepping, the last two as hexadecimal digits.
fn target(version: u64) -> String {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

/// Says what there is.
pub fn judge(machine: &Machine, report: &mut Report) {
    let seen = machine.of.map_or(String::new(), |pid| format!(" as process {pid} sees it"));
    match &machine.device {
        Ok(()) => {
            let what = if machine.simulated { "a simulated one of gpu-sim" } else { "it can be opened" };
            report.add(Verdict::Good, "device", format!("/dev/kfd{seen}: {what}"));
        }
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::NotFound => {
                    "there is none: no AMD GPU, the driver amdgpu is not loaded, or a container does not pass the device on; \
                     `xcli run --gpu-sim` runs a program on a simulated GPU"
                        .to_owned()
                }
                ErrorKind::PermissionDenied => {
                    "it may not be opened: its user belongs to the groups render and video as a rule".to_owned()
                }
                _ => error.to_string(),
            };
            report.add(Verdict::Bad, "device", format!("/dev/kfd{seen}: {why}"));
        }
    }
    for gpu in &machine.gpus {
        judge_gpu(gpu, report);
    }
    if machine.device.is_ok() && machine.gpus.is_empty() {
        report.add(Verdict::Bad, "device", "the driver shows no GPU that may be used");
    }
    if machine.of.is_none() {
        match machine.runtimes.as_slice() {
            [] => report.add(
                Verdict::Note,
                "runtime",
                "no libamdhip64.so where it usually is; programs may bring their own, as PyTorch does",
            ),
            some => {
                let names: Vec<_> = some.iter().map(|path| path.display().to_string()).collect();
                report.add(Verdict::Good, "runtime", names.join(", "));
            }
        }
        match &machine.library {
            Ok(path) => {
                report.add(Verdict::Good, "library", format!("`xcli run` preloads {}", path.display()))
            }
            Err(why) => report.add(Verdict::Bad, "library", why.clone()),
        }
    }
}

fn judge_gpu(gpu: &Gpu, report: &mut Report) {
    let name = format!("GPU {} ({})", gpu.gpu_id, target(gpu.target));
    let facts = match &gpu.facts {
        Ok(facts) => facts,
        Err(why) => {
            return report.add(Verdict::Bad, "gpu", format!("{name}: the driver says nothing of it: {why}"));
        }
    };
    let (major, minor) = facts.version;
    let waves = match facts.cwsr {
        Some(true) => "running waves are saved",
        Some(false) => "running waves are not saved",
        None => "nothing says whether running waves are saved",
    };
    let known = format!("{name}: KFD {major}.{minor}, {}, {waves}", facts.scheduler);
    match probe::choose(Choice::Auto, facts, false) {
        Ok(kind) => {
            let trap = probe::choose(Choice::Only(hal_kfd::Kind::DebugTrap), facts, false);
            let trap = match trap {
                Ok(_) => "debug-trap as well".to_owned(),
                Err(refusal) => format!("not by debug-trap ({refusal})"),
            };
            report.add(
                Verdict::Good,
                "gpu",
                format!("{known}; level 3 is possible by {}, {trap}", kind.name()),
            );
        }
        Err(refusal) => report.add(Verdict::Note, "gpu", format!("{known}; level 1 only: {refusal}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal_kfd::probe::Scheduler;

    const GOOD: Facts = Facts {
        version: (1, 17),
        scheduler: Scheduler::Hws,
        cwsr: Some(true),
        debugger: true,
        simulated: false,
    };

    fn said(device: Result<(), io::Error>, facts: Vec<Facts>) -> (bool, String) {
        let gpus = facts
            .into_iter()
            .map(|facts| Gpu { gpu_id: 7, target: 90_010, device: None, facts: Ok(facts) })
            .collect();
        let (runtimes, library) = (Vec::new(), Ok("/x/libshimhip.so".into()));
        let machine = Machine { of: None, device, simulated: false, gpus, runtimes, library };
        let mut report = Report { ok: true, ..Report::default() };
        judge(&machine, &mut report);
        (report.is_ok(), report.text())
    }

    #[test]
    fn targets_have_their_names() {
        assert_eq!(
            [90_010, 90_402, 110_000, 120_001].map(target),
            ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
        );
    }

    #[test]
    fn a_device_that_is_not_there_is_bad_and_says_what_to_do() {
        let (ok, text) = said(Err(ErrorKind::NotFound.into()), vec![]);
        assert!(!ok && text.contains("--gpu-sim"), "{text}");
        let (ok, text) = said(Err(ErrorKind::PermissionDenied.into()), vec![]);
        assert!(!ok && text.contains("groups render"), "{text}");
        let (ok, text) = said(Ok(()), vec![]);
        assert!(!ok && text.contains("no GPU"), "{text}");
    }

    #[test]
    fn what_levels_need_is_said() {
        let (ok, text) = said(Ok(()), vec![GOOD]);
        assert!(ok && text.contains("level 3 is possible by update-queue, debug-trap as well"), "{text}");
        let (ok, text) = said(Ok(()), vec![Facts { debugger: false, ..GOOD }]);
        assert!(ok && text.contains("not by debug-trap (the device"), "{text}");
        let (ok, text) = said(Ok(()), vec![Facts { cwsr: Some(false), ..GOOD }]);
        assert!(ok && text.contains("level 1 only: the driver does not save"), "{text}");
    }
}
