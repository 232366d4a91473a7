//! The trace of a program: a ring of events in shared memory, which the program's threads write and `xcli trace record`
//! reads.
//!
//! The server makes a memory file of [`size_of::<Trace>()`](Trace) bytes and sealed size. It sends the file to the program
//! ([`crate::message::ToClient::Trace`]) and, to read only, to everybody who records
//! ([`crate::control::Request::Trace`]). The server itself never reads it.
//!
//! Writers take no lock and wait for nobody: a new event replaces the oldest one. An entry consists of four words, one of
//! which is a check of the others and of the entry's number. So a reader recognizes an entry that is only half written, that
//! two writers have mixed, or that was replaced while it was read. It reads the content as untrusted input.

use crate::time::Time;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Events that a ring holds.
pub const ENTRIES: usize = 65_536;
/// Bytes for texts.
pub const TEXTS: usize = 256 * 1024;
/// The most bytes of one text. A longer one is cut at a character.
pub const TEXT: usize = 1_000;
/// Bytes in front of each text: its kind, its length and its key.
const TEXT_HEAD: usize = 1 + 2 + 8;

/// The memory file.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Trace {
    /// Events that were written so far.
    head: Line<AtomicU64>,
    /// The difference from the program's `CLOCK_MONOTONIC` to the server's. It wraps around.
    clock_offset: Line<AtomicU64>,
    /// Bytes of `texts` that are written.
    text_length: Line<AtomicU32>,
    entries: Line<[Entry; ENTRIES]>,
    /// One behind the other: kind, length (2 bytes), key (8 bytes), text. Little-endian. Only the program's agent writes it.
    texts: Line<[AtomicU8; TEXTS]>,
}

/// Words that do not share their line of the cache with others.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line<T>(T);

/// An event, in any state.
#[derive(Debug)]
#[repr(C)]
struct Entry {
    check: AtomicU64,
    /// Nanoseconds of the program's `CLOCK_MONOTONIC`.
    at: AtomicU64,
    /// Bits 0 to 7 are the kind, 8 to 31 the queue, 32 to 63 the number.
    what: AtomicU64,
    value: AtomicU64,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TraceKind {
    /// The submitting thread launched a command. `number` counts the launches of the queue, `value` is the subject.
    Direct = 1,
    /// A thread of the library launched a deferred command. `number` and `value` are as for [`TraceKind::Direct`].
    Deferred = 2,
    /// The submitting thread launched a command when its turn came. `number` and `value` are as for [`TraceKind::Direct`].
    InOrder = 3,
    /// A command was deferred. `value` is the subject.
    Submitted = 4,
    /// A thread saw that the first `number` launches of the queue have completed.
    Completed = 5,
    /// The queue has work.
    Ready = 6,
    /// The queue has only brief work, which counts after `value` nanoseconds.
    ReadyBriefly = 7,
    /// The queue has no work. `value` is the time since when, by the program's clock.
    Idle = 8,
    /// The library saw a permission of the process: `value` is 1 if it may launch and 0 if not. It has no queue.
    Permission = 9,
    /// The library asks the driver to take hardware queues off the device. It has no queue.
    Evict = 10,
    /// They are off the device. It has no queue.
    Evicted = 11,
    /// They are back on the device. It has no queue.
    Restored = 12,
}

impl TraceKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Direct,
        Self::Deferred,
        Self::InOrder,
        Self::Submitted,
        Self::Completed,
        Self::Ready,
        Self::ReadyBriefly,
        Self::Idle,
        Self::Permission,
        Self::Evict,
        Self::Evicted,
        Self::Restored,
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// The kind.
    pub kind: TraceKind,
    /// The queue, counted by the library in order of creation; 0 if it concerns the process. Only 24 bits are kept.
    pub queue: u32,
    /// A count that depends on the kind. Its lower 32 bits, where it counts launches.
    pub number: u32,
    /// A number that depends on the kind.
    pub value: u64,
}

/// The kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TextKind {
    /// The name of a subject (of a kernel, mangled; or of another command). The key is the subject.
    Subject = 1,
    /// The name of a queue. The key is the queue of [`TraceEvent::queue`].
    Queue = 2,
}

/// A text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The kind.
    pub kind: TextKind,
    /// The subject or the queue, depending on the kind.
    pub key: u64,
    /// The text, without control characters.
    pub text: String,
}

/// The check of an entry. Another number, or any one word of another entry, gives another check.
fn check(index: u64, at: u64, what: u64, value: u64) -> u64 {
    let mix = |seed: u64, word: u64| (seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    // Never the check of an entry that was not written, which is all zeros.
    mix(mix(mix(index.wrapping_add(1), at), what), value)
}

impl Trace {
    /// Writes an event. `at` is a time of the program's clock. Takes no lock, never waits and makes no system call.
    pub fn write(&self, at: Time, event: TraceEvent) {
        let TraceEvent { kind, queue, number, value } = event;
        let what = u64::from(number) << 32 | u64::from(queue & 0xff_ffff) << 8 | u64::from(kind as u8);
        // The check tells a reader what belongs together, so no order among the stores matters.
        let index = self.head.0.fetch_add(1, Ordering::Relaxed);
        let entry = self.entry(index);
        entry.at.store(at.0, Ordering::Relaxed);
        entry.what.store(what, Ordering::Relaxed);
        entry.value.store(value, Ordering::Relaxed);
        entry.check.store(check(index, at.0, what, value), Ordering::Relaxed);
    }

    fn entry(&self, index: u64) -> &Entry {
        // The remainder is below `ENTRIES`.
        &self.entries.0[(index % ENTRIES as u64) as usize]
    }

    /// Reads an entry, if it is the one with this number and complete.
    fn read(&self, index: u64) -> Option<(Time, TraceEvent)> {
        let Entry { check: sum, at, what, value } = self.entry(index);
        let [sum, at, what, value] = [sum, at, what, value].map(|word| word.load(Ordering::Relaxed));
        if sum != check(index, at, what, value) {
            return None;
        }
        // Each part is taken from its bits.
        let (kind, queue, number) = (what as u8, (what >> 8) as u32 & 0xff_ffff, (what >> 32) as u32);
        Some((Time(at), TraceEvent { kind: TraceKind::of(kind)?, queue, number, value }))
    }

    /// Sets the difference from the program's clock to the server's. It wraps around.
    pub fn set_clock_offset(&self, offset: u64) {
        self.clock_offset.0.store(offset, Ordering::Relaxed);
    }

    /// Converts a time of the program's clock to the server's.
    pub fn to_server(&self, time: Time) -> Time {
        Time(time.0.wrapping_add(self.clock_offset.0.load(Ordering::Relaxed)))
    }

    /// Adds a text. Returns false if there is no room. Only one thread of the program adds texts.
    pub fn add_text(&self, kind: TextKind, key: u64, text: &str) -> bool {
        let text = &text.as_bytes()[..text.floor_char_boundary(TEXT)];
        let start = self.text_length.0.load(Ordering::Relaxed) as usize;
        let Some(end) = (start + TEXT_HEAD + text.len() <= TEXTS).then_some(start + TEXT_HEAD + text.len())
        else {
            return false;
        };
        // At most `TEXT`, which fits.
        let length = (text.len() as u16).to_le_bytes();
        let bytes =
            [kind as u8].into_iter().chain(length).chain(key.to_le_bytes()).chain(text.iter().copied());
        for (to, byte) in self.texts.0[start..end].iter().zip(bytes) {
            to.store(byte, Ordering::Relaxed);
        }
        // At most `TEXTS`, which fits. A reader that sees the length sees the bytes.
        self.text_length.0.store(end as u32, Ordering::Release);
        true
    }
}

/// The place up to which a reader has read a trace.
#[derive(Debug, Clone, Default)]
pub struct TraceReader {
    next: u64,
    texts: usize,
    /// The entry that was incomplete at the last look.
    incomplete: Option<u64>,
}

impl TraceReader {
    /// Returns a reader of all texts, and of the events from now on.
    pub fn from_now(trace: &Trace) -> Self {
        Self { next: trace.head.0.load(Ordering::Relaxed), ..Self::default() }
    }

    /// Returns a reader of all texts, and of the last events as well: those that will not be replaced in a moment.
    pub fn from_recent(trace: &Trace) -> Self {
        let head = trace.head.0.load(Ordering::Relaxed);
        Self { next: head.saturating_sub(ENTRIES as u64 / 2), ..Self::default() }
    }

    /// Reads the events since the last call, with their times by the program's clock, in the order in which their writers
    /// began. Returns how many are lost: replaced before they were read, or incomplete at two calls. The caller calls often
    /// enough for the ring, and not without a pause.
    pub fn events(&mut self, trace: &Trace, mut take: impl FnMut(Time, TraceEvent)) -> u64 {
        let head = trace.head.0.load(Ordering::Relaxed);
        let mut lost = 0;
        let oldest = head.saturating_sub(ENTRIES as u64);
        if self.next < oldest {
            lost += oldest - self.next;
            self.next = oldest;
        }
        // A program that sets its head back begins anew.
        self.next = self.next.min(head);
        while self.next < head {
            match trace.read(self.next) {
                Some((at, event)) => take(at, event),
                None if self.incomplete == Some(self.next) => lost += 1,
                None => {
                    let head = trace.head.0.load(Ordering::Relaxed);
                    if head.saturating_sub(self.next) < ENTRIES as u64 {
                        self.incomplete = Some(self.next);
                        return lost;
                    }
                    lost += 1;
                }
            }
            self.next += 1;
        }
        lost
    }

    /// Reads the texts since the last call. What is no text is skipped, and so is everything behind it.
    pub fn texts(&mut self, trace: &Trace) -> Vec<Text> {
        let end = (trace.text_length.0.load(Ordering::Acquire) as usize).min(TEXTS);
        let mut texts = Vec::new();
        while self.texts < end {
            let bytes: Vec<u8> = trace.texts.0[self.texts..end]
                .iter()
                .take(TEXT_HEAD + TEXT)
                .map(|byte| byte.load(Ordering::Relaxed))
                .collect();
            let Some(text) = RawText::first_of(&bytes) else {
                self.texts = TEXTS;
                break;
            };
            self.texts += TEXT_HEAD + text.bytes.len();
            texts.extend(text.read());
        }
        texts
    }
}

/// A text as it lies in the file.
struct RawText<'a> {
    kind: u8,
    key: u64,
    bytes: &'a [u8],
}

impl<'a> RawText<'a> {
    /// Takes a text off the front.
    fn first_of(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_at_checked(TEXT_HEAD)?;
        let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let bytes = rest.get(..length).filter(|_| length <= TEXT)?;
        Some(Self { kind: head[0], key: u64::from_le_bytes(head[3..].try_into().ok()?), bytes })
    }

    /// Reads it, if its kind is known.
    fn read(&self) -> Option<Text> {
        let kind = [TextKind::Subject, TextKind::Queue].into_iter().find(|kind| *kind as u8 == self.kind)?;
        let text = String::from_utf8_lossy(self.bytes);
        let text = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Some(Text { kind, key: self.key, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn trace() -> Box<Trace> {
        let layout = std::alloc::Layout::new::<Trace>();
        // SAFETY: the layout has a size, and a trace consists of atomic integers, for which zeros are valid.
        unsafe {
            let memory = std::alloc::alloc_zeroed(layout).cast::<Trace>();
            assert!(!memory.is_null());
            Box::from_raw(memory)
        }
    }

    fn launch(number: u32) -> TraceEvent {
        TraceEvent { kind: TraceKind::Direct, queue: 3, number, value: 0xabc0 + u64::from(number) }
    }

    fn read(reader: &mut TraceReader, trace: &Trace) -> (Vec<(u64, TraceEvent)>, u64) {
        let mut events = Vec::new();
        let lost = reader.events(trace, |at, event| events.push((at.0, event)));
        (events, lost)
    }

    #[test]
    fn reader_gets_what_was_written_since_it_began() {
        let trace = trace();
        trace.write(Time(1), launch(1));
        let mut reader = TraceReader::from_now(&trace);
        assert_eq!(read(&mut reader, &trace), (vec![], 0));
        for (number, kind) in (2..).zip(TraceKind::ALL) {
            trace.write(Time(number.into()), TraceEvent { kind, ..launch(number) });
        }
        let (events, lost) = read(&mut reader, &trace);
        let want: Vec<_> = (2..)
            .zip(TraceKind::ALL)
            .map(|(number, kind)| (number.into(), TraceEvent { kind, ..launch(number) }))
            .collect();
        assert_eq!((events, lost), (want, 0));
        trace.set_clock_offset(0_u64.wrapping_sub(5));
        assert_eq!(trace.to_server(Time(12)), Time(7));
    }

    #[test]
    fn events_that_were_replaced_are_counted() {
        let trace = trace();
        let mut reader = TraceReader::from_now(&trace);
        let all = ENTRIES as u32 + 10;
        (0..all).for_each(|number| trace.write(Time(number.into()), launch(number)));
        let (events, lost) = read(&mut reader, &trace);
        assert_eq!((events.len(), lost, events[0].1), (ENTRIES, 10, launch(10)));
        let (recent, lost) = read(&mut TraceReader::from_recent(&trace), &trace);
        assert_eq!((recent.len(), lost), (ENTRIES / 2, 0));
    }

    #[test]
    fn event_that_stays_incomplete_is_counted_and_skipped() {
        let trace = trace();
        let mut reader = TraceReader::default();
        trace.write(Time(1), launch(1));
        // A thread that ends in the middle of its entry.
        trace.head.0.fetch_add(1, Ordering::Relaxed);
        trace.write(Time(3), launch(3));
        assert_eq!(read(&mut reader, &trace), (vec![(1, launch(1))], 0));
        assert_eq!(read(&mut reader, &trace), (vec![(3, launch(3))], 1));
    }

    #[test]
    fn entries_that_two_writers_have_mixed_are_no_events() {
        let trace = trace();
        trace.write(Time(1), launch(1));
        trace.entry(0).value.store(launch(2).value, Ordering::Relaxed);
        assert_eq!(trace.read(0), None);
        trace.entry(0).value.store(launch(1).value, Ordering::Relaxed);
        assert!(trace.read(0).is_some() && trace.read(ENTRIES as u64).is_none(), "it has another number");
    }

    #[test]
    fn threads_write_without_losing_anything() {
        const EACH: u32 = 10_000;
        let trace = trace();
        let mut reader = TraceReader::from_now(&trace);
        thread::scope(|scope| {
            for queue in 0..4 {
                let trace = &trace;
                scope.spawn(move || {
                    for number in 0..EACH {
                        trace.write(Time(1), TraceEvent { queue, ..launch(number) });
                    }
                });
            }
        });
        let (events, lost) = read(&mut reader, &trace);
        assert_eq!(lost, 0);
        for queue in 0..4 {
            let of_queue = events.iter().filter(|(_, event)| event.queue == queue);
            assert!(of_queue.map(|(_, event)| event.number).eq(0..EACH));
        }
    }

    #[test]
    fn texts_come_once_and_end_when_the_room_is_used_up() {
        let trace = trace();
        let mut reader = TraceReader::default();
        assert!(trace.add_text(TextKind::Subject, 7, "_Z3addPf"));
        assert!(trace.add_text(TextKind::Queue, 1, &"é\n".repeat(TEXT)));
        let texts = reader.texts(&trace);
        assert_eq!(texts[0], Text { kind: TextKind::Subject, key: 7, text: "_Z3addPf".to_owned() });
        assert_eq!((texts[1].kind, texts[1].key), (TextKind::Queue, 1));
        assert!(texts[1].text.starts_with("é?é?") && texts[1].text.len() <= TEXT);
        assert_eq!(reader.texts(&trace), []);
        let added = (0..).take_while(|key| trace.add_text(TextKind::Subject, *key, &"x".repeat(500))).count();
        assert_eq!(reader.texts(&trace).len(), added);
        assert!(added < 600 && !trace.add_text(TextKind::Subject, 0, &"x".repeat(500)));
    }
}
