//! A render node: device memory by `mmap`, and the DRM requests by which libdrm identifies the device.
//!
//! ROCr from 6.0 on opens each device through libdrm (`amdgpu_device_initialize`) and reads the family, the
//! clock of signal time stamps and the product's name. The requests of libdrm for that succeed. Buffers come
//! from the KFD, so that requests to make or share them fail as in a driver that does not know them. Numbers
//! and layouts: `include/uapi/drm/drm.h` and `amdgpu_drm.h`.

use hip_sys::kfd::Plain;

use crate::fuse::{Connection, Reply, Request};
use crate::space::client;
use crate::topology::GpuConfig;

/// The type byte of DRM requests.
const TYPE: u8 = b'd';
const VERSION: u8 = 0x00;
const GET_CLIENT: u8 = 0x05;
/// The driver-specific requests begin at 0x40.
const AMDGPU_INFO: u8 = 0x45;

const INFO_ACCEL_WORKING: u32 = 0x00;
const INFO_READ_MMR_REG: u32 = 0x15;
const INFO_DEV_INFO: u32 = 0x16;

/// The reported version of the interface: amdgpu 3.57, Linux 6.9.
const DRIVER: [u32; 3] = [3, 57, 0];
const NAMES: [&[u8]; 3] = [b"amdgpu", b"20150101", b"AMD GPU"];
/// `GB_ADDR_CONFIG`, the only register that libdrm reads on devices of these families.
const GB_ADDR_CONFIG: u32 = 0x1000_0444;
/// The largest number of registers of one request, as in the driver.
const MAX_REGISTERS: u32 = 128;

hip_sys::plain! {
    // `drm_version`: the size and address of each name.
    Version = 64 {
        major: i32, minor: i32, patch: i32, pad: u32, name_len: u64, name: u64, date_len: u64, date: u64,
        desc_len: u64, desc: u64,
    }
    DrmClient = 40 { index: i32, auth: i32, pid: u64, uid: u64, magic: u64, iocs: u64 }
    Info = 32 { return_pointer: u64, return_size: u32, query: u32, first: u32, count: u32, instance: u32, flags: u32 }
    // `drm_amdgpu_info_device` without its last fields, which are zero.
    DeviceInfo = 408 {
        device_id: u32, chip_rev: u32, external_rev: u32, pci_rev: u32, family: u32, num_shader_engines: u32,
        num_shader_arrays_per_engine: u32, gpu_counter_freq: u32, max_engine_clock: u64, max_memory_clock: u64,
        cu_active_number: u32, cu_ao_mask: u32, cu_bitmap: [u32; 16], enabled_rb_pipes_mask: u32, num_rb_pipes: u32,
        num_hw_gfx_contexts: u32, pcie_gen: u32, ids_flags: u64, virtual_address_offset: u64, virtual_address_max: u64,
        virtual_address_alignment: u32, pte_fragment_size: u32, gart_page_size: u32, ce_ram_size: u32, vram_type: u32,
        vram_bit_width: u32, vce_harvest_config: u32, gc_double_offchip_lds_buf: u32, gpu_addresses: [u64; 4],
        buffer_sizes: [u32; 4], wave_front_size: u32, num_shader_visible_vgprs: u32, num_cu_per_sh: u32,
        num_tcc_blocks: u32, gs_limits: [u32; 3], pcie_num_lanes: u32, cu_ao_bitmap: [u32; 16], high_va_offset: u64,
        high_va_max: u64, pa_sc_tile_steering_override: u32, pad: u32, tcc_disabled_mask: u64, min_engine_clock: u64,
        min_memory_clock: u64, cache_sizes: [u32; 6],
    }
}

/// Serves the render node of a device until its mount is removed.
pub fn serve(node: &Connection, gpu: &GpuConfig) {
    node.serve(None, |request| match request {
        Request::Open { unique, .. } => node.opened(unique, 0),
        Request::Ioctl { unique, tid, command, argument, out_size, .. } => {
            match execute(gpu, tid, command, argument) {
                Ok(mut out) => {
                    out.resize(out_size, 0);
                    node.ioctl(unique, &Reply { result: 0, out });
                }
                Err(errno) => node.error(unique, errno),
            }
        }
        // No request waits, so that the interrupted one has been answered already.
        Request::Interrupt { interrupt, .. } => node.error(interrupt, libc::ENOENT),
        // Clients map memory and do not read it, as on a real node.
        Request::Touched { unique, .. } => node.error(unique, libc::EINVAL),
        Request::Release { .. } => {}
    });
}

/// Executes a request of thread `tid`. Returns the argument's bytes for the caller.
fn execute(gpu: &GpuConfig, tid: i32, command: u32, argument: &[u8]) -> Result<Vec<u8>, i32> {
    if (command >> 8) as u8 != TYPE {
        return Err(libc::ENOTTY);
    }
    match command as u8 {
        VERSION => {
            let mut version = Version::from_bytes(argument);
            [version.major, version.minor, version.patch] = DRIVER.map(u32::cast_signed);
            let places = [
                (&mut version.name_len, version.name),
                (&mut version.date_len, version.date),
                (&mut version.desc_len, version.desc),
            ];
            for ((len, at), text) in places.into_iter().zip(NAMES) {
                if at != 0 {
                    put(tid, at, text, *len)?;
                }
                *len = text.len() as u64;
            }
            Ok(version.as_bytes().to_vec())
        }
        // libdrm does not recognise a regular file as a render node, and asks for the client's rights.
        GET_CLIENT => {
            let client =
                DrmClient { auth: 1, pid: u64::from(tid.cast_unsigned()), ..DrmClient::from_bytes(argument) };
            Ok(client.as_bytes().to_vec())
        }
        AMDGPU_INFO => {
            let info = Info::from_bytes(argument);
            let answer = match info.query {
                INFO_ACCEL_WORKING => 1u32.to_le_bytes().to_vec(),
                INFO_READ_MMR_REG if info.count <= MAX_REGISTERS => {
                    GB_ADDR_CONFIG.to_le_bytes().repeat(info.count as usize)
                }
                INFO_DEV_INFO => device_info(gpu).as_bytes().to_vec(),
                _ => return Err(libc::EINVAL),
            };
            put(tid, info.return_pointer, &answer, u64::from(info.return_size))?;
            Ok(Vec::new())
        }
        _ => Err(libc::EINVAL),
    }
}

/// Writes as many bytes of an answer as the caller has room for.
fn put(tid: i32, at: u64, bytes: &[u8], room: u64) -> Result<(), i32> {
    let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    if len == 0 {
        return Ok(());
    }
    client::write(tid, at, &bytes[..len])
}

fn device_info(gpu: &GpuConfig) -> DeviceInfo {
    let arch = gpu.arch;
    let engines = arch.array_count / arch.arrays_per_engine;
    DeviceInfo {
        device_id: arch.device_id,
        pci_rev: arch.pci_revision,
        family: arch.family_id,
        num_shader_engines: engines,
        num_shader_arrays_per_engine: arch.arrays_per_engine,
        // Kilohertz of signal time stamps, which are nanoseconds here.
        gpu_counter_freq: 1_000_000,
        max_engine_clock: 1_700_000,
        max_memory_clock: 1_600_000,
        cu_active_number: arch.compute_units(),
        num_rb_pipes: 0,
        virtual_address_offset: 2 << 20,
        virtual_address_max: 1 << 47,
        virtual_address_alignment: 4096,
        pte_fragment_size: 2 << 20,
        gart_page_size: 4096,
        vram_bit_width: 4096,
        wave_front_size: arch.wave_front_size,
        num_cu_per_sh: arch.cu_per_simd_array,
        pcie_gen: 4,
        pcie_num_lanes: 16,
        ..DeviceInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask<A: Plain>(gpu: &GpuConfig, nr: u8, argument: A) -> Result<A, i32> {
        let me = i32::try_from(std::process::id()).unwrap();
        let command = 3 << 30 | (size_of::<A>() as u32) << 16 | u32::from(TYPE) << 8 | u32::from(nr);
        execute(gpu, me, command, argument.as_bytes()).map(|out| A::from_bytes(&out))
    }

    #[test]
    fn driver_name_is_written_as_far_as_it_fits() {
        let gpu = GpuConfig::example("gfx942");
        let first = ask(&gpu, VERSION, Version::default()).unwrap();
        assert_eq!((first.major, first.name_len, first.desc_len), (3, 6, 7));
        let mut name = [0u8; 6];
        let room = Version { name_len: 6, name: name.as_mut_ptr() as u64, ..Version::default() };
        ask(&gpu, VERSION, room).unwrap();
        assert_eq!(&std::hint::black_box(name), b"amdgpu");
        let nowhere = Version { name_len: 6, name: 8, ..Version::default() };
        assert_eq!(ask(&gpu, VERSION, nowhere).unwrap_err(), libc::EFAULT);
    }

    #[test]
    fn device_info_is_cut_to_the_size_of_the_caller() {
        let mut info = DeviceInfo::default();
        let mut question = Info {
            return_pointer: (&raw mut info) as u64,
            return_size: size_of::<DeviceInfo>() as u32,
            query: INFO_DEV_INFO,
            ..Info::default()
        };
        ask(&GpuConfig::example("gfx942"), AMDGPU_INFO, question).unwrap();
        let got = std::hint::black_box(info);
        assert_eq!((got.device_id, got.cu_active_number, got.gpu_counter_freq), (0x74a1, 304, 1_000_000));
        // The shorter structure of an older caller is not overrun.
        let before = got.device_id;
        question.return_size = 2;
        ask(&GpuConfig::example("gfx1100"), AMDGPU_INFO, question).unwrap();
        assert_eq!(std::hint::black_box(info).device_id, before & !0xffff | 0x744c);
        question.query = 0xffff;
        assert_eq!(ask(&GpuConfig::example("gfx942"), AMDGPU_INFO, question).unwrap_err(), libc::EINVAL);
        let registers = Info { query: INFO_READ_MMR_REG, count: 1 << 30, ..Info::default() };
        assert_eq!(ask(&GpuConfig::example("gfx942"), AMDGPU_INFO, registers).unwrap_err(), libc::EINVAL);
    }

    #[test]
    fn request_of_another_driver_fails() {
        let other = execute(&GpuConfig::example("gfx90a"), 1, 0x8008_4b01, &[]);
        assert_eq!(other, Err(libc::ENOTTY));
        assert_eq!(ask(&GpuConfig::example("gfx942"), 0x40, Info::default()).unwrap_err(), libc::EINVAL);
    }
}
