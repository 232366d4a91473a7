//! The client of `xserver`: it obeys the server's permission, and reports queues and counts to the server.
//!
//! Two threads of the library work for it. The *agent* finds the server and sends the reports. The
//! *listener*, one per connection (`listener.rs`), sleeps on the futex of the server's page and applies
//! changed permissions. Both watch the lease, and either works without the other: a seccomp filter of the
//! program may kill a thread. `link.rs` has the launching threads' part.
//!
//! Without a server, or after the server is lost, everything runs within its window, and the agent tries to
//! connect twice a second. No thread of the program waits for the server, and the agent waits only with a
//! limit.

mod connection;
mod incoming;
mod listener;
mod names;
mod seccomp;
mod slots;
#[cfg(test)]
mod tests;

use crate::clock::now;
use crate::descriptor::CheckedFd;
use crate::futex::timespec;
use crate::host::Host;
use crate::link::ServerLink;
use crate::pages::Pages;
use crate::process_name;
use crate::shared::{SETTLE, Shared};
use connection::{Failure, Welcome};
use incoming::Incoming;
use listener::{Listener, PROGRESS};
use protocol::codes::PreemptLevel;
use protocol::cost::{ACCEPTS_COSTS, CostKey, EvictCost};
use protocol::hint::ProcessHints;
use protocol::message::ToServer;
use protocol::page::{EVENT_PROGRESS, LEASE, ServerPage, TAKES_CONFIGURATION, TAKES_TRACES};
use protocol::socket;
use protocol::time::Time;
use seccomp::Filters;
use slots::SlotTable;
use std::ffi::c_int;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;
use xqueue::{Domain, Permission};

/// The pause between attempts to connect.
const RETRY: Duration = Duration::from_millis(500);
/// The pause after a server that refuses this process or cannot be used. Only the user can change that.
const RETRY_REFUSED: Duration = Duration::from_secs(5);
/// The interval of count updates while the server does not ask for progress.
const IDLE_COUNTS: Duration = Duration::from_millis(250);

/// True once this process, or one that it was forked from, has logged that a server is unusable, and that it
/// is absent.
static LOGGED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// The agent's side of the connection.
pub(crate) struct Client {
    domain: &'static Domain,
    shared: Arc<Shared>,
    /// The sockets at which it looks for a server, in this order.
    paths: Vec<PathBuf>,
    /// The one at which it has found a server, or has looked last.
    path: PathBuf,
    slots: SlotTable,
    /// True while the agent updates the counts by itself.
    counts: bool,
    /// The time of the last update of the counts.
    counted_at: Time,
    reported: Reported,
    incoming: Incoming,
}

/// The state that was reported to the server.
#[derive(Default)]
struct Reported {
    level: (PreemptLevel, String),
    hints: ProcessHints,
    costs: Vec<(CostKey, Option<EvictCost>)>,
}

/// The reason for the end of a connection.
#[derive(Debug)]
enum End {
    /// Another decider was set.
    OtherDecider,
    /// The server is lost, for this reason.
    Lost(String),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Client {
    /// Makes the client for the server that the configuration names.
    pub(crate) fn new(domain: &'static Domain, shared: &Arc<Shared>) -> Self {
        let config = shared.preemption.host().config();
        let paths = match config.and_then(|config| config.socket.clone()) {
            Some(path) => vec![path],
            None => {
                // SAFETY: the call takes nothing and returns a number.
                let user = unsafe { libc::geteuid() };
                socket::candidates(user, |path| path.is_dir()).into()
            }
        };
        Self::at(paths, domain, shared.clone())
    }

    fn at(paths: Vec<PathBuf>, domain: &'static Domain, shared: Arc<Shared>) -> Self {
        Self {
            domain,
            shared,
            path: paths.last().cloned().unwrap_or_default(),
            paths,
            slots: SlotTable::default(),
            counts: false,
            counted_at: Time(0),
            reported: Reported::default(),
            incoming: Incoming::new(0),
        }
    }

    fn host(&self) -> &'static dyn Host {
        self.shared.preemption.host()
    }

    /// Lets the server decide until another decider is set.
    pub(crate) fn run(&mut self, epoch: u64) {
        let shared = self.shared.clone();
        let pages = match shared.link.pages() {
            Ok(pages) => pages,
            Err(error) => {
                tracing::error!(%error, "no memory for the server's pages: queues run unscheduled");
                return shared.wait_for_other_decider(epoch);
            }
        };
        // From now on the agent can be woken.
        let _ = shared.link.agent.get_or_make();
        let mut lost = false;
        let mut filters = Filters::of_this_thread();
        while shared.if_current(epoch, || {}) {
            // A filter may kill a process that opens a socket.
            if filters.have_changed() {
                tracing::warn!(
                    "this program has restricted its system calls (seccomp): the library stops looking for an xserver, and \
                     queues run unscheduled"
                );
                return shared.wait_for_other_decider(epoch);
            }
            let welcome = self.connect();
            // A process that has logged its totals is about to end, and needs no server.
            if shared.evictor.has_ended() {
                return shared.wait_for_other_decider(epoch);
            }
            let pause = match welcome {
                Ok(welcome) => match self.serve(epoch, pages, welcome) {
                    End::OtherDecider => return,
                    End::Lost(reason) => {
                        tracing::warn!(
                            "the xserver at {} is lost ({reason}): queues run unscheduled until it is back",
                            self.path.display()
                        );
                        // The next line will say that a server is back.
                        lost = true;
                        RETRY
                    }
                },
                Err(failure) => {
                    // Logged once for a program, all its forked processes included.
                    let absent = matches!(failure, Failure::Absent(_));
                    let first = !LOGGED[usize::from(absent)].swap(true, Ordering::Relaxed);
                    if first && !(absent && lost) {
                        tracing::warn!(
                            "no xserver at {} ({failure}): queues run unscheduled",
                            self.path.display()
                        );
                    }
                    if absent { RETRY } else { RETRY_REFUSED }
                }
            };
            self.sleep(epoch, pause);
        }
    }

    /// Connects to the first server that is there. One that refuses this process is there.
    fn connect(&mut self) -> Result<Welcome, Failure> {
        let mut found = Err(std::io::ErrorKind::NotFound.into());
        for path in &self.paths {
            self.path.clone_from(path);
            found = connection::connect(path);
            if found.is_ok() {
                break;
            }
        }
        let socket_of_server = found?;
        let name = process_name::of(&std::env::args_os().collect::<Vec<_>>());
        let is_system = self.path == Path::new(socket::SYSTEM_SOCKET);
        connection::handshake(socket_of_server, &name, is_system, connection::ANSWER_TIMEOUT)
    }

    /// Sleeps, at most until another decider is set.
    fn sleep(&self, epoch: u64, pause: Duration) {
        let until = now().after(pause);
        while self.shared.if_current(epoch, || {}) {
            let left = until.since(now());
            if left.is_zero() {
                return;
            }
            wait(None, &self.shared.link, left);
        }
    }

    /// Runs a connection from its welcome to its end.
    fn serve(&mut self, epoch: u64, pages: &Pages, welcome: Welcome) -> End {
        let Welcome { socket, server_page, client_page, eventfd, offset, server } = welcome;
        let shared = self.shared.clone();
        let begun = pages
            .attach(server_page.as_fd(), client_page.as_fd())
            .and_then(|()| shared.link.server.attach(&eventfd))
            .map(|()| shared.link.set_clock_offset(connection::clock_difference(offset)));
        pages.header().takes.store(TAKES_TRACES | TAKES_CONFIGURATION, Ordering::SeqCst);
        self.incoming = Incoming::new(connection::clock_difference(offset));
        drop((server_page, client_page, eventfd));
        self.slots.forget_announcements();
        // A failed eviction is reported to one server only: other processes may have had success since then.
        self.reported.costs.retain(|(_, cost)| cost.is_none());
        let costs = std::mem::take(&mut self.reported.costs);
        self.reported = Reported { costs, ..Reported::default() };
        let listener = begun.and_then(|()| Listener::start(self.domain, &shared, pages, epoch));
        let end = match &listener {
            Ok(listener) => {
                tracing::info!("the xserver at {} (process {server}) decides", self.path.display());
                self.obey(epoch, pages, &socket, listener).unwrap_or_else(|end| end)
            }
            Err(error) => End::Lost(error.to_string()),
        };
        // Before anything else, everything runs.
        shared.if_current(epoch, || {
            self.domain.store_permission(Permission::limited());
            self.slots.set_permissions(false);
        });
        shared.link.tracer.end(self.domain);
        shared.evictor.restore(self.domain, &shared.link);
        self.domain.show_progress(false);
        shared.evictor.set_interrupts(self.domain, false);
        shared.link.server.mute();
        if let Ok(listener) = listener {
            listener.end();
        }
        end
    }

    /// Runs the agent's loop while the server is connected.
    fn obey(
        &mut self,
        epoch: u64,
        pages: &Pages,
        socket: &CheckedFd,
        listener: &Listener,
    ) -> Result<End, End> {
        let shared = self.shared.clone();
        let (link, page) = (&shared.link, pages.server());
        let mut unsent = Vec::new();
        let mut seen = None;
        let mut costs_unmeasured = true;
        loop {
            let hints_end = self.host().settle_hints();
            let changes = shared.state.lock().changes;
            if seen != Some(changes) {
                self.report_changes(pages, &mut unsent);
                let in_force = shared.if_current(epoch, || {
                    if seen.is_none() {
                        self.domain.follow_permission(&page.word);
                    }
                    self.slots.set_permissions(true);
                });
                if !in_force {
                    return Ok(End::OtherDecider);
                }
                seen = Some(changes);
                // The server's page shows the costs that it knows by now. Measuring the others takes a while,
                // so it comes after the permission is in force.
                if std::mem::take(&mut costs_unmeasured) {
                    shared.preemption.stop_waiting_for_server();
                    continue;
                }
            }
            if !unsent.is_empty() {
                let sent = connection::send(socket, &unsent)?;
                unsent.drain(..sent);
            }
            shared.preemption.warn_if_no_queues();
            let mut pause = self.update_counts(pages).min(listener.apply_missed());
            if link.tracer.is_on() {
                let host = self.host();
                self.incoming.names.add(&link.tracer, host);
                pause = pause.min(names::INTERVAL);
            }
            if hints_end {
                pause = pause.min(SETTLE);
            }
            let left = link.lease_left(page);
            if left.is_zero() || listener.has_expired() {
                return Err(End::Lost("it has not renewed its lease".to_owned()));
            }
            if link.server.is_lost() {
                return Err(End::Lost("this program has closed the descriptors".to_owned()));
            }
            let number = connection::number(socket)?;
            if wait(Some((number, !unsent.is_empty())), link, left.min(pause)) {
                let host = self.host();
                self.incoming.read(socket, self.domain, link, host)?;
            }
        }
    }

    /// Adds messages about everything that has changed since the last report.
    fn report_changes(&mut self, pages: &Pages, unsent: &mut Vec<u8>) {
        let (shared, page) = (&self.shared, pages.server());
        let queues = shared.preemption.host().queues();
        self.slots.update(queues, &shared.link, pages, |message| unsent.extend(message.encode()));
        let level = shared.preemption.in_force();
        shared.evictor.set_interrupts(self.domain, level.0 == PreemptLevel::Interrupt);
        if self.reported.level != level {
            let (in_force, how) = level.clone();
            unsent.extend(ToServer::Preemption { in_force, how }.encode());
            self.reported.level = level;
        }
        if page.takes.load(Ordering::SeqCst) & ACCEPTS_COSTS != 0 {
            self.report_costs(page, unsent);
        }
        let hints = *self.shared.hints.lock();
        if self.reported.hints != hints {
            unsent.extend(ToServer::ProcessHints { hints }.encode());
            self.reported.hints = hints;
        }
    }

    /// Reports the costs of evictions that the server does not know, each once.
    fn report_costs(&mut self, page: &ServerPage, unsent: &mut Vec<u8>) {
        for (key, cost) in self.shared.preemption.own_costs() {
            let knows = page.costs.iter().find_map(|words| words.load(key)) == cost;
            if !knows && !self.reported.costs.contains(&(key, cost)) {
                unsent.extend(ToServer::EvictCost { key, cost }.encode());
                self.reported.costs.push((key, cost));
            }
        }
    }

    /// Updates the counts if the server asks for it. Returns the time until the next update.
    fn update_counts(&mut self, pages: &Pages) -> Duration {
        let (page, link) = (pages.server(), &self.shared.link);
        let asked = page.report.load(Ordering::SeqCst);
        let answers = pages.header().reported.load(Ordering::Relaxed) != asked;
        let wants_progress = page.wants.load(Ordering::SeqCst) & EVENT_PROGRESS != 0;
        self.domain.show_progress(wants_progress);
        if wants_progress
            && let Some(taken) = self.shared.preemption.queues().and_then(|queues| queues.taken())
        {
            pages.header().taken.store(taken, Ordering::Relaxed);
        }
        // While the agent counts by itself, launches need not notify it. A notification continues the
        // counting even if all queues are idle now: a program that launches and synchronizes in turn looks
        // idle most of the time.
        let notified = !self.counts && link.agent_counts.load(Ordering::SeqCst);
        link.agent_counts.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.counts = wants_progress && (notified || self.slots.any_ready());
        if self.counts {
            link.agent_counts.store(true, Ordering::SeqCst);
        }
        let now = now();
        // Also without a request: the counts must be recent, because a program may leave by `_exit` at any
        // time.
        if answers || wants_progress || now.since(self.counted_at) >= IDLE_COUNTS {
            self.slots.write_counts(link, pages, self.host());
            self.counted_at = now;
        }
        if answers {
            pages.header().reported.store(asked, Ordering::SeqCst);
            link.server.notify();
        }
        if self.counts { PROGRESS } else { Duration::MAX }
    }
}

/// Waits until the agent is notified, the socket is ready to read (and to write, if the flag beside it is
/// true), or the limit is over. Returns true if the socket has something to read.
fn wait(socket: Option<(c_int, bool)>, link: &ServerLink, limit: Duration) -> bool {
    let (eventfd, limit) = match link.agent.get_or_make() {
        Ok((eventfd, false)) => (eventfd, limit),
        // The agent could not be notified until now, so something may have changed.
        Ok((_, true)) => return false,
        // The agent cannot be notified.
        Err(_) => (-1, limit.min(PROGRESS)),
    };
    let events = |writes: bool| if writes { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let (number, events) = socket.map_or((-1, 0), |(number, writes)| (number, events(writes)));
    let mut polled = [
        libc::pollfd { fd: number, events, revents: 0 },
        libc::pollfd { fd: eventfd, events: libc::POLLIN, revents: 0 },
    ];
    let limit = timespec(limit.min(LEASE));
    // SAFETY: pointer and count are those of the array, and the time is valid. All signals are blocked
    // already.
    unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &limit, ptr::null()) };
    let [socket, notified] = polled.map(|polled| polled.revents);
    link.agent.take(notified != 0);
    socket & !libc::POLLOUT != 0
}
