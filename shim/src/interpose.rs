//! Exports and interception: the functions that this library exports into programs, and the real ones behind
//! them.
//!
//! [`exports`] has the HIP functions, [`dlsym`] the look-ups by name, and [`ioctl`] the requests to the
//! driver. [`runtime`] finds the real HIP functions, [`bindings`] corrects references that bypass this
//! library, and [`elf`] and [`loader`] read what the dynamic linker has loaded.

pub(crate) mod bindings;
pub(crate) mod dlsym;
pub(crate) mod elf;
pub(crate) mod entry;
pub(crate) mod exports;
pub(crate) mod ioctl;
pub(crate) mod loader;
pub(crate) mod runtime;
