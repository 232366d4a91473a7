//! The C interface: hardware queues, XQueues, hints. `include/xsched` documents each function.
//!
//! rustc exports every `no_mangle` name without a version. It does not know the names of this interface,
//! because each is a label in assembly that jumps to its function, so `version.map` alone gives them a
//! version (docs/adr/0003).

use crate::interpose::runtime;
use crate::process::Process;
use crate::process::streams::{self, Stream};
use crate::process::this_process::PREEMPTION;
use agent::Decider;
use hip_sys::types::{hipStream_t, hipStreamDefault, hipStreamNonBlocking, hipSuccess};
use policies::registry;
use protocol::codes::{PreemptLevel, QueueState, XResult, create_flag};
use protocol::config::SchedulerKind;
use protocol::hint::table::HintKind;
use protocol::ids::QueueId;
use protocol::policy::PolicyKind;
#[cfg(not(test))]
use std::arch::global_asm;
use std::ffi::{c_int, c_uint};
use xqueue::{LaunchConfig, OrderClass, ResumeFlags, SuspendFlags};

mod access;
mod commands;
mod hints;
mod kfd;
mod observe;

use access::{handle_of, hardware_queue, process, put, queue, run};

/// Exports each function under its name of the interface.
macro_rules! exported {
    ($($name:ident => $function:path;)*) => {$(
        #[cfg(not(test))]
        global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ",@function"),
            concat!(stringify!($name), ": jmp {function}"),
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".popsection",
            function = sym $function,
        );
        #[cfg(test)]
        const _: *const () = $function as *const ();
    )*};
}

exported! {
    HipQueueCreate => hip_queue_create;
    HwQueueDestroy => hw_queue_destroy;
    HwQueueSynchronize => hw_queue_synchronize;
    XQueueCreate => queue_create;
    XQueueDestroy => queue_destroy;
    XQueueGet => queue_get;
    XQueueSetPreemptLevel => queue_set_preempt_level;
    XQueueSetLaunchConfig => queue_set_launch_config;
    XQueueSuspend => queue_suspend;
    XQueueResume => queue_resume;
    XQueueWaitAll => queue_wait_all;
    XQueueQuery => queue_query;
    XQueueGetForStream => observe::get_for_stream;
    XQueueStats => observe::statistics;
    XQueueList => observe::list;
    XQueueSubmit => commands::submit;
    XQueueWait => commands::wait;
    XQueueProfileHwCommandCount => commands::count;
    HwQueueLaunch => commands::launch;
    HwCommandCreateCallback => commands::create_callback;
    HwCommandDestroy => commands::destroy;
    XHintSetScheduler => hint_set_scheduler;
    XHintPriority => hints::of_queue::<{ HintKind::Priority as usize }, i32>;
    XHintUtilization => hints::of_queue::<{ HintKind::Utilization as usize }, i32>;
    XHintTimeslice => hints::timeslice;
    XHintLaxity => hints::laxity;
    XHintDeadline => hints::deadline;
    XHintKDeadline => hints::of_process::<{ HintKind::KDeadline as usize }, u64>;
    XHintArrival => hints::of_queue::<{ HintKind::Arrival as usize }, i64>;
    XHintPreemptible => hints::of_queue::<{ HintKind::Preemptible as usize }, i32>;
    XHintJob => hints::of_process::<{ HintKind::Job as usize }, u64>;
    XHintClass => hints::of_queue::<{ HintKind::Class as usize }, i32>;
    XHintSlo => hints::slo;
    XHintBegin => hints::begin;
    XHintEnd => hints::end;
    XHintCap => hints::of_process::<{ HintKind::Cap as usize }, i32>;
    XKfdOpen => kfd::open;
    XKfdClose => kfd::close;
    XKfdListQueues => kfd::list_queues;
    XKfdSuspend => kfd::suspend;
    XKfdResume => kfd::resume;
    XKfdStatus => kfd::status;
}

unsafe extern "C" fn hip_queue_create(hwq: *mut u64, stream: hipStream_t) -> c_int {
    run(|| {
        if hwq.is_null() {
            return Err(XResult::ErrorInvalidValue);
        }
        let (process, stream) = stream_of(stream)?;
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(hwq, handle_of(process, stream)) }
    })
}

/// Returns what is known of a stream of the program.
fn stream_of(stream: hipStream_t) -> Result<(&'static Process, &'static Stream), XResult> {
    let process = process()?;
    let known = match process.stream(stream, false).1 {
        Some(known) => known,
        None => adopt(process, stream)?,
    };
    Ok((process, known))
}

/// Notes a stream that was made before the library has started.
fn adopt(process: &'static Process, stream: hipStream_t) -> Result<&'static Stream, XResult> {
    let mut flags: c_uint = hipStreamDefault;
    let get_flags = process.real.stream_get_flags;
    // SAFETY: the runtime checks the handle, and the place is valid.
    if unsafe { get_flags(stream, &mut flags) } != hipSuccess {
        return Err(XResult::ErrorInvalidValue);
    }
    let class = match flags & hipStreamNonBlocking {
        0 => OrderClass::Blocking,
        _ => OrderClass::Independent,
    };
    let (mut priority, get_priority) = (0, process.real.stream_get_priority);
    // SAFETY: the handle is valid, as the call above has shown, and so is the place.
    let _normal_if_it_fails = unsafe { get_priority(stream, &mut priority) };
    streams::remember(stream, class, streams::priority_of(priority));
    process.base.streams.get(stream.as_raw()).ok_or(XResult::ErrorInvalidValue)
}

unsafe extern "C" fn hw_queue_destroy(hwq: u64) -> c_int {
    run(|| {
        let (process, stream) = hardware_queue(hwq)?;
        if stream.handle() != 0 {
            return Err(XResult::ErrorNotAllowed);
        }
        process.wrapped.lock().remove(&hwq);
        Ok(())
    })
}

unsafe extern "C" fn hw_queue_synchronize(hwq: u64) -> c_int {
    run(|| {
        let (_, stream) = hardware_queue(hwq)?;
        let wait = stream.queue().map(|queue| queue.begin_wait());
        xqueue::HwQueue::synchronize(&*stream.hw).map_err(|_| XResult::ErrorHardware)?;
        if let Some(wait) = wait {
            wait.succeeded();
        }
        Ok(())
    })
}

unsafe extern "C" fn queue_create(xq: *mut u64, hwq: u64, level: i64, flags: i64) -> c_int {
    run(|| {
        if xq.is_null() || !PreemptLevel::RANGE.contains(&level) || flags & !create_flag::BLOCKING_SUBMIT != 0
        {
            return Err(XResult::ErrorInvalidValue);
        }
        runtime::warn_if_before_us();
        let level = PreemptLevel::from_number(level).ok_or(XResult::ErrorInvalidValue)?;
        if flags != 0 {
            return Err(XResult::ErrorNotSupported);
        }
        let (process, stream) = hardware_queue(hwq)?;
        // The level of an XQueue that exists stays.
        if stream.handle() == 0 && !PREEMPTION.request(level) {
            return Err(XResult::ErrorNotSupported);
        }
        let handle = match stream.give_handle(process) {
            Ok(handle) => {
                stream.set_level(level);
                process.scheduler.changed();
                handle
            }
            Err(0) => return Err(XResult::ErrorNotSupported),
            Err(handle) => {
                note_existing(handle, stream.level(), level);
                handle
            }
        };
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(xq, handle) }
    })
}

/// Logs that a stream has an XQueue already, whose level stays.
fn note_existing(handle: u64, level: PreemptLevel, wanted: PreemptLevel) {
    let handle = QueueId(handle);
    if level == wanted {
        tracing::debug!("XQueueCreate: the stream has XQueue {handle} already, which is returned");
    } else {
        tracing::warn!(
            "XQueueCreate: the stream has XQueue {handle} already, which is returned and keeps level {}; XQueueSetPreemptLevel \
             changes it",
            level.number()
        );
    }
}

unsafe extern "C" fn queue_destroy(xq: u64) -> c_int {
    run(|| {
        let (process, stream, _) = queue(xq)?;
        stream.take_handle(process);
        Ok(())
    })
}

unsafe extern "C" fn queue_get(xq: *mut u64, hwq: u64) -> c_int {
    run(|| {
        if xq.is_null() {
            return Err(XResult::ErrorInvalidValue);
        }
        let (process, stream) = hardware_queue(hwq)?;
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(xq, observe::handle_of_stream(process, stream)?) }
    })
}

unsafe extern "C" fn queue_set_preempt_level(xq: u64, level: c_int) -> c_int {
    run(|| {
        let level = PreemptLevel::from_number(level.into()).ok_or(XResult::ErrorInvalidValue)?;
        let (process, stream, _) = queue(xq)?;
        if !PREEMPTION.request(level) {
            return Err(XResult::ErrorNotSupported);
        }
        stream.set_level(level);
        process.scheduler.changed();
        Ok(())
    })
}

unsafe extern "C" fn queue_set_launch_config(xq: u64, threshold: i64, batch_size: i64) -> c_int {
    run(|| {
        let number = |value: i64| match value {
            ..=0 => Ok(None),
            1..=0x7fff_ffff => Ok(u32::try_from(value).ok()),
            _ => Err(XResult::ErrorInvalidValue),
        };
        let (threshold, batch) = (number(threshold)?, number(batch_size)?);
        let (_, _, queue) = queue(xq)?;
        if threshold.is_some() || batch.is_some() {
            let config: LaunchConfig = queue.launch_config().with(threshold, batch);
            queue.set_launch_config(config);
        }
        Ok(())
    })
}

unsafe extern "C" fn queue_suspend(xq: u64, flags: i64) -> c_int {
    run(|| {
        let (_, _, queue) = queue(xq)?;
        queue.suspend(SuspendFlags::from_bits((flags & 7) as u32));
        Ok(())
    })
}

unsafe extern "C" fn queue_resume(xq: u64, flags: i64) -> c_int {
    run(|| {
        let (_, _, queue) = queue(xq)?;
        queue.resume(ResumeFlags::from_bits((flags & 1) as u32));
        Ok(())
    })
}

unsafe extern "C" fn queue_wait_all(xq: u64) -> c_int {
    run(|| {
        let (_, _, queue) = queue(xq)?;
        queue.wait_all().map_err(|_| XResult::ErrorHardware)
    })
}

unsafe extern "C" fn queue_query(xq: u64, state: *mut c_int) -> c_int {
    run(|| {
        if state.is_null() {
            return Err(XResult::ErrorInvalidValue);
        }
        let (_, _, queue) = queue(xq)?;
        let found = if queue.is_known_complete() { QueueState::Idle } else { QueueState::Ready };
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(state, found.number()) }
    })
}

unsafe extern "C" fn hint_set_scheduler(scheduler: c_int, policy: c_int) -> c_int {
    run(|| {
        let kind = SchedulerKind::from_number(scheduler.into()).ok_or(XResult::ErrorInvalidValue)?;
        let decider = match kind {
            SchedulerKind::Local => {
                let policy = PolicyKind::from_number(policy.into()).ok_or(XResult::ErrorInvalidValue)?;
                Decider::Policy(registry::find(policy).ok_or(XResult::ErrorNotSupported)?)
            }
            SchedulerKind::AppManaged => Decider::Program,
            SchedulerKind::Global => Decider::Server,
        };
        let process = process()?;
        process.scheduler.set_decider(&process.domain, decider);
        Ok(())
    })
}
