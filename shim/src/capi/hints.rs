//! Hints of the C interface: what the program says of its queues and of itself.

use super::{Outcome, process, queue, run};
use agent::now;
use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use protocol::codes::XResult;
use protocol::hint::{Laxity, ProcessHints, QueueHints};
use std::ffi::c_int;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// What takes a number back (`NO_LAXITY`, `NO_DEADLINE`).
const NONE: i64 = -1;

fn checked<T: TryFrom<i64>>(number: impl Into<i64>) -> Result<T, XResult> {
    T::try_from(number.into()).map_err(|_| XResult::ErrorInvalidValue)
}

/// Microseconds, or nothing.
fn micros(us: i64) -> Result<Option<u64>, XResult> {
    if us == NONE { Ok(None) } else { checked(us).map(Some) }
}

/// Changes what is said of a queue.
fn of_queue(xq: u64, change: impl FnOnce(&mut QueueHints)) -> Outcome {
    let (process, stream, _) = queue(xq)?;
    stream.hint(change);
    process.scheduler.changed();
    Ok(())
}

/// Changes what is said of the process.
fn of_process(change: impl FnOnce(&mut ProcessHints)) -> Outcome {
    let process = process()?;
    process.scheduler.hint(change);
    Ok(())
}

pub(super) unsafe extern "C" fn priority(xq: u64, priority: i32) -> c_int {
    run(|| {
        let priority: Priority = checked(priority)?;
        let (process, _, queue) = queue(xq)?;
        queue.set_priority(priority.get());
        process.scheduler.changed();
        Ok(())
    })
}

pub(super) unsafe extern "C" fn utilization(xq: u64, share: i32) -> c_int {
    run(|| {
        let utilization: Utilization = checked(share)?;
        of_queue(xq, |hints| hints.utilization = utilization)?;
        of_process(|hints| hints.utilization = utilization)
    })
}

pub(super) unsafe extern "C" fn timeslice(us: i64) -> c_int {
    run(|| {
        let timeslice: Timeslice = checked(us)?;
        of_process(|hints| hints.timeslice = Some(timeslice))
    })
}

pub(super) unsafe extern "C" fn laxity(xq: u64, us: i64, lax: i32, critical: i32) -> c_int {
    run(|| {
        let laxity = match micros(us)? {
            None => None,
            Some(us) => Some(Laxity { us, lax: checked(lax)?, critical: checked(critical)? }),
        };
        of_queue(xq, |hints| hints.laxity = laxity)
    })
}

pub(super) unsafe extern "C" fn deadline(xq: u64, us: i64) -> c_int {
    run(|| {
        let deadline = micros(us)?.map(|us| NonZeroU64::new(us).unwrap_or(NonZeroU64::MIN));
        of_queue(xq, |hints| hints.deadline_us = deadline)
    })
}

pub(super) unsafe extern "C" fn k_deadline(k: usize) -> c_int {
    run(|| {
        // More than there are queues is all of them.
        let k = NonZeroU32::new(u32::try_from(k).unwrap_or(u32::MAX)).ok_or(XResult::ErrorInvalidValue)?;
        of_process(|hints| hints.k_deadline = Some(k))
    })
}

pub(super) unsafe extern "C" fn arrival(xq: u64, us: i64) -> c_int {
    run(|| {
        let arrival = micros(us)?.map(|us| now().after(Duration::from_micros(us)));
        of_queue(xq, |hints| hints.arrival = arrival)
    })
}

pub(super) unsafe extern "C" fn preemptible(xq: u64, preemptible: c_int) -> c_int {
    run(|| of_queue(xq, |hints| hints.preemptible = preemptible != 0))
}

pub(super) unsafe extern "C" fn job(job: u64) -> c_int {
    run(|| of_process(|hints| hints.job = NonZeroU64::new(job)))
}

pub(super) unsafe extern "C" fn cap(percent: c_int) -> c_int {
    run(|| {
        let cap = if i64::from(percent) == NONE { None } else { Some(checked::<Cap>(percent)?) };
        of_process(|hints| hints.cap = cap)
    })
}
