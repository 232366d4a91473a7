//! The course of time: calls change the machine, and packets, compute units and drivers go on until a given
//! moment.
//!
//! Everything happens in virtual time. A packet begins at the later of its arrival and its predecessor's end,
//! however late the supervisor looks, so that lateness does not add up. [`tick`] does all that is due;
//! `pace.rs` decides when to call it again.

mod pace;
#[cfg(test)]
mod tests;

pub use pace::{Pace, run};

use std::sync::mpsc::Receiver;

use hip_sys::kfd;

use crate::call::Call;
use crate::device::{QueueKey, Time};
use crate::machine::{Kind, Machine, Queue, State, Unusable};
use crate::packets::{aql_packet, recheck, run_model, sdma_packet, slice};
use crate::space::View;
use crate::{driver, ioctl};

/// The largest number of events of one tick, after which other threads get the lock.
const EVENTS_PER_TICK: usize = 2048;

/// The state after a tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// The earliest time of the next visible event, if no call or packet comes before.
    pub next: Option<Time>,
    /// True if due work is left.
    pub more: bool,
    /// True if a packet waits for a change of memory, which causes no notification.
    pub watching: bool,
    /// True if new packets were seen.
    pub arrived: bool,
}

/// Does all work that is due at `now`.
pub fn tick(machine: &mut Machine, now: Time) -> Outlook {
    let arrived = poll(machine, now);
    // First, packets that wait for a completion continue at the time of the completion. Then the others check
    // memory, which clients may have changed.
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
    let driver = driver::next_due(machine).map(|(at, _)| at);
    Outlook {
        next: due.chain(ends).chain(front).chain(machine.next_deadline()).chain(driver).min(),
        more,
        watching,
        arrived,
    }
}

/// Executes an ioctl. The answer is in the outbox, now or when a wait ends.
pub fn ioctl(machine: &mut Machine, call: &Call) {
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
        process.parked.push_back(call.clone());
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
            ioctl::execute(machine, &Call { now: t, ..call });
        }
    }
}

/// Removes a process that has ended or closed the device: its queues, memory, and waiting calls.
pub fn remove_process(machine: &mut Machine, now: Time, pid: i32) {
    catch_up(machine, now);
    driver::end_sessions_of(machine, now, pid);
    // Calls that the sessions blocked are executed while their process is there.
    run_unlocked(machine);
    driver::forget_queues(machine, now, pid);
    machine.remove_process(pid);
    if let Some(timeline) = &mut machine.timeline {
        timeline.leave(pid, now);
    }
    run_unlocked(machine);
}

/// Records the run up to `now`, if it is recorded. Returns the message that all is written, for which the caller
/// must not wait under the lock.
pub fn record_until(machine: &mut Machine, now: Time) -> Option<Receiver<()>> {
    machine.timeline.as_ref()?;
    // If more is due than one call handles, the last event is the latest moment that is known.
    let until = if catch_up(machine, now) { machine.clock } else { now };
    machine.timeline.as_mut()?.flush(until)
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
                Ok(kernels) => {
                    arrived |= kernels.is_some();
                    if let Some(timeline) = &mut machine.timeline
                        && let Some(count @ 1..) = kernels
                    {
                        timeline.arrived(queue.gpu, pid, count, now);
                    }
                }
                Err(fault) => faults.push((QueueKey { pid, id }, fault)),
            }
        }
    }
    for (key, fault) in faults {
        machine.stop(now, key, fault.into());
    }
    arrived
}

/// Handles all events that are due at `now`, in order of time, so that a change at `now` finds the device in
/// its present state. Returns true if more events are due than one call handles.
pub fn catch_up(machine: &mut Machine, now: Time) -> bool {
    (0..EVENTS_PER_TICK).all(|_| step(machine, now))
}

/// Handles the earliest event that is due. Returns false if there is none.
fn step(machine: &mut Machine, now: Time) -> bool {
    let ends = machine.gpus.iter().enumerate().filter_map(|(i, gpu)| Some((gpu.model.next()?, i)));
    let end = ends.min();
    let fronts = machine.processes.iter_mut().flat_map(|(&pid, process)| {
        process.queues.iter_mut().filter_map(move |(&id, queue)| Some((queue.next()?, QueueKey { pid, id })))
    });
    let front = fronts.min();
    let driver = driver::next_due(machine);
    let first = [end.map(|e| e.0), front.map(|f| f.0), driver.map(|d| d.0)].into_iter().flatten().min();
    // Time never runs backwards, even if an event was found late.
    let at = |t: Time| t.max(machine.clock);
    match (end, front, driver) {
        _ if first.is_none_or(|first| first > now) => false,
        // A kernel that ends at the moment of an eviction has ended.
        (Some((t, gpu)), ..) if first == Some(t) => {
            machine.clock = at(t);
            run_model(machine, gpu, t, |model, progress| model.advance(t, progress));
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

/// Executes the packet at the head of a queue at `t`.
fn packet(machine: &mut Machine, key: QueueKey, t: Time) -> Result<(), Unusable> {
    match machine.queue_mut(key).map(|queue| queue.kind) {
        Some(Kind::Aql) => aql_packet(machine, key, t),
        Some(Kind::Sdma) => sdma_packet(machine, key, t),
        None => Ok(()),
    }
}
