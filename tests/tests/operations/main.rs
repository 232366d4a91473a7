//! The server for all users as an operator runs it: real processes, users, HIP programs on gpu-sim, Prometheus, an upgrade.
//!
//! `make test-operations` runs them and prints `N passed, N failed` as its last line. They need root, `PROMETHEUS` (the folder of
//! `prometheus` and `promtool`) and `OLD_LIBRARY` (`libshimhip.so` of the commit before the server for all users), which
//! `scripts/test-operations` sets.

mod http;
mod metrics;
mod outsiders;
mod place;
mod trace;
mod upgrade;
mod users;
