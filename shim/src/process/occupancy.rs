//! The occupancy of kernels, which only the runtime knows: whether a function exists, and how many of its
//! blocks fit on the device at once. The runtime needs no stream for the answer, so a launch that it would
//! refuse can be refused at once, whatever the stream waits for.

use hip_sys::pfn;
use hip_sys::types::{hipFunction_t, hipSuccess};
use std::ffi::{c_int, c_void};
use std::fmt;

/// The occupancy functions of the runtime.
///
/// Asked about the threads of a block, both return the limit of a cooperative launch: they call
/// `ihipOccupancyMaxActiveBlocksPerMultiprocessor` with the same arguments (HIPAMD `hip_platform.cpp`,
/// `hip_module.cpp`, read in 5.2.3, 5.6 to 6.2 and October 2024; 5.2.3, 6.4.3 and 7.2.4 tested to the block).
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) host: pfn::hipOccupancyMaxPotentialBlockSize,
    pub(crate) module: pfn::hipModuleOccupancyMaxPotentialBlockSize,
}

/// The function of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// A host function; any address is allowed.
    Host(*const c_void),
    /// A module's kernel. The handle must be valid.
    Module(hipFunction_t),
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(function) => write!(f, "the kernel of {function:p}"),
            Self::Module(function) => write!(f, "the kernel {:#x}", function.as_raw()),
        }
    }
}

impl Functions {
    /// Returns how many blocks of this many threads and bytes of dynamic shared memory fit on the current
    /// device at once; `None` if the runtime does not know the function on this device.
    pub(crate) fn max_blocks(&self, handle: Handle, threads: u64, shared: usize) -> Option<u64> {
        let threads = c_int::try_from(threads).ok()?;
        let (mut blocks, mut best): (c_int, c_int) = (0, 0);
        let code = match handle {
            // SAFETY: the places for the answers are valid; any address may be asked for.
            Handle::Host(function) => unsafe {
                (self.host)(&mut blocks, &mut best, function, shared, threads)
            },
            // SAFETY: the places for the answers are valid; the program launches this handle.
            Handle::Module(function) => unsafe {
                (self.module)(&mut blocks, &mut best, function, shared, threads)
            },
        };
        (code == hipSuccess).then_some(u64::try_from(blocks).unwrap_or(0))
    }
}
