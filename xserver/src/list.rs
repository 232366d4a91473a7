//! Requests for the list of clients, which wait for fresh numbers of each client.

use crate::access::Asker;
use crate::core::Core;
use crate::outsiders::Outsiders;
use crate::pages::Pages;
use crate::throttle::Throttle;
use protocol::control::{List, Reply, Server};
use protocol::frame::{Frame, REPLY_LIMIT};
use protocol::ids::{ClientId, Pid};
use protocol::message::REPLY;
use protocol::outside::Held;
use protocol::time::Time;
use protocol::totals::Totals;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The time limit for the answers of the clients.
const PATIENCE: Duration = Duration::from_millis(50);

/// A request that waits for the clients' numbers.
#[derive(Debug)]
pub(crate) struct Question {
    /// The connection of the request.
    pub connection: u64,
    /// The person who asks.
    pub asker: Asker,
    /// The clients, each with the number of its report.
    asked: Vec<(ClientId, u32)>,
    /// The time at which it is answered in any case.
    pub until: Time,
}

impl Question {
    /// Asks every client for a report that the person may see.
    pub fn new(connection: u64, asker: Asker, core: &Core<Pages>, now: Time) -> Self {
        let seen = core.pages_for(&asker);
        let asked = seen.map(|(client, pages)| (client, pages.ask_report())).collect();
        Self { connection, asker, asked, until: now.after(PATIENCE) }
    }

    /// Returns true if every connected client has answered, or if the time is over.
    pub fn is_due(&self, core: &Core<Pages>, now: Time) -> bool {
        let answered = |&(client, number): &(ClientId, u32)| {
            core.page(client).is_none_or(|pages| pages.has_reported(number))
        };
        now >= self.until || self.asked.iter().all(answered)
    }

    /// Returns true for each client that has answered.
    pub fn fresh(&self, core: &Core<Pages>) -> HashSet<ClientId> {
        let answered = |&&(client, number): &&(ClientId, u32)| {
            core.page(client).is_some_and(|pages| pages.has_reported(number))
        };
        self.asked.iter().filter(answered).map(|(client, _)| *client).collect()
    }
}

/// The list for a person. `fresh` has the clients whose numbers are up to date. A person who may not see all programs does
/// not see what the policies have counted either.
pub(crate) struct Answer<'a> {
    pub core: &'a Core<Pages>,
    pub asker: &'a Asker,
    pub fresh: &'a HashSet<ClientId>,
    pub held: Vec<Held>,
    /// The users and control groups of the clients, from a server for all users.
    pub cgroups: Option<&'a HashMap<ClientId, String>>,
    /// What the server has counted; only who may see all programs gets it.
    pub totals: &'a Totals,
    pub outsiders: &'a Outsiders,
    pub started: Time,
    pub now: Time,
}

impl Answer<'_> {
    /// The reply.
    pub fn reply(self) -> Reply {
        let Self { core, asker, fresh, held, cgroups, totals, outsiders, started, now } = self;
        let mut clients: Vec<_> = core.clients(asker).collect();
        for client in &mut clients {
            client.fresh = fresh.contains(&client.client);
            if let Some(cgroups) = cgroups {
                client.owner = core.owner(client.client);
                if let Some(owner) = &mut client.owner {
                    owner.cgroup = cgroups.get(&client.client).cloned();
                }
            }
        }
        let mut policies = core.in_force();
        let partial = !asker.sees_all();
        if partial {
            policies.iter_mut().for_each(|policy| policy.counted.clear());
        }
        let is_client = |pid| core.pages().any(|(_, pages)| pages.pid() == pid);
        let server = Server {
            pid: Pid(std::process::id()),
            now,
            policy: policies.first().map(|first| first.ruling.policy.clone()).unwrap_or_default(),
            policies,
            on: core.is_on(),
            uptime_ms: u64::try_from(now.since(started).as_millis()).unwrap_or(u64::MAX),
            // Who asks often could tell from these when others act.
            guard_runs: if partial { 0 } else { core.guard_runs() },
            decisions: if partial { 0 } else { core.decisions() },
            totals: (!partial).then(|| totals.clone()),
            outsiders: if partial { Vec::new() } else { outsiders.list(is_client) },
        };
        Reply::List(List { server, clients, held, partial })
    }
}

/// The most bytes of lists that connections have not taken.
pub(crate) const UNREAD: usize = 64 << 20;
/// The server waits for so many times as long as it took to make lists before it makes others. So lists take a tenth of the
/// time, or more if one takes longer than a ninth of [`LONGEST_PAUSE`].
const PAUSE: u32 = 9;
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The requests that wait, and the lists that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub waiting: Vec<Question>,
    /// The requests of any kind beyond the rate of their users.
    pub throttle: Throttle,
    /// The encoded lists that some connection still has.
    sent: Vec<Weak<[u8]>>,
    /// The time before which none is made.
    pub not_before: Time,
}

impl Lists {
    /// Forgets the requests of a connection.
    pub fn forget(&mut self, connection: u64) {
        self.waiting.retain(|question| question.connection != connection);
        self.throttle.forget(connection);
    }

    /// The time of the next answer, if nothing happens before.
    pub fn next(&self) -> Option<Time> {
        let until = self.waiting.iter().map(|question| question.until).min();
        until.map(|until| until.max(self.not_before))
    }

    /// Returns true if connections have not taken so many bytes that no more lists are made.
    pub fn is_full(&mut self) -> bool {
        self.sent.retain(|list| list.strong_count() > 0);
        self.sent.iter().filter_map(Weak::upgrade).map(|list| list.len()).sum::<usize>() >= UNREAD
    }

    /// Notes a list that a connection takes.
    pub fn note(&mut self, list: &Arc<[u8]>) {
        if self.sent.iter().all(|other| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(list))) {
            self.sent.push(Arc::downgrade(list));
        }
    }

    /// Notes that it took from one time to another to make lists.
    pub fn rest(&mut self, begun: Time, end: Time) {
        self.not_before = end.after((end.since(begun) * PAUSE).min(LONGEST_PAUSE));
    }
}

/// Encodes a reply as a frame.
pub(crate) fn encode(reply: &Reply) -> Vec<u8> {
    match serde_json::to_vec(reply) {
        Ok(payload) if payload.len() <= REPLY_LIMIT => Frame::encode(REPLY, &payload),
        _ => Frame::encode(REPLY, br#"{"error":"the reply is too long"}"#),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_is_made_while_too_many_bytes_are_not_taken() {
        let mut lists = Lists::default();
        let all: Vec<Arc<[u8]>> = (0..4).map(|_| vec![0; UNREAD / 4].into()).collect();
        for list in &all[..3] {
            lists.note(list);
        }
        // Several connections share one.
        lists.note(&all[0]);
        assert!(!lists.is_full());
        lists.note(&all[3]);
        assert!(lists.is_full());
        let rest = all[1..].to_vec();
        drop(all);
        assert!(!lists.is_full(), "one was taken");
        assert_eq!(rest.len(), 3);
    }

    #[test]
    fn lists_take_a_tenth_of_the_time() {
        let mut lists = Lists::default();
        let ms = |ms: u64| Time(ms * 1_000_000);
        lists.rest(ms(100), ms(110));
        assert_eq!(lists.not_before, ms(200));
        lists.rest(ms(100), ms(1_100));
        assert_eq!(lists.not_before, ms(2_100), "the pause has a limit");
    }
}
