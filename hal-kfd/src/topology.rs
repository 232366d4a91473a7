//! The devices as the driver describes them in sysfs (`kfd_topology.c`): a folder for each node, with
//! `gpu_id` and `properties`. Processors are nodes as well, and GPUs that a control group withholds from a
//! process look like processors.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The PCI address of a device; as text `DDDD:BB:DD.F`, hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pci {
    /// The domain; 0 if the driver is too old to report it.
    pub domain: u32,
    /// The bus, 0 to 255.
    pub bus: u32,
    /// The device, 0 to 31.
    pub device: u32,
    /// The function, 0 to 7.
    pub function: u32,
}

impl fmt::Display for Pci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    node: u32,
    /// The driver's number for the GPU, never 0.
    pub gpu_id: u32,
    properties: String,
}

impl Device {
    /// Makes a device with these properties.
    #[cfg(test)]
    pub(crate) fn with_properties(gpu_id: u32, properties: &str) -> Self {
        Self { node: 1, gpu_id, properties: properties.to_owned() }
    }

    /// Returns a number from its properties.
    pub fn property(&self, name: &str) -> Option<u64> {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        self.properties.lines().find_map(value)
    }

    /// Returns the PCI address. In `location_id`, newer drivers store the partition above the 16 bits of bus,
    /// device and function.
    pub fn pci(&self) -> Option<Pci> {
        let at = self.property("location_id")?;
        let bits = |shift: u32, mask: u64| (at >> shift & mask) as u32;
        let domain = self.property("domain").and_then(|domain| domain.try_into().ok()).unwrap_or(0);
        Some(Pci { domain, bus: bits(8, 0xff), device: bits(3, 0x1f), function: bits(0, 7) })
    }
}

/// Reads the driver's files: below a folder of this process, or as another process sees them, which are not
/// trusted.
///
/// ```
/// use hal_kfd::topology::{Files, devices_in};
/// use std::{io, path::Path};
///
/// /// A machine with one GPU, without a file on a disk.
/// struct OneGpu;
///
/// impl Files for OneGpu {
///     fn text(&self, path: &Path) -> io::Result<String> {
///         match path.to_str() {
///             Some("kfd/topology/nodes/1/gpu_id") => Ok("4711\n".to_owned()),
///             Some("kfd/topology/nodes/1/properties") => Ok("simd_count 416\n".to_owned()),
///             _ => Err(io::ErrorKind::NotFound.into()),
///         }
///     }
///
///     fn names(&self, _: &Path) -> io::Result<Vec<String>> {
///         Ok(vec!["1".to_owned()])
///     }
/// }
///
/// let devices = devices_in(&OneGpu, Path::new("kfd"));
/// assert_eq!((devices[0].gpu_id, devices[0].property("simd_count")), (4711, Some(416)));
/// ```
pub trait Files {
    /// Returns the contents of a file.
    ///
    /// # Errors
    /// The file does not exist or cannot be read.
    fn text(&self, path: &Path) -> io::Result<String>;

    /// Returns the names in a folder.
    ///
    /// # Errors
    /// The folder does not exist or cannot be read.
    fn names(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// Reads below a trusted folder.
impl Files for PathBuf {
    fn text(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(self.join(path))
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        Ok(fs::read_dir(self.join(path))?.flatten().filter_map(name).collect())
    }
}

/// Returns the GPUs in the order of their nodes; `kfd` is `/sys/class/kfd/kfd`. Empty if it cannot be read.
pub fn devices(kfd: &Path) -> Vec<Device> {
    devices_in(&kfd.to_path_buf(), Path::new(""))
}

/// Returns the GPUs that other files describe.
pub fn devices_in(files: &dyn Files, kfd: &Path) -> Vec<Device> {
    let nodes = kfd.join("topology/nodes");
    let mut found: Vec<Device> = files
        .names(&nodes)
        .into_iter()
        .flatten()
        .filter_map(|name| {
            let node = name.parse().ok()?;
            let gpu_id = files.text(&nodes.join(&name).join("gpu_id")).ok()?.trim().parse().ok()?;
            let properties = files.text(&nodes.join(&name).join("properties")).ok()?;
            (gpu_id != 0).then_some(Device { node, gpu_id, properties })
        })
        .collect();
    found.sort_by_key(|device| device.node);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topology_is_read_in_node_order() {
        let kfd = tempfile::tempdir().unwrap();
        let put = |node: &str, id: &str, properties: &str| {
            let path = kfd.path().join("topology/nodes").join(node);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("gpu_id"), id).unwrap();
            fs::write(path.join("properties"), properties).unwrap();
        };
        put("0", "0\n", "simd_count 0\nlocation_id 0\ndomain 0\n");
        put("10", "77\n", "location_id 50049\ndomain 2\n");
        put("2", "76\n", "simd_count 416\nlocation_id 805331970\nlocation_id_else 1\n");
        put("3", "75\n", "location\nlocation_id x\n");
        put("x", "74\n", "location_id 1\n");
        let found = devices(kfd.path());
        let seen: Vec<_> =
            found.iter().map(|device| (device.gpu_id, device.pci().map(|pci| pci.to_string()))).collect();
        // The partition in the upper bits is no part of the address.
        assert_eq!(seen, [(76, Some("0000:64:00.2".into())), (75, None), (77, Some("0002:c3:10.1".into()))]);
        assert_eq!((found[0].property("simd_count"), found[0].property("simd")), (Some(416), None));
        assert_eq!(devices(&kfd.path().join("none")), []);
    }
}
