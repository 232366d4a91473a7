//! The loop: one thread that hears everything and decides.

mod around;
mod people;

use crate::alarm::Alarm;
use crate::attachments::Attachments;
use crate::connection::{Connection, End, Stage};
use crate::core::{Core, Settings};
use crate::costs::Costs;
use crate::list::{self, Question};
use crate::pages::{Pages, send_welcome};
use crate::peer::{self, Credentials};
use crate::place::{Listener, Place};
use crate::power::{Hwmon, PowerMeter, Reader};
use anyhow::Context;
use host::handle::Handle;
use host::thread_qos;
use policies::Choice;
use protocol::control::Reply;
use protocol::frame::{Frame, FrameError};
use protocol::ids::{ClientId, Pid};
use protocol::message::{REQUEST, ToClient, ToServer};
use protocol::page::HEARTBEAT;
use protocol::status::Counts;
use protocol::time::Time;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Connections at a time; whoever comes then is refused.
const CONNECTIONS: usize = 1_024;
/// People's connections among them: each may hold an answer that lists everybody.
const PEOPLE: usize = 64;
/// For how long a connection may say nothing at first, or leave its answer alone.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is looked for what no event tells.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// Connections accepted in one go.
const ACCEPTS: usize = 16;
/// Events heard in one go.
const EVENTS: usize = 64;

/// Who an event is of: the connection's number, which is never used again, above [`SOCKET`], [`PIDFD`] or [`EVENTFD`].
const SOCKET: u64 = 0;
const PIDFD: u64 = 1;
const EVENTFD: u64 = 2;
const KINDS: u64 = 8;
/// Below the first connection.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const OUTSIDE: u64 = 2;
const POWER: u64 = 3;
const ALARM: u64 = 4;

/// How a server runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// What decides at first.
    pub policy: Choice,
    /// How it decides.
    pub settings: Settings,
    /// When the server ends by itself.
    pub unused: Option<Unused>,
}

/// When a server that nobody uses ends. Every connection is a use, a person's as well, and so is a program that is
/// expected, and one of which queues are held.
#[derive(Debug, Clone, Copy)]
pub struct Unused {
    /// So long after its start, if nobody has come.
    pub first: Duration,
    /// So long after the last one has gone. Programs are often started one after the other.
    pub last: Duration,
}

impl Default for Unused {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), last: Duration::from_secs(1) }
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    epoll: OwnedFd,
    alarm: Alarm,
    core: Core<Pages>,
    connections: HashMap<u64, Connection>,
    /// The processes of programs that will come ([`protocol::control::Request::Expect`]), by the connection that said so.
    expected: HashMap<u64, Handle>,
    /// The number of the last connection.
    connected: u64,
    questions: Vec<Question>,
    /// Processes of which queues are held from outside.
    attachments: Attachments,
    /// What holds cost.
    costs: Costs,
    /// Not every client's page shows it yet.
    costs_changed: bool,
    /// What devices draw, until there is a thread that reads it; that comes when a policy wants to know.
    meter: Option<Box<dyn PowerMeter + Send>>,
    power: Option<Reader>,
    /// When it is read next, if a policy wants to know.
    power_at: Time,
    options: Options,
    started: Time,
    beat: Time,
    /// When the core wants its next step; now if something has happened.
    step: Option<Time>,
    /// When it is looked for what no event tells.
    look_at: Time,
    /// Whether new clients cannot find it.
    unreachable: bool,
    /// No connection has a deadline before.
    deadline: Option<Time>,
    /// Since when nobody is connected or expected, and nothing held.
    unused_since: Option<Time>,
    /// Whether no descriptor was left for somebody who came: then nobody is accepted until the next heartbeat.
    exhausted: bool,
    stopping: bool,
    /// For the server's end.
    _stop: OwnedFd,
}

impl Server {
    /// Listens at a place until `stop` becomes readable.
    ///
    /// # Errors
    /// A server runs there already, or the place cannot be used.
    pub fn new(place: &Place, options: Options, stop: OwnedFd) -> anyhow::Result<Self> {
        raise_limits();
        let listener = Listener::new(place)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("cannot wait for events")?;
        watch(&epoll, listener.socket.as_fd(), LISTENER, EventFlags::IN)?;
        watch(&epoll, stop.as_fd(), STOP, EventFlags::IN)?;
        let attachments = Attachments::new().context("cannot wait for events")?;
        watch(&epoll, attachments.descriptor(), OUTSIDE, EventFlags::IN)?;
        let alarm = Alarm::new(&epoll, ALARM).context("cannot wait for events")?;
        let now = crate::now();
        Ok(Self {
            listener,
            epoll,
            alarm,
            core: Core::new(options.policy.clone(), options.settings),
            connections: HashMap::new(),
            expected: HashMap::new(),
            connected: 0,
            questions: Vec::new(),
            attachments,
            costs: Costs::load(place.socket()),
            costs_changed: false,
            meter: Some(Box::new(Hwmon::default())),
            power: None,
            power_at: now,
            options,
            started: now,
            beat: now,
            step: None,
            look_at: now.after(LOOK_AROUND),
            unreachable: false,
            deadline: None,
            unused_since: Some(now),
            exhausted: false,
            stopping: false,
            _stop: stop,
        })
    }

    /// Asks this meter what devices draw, and not the amdgpu driver.
    pub fn set_meter(&mut self, meter: Box<dyn PowerMeter + Send>) {
        self.meter = Some(meter);
    }

    /// Serves until it is told to end, or has been unused for long enough. Then every client may run.
    ///
    /// # Errors
    /// The kernel tells no events any more.
    pub fn run(mut self) -> anyhow::Result<()> {
        // For the threads that it starts: their waits end when they should. By default they may end 50 µs later.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        thread_qos::request_early_wakeup(thread_qos::Role::Decides);
        let mut events = Vec::with_capacity(EVENTS);
        while !self.stopping {
            let now = crate::now();
            self.tend(now);
            let Some(until) = self.until() else { break };
            events.clear();
            self.alarm.wait(&self.epoll, until, &mut events).context("cannot wait for events")?;
            for event in &events {
                self.hear(event.data.u64(), event.flags);
            }
        }
        self.core.release_all(crate::now());
        self.costs.finish();
        info!("the server ends; {} clients run on unscheduled", self.core.peers().len());
        Ok(())
    }

    /// Does what is due: decisions first.
    fn tend(&mut self, now: Time) {
        self.ask_power(now);
        let beats = now >= self.beat && self.has_beats();
        if beats && self.core.reads_nice() {
            self.read_nice();
        }
        if self.step.is_some_and(|at| at <= now) || beats {
            self.step = self.core.step(now);
        }
        if beats {
            self.beat = now.after(HEARTBEAT);
            let costs = std::mem::take(&mut self.costs_changed).then_some(&self.costs);
            for (_, pages) in self.core.peers() {
                pages.renew(now);
                costs.inspect(|costs| costs.show(pages));
            }
            if self.exhausted {
                self.exhausted = false;
                self.listen_again();
            }
        }
        self.answer_questions(now);
        if now >= self.look_at {
            self.look_around(now);
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.end_silent(now);
        }
    }

    /// The process that came by this connection has ended.
    fn note_end(&mut self, number: u64) {
        self.expected.remove(&number);
        self.close(number, &End::Exited);
        self.note_use();
    }

    /// Has the devices' power read when that is due.
    fn ask_power(&mut self, now: Time) {
        let Some(interval) = self.reads_power() else { return };
        if now < self.power_at {
            return;
        }
        self.power_at = now.after(interval);
        if let Some(meter) = self.meter.take() {
            let reader = Reader::new(meter).and_then(|reader| {
                watch(&self.epoll, reader.descriptor(), POWER, EventFlags::IN)?;
                Ok(reader)
            });
            match reader {
                Ok(reader) => self.power = Some(reader),
                Err(error) => warn!(%error, "nothing can read what devices draw"),
            }
        }
        if let Some(reader) = &self.power {
            reader.ask(self.core.devices());
        }
    }

    /// How often a policy wants to know what devices draw; nothing as long as nobody uses one.
    fn reads_power(&self) -> Option<Duration> {
        self.core.reads_power().filter(|_| self.core.queues() > 0)
    }

    fn hear_power(&mut self) {
        let readings = self.power.as_ref().map(Reader::hear).unwrap_or_default();
        for (device, milliwatts, at) in readings {
            self.core.set_power(device, milliwatts, at);
            self.step = Some(Time(0));
        }
    }

    /// Looks up how urgent the clients' processes are on the processor.
    fn read_nice(&mut self) {
        let found: Vec<_> =
            self.core.peers().map(|(client, pages)| (client, peer::nice(pages.pid()))).collect();
        for (client, nice) in found {
            if let Some(nice) = nice {
                self.core.set_nice(client, nice);
            }
        }
    }

    /// Whether there is anybody to renew a lease for, or to listen to again.
    fn has_beats(&self) -> bool {
        !self.connections.is_empty() || self.exhausted
    }

    /// Until when to wait for events: nothing if the server has been unused for long enough.
    #[expect(clippy::option_option, reason = "an end, a wait without one, or a wait")]
    fn until(&self) -> Option<Option<Time>> {
        let now = crate::now();
        let beat = self.has_beats().then_some(self.beat);
        let question = self.questions.iter().map(|question| question.until).min();
        let unused =
            self.options.unused.zip(self.unused_since).map(|(unused, since)| {
                since.after(if self.connected == 0 { unused.first } else { unused.last })
            });
        if unused.is_some_and(|at| at <= now) {
            return None;
        }
        let power = self.reads_power().map(|_| self.power_at);
        let look = Some(self.look_at);
        Some([self.step, beat, question, self.deadline, unused, power, look].into_iter().flatten().min())
    }

    fn hear(&mut self, token: u64, flags: EventFlags) {
        match token {
            LISTENER => self.accept(),
            STOP => self.stopping = true,
            OUTSIDE => self.hear_attachments(),
            POWER => self.hear_power(),
            ALARM => {}
            _ => {
                let number = token / KINDS;
                match token % KINDS {
                    // It is edge-triggered and never read: one system call less between an event and a decision.
                    EVENTFD => self.step = Some(Time(0)),
                    PIDFD => self.note_end(number),
                    _ => self.hear_socket(number, flags),
                }
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match accept_with(&self.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.admit(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    warn!(%error, "cannot accept a connection; trying again in a moment");
                    self.pause_listening();
                    return;
                }
            }
        }
    }

    /// The listener stays readable while there is no descriptor for whoever waits there: it must not be heard.
    fn pause_listening(&mut self) {
        let data = EventData::new_u64(LISTENER);
        self.exhausted = epoll::modify(&self.epoll, &self.listener.socket, data, EventFlags::empty()).is_ok();
    }

    fn listen_again(&mut self) {
        let data = EventData::new_u64(LISTENER);
        if epoll::modify(&self.epoll, &self.listener.socket, data, EventFlags::IN).is_err() {
            self.exhausted = true;
        }
    }

    /// Somebody has come.
    fn admit(&mut self, socket: OwnedFd) {
        let now = crate::now();
        let who = match peer::credentials(&socket) {
            Ok(who) => who,
            Err(error) => return debug!(%error, "somebody came of whom the kernel says nothing"),
        };
        let own = rustix::process::geteuid().as_raw();
        let mut connection = Connection::new(socket, &who, now.after(SILENCE));
        if !peer::is_welcome(own, who.uid) {
            warn!(pid = who.pid, uid = who.uid, "refused: another user's process");
            let why = match who.uid == own {
                // Each user that has no number here has this one.
                true => "this server's user namespace does not map your user".to_owned(),
                false => format!("this server is user {own}'s, not user {}'s", who.uid),
            };
            return refuse(&connection, &why);
        }
        if self.connections.len() >= CONNECTIONS {
            warn!(pid = who.pid, "refused: there are {CONNECTIONS} connections");
            return refuse(
                &connection,
                &format!("the server has {CONNECTIONS} connections and takes no more"),
            );
        }
        if let Err(error) = self.register(&mut connection, &who) {
            return debug!(pid = who.pid, %error, "gone before it was heard");
        }
        self.deadline = [self.deadline, connection.deadline].into_iter().flatten().min();
        if self.connections.is_empty() {
            self.beat = now;
        }
        self.unused_since = None;
        self.connections.insert(self.connected, connection);
    }

    fn register(&mut self, connection: &mut Connection, who: &Credentials) -> rustix::io::Result<()> {
        connection.process = peer::process(&connection.socket, who)?;
        self.connected += 1;
        let token = self.connected * KINDS;
        watch(&self.epoll, connection.socket.as_fd(), token + SOCKET, EventFlags::IN)?;
        if let Some(pidfd) = connection.process.as_ref().and_then(Handle::descriptor) {
            // Closing the socket takes it out of the list again if this fails.
            watch(&self.epoll, pidfd, token + PIDFD, EventFlags::IN)?;
        }
        Ok(())
    }

    fn hear_socket(&mut self, number: u64, flags: EventFlags) {
        // Taken out, so that it and the rest of the server can be changed at once.
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let mut result = if flags.contains(EventFlags::OUT) { connection.flush() } else { Ok(()) };
        if result.is_ok() && connection.is_busy() && gone {
            // Nobody takes the answer.
            result = Err(End::Closed);
        }
        let result = result.and_then(|()| self.receive(number, &mut connection));
        self.settle(number, connection, result);
    }

    /// Takes what the connection has to say, unless it has not taken an answer yet.
    fn receive(&mut self, number: u64, connection: &mut Connection) -> Result<(), End> {
        connection.receive(|connection, frame| self.take(number, connection, &frame))
    }

    fn take(&mut self, number: u64, connection: &mut Connection, frame: &Frame) -> Result<(), End> {
        match connection.stage {
            Stage::New if frame.kind == REQUEST => {
                let people =
                    self.connections.values().filter(|other| matches!(other.stage, Stage::Person)).count();
                connection.stage = Stage::Person;
                if people >= PEOPLE {
                    let reason = format!("{PEOPLE} are asking already");
                    connection.refuse(&list::encode(&Reply::Error(reason.clone())));
                    return Err(End::Refused(reason));
                }
                self.ask(number, connection, frame)
            }
            Stage::Person if frame.kind == REQUEST => self.ask(number, connection, frame),
            Stage::New => match ToServer::decode(frame).map_err(End::Message)? {
                ToServer::Hello { pid, name } => self.welcome(number, connection, pid, name),
                _ => Err(End::Unexpected(frame.kind)),
            },
            Stage::Client { client, .. } => {
                let message = ToServer::decode(frame).map_err(End::Message)?;
                if let ToServer::HoldCost { key, cost } = message {
                    // All are shown it with the next heartbeat, however many of these come until then.
                    self.costs_changed |= self.costs.keep(key, cost);
                    return Ok(());
                }
                self.core.apply(client, &message).map_err(End::Fault)?;
                self.step = Some(Time(0));
                Ok(())
            }
            Stage::Person => Err(End::Unexpected(frame.kind)),
        }
    }

    /// A client introduces itself.
    fn welcome(
        &mut self,
        number: u64,
        connection: &mut Connection,
        pid: u32,
        name: String,
    ) -> Result<(), End> {
        let made = Pages::new(Pid(connection.pid));
        let made =
            made.and_then(|made| Ok((made, eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)));
        let ((pages, descriptors), eventfd) = made.map_err(|error| {
            let reason = format!("the server has no room for another client: {error}");
            connection.refuse(&ToClient::Refused { reason: reason.clone() }.encode());
            End::Refused(reason)
        })?;
        info!(pid = connection.pid, own_pid = pid, name, "a client has come");
        let now = crate::now();
        pages.renew(now);
        self.costs.show(&pages);
        pages.set_held(self.attachments.holds(pages.pid()));
        let client = self.core.join(Pid(connection.pid), name, pages);
        if let Some(nice) = peer::nice(Pid(connection.pid)) {
            self.core.set_nice(client, nice);
        }
        // It has a permission before it sees its page.
        self.step = self.core.step(now);
        let token = number * KINDS + EVENTFD;
        let watched = watch(&self.epoll, eventfd.as_fd(), token, EventFlags::IN | EventFlags::ET);
        let message = ToClient::Welcome { client, now: crate::now(), server: std::process::id() };
        let result = watched
            .and_then(|()| send_welcome(&connection.socket, &message.encode(), &descriptors, &eventfd))
            .map_err(End::Broken);
        connection.stage = Stage::Client { client, eventfd };
        connection.deadline = None;
        result
    }

    /// Puts a connection back, or ends it.
    fn settle(&mut self, number: u64, mut connection: Connection, result: Result<(), End>) {
        let result = result.and_then(|()| {
            let hears = connection.interest();
            if hears == connection.hears {
                return Ok(());
            }
            connection.hears = hears;
            let data = EventData::new_u64(number * KINDS + SOCKET);
            epoll::modify(&self.epoll, &connection.socket, data, hears).map_err(End::Broken)
        });
        match result {
            Ok(()) => drop(self.connections.insert(number, connection)),
            Err(end) => self.end(number, &connection, &end),
        }
    }

    /// Forgets a connection that was taken out.
    fn end(&mut self, number: u64, connection: &Connection, end: &End) {
        let pid = connection.pid;
        self.questions.retain(|question| question.connection != number);
        match &connection.stage {
            Stage::Client { client, eventfd } => {
                // The client may hold it open for ever, and would be heard of for as long.
                let _ = epoll::delete(&self.epoll, eventfd);
                self.say_end(pid, *client, end);
                self.core.leave(*client);
                self.step = Some(Time(0));
            }
            Stage::New => {
                if let End::Frame(error @ FrameError::Version(_)) = end {
                    refuse(connection, &error.to_string());
                }
                debug!(pid, "somebody who was no client has gone: {end}");
            }
            Stage::Person => debug!(pid, "somebody who asked has gone: {end}"),
        }
        // Closing them takes the others out of the list: nobody else holds them.
        self.note_use();
    }

    /// A process that leaves by `_exit` says nothing itself: what is known of it is what it said last.
    fn say_end(&self, pid: u32, client: ClientId, end: &End) {
        let Some((name, counts, completed)) = self.core.totals(client) else { return };
        let Counts { direct, deferred, suspensions, suspended_ns, .. } = counts;
        let suspended_ms = suspended_ns / 1_000_000;
        if end.is_fault() {
            warn!(pid, name, "a client is sent away: {end}");
        } else {
            info!(
                pid,
                name, completed, direct, deferred, suspensions, suspended_ms, "a client has gone: {end}"
            );
        }
    }

    /// Looks whether anybody uses the server.
    fn note_use(&mut self) {
        let used = !self.connections.is_empty() || !self.expected.is_empty() || !self.attachments.is_empty();
        self.unused_since = if used { None } else { self.unused_since.or_else(|| Some(crate::now())) };
    }

    fn close(&mut self, number: u64, end: &End) {
        if let Some(connection) = self.connections.remove(&number) {
            self.end(number, &connection, end);
        }
    }

    /// Ends who said nothing for too long.
    fn end_silent(&mut self, now: Time) {
        let late = |connection: &Connection| connection.deadline.is_some_and(|at| at <= now);
        let late: Vec<_> = self.connections.extract_if(|_, connection| late(connection)).collect();
        for (number, connection) in &late {
            self.end(*number, connection, &End::Silent);
        }
        self.deadline = self.connections.values().filter_map(|connection| connection.deadline).min();
    }
}

/// Says why somebody cannot take part, if it can be said at once.
fn refuse(connection: &Connection, reason: &str) {
    connection.refuse(&ToClient::Refused { reason: reason.to_owned() }.encode());
}

fn watch(epoll: &OwnedFd, what: BorrowedFd<'_>, token: u64, flags: EventFlags) -> rustix::io::Result<()> {
    epoll::add(epoll, what, EventData::new_u64(token), flags)
}

/// Each client takes three descriptors, and two files of some pages.
fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = getrlimit(resource);
        // With fewer it serves fewer.
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
