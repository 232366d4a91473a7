//! Prototypes of the functions that are forwarded after draining, and of those whose streams are inside
//! structures.

/// Gives the callback the prototype of every function with the rule `Drain`.
#[macro_export]
macro_rules! drain_prototypes {
    ($callback:ident) => {
        $callback! {
            [default] fn hipDrvMemcpy2DUnaligned(p_copy: *const hip_Memcpy2D) -> hipError_t;
            [default] fn hipDrvMemcpy3D(p_copy: *const HIP_MEMCPY3D) -> hipError_t;
            [own stream] fn hipDrvMemcpy3DAsync(p_copy: *const HIP_MEMCPY3D, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemPrefetchAsync_v2(dev_ptr: *const c_void, count: usize, location: hipMemLocation, flags: c_uint, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy2D(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpy2DArrayToArray(dst: hipArray_t, w_offset_dst: usize, h_offset_dst: usize, src: hipArray_const_t, w_offset_src: usize, h_offset_src: usize, width: usize, height: usize, kind: hipMemcpyKind) -> hipError_t;
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
            [default] fn hipMemcpyFromSymbol_spt(dst: *mut c_void, symbol: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyHtoA(dst_array: hipArray_t, dst_offset: usize, src_host: *const c_void, count: usize) -> hipError_t;
            [own stream] fn hipMemcpyHtoAAsync(dst_array: hipArray_t, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyParam2D(p_copy: *const hip_Memcpy2D) -> hipError_t;
            [all] fn hipMemcpyPeer(dst: *mut c_void, dst_device_id: c_int, src: *const c_void, src_device_id: c_int, size_bytes: usize) -> hipError_t;
            [default] fn hipMemcpyToArray(dst: hipArray_t, w_offset: usize, h_offset: usize, src: *const c_void, count: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyToSymbol(symbol: *const c_void, src: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemcpyToSymbol_spt(symbol: *const c_void, src: *const c_void, size_bytes: usize, offset: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemset2D(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> hipError_t;
            [default] fn hipMemset2D_spt(dst: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) -> hipError_t;
            [default] fn hipMemset3D(pitched_dev_ptr: hipPitchedPtr, value: c_int, extent: hipExtent) -> hipError_t;
            [default] fn hipMemset3D_spt(pitched_dev_ptr: hipPitchedPtr, value: c_int, extent: hipExtent) -> hipError_t;
            [default] fn hipMemsetD2D16(dst: hipDeviceptr_t, dst_pitch: usize, value: c_ushort, width: usize, height: usize) -> hipError_t;
            [default] fn hipMemsetD2D32(dst: hipDeviceptr_t, dst_pitch: usize, value: c_uint, width: usize, height: usize) -> hipError_t;
            [default] fn hipMemsetD2D8(dst: hipDeviceptr_t, dst_pitch: usize, value: c_uchar, width: usize, height: usize) -> hipError_t;
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
            [all] fn hipFreeHost(ptr: *mut c_void) -> hipError_t;
            [all] fn hipFreeMipmappedArray(mipmapped_array: hipMipmappedArray_t) -> hipError_t;
            [default] fn hipGraphicsGLRegisterImage(resource: *mut hipGraphicsResource_t, image: c_uint, target: c_uint, flags: c_uint) -> hipError_t;
            [own stream] fn hipGraphicsMapResources(count: c_int, resources: *mut hipGraphicsResource_t, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipGraphicsUnmapResources(count: c_int, resources: *mut hipGraphicsResource_t, stream: hipStream_t) -> hipError_t;
            [all] fn hipGraphicsUnregisterResource(resource: hipGraphicsResource_t) -> hipError_t;
            [all] fn hipHostFree(ptr: *mut c_void) -> hipError_t;
            [all] fn hipHostUnregister(host_ptr: *mut c_void) -> hipError_t;
            [all] fn hipIpcCloseMemHandle(dev_ptr: *mut c_void) -> hipError_t;
            [all] fn hipMemAddressFree(dev_ptr: *mut c_void, size: usize) -> hipError_t;
            [default] fn hipMemMap(ptr: *mut c_void, size: usize, offset: usize, handle: hipMemGenericAllocationHandle_t, flags: c_ulonglong) -> hipError_t;
            [all stream] fn hipMemMapArrayAsync(map_info_list: *mut hipArrayMapInfo, count: c_uint, stream: hipStream_t) -> hipError_t;
            [all] fn hipMemPoolSetAccess(mem_pool: hipMemPool_t, desc_list: *const hipMemAccessDesc, count: usize) -> hipError_t;
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
            [all] fn hipCtxSynchronize() -> hipError_t;
            [all] fn hipDestroyExternalSemaphore(ext_sem: hipExternalSemaphore_t) -> hipError_t;
            [own stream] fn hipSignalExternalSemaphoresAsync(ext_sem_array: *const hipExternalSemaphore_t, params_array: *const hipExternalSemaphoreSignalParams, num_ext_sems: c_uint, stream: hipStream_t) -> hipError_t;
            [all stream] fn hipWaitExternalSemaphoresAsync(ext_sem_array: *const hipExternalSemaphore_t, params_array: *const hipExternalSemaphoreWaitParams, num_ext_sems: c_uint, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t;
            [own stream] fn hipStreamBeginCaptureToGraph(stream: hipStream_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, dependency_data: *const hipGraphEdgeData, num_dependencies: usize, mode: hipStreamCaptureMode) -> hipError_t;
            [own stream] fn hipStreamBeginCapture_spt(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t;
            [own stream] fn hipStreamEndCapture(stream: hipStream_t, p_graph: *mut hipGraph_t) -> hipError_t;
            [own stream] fn hipStreamEndCapture_spt(stream: hipStream_t, p_graph: *mut hipGraph_t) -> hipError_t;
            [own stream] fn hipStreamUpdateCaptureDependencies(stream: hipStream_t, dependencies: *mut hipGraphNode_t, num_dependencies: usize, flags: c_uint) -> hipError_t;
            [all] fn hipGraphReleaseUserObject(graph: hipGraph_t, object: hipUserObject_t, count: c_uint) -> hipError_t;
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

/// Gives the callback the prototype of every function with the rule `Direct` whose streams are inside the structures
/// that its arguments point to. The handler must look there: for the queues concerned, and to translate the
/// per-thread stream.
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
