//! Compiling HIP source at run time: by hiprtc, and by `hipcc --genco` where the runtime comes without it.
//!
//! Up to ROCm 6 the hiprtc functions live in libamdhip64 itself; since then in libhiprtc, which distributions
//! package apart from the runtime. hiprtc of Debian's 5.2.3 needs no network, no device and no files besides
//! its libraries. It aborts the process on an architecture that its compiler does not know; a device that the
//! same runtime drives is never one.

use crate::files::scratch;
use crate::hip::function_table;
use anyhow::{Result, anyhow, bail};
use hip_sys::pfn;
use hip_sys::types::{HIPRTC_SUCCESS, hiprtcProgram, hiprtcResult};
use libloading::Library;
use std::ffi::{CStr, CString, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

/// The type of both functions that return a number of bytes.
type GetSize = pfn::hiprtcGetCodeSize;
/// The type of both functions that write the bytes.
type GetBytes = pfn::hiprtcGetCode;

/// The libraries that may contain hiprtc if libamdhip64 does not, newest first.
const LIBRARIES: [&str; 4] = ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"];

/// Compiles `source` for `arch` (a full target id such as `gfx90a:sramecc+:xnack-`) into a code object that
/// `hipModuleLoadData` takes. `runtime` is the loaded libamdhip64, where hiprtc is looked for first.
pub fn compile(runtime: &'static Library, source: &str, arch: &str) -> Result<Vec<u8>> {
    if let Some(hiprtc) = Hiprtc::find(runtime) {
        return hiprtc.compile(source, arch);
    }
    match find_hipcc() {
        Some(hipcc) => compile_by_hipcc(&hipcc, source, arch),
        None => bail!(
            "no compiler for GPU kernels found: neither hiprtc (in libamdhip64 or libhiprtc) nor hipcc \
             (package hipcc, or $ROCM_PATH/bin) is installed"
        ),
    }
}

function_table! {
    /// The functions of hiprtc, callable as long as the process lives.
    Hiprtc {
        create: pfn::hiprtcCreateProgram = "hiprtcCreateProgram";
        compile: pfn::hiprtcCompileProgram = "hiprtcCompileProgram";
        log_size: GetSize = "hiprtcGetProgramLogSize";
        log: GetBytes = "hiprtcGetProgramLog";
        code_size: GetSize = "hiprtcGetCodeSize";
        code: GetBytes = "hiprtcGetCode";
        destroy: pfn::hiprtcDestroyProgram = "hiprtcDestroyProgram";
        error_string: pfn::hiprtcGetErrorString = "hiprtcGetErrorString";
    }
}

impl Hiprtc {
    fn find(runtime: &'static Library) -> Option<Self> {
        let others = LIBRARIES.iter().filter_map(|name| {
            // SAFETY: loading ROCm's own library runs its initialisers, which is what every user of hiprtc
            // does.
            let library = unsafe { Library::new(*name) }.ok()?;
            // Leaked on purpose: unloading a ROCm library while the runtime lives is not supported by it.
            Some(&*Box::leak(Box::new(library)))
        });
        // SAFETY: each type is the prototype that hip-sys holds for exactly this name.
        std::iter::once(runtime).chain(others).find_map(|library| unsafe { Self::of(library) }.ok())
    }

    fn compile(&self, source: &str, arch: &str) -> Result<Vec<u8>> {
        let zero = || failed("hiprtc", "source or architecture contains a zero byte");
        let source = CString::new(source).map_err(|_| zero())?;
        let option = CString::new(format!("--offload-arch={arch}")).map_err(|_| zero())?;
        let mut program = hiprtcProgram::NULL;
        // SAFETY: the strings are zero-terminated and live across the call, `program` is writable, and a
        // header count of 0 allows null header arrays.
        let status = unsafe {
            (self.create)(
                &mut program,
                source.as_ptr(),
                c"giveway_kernels.hip".as_ptr(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.check(status)?;
        let result = self.build(program, &option);
        // SAFETY: `program` was created above and is not used after this.
        unsafe { (self.destroy)(&mut program) };
        result
    }

    fn build(&self, program: hiprtcProgram, option: &CStr) -> Result<Vec<u8>> {
        let mut options = [option.as_ptr()];
        // SAFETY: `program` is a live program and `options` holds as many zero-terminated strings as its
        // length says.
        let status = unsafe { (self.compile)(program, options.len() as c_int, options.as_mut_ptr()) };
        if status != HIPRTC_SUCCESS {
            let log = self.bytes(program, self.log_size, self.log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
            let log = if log.trim().is_empty() { self.name(status) } else { log };
            return Err(failed("hiprtc", &log));
        }
        self.bytes(program, self.code_size, self.code)
    }

    /// Calls one of the two pairs of hiprtc functions that return a size and then the bytes.
    fn bytes(&self, program: hiprtcProgram, size: GetSize, get: GetBytes) -> Result<Vec<u8>> {
        let mut length = 0usize;
        // SAFETY: `program` is a live program and `length` is writable.
        self.check(unsafe { size(program, &mut length) })?;
        let mut bytes = vec![0u8; length];
        if length > 0 {
            // SAFETY: hiprtc writes exactly as many bytes as it has just reported, and `bytes` has that many.
            self.check(unsafe { get(program, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }

    fn check(&self, status: hiprtcResult) -> Result<()> {
        if status == HIPRTC_SUCCESS { Ok(()) } else { Err(failed("hiprtc", &self.name(status))) }
    }

    fn name(&self, status: hiprtcResult) -> String {
        // SAFETY: the function takes any number and returns null or a static string.
        let name = unsafe { (self.error_string)(status) };
        if name.is_null() {
            return format!("hiprtc error {}", status.0);
        }
        // SAFETY: not null, so it is a zero-terminated string that lives as long as the library, which is
        // leaked.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// Returns the error of a compiler with this output.
fn failed(by: impl std::fmt::Display, log: &str) -> anyhow::Error {
    anyhow!("{by} cannot compile the kernels: {}", log.trim())
}

/// Finds `hipcc` in `$HIP_PATH/bin`, `$ROCM_PATH/bin`, the directories of `$PATH`, or ROCm's usual folder.
fn find_hipcc() -> Option<PathBuf> {
    let roots = ["HIP_PATH", "ROCM_PATH"].into_iter().filter_map(std::env::var_os);
    let in_roots = roots.map(|root| PathBuf::from(root).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    in_roots
        .chain(in_path)
        .chain([PathBuf::from("/opt/rocm/bin")])
        .map(|directory| directory.join("hipcc"))
        .find(|file| file.is_file())
}

fn compile_by_hipcc(hipcc: &Path, source: &str, arch: &str) -> Result<Vec<u8>> {
    let failed = |log: &str| failed(hipcc.display(), log);
    let scratch = scratch().map_err(|error| failed(&format!("{error:#}")))?;
    let input = scratch.path().join("giveway_kernels.hip");
    let output = scratch.path().join("giveway_kernels.co");
    // hiprtc brings the declarations of threadIdx and the like along, hipcc takes them from the header.
    let text = format!("#include <hip/hip_runtime.h>\n{source}");
    std::fs::write(&input, text).map_err(|error| failed(&format!("cannot write the source: {error}")))?;
    let mut command = Command::new(hipcc);
    command.args(["--genco", "-O3", &format!("--offload-arch={arch}"), "-o"]).args([&output, &input]);
    let run = command.output().map_err(|error| failed(&error.to_string()))?;
    if !run.status.success() {
        return Err(failed(&String::from_utf8_lossy(&run.stderr)));
    }
    std::fs::read(&output).map_err(|error| failed(&format!("it left no code object: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Held from writing a program file to the end of its run: a child forked by another test in between
    /// would inherit the open file, and the kernel refuses to execute a file that a process has open for
    /// writing.
    static FORK: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn fake_hipcc(directory: &Path, script: &str) -> PathBuf {
        let path = directory.join("hipcc");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn hipcc_gets_source_and_architecture() {
        let _guard = FORK.lock().unwrap();
        let directory = tempfile::tempdir().unwrap();
        // hipcc --genco -O3 --offload-arch=A -o OUT IN
        let hipcc = fake_hipcc(directory.path(), "echo \"$1 $3\" >\"$5\"; cat \"$6\" >>\"$5\"");
        let code = compile_by_hipcc(&hipcc, "body", "gfx90a:xnack-").unwrap();
        let expected = "--genco --offload-arch=gfx90a:xnack-\n#include <hip/hip_runtime.h>\nbody";
        assert_eq!(String::from_utf8(code).unwrap(), expected);
    }

    #[test]
    fn output_of_hipcc_is_in_the_error() {
        let _guard = FORK.lock().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let hipcc = fake_hipcc(directory.path(), "echo unknown target >&2; exit 1");
        let error = compile_by_hipcc(&hipcc, "", "gfx1").unwrap_err().to_string();
        assert!(error.contains("hipcc cannot compile the kernels: unknown target"), "{error}");
        let silent = fake_hipcc(directory.path(), "true");
        let error = compile_by_hipcc(&silent, "", "gfx1").unwrap_err().to_string();
        assert!(error.contains("left no code object"), "{error}");
    }
}
