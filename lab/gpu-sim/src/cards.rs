//! The devices in sysfs outside the KFD: each PCI device with its DRM card and render node.
//!
//! AMD's tools find the PCI device from `/sys/class/drm/cardN` by the name of its folder, and match it with a
//! node of the KFD by location and unique id (`RocmSMI::DiscoverAmdgpuDevices` and `ConstructBDFID` of
//! rocm_smi_lib, 5.2.3 and 7.2). The attributes are the constant ones of the driver (`amdgpu_device.c`,
//! `amdgpu_vram_mgr.c` and `amdgpu_pm.c` of Linux 6.12) and of the PCI core. Sensors, clocks and memory in
//! use are missing, as in a driver that does not support them.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::topology::{GpuConfig, Part, VENDOR};

/// The folder of the simulated PCI bus in `/sys/devices`.
pub const BUS: &str = "pci0000:64";

/// Returns the PCI address of a device, as sysfs names its folder. The domain is 0; the rest is `location_id`
/// of the KFD.
fn address(part: Part) -> String {
    let location = part.address();
    format!("0000:{:02x}:{:02x}.{:x}", location >> 8 & 0xff, location >> 3 & 0x1f, location & 7)
}

/// Writes the devices below `devices` (`/sys/devices`), and the links to them below `drm` (`/sys/class/drm`).
/// Both folders exist; the bus and the links do not. Only the first partition of a device has a PCI device.
pub fn write(devices: &Path, drm: &Path, gpus: &[GpuConfig]) -> io::Result<()> {
    std::fs::write(drm.join("version"), "drm 1.1.0 20060810\n")?;
    for gpu in gpus.iter().filter(|gpu| gpu.part.partition == 0) {
        let address = address(gpu.part);
        let vram = gpu.vram * u64::from(gpu.part.of);
        let device = devices.join(BUS).join(&address);
        std::fs::create_dir_all(device.join("drm"))?;
        let arch = gpu.arch;
        let attributes = [
            ("vendor", format!("{VENDOR:#06x}")),
            ("device", format!("{:#06x}", arch.device_id)),
            ("subsystem_vendor", format!("{VENDOR:#06x}")),
            ("subsystem_device", format!("{:#06x}", arch.device_id)),
            ("revision", format!("{:#04x}", arch.pci_revision)),
            // A processing accelerator.
            ("class", "0x120000".to_owned()),
            ("enable", "1".to_owned()),
            ("numa_node", "-1".to_owned()),
            ("unique_id", format!("{:016x}", gpu.part.unique_id())),
            // The library of ROCm 5 recognises the driver by the existence of this file.
            ("vbios_version", "113-SIMULATED-000".to_owned()),
            ("mem_info_vram_total", vram.to_string()),
            ("mem_info_vis_vram_total", vram.to_string()),
            (
                "uevent",
                format!("DRIVER=amdgpu\nPCI_ID={VENDOR:04X}:{:04X}\nPCI_SLOT_NAME={address}", arch.device_id),
            ),
        ];
        for (name, value) in attributes {
            std::fs::write(device.join(name), value + "\n")?;
        }
        for minor in [format!("card{}", gpu.part.device), format!("renderD{}", gpu.render_minor)] {
            let folder = device.join("drm").join(&minor);
            std::fs::create_dir(&folder)?;
            symlink(format!("../../../{address}"), folder.join("device"))?;
            std::fs::write(folder.join("uevent"), format!("DEVNAME=dri/{minor}\nDEVTYPE=drm_minor\n"))?;
            symlink(format!("../../devices/{BUS}/{address}/drm/{minor}"), drm.join(minor))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_links_lead_to_pci_device_and_render_node() {
        let sys = tempfile::tempdir().unwrap();
        let at = |path: &str| sys.path().join(path);
        std::fs::create_dir_all(at("class/drm")).unwrap();
        std::fs::create_dir(at("devices")).unwrap();
        let gpu = GpuConfig::example("gfx90a");
        let gpus = [gpu, GpuConfig { gpu_id: 10, render_minor: 129, part: Part::whole(1), ..gpu }];
        write(&at("devices"), &at("class/drm"), &gpus).unwrap();
        let read = |path: &str| std::fs::read_to_string(at(path)).unwrap();
        assert_eq!(read("class/drm/card1/device/vendor"), "0x1002\n");
        assert_eq!(read("class/drm/renderD129/device/mem_info_vram_total"), "68719476736\n");
        let card = std::fs::canonicalize(at("class/drm/card1/device")).unwrap();
        assert_eq!(card, std::fs::canonicalize(at("class/drm/renderD129/device")).unwrap());
        assert!(card.ends_with("pci0000:64/0000:65:00.0"), "{card:?}");
        assert!(card.join("drm/renderD129").is_dir());
        assert_ne!(read("class/drm/card0/device/unique_id"), read("class/drm/card1/device/unique_id"));
    }
}
