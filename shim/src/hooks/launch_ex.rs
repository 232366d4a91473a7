//! Launches with a configuration, and launches whose parts the runtime was given before.

use super::launch::{Kind, Launch};
use crate::boundary::{Call, Failure};
use crate::process;
use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::types::{
    HIP_LAUNCH_CONFIG, hipError_t, hipFunction_t, hipLaunchAttribute, hipLaunchAttributeCooperative,
    hipLaunchAttributePriority, hipLaunchConfig_t,
};
use interception::Class;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use xqueue::Scope;

/// The most attributes that are copied; a launch with more is made in order.
const FEW: usize = 2;

/// The attributes of a launch configuration, copied if there are few.
#[derive(Clone, Copy)]
struct Attributes {
    /// The caller's own.
    theirs: *mut hipLaunchAttribute,
    count: c_uint,
    few: [Option<hipLaunchAttribute>; FEW],
}

impl Attributes {
    /// # Safety
    ///
    /// `theirs` is null or points to `count` attributes.
    unsafe fn of(theirs: *mut hipLaunchAttribute, count: c_uint) -> Self {
        let mut few = [None; FEW];
        if !theirs.is_null() {
            for (index, copy) in few.iter_mut().enumerate().take(count as usize) {
                // SAFETY: by the contract there are `count` attributes.
                *copy = Some(unsafe { theirs.add(index).read() });
            }
        }
        Self { theirs, count, few }
    }

    fn are_copied(&self) -> bool {
        self.few.iter().flatten().count() == self.count as usize
    }

    /// Returns the condition for deferring the launch.
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

    /// Calls `body` with the copied attributes, or with the caller's own if there are too many.
    fn with<R>(&self, body: impl FnOnce(*mut hipLaunchAttribute) -> R) -> R {
        match self.few {
            _ if !self.are_copied() => body(self.theirs),
            [None, ..] => body(self.theirs),
            [Some(one), other] => body([one, other.unwrap_or(one)].as_mut_ptr()),
        }
    }
}

pub(crate) unsafe fn configured(
    call: Call<pfn::hipLaunchKernelExC>,
    config: *const hipLaunchConfig_t,
    function: *const c_void,
    params: *mut *mut c_void,
) -> hipError_t {
    // SAFETY: the pointer is null or the caller's configuration.
    let Some(given) = unsafe { config.as_ref() }.copied() else {
        // SAFETY: the arguments are the caller's own. The runtime refuses them.
        let refuse = |real: pfn::hipLaunchKernelExC, _| unsafe { real(config, function, params) };
        return call.handle(refuse);
    };
    // SAFETY: the attributes are those of the caller's configuration.
    let attributes = unsafe { Attributes::of(given.attrs, given.num_attrs) };
    let launch =
        Launch::of_function(function, (given.grid_dim, given.block_dim), given.dynamic_smem_bytes, params);
    let launch = launch.of_kind(attributes.kind());
    let invoke = move |real: pfn::hipLaunchKernelExC, stream, params, _| {
        attributes.with(|attrs| {
            let config = hipLaunchConfig_t { stream, attrs, ..given };
            // SAFETY: the arguments are the caller's own or copies; the configuration lives during the call.
            unsafe { real(&config, function, params) }
        })
    };
    // SAFETY: the arguments are the caller's own. A launch whose attributes are not copied is
    // `Kind::Unknown`, and so made on the calling thread.
    unsafe { launch.handle(call, (given.stream, false), invoke) }
}

pub(crate) unsafe fn module_configured(
    call: Call<pfn::hipDrvLaunchKernelEx>,
    config: *const HIP_LAUNCH_CONFIG,
    f: hipFunction_t,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> hipError_t {
    // SAFETY: the pointer is null or the caller's configuration.
    let Some(given) = unsafe { config.as_ref() }.copied() else {
        // SAFETY: the arguments are the caller's own. The runtime refuses them.
        let refuse = |real: pfn::hipDrvLaunchKernelEx, _| unsafe { real(config, f, params, extra) };
        return call.handle(refuse);
    };
    // SAFETY: the attributes are those of the caller's configuration.
    let attributes = unsafe { Attributes::of(given.attrs, given.num_attrs) };
    let sizes = (given.grid_dim, given.block_dim);
    let launch = Launch::of_module(f, sizes, given.shared_mem_bytes as usize, params, [extra]);
    let launch = launch.of_kind(attributes.kind());
    let invoke = move |real: pfn::hipDrvLaunchKernelEx, stream, params, extra| {
        attributes.with(|attrs| {
            let config = HIP_LAUNCH_CONFIG { stream, attrs, ..given };
            // SAFETY: the arguments are the caller's own or copies; the configuration lives during the call.
            unsafe { real(&config, f, params, extra) }
        })
    };
    // SAFETY: the arguments are the caller's own. A launch whose attributes are not copied is
    // `Kind::Unknown`, and so made on the calling thread.
    unsafe { launch.handle(call, (given.stream, false), invoke) }
}

/// True once the runtime was seen to launch through its own export, as all supported releases do.
static COMES_BACK: AtomicBool = AtomicBool::new(false);

/// Functions whose stream and arguments the calling thread has given to the runtime before
/// (`hipConfigureCall`, `hipSetupArgument`, `__hipPushCallConfiguration`), and C++-only ones. The runtime
/// combines them and calls `hipModuleLaunchKernel` through its own export (`hip_platform.cpp`). That call is
/// the program's launch: only the runtime knows its function by the handle, and `function` is the host
/// function.
pub(crate) fn through_the_runtime<F: Copy, R: Failure>(
    call: Call<F>,
    function: *const c_void,
    invoke: impl FnOnce(F) -> R,
) -> R {
    call.handle(|real, own| {
        let Some(process) = process::for_call(own) else { return invoke(real) };
        let thread = Thread::current();
        if !COMES_BACK.load(Ordering::Relaxed) {
            // Keeps the order even if the runtime does not launch through its export.
            process.drain(Scope::Process);
        }
        let before = thread.counted(Class::Launch);
        let result = thread.launching(function, || invoke(real));
        if before.is_some_and(|before| thread.counted(Class::Launch).is_some_and(|after| after > before)) {
            COMES_BACK.store(true, Ordering::Relaxed);
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hip_sys::types::{hipLaunchAttributeID, hipLaunchAttributeValue};

    fn attribute(id: u32, value: u64) -> hipLaunchAttribute {
        let value = hipLaunchAttributeValue { words: [value, 0, 0, 0, 0, 0, 0, 0] };
        hipLaunchAttribute { id: hipLaunchAttributeID(id), pad: 0, value }
    }

    /// Copies the attributes, then overwrites the originals.
    fn of(list: &[hipLaunchAttribute]) -> Attributes {
        let mut theirs = list.to_vec();
        // SAFETY: pointer and count are those of the vector.
        let attributes = unsafe { Attributes::of(theirs.as_mut_ptr(), theirs.len() as c_uint) };
        theirs.fill(attribute(99, 99));
        attributes
    }

    #[test]
    fn kind_follows_attributes() {
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
        // SAFETY: the pointer is null.
        assert_eq!(unsafe { Attributes::of(std::ptr::null_mut(), 1) }.kind(), Kind::Unknown);
    }

    #[test]
    fn with_few_attributes_gives_copies() {
        let copied = of(&[attribute(2, 1), attribute(8, 3)]);
        let seen = copied.with(|attrs| {
            // SAFETY: there are two attributes, which live during this call.
            let list = unsafe { std::slice::from_raw_parts(attrs, 2) };
            list.iter().map(|one| (one.id.0, one.value.words[0])).collect::<Vec<_>>()
        });
        assert_eq!(seen, [(2, 1), (8, 3)]);
    }
}
