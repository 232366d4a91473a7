//! Launches that say more than a kernel and its sizes: cooperative ones, those with a configuration, and those whose parts
//! the runtime has been given before.

#![allow(clippy::too_many_arguments, reason = "the runtime's functions have as many")]

use super::launch::{Kind, Launch, dims};
use crate::boundary::{Call, Failure};
use crate::process;
use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::table::Class;
use hip_sys::types::{
    HIP_LAUNCH_CONFIG, dim3, hipError_t, hipFunction_t, hipLaunchAttribute, hipLaunchAttributeCooperative,
    hipLaunchAttributePriority, hipLaunchConfig_t, hipStream_t,
};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use xqueue::Scope;

/// `hipLaunchCooperativeKernel` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn cooperative(
    call: Call<pfn::hipLaunchCooperativeKernel>,
    per_thread: bool,
    function: *const c_void,
    grid: dim3,
    block: dim3,
    params: *mut *mut c_void,
    shared: c_uint,
    stream: hipStream_t,
) -> hipError_t {
    let launch = Launch::of_function(function, (grid, block), shared as usize, params);
    let launch = launch.of_kind(Kind::Cooperative);
    let invoke = move |real: pfn::hipLaunchCooperativeKernel, stream, params, _| {
        // SAFETY: as for `hipLaunchKernel`.
        unsafe { real(function, grid, block, params, shared, stream) }
    };
    // SAFETY: as for `hipLaunchKernel`.
    unsafe { launch.handle(call, (stream, per_thread), invoke) }
}

/// `hipModuleLaunchCooperativeKernel`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn module_cooperative(
    call: Call<pfn::hipModuleLaunchCooperativeKernel>,
    f: hipFunction_t,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: hipStream_t,
    params: *mut *mut c_void,
) -> hipError_t {
    let sizes = (dims(gx, gy, gz), dims(bx, by, bz));
    let launch = Launch::of_module(f, sizes, shared as usize, params);
    let launch = launch.of_kind(Kind::Cooperative);
    let invoke = move |real: pfn::hipModuleLaunchCooperativeKernel, stream, params, _| {
        // SAFETY: as for `hipLaunchKernel`.
        unsafe { real(f, gx, gy, gz, bx, by, bz, shared, stream, params) }
    };
    // SAFETY: as for `hipLaunchKernel`.
    unsafe { launch.handle(call, (stream, false), invoke) }
}

/// More attributes than this are not copied; such a launch is made in its turn.
const FEW: usize = 2;

/// The attributes of a configuration, as a call now or later gets them.
#[derive(Clone, Copy)]
struct Attributes {
    /// Where the caller has them.
    theirs: *mut hipLaunchAttribute,
    count: c_uint,
    few: [Option<hipLaunchAttribute>; FEW],
}

impl Attributes {
    /// # Safety
    ///
    /// `theirs` is null or leads to so many attributes.
    unsafe fn of(theirs: *mut hipLaunchAttribute, count: c_uint) -> Self {
        let mut few = [None; FEW];
        if !theirs.is_null() {
            for (index, place) in few.iter_mut().enumerate().take(count as usize) {
                // SAFETY: the caller's promise.
                let at = unsafe { theirs.add(index) };
                // SAFETY: as above.
                *place = Some(unsafe { at.read() });
            }
        }
        Self { theirs, count, few }
    }

    fn are_copied(&self) -> bool {
        self.few.iter().flatten().count() == self.count as usize
    }

    /// What the launch needs to be taken later.
    fn kind(&self) -> Kind {
        if !self.are_copied() {
            return Kind::Unknown;
        }
        let of = |one: &hipLaunchAttribute| {
            let cooperative = one.id == hipLaunchAttributeCooperative;
            if cooperative && one.value.words[0] as u32 != 0 {
                Kind::Cooperative
            } else if cooperative || one.id == hipLaunchAttributePriority {
                Kind::Plain
            } else {
                Kind::Unknown
            }
        };
        let kinds = self.few.iter().flatten().map(of);
        kinds.fold(Kind::Plain, |all, kind| match (all, kind) {
            (Kind::Unknown, _) | (_, Kind::Unknown) => Kind::Unknown,
            (Kind::Cooperative, _) | (_, Kind::Cooperative) => Kind::Cooperative,
            _ => Kind::Plain,
        })
    }

    /// Calls `body` with the attributes: the copies, or where there are too many the caller's own.
    fn with<R>(&self, body: impl FnOnce(*mut hipLaunchAttribute) -> R) -> R {
        match self.few {
            _ if !self.are_copied() => body(self.theirs),
            [None, ..] => body(self.theirs),
            [Some(one), other] => body([one, other.unwrap_or(one)].as_mut_ptr()),
        }
    }
}

/// `hipLaunchKernelExC`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn configured(
    call: Call<pfn::hipLaunchKernelExC>,
    config: *const hipLaunchConfig_t,
    function: *const c_void,
    params: *mut *mut c_void,
) -> hipError_t {
    // SAFETY: null or the caller's configuration.
    let Some(given) = unsafe { config.as_ref() }.copied() else {
        // SAFETY: the caller's own arguments, which the runtime refuses.
        let refuse = |real: pfn::hipLaunchKernelExC, _| unsafe { real(config, function, params) };
        return call.handle(refuse);
    };
    // SAFETY: the caller's configuration.
    let attributes = unsafe { Attributes::of(given.attrs, given.num_attrs) };
    let launch =
        Launch::of_function(function, (given.grid_dim, given.block_dim), given.dynamic_smem_bytes, params);
    let launch = launch.of_kind(attributes.kind());
    let invoke = move |real: pfn::hipLaunchKernelExC, stream, params, _| {
        attributes.with(|attrs| {
            let config = hipLaunchConfig_t { stream, attrs, ..given };
            // SAFETY: as for `hipLaunchKernel`; the configuration holds while the call runs.
            unsafe { real(&config, function, params) }
        })
    };
    // SAFETY: as for `hipLaunchKernel`; attributes that are not copied are used on the calling thread only.
    unsafe { launch.handle(call, (given.stream, false), invoke) }
}

/// `hipDrvLaunchKernelEx`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn module_configured(
    call: Call<pfn::hipDrvLaunchKernelEx>,
    config: *const HIP_LAUNCH_CONFIG,
    f: hipFunction_t,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> hipError_t {
    // SAFETY: null or the caller's configuration.
    let Some(given) = unsafe { config.as_ref() }.copied() else {
        // SAFETY: the caller's own arguments, which the runtime refuses.
        let refuse = |real: pfn::hipDrvLaunchKernelEx, _| unsafe { real(config, f, params, extra) };
        return call.handle(refuse);
    };
    // SAFETY: the caller's configuration.
    let attributes = unsafe { Attributes::of(given.attrs, given.num_attrs) };
    let sizes = (given.grid_dim, given.block_dim);
    let launch = Launch::of_module(f, sizes, given.shared_mem_bytes as usize, params);
    let launch = launch.of_kind(attributes.kind()).with_extra(extra);
    let invoke = move |real: pfn::hipDrvLaunchKernelEx, stream, params, extra| {
        attributes.with(|attrs| {
            let config = HIP_LAUNCH_CONFIG { stream, attrs, ..given };
            // SAFETY: as for `hipLaunchKernelExC`.
            unsafe { real(&config, f, params, extra) }
        })
    };
    // SAFETY: as for `hipLaunchKernelExC`.
    unsafe { launch.handle(call, (given.stream, false), invoke) }
}

/// Whether the runtime was seen to launch through its own export, as all supported releases do.
static COMES_BACK: AtomicBool = AtomicBool::new(false);

/// The functions whose stream and arguments the calling thread has given to the runtime before (`hipConfigureCall`,
/// `hipSetupArgument`, `__hipPushCallConfiguration`), or that come in C++ only. The runtime puts them together and calls
/// `hipModuleLaunchKernel` through its own export (`hip_platform.cpp`): that call is the program's launch, of a function
/// that only the runtime knows by its handle, and of which the host function is known here.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn through_the_runtime<F: Copy, R: Failure>(
    call: Call<F>,
    function: *const c_void,
    invoke: impl FnOnce(F) -> R,
) -> R {
    let body = |real: F, own: bool| {
        let Some(process) = process::get().filter(|_| own) else { return invoke(real) };
        let thread = Thread::current();
        if !COMES_BACK.load(Ordering::Relaxed) {
            // If it does not come back, everything is in order all the same.
            process.drain(Scope::Process);
        }
        let before = thread.counted(Class::Launch);
        let result = thread.launching(function, || invoke(real));
        if before.is_some_and(|before| thread.counted(Class::Launch).is_some_and(|after| after > before)) {
            COMES_BACK.store(true, Ordering::Relaxed);
        }
        result
    };
    call.handle(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hip_sys::types::{hipLaunchAttributeID, hipLaunchAttributeValue};

    fn attribute(id: u32, value: u64) -> hipLaunchAttribute {
        let value = hipLaunchAttributeValue { words: [value, 0, 0, 0, 0, 0, 0, 0] };
        hipLaunchAttribute { id: hipLaunchAttributeID(id), pad: 0, value }
    }

    /// The attributes, copied, after the caller's own are gone.
    fn of(list: &[hipLaunchAttribute]) -> Attributes {
        let mut theirs = list.to_vec();
        // SAFETY: so many attributes.
        let attributes = unsafe { Attributes::of(theirs.as_mut_ptr(), theirs.len() as c_uint) };
        theirs.fill(attribute(99, 99));
        attributes
    }

    #[test]
    fn attributes_decide_what_a_later_launch_needs() {
        let (cooperative, not, priority) = (attribute(2, 1), attribute(2, 0), attribute(8, 3));
        for (list, kind) in [
            (&[][..], Kind::Plain),
            (&[priority], Kind::Plain),
            (&[not, priority], Kind::Plain),
            (&[cooperative], Kind::Cooperative),
            (&[priority, cooperative], Kind::Cooperative),
            (&[attribute(4, 1)], Kind::Unknown),
            (&[cooperative, attribute(4, 1)], Kind::Unknown),
            (&[priority, priority, priority], Kind::Unknown),
        ] {
            assert_eq!(of(list).kind(), kind, "{list:?}");
        }
        // SAFETY: null, whatever the number says.
        assert_eq!(unsafe { Attributes::of(std::ptr::null_mut(), 1) }.kind(), Kind::Unknown);
    }

    #[test]
    fn few_attributes_are_copied() {
        let copied = of(&[attribute(2, 1), attribute(8, 3)]);
        let seen = copied.with(|attrs| {
            // SAFETY: two attributes that hold while this runs.
            let list = unsafe { std::slice::from_raw_parts(attrs, 2) };
            list.iter().map(|one| (one.id.0, one.value.words[0])).collect::<Vec<_>>()
        });
        assert_eq!(seen, [(2, 1), (8, 3)]);
    }
}
