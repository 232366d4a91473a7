//! Deferred commands: the real call with owned copies of everything it reads.

use crate::args::{CopyError, KernelArgs};
use crate::exclusion;
use crate::layout::Kernel;
use crate::mix::Mix;
use crate::real::result;
use hip_sys::types::{dim3, hipError_t};
use std::ffi::c_void;
use std::fmt;
use xqueue::{CommandBox, CommandMemory, CostKey, Footprint, HwCommand, HwQueue, HwResult};

/// A call that is made later, on another thread, at most once.
pub struct HipCommand<F> {
    name: &'static str,
    footprint: Footprint,
    /// True if the call is made even if the program drops what is pending.
    kept: bool,
    /// True if the runtime reads other streams to make the call, even if its own stream is no default stream.
    reads_streams: bool,
    call: F,
}

impl<F: FnMut() -> hipError_t> HipCommand<F> {
    /// Creates a call with its name for log lines and the memory that it owns.
    ///
    /// # Safety
    ///
    /// `call` may be called and dropped on any thread: what it refers to stays valid until then, and it uses
    /// no state of a particular thread.
    pub unsafe fn new(name: &'static str, footprint: Footprint, call: F) -> Self {
        Self { name, footprint, kept: false, reads_streams: false, call }
    }

    /// Makes the call happen even if the program drops what is pending, because other commands rely on it.
    pub fn kept(self) -> Self {
        Self { kept: true, ..self }
    }

    /// Notes that the runtime reads other streams for this call ([`exclusion::reading_streams`]).
    pub fn reading_streams(self) -> Self {
        Self { reads_streams: true, ..self }
    }
}

impl<F> fmt::Debug for HipCommand<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HipCommand").field(&self.name).finish()
    }
}

// SAFETY: the caller of `new` guarantees that `call` may be used on any thread; the other fields are plain
// data.
unsafe impl<F> Send for HipCommand<F> {}

impl<F: FnMut() -> hipError_t> HwCommand for HipCommand<F> {
    fn launch(&mut self, queue: &dyn HwQueue) -> HwResult {
        let reads = self.reads_streams || queue.reads_other_streams();
        let _apart = reads.then(exclusion::reading_streams);
        result((self.call)())
    }

    fn discard(&mut self, _: &dyn HwQueue) -> bool {
        if !self.kept {
            return false;
        }
        let code = (self.call)();
        if !code.is_success() {
            tracing::error!(%code, "{}: failed", self.name);
        }
        code.is_success()
    }

    fn footprint(&self) -> Footprint {
        self.footprint
    }

    fn name(&self) -> &str {
        self.name
    }
}

/// A kernel launch that is made later, on another thread, at most once, with its own copy of the arguments.
pub struct HipLaunch<I> {
    name: &'static str,
    invoke: I,
    args: KernelArgs,
}

impl<I: Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t> HipLaunch<I> {
    /// Creates a launch of this kernel in this memory. `invoke` makes the real call, with the `kernelParams`
    /// and `extra` that it is given. The arguments are copied directly into the memory, because a command is
    /// large and must not be moved. If they cannot be copied, `invoke` is returned.
    ///
    /// # Safety
    ///
    /// `params` and `extra` satisfy [`KernelArgs::copy`]. `invoke` may be called and dropped on any thread:
    /// what it refers to stays valid until then, and it uses no state of a particular thread.
    #[inline]
    pub unsafe fn new(
        kernel: &'static Kernel,
        params: *const *mut c_void,
        extra: *const *mut c_void,
        invoke: I,
        memory: CommandMemory,
    ) -> Result<CommandBox<Self>, (CopyError, I)> {
        let mut command = memory.put(Self { name: &kernel.name, invoke, args: KernelArgs::new() });
        // SAFETY: the caller guarantees what `copy` requires of both arrays.
        match unsafe { command.args.copy(&kernel.layout, params, extra) } {
            Ok(()) => Ok(command),
            Err(unfit) => Err((unfit, command.into_inner().invoke)),
        }
    }
}

impl<I> fmt::Debug for HipLaunch<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HipLaunch").field(&self.name).finish()
    }
}

// SAFETY: the caller of `new` guarantees that `invoke` may be used on any thread; the arguments are owned
// bytes.
unsafe impl<I> Send for HipLaunch<I> {}

impl<I: Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t> HwCommand for HipLaunch<I> {
    fn launch(&mut self, queue: &dyn HwQueue) -> HwResult {
        let _apart = queue.reads_other_streams().then(exclusion::reading_streams);
        let _inside = exclusion::launching();
        result(self.args.pass(&self.invoke))
    }

    fn footprint(&self) -> Footprint {
        let large = if self.args.is_large() { self.args.bytes() } else { 0 };
        Footprint { arguments: size_of::<Self>() + large, staged: 0 }
    }

    fn name(&self) -> &str {
        self.name
    }
}

/// Returns the cost key of launches of this function with this grid.
#[inline]
pub fn launch_key(function: usize, grid: dim3, block: dim3) -> CostKey {
    let grid = u64::from(grid.x) << 32 ^ u64::from(grid.y) << 16 ^ u64::from(grid.z);
    let block = u64::from(block.x) << 20 ^ u64::from(block.y) << 10 ^ u64::from(block.z);
    // Never 0, which is `CostKey::UNKNOWN`.
    CostKey(Mix::fold(function as u64 ^ grid.rotate_left(7) ^ block.rotate_left(40)) | 1)
}

/// Returns the cost key of copies or fills of this kind and size.
pub fn memory_key(kind: u32, bytes: usize) -> CostKey {
    CostKey(Mix::fold(u64::from(kind) << 56 ^ bytes as u64 ^ 0x6d65_6d00) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::IN_PLACE;
    use crate::layout::{ArgSlot, Layout};
    use std::cell::Cell;
    use std::ptr;
    use std::rc::Rc;

    struct NoQueue;

    impl HwQueue for NoQueue {
        fn record_marker(&self) -> Result<xqueue::Marker, xqueue::HwError> {
            Err(xqueue::HwError::UNKNOWN)
        }
        fn query_marker(&self, _: xqueue::Marker) -> Result<bool, xqueue::HwError> {
            Err(xqueue::HwError::UNKNOWN)
        }
        fn release_marker(&self, _: xqueue::Marker) {}
        fn synchronize(&self) -> HwResult {
            Ok(())
        }
    }

    fn kernel(size: u32) -> &'static Kernel {
        let layout = Layout::new(vec![ArgSlot { offset: 0, size }], size).unwrap();
        Box::leak(Box::new(Kernel { name: "k".into(), layout, threads: 1024 }))
    }

    #[test]
    fn launch_owns_its_arguments_and_counts_their_bytes() {
        for size in [8_usize, IN_PLACE + 1] {
            let mut value = vec![7_u8; size];
            let params = [value.as_mut_ptr().cast::<c_void>()];
            let seen = Rc::new(Cell::new(0));
            let shared = seen.clone();
            let invoke = move |params: *mut *mut c_void, extra: *mut *mut c_void| {
                assert!(extra.is_null());
                // SAFETY: there is one pointer, to an argument of `size` bytes by the layout.
                let bytes = unsafe { std::slice::from_raw_parts(params.read().cast::<u8>(), size) };
                shared.set(bytes.iter().map(|&byte| usize::from(byte)).sum());
                hip_sys::types::hipSuccess
            };
            // SAFETY: a pointer to the argument; everything happens on this thread.
            let command = unsafe {
                HipLaunch::new(
                    kernel(size as u32),
                    params.as_ptr(),
                    ptr::null(),
                    invoke,
                    CommandMemory::new(),
                )
            };
            let mut command = command.unwrap_or_else(|(unfit, _)| panic!("{unfit}"));
            value.fill(0);
            assert_eq!(command.launch(&NoQueue), Ok(()));
            assert_eq!(seen.get(), 7 * size);
            let bytes = command.footprint().arguments;
            assert!(bytes >= size_of_val(&*command) + if size > IN_PLACE { size } else { 0 });
            assert_eq!(HwCommand::name(&*command), "k");
        }
    }

    #[test]
    fn launch_without_copyable_arguments_returns_the_call() {
        let call = |_: *mut *mut c_void, _: *mut *mut c_void| hipError_t(3);
        let params = [ptr::null_mut()];
        // SAFETY: one pointer, which is null.
        let refused =
            unsafe { HipLaunch::new(kernel(8), params.as_ptr(), ptr::null(), call, CommandMemory::new()) };
        let Err((unfit, call)) = refused else { panic!("a null argument was copied") };
        assert_eq!((unfit, call(ptr::null_mut(), ptr::null_mut())), (CopyError::NullArgument, hipError_t(3)));
    }
}
