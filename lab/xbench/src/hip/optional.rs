//! Functions that a runtime may lack. They are looked up when they are needed, so that a runtime without them measures the rest.

use super::api::{Api, check, function_table};
use super::handles::{Function, Occupied, Stream};
use anyhow::{Result, anyhow};
use hip_sys::pfn;
use hip_sys::types::{hipFunction_attribute, hipFunction_t, hipStream_t};
use libloading::Library;
use std::ffi::c_int;

function_table! {
    Attributes {
        get: pfn::hipFuncGetAttribute = "hipFuncGetAttribute";
    }
}

function_table! {
    Masks {
        create: pfn::hipExtStreamCreateWithCUMask = "hipExtStreamCreateWithCUMask";
        read: pfn::hipExtStreamGetCUMask = "hipExtStreamGetCUMask";
    }
}

/// `HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES` and `HIP_FUNC_ATTRIBUTE_NUM_REGS` of hip/driver_types.h, the same in all releases.
const SHARED_SIZE_BYTES: hipFunction_attribute = hipFunction_attribute(1);
const NUM_REGS: hipFunction_attribute = hipFunction_attribute(4);

/// Returns the error of a runtime without this function.
fn missing(function: &str) -> anyhow::Error {
    anyhow!("this HIP runtime has no function {function}")
}

impl Function {
    /// Returns what the kernel occupies, as the compiler has written it into the code object.
    ///
    /// # Errors
    /// The runtime lacks the function, or does not know.
    pub fn occupied(&self) -> Result<Occupied> {
        // SAFETY: the type is the prototype that hip-sys holds for exactly this name.
        let attributes = unsafe { Attributes::of(self.library()) }.map_err(missing)?;
        let get = |which| read(attributes, self.handle(), which);
        Ok(Occupied { registers: get(NUM_REGS)?, shared_bytes: get(SHARED_SIZE_BYTES)? })
    }
}

fn read(attributes: Attributes, function: hipFunction_t, which: hipFunction_attribute) -> Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: the function is live, and the call writes one int.
    check("hipFuncGetAttribute", unsafe { (attributes.get)(&mut value, which, function) })?;
    Ok(value.unsigned_abs())
}

impl Stream {
    /// Creates a stream as [`super::Hip::stream_on_units`].
    pub(super) fn on_units(api: &'static Api, mask: &[u32]) -> Result<Self> {
        let masks = masks(api.library)?;
        let mut handle = hipStream_t::NULL;
        // SAFETY: the call writes one handle, and reads as many words as it is told, which the slice has.
        let code = unsafe { (masks.create)(&mut handle, mask.len() as u32, mask.as_ptr()) };
        check("hipExtStreamCreateWithCUMask", code)?;
        Ok(Self::adopted(api, handle))
    }

    /// Returns the first `words` words of the mask of compute units, as the runtime has it.
    ///
    /// # Errors
    /// The runtime lacks the function or refuses.
    pub fn units(&self, words: usize) -> Result<Vec<u32>> {
        let masks = masks(self.library())?;
        let mut mask = vec![0; words];
        // SAFETY: the stream is live, and the call writes at most as many words as it is told, which the vector has.
        let code = unsafe { (masks.read)(self.handle(), mask.len() as u32, mask.as_mut_ptr()) };
        check("hipExtStreamGetCUMask", code)?;
        Ok(mask)
    }
}

fn masks(library: &'static Library) -> Result<Masks> {
    // SAFETY: each type is the prototype that hip-sys holds for exactly this name.
    unsafe { Masks::of(library) }.map_err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_function_is_named() {
        // SAFETY: the C library is loaded already, and its initialisers have run.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        let error = masks(Box::leak(Box::new(library))).unwrap_err().to_string();
        assert_eq!(error, "this HIP runtime has no function hipExtStreamCreateWithCUMask");
    }
}
