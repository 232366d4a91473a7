//! Accepts and refuses connections, by the rules and by what one program or one user can take.

use super::{EventFlags, KINDS, LISTENERS, PIDFD, SILENCE, SOCKET, Server, watch};
use crate::connection::{Connection, End, Stage};
use crate::core::NoRoom;
use crate::limits::{CONNECTIONS, REQUESTS, REQUESTS_PER_USER, RESERVED, RESERVED_REQUESTS};
use crate::list::encode;
use crate::peer::{self, Credentials};
use crate::throttle::Holder;
use host::handle::Handle;
use protocol::control::{Refused, Reply};
use protocol::message::ToClient;
use protocol::time::Time;
use rustix::event::epoll::{self, EventData};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// The most connections accepted before other events are handled.
const ACCEPTS: usize = 16;
/// The least time between two lines of the log about refused connections.
const QUIET: Duration = Duration::from_secs(1);

impl Server {
    /// Accepts the connections that wait on a socket.
    pub(super) fn accept(&mut self, listener: u64) {
        let Some(listener) = usize::try_from(listener).ok().and_then(|index| self.listeners.get(index))
        else {
            return;
        };
        let path = listener.path.clone();
        let mut accepted = Vec::new();
        for _ in 0..ACCEPTS {
            match accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => accepted.push(socket),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    warn!(%error, "cannot accept a connection; retrying at the next heartbeat");
                    self.exhausted = self.listen_for(EventFlags::empty());
                    break;
                }
            }
        }
        for socket in accepted {
            self.admit(socket, &path);
        }
    }

    /// Waits for connections again.
    pub(super) fn listen_again(&mut self) {
        self.exhausted = !self.listen_for(EventFlags::IN);
    }

    /// Sets the events of all listeners: without a free descriptor they would stay readable. Returns true on success.
    fn listen_for(&self, events: EventFlags) -> bool {
        self.listeners.iter().zip(LISTENERS..).all(|(listener, token)| {
            epoll::modify(&self.epoll, &listener.socket, EventData::new_u64(token), events).is_ok()
        })
    }

    /// Accepts or refuses a connection.
    fn admit(&mut self, socket: OwnedFd, path: &Arc<Path>) {
        let now = crate::clock::now();
        let who = match peer::credentials(&socket) {
            Ok(who) => who,
            Err(error) => return debug!(%error, "connection without credentials"),
        };
        let identity = match self.access.is_shared() {
            true => peer::identity(&socket, &who, path),
            false => peer::plain_identity(&who, path),
        };
        let (pid, uid) = (who.pid, who.uid);
        let grant = match self.access.judge(&identity) {
            Ok(grant) => grant,
            Err(why) => {
                self.log_refusal(pid, uid, &why, now);
                return refuse_on(&socket, &why);
            }
        };
        let mut connection = Connection::new(socket, pid, identity, grant, now, SILENCE);
        if let Err(why) = self.check_limits(&connection) {
            self.log_refusal(pid, uid, &why, now);
            return connection.refuse_for(&why);
        }
        if let Err(error) = self.register(&mut connection, &who) {
            return debug!(pid, %error, "process ended before it was accepted");
        }
        self.deadline = [self.deadline, connection.deadline].into_iter().flatten().min();
        if self.connections.is_empty() {
            self.beat = now;
        }
        self.unused_since = None;
        self.connections.insert(self.last_connection, connection);
    }

    /// Logs a refused connection, one a second at most: others must stay visible.
    fn log_refusal(&mut self, pid: u32, uid: u32, why: &str, now: Time) {
        self.core.count().refused_connections += 1;
        if now < self.refusal_logged.after(QUIET) {
            self.refusals += 1;
            return;
        }
        self.refusal_logged = now;
        self.note_refused_connection(pid, uid, why);
        match std::mem::take(&mut self.refusals) {
            0 => warn!(pid, uid, "connection refused: {why}"),
            more => warn!(pid, uid, more, "connection refused: {why}"),
        }
    }

    /// Refuses a connection beyond a limit of its process, its user or the server.
    fn check_limits(&self, new: &Connection) -> Result<(), String> {
        let same_user = |other: &&Connection| new.is_one_with(other);
        let same_process = |other: &&Connection| new.pid != 0 && other.pid == new.pid;
        let count = |which: &dyn Fn(&&Connection) -> bool| self.connections.values().filter(which).count();
        let most = self.limits.connections_per_process;
        if count(&same_process) >= most {
            return Err(format!(
                "process {} has {most} connections, which is the maximum for one process",
                new.pid
            ));
        }
        let most = self.limits.connections_per_user;
        if !new.grant.administers && count(&same_user) >= most {
            return Err(format!(
                "user {} has {most} connections, which is the maximum for one user",
                new.who.uid
            ));
        }
        // Where root is one of many users, some room is kept for it.
        let is_reserved = self.access.is_shared() && !new.grant.administers;
        let most = if is_reserved { CONNECTIONS - RESERVED } else { CONNECTIONS };
        if self.connections.len() >= most {
            return Err(format!("the server has {most} connections, which is the maximum"));
        }
        Ok(())
    }

    fn register(&mut self, connection: &mut Connection, who: &Credentials) -> rustix::io::Result<()> {
        connection.process = peer::process(&connection.socket, who)?;
        self.last_connection += 1;
        let token = self.last_connection * KINDS;
        watch(&self.epoll, connection.socket.as_fd(), token + SOCKET, EventFlags::IN)?;
        if let Some(pidfd) = connection.process.as_ref().and_then(Handle::descriptor) {
            // After a failure, closing the socket removes it from the epoll.
            watch(&self.epoll, pidfd, token + PIDFD, EventFlags::IN)?;
        }
        Ok(())
    }

    /// Makes room for a connection of xcli: the one that has been idle for longest gives way, first of the same user.
    ///
    /// # Errors
    /// All of them wait for a reply. The reason has been sent.
    pub(super) fn make_room_for_request(&mut self, new: &Connection) -> Result<(), End> {
        let controls = || self.connections.iter().filter(|(_, other)| matches!(other.stage, Stage::Control));
        let own = || controls().filter(|(_, other)| new.is_one_with(other));
        let is_limited = self.access.is_shared() && !new.grant.administers;
        let most = if is_limited { REQUESTS - RESERVED_REQUESTS } else { REQUESTS };
        let is_full = controls().count() >= most;
        let user_is_full = is_limited && own().count() >= REQUESTS_PER_USER;
        if !is_full && !user_is_full {
            return Ok(());
        }
        let oldest = |(number, other): (&u64, &Connection)| {
            other.is_idle_control().then_some((other.asked_at, *number))
        };
        let idle = own().filter_map(oldest).min();
        let idle = idle.or_else(|| controls().filter(|_| !user_is_full).filter_map(oldest).min());
        if let Some((_, number)) = idle {
            self.close(number, &End::MadeRoom);
            return Ok(());
        }
        let reason = match user_is_full {
            true => {
                let holder = Holder::new(new.who.uid, &new.grant);
                let rate = self.limits.requests_per_second_per_user;
                let why = match self.lists.throttle.has_waiting(&holder) {
                    true => format!(" (a user gets {rate} requests in a second)"),
                    false => String::new(),
                };
                format!(
                    "{REQUESTS_PER_USER} requests of your user wait for a reply, which is the maximum{why}"
                )
            }
            false => format!("the server handles {most} requests, which is the maximum"),
        };
        new.refuse(&encode(&Reply::Error(reason.clone())));
        Err(End::Refused(reason))
    }

    /// Logs that there was no room for a queue, once for each connection.
    pub(super) fn note_refused_queue(&mut self, connection: &mut Connection, limit: &NoRoom) {
        self.core.count().refused_queues += 1;
        if !std::mem::replace(&mut connection.was_refused_a_queue, true) {
            let (pid, uid) = (connection.pid, connection.who.uid);
            warn!(pid, uid, "queue refused, so its program runs unscheduled: {limit}");
            self.note_refused(connection, Refused::Queue, limit.to_string());
        }
    }

    /// The earliest time from now by which a connection must have done something.
    pub(super) fn note_deadline(&mut self, deadline: Time) {
        self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
    }
}

/// Sends the reason of a refusal, if the socket accepts it.
fn refuse_on(socket: &OwnedFd, reason: &str) {
    let frame = ToClient::Refused { reason: reason.to_owned() }.encode();
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    let _ = rustix::net::send(socket, &frame, flags);
}
