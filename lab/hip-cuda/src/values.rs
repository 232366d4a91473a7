//! Stream waits for values in memory, and stream writes. The comparisons have the same numbers as CUDA's.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hip_sys::types::*;

use crate::errors::Answer;
use crate::state::{api, get, required};
use crate::stream_table::enter_on;
use crate::{captures, memory};

/// `hipStreamWaitValueGte`, `-Eq`, `-And`, `-Nor`.
const GREATER: c_uint = 0;
const EQUAL: c_uint = 1;
const AND: c_uint = 2;
const NOR: c_uint = 3;

/// Refuses memory that the runtime does not know (`ihipStreamOperation` in hip_stream_ops.cpp), and a word that exceeds
/// known memory.
fn check(address: *mut c_void, wide: bool) -> Answer {
    required(address)?;
    memory::find(address).ok_or(hipErrorInvalidValue)?;
    memory::check(address, if wide { 8 } else { 4 })
}

/// A wait with a mask, which CUDA lacks: a host function in the stream polls the word.
#[derive(Debug)]
struct Masked {
    address: *mut c_void,
    value: u64,
    mask: u64,
    compare: c_uint,
    wide: bool,
}

impl Masked {
    fn holds(&self, word: u64) -> bool {
        let (word, value) = (word & self.mask, self.value & self.mask);
        match self.compare {
            // As in CUDA: the difference is not negative, so that counters may wrap around.
            GREATER if self.wide => word.wrapping_sub(value).cast_signed() >= 0,
            GREATER => (word as u32).wrapping_sub(value as u32).cast_signed() >= 0,
            EQUAL => word == value,
            AND => word & value != 0,
            _ => !(word | value) & self.mask != 0,
        }
    }

    fn word(&self) -> u64 {
        // SAFETY: `wait` has checked that the host reaches the memory. HIP requires the program to align the
        // address and to keep the memory until the wait ends.
        unsafe {
            if self.wide {
                AtomicU64::from_ptr(self.address.cast()).load(Ordering::Acquire)
            } else {
                u64::from(AtomicU32::from_ptr(self.address.cast()).load(Ordering::Acquire))
            }
        }
    }
}

unsafe extern "C" fn wait_masked(data: *mut c_void) {
    // SAFETY: the data is the box that was passed with this function, and the driver calls it once.
    let wait = unsafe { Box::from_raw(data.cast::<Masked>()) };
    // Nothing notifies the host of a store to memory, so it polls.
    while !wait.holds(wait.word()) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn wait(
    stream: hipStream_t,
    address: *mut c_void,
    value: u64,
    flags: c_uint,
    (mask, wide): (u64, bool),
) -> Answer {
    check(address, wide)?;
    if flags > NOR {
        return Err(hipErrorInvalidValue);
    }
    let driver = enter_on(stream)?;
    let all = if wide { u64::MAX } else { u64::from(u32::MAX) };
    if mask == all {
        return if wide {
            driver.wait_64(stream, address.addr(), value, flags)
        } else {
            driver.wait_32(stream, address.addr(), value as u32, flags)
        };
    }
    // A graph would call the function at each launch, but its box lives for one call only.
    let on_host = memory::find(address).is_some_and(|memory| memory.kind.is_on_host());
    if !on_host || captures::is_capturing(stream) {
        return Err(hipErrorNotSupported);
    }
    let wait = Box::into_raw(Box::new(Masked { address, value, mask, compare: flags, wide }));
    driver.host_function(stream, wait_masked, wait.cast()).inspect_err(|_| {
        // SAFETY: the driver refused the call, so nothing else uses the box.
        drop(unsafe { Box::from_raw(wait) });
    })
}

fn write(stream: hipStream_t, address: *mut c_void, value: u64, wide: bool) -> Answer {
    check(address, wide)?;
    let driver = enter_on(stream)?;
    if wide {
        driver.write_64(stream, address.addr(), value, 0)
    } else {
        driver.write_32(stream, address.addr(), value as u32, 0)
    }
}

/// `hipStreamMemOp*`: waits and writes of 32 and 64 bits.
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
/// The maximum number of operations in one call (`ihipBatchMemOperation`).
const MOST: c_uint = 256;

api! {
    [pfn] fn hipStreamWaitValue32(stream: hipStream_t, address: *mut c_void, value: u32, flags: c_uint, mask: u32) {
        wait(stream, address, u64::from(value), flags, (u64::from(mask), false))
    }
    [pfn] fn hipStreamWaitValue64(stream: hipStream_t, address: *mut c_void, value: u64, flags: c_uint, mask: u64) {
        wait(stream, address, value, flags, (mask, true))
    }
    [pfn] fn hipStreamWriteValue32(stream: hipStream_t, address: *mut c_void, value: u32, flags: c_uint) {
        let _ = flags;
        write(stream, address, u64::from(value), false)
    }
    [pfn] fn hipStreamWriteValue64(stream: hipStream_t, address: *mut c_void, value: u64, flags: c_uint) {
        let _ = flags;
        write(stream, address, value, true)
    }
    [pfn] fn hipStreamBatchMemOp(stream: hipStream_t, count: c_uint, list: *mut hipStreamBatchMemOpParams,
        flags: c_uint) {
        if list.is_null() || count == 0 || count > MOST || flags != 0 {
            return Err(hipErrorInvalidValue);
        }
        let all = (0..count as usize).map(|index| get(list.wrapping_add(index))).collect::<Answer<Vec<_>>>()?;
        if all.iter().any(|one| !matches!(one.words[0] as u32, WAIT_32 | WRITE_32 | WAIT_64 | WRITE_64)) {
            return Err(hipErrorInvalidValue);
        }
        all.iter().try_for_each(|one| {
            let [operation, address, value, flags, ..] = one.words;
            let address = ptr::with_exposed_provenance_mut(address as usize);
            match operation as u32 {
                WAIT_32 => {
                    let narrow = (u64::from(u32::MAX), false);
                    wait(stream, address, u64::from(value as u32), flags as u32, narrow)
                }
                WAIT_64 => wait(stream, address, value, flags as u32, (u64::MAX, true)),
                operation => write(stream, address, value, operation == WRITE_64),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_choose_the_bits_that_are_compared() {
        let wait =
            |compare, value, mask| Masked { address: ptr::null_mut(), value, mask, compare, wide: false };
        assert!(wait(EQUAL, 0x12, 0xF).holds(0xFF2) && !wait(EQUAL, 0x12, 0xFF).holds(0xFF2));
        assert!(wait(GREATER, 5, 0xFF).holds(0x105) && !wait(GREATER, 5, 0xFF).holds(0x104));
        assert!(wait(AND, 8, 0xF).holds(0x18) && !wait(AND, 0x18, 0xF).holds(0x10));
        assert!(wait(NOR, 1, 3).holds(1) && !wait(NOR, 1, 3).holds(2));
    }

    #[test]
    fn a_word_lies_within_known_memory() {
        memory::keep(0x40_0000, 12, memory::Kind::Host, 0);
        let at = |address| ptr::without_provenance_mut(address);
        assert_eq!((check(at(0x40_0008), false), check(at(0x40_0000), true)), (Ok(()), Ok(())));
        assert_eq!(check(at(0x40_0008), true), Err(hipErrorInvalidValue));
    }
}
