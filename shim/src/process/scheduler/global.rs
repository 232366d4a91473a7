//! The client of `xserver`: how this process comes under the permission of a server, and what it tells it.
//!
//! Two threads of the library's own work for it. The *agent* finds the server, and tells it of queues and numbers. A
//! *listener*, one for each connection (`listener.rs`), sleeps on the futex of the server's page and wakes whoever may
//! launch when the permission has changed. Both see to it that the permission holds no longer than its lease, and either
//! does without the other: a program can forbid a system call by a filter that ends the thread that makes it. The
//! launching threads' part is in `desk.rs`.
//!
//! Without a server, and after one that is gone, everything runs within its window; the agent tries again twice a
//! second. Nothing here waits for the server without a limit, and nothing on a thread of the program's.

pub(super) mod bell;
mod connection;
mod filter;
mod listener;
pub(super) mod pages;
mod seats;
#[cfg(test)]
mod tests;

use super::desk::Line;
use super::{Board, Member, members, now};
use crate::kfd;
use crate::process::{Process, name};
use bell::Kept;
use connection::{Failure, Welcome};
use filter::Filters;
use listener::Listener;
use pages::Pages;
use protocol::codes::PreemptLevel;
use protocol::cost::{CostKey, HoldCost, TAKES_COSTS};
use protocol::hint::ProcessHints;
use protocol::message::ToServer;
use protocol::page::{LEASE, ServerPage, WANTS_PROGRESS};
use protocol::socket;
use protocol::time::Time;
use seats::Seats;
use std::ffi::c_int;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;
use xqueue::{Domain, Permission};

/// How often the agent looks for a server.
const RETRY: Duration = Duration::from_millis(500);
/// The same after one that does not want this process, or cannot be used: somebody has to change something first.
const RETRY_REFUSED: Duration = Duration::from_secs(5);
/// How often the numbers are brought up to date while the server waits for progress.
const PROGRESS: Duration = Duration::from_millis(25);
/// The same at other times.
const COUNTED: Duration = Duration::from_millis(250);
/// What windows admit at least while kernels are interrupted (ADR 0017): what is in flight holds nobody up then.
const INTERRUPTED: Duration = Duration::from_millis(1);

/// Whether the user of this process, or of one that it was forked from, has been told that nobody listens, or that a
/// server is of no use.
static SAID: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// The agent's side of the connection.
pub(super) struct Client {
    domain: &'static Domain,
    board: Arc<Board>,
    members: Box<dyn Fn() -> Vec<Member>>,
    path: PathBuf,
    seats: Seats,
    /// Whether the numbers are kept up to date at present.
    counts: bool,
    /// When they were brought up to date last.
    counted: Time,
    /// What the server knows of levels.
    told: (PreemptLevel, String),
    /// What it knows of this process's hints.
    told_hints: ProcessHints,
    /// What it was told of the cost of holds.
    told_costs: Vec<(CostKey, Option<HoldCost>)>,
}

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// Another decider was set.
    Turn,
    /// The server is of no use any more; why.
    Lost(String),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Client {
    /// The client of a process.
    pub(super) fn of(process: &'static Process, board: &Arc<Board>) -> Self {
        let path = process.base.config().socket.clone().unwrap_or_else(|| {
            // SAFETY: asks for a number.
            let user = unsafe { libc::geteuid() };
            socket::default_path(user, socket::INSTANCE, |path| path.is_dir())
        });
        Self::new(&process.domain, board.clone(), path, move || members(process))
    }

    fn new(
        domain: &'static Domain,
        board: Arc<Board>,
        path: PathBuf,
        members: impl Fn() -> Vec<Member> + 'static,
    ) -> Self {
        Self {
            domain,
            board,
            members: Box::new(members),
            path,
            seats: Seats::default(),
            counts: false,
            counted: Time(0),
            told: Default::default(),
            told_hints: ProcessHints::default(),
            told_costs: Vec::new(),
        }
    }

    /// Lets the server decide as long as it is this turn.
    pub(super) fn run(&mut self, turn: u64) {
        let board = self.board.clone();
        let pages = match board.line.pages() {
            Ok(pages) => pages,
            Err(error) => {
                tracing::error!(%error, "no place for the server's pages: queues run unscheduled");
                return wait_for_turn(&board, turn);
            }
        };
        // From now on the agent can be woken, and looks what there is to do.
        let _ = board.line.alarm.provide();
        let mut said = false;
        let mut filters = Filters::of_this_thread();
        while board.in_turn(turn, || {}) {
            // A filter may end a process that opens a socket.
            if filters.have_changed() {
                tracing::warn!(
                    "this program has restricted its system calls (seccomp): it does not look for an xserver any more, and \
                     queues run unscheduled"
                );
                return wait_for_turn(&board, turn);
            }
            // Nor does one that has written its totals, and is about to end.
            let welcome = self.connect();
            if board.hold.has_ended() {
                return wait_for_turn(&board, turn);
            }
            let pause = match welcome {
                Ok(welcome) => match self.serve(turn, pages, welcome) {
                    End::Turn => return,
                    End::Lost(reason) => {
                        tracing::warn!(
                            "the xserver at {} is lost ({reason}): queues run unscheduled until it is back",
                            self.path.display()
                        );
                        // It is known that there is none; the next line says that there is one again.
                        said = true;
                        RETRY
                    }
                },
                Err(failure) => {
                    // Once for a program, with all the processes that it forks.
                    let absent = matches!(failure, Failure::Absent(_));
                    let first = !SAID[usize::from(absent)].swap(true, Ordering::Relaxed);
                    if first && !(absent && said) {
                        tracing::warn!(
                            "no xserver at {} ({failure}): queues run unscheduled",
                            self.path.display()
                        );
                    }
                    if absent { RETRY } else { RETRY_REFUSED }
                }
            };
            self.rest(turn, pause);
        }
    }

    fn connect(&self) -> Result<Welcome, Failure> {
        let socket = connection::connect(&self.path)?;
        connection::shake_hands(socket, &name(), connection::ANSWER)
    }

    /// Waits, as long as it is this turn.
    fn rest(&self, turn: u64, pause: Duration) {
        let until = now().after(pause);
        while self.board.in_turn(turn, || {}) {
            let left = until.since(now());
            if left.is_zero() {
                return;
            }
            wait(None, &self.board, left);
        }
    }

    /// Obeys a server from its welcome on.
    fn serve(&mut self, turn: u64, pages: &Pages, welcome: Welcome) -> End {
        let Welcome { socket, server_page, client_page, eventfd, offset, server } = welcome;
        let line = &self.board.line;
        let begun = pages
            .attach(server_page.as_fd(), client_page.as_fd())
            .and_then(|()| line.bell.hang(&eventfd))
            .map(|()| line.set_offset(connection::difference(offset)));
        drop((server_page, client_page, eventfd));
        self.seats.forget_announcements();
        self.told = Default::default();
        self.told_hints = ProcessHints::default();
        // That a hold has failed is said to one server only: others may have found since that holds work.
        self.told_costs.retain(|(_, cost)| cost.is_none());
        let listener = begun.and_then(|()| Listener::start(self.domain, &self.board, pages, turn));
        let end = match &listener {
            Ok(listener) => {
                tracing::info!("the xserver at {} (process {server}) decides", self.path.display());
                self.obey(turn, pages, &socket, listener).unwrap_or_else(|end| end)
            }
            Err(error) => End::Lost(error.to_string()),
        };
        // First of all, everything runs.
        self.board.in_turn(turn, || {
            self.domain.store_permission(Permission::limited());
            self.seats.set_words(false);
        });
        self.board.hold.release(self.domain, &self.board.line);
        self.domain.show_progress(false);
        self.domain.widen_windows(Duration::ZERO);
        self.board.line.bell.mute();
        if let Ok(listener) = listener {
            listener.end();
        }
        end
    }

    /// The agent's loop while there is a server.
    fn obey(&mut self, turn: u64, pages: &Pages, socket: &Kept, listener: &Listener) -> Result<End, End> {
        let board = self.board.clone();
        let (line, page) = (&board.line, pages.server());
        let mut unsent = Vec::new();
        let mut seen = None;
        let mut waits = true;
        loop {
            let changes = board.state.lock().changes;
            if seen != Some(changes) {
                self.seats.update((self.members)(), line, pages, |message| unsent.extend(message.encode()));
                let found = kfd::in_force();
                let interrupts = found.0 == PreemptLevel::Interrupt;
                self.domain.widen_windows(if interrupts { INTERRUPTED } else { Duration::ZERO });
                if self.told != found {
                    let (in_force, how) = found.clone();
                    unsent.extend(ToServer::Preemption { in_force, how }.encode());
                    self.told = found;
                }
                if page.takes.load(Ordering::SeqCst) & TAKES_COSTS != 0 {
                    self.tell_costs(page, &mut unsent);
                }
                let hints = *board.hints.lock();
                if self.told_hints != hints {
                    unsent.extend(ToServer::ProcessHints { hints }.encode());
                    self.told_hints = hints;
                }
                let told = board.in_turn(turn, || {
                    if seen.is_none() {
                        self.domain.follow_permission(&page.word);
                    }
                    self.seats.set_words(true);
                });
                if !told {
                    return Ok(End::Turn);
                }
                seen = Some(changes);
                // Its page shows by now what it knows of holds. What it does not is measured, which takes a while, so after the permission
                // counts.
                if std::mem::take(&mut waits) {
                    kfd::stop_waiting();
                    continue;
                }
            }
            if !unsent.is_empty() {
                let sent = connection::send(socket, &unsent)?;
                unsent.drain(..sent);
            }
            kfd::say_if_unseen();
            let pause = self.report(pages).min(listener.stand_in());
            let left = lease_left(page, line);
            if left.is_zero() || listener.has_opened() {
                return Err(End::Lost("it has not answered for its lease".to_owned()));
            }
            if line.bell.is_lost() {
                return Err(End::Lost("this program has closed the descriptors".to_owned()));
            }
            let number = connection::number(socket)?;
            let socket_ready = wait(Some((number, !unsent.is_empty())), &board, left.min(pause));
            if socket_ready {
                self.read(socket)?;
            }
        }
    }

    /// Tells what the server does not know of the cost of holds, each thing once.
    fn tell_costs(&mut self, page: &ServerPage, unsent: &mut Vec<u8>) {
        for (key, cost) in kfd::evidence() {
            let knows = page.costs.iter().find_map(|words| words.load(key)) == cost;
            if !knows && !self.told_costs.contains(&(key, cost)) {
                unsent.extend(ToServer::HoldCost { key, cost }.encode());
                self.told_costs.push((key, cost));
            }
        }
    }

    /// After its welcome a server says nothing: what comes is its end.
    fn read(&self, socket: &Kept) -> Result<(), End> {
        let mut bytes = [0; 64];
        match connection::receive(socket, &mut bytes, &mut Vec::new()) {
            Ok(0) => Err(End::Lost("it has closed the connection".to_owned())),
            Ok(_) => Err(End::Lost("it says what has no sense".to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings the numbers up to date if the server asks for it; says for how long that will do.
    fn report(&mut self, pages: &Pages) -> Duration {
        let (page, line) = (pages.server(), &self.board.line);
        let asked = page.report.load(Ordering::SeqCst);
        let answers = pages.header().reported.load(Ordering::Relaxed) != asked;
        let waits = page.wants.load(Ordering::SeqCst) & WANTS_PROGRESS != 0;
        self.domain.show_progress(waits);
        // Who counts looks again soon, and need not be rung for. A program that launches and synchronizes in turn finds
        // that so most of the time, even if it is idle at every look.
        let rung = !self.counts && line.counts.load(Ordering::SeqCst);
        line.counts.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.counts = waits && (rung || self.seats.any_ready());
        if self.counts {
            line.counts.store(true, Ordering::SeqCst);
        }
        let now = now();
        // Whoever leaves by `_exit` says nothing more: what the server knows of it is never old. This thread wakes as often anyway.
        if answers || waits || now.since(self.counted) >= COUNTED {
            self.seats.count(line, pages);
            self.counted = now;
        }
        if answers {
            pages.header().reported.store(asked, Ordering::SeqCst);
            line.bell.ring();
        }
        if self.counts { PROGRESS } else { Duration::MAX }
    }
}

/// For how much longer what the server's page says holds.
fn lease_left(page: &ServerPage, line: &Line) -> Duration {
    Time(page.deadline.load(Ordering::SeqCst)).since(line.now())
}

/// Sleeps until somebody wakes who has changed the word, or for so long; not at all if it is not `seen` any more.
fn futex_wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit.map(timespec);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word and the time are valid; the kernel only reads them. Not private: the server wakes.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, limit) };
}

fn timespec(span: Duration) -> libc::timespec {
    libc::timespec { tv_sec: span.as_secs().try_into().unwrap_or(1), tv_nsec: span.subsec_nanos().into() }
}

/// Has the listener, if there is one, look again.
pub(super) fn wake_listener(line: &Line) {
    if let Some(pages) = line.pages_in_use() {
        futex_wake(&pages.server().changes);
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word is valid; nothing is written.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

/// Waits until the agent is woken, the socket (with true: for room to write as well) has something, or the time is over.
/// True: the socket has.
fn wait(socket: Option<(c_int, bool)>, board: &Board, limit: Duration) -> bool {
    let (alarm, limit) = match board.line.alarm.provide() {
        Ok((alarm, false)) => (alarm, limit),
        // Nobody could wake the agent until now: there may be something to see.
        Ok((_, true)) => return false,
        // Nobody can wake it.
        Err(_) => (-1, limit.min(PROGRESS)),
    };
    let events = |writes: bool| if writes { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let (number, wanted) = socket.map_or((-1, 0), |(number, writes)| (number, events(writes)));
    let mut polled = [
        libc::pollfd { fd: number, events: wanted, revents: 0 },
        libc::pollfd { fd: alarm, events: libc::POLLIN, revents: 0 },
    ];
    // Nothing is waited for longer than a lease.
    let limit = limit.min(LEASE);
    let limit = timespec(limit);
    // SAFETY: two structures, as it says, and a time. All signals are blocked already.
    unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &limit, ptr::null()) };
    let [socket, alarm] = polled.map(|polled| polled.revents);
    if alarm != 0 {
        board.line.alarm.answer();
    }
    socket & !libc::POLLOUT != 0
}

/// The program's name for people.
fn name() -> String {
    name::of(&std::env::args_os().collect::<Vec<_>>())
}

/// Waits until somebody else is to decide.
fn wait_for_turn(board: &Board, turn: u64) {
    let mut state = board.state.lock();
    while state.turn == turn {
        board.changed.wait(&mut state);
    }
}
