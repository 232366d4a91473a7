//! When a queue's next work arrives, learnt from its past arrivals.
//!
//! A policy that clears the device for urgent work just before that work comes asks a [`Forecast`] for a [`Window`]: it
//! begins to clear at `start`, has the device clear from `from` on, and gives it back when `until` has passed and
//! nothing has come. Between two arrivals the answer stays the same, so `start` and the first time behind `until` are
//! the only wake-ups that it needs. A program that knows when its work comes may say so, which takes precedence.
//!
//! # Rooms
//! `method` what the methods have in common · `smoothing`, `seasonal`, `regression` one method each · `skips` dropped
//! arrivals told apart from a slower source · `margin` margins from the errors · `budget` what waiting in vain may cost ·
//! `expect` all of it together.

mod budget;
mod expect;
mod margin;
mod method;
mod regression;
mod seasonal;
mod skips;
mod smoothing;

pub use expect::{Counts, Forecast, Parameters, Window};
pub use method::{Forecaster, Method};
pub use regression::Regression;
pub use seasonal::Seasonal;
pub use smoothing::Smoothing;

use protocol::time::Time;
use std::time::Duration;

/// Times that are no farther apart are the same: what a method foresees is rounded.
const SAME: Duration = Duration::from_micros(1);

/// From `earlier` to `later` in nanoseconds; negative if they stand the other way round.
fn span(earlier: Time, later: Time) -> f64 {
    if later >= earlier { (later.0 - earlier.0) as f64 } else { -((earlier.0 - later.0) as f64) }
}

/// The time so many nanoseconds after, or before, another; cut to the times that there are.
fn shifted(time: Time, nanos: f64) -> Time {
    // The casts saturate, and make nothing of what is no number.
    if nanos < 0.0 {
        Time(time.0.saturating_sub((-nanos) as u64))
    } else {
        Time(time.0.saturating_add(nanos as u64))
    }
}
