//! One client as the core knows it.

use super::Peer;
use super::progress::{PATIENCE, Progress};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{ClientId, QueueId};
use protocol::operation::{Permit, Reason, Window};
use protocol::page::activity_of;
use protocol::status::{Activity, Queues};
use protocol::time::Time;

/// A queue of a client.
#[derive(Debug)]
pub(super) struct Slot {
    pub queue: QueueId,
    /// Where its state stands on the client's page.
    pub index: u32,
    level: PreemptLevel,
    /// The priority that the client has given it last. What counts may have been hinted from outside.
    pub own_priority: Priority,
    /// What the client has said of it last.
    told: QueueHints,
    /// The state when it was last looked at; a queue that is new has none.
    word: Option<u64>,
    /// What that says. A time in the future was cut to the time of the look, once: cut anew at every look it would
    /// never pass.
    pub activity: Activity,
}

#[derive(Debug)]
pub(super) struct Member<P> {
    pub client: ClientId,
    pub name: String,
    pub peer: P,
    /// In the order of the gang's queues: that of their names.
    pub slots: Vec<Slot>,
    /// What the policy says.
    pub decided: Permit,
    /// What is in force.
    pub permit: Permit,
    /// Since when it may run, or may not; nothing before its first permission.
    pub since: Option<Time>,
    /// What the client has said of its process last.
    pub told: ProcessHints,
    /// The permission as it was stored, without its generation; nothing was, at first.
    stored: Option<u64>,
    generation: u32,
    pub wants: u32,
    /// Its agent shall look at its page at the end of this step.
    pub to_wake: bool,
    /// It has work and is suspended because others stand in its way, since then.
    pub waits_since: Option<Time>,
    /// It stands in the way of others; the first of them waits since then.
    awaited_since: Option<Time>,
    /// Others have waited for long enough that it matters what it completes.
    pub progress: Option<Progress>,
    /// Its process is stopped, so its work counts as none.
    pub yielded: bool,
    /// The preemption level in force for it, and by what or why not.
    pub in_force: PreemptLevel,
    pub how: String,
    /// When the process was last looked up.
    pub looked_up: Time,
}

impl Slot {
    /// Whether the client holds the queue by itself. It goes by its own priority and hears of no other, so that nothing that
    /// the server permits lets the queue launch.
    pub fn is_held(&self) -> bool {
        self.own_priority == Priority::NO_EXECUTE
    }
}

impl<P: Peer> Member<P> {
    pub fn new(client: ClientId, name: String, peer: P) -> Self {
        let permit = Permit { run: true, limit: true, window: Window::OWN, reason: Reason::Unrivalled };
        Self {
            client,
            name,
            peer,
            slots: Vec::new(),
            decided: permit,
            permit,
            since: None,
            told: ProcessHints::default(),
            stored: None,
            generation: 0,
            wants: 0,
            to_wake: false,
            waits_since: None,
            awaited_since: None,
            progress: None,
            yielded: false,
            in_force: PreemptLevel::Block,
            how: String::new(),
            looked_up: Time::default(),
        }
    }

    pub fn has_slot(&self, index: u32) -> bool {
        self.slots.iter().any(|slot| slot.index == index)
    }

    pub fn add(&mut self, queue: QueueId, index: u32, level: PreemptLevel, own_priority: Priority) {
        let place = self.slots.partition_point(|slot| slot.queue < queue);
        let activity = Activity::Idle { since: None };
        let told = QueueHints::default();
        self.slots.insert(place, Slot { queue, index, level, own_priority, told, word: None, activity });
    }

    pub fn set_own_priority(&mut self, queue: QueueId, priority: Priority) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.queue == queue) {
            slot.own_priority = priority;
        }
    }

    pub fn set_level(&mut self, queue: QueueId, level: PreemptLevel) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.queue == queue) {
            slot.level = level;
        }
    }

    /// What the client has said of a queue last.
    pub fn told_of(&mut self, queue: QueueId) -> Option<&mut QueueHints> {
        self.slots.iter_mut().find(|slot| slot.queue == queue).map(|slot| &mut slot.told)
    }

    pub fn remove(&mut self, queue: QueueId) {
        self.slots.retain(|slot| slot.queue != queue);
    }

    /// Reads the state of its queues; says whether something is new.
    pub fn look(&mut self, queues: &mut Queues, now: Time) -> bool {
        let mut news = false;
        for slot in &mut self.slots {
            let word = self.peer.activity(slot.index);
            if slot.word != Some(word) {
                slot.word = Some(word);
                slot.activity = match activity_of(word) {
                    Activity::Ready { since } => Activity::Ready { since: since.min(now) },
                    Activity::Idle { since } => Activity::Idle { since: since.map(|since| since.min(now)) },
                };
                news = true;
                if !self.yielded {
                    // The gang has the queues of the slots.
                    let _ = queues.set_activity(slot.queue, slot.activity);
                }
            }
        }
        if news {
            // Whoever does something is not stopped, and gets on.
            self.set_yielded(false, queues);
            if let Some(progress) = &mut self.progress {
                progress.at = now;
            }
        }
        news
    }

    /// Lets its queues count, or count as idle.
    pub fn set_yielded(&mut self, yielded: bool, queues: &mut Queues) {
        if self.yielded == yielded {
            return;
        }
        self.yielded = yielded;
        for slot in &self.slots {
            let activity = if yielded { Activity::Idle { since: None } } else { slot.activity };
            // The gang has the queues of the slots.
            let _ = queues.set_activity(slot.queue, activity);
        }
    }

    /// Notes since when others wait where it runs because somebody stands in their way.
    pub fn set_awaited(&mut self, since: Option<Time>, now: Time) {
        self.awaited_since = since;
        if since.is_none_or(|since| now < since.after(PATIENCE)) {
            self.progress = None;
        } else if self.progress.is_none() {
            self.progress = Some(Progress { at: now, completed: self.peer.completed() });
        }
    }

    /// Whether it matters what it completes.
    pub fn is_watched(&self) -> bool {
        self.progress.is_some()
    }

    /// When it will matter, if it does not yet.
    pub fn watched_from(&self) -> Option<Time> {
        self.awaited_since.filter(|_| self.progress.is_none()).map(|since| since.after(PATIENCE))
    }

    /// Stores a permission if it is another than before; says whether it was. That there are other `bystanders` is no change
    /// by itself.
    pub fn permit(&mut self, permit: Permit, bystanders: usize, now: Time) -> bool {
        if self.since.is_none() || self.permit.run != permit.run {
            self.since = Some(now);
        }
        self.permit = permit;
        let level = self.slots.iter().map(|slot| slot.level).max().unwrap_or(PreemptLevel::Block);
        // 1 to 3.
        let level = u64::from(level.number().unsigned_abs()) << 8;
        let window = u64::from(permit.window.units()) << 24;
        let word = window | level | u64::from(permit.limit) << 1 | u64::from(permit.run);
        if self.stored == Some(word) {
            return false;
        }
        self.stored = Some(word);
        self.generation = self.generation.wrapping_add(1);
        let bystanders = if permit.run { 0 } else { bystanders.min(0xff) as u64 };
        self.peer.set_permission(u64::from(self.generation) << 32 | bystanders << 16 | word);
        true
    }
}
