//! The handlers of the exported functions: one row of [`hook!`] for each function with a handler of its own,
//! and one row for each scope of the others.
//!
//! A handler gets the [`Call`](crate::boundary::Call) and the caller's arguments. The handler of a row whose
//! name no function has is dead code, which the build refuses. For a function without a row, everything in
//! its scope is launched first, and then the call is forwarded (`drain`), so that no call bypasses a queue.
//!
//! # Safety
//! The contract of an unsafe handler is that of the runtime's function in its first line, unless the handler
//! states another one: the arguments are the caller's own.

pub(crate) mod callback;
pub(crate) mod copy;
pub(crate) mod copy_wide;
pub(crate) mod defer;
pub(crate) mod devices;
pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod launch_ex;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod resolve;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod turn;
pub(crate) mod value;

/// The body of an exported function: its own handler, or the one for its scope.
macro_rules! hook {
    (hipGetProcAddress, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::resolve::get_proc_address($call, $($a),*) };
    (hipGetDriverEntryPoint, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::resolve::get_driver_entry_point($call, $($a),*) };
    (hipGetDriverEntryPoint_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::resolve::get_driver_entry_point($call, $($a),*) };

    (hipLaunchKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(function, $call, false, Plain, $a) };
    (hipLaunchKernel_spt, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(function, $call, true, Plain, $a) };
    (hipLaunchCooperativeKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(function, $call, false, Cooperative, $a) };
    (hipLaunchCooperativeKernel_spt, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(function, $call, true, Cooperative, $a) };
    (hipExtLaunchKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(function_with_events, $call, $a) };
    (hipModuleLaunchKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(module, $call, Plain, $a) };
    (hipModuleLaunchCooperativeKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(module, $call, Cooperative, $a) };
    (hipExtModuleLaunchKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(module_with_events, $call, $a) };
    (_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(module_with_events, $call, $a) };
    (hipHccModuleLaunchKernel, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(module_with_events, $call, $a) };
    (_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_, $call:expr, $scope:tt, $a:tt) => { $crate::hooks::launch::launch!(module_with_events, $call, $a) };
    (hipLaunchHostFunc, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::callback::host_function($call, false, $($a),*) };
    (hipLaunchHostFunc_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::callback::host_function($call, true, $($a),*) };
    (hipStreamAddCallback, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::callback::stream_callback($call, false, $($a),*) };
    (hipStreamAddCallback_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::callback::stream_callback($call, true, $($a),*) };

    (hipMemcpyAsync, $call:expr, $scope:tt, ($dst:ident, $src:ident, $bytes:ident, $kind:ident, $stream:ident)) => {
        $crate::hooks::copy::copy($call, ($stream, false), ($dst, $src, $bytes), $kind, move |real, $src, $stream| real($dst, $src, $bytes, $kind, $stream))
    };
    (hipMemcpyAsync_spt, $call:expr, $scope:tt, ($dst:ident, $src:ident, $bytes:ident, $kind:ident, $stream:ident)) => {
        $crate::hooks::copy::copy($call, ($stream, true), ($dst, $src, $bytes), $kind, move |real, $src, $stream| real($dst, $src, $bytes, $kind, $stream))
    };
    (hipMemcpyHtoDAsync, $call:expr, $scope:tt, ($dst:ident, $src:ident, $bytes:ident, $stream:ident)) => {
        $crate::hooks::copy::copy($call, ($stream, false), ($dst, $src, $bytes), ::hip_sys::types::hipMemcpyHostToDevice, move |real, $src, $stream| real($dst, $src, $bytes, $stream))
    };
    (hipMemcpyDtoHAsync, $call:expr, $scope:tt, ($dst:ident, $src:ident, $bytes:ident, $stream:ident)) => {
        $crate::hooks::copy::copy($call, ($stream, false), ($dst, $src, $bytes), ::hip_sys::types::hipMemcpyDeviceToHost, move |real, $src, $stream| real($dst, $src.cast_mut(), $bytes, $stream))
    };
    (hipMemcpyDtoDAsync, $call:expr, $scope:tt, ($dst:ident, $src:ident, $bytes:ident, $stream:ident)) => {
        $crate::hooks::copy::copy($call, ($stream, false), ($dst, $src, $bytes), ::hip_sys::types::hipMemcpyDeviceToDevice, move |real, $src, $stream| real($dst, $src.cast_mut(), $bytes, $stream))
    };
    (hipMemcpy, $call:expr, $scope:tt, ($dst:expr, $src:expr, $bytes:expr, $kind:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy(real, $dst, $src, $bytes, $kind), |real| real($dst, $src, $bytes, $kind))
    };
    (hipMemcpyHtoD, $call:expr, $scope:tt, ($dst:expr, $src:expr, $bytes:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy(real, $dst, $src, $bytes, ::hip_sys::types::hipMemcpyHostToDevice), |real| real($dst, $src, $bytes))
    };
    (hipMemcpyDtoH, $call:expr, $scope:tt, ($dst:expr, $src:expr, $bytes:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy(real, $dst, $src, $bytes, ::hip_sys::types::hipMemcpyDeviceToHost), |real| real($dst, $src, $bytes))
    };
    (hipMemcpyDtoD, $call:expr, $scope:tt, ($dst:expr, $src:expr, $bytes:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy(real, $dst, $src, $bytes, ::hip_sys::types::hipMemcpyDeviceToDevice), |real| real($dst, $src, $bytes))
    };
    (hipMemcpy2D, $call:expr, $scope:tt, ($dst:expr, $dpitch:expr, $src:expr, $spitch:expr, $width:expr, $height:expr, $kind:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::rows(real, $dst, $src, $width.saturating_mul($height)), |real| real($dst, $dpitch, $src, $spitch, $width, $height, $kind))
    };
    (hipMemcpy3D, $call:expr, $scope:tt, ($params:expr)) => {
        $crate::hooks::drain::default($call, false, |real| $crate::hooks::copy_wide::slices_wait(real, $params), |real| real($params))
    };
    (hipMemcpyParam2D, $call:expr, $scope:tt, ($params:expr)) => {
        $crate::hooks::drain::default($call, false, |real| $crate::hooks::copy_wide::described_waits(real, $params), |real| real($params))
    };
    (hipDrvMemcpy2DUnaligned, $call:expr, $scope:tt, ($params:expr)) => {
        $crate::hooks::drain::default($call, false, |real| $crate::hooks::copy_wide::described_waits(real, $params), |real| real($params))
    };
    (hipMemcpyFromSymbol, $call:expr, $scope:tt, ($dst:expr, $symbol:expr, $bytes:expr, $offset:expr, $kind:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy_to_host(real, $dst, $bytes), |real| real($dst, $symbol, $bytes, $offset, $kind))
    };
    (hipMemcpyFromArray, $call:expr, $scope:tt, ($dst:expr, $array:expr, $x:expr, $y:expr, $bytes:expr, $kind:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy_to_host(real, $dst, $bytes), |real| real($dst, $array, $x, $y, $bytes, $kind))
    };
    (hipMemcpy2DFromArray, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $array:expr, $x:expr, $y:expr, $width:expr, $height:expr, $kind:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy_to_host(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $array, $x, $y, $width, $height, $kind))
    };
    (hipMemcpyAtoH, $call:expr, $scope:tt, ($dst:expr, $array:expr, $offset:expr, $bytes:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::copy_to_host(real, $dst, $bytes), |real| real($dst, $array, $offset, $bytes))
    };
    (hipMemcpyToSymbol, $call:expr, $scope:tt, ($symbol:expr, $src:expr, $bytes:expr, $offset:expr, $kind:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::leaving(real, $bytes), |real| real($symbol, $src, $bytes, $offset, $kind))
    };
    (hipMemset, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $count), |real| real($dst, $value, $count))
    };
    (hipMemsetD8, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $count), |real| real($dst, $value, $count))
    };
    (hipMemsetD16, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $count), |real| real($dst, $value, $count))
    };
    (hipMemsetD32, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $count), |real| real($dst, $value, $count))
    };
    (hipMemset2D, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $value, $width, $height))
    };
    (hipMemset3D, $call:expr, $scope:tt, ($memory:expr, $value:expr, $extent:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $memory.ptr, $extent.width.saturating_mul($extent.height).saturating_mul($extent.depth)), |real| real($memory, $value, $extent))
    };
    (hipMemsetD2D8, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $value, $width, $height))
    };
    (hipMemsetD2D16, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $value, $width, $height))
    };
    (hipMemsetD2D32, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr)) => {
        $crate::hooks::drain::default($call, false, |real| ::hal_hip::waits::fill(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $value, $width, $height))
    };
    (hipMemsetAsync, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr, $stream:expr)) => { $crate::hooks::copy::fill($call, false, $dst, $value, $count, 1, $stream) };
    (hipMemsetAsync_spt, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr, $stream:expr)) => { $crate::hooks::copy::fill($call, true, $dst, $value, $count, 1, $stream) };
    (hipMemsetD8Async, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr, $stream:expr)) => { $crate::hooks::copy::fill($call, false, $dst, $value, $count, 1, $stream) };
    (hipMemsetD16Async, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr, $stream:expr)) => { $crate::hooks::copy::fill($call, false, $dst, $value, $count, 2, $stream) };
    (hipMemsetD32Async, $call:expr, $scope:tt, ($dst:expr, $value:expr, $count:expr, $stream:expr)) => { $crate::hooks::copy::fill($call, false, $dst, $value, $count, 4, $stream) };

    (hipEventCreate, $call:expr, $scope:tt, ($event:expr)) => { $crate::hooks::event::create($call, $event, 0, |real| real($event)) };
    (hipEventCreateWithFlags, $call:expr, $scope:tt, ($event:expr, $flags:expr)) => { $crate::hooks::event::create($call, $event, $flags, |real| real($event, $flags)) };
    (hipIpcOpenEventHandle, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::event::open($call, $($a),*) };
    (hipIpcGetEventHandle, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::event::share($call, $($a),*) };
    (hipEventRecord, $call:expr, $scope:tt, ($event:expr, $stream:expr)) => { $crate::hooks::event::record($call, false, $event, ($stream, 0), move |real, stream| real($event, stream)) };
    (hipEventRecord_spt, $call:expr, $scope:tt, ($event:expr, $stream:expr)) => { $crate::hooks::event::record($call, true, $event, ($stream, 0), move |real, stream| real($event, stream)) };
    (hipEventRecordWithFlags, $call:expr, $scope:tt, ($event:expr, $stream:expr, $flags:expr)) => { $crate::hooks::event::record($call, false, $event, ($stream, $flags), move |real, stream| real($event, stream, $flags)) };
    (hipStreamWaitEvent, $call:expr, $scope:tt, ($stream:expr, $event:expr, $flags:expr)) => { $crate::hooks::event::wait($call, false, $stream, $event, $flags) };
    (hipStreamWaitEvent_spt, $call:expr, $scope:tt, ($stream:expr, $event:expr, $flags:expr)) => { $crate::hooks::event::wait($call, true, $stream, $event, $flags) };
    (hipEventQuery, $call:expr, $scope:tt, ($event:expr)) => { $crate::hooks::event::query($call, $event) };
    (hipEventSynchronize, $call:expr, $scope:tt, ($event:expr)) => { $crate::hooks::event::synchronize($call, $event) };
    (hipEventElapsedTime, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::event::elapsed_time($call, $($a),*) };
    (hipEventDestroy, $call:expr, $scope:tt, ($event:expr)) => { $crate::hooks::event::destroy($call, $event) };

    (hipDeviceSynchronize, $call:expr, $scope:tt, ()) => { $crate::hooks::sync::device($call) };
    (hipStreamSynchronize, $call:expr, $scope:tt, ($stream:expr)) => { $crate::hooks::sync::stream($call, false, $stream) };
    (hipStreamSynchronize_spt, $call:expr, $scope:tt, ($stream:expr)) => { $crate::hooks::sync::stream($call, true, $stream) };
    (hipStreamQuery, $call:expr, $scope:tt, ($stream:expr)) => { $crate::hooks::sync::query($call, false, $stream) };
    (hipStreamQuery_spt, $call:expr, $scope:tt, ($stream:expr)) => { $crate::hooks::sync::query($call, true, $stream) };

    (hipStreamCreate, $call:expr, $scope:tt, ($stream:expr)) => { $crate::hooks::stream::create($call, $stream, 0, |real| real($stream)) };
    (hipStreamCreateWithFlags, $call:expr, $scope:tt, ($stream:expr, $flags:expr)) => { $crate::hooks::stream::create($call, $stream, $flags, |real| real($stream, $flags)) };
    (hipStreamCreateWithPriority, $call:expr, $scope:tt, ($stream:expr, $flags:expr, $priority:expr)) => { $crate::hooks::stream::create($call, $stream, $flags, |real| real($stream, $flags, $priority)) };
    (hipExtStreamCreateWithCUMask, $call:expr, $scope:tt, ($stream:expr, $size:expr, $mask:expr)) => { $crate::hooks::stream::create($call, $stream, 0, |real| real($stream, $size, $mask)) };
    (hipStreamDestroy, $call:expr, $scope:tt, ($stream:expr)) => { $crate::hooks::stream::destroy($call, $stream) };
    (hipDeviceReset, $call:expr, $scope:tt, ()) => { $crate::hooks::stream::reset($call) };

    (__hipRegisterFatBinary, $call:expr, $scope:tt, ($data:expr)) => { $crate::hooks::module::register_fat_binary($call, $data) };
    (__hipRegisterFunction, $call:expr, $scope:tt, ($modules:expr, $host:expr, $device:expr, $name:expr, $($a:expr),*)) => {
        $crate::hooks::module::register_function($call, $modules, $host, $name, |real| real($modules, $host, $device, $name, $($a),*))
    };
    (__hipUnregisterFatBinary, $call:expr, $scope:tt, ($modules:expr)) => { $crate::hooks::module::unregister_fat_binary($call, $modules) };
    (hipGetFuncBySymbol, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::module::function_of_symbol($call, $($a),*) };
    (hipModuleGetFunction, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::module::get_function($call, $($a),*) };
    (hipModuleLoad, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::module::load($call, $($a),*) };
    (hipModuleLoadData, $call:expr, $scope:tt, ($module:expr, $image:expr)) => { $crate::hooks::module::load_data($call, $module, $image, |real| real($module, $image)) };
    (hipModuleLoadDataEx, $call:expr, $scope:tt, ($module:expr, $image:expr, $($a:expr),*)) => { $crate::hooks::module::load_data($call, $module, $image, |real| real($module, $image, $($a),*)) };
    (hipModuleLoadFatBinary, $call:expr, $scope:tt, ($module:expr, $image:expr)) => { $crate::hooks::module::load_data($call, $module, $image, |real| real($module, $image)) };
    (hipModuleUnload, $call:expr, $scope:tt, ($module:expr)) => { $crate::hooks::module::unload($call, $module) };

    (hipGetLastError, $call:expr, $scope:tt, ()) => { $crate::hooks::error::last($call, $crate::hooks::error::Asks::Forget) };
    (hipExtGetLastError, $call:expr, $scope:tt, ()) => { $crate::hooks::error::last($call, $crate::hooks::error::Asks::Result) };
    (hipPeekAtLastError, $call:expr, $scope:tt, ()) => { $crate::hooks::error::last($call, $crate::hooks::error::Asks::Peek) };

    (hipLaunchKernelExC, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::launch_ex::configured($call, $($a),*) };
    (hipDrvLaunchKernelEx, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::launch_ex::module_configured($call, $($a),*) };
    (hipLaunchByPtr, $call:expr, $scope:tt, ($function:expr)) => { $crate::hooks::launch_ex::through_the_runtime($call, $function, |real| real($function)) };
    (_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv, $call:expr, $scope:tt, ($function:expr, $($a:expr),*)) => {
        $crate::hooks::launch_ex::through_the_runtime($call, ::std::ptr::with_exposed_provenance($function), |real| real($function, $($a),*))
    };
    (hipExtLaunchMultiKernelMultiDevice, $call:expr, $scope:tt, ($list:expr, $n:expr, $flags:expr)) => { $crate::hooks::devices::launch($call, $list, $n as usize, $flags, |real, list| real(list, $n, $flags)) };
    (hipLaunchCooperativeKernelMultiDevice, $call:expr, $scope:tt, ($list:expr, $n:expr, $flags:expr)) => { $crate::hooks::devices::launch($call, $list, $n as usize, $flags, |real, list| real(list, $n, $flags)) };
    (hipModuleLaunchCooperativeKernelMultiDevice, $call:expr, $scope:tt, ($list:expr, $n:expr, $flags:expr)) => { $crate::hooks::devices::launch($call, $list, $n as usize, $flags, |real, list| real(list, $n, $flags)) };

    (hipMemcpy2DAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::rows($call, false, $($a),*) };
    (hipMemcpy3DAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::slices($call, false, $($a),*) };
    (hipMemcpyToSymbolAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::to_symbol($call, false, $($a),*) };
    (hipMemcpyFromSymbolAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::from_symbol($call, false, $($a),*) };
    (hipMemset2DAsync, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr)) => { $crate::hooks::copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 1], ($stream, false)) };
    (hipMemset3DAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::fill_slices($call, false, $($a),*) };
    (hipMemcpy2DAsync_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::rows($call, true, $($a),*) };
    (hipMemcpy3DAsync_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::slices($call, true, $($a),*) };
    (hipMemcpyToSymbolAsync_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::to_symbol($call, true, $($a),*) };
    (hipMemcpyFromSymbolAsync_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::from_symbol($call, true, $($a),*) };
    (hipMemset2DAsync_spt, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr)) => { $crate::hooks::copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 1], ($stream, true)) };
    (hipMemset3DAsync_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::fill_slices($call, true, $($a),*) };
    (hipMemsetD2D8Async, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr)) => { $crate::hooks::copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 1], ($stream, false)) };
    (hipMemsetD2D16Async, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr)) => { $crate::hooks::copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 2], ($stream, false)) };
    (hipMemsetD2D32Async, $call:expr, $scope:tt, ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr)) => { $crate::hooks::copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 4], ($stream, false)) };
    (hipMemcpyParam2DAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::described($call, $($a),*) };
    (hipMemcpyPeerAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::peer($call, $($a),*) };
    (hipMemcpyWithStream, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::with_stream($call, $($a),*) };
    (hipMemPrefetchAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::copy_wide::prefetch($call, $($a),*) };

    (hipMallocAsync, $call:expr, $scope:tt, ($place:expr, $size:expr, $stream:expr)) => { $crate::hooks::pool::allocate($call, $place, $size, None, $stream, |real, stream| real($place, $size, stream)) };
    (hipMallocFromPoolAsync, $call:expr, $scope:tt, ($place:expr, $size:expr, $pool:expr, $stream:expr)) => { $crate::hooks::pool::allocate($call, $place, $size, Some($pool), $stream, |real, stream| real($place, $size, $pool, stream)) };
    (hipFreeAsync, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::give_back($call, $($a),*) };
    (hipFree, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::free($call, $($a),*) };
    (hipMalloc, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::memory($call, |real| real($($a),*)) };
    (hipMallocManaged, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::memory($call, |real| real($($a),*)) };
    (hipMallocPitch, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::memory($call, |real| real($($a),*)) };
    (hipExtMallocWithFlags, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::memory($call, |real| real($($a),*)) };
    (hipMemPoolDestroy, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::destroy($call, $($a),*) };
    (hipMemPoolGetAttribute, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::settled($call, |real| real($($a),*)) };
    (hipMemPoolSetAttribute, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::settled($call, |real| real($($a),*)) };
    (hipMemPoolTrimTo, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::pool::settled($call, |real| real($($a),*)) };

    (hipStreamWriteValue32, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::value::write($call, $($a),*) };
    (hipStreamWriteValue64, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::value::write($call, $($a),*) };
    (hipStreamWaitValue32, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::value::wait($call, $($a),*) };
    (hipStreamWaitValue64, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::value::wait($call, $($a),*) };
    (hipStreamBatchMemOp, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::value::batch($call, $($a),*) };

    (hipGraphLaunch, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::launch($call, false, $($a),*) };
    (hipGraphLaunch_spt, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::launch($call, true, $($a),*) };
    (hipGraphUpload, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::launch($call, false, $($a),*) };
    (hipGraphExecDestroy, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::destroy_exec($call, $($a),*) };
    (hipGraphInstantiate, $call:expr, $scope:tt, ($exec:expr, $graph:expr, $($a:expr),*)) => { $crate::hooks::graph::instantiate($call, $exec, $graph, |real| real($exec, $graph, $($a),*)) };
    (hipGraphInstantiateWithFlags, $call:expr, $scope:tt, ($exec:expr, $graph:expr, $($a:expr),*)) => { $crate::hooks::graph::instantiate($call, $exec, $graph, |real| real($exec, $graph, $($a),*)) };
    (hipGraphInstantiateWithParams, $call:expr, $scope:tt, ($exec:expr, $graph:expr, $params:expr)) => { $crate::hooks::graph::instantiate_with_params($call, $exec, $graph, $params, |real| real($exec, $graph, $params)) };
    (hipGraphDestroy, $call:expr, $scope:tt, ($what:expr)) => { $crate::hooks::graph::destroy($call, |real| real($what)) };
    (hipGraphDestroyNode, $call:expr, $scope:tt, ($what:expr)) => { $crate::hooks::graph::destroy($call, |real| real($what)) };
    (hipUserObjectCreate, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::create_user_object($call, |real| real($($a),*)) };
    (hipDrvGraphExecMemcpyNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipDrvGraphExecMemsetNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecBatchMemOpNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecChildGraphNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecEventRecordNodeSetEvent, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecEventWaitNodeSetEvent, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecExternalSemaphoresSignalNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecExternalSemaphoresWaitNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecHostNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphAddKernelNode, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::describe($call, |real| real($($a),*)) };
    (hipGraphKernelNodeSetParams, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::describe($call, |real| real($($a),*)) };
    (hipGraphAddNode, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::describe($call, |real| real($($a),*)) };
    (hipGraphNodeSetParams, $call:expr, $scope:tt, ($($a:expr),*)) => { $crate::hooks::graph::describe($call, |real| real($($a),*)) };
    (hipGraphExecKernelNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecMemcpyNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecMemcpyNodeSetParams1D, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecMemcpyNodeSetParamsFromSymbol, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecMemcpyNodeSetParamsToSymbol, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecMemsetNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecNodeSetParams, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphExecUpdate, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };
    (hipGraphNodeSetEnabled, $call:expr, $scope:tt, ($exec:expr, $($a:expr),*)) => { $crate::hooks::graph::change($call, $exec, |real| real($exec, $($a),*)) };

    ($name:ident, $call:expr, [none $($stream:ident)*], ($($a:expr),*)) => { $call.handle(|real, _| real($($a),*)) };
    ($name:ident, $call:expr, [own $stream:ident], ($($a:expr),*)) => {
        $crate::hooks::drain::own($call, $crate::hooks::is_per_thread(stringify!($name)), $stream, |real, $stream| real($($a),*))
    };
    ($name:ident, $call:expr, [own $one:ident $other:ident], ($($a:expr),*)) => {
        $crate::hooks::drain::both($call, [$one, $other], |real, [$one, $other]| real($($a),*))
    };
    ($name:ident, $call:expr, [default], ($($a:expr),*)) => {
        $crate::hooks::drain::default($call, $crate::hooks::is_per_thread(stringify!($name)), |_| false, |real| real($($a),*))
    };
    ($name:ident, $call:expr, [all], ($($a:expr),*)) => { $crate::hooks::drain::all($call, |real| real($($a),*)) };
    ($name:ident, $call:expr, [all $stream:ident], ($($a:expr),*)) => {
        $crate::hooks::drain::work($call, ($stream, $crate::hooks::is_per_thread(stringify!($name))), $crate::hooks::drain::blocks(), |real, $stream| real($($a),*))
    };
}
pub(crate) use hook;

/// Returns true if a function's default stream is the calling thread's own.
pub(crate) const fn is_per_thread(name: &str) -> bool {
    let name = name.as_bytes();
    let length = name.len();
    length > 4 && matches!(name.split_at(length - 4).1, b"_spt")
}
