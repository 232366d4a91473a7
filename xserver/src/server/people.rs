//! What people ask for, and their answers.

use super::{CONNECTIONS, SILENCE, Server};
use crate::attachments::Work;
use crate::connection::{Connection, End};
use crate::list::{self, Question};
use crate::peer;
use policies::named;
use protocol::control::{Policies, Reply, Request};
use protocol::frame::Frame;
use protocol::ids::Pid;
use protocol::time::Time;
use tracing::info;

impl Server {
    /// A person asks for something.
    pub(super) fn ask(&mut self, number: u64, connection: &mut Connection, frame: &Frame) -> Result<(), End> {
        let now = crate::now();
        connection.deadline = None;
        match serde_json::from_slice(&frame.payload) {
            Ok(Request::List) => {
                self.questions.push(Question::new(number, &self.core, now));
                connection.waits = true;
                Ok(())
            }
            Ok(order @ (Request::Off | Request::On)) => {
                self.core.set_on(order == Request::On);
                info!(
                    pid = connection.pid,
                    "scheduling is {}",
                    if order == Request::On { "on" } else { "off" }
                );
                self.step = self.core.step(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Policies) => {
                let (in_force, devices) = (self.core.in_force(), self.core.devices());
                let policies = Policies { policies: named::all(), in_force, devices };
                self.answer(connection, &Reply::Policies(policies))
            }
            Ok(Request::SetPolicy(ruling)) => {
                let pid = connection.pid;
                let set =
                    named::choice(&ruling).and_then(|choice| self.core.set_policy(ruling.device, choice));
                if let Err(why) = set {
                    return self.answer(connection, &Reply::Error(why));
                }
                let policy = named::text(&ruling);
                match ruling.device {
                    None => info!(pid, "the policy is {policy}"),
                    Some(device) => info!(pid, "the policy of device {device} is {policy}"),
                }
                if self.core.reads_nice() {
                    self.read_nice();
                }
                self.step = self.core.step(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::ResetPolicy { device }) => {
                info!(
                    pid = connection.pid,
                    device = device.0,
                    "the device has no policy of its own any more"
                );
                self.core.reset_policy(device);
                self.step = self.core.step(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Hint { of, said }) => match self.core.hint(of, &said, now) {
                Ok(()) => {
                    info!(pid = connection.pid, "hinted of {of}: {said:?}");
                    self.step = self.core.step(now);
                    self.answer(connection, &Reply::Done)
                }
                Err(why) => self.answer(connection, &Reply::Error(why)),
            },
            Ok(Request::Expect) if self.expected.len() >= CONNECTIONS => {
                let reason = format!("{CONNECTIONS} programs are expected already");
                self.answer(connection, &Reply::Error(reason))
            }
            Ok(Request::Expect) => {
                // One of which nothing can be known (an old kernel, and another pid namespace) is not waited for.
                if let Some(process) = connection.process.take() {
                    self.expected.insert(number, process);
                }
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Hold { pid, queues }) => {
                self.ask_outside(number, connection, pid, Work::Hold(queues))
            }
            Ok(Request::Release { pid, queues }) => {
                self.ask_outside(number, connection, pid, Work::Release(queues))
            }
            Ok(Request::Snapshot { pid }) => self.ask_outside(number, connection, pid, Work::Snapshot),
            Err(error) => {
                self.answer(connection, &Reply::Error(format!("no request of this server: {error}")))
            }
        }
    }

    fn answer(&mut self, connection: &mut Connection, reply: &Reply) -> Result<(), End> {
        connection.answer(list::encode(reply))?;
        if connection.has_output() {
            let deadline = crate::now().after(SILENCE);
            connection.deadline = Some(deadline);
            self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
        }
        Ok(())
    }

    /// Answers the questions that need not wait any longer.
    pub(super) fn answer_questions(&mut self, now: Time) {
        let core = &self.core;
        let due: Vec<_> = self.questions.extract_if(.., |question| question.is_due(core, now)).collect();
        if due.is_empty() {
            return;
        }
        self.step = self.core.step(now);
        for question in due {
            let reply = question.answer(&self.core, self.attachments.held(now), self.started, now);
            self.give(question.connection, &reply);
        }
    }

    /// Gives an answer that was waited for.
    fn give(&mut self, number: u64, reply: &Reply) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        connection.waits = false;
        let result = self
            .answer(&mut connection, reply)
            // What had come together with the question.
            .and_then(|()| self.receive(number, &mut connection));
        self.settle(number, connection, result);
    }

    /// A person asks for something of a process, client or not; who may is asked already: the server's user, and root.
    fn ask_outside(
        &mut self,
        number: u64,
        connection: &mut Connection,
        pid: Pid,
        work: Work,
    ) -> Result<(), End> {
        if let Err(reason) = peer::counts_as_we_do(connection.pid) {
            return self.answer(connection, &Reply::Error(reason));
        }
        match self.attachments.ask(number, connection.uid, pid, work) {
            Ok(None) => {
                connection.waits = true;
                Ok(())
            }
            Ok(Some(reply)) => self.answer(connection, &reply),
            Err(reason) => self.answer(connection, &Reply::Error(reason)),
        }
    }

    pub(super) fn hear_attachments(&mut self) {
        for (number, reply) in self.attachments.hear(crate::now()) {
            self.give(number, &reply);
        }
        // Whoever cannot get on keeps nobody waiting.
        for (_, pages) in self.core.peers() {
            pages.set_held(self.attachments.holds(pages.pid()));
        }
        self.note_use();
    }
}
