//! Tells people what happens (`xcli events`). Those who follow get it with the heartbeats, so that no decision waits for a
//! system call.

use super::Server;
use crate::connection::{Connection, End};
use crate::core::{Change, Record};
use crate::error::Refusal;
use crate::events::{Audience, event};
use crate::list::encode;
use protocol::control::{EVENTS, EventKind, HintUpdate, Refused, Reply, Target};
use protocol::ids::Pid;
use protocol::outside::{Fates, SuspendStatus};
use protocol::time::Time;
use tracing::debug;

impl Server {
    /// Handles a request for events.
    pub(super) fn ask_events(
        &mut self,
        number: u64,
        connection: &mut Connection,
        recent: u32,
        follow: bool,
    ) -> Result<(), End> {
        let asker = connection.asker();
        let recent = usize::try_from(recent).unwrap_or(EVENTS);
        let mut events = self.events.recent(&asker, recent);
        if !follow {
            return self.answer(connection, &Reply::Events(events));
        }
        events.extend(self.core.permissions(&asker).map(|(pid, name, run, reason)| {
            event(permission(pid, name, run, policies::explain(&reason)), crate::clock::now())
        }));
        self.events.follow(number, asker);
        self.record_if_wanted();
        // A person can take as long as they like.
        connection.answer(encode(&Reply::Events(events)))
    }

    /// Forgets a connection that may follow.
    pub(super) fn forget_follower(&mut self, number: u64) {
        if self.events.has(number) {
            self.events.forget(number);
            self.record_if_wanted();
        }
    }

    /// Hands the records of the core to the thread that writes them, to the log, and to people who follow.
    pub(super) fn record(&mut self) {
        self.note_guard();
        if !self.core.is_recording() {
            return;
        }
        let records: Vec<_> = self.core.take_records().collect();
        records.iter().for_each(log_decision);
        self.tell_permissions(&records);
        if let Some(recording) = &mut self.recording
            && !records.into_iter().all(|record| recording.write(record))
        {
            self.recording = None;
            self.record_if_wanted();
        }
    }

    /// Lets the core collect records while somebody wants them.
    pub(super) fn record_if_wanted(&mut self) {
        let is_logged = tracing::enabled!(tracing::Level::DEBUG);
        let wanted = self.recording.is_some() || self.events.are_followed() || is_logged;
        match (wanted, self.core.is_recording()) {
            (true, false) => self.core.start_recording_changes(),
            (false, true) => self.core.stop_recording(),
            _ => {}
        }
    }

    /// Tells those who follow whose permission has changed.
    pub(super) fn tell_permissions(&mut self, records: &[Record]) {
        for record in records {
            // Why a suspended program stays so changes with each turn of others.
            if let Change::Permission { client, pid, run, turned: true, reason } = record.change {
                let core = &self.core;
                self.events.tell(|asker| {
                    let (name, reason) = core.told(asker, client, reason)?;
                    Some(event(permission(pid, name, run, policies::explain(&reason)), record.at))
                });
            }
        }
    }

    /// Sends what waits to those who have taken what they got.
    pub(super) fn send_events(&mut self, now: Time) {
        for number in self.events.due() {
            let Some(mut connection) = self.connections.remove(&number) else { continue };
            if connection.is_busy() {
                self.connections.insert(number, connection);
                continue;
            }
            connection.asked_at = now;
            let events = self.events.take(number, now);
            let result = connection.answer(encode(&Reply::Events(events)));
            self.finish(number, connection, result);
        }
    }

    /// Notes an event that concerns no program.
    pub(super) fn note(&mut self, kind: EventKind) {
        self.events.note(Audience::Observers, event(kind, crate::clock::now()));
    }

    /// Notes an event of a program, or what the person of a connection has done.
    pub(super) fn note_of(&mut self, connection: &Connection, kind: EventKind) {
        self.events.note(Self::person(connection), event(kind, crate::clock::now()));
    }

    /// Notes that a program leaves, before the core forgets it.
    pub(super) fn note_left(&mut self, connection: &Connection, end: &End) {
        let Some(client) = connection.client() else { return };
        let Some(name) = self.core.totals(client).map(|(name, ..)| name.to_owned()) else { return };
        self.note_of(connection, EventKind::Left { pid: Pid(connection.pid), name, why: end.to_string() });
    }

    /// Notes a refusal to the process of a connection.
    pub(super) fn note_refused(&mut self, connection: &Connection, what: Refused, why: String) {
        let (pid, uid) = (Pid(connection.pid), connection.who.uid);
        self.note_of(connection, EventKind::Refused { pid, uid, what, why });
    }

    /// Notes that the progress guard lets all programs run.
    pub(super) fn note_guard(&mut self) {
        let runs = self.core.guard_runs();
        if std::mem::replace(&mut self.guard_runs, runs) != runs {
            self.note(EventKind::Guard);
        }
    }

    /// Notes hints from outside.
    pub(super) fn note_hints(&mut self, connection: &Connection, of: Target, said: &[HintUpdate]) {
        let one = |said: &HintUpdate| match said.text() {
            Some(value) => format!("{} {value}", said.spec().name),
            None => format!("{} removed", said.spec().name),
        };
        let hints = said.iter().map(one).collect::<Vec<_>>().join(", ");
        let (by, target) = (Pid(connection.pid), of.to_string());
        self.note_about(connection, of, EventKind::Hinted { by, target, hints });
    }

    /// Notes what a person has done about a target.
    pub(super) fn note_about(&mut self, connection: &Connection, of: Target, kind: EventKind) {
        let audience = of.pid.and_then(|pid| self.audience_of(pid));
        let kind = event(kind, crate::clock::now());
        self.events.note(audience.unwrap_or_else(|| Self::person(connection)), kind);
    }

    /// Notes what a request about any process has done, or that it was refused.
    pub(super) fn note_attachment(&mut self, number: u64, reply: &Reply) {
        let asker = self.connections.get(&number);
        let (kind, audience) = match (reply, asker) {
            (Reply::Fates(Fates { pid, name, queues, held }), _) => {
                let done = queues.iter().filter(|queue| queue.fate == SuspendStatus::Done);
                let (pid, name) = (*pid, name.clone());
                let queues: Vec<u32> = done.map(|queue| queue.queue).collect();
                let Some(first) = queues.first() else { return };
                // A queue that is restored is not evicted any more.
                let kind = match held.contains(first) {
                    true => EventKind::Held { pid, name, queues },
                    false => EventKind::Released { pid, name, queues },
                };
                (kind, self.audience_of(pid).or(asker.map(Self::person)))
            }
            (Reply::Error(why), Some(asker)) => {
                let (pid, uid, what) = (Pid(asker.pid), asker.who.uid, Refused::Request);
                (EventKind::Refused { pid, uid, what, why: why.clone() }, Some(Self::person(asker)))
            }
            _ => return,
        };
        self.events.note(audience.unwrap_or(Audience::Observers), event(kind, crate::clock::now()));
    }

    /// Those who may see the programs of a process.
    fn audience_of(&self, pid: Pid) -> Option<Audience> {
        self.core.owner_of(pid).map(|(uid, grant)| Audience::Owner { uid, grant })
    }

    /// Those who may see the programs of the person of a connection.
    fn person(connection: &Connection) -> Audience {
        Audience::Owner { uid: connection.who.uid, grant: connection.grant.clone() }
    }

    /// Notes a refused connection, whose rights are not known.
    pub(super) fn note_refused_connection(&mut self, pid: u32, uid: u32, why: &str) {
        let (pid, what, why) = (Pid(pid), Refused::Connection, why.to_owned());
        self.note(EventKind::Refused { pid, uid, what, why });
    }

    /// Sends a refusal, and notes it.
    pub(super) fn refuse(&mut self, connection: &mut Connection, refusal: &Refusal) -> Result<(), End> {
        self.note_refused(connection, Refused::Request, refusal.to_string());
        self.answer(connection, &Reply::Error(refusal.to_string()))
    }
}

fn permission(pid: Pid, name: &str, run: bool, why: String) -> EventKind {
    let name = name.to_owned();
    match run {
        true => EventKind::Running { pid, name, why },
        false => EventKind::Suspended { pid, name, why },
    }
}

/// Logs a changed permission with its reason. Other records are in the file of decisions only.
fn log_decision(record: &Record) {
    if let Change::Permission { pid, run, ref reason, .. } = record.change {
        debug!(pid = pid.0, run, why = policies::explain(reason), "decision");
    }
}
