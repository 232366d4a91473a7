//! The costs of an eviction and a restoration.

use std::time::Duration;

/// The costs of an eviction and a restoration: the medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The duration of an eviction.
    pub hold: Duration,
    /// The duration of a restoration.
    pub release: Duration,
}
