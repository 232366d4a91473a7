//! The list of clients for users, who see what they may see.

use super::client::ClientState;
use super::{ClientPage, Core};
use crate::access::{Asker, Grant};
use protocol::codes::PreemptLevel;
use protocol::control::{Client, LACKS_TRACES, Owner, Preemption, Queue, QueueState};
use protocol::ids::{ClientId, DeviceId, Pid};
use protocol::operation::{Permit, Reason};
use protocol::page::TAKES_TRACES;
use protocol::slow::SlowPath;
use protocol::status::{Activity, Gang};
use std::collections::BTreeSet;

impl<P: ClientPage> Core<P> {
    /// The clients that this person may see, each with its place.
    pub(super) fn seen_by(&self, asker: &Asker) -> impl Iterator<Item = (usize, (&ClientState<P>, &Gang))> {
        let all = self.clients.iter().zip(self.gangs()).enumerate();
        all.filter(|(_, (state, _))| asker.sees(state.uid, &state.grant))
    }

    /// The clients that this person may see and their pages, in order of connection.
    pub fn pages_for(&self, asker: &Asker) -> impl Iterator<Item = (ClientId, &P)> {
        self.seen_by(asker).map(|(_, (state, _))| (state.client, &state.page))
    }

    /// The devices on which clients that this person may see have queues, sorted.
    pub fn devices_for(&self, asker: &Asker) -> Vec<DeviceId> {
        let queues = self.seen_by(asker).flat_map(|(_, (_, gang))| gang.queues.iter());
        let devices: BTreeSet<_> = queues.map(|queue| queue.device).collect();
        devices.into_iter().collect()
    }

    /// Returns true if this person may see all programs of a process, which can have clients of several users.
    fn shows(&self, asker: &Asker, pid: Pid) -> bool {
        let mut same = self.clients.iter().zip(self.gangs()).filter(|(_, gang)| gang.pid == pid).peekable();
        same.peek().is_some() && same.all(|(state, _)| asker.sees(state.uid, &state.grant))
    }

    /// The name of a client and a reason for its permission, as this person may see them.
    pub fn told(&self, asker: &Asker, client: ClientId, reason: Reason) -> Option<(&str, Reason)> {
        let state = &self.clients[self.find(client)?];
        let is_seen = asker.sees(state.uid, &state.grant);
        is_seen.then(|| (state.name.as_str(), hide_rival(reason, |pid| self.shows(asker, pid))))
    }

    /// Each client that this person may see, with its process and its name.
    pub fn seen(&self, asker: &Asker) -> impl Iterator<Item = (ClientId, Pid, &str)> {
        self.seen_by(asker).map(|(_, (state, gang))| (gang.client, gang.pid, state.name.as_str()))
    }

    /// Process, name, permission and reason of each client that this person may see.
    pub fn permissions(&self, asker: &Asker) -> impl Iterator<Item = (Pid, &str, bool, Reason)> {
        self.seen_by(asker).map(|(_, (state, gang))| {
            let reason = hide_rival(state.permit.reason, |pid| self.shows(asker, pid));
            (gang.pid, state.name.as_str(), state.permit.run, reason)
        })
    }

    /// The user of the first client of a process, and what that user may do.
    pub fn owner_of(&self, pid: Pid) -> Option<(u32, Grant)> {
        let mut all = self.clients.iter().zip(self.gangs());
        all.find(|(_, gang)| gang.pid == pid).map(|(state, _)| (state.uid, state.grant.clone()))
    }

    /// The list of clients as of the last step, as this person may see it. The caller sets `fresh` and `owner`.
    pub fn clients(&self, asker: &Asker) -> impl Iterator<Item = Client> {
        let mut seen: BTreeSet<Pid> = self.seen_by(asker).map(|(_, (_, gang))| gang.pid).collect();
        // A process can have clients of several users.
        for (state, gang) in self.clients.iter().zip(self.gangs()) {
            if !asker.sees(state.uid, &state.grant) {
                seen.remove(&gang.pid);
            }
        }
        self.seen_by(asker).map(move |(_, (state, gang))| {
            let reason = hide_rival(state.permit.reason, |pid| seen.contains(&pid));
            let permit = Permit { reason, ..state.permit };
            Client {
                client: state.client,
                pid: gang.pid,
                name: state.name.clone(),
                owner: None,
                hints: gang.hints,
                given: state.given(),
                permit,
                since: state.since.unwrap_or_default(),
                reason: policies::explain(&permit.reason),
                yielded: state.yielded,
                fresh: false,
                waiting: Some(state.waiting.show(self.waiting_added)),
                preemption: Preemption {
                    in_force: state.level_in_force(),
                    how: state.how.clone(),
                    ..state.page.preemption()
                },
                preemptions: Some(state.tally.preemptions),
                completed: Some(state.page.completed()),
                slow_path: SlowPath::ALL
                    .iter()
                    .map(|reason| (reason.name().to_owned(), state.page.slow_path(*reason)))
                    .filter(|(_, count)| *count != 0)
                    .collect(),
                lacks: state.lacks(),
                queues: state
                    .slots
                    .iter()
                    .zip(gang.queues.iter())
                    .map(|(slot, status)| {
                        // The permission applies to the process, which does not see priorities of `xcli hint`.
                        let runs = state.permit.run && !slot.is_held();
                        let queue_state = match (slot.activity, runs) {
                            (Activity::Idle { .. }, _) => QueueState::Idle,
                            (Activity::Ready { .. }, true) => QueueState::Running,
                            (Activity::Ready { .. }, false) => QueueState::Suspended,
                        };
                        let counts = state.page.counts(slot.index);
                        let status =
                            protocol::status::QueueStatus { activity: slot.activity, counts, ..*status };
                        // The level in force is the requested one or higher: without draining, level 2 is level
                        // 3.
                        let in_force = match status.level {
                            PreemptLevel::Block => PreemptLevel::Block,
                            _ => state.level_in_force(),
                        };
                        let times = slot.times.show(
                            &state.allowance,
                            state.page.worked_ns(slot.index),
                            self.waiting_added,
                        );
                        Queue {
                            status,
                            in_force,
                            state: queue_state,
                            own_priority: Some(slot.own_priority),
                            times: Some(times),
                        }
                    })
                    .collect(),
            }
        })
    }

    /// The user of a client, and what the user may do.
    pub fn owner(&self, client: ClientId) -> Option<Owner> {
        let index = self.find(client)?;
        let Grant { rule, max_priority, max_share, max_level, .. } = &self.clients[index].grant;
        let (uid, rule) = (self.clients[index].uid, rule.to_string());
        let (max_priority, max_share, max_level) = (*max_priority, *max_share, *max_level);
        Some(Owner { uid, rule, max_priority, max_share, max_level, cgroup: None })
    }
}

impl<P: ClientPage> ClientState<P> {
    /// The features that the library of the program does not have.
    fn lacks(&self) -> Vec<String> {
        // A program says what it takes before it announces a queue.
        let is_known = !self.slots.is_empty();
        let lacks = is_known && self.page.takes() & TAKES_TRACES == 0;
        lacks.then(|| LACKS_TRACES.to_owned()).into_iter().collect()
    }
}

/// Returns a reason that names no process that may not be seen.
fn hide_rival(reason: Reason, is_seen: impl FnOnce(Pid) -> bool) -> Reason {
    match reason {
        Reason::Outranked { by, own } if !is_seen(by.pid) => {
            Reason::OutrankedByOthers { device: by.device, own }
        }
        _ => reason,
    }
}
