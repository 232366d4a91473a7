//! Hints of the C interface. The table of hints ([`protocol::hint::table`]) defines the accepted numbers and the effect.

use super::access::{Outcome, process, queue, run};
use agent::now;
use protocol::bounds::{Priority, Timeslice};
use protocol::codes::XResult;
use protocol::hint::table::{HINTS, HintKind, HintUpdate, Scope};
use protocol::hint::{Hints, Laxity};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

const UNLIMITED: i64 = -1;

/// A hint for a queue: `KIND` is its [`HintKind`], `T` the type of the number in the C interface.
pub(super) unsafe extern "C" fn of_queue<const KIND: usize, T: Into<i128>>(xq: u64, number: T) -> c_int {
    run(|| apply(Some(xq), update::<KIND>(number)?))
}

/// A hint for the process, in the same way.
pub(super) unsafe extern "C" fn of_process<const KIND: usize, T: Into<i128>>(number: T) -> c_int {
    run(|| apply(None, update::<KIND>(number)?))
}

/// XSched's `TIMESLICE_UNLIMITED` is -1 in the type of the argument.
pub(super) unsafe extern "C" fn timeslice(us: i64) -> c_int {
    let us = if us == UNLIMITED { *Timeslice::RANGE.end() } else { us };
    run(|| apply(None, update::<{ HintKind::Timeslice as usize }>(us)?))
}

/// The deadline 0 counts as 1.
pub(super) unsafe extern "C" fn deadline(xq: u64, us: i64) -> c_int {
    let us = if us == 0 { 1 } else { us };
    run(|| apply(Some(xq), update::<{ HintKind::Deadline as usize }>(us)?))
}

pub(super) unsafe extern "C" fn laxity(xq: u64, us: i64, lax: i32, critical: i32) -> c_int {
    run(|| match u64::try_from(us) {
        Ok(us) => {
            let laxity = Laxity { us, lax: priority(lax), critical: priority(critical) };
            apply(Some(xq), HintUpdate::Laxity(Some(laxity)))
        }
        Err(_) => apply(Some(xq), update::<{ HintKind::Laxity as usize }>(-1)?),
    })
}

fn priority(number: i32) -> Priority {
    Priority::try_from(i64::from(number)).unwrap_or_else(|_| {
        let nearest = if number < 0 { Priority::MIN } else { Priority::MAX };
        note_nearest(HintKind::Laxity as usize, number.into(), nearest.get().into());
        nearest
    })
}

/// Returns the update for a number, or for the nearest one if it is out of range, as XSched's functions do.
fn update<const KIND: usize>(number: impl Into<i128>) -> Result<HintUpdate, XResult> {
    let (spec, number) = (&HINTS[KIND], number.into());
    spec.from_number(number)
        .or_else(|| {
            let mut nearest = spec.nearest(number)?;
            if KIND == HintKind::Priority as usize {
                // A queue must not stop for ever because a number is too small.
                nearest = nearest.max(Priority::MIN.get().into());
            }
            note_nearest(KIND, number, nearest);
            spec.from_number(nearest)
        })
        .ok_or(XResult::ErrorInvalidValue)
}

/// Says once for each hint that a number is out of range.
fn note_nearest(kind: usize, number: i128, nearest: i128) {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let bit = 1 << kind;
    if SAID.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let function = HINTS[kind].function.map_or("", |(name, _)| name);
        tracing::warn!("{function}: {number} is out of range; {nearest} is used instead");
    }
}

/// Applies an update to a queue, to the process, or to both, as its scope says.
fn apply(xq: Option<u64>, update: HintUpdate) -> Outcome {
    let process = match xq {
        None => process()?,
        Some(xq) => {
            let (process, stream, queue) = queue(xq)?;
            let priority = Priority::try_from(i64::from(queue.priority())).unwrap_or_default();
            if let HintUpdate::Priority(priority) = update {
                queue.set_priority(priority.get());
            } else {
                let now = now();
                stream.hint(|queue| {
                    let mut hints = Hints { priority, queue: *queue, ..Hints::default() };
                    update.apply(&mut hints, now);
                    *queue = hints.queue;
                });
            }
            process.scheduler.changed();
            process
        }
    };
    if update.spec().scope != Scope::Queue {
        process.scheduler.hint(|process| {
            let mut hints = Hints { process: *process, ..Hints::default() };
            update.apply(&mut hints, now());
            *process = hints.process;
        });
    }
    Ok(())
}
