//! The parts of a machine, made from the options of `gpu-sim run`.

use anyhow::Context as _;

use crate::control::{CuModel, Setup};
use crate::device::{self, Fcfs, Model, Shared};
use crate::kernels::Durations;
use crate::layout::MAX_GPUS;
use crate::machine::{Faults, Gpu, Settings};
use crate::topology::{ARCHS, Arch, GpuConfig, Part, gpu_ids};

/// The first minor number of render nodes.
const RENDER_MINOR: u32 = 128;

/// The parts of a machine, and the options with all defaults filled in.
#[derive(Debug)]
pub struct Plan {
    pub gpus: Vec<Gpu>,
    pub durations: Durations,
    pub settings: Settings,
    pub faults: Option<Faults>,
    pub setup: Setup,
}

impl Plan {
    /// Makes the parts for these options.
    ///
    /// # Errors
    /// The option that is invalid, and the reason.
    pub fn new(setup: &Setup) -> anyhow::Result<Self> {
        let count = setup.gpus.unwrap_or(1);
        anyhow::ensure!((1..=MAX_GPUS as u32).contains(&count), "--gpus takes 1 to {MAX_GPUS}, not {count}");
        let name = setup.arch.as_deref().unwrap_or(ARCHS[0].name);
        let known = || ARCHS.iter().map(|arch| arch.name).collect::<Vec<_>>().join(", ");
        let arch = Arch::find(name).with_context(|| {
            format!("--arch {name} is not a known device model; choose one of: {}", known())
        })?;
        let partitions = setup.partitions.unwrap_or(1);
        anyhow::ensure!(
            (1..=MAX_GPUS as u32 / count).contains(&partitions),
            "--gpus times --partitions is at most {MAX_GPUS}, not {count} times {partitions}"
        );
        let arch = match partitions {
            1 => arch,
            // The model lives as long as the process, like those of the table.
            of => &*Box::leak(Box::new(arch.partition(of).with_context(|| {
                format!("--partitions {of}: the compute dies of {name} cannot be divided by {of} (gfx942 and gfx950 have 8)")
            })?)),
        };
        let vram = setup.vram.unwrap_or(64);
        anyhow::ensure!((1..=1024).contains(&vram), "--vram takes 1 to 1024 GiB, not {vram}");
        let cu_model = setup.cu_model.unwrap_or(CuModel::Shared);
        let model = || -> Box<dyn Model> {
            match cu_model {
                CuModel::Fcfs => Box::new(Fcfs::new(device::slots(arch))),
                CuModel::Shared => Box::new(Shared::new(device::slots(arch))),
            }
        };
        let durations = setup.durations.as_deref().map(Durations::load).transpose();
        let durations = durations.context("--durations")?.unwrap_or_default();
        let parts = (0..count).flat_map(|device| {
            (0..partitions).map(move |partition| Part { device, partition, of: partitions })
        });
        let gpus = gpu_ids(std::process::id(), count * partitions)
            .zip(RENDER_MINOR..)
            .zip(parts)
            .map(|((gpu_id, render_minor), part)| {
                // Partitions divide the memory among them.
                let vram = (vram << 30) / u64::from(partitions);
                Gpu::new(GpuConfig { arch, gpu_id, vram, render_minor, part }, model())
            })
            .collect();
        let micros = |value: Option<u64>| value.unwrap_or(0).saturating_mul(1000);
        let default = Settings::default();
        let settings = Settings {
            save: micros(setup.save_us),
            restore: micros(setup.restore_us),
            cwsr: !setup.no_cwsr.unwrap_or(false),
            timeout: setup.preemption_timeout_ms.map_or(default.timeout, |ms| ms.saturating_mul(1_000_000)),
            stuck: setup.stuck_queue,
        };
        let faults = setup.fail_ioctls.as_deref().map(Faults::parse).transpose();
        let faults = faults.map_err(|why| anyhow::anyhow!("--fail-ioctls: {why}"))?;
        let setup = Setup {
            save_us: Some(setup.save_us.unwrap_or(0)),
            restore_us: Some(setup.restore_us.unwrap_or(0)),
            no_cwsr: Some(!settings.cwsr),
            preemption_timeout_ms: Some(settings.timeout / 1_000_000),
            gpus: Some(count),
            partitions: Some(partitions),
            arch: Some(arch.name.into()),
            vram: Some(vram),
            cu_model: Some(cu_model),
            ..setup.clone()
        };
        Ok(Self { gpus, durations, settings, faults, setup })
    }
}
