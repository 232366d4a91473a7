//! Tells the preloaded library that work will arrive, as a program does that uses its C interface.

use crate::hip::Stream;
use anyhow::{Context, Result, ensure};
use hip_sys::types::hipStream_t;
use libloading::os::unix::{Library, Symbol};
use protocol::codes::XResult;
use std::ffi::c_int;

type HipQueueCreate = unsafe extern "C" fn(*mut u64, hipStream_t) -> c_int;
type XQueueGet = unsafe extern "C" fn(*mut u64, u64) -> c_int;
type XHintArrival = unsafe extern "C" fn(u64, i64) -> c_int;

/// The XQueue of a stream, for hints.
#[derive(Debug)]
pub(super) struct Hints {
    queue: u64,
    arrival: Symbol<XHintArrival>,
}

impl Hints {
    /// Finds the stream's XQueue, which the library has made.
    ///
    /// # Errors
    /// The library is not preloaded, or makes no XQueues.
    pub(super) fn of(stream: &Stream) -> Result<Self> {
        let this = Library::this();
        /// A function of the library with the type of `include/xsched/*.h`.
        macro_rules! find {
            ($name:literal, $type:ty) => {
                // SAFETY: the type is the prototype of exactly this name.
                unsafe { this.get::<$type>($name) }
                    .context("--hint needs libshimhip.so to be preloaded, with XSCHED_AUTO_XQUEUE=ON")?
            };
        }
        let wrap = find!(b"HipQueueCreate\0", HipQueueCreate);
        let get = find!(b"XQueueGet\0", XQueueGet);
        let arrival = find!(b"XHintArrival\0", XHintArrival);
        let (mut hardware, mut queue) = (0, 0);
        // SAFETY: the place and the stream are valid.
        check(unsafe { wrap(&raw mut hardware, stream.handle()) }, "HipQueueCreate")?;
        // SAFETY: the place is valid, the handle was just given.
        check(unsafe { get(&raw mut queue, hardware) }, "XQueueGet")?;
        Ok(Self { queue, arrival })
    }

    /// Work arrives in so many microseconds.
    pub(super) fn arrival(&self, us: i64) -> Result<()> {
        // SAFETY: takes numbers only.
        check(unsafe { (self.arrival)(self.queue, us) }, "XHintArrival")
    }
}

fn check(result: c_int, name: &str) -> Result<()> {
    let known = XResult::from_number(result.into()).map_or("an unknown result", XResult::c_name);
    ensure!(result == XResult::Success.number(), "{name} returns {known}");
    Ok(())
}
