//! Reads the traces of all programs and the decisions of the server, and writes them.
//!
//! Two threads wait for the server: one for programs and their files, one for decisions. The main thread reads all rings every
//! 10 ms, often enough for 6 million events a second. It keeps events for a moment, because the names of kernels come
//! behind them, and then writes them in the order of their times. Nothing else is kept.

use super::perfetto::{Track, Writer};
use super::ring::Ring;
use super::tracks::Program;
use crate::ask::{Cause, Failure, Session, unexpected};
use crate::endpoint::Endpoint;
use crate::events;
use crate::table::plain;
use anyhow::{Context as _, bail};
use protocol::control::{EventKind, Reply, Request, ServerEvent, TracedProgram};
use protocol::ids::Pid;
use protocol::time::Time;
use protocol::trace::{TraceEvent, TraceKind, TraceReader};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which rings are read.
const INTERVAL: Duration = Duration::from_millis(10);
/// The time for which events are kept, so that names have come. Programs write them every 50 ms.
const NAMES: Duration = Duration::from_millis(150);
/// The programs that are recorded at a time and known.
const PROGRAMS: usize = 4_096;

/// The result of a recording.
#[derive(Debug)]
pub(super) struct Summary {
    pub span: Duration,
    pub programs: usize,
    pub events: u64,
    pub lost: u64,
    pub bytes: u64,
    /// A line for each program that is missing.
    pub missing: Vec<String>,
}

/// A message of a thread that waits for the server.
#[derive(Debug)]
enum News {
    Program(TracedProgram, Option<OwnedFd>),
    Events(Vec<ServerEvent>),
    Over(anyhow::Error),
}

/// A program that is recorded, or was.
#[derive(Debug)]
struct Recorded {
    pid: Pid,
    tracks: Program,
    /// None if it writes no trace, or has ended.
    ring: Option<(Ring, TraceReader)>,
    kept: VecDeque<(u64, TraceEvent)>,
    /// The server's time at which it was added.
    added_at: u64,
    /// The moment at which it ended.
    ended: Option<Instant>,
}

impl Recorded {
    /// Returns true if it is the program of this process, which has a number.
    fn is(&self, pid: Pid) -> bool {
        self.pid == pid && pid.0 != 0 && self.ended.is_none()
    }
}

/// Returns true if a program has ended, and all of its events and names have been read.
fn has_ended(ended: Option<Instant>) -> bool {
    ended.is_some_and(|ended| ended.elapsed() > NAMES)
}

/// A recording.
pub(super) struct Recorder<W> {
    news: Receiver<News>,
    writer: Writer<W>,
    server: Track,
    programs: Vec<Recorded>,
    begun: Instant,
    /// The server's time at the begin.
    begun_at: u64,
    summary: Summary,
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

impl<W: Write> Recorder<W> {
    /// Connects, and begins the file.
    ///
    /// # Errors
    /// The server does not answer, or the file cannot be written.
    pub fn start(endpoint: &Endpoint, writer: W) -> anyhow::Result<Self> {
        // The server may be in another time namespace.
        let at = Session::new(endpoint).list()?.server.now.0;
        let (begun, boot, real) = (Instant::now(), nanos(ClockId::Boottime), nanos(ClockId::Realtime));
        let mut writer = Writer::new(writer, at, boot, real).context(UNWRITTEN)?;
        let server = writer.track(None, "xserver").context(UNWRITTEN)?;
        // Threads that are made from here on do not take the signals either.
        block_signals()?;
        let (to, news) = channel();
        listen(endpoint, to.clone(), Request::Trace, |reply, files| match reply {
            Reply::Traced(program) => {
                // A program without a trace has no file; the next one in the list is of another program.
                let file = (program.missing.is_none() && !files.is_empty()).then(|| files.remove(0));
                News::Program(program, file)
            }
            other => News::Over(unexpected(&other)),
        })?;
        listen(endpoint, to, Request::Events { recent: 0, follow: true }, |reply, _| match reply {
            Reply::Events(events) => News::Events(events),
            other => News::Over(unexpected(&other)),
        })?;
        let missing = Vec::new();
        let summary = Summary { span: Duration::ZERO, programs: 0, events: 0, lost: 0, bytes: 0, missing };
        Ok(Self { news, writer, server, programs: Vec::new(), begun, begun_at: at, summary })
    }

    /// Records for this long, or until a signal asks to end. Returns what was recorded also if the server ends before that, or
    /// if the file cannot be written any further.
    pub fn record(mut self, span: Duration) -> (Summary, anyhow::Result<()>) {
        let recorded = self.follow(span);
        self.summary.span = self.begun.elapsed();
        let closed = self.close();
        self.summary.bytes = self.writer.written();
        // The first failure is the cause of the others.
        (self.summary, recorded.and(closed))
    }

    fn follow(&mut self, span: Duration) -> anyhow::Result<()> {
        while self.begun.elapsed() < span {
            self.take_news()?;
            self.read_rings(NAMES)?;
            if wait_for_signal(INTERVAL.min(span.saturating_sub(self.begun.elapsed()))) {
                break;
            }
        }
        Ok(())
    }

    /// Writes what is left, and the ends of what has begun.
    fn close(&mut self) -> anyhow::Result<()> {
        let end = self.now();
        // The last names come.
        thread::sleep(NAMES);
        // If the server has ended, the first message about it was the reason to close.
        let _ = self.take_news();
        self.read_rings(Duration::ZERO)?;
        for program in &mut self.programs {
            program.tracks.end(&mut self.writer, end).context(UNWRITTEN)?;
        }
        self.writer.flush().context(UNWRITTEN)
    }

    /// The server's time.
    fn now(&self) -> u64 {
        self.begun_at + u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(0)
    }

    /// A time that lies in the recording, whatever a program says.
    fn within(&self, at: Time) -> u64 {
        at.0.clamp(self.begun_at, self.now())
    }

    fn take_news(&mut self) -> anyhow::Result<()> {
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Program(program, file) => self.add(&program, file).context(UNWRITTEN)?,
                News::Events(events) => {
                    for event in &events {
                        self.take_event(event).context(UNWRITTEN)?;
                    }
                }
                News::Over(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds a program. Its decisions can have come before it.
    fn add(&mut self, program: &TracedProgram, file: Option<OwnedFd>) -> std::io::Result<()> {
        let (pid, name) = (program.pid, plain(&program.name));
        let ring = match (&program.missing, file) {
            (Some(why), _) => Err(plain(why)),
            (None, Some(file)) => Ring::new(&file).map_err(|error| error.to_string()),
            (None, None) => Err("no file has come: does this process have no descriptor left?".to_owned()),
        };
        let ring = match ring {
            Ok(ring) => {
                let reader = TraceReader::from_recent(ring.trace());
                Some((ring, reader))
            }
            Err(why) => {
                self.summary.missing.push(format!("{pid} {name} is not in the trace: {why}"));
                None
            }
        };
        let programs = self.summary.programs + usize::from(ring.is_some());
        // Decisions about it can have come first.
        if let Some(known) = self.programs.iter_mut().find(|one| one.is(pid) && one.ring.is_none()) {
            known.ring = ring;
        } else if self.programs.len() < PROGRAMS {
            self.push(pid, &name, ring)?;
        } else {
            let why = format!("{PROGRAMS} programs are recorded, which is the maximum");
            self.summary.missing.push(format!("{pid} {name} is not in the trace: {why}"));
            return Ok(());
        }
        self.summary.programs = programs;
        Ok(())
    }

    /// Takes an event of the server.
    fn take_event(&mut self, event: &ServerEvent) -> std::io::Result<()> {
        let at = self.within(event.at);
        match &event.kind {
            EventKind::Running { pid, name, why } => self.decide(*pid, name, at, true, why),
            EventKind::Suspended { pid, name, why } => self.decide(*pid, name, at, false, why),
            other => {
                if let EventKind::Left { pid, .. } = other {
                    // The process can have connected again meanwhile.
                    let left =
                        self.programs.iter_mut().filter(|one| one.is(*pid) && one.added_at <= event.at.0);
                    left.for_each(|program| program.ended = Some(Instant::now()));
                }
                self.writer.instant(&self.server, at, &events::text(other), &[])
            }
        }
    }

    fn decide(&mut self, pid: Pid, name: &str, at: u64, runs: bool, why: &str) -> std::io::Result<()> {
        if pid.0 == 0 {
            // It has no number in the server's namespace, so it is unknown which program it is.
            let state = if runs { "running" } else { "suspended" };
            return self.writer.instant(
                &self.server,
                at,
                &format!("{state} {}: {}", plain(name), plain(why)),
                &[],
            );
        }
        if self.programs.len() < PROGRAMS && !self.programs.iter().any(|program| program.is(pid)) {
            self.push(pid, &plain(name), None)?;
        }
        match self.programs.iter_mut().find(|program| program.is(pid)) {
            Some(program) => program.tracks.decide(&mut self.writer, at, runs, &plain(why)),
            None => Ok(()),
        }
    }

    /// Adds a program that is not known.
    fn push(&mut self, pid: Pid, name: &str, ring: Option<(Ring, TraceReader)>) -> std::io::Result<()> {
        let tracks = Program::new(&mut self.writer, pid.0, name)?;
        let added_at = self.now();
        self.programs.push(Recorded { pid, tracks, ring, kept: VecDeque::new(), added_at, ended: None });
        Ok(())
    }

    /// Reads all rings, and writes what is older than this.
    fn read_rings(&mut self, age: Duration) -> anyhow::Result<()> {
        let (from, now) = (self.begun_at, self.now());
        let until = now.saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        for program in &mut self.programs {
            let Recorded { tracks, ring, kept, ended, .. } = program;
            if let Some((ring, reader)) = ring {
                let trace = ring.trace();
                let begun = kept.len();
                let lost = reader.events(trace, |at, event| {
                    let at = match event.kind {
                        // It has been idle for a while when a thread finds out.
                        TraceKind::Idle => at.min(Time(event.value)),
                        _ => at,
                    };
                    let at = trace.to_server(at).0;
                    // Others may have recorded before. What was then permitted still is.
                    if at >= from || event.kind == TraceKind::Permission {
                        kept.push_back((at.clamp(from, now), event));
                    }
                });
                self.summary.events += (kept.len() - begun) as u64;
                self.summary.lost += lost;
                if lost != 0 {
                    tracks.note_lost();
                }
                // Several threads write, so neighbours can be in the wrong order.
                kept.make_contiguous().sort_by_key(|(at, _)| *at);
                reader.texts(trace).into_iter().for_each(|text| tracks.name(text));
            }
            while let Some((at, event)) = kept.pop_front_if(|(at, _)| *at <= until) {
                tracks.take(&mut self.writer, at, &event).context(UNWRITTEN)?;
            }
            if has_ended(*ended) {
                tracks.end(&mut self.writer, now).context(UNWRITTEN)?;
            }
        }
        self.programs.retain(|program| !has_ended(program.ended));
        Ok(())
    }
}

const UNWRITTEN: &str = "cannot write the trace";

/// Follows a request in a thread of its own, which ends with the process.
fn listen(
    endpoint: &Endpoint,
    to: Sender<News>,
    request: Request,
    news: impl Fn(Reply, &mut Vec<OwnedFd>) -> News + Send + 'static,
) -> anyhow::Result<()> {
    let session = Session::new(endpoint);
    let follow = move || {
        let result = session.follow_files(&request, |reply, files| Ok(to.send(news(reply, files)).is_ok()));
        let over = match result {
            Ok(()) => return,
            Err(error) => match error.downcast_ref() {
                Some(Failure { cause: Cause::Refused(why), .. }) if why.contains("unknown variant") => {
                    anyhow::anyhow!(
                        "this server is older than this xcli, and records no traces: start it anew"
                    )
                }
                _ => error,
            },
        };
        let _ = to.send(News::Over(over));
    };
    thread::Builder::new().name("trace".to_owned()).spawn(follow).context("cannot start a thread")?;
    Ok(())
}

/// The signals that ask to end.
fn signals() -> libc::sigset_t {
    // SAFETY: the set consists of integers, for which zeros are valid; the calls change only this set.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

fn block_signals() -> anyhow::Result<()> {
    // SAFETY: the set is valid, and the former one is not wanted.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals(), std::ptr::null_mut()) } {
        0 => Ok(()),
        error => bail!("cannot block signals: {}", std::io::Error::from_raw_os_error(error)),
    }
}

/// Waits for one of them. Returns true if it has come.
fn wait_for_signal(limit: Duration) -> bool {
    let nanos = libc::c_long::from(limit.subsec_nanos().cast_signed());
    let limit =
        libc::timespec { tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(0), tv_nsec: nanos };
    // SAFETY: set and time are valid, and the details are not wanted.
    unsafe { libc::sigtimedwait(&signals(), std::ptr::null_mut(), &limit) > 0 }
}
