//! What this machine's driver can do, which mechanism is chosen, and what a hold costs here.
//!
//! Facts are read (version by ioctl, the rest from sysfs), the choice is pure, the cost is measured on an own queue that
//! is idle. The hazard that all of it is about: without CWSR a queue comes off only when its kernels have ended, and a
//! driver that waits for that too long resets the device for everybody (`amdgpu_drv.c`, `queue_preemption_timeout_ms`).

mod key;
mod trial;

pub use key::key;
pub use trial::{Trial, Verdict};

use std::fmt;
use std::path::Path;
use std::time::Duration;

use hip_sys::kfd::{GetQueueWaveState, GetVersion};

use crate::kernel::{Errno, Kernel, KernelExt as _};
use crate::mechanism::Kind;
use crate::registry::Registry;
use crate::topology::{self, Files};

/// The variable that says which mechanism is to be used.
pub const VARIABLE: &str = "XSCHED_KFD_MECHANISM";
/// The interface's version from which on a process can be debugged.
const DEBUGGER: (u32, u32) = (1, 13);
/// Holds and releases of a measurement.
const ROUNDS: usize = 8;
/// A single one that takes so many times what it may ends the measurement.
const ACCIDENT: u32 = 10;

/// What a user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Whatever works, update-queue first.
    #[default]
    Auto,
    /// This one or none.
    Only(Kind),
    /// None.
    Off,
}

/// Who decides on the device which queues run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// The hardware scheduler up to gfx10: every change stops all processes' queues on the device for a moment.
    Hws,
    /// That of gfx11 and newer: only the queue that changes is stopped.
    Mes,
    /// None (`sched_policy=2`): the driver itself. No debugger.
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

/// What is known of the driver and a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The interface's version.
    pub version: (u32, u32),
    /// Who schedules.
    pub scheduler: Scheduler,
    /// Whether running waves are saved; `None` if nothing says so.
    pub cwsr: Option<bool>,
    /// Whether the debugger's firmware and driver support is there (`capability`).
    pub debugger: bool,
    /// The driver is `gpu-sim`'s.
    pub simulated: bool,
}

/// Bits of sysfs's `capability`: a debugger can be attached; the firmware is new enough (`kfd_sysfs.h`).
const CAPABILITY_DEBUG: u64 = 1 << 15 | 1 << 29;
/// `gfx_target_version` of the first generation with MES.
const GFX11: u64 = 110_000;

impl Facts {
    /// Reads them for the device `gpu_id`; `sys` is `/sys`.
    ///
    /// # Errors
    /// The driver does not say its version, or the topology has no such device.
    pub fn read(kernel: &dyn Kernel, sys: &Path, gpu_id: u32, simulated: bool) -> Result<Self, Errno> {
        Self::read_in(kernel, &sys.to_path_buf(), Path::new(""), gpu_id, simulated)
    }

    /// The same, where these files are; `sys` is the path of `/sys` there.
    ///
    /// # Errors
    /// As [`read`](Self::read).
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
        })
    }
}

/// Why there is no holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is switched off.
    Off,
    /// Waves are not saved.
    NoCwsr,
    /// Nothing says whether they are.
    CwsrUnknown,
    /// The interface is too old for a debugger.
    TooOld(u32, u32),
    /// The debugger needs hardware scheduling.
    NoScheduler,
    /// The device or its firmware does not support a debugger.
    NoDebugger,
    /// A request failed while it was tried.
    Failed(Errno),
    /// It took longer than it may.
    TooSlow(Duration),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => write!(f, "{VARIABLE} is off"),
            Self::NoCwsr => f.write_str(
                "the driver does not save running waves (cwsr_enable=0): a queue would come off only when its kernels have \
                 ended, and if that takes too long the driver resets the GPU for every process",
            ),
            Self::CwsrUnknown => f.write_str("nothing says whether the driver saves running waves"),
            Self::TooOld(major, minor) => {
                write!(f, "debug-trap needs KFD {}.{}, and this is {major}.{minor}", DEBUGGER.0, DEBUGGER.1)
            }
            Self::NoScheduler => f.write_str("debug-trap needs hardware scheduling (sched_policy is 2)"),
            Self::NoDebugger => f.write_str("the device or its firmware does not support a debugger"),
            Self::Failed(errno) => write!(f, "a hold that was tried failed: {errno}"),
            Self::TooSlow(took) => write!(f, "a hold that was tried took {} µs", took.as_micros()),
        }
    }
}

/// Which mechanism is to be used. `drain` allows a simulated device that does not save waves; a real one is refused.
///
/// # Errors
/// Why none is.
pub fn choose(choice: Choice, facts: &Facts, drain: bool) -> Result<Kind, Refusal> {
    if choice == Choice::Off {
        return Err(Refusal::Off);
    }
    match facts.cwsr {
        Some(true) => {}
        _ if facts.simulated && drain => {}
        Some(false) => return Err(Refusal::NoCwsr),
        None => return Err(Refusal::CwsrUnknown),
    }
    if choice != Choice::Only(Kind::DebugTrap) {
        return Ok(Kind::UpdateQueue);
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
    Ok(Kind::DebugTrap)
}

/// What a hold and a release cost: the medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time of a hold.
    pub hold: Duration,
    /// Time of a release.
    pub release: Duration,
}

/// Holds and releases a queue of this process some times. (Beside others' work, or its own, that costs what the saving costs.) One
/// measurement at a time.
///
/// # Errors
/// A request failed; the queue took longer than `limit` to come off or go back, as a rule; or, with `cwsr`, the driver does not say what
/// the queue that is off has saved, so that it saves nothing. In all cases the queue is released, or
/// [`Registry::settle`] goes on.
pub fn measure(
    registry: &Registry,
    kernel: &dyn Kernel,
    queue: u32,
    limit: Duration,
    cwsr: bool,
) -> Result<Cost, Refusal> {
    let mut times = [Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS)];
    for _ in 0..ROUNDS {
        for (held, times) in [true, false].into_iter().zip(&mut times) {
            let outcome = registry.set_for_probe(queue, held);
            let verdict = match outcome.error {
                Some(errno) => Err(Refusal::Failed(errno)),
                // Once is an accident, on a busy machine; so long is none.
                None if outcome.took > limit * ACCIDENT => Err(Refusal::TooSlow(outcome.took)),
                None if held && cwsr => saves(registry, kernel, queue),
                None => Ok(()),
            };
            if let Err(refusal) = verdict {
                registry.set_for_probe(queue, false);
                return Err(refusal);
            }
            times.push(outcome.took);
        }
    }
    let [hold, release] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let longer = hold.max(release);
    if longer > limit { Err(Refusal::TooSlow(longer)) } else { Ok(Cost { hold, release }) }
}

/// Asks what a queue that is off has saved: the driver answers that only where it saves waves (`get_wave_state`).
///
/// # Errors
/// [`Refusal::NoCwsr`]: it saves none. [`Refusal::Failed`]: the request failed otherwise.
pub fn saves(registry: &Registry, kernel: &dyn Kernel, queue: u32) -> Result<(), Refusal> {
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
    use crate::fake::{Failure, FakeKernel};
    use hip_sys::kfd::{self, Ioctl as _, Plain as _};
    use std::sync::Arc;

    const GOOD: Facts = Facts {
        version: (1, 17),
        scheduler: Scheduler::Hws,
        cwsr: Some(true),
        debugger: true,
        simulated: false,
    };

    #[test]
    fn a_real_device_that_does_not_save_waves_is_refused_whatever_is_asked() {
        for choice in [Choice::Auto, Choice::Only(Kind::UpdateQueue), Choice::Only(Kind::DebugTrap)] {
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
    fn what_is_asked_for_is_chosen_if_it_works() {
        let trap = Choice::Only(Kind::DebugTrap);
        assert_eq!(choose(Choice::Off, &GOOD, true), Err(Refusal::Off));
        assert_eq!(choose(Choice::Auto, &GOOD, false), Ok(Kind::UpdateQueue));
        assert_eq!(choose(trap, &GOOD, false), Ok(Kind::DebugTrap));
        let cases = [
            (Facts { version: (1, 12), ..GOOD }, Refusal::TooOld(1, 12)),
            (Facts { scheduler: Scheduler::NoHws, ..GOOD }, Refusal::NoScheduler),
            (Facts { debugger: false, ..GOOD }, Refusal::NoDebugger),
        ];
        for (facts, refusal) in cases {
            assert_eq!(choose(trap, &facts, false), Err(refusal));
            assert_eq!(choose(Choice::Auto, &facts, false), Ok(Kind::UpdateQueue));
        }
    }

    #[test]
    fn facts_come_from_sysfs() {
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

    #[test]
    fn a_hold_is_measured_and_always_released() {
        let kernel = Arc::new(FakeKernel::default());
        let registry = Registry::new(kernel.clone(), Kind::UpdateQueue);
        let create = kfd::CreateQueue {
            queue_percentage: 100,
            queue_type: kfd::QUEUE_TYPE_COMPUTE_AQL,
            ctx_save_restore_address: 0x1000,
            ..Default::default()
        };
        let made = registry.intercept(&*kernel, kfd::CreateQueue::COMMAND, &mut create.as_bytes().to_vec());
        made.unwrap().unwrap();
        let long = Duration::from_secs(60);
        let cost = measure(&registry, &*kernel, 0, long, true).unwrap();
        assert!(!cost.hold.is_zero() && !cost.release.is_zero());
        assert_eq!(kernel.asked().iter().filter(|nr| **nr == 0x07).count(), 2 * ROUNDS);
        assert!(kernel.runs(0));
        assert!(matches!(measure(&registry, &*kernel, 0, Duration::ZERO, true), Err(Refusal::TooSlow(_))));
        assert!(kernel.runs(0));
        kernel.fail([None, Some(Failure { errno: libc::EINVAL, after: false })]);
        assert_eq!(measure(&registry, &*kernel, 0, long, true), Err(Refusal::NoCwsr));
        assert!(kernel.runs(0));
        kernel.fail([Some(Failure { errno: libc::EIO, after: false })]);
        assert_eq!(measure(&registry, &*kernel, 0, long, true), Err(Refusal::Failed(Errno(libc::EIO))));
        assert!(kernel.runs(0));
        // A user's hold is nothing that a measurement undoes.
        registry.suspend_for(1, Some(&[0])).unwrap();
        measure(&registry, &*kernel, 0, long, true).unwrap();
        assert!(!kernel.runs(0));
        assert!(matches!(measure(&registry, &*kernel, 5, long, true), Err(Refusal::Failed(_))));
    }
}
