//! What reads bytes of others: entry points for the property tests here and for the fuzz targets (`fuzz/`). Each takes any
//! bytes, and panics if a rule is broken.

use protocol::control::{Reply, Request};
use protocol::frame::{Decoder, Frame, FrameError, HEADER, MAGIC, REQUEST_LIMIT};
use protocol::message::{REPLY, REQUEST, TEXT, ToClient, ToServer};
use protocol::time::Time;
use protocol::trace::{self, ENTRIES, TEXTS, TextKind, Trace, TraceEvent, TraceKind, TraceReader};

/// A stream in pieces. The first byte is the size of the pieces, less one. The frames do not depend on the pieces, have at most
/// as many bytes as permitted, and are those that encoding them makes.
pub fn frames(bytes: &[u8]) {
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let (whole, pieces) = (decode(stream, stream.len().max(1)), decode(stream, usize::from(piece) + 1));
    assert_eq!(whole, pieces, "the frames depend on the pieces");
    let (frames, fault) = whole;
    let encoded: Vec<u8> =
        frames.iter().flat_map(|frame| Frame::encode(frame.kind, &frame.payload)).collect();
    assert!(stream.starts_with(&encoded), "the frames are not those of the stream");
    assert!(frames.iter().all(|frame| frame.payload.len() <= REQUEST_LIMIT));
    let rest = &stream[encoded.len()..];
    match fault {
        // Nothing that is refused is a frame, and nothing that could still become one is refused.
        Some(FrameError::Magic) => assert!(!MAGIC.starts_with(&rest[..rest.len().min(MAGIC.len())])),
        Some(FrameError::Version(_) | FrameError::Length(_)) => assert!(rest.len() >= HEADER),
        None => assert!(rest.len() < HEADER + REQUEST_LIMIT),
    }
    for frame in &frames {
        message(frame);
    }
}

/// Decodes a stream in pieces of this size, up to its first fault.
fn decode(stream: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = Decoder::new(REQUEST_LIMIT);
    let mut frames = Vec::new();
    for piece in stream.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// The payload of a frame. The first two bytes are its kind.
pub fn messages(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first_chunk() else { return };
    message(&Frame { kind: u16::from_le_bytes(*kind), payload: payload.to_vec() });
}

/// Decodes a frame as everything that it can be. A decoded message encoded again means the same, and its text is harmless.
fn message(frame: &Frame) {
    if let Ok(message) = ToServer::decode(frame) {
        assert_eq!(ToServer::decode(&one(&message.encode())), Ok(message.clone()));
        if let ToServer::Hello { name: text, .. } | ToServer::Preemption { how: text, .. } = message {
            check(&text);
        }
    }
    if let Ok(message) = ToClient::decode(frame) {
        assert_eq!(ToClient::decode(&one(&message.encode())), Ok(message.clone()));
        if let ToClient::Refused { reason } = message {
            check(&reason);
        }
    }
    if frame.kind == REQUEST
        && let Ok(request) = serde_json::from_slice::<Request>(&frame.payload)
    {
        let again = serde_json::to_vec(&request).expect("a request is JSON");
        let again: Request = serde_json::from_slice(&again).expect("what was read can be read again");
        assert_eq!(format!("{again:?}"), format!("{request:?}"));
    }
    if frame.kind == REPLY {
        let _ = serde_json::from_slice::<Reply>(&frame.payload);
    }
}

/// A text reaches terminals.
fn check(text: &str) {
    assert!(text.len() <= TEXT && !text.chars().any(char::is_control), "{text:?}");
}

/// The only frame in these bytes.
fn one(bytes: &[u8]) -> Frame {
    let mut decoder = Decoder::new(REQUEST_LIMIT);
    decoder.push(bytes);
    let frame = decoder.next_frame().expect("it is a frame").expect("it is complete");
    assert!(decoder.is_empty());
    frame
}

/// The file of a trace. The first byte is a number of events and texts that are written as a program writes them. Behind it are
/// pieces of 16 bytes, each with a place (4 bytes) and what stands there instead.
pub fn rings(bytes: &[u8]) {
    let Some((&written, pieces)) = bytes.split_first() else { return };
    let layout = std::alloc::Layout::new::<Trace>();
    // SAFETY: the layout has a size, and a trace consists of atomic integers, for which zeros are valid.
    let mut trace = unsafe {
        let memory = std::alloc::alloc_zeroed(layout).cast::<Trace>();
        assert!(!memory.is_null());
        Box::from_raw(memory)
    };
    for number in 0..u32::from(written) {
        let event = TraceEvent { kind: TraceKind::Direct, queue: number, number, value: 7 };
        trace.write(Time(number.into()), event);
        trace.add_text(TextKind::Subject, number.into(), "a name");
    }
    let size = size_of::<Trace>();
    // SAFETY: the memory has this size, nothing else uses it, and any bytes are valid atomic integers.
    let memory = unsafe { std::slice::from_raw_parts_mut((&raw mut *trace).cast::<u8>(), size) };
    for piece in pieces.chunks_exact(16) {
        let place = u32::from_le_bytes([piece[0], piece[1], piece[2], piece[3]]);
        // Half of the places lie where texts are.
        let place = match place % 2 {
            0 => place as usize / 2 % (size - 12),
            _ => size - 12 - place as usize / 2 % (TEXTS - 12),
        };
        memory[place..place + 12].copy_from_slice(&piece[4..]);
    }
    let mut reader = TraceReader::from_recent(&trace);
    let mut events = 0;
    // Each reading ends at an incomplete entry, which the next one skips.
    for _ in 0..3 {
        reader.events(&trace, |_, event| {
            assert!(event.queue < 1 << 24);
            events += 1;
        });
        assert!(events <= ENTRIES, "an event is read once");
        let texts = reader.texts(&trace);
        assert!(texts.iter().all(|text| text.text.chars().count() <= trace::TEXT));
        assert!(texts.iter().all(|text| !text.text.contains(char::is_control)));
    }
}
