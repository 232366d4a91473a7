//! The names of the kernels that are executed.

/// The kernels of this project that are executed.
const OWN: [&str; 9] = [
    "busy",
    "busy_store",
    "busy_traffic",
    "mix",
    "vector_add",
    "arguments_block",
    "arguments_mixed",
    "keep_few",
    "keep_many",
];

/// Returns the name of the kernel that this one is a copy of: `mix__3` has the effect of `mix`, and is
/// another function to the runtime.
pub fn original(name: &str) -> &str {
    let numbered = |copy: &str| !copy.is_empty() && copy.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once("__") {
        Some((original, copy)) if OWN.contains(&original) && numbered(copy) => original,
        _ => name,
    }
}

/// Returns true if kernels of this name are executed, so that their arguments must be known.
pub fn executes(name: &str) -> bool {
    OWN.contains(&original(name)) || name.starts_with("__amd_rocclr_")
}
