//! Builds the HIP programs, once for each content, and says how they meet the runtime that they are built for.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{FOLDER, Kind, Program};
use crate::slots;
use crate::tree::{lock_file, output_dir, product, workspace};

/// A HIP runtime with the compilers that belong to it. The workspace is seen at the same path on both sides of
/// [`enter`](Runtime::enter).
pub trait Runtime: Debug + Sync {
    /// The built file, made if it is not there yet. The error is one sentence, and what the compiler said.
    fn build(&self, program: &Program) -> Result<PathBuf, String>;

    /// Builds the program and what it loads.
    fn build_all(&self, program: &Program) -> Result<(), String> {
        self.build(program)?;
        let mut loads = program.directions.loads.iter();
        loads.try_for_each(|name| self.build(&Program::find(name)?).map(drop))
    }

    /// The same with files that have code for several architectures, compressed or not; none if it cannot be had.
    fn fat(&self, _compressed: bool) -> Option<&dyn Runtime> {
        None
    }

    /// The words before a command (a chroot, say) that is to meet this runtime.
    fn enter(&self) -> Vec<PathBuf>;

    /// Variables for programs that run without `gpu-sim`, on another device; none if they run on a simulated GPU.
    fn without_simulation(&self) -> Option<Vec<(String, String)>> {
        None
    }
}

/// The runtime that is installed on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Installed;

impl Installed {
    fn step(program: &Program) -> Result<Step, String> {
        let directions = &program.directions;
        let mut step = if program.has_kernels() {
            Step::hipcc()
        } else if program.is_c() {
            Step::host("gcc", &["-std=c17"])
        } else {
            Step::host("g++", &["-std=c++17"])
        };
        let kind: &[&str] = match directions.kind {
            Kind::Executable => EXECUTABLE,
            Kind::CodeObject => &["--genco"],
            Kind::Library => &["-shared", "-fPIC", "-Wl,--unresolved-symbols=ignore-all"],
        };
        step.add(&["-I", "examples/kernels", "-I", FOLDER, "-I", "include"]);
        step.add(&directions.build);
        step.source(&program.source);
        let linked = directions.kind == Kind::Executable && !directions.unlinked;
        if linked && !program.has_kernels() {
            // Fat, as what people install is: the programs with kernels of their own are built for one architecture as well.
            let mut kernels = Step::hipcc();
            kernels.for_others();
            let kernels = kernels.object("examples/kernels/giveway_kernels.hip")?;
            step.add(&[kernels.display().to_string()]);
        }
        // Libraries count only behind what needs them.
        step.add(kind);
        if linked && !program.has_kernels() {
            step.add(&["-lamdhip64"]);
            // From 7 on the compiler of kernels at run time is a library of its own.
            if Path::new("/usr/lib/x86_64-linux-gnu/libhiprtc.so").exists() {
                step.add(&["-Wl,--as-needed", "-lhiprtc"]);
            }
        }
        Ok(step)
    }
}

impl Runtime for Installed {
    fn build(&self, program: &Program) -> Result<PathBuf, String> {
        Installed::step(program)?.built(&program.name)
    }

    fn fat(&self, compressed: bool) -> Option<&dyn Runtime> {
        match compressed {
            false => Some(&Fat { compressed: false }),
            // The compiler of 5.2 knows no such option, and its runtime no such file. Debian's 6.4.3 cannot unpack one with the comgr
            // of 7.0 that it has now.
            true if hip_major() >= 7 => Some(&Fat { compressed: true }),
            true => None,
        }
    }

    fn enter(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// The installed runtime, for which files with kernels are built for three architectures more, in which every kernel has
/// other launch bounds than in the one that they run on.
#[derive(Clone, Copy, Debug)]
struct Fat {
    compressed: bool,
}

/// The architectures, each with the most threads of a block of a kernel that says nothing of them. All supported compilers
/// have their device libraries.
const ARCHITECTURES: [(&str, u32); 4] = [("gfx906", 256), ("gfx1030", 512), ("gfx908", 128), ("gfx90a", 64)];

impl Runtime for Fat {
    fn build(&self, program: &Program) -> Result<PathBuf, String> {
        let mut step = Installed::step(program)?;
        if program.has_kernels() {
            step.for_others();
            if self.compressed && !program.directions.build.iter().any(|flag| flag == "--offload-compress") {
                step.add(&["--offload-compress"]);
            }
        }
        step.built(&program.name)
    }

    fn enter(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// The installed runtime, and a `libshimhip.so` made for ThreadSanitizer: programs are linked with both. Only the library
/// is instrumented (docs/races.md).
#[derive(Clone, Debug)]
pub struct Sanitized {
    /// The library.
    pub library: PathBuf,
    /// ThreadSanitizer's runtime, the archive that comes with the compiler of the library.
    pub sanitizer: PathBuf,
}

impl Sanitized {
    fn link(&self, step: &mut Step) {
        // Programs ask for the library by its own name. It is linked and not preloaded: a preload would also meet the
        // symbolizer that ThreadSanitizer starts, which has none of its functions.
        let folder = self.library.parent().unwrap_or(Path::new("."));
        let _ = symlink("libshimhip.so", folder.join("libshimhip.so.1"));
        let folder = folder.display();
        // The archive by way of the linker's options, because hipcc takes a file of this name for a source. And all of it
        // first: the library has to stand before the runtime.
        let archive = self.sanitizer.display();
        let flags = [
            format!("-Wl,--whole-archive,{archive},--no-whole-archive"),
            format!("-Wl,--no-as-needed,-rpath,{folder}"),
            format!("-L{folder}"),
            "-lshimhip".to_owned(),
            "-lrt".to_owned(),
            "-lm".to_owned(),
        ];
        step.arguments.splice(0..0, flags);
    }
}

impl Runtime for Sanitized {
    fn build(&self, program: &Program) -> Result<PathBuf, String> {
        if program.directions.kind != Kind::Executable {
            return Installed.build(program);
        }
        let mut step = Installed::step(program)?;
        self.link(&mut step);
        step.built(&program.name)
    }

    fn enter(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// `-rdynamic`, so that a program's own `ioctl` is the one that the runtime calls.
const EXECUTABLE: &[&str] = &["-rdynamic", "-ldl", "-pthread"];
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Werror"];
/// Folders with headers that programs include.
const HEADERS: &[&str] = &[
    "examples/kernels",
    FOLDER,
    "tests/interface",
    "tests/random",
    "include/giveway",
    "include/xsched",
    "include/xsched/hip",
    "include/xsched/hip/hal",
];

/// The file of `tests/programs` of this name, built for the installed runtime.
pub fn program(name: &str) -> Result<PathBuf, String> {
    Installed.build(&Program::find(name)?)
}

/// The executable of `tests/random`, perhaps with ThreadSanitizer.
pub(crate) fn random_program(sanitized: Option<&Sanitized>) -> Result<PathBuf, String> {
    let mut step = Step::hipcc();
    step.add(&["-I", "examples/kernels", "-I", FOLDER]);
    step.source(Path::new("tests/random/random.hip"));
    step.add(EXECUTABLE);
    if let Some(sanitized) = sanitized {
        step.add(&["-g"]);
        sanitized.link(&mut step);
    }
    step.built("random")
}

/// The executable of `FOLDER/NAME.hip`, linked against this build's `libshimhip.so`, before the runtime.
pub fn linked_program(folder: &str, name: &str) -> Result<PathBuf, String> {
    linked_with(folder, name, &[])
}

/// The executable of `FOLDER/NAME.hip`, linked against the runtime before this build's `libshimhip.so`: its calls of HIP
/// lead to the runtime.
///
/// # Errors
/// The compiler is missing or refuses the program, in a sentence.
pub fn program_behind_the_runtime(folder: &str, name: &str) -> Result<PathBuf, String> {
    linked_with(folder, name, &["-Wl,--no-as-needed", "-lamdhip64"])
}

/// Builds a program of the examples that knows nothing of the library.
///
/// # Errors
/// The compiler is missing or refuses the program, in a sentence.
pub fn example_program(folder: &str, name: &str) -> Result<PathBuf, String> {
    let mut step = Step::hipcc();
    step.add(&["-I", "examples/kernels"]);
    step.source(&Path::new(folder).join(name).with_extension("hip"));
    step.add(EXECUTABLE);
    step.built(name)
}

/// Builds a C program of a folder that is linked with nothing of HIP.
///
/// # Errors
/// The compiler is missing or refuses the program, in a sentence.
pub fn c_program(folder: &str, name: &str) -> Result<PathBuf, String> {
    let mut step = Step::host("cc", &["-std=c99"]);
    step.add(&["-I", "include"]);
    step.source(&Path::new(folder).join(name).with_extension("c"));
    step.add(&["-ldl"]);
    step.built(name)
}

/// Builds the library of `tests/comgr` in front of the library `real`; it has the name that HIP asks for, in a folder of its own.
///
/// # Errors
/// The compiler is missing or refuses the library, in a sentence.
pub(crate) fn comgr_cache(real: &Path) -> Result<PathBuf, String> {
    // Linked with a library that has the path for a name, and not with the real one, whose name it has itself.
    let real = real.display();
    let mut named = Step::host("gcc", &["-shared", "-x", "c", "/dev/null"]);
    named.add(&[format!("-Wl,-soname,{real}")]);
    let named = named.built("libcomgr_named")?;
    let mut step = Step::host("g++", &["-std=c++17", "-shared", "-fPIC"]);
    step.source(Path::new("tests/comgr/cache.cpp"));
    step.add(&[format!("-DREAL=\"{real}\""), "-Wl,-soname,libamd_comgr.so.2,--no-as-needed".to_owned()]);
    step.add(&[named.display().to_string(), "-ldl".to_owned()]);
    let library = step.built("libcomgr_cache")?;
    let folder = library.with_extension("folder");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let found = folder.join("libamd_comgr.so.2");
    let _ = symlink(&library, &found);
    Ok(found)
}

/// Builds a code object (`hipModuleLoad`) of the kernels in a folder.
///
/// # Errors
/// The compiler is missing or refuses the program, in a sentence.
pub fn code_object(folder: &str, name: &str) -> Result<PathBuf, String> {
    let mut step = Step::hipcc();
    step.add(&["--genco", "-I", folder]);
    step.source(&Path::new(folder).join(name).with_extension("hip"));
    step.built(name)
}

const GPREEMPT: &str = "examples/11_gpreempt_poc";

/// Builds the library of the example that is one.
///
/// # Errors
/// The compiler is missing or refuses the program, in a sentence.
pub fn gpreempt_library() -> Result<PathBuf, String> {
    let mut step = Step::host("cc", &["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-shared", "-fPIC"]);
    step.add(&["-I", "include"]);
    step.source(&Path::new(GPREEMPT).join("gpreempt_poc.c"));
    step.built("libgpreempt_poc")
}

/// The measuring program of the example that is a library of its own, with that library.
pub fn gpreempt_example() -> Result<PathBuf, String> {
    let library = gpreempt_library()?;
    let (there, name) = (library.parent().unwrap_or(Path::new("/")).display(), library.file_name());
    let name = name.unwrap_or_default().display();
    let (at, found, named) = (format!("-L{there}"), format!("-Wl,-rpath,{there}"), format!("-l:{name}"));
    linked_with(GPREEMPT, "measure", &["-I", GPREEMPT, "-Wl,--no-as-needed", &at, &found, &named])
}

fn linked_with(folder: &str, name: &str, more: &[&str]) -> Result<PathBuf, String> {
    let library = product("libshimhip.so")?;
    // Installed it has its own name, and the name that programs ask for.
    let lib = output_dir().join(if cfg!(debug_assertions) { "lib-debug" } else { "lib-release" });
    let _ = fs::create_dir(&lib);
    for name in ["libshimhip.so", "libshimhip.so.1"] {
        let _ = symlink(&library, lib.join(name));
    }
    let path = format!("-Wl,-rpath,{}", lib.display());
    let lib = lib.display().to_string();
    let mut step = Step::hipcc();
    step.add(&["-I", "examples/kernels", "-I", FOLDER, "-I", "include"]);
    step.source(&Path::new(folder).join(name).with_extension("hip"));
    step.add(EXECUTABLE);
    step.add(more);
    step.add(&["-L", &lib, "-Wl,--no-as-needed", "-lshimhip", &path]);
    step.built(name)
}

/// One call of a compiler.
struct Step {
    compiler: &'static str,
    arguments: Vec<String>,
    sources: Vec<PathBuf>,
}

impl Step {
    fn hipcc() -> Step {
        let mut step = Step { compiler: "hipcc", arguments: Vec::new(), sources: Vec::new() };
        step.add(&[&format!("--offload-arch={}", arch()), "-std=c++17", "-O2"]);
        step.add(WARNINGS);
        step
    }

    /// Not optimized: host code only calls HIP, and compiling takes longer than running.
    fn host(compiler: &'static str, standard: &[&str]) -> Step {
        let mut step = Step { compiler, arguments: Vec::new(), sources: Vec::new() };
        step.add(standard);
        step.add(&["-O1", "-D__HIP_PLATFORM_AMD__"]);
        step.add(WARNINGS);
        step
    }

    fn add(&mut self, arguments: &[impl AsRef<str>]) {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
    }

    /// For three architectures more.
    fn for_others(&mut self) {
        for (other, threads) in ARCHITECTURES.iter().filter(|(other, _)| *other != arch()).take(3) {
            self.add(&[format!("--offload-arch={other}"), format!("-Xarch_{other}")]);
            self.add(&[format!("--gpu-max-threads-per-block={threads}")]);
        }
    }

    fn source(&mut self, source: &Path) {
        self.arguments.push(source.display().to_string());
        self.sources.push(workspace().join(source));
    }

    /// The object file of a source.
    fn object(mut self, source: &str) -> Result<PathBuf, String> {
        self.add(&["-I", "examples/kernels", "-c"]);
        self.source(Path::new(source));
        let name = Path::new(source).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        self.built(&format!("{name}.o"))
    }

    /// Runs the compiler, unless its result is there already.
    fn built(self, name: &str) -> Result<PathBuf, String> {
        let compiler = find_in_path(self.compiler).ok_or_else(|| {
            format!(
                "{} is not installed, and the test programs are built with it: run `make deps`",
                self.compiler
            )
        })?;
        // The linker takes a file for what the end of its name says.
        let (stem, end) = name.strip_suffix(".o").map_or((name, ""), |stem| (stem, ".o"));
        let output = output_dir().join(format!("{stem}-{:016x}{end}", self.fingerprint(&compiler)?));
        if output.exists() {
            return Ok(output);
        }
        let lock = lock_file(name);
        lock.lock().map_err(|error| format!("cannot lock the build of {name}: {error}"))?;
        if output.exists() {
            return Ok(output); // another process was faster
        }
        let _slot = slots::take("build", 2);
        // Complete or absent: built beside and renamed.
        let unfinished = output.with_extension("unfinished");
        let scratch = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        let result = Command::new(&compiler)
            .current_dir(workspace())
            // hipcc leaves an empty folder there for each code object.
            .env("TMPDIR", scratch.path())
            .args(&self.arguments)
            .arg("-o")
            .arg(&unfinished)
            .output()
            .map_err(|error| format!("cannot run {}: {error}", compiler.display()))?;
        if !result.status.success() {
            let messages = String::from_utf8_lossy(&result.stderr);
            return Err(format!("{} could not build {name} ({}):\n{messages}", self.compiler, result.status));
        }
        fs::rename(&unfinished, &output)
            .map_err(|error| format!("cannot rename {}: {error}", unfinished.display()))?;
        Ok(output)
    }

    /// Hashes everything that the result depends on: the source, all headers, the command, the compiler and the runtime.
    fn fingerprint(&self, compiler: &Path) -> Result<u64, String> {
        let mut hasher = DefaultHasher::new();
        let mut headers: Vec<PathBuf> = Vec::new();
        for folder in HEADERS {
            let entries = fs::read_dir(workspace().join(folder))
                .map_err(|error| format!("cannot list {folder}: {error}"))?;
            headers.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| ["h", "hpp"].iter().any(|end| path.extension() == Some(end.as_ref()))),
            );
        }
        headers.sort();
        for file in headers.iter().chain(&self.sources) {
            let text = fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            (file.file_name(), text).hash(&mut hasher);
        }
        self.arguments.hash(&mut hasher);
        for tool in [compiler, Path::new("/usr/include/hip/hip_version.h")] {
            let seen = fs::metadata(tool).ok().map(|data| (data.len(), data.modified().ok()));
            (tool, seen).hash(&mut hasher);
        }
        Ok(hasher.finish())
    }
}

/// The major version of the installed HIP; 5 if its headers do not say.
pub fn hip_major() -> u32 {
    let header = fs::read_to_string("/usr/include/hip/hip_version.h").unwrap_or_default();
    let major = header.lines().find_map(|line| line.strip_prefix("#define HIP_VERSION_MAJOR "));
    major.and_then(|major| major.trim().parse().ok()).unwrap_or(5)
}

/// The device that programs are built for and run on: `GIVEWAY_TEST_ARCH`, or the one of the installed runtime's time.
pub fn arch() -> String {
    std::env::var("GIVEWAY_TEST_ARCH").unwrap_or_else(|_| "gfx90a".to_owned())
}

fn find_in_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|candidate| candidate.is_file())
}
