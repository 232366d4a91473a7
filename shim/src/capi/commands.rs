//! Commands of the C interface: functions of the program that launch something on a hardware queue.

use super::access::{handle_of, hardware_queue, process, put, queue, run};
use crate::hooks::turn;
use crate::process;
use crate::process::commands::{Callback, LaunchCallback, Place};
use crate::thread::Thread;
use hal_hip::command::HipCommand;
use hip_sys::types::{hipError_t, hipErrorUnknown, hipSuccess};
use protocol::codes::XResult;
use std::ffi::{c_int, c_void};
use xqueue::{CostKey, Footprint};

pub(super) unsafe extern "C" fn create_callback(
    command: *mut u64,
    launch: Option<LaunchCallback>,
    data: *mut c_void,
) -> c_int {
    run(|| {
        let launch = launch.filter(|_| !command.is_null()).ok_or(XResult::ErrorInvalidValue)?;
        let handle = process()?.commands.lock().add(Callback { launch, data });
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(command, handle) }
    })
}

pub(super) unsafe extern "C" fn destroy(command: u64) -> c_int {
    run(|| {
        let process = process::get().ok_or(XResult::ErrorNotFound)?;
        process.commands.lock().take(command).map(drop).ok_or(XResult::ErrorNotFound)
    })
}

pub(super) unsafe extern "C" fn launch(hwq: u64, command: u64) -> c_int {
    run(|| {
        let (process, _) = hardware_queue(hwq)?;
        let callback = process.commands.lock().get(command).ok_or(XResult::ErrorNotFound)?;
        // SAFETY: the interface requires that the function may be called on any thread.
        match unsafe { (callback.launch)(hwq, callback.data) } {
            0 => Ok(()),
            code => Err(XResult::from_number(code.into()).unwrap_or(XResult::ErrorUnknown)),
        }
    })
}

pub(super) unsafe extern "C" fn submit(xq: u64, command: u64) -> c_int {
    run(|| {
        let (process, stream, queue) = queue(xq)?;
        let hwq = handle_of(process, stream);
        let callback = process.commands.lock().take(command).ok_or(XResult::ErrorNotFound)?;
        let call = move || launch_later(hwq, callback);
        // SAFETY: the interface requires that the function may be called on any thread. A closure over plain data is dropped
        // without effect.
        let command_box = unsafe { HipCommand::new("command", Footprint::default(), call) };
        // Commands of one function probably take the same time.
        let spec = turn::spec(CostKey(callback.launch as usize as u64));
        let ticket = queue.submit(&spec, Box::new(command_box)).map_err(|_| XResult::ErrorNotFound)?;
        process.commands.lock().note_submitted(command, queue.id(), ticket);
        Ok(())
    })
}

/// Calls the function, whose HIP calls go to the runtime directly.
fn launch_later(hwq: u64, callback: Callback) -> hipError_t {
    // SAFETY: the interface requires that the function may be called on any thread.
    match Thread::current().inside(|| unsafe { (callback.launch)(hwq, callback.data) }) {
        0 => hipSuccess,
        code => {
            tracing::warn!(code, "a launch callback failed; the queue has an error");
            hipErrorUnknown
        }
    }
}

pub(super) unsafe extern "C" fn wait(xq: u64, command: u64) -> c_int {
    run(|| {
        let (process, _, queue) = queue(xq)?;
        let place = process.commands.lock().place(command).ok_or(XResult::ErrorNotFound)?;
        match place {
            Place::Ticket(other, _) if other != queue.id() => return Err(XResult::ErrorNotFound),
            Place::Ticket(_, ticket) => queue.wait_completed(ticket.next()),
            Place::Earlier => return queue.wait_all().map_err(|_| XResult::ErrorHardware),
        }
        queue.peek_error().map_or(Ok(()), |_| Err(XResult::ErrorHardware))
    })
}

pub(super) unsafe extern "C" fn count(xq: u64, count: *mut i64) -> c_int {
    run(|| {
        if count.is_null() {
            return Err(XResult::ErrorInvalidValue);
        }
        let (_, stream, _) = queue(xq)?;
        let stats = stream.stats();
        let submitted = i64::try_from(stats.direct + stats.deferred).unwrap_or(i64::MAX);
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(count, submitted) }
    })
}
