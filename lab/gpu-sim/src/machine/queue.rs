//! A hardware queue: its ring, the packets that the packet processor has seen, and its state.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, Ordering};

use hip_sys::kfd::debug::SaveAreaHeader;

use super::stats::Counts;
use crate::device::{Time, WorkId};
use crate::space::{Fault, View};

pub const AQL_PACKET: u64 = 64;
/// The type byte of a slot without a packet (HSA specification).
pub const AQL_INVALID: u16 = 1;
/// The type byte of a kernel dispatch packet.
pub const AQL_KERNEL_DISPATCH: u8 = 2;

/// Bytes that a wave's state takes in the save area: an upper bound, as for a queue that fills the device.
const WAVE_STATE: u32 = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// AQL packets of 64 bytes; indices count packets.
    #[default]
    Aql,
    /// Copy engine packets; indices count bytes.
    Sdma,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Aql => "compute_aql",
            Self::Sdma => "sdma",
        }
    }
}

/// The state of the packet processor for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It takes the next packet once there is one.
    #[default]
    Fetch,
    /// The packet at the head has its barrier bit set and waits for the queue's own kernels.
    Barrier,
    /// The packet at the head waits for memory to change.
    Blocked,
    /// The kernel's work-groups are not all placed yet.
    Launching(WorkId),
    Moving,
    /// The queue has stopped after a fault or an unknown packet.
    Dead,
}

#[derive(Debug, Default)]
pub struct Queue {
    pub gpu: usize,
    pub kind: Kind,
    pub ring: u64,
    /// The size of the ring, bytes; a power of two.
    pub size: u32,
    pub write_pointer: u64,
    pub read_pointer: u64,
    /// The percentage as created or updated; 0 in the low byte means that the queue is off the hardware.
    pub percentage: u32,
    pub priority: u32,
    /// True while a debugger suspends it.
    pub suspended: bool,
    /// True if the driver counts it as active, as of the last operation that succeeded.
    pub active: bool,
    /// True while it is on the hardware.
    pub mapped: bool,
    /// True while its waves are saved.
    pub saved: bool,
    /// True if it cannot be evicted while it has a kernel.
    pub stuck: bool,
    /// True if it was lost in a reset.
    pub reset: bool,
    /// True once a program has begun to destroy it.
    pub being_destroyed: bool,
    /// True once a mask of compute units was set.
    pub cu_masked: bool,
    /// The number of compute units of its mask; `None` for all of the device.
    pub compute_units: Option<u32>,
    /// The raised exceptions (`EC_` bits).
    pub exceptions: u64,
    /// The `QUEUE_TYPE_` constant of its creation.
    pub kfd_type: u32,
    /// The address and size of the save area, and the size of its control stack.
    pub save_area: (u64, u32, u32),
    /// The next packet (AQL) or byte (SDMA) to take.
    pub read: u64,
    /// One past the last packet or byte that was seen.
    pub seen: u64,
    /// The earliest time at which the next packet begins: the end of its predecessor.
    pub ready_at: Time,
    pub state: State,
    /// The number of its kernels that are not complete.
    pub outstanding: u32,
    pub counts: Counts,
    arrivals: VecDeque<(u64, Time)>,
}

impl Queue {
    /// Makes a queue that reads from index 0.
    pub fn new(gpu: usize, kind: Kind, ring: u64, size: u32, write_pointer: u64, read_pointer: u64) -> Self {
        Self {
            gpu,
            kind,
            ring,
            size,
            write_pointer,
            read_pointer,
            percentage: 100,
            active: true,
            mapped: true,
            ..Self::default()
        }
    }

    /// Returns a description for `gpu-sim info`.
    pub fn describe(&self, id: u32) -> serde_json::Value {
        serde_json::json!({
            "queue_id": id,
            "type": self.kind.name(),
            "percentage": self.percentage,
            "priority": self.priority,
            "compute_units": self.compute_units,
            "suspended": self.suspended,
            "mapped": self.mapped,
            "state": format!("{:?}", self.state).to_lowercase(),
            "read": self.read,
            "seen": self.seen,
            "outstanding": self.outstanding,
        })
    }

    /// Returns true if it should be on the hardware (`QUEUE_IS_ACTIVE`).
    pub fn should_run(&self) -> bool {
        self.percentage & 0xff > 0 && self.ring != 0 && !self.suspended
    }

    /// Returns the saved bytes of control stack and of waves.
    pub fn wave_state(&self) -> (u32, u32) {
        let (_, size, control) = self.save_area;
        if self.saved { (control.min(64), size.min(WAVE_STATE * self.outstanding.max(1))) } else { (0, 0) }
    }

    /// Returns the header that the driver writes at the front of the save area.
    pub fn save_area_header(&self) -> SaveAreaHeader {
        let (_, size, control) = self.save_area;
        let (control_used, used) = self.wave_state();
        SaveAreaHeader {
            control_stack_offset: control - control_used.min(control),
            control_stack_size: control_used,
            wave_state_offset: size.saturating_sub(used),
            wave_state_size: used,
            ..Default::default()
        }
    }

    /// Looks for new packets, which count as arrived at `now`. Returns the number of kernels among them; `None` if
    /// there is no new packet.
    pub fn poll(&mut self, view: &View<'_>, now: Time) -> Result<Option<u32>, Fault> {
        let mut kernels = 0;
        let write = view.atomic(self.write_pointer)?.load(Ordering::Acquire).cast_unsigned();
        let seen = match self.kind {
            Kind::Sdma => write.max(self.seen),
            Kind::Aql => {
                let slots = u64::from(self.size) / AQL_PACKET;
                let end = write.min(self.read + slots);
                let mut seen = self.seen;
                // Clients raise the index before they write the packet; only its header marks it as complete.
                while seen < end {
                    let kind = self.header(view, seen)?.load(Ordering::Acquire) & 0xff;
                    if kind == AQL_INVALID {
                        break;
                    }
                    kernels += u32::from(kind == u16::from(AQL_KERNEL_DISPATCH));
                    seen += 1;
                }
                seen
            }
        };
        if seen == self.seen {
            return Ok(None);
        }
        self.seen = seen;
        self.arrivals.push_back((seen, now));
        Ok(Some(kernels))
    }

    /// Returns the time at which the packet at the head can be taken, if there is one and the queue is ready
    /// for it.
    pub fn next(&mut self) -> Option<Time> {
        if !self.mapped || self.state != State::Fetch {
            return None;
        }
        while self.arrivals.front().is_some_and(|(end, _)| *end <= self.read) {
            self.arrivals.pop_front();
        }
        self.arrivals.front().map(|(_, at)| (*at).max(self.ready_at))
    }

    pub fn slot(&self, index: u64) -> u64 {
        self.ring + (index * AQL_PACKET) % u64::from(self.size)
    }

    fn header<'a>(&self, view: &View<'a>, index: u64) -> Result<&'a AtomicU16, Fault> {
        let p = view.pointer(self.slot(index), 2, 2)?;
        // SAFETY: `pointer` has checked that two aligned bytes lie in the arena's mapping, which outlives the
        // borrow of the arena; all accesses are atomic.
        Ok(unsafe { AtomicU16::from_ptr(p.cast()) })
    }

    /// Frees the slot of the AQL packet at the head.
    pub fn consume(&mut self, view: &View<'_>) -> Result<(), Fault> {
        self.header(view, self.read)?.store(AQL_INVALID, Ordering::Release);
        self.advance(view, 1)
    }

    /// Advances the read index by `n` packets or bytes.
    pub fn advance(&mut self, view: &View<'_>, n: u64) -> Result<(), Fault> {
        self.read += n;
        view.atomic(self.read_pointer)?.store(self.read.cast_signed(), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::testing::Memory;

    #[test]
    fn packet_arrives_when_it_is_first_seen() {
        let memory = Memory::new(&[(0x1000, 0x2000)]);
        let view = memory.view();
        let mut queue = Queue::new(0, Kind::Aql, 0x1000, 256, 0x2000, 0x2008);
        for slot in 0..4 {
            view.write(0x1000 + slot * 64, &AQL_INVALID.to_le_bytes()).unwrap();
        }
        // Two slots are reserved, and one packet is written.
        view.write(0x2000, &2u64.to_le_bytes()).unwrap();
        view.write(0x1000, &2u16.to_le_bytes()).unwrap();
        assert_eq!(queue.poll(&view, 10), Ok(Some(1)));
        view.write(0x1040, &3u16.to_le_bytes()).unwrap();
        assert_eq!(queue.poll(&view, 20), Ok(Some(0)));
        assert_eq!(queue.poll(&view, 30), Ok(None));
        assert_eq!(queue.next(), Some(10));
        queue.consume(&view).unwrap();
        queue.ready_at = 15;
        assert_eq!(queue.next(), Some(20));
        queue.mapped = false;
        assert_eq!(queue.next(), None);
        queue.mapped = true;
        queue.consume(&view).unwrap();
        assert_eq!(queue.next(), None);
        assert_eq!(view.load_u64(0x2008), Ok(2));
        assert_eq!(view.load::<2>(0x1000), Ok([1, 0]));
    }
}
