use super::super::perfetto::{Trace, TrackEvent};
use super::*;
use proptest::prelude::*;
use prost::Message as _;

const SUBJECT: u64 = 0xabc0;

/// The content of a file: the names of the tracks, and the events of each with their times and names.
#[derive(Debug, Default)]
struct Read {
    tracks: BTreeMap<u64, String>,
    /// Track, time, kind, name.
    events: Vec<(u64, u64, i32, String, TrackEvent)>,
}

fn read(bytes: &[u8]) -> Read {
    let trace = Trace::decode(bytes).unwrap();
    let (mut read, mut names) = (Read::default(), HashMap::new());
    for packet in trace.packet {
        if let Some(track) = packet.track_descriptor {
            read.tracks.insert(track.uuid.unwrap(), track.name.unwrap());
        }
        for name in packet.interned_data.into_iter().flat_map(|data| data.event_names) {
            names.insert(name.iid.unwrap(), name.name.unwrap());
        }
        if let Some(event) = packet.track_event {
            let name = event.name_iid.map(|iid| names[&iid].clone()).or(event.name.clone());
            let (uuid, kind) = (event.track_uuid.unwrap(), event.r#type.unwrap());
            read.events.push((uuid, packet.timestamp.unwrap(), kind, name.unwrap_or_default(), event));
        }
    }
    read
}

impl Read {
    /// Checks that slices begin and end in turn, at times that do not go back, and returns them: track, name, begin, end.
    fn slices(&self) -> Vec<(String, String, u64, u64)> {
        let (mut open, mut slices) = (BTreeMap::new(), Vec::new());
        let mut last = BTreeMap::new();
        for (uuid, at, kind, name, _) in &self.events {
            match kind {
                1 => assert!(open.insert(*uuid, (name.clone(), *at)).is_none(), "slices do not overlap"),
                2 => {
                    let (name, begin) = open.remove(uuid).expect("a slice has begun");
                    slices.push((self.tracks[uuid].clone(), name, begin, *at));
                }
                _ => continue,
            }
            let before = last.insert(*uuid, *at).unwrap_or(0);
            assert!(before <= *at, "time does not go back");
        }
        assert!(open.is_empty(), "every slice has an end: {open:?}");
        slices
    }

    /// The names of a track's instants.
    fn instants(&self, track: &str) -> Vec<&str> {
        let of_track =
            self.events.iter().filter(|(uuid, _, kind, ..)| *kind == 3 && self.tracks[uuid] == track);
        of_track.map(|(.., name, _)| name.as_str()).collect()
    }
}

/// Writes a program that sees these events.
fn write(events: &[(u64, TraceEvent)]) -> Read {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 1, 2, 3).unwrap();
    let mut program = Program::new(&mut writer, 42, "model").unwrap();
    program.name(Text { kind: TextKind::Subject, key: SUBJECT, text: "_Z3addPfS_i".to_owned() });
    program.name(Text { kind: TextKind::Queue, key: 1, text: "queue 7 on device 3".to_owned() });
    for (at, event) in events {
        program.take(&mut writer, *at, event).unwrap();
    }
    program.decide(&mut writer, 5, false, "pid 1 has priority 9 > 1").unwrap();
    program.end(&mut writer, 1_000).unwrap();
    writer.flush().unwrap();
    read(&bytes)
}

fn event(kind: TraceKind, number: u32, value: u64) -> TraceEvent {
    TraceEvent { kind, queue: 1, number, value }
}

#[test]
fn program_has_its_states_launches_and_evictions() {
    let of_process = |kind, value| TraceEvent { kind, queue: 0, number: 0, value };
    let read = write(&[
        (10, of_process(TraceKind::Permission, 1)),
        (20, event(TraceKind::Ready, 0, 0)),
        (21, event(TraceKind::Direct, 1, SUBJECT)),
        (22, event(TraceKind::Direct, 2, SUBJECT)),
        (30, of_process(TraceKind::Permission, 0)),
        (31, of_process(TraceKind::Evict, 0)),
        (33, of_process(TraceKind::Evicted, 0)),
        (34, of_process(TraceKind::Evict, 0)),
        (35, of_process(TraceKind::Evicted, 0)),
        (40, event(TraceKind::Submitted, 0, 0)),
        (50, of_process(TraceKind::Restored, 0)),
        (51, of_process(TraceKind::Permission, 1)),
        (52, event(TraceKind::Deferred, 3, 0)),
        (60, event(TraceKind::Completed, 2, 0)),
        (70, event(TraceKind::Completed, 3, 0)),
        (71, event(TraceKind::Idle, 0, 69)),
    ]);
    let queue = "queue 7 on device 3";
    let slice = |track: &str, name: &str, begin, end| (track.to_owned(), name.to_owned(), begin, end);
    let device = "on the device, as far as known";
    let permission = "permission, as the program sees it";
    let mut slices = read.slices();
    slices.sort_by_key(|(track, _, begin, _)| (track.clone(), *begin));
    let want = [
        slice("decision of the server", "suspended: pid 1 has priority 9 > 1", 5, 1_000),
        slice("hardware queues", "evicting", 31, 33),
        slice("hardware queues", "off the device", 33, 50),
        slice(device, "2 x add", 21, 60),
        slice(device, "kernel without a name", 60, 70),
        slice(permission, "runs", 10, 30),
        slice(permission, "suspended", 30, 51),
        slice(permission, "runs", 51, 1_000),
        slice(queue, "ready", 20, 71),
    ];
    assert_eq!(slices, want);
    let unknown = "kernel without a name";
    assert_eq!(read.instants("launches"), ["add", "add", "deferred: kernel without a name", unknown]);
    let waited = read.events.iter().flat_map(|(.., event)| &event.debug_annotations);
    let waited: Vec<_> = waited.filter(|one| one.name.as_deref() == Some("waited ns")).collect();
    assert_eq!(waited.iter().filter_map(|one| one.uint_value).collect::<Vec<_>>(), [12]);
    let counted: Vec<_> = read.events.iter().filter_map(|(.., event)| event.counter_value).collect();
    assert_eq!(counted, [1, 2, 3, 1, 0]);
}

#[test]
fn wait_is_told_only_where_all_that_waits_is_known() {
    let waits = |events: &[(u64, TraceEvent)]| {
        let read = write(events);
        let all = read.events.iter().flat_map(|(.., event)| event.debug_annotations.clone());
        all.filter(|one| one.name.as_deref() == Some("waited ns")).count()
    };
    let (submitted, deferred) = (event(TraceKind::Submitted, 0, 0), event(TraceKind::Deferred, 9, 0));
    assert_eq!(waits(&[(1, submitted), (2, deferred)]), 0, "others may have waited before");
    assert_eq!(waits(&[(0, event(TraceKind::Idle, 0, 0)), (1, submitted), (2, deferred)]), 1);
}

#[test]
fn launches_that_are_not_seen_to_complete_are_told_at_the_end() {
    let read = write(&[(1, event(TraceKind::Direct, 1, SUBJECT)), (2, event(TraceKind::Direct, 2, SUBJECT))]);
    let open = ("2 x add, not seen to complete".to_owned(), 1, 1_000);
    assert!(read.slices().into_iter().any(|(_, name, begin, end)| (name, begin, end) == open));
}

#[test]
fn readable_names_are_bounded() {
    assert_eq!(demangled("_Z4gemmIfLi16EEvPKT_S2_PS0_i"), "void gemm<float, 16>");
    // Twenty levels of pairs stand for megabytes.
    let pair = |level: u32| {
        let level = char::from_digit(level, 36).unwrap().to_ascii_uppercase();
        format!("S0_IS{level}_S{level}_E")
    };
    let bomb = format!("_Z1fI1AIiiE{}EvT_", (1..21).map(pair).collect::<String>());
    assert!(demangled(&bomb).contains("A<int, int>") && demangled(&bomb).len() <= READABLE);
    for hostile in [format!("_Z900{}", "é".repeat(450)), "_Z".repeat(400)] {
        assert!(demangled(&hostile).len() <= hostile.len());
    }
}

#[test]
fn packets_before_a_failed_write_are_whole() {
    /// A disk with room for so many bytes.
    struct Full<'a>(&'a mut Vec<u8>, usize);
    impl Write for Full<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.1.saturating_sub(self.0.len()).min(bytes.len());
            self.0.extend(&bytes[..room]);
            if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Full(&mut bytes, 200_000), 1, 2, 3).unwrap();
    let track = writer.track(None, "t").unwrap();
    while writer.instant(&track, 7, "mark", &[]).is_ok() {}
    let whole = usize::try_from(writer.written()).unwrap();
    assert!(whole > 100_000 && whole < 200_000 && bytes.len() == 200_000);
    assert!(read(&bytes[..whole]).instants("t").len() > 1_000);
}

#[test]
fn numbers_of_launches_wrap_around() {
    let read = write(&[
        (1, event(TraceKind::Direct, u32::MAX, SUBJECT)),
        (2, event(TraceKind::Direct, 0, SUBJECT)),
        (3, event(TraceKind::Completed, 0, 0)),
    ]);
    assert!(read.slices().iter().any(|(_, name, begin, end)| name == "2 x add" && (*begin, *end) == (1, 3)));
}

fn any_event() -> impl Strategy<Value = (u64, TraceEvent)> {
    let kind = proptest::sample::select(&TraceKind::ALL[..]);
    let number = prop_oneof![0..5_u32, any::<u32>()];
    let value = prop_oneof![Just(0), Just(1), Just(SUBJECT), any::<u64>()];
    let at = prop_oneof![0..100_u64, any::<u64>()];
    (at, kind, 0..4_u32, number, value)
        .prop_map(|(at, kind, queue, number, value)| (at, TraceEvent { kind, queue, number, value }))
}

proptest! {
    #[test]
    fn any_events_give_a_trace_that_can_be_read(events in proptest::collection::vec(any_event(), 0..200)) {
        write(&events).slices();
    }

    #[test]
    fn any_text_is_a_name(text in any::<String>()) {
        demangled(&text);
        demangled(&format!("_Z{text}"));
    }
}
