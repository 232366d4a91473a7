//! Tests of the library through its C interface: order of streams, events, captures, graphs, pools, other
//! processes, and errors. No result depends on time: a stream stays busy by a wait for a word that the test
//! writes.

mod captures;
mod errors;
mod graphs;
mod memory;
mod processes;
mod streams;
mod support;
