//! The machine's own GPU, as each figure from it is published with it.

use crate::hip::Hip;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The title of a simulated GPU.
pub(crate) const SIMULATED: &str = "simulated GPU";

/// A GPU and what drives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// Its name and target; `simulated GPU` under gpu-sim.
    pub(crate) title: String,
    pub(crate) compute_units: u32,
    /// The device memory in bytes.
    pub(crate) memory: u64,
    /// The highest clock of the compute units in MHz; 0 where it is not known.
    pub(crate) clock_mhz: u32,
    /// The highest clock of the memory in MHz; 0 where it is not known.
    pub(crate) memory_clock_mhz: u32,
    /// The release of the HIP runtime, such as 60443484.
    pub(crate) runtime_version: i32,
    /// The kernel's driver, with its version.
    pub(crate) driver: String,
}

impl Card {
    /// Returns the first GPU of this process.
    pub(crate) fn of(hip: &Hip) -> Result<Self> {
        let device = hip.device(0)?;
        let simulated = std::env::var_os("GPU_SIM_PID").is_some();
        Ok(Self {
            title: if simulated { SIMULATED.to_owned() } else { device.title() },
            compute_units: device.compute_units,
            memory: device.memory,
            clock_mhz: device.clock_mhz,
            memory_clock_mhz: device.memory_clock_mhz,
            runtime_version: hip.runtime_version()?,
            driver: driver(|path| std::fs::read_to_string(path).ok()),
        })
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = |mhz: u32| if mhz == 0 { "unknown".to_owned() } else { format!("{mhz} MHz") };
        write!(
            f,
            "{}, {} compute units (highest clock {}), {} GiB of memory ({}), HIP {}, driver {}",
            self.title,
            self.compute_units,
            clock(self.clock_mhz),
            self.memory >> 30,
            clock(self.memory_clock_mhz),
            self.runtime_version,
            self.driver
        )
    }
}

/// Returns the driver's name and version. amdgpu has a version of its own only where AMD's package built it; the driver of
/// the kernel has the kernel's.
fn driver(read: impl Fn(&str) -> Option<String>) -> String {
    let word = |text: String| text.trim().to_owned();
    if let Some(version) = read("/sys/module/nvidia/version").map(word) {
        return format!("nvidia {version}");
    }
    if let Some(version) = read("/sys/module/amdgpu/version").map(word) {
        return format!("amdgpu {version}");
    }
    let release = read("/proc/sys/kernel/osrelease").map_or_else(|| "unknown".to_owned(), word);
    match read("/sys/module/amdgpu/initstate") {
        Some(_) => format!("amdgpu of Linux {release}"),
        None => format!("unknown, Linux {release}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn card() -> Card {
        Card {
            title: "Card (gfx90a)".into(),
            compute_units: 104,
            memory: 64 << 30,
            clock_mhz: 1700,
            memory_clock_mhz: 1600,
            runtime_version: 50_221_153,
            driver: "amdgpu 6.8".into(),
        }
    }

    #[test]
    fn driver_has_its_own_version_or_the_kernels() {
        let of = |files: &[(&str, &str)]| {
            driver(|path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned()))
        };
        let kernel = ("/proc/sys/kernel/osrelease", "6.8.0\n");
        assert_eq!(of(&[("/sys/module/amdgpu/version", "6.12.12\n"), kernel]), "amdgpu 6.12.12");
        assert_eq!(of(&[("/sys/module/nvidia/version", "580.1\n"), kernel]), "nvidia 580.1");
        assert_eq!(of(&[("/sys/module/amdgpu/initstate", "live\n"), kernel]), "amdgpu of Linux 6.8.0");
        assert_eq!(of(&[kernel]), "unknown, Linux 6.8.0");
    }
}
