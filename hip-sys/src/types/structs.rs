//! Structures that cross the interface, with their layout checked at compile time.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

use super::*;

/// Declares C structures, and checks their sizes and the offsets given.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident: $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty $(=> $offset:literal)?,)*
    })*) => {$(
        $(#[$doc])*
        #[allow(missing_docs, reason = "the fields have the names of HIP's headers")]
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $($(assert!(offset_of!($name, $field) == $offset);)?)*
        };
    )*};
}

/// Declares structures that are only passed on by pointer.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: only ever passed on by pointer.")]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

structs! {
    /// Three dimensions of a grid or a block.
    dim3: 12 {
        x: u32 => 0,
        y: u32 => 4,
        z: u32 => 8,
    }
    /// Size of a three-dimensional region; the width in elements of an array, or in bytes.
    hipExtent: 24 {
        width: usize => 0,
        height: usize => 8,
        depth: usize => 16,
    }
    /// Position in a three-dimensional region.
    hipPos: 24 {
        x: usize => 0,
        y: usize => 8,
        z: usize => 16,
    }
    /// Memory with a pitch.
    hipPitchedPtr: 32 {
        ptr: *mut c_void => 0,
        /// Bytes from row to row.
        pitch: usize => 8,
        xsize: usize => 16,
        ysize: usize => 24,
    }
    /// One launch of a multi-device launch by host symbol.
    hipLaunchParams: 56 {
        /// Host symbol of the kernel.
        func: *mut c_void => 0,
        grid_dim: dim3 => 8,
        block_dim: dim3 => 20,
        args: *mut *mut c_void => 32,
        shared_mem: usize => 40,
        stream: hipStream_t => 48,
    }
    /// One launch of a multi-device launch by function handle.
    hipFunctionLaunchParams: 56 {
        function: hipFunction_t => 0,
        grid_dim: dim3 => 8,
        block_dim: dim3 => 20,
        shared_mem_bytes: c_uint => 32,
        stream: hipStream_t => 40,
        kernel_params: *mut *mut c_void => 48,
    }
    /// Value of a launch or stream attribute.
    hipLaunchAttributeValue: 64 {
        /// The bytes; which of them count depends on the attribute.
        words: [u64; 8] => 0,
    }
    /// A launch attribute.
    hipLaunchAttribute: 72 {
        id: hipLaunchAttributeID => 0,
        pad: u32 => 4,
        value: hipLaunchAttributeValue => 8,
    }
    /// Configuration of `hipLaunchKernelExC`.
    hipLaunchConfig_t: 56 {
        grid_dim: dim3 => 0,
        block_dim: dim3 => 12,
        dynamic_smem_bytes: usize => 24,
        stream: hipStream_t => 32,
        attrs: *mut hipLaunchAttribute => 40,
        num_attrs: c_uint => 48,
    }
    /// Configuration of `hipDrvLaunchKernelEx`.
    HIP_LAUNCH_CONFIG: 56 {
        grid_dim: dim3 => 0,
        block_dim: dim3 => 12,
        shared_mem_bytes: c_uint => 24,
        stream: hipStream_t => 32,
        attrs: *mut hipLaunchAttribute => 40,
        num_attrs: c_uint => 48,
    }
    /// Parameters of `hipGraphInstantiateWithParams`.
    hipGraphInstantiateParams: 32 {
        /// Out: the node at fault.
        err_node_out: hipGraphNode_t => 0,
        flags: u64 => 8,
        /// Out: why it failed.
        result_out: hipGraphInstantiateResult => 16,
        upload_stream: hipStream_t => 24,
    }
    /// A two-dimensional copy.
    hip_Memcpy2D: 128 {
        src_x_in_bytes: usize => 0,
        src_y: usize => 8,
        /// Selector of the source field in use.
        src_memory_type: hipMemoryType => 16,
        src_host: *const c_void => 24,
        src_device: hipDeviceptr_t => 32,
        src_array: hipArray_t => 40,
        /// Bytes from source row to source row.
        src_pitch: usize => 48,
        dst_x_in_bytes: usize => 56,
        dst_y: usize => 64,
        /// Selector of the destination field in use.
        dst_memory_type: hipMemoryType => 72,
        dst_host: *mut c_void => 80,
        dst_device: hipDeviceptr_t => 88,
        dst_array: hipArray_t => 96,
        /// Bytes from destination row to destination row.
        dst_pitch: usize => 104,
        width_in_bytes: usize => 112,
        height: usize => 120,
    }
    /// A three-dimensional copy by `hipMemcpy3D`.
    hipMemcpy3DParms: 160 {
        src_array: hipArray_t => 0,
        src_pos: hipPos => 8,
        src_ptr: hipPitchedPtr => 32,
        dst_array: hipArray_t => 64,
        dst_pos: hipPos => 72,
        dst_ptr: hipPitchedPtr => 96,
        extent: hipExtent => 128,
        kind: hipMemcpyKind => 152,
    }
    /// One operation of `hipStreamBatchMemOp`, a union of several structures.
    hipStreamBatchMemOpParams: 48 {
        words: [u64; 6] => 0,
    }
    /// Attributes of a pointer. The type's values depend on the release: [`hipMemoryType::kind`].
    hipPointerAttribute_t: 32 {
        memory_type: hipMemoryType => 0,
        device: c_int => 4,
        device_pointer: *mut c_void => 8,
        host_pointer: *mut c_void => 16,
        is_managed: c_int => 24,
        allocation_flags: c_uint => 28,
    }
    /// Handle of memory shared with another process.
    hipIpcMemHandle_t: 64 {
        reserved: [c_char; 64] => 0,
    }
    /// Handle of an event shared with another process.
    hipIpcEventHandle_t: 64 {
        reserved: [c_char; 64] => 0,
    }
    /// A location of memory.
    hipMemLocation: 8 {
        location_type: c_int => 0,
        /// Selector.
        id: c_int => 4,
    }
    /// Device properties as `hipGetDeviceProperties` gives them in the 5.x releases, and
    /// `hipGetDevicePropertiesR0000` later. Names end with a zero byte.
    hipDeviceProp_tR0000: 792 {
        name: [c_char; 256] => 0,
        total_global_mem: usize => 256,
        /// Most bytes of local memory of a block.
        shared_mem_per_block: usize => 264,
        unread_1: [u32; 6] => 272,
        /// Most blocks of a grid, in each dimension.
        max_grid_size: [c_int; 3] => 296,
        /// The highest clock of the compute units, kHz.
        clock_rate: c_int => 308,
        /// The highest clock of the memory, kHz.
        memory_clock_rate: c_int => 312,
        /// The width of the memory's bus, bits.
        memory_bus_width: c_int => 316,
        unread_2: [u32; 4] => 320,
        /// Compute units.
        multi_processor_count: c_int => 336,
        unread_3: [u32; 14] => 340,
        /// Architecture, such as `gfx90a:sramecc+:xnack-`.
        gcn_arch_name: [c_char; 256] => 396,
        unread_4: [u32; 34] => 652,
    }
    /// Device properties as `hipGetDevicePropertiesR0600` gives them. Names end with a zero byte.
    hipDeviceProp_tR0600: 1472 {
        name: [c_char; 256] => 0,
        uuid: [u8; 16] => 256,
        unread_1: [u32; 4] => 272,
        total_global_mem: usize => 288,
        /// Most bytes of local memory of a block.
        shared_mem_per_block: usize => 296,
        unread_2: [u32; 8] => 304,
        /// Most blocks of a grid, in each dimension.
        max_grid_size: [c_int; 3] => 336,
        /// The highest clock of the compute units, kHz.
        clock_rate: c_int => 348,
        unread_3: [u32; 9] => 352,
        /// Compute units.
        multi_processor_count: c_int => 388,
        unread_4: [u32; 54] => 392,
        /// The highest clock of the memory, kHz.
        memory_clock_rate: c_int => 608,
        /// The width of the memory's bus, bits.
        memory_bus_width: c_int => 612,
        unread_6: [u32; 136] => 616,
        /// Architecture, such as `gfx942:sramecc+:xnack-`.
        gcn_arch_name: [c_char; 256] => 1160,
        unread_5: [u64; 7] => 1416,
    }
}

opaque! {
    HIP_ARRAY_DESCRIPTOR
    HIP_MEMCPY3D
    HIP_MEMSET_NODE_PARAMS
    hipArrayMapInfo
    hipBatchMemOpNodeParams
    hipChannelFormatDesc
    hipExternalSemaphoreSignalNodeParams
    hipExternalSemaphoreSignalParams
    hipExternalSemaphoreWaitNodeParams
    hipExternalSemaphoreWaitParams
    hipGraphEdgeData
    hipGraphNodeParams
    hipHostNodeParams
    hipKernelNodeParams
    hipMemAccessDesc
    hipMemPoolProps
    hipMemcpy3DBatchOp
    hipMemcpy3DPeerParms
    hipMemcpyAttributes
    hipMemsetParams
    textureReference
    uint3
}

impl dim3 {
    /// Dimensions; those not needed are 1.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    /// The product of the dimensions.
    pub const fn count(self) -> u64 {
        (self.x as u64).saturating_mul(self.y as u64).saturating_mul(self.z as u64)
    }
}

impl hipExtent {
    /// The product of the dimensions.
    pub const fn count(self) -> usize {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }
}
