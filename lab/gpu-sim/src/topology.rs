//! The simulated device models, and their description in the KFD's sysfs.
//!
//! The numbers are those of a real MI210 (gfx90a), MI300X (gfx942), MI355X (gfx950) and RX 7900 XTX
//! (gfx1100). ROCr 5 reads `/sys/class/kfd`, newer versions `/sys/devices/virtual/kfd`.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use hip_sys::kfd::debug::DeviceEntry;

/// A device model. HIP 5.2 knows the first, HIP 7.2 all of them, HIP 6.4 all but gfx950.
#[derive(Clone, Copy, Debug)]
pub struct Arch {
    /// The compiler's name, which `--arch` takes.
    pub name: &'static str,
    /// `gfx_target_version` of sysfs.
    pub version: u32,
    pub device_id: u32,
    simd_count: u32,
    pub array_count: u32,
    pub cu_per_simd_array: u32,
    simd_per_cu: u32,
    pub wave_front_size: u32,
    max_waves_per_simd: u32,
    /// Local data share of a compute unit, KiB.
    lds_kib: u32,
    pub arrays_per_engine: u32,
    xcc_count: u32,
    cp_queues: u32,
    firmware: u32,
    sdma_firmware: u32,
    /// `AMDGPU_FAMILY_` of the driver.
    pub family_id: u32,
    kernel_name: &'static str,
    /// True if MES schedules queues (gfx11 and newer), false for HWS.
    pub mes: bool,
    /// `debug_prop` of sysfs: the address bits that a watchpoint masks, and a flag for dispatch information.
    debug_prop: u32,
    /// The PCI revision, by which libdrm finds the product's name together with the device id (`amdgpu.ids`).
    pub pci_revision: u32,
    /// The level, size in KiB, and type of each cache of a compute unit or the device.
    caches: &'static [(u64, u64, u64)],
}

/// The types of the compute units' data caches, and of their scalar or instruction caches (`HSA_CACHE_TYPE_`
/// bits of the thunk's headers).
const DATA: u64 = 9;
const INSTRUCTION: u64 = 10;

/// The model from which the others take what they have in common.
const GFX942: Arch = Arch {
    name: "gfx942",
    version: 90402,
    device_id: 0x74a1,
    simd_count: 1216,
    array_count: 32,
    cu_per_simd_array: 10,
    simd_per_cu: 4,
    wave_front_size: 64,
    max_waves_per_simd: 8,
    lds_kib: 64,
    arrays_per_engine: 1,
    xcc_count: 8,
    cp_queues: 24,
    firmware: 177,
    sdma_firmware: 24,
    family_id: 141,
    kernel_name: "ip discovery",
    mes: false,
    debug_prop: 1511,
    pci_revision: 0x00,
    caches: &[(1, 32, DATA), (1, 64, INSTRUCTION), (2, 4096, DATA), (3, 262_144, DATA)],
};

/// The models; the first is the default.
pub const ARCHS: &[Arch] = &[
    Arch {
        name: "gfx90a",
        version: 90010,
        device_id: 0x740f,
        simd_count: 416,
        array_count: 8,
        cu_per_simd_array: 14,
        xcc_count: 1,
        firmware: 92,
        sdma_firmware: 9,
        kernel_name: "aldebaran",
        debug_prop: 470,
        pci_revision: 0x02,
        caches: &[(1, 16, DATA), (1, 16, INSTRUCTION), (2, 8192, DATA)],
        ..GFX942
    },
    GFX942,
    Arch {
        name: "gfx950",
        version: 90500,
        device_id: 0x75a3,
        simd_count: 1024,
        cu_per_simd_array: 8,
        lds_kib: 160,
        ..GFX942
    },
    Arch {
        name: "gfx1100",
        version: 110_000,
        device_id: 0x744c,
        simd_count: 192,
        array_count: 12,
        cu_per_simd_array: 8,
        simd_per_cu: 2,
        wave_front_size: 32,
        max_waves_per_simd: 16,
        arrays_per_engine: 2,
        xcc_count: 1,
        cp_queues: 8,
        firmware: 550,
        sdma_firmware: 20,
        family_id: 145,
        mes: true,
        debug_prop: 1495,
        pci_revision: 0xc8,
        caches: &[(1, 32, DATA), (1, 32, INSTRUCTION), (2, 6144, DATA), (3, 98_304, DATA)],
        ..GFX942
    },
];

impl Arch {
    pub fn find(name: &str) -> Option<&'static Self> {
        ARCHS.iter().find(|arch| arch.name == name)
    }

    /// Returns one of `of` equal partitions of the device; `None` if its dies cannot be divided by that
    /// number.
    pub fn partition(&self, of: u32) -> Option<Self> {
        (of > 0 && self.xcc_count.is_multiple_of(of)).then(|| Self {
            simd_count: self.simd_count / of,
            array_count: self.array_count / of,
            xcc_count: self.xcc_count / of,
            ..*self
        })
    }

    pub fn compute_units(&self) -> u32 {
        self.simd_count / self.simd_per_cu
    }

    /// Returns the largest number of waves of one compute unit.
    pub fn waves_per_cu(&self) -> u32 {
        self.simd_per_cu * self.max_waves_per_simd
    }

    pub fn lds(&self) -> u32 {
        self.lds_kib << 10
    }
}

/// AMD's PCI vendor id.
pub const VENDOR: u32 = 4098;

/// One GPU of a machine.
#[derive(Clone, Copy, Debug)]
pub struct GpuConfig {
    pub arch: &'static Arch,
    /// The KFD's id of the device, unique among all supervisors of this host.
    pub gpu_id: u32,
    pub vram: u64,
    pub render_minor: u32,
    /// The device of the PCI bus, or the partition of one.
    pub part: Part,
}

#[cfg(test)]
impl GpuConfig {
    /// Returns a device that is not partitioned.
    pub fn example(arch: &str) -> Self {
        let arch = Arch::find(arch).unwrap();
        Self { arch, gpu_id: 9, vram: 64 << 30, render_minor: 128, part: Part::whole(0) }
    }
}

/// A device of the PCI bus, or a partition of one (compute partition mode CPX and the like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub device: u32,
    pub partition: u32,
    /// The number of partitions of the device; 1 if it is not partitioned.
    pub of: u32,
}

impl Part {
    /// Returns a device that is not partitioned.
    #[cfg(test)]
    pub fn whole(device: u32) -> Self {
        Self { device, partition: 0, of: 1 }
    }

    /// Returns `location_id` of sysfs: bus and device, and the partition in place of the function
    /// (`kfd_topology_add_device` of Linux 6.12; AMD's packaged driver has it in bits 28 to 31).
    pub fn location(self) -> u32 {
        self.address() | self.partition
    }

    pub fn address(self) -> u32 {
        25600 + self.device * 256
    }

    /// Returns the unique id of the device, which its partitions share.
    pub fn unique_id(self) -> u64 {
        1_801_979_520_617_338_023 + u64::from(self.device)
    }
}

/// Returns the GPU ids of a supervisor. They derive from its pid, so that two supervisors never use the same
/// id.
pub fn gpu_ids(supervisor_pid: u32, count: u32) -> impl Iterator<Item = u32> {
    // Real ids are 16-bit hashes. Pids reach 2^22 and there are at most 8 GPUs, so that these ids take 25
    // bits.
    (0..count).map(move |i| (supervisor_pid << 3 | i) + 1)
}

/// Writes the topology tree (`generation_id`, `system_properties`, `nodes/`) below `dir`.
pub fn write(dir: &Path, gpus: &[GpuConfig]) -> io::Result<()> {
    let put = |path: String, text: String| {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)
    };
    put("generation_id".into(), "2\n".into())?;
    put(
        "system_properties".into(),
        props(&[
            ("platform_oem", 35_498_446_626_881),
            ("platform_id", 71_791_775_140_929),
            ("platform_rev", 2),
        ]),
    )?;
    put("nodes/0/gpu_id".into(), "0\n".into())?;
    put("nodes/0/name".into(), "\n".into())?;
    put("nodes/0/properties".into(), cpu_properties(gpus.len() as u64))?;
    put("nodes/0/mem_banks/0/properties".into(), bank(0, host_memory(), 64, 3200))?;
    for (i, gpu) in gpus.iter().enumerate() {
        let node = i as u64 + 1;
        put(format!("nodes/{node}/gpu_id"), format!("{}\n", gpu.gpu_id))?;
        put(format!("nodes/{node}/name"), format!("{}\n", gpu.arch.kernel_name))?;
        put(format!("nodes/{node}/properties"), gpu_properties(i as u64, gpu))?;
        // Heap type 1: all device memory is visible to the host, as with a resized BAR.
        put(format!("nodes/{node}/mem_banks/0/properties"), bank(1, gpu.vram, 4096, 1600))?;
        for (c, (level, size, kind)) in gpu.arch.caches.iter().enumerate() {
            put(format!("nodes/{node}/caches/{c}/properties"), cache(i as u64, *level, *size, *kind))?;
        }
        put(format!("nodes/{node}/io_links/0/properties"), link(node, 0))?;
        put(format!("nodes/0/io_links/{i}/properties"), link(0, node))?;
    }
    Ok(())
}

fn props(pairs: &[(&str, u64)]) -> String {
    pairs.iter().fold(String::new(), |mut text, (key, value)| {
        let _ = writeln!(text, "{key} {value}");
        text
    })
}

pub fn host_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram * u64::from(info.mem_unit)
}

fn bank(heap_type: u64, size: u64, width: u64, clock: u64) -> String {
    props(&[
        ("heap_type", heap_type),
        ("size_in_bytes", size),
        ("flags", 0),
        ("width", width),
        ("mem_clk_max", clock),
    ])
}

fn cache(gpu: u64, level: u64, size: u64, kind: u64) -> String {
    let mut text = props(&[
        ("processor_id_low", simd_base(gpu)),
        ("level", level),
        ("size", size),
        ("cache_line_size", if level > 1 { 128 } else { 64 }),
        ("cache_lines_per_tag", 1),
        ("association", 16),
        ("latency", 0),
        ("type", kind),
    ]);
    let _ = writeln!(text, "sibling_map 1,{}", "0,".repeat(31));
    text
}

fn link(from: u64, to: u64) -> String {
    props(&[
        ("type", 2),
        ("version_major", 0),
        ("version_minor", 0),
        ("node_from", from),
        ("node_to", to),
        ("weight", 20),
        ("min_latency", 0),
        ("max_latency", 0),
        ("min_bandwidth", 312),
        ("max_bandwidth", 16000),
        ("recommended_transfer_size", 0),
        ("recommended_sdma_engine_id_mask", 0),
        ("flags", 1),
    ])
}

fn simd_base(gpu: u64) -> u64 {
    0x8000_1000 + (gpu + 1) * 65536
}

fn cpu_properties(gpus: u64) -> String {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    props(&[
        ("cpu_cores_count", cores),
        ("simd_count", 0),
        ("mem_banks_count", 1),
        ("caches_count", 0),
        ("io_links_count", gpus),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", 0),
        ("max_waves_per_simd", 0),
        ("lds_size_in_kb", 0),
        ("wave_front_size", 0),
        ("array_count", 0),
        ("gfx_target_version", 0),
        ("vendor_id", 0),
        ("device_id", 0),
        ("location_id", 0),
        ("domain", 0),
        ("drm_render_minor", 0),
        ("max_engine_clk_ccompute", 2450),
    ])
}

/// `capability` of a real MI210 without shared virtual memory (bit 27), whose ioctls are not simulated:
/// managed memory is host memory that the device accesses, as with older drivers. Bit 15 means that a
/// debugger can evict queues, and bit 29 that the firmware is new enough for it.
const CAPABILITY: u64 = 746_037_888 & !(1 << 27);

/// Returns the description of a device for DBG_TRAP.
pub fn debug_entry(gpu: &GpuConfig, raised: u64) -> DeviceEntry {
    let arch = gpu.arch;
    DeviceEntry {
        exception_status: raised,
        gpu_id: gpu.gpu_id,
        location_id: gpu.part.location(),
        vendor_id: VENDOR,
        device_id: arch.device_id,
        revision_id: arch.pci_revision,
        fw_version: arch.firmware,
        gfx_target_version: arch.version,
        simd_count: arch.simd_count,
        max_waves_per_simd: arch.max_waves_per_simd,
        array_count: arch.array_count,
        simd_arrays_per_engine: arch.arrays_per_engine,
        num_xcc: arch.xcc_count,
        capability: CAPABILITY as u32,
        debug_prop: arch.debug_prop,
        ..DeviceEntry::default()
    }
}

fn gpu_properties(index: u64, gpu: &GpuConfig) -> String {
    let arch = gpu.arch;
    props(&[
        ("cpu_cores_count", 0),
        ("simd_count", arch.simd_count.into()),
        ("mem_banks_count", 1),
        ("caches_count", arch.caches.len() as u64),
        ("io_links_count", 1),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", simd_base(index)),
        ("max_waves_per_simd", arch.max_waves_per_simd.into()),
        ("lds_size_in_kb", arch.lds_kib.into()),
        ("gds_size_in_kb", 0),
        ("num_gws", 64),
        ("wave_front_size", arch.wave_front_size.into()),
        ("array_count", arch.array_count.into()),
        ("simd_arrays_per_engine", arch.arrays_per_engine.into()),
        ("cu_per_simd_array", arch.cu_per_simd_array.into()),
        ("simd_per_cu", arch.simd_per_cu.into()),
        ("max_slots_scratch_cu", 32),
        ("gfx_target_version", arch.version.into()),
        ("vendor_id", VENDOR.into()),
        ("device_id", arch.device_id.into()),
        ("location_id", gpu.part.location().into()),
        ("domain", 0),
        ("drm_render_minor", gpu.render_minor.into()),
        ("hive_id", 0),
        ("num_sdma_engines", 2),
        ("num_sdma_xgmi_engines", 0),
        ("num_sdma_queues_per_engine", 8),
        ("num_cp_queues", arch.cp_queues.into()),
        ("max_engine_clk_fcompute", 1700),
        ("local_mem_size", 0),
        ("fw_version", arch.firmware.into()),
        ("capability", CAPABILITY),
        ("debug_prop", arch.debug_prop.into()),
        ("sdma_fw_version", arch.sdma_firmware.into()),
        ("unique_id", gpu.part.unique_id()),
        ("num_xcc", arch.xcc_count.into()),
        ("family_id", arch.family_id.into()),
        ("max_engine_clk_ccompute", 2450),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_ids_of_two_supervisors_differ() {
        let a: Vec<u32> = gpu_ids(100, 8).collect();
        assert!(gpu_ids(101, 8).all(|id| id != 0 && !a.contains(&id)));
    }

    #[test]
    fn topology_contains_every_node() {
        let dir = tempfile::tempdir().unwrap();
        let gpu = GpuConfig::example("gfx90a");
        write(dir.path(), &[gpu, GpuConfig { gpu_id: 10, render_minor: 129, ..gpu }]).unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(read("nodes/2/gpu_id"), "10\n");
        assert!(read("nodes/1/properties").contains("gfx_target_version 90010\n"));
        assert!(read("nodes/0/properties").contains("io_links_count 2\n"));
        assert!(read("nodes/1/mem_banks/0/properties").contains("size_in_bytes 68719476736\n"));
        assert_eq!((gpu.arch.compute_units(), gpu.arch.waves_per_cu()), (104, 32));
    }

    #[test]
    fn partitions_share_an_address_and_are_numbered() {
        let part = Part { device: 1, partition: 3, of: 4 };
        assert_eq!((part.location(), part.address()), (0x6503, 0x6500));
        assert_eq!(part.unique_id(), Part { partition: 0, ..part }.unique_id());
        assert_ne!(part.unique_id(), Part::whole(0).unique_id());
        let whole = Arch::find("gfx942").unwrap();
        let quarter = whole.partition(4).unwrap();
        assert_eq!((quarter.compute_units(), quarter.xcc_count), (76, 2));
        assert!(
            whole.partition(3).is_none() && ARCHS[0].partition(2).is_none() && whole.partition(0).is_none()
        );
    }
}
