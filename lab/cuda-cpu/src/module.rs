//! Modules, their functions and their variables.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use crate::abi::{
    Answer, FILE_NOT_FOUND, Handle, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NOT_FOUND,
};
use crate::allocate::drain;
use crate::cubin;
use crate::device::{self, BLOCK, SHARED};
use crate::gate::{Call, In, Out, Text, enter};
use crate::host;
use crate::kernels::{self, Function};
use crate::memory::{self, Block, Kind, Mapping};
use crate::ptx::{self, Image};
use crate::state::{FunctionEntry, Module};

/// The maximum size of a module in bytes.
const MOST: usize = 1 << 28;

/// Reads a module in the program's memory: PTX, which ends with a zero byte, or an ELF file, whose headers
/// tell its length.
fn image(at: usize) -> Answer<Image> {
    if host::bytes(at, 4)? == *b"\x7fELF" {
        let len = cubin::length(&host::bytes(at, 64)?).filter(|len| *len <= MOST).ok_or(INVALID_IMAGE)?;
        return cubin::read(&host::bytes(at, len)?).ok_or(INVALID_IMAGE);
    }
    parsed(&host::text(at, MOST)?)
}

fn parsed(bytes: &[u8]) -> Answer<Image> {
    if bytes.starts_with(b"\x7fELF") {
        return cubin::read(bytes).ok_or(INVALID_IMAGE);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| INVALID_IMAGE)?;
    ptx::read(text.trim_end_matches('\0')).ok_or(INVALID_PTX)
}

/// Loads a module. Waits for all work on the device first, as NVIDIA's driver may: a caller that holds the device
/// with a wait for the host must not load anything then.
fn load(call: &mut Call, to: Out<Handle>, image: &Image) -> Answer {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    drain(call);
    let arena = device::arena(call.device)?;
    let context = call.context;
    let mut module = Module { context, functions: BTreeMap::new(), globals: BTreeMap::new() };
    for variable in &image.variables {
        let size = variable.bytes.len().max(1);
        let block = Block::device(&arena, size, false)?;
        let (id, device) = (call.state.number(), call.device);
        let mapping = Mapping { block, size, kind: Kind::Device, device, flags: 0, pool: 0, id };
        let mapping = memory::insert(mapping);
        let span = memory::checked(mapping.base(), variable.bytes.len())?;
        // SAFETY: the span has as many bytes as the variable. It is new memory, so nothing else uses it yet,
        // and it does not overlap the image.
        unsafe {
            std::ptr::copy_nonoverlapping(variable.bytes.as_ptr(), span.pointer(), variable.bytes.len());
        }
        module.globals.insert(variable.name.clone(), mapping);
    }
    let handle = call.state.handle();
    for entry in &image.entries {
        let function = Function {
            name: entry.name.clone(),
            native: kernels::find(&entry.name, &entry.params),
            params: entry.params.clone(),
            shared: entry.shared,
            threads: if entry.threads == 0 { BLOCK } else { entry.threads.min(BLOCK) },
        };
        let own = call.state.handle();
        module.functions.insert(entry.name.clone(), own);
        let dynamic = SHARED[0].saturating_sub(entry.shared) as u32;
        let function = FunctionEntry { module: handle, function: Arc::new(function), dynamic, carveout: -1 };
        call.state.functions.insert(own, function);
    }
    call.state.modules.insert(handle, module);
    to.set(handle)
}

/// Returns a handle's function.
///
/// # Errors
/// `INVALID_HANDLE`: there is no such function.
pub fn function(call: &Call, handle: Handle) -> Answer<&FunctionEntry> {
    call.state.functions.get(&handle).ok_or(INVALID_HANDLE)
}

/// Returns a value of `CUfunction_attribute`. `None`: there is no such attribute.
fn attribute(entry: &FunctionEntry, which: c_uint) -> Option<c_int> {
    Some(match which {
        0 => entry.function.threads as c_int,
        1 => entry.function.shared as c_int,
        2 | 3 => 0,
        4 => 16,
        5 | 6 => 90,
        7 => 0,
        8 => entry.dynamic as c_int,
        9 => entry.carveout,
        10..=15 => 0,
        _ => return None,
    })
}

crate::api! {
    fn cuModuleLoad(to: Out<Handle>, path: Text) {
        let mut call = enter()?;
        call.may_disturb()?;
        let bytes = std::fs::read(path.text()?).map_err(|_| FILE_NOT_FOUND)?;
        let image = parsed(&bytes)?;
        load(&mut call, to, &image)
    }

    fn cuModuleLoadData(to: Out<Handle>, from: In<u8>) {
        let mut call = enter()?;
        call.may_disturb()?;
        let image = image(from.address())?;
        load(&mut call, to, &image)
    }

    /// The options are for the PTX compiler, which this library does not have.
    fn cuModuleLoadDataEx(
        to: Out<Handle>, from: In<u8>, _count: c_uint, _options: In<c_uint>, _values: In<usize>,
    ) {
        let mut call = enter()?;
        call.may_disturb()?;
        let image = image(from.address())?;
        load(&mut call, to, &image)
    }

    fn cuModuleLoadFatBinary(_to: Out<Handle>, from: In<u8>) {
        let mut call = enter()?;
        call.may_disturb()?;
        eprintln!("cuda-cpu: cuModuleLoadFatBinary is not supported: pass PTX or a cubin to cuModuleLoadData");
        if from.address() == 0 { Err(INVALID_VALUE) } else { Err(crate::abi::NOT_SUPPORTED) }
    }

    /// Waits for all work on the device, because a kernel of the module may still run.
    fn cuModuleUnload(module: Handle) {
        let mut call = enter()?;
        call.may_disturb()?;
        if !call.state.modules.contains_key(&module) {
            return Err(INVALID_HANDLE);
        }
        drain(&mut call);
        let Some(gone) = call.state.modules.remove(&module) else { return Err(INVALID_HANDLE) };
        for function in gone.functions.values() {
            call.state.functions.remove(function);
        }
        for mapping in gone.globals.values() {
            memory::remove(mapping.base());
        }
        Ok(())
    }

    fn cuModuleGetFunction(to: Out<Handle>, module: Handle, name: Text) {
        let call = enter()?;
        let module = call.state.modules.get(&module).ok_or(INVALID_HANDLE)?;
        to.set(*module.functions.get(&name.text()?).ok_or(NOT_FOUND)?)
    }

    fn cuModuleGetFunctionCount(to: Out<c_uint>, module: Handle) {
        let call = enter()?;
        to.set(call.state.modules.get(&module).ok_or(INVALID_HANDLE)?.functions.len() as c_uint)
    }

    fn cuModuleEnumerateFunctions(to: Out<Handle>, count: c_uint, module: Handle) {
        let call = enter()?;
        let module = call.state.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let mut all = module.functions.values().take(count as usize).enumerate();
        all.try_for_each(|(index, function)| to.at(index).set(*function))
    }

    fn cuModuleGetGlobal_v2(address: Out<usize>, size: Out<usize>, module: Handle, name: Text) {
        let call = enter()?;
        let module = call.state.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let mapping = module.globals.get(&name.text()?).ok_or(NOT_FOUND)?;
        address.offer(mapping.base());
        size.offer(mapping.size);
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: Out<c_uint>) {
        // `CU_MODULE_EAGER_LOADING`.
        mode.set(1)
    }

    fn cuFuncGetAttribute(to: Out<c_int>, which: c_uint, handle: Handle) {
        let call = enter()?;
        to.set(attribute(function(&call, handle)?, which).ok_or(INVALID_VALUE)?)
    }

    fn cuFuncSetAttribute(handle: Handle, which: c_uint, value: c_int) {
        let mut call = enter()?;
        let entry = call.state.functions.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        match which {
            8 if value >= 0 && value as usize + entry.function.shared <= SHARED[1] => entry.dynamic = value as u32,
            9 if (-1..=100).contains(&value) => entry.carveout = value,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    fn cuFuncSetCacheConfig(handle: Handle, config: c_uint) {
        let call = enter()?;
        function(&call, handle)?;
        if config > 3 { Err(INVALID_VALUE) } else { Ok(()) }
    }

    fn cuFuncSetSharedMemConfig(handle: Handle, config: c_uint) {
        let call = enter()?;
        function(&call, handle)?;
        if config > 2 { Err(INVALID_VALUE) } else { Ok(()) }
    }

    fn cuFuncGetModule(to: Out<Handle>, handle: Handle) {
        let call = enter()?;
        to.set(function(&call, handle)?.module)
    }

    /// The name is never freed, because the program may keep its address.
    fn cuFuncGetName(to: Out<*const c_char>, handle: Handle) {
        let call = enter()?;
        let name = &function(&call, handle)?.function.name;
        to.set(names::of(name))
    }

    fn cuFuncGetParamInfo(handle: Handle, index: usize, offset: Out<usize>, size: Out<usize>) {
        let call = enter()?;
        let param = function(&call, handle)?.function.params.get(index).ok_or(INVALID_VALUE)?;
        offset.set(param.offset)?;
        size.offer(param.size);
        Ok(())
    }

    fn cuFuncIsLoaded(state: Out<c_uint>, handle: Handle) {
        let call = enter()?;
        function(&call, handle)?;
        state.set(1)
    }

    fn cuFuncLoad(handle: Handle) {
        let call = enter()?;
        function(&call, handle).map(|_| ())
    }
}

/// C strings of names, which are made once and never freed.
mod names {
    use std::collections::BTreeMap;
    use std::ffi::{CString, c_char};

    use parking_lot::Mutex;

    static NAMES: Mutex<BTreeMap<String, CString>> = Mutex::new(BTreeMap::new());

    pub fn of(name: &str) -> *const c_char {
        let mut names = NAMES.lock();
        let text = || CString::new(name).unwrap_or_default();
        // The map may move the strings, but not the bytes that they point to.
        names.entry(name.to_owned()).or_insert_with(text).as_ptr()
    }
}
