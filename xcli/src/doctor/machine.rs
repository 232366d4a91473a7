//! The device, its driver, and where HIP's runtime and the library are.

use super::{Report, Verdict, system};
use crate::foreign;
use crate::run;
use crate::trial;
use hal_kfd::Kfd;
use hal_kfd::probe::{self, Choice, Facts};
use hal_kfd::topology::{self, Device, Files};
use std::fmt;
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

/// Why the device is not open.
#[derive(Debug)]
pub enum Closed {
    /// The root directory of the process cannot be entered, so that nothing of what it sees is known.
    Root(io::Error),
    /// The device itself.
    Device(io::Error),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Root(error) | Self::Device(error)) = self;
        error.fmt(f)
    }
}

/// What there is to see.
#[derive(Debug)]
pub struct Machine {
    /// Seen as a process sees it, in its root.
    of: Option<u32>,
    /// Whether we can open the device, or why not.
    pub device: Result<(), Closed>,
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
            // Of a process it is not asked.
            runtimes: if pid.is_none() { runtimes(Path::new("/")) } else { Vec::new() },
            library: library(pid.is_some()),
        }
    }
}

/// The library that `xcli run` preloads. Of a process it is not asked, and nothing is tried.
fn library(of_process: bool) -> Result<PathBuf, String> {
    let path = run::library(None).map_err(|error| format!("{error:#}"))?;
    if !of_process {
        trial::load(&path).map_err(|why| format!("{} cannot be loaded: {why}", path.display()))?;
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
        facts: facts(device.gpu_id).map_err(|errno| errno.to_string()),
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
    files(&folders)
}

/// Each file of a runtime once, though `/opt/rocm` is a link and several variables name the same folder.
fn files(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        // The file itself, whose name has the release, and not the links to it.
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

/// `90010` is gfx90a: major, minor and stepping, the last two as hexadecimal digits.
fn target(version: u64) -> String {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

/// Says what there is; `group` is that of the device's file.
pub fn judge(machine: &Machine, group: Option<&str>, report: &mut Report) {
    let seen = machine.of.map_or(String::new(), |pid| format!(" as process {pid} sees it"));
    let (verdict, what) = match (&machine.device, machine.of) {
        (Ok(()), _) => {
            let kind = if machine.simulated { "a simulated one of gpu-sim; " } else { "" };
            (Verdict::Good, format!("{kind}xcli can open it"))
        }
        (Err(Closed::Root(error)), pid) => {
            let root = pid.map_or_else(|| "/".to_owned(), |pid| format!("/proc/{pid}/root"));
            (Verdict::Note, format!("not known, {root} cannot be entered ({error}); ask as its user or root"))
        }
        (Err(Closed::Device(error)), pid) => match (error.kind(), pid) {
            (ErrorKind::NotFound, _) => (
                Verdict::Bad,
                "there is none: no AMD GPU, the driver amdgpu is not loaded, or a container does not pass the device on; \
                 `xcli run --gpu-sim` runs a program on a simulated GPU"
                    .to_owned(),
            ),
            (ErrorKind::PermissionDenied, None) => (
                Verdict::Bad,
                format!("it may not be opened: {}", system::join(group)),
            ),
            (ErrorKind::PermissionDenied, Some(_)) => {
                (Verdict::Note, "xcli may not open it; whether the process may is not known".to_owned())
            }
            _ => (Verdict::Bad, format!("xcli cannot open it: {error}")),
        },
    };
    report.add(verdict, "device", format!("/dev/kfd{seen}: {what}"));
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
        // A simulated one may wait for its kernels: nobody else suffers if that takes long.
        Err(refusal) => match probe::choose(Choice::Auto, facts, facts.simulated) {
            Ok(kind) => report.add(
                Verdict::Note,
                "gpu",
                format!(
                    "{known}; level 2 is possible by {}, waiting for running kernels, because it is simulated; not level 3: \
                     {refusal}",
                    kind.name()
                ),
            ),
            Err(_) => report.add(Verdict::Note, "gpu", format!("{known}; level 1 only: {refusal}")),
        },
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
        let mut report = Report { ok: true, ..Report::default() };
        judge(&machine, Some("render"), &mut report);
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
        let closed = |kind: ErrorKind| Err(Closed::Device(kind.into()));
        let (ok, text) = said(closed(ErrorKind::NotFound), vec![]);
        assert!(!ok && text.contains("--gpu-sim"), "{text}");
        let (ok, text) = said(closed(ErrorKind::PermissionDenied), vec![]);
        assert!(!ok && text.contains("group render: `usermod -aG render USER`"), "{text}");
        let (ok, text) = said(Ok(()), vec![]);
        assert!(!ok && text.contains("no GPU"), "{text}");
    }

    /// What we may says nothing of what the process may.
    #[test]
    fn what_a_process_sees_is_told_from_what_we_may() {
        let denied = || ErrorKind::PermissionDenied.into();
        let (ok, text) = said_of(Some(42), Err(Closed::Device(denied())), vec![]);
        assert!(ok && text.contains("as process 42 sees it: xcli may not open it; whether"), "{text}");
        let (ok, text) = said_of(Some(42), Err(Closed::Root(denied())), vec![]);
        assert!(
            ok && text.contains("not known, /proc/42/root cannot be entered (permission denied"),
            "{text}"
        );
        let (ok, text) = said_of(Some(42), Ok(()), vec![GOOD]);
        assert!(ok && text.contains("as process 42 sees it: xcli can open it"), "{text}");
        // A root directory that is not there, and no device in one that is.
        let machine = Machine::look(Some(u32::MAX));
        assert!(matches!(machine.device, Err(Closed::Root(_))), "{machine:?}");
    }

    #[test]
    fn a_runtime_with_two_paths_is_one() {
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
    fn what_levels_need_is_said() {
        let (ok, text) = said(Ok(()), vec![GOOD]);
        assert!(ok && text.contains("level 3 is possible by update-queue, debug-trap as well"), "{text}");
        let (ok, text) = said(Ok(()), vec![Facts { debugger: false, ..GOOD }]);
        assert!(ok && text.contains("not by debug-trap (the device"), "{text}");
        let (ok, text) = said(Ok(()), vec![Facts { cwsr: Some(false), ..GOOD }]);
        assert!(ok && text.contains("level 1 only: the driver does not save"), "{text}");
        let simulated = Facts { cwsr: Some(false), simulated: true, ..GOOD };
        let (ok, text) = said(Ok(()), vec![simulated]);
        assert!(ok && text.contains("level 2 is possible by update-queue, waiting for"), "{text}");
        assert!(text.contains("not level 3: the driver does not save"), "{text}");
    }
}
