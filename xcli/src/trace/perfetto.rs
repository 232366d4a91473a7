//! The part of Perfetto's trace format that is written here, and a writer of it.
//!
//! The messages and their numbers are those of `protos/perfetto/trace/` of Perfetto. All packets are one sequence. Times are
//! nanoseconds of the server's `CLOCK_MONOTONIC`, which is the trace's clock.

use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// `BUILTIN_CLOCK_MONOTONIC` and others, of `builtin_clock.proto`.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;
/// `TracePacket.SequenceFlags`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
/// The number of the only sequence.
const SEQUENCE: u32 = 1;
/// The size from which on the buffer is written.
const BUFFER: usize = 64 * 1024;
/// The most names that are kept apart. Further ones are written in full at each event.
const NAMES: usize = 100_000;

/// `TrackEvent.Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    pub primary_trace_clock: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<EventName>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventName {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// A detail of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Detail {
    Number(&'static str, u64),
    Text(&'static str, String),
}

/// A track. Its slices do not overlap, and begin and end in order, whatever times it is given.
#[derive(Debug)]
pub(super) struct Track {
    uuid: u64,
    /// The time of the last begin or end.
    last: u64,
    is_open: bool,
}

/// Writes packets, always whole ones: where a write fails, the file can be cut behind the last whole packet.
#[derive(Debug)]
pub(super) struct Writer<W> {
    writer: W,
    /// Whole packets that are not written yet.
    buffer: Vec<u8>,
    /// The bytes of the packets that are written.
    written: u64,
    tracks: u64,
    names: HashMap<String, u64>,
    is_first: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a trace. The times of the clocks are those of one moment.
    pub fn new(writer: W, monotonic: u64, boot: u64, real: u64) -> io::Result<Self> {
        let (buffer, names) = (Vec::new(), HashMap::new());
        let mut this = Self { writer, buffer, written: 0, tracks: 0, names, is_first: true };
        let clock = |clock_id, timestamp| Clock { clock_id: Some(clock_id), timestamp: Some(timestamp) };
        this.write(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![clock(REALTIME, real), clock(MONOTONIC, monotonic), clock(BOOTTIME, boot)],
                primary_trace_clock: Some(MONOTONIC),
            }),
            ..TracePacket::default()
        })?;
        Ok(this)
    }

    fn write(&mut self, packet: TracePacket) -> io::Result<()> {
        // A trace of several packets is its parts, one behind the other.
        self.buffer.extend(Trace { packet: vec![packet] }.encode_to_vec());
        if self.buffer.len() < BUFFER { Ok(()) } else { self.flush() }
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.buffer)?;
        self.writer.flush()?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// The bytes of the packets that are written.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> io::Result<Track> {
        self.tracks += 1;
        let uuid = self.tracks;
        self.write(TracePacket {
            track_descriptor: Some(TrackDescriptor { uuid: Some(uuid), ..descriptor }),
            ..TracePacket::default()
        })?;
        Ok(Track { uuid, last: 0, is_open: false })
    }

    /// Makes a track for a process. A process without a number here is a plain track.
    pub fn process(&mut self, pid: u32, name: &str) -> io::Result<Track> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0);
        let process =
            pid.map(|pid| ProcessDescriptor { pid: Some(pid), process_name: Some(name.to_owned()) });
        self.describe(TrackDescriptor { name: Some(name.to_owned()), process, ..TrackDescriptor::default() })
    }

    /// Makes a track below another one, or at the top.
    pub fn track(&mut self, parent: Option<&Track>, name: &str) -> io::Result<Track> {
        let parent_uuid = parent.map(|parent| parent.uuid);
        self.describe(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid,
            ..TrackDescriptor::default()
        })
    }

    /// Makes a track of numbers below another one.
    pub fn counter(&mut self, parent: &Track, name: &str) -> io::Result<Track> {
        self.describe(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent.uuid),
            counter: Some(CounterDescriptor {}),
            ..TrackDescriptor::default()
        })
    }

    /// Begins a slice, and ends the one before.
    pub fn begin(&mut self, track: &mut Track, at: u64, name: &str, details: &[Detail]) -> io::Result<()> {
        self.end(track, at)?;
        track.last = track.last.max(at);
        track.is_open = true;
        self.event(track.uuid, track.last, Kind::Begin, Some(name), details, None)
    }

    /// Ends the slice that has begun, if there is one.
    pub fn end(&mut self, track: &mut Track, at: u64) -> io::Result<()> {
        if !std::mem::take(&mut track.is_open) {
            return Ok(());
        }
        track.last = track.last.max(at);
        self.event(track.uuid, track.last, Kind::End, None, &[], None)
    }

    /// Writes a whole slice.
    pub fn slice(
        &mut self,
        track: &mut Track,
        (from, to): (u64, u64),
        name: &str,
        details: &[Detail],
    ) -> io::Result<()> {
        self.begin(track, from, name, details)?;
        self.end(track, to)
    }

    pub fn instant(&mut self, track: &Track, at: u64, name: &str, details: &[Detail]) -> io::Result<()> {
        self.event(track.uuid, at, Kind::Instant, Some(name), details, None)
    }

    pub fn count(&mut self, track: &Track, at: u64, value: u64) -> io::Result<()> {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.event(track.uuid, at, Kind::Counter, None, &[], Some(value))
    }

    fn event(
        &mut self,
        uuid: u64,
        at: u64,
        kind: Kind,
        name: Option<&str>,
        details: &[Detail],
        counter_value: Option<i64>,
    ) -> io::Result<()> {
        let annotation = |detail: &Detail| match detail {
            Detail::Number(name, value) => DebugAnnotation {
                name: Some((*name).to_owned()),
                uint_value: Some(*value),
                ..DebugAnnotation::default()
            },
            Detail::Text(name, value) => DebugAnnotation {
                name: Some((*name).to_owned()),
                string_value: Some(value.clone()),
                ..DebugAnnotation::default()
            },
        };
        let (mut interned_data, mut name_iid, mut full) = (None, None, None);
        if let Some(name) = name {
            match self.names.get(name) {
                Some(iid) => name_iid = Some(*iid),
                None if self.names.len() < NAMES => {
                    let iid = self.names.len() as u64 + 1;
                    self.names.insert(name.to_owned(), iid);
                    let new = EventName { iid: Some(iid), name: Some(name.to_owned()) };
                    interned_data = Some(InternedData { event_names: vec![new] });
                    name_iid = Some(iid);
                }
                None => full = Some(name.to_owned()),
            }
        }
        let flags = if std::mem::take(&mut self.is_first) { STATE_CLEARED } else { NEEDS_STATE };
        self.write(TracePacket {
            timestamp: Some(at),
            timestamp_clock_id: Some(MONOTONIC),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(flags),
            interned_data,
            track_event: Some(TrackEvent {
                r#type: Some(kind as i32),
                track_uuid: Some(uuid),
                name_iid,
                name: full,
                counter_value,
                debug_annotations: details.iter().map(annotation).collect(),
            }),
            ..TracePacket::default()
        })
    }
}
