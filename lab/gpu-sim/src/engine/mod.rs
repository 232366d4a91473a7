//! The course of time: calls change the machine, and packets, compute units and drivers go on until a given moment.
//!
//! Everything happens in virtual time. A packet begins at the later of its arrival and its predecessor's end, however late
//! the supervisor looks, so that lateness does not add up. [`tick`] does all that is due; `pace.rs` decides when to call it
//! again.

mod pace;
#[cfg(test)]
mod tests;

pub use pace::{Pace, run};

use hip_sys::kfd;

use crate::call::{Call, OwnedCall};
use crate::device::{QueueKey, Time};
use crate::machine::{Kind, Machine, Queue, State, Unusable};
use crate::packets::{apply, aql_packet, recheck, sdma_packet, slice};
use crate::space::View;
use crate::{driver, ioctl};

/// Events handled in one tick before others get the lock.
const EVENTS_PER_TICK: usize = 2048;

/// What a tick leaves behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// No sooner than this something happens by itself that can be seen from outside.
    pub next: Option<Time>,
    /// Work is left that was due.
    pub more: bool,
    /// A packet waits for memory to change, which nobody announces.
    pub watching: bool,
    /// New packets were seen.
    pub arrived: bool,
}

/// Does everything that is due at `now`.
pub fn tick(machine: &mut Machine, now: Time) -> Outlook {
    let arrived = poll(machine, now);
    // A completion lets what waits for it go on at its own time, however late we look; only then comes what else
    // may have changed memory.
    let mut more = catch_up(machine, now);
    if !more {
        recheck(machine, now);
        more = catch_up(machine, now);
    }
    slice(machine, now);
    machine.wake(now);
    let (mut watching, mut front) = (false, None);
    for queue in machine.processes.values_mut().flat_map(|process| process.queues.values_mut()) {
        watching |= queue.mapped && queue.state == State::Blocked;
        front = [front, queue.next()].into_iter().flatten().min();
    }
    let due = machine.work.moves.iter().map(|m| if m.effect.is_done() { m.not_before } else { now });
    let ends = machine.gpus.iter().filter_map(|gpu| gpu.model.next_visible());
    let driver = driver::next_driver(machine).map(|(at, _)| at);
    Outlook {
        next: due.chain(ends).chain(front).chain(machine.next_deadline()).chain(driver).min(),
        more,
        watching,
        arrived,
    }
}

/// Executes an ioctl. The answer is in the outbox, now or when a wait ends.
pub fn ioctl(machine: &mut Machine, call: &Call<'_>) {
    let Some(nr) = kfd::request_number(call.command) else {
        machine.outbox.answers.push((call.unique, Err(libc::ENOTTY)));
        return;
    };
    let name = kfd::request_name(nr).map_or_else(|| format!("unknown_{nr:#04x}"), str::to_owned);
    *machine.stats.ioctls.entry(name).or_insert(0) += 1;
    if let Some(pid) = ioctl::lock_domain(nr, call)
        && let Some(process) = machine.processes.get_mut(&pid)
        && process.locked
    {
        machine.calls.uninterruptible.insert(call.unique);
        process.parked.push_back(OwnedCall::of(call));
        return;
    }
    // The change must find the device as it is now.
    if ioctl::is_about_queues(nr) {
        catch_up(machine, call.now);
    }
    ioctl::execute(machine, call);
    run_unlocked(machine);
}

/// Executes the calls that waited for the lock of their process, as far as it is free.
fn run_unlocked(machine: &mut Machine) {
    while let Some((pid, t)) = machine.calls.unlocked.pop_front() {
        while let Some(process) = machine.processes.get_mut(&pid)
            && !process.locked
            && let Some(call) = process.parked.pop_front()
        {
            machine.calls.uninterruptible.remove(&call.unique);
            ioctl::execute(machine, &call.at(t));
        }
    }
}

/// Removes a process that has ended or closed the device: its queues, memory, and waiting calls.
pub fn remove_process(machine: &mut Machine, now: Time, pid: i32) {
    catch_up(machine, now);
    driver::debugger_gone(machine, now, pid);
    driver::forget_queues(machine, now, pid);
    machine.remove_process(pid);
    run_unlocked(machine);
}

/// Looks for new packets in every ring.
fn poll(machine: &mut Machine, now: Time) -> bool {
    let mut arrived = false;
    let mut faults = Vec::new();
    for (&pid, process) in &mut machine.processes {
        let live = |queue: &Queue| queue.state != State::Dead && queue.ring != 0;
        for (&id, queue) in process.queues.iter_mut().filter(|(_, queue)| live(queue)) {
            let view = View { arena: &machine.memory.arena, space: &process.space, pid, gpu: queue.gpu };
            match queue.poll(&view, now) {
                Ok(any) => arrived |= any,
                Err(fault) => faults.push((QueueKey { pid, id }, fault)),
            }
        }
    }
    for (key, fault) in faults {
        machine.stop(now, key, fault.into());
    }
    arrived
}

/// Lets everything happen that is due at `now`, in its order; `true` if it was too much for once. A change made at
/// `now` must find the device as it is then.
pub fn catch_up(machine: &mut Machine, now: Time) -> bool {
    (0..EVENTS_PER_TICK).all(|_| step(machine, now))
}

/// Handles the earliest event that is due; `false` if there is none.
fn step(machine: &mut Machine, now: Time) -> bool {
    let ends = machine.gpus.iter().enumerate().filter_map(|(i, gpu)| Some((gpu.model.next()?, i)));
    let end = ends.min();
    let fronts = machine.processes.iter_mut().flat_map(|(&pid, process)| {
        process.queues.iter_mut().filter_map(move |(&id, queue)| Some((queue.next()?, QueueKey { pid, id })))
    });
    let front = fronts.min();
    let driver = driver::next_driver(machine);
    let first = [end.map(|e| e.0), front.map(|f| f.0), driver.map(|d| d.0)].into_iter().flatten().min();
    // Nothing happens before what has happened already, whenever it was found out.
    let at = |t: Time| t.max(machine.clock);
    match (end, front, driver) {
        _ if first.is_none_or(|first| first > now) => false,
        // What ends at the moment at which queues come off has ended.
        (Some((t, gpu)), ..) if first == Some(t) => {
            machine.clock = at(t);
            let mut progress = Vec::new();
            machine.gpus[gpu].model.advance(t, &mut progress);
            machine.account_busy(gpu, t);
            apply(machine, t, progress);
            true
        }
        (_, _, Some((t, gpu))) if first == Some(t) => {
            machine.clock = at(t);
            driver::drive(machine, gpu, machine.clock);
            run_unlocked(machine);
            true
        }
        (_, Some((t, key)), _) => {
            machine.clock = at(t);
            if let Err(why) = packet(machine, key, t) {
                machine.stop(now, key, why);
            }
            true
        }
        _ => false,
    }
}

/// Takes the packet at the head of a queue at `t`.
fn packet(machine: &mut Machine, key: QueueKey, t: Time) -> Result<(), Unusable> {
    match machine.queue_mut(key).map(|queue| queue.kind) {
        Some(Kind::Aql) => aql_packet(machine, key, t),
        Some(Kind::Sdma) => sdma_packet(machine, key, t),
        None => Ok(()),
    }
}
