//! The library through its C interface, as a program uses it: order of streams, events, captures, graphs, pools, other
//! processes, and errors. Nothing here depends on time: a stream is held by a wait for a word that the test writes.

mod captures;
mod errors;
mod graphs;
mod memory;
mod processes;
mod streams;
mod support;
