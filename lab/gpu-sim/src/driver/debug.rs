//! RUNTIME_ENABLE and DBG_TRAP, by which a debugger suspends the queues of a process. Facts: `kfd_chardev.c`
//! (`kfd_ioctl_set_debug_trap`, `runtime_enable`), `kfd_debug.c`, `kfd_device_queue_manager.c` of Linux 6.12.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hip_sys::kfd::Plain as _;
use hip_sys::kfd::debug::{self, DbgTrap, Operation as _, exception_bit};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::batch::{batch, keys, unblock};
use super::exceptions::{
    device_snapshot, exception_info, notify_debugger, query_event, queue_snapshot, raise_process_exception,
};
use super::operations::operate;
use crate::call::{Answer, Call};
use crate::device::Time;
use crate::machine::{Awaited, Blocked, Change, Follow, Machine, Process};
use crate::procfs::tracer;
use crate::space::client;

/// The largest number of queue ids of one call.
const MOST: u32 = 1024;

pub fn runtime_enable(machine: &mut Machine, call: &Call, a: debug::RuntimeEnable) -> Answer<()> {
    let out = call.reply(&a);
    let process = machine.process(call.pid)?;
    let retry = process.debug.retry;
    let enable = a.mode_mask & debug::RUNTIME_ENABLE != 0;
    let mut was = false;
    if enable && !retry {
        if process.debug.runtime.runtime_state != debug::STATE_DISABLED {
            return Err(libc::EBUSY);
        }
        if !process.queues.is_empty() {
            return Err(libc::EEXIST);
        }
        process.debug.runtime = debug::RuntimeInfo {
            r_debug: a.r_debug,
            runtime_state: debug::STATE_ENABLED,
            ttmp_setup: u32::from(a.mode_mask & debug::RUNTIME_TTMP_SAVE != 0),
        };
    } else if !enable {
        let runtime = &mut process.debug.runtime;
        was = runtime.runtime_state == debug::STATE_ENABLED;
        (runtime.runtime_state, runtime.r_debug, runtime.ttmp_setup) = (debug::STATE_DISABLED, 0, 0);
    }
    let enabled = process.debug.enabled;
    if enabled && !retry {
        if enable {
            activate(machine, call.now, call.pid);
        } else if was {
            resume_all(machine, call.now, call.pid);
        }
        raise_process_exception(machine, call.pid, debug::EC_PROCESS_RUNTIME);
    }
    if !enable {
        refresh(machine, call.now);
    }
    if enabled {
        let debug = &mut machine.process(call.pid)?.debug;
        if debug.answers == 0 {
            let awaited = Awaited::Debugger(out);
            machine.calls.blocked.push(Blocked { unique: call.unique, pid: call.pid, awaited });
            return Ok(());
        }
        debug.answers -= 1;
        debug.retry = false;
    }
    machine.outbox.answer(call, out)
}

/// Returns the process that a DBG_TRAP is about, whose lock the call takes.
pub fn target(call: &Call) -> i32 {
    call.decode::<DbgTrap>().pid.cast_signed()
}

pub fn debug_trap(machine: &mut Machine, call: &Call, mut a: DbgTrap) -> Answer<()> {
    let pid = a.pid.cast_signed();
    // A traced process that has not opened the device could be debugged as well; that is not simulated.
    let target = machine.processes.get(&pid).ok_or(libc::ESRCH)?;
    if pid != call.pid && target.debug.debugger != Some(call.pid) && tracer(pid) != Some(call.tid) {
        return Err(libc::EPERM);
    }
    if a.op != debug::Enable::OP && !target.debug.enabled {
        return Err(libc::EINVAL);
    }
    let state = target.debug.runtime.runtime_state;
    if state != debug::STATE_ENABLED
        && matches!(
            a.op,
            debug::SuspendQueues::OP
                | debug::ResumeQueues::OP
                | debug::SetFlags::OP
                | debug::OP_SET_WAVE_LAUNCH_OVERRIDE..=debug::OP_SET_WAVE_LAUNCH_MODE
                | debug::OP_SET_NODE_ADDRESS_WATCH..=debug::OP_CLEAR_NODE_ADDRESS_WATCH
        )
    {
        return Err(libc::EPERM);
    }
    match a.op {
        debug::Enable::OP => apply(&mut a, |a| debug_enable(machine, call, pid, a))?,
        debug::Disable::OP => debug_disable(machine, call.now, pid),
        debug::SendRuntimeEvent::OP => {
            let event: debug::SendRuntimeEvent = a.get();
            if event.exception_mask & exception_bit(debug::EC_PROCESS_RUNTIME) != 0 {
                answer_runtime_enable(machine, pid);
            }
        }
        debug::SetExceptionsEnabled::OP => {
            let reported = a.get::<debug::SetExceptionsEnabled>().exception_mask;
            let process = machine.process(pid)?;
            process.debug.reported = reported;
            let raised = process.queues.values().fold(process.debug.raised, |all, q| all | q.exceptions);
            let raised = process.debug.devices.iter().fold(raised, |all, device| all | device);
            if raised & reported != 0 {
                notify_debugger(machine, pid);
            }
        }
        debug::SuspendQueues::OP => {
            let s: debug::SuspendQueues = a.get();
            let ids = ids(call.pid, s.queue_array_ptr, s.num_queues)?.unwrap_or_default();
            return batch(machine, call, a, pid, Some(ids), s.queue_array_ptr, s.exception_mask);
        }
        debug::ResumeQueues::OP => {
            let r: debug::ResumeQueues = a.get();
            let ids = ids(call.pid, r.queue_array_ptr, r.num_queues)?;
            return batch(machine, call, a, pid, ids, r.queue_array_ptr, 0);
        }
        debug::SetFlags::OP => {
            let debug = &mut machine.process(pid)?.debug;
            apply(&mut a, |a: &mut debug::SetFlags| {
                (debug.flags, a.flags) = (a.flags & 1, debug.flags);
                Ok(())
            })?;
        }
        debug::QueryDebugEvent::OP => apply(&mut a, |a| query_event(machine, pid, a))?,
        debug::QueryExceptionInfo::OP => apply(&mut a, |a| exception_info(machine, call.pid, pid, a))?,
        debug::QueueSnapshot::OP => apply(&mut a, |a| queue_snapshot(machine, call.pid, pid, a))?,
        debug::DeviceSnapshot::OP => apply(&mut a, |a| device_snapshot(machine, call.pid, pid, a))?,
        // Wave launch modes and watched addresses fail as on a device without support.
        debug::OP_SET_WAVE_LAUNCH_OVERRIDE..=debug::OP_SET_WAVE_LAUNCH_MODE
        | debug::OP_SET_NODE_ADDRESS_WATCH..=debug::OP_CLEAR_NODE_ADDRESS_WATCH => {
            return Err(libc::ENODEV);
        }
        _ => return Err(libc::EINVAL),
    }
    machine.outbox.answer(call, call.reply(&a))
}

/// Decodes the operation of a DBG_TRAP, executes it, and encodes it again.
fn apply<A: debug::Operation>(a: &mut DbgTrap, execute: impl FnOnce(&mut A) -> Answer<()>) -> Answer<()> {
    let mut operation: A = a.get();
    execute(&mut operation)?;
    a.put(&operation);
    Ok(())
}

fn debug_enable(machine: &mut Machine, call: &Call, pid: i32, a: &mut debug::Enable) -> Answer<()> {
    let devices = machine.gpus.len();
    let process = machine.process(pid)?;
    if pid != call.pid {
        process.debug.debugger = Some(call.pid);
    }
    if process.debug.enabled {
        return Err(libc::EALREADY);
    }
    let descriptor = descriptor_of(call.pid, a.dbg_fd).ok_or(libc::EBADF)?;
    process.debug.descriptor = Some(Arc::new(descriptor));
    process.debug.devices = vec![0; devices];
    if process.debug.runtime.runtime_state == debug::STATE_ENABLED {
        activate(machine, call.now, pid);
    }
    let process = machine.process(pid)?;
    (process.debug.enabled, process.debug.reported) = (true, a.exception_mask);
    let info = process.debug.runtime;
    let size = (a.rinfo_size as usize).min(size_of::<debug::RuntimeInfo>());
    a.rinfo_size = size_of::<debug::RuntimeInfo>() as u32;
    client::write(call.pid, a.rinfo_ptr, &info.as_bytes()[..size])
}

/// Informs the devices that the process is debugged.
fn activate(machine: &mut Machine, now: Time, pid: i32) {
    let mes = machine.gpus.iter().any(|gpu| gpu.config.arch.mes);
    if let Some(process) = machine.processes.get_mut(&pid)
        && mes
        && process.queues.values().any(|queue| queue.cu_masked)
    {
        // The workaround of gfx11 needs the mask; the call succeeds all the same (`kfd_dbg_trap_enable`).
        process.debug.runtime.runtime_state = debug::STATE_ENABLED_BUSY;
        return;
    }
    refresh(machine, now);
}

/// Sends a new list of queues to each device with HWS.
fn refresh(machine: &mut Machine, now: Time) {
    for gpu in 0..machine.gpus.len() {
        if !machine.gpus[gpu].config.arch.mes {
            operate(machine, now, gpu, Change::Refresh, Follow::Nothing);
        }
    }
}

fn debug_disable(machine: &mut Machine, now: Time, pid: i32) {
    let Some(process) = machine.processes.get_mut(&pid) else { return };
    match process.debug.runtime.runtime_state {
        debug::STATE_ENABLED => resume_all(machine, now, pid),
        debug::STATE_DISABLED => {}
        _ => process.debug.runtime.runtime_state = debug::STATE_ENABLED,
    }
    let Some(process) = machine.processes.get_mut(&pid) else { return };
    let debug = &mut process.debug;
    (debug.enabled, debug.debugger, debug.descriptor) = (false, None, None);
    (debug.reported, debug.raised, debug.flags) = (0, 0, 0);
    debug.devices.fill(0);
    process.queues.values_mut().for_each(|queue| queue.exceptions = 0);
}

/// Resumes all suspended queues. No call waits for it.
fn resume_all(machine: &mut Machine, now: Time, pid: i32) {
    for gpu in 0..machine.gpus.len() {
        let keys = keys(machine, pid, gpu, |queue| queue.suspended);
        if !keys.is_empty() {
            operate(machine, now, gpu, Change::Resume(keys), Follow::Nothing);
        }
    }
    unblock(machine, now, pid);
}

/// Ends the debug sessions of a debugger that has ended.
pub fn end_sessions_of(machine: &mut Machine, now: Time, pid: i32) {
    let of = |process: &Process| process.debug.enabled && process.debug.debugger == Some(pid);
    let targets: Vec<i32> =
        machine.processes.iter().filter(|(_, process)| of(process)).map(|(pid, _)| *pid).collect();
    for target in targets {
        debug_disable(machine, now, target);
    }
}

/// Answers the RUNTIME_ENABLE of a process, whose debugger has acknowledged it.
fn answer_runtime_enable(machine: &mut Machine, pid: i32) {
    let waits = |b: &mut Blocked| b.pid == pid && matches!(b.awaited, Awaited::Debugger(_));
    let blocked = machine.calls.blocked.extract_if(.., waits).next();
    let Some(process) = machine.processes.get_mut(&pid) else { return };
    if let Some(Blocked { unique, awaited: Awaited::Debugger(out), .. }) = blocked {
        process.debug.retry = false;
        machine.outbox.answers.push((unique, Ok(out)));
    } else {
        process.debug.answers = process.debug.answers.saturating_add(1);
    }
}

/// Reads the ids at an address of the caller; `None` without an address.
fn ids(caller: i32, at: u64, count: u32) -> Answer<Option<Vec<u32>>> {
    if count > MOST {
        return Err(libc::EINVAL);
    }
    if at == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; 4 * count as usize];
    client::read(caller, at, &mut bytes)?;
    Ok(Some(bytes.as_chunks::<4>().0.iter().map(|id| u32::from_ne_bytes(*id)).collect()))
}

/// Duplicates a descriptor of a process.
fn descriptor_of(pid: i32, fd: u32) -> Option<OwnedFd> {
    let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_getfd(process, i32::try_from(fd).ok()?, PidfdGetfdFlags::empty()).ok()
}
