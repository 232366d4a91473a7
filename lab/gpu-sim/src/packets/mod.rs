//! The packet processors: they take packets from the rings, hand kernels to the compute units, and complete
//! what has ended.

mod aql;
mod completion;
mod sdma;

pub use aql::aql_packet;
pub use completion::{recheck, run_model, slice};
pub use sdma::sdma_packet;
