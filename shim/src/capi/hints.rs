//! Hints of the C interface. The table of hints ([`protocol::hint::table`]) defines the accepted numbers and the effect.

use super::{Outcome, process, queue, run};
use agent::now;
use protocol::bounds::Priority;
use protocol::codes::XResult;
use protocol::hint::table::{HINTS, HintKind, HintUpdate, Scope};
use protocol::hint::{Hints, Laxity};
use std::ffi::c_int;

/// A hint for a queue: `KIND` is its [`HintKind`], `T` the type of the number in the C interface.
pub(super) unsafe extern "C" fn of_queue<const KIND: usize, T: Into<i128>>(xq: u64, number: T) -> c_int {
    run(|| apply(Some(xq), update::<KIND>(number)?))
}

/// A hint for the process, in the same way.
pub(super) unsafe extern "C" fn of_process<const KIND: usize, T: Into<i128>>(number: T) -> c_int {
    run(|| apply(None, update::<KIND>(number)?))
}

/// The deadline 0 counts as 1.
pub(super) unsafe extern "C" fn deadline(xq: u64, us: i64) -> c_int {
    let us = if us == 0 { 1 } else { us };
    run(|| apply(Some(xq), update::<{ HintKind::Deadline as usize }>(us)?))
}

pub(super) unsafe extern "C" fn laxity(xq: u64, us: i64, lax: i32, critical: i32) -> c_int {
    let priority =
        |number: i32| Priority::try_from(i64::from(number)).map_err(|_| XResult::ErrorInvalidValue);
    run(|| match u64::try_from(us) {
        Ok(us) => {
            let laxity = Laxity { us, lax: priority(lax)?, critical: priority(critical)? };
            apply(Some(xq), HintUpdate::Laxity(Some(laxity)))
        }
        Err(_) => apply(Some(xq), update::<{ HintKind::Laxity as usize }>(us)?),
    })
}

fn update<const KIND: usize>(number: impl Into<i128>) -> Result<HintUpdate, XResult> {
    HINTS[KIND].from_number(number).ok_or(XResult::ErrorInvalidValue)
}

/// Applies an update to a queue, to the process, or to both, as its scope says.
fn apply(xq: Option<u64>, update: HintUpdate) -> Outcome {
    let process = match xq {
        None => process()?,
        Some(xq) => {
            let (process, stream, queue) = queue(xq)?;
            let priority = Priority::try_from(i64::from(queue.priority())).unwrap_or_default();
            let mut changed = priority;
            stream.hint(|queue| {
                let mut hints = Hints { priority, queue: *queue, ..Hints::default() };
                update.apply(&mut hints, now());
                (*queue, changed) = (hints.queue, hints.priority);
            });
            if changed != priority {
                queue.set_priority(changed.get());
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
