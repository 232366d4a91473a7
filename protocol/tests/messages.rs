//! Messages between client and server survive encoding and decoding. Invalid ones are refused, whatever the
//! bytes.

mod common;

use common::hints;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::bounds::{Cap, Priority, Timeslice};
use protocol::codes::{PreemptLevel, QueueClass};
use protocol::cost::{CostKey, EvictCost, MOST_NS};
use protocol::frame::{Decoder, Frame, REQUEST_LIMIT};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, QueueId};
use protocol::message::{MessageError, TEXT, ToClient, ToServer};
use protocol::time::Time;
use std::num::{NonZeroU32, NonZeroU64};

fn one_frame(bytes: &[u8]) -> Frame {
    let mut decoder = Decoder::new(REQUEST_LIMIT);
    decoder.push(bytes);
    let frame = decoder.next_frame().unwrap().unwrap();
    assert!(decoder.is_empty());
    frame
}

fn priority() -> impl Strategy<Value = Priority> {
    Priority::RANGE.prop_map(|number| Priority::try_from(number).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    "[a-z /äöü€]{0,50}"
}

fn to_server() -> impl Strategy<Value = ToServer> {
    let level = || prop::sample::select(PreemptLevel::ALL);
    prop_oneof![
        (any::<u32>(), text()).prop_map(|(pid, name)| ToServer::Hello { pid, name }),
        (any::<u64>(), any::<u32>(), any::<u32>(), priority(), level()).prop_map(
            |(queue, slot, device, priority, level)| ToServer::QueueCreated {
                queue: QueueId(queue),
                slot,
                device: DeviceId(device),
                priority,
                level,
            }
        ),
        any::<u64>().prop_map(|queue| ToServer::QueueDestroyed { queue: QueueId(queue) }),
        (any::<u64>(), priority())
            .prop_map(|(queue, priority)| ToServer::Priority { queue: QueueId(queue), priority }),
        (any::<u64>(), level()).prop_map(|(queue, level)| ToServer::Level { queue: QueueId(queue), level }),
        (any::<u64>(), hints())
            .prop_map(|(queue, hints)| ToServer::QueueHints { queue: QueueId(queue), hints: hints.queue }),
        hints().prop_map(|hints| ToServer::ProcessHints { hints: hints.process }),
        (level(), text()).prop_map(|(in_force, how)| ToServer::Preemption { in_force, how }),
        (1..=u64::MAX, option::of((1..=MOST_NS, 1..=MOST_NS))).prop_map(|(key, cost)| ToServer::EvictCost {
            key: CostKey::new(key).expect("not 0"),
            cost: cost.and_then(|(hold_ns, release_ns)| EvictCost::new(hold_ns, release_ns)),
        }),
    ]
}

#[test]
fn cost_out_of_range_is_refused() {
    let cost = EvictCost::new(5, 6);
    let told = ToServer::EvictCost { key: CostKey::MIN, cost };
    let Frame { kind, payload } = one_frame(&told.encode());
    for (place, number) in [(0, 0), (8, 0), (16, 0), (8, MOST_NS + 1), (16, u64::MAX)] {
        let mut payload = payload.clone();
        payload[place..place + 8].copy_from_slice(&number.to_le_bytes());
        assert_eq!(
            ToServer::decode(&Frame { kind, payload }),
            Err(MessageError { kind }),
            "{number} at {place}"
        );
    }
}

fn to_client() -> impl Strategy<Value = ToClient> {
    prop_oneof![
        (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(client, now, server)| ToClient::Welcome {
            client: ClientId(client),
            now: Time(now),
            server,
        }),
        text().prop_map(|reason| ToClient::Refused { reason }),
    ]
}

/// Bytes of a hint with a wire code: the code and the number.
const LATER_HINT: usize = 12;

/// Checks that a message is refused when it is cut or when bytes follow. A message of hints may end before
/// any hint with a wire code: then it is the message without that hint.
fn refuses_other_lengths(message: &ToServer, more: &[u8]) -> Result<(), TestCaseError> {
    let Frame { kind, payload } = one_frame(&message.encode());
    for length in 0..payload.len() {
        let cut = payload[..length].to_vec();
        let Ok(shorter) = ToServer::decode(&Frame { kind, payload: cut.clone() }) else { continue };
        let has_hints = matches!(message, ToServer::QueueHints { .. } | ToServer::ProcessHints { .. });
        prop_assert!(has_hints, "{length} bytes");
        prop_assert_eq!((payload.len() - length) % LATER_HINT, 0);
        prop_assert_eq!(one_frame(&shorter.encode()).payload, cut);
    }
    let longer = Frame { kind, payload: [&payload, more].concat() };
    prop_assert_eq!(ToServer::decode(&longer), Err(MessageError { kind }));
    Ok(())
}

#[test]
fn message_cut_before_a_later_hint_is_the_message_without_it() {
    let message = |class| ToServer::QueueHints {
        queue: QueueId(1),
        hints: QueueHints { class, ..QueueHints::default() },
    };
    let (with, without) = (message(Some(QueueClass::BestEffort)), message(None));
    refuses_other_lengths(&with, &[0]).unwrap();
    let Frame { kind, mut payload } = one_frame(&with.encode());
    payload.truncate(payload.len() - LATER_HINT);
    assert_eq!(ToServer::decode(&Frame { kind, payload }), Ok(without));
}

proptest! {
    #[test]
    fn message_to_server_encoded_and_decoded_is_the_same(message in to_server()) {
        prop_assert_eq!(ToServer::decode(&one_frame(&message.encode())), Ok(message));
    }

    #[test]
    fn message_to_client_encoded_and_decoded_is_the_same(message in to_client()) {
        prop_assert_eq!(ToClient::decode(&one_frame(&message.encode())), Ok(message));
    }

    #[test]
    fn message_too_short_or_too_long_is_refused(message in to_server(), more in vec(any::<u8>(), 1..9)) {
        refuses_other_lengths(&message, &more)?;
    }

    #[test]
    fn decoder_with_random_bytes_does_not_panic(kind in any::<u16>(), payload in vec(any::<u8>(), 0..64), raw in vec(any::<u8>(), 0..64)) {
        let frame = Frame { kind: kind % 0x120, payload };
        let _ = (ToServer::decode(&frame), ToClient::decode(&frame));
        let mut decoder = Decoder::new(16);
        decoder.push(&raw);
        while let Ok(Some(_)) = decoder.next_frame() {}
    }
}

#[test]
fn message_with_a_number_out_of_range_is_refused_and_its_text_made_harmless() {
    let priority = ToServer::Priority { queue: QueueId(1), priority: Priority::default() }.encode();
    let mut frame = one_frame(&priority);
    frame.payload[8..].copy_from_slice(&256_i32.to_le_bytes());
    assert!(ToServer::decode(&frame).is_err());

    let said = ToServer::QueueHints { queue: QueueId(1), hints: QueueHints::default() }.encode();
    let mut frame = one_frame(&said);
    frame.payload[12..16].copy_from_slice(&101_u32.to_le_bytes());
    assert!(ToServer::decode(&frame).is_err(), "a share above 100 %");
    let mut frame = one_frame(&said);
    frame.payload[8] |= 8;
    assert!(ToServer::decode(&frame).is_err(), "something that this version does not know");
    let said = ToServer::ProcessHints { hints: ProcessHints::default() }.encode();
    let mut frame = one_frame(&said);
    frame.payload[4..12].copy_from_slice(&99_u64.to_le_bytes());
    assert!(ToServer::decode(&frame).is_err(), "a slice below the least");
    // After the frame's share, slice and k: the window.
    for (window, cap, fits) in [(1, 0, true), (1, 100, true), (0, 101, false), (2, 0, false)] {
        let mut frame = one_frame(&said);
        frame.payload[16..18].copy_from_slice(&u16::to_le_bytes(window));
        frame.payload[18..20].copy_from_slice(&u16::to_le_bytes(cap));
        let hints = ProcessHints {
            window: window == 1,
            cap: Cap::try_from(i64::from(cap)).ok(),
            ..ProcessHints::default()
        };
        assert_eq!(ToServer::decode(&frame).ok(), fits.then_some(ToServer::ProcessHints { hints }));
    }

    let hello = |name: &str| ToServer::Hello { pid: 1, name: name.to_owned() };
    let arrived = |name: &str| ToServer::decode(&one_frame(&hello(name).encode()));
    assert_eq!(arrived("a\u{1b}[2Jb\n"), Ok(hello("a?[2Jb?")));
    assert_eq!(arrived(&"ä".repeat(TEXT)), Ok(hello(&"ä".repeat(TEXT / 2))));
    // Nobody sends a longer text, and one that is decoded can be sent on as a whole.
    let text = |length: u8| {
        let payload = [&1_u32.to_le_bytes()[..], &[length], &vec![b'a'; length.into()]].concat();
        ToServer::decode(&Frame { kind: 1, payload })
    };
    assert_eq!(text(TEXT as u8), Ok(hello(&"a".repeat(TEXT))));
    assert_eq!(text(TEXT as u8 + 1), Err(MessageError { kind: 1 }));
}

/// The bytes of the first version, which older programs and servers exchange.
#[test]
fn hints_without_wire_codes_keep_their_bytes() {
    let bytes = |message: ToServer| one_frame(&message.encode()).payload;
    let number = |number: u64| number.to_le_bytes();
    let queue = QueueHints {
        deadline_us: NonZeroU64::new(9),
        laxity: "5,-1,2".parse().ok(),
        arrival: Some(Time(7)),
        ..QueueHints::default()
    };
    // Queue, flags of laxity, arrival and preemptible, share; deadline, laxity, arrival.
    let mut wanted =
        [number(1), number(7 | 100 << 32), number(9), number(5), number(0x2_ffff_ffff), number(7)].concat();
    assert_eq!(bytes(ToServer::QueueHints { queue: QueueId(1), hints: queue }), wanted);
    // After them come codes of later versions; an unknown one is refused.
    wanted.extend([&99_u32.to_le_bytes()[..], &number(1)].concat());
    let kind = one_frame(&ToServer::QueueHints { queue: QueueId(1), hints: queue }.encode()).kind;
    assert_eq!(ToServer::decode(&Frame { kind, payload: wanted }), Err(MessageError { kind }));

    let process = ProcessHints {
        timeslice: Timeslice::try_from(500).ok(),
        k_deadline: NonZeroU32::new(2),
        window: true,
        job: NonZeroU64::new(4),
        cap: Cap::try_from(30).ok(),
        ..ProcessHints::default()
    };
    // Share, slice, k, window and cap, job.
    let (slice, rest) = (number(500), number(2 | 1 << 32 | 30 << 48));
    let wanted = [&100_u32.to_le_bytes()[..], &slice, &rest, &number(4)].concat();
    assert_eq!(bytes(ToServer::ProcessHints { hints: process }), wanted);
}
