//! One case for each finding of the field: ROCm as it is shipped, edges of the system, what the program could notice.
//!
//! `make test-field` runs them and prints `N passed, N failed` as its last line. Each case was seen to fail without its mend. What a
//! small program can show by itself is a program of `tests/programs` instead, which runs natively and in all modes.

/// What a deferred call answers: errors at once, order, queries.
mod answers;
/// Which launches can be deferred: architectures, local memory, what is counted.
mod deferral;
/// What belongs to the program: descriptors, signals, threads, limits, observers.
mod edges;
/// Levels above 1: what measuring them costs others.
mod levels;
/// The server and the commands: directories, sockets, limits, namespaces.
mod server;
