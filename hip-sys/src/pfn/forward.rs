//! Prototypes of functions that only replace a stream handle, or that the shim leaves alone.

/// Gives the callback the prototype of every function with the rule `Translate`.
#[macro_export]
macro_rules! translate_prototypes {
    ($callback:ident) => {
        $callback! {
            [own stream] fn hipExtStreamGetCUMask(stream: hipStream_t, cu_mask_size: u32, cu_mask: *mut u32) -> hipError_t;
            [own stream] fn hipGetStreamDeviceId(stream: hipStream_t) -> c_int;
            [own stream] fn hipStreamGetAttribute(stream: hipStream_t, attr: hipLaunchAttributeID, value_out: *mut hipLaunchAttributeValue) -> hipError_t;
            [own stream] fn hipStreamGetDevice(stream: hipStream_t, device: *mut hipDevice_t) -> hipError_t;
            [own stream] fn hipStreamGetFlags(stream: hipStream_t, flags: *mut c_uint) -> hipError_t;
            [own stream] fn hipStreamGetFlags_spt(stream: hipStream_t, flags: *mut c_uint) -> hipError_t;
            [own stream] fn hipStreamGetId(stream: hipStream_t, stream_id: *mut c_ulonglong) -> hipError_t;
            [own stream] fn hipStreamGetPriority(stream: hipStream_t, priority: *mut c_int) -> hipError_t;
            [own stream] fn hipStreamGetPriority_spt(stream: hipStream_t, priority: *mut c_int) -> hipError_t;
            [own stream] fn hipStreamGetCaptureInfo(stream: hipStream_t, p_capture_status: *mut hipStreamCaptureStatus, p_id: *mut c_ulonglong) -> hipError_t;
            [own stream] fn hipStreamGetCaptureInfo_spt(stream: hipStream_t, p_capture_status: *mut hipStreamCaptureStatus, p_id: *mut c_ulonglong) -> hipError_t;
            [own stream] fn hipStreamGetCaptureInfo_v2(stream: hipStream_t, capture_status_out: *mut hipStreamCaptureStatus, id_out: *mut c_ulonglong, graph_out: *mut hipGraph_t, dependencies_out: *mut *const hipGraphNode_t, num_dependencies_out: *mut usize) -> hipError_t;
            [own stream] fn hipStreamGetCaptureInfo_v2_spt(stream: hipStream_t, capture_status_out: *mut hipStreamCaptureStatus, id_out: *mut c_ulonglong, graph_out: *mut hipGraph_t, dependencies_out: *mut *const hipGraphNode_t, num_dependencies_out: *mut usize) -> hipError_t;
            [own stream] fn hipStreamIsCapturing(stream: hipStream_t, p_capture_status: *mut hipStreamCaptureStatus) -> hipError_t;
            [own stream] fn hipStreamIsCapturing_spt(stream: hipStream_t, p_capture_status: *mut hipStreamCaptureStatus) -> hipError_t;
        }
    };
}

/// Gives the callback the prototypes of those functions with the rule `Forward` that our own programs and the shim
/// itself call.
#[macro_export]
macro_rules! forward_prototypes {
    ($callback:ident) => {
        $callback! {
            [none] fn __hipPopCallConfiguration(grid_dim: *mut dim3, block_dim: *mut dim3, shared_mem: *mut usize, stream: *mut hipStream_t) -> hipError_t;
            [none stream] fn __hipPushCallConfiguration(grid_dim: dim3, block_dim: dim3, shared_mem: usize, stream: hipStream_t) -> hipError_t;
            [none stream] fn hipConfigureCall(grid_dim: dim3, block_dim: dim3, shared_mem: usize, stream: hipStream_t) -> hipError_t;
            [none] fn hipCtxCreate(ctx: *mut hipCtx_t, flags: c_uint, device: hipDevice_t) -> hipError_t;
            [none] fn hipCtxGetCurrent(ctx: *mut hipCtx_t) -> hipError_t;
            [none] fn hipCtxPopCurrent(ctx: *mut hipCtx_t) -> hipError_t;
            [none] fn hipCtxPushCurrent(ctx: hipCtx_t) -> hipError_t;
            [none] fn hipCtxSetCurrent(ctx: hipCtx_t) -> hipError_t;
            [none] fn hipDeviceCanAccessPeer(can_access_peer: *mut c_int, device_id: c_int, peer_device_id: c_int) -> hipError_t;
            [none] fn hipDeviceEnablePeerAccess(peer_device_id: c_int, flags: c_uint) -> hipError_t;
            [none] fn hipDeviceGet(device: *mut hipDevice_t, ordinal: c_int) -> hipError_t;
            [none] fn hipDeviceGetAttribute(pi: *mut c_int, attr: hipDeviceAttribute_t, device_id: c_int) -> hipError_t;
            [none] fn hipDeviceGetByPCIBusId(device: *mut c_int, pci_bus_id: *const c_char) -> hipError_t;
            [none] fn hipDeviceGetDefaultMemPool(mem_pool: *mut hipMemPool_t, device: c_int) -> hipError_t;
            [none] fn hipDeviceGetMemPool(mem_pool: *mut hipMemPool_t, device: c_int) -> hipError_t;
            [none] fn hipDeviceGetName(name: *mut c_char, len: c_int, device: hipDevice_t) -> hipError_t;
            [none] fn hipDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, device: c_int) -> hipError_t;
            [none] fn hipDeviceGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int) -> hipError_t;
            [none] fn hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t) -> hipError_t;
            [none] fn hipDriverGetVersion(driver_version: *mut c_int) -> hipError_t;
            [none] fn hipFuncGetAttribute(value: *mut c_int, attrib: hipFunction_attribute, hfunc: hipFunction_t) -> hipError_t;
            [none] fn hipGetDevice(device_id: *mut c_int) -> hipError_t;
            [none] fn hipGetDeviceCount(count: *mut c_int) -> hipError_t;
            [none] fn hipGetDeviceProperties(prop: *mut hipDeviceProp_tR0000, device_id: c_int) -> hipError_t;
            [none] fn hipGetDevicePropertiesR0000(prop: *mut hipDeviceProp_tR0000, device: c_int) -> hipError_t;
            [none] fn hipGetDevicePropertiesR0600(prop: *mut hipDeviceProp_tR0600, device_id: c_int) -> hipError_t;
            [none] fn hipGetErrorName(hip_error: hipError_t) -> *const c_char;
            [none] fn hipGetErrorString(hip_error: hipError_t) -> *const c_char;
            [none] fn hipGetSymbolAddress(dev_ptr: *mut *mut c_void, symbol: *const c_void) -> hipError_t;
            [none] fn hipGetSymbolSize(size: *mut usize, symbol: *const c_void) -> hipError_t;
            [none] fn hipGraphAddDependencies(graph: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t, num_dependencies: usize) -> hipError_t;
            [none] fn hipGraphChildGraphNodeGetGraph(node: hipGraphNode_t, p_graph: *mut hipGraph_t) -> hipError_t;
            [none] fn hipGraphCreate(p_graph: *mut hipGraph_t, flags: c_uint) -> hipError_t;
            [none] fn hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, num_nodes: *mut usize) -> hipError_t;
            [none] fn hipGraphNodeGetType(node: hipGraphNode_t, p_type: *mut hipGraphNodeType) -> hipError_t;
            [none] fn hipHostAlloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> hipError_t;
            [none] fn hipHostGetDevicePointer(dev_ptr: *mut *mut c_void, hst_ptr: *mut c_void, flags: c_uint) -> hipError_t;
            [none] fn hipHostGetFlags(flags_ptr: *mut c_uint, host_ptr: *mut c_void) -> hipError_t;
            [none] fn hipHostMalloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> hipError_t;
            [none] fn hipHostRegister(host_ptr: *mut c_void, size_bytes: usize, flags: c_uint) -> hipError_t;
            [none] fn hipInit(flags: c_uint) -> hipError_t;
            [none] fn hipIpcGetMemHandle(handle: *mut hipIpcMemHandle_t, dev_ptr: *mut c_void) -> hipError_t;
            [none] fn hipIpcOpenMemHandle(dev_ptr: *mut *mut c_void, handle: hipIpcMemHandle_t, flags: c_uint) -> hipError_t;
            [none] fn hipMalloc3D(pitched_dev_ptr: *mut hipPitchedPtr, extent: hipExtent) -> hipError_t;
            [none] fn hipMallocArray(array: *mut hipArray_t, desc: *const hipChannelFormatDesc, width: usize, height: usize, flags: c_uint) -> hipError_t;
            [none] fn hipMallocHost(ptr: *mut *mut c_void, size: usize) -> hipError_t;
            [none] fn hipMemGetAddressRange(pbase: *mut hipDeviceptr_t, psize: *mut usize, dptr: hipDeviceptr_t) -> hipError_t;
            [none] fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> hipError_t;
            [none] fn hipMemPoolCreate(mem_pool: *mut hipMemPool_t, pool_props: *const hipMemPoolProps) -> hipError_t;
            [none] fn hipModuleGetGlobal(dptr: *mut hipDeviceptr_t, bytes: *mut usize, hmod: hipModule_t, name: *const c_char) -> hipError_t;
            [none] fn hipModuleOccupancyMaxPotentialBlockSize(grid_size: *mut c_int, block_size: *mut c_int, f: hipFunction_t, dyn_shared_mem_per_blk: usize, block_size_limit: c_int) -> hipError_t;
            [none] fn hipOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks: *mut c_int, f: *const c_void, block_size: c_int, dyn_shared_mem_per_blk: usize) -> hipError_t;
            [none] fn hipOccupancyMaxPotentialBlockSize(grid_size: *mut c_int, block_size: *mut c_int, f: *const c_void, dyn_shared_mem_per_blk: usize, block_size_limit: c_int) -> hipError_t;
            [none] fn hipPointerGetAttribute(data: *mut c_void, attribute: hipPointer_attribute, ptr: hipDeviceptr_t) -> hipError_t;
            [none] fn hipPointerGetAttributes(attributes: *mut hipPointerAttribute_t, ptr: *const c_void) -> hipError_t;
            [none] fn hipRuntimeGetVersion(runtime_version: *mut c_int) -> hipError_t;
            [none] fn hipSetDevice(device_id: c_int) -> hipError_t;
            [none] fn hipSetDeviceFlags(flags: c_uint) -> hipError_t;
            [none] fn hipSetupArgument(arg: *const c_void, size: usize, offset: usize) -> hipError_t;
            [none] fn hipThreadExchangeStreamCaptureMode(mode: *mut hipStreamCaptureMode) -> hipError_t;
            [none] fn hiprtcCompileProgram(prog: hiprtcProgram, num_options: c_int, options: *mut *const c_char) -> hiprtcResult;
            [none] fn hiprtcCreateProgram(prog: *mut hiprtcProgram, src: *const c_char, name: *const c_char, num_headers: c_int, headers: *mut *const c_char, include_names: *mut *const c_char) -> hiprtcResult;
            [none] fn hiprtcDestroyProgram(prog: *mut hiprtcProgram) -> hiprtcResult;
            [none] fn hiprtcGetCode(prog: hiprtcProgram, code: *mut c_char) -> hiprtcResult;
            [none] fn hiprtcGetCodeSize(prog: hiprtcProgram, code_size_ret: *mut usize) -> hiprtcResult;
            [none] fn hiprtcGetErrorString(result: hiprtcResult) -> *const c_char;
            [none] fn hiprtcGetProgramLog(prog: hiprtcProgram, log: *mut c_char) -> hiprtcResult;
            [none] fn hiprtcGetProgramLogSize(prog: hiprtcProgram, log_size_ret: *mut usize) -> hiprtcResult;
            [none] fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> hiprtcResult;
        }
    };
}
