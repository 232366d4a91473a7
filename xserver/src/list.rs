//! Requests for the list of clients, which wait for fresh numbers of each client.

use crate::core::Core;
use crate::pages::Pages;
use protocol::control::{List, Reply, Server};
use protocol::frame::{Frame, REPLY_LIMIT};
use protocol::ids::{ClientId, Pid};
use protocol::message::REPLY;
use protocol::outside::Held;
use protocol::time::Time;
use std::time::Duration;

/// The time limit for the answers of the clients.
const PATIENCE: Duration = Duration::from_millis(50);

/// A request that waits for the clients' numbers.
#[derive(Debug)]
pub(crate) struct Question {
    /// The connection of the request.
    pub connection: u64,
    /// The clients, each with the number of its report.
    asked: Vec<(ClientId, u32)>,
    /// The time at which it is answered in any case.
    pub until: Time,
}

impl Question {
    /// Asks every client for a report.
    pub fn new(connection: u64, core: &Core<Pages>, now: Time) -> Self {
        let asked = core.pages().map(|(client, pages)| (client, pages.ask_report())).collect();
        Self { connection, asked, until: now.after(PATIENCE) }
    }

    /// Returns true if every connected client has answered, or if the time is over.
    pub fn is_due(&self, core: &Core<Pages>, now: Time) -> bool {
        let answered = |&(client, number): &(ClientId, u32)| {
            core.page(client).is_none_or(|pages| pages.has_reported(number))
        };
        now >= self.until || self.asked.iter().all(answered)
    }

    /// The reply.
    pub fn answer(&self, core: &Core<Pages>, held: Vec<Held>, started: Time, now: Time) -> Reply {
        let mut clients: Vec<_> = core.clients().collect();
        for client in &mut clients {
            let asked = self.asked.iter().find(|(asked, _)| *asked == client.client);
            client.fresh = asked.is_some_and(|(_, number)| {
                core.page(client.client).is_some_and(|pages| pages.has_reported(*number))
            });
        }
        let policies = core.in_force();
        let server = Server {
            pid: Pid(std::process::id()),
            now,
            policy: policies.first().map(|first| first.ruling.policy.clone()).unwrap_or_default(),
            policies,
            on: core.is_on(),
            uptime_ms: u64::try_from(now.since(started).as_millis()).unwrap_or(u64::MAX),
            guard_runs: core.guard_runs(),
            decisions: core.decisions(),
        };
        Reply::List(List { server, clients, held })
    }
}

pub(crate) fn encode(reply: &Reply) -> Vec<u8> {
    match serde_json::to_vec(reply) {
        Ok(payload) if payload.len() <= REPLY_LIMIT => Frame::encode(REPLY, &payload),
        _ => Frame::encode(REPLY, br#"{"error":"the reply is too long"}"#),
    }
}
