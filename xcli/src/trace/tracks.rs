//! Turns the events of one program into tracks.
//!
//! A program's process has a track for its permission as its threads see it, one for what the server decides and why, and one for
//! the evictions of its hardware queues. Each of its queues has four: its state, its launches, what the device does as
//! far as that is known, and the number of launches in flight. All events are untrusted.

use super::perfetto::{Detail, Track, Writer};
use cpp_demangle::{DemangleOptions, Symbol};
use protocol::trace::{Text, TextKind, TraceEvent, TraceKind};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};

/// The most launches of a queue that are kept until they complete, and the most that wait. The oldest are given up.
const KEPT: usize = 100_000;
/// The most queues of a program.
const QUEUES: usize = 4_096;

/// A launch that is not known to have completed.
#[derive(Debug, Clone, Copy)]
struct Launch {
    number: u32,
    at: u64,
    subject: u64,
}

#[derive(Debug)]
struct Queue {
    state: Track,
    launches: Track,
    device: Track,
    in_flight: Track,
    flying: VecDeque<Launch>,
    /// The times of the deferred commands that are not launched, if all of them are known.
    waiting: Option<VecDeque<u64>>,
}

/// A program.
#[derive(Debug)]
pub(super) struct Program {
    process: Track,
    permission: Track,
    decision: Track,
    eviction: Track,
    is_off: bool,
    queues: BTreeMap<u32, Queue>,
    subjects: HashMap<u64, String>,
    queue_names: HashMap<u64, String>,
}

impl Program {
    /// Makes the tracks of a program.
    pub fn new<W: Write>(writer: &mut Writer<W>, pid: u32, name: &str) -> io::Result<Self> {
        let process = writer.process(pid, name)?;
        Ok(Self {
            permission: writer.track(Some(&process), "permission, as the program sees it")?,
            decision: writer.track(Some(&process), "decision of the server")?,
            eviction: writer.track(Some(&process), "hardware queues")?,
            process,
            is_off: false,
            queues: BTreeMap::new(),
            subjects: HashMap::new(),
            queue_names: HashMap::new(),
        })
    }

    /// Takes a name.
    pub fn name(&mut self, text: Text) {
        match text.kind {
            TextKind::Subject => self.subjects.insert(text.key, demangled(&text.text)),
            TextKind::Queue => self.queue_names.insert(text.key, text.text),
        };
    }

    /// Notes that events are missing.
    pub fn note_lost(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.waiting = None);
    }

    /// Takes a decision of the server.
    pub fn decide<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        at: u64,
        runs: bool,
        why: &str,
    ) -> io::Result<()> {
        let state = if runs { "runs" } else { "suspended" };
        writer.begin(&mut self.decision, at, &format!("{state}: {why}"), &[])
    }

    /// Takes an event. Events come in the order of their times, nearly always.
    pub fn take<W: Write>(&mut self, writer: &mut Writer<W>, at: u64, event: &TraceEvent) -> io::Result<()> {
        match event.kind {
            TraceKind::Permission => {
                let name = if event.value == 0 { "suspended" } else { "runs" };
                return writer.begin(&mut self.permission, at, name, &[]);
            }
            TraceKind::Evict => {
                return if self.is_off {
                    Ok(())
                } else {
                    writer.begin(&mut self.eviction, at, "evicting", &[])
                };
            }
            TraceKind::Evicted => {
                let was_off = std::mem::replace(&mut self.is_off, true);
                return if was_off {
                    Ok(())
                } else {
                    writer.begin(&mut self.eviction, at, "off the device", &[])
                };
            }
            TraceKind::Restored => {
                self.is_off = false;
                return writer.end(&mut self.eviction, at);
            }
            _ => {}
        }
        let Self { process, queues, subjects, queue_names, .. } = self;
        let is_full = queues.len() >= QUEUES;
        let queue = match queues.entry(event.queue) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(_) if is_full => return Ok(()),
            std::collections::btree_map::Entry::Vacant(room) => {
                let name = queue_names.get(&event.queue.into()).cloned();
                let name = name.unwrap_or_else(|| format!("queue ({} of the program)", event.queue));
                room.insert(Queue::new(writer, process, &name)?)
            }
        };
        queue.take(writer, at, event, subjects)
    }

    /// Ends what has begun.
    pub fn end<W: Write>(&mut self, writer: &mut Writer<W>, at: u64) -> io::Result<()> {
        for queue in self.queues.values_mut() {
            writer.end(&mut queue.state, at)?;
            let left: Vec<_> = queue.flying.drain(..).collect();
            queue.show(writer, at, &left, ", not seen to complete", &self.subjects)?;
        }
        for track in [&mut self.permission, &mut self.decision, &mut self.eviction] {
            writer.end(track, at)?;
        }
        Ok(())
    }
}

impl Queue {
    fn new<W: Write>(writer: &mut Writer<W>, process: &Track, name: &str) -> io::Result<Self> {
        let state = writer.track(Some(process), name)?;
        Ok(Self {
            launches: writer.track(Some(&state), "launches")?,
            device: writer.track(Some(&state), "on the device, as far as known")?,
            in_flight: writer.counter(&state, "in flight")?,
            state,
            flying: VecDeque::new(),
            waiting: None,
        })
    }

    fn take<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        at: u64,
        event: &TraceEvent,
        names: &HashMap<u64, String>,
    ) -> io::Result<()> {
        let TraceEvent { kind, number, value, .. } = *event;
        match kind {
            TraceKind::Ready => writer.begin(&mut self.state, at, "ready", &[]),
            TraceKind::ReadyBriefly => {
                let details = [Detail::Number("counts after ns", value)];
                writer.begin(&mut self.state, at, "ready, brief work", &details)
            }
            TraceKind::Idle => {
                // Nothing waits where nothing is unfinished.
                self.waiting = Some(VecDeque::new());
                writer.end(&mut self.state, at)
            }
            TraceKind::Submitted => {
                if let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.len() < KEPT) {
                    waiting.push_back(at);
                } else {
                    self.waiting = None;
                }
                writer.instant(&self.launches, at, &format!("deferred: {}", name(names, value)), &[])
            }
            TraceKind::Direct | TraceKind::Deferred | TraceKind::InOrder => {
                self.launch(writer, Launch { number, at, subject: value }, kind, names)
            }
            TraceKind::Completed => self.complete(writer, at, number, names),
            // These have no queue.
            TraceKind::Permission | TraceKind::Evict | TraceKind::Evicted | TraceKind::Restored => Ok(()),
        }
    }

    fn launch<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        launch: Launch,
        kind: TraceKind,
        names: &HashMap<u64, String>,
    ) -> io::Result<()> {
        let Launch { number, at, subject } = launch;
        let mut details = vec![Detail::Number("launch", number.into())];
        let how = match kind {
            TraceKind::Direct => {
                // It would not be direct if something waited.
                self.waiting = Some(VecDeque::new());
                "at once, by the program's thread"
            }
            TraceKind::InOrder => "in its turn, by the program's thread",
            _ => "later, by a thread of the library",
        };
        details.push(Detail::Text("how", how.to_owned()));
        if kind != TraceKind::Direct
            && let Some(since) = self.waiting.as_mut().and_then(VecDeque::pop_front)
        {
            details.push(Detail::Number("waited ns", at.saturating_sub(since)));
        }
        if self.flying.len() >= KEPT {
            self.flying.pop_front();
        }
        self.flying.push_back(launch);
        writer.instant(&self.launches, at, name(names, subject), &details)?;
        writer.count(&self.in_flight, at, self.flying.len() as u64)
    }

    fn complete<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        at: u64,
        number: u32,
        names: &HashMap<u64, String>,
    ) -> io::Result<()> {
        // Numbers wrap around.
        let has_completed = |launch: &Launch| number.wrapping_sub(launch.number) < u32::MAX / 2;
        let mut done = Vec::new();
        while let Some(launch) = self.flying.pop_front_if(|launch| has_completed(launch)) {
            done.push(launch);
        }
        self.show(writer, at, &done, "", names)
    }

    /// Writes the slice of launches whose completion was seen together.
    fn show<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        at: u64,
        done: &[Launch],
        remark: &str,
        names: &HashMap<u64, String>,
    ) -> io::Result<()> {
        let (Some(first), Some(last)) = (done.first(), done.last()) else { return Ok(()) };
        let of_first = name(names, first.subject);
        let same = done.iter().all(|launch| launch.subject == first.subject);
        let title = match (same, done.len()) {
            (_, 1) => format!("{of_first}{remark}"),
            (true, count) => format!("{count} x {of_first}{remark}"),
            (false, count) => format!("{of_first} and {} more{remark}", count - 1),
        };
        let details = [
            Detail::Number("first launch", first.number.into()),
            Detail::Number("last launch", last.number.into()),
            Detail::Text("end", "when the program saw it; it can be earlier".to_owned()),
        ];
        writer.slice(&mut self.device, (first.at, at), &title, &details)?;
        writer.count(&self.in_flight, at, self.flying.len() as u64)
    }
}

fn name(names: &HashMap<u64, String>, subject: u64) -> &str {
    names.get(&subject).map_or("kernel without a name", String::as_str)
}

/// The most bytes of a readable name: a short mangled one can stand for megabytes.
const READABLE: usize = 300;

/// Returns a readable name, without the types of the parameters. A long one is cut.
fn demangled(name: &str) -> String {
    let mut readable = Bounded(String::new());
    let symbol = (name.len() <= READABLE * 2).then(|| Symbol::new(name).ok()).flatten();
    let options = DemangleOptions::new().no_params();
    let is_whole = symbol.is_some_and(|symbol| symbol.structured_demangle(&mut readable, &options).is_ok());
    if is_whole || readable.0.len() >= READABLE { readable.0 } else { name.to_owned() }
}

/// A text that refuses what is beyond its bound.
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = READABLE.saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room { Err(std::fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
