//! Which queues the server knows, where their states are written, and the numbers that it is told of them.

use super::super::{Line, Member, activity};
use super::pages::Pages;
use crate::process::scheduler::desk::Desk;
use crate::process::slow;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::QueueHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::message::ToServer;
use protocol::page::{SLOTS, Slot, activity_word};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use xqueue::{Window, XQueue};

/// A queue with a slot.
#[derive(Debug)]
struct Seat {
    slot: usize,
    device: u32,
    priority: i32,
    level: PreemptLevel,
    /// What the server knows of its hints, by this process's clock.
    told: QueueHints,
    hints: QueueHints,
    queue: Arc<XQueue>,
    desk: &'static Desk,
    announced: bool,
}

/// The queues by their names.
#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: BTreeMap<u64, Seat>,
    /// Slots up to here have been used.
    used: usize,
    /// Slots that are free again, the one that was left first in front: it is taken only when all others were used, so
    /// that a thread that still has an old address in its hand is long through.
    free: VecDeque<usize>,
    /// What queues that are gone have completed.
    gone: u64,
}

fn priority(number: i32) -> Priority {
    Priority::try_from(i64::from(number)).unwrap_or_default()
}

impl Seats {
    /// Follows what has come, gone, or changed its priority or hints; `tell` sends it to the server.
    pub(super) fn update(
        &mut self,
        members: Vec<Member>,
        line: &Line,
        pages: &Pages,
        mut tell: impl FnMut(&ToServer),
    ) {
        let mut left = std::mem::take(&mut self.seats);
        let mut come = Vec::new();
        for member in members {
            match left.remove(&member.handle) {
                Some(mut seat) => {
                    if seat.level != member.level {
                        seat.level = member.level;
                        if seat.announced {
                            tell(&ToServer::Level { queue: QueueId(member.handle), level: seat.level });
                        }
                    }
                    seat.hints = member.hints;
                    self.seats.insert(member.handle, seat);
                }
                None => come.push(member),
            }
        }
        for (handle, seat) in left {
            seat.desk.set_slot(None);
            // Whatever was set for it since it has gone: it is never held now.
            seat.queue.set_policy_run(true);
            self.gone += seat.queue.stats().completed;
            self.free.push_back(seat.slot);
            if seat.announced {
                tell(&ToServer::QueueDestroyed { queue: QueueId(handle) });
            }
        }
        for Member { handle, device, level, hints, queue, desk } in come {
            // A queue for which there is no room runs when its process may; only nobody hears of it.
            let Some(slot) = self.take_slot() else { break };
            clear(pages.slot(slot));
            desk.set_slot(Some(pages.slot(slot)));
            let priority = queue.priority();
            let (announced, told) = (false, QueueHints::default());
            let seat = Seat { slot, device, priority, level, told, hints, queue, desk, announced };
            self.seats.insert(handle, seat);
        }
        for (&handle, seat) in &mut self.seats {
            let current = seat.queue.priority();
            if !seat.announced {
                seat.announced = true;
                seat.told = QueueHints::default();
                seat.priority = current;
                // Before the server hears of it: it finds what it would have been rung for.
                seat.write_activity(pages.slot(seat.slot));
                tell(&ToServer::QueueCreated {
                    queue: QueueId(handle),
                    slot: u32::try_from(seat.slot).unwrap_or(u32::MAX),
                    device: DeviceId(seat.device),
                    priority: priority(current),
                    level: seat.level,
                });
            } else if current != seat.priority {
                seat.priority = current;
                tell(&ToServer::Priority { queue: QueueId(handle), priority: priority(current) });
            }
            if seat.told != seat.hints {
                seat.told = seat.hints;
                let arrival = seat.hints.arrival.map(|arrival| line.to_server(arrival));
                let hints = QueueHints { arrival, ..seat.hints };
                tell(&ToServer::QueueHints { queue: QueueId(handle), hints });
            }
        }
    }

    fn take_slot(&mut self) -> Option<usize> {
        if self.used < SLOTS {
            self.used += 1;
            return Some(self.used - 1);
        }
        self.free.pop_front()
    }

    /// The server is another one from now on, and knows nothing yet.
    pub(super) fn forget_announcements(&mut self) {
        for seat in self.seats.values_mut() {
            seat.announced = false;
        }
    }

    /// Sets each queue's own word: with a server, the limit is its affair, and a queue that is never to run is held here,
    /// because its permission is one for the whole process.
    pub(super) fn set_words(&self, with_server: bool) {
        for seat in self.seats.values() {
            seat.queue.set_policy_limit((!with_server).then_some(Window::DEFAULT));
            seat.queue.set_policy_run(!with_server || seat.priority != Priority::NO_EXECUTE.get());
        }
    }

    /// Whether any queue has unfinished commands.
    pub(super) fn any_ready(&self) -> bool {
        self.seats.values().any(|seat| seat.queue.is_ready())
    }

    /// Writes the numbers of all queues, and of the process.
    pub(super) fn count(&self, line: &Line, pages: &Pages) {
        let mut completed = self.gone;
        let mut busy = None;
        for seat in self.seats.values() {
            let stats = seat.queue.stats();
            let slot = pages.slot(seat.slot);
            slot.pending.store(stats.pending as u64, Ordering::Relaxed);
            slot.in_flight.store(stats.in_flight, Ordering::Relaxed);
            slot.direct.store(stats.direct, Ordering::Relaxed);
            slot.deferred.store(stats.deferred, Ordering::Relaxed);
            slot.suspensions.store(stats.suspensions, Ordering::Relaxed);
            let suspended = u64::try_from(stats.suspended.as_nanos()).unwrap_or(u64::MAX);
            slot.suspended_ns.store(suspended, Ordering::Relaxed);
            completed += stats.completed;
            busy = busy.max(seat.queue.busy_for());
        }
        let until = busy.map_or(0, |busy| line.now().after(busy).0);
        pages.header().busy_until.store(until, Ordering::Relaxed);
        slow::show(pages.header());
        pages.header().completed.store(completed, Ordering::Release);
    }
}

impl Seat {
    /// Writes what a queue does, unless a launching thread has done that already. The slot is new, so its word is 0,
    /// which launching threads never write.
    fn write_activity(&self, slot: &Slot) {
        // With `turn_ready`, which changes `ready` and then looks for the slot: one of both sees the other's.
        fence(Ordering::SeqCst);
        let word = activity_word(activity(&self.queue));
        let _ = slot.activity.compare_exchange(0, word, Ordering::SeqCst, Ordering::SeqCst);
    }
}

fn clear(slot: &Slot) {
    for word in [
        &slot.activity,
        &slot.pending,
        &slot.in_flight,
        &slot.direct,
        &slot.deferred,
        &slot.suspensions,
        &slot.suspended_ns,
    ] {
        word.store(0, Ordering::SeqCst);
    }
}
