//! Link arguments of `libshimhip.so`: its soname, and `version.map` for the names that carry a version.
//!
//! rustc links a cdylib with a version script of its own, which leaves every `no_mangle` name without a
//! version. The names `hip*` need that, because such a definition satisfies a reference to any version. A
//! second script gives the C interface, whose names rustc does not know, a version (docs/adr/0003). Only lld
//! merges two scripts.

use std::path::Path;

fn main() {
    let map = Path::new("../version.map");
    println!("cargo:rerun-if-changed={}", map.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshimhip.so.1");
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    // Hooks are referenced by their own address, even if the program has a function of the same name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    let script = match std::fs::read_to_string(map) {
        Ok(script) => script,
        Err(error) => panic!("{}: {error}", map.display()),
    };
    // An empty script is an error, so it is passed only if the file declares a version.
    if script.lines().any(|line| line.trim_end().ends_with('{')) {
        let root = std::env::current_dir().unwrap_or_else(|error| panic!("no current directory: {error}"));
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", root.join(map).display());
    }
}
