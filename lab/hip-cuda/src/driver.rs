//! The functions of the CUDA driver, and their types.
//!
//! Source of names, argument orders and enumeration values: NVIDIA's CUDA Driver API reference
//! (docs.nvidia.com/cuda/cuda-driver-api). The driver's library exports these symbols since CUDA 11.4, and
//! later drivers keep them. The table uses HIP's handle types: this crate passes CUDA's handles to programs
//! as HIP's, because both are pointers of the same size.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use hip_sys::types::{
    dim3, hipError_t, hipErrorNoDevice, hipEvent_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t,
    hipIpcEventHandle_t, hipIpcMemHandle_t, hipMemPool_t, hipStream_t,
};

use crate::errors;

/// `CUdeviceptr`: an address in the space that host and devices share.
pub(crate) type DevicePointer = usize;

/// A pointer that only the driver dereferences, such as a `CUcontext` or a `CUfunction`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opaque(pub(crate) usize);

impl Opaque {
    pub(crate) const NULL: Opaque = Opaque(0);
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy3D {
    pub(crate) src: Side,
    pub(crate) dst: Side,
    /// The bytes of a row, the number of rows, the number of slices.
    pub(crate) extent: [usize; 3],
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// The first byte in a row, the first row, the first slice, the level of detail.
    pub(crate) at: [usize; 4],
    pub(crate) memory_type: c_uint,
    pub(crate) host: usize,
    pub(crate) device: DevicePointer,
    pub(crate) array: usize,
    pub(crate) reserved: usize,
    /// The distance between rows, in bytes.
    pub(crate) pitch: usize,
    /// The distance between slices, in rows.
    pub(crate) height: usize,
}

/// `CU_MEMORYTYPE_HOST`, `-DEVICE` and `-UNIFIED`. With the last one the driver determines the type.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
const UNIFIED: c_uint = 4;

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelNode {
    pub(crate) function: Opaque,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillNode {
    pub(crate) dst: DevicePointer,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) element_size: c_uint,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNode {
    pub(crate) function: HostFunction,
    pub(crate) data: *mut c_void,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED` is 1.
    pub(crate) allocation: c_int,
    pub(crate) handles: c_int,
    /// The type (`CU_MEM_LOCATION_TYPE_DEVICE` is 1) and the device.
    pub(crate) location: [c_int; 2],
    pub(crate) reserved: [u64; 9],
}

/// `CUhostFn`.
pub(crate) type HostFunction = unsafe extern "C" fn(data: *mut c_void);
/// `CUstreamCallback`.
pub(crate) type StreamCallback = unsafe extern "C" fn(stream: hipStream_t, status: c_uint, data: *mut c_void);
/// `CUoccupancyB2DSize`.
pub(crate) type DynamicSize = Option<unsafe extern "C" fn(block: c_int) -> usize>;

const _: () = {
    assert!(size_of::<Side>() == 88 && size_of::<Copy3D>() == 200);
    assert!(size_of::<KernelNode>() == 56 && size_of::<FillNode>() == 40);
    assert!(size_of::<PoolProperties>() == 88);
};

/// Stands in for functions that the driver lacks. Returns `CUDA_ERROR_NOT_SUPPORTED`.
extern "C" fn missing() -> c_uint {
    801
}

/// Declares the table of functions, the function that fills it, and a method for each entry.
macro_rules! functions {
    ($($symbol:literal $name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The driver's functions. Each method translates CUDA's error code to HIP's.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($argument: $type),*) -> c_uint,)*
        }

        impl Driver {
            fn find(library: *mut c_void) -> Driver {
                Driver {$(
                    $name: {
                        let found = symbol(library, $symbol);
                        let found = if found.is_null() { missing as *mut c_void } else { found };
                        // SAFETY: the type is the prototype of this function in NVIDIA's reference. `missing`
                        // reads no argument, and the C calling convention lets a function ignore its
                        // arguments.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_uint>(found)
                        }
                    },
                )*}
            }

            $(
                #[allow(clippy::too_many_arguments, reason = "the functions are the driver's")]
                pub(crate) fn $name(&self, $($argument: $type),*) -> Result<(), hipError_t> {
                    // SAFETY: the callers look handles of streams, events, graphs, nodes and pools up in the
                    // tables of live ones. Pointers refer to variables of this crate that outlive the call,
                    // or come from the program, and HIP requires the same of them as CUDA.
                    errors::answered(unsafe { (self.$name)($($argument),*) })
                }
            )*
        }
    };
}

functions! {
    "cuInit" init(flags: c_uint);
    "cuDeviceGetCount" device_count(count: *mut c_int);
    "cuDeviceGetName" device_name(name: *mut c_char, length: c_int, device: c_int);
    "cuDeviceGetUuid" device_uuid(uuid: *mut [u8; 16], device: c_int);
    "cuDeviceTotalMem_v2" device_memory(bytes: *mut usize, device: c_int);
    "cuDeviceGetAttribute" device_attribute(value: *mut c_int, attribute: c_int, device: c_int);
    "cuDeviceGetPCIBusId" device_pci(id: *mut c_char, length: c_int, device: c_int);
    "cuDeviceCanAccessPeer" can_access_peer(can: *mut c_int, device: c_int, peer: c_int);
    "cuDevicePrimaryCtxRetain" context_retain(context: *mut Opaque, device: c_int);
    "cuCtxSetCurrent" context_set(context: Opaque);
    "cuCtxSynchronize" context_synchronize();
    "cuCtxGetStreamPriorityRange" priority_range(least: *mut c_int, greatest: *mut c_int);
    "cuCtxEnablePeerAccess" peer_enable(context: Opaque, flags: c_uint);
    "cuCtxDisablePeerAccess" peer_disable(context: Opaque);
    "cuMemGetInfo_v2" memory_info(free: *mut usize, total: *mut usize);
    "cuMemAlloc_v2" allocate(place: *mut DevicePointer, bytes: usize);
    "cuMemFree_v2" free(address: DevicePointer);
    "cuMemAllocManaged" allocate_managed(place: *mut DevicePointer, bytes: usize, flags: c_uint);
    "cuMemHostAlloc" host_allocate(place: *mut *mut c_void, bytes: usize, flags: c_uint);
    "cuMemFreeHost" host_free(address: *mut c_void);
    "cuMemHostRegister_v2" host_register(address: *mut c_void, bytes: usize, flags: c_uint);
    "cuMemHostUnregister" host_unregister(address: *mut c_void);
    "cuMemHostGetDevicePointer_v2" host_device_pointer(place: *mut DevicePointer, address: *mut c_void, flags: c_uint);
    "cuMemGetAddressRange_v2" address_range(start: *mut DevicePointer, bytes: *mut usize, address: DevicePointer);
    "cuMemPrefetchAsync" prefetch(address: DevicePointer, bytes: usize, device: c_int, stream: hipStream_t);
    "cuMemAdvise" advise(address: DevicePointer, bytes: usize, advice: c_uint, device: c_int);
    "cuMemRangeGetAttribute" range_attribute(data: *mut c_void, size: usize, attribute: c_uint, address: DevicePointer,
        bytes: usize);
    "cuMemcpyAsync" copy(dst: DevicePointer, src: DevicePointer, bytes: usize, stream: hipStream_t);
    "cuMemcpy3DAsync_v2" copy_3d(copy: *const Copy3D, stream: hipStream_t);
    "cuMemsetD8Async" fill_8(dst: DevicePointer, value: u8, count: usize, stream: hipStream_t);
    "cuMemsetD16Async" fill_16(dst: DevicePointer, value: u16, count: usize, stream: hipStream_t);
    "cuMemsetD32Async" fill_32(dst: DevicePointer, value: c_uint, count: usize, stream: hipStream_t);
    "cuMemsetD2D8Async" fill_2d_8(dst: DevicePointer, pitch: usize, value: u8, width: usize, height: usize,
        stream: hipStream_t);
    "cuMemsetD2D16Async" fill_2d_16(dst: DevicePointer, pitch: usize, value: u16, width: usize, height: usize,
        stream: hipStream_t);
    "cuMemsetD2D32Async" fill_2d_32(dst: DevicePointer, pitch: usize, value: c_uint, width: usize, height: usize,
        stream: hipStream_t);
    "cuDeviceGetDefaultMemPool" default_pool(pool: *mut hipMemPool_t, device: c_int);
    "cuDeviceGetMemPool" current_pool(pool: *mut hipMemPool_t, device: c_int);
    "cuDeviceSetMemPool" set_pool(device: c_int, pool: hipMemPool_t);
    "cuMemPoolCreate" pool_create(pool: *mut hipMemPool_t, properties: *const PoolProperties);
    "cuMemPoolDestroy" pool_destroy(pool: hipMemPool_t);
    "cuMemPoolGetAttribute" pool_attribute(pool: hipMemPool_t, attribute: c_uint, value: *mut c_void);
    "cuMemPoolSetAttribute" pool_set_attribute(pool: hipMemPool_t, attribute: c_uint, value: *mut c_void);
    "cuMemPoolTrimTo" pool_trim(pool: hipMemPool_t, bytes: usize);
    "cuMemAllocAsync" allocate_async(place: *mut DevicePointer, bytes: usize, stream: hipStream_t);
    "cuMemAllocFromPoolAsync" allocate_from_pool(place: *mut DevicePointer, bytes: usize, pool: hipMemPool_t,
        stream: hipStream_t);
    "cuMemFreeAsync" free_async(address: DevicePointer, stream: hipStream_t);
    "cuStreamCreateWithPriority" stream_create(stream: *mut hipStream_t, flags: c_uint, priority: c_int);
    "cuStreamDestroy_v2" stream_destroy(stream: hipStream_t);
    "cuStreamSynchronize" stream_synchronize(stream: hipStream_t);
    "cuStreamQuery" stream_query(stream: hipStream_t);
    "cuStreamWaitEvent" stream_wait(stream: hipStream_t, event: hipEvent_t, flags: c_uint);
    "cuStreamAddCallback" stream_callback(stream: hipStream_t, callback: StreamCallback, data: *mut c_void,
        flags: c_uint);
    "cuLaunchHostFunc" host_function(stream: hipStream_t, function: HostFunction, data: *mut c_void);
    "cuStreamWaitValue32_v2" wait_32(stream: hipStream_t, address: DevicePointer, value: u32, flags: c_uint);
    "cuStreamWaitValue64_v2" wait_64(stream: hipStream_t, address: DevicePointer, value: u64, flags: c_uint);
    "cuStreamWriteValue32_v2" write_32(stream: hipStream_t, address: DevicePointer, value: u32, flags: c_uint);
    "cuStreamWriteValue64_v2" write_64(stream: hipStream_t, address: DevicePointer, value: u64, flags: c_uint);
    "cuStreamBeginCapture_v2" capture_begin(stream: hipStream_t, mode: c_uint);
    "cuStreamEndCapture" capture_end(stream: hipStream_t, graph: *mut hipGraph_t);
    "cuStreamIsCapturing" is_capturing(stream: hipStream_t, status: *mut c_uint);
    "cuStreamGetCaptureInfo_v2" capture_info(stream: hipStream_t, status: *mut c_uint, id: *mut u64,
        graph: *mut hipGraph_t, dependencies: *mut *const hipGraphNode_t, count: *mut usize);
    "cuStreamUpdateCaptureDependencies" capture_update(stream: hipStream_t, dependencies: *mut hipGraphNode_t,
        count: usize, flags: c_uint);
    "cuThreadExchangeStreamCaptureMode" capture_mode(mode: *mut c_uint);
    "cuEventCreate" event_create(event: *mut hipEvent_t, flags: c_uint);
    "cuEventDestroy_v2" event_destroy(event: hipEvent_t);
    "cuEventRecord" event_record(event: hipEvent_t, stream: hipStream_t);
    "cuEventRecordWithFlags" event_record_flags(event: hipEvent_t, stream: hipStream_t, flags: c_uint);
    "cuEventQuery" event_query(event: hipEvent_t);
    "cuEventSynchronize" event_synchronize(event: hipEvent_t);
    "cuEventElapsedTime" event_elapsed(milliseconds: *mut f32, start: hipEvent_t, end: hipEvent_t);
    "cuModuleLoadData" module_load(module: *mut Opaque, image: *const c_void);
    "cuModuleUnload" module_unload(module: Opaque);
    "cuModuleGetFunction" module_function(function: *mut Opaque, module: Opaque, name: *const c_char);
    "cuModuleGetGlobal_v2" module_global(place: *mut DevicePointer, bytes: *mut usize, module: Opaque,
        name: *const c_char);
    "cuFuncGetAttribute" function_attribute(value: *mut c_int, attribute: c_int, function: Opaque);
    "cuFuncSetAttribute" function_set_attribute(function: Opaque, attribute: c_int, value: c_int);
    "cuLaunchKernel" launch(function: Opaque, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared: c_uint, stream: hipStream_t, params: *mut *mut c_void,
        extra: *mut *mut c_void);
    "cuLaunchCooperativeKernel" launch_cooperative(function: Opaque, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: hipStream_t,
        params: *mut *mut c_void);
    "cuOccupancyMaxActiveBlocksPerMultiprocessor" occupancy_blocks(blocks: *mut c_int, function: Opaque,
        threads: c_int, shared: usize);
    "cuOccupancyMaxPotentialBlockSize" occupancy_block_size(grid: *mut c_int, block: *mut c_int, function: Opaque,
        dynamic: DynamicSize, shared: usize, limit: c_int);
    "cuGraphCreate" graph_create(graph: *mut hipGraph_t, flags: c_uint);
    "cuGraphDestroy" graph_destroy(graph: hipGraph_t);
    "cuGraphClone" graph_clone(clone: *mut hipGraph_t, graph: hipGraph_t);
    "cuGraphNodeFindInClone" graph_find_in_clone(node: *mut hipGraphNode_t, original: hipGraphNode_t,
        clone: hipGraph_t);
    "cuGraphAddKernelNode" graph_add_kernel(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, params: *const KernelNode);
    "cuGraphKernelNodeSetParams" graph_set_kernel(node: hipGraphNode_t, params: *const KernelNode);
    "cuGraphAddMemcpyNode" graph_add_copy(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, params: *const Copy3D, context: Opaque);
    "cuGraphAddMemsetNode" graph_add_fill(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, params: *const FillNode, context: Opaque);
    "cuGraphAddHostNode" graph_add_host(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, params: *const HostNode);
    "cuGraphAddEmptyNode" graph_add_empty(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize);
    "cuGraphAddChildGraphNode" graph_add_child(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, child: hipGraph_t);
    "cuGraphAddEventRecordNode" graph_add_record(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, event: hipEvent_t);
    "cuGraphAddEventWaitNode" graph_add_wait(node: *mut hipGraphNode_t, graph: hipGraph_t,
        dependencies: *const hipGraphNode_t, count: usize, event: hipEvent_t);
    "cuGraphAddDependencies" graph_add_dependencies(graph: hipGraph_t, from: *const hipGraphNode_t,
        to: *const hipGraphNode_t, count: usize);
    "cuGraphGetNodes" graph_nodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize);
    "cuGraphGetRootNodes" graph_roots(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize);
    "cuGraphGetEdges" graph_edges(graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t,
        count: *mut usize);
    "cuGraphNodeGetType" graph_node_type(node: hipGraphNode_t, kind: *mut c_uint);
    "cuGraphChildGraphNodeGetGraph" graph_child(node: hipGraphNode_t, graph: *mut hipGraph_t);
    "cuGraphDestroyNode" graph_destroy_node(node: hipGraphNode_t);
    "cuGraphInstantiateWithFlags" graph_instantiate(exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: u64);
    "cuGraphExecUpdate" graph_update(exec: hipGraphExec_t, graph: hipGraph_t, node: *mut hipGraphNode_t,
        result: *mut c_uint);
    "cuGraphExecKernelNodeSetParams" graph_exec_set_kernel(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const KernelNode);
    "cuGraphExecMemcpyNodeSetParams" graph_exec_set_copy(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const Copy3D, context: Opaque);
    "cuGraphExecMemsetNodeSetParams" graph_exec_set_fill(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const FillNode, context: Opaque);
    "cuGraphExecHostNodeSetParams" graph_exec_set_host(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const HostNode);
    "cuGraphUpload" graph_upload(exec: hipGraphExec_t, stream: hipStream_t);
    "cuGraphLaunch" graph_launch(exec: hipGraphExec_t, stream: hipStream_t);
    "cuGraphExecDestroy" graph_exec_destroy(exec: hipGraphExec_t);
    "cuIpcGetMemHandle" ipc_memory(handle: *mut hipIpcMemHandle_t, address: DevicePointer);
    "cuIpcOpenMemHandle_v2" ipc_open_memory(place: *mut DevicePointer, handle: hipIpcMemHandle_t, flags: c_uint);
    "cuIpcCloseMemHandle" ipc_close_memory(address: DevicePointer);
    "cuIpcGetEventHandle" ipc_event(handle: *mut hipIpcEventHandle_t, event: hipEvent_t);
    "cuIpcOpenEventHandle" ipc_open_event(event: *mut hipEvent_t, handle: hipIpcEventHandle_t);
}

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    CString::new(name).map_or(ptr::null_mut(), |name| {
        // SAFETY: the library is open and is never closed, and the name ends with a zero.
        unsafe { libc::dlsym(library, name.as_ptr()) }
    })
}

impl Driver {
    /// Loads the driver: the file that `HIP_CUDA_DRIVER` names, or `libcuda.so.1`.
    ///
    /// # Errors
    /// `hipErrorNoDevice` if the library cannot be loaded; a line on stderr names it.
    pub(crate) fn load() -> Result<Driver, hipError_t> {
        let name = std::env::var("HIP_CUDA_DRIVER").unwrap_or_else(|_| "libcuda.so.1".to_owned());
        let path = CString::new(name.as_str()).map_err(|_| hipErrorNoDevice)?;
        // SAFETY: the path ends with a zero. Loading runs only the driver's initializers, as in every user of
        // CUDA.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            eprintln!(
                "hip-cuda: cannot load {name}, the driver of NVIDIA's GPUs; HIP_CUDA_DRIVER names another file"
            );
            return Err(hipErrorNoDevice);
        }
        Ok(Driver::find(library))
    }
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    Device,
    /// The driver migrates it between host and device.
    Managed,
}

impl Side {
    /// Memory at an address. `pitch` is the distance between rows in bytes, `height` that between slices in
    /// rows.
    pub(crate) fn of(address: usize, place: Place, pitch: usize, height: usize) -> Side {
        let (memory_type, host, device) = match place {
            Place::Host => (HOST, address, 0),
            Place::Device => (DEVICE, 0, address),
            Place::Managed => (UNIFIED, 0, address),
        };
        Side { at: [0; 4], memory_type, host, device, array: 0, reserved: 0, pitch, height }
    }
}

/// Converts the size of a grid or a block to the driver's array.
pub(crate) fn sizes(of: dim3) -> [c_uint; 3] {
    [of.x, of.y, of.z]
}
