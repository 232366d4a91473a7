//! Builds the HIP programs with hipcc, once for each content.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{slots, workspace};

const COMMON: &[&str] = &["--offload-arch=gfx90a", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"];
/// `-rdynamic`, so that a program's own `ioctl` is the one that the runtime calls.
const EXECUTABLE: &[&str] = &["-rdynamic", "-ldl", "-pthread"];
const CODE_OBJECT: &[&str] = &["--genco"];

/// Folders with headers that programs include.
const HEADERS: &[&str] =
    &["examples/kernels", "tests/programs", "include/xsched", "include/xsched/hip", "include/xsched/hip/hal"];
const INCLUDE: &[&str] = &["-I", "examples/kernels", "-I", "tests/programs", "-I", "include"];

/// The executable of `tests/programs/NAME.hip`, built if it is not there yet. The error is one sentence.
pub fn program(name: &str) -> Result<PathBuf, String> {
    built("tests/programs", name, EXECUTABLE)
}

/// The code object of `tests/programs/NAME.hip` (`hipcc --genco`), for hipModuleLoad.
pub fn code_object(name: &str) -> Result<PathBuf, String> {
    built("tests/programs", name, CODE_OBJECT)
}

/// The executable of `FOLDER/NAME.hip`, linked against this build's `libshimhip.so`, before the runtime.
pub fn linked_program(folder: &str, name: &str) -> Result<PathBuf, String> {
    let library = crate::product("libshimhip.so")?;
    // Installed it has its own name, and the name that programs ask for.
    let lib = output_dir().join(if cfg!(debug_assertions) { "lib-debug" } else { "lib-release" });
    let _ = fs::create_dir(&lib);
    for name in ["libshimhip.so", "libshimhip.so.1"] {
        let _ = symlink(&library, lib.join(name));
    }
    let path = format!("-Wl,-rpath,{}", lib.display());
    let lib = lib.display().to_string();
    let link = ["-L", &lib, "-Wl,--no-as-needed", "-lshimhip", &path];
    built(folder, name, &[EXECUTABLE, &link[..]].concat())
}

fn output_dir() -> PathBuf {
    let dir = workspace().join("target/hip-programs");
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("cannot create {}: {error}", dir.display()));
    dir
}

/// A file to lock, shared by all test processes of this checkout.
pub(crate) fn lock_file(name: &str) -> File {
    let path = output_dir().join(format!("{name}.lock"));
    File::create(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()))
}

fn built(folder: &str, name: &str, kind: &[&str]) -> Result<PathBuf, String> {
    let source = workspace().join(folder).join(name).with_extension("hip");
    let compiler = find_in_path("hipcc")
        .ok_or("hipcc is not installed, and the test programs are built with it: run `make deps`")?;
    let mut arguments: Vec<&str> = COMMON.to_vec();
    arguments.extend(INCLUDE);
    // Libraries count only behind the source.
    let source_name = format!("{folder}/{name}.hip");
    arguments.push(&source_name);
    arguments.extend(kind);
    let output = output_dir().join(format!("{name}-{:016x}", fingerprint(&source, &compiler, &arguments)?));
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
        // It leaves an empty folder there for each code object.
        .env("TMPDIR", scratch.path())
        .args(arguments)
        .arg("-o")
        .arg(&unfinished)
        .output()
        .map_err(|error| format!("cannot run {}: {error}", compiler.display()))?;
    if !result.status.success() {
        let messages = String::from_utf8_lossy(&result.stderr);
        return Err(format!("hipcc could not build {source_name} ({}):\n{messages}", result.status));
    }
    fs::rename(&unfinished, &output)
        .map_err(|error| format!("cannot rename {}: {error}", unfinished.display()))?;
    Ok(output)
}

/// What the result depends on: the source, all headers, the command, the compiler and the runtime's version.
fn fingerprint(source: &Path, compiler: &Path, arguments: &[&str]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    let mut headers: Vec<PathBuf> = Vec::new();
    for folder in HEADERS {
        let entries = fs::read_dir(workspace().join(folder))
            .map_err(|error| format!("cannot list {folder}: {error}"))?;
        headers.extend(
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension() == Some("h".as_ref())),
        );
    }
    headers.sort();
    for file in headers.iter().map(PathBuf::as_path).chain([source]) {
        let text = fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        (file.file_name(), text).hash(&mut hasher);
    }
    arguments.hash(&mut hasher);
    for tool in [compiler, Path::new("/usr/include/hip/hip_version.h")] {
        let seen = fs::metadata(tool).ok().map(|data| (data.len(), data.modified().ok()));
        (tool, seen).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn find_in_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|candidate| candidate.is_file())
}
