//! Compares the arguments that the compiler's host code passes with the layout that this crate reads from its
//! device code.
//!
//! hipcc builds `kernels.hip` as a library with its own replacement of the runtime, which is loaded here, so
//! that registration and launches are those of a real program. The sizes follow from the language's rules.

use hal_hip::args::KernelArgs;
use hal_hip::code_object::{Image, Processors};
use hal_hip::kernels::Kernels;
use hal_hip::layout::{Kernel, Unknown};
use hip_sys::types::{
    HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END, hipFunction_t,
    hipModule_t,
};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, ptr, slice};

/// The options of a build without the device libraries, which in Debian 12 do not support gfx1100.
const WITH_LIBRARY: &[&str] = &["-DLIBRARY", "--offload-arch=gfx90a", "--offload-arch=gfx1030"];
const WITHOUT_LIBRARY: &[&str] = &["-nogpulib", "--offload-arch=gfx90a", "--offload-arch=gfx1100"];
const SHARED: &[&str] = &["-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wl,--as-needed"];
const CODE_OBJECT: &[&str] = &["--genco", "-DCODE_OBJECT"];

/// The number of kernels of `kernels.hip` that have a layout, without and with the device libraries.
const KERNELS: usize = 17;
const LIBRARY_KERNELS: usize = 2;

fn hipcc(folder: &Path, name: &str, arguments: &[&[&str]]) -> PathBuf {
    let output = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels.hip");
    let result = Command::new("hipcc")
        // hipcc leaves an empty folder there for each code object.
        .env("TMPDIR", folder)
        .args(["-std=c++17", "-O2"])
        .args(arguments.concat())
        .args([source.as_os_str(), OsString::from("-o").as_os_str(), output.as_os_str()])
        .output();
    let result = match result {
        Ok(result) => result,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            panic!("hipcc is not installed, and the kernels are built with it: run `make deps`")
        }
        Err(error) => panic!("cannot run hipcc: {error}"),
    };
    assert!(result.status.success(), "hipcc failed:\n{}", String::from_utf8_lossy(&result.stderr));
    output
}

/// The exports of the library of `kernels.hip`.
type Binary = unsafe extern "C" fn(context: *mut c_void, modules: *const c_void, wrapper: *const c_void);
type HostFunction = unsafe extern "C" fn(
    context: *mut c_void,
    modules: *const c_void,
    function: *const c_void,
    name: *const c_char,
);
type Launched = unsafe extern "C" fn(
    context: *mut c_void,
    function: *const c_void,
    args: *mut *mut c_void,
    count: usize,
    sizes: *const usize,
    offsets: *const usize,
    bytes: *const u8,
);

/// The state of the loaded library.
#[derive(Default)]
struct Program {
    kernels: Kernels,
    modules: usize,
    names: HashMap<usize, CString>,
    launches: Vec<Launch>,
}

/// A launch as the library made it.
struct Launch {
    name: CString,
    sizes: Vec<usize>,
    offsets: Vec<usize>,
    /// The arguments at their offsets.
    bytes: Vec<u8>,
    /// The kernel that was found and the copy that was made during the launch.
    copied: Result<(&'static Kernel, KernelArgs), Unknown>,
}

unsafe extern "C" fn binary(context: *mut c_void, modules: *const c_void, wrapper: *const c_void) {
    // SAFETY: `run` passes its exclusively borrowed `Program` as the context.
    let program = unsafe { &mut *context.cast::<Program>() };
    program.modules = modules.addr();
    // SAFETY: the library stays loaded as long as the program is used.
    unsafe { program.kernels.add_binary(modules, wrapper) };
}

unsafe extern "C" fn host_function(
    context: *mut c_void,
    modules: *const c_void,
    function: *const c_void,
    name: *const c_char,
) {
    // SAFETY: `run` passes its exclusively borrowed `Program` as the context.
    let program = unsafe { &mut *context.cast::<Program>() };
    // SAFETY: the compiler passes a C string.
    let name = unsafe {
        program.kernels.add_host_function(modules, function, name);
        CStr::from_ptr(name)
    };
    assert!(program.names.insert(function.addr(), name.to_owned()).is_none());
}

unsafe extern "C" fn launched(
    context: *mut c_void,
    function: *const c_void,
    args: *mut *mut c_void,
    count: usize,
    sizes: *const usize,
    offsets: *const usize,
    bytes: *const u8,
) {
    // SAFETY: `run` passes its exclusively borrowed `Program` as the context.
    let program = unsafe { &mut *context.cast::<Program>() };
    let list = |from: *const usize| {
        if count == 0 {
            return Vec::new();
        }
        // SAFETY: the library passes `count` numbers.
        unsafe { slice::from_raw_parts(from, count) }.to_vec()
    };
    let (sizes, offsets) = (list(sizes), list(offsets));
    let length = sizes.last().zip(offsets.last()).map_or(0, |(size, offset)| size + offset);
    // SAFETY: the library passes all arguments at their offsets.
    let bytes = if length == 0 { &[] } else { unsafe { slice::from_raw_parts(bytes, length) } }.to_vec();
    let copied = program.kernels.find(function, 0).map(|kernel| {
        let mut copy = KernelArgs::new();
        // SAFETY: the compiler passes a pointer to each argument of the kernel.
        unsafe { copy.copy(&kernel.layout, args, ptr::null()) }.expect("the compiler's own call");
        (kernel, copy)
    });
    let name = program.names[&function.addr()].clone();
    program.launches.push(Launch { name, sizes, offsets, bytes, copied });
}

/// Loads the library, and makes it register and launch everything, which `program` collects.
fn run(path: &Path, program: &mut Program) -> Library {
    // SAFETY: the library's constructors call only its own functions.
    let library = unsafe { Library::new(path) }.expect("the library loads");
    // SAFETY: the type is that of the function in kernels.hip.
    let registrations =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_void, Binary, HostFunction)>("registrations") }
            .unwrap();
    // SAFETY: the callbacks get the exclusively borrowed program as their context.
    unsafe { registrations(ptr::from_mut(program).cast(), binary, host_function) };
    // SAFETY: the type is that of the function in kernels.hip.
    let launch_all =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_void, Launched)>("launch_all") }.unwrap();
    // SAFETY: the callbacks get the exclusively borrowed program as their context.
    unsafe { launch_all(ptr::from_mut(program).cast(), launched) };
    library
}

fn text(name: &CStr) -> &str {
    name.to_str().expect("names are ASCII")
}

/// Compares a launch with the metadata.
fn judge(kernel: &Kernel, launch: &Launch) {
    let name = text(&launch.name);
    assert_eq!(&*kernel.name, name);
    let slots = kernel.layout.args();
    let sizes: Vec<usize> = slots.iter().map(|slot| slot.size as usize).collect();
    let offsets: Vec<usize> = slots.iter().map(|slot| slot.offset as usize).collect();
    assert_eq!(sizes, launch.sizes, "sizes of {name}");
    assert_eq!(offsets, launch.offsets, "offsets of {name}");
    assert_eq!(kernel.layout.bytes(), launch.bytes.len(), "{name}");
}

fn is_too_large(name: &CStr) -> bool {
    text(name).contains("too_large")
}

#[test]
fn launches_by_host_function_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, expected) in [(WITH_LIBRARY, KERNELS + LIBRARY_KERNELS), (WITHOUT_LIBRARY, KERNELS)] {
        let path = hipcc(folder.path(), &format!("{expected}.so"), &[flags, SHARED]);
        for processors in [&[][..], &["gfx90a:sramecc+:xnack-"], &["gfx90a", "gfx1030", "gfx1100"]] {
            let mut program = Program::default();
            program.kernels.set_processors(Processors::new(processors.iter().copied()));
            let library = run(&path, &mut program);
            let mut judged = 0;
            for mut launch in std::mem::take(&mut program.launches) {
                if is_too_large(&launch.name) {
                    assert_eq!(launch.copied.err(), Some(Unknown::TooLarge));
                    continue;
                }
                let (kernel, _) =
                    launch.copied.as_ref().unwrap_or_else(|reason| panic!("{:?}: {reason}", launch.name));
                judge(kernel, &launch);
                // The compiler's own arguments are gone; the copy has their values.
                let (sizes, offsets, bytes) = (&launch.sizes, &launch.offsets, &launch.bytes);
                let (_, copy) = launch.copied.as_mut().expect("it was found");
                copy.pass(|params, extra| {
                    assert!(extra.is_null());
                    for (index, (&size, &offset)) in sizes.iter().zip(offsets).enumerate() {
                        // SAFETY: there is a pointer for each argument, to a copy of its size.
                        let read =
                            unsafe { slice::from_raw_parts(params.add(index).read().cast::<u8>(), size) };
                        // A copy need not have the padding between the fields of a structure.
                        let whole = !text(&launch.name).contains("structs")
                            && !text(&launch.name).contains("aligned");
                        assert!(!whole || read == &bytes[offset..offset + size], "{:?} {index}", launch.name);
                    }
                });
                judged += 1;
            }
            assert_eq!(judged, expected);
            // An unloaded library's functions are forgotten.
            program.kernels.remove_binary(ptr::without_provenance(program.modules));
            for function in program.names.keys() {
                let found = program.kernels.find(ptr::without_provenance(*function), 0);
                assert_eq!(found, Err(Unknown::NotRegistered));
            }
            drop(library);
        }
    }
}

#[test]
fn launches_of_modules_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let library = hipcc(folder.path(), "kernels.so", &[WITH_LIBRARY, SHARED]);
    let code = hipcc(folder.path(), "kernels.co", &[WITH_LIBRARY, CODE_OBJECT]);
    let mut program = Program::default();
    let _library = run(&library, &mut program);

    let kernels = Kernels::new();
    let (from_file, from_data) = (hipModule_t::from_raw(16), hipModule_t::from_raw(32));
    let path = CString::new(code.as_os_str().as_bytes()).unwrap();
    kernels.add_module(from_file, kernels.image_of_file(&path));
    let data = fs::read(&code).unwrap();
    // SAFETY: hipcc has written a complete bundle.
    let image = unsafe { kernels.image_of_data(data.as_ptr().cast()) };
    kernels.add_module(from_data, image);
    drop(data);

    for launch in &program.launches {
        for module in [from_file, from_data] {
            let function = hipFunction_t::from_raw(module.as_raw() * 1000);
            // SAFETY: a C string.
            unsafe { kernels.add_function(module, function, launch.name.as_ptr()) };
            let found = kernels.find(function.0, 0);
            if is_too_large(&launch.name) {
                assert_eq!(found, Err(Unknown::TooLarge));
                continue;
            }
            let kernel = found.unwrap_or_else(|reason| panic!("{:?}: {reason}", launch.name));
            judge(kernel, launch);
            // The arguments in one buffer, packed by the language's rules.
            let (mut bytes, mut size) = (launch.bytes.clone(), launch.bytes.len());
            bytes.reserve(1);
            let extra = [
                HIP_LAUNCH_PARAM_BUFFER_POINTER,
                bytes.as_mut_ptr().cast(),
                HIP_LAUNCH_PARAM_BUFFER_SIZE,
                (&raw mut size).cast(),
                HIP_LAUNCH_PARAM_END,
            ];
            let mut copy = KernelArgs::new();
            // SAFETY: the array is complete, and the buffer has this size.
            unsafe { copy.copy(&kernel.layout, ptr::null(), extra.as_ptr()) }.expect("a whole buffer");
            assert_eq!(copy.bytes(), launch.bytes.len());
        }
    }
}

/// Returns the section with the fat binary of a program's file.
fn fat_binary(file: &[u8]) -> &[u8] {
    use object::read::elf::{FileHeader, SectionHeader};
    let header = object::elf::FileHeader64::<object::LittleEndian>::parse(file).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, file).unwrap();
    let (_, section) =
        sections.section_by_name(endian, b".hip_fatbin").expect("hipcc embeds the device code");
    section.data(endian, file).unwrap()
}

#[test]
fn embedded_binary_equals_the_code_object_file() {
    let folder = tempfile::tempdir().unwrap();
    let library = fs::read(hipcc(folder.path(), "kernels.so", &[WITHOUT_LIBRARY, SHARED])).unwrap();
    let code = fs::read(hipcc(folder.path(), "kernels.co", &[WITHOUT_LIBRARY, CODE_OBJECT])).unwrap();
    let any = Processors::ANY;
    let (mut embedded, mut alone) =
        (Image::of_bytes(fat_binary(&library), &any), Image::of_bytes(&code, &any));
    for name in ["_Z7nothingv", "_Z9bytes_2555BytesILm255EE", "_Z9templatedIdLi9EEvT_PS0_5BytesIXT0_EE"] {
        let kernel = embedded.kernel(name.as_bytes(), None);
        assert!(kernel.is_ok(), "{name}: {kernel:?}");
        assert_eq!(kernel, alone.kernel(name.as_bytes(), None), "{name}");
    }
}
