//! The handlers of the exported functions: one row of `handlers!` for the functions with a handler of their
//! own, and one for each scope of the others.
//!
//! A handler gets the [`Call`](crate::boundary::Call) and the caller's arguments. A row with a name that no
//! function has does not compile. For a function without a row, everything in its scope is launched first, and
//! then the call is forwarded (`drain`), so that no call bypasses a queue.
//!
//! # Safety
//! The contract of an unsafe handler is that of the runtime's function whose call it gets, unless the handler
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
pub(crate) mod made;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod resolve;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod turn;
pub(crate) mod value;

/// Defines the macro with the body of each exported function: the handler of its row, or the one for its
/// scope. A row names functions with the same handler and the same arguments. `interpose::exports` uses the
/// macro, and imports the modules that the rows name.
macro_rules! handlers {
    ($hook:ident: $call:tt $([$($name:ident)+] $arguments:tt => $body:tt)* otherwise { $($scopes:tt)* }) => {
        macro_rules! $hook {
            $($(($name, $call, $arguments) => $body;)+)*
            $($scopes)*
        }

        const _: () = {
            $($(assert!(interception::index_of(stringify!($name).as_bytes()).is_some(), "no such function");)+)*
        };
    };
}

handlers! {
    // The call, the scope of its row, and true if the function's default stream is the calling thread's own.
    hook: ($call:expr, $scope:tt, $spt:expr)

    [hipGetProcAddress] ($($a:expr),*) => { resolve::get_proc_address($call, $($a),*) }
    [hipGetDriverEntryPoint hipGetDriverEntryPoint_spt] ($($a:expr),*) => { resolve::get_driver_entry_point($call, $($a),*) }

    [hipLaunchKernel hipLaunchKernel_spt] ($($a:tt)*) => { launch::launch!(function, $call, $spt, Plain, ($($a)*)) }
    [hipLaunchCooperativeKernel hipLaunchCooperativeKernel_spt] ($($a:tt)*) => { launch::launch!(function, $call, $spt, Cooperative, ($($a)*)) }
    [hipExtLaunchKernel] ($($a:tt)*) => { launch::launch!(function_with_events, $call, ($($a)*)) }
    [hipModuleLaunchKernel] ($($a:tt)*) => { launch::launch!(module, $call, Plain, ($($a)*)) }
    [hipModuleLaunchCooperativeKernel] ($($a:tt)*) => { launch::launch!(module, $call, Cooperative, ($($a)*)) }
    [
        hipExtModuleLaunchKernel
        _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j
        hipHccModuleLaunchKernel
        _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_
    ] ($($a:tt)*) => { launch::launch!(module_with_events, $call, ($($a)*)) }
    [hipLaunchKernelExC] ($($a:expr),*) => { launch_ex::configured($call, $($a),*) }
    [hipDrvLaunchKernelEx] ($($a:expr),*) => { launch_ex::module_configured($call, $($a),*) }
    [hipLaunchByPtr] ($function:expr) => { launch_ex::through_the_runtime($call, $function, |real| real($function)) }
    [_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv] ($function:expr, $($a:expr),*) => {
        launch_ex::through_the_runtime($call, ::std::ptr::with_exposed_provenance($function), |real| real($function, $($a),*))
    }
    [hipExtLaunchMultiKernelMultiDevice hipLaunchCooperativeKernelMultiDevice hipModuleLaunchCooperativeKernelMultiDevice] ($list:expr, $n:expr, $flags:expr) => {
        devices::launch($call, $list, $n as usize, $flags, |entry| &mut entry.stream, |real, list| real(list, $n, $flags))
    }
    [hipLaunchHostFunc hipLaunchHostFunc_spt] ($($a:expr),*) => { callback::host_function($call, $spt, $($a),*) }
    [hipStreamAddCallback hipStreamAddCallback_spt] ($($a:expr),*) => { callback::stream_callback($call, $spt, $($a),*) }

    [hipMemcpyAsync hipMemcpyAsync_spt] ($dst:ident, $src:ident, $bytes:ident, $kind:ident, $stream:ident) => {
        copy::copy($call, ($stream, $spt), ($dst, $src, $bytes), $kind, move |real, $src, $stream| real($dst, $src, $bytes, $kind, $stream))
    }
    [hipMemcpyHtoDAsync] ($dst:ident, $src:ident, $bytes:ident, $stream:ident) => {
        copy::copy($call, ($stream, false), ($dst, $src, $bytes), hipMemcpyHostToDevice, move |real, $src, $stream| real($dst, $src, $bytes, $stream))
    }
    [hipMemcpyDtoHAsync] ($dst:ident, $src:ident, $bytes:ident, $stream:ident) => {
        copy::copy($call, ($stream, false), ($dst, $src, $bytes), hipMemcpyDeviceToHost, move |real, $src, $stream| real($dst, $src.cast_mut(), $bytes, $stream))
    }
    [hipMemcpyDtoDAsync] ($dst:ident, $src:ident, $bytes:ident, $stream:ident) => {
        copy::copy($call, ($stream, false), ($dst, $src, $bytes), hipMemcpyDeviceToDevice, move |real, $src, $stream| real($dst, $src.cast_mut(), $bytes, $stream))
    }
    [hipMemcpy] ($dst:expr, $src:expr, $bytes:expr, $kind:expr) => {
        drain::default($call, false, |real| waits::copy(real, $dst, $src, $bytes, $kind), |real| real($dst, $src, $bytes, $kind))
    }
    [hipMemcpyHtoD] ($dst:expr, $src:expr, $bytes:expr) => {
        drain::default($call, false, |real| waits::copy(real, $dst, $src, $bytes, hipMemcpyHostToDevice), |real| real($dst, $src, $bytes))
    }
    [hipMemcpyDtoH] ($dst:expr, $src:expr, $bytes:expr) => {
        drain::default($call, false, |real| waits::copy(real, $dst, $src, $bytes, hipMemcpyDeviceToHost), |real| real($dst, $src, $bytes))
    }
    [hipMemcpyDtoD] ($dst:expr, $src:expr, $bytes:expr) => {
        drain::default($call, false, |real| waits::copy(real, $dst, $src, $bytes, hipMemcpyDeviceToDevice), |real| real($dst, $src, $bytes))
    }
    [hipMemcpy2D] ($dst:expr, $dpitch:expr, $src:expr, $spitch:expr, $width:expr, $height:expr, $kind:expr) => {
        drain::default($call, false, |real| waits::rows(real, $dst, $src, $width.saturating_mul($height)), |real| real($dst, $dpitch, $src, $spitch, $width, $height, $kind))
    }
    [hipMemcpy3D] ($params:expr) => { drain::default($call, false, |real| copy_wide::slices_wait(real, $params), |real| real($params)) }
    [hipMemcpyParam2D hipDrvMemcpy2DUnaligned] ($params:expr) => {
        drain::default($call, false, |real| copy_wide::described_waits(real, $params), |real| real($params))
    }
    [hipMemcpyFromSymbol] ($dst:expr, $symbol:expr, $bytes:expr, $offset:expr, $kind:expr) => {
        drain::default($call, false, |real| waits::copy_to_host(real, $dst, $bytes), |real| real($dst, $symbol, $bytes, $offset, $kind))
    }
    [hipMemcpyFromArray] ($dst:expr, $array:expr, $x:expr, $y:expr, $bytes:expr, $kind:expr) => {
        drain::default($call, false, |real| waits::copy_to_host(real, $dst, $bytes), |real| real($dst, $array, $x, $y, $bytes, $kind))
    }
    [hipMemcpy2DFromArray] ($dst:expr, $pitch:expr, $array:expr, $x:expr, $y:expr, $width:expr, $height:expr, $kind:expr) => {
        drain::default($call, false, |real| waits::copy_to_host(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $array, $x, $y, $width, $height, $kind))
    }
    [hipMemcpyAtoH] ($dst:expr, $array:expr, $offset:expr, $bytes:expr) => {
        drain::default($call, false, |real| waits::copy_to_host(real, $dst, $bytes), |real| real($dst, $array, $offset, $bytes))
    }
    [hipMemcpyToSymbol] ($symbol:expr, $src:expr, $bytes:expr, $offset:expr, $kind:expr) => {
        drain::default($call, false, |real| waits::leaving(real, $bytes), |real| real($symbol, $src, $bytes, $offset, $kind))
    }
    [hipMemset hipMemsetD8 hipMemsetD16 hipMemsetD32] ($dst:expr, $value:expr, $count:expr) => {
        drain::default($call, false, |real| waits::fill(real, $dst, $count), |real| real($dst, $value, $count))
    }
    [hipMemset2D hipMemsetD2D8 hipMemsetD2D16 hipMemsetD2D32] ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr) => {
        drain::default($call, false, |real| waits::fill(real, $dst, $width.saturating_mul($height)), |real| real($dst, $pitch, $value, $width, $height))
    }
    [hipMemset3D] ($memory:expr, $value:expr, $extent:expr) => {
        drain::default($call, false, |real| waits::fill(real, $memory.ptr, $extent.count()), |real| real($memory, $value, $extent))
    }
    [hipMemsetAsync hipMemsetAsync_spt hipMemsetD8Async] ($dst:expr, $value:expr, $count:expr, $stream:expr) => { copy::fill($call, $spt, $dst, $value, $count, 1, $stream) }
    [hipMemsetD16Async] ($dst:expr, $value:expr, $count:expr, $stream:expr) => { copy::fill($call, false, $dst, $value, $count, 2, $stream) }
    [hipMemsetD32Async] ($dst:expr, $value:expr, $count:expr, $stream:expr) => { copy::fill($call, false, $dst, $value, $count, 4, $stream) }

    [hipMemcpy2DAsync hipMemcpy2DAsync_spt] ($($a:expr),*) => { copy_wide::rows($call, $spt, $($a),*) }
    [hipMemcpy3DAsync hipMemcpy3DAsync_spt] ($($a:expr),*) => { copy_wide::slices($call, $spt, $($a),*) }
    [hipMemcpyToSymbolAsync hipMemcpyToSymbolAsync_spt] ($symbol:ident, $src:ident, $bytes:ident, $offset:ident, $kind:ident, $stream:ident) => {
        copy_wide::symbol($call, ($stream, $spt), ($symbol, $offset), ($src, true), ($bytes, $kind), move |real, $src, $stream| real($symbol, $src, $bytes, $offset, $kind, $stream))
    }
    [hipMemcpyFromSymbolAsync hipMemcpyFromSymbolAsync_spt] ($dst:ident, $symbol:ident, $bytes:ident, $offset:ident, $kind:ident, $stream:ident) => {
        copy_wide::symbol($call, ($stream, $spt), ($symbol, $offset), ($dst, false), ($bytes, $kind), move |real, _, $stream| real($dst, $symbol, $bytes, $offset, $kind, $stream))
    }
    [hipMemset2DAsync hipMemset2DAsync_spt hipMemsetD2D8Async] ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr) => {
        copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 1], ($stream, $spt))
    }
    [hipMemsetD2D16Async] ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr) => {
        copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 2], ($stream, false))
    }
    [hipMemsetD2D32Async] ($dst:expr, $pitch:expr, $value:expr, $width:expr, $height:expr, $stream:expr) => {
        copy_wide::fill($call, $dst, $pitch, $value, [$width, $height, 4], ($stream, false))
    }
    [hipMemset3DAsync hipMemset3DAsync_spt] ($($a:expr),*) => { copy_wide::fill_slices($call, $spt, $($a),*) }
    [hipMemcpyParam2DAsync] ($($a:expr),*) => { copy_wide::described($call, $($a),*) }
    [hipMemcpyPeerAsync] ($($a:expr),*) => { copy_wide::peer($call, $($a),*) }
    [hipMemcpyWithStream] ($($a:expr),*) => { copy_wide::with_stream($call, $($a),*) }
    [hipMemPrefetchAsync] ($($a:expr),*) => { copy_wide::prefetch($call, $($a),*) }

    [hipEventCreate] ($event:expr) => { event::create($call, $event, |events, event| events.created(event, 0), |real| real($event)) }
    [hipEventCreateWithFlags] ($event:expr, $flags:expr) => { event::create($call, $event, |events, event| events.created(event, $flags), |real| real($event, $flags)) }
    [hipIpcOpenEventHandle] ($event:expr, $handle:expr) => { event::create($call, $event, |events, event| events.opened(event), |real| real($event, $handle)) }
    [hipIpcGetEventHandle] ($($a:expr),*) => { event::share($call, $($a),*) }
    [hipEventRecord hipEventRecord_spt] ($event:expr, $stream:expr) => { event::record($call, $spt, $event, ($stream, 0), move |real, stream| real($event, stream)) }
    [hipEventRecordWithFlags] ($event:expr, $stream:expr, $flags:expr) => { event::record($call, false, $event, ($stream, $flags), move |real, stream| real($event, stream, $flags)) }
    [hipStreamWaitEvent hipStreamWaitEvent_spt] ($($a:expr),*) => { event::wait($call, $spt, $($a),*) }
    [hipEventQuery] ($event:expr) => { event::query($call, $event) }
    [hipEventSynchronize] ($event:expr) => { event::synchronize($call, $event) }
    [hipEventElapsedTime] ($($a:expr),*) => { event::elapsed_time($call, $($a),*) }
    [hipEventDestroy] ($event:expr) => { event::destroy($call, $event) }

    [hipDeviceSynchronize] () => { sync::device($call) }
    [hipStreamSynchronize hipStreamSynchronize_spt] ($stream:expr) => { sync::stream($call, $spt, $stream) }
    [hipStreamQuery hipStreamQuery_spt] ($stream:expr) => { sync::query($call, $spt, $stream) }

    [hipStreamCreate] ($stream:expr) => { stream::create($call, $stream, 0, 0, |real| real($stream)) }
    [hipStreamCreateWithFlags] ($stream:expr, $flags:expr) => { stream::create($call, $stream, $flags, 0, |real| real($stream, $flags)) }
    [hipStreamCreateWithPriority] ($stream:expr, $flags:expr, $priority:expr) => { stream::create($call, $stream, $flags, $priority, |real| real($stream, $flags, $priority)) }
    [hipExtStreamCreateWithCUMask] ($stream:expr, $size:expr, $mask:expr) => { stream::create($call, $stream, 0, 0, |real| real($stream, $size, $mask)) }
    [hipStreamDestroy] ($stream:expr) => { stream::destroy($call, $stream) }
    [hipDeviceReset] () => { stream::reset($call) }

    [__hipRegisterFatBinary] ($data:expr) => { module::register_fat_binary($call, $data) }
    [__hipRegisterFunction] ($modules:expr, $host:expr, $device:expr, $name:expr, $($a:expr),*) => {
        module::register_function($call, $modules, $host, $name, |real| real($modules, $host, $device, $name, $($a),*))
    }
    [__hipUnregisterFatBinary] ($modules:expr) => { module::unregister_fat_binary($call, $modules) }
    [hipGetFuncBySymbol] ($($a:expr),*) => { module::function_of_symbol($call, $($a),*) }
    [hipModuleGetFunction] ($($a:expr),*) => { module::get_function($call, $($a),*) }
    [hipModuleLoad] ($($a:expr),*) => { module::load($call, $($a),*) }
    [hipModuleLoadData hipModuleLoadDataEx hipModuleLoadFatBinary] ($module:expr, $image:expr $(, $a:expr)*) => {
        module::load_data($call, $module, $image, |real| real($module, $image $(, $a)*))
    }
    [hipModuleUnload] ($module:expr) => { module::unload($call, $module) }

    [hipGetLastError] () => { error::last($call, error::Asks::Forget) }
    [hipExtGetLastError] () => { error::last($call, error::Asks::Result) }
    [hipPeekAtLastError] () => { error::last($call, error::Asks::Peek) }

    [hipMallocAsync] ($place:expr, $size:expr, $stream:expr) => { pool::allocate($call, $place, $size, None, $stream, |real, stream| real($place, $size, stream)) }
    [hipMallocFromPoolAsync] ($place:expr, $size:expr, $pool:expr, $stream:expr) => { pool::allocate($call, $place, $size, Some($pool), $stream, |real, stream| real($place, $size, $pool, stream)) }
    [hipFreeAsync] ($($a:expr),*) => { pool::give_back($call, $($a),*) }
    [hipFree] ($($a:expr),*) => { pool::free($call, $($a),*) }
    [hipMalloc hipMallocManaged hipMallocPitch hipExtMallocWithFlags] ($($a:expr),*) => { pool::memory($call, |real| real($($a),*)) }
    [hipMemPoolDestroy] ($($a:expr),*) => { pool::destroy($call, $($a),*) }
    [hipMemPoolGetAttribute hipMemPoolSetAttribute hipMemPoolTrimTo] ($($a:expr),*) => { pool::settled($call, |real| real($($a),*)) }

    [hipStreamWriteValue32 hipStreamWriteValue64] ($($a:expr),*) => { value::write($call, $($a),*) }
    [hipStreamWaitValue32 hipStreamWaitValue64] ($($a:expr),*) => { value::wait($call, $($a),*) }
    [hipStreamBatchMemOp] ($($a:expr),*) => { value::batch($call, $($a),*) }

    [hipGraphLaunch hipGraphLaunch_spt hipGraphUpload] ($($a:expr),*) => { graph::launch($call, $spt, $($a),*) }
    [hipGraphExecDestroy] ($($a:expr),*) => { graph::destroy_exec($call, $($a),*) }
    [hipGraphInstantiate hipGraphInstantiateWithFlags] ($exec:expr, $graph:expr, $($a:expr),*) => { graph::instantiate($call, $exec, $graph, |real| real($exec, $graph, $($a),*)) }
    [hipGraphInstantiateWithParams] ($exec:expr, $graph:expr, $params:expr) => { graph::instantiate_with_params($call, $exec, $graph, $params, |real| real($exec, $graph, $params)) }
    [hipGraphDestroy hipGraphDestroyNode] ($what:expr) => { graph::destroy($call, |real| real($what)) }
    [hipUserObjectCreate] ($($a:expr),*) => { graph::create_user_object($call, |real| real($($a),*)) }
    [hipGraphAddKernelNode hipGraphKernelNodeSetParams hipGraphAddNode hipGraphNodeSetParams] ($($a:expr),*) => { graph::describe($call, |real| real($($a),*)) }
    [
        hipDrvGraphExecMemcpyNodeSetParams hipDrvGraphExecMemsetNodeSetParams hipGraphExecBatchMemOpNodeSetParams
        hipGraphExecChildGraphNodeSetParams hipGraphExecEventRecordNodeSetEvent hipGraphExecEventWaitNodeSetEvent
        hipGraphExecExternalSemaphoresSignalNodeSetParams hipGraphExecExternalSemaphoresWaitNodeSetParams
        hipGraphExecHostNodeSetParams hipGraphExecKernelNodeSetParams hipGraphExecMemcpyNodeSetParams
        hipGraphExecMemcpyNodeSetParams1D hipGraphExecMemcpyNodeSetParamsFromSymbol
        hipGraphExecMemcpyNodeSetParamsToSymbol hipGraphExecMemsetNodeSetParams hipGraphExecNodeSetParams
        hipGraphExecUpdate hipGraphNodeSetEnabled
    ] ($exec:expr, $($a:expr),*) => { graph::change($call, $exec, |real| real($exec, $($a),*)) }

    otherwise {
        ($name:ident, ($call:expr, [none $($stream:ident)*], $spt:expr), ($($a:expr),*)) => { $call.handle(|real, _| real($($a),*)) };
        ($name:ident, ($call:expr, [own $stream:ident], $spt:expr), ($($a:expr),*)) => { drain::own($call, $spt, $stream, |real, $stream| real($($a),*)) };
        ($name:ident, ($call:expr, [own $one:ident $other:ident], $spt:expr), ($($a:expr),*)) => {
            drain::both($call, [$one, $other], |real, [$one, $other]| real($($a),*))
        };
        ($name:ident, ($call:expr, [default], $spt:expr), ($($a:expr),*)) => { drain::default($call, $spt, |_| false, |real| real($($a),*)) };
        ($name:ident, ($call:expr, [all], $spt:expr), ($($a:expr),*)) => { drain::all($call, |real| real($($a),*)) };
        ($name:ident, ($call:expr, [all $stream:ident], $spt:expr), ($($a:expr),*)) => {
            drain::work($call, ($stream, $spt), drain::blocks(), |real, $stream| real($($a),*))
        };
    }
}
#[allow(clippy::single_component_path_imports, reason = "it makes the macro visible in other modules")]
pub(crate) use hook;
