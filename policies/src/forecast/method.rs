//! What all methods have in common, and their names.

use super::{Regression, Seasonal, Smoothing};
use protocol::time::Time;
use std::fmt;

/// Learns from arrivals when the next ones come.
///
/// Times may be untrusted: an arrival that is not later than the one before is ignored. What is kept is bounded, and
/// nothing is allocated once that bound is reached.
pub trait Forecaster: fmt::Debug + Send {
    /// Work has arrived.
    fn arrived(&mut self, at: Time);

    /// The first expected arrival that is later than both the last one seen and `after`, by more than a microsecond;
    /// nothing while too little is known, or if the pattern does not reach that far.
    ///
    /// With the last arrival as `after` it is the next one; with a time that has passed, the pattern goes on behind
    /// arrivals that did not come.
    fn next(&self, after: Time) -> Option<Time>;
}

/// How the next arrival is learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Exponentially smoothed intervals; see [`Smoothing`].
    Smoothing,
    /// A repeating pattern of intervals; see [`Seasonal`].
    Seasonal,
    /// A line through the last arrivals; see [`Regression`].
    Regression,
}

impl Method {
    /// Every method.
    pub const ALL: &'static [Self] = &[Self::Smoothing, Self::Seasonal, Self::Regression];

    /// The best of the comparison in the documentation of this module's parent.
    pub const DEFAULT: Self = Self::Seasonal;

    /// The name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smoothing => "smoothing",
            Self::Seasonal => "seasonal",
            Self::Regression => "regression",
        }
    }

    /// A forecaster of this kind that has seen nothing yet.
    pub fn forecaster(self) -> Box<dyn Forecaster> {
        match self {
            Self::Smoothing => Box::new(Smoothing::default()),
            Self::Seasonal => Box::new(Seasonal::default()),
            Self::Regression => Box::new(Regression::default()),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
