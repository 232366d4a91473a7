//! The power draw of devices, for policies with a power budget.

mod reader;

pub(crate) use reader::Reader;

use crate::core::DEVICES;
use protocol::ids::DeviceId;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Reads the power of a device.
pub trait PowerMeter: std::fmt::Debug {
    /// Returns the power in milliwatts, averaged over the interval of the meter, if it is known.
    fn read(&mut self, device: DeviceId) -> Option<u64>;
}

/// The amdgpu driver's sensors.
///
/// A KFD node's `drm_render_minor` leads to its render node, and that to the hwmon folder of the same device.
/// There `power1_average` has microwatts; drivers without an average have `power1_input` (Linux,
/// `Documentation/gpu/amdgpu/thermal.rst`).
#[derive(Debug)]
pub struct Hwmon {
    kfd: PathBuf,
    drm: PathBuf,
    /// The file of each device; none if it has no sensor.
    files: HashMap<DeviceId, Option<PathBuf>>,
}

impl Default for Hwmon {
    fn default() -> Self {
        Self::new("/sys/class/kfd/kfd/topology/nodes", "/sys/class/drm")
    }
}

impl Hwmon {
    /// The sensors below these folders of sysfs.
    pub fn new(kfd: impl Into<PathBuf>, drm: impl Into<PathBuf>) -> Self {
        Self { kfd: kfd.into(), drm: drm.into(), files: HashMap::new() }
    }

    fn find(&self, device: DeviceId) -> Option<PathBuf> {
        let mut nodes = fs::read_dir(&self.kfd).ok()?.filter_map(|node| Some(node.ok()?.path()));
        let node = nodes.find(|node| number(&node.join("gpu_id")) == Some(u64::from(device.0)))?;
        let properties = fs::read_to_string(node.join("properties")).ok()?;
        let minor = properties.lines().find_map(|line| line.strip_prefix("drm_render_minor "))?.trim();
        let sensors = self.drm.join(format!("renderD{minor}")).join("device/hwmon");
        let mut folders: Vec<_> =
            fs::read_dir(sensors).ok()?.filter_map(|folder| Some(folder.ok()?.path())).collect();
        folders.sort();
        let names = ["power1_average", "power1_input"];
        let files = folders.iter().flat_map(|folder| names.map(|name| folder.join(name)));
        files.into_iter().find(|file| number(file).is_some())
    }
}

impl PowerMeter for Hwmon {
    fn read(&mut self, device: DeviceId) -> Option<u64> {
        let file = match self.files.get(&device) {
            Some(file) => file.clone(),
            None => {
                let found = self.find(device);
                // Clients can name any number of devices.
                if self.files.len() >= DEVICES {
                    self.files.clear();
                }
                self.files.insert(device, found.clone());
                found
            }
        };
        number(&file?).map(|microwatts| microwatts / 1_000)
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn sensor_is_found_by_the_drivers_number() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        write(at("nodes/0/gpu_id"), "0\n");
        write(at("nodes/1/gpu_id"), "51234\n");
        write(at("nodes/1/properties"), "cpu_cores_count 0\ndrm_render_minor 128\nsimd_count 8\n");
        write(at("nodes/2/gpu_id"), "777\n");
        write(at("nodes/2/properties"), "drm_render_minor 129\n");
        write(at("drm/renderD128/device/hwmon/hwmon3/power1_average"), "173000000\n");
        write(at("drm/renderD129/device/hwmon/hwmon4/power1_input"), "20500000\n");
        let mut meter = Hwmon::new(at("nodes"), at("drm"));
        assert_eq!(meter.read(DeviceId(51_234)), Some(173_000));
        assert_eq!(meter.read(DeviceId(777)), Some(20_500));
        assert_eq!(meter.read(DeviceId(1)), None);
        // A sensor is read again each time, and a removed sensor has no value.
        write(at("drm/renderD128/device/hwmon/hwmon3/power1_average"), "1000\n");
        assert_eq!(meter.read(DeviceId(51_234)), Some(1));
        fs::remove_dir_all(at("drm")).unwrap();
        assert_eq!(meter.read(DeviceId(51_234)), None);
    }

    #[test]
    fn invented_devices_take_bounded_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut meter = Hwmon::new(folder.path(), folder.path());
        for device in 0..3 * DEVICES as u32 {
            assert_eq!(meter.read(DeviceId(device)), None);
            assert!(meter.files.len() <= DEVICES);
        }
    }
}
