//! Bytes of others, at random. `make fuzz` runs the same entry points for longer, guided by what they cover.

mod entry;

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::frame::Frame;
use protocol::message::REQUEST;

/// The kinds of messages, and some others.
fn kind() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..12, 0x100u16..0x106, 0x200u16..0x204, any::<u16>()]
}

/// Bytes of which many are small numbers, as in messages.
fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(0u8), 2 => 0u8..9, 2 => any::<u8>()], 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn any_payload_is_read_or_refused(kind in kind(), payload in bytes(100)) {
        entry::messages(&[&kind.to_le_bytes()[..], &payload].concat());
    }

    #[test]
    fn any_request_is_read_or_refused(text in r#"(\{?"?(list|hint|hold|set_policy|of|said|pid|queue|queues|priority)"?[:,]? ?[\[\{]?[0-9]{0,12}[\]\}]?){0,6}"#) {
        entry::messages(&[&REQUEST.to_le_bytes()[..], text.as_bytes()].concat());
    }

    /// Frames, one of which has a changed byte, and more bytes behind them.
    #[test]
    fn any_stream_is_read_up_to_its_first_fault(
        piece in any::<u8>(),
        frames in vec((kind(), bytes(40)), 0..5),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        more in bytes(20),
    ) {
        let mut stream: Vec<u8> = frames.iter().flat_map(|(kind, payload)| Frame::encode(*kind, payload)).collect();
        stream.extend(more);
        if let (Some((at, byte)), false) = (change, stream.is_empty()) {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        entry::frames(&[&[piece][..], &stream].concat());
    }
}

proptest! {
    // Each trace has megabytes.
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The places are those of the header, of the first entries and of the texts.
    #[test]
    fn any_trace_can_be_read(written in any::<u8>(), pieces in vec((0u32..800, any::<[u8; 12]>()), 0..40)) {
        let pieces = pieces.iter().flat_map(|(place, bytes)| [&place.to_le_bytes()[..], bytes].concat());
        entry::rings(&std::iter::once(written).chain(pieces).collect::<Vec<_>>());
    }
}
