//! The state of one client.

use super::client_page::ClientPage;
use super::fault::Fault;
use super::guard::{PATIENCE, Progress};
use super::in_force::Words;
use super::record::Recorded;
use super::tally::{Allowance, Tally, Times};
use super::waiting::{Seen, Sums};
use crate::access::Grant;
use crate::programs::Program;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::control::HintUpdate;
use protocol::hint::{Hints, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, QueueId};
use protocol::message::ToServer;
use protocol::operation::{Permit, Reason};
use protocol::page::{AHEAD, EVENT_READY, SLOTS, activity_of};
use protocol::status::{Activity, Queues, StatusError};
use protocol::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A queue of a client.
#[derive(Debug)]
pub(super) struct Slot {
    pub queue: QueueId,
    /// The index of its slot on the client's page.
    pub index: u32,
    /// The level that the client asks for.
    pub level: PreemptLevel,
    /// The last priority from the client itself. A hint of `xcli hint` can override it.
    pub own_priority: Priority,
    /// The last hints from the client itself.
    pub reported: QueueHints,
    /// The hints from people since then.
    pub words: Words,
    /// The last word read from the slot; none for a new queue.
    word: Option<u64>,
    /// The state in that word. A time in the future is replaced by the time of reading, only once: otherwise
    /// it would never pass. While the queue is ready from a time ahead on, its state before.
    pub activity: Activity,
    /// The state after the last step while a client waited.
    pub seen: Option<Seen>,
    /// The time from which on the queue is ready, if it lies ahead.
    pub ready_from: Option<Time>,
    pub times: Times,
}

/// A queue for which there was no room.
#[derive(Debug)]
struct Refused {
    slot: u32,
    device: DeviceId,
    priority: Priority,
    level: PreemptLevel,
    hints: QueueHints,
}

#[derive(Debug)]
pub(super) struct ClientState<P> {
    pub client: ClientId,
    pub name: String,
    /// Its user.
    pub uid: u32,
    /// What its user may do.
    pub grant: Grant,
    /// The hints that the configuration gives to it by its name.
    pub program: Option<Arc<Program>>,
    pub page: P,
    /// The queues for which there was no room, of which there are [`SLOTS`] at most, each with what the client has said of
    /// it.
    refused: BTreeMap<QueueId, Refused>,
    /// In the order of the gang's queues, by number.
    pub slots: Vec<Slot>,
    /// The deepest level that one of them asks for.
    level: PreemptLevel,
    /// The first time from which on one of them is ready, if that lies ahead.
    ready_from: Option<Time>,
    /// True if its page needs no reading before it notifies the server: all its queues were idle when they were read last,
    /// and its event mask has asked since before then for a notification when one turns ready.
    pub by_event: bool,
    /// The decision of the policy.
    pub decided: Permit,
    /// The permission in force.
    pub permit: Permit,
    /// The time of the last change between run and suspended; none before the first permission.
    pub since: Option<Time>,
    /// The last hints for the process from the client itself.
    pub reported: ProcessHints,
    /// The hints from people for the process since then.
    pub words: Words,
    /// The stored permission without its generation; none at first.
    stored: Option<u64>,
    generation: u32,
    pub event_mask: u32,
    /// True if its agent must be woken at the end of this step.
    pub to_wake: bool,
    /// The time since when it has work but is suspended because of rivals.
    pub waits_since: Option<Time>,
    /// The time since when another client waits for it.
    awaited_since: Option<Time>,
    /// Its progress, if others have waited so long that it is watched.
    pub progress: Option<Progress>,
    /// True if its process is stopped, so that it counts as idle.
    pub yielded: bool,
    /// The preemption level that the client can do, and the mechanism or the reason for no higher level.
    pub able: PreemptLevel,
    pub how: String,
    /// The time of the last look-up of the process in `/proc`.
    pub looked_up: Time,
    pub recorded: Recorded,
    pub waiting: Sums,
    pub tally: Tally,
    pub allowance: Allowance,
}

impl Slot {
    /// Returns true if the program suspends the queue itself. The client uses its own priority only, so no
    /// permission of the server lets the queue launch.
    pub fn is_held(&self) -> bool {
        self.own_priority == Priority::NO_EXECUTE
    }

    /// Returns true if the client has written its state since the last look, or if its time has not come yet.
    pub fn has_changed(&self, page: &impl ClientPage) -> bool {
        self.ready_from.is_some() || self.word != Some(page.activity(self.index))
    }
}

impl<P: ClientPage> ClientState<P> {
    pub fn new(client: ClientId, name: String, uid: u32, grant: Grant, page: P) -> Self {
        let permit = Permit::running(true, Reason::Unrivalled);
        Self {
            client,
            name,
            uid,
            grant,
            program: None,
            page,
            refused: BTreeMap::new(),
            slots: Vec::new(),
            level: PreemptLevel::Block,
            ready_from: None,
            by_event: false,
            decided: permit,
            permit,
            since: None,
            reported: ProcessHints::default(),
            words: Words::default(),
            stored: None,
            generation: 0,
            event_mask: 0,
            to_wake: false,
            waits_since: None,
            awaited_since: None,
            progress: None,
            yielded: false,
            able: PreemptLevel::Block,
            how: String::new(),
            looked_up: Time::default(),
            recorded: Recorded::default(),
            waiting: Sums::default(),
            tally: Tally::default(),
            allowance: Allowance::default(),
        }
    }

    /// Checks that a new queue has a name and a slot of its own.
    pub fn check_new(&self, queue: QueueId, slot: u32) -> Result<(), Fault> {
        if self.refused.contains_key(&queue) {
            return Err(Fault::Queue(StatusError::QueueExists(queue)));
        }
        self.check_slot(slot)
    }

    /// Checks that a slot exists and is free.
    fn check_slot(&self, index: u32) -> Result<(), Fault> {
        let exists = usize::try_from(index).is_ok_and(|index| index < SLOTS);
        let free = exists && self.slots.iter().all(|slot| slot.index != index);
        if free { Ok(()) } else { Err(Fault::Slot(index)) }
    }

    /// The preemption level in force. A client does not evict its queues while the server tells it level 1.
    pub fn level_in_force(&self) -> PreemptLevel {
        if self.grant.max_level == PreemptLevel::Block { PreemptLevel::Block } else { self.able }
    }

    /// Notes a queue for which there is no room.
    pub fn refuse(&mut self, message: &ToServer, queues: &mut Queues) -> Result<(), Fault> {
        let ToServer::QueueCreated { queue, slot, device, priority, level } = *message else { return Ok(()) };
        self.check_new(queue, slot)?;
        if self.slots.iter().any(|slot| slot.queue == queue) {
            return Err(Fault::Queue(StatusError::QueueExists(queue)));
        }
        if self.slots.len() + self.refused.len() >= SLOTS {
            return Err(Fault::Slot(slot));
        }
        let hints = QueueHints::default();
        self.refused.insert(queue, Refused { slot, device, priority, level, hints });
        self.show_activity(queues);
        Ok(())
    }

    /// Returns true if a message is about a queue for which there was no room. It is noted for the time at which there is.
    pub fn takes_as_refused(&mut self, message: &ToServer, queues: &mut Queues) -> bool {
        match *message {
            ToServer::QueueDestroyed { queue } if self.refused.remove(&queue).is_some() => {
                self.show_activity(queues);
                true
            }
            ToServer::Priority { queue, priority } => {
                self.refused.get_mut(&queue).map(|refused| refused.priority = priority).is_some()
            }
            ToServer::Level { queue, level } => {
                self.refused.get_mut(&queue).map(|refused| refused.level = level).is_some()
            }
            ToServer::QueueHints { queue, hints } => {
                self.refused.get_mut(&queue).map(|refused| refused.hints = hints).is_some()
            }
            _ => false,
        }
    }

    /// The first queue for which there was no room, and its device.
    pub fn first_refused(&self) -> Option<(QueueId, DeviceId)> {
        self.refused.first_key_value().map(|(queue, refused)| (*queue, refused.device))
    }

    /// Takes a queue for which there is room now: the messages by which the client would create it.
    pub fn take_refused(&mut self, queue: QueueId, queues: &mut Queues) -> Vec<ToServer> {
        let Some(Refused { slot, device, priority, level, hints }) = self.refused.remove(&queue) else {
            return Vec::new();
        };
        self.show_activity(queues);
        let created = ToServer::QueueCreated { queue, slot, device, priority, level };
        vec![created, ToServer::QueueHints { queue, hints }]
    }

    /// Returns true if it runs unscheduled, because there was no room for one of its queues.
    pub fn is_exempt(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Returns true if its queues count as idle, whatever they do.
    fn counts_as_idle(&self) -> bool {
        self.yielded || self.is_exempt()
    }

    /// Makes its queues count as idle, or by their real state.
    fn show_activity(&self, queues: &mut Queues) {
        for slot in &self.slots {
            let activity = if self.counts_as_idle() { Activity::Idle { since: None } } else { slot.activity };
            // The gang and the slots have the same queues.
            let _ = queues.set_activity(slot.queue, activity);
        }
    }

    pub fn add(&mut self, queue: QueueId, index: u32, level: PreemptLevel, own_priority: Priority) {
        let at = self.slots.partition_point(|slot| slot.queue < queue);
        let activity = Activity::Idle { since: None };
        let (reported, words) = (QueueHints::default(), Words::default());
        let (word, ready_from, seen) = (None, None, None);
        let slot = Slot {
            queue,
            index,
            level,
            own_priority,
            reported,
            words,
            word,
            activity,
            ready_from,
            seen,
            times: Times::default(),
        };
        self.slots.insert(at, slot);
        self.level = self.level.max(level);
        // Nobody has told about its state.
        (self.by_event, self.waiting.rests) = (false, false);
    }

    pub fn set_own_priority(&mut self, queue: QueueId, priority: Priority) -> Result<(), Fault> {
        let slot = self.slot(queue)?;
        slot.own_priority = priority;
        slot.words.forget(HintUpdate::Priority(priority));
        Ok(())
    }

    pub fn set_level(&mut self, queue: QueueId, level: PreemptLevel) -> Result<(), Fault> {
        self.slot(queue)?.level = level;
        self.sum_up();
        Ok(())
    }

    /// Brings up to date what all slots say together.
    fn sum_up(&mut self) {
        self.level = self.slots.iter().map(|slot| slot.level).max().unwrap_or(PreemptLevel::Block);
        self.ready_from = self.slots.iter().filter_map(|slot| slot.ready_from).min();
    }

    /// Takes the hints of a queue from the client itself.
    pub fn set_reported(&mut self, queue: QueueId, hints: QueueHints) -> Result<(), Fault> {
        let slot = self.slot(queue)?;
        let before = std::mem::replace(&mut slot.reported, hints);
        let of = |queue| Hints { queue, ..Hints::default() };
        slot.words.forget_changed(&of(before), &of(hints));
        Ok(())
    }

    fn slot(&mut self, queue: QueueId) -> Result<&mut Slot, Fault> {
        let unknown = Fault::Queue(StatusError::UnknownQueue(queue));
        self.slots.iter_mut().find(|slot| slot.queue == queue).ok_or(unknown)
    }

    pub fn remove(&mut self, queue: QueueId) {
        self.slots.retain(|slot| slot.queue != queue);
        self.sum_up();
    }

    /// Reads the state of its queues. Returns true if any has changed.
    pub fn look(&mut self, queues: &mut Queues, now: Time) -> bool {
        let (mut changed, mut any_written, mut all_idle) = (false, false, true);
        let counts_as_idle = self.counts_as_idle();
        let reports = self.event_mask & EVENT_READY != 0;
        self.ready_from = None;
        for slot in &mut self.slots {
            let word = self.page.activity(slot.index);
            let written = slot.word != Some(word);
            let due = slot.ready_from.is_some_and(|from| from <= now);
            any_written |= written;
            if written || due {
                slot.word = Some(word);
                slot.ready_from = None;
                let was_idle = matches!(slot.activity, Activity::Idle { .. });
                slot.activity = match (activity_of(word), slot.activity) {
                    (Activity::Ready { since }, before) if since > now && since <= now.after(AHEAD) => {
                        slot.ready_from = Some(since);
                        match before {
                            Activity::Idle { .. } => before,
                            // It was idle in between, unseen.
                            Activity::Ready { .. } => Activity::Idle { since: Some(now) },
                        }
                    }
                    (Activity::Ready { since }, _) => Activity::Ready { since: since.min(now) },
                    (Activity::Idle { since }, _) => {
                        Activity::Idle { since: since.map(|since| since.min(now)) }
                    }
                };
                changed = true;
                slot.times.turn(slot.activity, &self.allowance, now);
                if let (Activity::Ready { since }, true) = (slot.activity, reports && was_idle) {
                    let turned = &mut self.tally.turned;
                    *turned = Some(turned.map_or(since, |other| other.min(since)));
                }
                // The gang and the slots have the same queues.
                let _ = queues.set_counts(slot.queue, self.page.counts(slot.index));
                if !counts_as_idle {
                    // The gang and the slots have the same queues.
                    let _ = queues.set_activity(slot.queue, slot.activity);
                }
            }
            self.ready_from = [self.ready_from, slot.ready_from].into_iter().flatten().min();
            all_idle &= matches!(slot.activity, Activity::Idle { .. });
        }
        self.by_event = self.event_mask & EVENT_READY != 0 && all_idle && self.ready_from.is_none();
        self.waiting.rests &= !changed;
        if any_written {
            // A client that writes to its page is not stopped, and makes progress.
            self.set_yielded(false, queues);
            if let Some(progress) = &mut self.progress {
                progress.at = now;
            }
        }
        changed
    }

    /// Returns the first time from which on one of its queues is ready, if that lies ahead.
    pub fn ready_from(&self) -> Option<Time> {
        self.ready_from
    }

    /// Makes its queues count as idle, or by their real state.
    pub fn set_yielded(&mut self, yielded: bool, queues: &mut Queues) {
        if self.yielded != yielded {
            self.yielded = yielded;
            self.show_activity(queues);
        }
    }

    /// Sets the time since when others wait for it.
    pub fn set_awaited(&mut self, since: Option<Time>, now: Time) {
        self.awaited_since = since;
        if since.is_none_or(|since| now < since.after(PATIENCE)) {
            self.progress = None;
        } else if self.progress.is_none() {
            self.progress = Some(Progress::begin(now, &self.page));
        }
    }

    /// Returns true if its progress is watched.
    pub fn is_watched(&self) -> bool {
        self.progress.is_some()
    }

    /// The time at which its progress must be watched, if it is not watched yet.
    pub fn watched_from(&self) -> Option<Time> {
        self.awaited_since.filter(|_| self.progress.is_none()).map(|since| since.after(PATIENCE))
    }

    /// Stores a permission if it has changed. Returns true if so. A different number of `bystanders` alone is
    /// no change.
    pub fn permit(&mut self, permit: Permit, bystanders: usize, now: Time) -> bool {
        if self.since.is_none() || self.permit.run != permit.run {
            self.since = Some(now);
            self.allowance.turn(permit.run, now);
        }
        self.permit = permit;
        // The level is 1 to 3.
        let level = u64::from(self.level.min(self.grant.max_level).number().unsigned_abs()) << 8;
        let window = u64::from(permit.window.units()) << 24;
        // A running client has no share, so that a change of the share alone does not reach it, and a suspended one keeps
        // the place of its queues.
        let share = if permit.run { u64::from(permit.first) } else { permit.share.units().into() } << 2;
        let word = window | level | share | u64::from(permit.limit) << 1 | u64::from(permit.run);
        if self.stored == Some(word) {
            return false;
        }
        self.stored = Some(word);
        self.generation = self.generation.wrapping_add(1);
        let bystanders = if permit.run { 0 } else { bystanders.min(0xff) as u64 };
        self.page.set_permission(u64::from(self.generation) << 32 | bystanders << 16 | word);
        true
    }
}
