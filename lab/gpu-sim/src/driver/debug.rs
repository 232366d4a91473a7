//! RUNTIME_ENABLE and DBG_TRAP: a debugger that takes queues of a process off the hardware. Facts: `kfd_chardev.c`
//! (`kfd_ioctl_set_debug_trap`, `runtime_enable`), `kfd_debug.c`, `kfd_device_queue_manager.c` of Linux 6.12.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use hip_sys::kfd::Plain;
use hip_sys::kfd::debug::{self, DbgTrap, Operation as _, exception_bit};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::{Change, Follow, Operation, queues};
use crate::device::{QueueKey, Time};
use crate::fuse::{Reply, Unique};
use crate::ioctl::{Answer, Call, OwnedCall, reply};
use crate::machine::{Machine, Process};
use crate::space::client;

/// Queue ids of one call at most.
const MOST: u32 = 1024;

/// A call whose answer is left to an operation.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    /// The request to be answered.
    pub unique: Unique,
    /// The process whose lock is held until then.
    pub domain: i32,
}

impl Parked {
    /// This call, which holds the lock of process `domain`.
    pub fn of(call: &Call<'_>, domain: i32) -> Self {
        Self { unique: call.unique, domain }
    }
}

/// A call that waits for something that a signal may end.
#[derive(Debug)]
pub struct Blocked {
    /// The request to be answered.
    pub unique: Unique,
    /// The process that waits.
    pub pid: i32,
    /// What for.
    awaited: Awaited,
}

/// What a blocked call waits for.
#[derive(Debug)]
enum Awaited {
    /// That this queue is resumed, to be destroyed by this call then.
    Resume(u32, OwnedCall),
    /// An answer of the debugger's; the caller gets this then.
    Debugger(Reply),
}

/// A process's debug session.
#[derive(Debug, Default)]
pub struct Debug {
    /// There is one.
    pub enabled: bool,
    /// The runtime.
    pub runtime: debug::RuntimeInfo,
    /// Whoever debugs it, if not the process itself.
    debugger: Option<i32>,
    /// Exceptions that are told.
    pub(super) told: u64,
    /// The process's own exceptions.
    pub(super) raised: u64,
    /// The devices', one after the other.
    pub(super) devices: Vec<u64>,
    flags: u32,
    /// Answers of the debugger's that no call of RUNTIME_ENABLE has waited for yet.
    answers: u32,
    /// RUNTIME_ENABLE was interrupted while it waited.
    retry: bool,
    /// Where a byte is written for each exception.
    pub(super) descriptor: Option<Arc<OwnedFd>>,
}

/// A suspend or resume that goes on from device to device.
#[derive(Debug)]
pub struct Batch {
    parked: Parked,
    argument: DbgTrap,
    out_size: usize,
    caller: i32,
    suspend: bool,
    /// In: the ids asked for; out: with their bits. `None` for all.
    ids: Option<Vec<u32>>,
    array: u64,
    clear: u64,
    /// The next device.
    gpu: usize,
    total: u32,
}

impl Machine {
    /// RUNTIME_ENABLE.
    pub fn runtime_enable(&mut self, call: &Call<'_>, a: debug::RuntimeEnable) -> Answer<()> {
        let out = reply(&a, call.out_size);
        let process = self.process(call.pid)?;
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
                self.activate(call.now, call.pid);
            } else if was {
                self.resume_all(call.now, call.pid);
            }
            self.exception_of_process(call.pid, debug::EC_PROCESS_RUNTIME);
        }
        if !enable {
            self.refresh(call.now);
        }
        if enabled {
            let debug = &mut self.process(call.pid)?.debug;
            if debug.answers == 0 {
                let awaited = Awaited::Debugger(out);
                self.blocked.push(Blocked { unique: call.unique, pid: call.pid, awaited });
                return Ok(());
            }
            debug.answers -= 1;
            debug.retry = false;
        }
        self.answer(call, out)
    }

    /// Whom a DBG_TRAP is about; its lock is what the call takes.
    pub fn target(call: &Call<'_>) -> i32 {
        DbgTrap::from_bytes(call.argument).pid.cast_signed()
    }

    /// DBG_TRAP.
    pub fn debug_trap(&mut self, call: &Call<'_>, mut a: DbgTrap) -> Answer<()> {
        let pid = a.pid.cast_signed();
        // A traced process that has not opened the device could be debugged as well; that is not simulated.
        let target = self.processes.get(&pid).ok_or(libc::ESRCH)?;
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
                    | debug::OP_SET_WAVE_LAUNCH_OVERRIDE
                    | debug::OP_SET_WAVE_LAUNCH_MODE
                    | debug::OP_SET_NODE_ADDRESS_WATCH
                    | debug::OP_CLEAR_NODE_ADDRESS_WATCH
            )
        {
            return Err(libc::EPERM);
        }
        let mut result = Ok(());
        match a.op {
            debug::Enable::OP => {
                let mut enable: debug::Enable = a.get();
                result = self.debug_enable(call, pid, &mut enable);
                a.put(&enable);
            }
            debug::Disable::OP => self.debug_disable(call.now, pid),
            debug::SendRuntimeEvent::OP => {
                let event: debug::SendRuntimeEvent = a.get();
                if event.exception_mask & exception_bit(debug::EC_PROCESS_RUNTIME) != 0 {
                    self.runtime_answered(pid);
                }
            }
            debug::SetExceptionsEnabled::OP => {
                let told = a.get::<debug::SetExceptionsEnabled>().exception_mask;
                let process = self.process(pid)?;
                process.debug.told = told;
                let raised = process.queues.values().fold(process.debug.raised, |all, q| all | q.exceptions);
                let raised = process.debug.devices.iter().fold(raised, |all, device| all | device);
                if raised & told != 0 {
                    self.tell(pid);
                }
            }
            debug::SuspendQueues::OP => {
                let s: debug::SuspendQueues = a.get();
                let ids = ids(call.pid, s.queue_array_ptr, s.num_queues)?.unwrap_or_default();
                return self.batch(call, a, pid, Some(ids), s.queue_array_ptr, s.exception_mask);
            }
            debug::ResumeQueues::OP => {
                let r: debug::ResumeQueues = a.get();
                let ids = ids(call.pid, r.queue_array_ptr, r.num_queues)?;
                return self.batch(call, a, pid, ids, r.queue_array_ptr, 0);
            }
            debug::SetFlags::OP => {
                let mut flags: debug::SetFlags = a.get();
                let debug = &mut self.process(pid)?.debug;
                (debug.flags, flags.flags) = (flags.flags & 1, debug.flags);
                a.put(&flags);
            }
            debug::QueryDebugEvent::OP => {
                let mut query: debug::QueryDebugEvent = a.get();
                result = self.query(pid, &mut query);
                a.put(&query);
            }
            debug::QueryExceptionInfo::OP => {
                let mut query: debug::QueryExceptionInfo = a.get();
                result = self.exception_info(call.pid, pid, &mut query);
                a.put(&query);
            }
            debug::QueueSnapshot::OP => {
                let mut snapshot: debug::QueueSnapshot = a.get();
                result = self.queue_snapshot(call.pid, pid, &mut snapshot);
                a.put(&snapshot);
            }
            debug::DeviceSnapshot::OP => {
                let mut snapshot: debug::DeviceSnapshot = a.get();
                result = self.device_snapshot(call.pid, pid, &mut snapshot);
                a.put(&snapshot);
            }
            // What waves do at launch and watched addresses are not simulated: as on a device that cannot.
            debug::OP_SET_WAVE_LAUNCH_OVERRIDE..=debug::OP_SET_WAVE_LAUNCH_MODE
            | debug::OP_SET_NODE_ADDRESS_WATCH..=debug::OP_CLEAR_NODE_ADDRESS_WATCH => {
                return Err(libc::ENODEV);
            }
            _ => return Err(libc::EINVAL),
        }
        result?;
        let out = reply(&a, call.out_size);
        self.answer(call, out)
    }

    fn debug_enable(&mut self, call: &Call<'_>, pid: i32, a: &mut debug::Enable) -> Answer<()> {
        let devices = self.gpus.len();
        let process = self.process(pid)?;
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
            self.activate(call.now, pid);
        }
        let process = self.process(pid)?;
        (process.debug.enabled, process.debug.told) = (true, a.exception_mask);
        let info = process.debug.runtime;
        let size = (a.rinfo_size as usize).min(size_of::<debug::RuntimeInfo>());
        a.rinfo_size = size_of::<debug::RuntimeInfo>() as u32;
        client::write(call.pid, a.rinfo_ptr, &info.as_bytes()[..size]).map_err(|_| libc::EFAULT)
    }

    /// The devices are told that the process is debugged.
    fn activate(&mut self, now: Time, pid: i32) {
        let mes = self.gpus.iter().any(|gpu| gpu.config.arch.mes);
        if let Some(process) = self.processes.get_mut(&pid)
            && mes
            && process.queues.values().any(|queue| queue.cu_masked)
        {
            // The workaround of gfx11 needs the mask; the call succeeds all the same (`kfd_dbg_trap_enable`).
            process.debug.runtime.runtime_state = debug::STATE_ENABLED_BUSY;
            return;
        }
        self.refresh(now);
    }

    /// A new list of queues for each device under HWS.
    fn refresh(&mut self, now: Time) {
        for gpu in 0..self.gpus.len() {
            if !self.gpus[gpu].config.arch.mes {
                self.operate(now, gpu, Operation { change: Change::Refresh, follow: Follow::Nothing });
            }
        }
    }

    /// Ends a debug session.
    fn debug_disable(&mut self, now: Time, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        match process.debug.runtime.runtime_state {
            debug::STATE_ENABLED => self.resume_all(now, pid),
            debug::STATE_DISABLED => {}
            _ => process.debug.runtime.runtime_state = debug::STATE_ENABLED,
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let debug = &mut process.debug;
        (debug.enabled, debug.debugger, debug.descriptor) = (false, None, None);
        (debug.told, debug.raised, debug.flags) = (0, 0, 0);
        debug.devices.fill(0);
        process.queues.values_mut().for_each(|queue| queue.exceptions = 0);
    }

    /// Puts back whatever is suspended; nobody waits for it.
    fn resume_all(&mut self, now: Time, pid: i32) {
        for gpu in 0..self.gpus.len() {
            let keys = self.keys(pid, gpu, |queue| queue.suspended);
            if !keys.is_empty() {
                self.operate(now, gpu, Operation { change: Change::Resume(keys), follow: Follow::Nothing });
            }
        }
        self.unblock(now, pid);
    }

    /// A process has ended: whom it debugged goes on.
    pub fn debugger_gone(&mut self, now: Time, pid: i32) {
        let of = |process: &Process| process.debug.enabled && process.debug.debugger == Some(pid);
        let targets: Vec<i32> =
            self.processes.iter().filter(|(_, process)| of(process)).map(|(pid, _)| *pid).collect();
        for target in targets {
            self.debug_disable(now, target);
        }
    }

    fn keys(&self, pid: i32, gpu: usize, want: impl Fn(&crate::machine::Queue) -> bool) -> Vec<QueueKey> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        let these = process.queues.iter().filter(|(_, queue)| queue.gpu == gpu && want(queue));
        these.map(|(id, _)| QueueKey { pid, id: *id }).collect()
    }

    /// Begins a suspend or resume of these queues, or of all.
    fn batch(
        &mut self,
        call: &Call<'_>,
        argument: DbgTrap,
        pid: i32,
        ids: Option<Vec<u32>>,
        array: u64,
        clear: u64,
    ) -> Answer<()> {
        let suspend = argument.op == debug::SuspendQueues::OP;
        let ids = ids.map(|ids| ids.into_iter().map(|id| id | debug::QUEUE_INVALID).collect());
        let parked = Parked::of(call, pid);
        self.lock(&parked);
        let (out_size, caller) = (call.out_size, call.pid);
        let batch =
            Batch { parked, argument, out_size, caller, suspend, ids, array, clear, gpu: 0, total: 0 };
        self.batch_next(call.now, batch);
        Ok(())
    }

    /// The next device of a batch that has queues of it, or its end.
    fn batch_next(&mut self, t: Time, mut batch: Batch) {
        let pid = batch.parked.domain;
        while batch.gpu < self.gpus.len() {
            let gpu = batch.gpu;
            let ids = batch.ids.clone();
            let asked = |id: u32| match &ids {
                None => true,
                Some(ids) => ids.iter().any(|other| other & !debug::QUEUE_INVALID == id),
            };
            let mut keys = self.keys(pid, gpu, |_| true);
            keys.retain(|key| asked(key.id));
            if batch.suspend {
                // New ones, and those that are being destroyed, keep their bit.
                let new = exception_bit(debug::EC_QUEUE_NEW);
                keys.retain(|key| {
                    self.queue(*key).is_some_and(|queue| {
                        queue.suspended || (queue.exceptions & new == 0 && !queue.being_destroyed)
                    })
                });
            }
            for id in batch.ids.iter_mut().flatten() {
                if keys.iter().any(|key| key.id == *id & !debug::QUEUE_INVALID) {
                    *id &= !debug::QUEUE_INVALID;
                }
            }
            batch.gpu += 1;
            if !keys.is_empty() {
                let change = if batch.suspend { Change::Suspend(keys) } else { Change::Resume(keys) };
                self.operate(t, gpu, Operation { change, follow: Follow::Batch(Box::new(batch)) });
                return;
            }
        }
        if let Some(ids) = &batch.ids {
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
            // The driver only logs it if that fails.
            let _ = client::write(batch.caller, batch.array, &bytes);
        }
        if !batch.suspend {
            self.unblock(t, pid);
        }
        let answer = reply(&batch.argument, batch.out_size);
        self.settle(t, batch.parked, Ok(Reply { result: batch.total.cast_signed(), ..answer }));
    }

    /// A device's part of a batch is over.
    pub(super) fn batch_done(
        &mut self,
        t: Time,
        mut batch: Batch,
        keys: &[QueueKey],
        result: Result<(), i32>,
    ) {
        match result {
            Ok(()) => batch.total += keys.len() as u32,
            Err(_) => {
                for id in batch.ids.iter_mut().flatten() {
                    if keys.iter().any(|key| key.id == *id) {
                        *id |= debug::QUEUE_ERROR;
                    }
                }
            }
        }
        for key in keys.iter().filter(|_| batch.suspend && result.is_ok()) {
            let Some(queue) = self.queue_mut(*key) else { continue };
            queue.exceptions &= !batch.clear;
            let (at, header) = (queue.save_area.0, queues::save_area_header(queue));
            // As the driver does for every suspended queue; a queue without an area has nothing there.
            let _ = client::write(key.pid, at, &header.as_bytes()[..16]);
        }
        self.batch_next(t, batch);
    }

    /// A destroy that waits until the queue is let go.
    pub(super) fn block_destroy(&mut self, call: &Call<'_>, key: QueueKey) {
        let awaited = Awaited::Resume(key.id, OwnedCall::of(call));
        self.blocked.push(Blocked { unique: call.unique, pid: key.pid, awaited });
    }

    /// Lets destroys go on whose queue is suspended no more, once they have the lock of their process again.
    pub(super) fn unblock(&mut self, t: Time, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let queues = &process.queues;
        let free = |id: &u32| queues.get(id).is_none_or(|queue| !queue.suspended);
        let ready = self.blocked.extract_if(.., |blocked| {
            blocked.pid == pid && matches!(&blocked.awaited, Awaited::Resume(id, _) if free(id))
        });
        for blocked in ready {
            if let Awaited::Resume(_, call) = blocked.awaited {
                self.uninterruptible.insert(call.unique);
                process.parked.push_back(call);
            }
        }
        self.unlock(t, pid);
    }

    /// The debugger has seen that the runtime was enabled.
    fn runtime_answered(&mut self, pid: i32) {
        let waits = |b: &mut Blocked| b.pid == pid && matches!(b.awaited, Awaited::Debugger(_));
        let blocked = self.blocked.extract_if(.., waits).next();
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some(Blocked { unique, awaited: Awaited::Debugger(out), .. }) = blocked {
            process.debug.retry = false;
            self.answers.push((unique, Ok(out)));
        } else {
            process.debug.answers = process.debug.answers.saturating_add(1);
        }
    }

    /// A signal has come for a call that waits for a debugger; `false` if it is none.
    pub fn interrupt_blocked(&mut self, unique: Unique) -> bool {
        let Some(at) = self.blocked.iter().position(|blocked| blocked.unique == unique) else { return false };
        let blocked = self.blocked.swap_remove(at);
        if matches!(blocked.awaited, Awaited::Debugger(_))
            && let Some(process) = self.processes.get_mut(&blocked.pid)
        {
            process.debug.retry = true;
        }
        self.answers.push((unique, Err(libc::EINTR)));
        true
    }
}

/// The ids at an address of the caller's; `None` without an address.
fn ids(caller: i32, at: u64, count: u32) -> Answer<Option<Vec<u32>>> {
    if count > MOST {
        return Err(libc::EINVAL);
    }
    if at == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; 4 * count as usize];
    client::read(caller, at, &mut bytes).map_err(|_| libc::EFAULT)?;
    Ok(Some(bytes.as_chunks::<4>().0.iter().map(|id| u32::from_ne_bytes(*id)).collect()))
}

/// The thread that traces a process.
fn tracer(pid: i32) -> Option<i32> {
    crate::supervisor::status_field(pid, "TracerPid:").filter(|tracer| *tracer != 0)
}

/// A copy of a process's descriptor.
fn descriptor_of(pid: i32, fd: u32) -> Option<OwnedFd> {
    let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_getfd(process, i32::try_from(fd).ok()?, PidfdGetfdFlags::empty()).ok()
}
