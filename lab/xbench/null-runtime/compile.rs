//! Compiles the null runtime; part of xbench's build script and of the shim's tests.
//!
//! From the list of a real runtime's exports (`hip-sys/data`) it generates a weak function that returns 0 for each name,
//! which a function in `null_runtime.c` replaces, and the version script with the real nodes. Without these nodes no
//! program that was linked against the real runtime would start.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the runtime of `release` ("5.2.3") into `directory` and returns the library's path.
///
/// `root` is the workspace.
pub(crate) fn compile(root: &Path, release: &str, directory: &Path) -> Result<PathBuf, String> {
    let list = root.join(format!("hip-sys/data/hip_symbols_{release}.txt"));
    let list = std::fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let major = release.split('.').next().unwrap_or(release);
    let (functions, versions) = sources(&list)?;
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(path)
    };
    let functions = write(&format!("null_functions_{major}.c"), functions)?;
    let versions = write(&format!("null_versions_{major}.map"), versions)?;
    let library = directory.join(format!("libamdhip64.so.{major}"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Wno-builtin-declaration-mismatch"])
        .arg(format!("-DNULL_RUNTIME_MAJOR={major}"))
        .arg(format!("-Wl,-soname,libamdhip64.so.{major}"))
        .arg(format!("-Wl,--version-script={}", versions.display()))
        .arg(root.join("lab/xbench/null-runtime/null_runtime.c"))
        .arg(functions)
        .arg("-o")
        .arg(&library)
        .output()
        .map_err(|error| format!("{}: {error}; a C compiler is needed", Path::new(&compiler).display()))?;
    if output.status.success() {
        Ok(library)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The C text of the functions, and the version script.
fn sources(list: &str) -> Result<(String, String), String> {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut functions = String::new();
    for line in list.lines() {
        let mut fields = line.split_whitespace();
        let (Some(symbol), Some(kind)) = (fields.next(), fields.next()) else {
            return Err(format!("not a symbol: {line}"));
        };
        // The nodes themselves are listed as objects.
        let Some((name, node)) = symbol.split_once('@').filter(|_| kind == "FUNC") else {
            continue;
        };
        nodes.entry(node.trim_start_matches('@')).or_default().push(name);
        // Writing to a String cannot fail.
        let _ = writeln!(functions, "__attribute__((weak)) int {name}(void) {{ return 0; }}");
    }
    let mut versions = String::new();
    let mut local = " local: *;";
    for (node, names) in nodes {
        let _ = writeln!(versions, "{node} {{ global: {};{local} }};", names.join("; "));
        local = "";
    }
    Ok((functions, versions))
}
