//! Answers requests for the list of clients. Those of one person that are due at the same time share one encoding, and
//! lists take a tenth of the deciding thread's time at most.

use super::Server;
use crate::connection::{Connection, End};
use crate::error::Refusal;
use crate::list::{Answer, Question, UNREAD, encode};
use protocol::control::Reply;
use protocol::ids::{ClientId, Pid};
use protocol::time::Time;
use std::collections::HashMap;
use std::sync::Arc;

impl Server {
    /// Handles a request for the list. The reply comes later.
    pub(super) fn ask_list(
        &mut self,
        number: u64,
        connection: &mut Connection,
        now: Time,
    ) -> Result<(), End> {
        if !connection.grant.administers && self.lists.is_full() {
            return self.refuse(connection, &Refusal::TooManyUnread(UNREAD >> 20));
        }
        self.lists.waiting.push(Question::new(number, connection.asker(), &self.core, now));
        connection.awaits_reply = true;
        Ok(())
    }

    /// Answers the requests that are complete or late.
    pub(super) fn answer_questions(&mut self, now: Time) {
        self.ask_delayed(now);
        if now < self.lists.not_before {
            return;
        }
        let core = &self.core;
        let due: Vec<_> = self.lists.waiting.extract_if(.., |question| question.is_due(core, now)).collect();
        if due.is_empty() {
            return;
        }
        let begun = crate::clock::now();
        self.decide(now);
        let totals = self.core.totals_at(now);
        let cgroups: Option<HashMap<ClientId, String>> = self.access.is_shared().then(|| {
            let all = self.connections.values();
            all.filter_map(|other| Some((other.client()?, other.who.cgroup.clone()?))).collect()
        });
        let mut made: Vec<(&Question, Arc<[u8]>)> = Vec::new();
        for question in &due {
            // All of them have asked for reports by now, and a list says which reports are old.
            let same = made.iter().find(|(other, _)| other.asker.sees_the_same_as(&question.asker));
            let list = same.map(|(_, list)| list.clone()).unwrap_or_else(|| {
                let fresh = question.fresh(&self.core);
                let mut held = self.attachments.held(now);
                if !question.asker.sees_all() {
                    held.retain(|held| self.is_own(question, held.pid));
                }
                let (core, asker, started) = (&self.core, &question.asker, self.started);
                let (fresh, totals, cgroups) = (&fresh, &totals, cgroups.as_ref());
                let outsiders = &self.outsiders;
                let answer = Answer { core, asker, fresh, held, cgroups, totals, outsiders, started, now };
                encode(&answer.reply()).into()
            });
            made.push((question, list));
        }
        let made: Vec<_> = made.into_iter().map(|(question, list)| (question.connection, list)).collect();
        for (number, list) in made {
            self.lists.note(&list);
            self.send_later(number, list);
        }
        self.lists.rest(begun, crate::clock::now());
    }

    /// Returns true if a suspended process belongs to the person.
    fn is_own(&self, question: &Question, pid: Pid) -> bool {
        question.asker.grant.within.is_none()
            && crate::peer::check_may_suspend(question.asker.uid, pid).is_ok()
    }

    /// Sends a delayed reply.
    pub(super) fn reply_later(&mut self, number: u64, reply: &Reply) {
        self.send_later(number, encode(reply).into());
    }

    fn send_later(&mut self, number: u64, frame: Arc<[u8]>) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        connection.awaits_reply = false;
        let result = self
            .send(&mut connection, frame)
            // More frames may have come with the request.
            .and_then(|()| self.receive(number, &mut connection));
        self.finish(number, connection, result);
    }

    /// Starts to send a reply.
    pub(super) fn send(&mut self, connection: &mut Connection, frame: Arc<[u8]>) -> Result<(), End> {
        connection.answer(frame)?;
        if connection.has_output() {
            let deadline = crate::clock::now().after(super::SILENCE);
            connection.deadline = Some(deadline);
            self.note_deadline(deadline);
        }
        Ok(())
    }
}
