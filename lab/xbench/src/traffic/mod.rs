//! Memory traffic of recorded kernels: how much of the device's bandwidth a kernel of each class uses, and which class a
//! recorded kernel has.
//!
//! A recording has no counts of bytes, so a kernel's name and grid decide. docs/corun.md says where the shares come from.

mod memory;

pub(crate) use memory::{Moving, TrafficMemory};

use crate::hip::Device;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The bandwidth of a device whose runtime does not tell it, bytes per microsecond: that of an MI210, 1.6 TB/s by AMD's
/// data sheet.
const DEFAULT_BYTES_PER_US: u64 = 1_600_000;
/// The shortest kernel that is not small, microseconds as recorded.
const LEAST_US: f64 = 10.0;
/// The smallest grid that is not small, work-groups: half of the compute units of the device of the recordings.
const LEAST_GROUPS: u64 = 66;

/// Parts of the names of kernels that read and write each byte about once, in lower case.
const STREAMING: [&str; 24] = [
    "elementwise",
    "norm",
    "bn_fw",
    "bn_bw",
    "pool",
    "softmax",
    "tonhwc",
    "tonchw",
    "transpose",
    "permute",
    "convert",
    "reduce",
    "reduction",
    "gather",
    "scatter",
    "copy",
    "embedding",
    "dropout",
    "gemv",
    "matvec",
    "subtensorop",
    "triton_poi",
    "triton_red",
    "triton_per",
];

/// The memory traffic of a replay's kernels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Traffic {
    /// No kernel touches memory
    #[default]
    None,
    /// Each kernel has the traffic of its class, by its recorded name and grid
    Recorded,
    /// All kernels stream
    Streaming,
    /// All kernels have the traffic of a matrix product
    Matrix,
    /// All kernels have the traffic of a small kernel
    Small,
}

impl Traffic {
    /// Returns the class of a kernel that was recorded with this one; `None` if it touches no memory.
    pub(crate) fn of(self, recorded: Class) -> Option<Class> {
        match self {
            Self::None => None,
            Self::Recorded => Some(recorded),
            Self::Streaming => Some(Class::Streaming),
            Self::Matrix => Some(Class::Matrix),
            Self::Small => Some(Class::Small),
        }
    }

    /// Returns the classes that kernels can have.
    pub(crate) fn classes(self) -> impl Iterator<Item = Class> {
        let all = [Class::Streaming, Class::Matrix, Class::Small];
        all.into_iter().filter(move |class| self.of(*class) == Some(*class))
    }

    /// Returns the words behind a table's settings; none without traffic.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Recorded => ", traffic as recorded",
            Self::Streaming => ", all kernels stream",
            Self::Matrix => ", all kernels with the traffic of matrix products",
            Self::Small => ", all kernels with the traffic of small ones",
        }
    }
}

/// A class of kernels by their use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Elementwise operations, normalization, pooling, softmax, changes of layout, reductions, products with a vector.
    Streaming,
    /// Matrix products, convolutions and attention. Kernels of unknown names count as such.
    Matrix,
    /// Kernels that last less than 10 µs or have fewer than 66 work-groups.
    Small,
}

impl Class {
    /// Returns the class of a recorded kernel; `us` is its time in microseconds.
    pub(crate) fn of(name: &str, groups: u64, us: f64) -> Self {
        let name = name.to_ascii_lowercase();
        if us < LEAST_US || groups < LEAST_GROUPS {
            return Self::Small;
        }
        if STREAMING.iter().any(|part| name.contains(part)) { Self::Streaming } else { Self::Matrix }
    }

    /// Returns its share of the device's memory bandwidth.
    fn share(self) -> f64 {
        match self {
            Self::Streaming => 0.6,
            Self::Matrix => 0.25,
            Self::Small => 0.05,
        }
    }

    /// Returns the memory in which its traffic goes round, bytes: a power of two. A small kernel stays in the caches; for
    /// the others it is more than an MI300X's caches hold (256 MiB).
    fn window(self) -> u64 {
        match self {
            Self::Streaming | Self::Matrix => 512 << 20,
            Self::Small => 1 << 20,
        }
    }

    /// Returns the bytes that it reads and writes in a microsecond on `device`.
    pub(crate) fn bytes_per_us(self, device: &Device) -> f64 {
        self.share() * bandwidth(device) as f64
    }
}

/// Returns the highest bandwidth of the device memory, bytes per microsecond.
pub(crate) fn bandwidth(device: &Device) -> u64 {
    device.memory_bytes_per_us().unwrap_or(DEFAULT_BYTES_PER_US)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a device with a memory of this clock and bus.
    pub(crate) fn device(memory_clock_mhz: u32, memory_bus_bits: u32) -> Device {
        let (name, arch) = (String::new(), "gfx90a".to_owned());
        Device {
            name,
            arch,
            compute_units: 104,
            memory: 1 << 36,
            clock_mhz: 1700,
            memory_clock_mhz,
            memory_bus_bits,
        }
    }

    #[test]
    fn names_of_amds_and_others_kernels_have_a_class() {
        let class = |name| Class::of(name, 4096, 100.0);
        for name in [
            "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1",
            "void cudnn::engines_precompiled::nchwToNhwcKernel<float, flo",
            "void cudnn::ops::convertTensor_kernel",
            "void at::native::(anonymous namespace)::max_pool_forward_nch",
            "void cublasLt::splitKreduce_kernel<32, 16, int, float, float",
            "void (anonymous namespace)::softmax_warp_forward<float, float",
            "MIOpenBatchNormFwdInferPerActivationEst",
            "mloPoolingG",
            "SubTensorOpWithScalar1d",
            "batched_transpose_32x32_dword",
            "triton_poi_fused_relu_0",
            "gemvNSP_kernel",
        ] {
            assert_eq!(class(name), Class::Streaming, "{name}");
        }
        for name in [
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_n",
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttenti",
            "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3,",
            "Cijk_Ailk_Bljk_SB_MT128x64x16",
            "miopenSp3AsmConv_v21_1_3_gfx9_fp32_stride1",
            "igemm_fwd_gtcx_nhwc_fp32",
            "nobody_knows_it",
        ] {
            assert_eq!(class(name), Class::Matrix, "{name}");
        }
    }

    #[test]
    fn short_kernels_and_small_grids_are_small() {
        let class = |groups, us| Class::of("sgemm", groups, us);
        assert_eq!(
            [class(66, 10.0), class(65, 10.0), class(66, 9.9)],
            [Class::Matrix, Class::Small, Class::Small]
        );
    }

    #[test]
    fn shares_are_of_the_devices_bandwidth() {
        // An MI210, and a device that does not tell its clock.
        assert_eq!(bandwidth(&device(1600, 4096)), 1_638_400);
        assert_eq!(bandwidth(&device(0, 4096)), 1_600_000);
        assert_eq!(Class::Streaming.bytes_per_us(&device(0, 0)), 960_000.0);
    }

    #[test]
    fn one_class_for_all_kernels_or_their_own() {
        let all = |traffic: Traffic| traffic.classes().collect::<Vec<_>>();
        assert_eq!(all(Traffic::None), []);
        assert_eq!(all(Traffic::Recorded), [Class::Streaming, Class::Matrix, Class::Small]);
        assert_eq!(all(Traffic::Matrix), [Class::Matrix]);
        assert_eq!(Traffic::Small.of(Class::Streaming), Some(Class::Small));
    }
}
