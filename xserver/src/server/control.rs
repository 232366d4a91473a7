//! Requests of xcli and their replies.

use super::{CONNECTIONS, SILENCE, Server};
use crate::attachments::Work;
use crate::connection::{Connection, End};
use crate::error::Refusal;
use crate::list::{self, Question};
use crate::peer;
use policies::named;
use protocol::control::{Policies, Reply, Request};
use protocol::frame::Frame;
use protocol::ids::Pid;
use protocol::time::Time;
use tracing::info;

impl Server {
    /// Handles a request.
    pub(super) fn ask(&mut self, number: u64, connection: &mut Connection, frame: &Frame) -> Result<(), End> {
        let now = crate::clock::now();
        connection.deadline = None;
        match serde_json::from_slice(&frame.payload) {
            Ok(Request::List) => {
                self.questions.push(Question::new(number, &self.core, now));
                connection.awaits_reply = true;
                Ok(())
            }
            Ok(order @ (Request::Off | Request::On)) => {
                self.core.set_on(order == Request::On);
                info!(
                    pid = connection.pid,
                    "scheduling switched {}",
                    if order == Request::On { "on" } else { "off" }
                );
                self.decide(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Policies) => {
                let (in_force, devices) = (self.core.in_force(), self.core.devices());
                let policies = Policies { policies: named::all(), in_force, devices };
                self.answer(connection, &Reply::Policies(policies))
            }
            Ok(Request::SetPolicy(ruling)) => {
                let pid = connection.pid;
                let choice = named::choice(&ruling).map_err(Refusal::Policy);
                if let Err(refusal) = choice.and_then(|choice| self.core.set_policy(ruling.device, choice)) {
                    return self.refuse(connection, &refusal);
                }
                let policy = named::text(&ruling);
                match ruling.device {
                    None => info!(pid, "policy set to {policy}"),
                    Some(device) => info!(pid, "policy of device {device} set to {policy}"),
                }
                if self.core.reads_nice() {
                    self.read_nice();
                }
                self.decide(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::ResetPolicy { device }) => {
                info!(pid = connection.pid, device = device.0, "own policy of the device removed");
                self.core.reset_policy(device);
                self.decide(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Hint { of, said }) => match self.core.hint(of, &said, now) {
                Ok(()) => {
                    info!(pid = connection.pid, "hints for {of}: {said:?}");
                    self.decide(now);
                    self.answer(connection, &Reply::Done)
                }
                Err(refusal) => self.refuse(connection, &refusal),
            },
            Ok(Request::Expect) if self.expected.len() >= CONNECTIONS => {
                self.refuse(connection, &Refusal::TooManyExpected(CONNECTIONS))
            }
            Ok(Request::Expect) => {
                // Without a handle (old kernel and another pid namespace) the server does not wait for the
                // process.
                if let Some(process) = connection.process.take() {
                    self.expected.insert(number, process);
                }
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Hold { pid, queues }) => {
                self.ask_attachment(number, connection, pid, Work::Hold(queues))
            }
            Ok(Request::Release { pid, queues }) => {
                self.ask_attachment(number, connection, pid, Work::Release(queues))
            }
            Ok(Request::Snapshot { pid }) => self.ask_attachment(number, connection, pid, Work::Snapshot),
            Err(error) => self.refuse(connection, &Refusal::Invalid(error)),
        }
    }

    fn refuse(&mut self, connection: &mut Connection, refusal: &Refusal) -> Result<(), End> {
        self.answer(connection, &Reply::Error(refusal.to_string()))
    }

    fn answer(&mut self, connection: &mut Connection, reply: &Reply) -> Result<(), End> {
        connection.answer(list::encode(reply))?;
        if connection.has_output() {
            let deadline = crate::clock::now().after(SILENCE);
            connection.deadline = Some(deadline);
            self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        }
        Ok(())
    }

    /// Answers the requests for a list that are complete or late.
    pub(super) fn answer_questions(&mut self, now: Time) {
        let core = &self.core;
        let due: Vec<_> = self.questions.extract_if(.., |question| question.is_due(core, now)).collect();
        if due.is_empty() {
            return;
        }
        self.decide(now);
        for question in due {
            let reply = question.answer(&self.core, self.attachments.held(now), self.started, now);
            self.reply_later(question.connection, &reply);
        }
    }

    /// Sends a delayed reply.
    fn reply_later(&mut self, number: u64, reply: &Reply) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        connection.awaits_reply = false;
        let result = self
            .answer(&mut connection, reply)
            // More frames may have come with the request.
            .and_then(|()| self.receive(number, &mut connection));
        self.finish(number, connection, result);
    }

    /// Hands a request about any process to its thread. Only root and the server's user can connect.
    fn ask_attachment(
        &mut self,
        number: u64,
        connection: &mut Connection,
        pid: Pid,
        work: Work,
    ) -> Result<(), End> {
        if let Err(refusal) = peer::check_namespace(connection.pid) {
            return self.refuse(connection, &refusal);
        }
        match self.attachments.ask(number, connection.uid, pid, work) {
            Ok(None) => {
                connection.awaits_reply = true;
                Ok(())
            }
            Ok(Some(reply)) => self.answer(connection, &reply),
            Err(refusal) => self.refuse(connection, &refusal),
        }
    }

    pub(super) fn handle_attachments(&mut self) {
        for (number, reply) in self.attachments.handle_events(crate::clock::now()) {
            self.reply_later(number, &reply);
        }
        // A suspended client must not keep others waiting.
        for (_, pages) in self.core.pages() {
            pages.set_held(self.attachments.holds(pages.pid()));
        }
        self.note_use();
    }
}
