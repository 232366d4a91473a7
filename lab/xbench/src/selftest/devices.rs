//! Reports the release of HIP and the devices that it sees.

use super::parent::Parent;
use super::worker::hip;
use anyhow::Result;
use protocol::report::{Device, Devices};

/// Measures in a worker, so that a runtime that aborts ends only the worker.
pub(super) fn measure(parent: &Parent) -> Result<Devices> {
    Ok(parent.worker("native", None)?.0)
}

pub(super) fn work() -> Result<Devices> {
    let hip = hip()?;
    let device = |ordinal| {
        let device = hip.device(ordinal)?;
        Ok(Device {
            name: device.name,
            arch: device.arch,
            compute_units: device.compute_units.into(),
            memory: device.memory,
        })
    };
    let devices: Result<Vec<Device>> = (0..hip.device_count()?).map(device).collect();
    Ok(Devices { runtime_version: hip.runtime_version()?.into(), devices: devices? })
}
