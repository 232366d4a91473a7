//! hip-cuda: a `libamdhip64` over the CUDA driver, for tests only. It lets this project's library, server and
//! measurements run unmodified on a real, asynchronous GPU where no AMD card is available (docs/hip-cuda.md).
//! It is built on request and never installed, and no figure measured on it is a figure for AMD.
//!
//! It is not a general HIP runtime. It runs only this project's kernels, which are compiled to PTX from the
//! same sources as for AMD, and finds them by name ([`image`]). It searches a program's code object only for
//! names of symbols; the library in front reads the sizes of arguments from it. It exports only the functions
//! that it implements.
//!
//! | module | contents |
//! |---|---|
//! | [`driver`] | the table of the CUDA driver's functions, and their types |
//! | [`state`] | the driver, contexts, the current device, the last error, the macro that exports functions |
//! | [`errors`], [`last_error`] | the translation of CUDA's error codes; the calls about errors |
//! | [`blobs`] | the data that `scripts/hip-cuda` links into the library: release, PTX, a code object |
//! | [`devices`] | devices, properties, attributes, peers |
//! | [`memory`], [`pointers`] | a table of all memory; allocation; queries about addresses |
//! | [`pools`] | stream-ordered allocation and memory pools |
//! | [`copies`], [`fills`], [`symbols`] | copies and fills, also of variables |
//! | [`stream_table`], [`legacy`], [`streams`], [`events`], [`values`], [`callbacks`] | streams, events, waits for values, host functions |
//! | [`image`], [`modules`], [`registration`] | kernels and variables by name, modules, compiled programs |
//! | [`launches`], [`occupancy`] | kernel launches and occupancy |
//! | [`captures`], [`graphs`], [`nodes`] | stream capture and graphs |
//! | [`ipc`] | memory and events of other processes |
//! | [`procaddress`], [`rtc`] | functions by name, and the run-time compiler (hiprtc) |

#![allow(non_snake_case, reason = "exported functions have the names of HIP")]

mod blobs;
mod callbacks;
mod captures;
mod copies;
mod devices;
mod driver;
mod errors;
mod events;
mod fills;
mod graphs;
mod image;
mod ipc;
mod last_error;
mod launches;
mod legacy;
mod memory;
mod modules;
mod nodes;
mod occupancy;
mod pointers;
mod pools;
mod procaddress;
mod registration;
mod rtc;
mod state;
mod stream_table;
mod streams;
mod symbols;
mod values;
