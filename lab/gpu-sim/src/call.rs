//! One ioctl of a client: the call as it came in, and how its argument is decoded and its answer encoded.

use hip_sys::kfd::{Ioctl, Plain};

use crate::device::Time;
use crate::fuse::{Reply, Unique};

/// A result, or the errno of the failure.
pub type Answer<T> = Result<T, i32>;

/// An ioctl call that has not been answered.
#[derive(Debug)]
pub struct Call<'a> {
    /// The FUSE request that carries the call.
    pub unique: Unique,
    pub pid: i32,
    pub tid: i32,
    pub command: u32,
    pub argument: &'a [u8],
    /// The number of bytes that the caller takes back.
    pub out_size: usize,
    /// The time at which the call arrived.
    pub now: Time,
}

impl Call<'_> {
    /// Decodes the argument.
    pub fn decode<A: Plain>(&self) -> A {
        A::from_bytes(self.argument)
    }
}

/// A copy of a call that waits for a lock of the driver.
#[derive(Debug)]
pub struct OwnedCall {
    /// The FUSE request that carries the call.
    pub unique: Unique,
    pid: i32,
    tid: i32,
    command: u32,
    argument: Vec<u8>,
    out_size: usize,
}

impl OwnedCall {
    pub fn of(call: &Call<'_>) -> Self {
        let Call { unique, pid, tid, command, argument, out_size, .. } = *call;
        Self { unique, pid, tid, command, argument: argument.to_vec(), out_size }
    }

    /// Returns the call as if it arrived at `now`.
    pub fn at(&self, now: Time) -> Call<'_> {
        let Self { unique, pid, tid, command, out_size, .. } = *self;
        Call { unique, pid, tid, command, argument: &self.argument, out_size, now }
    }
}

/// Encodes what goes back to the caller: as many bytes as it passed, whatever ABI version it was built for.
pub fn reply<A: Plain>(argument: &A, out_size: usize) -> Reply {
    let mut out = argument.as_bytes().to_vec();
    out.resize(out_size, 0);
    Reply { result: 0, out }
}

/// Decodes the argument, executes the call, and encodes what goes back.
pub fn run<A: Ioctl>(call: &Call<'_>, execute: impl FnOnce(&mut A) -> Answer<()>) -> Answer<Reply> {
    let mut argument: A = call.decode();
    execute(&mut argument)?;
    Ok(reply(&argument, call.out_size))
}
