//! Hints of the C interface. The table of hints ([`protocol::hint::table`]) defines the accepted numbers and the effect.

use super::access::{Outcome, process, put, queue, run};
use crate::process::stream_hints::{PartHints, hint_new_streams, replace_hint_of_new_streams};
use agent::now;
use parking_lot::Mutex;
use protocol::bounds::{Priority, Timeslice};
use protocol::codes::{HintSet, KEEP_PRIORITY, OF_NEW_STREAMS, QueueClass, XResult};
use protocol::hint::table::{HINTS, HintKind, HintUpdate, Scope};
use protocol::hint::{Hints, Laxity};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

const UNLIMITED: i64 = -1;

/// A hint for a queue: `KIND` is its [`HintKind`], `T` the type of the number in the C interface.
pub(super) unsafe extern "C" fn of_queue<const KIND: usize, T: Into<i128>>(xq: u64, number: T) -> c_int {
    run(|| {
        let number = number.into();
        if xq == OF_NEW_STREAMS && number == KEEP_PRIORITY.into() && HINTS[KIND].take_back.is_none() {
            replace_hint_of_new_streams(HINTS[KIND].name, None);
            return Ok(());
        }
        apply(Some(xq), update::<KIND>(number)?)
    })
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
            let of = |number| priority("XHintLaxity", number);
            let laxity = Laxity { us, lax: of(lax), critical: of(critical) };
            apply(Some(xq), HintUpdate::Laxity(Some(laxity)))
        }
        Err(_) => apply(Some(xq), update::<{ HintKind::Laxity as usize }>(-1)?),
    })
}

/// The deadline 0 counts as 1.
pub(super) unsafe extern "C" fn slo(xq: u64, us: i64) -> c_int {
    run(|| {
        let us = if us == 0 { 1 } else { us };
        let deadline = update::<{ HintKind::Deadline as usize }>(us)?;
        let given = deadline != HintUpdate::Deadline(None);
        apply(Some(xq), HintUpdate::Class(given.then_some(QueueClass::LatencyCritical)))?;
        apply(Some(xq), deadline)
    })
}

pub(super) unsafe extern "C" fn begin(xq: u64, hints: *const HintSet, scope: *mut u64) -> c_int {
    run(|| {
        if scope.is_null() {
            return Err(XResult::ErrorInvalidValue);
        }
        // SAFETY: the pointer is null or valid by the interface.
        let HintSet { priority, class, deadline } =
            *unsafe { hints.as_ref() }.ok_or(XResult::ErrorInvalidValue)?;
        let class = match class {
            0 => None,
            number => Some(QueueClass::from_number(number.into()).ok_or(XResult::ErrorInvalidValue)?),
        };
        let part = PartHints {
            priority: (priority != KEEP_PRIORITY).then(|| self::priority("XHintBegin", priority)),
            class,
            deadline_us: u64::try_from(deadline).ok().and_then(|us| NonZeroU64::new(us.max(1))),
        };
        let (process, stream, _) = queue(xq)?;
        let (number, changed) = stream.change_hints(|hints| hints.begin(part));
        if changed {
            process.scheduler.changed();
        }
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(scope, number) }
    })
}

pub(super) unsafe extern "C" fn end(xq: u64, scope: u64) -> c_int {
    run(|| {
        let (process, stream, queue) = queue(xq)?;
        let last = queue.work_so_far();
        // Before the part ends: the agent looks only if there is one.
        process.ended_parts.fetch_add(1, Ordering::AcqRel);
        let (found, _) = stream.change_hints(|hints| hints.end(scope, last));
        if !found {
            process.ended_parts.fetch_sub(1, Ordering::AcqRel);
            return Err(XResult::ErrorNotFound);
        }
        if stream.settle_hints(process) || process.ended_parts.load(Ordering::Acquire) != 0 {
            process.scheduler.changed();
        }
        Ok(())
    })
}

fn priority(function: &'static str, number: i32) -> Priority {
    Priority::try_from(i64::from(number)).unwrap_or_else(|_| {
        let nearest = if number < 0 { Priority::MIN } else { Priority::MAX };
        note_nearest(function, number.into(), nearest.get().into());
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
            note_nearest(spec.function.map_or("", |(name, _)| name), number, nearest);
            spec.from_number(nearest)
        })
        .ok_or(XResult::ErrorInvalidValue)
}

/// Says once for each function that a number is out of range.
fn note_nearest(function: &'static str, number: i128, nearest: i128) {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if SAID.lock().insert(function) {
        tracing::warn!("{function}: {number} is out of range; {nearest} is used instead");
    }
}

/// Applies an update to a queue, to the process, or to both, as its scope says.
fn apply(xq: Option<u64>, update: HintUpdate) -> Outcome {
    let process = match xq {
        Some(OF_NEW_STREAMS) => {
            hint_new_streams(update);
            return Ok(());
        }
        None => process()?,
        Some(xq) => {
            let (process, stream, _) = queue(xq)?;
            let now = now();
            stream.change_hints(|hints| hints.change(|hints| update.apply(hints, now)));
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
