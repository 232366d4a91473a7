//! Prototypes of the functions that have their own handler in the shim.

/// Gives the callback the prototype of every function with [`Rule::Direct`](crate::table::Rule::Direct).
#[macro_export]
macro_rules! direct_prototypes {
    ($callback:ident) => {
        $callback! {
            [own stream] fn _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j(f: hipFunction_t, global_work_size_x: u32, global_work_size_y: u32, global_work_size_z: u32, local_work_size_x: u32, local_work_size_y: u32, local_work_size_z: u32, shared_mem_bytes: usize, stream: hipStream_t, kernel_params: *mut *mut c_void, extra: *mut *mut c_void, start_event: hipEvent_t, stop_event: hipEvent_t, flags: u32) -> hipError_t;
            [own stream] fn _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_(f: hipFunction_t, global_work_size_x: u32, global_work_size_y: u32, global_work_size_z: u32, local_work_size_x: u32, local_work_size_y: u32, local_work_size_z: u32, shared_mem_bytes: usize, stream: hipStream_t, kernel_params: *mut *mut c_void, extra: *mut *mut c_void, start_event: hipEvent_t, stop_event: hipEvent_t) -> hipError_t;
            [own stream] fn hipExtLaunchKernel(function_address: *const c_void, num_blocks: dim3, dim_blocks: dim3, args: *mut *mut c_void, shared_mem_bytes: usize, stream: hipStream_t, start_event: hipEvent_t, stop_event: hipEvent_t, flags: c_int) -> hipError_t;
            [own stream] fn hipExtModuleLaunchKernel(f: hipFunction_t, global_work_size_x: u32, global_work_size_y: u32, global_work_size_z: u32, local_work_size_x: u32, local_work_size_y: u32, local_work_size_z: u32, shared_mem_bytes: usize, stream: hipStream_t, kernel_params: *mut *mut c_void, extra: *mut *mut c_void, start_event: hipEvent_t, stop_event: hipEvent_t, flags: u32) -> hipError_t;
            [own stream] fn hipHccModuleLaunchKernel(f: hipFunction_t, global_work_size_x: u32, global_work_size_y: u32, global_work_size_z: u32, local_work_size_x: u32, local_work_size_y: u32, local_work_size_z: u32, shared_mem_bytes: usize, stream: hipStream_t, kernel_params: *mut *mut c_void, extra: *mut *mut c_void, start_event: hipEvent_t, stop_event: hipEvent_t) -> hipError_t;
            [own stream] fn hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, user_data: *mut c_void) -> hipError_t;
            [own stream] fn hipLaunchHostFunc_spt(stream: hipStream_t, function: hipHostFn_t, user_data: *mut c_void) -> hipError_t;
            [own stream] fn hipLaunchKernel(function_address: *const c_void, num_blocks: dim3, dim_blocks: dim3, args: *mut *mut c_void, shared_mem_bytes: usize, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipLaunchKernel_spt(function_address: *const c_void, num_blocks: dim3, dim_blocks: dim3, args: *mut *mut c_void, shared_mem_bytes: usize, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipModuleLaunchKernel(f: hipFunction_t, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: hipStream_t, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) -> hipError_t;
            [own stream] fn hipStreamAddCallback(stream: hipStream_t, callback: hipStreamCallback_t, user_data: *mut c_void, flags: c_uint) -> hipError_t;
            [own stream] fn hipStreamAddCallback_spt(stream: hipStream_t, callback: hipStreamCallback_t, user_data: *mut c_void, flags: c_uint) -> hipError_t;
            [default] fn hipMemcpy(dst: *mut c_void, src: *const c_void, size_bytes: usize, kind: hipMemcpyKind) -> hipError_t;
            [own stream] fn hipMemcpyAsync(dst: *mut c_void, src: *const c_void, size_bytes: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemcpyAsync_spt(dst: *mut c_void, src: *const c_void, size_bytes: usize, kind: hipMemcpyKind, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyDtoD(dst: hipDeviceptr_t, src: hipDeviceptr_t, size_bytes: usize) -> hipError_t;
            [own stream] fn hipMemcpyDtoDAsync(dst: hipDeviceptr_t, src: hipDeviceptr_t, size_bytes: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyDtoH(dst: *mut c_void, src: hipDeviceptr_t, size_bytes: usize) -> hipError_t;
            [own stream] fn hipMemcpyDtoHAsync(dst: *mut c_void, src: hipDeviceptr_t, size_bytes: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpyHtoD(dst: hipDeviceptr_t, src: *const c_void, size_bytes: usize) -> hipError_t;
            [own stream] fn hipMemcpyHtoDAsync(dst: hipDeviceptr_t, src: *const c_void, size_bytes: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemcpy_spt(dst: *mut c_void, src: *const c_void, size_bytes: usize, kind: hipMemcpyKind) -> hipError_t;
            [default] fn hipMemset(dst: *mut c_void, value: c_int, size_bytes: usize) -> hipError_t;
            [own stream] fn hipMemsetAsync(dst: *mut c_void, value: c_int, size_bytes: usize, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipMemsetAsync_spt(dst: *mut c_void, value: c_int, size_bytes: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemsetD16(dest: hipDeviceptr_t, value: c_ushort, count: usize) -> hipError_t;
            [own stream] fn hipMemsetD16Async(dest: hipDeviceptr_t, value: c_ushort, count: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemsetD32(dest: hipDeviceptr_t, value: c_int, count: usize) -> hipError_t;
            [own stream] fn hipMemsetD32Async(dst: hipDeviceptr_t, value: c_int, count: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemsetD8(dest: hipDeviceptr_t, value: c_uchar, count: usize) -> hipError_t;
            [own stream] fn hipMemsetD8Async(dest: hipDeviceptr_t, value: c_uchar, count: usize, stream: hipStream_t) -> hipError_t;
            [default] fn hipMemset_spt(dst: *mut c_void, value: c_int, size_bytes: usize) -> hipError_t;
            [none] fn hipEventCreate(event: *mut hipEvent_t) -> hipError_t;
            [none] fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint) -> hipError_t;
            [none] fn hipEventDestroy(event: hipEvent_t) -> hipError_t;
            [none] fn hipEventElapsedTime(ms: *mut f32, start: hipEvent_t, stop: hipEvent_t) -> hipError_t;
            [none] fn hipEventQuery(event: hipEvent_t) -> hipError_t;
            [own stream] fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) -> hipError_t;
            [own stream] fn hipEventRecordWithFlags(event: hipEvent_t, stream: hipStream_t, flags: c_uint) -> hipError_t;
            [own stream] fn hipEventRecord_spt(event: hipEvent_t, stream: hipStream_t) -> hipError_t;
            [none] fn hipEventSynchronize(event: hipEvent_t) -> hipError_t;
            [own stream] fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint) -> hipError_t;
            [own stream] fn hipStreamWaitEvent_spt(stream: hipStream_t, event: hipEvent_t, flags: c_uint) -> hipError_t;
            [all] fn hipDeviceSynchronize() -> hipError_t;
            [own stream] fn hipStreamSynchronize(stream: hipStream_t) -> hipError_t;
            [own stream] fn hipStreamSynchronize_spt(stream: hipStream_t) -> hipError_t;
            [own stream] fn hipStreamQuery(stream: hipStream_t) -> hipError_t;
            [own stream] fn hipStreamQuery_spt(stream: hipStream_t) -> hipError_t;
            [none] fn hipExtStreamCreateWithCUMask(stream: *mut hipStream_t, cu_mask_size: u32, cu_mask: *const u32) -> hipError_t;
            [none] fn hipStreamCreate(stream: *mut hipStream_t) -> hipError_t;
            [none] fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: c_uint) -> hipError_t;
            [none] fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int) -> hipError_t;
            [own stream] fn hipStreamDestroy(stream: hipStream_t) -> hipError_t;
            [none] fn __hipRegisterFatBinary(data: *const c_void) -> *mut *mut c_void;
            [none] fn __hipRegisterFunction(modules: *mut *mut c_void, host_function: *const c_void, device_function: *mut c_char, device_name: *const c_char, thread_limit: c_uint, tid: *mut uint3, bid: *mut uint3, block_dim: *mut dim3, grid_dim: *mut dim3, w_size: *mut c_int) -> ();
            [all] fn __hipUnregisterFatBinary(modules: *mut *mut c_void) -> ();
            [none] fn hipGetDriverEntryPoint(symbol: *const c_char, func_ptr: *mut *mut c_void, flags: c_ulonglong, driver_status: *mut hipDriverEntryPointQueryResult) -> hipError_t;
            [none] fn hipGetDriverEntryPoint_spt(symbol: *const c_char, func_ptr: *mut *mut c_void, flags: c_ulonglong, status: *mut hipDriverEntryPointQueryResult) -> hipError_t;
            [none] fn hipGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, hip_version: c_int, flags: u64, symbol_status: *mut hipDriverProcAddressQueryResult) -> hipError_t;
            [none] fn hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, kname: *const c_char) -> hipError_t;
            [none] fn hipModuleLoad(module: *mut hipModule_t, fname: *const c_char) -> hipError_t;
            [none] fn hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) -> hipError_t;
            [none] fn hipModuleLoadDataEx(module: *mut hipModule_t, image: *const c_void, num_options: c_uint, options: *mut hipJitOption, option_values: *mut *mut c_void) -> hipError_t;
            [none] fn hipModuleLoadFatBinary(module: *mut hipModule_t, fatbin: *const c_void) -> hipError_t;
            [all] fn hipModuleUnload(module: hipModule_t) -> hipError_t;
            [none] fn hipExtGetLastError() -> hipError_t;
            [none] fn hipGetLastError() -> hipError_t;
            [none] fn hipPeekAtLastError() -> hipError_t;
        }
    };
}
