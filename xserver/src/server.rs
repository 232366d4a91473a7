//! The event loop: one thread that handles all events and decides.

mod admission;
mod control;
mod events;
mod lists;
mod power;
mod reload;
mod settings;
mod traces;
mod upkeep;

use crate::access::Access;
use crate::alarm::Alarm;
use crate::attachments::Attachments;
use crate::connection::{Connection, End, Stage};
use crate::core::{Core, Newcomer, Settings};
use crate::costs::Costs;
use crate::endpoint::{Endpoint, Listener};
use crate::events::Events;
use crate::limits::Limits;
use crate::list::Lists;
use crate::outsiders::Outsiders;
use crate::pages::{Pages, send_welcome};
use crate::peer;
use crate::power::{Hwmon, PowerMeter, Reader};
use crate::recording::Recording;
use crate::system::{Reload, System, listen};
use crate::traces::Traces;
use anyhow::Context;
use host::handle::Handle;
use host::thread_qos;
use policies::Choice;
use protocol::control::EventKind;
use protocol::frame::{Frame, FrameError};
use protocol::ids::{ClientId, Pid};
use protocol::message::{REQUEST, ToClient, ToServer};
use protocol::page::{HEARTBEAT, LEASE};
use protocol::status::Counts;
use protocol::time::Time;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::{debug, info, warn};

/// The time limit for the first frame of a connection, and for taking a reply.
const SILENCE: Duration = Duration::from_secs(10);
/// The interval of checks for what causes no event.
const UPKEEP: Duration = Duration::from_secs(1);
/// The most events of one wait.
const EVENTS: usize = 64;

/// The kinds of event tokens of a connection. A token is the number of the connection, which is never used
/// again, times [`KINDS`] plus the kind.
const SOCKET: u64 = 0;
const PIDFD: u64 = 1;
const EVENTFD: u64 = 2;
const KINDS: u64 = 8;
/// The token of the first listener; the others follow.
const LISTENERS: u64 = 1 << 63;
/// Other tokens, below those of the first connection.
const RELOADED: u64 = 0;
const STOP: u64 = 1;
const ATTACHMENTS: u64 = 2;
const POWER: u64 = 3;
const ALARM: u64 = 4;
const HANG_UP: u64 = 5;

/// The options of a server.
#[derive(Debug)]
pub struct Options {
    /// The initial policy.
    pub policy: Choice,
    /// The other settings.
    pub settings: Settings,
    /// The conditions under which an unused server ends; none for never.
    pub unused: Option<Unused>,
    /// The file that gets what the server sees and decides, as JSON Lines.
    pub decisions: Option<PathBuf>,
    /// How much of a server of one user a program can take. The configuration has those of a server for all users.
    pub limits: Limits,
    /// What makes the server one for all users; none for a server of one user.
    pub system: Option<System>,
}

/// The times after which an unused server ends. A server is in use while there is a connection, also of xcli,
/// an expected program, or a process that `xcli suspend` has suspended.
#[derive(Debug, Clone, Copy)]
pub struct Unused {
    /// The time after its start, if no connection was made.
    pub first: Duration,
    /// The time after the end of the last use. Programs are often started one after the other.
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
    /// The first is the server's own.
    listeners: Vec<Listener>,
    access: Access,
    limits: Limits,
    /// The configuration file; none for a server of one user.
    reload: Option<Reload>,
    epoll: OwnedFd,
    alarm: Alarm,
    core: Core<Pages>,
    connections: HashMap<u64, Connection>,
    /// The processes of programs that will connect ([`protocol::control::Request::Expect`]) and their users, by the
    /// connection of the request.
    expected: HashMap<u64, (Handle, u32)>,
    /// The number of the last connection.
    last_connection: u64,
    lists: Lists,
    /// The processes that `xcli suspend` has suspended.
    attachments: Attachments,
    outsiders: Outsiders,
    /// The costs of eviction.
    costs: Costs,
    /// True if the pages of the clients are out of date.
    costs_changed: bool,
    /// The power meter, until the thread that reads it has started. It starts when a policy reads power.
    meter: Option<Box<dyn PowerMeter + Send>>,
    power: Option<Reader>,
    /// The file of decisions.
    recording: Option<Recording>,
    /// What has happened.
    events: Events,
    traces: Traces,
    /// The number of runs of the progress guard that are known.
    guard_runs: u64,
    /// The time of the next reading, if a policy reads power.
    power_at: Time,
    options: Options,
    started: Time,
    beat: Time,
    /// The time of the next step of the core; in the past if an event has come.
    step: Option<Time>,
    /// The time of the next checks for what causes no event.
    upkeep_at: Time,
    /// True if new clients cannot connect.
    unreachable: bool,
    /// The earliest deadline of a connection.
    deadline: Option<Time>,
    /// The time since when the server is unused.
    unused_since: Option<Time>,
    /// The time of the last line of the log about a refused connection, and the number of those since then.
    refusal_logged: Time,
    refusals: u64,
    /// True if no descriptor was left for a connection. Then none is accepted until the next heartbeat.
    exhausted: bool,
    stopping: bool,
    /// Becomes readable when the server must end.
    _stop: OwnedFd,
}

impl Server {
    /// Starts to listen. The server ends when `stop` becomes readable.
    ///
    /// # Errors
    /// Another server uses the endpoint, or it or the file of decisions cannot be created.
    pub fn new(endpoint: &Endpoint, mut options: Options, stop: OwnedFd) -> anyhow::Result<Self> {
        raise_limits();
        let mut system = options.system.take();
        let listeners = listen(endpoint, system.as_mut())?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("cannot wait for events")?;
        for (listener, token) in listeners.iter().zip(LISTENERS..) {
            watch(&epoll, listener.socket.as_fd(), token, EventFlags::IN)?;
        }
        watch(&epoll, stop.as_fd(), STOP, EventFlags::IN)?;
        let attachments = Attachments::new().context("cannot wait for events")?;
        watch(&epoll, attachments.descriptor(), ATTACHMENTS, EventFlags::IN)?;
        let alarm = Alarm::new(&epoll, ALARM).context("cannot wait for events")?;
        let mut core = Core::new(options.policy.clone(), options.settings);
        let (mut access, mut limits) = (Access::Own(rustix::process::geteuid().as_raw()), options.limits);
        let mut reload = None;
        if let Some(System { file, configuration, hang_up, .. }) = system {
            core.follow(None, &configuration)?;
            (access, limits) = (Access::shared(configuration.rules.clone()), configuration.limits);
            let file = Reload::new(file, configuration, hang_up)?;
            watch(&epoll, file.notifier.as_fd(), RELOADED, EventFlags::IN)?;
            if let Some(hang_up) = &file.hang_up {
                watch(&epoll, hang_up.as_fd(), HANG_UP, EventFlags::IN)?;
            }
            reload = Some(file);
        }
        core.set_limits(limits);
        // Not before this server has the endpoint: another server may be writing the file.
        let recording = options.decisions.as_deref().map(Recording::start).transpose()?;
        if recording.is_some() {
            core.start_recording();
        }
        let now = crate::clock::now();
        Ok(Self {
            listeners,
            access,
            limits,
            reload,
            epoll,
            alarm,
            core,
            connections: HashMap::new(),
            expected: HashMap::new(),
            last_connection: 0,
            lists: Lists::default(),
            attachments,
            outsiders: Outsiders::default(),
            costs: Costs::load(endpoint.socket()),
            costs_changed: false,
            meter: Some(Box::new(Hwmon::default())),
            power: None,
            recording,
            events: Events::default(),
            traces: Traces::default(),
            guard_runs: 0,
            power_at: now,
            options,
            started: now,
            beat: now,
            step: None,
            upkeep_at: now.after(UPKEEP),
            unreachable: false,
            deadline: None,
            unused_since: Some(now),
            refusal_logged: Time(0),
            refusals: 0,
            exhausted: false,
            stopping: false,
            _stop: stop,
        })
    }

    /// The path of the server's own socket.
    pub fn socket(&self) -> &Path {
        &self.listeners[0].path
    }

    /// Replaces the power meter of the amdgpu driver.
    pub fn set_meter(&mut self, meter: Box<dyn PowerMeter + Send>) {
        self.meter = Some(meter);
    }

    /// Serves until it must end or is unused. Then all clients may run.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub fn run(mut self) -> anyhow::Result<()> {
        // Threads started from here inherit precise timeouts; the default slack is 50 µs.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        thread_qos::request_early_wakeup(thread_qos::Role::Decides);
        self.record_if_wanted();
        if let Err(error) = self.outsiders.start() {
            warn!(%error, "cannot look for programs that are not scheduled");
        }
        let mut events = Vec::with_capacity(EVENTS);
        while !self.stopping {
            let now = crate::clock::now();
            self.handle_timers(now);
            let Some(until) = self.until() else { break };
            events.clear();
            self.alarm.wait(&self.epoll, until, &mut events).context("cannot wait for events")?;
            for event in &events {
                self.handle_event(event.data.u64(), event.flags);
                // Whatever the requests of some people cost, all leases are renewed in time.
                let now = crate::clock::now();
                if now >= self.beat && self.has_beats() {
                    self.handle_timers(now);
                }
            }
        }
        let now = crate::clock::now();
        self.core.release_all(now);
        self.record();
        if let Some(recording) = self.recording.take() {
            recording.finish(now);
        }
        self.costs.finish();
        info!("server ends; {} clients continue unscheduled", self.core.pages().len());
        Ok(())
    }

    /// Does what is due, decisions first.
    fn handle_timers(&mut self, now: Time) {
        self.ask_power(now);
        let beats = now >= self.beat && self.has_beats();
        if beats && self.core.reads_nice() {
            self.read_nice();
        }
        // At rest a heartbeat would decide what is in force, and only renews the leases.
        let mut rests = || self.step.is_none() && self.core.rests(now);
        if self.step.is_some_and(|at| at <= now) || beats && !rests() {
            self.decide(now);
        }
        if beats {
            if now > self.beat.after(LEASE - HEARTBEAT) && self.core.pages().len() > 0 {
                self.core.count().lapsed_leases += 1;
            }
            self.beat = now.after(HEARTBEAT);
            let costs = std::mem::take(&mut self.costs_changed).then_some(&self.costs);
            for (_, pages) in self.core.pages() {
                pages.renew(now);
                costs.inspect(|costs| costs.show(pages));
            }
            if self.exhausted {
                self.exhausted = false;
                self.listen_again();
            }
            self.send_events(now);
            self.send_traces(now);
        }
        self.answer_questions(now);
        if now >= self.upkeep_at {
            self.upkeep(now);
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.end_silent(now);
        }
    }

    /// Makes a step of the core.
    fn decide(&mut self, now: Time) {
        self.step = self.core.step(now);
        self.core.note_decision(now, crate::clock::now());
        self.record();
    }

    /// Handles the end of the process of a connection.
    fn note_end(&mut self, number: u64) {
        self.expected.remove(&number);
        self.close(number, &End::Exited);
        self.note_use();
    }

    /// Reads the nice values of the clients' processes.
    fn read_nice(&mut self) {
        let found: Vec<_> =
            self.core.pages().map(|(client, pages)| (client, peer::nice(pages.pid()))).collect();
        for (client, nice) in found {
            if let Some(nice) = nice {
                self.core.set_nice(client, nice);
            }
        }
    }

    /// Returns true if heartbeats are needed, to renew leases or to accept connections again.
    fn has_beats(&self) -> bool {
        !self.connections.is_empty() || self.exhausted
    }

    /// The time until which to wait for events. The outer option is none if the server must end because it is
    /// unused.
    #[expect(clippy::option_option, reason = "an end, a wait without limit, or a wait")]
    fn until(&self) -> Option<Option<Time>> {
        let now = crate::clock::now();
        let beat = self.has_beats().then_some(self.beat);
        let question = self.lists.next();
        let unused = self.options.unused.zip(self.unused_since).map(|(unused, since)| {
            since.after(if self.last_connection == 0 { unused.first } else { unused.last })
        });
        if unused.is_some_and(|at| at <= now) {
            return None;
        }
        let power = self.reads_power().map(|_| self.power_at);
        let look = Some(self.upkeep_at);
        Some([self.step, beat, question, self.deadline, unused, power, look].into_iter().flatten().min())
    }

    fn handle_event(&mut self, token: u64, flags: EventFlags) {
        match token {
            RELOADED => self.finish_reload(),
            HANG_UP => self.hang_up(),
            STOP => self.stopping = true,
            ATTACHMENTS => self.handle_attachments(),
            POWER => self.handle_power(),
            ALARM => {}
            LISTENERS.. => self.accept(token - LISTENERS),
            _ => {
                let number = token / KINDS;
                match token % KINDS {
                    // The eventfd is edge-triggered and never read, which saves a system call before the
                    // decision.
                    EVENTFD => self.note_event(number),
                    PIDFD => self.note_end(number),
                    _ => self.handle_socket(number, flags),
                }
            }
        }
    }

    /// Handles a notification of a client. The step that follows reads its page after the notification was taken, so it
    /// sees what the client wrote before that.
    fn note_event(&mut self, number: u64) {
        if let Some(Stage::Client { client, .. }) =
            self.connections.get(&number).map(|connection| &connection.stage)
        {
            self.core.note_event(*client);
        }
        self.step = Some(Time(0));
    }

    fn handle_socket(&mut self, number: u64, flags: EventFlags) {
        // Removed, so that the connection and the server can be changed at the same time.
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let mut result = if flags.contains(EventFlags::OUT) { connection.flush() } else { Ok(()) };
        if result.is_ok() && connection.is_busy() && gone {
            // The peer cannot take the reply.
            result = Err(End::Closed);
        }
        let result = result.and_then(|()| self.receive(number, &mut connection));
        self.finish(number, connection, result);
    }

    /// Reads from a connection, unless a reply is pending.
    fn receive(&mut self, number: u64, connection: &mut Connection) -> Result<(), End> {
        connection.receive(|connection, frame| self.take(number, connection, &frame))
    }

    fn take(&mut self, number: u64, connection: &mut Connection, frame: &Frame) -> Result<(), End> {
        match connection.stage {
            Stage::New if frame.kind == REQUEST => {
                self.make_room_for_request(connection)?;
                connection.stage = Stage::Control;
                self.ask(number, connection, frame)
            }
            Stage::Control if frame.kind == REQUEST => self.ask(number, connection, frame),
            Stage::New => match ToServer::decode(frame).map_err(End::Message)? {
                ToServer::Hello { pid, name } => self.welcome(number, connection, pid, name),
                _ => Err(End::Unexpected(frame.kind)),
            },
            Stage::Client { client, .. } => {
                let message = ToServer::decode(frame).map_err(End::Message)?;
                if let ToServer::EvictCost { key, cost } = message {
                    // The next heartbeat shows all costs that have come until then.
                    // Programs rely on the costs that the server shows them.
                    if connection.grant.administers {
                        self.costs_changed |= self.costs.keep(key, cost);
                    }
                    return Ok(());
                }
                if let Some(limit) = self.core.apply(client, &message).map_err(End::Fault)? {
                    self.note_refused_queue(connection, &limit);
                }
                self.step = Some(Time(0));
                Ok(())
            }
            Stage::Control => Err(End::Unexpected(frame.kind)),
        }
    }

    /// Handles the hello of a client.
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
            let reason = format!("the server cannot create pages for another client: {error}");
            connection.refuse(&ToClient::Refused { reason: reason.clone() }.encode());
            End::Refused(reason)
        })?;
        info!(pid = connection.pid, own_pid = pid, name, "client connected");
        let now = crate::clock::now();
        pages.renew(now);
        self.costs.show(&pages);
        pages.set_held(self.attachments.holds(pages.pid()));
        let (uid, grant) = (connection.who.uid, connection.grant.clone());
        self.note_of(connection, EventKind::Joined { pid: Pid(connection.pid), name: name.clone(), uid });
        let client = self.core.join(Newcomer { pid: Pid(connection.pid), uid, name, grant }, pages);
        if let Some(nice) = peer::nice(Pid(connection.pid)) {
            self.core.set_nice(client, nice);
        }
        // The client gets a permission before it maps its page.
        self.decide(now);
        let token = number * KINDS + EVENTFD;
        let watched = watch(&self.epoll, eventfd.as_fd(), token, EventFlags::IN | EventFlags::ET);
        let message = ToClient::Welcome { client, now: crate::clock::now(), server: std::process::id() };
        let result = watched
            .and_then(|()| send_welcome(&connection.socket, &message.encode(), &descriptors, &eventfd))
            .map_err(End::Broken);
        connection.stage = Stage::Client { client, eventfd };
        connection.deadline = None;
        result
    }

    /// Puts a connection back, or ends it.
    fn finish(&mut self, number: u64, mut connection: Connection, result: Result<(), End>) {
        let result = result.and_then(|()| {
            let events = connection.interest();
            if events == connection.registered {
                return Ok(());
            }
            connection.registered = events;
            let data = EventData::new_u64(number * KINDS + SOCKET);
            epoll::modify(&self.epoll, &connection.socket, data, events).map_err(End::Broken)
        });
        match result {
            Ok(()) => drop(self.connections.insert(number, connection)),
            Err(end) => self.end(number, &connection, &end),
        }
    }

    /// Ends a connection that was removed.
    fn end(&mut self, number: u64, connection: &Connection, end: &End) {
        let pid = connection.pid;
        self.lists.forget(number);
        self.forget_follower(number);
        self.traces.forget(number);
        if end.is_fault() {
            self.core.count().protocol_errors += 1;
        }
        match &connection.stage {
            Stage::Client { client, eventfd } => {
                self.core.settle(*client, crate::clock::now());
                // The client also has the eventfd, and can keep it open.
                let _ = epoll::delete(&self.epoll, eventfd);
                self.log_end(pid, *client, end);
                self.note_left(connection, end);
                self.core.leave(*client);
                self.traces.forget_program(*client);
                self.step = Some(Time(0));
            }
            Stage::New => {
                if let End::Frame(error @ FrameError::Version(_)) = end {
                    connection.refuse_for(&error.to_string());
                }
                debug!(pid, "connection without request ended: {end}");
            }
            Stage::Control => debug!(pid, "connection of xcli ended: {end}"),
        }
        // Closing the other descriptors removes them from the epoll, because no process shares them.
        self.note_use();
    }

    /// Logs the end of a client with its last reported counters.
    fn log_end(&self, pid: u32, client: ClientId, end: &End) {
        let Some((name, counts, completed)) = self.core.totals(client) else { return };
        let Counts { direct, deferred, suspensions, suspended_ns, .. } = counts;
        let suspended_ms = suspended_ns / 1_000_000;
        if end.is_fault() {
            warn!(pid, name, "client dropped because it broke a rule: {end}");
        } else {
            info!(
                pid,
                name, completed, direct, deferred, suspensions, suspended_ms, "client disconnected: {end}"
            );
        }
    }

    /// Notes if the server is unused.
    fn note_use(&mut self) {
        let used = !self.connections.is_empty() || !self.expected.is_empty() || !self.attachments.is_empty();
        self.unused_since = if used { None } else { self.unused_since.or_else(|| Some(crate::clock::now())) };
    }

    fn close(&mut self, number: u64, end: &End) {
        if let Some(connection) = self.connections.remove(&number) {
            self.end(number, &connection, end);
        }
    }

    /// Ends connections whose deadline has passed.
    fn end_silent(&mut self, now: Time) {
        let late = |connection: &Connection| connection.deadline.is_some_and(|at| at <= now);
        let late: Vec<_> = self.connections.extract_if(|_, connection| late(connection)).collect();
        for (number, connection) in &late {
            self.end(*number, connection, &End::Silent);
        }
        self.deadline = self.connections.values().filter_map(|connection| connection.deadline).min();
    }
}

fn watch(epoll: &OwnedFd, what: BorrowedFd<'_>, token: u64, flags: EventFlags) -> rustix::io::Result<()> {
    epoll::add(epoll, what, EventData::new_u64(token), flags)
}

/// Raises the limits to their maximum. Each client takes three descriptors and two memory files.
fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = getrlimit(resource);
        // With lower limits the server serves fewer clients.
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
