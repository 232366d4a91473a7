//! The messages between a client (a preloaded program) and the server.
//!
//! The encoding is written by hand, little-endian and without padding, because the client's side lives in
//! every user's process and must not bring a serialization library with it. Requests of users are JSON
//! (`control.rs`), in frames of the kinds [`REQUEST`] and [`REPLY`].
//!
//! # A connection
//! The client sends [`ToServer::Hello`]. The server answers with [`ToClient::Welcome`] and three descriptors
//! beside the frame's first byte (`SCM_RIGHTS`): the server's page to read, the client's page to write, and
//! an eventfd that wakes the server. Or it answers with [`ToClient::Refused`], and closes. From then on only
//! the client sends, until one of them closes.

use crate::bounds::{Cap, Priority, Timeslice, Utilization};
use crate::codes::PreemptLevel;
use crate::cost::{CostKey, EvictCost};
use crate::frame::Frame;
use crate::hint::table::{HINTS, HintSpec, Scope};
use crate::hint::{Hints, Laxity, ProcessHints, QueueHints};
use crate::ids::{ClientId, DeviceId, QueueId};
use crate::time::Time;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// Kind of a frame whose payload is a `control::Request` in JSON.
pub const REQUEST: u16 = 0x201;
/// Kind of a frame whose payload is a `control::Reply` in JSON.
pub const REPLY: u16 = 0x202;
/// Descriptors that come with a welcome.
pub const WELCOME_DESCRIPTORS: usize = 3;
/// Most bytes of a program's name, and of the reason of a refusal.
pub const TEXT: usize = 200;

const HELLO: u16 = 1;
const QUEUE_CREATED: u16 = 2;
const QUEUE_DESTROYED: u16 = 3;
const PRIORITY: u16 = 4;
const LEVEL: u16 = 5;
const PREEMPTION: u16 = 6;
const QUEUE_HINTS: u16 = 7;
const PROCESS_HINTS: u16 = 8;
const HOLD_COST: u16 = 9;
const WELCOME: u16 = 0x101;
const REFUSED: u16 = 0x102;

/// Flags of a queue's hints: a laxity is given, an arrival is given, the queue is preemptible.
const LAXITY: u32 = 1;
const ARRIVAL: u32 = 2;
const PREEMPTIBLE: u32 = 4;

/// A message from a client to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToServer {
    /// Introduction; the first message, sent only once.
    Hello {
        /// Process id as the client sees it. The server uses the one that the kernel reports, and shows both.
        pid: u32,
        /// Name of the program, for users.
        name: String,
    },
    /// A queue was created. The client writes its state into a slot of its page.
    QueueCreated {
        /// Name of the queue.
        queue: QueueId,
        /// The slot, which was free.
        slot: u32,
        /// Device that runs its commands.
        device: DeviceId,
        /// Initial priority.
        priority: Priority,
        /// Requested preemption level.
        level: PreemptLevel,
    },
    /// A queue was destroyed. Its slot is free.
    QueueDestroyed {
        /// Name of the queue.
        queue: QueueId,
    },
    /// A queue has another priority.
    Priority {
        /// Name of the queue.
        queue: QueueId,
        /// Its new priority.
        priority: Priority,
    },
    /// A queue has another requested preemption level.
    Level {
        /// Name of the queue.
        queue: QueueId,
        /// Its new level.
        level: PreemptLevel,
    },
    /// A queue has other hints, which replace the previous ones. A new queue has the default of
    /// [`QueueHints`].
    QueueHints {
        /// Name of the queue.
        queue: QueueId,
        /// The complete hints; the arrival by the server's clock.
        hints: QueueHints,
    },
    /// The process has other hints, which replace the previous ones. The message does not contain the nice
    /// value: the server reads it from the kernel.
    ProcessHints {
        /// The complete hints.
        hints: ProcessHints,
    },
    /// The process has another preemption level in force. At first it is [`PreemptLevel::Block`].
    Preemption {
        /// The level in force.
        in_force: PreemptLevel,
        /// The mechanism, or the reason why the level is [`PreemptLevel::Block`] although more is requested;
        /// empty if no more is requested. For users.
        how: String,
    },
    /// The cost of an eviction, or the news that a known cost is wrong. Only for a server that accepts it
    /// ([`crate::cost::ACCEPTS_COSTS`]): an older one does not know this message.
    EvictCost {
        /// The key of the cost.
        key: CostKey,
        /// The cost; `None` if a client that relied on a known cost met a failure.
        cost: Option<EvictCost>,
    },
}

/// A message from the server to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    /// The server has accepted the client.
    Welcome {
        /// Name of the client at the server.
        client: ClientId,
        /// The server's `CLOCK_MONOTONIC` now. A client in another time namespace computes the difference
        /// from it.
        now: Time,
        /// Process id of the server, as it sees itself.
        server: u32,
    },
    /// The server has refused the client.
    Refused {
        /// The reason, one line.
        reason: String,
    },
}

/// The error that a frame is not a valid message of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageError {
    /// Kind of the frame.
    pub kind: u16,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a frame of kind {:#x} has no sense", self.kind)
    }
}

impl std::error::Error for MessageError {}

impl ToServer {
    /// Encodes the message as a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let kind = match self {
            Self::Hello { pid, name } => {
                to.extend_from_slice(&pid.to_le_bytes());
                put_text(&mut to, name);
                HELLO
            }
            Self::QueueCreated { queue, slot, device, priority, level } => {
                to.extend_from_slice(&queue.0.to_le_bytes());
                to.extend_from_slice(&slot.to_le_bytes());
                to.extend_from_slice(&device.0.to_le_bytes());
                to.extend_from_slice(&priority.get().to_le_bytes());
                to.extend_from_slice(&level.number().to_le_bytes());
                QUEUE_CREATED
            }
            Self::QueueDestroyed { queue } => {
                to.extend_from_slice(&queue.0.to_le_bytes());
                QUEUE_DESTROYED
            }
            Self::Priority { queue, priority } => {
                to.extend_from_slice(&queue.0.to_le_bytes());
                to.extend_from_slice(&priority.get().to_le_bytes());
                PRIORITY
            }
            Self::Level { queue, level } => {
                to.extend_from_slice(&queue.0.to_le_bytes());
                to.extend_from_slice(&level.number().to_le_bytes());
                LEVEL
            }
            Self::QueueHints { queue, hints } => {
                to.extend_from_slice(&queue.0.to_le_bytes());
                put_queue_hints(&mut to, hints);
                QUEUE_HINTS
            }
            Self::ProcessHints { hints } => {
                put_process_hints(&mut to, hints);
                PROCESS_HINTS
            }
            Self::Preemption { in_force, how } => {
                to.extend_from_slice(&in_force.number().to_le_bytes());
                put_text(&mut to, how);
                PREEMPTION
            }
            Self::EvictCost { key, cost } => {
                to.extend_from_slice(&key.get().to_le_bytes());
                to.extend_from_slice(&cost.map_or(0, EvictCost::hold_ns).to_le_bytes());
                to.extend_from_slice(&cost.map_or(0, EvictCost::release_ns).to_le_bytes());
                HOLD_COST
            }
        };
        Frame::encode(kind, &to)
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// The frame is not a message of this direction, or a number in it is out of range.
    pub fn decode(frame: &Frame) -> Result<Self, MessageError> {
        Reader::whole(frame, Self::read)
    }

    fn read(kind: u16, from: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            HELLO => Self::Hello { pid: from.u32()?, name: from.text()? },
            QUEUE_CREATED => Self::QueueCreated {
                queue: QueueId(from.u64()?),
                slot: from.u32()?,
                device: DeviceId(from.u32()?),
                priority: from.priority()?,
                level: from.level()?,
            },
            QUEUE_DESTROYED => Self::QueueDestroyed { queue: QueueId(from.u64()?) },
            PRIORITY => Self::Priority { queue: QueueId(from.u64()?), priority: from.priority()? },
            LEVEL => Self::Level { queue: QueueId(from.u64()?), level: from.level()? },
            QUEUE_HINTS => Self::QueueHints { queue: QueueId(from.u64()?), hints: from.queue_hints()? },
            PROCESS_HINTS => Self::ProcessHints { hints: from.process_hints()? },
            PREEMPTION => Self::Preemption { in_force: from.level()?, how: from.text()? },
            HOLD_COST => Self::EvictCost {
                key: CostKey::new(from.u64()?)?,
                cost: match (from.u64()?, from.u64()?) {
                    (0, 0) => None,
                    (hold_ns, release_ns) => Some(EvictCost::new(hold_ns, release_ns)?),
                },
            },
            _ => return None,
        })
    }
}

impl ToClient {
    /// Encodes the message as a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let kind = match self {
            Self::Welcome { client, now, server } => {
                to.extend_from_slice(&client.0.to_le_bytes());
                to.extend_from_slice(&now.0.to_le_bytes());
                to.extend_from_slice(&server.to_le_bytes());
                WELCOME
            }
            Self::Refused { reason } => {
                put_text(&mut to, reason);
                REFUSED
            }
        };
        Frame::encode(kind, &to)
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// The frame is not a message of this direction, or a number in it is out of range.
    pub fn decode(frame: &Frame) -> Result<Self, MessageError> {
        Reader::whole(frame, Self::read)
    }

    fn read(kind: u16, from: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            WELCOME => {
                Self::Welcome { client: ClientId(from.u64()?), now: Time(from.u64()?), server: from.u32()? }
            }
            REFUSED => Self::Refused { reason: from.text()? },
            _ => return None,
        })
    }
}

/// Writes flags, share, deadline (0 for none), laxity with both priorities, arrival.
fn put_queue_hints(to: &mut Vec<u8>, hints: &QueueHints) {
    let QueueHints { utilization, deadline_us, laxity, arrival, preemptible, .. } = *hints;
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let flags =
        flag(laxity.is_some(), LAXITY) | flag(arrival.is_some(), ARRIVAL) | flag(preemptible, PREEMPTIBLE);
    to.extend_from_slice(&flags.to_le_bytes());
    to.extend_from_slice(&u32::from(utilization.get()).to_le_bytes());
    to.extend_from_slice(&deadline_us.map_or(0, NonZeroU64::get).to_le_bytes());
    let Laxity { us, lax, critical } =
        laxity.unwrap_or(Laxity { us: 0, lax: Priority::DEFAULT, critical: Priority::DEFAULT });
    to.extend_from_slice(&us.to_le_bytes());
    to.extend_from_slice(&lax.get().to_le_bytes());
    to.extend_from_slice(&critical.get().to_le_bytes());
    to.extend_from_slice(&arrival.unwrap_or_default().0.to_le_bytes());
    put_later_hints(to, &Hints { queue: *hints, ..Hints::default() }, of_queue);
}

/// Writes the share, then, with 0 for none: slice, k, window and cap (two bytes each), job. A program that
/// does not know caps writes 0 in their place.
fn put_process_hints(to: &mut Vec<u8>, hints: &ProcessHints) {
    let ProcessHints { utilization, timeslice, k_deadline, window, job, cap, .. } = *hints;
    to.extend_from_slice(&u32::from(utilization.get()).to_le_bytes());
    to.extend_from_slice(&timeslice.map_or(0, Timeslice::get).to_le_bytes());
    to.extend_from_slice(&k_deadline.map_or(0, NonZeroU32::get).to_le_bytes());
    to.extend_from_slice(&u16::from(window).to_le_bytes());
    to.extend_from_slice(&cap.map_or(0, |cap| u16::from(cap.get())).to_le_bytes());
    to.extend_from_slice(&job.map_or(0, NonZeroU64::get).to_le_bytes());
    put_later_hints(to, &Hints { process: *hints, ..Hints::default() }, of_process);
}

fn of_queue(spec: &HintSpec) -> bool {
    matches!(spec.scope, Scope::Queue)
}

fn of_process(spec: &HintSpec) -> bool {
    matches!(spec.scope, Scope::Process | Scope::AnyProcess)
}

/// Writes the hints that have a wire code: the code and the number of each that is given, in ascending order.
/// A message without such a hint has the bytes of the first version.
fn put_later_hints(to: &mut Vec<u8>, hints: &Hints, concerned: fn(&HintSpec) -> bool) {
    for spec in HINTS.iter().filter(|spec| concerned(spec)) {
        if let Some((code, number)) = spec.wire
            && let Some(number) = number(hints)
        {
            to.extend_from_slice(&code.to_le_bytes());
            to.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Writes length and bytes. A text that is too long is cut at a character.
fn put_text(to: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(TEXT)];
    // At most `TEXT`, which fits.
    to.push(text.len() as u8);
    to.extend_from_slice(text.as_bytes());
}

/// A reader that takes numbers off the front; its functions return `None` if the bytes end too early.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Reads the message of a frame, which must end with the frame.
    fn whole<T>(frame: &Frame, read: impl Fn(u16, &mut Reader<'_>) -> Option<T>) -> Result<T, MessageError> {
        let mut from = Reader(&frame.payload);
        let message = read(frame.kind, &mut from);
        message.filter(|_| from.0.is_empty()).ok_or(MessageError { kind: frame.kind })
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn priority(&mut self) -> Option<Priority> {
        Priority::try_from(i64::from(self.i32()?)).ok()
    }

    fn utilization(&mut self) -> Option<Utilization> {
        Utilization::try_from(i64::from(self.u32()?)).ok()
    }

    fn queue_hints(&mut self) -> Option<QueueHints> {
        let flags = self.u32()?;
        if flags & !(LAXITY | ARRIVAL | PREEMPTIBLE) != 0 {
            return None;
        }
        let utilization = self.utilization()?;
        let deadline_us = NonZeroU64::new(self.u64()?);
        let laxity = Laxity { us: self.u64()?, lax: self.priority()?, critical: self.priority()? };
        let arrival = Time(self.u64()?);
        let queue = QueueHints {
            utilization,
            deadline_us,
            laxity: (flags & LAXITY != 0).then_some(laxity),
            arrival: (flags & ARRIVAL != 0).then_some(arrival),
            preemptible: flags & PREEMPTIBLE != 0,
            ..QueueHints::default()
        };
        Some(self.later_hints(Hints { queue, ..Hints::default() }, of_queue)?.queue)
    }

    fn process_hints(&mut self) -> Option<ProcessHints> {
        let utilization = self.utilization()?;
        let timeslice = match self.u64()? {
            0 => None,
            us => Some(i64::try_from(us).ok().and_then(|us| Timeslice::try_from(us).ok())?),
        };
        let k_deadline = NonZeroU32::new(self.u32()?);
        let window = match self.u16()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let cap = match self.u16()? {
            0 => None,
            percent => Some(Cap::try_from(i64::from(percent)).ok()?),
        };
        let job = NonZeroU64::new(self.u64()?);
        let process =
            ProcessHints { utilization, timeslice, k_deadline, window, job, cap, ..ProcessHints::default() };
        Some(self.later_hints(Hints { process, ..Hints::default() }, of_process)?.process)
    }

    /// Adds the hints that have a wire code, up to the end of the message.
    fn later_hints(&mut self, mut hints: Hints, concerned: fn(&HintSpec) -> bool) -> Option<Hints> {
        let mut last = 0;
        while !self.0.is_empty() {
            let (code, number) = (self.u32()?, self.i64()?);
            let known = HINTS
                .iter()
                .find(|spec| concerned(spec) && spec.wire.is_some_and(|(known, _)| known == code));
            let update = known.filter(|_| code > last)?.from_number(number)?;
            update.apply(&mut hints, Time::default());
            last = code;
        }
        Some(hints)
    }

    fn level(&mut self) -> Option<PreemptLevel> {
        PreemptLevel::from_number(i64::from(self.i32()?))
    }

    fn text(&mut self) -> Option<String> {
        let [length] = self.take()?;
        let (text, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        // Shown to users: control characters must not reach their terminal.
        let text = std::str::from_utf8(text).ok()?;
        Some(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
    }
}
