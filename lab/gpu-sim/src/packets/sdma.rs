//! The copy engines: SDMA packets as ROCr builds them (`sdma_registers.h`).

use super::completion::{raise, recheck};
use crate::device::{QueueKey, Time};
use crate::kernels::{Effect, Op, Rows, link_move};
use crate::machine::{Machine, Move, State, Then, Unusable};
use crate::space::{Fault, View};

const NOP: u32 = 0;
const COPY: u32 = 1;
const FENCE: u32 = 5;
const TRAP: u32 = 6;
const POLL: u32 = 8;
const ATOMIC: u32 = 10;
const FILL: u32 = 11;
const TIMESTAMP: u32 = 13;
const GCR: u32 = 17;
const COPY_LINEAR: u32 = 0;
const COPY_RECT: u32 = 4;
const ATOMIC_ADD64: u32 = 47;

/// The ring read as 32-bit words from a byte offset on.
struct Words<'a> {
    view: View<'a>,
    ring: u64,
    size: u64,
    at: u64,
}

impl Words<'_> {
    fn word(&self, i: u64) -> Result<u32, Fault> {
        self.view.load_u32(self.ring + (self.at + i * 4) % self.size)
    }

    fn long(&self, i: u64) -> Result<u64, Fault> {
        Ok(u64::from(self.word(i)?) | u64::from(self.word(i + 1)?) << 32)
    }
}

/// The action for the packet at the head.
enum Decision {
    /// Wait until memory changes.
    Block,
    /// The packet is complete.
    Done,
    /// Make this change of memory.
    Move(Effect),
    /// Raise this event.
    Raise(u32),
}

/// Executes the SDMA packet at the head of a queue at `t`.
pub fn sdma_packet(machine: &mut Machine, key: QueueKey, t: Time) -> Result<(), Unusable> {
    let Some(process) = machine.processes.get_mut(&key.pid) else { return Ok(()) };
    let Some(queue) = process.queues.get_mut(&key.id) else { return Ok(()) };
    let view = View { arena: &machine.memory.arena, space: &process.space, pid: key.pid, gpu: queue.gpu };
    let words = Words { view, ring: queue.ring, size: u64::from(queue.size), at: queue.read };
    let (decision, length, kind) = decode(&words, t)?;
    if matches!(decision, Decision::Block) {
        queue.state = State::Blocked;
        return Ok(());
    }
    if queue.seen - queue.read < length * 4 {
        return Err(Unusable::Unknown(format!("SDMA {kind} packet is cut off by the write index")));
    }
    queue.advance(&view, length * 4)?;
    if kind != "nop" {
        queue.counts.add(kind);
    }
    match decision {
        Decision::Block | Decision::Done => {}
        Decision::Raise(event) => raise(machine, key, event, t),
        Decision::Move(effect) => {
            queue.state = State::Moving;
            let not_before = t + link_move(effect.bytes());
            machine.work.moves.push_back(Move { queue: key, effect, not_before, then: Then::NextPacket });
        }
    }
    // Another packet may wait for the memory that was written.
    recheck(machine, t);
    Ok(())
}

/// Decodes the packet, and executes it if it is small. Returns the action, the length in words, and the name.
fn decode(w: &Words<'_>, t: Time) -> Result<(Decision, u64, &'static str), Unusable> {
    let header = w.word(0)?;
    let (op, sub) = (header & 0xff, header >> 8 & 0xff);
    Ok(match (op, sub) {
        (NOP, _) => (Decision::Done, 1 + u64::from(header >> 16 & 0x3fff), "nop"),
        (COPY, COPY_LINEAR) => {
            let len = u64::from(w.word(1)? & 0x3fff_ffff) + 1;
            (Decision::Move(Effect::new([Op::Copy { src: w.long(3)?, dst: w.long(5)?, len }])), 7, "copy")
        }
        (COPY, COPY_RECT) => (Decision::Move(rectangle(w, header >> 29)?), 13, "copy_rect"),
        (FENCE, _) => {
            w.view.write(w.long(1)?, &w.word(3)?.to_le_bytes())?;
            (Decision::Done, 4, "fence")
        }
        (TRAP, _) => (Decision::Raise(w.word(1)? & 0x0fff_ffff), 2, "trap"),
        // Bit 31: poll memory. Otherwise the packet polls a register, which flushes the host data path.
        (POLL, _) if header >> 31 == 0 => (Decision::Done, 6, "flush"),
        (POLL, _) => {
            let (value, mask) = (w.word(3)?, w.word(4)?);
            let now = w.view.load_u32(w.long(1)?)? & mask;
            let holds = match header >> 28 & 7 {
                0 => true,
                1 => now < value,
                2 => now <= value,
                3 => now == value,
                4 => now != value,
                5 => now >= value,
                6 => now > value,
                other => return Err(unknown(header, &format!("poll with function {other}"))),
            };
            (if holds { Decision::Done } else { Decision::Block }, 6, "poll")
        }
        (ATOMIC, _) if header >> 25 == ATOMIC_ADD64 => {
            let by = w.long(3)?.cast_signed();
            w.view.atomic(w.long(1)?)?.fetch_add(by, std::sync::atomic::Ordering::AcqRel);
            (Decision::Done, 8, "atomic")
        }
        (FILL, _) => {
            // The count is in bytes minus one, of whole words (fill size 2 in bits 30–31).
            let len = u64::from(w.word(4)? & 0x3fff_ffff) + 1;
            let pattern = w.word(3)?.to_le_bytes().to_vec();
            let fill = Op::Fill { dst: w.long(1)?, pattern, len: len / 4 * 4 };
            (Decision::Move(Effect::new([fill])), 5, "fill")
        }
        (TIMESTAMP, _) => {
            w.view.write(w.long(1)?, &t.to_le_bytes())?;
            (Decision::Done, 3, "timestamp")
        }
        (GCR, _) => (Decision::Done, 5, "flush"),
        _ => return Err(unknown(header, "")),
    })
}

fn unknown(header: u32, what: &str) -> Unusable {
    Unusable::Unknown(format!("SDMA packet {header:#010x} {what} is not simulated"))
}

/// Decodes the copy of a linear sub-window: rows of elements between two pitched buffers.
fn rectangle(w: &Words<'_>, element: u32) -> Result<Effect, Fault> {
    // The address of the first byte, and the distances from row to row and from plane to plane.
    let side = |i: u64| -> Result<(u64, [u64; 2]), Fault> {
        let (xy, z) = (w.word(i + 2)?, w.word(i + 3)?);
        let (pitch, slice) = (u64::from(z >> 13) + 1, u64::from(w.word(i + 4)? & 0xfff_ffff) + 1);
        let [x, y, z] = [u64::from(xy & 0x3fff), u64::from(xy >> 16 & 0x3fff), u64::from(z & 0x7ff)];
        let first = w.long(i)?.wrapping_add((z * slice + y * pitch + x) << element);
        Ok((first, [pitch << element, slice << element]))
    };
    let ((src, src_step), (dst, dst_step)) = (side(1)?, side(6)?);
    let (xy, z) = (w.word(11)?, w.word(12)?);
    let len = (u64::from(xy & 0x3fff) + 1) << element;
    Ok(Effect::new([Op::Rows(Rows {
        first: vec![Op::Copy { dst, src, len }],
        rows: (xy >> 16 & 0x3fff) + 1,
        planes: (z & 0x7ff) + 1,
        dst: dst_step,
        src: src_step,
        next: 0,
    })]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::testing::Memory;

    const RING: u64 = 0x10_0000;
    const DATA: u64 = 0x20_0000;

    fn with_words<R>(words: &[u32], run: impl FnOnce(&Words<'_>) -> R) -> R {
        let memory = Memory::new(&[(RING, 0x1000), (DATA, 0x1000)]);
        let view = memory.view();
        for (i, word) in words.iter().enumerate() {
            view.write(RING + i as u64 * 4, &word.to_le_bytes()).unwrap();
        }
        run(&Words { view, ring: RING, size: 0x1000, at: 0 })
    }

    #[test]
    fn copy_and_fill_are_decoded_with_their_sizes() {
        let effect = |words: &[u32]| match with_words(words, |w| decode(w, 0)) {
            Ok((Decision::Move(effect), length, _)) => (effect.bytes(), length),
            _ => panic!(),
        };
        assert_eq!(effect(&[COPY, 99, 0, DATA as u32, 0, DATA as u32 + 512, 0]), (100, 7));
        assert_eq!(effect(&[FILL | 2 << 30, DATA as u32, 0, 7, 63]), (64, 5));
        // 3 by 2 elements of 4 bytes.
        let side = [0, 0, 0, 7 << 13, 63];
        let packet = [&[COPY | COPY_RECT << 8 | 2 << 29][..], &side, &side, &[1 << 16 | 2, 0]].concat();
        assert_eq!(effect(&packet), (24, 13));
    }

    #[test]
    fn poll_waits_until_memory_matches() {
        let poll = [POLL | 1 << 31 | 3 << 28, DATA as u32, 0, 5, 0xff, 0];
        with_words(&poll, |w| {
            assert!(matches!(decode(w, 0), Ok((Decision::Block, ..))));
            w.view.write(DATA, &0x1_05u32.to_le_bytes()).unwrap();
            assert!(matches!(decode(w, 0), Ok((Decision::Done, 6, "poll"))));
        });
    }

    #[test]
    fn small_packets_write_memory() {
        let at = [DATA as u32 + 8, 0];
        with_words(&[FENCE, at[0], at[1], 7], |w| {
            assert!(matches!(decode(w, 0), Ok((Decision::Done, 4, "fence"))));
            assert_eq!(w.view.load_u64(DATA + 8), Ok(7));
        });
        with_words(&[TIMESTAMP, at[0], at[1]], |w| {
            assert!(matches!(decode(w, 1 << 40), Ok((Decision::Done, 3, "timestamp"))));
            assert_eq!(w.view.load_u64(DATA + 8), Ok(1 << 40));
        });
        // The decrement of a signal adds minus one.
        with_words(&[ATOMIC | ATOMIC_ADD64 << 25, at[0], at[1], u32::MAX, u32::MAX, 0, 0, 0], |w| {
            w.view.write(DATA + 8, &(1u64 << 32).to_le_bytes()).unwrap();
            assert!(matches!(decode(w, 0), Ok((Decision::Done, 8, "atomic"))));
            assert_eq!(w.view.load_u64(DATA + 8), Ok((1 << 32) - 1));
        });
        let other =
            with_words(&[ATOMIC | 1 << 25, at[0], at[1], 0, 0, 0, 0, 0], |w| decode(w, 0).map(|_| ()));
        assert!(matches!(other, Err(Unusable::Unknown(_))), "an operation that is not simulated");
        with_words(&[TRAP, 0x0f00_0123], |w| {
            assert!(matches!(decode(w, 0), Ok((Decision::Raise(0x0f00_0123), 2, "trap"))));
        });
    }

    #[test]
    fn sub_window_copy_uses_the_pitches() {
        // Elements of a byte: 3 by 2 by 2 from (1, 2, 0) with pitches 16 and 64 to (0, 1, 1) with 8 and 32.
        let from = [DATA as u32, 0, 2 << 16 | 1, 15 << 13, 63];
        let to = [DATA as u32 + 512, 0, 1 << 16, 7 << 13 | 1, 31];
        let packet = [&[COPY | COPY_RECT << 8][..], &from, &to, &[1 << 16 | 2, 1]].concat();
        with_words(&packet, |w| {
            let bytes: Vec<u8> = (0..=255).collect();
            w.view.write(DATA, &bytes).unwrap();
            let Ok((Decision::Move(mut effect), 13, "copy_rect")) = decode(w, 0) else { panic!() };
            effect.finish(&w.view, 4).unwrap();
            for (plane, row) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let first = (plane * 64 + (row + 2) * 16 + 1) as u8;
                let at = DATA + 512 + (plane + 1) * 32 + (row + 1) * 8;
                assert_eq!(w.view.load::<4>(at), Ok([first, first + 1, first + 2, 0]));
            }
        });
    }

    #[test]
    fn unknown_packet_is_an_error_with_its_header() {
        let error = with_words(&[0x42], |w| decode(w, 0).map(|_| ()));
        assert!(matches!(error, Err(Unusable::Unknown(text)) if text.contains("0x00000042")));
        let fence = with_words(&[FENCE, 0, 0, 1], |w| decode(w, 0).map(|_| ()));
        assert!(matches!(fence, Err(Unusable::Fault(Fault { va: 0 }))));
    }
}
