//! Requests of xcli and their replies.

use super::Server;
use crate::access::Asker;
use crate::attachments::Work;
use crate::connection::{Connection, End};
use crate::core::Core;
use crate::error::Refusal;
use crate::list::encode;
use crate::pages::Pages;
use crate::peer;
use crate::throttle::Holder;
use policies::named;
use protocol::control::{EventKind, Policies, Reply, Request};
use protocol::frame::Frame;
use protocol::ids::Pid;
use protocol::time::Time;
use tracing::{info, warn};

impl Server {
    /// Handles a request.
    pub(super) fn ask(&mut self, number: u64, connection: &mut Connection, frame: &Frame) -> Result<(), End> {
        let now = crate::clock::now();
        if self.events.has(number) || self.traces.has(number) {
            return Err(End::Unexpected(frame.kind));
        }
        connection.deadline = None;
        connection.asked_at = now;
        let rate = self.limits.requests_per_second_per_user;
        let holder = Holder::new(connection.who.uid, &connection.grant);
        if connection.grant.administers || self.lists.throttle.admit(&holder, rate, now) {
            return self.carry_out(number, connection, frame, now);
        }
        if self.lists.throttle.keep(number, holder, frame.clone(), now) {
            let (pid, uid) = (connection.pid, connection.who.uid);
            warn!(pid, uid, "a user makes more than {rate} requests in a second: the further ones wait");
        }
        connection.awaits_reply = true;
        Ok(())
    }

    /// Handles requests that have waited because their users make many.
    pub(super) fn ask_delayed(&mut self, now: Time) {
        for (number, frame) in self.lists.throttle.due(self.limits.requests_per_second_per_user, now) {
            let Some(mut connection) = self.connections.remove(&number) else { continue };
            connection.awaits_reply = false;
            let result = self.carry_out(number, &mut connection, &frame, now);
            // More frames may have come with it.
            let result = result.and_then(|()| self.receive(number, &mut connection));
            self.finish(number, connection, result);
        }
    }

    fn carry_out(
        &mut self,
        number: u64,
        connection: &mut Connection,
        frame: &Frame,
        now: Time,
    ) -> Result<(), End> {
        let request = serde_json::from_slice(&frame.payload);
        if let Ok(request) = &request
            && let Err(refusal) = check_right(request, &connection.asker())
        {
            return self.refuse(connection, &refusal);
        }
        match request {
            Ok(Request::List) => self.ask_list(number, connection, now),
            Ok(Request::Configure { of, settings }) => self.ask_configure(connection, of, settings),
            Ok(Request::Reload) => self.ask_reload(number, connection),
            Ok(Request::Config) => {
                let configuration = self.configuration();
                self.answer(connection, &Reply::Config(configuration))
            }
            Ok(Request::Priorities) => {
                let in_force = self.reload.as_ref().map(|reload| &reload.in_force.priorities);
                let names = in_force.cloned().unwrap_or_default();
                self.answer(connection, &Reply::Priorities(names))
            }
            Ok(order @ (Request::Off | Request::On)) => {
                let on = order == Request::On;
                self.core.set_on(on);
                self.note(EventKind::Switched { by: Pid(connection.pid), on });
                info!(pid = connection.pid, "scheduling switched {}", if on { "on" } else { "off" });
                self.decide(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Policies) => {
                let (mut in_force, mut devices) = (self.core.in_force(), self.core.devices());
                if !connection.asker().sees_all() {
                    in_force.iter_mut().for_each(|policy| policy.counted.clear());
                    devices = self.core.devices_for(&connection.asker());
                }
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
                let (by, device) = (Pid(pid), ruling.device);
                self.note(EventKind::Policy { by, policy: Some(policy), device });
                if self.core.reads_nice() {
                    self.read_nice();
                }
                self.decide(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::ResetPolicy { device }) => {
                info!(pid = connection.pid, device = device.0, "own policy of the device removed");
                self.core.reset_policy(device);
                let (by, device) = (Pid(connection.pid), Some(device));
                self.note(EventKind::Policy { by, policy: None, device });
                self.decide(now);
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Hint { of, said }) => match self.core.hint(&connection.asker(), of, &said, now) {
                Ok(()) => {
                    info!(pid = connection.pid, "hints for {of}: {said:?}");
                    self.note_hints(connection, of, &said);
                    match connection.grant.administers {
                        true => self.decide(now),
                        // Many requests of ordinary users cost one decision.
                        false => self.step = Some(Time(0)),
                    }
                    self.answer(connection, &Reply::Done)
                }
                Err(refusal) => self.refuse(connection, &refusal),
            },
            Ok(Request::Expect) => {
                let uid = connection.who.uid;
                let own = self.expected.values().filter(|(_, other)| *other == uid);
                if own.count() >= self.limits.connections_per_user {
                    let refusal = Refusal::TooManyExpected(self.limits.connections_per_user);
                    return self.refuse(connection, &refusal);
                }
                // One process is expected once.
                let pid = connection.pid;
                self.expected.retain(|_, (other, _)| pid == 0 || other.pid() != pid);
                // Without a handle (old kernel and another pid namespace) the server does not wait for the
                // process.
                if let Some(process) = connection.process.take() {
                    self.expected.insert(number, (process, uid));
                }
                self.answer(connection, &Reply::Done)
            }
            Ok(Request::Hold { pid, queues }) => {
                self.ask_attachment(number, connection, pid, Work::Hold(queues))
            }
            Ok(Request::Release { pid, queues }) => {
                self.ask_attachment(number, connection, pid, Work::Release(queues))
            }
            Ok(Request::Events { recent, follow }) => self.ask_events(number, connection, recent, follow),
            Ok(Request::Trace) => {
                // The first reply comes with the next heartbeat.
                self.traces.record(number, connection.asker());
                Ok(())
            }
            Ok(Request::Snapshot { pid }) => self.ask_attachment(number, connection, pid, Work::Snapshot),
            Err(error) => self.refuse(connection, &Refusal::Invalid(error)),
        }
    }

    pub(super) fn answer(&mut self, connection: &mut Connection, reply: &Reply) -> Result<(), End> {
        self.send(connection, encode(reply).into())
    }

    /// Hands a request about any process to its thread, which checks whose process it is.
    fn ask_attachment(
        &mut self,
        number: u64,
        connection: &mut Connection,
        pid: Pid,
        work: Work,
    ) -> Result<(), End> {
        if let Err(refusal) =
            peer::check_namespace(connection.pid).and_then(|()| check_is_outside(connection))
        {
            return self.refuse(connection, &refusal);
        }
        // A user cannot tell a process of somebody else from one that does not exist.
        let (uid, is_limited) = (connection.who.uid, !connection.grant.administers);
        if is_limited && peer::check_may_suspend(uid, pid).is_err() {
            return self.refuse(connection, &Refusal::NoProcess(pid));
        }
        match self.attachments.ask(number, connection.who.uid, pid, work) {
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
            self.note_attachment(number, &reply);
            self.reply_later(number, &reply);
        }
        // A suspended client must not keep others waiting.
        for (_, pages) in self.core.pages() {
            pages.set_held(self.attachments.holds(pages.pid()));
        }
        self.note_use();
    }
}

/// Refuses a request about the programs of all users to a person without the right.
fn check_right(request: &Request, asker: &Asker) -> Result<(), Refusal> {
    match request {
        Request::Off | Request::On | Request::Reload | Request::Config => {
            Core::<Pages>::check_administers(asker)
        }
        Request::SetPolicy(_) | Request::ResetPolicy { .. } => Core::<Pages>::check_sets_policies(asker),
        Request::List
        | Request::Policies
        | Request::Hint { .. }
        | Request::Configure { .. }
        | Request::Expect
        | Request::Events { .. }
        | Request::Trace
        | Request::Hold { .. }
        | Request::Release { .. }
        | Request::Priorities
        | Request::Snapshot { .. } => Ok(()),
    }
}

/// Refuses to suspend processes for a person who connected through an additional socket, such as root of a container.
fn check_is_outside(connection: &Connection) -> Result<(), Refusal> {
    match connection.grant.within {
        None => Ok(()),
        Some(_) => Core::<Pages>::check_administers(&connection.asker()),
    }
}
