//! Devices: their number (`CUDA_CPU_DEVICES`, 1 to 16; 1 by default), their attributes, and their memory
//! (`CUDA_CPU_MEMORY` bytes each; 16 GiB by default). The attributes describe a GPU of compute capability
//! 9.0.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::abi::{Answer, CUdevice, INVALID_DEVICE, INVALID_VALUE, Uuid};
use crate::arena::{self, Arena};
use crate::gate::{Out, Text, initialise, initialised};
use crate::turns::DEVICES;

/// The version of the interface (12.4).
pub const VERSION: c_int = 12040;
/// The number of multiprocessors (`CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`).
pub const MULTIPROCESSORS: u32 = 132;
/// The maximum number of threads in a block.
pub const BLOCK: u32 = 1024;
/// The maximum number of threads on a multiprocessor.
pub const RESIDENT: u32 = 2048;
/// The maximum number of blocks on a multiprocessor.
pub const RESIDENT_BLOCKS: u32 = 32;
/// Shared memory in bytes: per block by default, per block after opting in, per multiprocessor, and reserved
/// by the driver per block.
pub const SHARED: [usize; 4] = [48 << 10, 227 << 10, 228 << 10, 1 << 10];

/// A number from the environment.
fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// Returns the number of devices.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| variable("CUDA_CPU_DEVICES").unwrap_or(1).clamp(1, DEVICES))
}

fn memory() -> usize {
    static MEMORY: OnceLock<usize> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let asked = variable("CUDA_CPU_MEMORY").unwrap_or(16 << 30);
        arena::pages(asked.clamp(1 << 20, 1 << 42)).unwrap_or(16 << 30)
    })
}

/// Returns a device's index.
///
/// # Errors
/// `INVALID_DEVICE`: there is no such device.
pub fn index(device: CUdevice) -> Answer<usize> {
    usize::try_from(device).ok().filter(|index| *index < count()).ok_or(INVALID_DEVICE)
}

/// Returns a device's memory, which the first call reserves.
///
/// # Errors
/// As [`Arena::new`].
pub fn arena(device: usize) -> Answer<Arc<Arena>> {
    static ARENAS: [Mutex<Option<Arc<Arena>>>; DEVICES] = [const { Mutex::new(None) }; DEVICES];
    let mut arena = ARENAS[device].lock();
    match &*arena {
        Some(arena) => Ok(arena.clone()),
        None => Ok(arena.insert(Arc::new(Arena::new(memory())?)).clone()),
    }
}

/// Returns a device's PCI address.
fn pci(device: usize) -> String {
    format!("0000:{:02x}:00.0", 0x61 + device)
}

/// Returns a value of `CUdevice_attribute`. `None`: there is no such attribute. 0 stands for features that
/// this device lacks.
fn attribute(which: c_uint, device: usize) -> Option<c_int> {
    Some(match which {
        1..=3 => BLOCK as c_int,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65535,
        8 => SHARED[0] as c_int,
        9 => 65536,
        10 => 32,
        11 => c_int::MAX,
        12 | 82 => 65536,
        13 => 1_980_000,
        14 => 512,
        16 => MULTIPROCESSORS as c_int,
        33 => 0x61 + device as c_int,
        36 => 2_619_000,
        37 => 5120,
        38 => 50 << 20,
        39 => RESIDENT as c_int,
        40 => 3,
        51 => 32,
        75 => 9,
        81 => SHARED[2] as c_int,
        87 => 2,
        97 => SHARED[1] as c_int,
        106 => RESIDENT_BLOCKS as c_int,
        111 => SHARED[3] as c_int,
        // Overlap, mapped host memory, concurrent kernels, unified addressing, priorities, caches, managed
        // memory and concurrent access to it, preemption, waits for values, cooperative launches, registered
        // host memory, pools.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 91 | 92 | 93 | 94 | 95 | 98 | 99 | 113 | 115
        | 122 | 123 | 125 => 1,
        0 | 135.. => return None,
        _ => 0,
    })
}

/// Writes a name to a program's buffer, cut to the buffer's length.
fn text(name: &str, to: Out<c_char>, len: c_int) -> Answer {
    let len = usize::try_from(len).ok().filter(|len| *len > 0).ok_or(INVALID_VALUE)?;
    let shown = &name.as_bytes()[..name.len().min(len - 1)];
    for (index, byte) in shown.iter().chain(&[0]).enumerate() {
        to.at(index).set(*byte as c_char)?;
    }
    Ok(())
}

fn uuid(device: usize) -> Uuid {
    let mut bytes = *b"cuda-cpu device\0";
    bytes[15] = b'0' + device as u8;
    Uuid { bytes }
}

crate::api! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        initialise()
    }

    /// Works before `cuInit`.
    fn cuDriverGetVersion(version: Out<c_int>) {
        version.set(VERSION)
    }

    fn cuDeviceGetCount(to: Out<c_int>) {
        initialised()?;
        to.set(count() as c_int)
    }

    fn cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) {
        initialised()?;
        index(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<c_char>, len: c_int, device: CUdevice) {
        initialised()?;
        index(device)?;
        text("CPU threads", name, len)
    }

    fn cuDeviceGetUuid(to: Out<Uuid>, device: CUdevice) {
        initialised()?;
        to.set(uuid(index(device)?))
    }

    fn cuDeviceGetUuid_v2(to: Out<Uuid>, device: CUdevice) {
        initialised()?;
        to.set(uuid(index(device)?))
    }

    fn cuDeviceGetLuid(_luid: Out<c_char>, _mask: Out<c_uint>, device: CUdevice) {
        initialised()?;
        index(device)?;
        // Only Windows has local identifiers.
        Err(crate::abi::NOT_SUPPORTED)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) {
        initialised()?;
        index(device)?;
        bytes.set(memory())
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, which: c_uint, device: CUdevice) {
        initialised()?;
        value.set(attribute(which, index(device)?).ok_or(INVALID_VALUE)?)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: CUdevice) {
        initialised()?;
        index(device)?;
        major.set(9)?;
        minor.set(0)
    }

    fn cuDeviceGetPCIBusId(to: Out<c_char>, len: c_int, device: CUdevice) {
        initialised()?;
        text(&pci(index(device)?), to, len)
    }

    fn cuDeviceGetByPCIBusId(device: Out<CUdevice>, id: Text) {
        initialised()?;
        let id = id.text()?.to_ascii_lowercase();
        // According to the documentation a program may leave out the domain or the function.
        let same = |index: &usize| {
            let full = pci(*index);
            id == full || id == full[5..] || id == full[..10]
        };
        device.set((0..count()).find(same).ok_or(INVALID_DEVICE)? as CUdevice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_where_the_interface_does() {
        assert_eq!(attribute(10, 0), Some(32));
        assert_eq!(attribute(33, 2), Some(0x63));
        assert_eq!(attribute(0, 0), None);
        assert_eq!(attribute(999, 0), None);
    }
}
