//! Checks of the device, its driver, HIP's runtime, and the library.

use super::finding::{Findings, bad, good, note};
use super::system;
use crate::foreign;
use crate::run;
use crate::trial;
use anyhow::Context as _;
use hal_kfd::Kfd;
use hal_kfd::capabilities::{self, Choice, Facts};
use hal_kfd::topology::{self, Device, Files};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A GPU in the driver's topology.
#[derive(Debug)]
pub struct Gpu {
    /// The driver's number of the GPU.
    pub gpu_id: u32,
    target: u64,
    device: Option<Device>,
    /// The facts that decide which eviction mechanisms work.
    pub facts: Result<Facts, hal_kfd::Errno>,
}

impl Gpu {
    /// The name of the target, such as `gfx90a`.
    pub fn target(&self) -> String {
        target(self.target)
    }

    /// Returns a number of the topology's properties.
    pub fn property(&self, name: &str) -> Option<u64> {
        self.device.as_ref()?.property(name)
    }
}

/// The reason why the device cannot be opened.
#[derive(Debug)]
pub enum Closed {
    /// The root directory of the process cannot be entered.
    Root(io::Error),
    /// The device cannot be opened.
    Device(io::Error),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Root(error) | Self::Device(error)) = self;
        error.fmt(f)
    }
}

/// The facts about the machine.
#[derive(Debug)]
pub struct Machine {
    /// The process whose view this is, if not that of xcli.
    of: Option<u32>,
    /// Ok if xcli can open the device.
    pub device: Result<(), Closed>,
    /// True for a device of `gpu-sim`.
    pub simulated: bool,
    /// The GPUs, sorted by number.
    pub gpus: Vec<Gpu>,
    /// The files of HIP's runtime.
    pub runtimes: Vec<PathBuf>,
    library: anyhow::Result<PathBuf>,
}

impl Machine {
    /// Collects the facts, as a process sees them if one is named: it can be in a container, or on a
    /// simulated GPU.
    pub fn look(pid: Option<u32>) -> Self {
        let opened = match pid {
            None => Kfd::open().map(|kfd| (kfd, Kfd::is_simulated())).map_err(Closed::Device),
            Some(pid) => {
                foreign::kfd(pid).map_err(Closed::Root).and_then(|opened| opened.map_err(Closed::Device))
            }
        };
        let simulated = opened.as_ref().is_ok_and(|(_, simulated)| *simulated);
        let looked = opened.and_then(|(kfd, _)| match pid {
            None => Ok(gpus(&kfd, &PathBuf::from("/"), simulated)),
            Some(pid) => foreign::look(pid, move |root| gpus(&kfd, root, simulated)).map_err(Closed::Root),
        });
        let (device, gpus) = match looked {
            Ok(gpus) => (Ok(()), gpus),
            Err(closed) => (Err(closed), Vec::new()),
        };
        Self {
            of: pid,
            device,
            simulated,
            gpus,
            runtimes: if pid.is_none() { runtimes(Path::new("/")) } else { Vec::new() },
            library: library(pid.is_some()),
        }
    }
}

/// Finds the library that `xcli run` preloads, and tries to load it unless a process is checked.
fn library(of_process: bool) -> anyhow::Result<PathBuf> {
    let path = run::library(None)?;
    if !of_process {
        trial::load(&path).with_context(|| format!("{} cannot be loaded", path.display()))?;
    }
    Ok(path)
}

fn gpus(kfd: &Kfd, files: &dyn Files, simulated: bool) -> Vec<Gpu> {
    let mut devices = topology::devices_in(files, Path::new("sys/class/kfd/kfd"));
    devices.sort_by_key(|device| device.gpu_id);
    let facts = |id| Facts::read_in(kfd, files, Path::new("sys"), id, simulated);
    let gpu = |device: Device| Gpu {
        gpu_id: device.gpu_id,
        target: device.property("gfx_target_version").unwrap_or(0),
        facts: facts(device.gpu_id),
        device: Some(device),
    };
    devices.into_iter().map(gpu).collect()
}

/// Finds the files of HIP's runtime in the usual folders and in those of LD_LIBRARY_PATH.
fn runtimes(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|list| std::env::split_paths(&list).collect())
        .unwrap_or_default();
    let opt = std::fs::read_dir(root.join("opt")).into_iter().flatten().flatten();
    let rocm = opt.filter(|entry| entry.file_name().to_string_lossy().starts_with("rocm"));
    folders.extend(rocm.map(|entry| entry.path().join("lib")));
    folders
        .extend(["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib"].map(|folder| root.join(folder)));
    files(&folders)
}

/// Lists each file of a runtime once, although `/opt/rocm` is a link and folders can repeat.
fn files(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        // Only the file itself has the release in its name; links are skipped.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_string_lossy().starts_with("libamdhip64.so") {
            let path = entry.path();
            let path = path.canonicalize().unwrap_or(path);
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Formats a target version: `90010` is gfx90a (major, and minor and stepping as hexadecimal digits).
fn target(version: u64) -> String {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

/// Adds the findings about the machine. `group` is the group of the device's file.
pub fn judge(machine: &Machine, group: Option<&str>, findings: &mut Findings) {
    let seen = machine.of.map_or(String::new(), |pid| format!(" as process {pid} sees it"));
    let (verdict, what) = match (&machine.device, machine.of) {
        (Ok(()), _) => {
            let kind = if machine.simulated { "simulated by gpu-sim; " } else { "" };
            good(format!("{kind}xcli can open it"))
        }
        (Err(Closed::Root(error)), pid) => {
            let root = pid.map_or_else(|| "/".to_owned(), |pid| format!("/proc/{pid}/root"));
            note(format!(
                "unknown, because {root} cannot be entered ({error}); run xcli as the user of the process or as root"
            ))
        }
        (Err(Closed::Device(error)), pid) => match (error.kind(), pid) {
            (ErrorKind::NotFound, _) => bad(
                "missing: there is no AMD GPU, the driver amdgpu is not loaded, or the container does not have the device; \
                 `xcli run --gpu-sim` runs a program on a simulated GPU",
            ),
            (ErrorKind::PermissionDenied, None) => {
                bad(format!("permission denied: {}", system::access_advice(group)))
            }
            (ErrorKind::PermissionDenied, Some(_)) => {
                note("xcli has no permission to open it; whether the process has is unknown")
            }
            _ => bad(format!("xcli cannot open it: {error}")),
        },
    };
    findings.add("device", (verdict, format!("/dev/kfd{seen}: {what}")));
    for gpu in &machine.gpus {
        judge_gpu(gpu, findings);
    }
    if machine.device.is_ok() && machine.gpus.is_empty() {
        findings.add("device", bad("the driver lists no GPU that this user can use"));
    }
    if machine.of.is_none() {
        let names: Vec<_> = machine.runtimes.iter().map(|path| path.display().to_string()).collect();
        let runtime = match names.is_empty() {
            true => note(
                "no libamdhip64.so in the usual folders; some programs, such as PyTorch, bring their own",
            ),
            false => good(names.join(", ")),
        };
        findings.add("runtime", runtime);
        let library = match &machine.library {
            Ok(path) => good(format!("`xcli run` preloads {}", path.display())),
            Err(error) => bad(format!("{error:#}")),
        };
        findings.add("library", library);
    }
}

fn judge_gpu(gpu: &Gpu, findings: &mut Findings) {
    let name = format!("GPU {} ({})", gpu.gpu_id, target(gpu.target));
    let facts = match &gpu.facts {
        Ok(facts) => facts,
        Err(why) => {
            return findings.add("gpu", bad(format!("{name}: the driver does not describe it: {why}")));
        }
    };
    let (major, minor) = facts.version;
    let waves = match facts.cwsr {
        Some(true) => "running waves are saved",
        Some(false) => "running waves are not saved",
        None => "whether running waves are saved is unknown",
    };
    let known = format!("{name}: KFD {major}.{minor}, {}, {waves}", facts.scheduler);
    let judgment = match capabilities::choose(Choice::Auto, facts, false) {
        Ok(kind) => {
            let trap = capabilities::choose(Choice::Only(hal_kfd::MechanismKind::DebugTrap), facts, false);
            let trap = match trap {
                Ok(_) => "and by debug-trap".to_owned(),
                Err(refusal) => format!("not by debug-trap ({refusal})"),
            };
            good(format!("{known}; level 3 works by {}, {trap}", kind.name()))
        }
        // A simulated GPU may wait for its kernels, because no other program suffers.
        Err(refusal) => match capabilities::choose(Choice::Auto, facts, facts.simulated) {
            Ok(kind) => note(format!(
                "{known}; level 2 works by {}, which waits for running kernels (only because the GPU is simulated); level 3 does not: \
                 {refusal}",
                kind.name()
            )),
            Err(_) => note(format!("{known}; level 1 only: {refusal}")),
        },
    };
    findings.add("gpu", judgment);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal_kfd::capabilities::Scheduler;

    const GOOD: Facts = Facts {
        version: (1, 17),
        scheduler: Scheduler::Hws,
        cwsr: Some(true),
        debugger: true,
        simulated: false,
        units: None,
    };

    fn said(device: Result<(), Closed>, facts: Vec<Facts>) -> (bool, String) {
        said_of(None, device, facts)
    }

    fn said_of(of: Option<u32>, device: Result<(), Closed>, facts: Vec<Facts>) -> (bool, String) {
        let gpus = facts
            .into_iter()
            .map(|facts| Gpu { gpu_id: 7, target: 90_010, device: None, facts: Ok(facts) })
            .collect();
        let (runtimes, library) = (Vec::new(), Ok("/x/libshimhip.so".into()));
        let machine = Machine { of, device, simulated: false, gpus, runtimes, library };
        let mut findings = Findings::default();
        judge(&machine, Some("render"), &mut findings);
        (findings.ok, findings.text())
    }

    #[test]
    fn target_versions_are_formatted() {
        assert_eq!(
            [90_010, 90_402, 110_000, 120_001].map(target),
            ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
        );
    }

    #[test]
    fn missing_device_is_bad_with_advice() {
        let closed = |kind: ErrorKind| Err(Closed::Device(kind.into()));
        let (ok, text) = said(closed(ErrorKind::NotFound), vec![]);
        assert!(!ok && text.contains("--gpu-sim"), "{text}");
        let (ok, text) = said(closed(ErrorKind::PermissionDenied), vec![]);
        assert!(!ok && text.contains("group render: run `usermod -aG render USER`"), "{text}");
        let (ok, text) = said(Ok(()), vec![]);
        assert!(!ok && text.contains("no GPU"), "{text}");
    }

    /// The rights of xcli say nothing about those of the process.
    #[test]
    fn view_of_a_process_differs_from_that_of_xcli() {
        let denied = || ErrorKind::PermissionDenied.into();
        let (ok, text) = said_of(Some(42), Err(Closed::Device(denied())), vec![]);
        assert!(
            ok && text.contains("as process 42 sees it: xcli has no permission to open it; whether"),
            "{text}"
        );
        let (ok, text) = said_of(Some(42), Err(Closed::Root(denied())), vec![]);
        assert!(
            ok && text.contains("unknown, because /proc/42/root cannot be entered (permission denied"),
            "{text}"
        );
        let (ok, text) = said_of(Some(42), Ok(()), vec![GOOD]);
        assert!(ok && text.contains("as process 42 sees it: xcli can open it"), "{text}");
        // There is no such process.
        let machine = Machine::look(Some(u32::MAX));
        assert!(matches!(machine.device, Err(Closed::Root(_))), "{machine:?}");
    }

    #[test]
    fn runtime_with_two_paths_is_listed_once() {
        let folder = tempfile::tempdir().unwrap();
        let opt = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(opt("rocm-5.2.3/lib")).unwrap();
        std::os::unix::fs::symlink("rocm-5.2.3", opt("rocm")).unwrap();
        let file = opt("rocm-5.2.3/lib/libamdhip64.so.5.2");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("libamdhip64.so.5.2", opt("rocm-5.2.3/lib/libamdhip64.so")).unwrap();
        let folders = ["rocm/lib", "none", "rocm-5.2.3/lib", "rocm/lib"].map(opt);
        assert_eq!(files(&folders), [file.canonicalize().unwrap()]);
    }

    #[test]
    fn possible_level_depends_on_the_facts() {
        let (ok, text) = said(Ok(()), vec![GOOD]);
        assert!(ok && text.contains("level 3 works by update-queue, and by debug-trap"), "{text}");
        let (ok, text) = said(Ok(()), vec![Facts { debugger: false, ..GOOD }]);
        assert!(ok && text.contains("not by debug-trap (the device"), "{text}");
        let (ok, text) = said(Ok(()), vec![Facts { cwsr: Some(false), ..GOOD }]);
        assert!(ok && text.contains("level 1 only: the driver does not save"), "{text}");
        let simulated = Facts { cwsr: Some(false), simulated: true, ..GOOD };
        let (ok, text) = said(Ok(()), vec![simulated]);
        assert!(ok && text.contains("level 2 works by update-queue, which waits for"), "{text}");
        assert!(text.contains("level 3 does not: the driver does not save"), "{text}");
    }
}
