//! Link arguments of `libcuda_cpu.so`.

fn main() {
    // A second dlopen("libcuda.so.1") of the process finds this library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its threads run until the process ends, so its code must stay mapped after a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The names cu* are bound inside the library, even if the program has a function of the same name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
