//! Types, values and structure layouts of the CUDA driver API.
//!
//! Source: NVIDIA, "CUDA Driver API" (docs.nvidia.com/cuda/cuda-driver-api), release 12.4: the section "Data
//! types used by CUDA driver" for values, and the documentation of each structure for its members' order. The
//! structures are those that the `_v2` functions of that release use.

use std::ffi::{c_int, c_uint, c_void};

/// A result of the driver (`CUresult`): 0 for success, or an error. [`crate::status`] has the names.
pub type CUresult = c_uint;
/// The ordinal of a device.
pub type CUdevice = c_int;
/// An address of memory that the device can access.
pub type CUdeviceptr = usize;
/// A handle: a key in a table of this library. It is never dereferenced.
pub type Handle = usize;
/// The result of this library's functions: a value, or the driver's error.
pub type Answer<T = ()> = Result<T, CUresult>;

pub const INVALID_VALUE: CUresult = 1;
pub const OUT_OF_MEMORY: CUresult = 2;
pub const NOT_INITIALIZED: CUresult = 3;
pub const INVALID_DEVICE: CUresult = 101;
pub const INVALID_IMAGE: CUresult = 200;
pub const INVALID_CONTEXT: CUresult = 201;
pub const PEER_ACCESS_UNSUPPORTED: CUresult = 217;
pub const INVALID_PTX: CUresult = 218;
pub const FILE_NOT_FOUND: CUresult = 301;
pub const OPERATING_SYSTEM: CUresult = 304;
pub const INVALID_HANDLE: CUresult = 400;
pub const ILLEGAL_STATE: CUresult = 401;
pub const NOT_FOUND: CUresult = 500;
pub const NOT_READY: CUresult = 600;
pub const ILLEGAL_ADDRESS: CUresult = 700;
pub const LAUNCH_OUT_OF_RESOURCES: CUresult = 701;
pub const PEER_ACCESS_ALREADY_ENABLED: CUresult = 704;
pub const PEER_ACCESS_NOT_ENABLED: CUresult = 705;
pub const CONTEXT_IS_DESTROYED: CUresult = 709;
pub const HOST_MEMORY_ALREADY_REGISTERED: CUresult = 712;
pub const HOST_MEMORY_NOT_REGISTERED: CUresult = 713;
pub const COOPERATIVE_LAUNCH_TOO_LARGE: CUresult = 720;
pub const NOT_PERMITTED: CUresult = 800;
pub const NOT_SUPPORTED: CUresult = 801;
pub const CAPTURE_UNSUPPORTED: CUresult = 900;
pub const CAPTURE_INVALIDATED: CUresult = 901;
pub const CAPTURE_MERGE: CUresult = 902;
pub const CAPTURE_UNMATCHED: CUresult = 903;
pub const CAPTURE_UNJOINED: CUresult = 904;
pub const CAPTURE_ISOLATION: CUresult = 905;
pub const CAPTURE_IMPLICIT: CUresult = 906;
pub const CAPTURED_EVENT: CUresult = 907;
pub const CAPTURE_WRONG_THREAD: CUresult = 908;
pub const GRAPH_EXEC_UPDATE_FAILURE: CUresult = 910;

/// The explicit handle of the legacy default stream, which 0 means as well.
pub const STREAM_LEGACY: Handle = 1;
/// The default stream of the calling thread.
pub const STREAM_PER_THREAD: Handle = 2;
/// `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`, `CU_EVENT_DISABLE_TIMING`, `CU_EVENT_INTERPROCESS`.
pub const EVENT_FLAGS: [c_uint; 3] = [1, 2, 4];
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`.
pub const EVENT_INTERPROCESS: c_uint = 4;

/// `CU_MEMORYTYPE_*`.
pub const MEMORY_HOST: c_uint = 1;
pub const MEMORY_DEVICE: c_uint = 2;
pub const MEMORY_UNIFIED: c_uint = 4;

/// `CU_MEMHOSTALLOC_*` and, with the same values, `CU_MEMHOSTREGISTER_*`.
pub const HOST_PORTABLE: c_uint = 1;
pub const HOST_DEVICEMAP: c_uint = 2;
pub const HOST_WRITECOMBINED: c_uint = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
pub const HOST_READ_ONLY: c_uint = 8;

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy2D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_type: c_uint,
    pub src_host: usize,
    pub src_device: CUdeviceptr,
    pub src_array: usize,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_type: c_uint,
    pub dst_host: usize,
    pub dst_device: CUdeviceptr,
    pub dst_array: usize,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D_v2`, and `CUDA_MEMCPY3D_PEER`, which has contexts in place of the reserved members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy3D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_type: c_uint,
    pub src_host: usize,
    pub src_device: CUdeviceptr,
    pub src_array: usize,
    pub src_context: usize,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_type: c_uint,
    pub dst_host: usize,
    pub dst_device: CUdeviceptr,
    pub dst_array: usize,
    pub dst_context: usize,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub count: c_uint,
}

/// `CUlaunchAttribute`: an id, and a value of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    pub id: c_uint,
    pub pad: c_uint,
    pub value: [u64; 8],
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`, which extends `_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNodeParams {
    pub v1: KernelNodeParamsV1,
    pub kern: Handle,
    pub ctx: Handle,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNodeParamsV1 {
    pub func: Handle,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemsetNodeParams {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostNodeParams {
    pub function: Option<HostFunction>,
    pub user: usize,
}

/// `CUhostFn`.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub type StreamCallback = unsafe extern "C" fn(Handle, CUresult, *mut c_void);

/// `CUgraphExecUpdateResultInfo_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UpdateResult {
    pub result: c_uint,
    pub node: Handle,
    pub from: Handle,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InstantiateParams {
    pub flags: u64,
    pub upload: Handle,
    pub error_node: Handle,
    pub result: c_uint,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub kind: c_uint,
    pub id: c_int,
}

/// `CUmemPoolProps_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProps {
    pub kind: c_uint,
    pub handles: c_uint,
    pub location: Location,
    pub security: usize,
    pub max_size: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

/// `CUmemAccessDesc_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AccessDesc {
    pub location: Location,
    pub flags: c_uint,
}

/// `CUipcMemHandle_v1` and `CUipcEventHandle_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle {
    pub bytes: [u8; 64],
}

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Uuid {
    pub bytes: [u8; 16],
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_have_the_documented_sizes() {
        assert_eq!(size_of::<Memcpy2D>(), 128);
        assert_eq!(size_of::<Memcpy3D>(), 200);
        assert_eq!(offset_of!(Memcpy3D, dst_x), 88);
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(size_of::<KernelNodeParamsV1>(), 56);
        assert_eq!(size_of::<KernelNodeParams>(), 72);
        assert_eq!(size_of::<PoolProps>(), 88);
        assert_eq!(size_of::<MemsetNodeParams>(), 40);
        assert_eq!(size_of::<UpdateResult>(), 24);
    }
}
