//! The worker: makes the timed calls, on the null runtime or on the machine's own HIP.

use super::code_object;
use super::protocol::{Calls, IN_A_ROW_NS, Kind, On, Round, SHORT, Took};
use crate::kernels::{BusyShape, Opened};
use crate::processor_time::process_cpu;
use anyhow::{Result, ensure};
use hip_sys::pfn;
use hip_sys::types::{dim3, hipStream_t, hipStreamNonBlocking, hipSuccess};
use libloading::Library;
use serde::Serialize;
use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::ptr;
use std::str::FromStr;
use std::time::Instant;

/// The error where HIP sees no GPU.
const NO_GPU: &str = "HIP sees no GPU; without one: gpu-sim run -- xbench launch-path --real";

/// The runtime that a worker calls.
#[derive(Debug, Clone)]
pub(super) enum Runtime {
    /// The machine's own HIP.
    Real,
    /// The null runtime, whose functions do nothing, at this path.
    Null(PathBuf),
}

impl FromStr for Runtime {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "real" { Self::Real } else { Self::Null(PathBuf::from(text)) })
    }
}

impl Runtime {
    pub(super) fn argument(&self) -> OsString {
        match self {
            Self::Real => "real".into(),
            Self::Null(path) => path.into(),
        }
    }
}

/// The functions that a worker can call: a launch, and a synchronization with the launches before it.
trait Target {
    /// Launches a kernel of this length, on a runtime that runs kernels. The synchronization, or the check of the first
    /// call, finds errors.
    fn launch(&self, on: On, length_ns: u64) -> Result<()>;
    fn synchronize(&self, on: On) -> Result<()>;
    /// Returns the addresses of the two functions.
    fn functions(&self) -> Result<[*const c_void; 2]>;
    /// Returns the number of events recorded so far; 0 where the runtime does not count them.
    fn markers(&self) -> u64;
}

pub(super) fn serve(runtime: &Runtime) -> Result<()> {
    match runtime {
        Runtime::Null(path) => serve_target(&NullTarget::load(path)?),
        Runtime::Real => serve_target(&Opened::new(NO_GPU)?),
    }
}

fn serve_target(target: &impl Target) -> Result<()> {
    let [launch, synchronize] = target.functions()?.map(file_of);
    say(&[launch?, synchronize?])?;
    let mut calls = Calls::default();
    for line in std::io::stdin().lock().lines() {
        let Some(wanted) = serde_json::from_str::<Option<Round>>(&line?)? else { break };
        say(&round(target, wanted, &mut calls)?)?;
    }
    say(&calls)
}

fn say(answer: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(answer)?)?;
    Ok(output.flush()?)
}

/// Runs one round: first calls that warm up the caches and the device, which the other worker has just used,
/// then timed calls.
fn round(target: &impl Target, round: Round, calls: &mut Calls) -> Result<Took> {
    let Round { kind, on, calls: count } = round;
    let warming = count / 4;
    make(target, kind, on, warming)?;
    // No work is left when the clock starts, nor when the other worker's round begins.
    target.synchronize(on)?;
    let me = std::process::id();
    let (markers, cpu) = (target.markers(), process_cpu(me)?);
    let start = Instant::now();
    make(target, kind, on, count)?;
    let wall = start.elapsed();
    target.synchronize(on)?;
    let (markers, cpu) = (target.markers() - markers, process_cpu(me)? - cpu);
    let made = u64::from(warming) + u64::from(count);
    calls.launches += made;
    calls.synchronizations +=
        2 + u64::from(kind.synchronizations(warming)) + u64::from(kind.synchronizations(count));
    let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos());
    Ok(Took { wall: nanoseconds(wall)?, cpu: nanoseconds(cpu)?, markers })
}

fn make(target: &impl Target, kind: Kind, on: On, count: u32) -> Result<()> {
    match kind {
        Kind::Launch => {
            for _ in 0..count {
                target.launch(on, 0)?;
            }
        }
        Kind::InARow => {
            for _ in 0..count {
                target.launch(on, IN_A_ROW_NS)?;
            }
            target.synchronize(on)?;
        }
        Kind::LaunchSync => {
            for _ in 0..count {
                target.launch(on, 0)?;
                target.synchronize(on)?;
            }
        }
        Kind::ShortRounds => {
            for _ in 0..count / SHORT {
                for _ in 0..SHORT {
                    target.launch(on, 0)?;
                }
                target.synchronize(on)?;
            }
            for _ in 0..count % SHORT {
                target.launch(on, 0)?;
            }
        }
    }
    Ok(())
}

fn file_of(address: *const c_void) -> Result<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the function takes any address, and `info` is writable.
    let known = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    ensure!(known, "{address:p} is in no file");
    // SAFETY: the call succeeded, so it has filled `info`.
    let info = unsafe { info.assume_init() };
    // SAFETY: the name of a loaded object is a C string.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    // The library may have been preloaded by another name of the same file.
    Ok(Path::new(&*path).canonicalize().map_or_else(|_| path.into_owned(), |path| path.display().to_string()))
}

#[derive(Debug)]
struct NullTarget {
    launch: pfn::hipLaunchKernel,
    synchronize: pfn::hipStreamSynchronize,
    memory_info: pfn::hipMemGetInfo,
    /// A stream that no default stream waits for.
    own: hipStream_t,
    /// The arguments, and a pointer to each.
    _values: Box<[u64; code_object::ARGUMENTS]>,
    arguments: [*mut c_void; code_object::ARGUMENTS],
}

/// The structure that programs register for each file of code.
#[repr(C)]
struct FatBinary {
    magic: u32,
    version: u32,
    code: *const c_void,
    reserved: *const c_void,
}

/// The kernel's function on the host, whose address is the launch's handle; it is never called.
extern "C" fn kernel() {}

impl NullTarget {
    fn load(path: &Path) -> Result<Self> {
        // SAFETY: the library has no initialisers; it is this program's own.
        let library = unsafe { Library::new(path) }?;
        // Leaked: the functions are called until the process ends.
        let library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:ident) => {{
                let symbol = concat!(stringify!($name), "\0").as_bytes();
                // SAFETY: the symbol is a function of this type, with the library in front of it as well.
                *unsafe { library.get::<pfn::$name>(symbol) }?
            }};
        }
        Self::register(function!(__hipRegisterFatBinary), function!(__hipRegisterFunction))?;
        let mut own = hipStream_t::NULL;
        let create: pfn::hipStreamCreateWithFlags = function!(hipStreamCreateWithFlags);
        // SAFETY: `own` is writable.
        let created = unsafe { create(&mut own, hipStreamNonBlocking) };
        ensure!(created == hipSuccess, "hipStreamCreateWithFlags returns {}", created.0);
        let mut values = Box::new([3; code_object::ARGUMENTS]);
        let arguments = values.each_mut().map(|value| ptr::from_mut(value).cast());
        Ok(Self {
            launch: function!(hipLaunchKernel),
            synchronize: function!(hipStreamSynchronize),
            memory_info: function!(hipMemGetInfo),
            own,
            _values: values,
            arguments,
        })
    }

    /// Registers the kernel as compiled programs do before `main`.
    fn register(binary: pfn::__hipRegisterFatBinary, function: pfn::__hipRegisterFunction) -> Result<()> {
        // Both leaked: registered code stays until the process ends.
        let code = Box::leak(code_object::object().into_boxed_slice()).as_ptr().cast();
        let wrapper = FatBinary { magic: 0x4849_5046, version: 1, code, reserved: ptr::null() };
        let wrapper: *const FatBinary = Box::leak(Box::new(wrapper));
        let name: *mut c_char = CString::new(code_object::KERNEL)?.into_raw();
        // SAFETY: the wrapper and the code that it points at are leaked.
        let modules = unsafe { binary(wrapper.cast()) };
        let none = ptr::null_mut();
        let (dimensions, thread) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the name is leaked, and all other addresses may be null.
        unsafe {
            function(
                modules,
                kernel as *const c_void,
                name,
                name,
                u32::MAX,
                thread,
                thread,
                dimensions,
                dimensions,
                none,
            );
        }
        Ok(())
    }

    fn stream(&self, on: On) -> hipStream_t {
        match on {
            On::Default => hipStream_t::NULL,
            On::Own => self.own,
        }
    }
}

impl Target for NullTarget {
    #[inline]
    fn launch(&self, on: On, _: u64) -> Result<()> {
        let (grid, block) = (dim3 { x: 1024, y: 1, z: 1 }, dim3 { x: 256, y: 1, z: 1 });
        let arguments = self.arguments.as_ptr().cast_mut();
        // SAFETY: the null runtime reads no argument; the library copies as many as the kernel's code object
        // declares.
        let result = unsafe {
            (self.launch)(black_box(kernel as *const c_void), grid, block, arguments, 0, self.stream(on))
        };
        ensure!(result == hipSuccess, "hipLaunchKernel returns {}", result.0);
        Ok(())
    }

    #[inline]
    fn synchronize(&self, on: On) -> Result<()> {
        // SAFETY: the null runtime reads no argument.
        let result = unsafe { (self.synchronize)(self.stream(on)) };
        ensure!(result == hipSuccess, "hipStreamSynchronize returns {}", result.0);
        Ok(())
    }

    fn functions(&self) -> Result<[*const c_void; 2]> {
        Ok([self.launch as *const c_void, self.synchronize as *const c_void])
    }

    fn markers(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both results are writable.
        let _ = unsafe { (self.memory_info)(&mut free, &mut total) };
        total as u64
    }
}

/// Launches of `busy` on the machine's own HIP, always on a created stream.
impl Target for Opened {
    fn launch(&self, _: On, length_ns: u64) -> Result<()> {
        self.kernels.busy(&self.stream, length_ns, BusyShape::ONE)
    }

    fn synchronize(&self, _: On) -> Result<()> {
        self.stream.synchronize()
    }

    fn functions(&self) -> Result<[*const c_void; 2]> {
        let library = self.hip.library();
        // SAFETY: both symbols are functions of these types; only their addresses are used.
        let (launch, synchronize) = unsafe {
            (
                library.get::<pfn::hipModuleLaunchKernel>(b"hipModuleLaunchKernel\0")?,
                library.get::<pfn::hipStreamSynchronize>(b"hipStreamSynchronize\0")?,
            )
        };
        Ok([*launch as *const c_void, *synchronize as *const c_void])
    }

    fn markers(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_an_address_is_its_library() {
        assert!(file_of(libc::malloc as *const c_void).unwrap().contains("libc"));
        assert!(file_of(ptr::null()).is_err());
    }
}
