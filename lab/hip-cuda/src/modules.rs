//! Modules and their functions. An AMD code object is searched only for the names of its symbols.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::slice;
use std::sync::{Arc, PoisonError, RwLock};

use hip_sys::types::*;

use crate::devices;
use crate::driver::Opaque;
use crate::errors::Answer;
use crate::image::{self, Image};
use crate::state::{self, api, put, required, started};

/// A kernel on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) handle: Opaque,
    pub(crate) device: c_int,
    /// The maximum number of threads in a block.
    pub(crate) threads: u32,
    /// The most dynamic shared memory of a launch in bytes, if the kernel uses any.
    pub(crate) dynamic: Option<usize>,
    /// The name. It is never freed, because programs keep the pointer.
    pub(crate) name: &'static CStr,
    /// [`Image::id`] of its image.
    image: usize,
}

impl Function {
    /// Returns the dynamic shared memory of a launch that asks for this much, in bytes. AMD's devices drop stores
    /// beyond a block's shared memory; NVIDIA's end the context. So a kernel that uses such memory gets room for 16
    /// bytes of each thread at least, and a program that asks for less goes on as on AMD.
    pub(crate) fn shared(&self, asked: usize, threads: u64) -> usize {
        const PER_THREAD: usize = 16;
        let room = usize::try_from(threads).unwrap_or(0).saturating_mul(PER_THREAD);
        self.dynamic.map_or(asked, |most| asked.max(room.min(most)))
    }
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
    let dynamic = image::uses_dynamic_shared(name).then(|| usize::try_from(most).unwrap_or(0));
    let text = [name.as_bytes(), &[0]].concat().leak();
    let name = CStr::from_bytes_with_nul(text).map_err(|_| hipErrorNotFound)?;
    let threads = u32::try_from(threads).unwrap_or(0);
    let function = Function { handle, device, threads, dynamic, name, image: image.id() };
    add(function);
    Ok(function)
}

fn add(function: Function) {
    let mut functions = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner);
    functions.get_or_insert_default().insert(function.handle.0, function);
}

/// Removes the functions of an image that is about to be unloaded. Later modules may get the same handles.
fn forget(image: &Image) {
    let mut functions = FUNCTIONS.write().unwrap_or_else(PoisonError::into_inner);
    functions.get_or_insert_default().retain(|_, function| function.image != image.id());
}

/// `EM_AMDGPU`.
const AMDGPU: u16 = 224;
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";

/// A code object in memory. No byte beyond `limit` is read.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    start: *const u8,
    limit: usize,
}

impl Bytes {
    /// Reads a number at an offset.
    ///
    /// # Errors
    /// `hipErrorInvalidImage` if it exceeds the limit.
    ///
    /// # Safety
    /// The memory up to the limit is readable, or the code object announces that the number is there.
    unsafe fn word<T: Copy>(self, offset: usize) -> Answer<T> {
        let end = offset.checked_add(size_of::<T>()).ok_or(hipErrorInvalidImage)?;
        if end > self.limit {
            return Err(hipErrorInvalidImage);
        }
        // SAFETY: the caller guarantees that the number is readable; any alignment is permitted.
        Ok(unsafe { self.start.add(offset).cast::<T>().read_unaligned() })
    }

    /// Returns the length that the headers tell; 0 for a compressed code object.
    ///
    /// # Errors
    /// `hipErrorInvalidImage` if it is no code object, or exceeds the limit.
    ///
    /// # Safety
    /// The memory up to the limit is readable. Without a limit, a whole code object is there if the first bytes
    /// announce one, and otherwise at least one byte differs from each of the known beginnings.
    unsafe fn length(self) -> Answer<usize> {
        let is = |magic: &[u8]| {
            // SAFETY: the comparison stops at the first byte that differs, so it stays inside the image.
            magic.iter().enumerate().all(|(at, &byte)| unsafe { self.word::<u8>(at) } == Ok(byte))
        };
        let sum = |parts: [u64; 2]| {
            parts[0]
                .checked_add(parts[1])
                .and_then(|end| usize::try_from(end).ok())
                .ok_or(hipErrorInvalidImage)
        };
        let length = if is(COMPRESSED) {
            0
        } else if is(BUNDLE) {
            let (mut at, mut length) = (32_usize, 0);
            // SAFETY: the caller guarantees the memory, or a whole bundle, which begins with the number of
            // entries and the entries: offset, size, length of the name, name.
            unsafe {
                for _ in 0..self.word::<u64>(24)? {
                    length = length.max(sum([self.word(at)?, self.word(at + 8)?])?);
                    let name =
                        usize::try_from(self.word::<u64>(at + 16)?).map_err(|_| hipErrorInvalidImage)?;
                    at =
                        at.checked_add(24).and_then(|at| at.checked_add(name)).ok_or(hipErrorInvalidImage)?;
                }
            }
            length
        // SAFETY: the caller guarantees the memory, or a whole ELF file, whose header has 64 bytes.
        } else if is(b"\x7fELF") && unsafe { self.word::<u16>(18) } == Ok(AMDGPU) {
            // SAFETY: as above. The section table is the last part of a code object.
            unsafe {
                let table = u64::from(self.word::<u16>(58)?) * u64::from(self.word::<u16>(60)?);
                sum([self.word(40)?, table])?
            }
        } else {
            return Err(hipErrorInvalidImage);
        };
        if length > self.limit { Err(hipErrorInvalidImage) } else { Ok(length) }
    }
}

fn load(place: *mut hipModule_t, image: *const c_void) -> Answer {
    required(place)?;
    required(image)?;
    let bytes = Bytes { start: image.cast(), limit: isize::MAX.unsigned_abs() };
    // SAFETY: HIP requires the program to pass a whole code object. It has as many bytes as its headers tell.
    let code = unsafe { slice::from_raw_parts(bytes.start, bytes.length()?) };
    keep(place, code)
}

/// Adds a module to the table.
fn keep(place: *mut hipModule_t, code: &[u8]) -> Answer {
    let code = code.to_vec();
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
        let file = std::fs::read(text(name)?).map_err(|_| hipErrorFileNotFound)?;
        // SAFETY: the limit is the file's length.
        let length = unsafe { Bytes { start: file.as_ptr(), limit: file.len() }.length() }?;
        keep(place, &file[..length])
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
        drop(modules);
        forget(&module.image);
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
        // SAFETY: all bytes up to the limits are readable.
        let length = |bytes: &[u8]| unsafe { Bytes { start: bytes.as_ptr(), limit: bytes.len() }.length() };
        assert_eq!(length(&elf), Ok(200));
        for cut in [0, 3, 19, 63, 199] {
            assert_eq!(length(&elf[..cut]), Err(hipErrorInvalidImage), "{cut} bytes of a file");
        }
        assert_eq!(length(b"no code object"), Err(hipErrorInvalidImage));
        assert_eq!(length(b"CCOB"), Ok(0));
        let entries = |count: u64, size: u64| {
            [BUNDLE, &count.to_le_bytes(), &56_u64.to_le_bytes(), &size.to_le_bytes(), &[0; 8]].concat()
        };
        assert_eq!((length(&entries(1, 0)), length(&entries(0, 9))), (Ok(56), Ok(0)));
        for (count, size) in [(1, 1), (2, 0), (1, u64::MAX)] {
            assert_eq!(length(&entries(count, size)), Err(hipErrorInvalidImage), "{count} entries of {size}");
        }
    }

    #[test]
    fn functions_leave_the_table_with_their_image() {
        let image = Image::default();
        let function = |handle, image| Function {
            handle: Opaque(handle),
            device: 0,
            threads: 1,
            dynamic: None,
            name: c"f",
            image,
        };
        add(function(0x7771, image.id()));
        add(function(0x7772, 0));
        forget(&image);
        let found = |handle| super::function(hipFunction_t::from_raw(handle)).is_ok();
        assert_eq!((found(0x7771), found(0x7772)), (false, true));
    }

    #[test]
    fn launches_get_room_for_their_threads() {
        let function =
            Function { handle: Opaque(1), device: 0, threads: 64, dynamic: Some(900), name: c"f", image: 0 };
        assert_eq!(
            (function.shared(0, 10), function.shared(200, 10), function.shared(0, 64)),
            (160, 200, 900)
        );
        assert_eq!(function.shared(901, 64), 901, "the driver refuses it");
        assert_eq!(Function { dynamic: None, ..function }.shared(0, 64), 0);
    }

    #[test]
    fn handles_that_nobody_made_are_refused() {
        assert!(function(hipFunction_t::NULL).is_err() && function(hipFunction_t::from_raw(0x5555)).is_err());
        assert!(module(hipModule_t::from_raw(0x5555)).is_err());
    }
}
