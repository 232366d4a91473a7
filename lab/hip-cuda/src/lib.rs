//! hip-cuda: a `libamdhip64` over the CUDA driver, for one purpose. The library, the server and the measurements of this
//! project run unmodified on a GPU that is real and asynchronous where no AMD card is in reach (docs/hip-cuda.md). It is
//! a test device, built on request and never installed, and no figure measured on it is a figure of AMD's.
//!
//! It is not a HIP: the kernels are those of this project, compiled to PTX from the sources that AMD's compiler takes,
//! and found by their names ([`image`]). The code object that a program brings is looked at only by the library in front,
//! for the sizes of arguments. A function that is not implemented is not exported.
//!
//! | module | contents |
//! |---|---|
//! | [`driver`] | the table of the CUDA driver's functions, and their types |
//! | [`state`] | the loaded driver, contexts, the current device, the last error, and how functions are exported |
//! | [`errors`], [`last_error`] | CUDA's codes as AMD's runtime has them; the calls about errors |
//! | [`blobs`] | what `scripts/hip-cuda` links beside this crate: release, PTX, a code object |
//! | [`devices`] | devices, properties, attributes, peers |
//! | [`memory`], [`pointers`] | a table of all memory; allocation; what programs ask about addresses |
//! | [`pools`] | memory in the order of streams |
//! | [`copies`], [`fills`], [`symbols`] | copies and fills, to variables as well |
//! | [`stream_table`], [`streams`], [`events`], [`values`], [`callbacks`] | streams, events, waits for values, host functions |
//! | [`image`], [`modules`], [`registration`] | kernels and variables by name, modules, compiled programs |
//! | [`launches`], [`occupancy`] | launches in all ways, and how much fits |
//! | [`captures`], [`graphs`], [`nodes`] | stream capture and graphs |
//! | [`ipc`] | memory and events of other processes |
//! | [`procaddress`], [`rtc`] | functions by name, and the compiler at run time |

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
