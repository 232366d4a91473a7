//! The offsets of a process's doorbells in the KFD file, and the address ranges that a GPU gives to each kind
//! of memory.

use hip_sys::kfd;

use crate::fuse::FILE_SIZE;

/// The largest number of GPUs of one machine; each process has doorbells on all of them.
pub const MAX_GPUS: u64 = 8;
/// The offset of the register page in the KFD file.
pub const MMIO_OFFSET: u64 = FILE_SIZE / 2;
/// The distance between the doorbells of two processes or GPUs in the KFD file. The thunk of ROCr 5.2.3 takes
/// the whole lower half of the first offset for the place within the page (`queues.c`: it masks with a size
/// that is still 0).
const DOORBELLS: u64 = 1 << 32;
/// The highest GPU virtual address: 47 bits, so that GPU and CPU addresses are the same.
const GPUVM_LIMIT: u64 = (1 << 47) - 1;

/// Returns the address ranges (apertures) of a GPU.
pub fn apertures(gpu_id: u32) -> kfd::ProcessDeviceApertures {
    kfd::ProcessDeviceApertures {
        lds_base: 0x1_0000_0000_0000,
        lds_limit: 0x1_0000_ffff_ffff,
        scratch_base: 0x2_0000_0000_0000,
        scratch_limit: 0x2_0000_ffff_ffff,
        gpuvm_base: 0x4000,
        gpuvm_limit: GPUVM_LIMIT,
        gpu_id,
        pad: 0,
    }
}

/// Returns the offset in the KFD file of a process's doorbells on a GPU.
pub fn doorbell_offset(process: u64, gpu: usize) -> u64 {
    (process * MAX_GPUS + gpu as u64) * DOORBELLS
}

/// Returns true if a range lies within the GPU virtual addresses that a process can use.
pub fn is_mappable(va: u64, size: u64) -> bool {
    size > 0 && va > 0 && va.checked_add(size).is_some_and(|end| end - 1 <= GPUVM_LIMIT)
}
