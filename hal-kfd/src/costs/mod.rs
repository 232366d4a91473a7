//! The costs of an eviction and a restoration: a measurement on an idle queue of this process ([`measure()`]),
//! a key under which other programs can reuse it ([`key`](fn@key)), and a check of a reused cost against the
//! first evictions ([`Trial`]).

mod key;
mod measure;
mod trial;

pub use key::key;
pub use measure::measure;
pub use trial::{Cost, Trial, Verdict};
