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
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $($(assert!(offset_of!($name, $field) == $offset);)?)*
        };
    )*};
}

/// Declares structures of which only size and alignment matter here: they are copied whole.
macro_rules! blobs {
    ($($(#[$doc:meta])* $name:ident: [$word:ty; $count:literal];)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            /// The bytes, in words of the structure's alignment.
            pub words: [$word; $count],
        }
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
        /// First dimension.
        x: u32 => 0,
        /// Second dimension.
        y: u32 => 4,
        /// Third dimension.
        z: u32 => 8,
    }
    /// Three unsigned integers.
    uint3: 12 {
        /// First component.
        x: u32 => 0,
        /// Second component.
        y: u32 => 4,
        /// Third component.
        z: u32 => 8,
    }
    /// Size of a three-dimensional region; the width in elements of an array, or in bytes.
    hipExtent: 24 {
        /// Width.
        width: usize => 0,
        /// Height.
        height: usize => 8,
        /// Depth.
        depth: usize => 16,
    }
    /// Position in a three-dimensional region.
    hipPos: 24 {
        /// Along the width.
        x: usize => 0,
        /// Along the height.
        y: usize => 8,
        /// Along the depth.
        z: usize => 16,
    }
    /// Memory with a pitch.
    hipPitchedPtr: 32 {
        /// The memory.
        ptr: *mut c_void => 0,
        /// Bytes from row to row.
        pitch: usize => 8,
        /// Logical width.
        xsize: usize => 16,
        /// Logical height.
        ysize: usize => 24,
    }
    /// Format of an array's elements.
    hipChannelFormatDesc: 20 {
        /// Bits of the first component.
        x: c_int => 0,
        /// Bits of the second component.
        y: c_int => 4,
        /// Bits of the third component.
        z: c_int => 8,
        /// Bits of the fourth component.
        w: c_int => 12,
        /// Kind of the components.
        f: u32 => 16,
    }
    /// One launch of a multi-device launch by host symbol.
    hipLaunchParams: 56 {
        /// Host symbol of the kernel.
        func: *mut c_void => 0,
        /// Blocks.
        grid_dim: dim3 => 8,
        /// Threads of a block.
        block_dim: dim3 => 20,
        /// Pointers to the arguments.
        args: *mut *mut c_void => 32,
        /// Dynamic shared memory.
        shared_mem: usize => 40,
        /// Stream.
        stream: hipStream_t => 48,
    }
    /// One launch of a multi-device launch by function handle.
    hipFunctionLaunchParams: 56 {
        /// Kernel.
        function: hipFunction_t => 0,
        /// Blocks.
        grid_dim: dim3 => 8,
        /// Threads of a block.
        block_dim: dim3 => 20,
        /// Dynamic shared memory.
        shared_mem_bytes: c_uint => 32,
        /// Stream.
        stream: hipStream_t => 40,
        /// Pointers to the arguments.
        kernel_params: *mut *mut c_void => 48,
    }
    /// Value of a launch or stream attribute.
    hipLaunchAttributeValue: 64 {
        /// The bytes; which of them count depends on the attribute.
        words: [u64; 8] => 0,
    }
    /// A launch attribute.
    hipLaunchAttribute: 72 {
        /// Key of the attribute.
        id: hipLaunchAttributeID => 0,
        /// Padding.
        pad: u32 => 4,
        /// Its value.
        value: hipLaunchAttributeValue => 8,
    }
    /// Configuration of `hipLaunchKernelExC`.
    hipLaunchConfig_t: 56 {
        /// Blocks.
        grid_dim: dim3 => 0,
        /// Threads of a block.
        block_dim: dim3 => 12,
        /// Dynamic shared memory.
        dynamic_smem_bytes: usize => 24,
        /// Stream.
        stream: hipStream_t => 32,
        /// Attributes.
        attrs: *mut hipLaunchAttribute => 40,
        /// Number of attributes.
        num_attrs: c_uint => 48,
    }
    /// Configuration of `hipDrvLaunchKernelEx`.
    HIP_LAUNCH_CONFIG: 56 {
        /// Blocks.
        grid_dim: dim3 => 0,
        /// Threads of a block.
        block_dim: dim3 => 12,
        /// Dynamic shared memory.
        shared_mem_bytes: c_uint => 24,
        /// Stream.
        stream: hipStream_t => 32,
        /// Attributes.
        attrs: *mut hipLaunchAttribute => 40,
        /// Number of attributes.
        num_attrs: c_uint => 48,
    }
    /// Parameters of a kernel node of a graph.
    hipKernelNodeParams: 64 {
        /// Threads of a block.
        block_dim: dim3 => 0,
        /// Arguments as one buffer.
        extra: *mut *mut c_void => 16,
        /// Host symbol or function handle of the kernel.
        func: *mut c_void => 24,
        /// Blocks.
        grid_dim: dim3 => 32,
        /// Pointers to the arguments.
        kernel_params: *mut *mut c_void => 48,
        /// Dynamic shared memory.
        shared_mem_bytes: c_uint => 56,
    }
    /// Parameters of `hipGraphInstantiateWithParams`.
    hipGraphInstantiateParams: 32 {
        /// Out: the node at fault.
        err_node_out: hipGraphNode_t => 0,
        /// Flags.
        flags: u64 => 8,
        /// Out: why it failed.
        result_out: hipGraphInstantiateResult => 16,
        /// Stream for the upload.
        upload_stream: hipStream_t => 24,
    }
    /// A two-dimensional copy.
    hip_Memcpy2D: 128 {
        /// Source offset in a row, in bytes.
        src_x_in_bytes: usize => 0,
        /// First source row.
        src_y: usize => 8,
        /// Selector of the source field in use.
        src_memory_type: hipMemoryType => 16,
        /// Source in host memory.
        src_host: *const c_void => 24,
        /// Source in device memory.
        src_device: hipDeviceptr_t => 32,
        /// Source array.
        src_array: hipArray_t => 40,
        /// Bytes from source row to source row.
        src_pitch: usize => 48,
        /// Destination offset in a row, in bytes.
        dst_x_in_bytes: usize => 56,
        /// First destination row.
        dst_y: usize => 64,
        /// Selector of the destination field in use.
        dst_memory_type: hipMemoryType => 72,
        /// Destination in host memory.
        dst_host: *mut c_void => 80,
        /// Destination in device memory.
        dst_device: hipDeviceptr_t => 88,
        /// Destination array.
        dst_array: hipArray_t => 96,
        /// Bytes from destination row to destination row.
        dst_pitch: usize => 104,
        /// Width of the region.
        width_in_bytes: usize => 112,
        /// Rows of the region.
        height: usize => 120,
    }
    /// A three-dimensional copy by `hipMemcpy3D`.
    hipMemcpy3DParms: 160 {
        /// Source array.
        src_array: hipArray_t => 0,
        /// Source position.
        src_pos: hipPos => 8,
        /// Source memory.
        src_ptr: hipPitchedPtr => 32,
        /// Destination array.
        dst_array: hipArray_t => 64,
        /// Destination position.
        dst_pos: hipPos => 72,
        /// Destination memory.
        dst_ptr: hipPitchedPtr => 96,
        /// Size of the region.
        extent: hipExtent => 128,
        /// Direction.
        kind: hipMemcpyKind => 152,
    }
    /// A three-dimensional copy by `hipDrvMemcpy3D`, from 6.0 on.
    ///
    /// Up to 5.7 the coordinates are 32 bits wide and the structure has 128 bytes ([`HIP_MEMCPY3D_R5`]):
    /// code that reads or copies it has to know the runtime's release.
    HIP_MEMCPY3D: 184 {
        /// Source offset in a row, in bytes.
        src_x_in_bytes: usize => 0,
        /// First source row.
        src_y: usize => 8,
        /// First source slice.
        src_z: usize => 16,
        /// Source level of detail.
        src_lod: usize => 24,
        /// Selector of the source field in use.
        src_memory_type: hipMemoryType => 32,
        /// Source in host memory.
        src_host: *const c_void => 40,
        /// Source in device memory.
        src_device: hipDeviceptr_t => 48,
        /// Source array.
        src_array: hipArray_t => 56,
        /// Bytes from source row to source row.
        src_pitch: usize => 64,
        /// Rows from source slice to source slice.
        src_height: usize => 72,
        /// Destination offset in a row, in bytes.
        dst_x_in_bytes: usize => 80,
        /// First destination row.
        dst_y: usize => 88,
        /// First destination slice.
        dst_z: usize => 96,
        /// Destination level of detail.
        dst_lod: usize => 104,
        /// Selector of the destination field in use.
        dst_memory_type: hipMemoryType => 112,
        /// Destination in host memory.
        dst_host: *mut c_void => 120,
        /// Destination in device memory.
        dst_device: hipDeviceptr_t => 128,
        /// Destination array.
        dst_array: hipArray_t => 136,
        /// Bytes from destination row to destination row.
        dst_pitch: usize => 144,
        /// Rows from destination slice to destination slice.
        dst_height: usize => 152,
        /// Width of the region.
        width_in_bytes: usize => 160,
        /// Rows of the region.
        height: usize => 168,
        /// Slices of the region.
        depth: usize => 176,
    }
    /// Attributes of a pointer. The type's values depend on the release: [`hipMemoryType::kind`].
    hipPointerAttribute_t: 32 {
        /// Kind of memory.
        memory_type: hipMemoryType => 0,
        /// Device.
        device: c_int => 4,
        /// Address on the device.
        device_pointer: *mut c_void => 8,
        /// Address on the host.
        host_pointer: *mut c_void => 16,
        /// True for managed memory.
        is_managed: c_int => 24,
        /// Flags of the allocation.
        allocation_flags: c_uint => 28,
    }
    /// Handle of memory shared with another process.
    hipIpcMemHandle_t: 64 {
        /// The bytes.
        reserved: [c_char; 64] => 0,
    }
    /// Handle of an event shared with another process.
    hipIpcEventHandle_t: 64 {
        /// The bytes.
        reserved: [c_char; 64] => 0,
    }
    /// A location of memory.
    hipMemLocation: 8 {
        /// Kind of location.
        location_type: c_int => 0,
        /// Selector.
        id: c_int => 4,
    }
    /// Device properties as `hipGetDeviceProperties` gives them in the 5.x releases, and
    /// `hipGetDevicePropertiesR0000` later.
    hipDeviceProp_tR0000: 792 {
        /// Name, ended by a zero byte.
        name: [c_char; 256] => 0,
        /// Bytes of device memory.
        total_global_mem: usize => 256,
        /// Most bytes of local memory of a block.
        shared_mem_per_block: usize => 264,
        /// Fields that nothing here reads.
        unread_1: u32 => 272,
        /// Threads of a wavefront.
        warp_size: c_int => 276,
        /// Most threads of a block.
        max_threads_per_block: c_int => 280,
        /// Fields that nothing here reads.
        unread_2: [u32; 3] => 284,
        /// Most blocks of a grid, in each dimension.
        max_grid_size: [c_int; 3] => 296,
        /// Clock in kilohertz.
        clock_rate: c_int => 308,
        /// Fields that nothing here reads.
        unread_3: [u32; 6] => 312,
        /// Compute units.
        multi_processor_count: c_int => 336,
        /// Fields that nothing here reads.
        unread_4: [u32; 6] => 340,
        /// PCI domain.
        pci_domain_id: c_int => 364,
        /// PCI bus.
        pci_bus_id: c_int => 368,
        /// PCI device.
        pci_device_id: c_int => 372,
        /// Fields that nothing here reads.
        unread_5: [u32; 5] => 376,
        /// Architecture, such as `gfx90a:sramecc+:xnack-`, ended by a zero byte.
        gcn_arch_name: [c_char; 256] => 396,
        /// Fields that nothing here reads.
        unread_6: [u32; 34] => 652,
    }
    /// Device properties as `hipGetDevicePropertiesR0600` gives them.
    hipDeviceProp_tR0600: 1472 {
        /// Name, ended by a zero byte.
        name: [c_char; 256] => 0,
        /// Unique id.
        uuid: [u8; 16] => 256,
        /// Fields that nothing here reads.
        unread_1: [u32; 4] => 272,
        /// Bytes of device memory.
        total_global_mem: usize => 288,
        /// Most bytes of local memory of a block.
        shared_mem_per_block: usize => 296,
        /// Fields that nothing here reads.
        unread_2: u32 => 304,
        /// Threads of a wavefront.
        warp_size: c_int => 308,
        /// Fields that nothing here reads.
        unread_3: [u32; 2] => 312,
        /// Most threads of a block.
        max_threads_per_block: c_int => 320,
        /// Fields that nothing here reads.
        unread_4: [u32; 3] => 324,
        /// Most blocks of a grid, in each dimension.
        max_grid_size: [c_int; 3] => 336,
        /// Clock in kilohertz.
        clock_rate: c_int => 348,
        /// Fields that nothing here reads.
        unread_5: [u32; 9] => 352,
        /// Compute units.
        multi_processor_count: c_int => 388,
        /// Fields that nothing here reads.
        unread_6: [u32; 48] => 392,
        /// PCI bus.
        pci_bus_id: c_int => 584,
        /// PCI device.
        pci_device_id: c_int => 588,
        /// PCI domain.
        pci_domain_id: c_int => 592,
        /// Fields that nothing here reads.
        unread_7: [u32; 141] => 596,
        /// Architecture, such as `gfx942:sramecc+:xnack-`, ended by a zero byte.
        gcn_arch_name: [c_char; 256] => 1160,
        /// Fields that nothing here reads.
        unread_8: [u64; 7] => 1416,
    }
}

blobs! {
    /// A three-dimensional copy by `hipDrvMemcpy3D`, up to 5.7: see [`HIP_MEMCPY3D`].
    HIP_MEMCPY3D_R5: [u64; 16];
    /// One operation of `hipStreamBatchMemOp`.
    hipStreamBatchMemOpParams: [u64; 6];
    /// A three-dimensional copy between devices.
    hipMemcpy3DPeerParms: [u64; 21];
    /// One operation of `hipMemcpy3DBatchAsync`.
    hipMemcpy3DBatchOp: [u64; 14];
    /// Attributes of `hipMemcpyBatchAsync`.
    hipMemcpyAttributes: [u32; 6];
    /// Parameters to signal an external semaphore.
    hipExternalSemaphoreSignalParams: [u64; 18];
    /// Parameters to wait for an external semaphore.
    hipExternalSemaphoreWaitParams: [u64; 18];
}

opaque! {
    HIP_ARRAY_DESCRIPTOR
    HIP_MEMSET_NODE_PARAMS
    hipArrayMapInfo
    hipBatchMemOpNodeParams
    hipExternalSemaphoreSignalNodeParams
    hipExternalSemaphoreWaitNodeParams
    hipGraphEdgeData
    hipGraphNodeParams
    hipHostNodeParams
    hipMemAccessDesc
    hipMemPoolProps
    hipMemsetParams
    textureReference
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

impl PartialEq for dim3 {
    fn eq(&self, other: &Self) -> bool {
        (self.x, self.y, self.z) == (other.x, other.y, other.z)
    }
}

impl Eq for dim3 {}
