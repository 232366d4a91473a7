//! One ioctl of a client: the call as it came in, and how its argument is decoded and its answer encoded.

use hip_sys::kfd::{Ioctl, Plain};

use crate::device::Time;
use crate::fuse::{Reply, Unique};

/// A result, or the errno of the failure.
pub type Answer<T> = Result<T, i32>;

/// An ioctl call that has not been answered.
#[derive(Clone, Debug)]
pub struct Call {
    /// The FUSE request that carries the call.
    pub unique: Unique,
    pub pid: i32,
    pub tid: i32,
    pub command: u32,
    pub argument: Vec<u8>,
    /// The number of bytes that the caller takes back.
    pub out_size: usize,
    /// The time at which the call arrived.
    pub now: Time,
}

impl Call {
    /// Decodes the argument.
    pub fn decode<A: Plain>(&self) -> A {
        A::from_bytes(&self.argument)
    }

    /// Encodes what goes back to the caller: as many bytes as it passed, whatever ABI version it was built for.
    pub fn reply<A: Plain>(&self, argument: &A) -> Reply {
        let mut out = argument.as_bytes().to_vec();
        out.resize(self.out_size, 0);
        Reply { result: 0, out }
    }
}

/// Decodes the argument, executes the call, and encodes what goes back.
pub fn run<A: Ioctl>(call: &Call, execute: impl FnOnce(&mut A) -> Answer<()>) -> Answer<Reply> {
    let mut argument: A = call.decode();
    execute(&mut argument)?;
    Ok(call.reply(&argument))
}
