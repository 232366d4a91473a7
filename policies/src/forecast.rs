//! When a queue's next work arrives, learnt from its past arrivals.
//!
//! A policy that clears the device for urgent work just before that work comes asks a [`Forecast`] for a [`Window`]: it
//! begins to clear at `start`, has the device clear from `from` on, and gives it back when `until` has passed and
//! nothing has come. Between two arrivals the answer stays the same, so `start` and the first time behind `until` are
//! the only wake-ups that it needs.
//!
//! # Rooms
//! `method` what the methods have in common · `smoothing`, `seasonal`, `regression` one method each · `skips` dropped
//! arrivals told apart from a slower source · `margin` margins from the errors · `expect` all of it together.
//!
//! # The methods compared
//! `cargo bench -p policies --bench forecast` follows 28 sequences of about 4,000 arrivals with 300 µs for clearing:
//! synthetic ones, and the arrivals that the models of `examples/traces` cause in a queue that lingers for 200 µs, served
//! at a fixed rate (the host starts each 100 µs late and an exponential of 100 µs more) or one after the other. In percent: **hit**, arrivals that came within their window; **error**, mean distance of an
//! arrival from what was foreseen when the one before had come, of the mean interval; **wasted**, time spent on clearing
//! and waiting in vain. Means over three seeds, without the first 32 arrivals:
//!
//! | arrivals | smoothing: hit, error, wasted | seasonal | regression |
//! |---|---|---|---|
//! | periodic, no jitter | 100.0, 0.00, 0.00 | 100.0, 0.00, 0.00 | 100.0, 0.00, 0.00 |
//! | periodic, jitter ±1 % of the period | 96.9, 0.77, 0.00 | 96.7, 0.57, 0.00 | 97.0, 0.56, 0.00 |
//! | periodic, jitter ±5 % | 57.4, 3.86, 0.01 | 95.4, 2.85, 0.02 | 96.4, 2.78, 0.02 |
//! | periodic, jitter ±20 % | 0.0, 15.44, 0.00 | 0.0, 11.41, 0.00 | 0.0, 11.12, 0.00 |
//! | each interval varies by ±5 % | 97.6, 2.65, 0.01 | 96.8, 2.74, 0.02 | 97.1, 2.74, 0.02 |
//! | periodic, ±1 %, 5 % dropped | 96.8, 5.85, 0.29 | 96.6, 5.68, 0.22 | 97.0, 5.66, 0.22 |
//! | periodic, ±1 %, 20 % dropped | 95.2, 21.30, 1.18 | 92.4, 21.63, 0.87 | 96.3, 21.14, 0.86 |
//! | bursts of 3 | 64.4, 84.20, 2.49 | 97.4, 0.22, 0.00 | 64.4, 84.18, 2.36 |
//! | pattern of 7 | 0.0, 69.71, 0.00 | 97.1, 0.31, 0.00 | 0.0, 73.14, 0.00 |
//! | bursts of random length | 0.0, 90.51, 0.00 | 0.0, 82.34, 0.00 | 0.0, 82.01, 0.00 |
//! | interval swings by 30 % | 99.5, 1.72, 0.00 | 98.7, 0.61, 0.00 | 98.7, 0.61, 0.00 |
//! | 50 and 35 ms, 100 each | 72.3, 1.59, 0.05 | 95.5, 1.27, 0.04 | 95.5, 1.82, 0.08 |
//! | Poisson | 0.0, 79.31, 0.00 | 0.0, 81.20, 0.00 | 0.0, 87.33, 0.00 |
//! | ResNet-18, one in 50 ms | 92.5, 0.23, 0.02 | 95.2, 0.17, 0.03 | 95.8, 0.16, 0.03 |
//! | BERT, one in 25 ms | 92.5, 0.46, 0.04 | 95.2, 0.34, 0.07 | 95.8, 0.33, 0.06 |
//! | ResNet-50 batch 1, each about 2 ms after the last | 69.4, 3.64, 0.04 | 65.2, 3.71, 0.03 | 66.3, 3.69, 0.04 |
//! | ResNet-18, clients of 50 and 33.3 ms | 0.0, 62.34, 0.00 | 95.4, 0.40, 0.08 | 0.0, 26.97, 0.00 |
//! | mean of all 28 | 68.7, 20.69, 0.25 | **83.6**, 8.25, 0.06 | 73.5, 19.13, 0.52 |
//!
//! The seasonal method is the default. Where there is one interval it is the regression with a choice too many, and at
//! most 1.1 points behind it (3.9 where every fifth request is dropped); where there are several, as for bursts and for
//! two clients of one queue, it alone foresees them. It is also the dearest one: an arrival took it 1.6 to 2.4 µs,
//! smoothing 0.2 and regression 0.7; a question takes 5 ns (x86-64, optimized). The constants of the methods were chosen
//! with these seeds; with three others (101 to 103) the means of the hits are 69.3, 84.1 and 73.9.
//!
//! A hit costs as well: the device stood clear for it during 1.5 % of the time on average, and 6.6 % at ±5 % of jitter.
//! [`Forecast::SHARE`] bounds that, and is why jitter of ±20 % is not waited for.

mod expect;
mod margin;
mod method;
mod regression;
mod seasonal;
mod skips;
mod smoothing;

pub use expect::{Counts, Forecast, Window};
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
