//! The features of this machine's driver, and the choice of a mechanism.
//!
//! Facts are read: the version by ioctl, the rest from sysfs. The choice is pure. It avoids one hazard:
//! without CWSR the driver can evict a queue only once its kernels have ended, and a driver that waits too
//! long for that resets the device for every process (`amdgpu_drv.c`, `queue_preemption_timeout_ms`).

use std::fmt;
use std::path::Path;
use std::time::Duration;

use hip_sys::kfd::{GetQueueWaveState, GetVersion};

use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::mechanism::MechanismKind;
use crate::registry::Registry;
use crate::topology::{self, Files};
use crate::units::Units;

/// The environment variable with the choice of a mechanism.
pub const VARIABLE: &str = "XSCHED_KFD_MECHANISM";
/// The first version of the interface with a debugger.
const DEBUGGER: (u32, u32) = (1, 13);

/// The choice of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The first mechanism that works, beginning with update-queue.
    #[default]
    Auto,
    /// This mechanism or none.
    Only(MechanismKind),
    /// No mechanism.
    Off,
}

/// The scheduler of queues on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// The hardware scheduler up to gfx10: every change stops the queues of all processes on the device for a
    /// moment.
    Hws,
    /// The hardware scheduler from gfx11 on: only the queue that changes is stopped.
    Mes,
    /// The driver itself (`sched_policy=2`), without a debugger.
    NoHws,
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hws => "HWS",
            Self::Mes => "MES",
            Self::NoHws => "no hardware scheduling",
        })
    }
}

/// The facts about the driver and a device that decide on a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The version of the interface.
    pub version: (u32, u32),
    /// The scheduler.
    pub scheduler: Scheduler,
    /// True if running waves are saved (CWSR); `None` if the driver does not say.
    pub cwsr: Option<bool>,
    /// True if firmware and driver support a debugger (`capability`).
    pub debugger: bool,
    /// True if the driver is that of `gpu-sim`.
    pub simulated: bool,
    /// The compute units, if the driver reports them.
    pub units: Option<Units>,
}

/// The bits of `capability` in sysfs: a debugger can attach, and the firmware is new enough (`kfd_sysfs.h`).
const CAPABILITY_DEBUG: u64 = 1 << 15 | 1 << 29;
/// `gfx_target_version` of the first generation with MES.
const GFX11: u64 = 110_000;

impl Facts {
    /// Reads the facts for the device `gpu_id`; `sys` is `/sys`.
    ///
    /// # Errors
    /// The driver does not report its version, or the topology has no such device.
    pub fn read(kernel: &dyn Kernel, sys: &Path, gpu_id: u32, simulated: bool) -> Result<Self, Errno> {
        Self::read_in(kernel, &sys.to_path_buf(), Path::new(""), gpu_id, simulated)
    }

    /// Reads the facts from other files; `sys` is the path of `/sys` among them.
    ///
    /// # Errors
    /// The same as for [`read`](Self::read).
    pub fn read_in(
        kernel: &dyn Kernel,
        files: &dyn Files,
        sys: &Path,
        gpu_id: u32,
        simulated: bool,
    ) -> Result<Self, Errno> {
        let mut version = GetVersion::default();
        kernel.call(&mut version)?;
        let device = topology::devices_in(files, &sys.join("class/kfd/kfd"))
            .into_iter()
            .find(|device| device.gpu_id == gpu_id)
            .ok_or(Errno(libc::ENODEV))?;
        let parameter = |name: &str| {
            let path = sys.join("module/amdgpu/parameters").join(name);
            files.text(&path).ok()?.trim().parse::<i64>().ok()
        };
        let scheduler = match (parameter("sched_policy"), device.property("gfx_target_version")) {
            (Some(2), _) => Scheduler::NoHws,
            (_, Some(GFX11..)) => Scheduler::Mes,
            _ => Scheduler::Hws,
        };
        Ok(Self {
            version: (version.major, version.minor),
            scheduler,
            cwsr: parameter("cwsr_enable").map(|value| value != 0),
            debugger: device
                .property("capability")
                .is_some_and(|bits| bits & CAPABILITY_DEBUG == CAPABILITY_DEBUG),
            simulated,
            units: Units::of(&device),
        })
    }
}

/// The reason why queues are not evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The user has switched it off.
    Off,
    /// The driver does not save waves.
    NoCwsr,
    /// The driver does not say that it saves waves.
    CwsrUnknown,
    /// The interface is too old for a debugger.
    TooOld(u32, u32),
    /// The debugger needs hardware scheduling.
    NoScheduler,
    /// The device or its firmware does not support a debugger.
    NoDebugger,
    /// A request failed in a measurement.
    Failed(Errno),
    /// An eviction or a restoration took longer than the limit.
    TooSlow(Duration),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "{VARIABLE} is off"),
            Self::NoCwsr => f.write_str(
                "the driver does not save running waves (cwsr_enable=0): it could evict a queue only once its kernels have ended, \
                 and if that takes too long it resets the GPU for every process",
            ),
            Self::CwsrUnknown => f.write_str("the driver does not say that it saves running waves (cwsr_enable)"),
            Self::TooOld(major, minor) => {
                write!(f, "debug-trap needs KFD {}.{}, and this is {major}.{minor}", DEBUGGER.0, DEBUGGER.1)
            }
            Self::NoScheduler => f.write_str("debug-trap needs hardware scheduling (sched_policy is 2)"),
            Self::NoDebugger => f.write_str("the device or its firmware does not support a debugger"),
            Self::Failed(errno) => write!(f, "a trial eviction failed: {errno}"),
            Self::TooSlow(took) => write!(f, "a trial eviction took {} µs, which is too long", took.as_micros()),
        }
    }
}

/// Chooses a mechanism. `drain` allows a simulated device that does not save waves; a real one is refused.
///
/// # Errors
/// The reason why no mechanism can be used.
pub fn choose(choice: Choice, facts: &Facts, drain: bool) -> Result<MechanismKind, Refusal> {
    if choice == Choice::Off {
        return Err(Refusal::Off);
    }
    match facts.cwsr {
        Some(true) => {}
        _ if facts.simulated && drain => {}
        Some(false) => return Err(Refusal::NoCwsr),
        None => return Err(Refusal::CwsrUnknown),
    }
    if choice != Choice::Only(MechanismKind::DebugTrap) {
        return Ok(MechanismKind::UpdateQueue);
    }
    if facts.version < DEBUGGER {
        return Err(Refusal::TooOld(facts.version.0, facts.version.1));
    }
    if facts.scheduler == Scheduler::NoHws {
        return Err(Refusal::NoScheduler);
    }
    if !facts.debugger {
        return Err(Refusal::NoDebugger);
    }
    Ok(MechanismKind::DebugTrap)
}

/// Checks that the driver saves waves, by the saved state of an evicted queue: the driver returns it only
/// where it saves waves (`get_wave_state`).
///
/// # Errors
/// [`Refusal::NoCwsr`]: it does not save waves. [`Refusal::Failed`]: the request failed with another error.
pub fn check_saves_waves(registry: &Registry, kernel: &dyn Kernel, queue: u32) -> Result<(), Refusal> {
    let area = registry.queues().into_iter().find(|other| other.id == queue).map(|queue| queue.save_area);
    let Some(ctl_stack_address) = area.filter(|area| *area != 0) else { return Ok(()) };
    let mut state = GetQueueWaveState { ctl_stack_address, queue_id: queue, ..Default::default() };
    match kernel.call(&mut state) {
        Err(Errno(libc::EINVAL)) => Err(Refusal::NoCwsr),
        Err(errno) => Err(Refusal::Failed(errno)),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FACTS as GOOD, FakeKernel};

    #[test]
    fn real_device_without_cwsr_is_refused_for_every_choice() {
        for choice in
            [Choice::Auto, Choice::Only(MechanismKind::UpdateQueue), Choice::Only(MechanismKind::DebugTrap)]
        {
            for drain in [false, true] {
                let no = Facts { cwsr: Some(false), ..GOOD };
                assert_eq!(choose(choice, &no, drain), Err(Refusal::NoCwsr));
                assert_eq!(choose(choice, &Facts { cwsr: None, ..GOOD }, drain), Err(Refusal::CwsrUnknown));
            }
            let simulated = Facts { cwsr: Some(false), simulated: true, ..GOOD };
            assert_eq!(choose(choice, &simulated, false), Err(Refusal::NoCwsr));
            assert!(choose(choice, &simulated, true).is_ok());
        }
        assert!(Refusal::NoCwsr.to_string().contains("resets the GPU"));
    }

    #[test]
    fn requested_mechanism_is_chosen_if_supported() {
        let trap = Choice::Only(MechanismKind::DebugTrap);
        assert_eq!(choose(Choice::Off, &GOOD, true), Err(Refusal::Off));
        assert_eq!(choose(Choice::Auto, &GOOD, false), Ok(MechanismKind::UpdateQueue));
        assert_eq!(choose(trap, &GOOD, false), Ok(MechanismKind::DebugTrap));
        let cases = [
            (Facts { version: (1, 12), ..GOOD }, Refusal::TooOld(1, 12)),
            (Facts { scheduler: Scheduler::NoHws, ..GOOD }, Refusal::NoScheduler),
            (Facts { debugger: false, ..GOOD }, Refusal::NoDebugger),
        ];
        for (facts, refusal) in cases {
            assert_eq!(choose(trap, &facts, false), Err(refusal));
            assert_eq!(choose(Choice::Auto, &facts, false), Ok(MechanismKind::UpdateQueue));
        }
    }

    #[test]
    fn facts_are_read_from_sysfs() {
        let sys = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let kernel = FakeKernel::default();
        let read = |id: u32| Facts::read(&kernel, sys.path(), id, false);
        assert_eq!(read(9), Err(Errno(libc::ENODEV)));
        put("class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
        put("class/kfd/kfd/topology/nodes/1/gpu_id", "9\n");
        put(
            "class/kfd/kfd/topology/nodes/1/properties",
            "simd_count 416\ngfx_target_version 90010\ncapability 746037888\n",
        );
        let facts = read(9).unwrap();
        assert_eq!((facts.scheduler, facts.cwsr, facts.debugger), (Scheduler::Hws, None, true));
        put("module/amdgpu/parameters/cwsr_enable", "1\n");
        put("class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 110000\ncapability 32768\n");
        let facts = read(9).unwrap();
        assert_eq!((facts.scheduler, facts.cwsr, facts.debugger), (Scheduler::Mes, Some(true), false));
        put("module/amdgpu/parameters/sched_policy", "2\n");
        assert_eq!(read(9).unwrap().scheduler, Scheduler::NoHws);
    }
}
