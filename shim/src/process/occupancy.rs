//! What only the runtime knows of a launch before it is made: whether there is such a function, and how many blocks of it
//! fit on the device at once. It looks at no stream for that, so that a launch that it would refuse can be refused by the
//! call, whatever the stream waits for.

use hip_sys::pfn;
use hip_sys::types::{hipFunction_t, hipSuccess};
use std::ffi::{c_int, c_void};
use std::fmt;

/// The functions that say so.
///
/// Both answer with the number to which a cooperative launch is held, if they are asked about the threads of its blocks:
/// `ihipOccupancyMaxActiveBlocksPerMultiprocessor` with the same arguments (HIPAMD `hip_platform.cpp`, `hip_module.cpp`,
/// read in 5.2.3, 5.6 to 6.2 and October 2024; 5.2.3, 6.4.3 and 7.2.4 tested to the block).
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) host: pfn::hipOccupancyMaxPotentialBlockSize,
    pub(crate) module: pfn::hipModuleOccupancyMaxPotentialBlockSize,
}

/// What is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// A function of the host's that was registered.
    Host(*const c_void),
    /// A kernel of a module, and such a handle belongs to the runtime: it must be valid.
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
    /// How many blocks of so many threads, with so many bytes of dynamic shared memory, fit on the current device at once.
    /// Nothing if the runtime knows no such function, or not for this device.
    pub(crate) fn most_blocks(&self, handle: Handle, threads: u64, shared: usize) -> Option<u64> {
        let threads = c_int::try_from(threads).ok()?;
        let (mut blocks, mut best): (c_int, c_int) = (0, 0);
        let code = match handle {
            // SAFETY: places for the answers; any address may be asked for.
            Handle::Host(function) => unsafe {
                (self.host)(&mut blocks, &mut best, function, shared, threads)
            },
            // SAFETY: places for the answers; the program's handle, which it launches.
            Handle::Module(function) => unsafe {
                (self.module)(&mut blocks, &mut best, function, shared, threads)
            },
        };
        (code == hipSuccess).then_some(u64::try_from(blocks).unwrap_or(0))
    }
}
