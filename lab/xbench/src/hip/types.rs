//! Data of the runtime: errors and the properties of a device.

use hip_sys::types::hipError_t;
use std::ffi::CStr;
use std::fmt;

/// A HIP call that returned an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HipError {
    pub call: &'static str,
    pub code: hipError_t,
}

impl fmt::Display for HipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {}", self.call, self.code)
    }
}

impl std::error::Error for HipError {}

/// The reason why the runtime cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// No library of a known name can be opened; the reason for the last one.
    NotFound(String),
    /// The library lacks a function that every supported release has.
    Incomplete { library: String, function: &'static str },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(reason) => write!(
                f,
                "no HIP runtime found: install libamdhip64 (Debian: libamdhip64-5 or libamdhip64-dev) or put its \
                 directory on LD_LIBRARY_PATH ({reason})"
            ),
            Self::Incomplete { library, function } => {
                write!(f, "{library} is no usable HIP runtime: it has no function {function}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The marketing name; empty where the runtime has none.
    pub name: String,
    /// The full target id, such as `gfx90a:sramecc+:xnack-`.
    pub arch: String,
    pub compute_units: u32,
    /// The device memory in bytes.
    pub memory: u64,
}

impl Device {
    /// Returns the title for people: `AMD Instinct MI210 (gfx90a:sramecc+:xnack-)`.
    pub fn title(&self) -> String {
        match self.name.as_str() {
            "" => self.arch.clone(),
            name => format!("{name} ({})", self.arch),
        }
    }
}

/// Returns the text of a fixed-size C string field.
pub(super) fn text_of(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| c.cast_unsigned()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_bytes).unwrap_or(&bytes);
    String::from_utf8_lossy(text).into_owned()
}
