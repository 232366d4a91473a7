//! Prototypes of the functions that are forwarded after draining.

/// Gives the callback the prototype of every function with [`Rule::Drain`](crate::table::Rule::Drain), except those of
/// [`embedded_prototypes!`](crate::embedded_prototypes).
#[macro_export]
macro_rules! drain_prototypes {
    ($callback:ident) => {
        $callback! {
            [own stream] fn _ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv(function_address: usize, num_blocks: *const dim3, dim_blocks: *const dim3, shared_mem_bytes: u32, stream: hipStream_t, kernarg: *mut *mut c_void) -> ();
            [all] fn hipLaunchByPtr(func: *const c_void) -> hipError_t;
            [own stream] fn hipLaunchCooperativeKernel(f: *const c_void, grid_dim: dim3, block_dim_x: dim3, kernel_params: *mut *mut c_void, shared_mem_bytes: c_uint, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipLaunchCooperativeKernel_spt(f: *const c_void, grid_dim: dim3, block_dim: dim3, kernel_params: *mut *mut c_void, shared_mem_bytes: u32, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipModuleLaunchCooperativeKernel(f: hipFunction_t, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: hipStream_t, kernel_params: *mut *mut c_void) -> hipError_t;
            [default] fn hipDrvMemcpy2DUnaligned(p_copy: *const hip_Memcpy2D) -> hipError_t;
            [default] fn hipDrvMemcpy3D(p_copy: *const HIP_MEMCPY3D) -> hipError_t;
            [own stream] fn hipDrvMemcpy3DAsync(p_copy: *const HIP_MEMCPY3D, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemPrefetchAsync(dev_ptr: *const c_void, count: usize, device: c_int, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemPrefetchAsync_v2(dev_ptr: *const c_void, count: usize, location: hipMemLocation, flags: c_uint, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy2D(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpy2DArrayToArray(dst: hipArray_t, w_offset_dst: usize, h_offset_dst: usize, src: hipArray_const_t, w_offset_src: usize, h_offset_src: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpy2DAsync(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpy2DAsync_spt(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy2DFromArray(dst: *mut c_void, dpitch: usize, src: hipArray_const_t, w_offset: usize, h_offset: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpy2DFromArrayAsync(dst: *mut c_void, dpitch: usize, src: hipArray_const_t, w_offset: usize, h_offset: usize, width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpy2DFromArrayAsync_spt(dst: *mut c_void, dpitch: usize, src: hipArray_const_t, w_offset_src: usize, h_offset_src: usize, width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy2DFromArray_spt(dst: *mut c_void, dpitch: usize, src: hipArray_const_t, w_offset: usize, h_offset: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpy2DToArray(dst: hipArray_t, w_offset: usize, h_offset: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpy2DToArrayAsync(dst: hipArray_t, w_offset: usize, h_offset: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpy2DToArrayAsync_spt(dst: hipArray_t, w_offset: usize, h_offset: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy2DToArray_spt(dst: hipArray_t, w_offset: usize, h_offset: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpy2D_spt(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpy3D(p: *const hipMemcpy3DParms) -> hipError_t;
            [own stream] fn hipMemcpy3DAsync(p: *const hipMemcpy3DParms, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpy3DAsync_spt(p: *const hipMemcpy3DParms, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpy3DBatchAsync(num_ops: usize, op_list: *mut hipMemcpy3DBatchOp, fail_idx: *mut usize, flags: c_ulonglong, stream: hipStream_t) -> hipError_t;
            [all] fn hipMemcpy3DPeer(p: *mut hipMemcpy3DPeerParms) -> hipError_t;
            [all stream] fn hipMemcpy3DPeerAsync(p: *mut hipMemcpy3DPeerParms, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy3D_spt(p: *const hipMemcpy3DParms) -> hipError_t;
            [default] fn hipMemcpyAtoA(dst_array: hipArray_t, dst_offset: usize, src_array: hipArray_t, src_offset: usize, byte_count: usize) -> hipError_t;
            [default] fn hipMemcpyAtoD(dst_device: hipDeviceptr_t, src_array: hipArray_t, src_offset: usize, byte_count: usize) -> hipError_t;
            [default] fn hipMemcpyAtoH(dst: *mut c_void, src_array: hipArray_t, src_offset: usize, count: usize) -> hipError_t;
            [own stream] fn hipMemcpyAtoHAsync(dst_host: *mut c_void, src_array: hipArray_t, src_offset: usize, byte_count: usize, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpyBatchAsync(dsts: *mut *mut c_void, srcs: *mut *mut c_void, sizes: *mut usize, count: usize, attrs: *mut hipMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyDtoA(dst_array: hipArray_t, dst_offset: usize, src_device: hipDeviceptr_t, byte_count: usize) -> hipError_t;
            [default] fn hipMemcpyFromArray(dst: *mut c_void, src_array: hipArray_const_t, w_offset: usize, h_offset: usize, count: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyFromArray_spt(dst: *mut c_void, src: hipArray_const_t, w_offset_src: usize, h_offset: usize, count: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyFromSymbol(dst: *mut c_void, symbol: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpyFromSymbolAsync(dst: *mut c_void, symbol: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpyFromSymbolAsync_spt(dst: *mut c_void, symbol: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyFromSymbol_spt(dst: *mut c_void, symbol: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyHtoA(dst_array: hipArray_t, dst_offset: usize, src_host: *const c_void, count: usize) -> hipError_t;
            [own stream] fn hipMemcpyHtoAAsync(dst_array: hipArray_t, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyParam2D(p_copy: *const hip_Memcpy2D) -> hipError_t;
            [own stream] fn hipMemcpyParam2DAsync(p_copy: *const hip_Memcpy2D, stream: hipStream_t) -> hipError_t;
            [all] fn hipMemcpyPeer(dst: *mut c_void, dst_device_id: c_int, src: *const c_void, src_device_id: c_int, size_bytes: usize) -> hipError_t;
            [all stream] fn hipMemcpyPeerAsync(dst: *mut c_void, dst_device_id: c_int, src: *const c_void, src_device: c_int, size_bytes: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyToArray(dst: hipArray_t, w_offset: usize, h_offset: usize, src: *const c_void, count: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyToSymbol(symbol: *const c_void, src: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpyToSymbolAsync(symbol: *const c_void, src: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpyToSymbolAsync_spt(symbol: *const c_void, src: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyToSymbol_spt(symbol: *const c_void, src: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpyWithStream(dst: *mut c_void, src: *const c_void, size_bytes: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemset2D(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> hipError_t;
            [own stream] fn hipMemset2DAsync(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemset2DAsync_spt(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemset2D_spt(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> hipError_t;
            [default] fn hipMemset3D(pitched_dev_ptr: hipPitchedPtr, value: c_int, extent: hipExtent) -> hipError_t;
            [own stream] fn hipMemset3DAsync(pitched_dev_ptr: hipPitchedPtr, value: c_int, extent: hipExtent, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemset3DAsync_spt(pitched_dev_ptr: hipPitchedPtr, value: c_int, extent: hipExtent, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemset3D_spt(pitched_dev_ptr: hipPitchedPtr, value: c_int, extent: hipExtent) -> hipError_t;
            [default] fn hipMemsetD2D16(dst: hipDeviceptr_t, dst_pitch: usize, value: c_ushort, width: usize, height: usize) -> hipError_t;
            [own stream] fn hipMemsetD2D16Async(dst: hipDeviceptr_t, dst_pitch: usize, value: c_ushort, width: usize, height: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemsetD2D32(dst: hipDeviceptr_t, dst_pitch: usize, value: c_uint, width: usize, height: usize) -> hipError_t;
            [own stream] fn hipMemsetD2D32Async(dst: hipDeviceptr_t, dst_pitch: usize, value: c_uint, width: usize, height: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemsetD2D8(dst: hipDeviceptr_t, dst_pitch: usize, value: c_uchar, width: usize, height: usize) -> hipError_t;
            [own stream] fn hipMemsetD2D8Async(dst: hipDeviceptr_t, dst_pitch: usize, value: c_uchar, width: usize, height: usize, stream: hipStream_t) -> hipError_t;
            [all] fn _Z23hipDestroySurfaceObjectP13__hip_surface(surface_object: hipSurfaceObject_t) -> hipError_t;
            [all] fn hipArrayDestroy(array: hipArray_t) -> hipError_t;
            [all] fn hipBindTexture(offset: *mut usize, tex: *const textureReference, dev_ptr: *const c_void, desc: *const hipChannelFormatDesc, size: usize) -> hipError_t;
            [all] fn hipBindTexture2D(offset: *mut usize, tex: *const textureReference, dev_ptr: *const c_void, desc: *const hipChannelFormatDesc, width: usize, height: usize, pitch: usize) -> hipError_t;
            [all] fn hipBindTextureToArray(tex: *const textureReference, array: hipArray_const_t, desc: *const hipChannelFormatDesc) -> hipError_t;
            [all] fn hipBindTextureToMipmappedArray(tex: *const textureReference, mipmapped_array: hipMipmappedArray_const_t, desc: *const hipChannelFormatDesc) -> hipError_t;
            [all] fn hipCtxDisablePeerAccess(peer_ctx: hipCtx_t) -> hipError_t;
            [all] fn hipDestroyExternalMemory(ext_mem: hipExternalMemory_t) -> hipError_t;
            [all] fn hipDestroySurfaceObject(surface_object: hipSurfaceObject_t) -> hipError_t;
            [all] fn hipDestroyTextureObject(texture_object: hipTextureObject_t) -> hipError_t;
            [all] fn hipDeviceDisablePeerAccess(peer_device_id: c_int) -> hipError_t;
            [all] fn hipDeviceGraphMemTrim(device: c_int) -> hipError_t;
            [all] fn hipFree(ptr: *mut c_void) -> hipError_t;
            [all] fn hipFreeArray(array: hipArray_t) -> hipError_t;
            [all stream] fn hipFreeAsync(dev_ptr: *mut c_void, stream: hipStream_t) -> hipError_t;
            [all] fn hipFreeHost(ptr: *mut c_void) -> hipError_t;
            [all] fn hipFreeMipmappedArray(mipmapped_array: hipMipmappedArray_t) -> hipError_t;
            [default] fn hipGraphicsGLRegisterImage(resource: *mut hipGraphicsResource_t, image: c_uint, target: c_uint, flags: c_uint) -> hipError_t;
            [own stream] fn hipGraphicsMapResources(count: c_int, resources: *mut hipGraphicsResource_t, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipGraphicsUnmapResources(count: c_int, resources: *mut hipGraphicsResource_t, stream: hipStream_t) -> hipError_t;
            [all] fn hipGraphicsUnregisterResource(resource: hipGraphicsResource_t) -> hipError_t;
            [all] fn hipHostFree(ptr: *mut c_void) -> hipError_t;
            [all] fn hipHostUnregister(host_ptr: *mut c_void) -> hipError_t;
            [all] fn hipIpcCloseMemHandle(dev_ptr: *mut c_void) -> hipError_t;
            [own stream] fn hipMallocAsync(dev_ptr: *mut *mut c_void, size: usize, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMallocFromPoolAsync(dev_ptr: *mut *mut c_void, size: usize, mem_pool: hipMemPool_t, stream: hipStream_t) -> hipError_t;
            [all] fn hipMemAddressFree(dev_ptr: *mut c_void, size: usize) -> hipError_t;
            [all] fn hipMemMap(ptr: *mut c_void, size: usize, offset: usize, handle: hipMemGenericAllocationHandle_t, flags: c_ulonglong) -> hipError_t;
            [all stream] fn hipMemMapArrayAsync(map_info_list: *mut hipArrayMapInfo, count: c_uint, stream: hipStream_t) -> hipError_t;
            [all] fn hipMemPoolDestroy(mem_pool: hipMemPool_t) -> hipError_t;
            [all] fn hipMemPoolSetAccess(mem_pool: hipMemPool_t, desc_list: *const hipMemAccessDesc, count: usize) -> hipError_t;
            [all] fn hipMemPoolSetAttribute(mem_pool: hipMemPool_t, attr: hipMemPoolAttr, value: *mut c_void) -> hipError_t;
            [all] fn hipMemPoolTrimTo(mem_pool: hipMemPool_t, min_bytes_to_hold: usize) -> hipError_t;
            [all] fn hipMemRelease(handle: hipMemGenericAllocationHandle_t) -> hipError_t;
            [all] fn hipMemSetAccess(ptr: *mut c_void, size: usize, desc: *const hipMemAccessDesc, count: usize) -> hipError_t;
            [all] fn hipMemUnmap(ptr: *mut c_void, size: usize) -> hipError_t;
            [all] fn hipMipmappedArrayDestroy(h_mipmapped_array: hipMipmappedArray_t) -> hipError_t;
            [own stream] fn hipStreamAttachMemAsync(stream: hipStream_t, dev_ptr: *mut c_void, length: usize, flags: c_uint) -> hipError_t;
            [all] fn hipTexObjectDestroy(tex_object: hipTextureObject_t) -> hipError_t;
            [all] fn hipTexRefSetAddress(byte_offset: *mut usize, tex_ref: *mut textureReference, dptr: hipDeviceptr_t, bytes: usize) -> hipError_t;
            [all] fn hipTexRefSetAddress2D(tex_ref: *mut textureReference, desc: *const HIP_ARRAY_DESCRIPTOR, dptr: hipDeviceptr_t, pitch: usize) -> hipError_t;
            [all] fn hipTexRefSetArray(tex: *mut textureReference, array: hipArray_const_t, flags: c_uint) -> hipError_t;
            [all] fn hipTexRefSetMipmappedArray(tex_ref: *mut textureReference, mipmapped_array: hipMipmappedArray_t, flags: c_uint) -> hipError_t;
            [all] fn hipUnbindTexture(tex: *const textureReference) -> hipError_t;
            [all] fn hipIpcGetEventHandle(handle: *mut hipIpcEventHandle_t, event: hipEvent_t) -> hipError_t;
            [all] fn hipIpcOpenEventHandle(event: *mut hipEvent_t, handle: hipIpcEventHandle_t) -> hipError_t;
            [all] fn hipCtxSynchronize() -> hipError_t;
            [all] fn hipDestroyExternalSemaphore(ext_sem: hipExternalSemaphore_t) -> hipError_t;
            [own stream] fn hipSignalExternalSemaphoresAsync(ext_sem_array: *const hipExternalSemaphore_t, params_array: *const hipExternalSemaphoreSignalParams, num_ext_sems: c_uint, stream: hipStream_t) -> hipError_t;
            [all stream] fn hipStreamBatchMemOp(stream: hipStream_t, count: c_uint, param_array: *mut hipStreamBatchMemOpParams, flags: c_uint) -> hipError_t;
            [all stream] fn hipStreamWaitValue32(stream: hipStream_t, ptr: *mut c_void, value: u32, flags: c_uint, mask: u32) -> hipError_t;
            [all stream] fn hipStreamWaitValue64(stream: hipStream_t, ptr: *mut c_void, value: u64, flags: c_uint, mask: u64) -> hipError_t;
            [own stream] fn hipStreamWriteValue32(stream: hipStream_t, ptr: *mut c_void, value: u32, flags: c_uint) -> hipError_t;
            [own stream] fn hipStreamWriteValue64(stream: hipStream_t, ptr: *mut c_void, value: u64, flags: c_uint) -> hipError_t;
            [all stream] fn hipWaitExternalSemaphoresAsync(ext_sem_array: *const hipExternalSemaphore_t, params_array: *const hipExternalSemaphoreWaitParams, num_ext_sems: c_uint, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t;
            [own stream] fn hipStreamBeginCaptureToGraph(stream: hipStream_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, dependency_data: *const hipGraphEdgeData, num_dependencies: usize, mode: hipStreamCaptureMode) -> hipError_t;
            [own stream] fn hipStreamBeginCapture_spt(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t;
            [own stream] fn hipStreamEndCapture(stream: hipStream_t, p_graph: *mut hipGraph_t) -> hipError_t;
            [own stream] fn hipStreamEndCapture_spt(stream: hipStream_t, p_graph: *mut hipGraph_t) -> hipError_t;
            [own stream] fn hipStreamUpdateCaptureDependencies(stream: hipStream_t, dependencies: *mut hipGraphNode_t, num_dependencies: usize, flags: c_uint) -> hipError_t;
            [all] fn hipDrvGraphExecMemcpyNodeSetParams(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, copy_params: *const HIP_MEMCPY3D, ctx: hipCtx_t) -> hipError_t;
            [all] fn hipDrvGraphExecMemsetNodeSetParams(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, memset_params: *const HIP_MEMSET_NODE_PARAMS, ctx: hipCtx_t) -> hipError_t;
            [all] fn hipGraphDestroy(graph: hipGraph_t) -> hipError_t;
            [all] fn hipGraphDestroyNode(node: hipGraphNode_t) -> hipError_t;
            [all] fn hipGraphExecBatchMemOpNodeSetParams(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, node_params: *const hipBatchMemOpNodeParams) -> hipError_t;
            [all] fn hipGraphExecChildGraphNodeSetParams(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, child_graph: hipGraph_t) -> hipError_t;
            [all] fn hipGraphExecDestroy(graph_exec: hipGraphExec_t) -> hipError_t;
            [all] fn hipGraphExecEventRecordNodeSetEvent(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, event: hipEvent_t) -> hipError_t;
            [all] fn hipGraphExecEventWaitNodeSetEvent(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, event: hipEvent_t) -> hipError_t;
            [all] fn hipGraphExecExternalSemaphoresSignalNodeSetParams(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, node_params: *const hipExternalSemaphoreSignalNodeParams) -> hipError_t;
            [all] fn hipGraphExecExternalSemaphoresWaitNodeSetParams(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, node_params: *const hipExternalSemaphoreWaitNodeParams) -> hipError_t;
            [all] fn hipGraphExecHostNodeSetParams(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, p_node_params: *const hipHostNodeParams) -> hipError_t;
            [all] fn hipGraphExecKernelNodeSetParams(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, p_node_params: *const hipKernelNodeParams) -> hipError_t;
            [all] fn hipGraphExecMemcpyNodeSetParams(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, p_node_params: *mut hipMemcpy3DParms) -> hipError_t;
            [all] fn hipGraphExecMemcpyNodeSetParams1D(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, dst: *mut c_void, src: *const c_void, count: usize, kind: hipMemcpyKind) -> hipError_t;
            [all] fn hipGraphExecMemcpyNodeSetParamsFromSymbol(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, dst: *mut c_void, symbol: *const c_void, count: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [all] fn hipGraphExecMemcpyNodeSetParamsToSymbol(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, symbol: *const c_void, src: *const c_void, count: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [all] fn hipGraphExecMemsetNodeSetParams(h_graph_exec: hipGraphExec_t, node: hipGraphNode_t, p_node_params: *const hipMemsetParams) -> hipError_t;
            [all] fn hipGraphExecNodeSetParams(graph_exec: hipGraphExec_t, node: hipGraphNode_t, node_params: *mut hipGraphNodeParams) -> hipError_t;
            [all] fn hipGraphExecUpdate(h_graph_exec: hipGraphExec_t, h_graph: hipGraph_t, h_error_node_out: *mut hipGraphNode_t, update_result_out: *mut hipGraphExecUpdateResult) -> hipError_t;
            [all] fn hipGraphInstantiate(p_graph_exec: *mut hipGraphExec_t, graph: hipGraph_t, p_error_node: *mut hipGraphNode_t, p_log_buffer: *mut c_char, buffer_size: usize) -> hipError_t;
            [all] fn hipGraphInstantiateWithFlags(p_graph_exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong) -> hipError_t;
            [own stream] fn hipGraphLaunch(graph_exec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipGraphLaunch_spt(graph_exec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
            [all] fn hipGraphNodeSetEnabled(h_graph_exec: hipGraphExec_t, h_node: hipGraphNode_t, is_enabled: c_uint) -> hipError_t;
            [all] fn hipGraphReleaseUserObject(graph: hipGraph_t, object: hipUserObject_t, count: c_uint) -> hipError_t;
            [own stream] fn hipGraphUpload(graph_exec: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
            [all] fn hipUserObjectRelease(object: hipUserObject_t, count: c_uint) -> hipError_t;
            [all] fn hipCtxDestroy(ctx: hipCtx_t) -> hipError_t;
            [all] fn hipDevicePrimaryCtxRelease(dev: hipDevice_t) -> hipError_t;
            [all] fn hipDevicePrimaryCtxReset(dev: hipDevice_t) -> hipError_t;
            [all] fn hipDeviceReset() -> hipError_t;
            [all] fn hipDeviceSetLimit(limit: hipLimit_t, value: usize) -> hipError_t;
            [own dst src] fn hipStreamCopyAttributes(dst: hipStream_t, src: hipStream_t) -> hipError_t;
            [own stream] fn hipStreamSetAttribute(stream: hipStream_t, attr: hipLaunchAttributeID, value: *const hipLaunchAttributeValue) -> hipError_t;
            [default] fn __hipRegisterManagedVar(hip_module: *mut c_void, pointer: *mut *mut c_void, init_value: *mut c_void, name: *const c_char, size: usize, align: c_uint) -> ();
            [default] fn hipLibraryLoadData(library: *mut hipLibrary_t, code: *const c_void, jit_options: *mut hipJitOption, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut hipLibraryOption, library_option_values: *mut *mut c_void, num_library_options: c_uint) -> hipError_t;
            [default] fn hipLibraryLoadFromFile(library: *mut hipLibrary_t, file_name: *const c_char, jit_options: *mut hipJitOption, jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut hipLibraryOption, library_option_values: *mut *mut c_void, num_library_options: c_uint) -> hipError_t;
            [all] fn hipLibraryUnload(library: hipLibrary_t) -> hipError_t;
        }
    };
}

/// Gives the callback the prototype of every function with [`Rule::Drain`](crate::table::Rule::Drain) whose streams are
/// inside the structures that its arguments point to. The handler must look there: for the queues to drain and to translate
/// the per-thread stream.
#[macro_export]
macro_rules! embedded_prototypes {
    ($callback:ident) => {
        $callback! {
            [embedded] fn hipDrvLaunchKernelEx(config: *const HIP_LAUNCH_CONFIG, f: hipFunction_t, params: *mut *mut c_void, extra: *mut *mut c_void) -> hipError_t;
            [embedded] fn hipExtLaunchMultiKernelMultiDevice(launch_params_list: *mut hipLaunchParams, num_devices: c_int, flags: c_uint) -> hipError_t;
            [embedded] fn hipLaunchCooperativeKernelMultiDevice(launch_params_list: *mut hipLaunchParams, num_devices: c_int, flags: c_uint) -> hipError_t;
            [embedded] fn hipLaunchKernelExC(config: *const hipLaunchConfig_t, f_ptr: *const c_void, args: *mut *mut c_void) -> hipError_t;
            [embedded] fn hipModuleLaunchCooperativeKernelMultiDevice(launch_params_list: *mut hipFunctionLaunchParams, num_devices: c_uint, flags: c_uint) -> hipError_t;
            [embedded] fn hipGraphInstantiateWithParams(p_graph_exec: *mut hipGraphExec_t, graph: hipGraph_t, instantiate_params: *mut hipGraphInstantiateParams) -> hipError_t;
        }
    };
}
