//! Lets programs write traces for people who record (`xcli trace record`), and hands these people the files, with the
//! heartbeats.

use super::Server;
use crate::core::ClientPage as _;
use crate::list::encode;
use protocol::control::{Reply, TracedProgram};
use protocol::ids::{ClientId, Pid};
use protocol::page::TAKES_TRACES;
use protocol::time::Time;
use std::time::Duration;

/// The time after which a program says on its page that it takes traces, if it ever does. It maps the page after it has
/// connected.
const PATIENCE: Duration = Duration::from_secs(1);

impl Server {
    /// Tells those who record about programs that they do not know yet, and programs that nobody reads any more to stop.
    pub(super) fn send_traces(&mut self, now: Time) {
        for (number, asker) in self.traces.recorders() {
            let seen: Vec<_> = self
                .core
                .seen(&asker)
                .filter(|(client, ..)| !self.traces.was_told(number, *client))
                .map(|(client, pid, name)| (client, pid, name.to_owned()))
                .collect();
            for program in seen {
                if self.connections.get(&number).is_none_or(|reader| reader.is_busy()) {
                    break;
                }
                self.send_trace(number, program, now);
            }
        }
        for client in self.traces.unread() {
            if let Some(connection) = self.connections.values().find(|other| other.client() == Some(client)) {
                self.traces.end(client, &connection.socket);
            }
        }
    }

    fn send_trace(&mut self, number: u64, (client, pid, name): (ClientId, Pid, String), now: Time) {
        let takes =
            self.core.pages().any(|(other, pages)| other == client && pages.takes() & TAKES_TRACES != 0);
        let Some(program) = self.connections.values().find(|other| other.client() == Some(client)) else {
            return;
        };
        let file = match takes {
            true => self.traces.read(client, &program.socket, number).map_err(|error| error.to_string()),
            false if now < program.asked_at.after(PATIENCE) => return,
            false => Err("its library is older than this server and writes no trace".to_owned()),
        };
        self.traces.tell(number, client);
        let Some(mut reader) = self.connections.remove(&number) else { return };
        reader.asked_at = now;
        let (file, missing) = match file {
            Ok(file) => (Some(file), None),
            Err(why) => (None, Some(why)),
        };
        let reply = encode(&Reply::Traced(TracedProgram { client, pid, name, missing }));
        let result = reader.answer_with(reply, file);
        self.finish(number, reader, result);
    }
}
