//! Compiles the null runtime, which `xbench launch-path` carries inside itself.

#[path = "null-runtime/compile.rs"]
mod compile;

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=null-runtime");
    println!("cargo:rerun-if-changed=../../hip-sys/data/hip_symbols_5.2.3.txt");
    println!("cargo:rerun-if-env-changed=CC");
    let directory = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    let root = directory("CARGO_MANIFEST_DIR").join("../..");
    if let Err(error) = compile::compile(&root, "5.2.3", &directory("OUT_DIR")) {
        panic!("the null runtime does not compile: {error}");
    }
}
