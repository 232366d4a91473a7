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
//! the client sends, until one of them closes. The exceptions are [`ToClient::Trace`], [`ToClient::TraceEnd`] and
//! [`ToClient::Configure`], for a client that has said on its page that it takes them.

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

/// Flags of a queue's hints: a laxity is given, an arrival is given, the queue is preemptible.
const LAXITY: u32 = 1;
const ARRIVAL: u32 = 2;
const PREEMPTIBLE: u32 = 4;

/// Creates the messages of one direction from rows: the kind of the frame, the variant, and its fields in the
/// order of their bytes.
macro_rules! messages {
    ($(#[$doc:meta])* $name:ident {$(
        $(#[$row:meta])* $kind:literal $variant:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }
    )*}) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[expect(missing_docs, reason = "most fields are named after what they hold")]
        pub enum $name {
            $($(#[$row])* $variant { $($(#[$field_doc])* $field: $type),* },)*
        }

        impl $name {
            /// Encodes the message as a frame.
            pub fn encode(&self) -> Vec<u8> {
                let mut to = Vec::new();
                let kind = match self {
                    $(Self::$variant { $($field),* } => {
                        $($field.put(&mut to);)*
                        $kind
                    })*
                };
                Frame::encode(kind, &to)
            }

            /// Decodes a frame.
            ///
            /// # Errors
            /// The frame is not a message of this direction, or a number in it is out of range.
            pub fn decode(frame: &Frame) -> Result<Self, MessageError> {
                let read = |from: &mut Reader<'_>| {
                    Some(match frame.kind {
                        $($kind => Self::$variant { $($field: from.next()?),* },)*
                        _ => return None,
                    })
                };
                let mut from = Reader(&frame.payload);
                let message = read(&mut from).filter(|_| from.0.is_empty());
                message.ok_or(MessageError { kind: frame.kind })
            }
        }
    };
}

messages! {
    /// A message from a client to the server.
    ToServer {
        /// Introduction; the first message, sent only once.
        1 Hello {
            /// Process id as the client sees it. The server uses the one that the kernel reports, and shows both.
            pid: u32,
            /// Name of the program, for users.
            name: String,
        }
        /// A queue was created. The client writes its state into a slot of its page.
        2 QueueCreated {
            queue: QueueId,
            /// The slot, which was free.
            slot: u32,
            /// Device that runs its commands.
            device: DeviceId,
            priority: Priority,
            /// Requested preemption level.
            level: PreemptLevel,
        }
        /// A queue was destroyed. Its slot is free.
        3 QueueDestroyed { queue: QueueId }
        /// A queue has another priority.
        4 Priority { queue: QueueId, priority: Priority }
        /// A queue has another requested preemption level.
        5 Level { queue: QueueId, level: PreemptLevel }
        /// A queue has other hints, which replace the previous ones. A new queue has the default of
        /// [`QueueHints`].
        7 QueueHints {
            queue: QueueId,
            /// The complete hints; the arrival by the server's clock.
            hints: QueueHints,
        }
        /// The process has other hints, which replace the previous ones. The message does not contain the nice
        /// value: the server reads it from the kernel.
        8 ProcessHints { hints: ProcessHints }
        /// The process has another preemption level in force. At first it is [`PreemptLevel::Block`].
        6 Preemption {
            /// The level in force.
            in_force: PreemptLevel,
            /// The mechanism, or the reason why the level is [`PreemptLevel::Block`] although more is requested;
            /// empty if no more is requested. For users.
            how: String,
        }
        /// The cost of an eviction, or the news that a known cost is wrong. Only for a server that accepts it
        /// ([`crate::cost::ACCEPTS_COSTS`]): an older one does not know this message.
        9 EvictCost {
            key: CostKey,
            /// The cost; `None` if a client that relied on a known cost met a failure.
            cost: Option<EvictCost>,
        }
    }
}

messages! {
    /// A message from the server to a client.
    ToClient {
        /// The server has accepted the client.
        0x101 Welcome {
            /// Name of the client at the server.
            client: ClientId,
            /// The server's `CLOCK_MONOTONIC` now. A client in another time namespace computes the difference
            /// from it.
            now: Time,
            /// Process id of the server, as it sees itself.
            server: u32,
        }
        /// The server has refused the client.
        0x102 Refused { reason: String }
        /// The client writes its events into the memory file that comes with this message ([`crate::trace::Trace`]). Only for
        /// a client that takes it ([`crate::page::TAKES_TRACES`]): an older one does not know this message.
        0x103 Trace {}
        /// The client stops writing events, because nobody records any more. Follows a [`ToClient::Trace`].
        0x104 TraceEnd {}
        /// A queue gets other settings, as a person wants. Only for a client that takes it
        /// ([`crate::page::TAKES_CONFIGURATION`]).
        0x105 Configure {
            queue: QueueId,
            /// The requested preemption level; 0 keeps the present one.
            level: i32,
            /// The most commands in flight; 0 keeps the present number.
            threshold: u32,
            /// Commands from one marker to the next; 0 keeps the present number.
            batch_size: u32,
        }
    }
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

/// A field of a message.
trait Field: Sized {
    /// Appends the bytes.
    fn put(&self, to: &mut Vec<u8>);

    /// Reads the bytes; `None` if they end too early, or if a number is out of range.
    fn take(from: &mut Reader<'_>) -> Option<Self>;
}

/// A reader that takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next<T: Field>(&mut self) -> Option<T> {
        T::take(self)
    }

    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Field for $type {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                let bytes = from.bytes(size_of::<Self>())?;
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 i32 i64 }

/// Types that are sent as a number: the type of the number, the number of a value, the value of a number.
macro_rules! numbers {
    ($($type:ty as $number:ty: $get:expr, $of:expr;)*) => {$(
        impl Field for $type {
            fn put(&self, to: &mut Vec<u8>) {
                let get: fn(&Self) -> $number = $get;
                get(self).put(to);
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                let of: fn($number) -> Option<Self> = $of;
                of(from.next()?)
            }
        }
    )*};
}

numbers! {
    ClientId as u64: |id| id.0, |number| Some(Self(number));
    QueueId as u64: |id| id.0, |number| Some(Self(number));
    DeviceId as u32: |id| id.0, |number| Some(Self(number));
    Time as u64: |time| time.0, |nanos| Some(Self(nanos));
    Priority as i32: |priority| priority.get(), |number| Self::try_from(i64::from(number)).ok();
    Utilization as u32: |share| share.get().into(), |number| Self::try_from(i64::from(number)).ok();
    PreemptLevel as i32: |level| level.number(), |number| Self::from_number(number.into());
    CostKey as u64: |key| key.get(), Self::new;
}

/// Both times; 0 for no cost.
impl Field for Option<EvictCost> {
    fn put(&self, to: &mut Vec<u8>) {
        self.map_or(0, EvictCost::hold_ns).put(to);
        self.map_or(0, EvictCost::release_ns).put(to);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match (from.next()?, from.next()?) {
            (0, 0) => Some(None),
            (hold_ns, release_ns) => EvictCost::new(hold_ns, release_ns).map(Some),
        }
    }
}

/// Length and bytes. A text that is too long is cut at a character.
impl Field for String {
    fn put(&self, to: &mut Vec<u8>) {
        let text = &self[..self.floor_char_boundary(TEXT)];
        // At most `TEXT`, which fits.
        to.push(text.len() as u8);
        to.extend_from_slice(text.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let length: u8 = from.next()?;
        if usize::from(length) > TEXT {
            return None;
        }
        // Shown to users: control characters must not reach their terminal.
        let text = std::str::from_utf8(from.bytes(length.into())?).ok()?;
        Some(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
    }
}

/// Flags, share, deadline (0 for none), laxity with both priorities, arrival.
impl Field for QueueHints {
    fn put(&self, to: &mut Vec<u8>) {
        let Self { utilization, deadline_us, laxity, arrival, preemptible, .. } = *self;
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let flags = flag(laxity.is_some(), LAXITY)
            | flag(arrival.is_some(), ARRIVAL)
            | flag(preemptible, PREEMPTIBLE);
        flags.put(to);
        utilization.put(to);
        deadline_us.map_or(0, NonZeroU64::get).put(to);
        let Laxity { us, lax, critical } =
            laxity.unwrap_or(Laxity { us: 0, lax: Priority::DEFAULT, critical: Priority::DEFAULT });
        us.put(to);
        lax.put(to);
        critical.put(to);
        arrival.unwrap_or_default().put(to);
        put_later_hints(to, &Hints { queue: *self, ..Hints::default() }, of_queue);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let flags: u32 = from.next()?;
        if flags & !(LAXITY | ARRIVAL | PREEMPTIBLE) != 0 {
            return None;
        }
        let utilization = from.next()?;
        let deadline_us = NonZeroU64::new(from.next()?);
        let laxity = Laxity { us: from.next()?, lax: from.next()?, critical: from.next()? };
        let arrival = from.next()?;
        let queue = Self {
            utilization,
            deadline_us,
            laxity: (flags & LAXITY != 0).then_some(laxity),
            arrival: (flags & ARRIVAL != 0).then_some(arrival),
            preemptible: flags & PREEMPTIBLE != 0,
            ..Self::default()
        };
        Some(take_later_hints(from, Hints { queue, ..Hints::default() }, of_queue)?.queue)
    }
}

/// The share, then, with 0 for none: slice, k, window and cap (two bytes each), job. A program that does not
/// know caps writes 0 in their place.
impl Field for ProcessHints {
    fn put(&self, to: &mut Vec<u8>) {
        let Self { utilization, timeslice, k_deadline, window, job, cap, .. } = *self;
        utilization.put(to);
        timeslice.map_or(0, Timeslice::get).put(to);
        k_deadline.map_or(0, NonZeroU32::get).put(to);
        u16::from(window).put(to);
        cap.map_or(0, |cap| u16::from(cap.get())).put(to);
        job.map_or(0, NonZeroU64::get).put(to);
        put_later_hints(to, &Hints { process: *self, ..Hints::default() }, of_process);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let utilization = from.next()?;
        let timeslice = match from.next::<u64>()? {
            0 => None,
            us => Some(i64::try_from(us).ok().and_then(|us| Timeslice::try_from(us).ok())?),
        };
        let k_deadline = NonZeroU32::new(from.next()?);
        let window = match from.next::<u16>()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let cap = match from.next::<u16>()? {
            0 => None,
            percent => Some(Cap::try_from(i64::from(percent)).ok()?),
        };
        let job = NonZeroU64::new(from.next()?);
        let process = Self { utilization, timeslice, k_deadline, window, job, cap, ..Self::default() };
        Some(take_later_hints(from, Hints { process, ..Hints::default() }, of_process)?.process)
    }
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
            code.put(to);
            number.put(to);
        }
    }
}

/// Adds the hints that have a wire code, up to the end of the message.
fn take_later_hints(
    from: &mut Reader<'_>,
    mut hints: Hints,
    concerned: fn(&HintSpec) -> bool,
) -> Option<Hints> {
    let mut last = 0;
    while !from.0.is_empty() {
        let (code, number) = (from.next::<u32>()?, from.next::<i64>()?);
        let known =
            HINTS.iter().find(|spec| concerned(spec) && spec.wire.is_some_and(|(known, _)| known == code));
        let update = known.filter(|_| code > last)?.from_number(number)?;
        update.apply(&mut hints, Time::default());
        last = code;
    }
    Some(hints)
}
