//! The queues that the server knows, the slots of their states, and their counts.

use crate::clock::{activity, nanos};
use crate::host::{Host, ManagedQueue};
use crate::link::{QueueSlot, ServerLink};
use crate::pages::Pages;
use protocol::bounds::{Priority, StreamPriority};
use protocol::codes::PreemptLevel;
use protocol::hint::QueueHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::message::ToServer;
use protocol::page::{ACCEPTS_STREAM_PRIORITIES, SLOTS, Slot, activity_word};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use xqueue::{Stats, Window, XQueue};

/// A queue with a slot.
#[derive(Debug)]
struct Entry {
    index: usize,
    device: u32,
    priority: i32,
    level: PreemptLevel,
    hints: QueueHints,
    /// The hints that were reported to the server, by this process's clock.
    reported_hints: QueueHints,
    queue: Arc<XQueue>,
    slot: &'static QueueSlot,
    announced: bool,
}

#[derive(Debug, Default)]
pub(super) struct SlotTable {
    /// The queues by their handles.
    entries: BTreeMap<u64, Entry>,
    /// The number of slots that were ever used.
    used: usize,
    /// The free slots, the longest free one in front. They are taken only when all others were used, so that
    /// a thread that still writes to an old slot has long finished.
    free: VecDeque<usize>,
    /// The completed commands of queues that are gone.
    completed_by_gone: u64,
}

fn priority(number: i32) -> Priority {
    Priority::try_from(i64::from(number)).unwrap_or_default()
}

impl SlotTable {
    /// Follows queues that came, went, or changed their priority, level or hints; `report` sends it to the
    /// server.
    pub(super) fn update(
        &mut self,
        queues: Vec<ManagedQueue>,
        link: &ServerLink,
        pages: &Pages,
        mut report: impl FnMut(&ToServer),
    ) {
        let accepted = pages.server().takes.load(Ordering::SeqCst);
        let knows_stream_priorities = accepted & ACCEPTS_STREAM_PRIORITIES != 0;
        let mut gone = std::mem::take(&mut self.entries);
        let mut come = Vec::new();
        for managed in queues {
            match gone.remove(&managed.handle) {
                Some(mut entry) => {
                    if entry.level != managed.level {
                        entry.level = managed.level;
                        if entry.announced {
                            report(&ToServer::Level { queue: QueueId(managed.handle), level: entry.level });
                        }
                    }
                    entry.hints = managed.hints;
                    self.entries.insert(managed.handle, entry);
                }
                None => come.push(managed),
            }
        }
        for (handle, entry) in gone {
            // A queue that has stayed ready has not written its work itself.
            let stats = entry.queue.stats();
            write_work(pages.slot(entry.index), &stats);
            entry.slot.set(None);
            // It is never suspended from now on, whatever was set since it has gone.
            entry.queue.set_policy_run(true);
            self.completed_by_gone += stats.completed;
            self.free.push_back(entry.index);
            if entry.announced {
                report(&ToServer::QueueDestroyed { queue: QueueId(handle) });
            }
        }
        for ManagedQueue { handle, device, level, hints, queue, slot } in come {
            // A queue without a slot runs when its process may; the server does not know it.
            let Some(index) = self.take_slot() else { break };
            clear(pages.slot(index));
            slot.set(Some(pages.slot(index)));
            let priority = queue.priority();
            let (announced, reported_hints) = (false, QueueHints::default());
            let entry =
                Entry { index, device, priority, level, hints, reported_hints, queue, slot, announced };
            self.entries.insert(handle, entry);
        }
        for (&handle, entry) in &mut self.entries {
            let current = entry.queue.priority();
            if !entry.announced {
                entry.announced = true;
                entry.reported_hints = QueueHints::default();
                entry.priority = current;
                // Before the announcement, so that the server finds an activity of which it was not notified.
                entry.write_activity(pages.slot(entry.index));
                report(&ToServer::QueueCreated {
                    queue: QueueId(handle),
                    slot: u32::try_from(entry.index).unwrap_or(u32::MAX),
                    device: DeviceId(entry.device),
                    priority: priority(current),
                    level: entry.level,
                });
            } else if current != entry.priority {
                entry.priority = current;
                report(&ToServer::Priority { queue: QueueId(handle), priority: priority(current) });
            }
            let mut hints = entry.hints;
            if !knows_stream_priorities {
                hints.stream_priority = StreamPriority::DEFAULT;
            }
            if entry.reported_hints != hints {
                entry.reported_hints = hints;
                hints.arrival = hints.arrival.map(|arrival| link.to_server(arrival));
                report(&ToServer::QueueHints { queue: QueueId(handle), hints });
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

    /// Prepares for another server, which knows no queue yet.
    pub(super) fn forget_announcements(&mut self) {
        for entry in self.entries.values_mut() {
            entry.announced = false;
        }
    }

    /// Sets each queue's own permission. Under a server the process's permission has the limit, and a queue
    /// with the priority "never runs" is suspended here, because the process's permission covers all queues.
    pub(super) fn set_permissions(&self, with_server: bool) {
        for entry in self.entries.values() {
            entry.queue.set_policy_limit((!with_server).then_some(Window::DEFAULT));
            entry.queue.set_policy_run(!with_server || entry.priority != Priority::NO_EXECUTE.get());
        }
    }

    /// Returns true if any queue has unfinished commands.
    pub(super) fn any_ready(&self) -> bool {
        self.entries.values().any(|entry| entry.queue.is_ready())
    }

    /// Writes the counts of all queues and of the process.
    pub(super) fn write_counts(&self, link: &ServerLink, pages: &Pages, host: &dyn Host) {
        let mut completed = self.completed_by_gone;
        let mut busy = None;
        for entry in self.entries.values() {
            let stats = entry.queue.stats();
            let slot = pages.slot(entry.index);
            slot.pending.store(stats.pending as u64, Ordering::Relaxed);
            slot.in_flight.store(stats.in_flight, Ordering::Relaxed);
            slot.suspensions.store(stats.suspensions, Ordering::Relaxed);
            slot.suspended_ns.store(nanos(stats.suspended), Ordering::Relaxed);
            write_work(slot, &stats);
            completed += stats.completed;
            busy = busy.max(entry.queue.busy_for());
        }
        let until = busy.map_or(0, |busy| link.now().after(busy).0);
        pages.header().busy_until.store(until, Ordering::Relaxed);
        host.write_slow_counts(pages.header());
        pages.header().completed.store(completed, Ordering::Release);
    }
}

/// Writes what a queue has done. A thread that turns the queue idle may have stored later values.
fn write_work(slot: &Slot, stats: &Stats) {
    slot.direct.fetch_max(stats.direct, Ordering::Relaxed);
    slot.deferred.fetch_max(stats.deferred, Ordering::Relaxed);
    slot.worked_ns.fetch_max(nanos(stats.worked), Ordering::Relaxed);
}

impl Entry {
    /// Writes the queue's activity into its new slot, unless a launching thread has done so. The word of a
    /// new slot is 0, which launching threads never write.
    fn write_activity(&self, slot: &Slot) {
        // Pairs with `turn_ready`, which sets `ready` and then reads the slot: one of the two sees the
        // other's store.
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
        &slot.worked_ns,
    ] {
        word.store(0, Ordering::SeqCst);
    }
}
