//! Random hints, by the table of hints.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::hint::Hints;
use protocol::hint::table::{HINTS, Values};
use protocol::time::Time;
use std::num::NonZeroU64;

/// Hints after a series of random updates.
pub fn hints() -> impl Strategy<Value = Hints> {
    let number = prop_oneof![-1i64..300, any::<i64>()];
    let update = (0..HINTS.len(), number, -256..256, -256..256);
    // Values that the wire carries and no number of the table reaches.
    let late = proptest::option::of(i64::MAX as u64..=u64::MAX);
    (vec(update, 0..30), any::<u64>(), late).prop_map(|(updates, now, late)| {
        let mut hints = Hints::default();
        for (row, number, lax, critical) in updates {
            let update = match HINTS[row].values {
                Values::Laxity => HINTS[row].parse(&format!("{number},{lax},{critical}")).ok(),
                _ => HINTS[row].from_number(number),
            };
            if let Some(update) = update {
                update.apply(&mut hints, Time(now));
            }
        }
        hints.queue.deadline_us = late.and_then(NonZeroU64::new).or(hints.queue.deadline_us);
        hints
    })
}
