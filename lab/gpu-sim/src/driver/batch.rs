//! Suspending and resuming a debugged process's queues, one device after the other. Facts:
//! `kfd_device_queue_manager.c` (`suspend_queues`, `resume_queues`) of Linux 6.12.

use hip_sys::kfd::Plain as _;
use hip_sys::kfd::debug::{self, DbgTrap, Operation as _, exception_bit};

use super::operations::{answer_parked, operate, unlock};
use crate::call::{Answer, Call};
use crate::device::{QueueKey, Time};
use crate::fuse::Reply;
use crate::machine::{Awaited, Batch, Blocked, Change, Follow, Machine, Parked, Queue};
use crate::space::client;

/// Begins to suspend or resume these queues, or all.
pub fn batch(
    machine: &mut Machine,
    call: &Call,
    argument: DbgTrap,
    pid: i32,
    ids: Option<Vec<u32>>,
    array: u64,
    clear: u64,
) -> Answer<()> {
    let suspend = argument.op == debug::SuspendQueues::OP;
    let ids = ids.map(|ids| ids.into_iter().map(|id| id | debug::QUEUE_INVALID).collect());
    let parked = Parked::of(call, pid);
    machine.lock(&parked);
    let call = call.clone();
    let now = call.now;
    let batch = Batch { parked, call, argument, suspend, ids, array, clear, gpu: 0, total: 0 };
    batch_next(machine, now, batch);
    Ok(())
}

/// Continues a batch with the next device that has queues of it, or answers the call.
fn batch_next(machine: &mut Machine, t: Time, mut batch: Batch) {
    let pid = batch.parked.domain;
    while batch.gpu < machine.gpus.len() {
        let gpu = batch.gpu;
        let ids = batch.ids.clone();
        let asked = |id: u32| match &ids {
            None => true,
            Some(ids) => ids.iter().any(|other| other & !debug::QUEUE_INVALID == id),
        };
        let mut keys = keys(machine, pid, gpu, |_| true);
        keys.retain(|key| asked(key.id));
        if batch.suspend {
            // Queues that are new or being destroyed are skipped and keep QUEUE_INVALID.
            let new = exception_bit(debug::EC_QUEUE_NEW);
            keys.retain(|key| {
                machine.queue(*key).is_some_and(|queue| {
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
            operate(machine, t, gpu, change, Follow::Batch(Box::new(batch)));
            return;
        }
    }
    if let Some(ids) = &batch.ids {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
        // The driver only logs it if that fails.
        let _ = client::write(batch.call.pid, batch.array, &bytes);
    }
    if !batch.suspend {
        unblock(machine, t, pid);
    }
    let answer = batch.call.reply(&batch.argument);
    answer_parked(machine, t, batch.parked, Ok(Reply { result: batch.total.cast_signed(), ..answer }));
}

/// Records the result of a device, and continues the batch.
pub fn batch_done(
    machine: &mut Machine,
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
        let Some(queue) = machine.queue_mut(*key) else { continue };
        queue.exceptions &= !batch.clear;
        let (at, header) = (queue.save_area.0, queue.save_area_header());
        // The driver writes the header for every suspended queue; without a save area this fails.
        let _ = client::write(key.pid, at, &header.as_bytes()[..16]);
    }
    batch_next(machine, t, batch);
}

/// Makes the destruction of a suspended queue wait until the queue is resumed.
pub fn block_destruction(machine: &mut Machine, call: &Call, key: QueueKey) {
    let awaited = Awaited::Resume(key.id, call.clone());
    machine.calls.blocked.push(Blocked { unique: call.unique, pid: key.pid, awaited });
}

/// Continues the destructions whose queue has been resumed, once they get the lock of their process again.
pub fn unblock(machine: &mut Machine, t: Time, pid: i32) {
    let Some(process) = machine.processes.get_mut(&pid) else { return };
    let queues = &process.queues;
    let free = |id: &u32| queues.get(id).is_none_or(|queue| !queue.suspended);
    let ready = machine.calls.blocked.extract_if(.., |blocked| {
        blocked.pid == pid && matches!(&blocked.awaited, Awaited::Resume(id, _) if free(id))
    });
    for blocked in ready {
        if let Awaited::Resume(_, call) = blocked.awaited {
            machine.calls.uninterruptible.insert(call.unique);
            process.parked.push_back(call);
        }
    }
    unlock(machine, t, pid);
}

/// Returns the queues of a process on a GPU that satisfy a condition.
pub fn keys(machine: &Machine, pid: i32, gpu: usize, want: impl Fn(&Queue) -> bool) -> Vec<QueueKey> {
    let Some(process) = machine.processes.get(&pid) else { return Vec::new() };
    let these = process.queues.iter().filter(|(_, queue)| queue.gpu == gpu && want(queue));
    these.map(|(id, _)| QueueKey { pid, id: *id }).collect()
}
