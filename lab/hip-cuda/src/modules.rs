//! Modules and their functions. An AMD code object is searched only for the names of its symbols.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::slice;
use std::sync::{Arc, PoisonError, RwLock};

use hip_sys::types::*;

use crate::devices;
use crate::driver::Opaque;
use crate::errors::Answer;
use crate::image::Image;
use crate::state::{self, api, put, required, started};

/// A kernel on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) handle: Opaque,
    pub(crate) device: c_int,
    /// The maximum number of threads in a block.
    pub(crate) threads: u32,
    /// The name. It is never freed, because programs keep the pointer.
    pub(crate) name: &'static CStr,
}

/// A loaded module.
#[derive(Debug)]
struct Module {
    image: Image,
    device: c_int,
    /// The bytes of the code object; `None` if they are compressed.
    code: Option<Vec<u8>>,
}

static MODULES: RwLock<Option<HashMap<usize, Arc<Module>>>> = RwLock::new(None);
static FUNCTIONS: RwLock<Option<HashMap<usize, Function>>> = RwLock::new(None);

/// Returns a handle's function.
///
/// # Errors
/// `hipErrorInvalidHandle` if the handle is not a function's.
pub(crate) fn function(handle: hipFunction_t) -> Answer<Function> {
    let functions = FUNCTIONS.read().unwrap_or_else(PoisonError::into_inner);
    functions
        .as_ref()
        .and_then(|functions| functions.get(&handle.as_raw()).copied())
        .ok_or(hipErrorInvalidHandle)
}

/// `CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK`, `-SHARED_SIZE_BYTES`, `-MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_THREADS: c_int = 0;
const SHARED: c_int = 1;
const MAX_DYNAMIC: c_int = 8;

/// Looks up a kernel and adds it to the table of functions.
pub(crate) fn look_up(image: &Image, device: c_int, name: &str) -> Answer<Function> {
    let handle = image.kernel(device, name)?;
    if let Ok(known) = function(hipFunction_t::from_raw(handle.0)) {
        return Ok(known);
    }
    let driver = started()?.enter(device)?;
    let (mut threads, mut fixed) = (0, 0);
    driver.function_attribute(&mut threads, MAX_THREADS, handle)?;
    driver.function_attribute(&mut fixed, SHARED, handle)?;
    // CUDA requires this call before a launch with more than 48 KiB; HIP does not.
    let most = devices::shared_memory(device)?.saturating_sub(fixed);
    let _ = driver.function_set_attribute(handle, MAX_DYNAMIC, most);
    let text = [name.as_bytes(), &[0]].concat().leak();
    let name = CStr::from_bytes_with_nul(text).map_err(|_| hipErrorNotFound)?;
    let function = Function { handle, device, threads: u32::try_from(threads).unwrap_or(0), name };
    let mut functions = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner);
    functions.get_or_insert_default().insert(handle.0, function);
    Ok(function)
}

/// `EM_AMDGPU`.
const AMDGPU: u16 = 224;
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";

/// Reads a number at an offset of a code object's header.
///
/// # Safety
/// The number lies in memory that is valid for reads.
unsafe fn word<T: Copy>(image: *const u8, offset: usize) -> T {
    // SAFETY: the caller guarantees that the number is readable; any alignment is permitted.
    unsafe { image.add(offset).cast::<T>().read_unaligned() }
}

/// Returns the bytes of a code object in memory. Its headers tell its length. Empty for a compressed one.
///
/// # Errors
/// `hipErrorInvalidImage` for anything else.
///
/// # Safety
/// If the first bytes announce a code object, a whole one is there. Otherwise the image has at least one byte
/// that differs from each of the known beginnings.
unsafe fn bytes(image: *const u8) -> Answer<Vec<u8>> {
    let is = |magic: &[u8]| {
        // SAFETY: the comparison stops at the first byte that differs, so it stays inside the image.
        magic.iter().enumerate().all(|(at, &byte)| unsafe { *image.add(at) } == byte)
    };
    let size = if is(COMPRESSED) {
        0
    } else if is(BUNDLE) {
        // SAFETY: the caller guarantees a whole bundle, which begins with the number of entries and the
        // entries: offset, size, length of the name, name.
        unsafe {
            let (mut at, mut end) = (32, 0);
            for _ in 0..word::<u64>(image, 24) {
                end = end.max(word::<u64>(image, at) + word::<u64>(image, at + 8));
                at += 24 + word::<u64>(image, at + 16) as usize;
            }
            end as usize
        }
    // SAFETY: the caller guarantees a whole ELF file, whose header has 64 bytes.
    } else if is(b"\x7fELF") && unsafe { word::<u16>(image, 18) } == AMDGPU {
        // SAFETY: as above. The section table is the last part of a code object.
        unsafe {
            word::<u64>(image, 40) as usize
                + usize::from(word::<u16>(image, 58)) * usize::from(word::<u16>(image, 60))
        }
    } else {
        return Err(hipErrorInvalidImage);
    };
    // SAFETY: the caller guarantees the whole code object, and its headers tell how many bytes that is.
    Ok(unsafe { slice::from_raw_parts(image, size) }.to_vec())
}

fn load(place: *mut hipModule_t, image: *const c_void) -> Answer {
    required(place)?;
    required(image)?;
    // SAFETY: HIP requires the program to pass a whole code object.
    let code = unsafe { bytes(image.cast()) }?;
    let code = (!code.is_empty()).then_some(code);
    state::enter()?;
    let module = Arc::new(Module { image: Image::default(), device: state::device(), code });
    module.prepare();
    let handle = hipModule_t::from_raw(Arc::as_ptr(&module).addr());
    let mut modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
    modules.get_or_insert_default().insert(handle.as_raw(), module);
    put(place, handle)
}

fn module(handle: hipModule_t) -> Answer<Arc<Module>> {
    let modules = MODULES.read().unwrap_or_else(PoisonError::into_inner);
    modules.as_ref().and_then(|modules| modules.get(&handle.as_raw()).cloned()).ok_or(hipErrorInvalidHandle)
}

/// Copies a string that a program passes.
pub(crate) fn text(name: *const c_char) -> Answer<String> {
    required(name)?;
    // SAFETY: HIP requires the program to pass a string that ends with a zero.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

impl Module {
    /// Loads the module's kernels now: CUDA may wait for running work when it loads code, so a first launch behind
    /// work that waits for the host would hang. What cannot be loaded is refused at its first use.
    fn prepare(&self) {
        const END: &[u8] = b".kd\0";
        let code = self.code.as_deref().unwrap_or_default();
        for (at, _) in code.windows(END.len()).enumerate().filter(|(_, bytes)| *bytes == END) {
            let start = code[..at].iter().rposition(|&byte| byte == 0).map_or(0, |zero| zero + 1);
            if let Ok(name) = std::str::from_utf8(&code[start..at]) {
                let _ = look_up(&self.image, self.device, name);
            }
        }
    }

    /// Returns false if the code object certainly lacks the symbol, so that AMD's runtime would not find it
    /// either.
    fn may_have(&self, symbol: &str) -> bool {
        let wanted = [symbol.as_bytes(), &[0]].concat();
        self.code.as_ref().is_none_or(|code| code.windows(wanted.len()).any(|bytes| bytes == wanted))
    }
}

api! {
    [pfn] fn hipModuleLoad(place: *mut hipModule_t, name: *const c_char) {
        required(place)?;
        let bytes = std::fs::read(text(name)?).map_err(|_| hipErrorFileNotFound)?;
        if bytes.len() < 64 {
            return Err(hipErrorInvalidImage);
        }
        load(place, bytes.as_ptr().cast())
    }
    [pfn] fn hipModuleLoadData(place: *mut hipModule_t, image: *const c_void) { load(place, image) }
    [pfn] fn hipModuleLoadDataEx(place: *mut hipModule_t, image: *const c_void, count: c_uint,
        options: *mut hipJitOption, values: *mut *mut c_void) {
        let _ = (count, options, values);
        load(place, image)
    }
    [pfn] fn hipModuleLoadFatBinary(place: *mut hipModule_t, image: *const c_void) { load(place, image) }
    [pfn] fn hipModuleUnload(handle: hipModule_t) {
        let module = module(handle)?;
        // AMD's runtime waits for the device.
        started()?.enter(module.device)?.context_synchronize()?;
        let mut modules = MODULES.write().unwrap_or_else(PoisonError::into_inner);
        modules.get_or_insert_default().remove(&handle.as_raw());
        module.image.unload()
    }
    [pfn] fn hipModuleGetFunction(place: *mut hipFunction_t, handle: hipModule_t, name: *const c_char) {
        required(place)?;
        let name = text(name)?;
        let module = module(handle)?;
        if !module.may_have(&format!("{name}.kd")) {
            return Err(hipErrorNotFound);
        }
        let function = look_up(&module.image, module.device, &name)?;
        put(place, hipFunction_t::from_raw(function.handle.0))
    }
    [pfn] fn hipModuleGetGlobal(place: *mut hipDeviceptr_t, bytes: *mut usize, handle: hipModule_t,
        name: *const c_char) {
        let name = text(name)?;
        let module = module(handle)?;
        if !module.may_have(&name) {
            return Err(hipErrorNotFound);
        }
        let (address, size) = module.image.variable(module.device, &name, None)?;
        let _ = put(bytes, size);
        put(place, std::ptr::with_exposed_provenance_mut(address))
    }
    [pfn] fn hipFuncGetAttribute(value: *mut c_int, attribute: hipFunction_attribute, handle: hipFunction_t) {
        required(value)?;
        let function = function(handle)?;
        let wanted = c_int::try_from(attribute.0).map_err(|_| hipErrorInvalidValue)?;
        let mut found = 0;
        // The attributes have CUDA's numbers.
        started()?.enter(function.device)?.function_attribute(&mut found, wanted, function.handle)?;
        put(value, found)
    }
    [value] fn hipKernelNameRef(handle: hipFunction_t) -> *const c_char {
        function(handle).map_or(std::ptr::null(), |function| function.name.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_object_ends_where_its_headers_say() {
        let mut elf = [0_u8; 200];
        elf[..4].copy_from_slice(b"\x7fELF");
        elf[18..20].copy_from_slice(&AMDGPU.to_le_bytes());
        elf[40..48].copy_from_slice(&72_u64.to_le_bytes());
        elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
        elf[60..62].copy_from_slice(&2_u16.to_le_bytes());
        // SAFETY: the list is longer than the headers say.
        let seen = unsafe {
            [
                bytes(elf.as_ptr()),
                bytes(c"no code object, a text that is long enough for any header".as_ptr().cast()),
            ]
        };
        assert_eq!(seen[0].as_ref().map(Vec::len), Ok(200));
        assert_eq!(seen[1], Err(hipErrorInvalidImage));
    }

    #[test]
    fn handles_that_nobody_made_are_refused() {
        assert!(function(hipFunction_t::NULL).is_err() && function(hipFunction_t::from_raw(0x5555)).is_err());
        assert!(module(hipModule_t::from_raw(0x5555)).is_err());
    }
}
