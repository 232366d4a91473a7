//! The table of hints, one row each.
//!
//! Everything that accepts or shows a hint goes by this table: the environment (`XSCHED_AUTO_XQUEUE_*`), the
//! options of `xcli hint` and `xcli run`, the functions `XHint*` of the C interface, the server, and the
//! tables in `docs/env.md` and `docs/hints.md`. To add a hint:
//!
//! 1. add its field to [`QueueHints`] or [`ProcessHints`] below,
//! 2. add its row to the macro call `hints!` below, with a wire code,
//! 3. declare its function in `include/xsched/hint.h` and name it in `shim/src/capi.rs`,
//! 4. write the two documents anew: `GIVEWAY_REGENERATE=1 cargo test -p protocol --test env_doc`.
//!
//! The tests of accepted values and of the way through a message go by the table as well. Refused values
//! (`config/tests.rs`, `shim/tests/warnings.rs`) and options of `xcli run` (`xcli/tests/run.rs`) are listed.

pub use super::spec::{HintSpec, HintVariable, Scope, Values};

use super::laxity::Laxity;
use crate::bounds::{Cap, Priority, StreamPriority, Timeslice, Utilization};
use crate::codes::QueueClass;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Defines a structure of hints, its default and its `follow`.
macro_rules! hint_state {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            /// Takes over the fields in which `after` differs from `before`, the program's own hints, and
            /// keeps the others, which another program or user may have hinted.
            pub fn follow(&mut self, before: &Self, after: &Self) {
                $(if before.$field != after.$field {
                    self.$field = after.$field;
                })*
            }
        }
    )*};
}

hint_state! {
    /// The hints of a queue, except its priority. By default nothing is hinted.
    QueueHints {
        /// Share of the device, relative to the shares of other queues.
        utilization: Utilization = Utilization::DEFAULT,
        /// Microseconds from the moment when the queue becomes ready to the deadline of its work.
        deadline_us: Option<NonZeroU64> = None,
        /// The time at which the queue becomes critical, and its priorities before and after.
        laxity: Option<Laxity> = None,
        /// The expected arrival of the next work. A time in the past has no effect.
        arrival: Option<Time> = None,
        /// True if the scheduler may suspend the queue while it has work. If false, the queue stops only
        /// before it starts to work, or when a guard against starvation or standstill suspends it.
        preemptible: bool = true,
        /// The class, for policies that tell latency-critical work from best effort.
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<QueueClass> = None,
        /// HIP's priority of the stream, which decides between equal priorities.
        #[serde(skip_serializing_if = "is_default")]
        stream_priority: StreamPriority = StreamPriority::DEFAULT,
    }

    /// The hints of a process. By default nothing is hinted.
    ProcessHints {
        /// Share of the devices, relative to the shares of other processes.
        utilization: Utilization = Utilization::DEFAULT,
        /// Requested slice, for the policies that take turns. The shortest request counts.
        timeslice: Option<Timeslice> = None,
        /// Requested number of earliest deadlines that may run at once. The highest request counts.
        k_deadline: Option<NonZeroU32> = None,
        /// True if the process owns the window that the user works in.
        window: bool = false,
        /// Number of the job, which the processes of a job share.
        job: Option<NonZeroU64> = None,
        /// Most of a device that the process gets, also while no other process wants it.
        cap: Option<Cap> = None,
        /// Nice value on the processor, -20 (most urgent) to 19. The server reads it from the kernel; no hint
        /// sets it.
        nice: i8 = 0,
    }
}

/// The hints that concern one queue: its own and those of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// Priority of the queue.
    pub priority: Priority,
    /// Hints of the queue.
    pub queue: QueueHints,
    /// Hints of its process.
    pub process: ProcessHints,
}

/// Creates [`HintUpdate`], [`HintKind`] and [`HINTS`] from rows: the variant with its value, the change that it
/// makes, the specification.
macro_rules! hints {
    ($($(#[$doc:meta])* $variant:ident $(($value:ident: $type:ty))? => $apply:expr, $spec:expr;)*) => {
        /// An update of one hint. It holds until the same hint is updated again.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum HintUpdate {
            $($(#[$doc])* $variant $(($type))?,)*
        }

        /// The names of the rows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum HintKind {
            $($(#[$doc])* $variant,)*
        }

        /// All hints, in the order of help texts and documents.
        pub const HINTS: &[HintSpec] = &[$($spec),*];

        impl HintUpdate {
            /// Returns the row of the hint.
            pub const fn spec(&self) -> &'static HintSpec {
                match self {
                    $(Self::$variant { .. } => HintKind::$variant.spec(),)*
                }
            }

            /// Changes the hints of a queue and of its process. A hint with a scope of both changes both.
            pub fn apply(self, hints: &mut Hints, now: Time) {
                match self {
                    $(Self::$variant $(($value))? => change(hints, now, $apply),)*
                }
            }

            /// Returns the value for the hint's variable, or `None` if the hint is taken back.
            pub fn text(self) -> Option<String> {
                match self {
                    $(Self::$variant $(($value))? => None $(.or($value.text()))?,)*
                }
            }
        }
    };
}

impl HintKind {
    /// Returns the row.
    pub const fn spec(self) -> &'static HintSpec {
        &HINTS[self as usize]
    }
}

fn change(hints: &mut Hints, now: Time, apply: impl FnOnce(&mut Hints, Time)) {
    apply(hints, now);
}

const POSITIVE: RangeInclusive<i128> = 1..=i64::MAX as i128;
const SWITCH: &[(&str, i128)] = &[("on", 1), ("off", 0)];

hints! {
    /// Priority of a queue. A process does not see hints from outside: the scheduler ignores a queue that such a
    /// hint sets to [`Priority::NO_EXECUTE`], but the process still launches from it while it may run. If the
    /// process itself has set that priority, a hint cannot change it.
    Priority(value: Priority) => |hints, _| hints.priority = value,
    HintSpec {
        name: "priority",
        short: None,
        placeholder: "N",
        meaning: "priority of the queue, from -255 to 255: a bigger number is more urgent; a process whose queues all have \
                  -256 never runs",
        scope: Scope::Queue,
        values: number(Priority::RANGE),
        take_back: None,
        update: |number| bounded(number).map(HintUpdate::Priority),
        function: Some(("XHintPriority", "XQueueHandle, Priority")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_PRIORITY",
            values: "-256..255",
            range: None,
            default: "0",
        }),
        wire: None,
    };

    /// Share of the device.
    Utilization(value: Utilization) => |hints, _| {
        hints.queue.utilization = value;
        hints.process.utilization = value;
    },
    HintSpec {
        name: "utilization",
        short: Some('u'),
        placeholder: "PERCENT",
        meaning: "share in percent, for the policies that divide the device by shares",
        scope: Scope::QueueOrProcess,
        values: number(Utilization::RANGE),
        take_back: None,
        update: |number| bounded(number).map(HintUpdate::Utilization),
        function: Some(("XHintUtilization", "XQueueHandle, Utilization")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_UTILIZATION",
            values: "0..100",
            range: None,
            default: "100",
        }),
        wire: None,
    };

    /// Slice that a process asks for.
    Timeslice(value: Timeslice) => |hints, _| hints.process.timeslice = Some(value),
    HintSpec {
        name: "timeslice",
        short: Some('t'),
        placeholder: "US",
        meaning: "slice in microseconds, for the policies that take turns; the shortest that any process asks for counts",
        scope: Scope::AnyProcess,
        values: number(Timeslice::RANGE),
        take_back: None,
        update: |number| bounded(number).map(HintUpdate::Timeslice),
        function: Some(("XHintTimeslice", "Timeslice")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_TIMESLICE",
            values: "100..100000",
            range: Some(wide(Timeslice::ENVIRONMENT)),
            default: "the policy's own, 5000 in most",
        }),
        wire: None,
    };

    /// Deadline of a queue's work, in microseconds from the moment when the queue becomes ready.
    Deadline(value: Option<NonZeroU64>) => |hints, _| hints.queue.deadline_us = value,
    HintSpec {
        name: "deadline",
        short: None,
        placeholder: "US",
        meaning: "deadline in microseconds from the moment when the queue becomes ready, for KEDF, EDF and SLO",
        scope: Scope::Queue,
        values: Values::Number(POSITIVE),
        take_back: Some((-1, HintUpdate::Deadline(None))),
        update: |number| Some(HintUpdate::Deadline(NonZeroU64::new(u64::try_from(number).ok()?))),
        function: Some(("XHintDeadline", "XQueueHandle, Deadline")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_DEADLINE",
            values: "a whole number >= 1",
            range: None,
            default: "not set",
        }),
        wire: None,
    };

    /// Number of earliest deadlines that a process asks to run at once.
    KDeadline(value: Option<NonZeroU32>) => |hints, _| hints.process.k_deadline = value,
    HintSpec {
        name: "kdeadline",
        short: None,
        placeholder: "K",
        meaning: "number of queues with the earliest deadlines that may run at once, for KEDF; the highest that any process \
                  asks for counts",
        scope: Scope::Process,
        values: Values::Number(1..=u64::MAX as i128),
        take_back: Some((-1, HintUpdate::KDeadline(None))),
        // More than there can be queues means all of them.
        update: |number| Some(HintUpdate::KDeadline(NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX)))),
        function: Some(("XHintKDeadline", "size_t")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_KDEADLINE",
            values: "a whole number >= 1",
            range: Some(POSITIVE),
            default: "not set",
        }),
        wire: None,
    };

    /// Time at which a queue becomes critical, with its priorities before and after.
    Laxity(value: Option<Laxity>) => |hints, _| hints.queue.laxity = value,
    HintSpec {
        name: "laxity",
        short: None,
        placeholder: "US,LAX,CRIT",
        meaning: "microseconds from the moment when the queue becomes ready until it is critical, and its priorities before \
                  and after (in the environment they may be left out: 0, and the queue's own), for LAX",
        scope: Scope::Queue,
        values: Values::Laxity,
        take_back: Some((-1, HintUpdate::Laxity(None))),
        update: |_| None,
        function: Some(("XHintLaxity", "XQueueHandle, Laxity, Priority, Priority")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_LAXITY",
            values: "a whole number >= 0, or with two priorities as 5000,-10,10",
            range: None,
            default: "not set",
        }),
        wire: None,
    };

    /// True if the scheduler may suspend a queue while it has work.
    Preemptible(value: bool) => |hints, _| hints.queue.preemptible = value,
    HintSpec {
        name: "preemptible",
        short: None,
        placeholder: "on|off",
        meaning: "off: the queue is not suspended while it has work, and others run beside it, for LCBE",
        scope: Scope::Queue,
        values: Values::Word(SWITCH),
        take_back: None,
        update: |number| Some(HintUpdate::Preemptible(number != 0)),
        function: Some(("XHintPreemptible", "XQueueHandle, int")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_PREEMPTIBLE",
            values: "ON, OFF, 1, 0",
            range: None,
            default: "ON",
        }),
        wire: None,
    };

    /// Class of a queue.
    Class(value: Option<QueueClass>) => |hints, _| hints.queue.class = value,
    HintSpec {
        name: "class",
        short: None,
        placeholder: "CLASS",
        meaning: "class of the queue, latency-critical or best-effort, which overrides its priority, for LCBE",
        scope: Scope::Queue,
        values: Values::Word(&[("latency-critical", 1), ("best-effort", 2), ("none", 0)]),
        take_back: Some((0, HintUpdate::Class(None))),
        update: |number| Some(HintUpdate::Class(Some(QueueClass::from_number(i64::try_from(number).ok()?)?))),
        function: Some(("XHintClass", "XQueueHandle, XQueueClass")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_CLASS",
            values: "LATENCY-CRITICAL, BEST-EFFORT, NONE, 1, 2, 0",
            range: None,
            default: "NONE",
        }),
        wire: Some((1, |hints| hints.queue.class.map(|class| class.number().into()))),
    };

    /// HIP's priority of the stream.
    StreamPriority(value: StreamPriority) => |hints, _| hints.queue.stream_priority = value,
    HintSpec {
        name: "stream-priority",
        short: None,
        placeholder: "N",
        meaning: "HIP's priority of the stream (`hipStreamCreateWithPriority`): 1 is high, -1 is low; it decides between \
                  equal priorities, for HPF and HHPF",
        scope: Scope::Queue,
        values: number(StreamPriority::RANGE),
        take_back: None,
        update: |number| bounded(number).map(HintUpdate::StreamPriority),
        function: None,
        variable: None,
        wire: Some((2, |hints| {
            Some(i64::from(hints.queue.stream_priority)).filter(|_| !is_default(&hints.queue.stream_priority))
        })),
    };

    /// Job that a process belongs to.
    Job(value: Option<NonZeroU64>) => |hints, _| hints.process.job = value,
    HintSpec {
        name: "job",
        short: None,
        placeholder: "N",
        meaning: "number of the job that the process belongs to, which the processes of the job share, for GANG; 0 is no job",
        scope: Scope::Process,
        values: Values::Number(0..=u64::MAX as i128),
        take_back: None,
        update: |number| Some(HintUpdate::Job(NonZeroU64::new(u64::try_from(number).ok()?))),
        function: Some(("XHintJob", "uint64_t")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_JOB",
            values: "a whole number >= 0",
            range: Some(0..=i64::MAX as i128),
            default: "0, none",
        }),
        wire: None,
    };

    /// Most of its devices that a process gets.
    Cap(value: Option<Cap>) => |hints, _| hints.process.cap = value,
    HintSpec {
        name: "cap",
        short: None,
        placeholder: "PERCENT",
        meaning: "most in percent that the process gets of a device, also while no other wants it, for CREDIT (under the local \
                  scheduler: that each of its queues gets)",
        scope: Scope::Process,
        values: number(Cap::RANGE),
        take_back: Some((-1, HintUpdate::Cap(None))),
        update: |number| Some(HintUpdate::Cap(Some(bounded(number)?))),
        function: Some(("XHintCap", "int")),
        variable: Some(HintVariable {
            name: "XSCHED_AUTO_XQUEUE_CAP",
            values: "1..100",
            range: None,
            default: "not set",
        }),
        wire: None,
    };

    /// Microseconds until work arrives on a queue.
    Arrival(value: Option<u64>) => |hints, now| {
        hints.queue.arrival = value.map(|us| now.after(Duration::from_micros(us)));
    },
    HintSpec {
        name: "arrival",
        short: None,
        placeholder: "US",
        meaning: "microseconds until work arrives on the queue, for LCBE",
        scope: Scope::Queue,
        values: Values::Number(0..=i64::MAX as i128),
        take_back: Some((-1, HintUpdate::Arrival(None))),
        update: |number| Some(HintUpdate::Arrival(Some(u64::try_from(number).ok()?))),
        function: Some(("XHintArrival", "XQueueHandle, int64_t")),
        variable: None,
        wire: None,
    };

    /// The process owns the window that the user works in, and no other process does.
    Window => |hints, _| hints.process.window = true,
    HintSpec {
        name: "window",
        short: None,
        placeholder: "",
        meaning: "the process owns the window that the user works in, and no other process does, for AWF",
        scope: Scope::Process,
        values: Values::Flag,
        take_back: None,
        update: |_| Some(HintUpdate::Window),
        function: None,
        variable: None,
        wire: None,
    };
}

/// The table of hints in `docs/hints.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "| meaning | function of `xsched/hint.h` | at the start: `XSCHED_AUTO_XQUEUE_...` | `xcli run` | while it runs: `xcli hint` |\n\
         |---|---|---|---|---|\n",
    );
    for spec in HINTS {
        let (option, back) = (spec.usage(), spec.take_back_text());
        let function = spec.function.map_or(String::new(), |(name, _)| format!("`{name}`"));
        let variable =
            spec.variable.as_ref().map(|variable| variable.name.trim_start_matches("XSCHED_AUTO_XQUEUE_"));
        let started = variable.map_or(String::new(), |_| format!("`{option}`"));
        let variable = variable.map_or(String::new(), |name| format!("`{name}`"));
        let running = match spec.scope {
            Scope::Queue => format!("`-x QUEUE {option}`"),
            Scope::QueueOrProcess => format!("`-x QUEUE {option}` (queue), `--pid PID {option}` (process)"),
            Scope::Process => format!("`--pid PID {option}`"),
            Scope::AnyProcess => format!("`--pid PID {option}`, or `{option}` for every process"),
        };
        // Placeholders such as `on|off` would end a cell.
        let [started, running] = [started, running].map(|cell| cell.replace('|', "\\|"));
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "| {}{back} | {function} | {variable} | {started} | {running} |", spec.meaning);
    }
    text + "| nice value of the process on the processor | | | | read from the kernel, for CHPF |\n"
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn wide(range: RangeInclusive<i64>) -> RangeInclusive<i128> {
    *range.start() as i128..=*range.end() as i128
}

const fn number(range: RangeInclusive<i64>) -> Values {
    Values::Number(wide(range))
}

fn bounded<T: TryFrom<i64>>(number: i128) -> Option<T> {
    T::try_from(i64::try_from(number).ok()?).ok()
}

/// The value of a hint as text for its variable; `None` if the hint is taken back.
trait Text {
    fn text(self) -> Option<String>;
}

impl Text for bool {
    fn text(self) -> Option<String> {
        Some(if self { "ON" } else { "OFF" }.to_owned())
    }
}

impl<T: ToString> Text for Option<T> {
    fn text(self) -> Option<String> {
        self.map(|value| value.to_string())
    }
}

macro_rules! text {
    ($($type:ty),*) => {$(
        impl Text for $type {
            fn text(self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

text!(Priority, StreamPriority, Utilization, Timeslice);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_unique_names_and_ascending_wire_codes() {
        let mut names: Vec<_> = HINTS.iter().map(|spec| spec.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HINTS.len());
        let codes: Vec<_> = HINTS.iter().filter_map(|spec| spec.wire).map(|(code, _)| code).collect();
        assert!(codes.is_sorted_by(|a, b| a < b) && !codes.contains(&0), "{codes:?}");
    }

    #[test]
    fn text_of_an_update_is_read_from_the_variable_as_the_same_update() {
        for spec in HINTS {
            for word in spec.examples() {
                let update = spec.parse(&word).unwrap();
                assert_eq!(update.spec().name, spec.name);
                let mut hints = Hints::default();
                update.apply(&mut hints, Time::default());
                match update.text() {
                    Some(text) => assert_eq!(spec.read(&text, &Hints::default()), Some(update), "{text}"),
                    None => assert_eq!(hints, Hints::default(), "{word} takes {} back", spec.name),
                }
            }
        }
    }

    #[test]
    fn take_back_restores_the_default() {
        let backs = HINTS.iter().filter_map(|spec| spec.take_back);
        for (number, update) in backs {
            assert_eq!(update.spec().parse(&number.to_string()), Ok(update));
            assert_eq!(update.text(), None);
            let mut hints = Hints::default();
            update.apply(&mut hints, Time(5));
            assert_eq!(hints, Hints::default(), "{}", update.spec().name);
        }
    }

    #[test]
    fn follow_takes_what_the_program_changed_and_keeps_what_others_hinted() {
        let share = |percent| Utilization::try_from(percent).unwrap();
        let before = QueueHints { utilization: share(30), ..QueueHints::default() };
        let after = QueueHints { deadline_us: NonZeroU64::new(500), ..before };
        // A user has changed the share and the deadline meanwhile.
        let mut hints = QueueHints { utilization: share(70), deadline_us: NonZeroU64::new(9), ..before };
        hints.follow(&before, &after);
        assert_eq!(hints, QueueHints { utilization: share(70), ..after });

        let before = ProcessHints::default();
        let after = ProcessHints { job: NonZeroU64::new(4), ..before };
        let mut hints = ProcessHints { window: true, nice: 5, ..before };
        hints.follow(&before, &after);
        assert_eq!(hints, ProcessHints { window: true, nice: 5, ..after });

        let cap = Cap::try_from(30).ok();
        let mut hints = after;
        hints.follow(&after, &ProcessHints { cap, ..after });
        assert_eq!(hints, ProcessHints { cap, ..after });
        // The program takes its job back; the cap that a user hinted stays.
        hints.follow(&after, &before);
        assert_eq!(hints, ProcessHints { cap, ..before });
    }
}
