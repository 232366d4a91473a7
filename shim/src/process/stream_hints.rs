//! The hints of a stream's queue: its own, and those of parts of the program (`XHintBegin`).
//!
//! While a queue has parts, the most urgent hints of all parts count. A part counts from its begin until everything that
//! was submitted to the queue before its end has completed. The agent removes it then. Without an agent only the worker of
//! the device uses the priority, and the next call about the queue removes the part.

use protocol::bounds::Priority;
use protocol::codes::QueueClass;
use protocol::hint::table::HintUpdate;
use protocol::hint::{Hints, QueueHints};
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use xqueue::{Work, XQueue};

/// The number of the next part. No number is used twice.
static NEXT_PART: AtomicU64 = AtomicU64::new(1);

/// The hints of a part. What is `None` stays as the queue has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartHints {
    pub(crate) priority: Option<Priority>,
    pub(crate) class: Option<QueueClass>,
    pub(crate) deadline_us: Option<NonZeroU64>,
}

#[derive(Debug)]
struct Part {
    number: u64,
    hints: PartHints,
    /// The work after which it counts no longer; `None` before its end.
    last: Option<Work>,
}

/// The hints of a queue.
#[derive(Debug, Default)]
pub(crate) struct StreamHints {
    priority: Priority,
    queue: QueueHints,
    parts: Vec<Part>,
}

impl StreamHints {
    /// Returns the hints of a queue that has these, and no parts.
    pub(crate) fn new(priority: Priority, queue: QueueHints) -> Self {
        Self { priority, queue, parts: Vec::new() }
    }

    /// Changes what the queue has without parts.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Hints)) {
        let mut hints = Hints { priority: self.priority, queue: self.queue, ..Hints::default() };
        change(&mut hints);
        (self.priority, self.queue) = (hints.priority, hints.queue);
    }

    /// Returns the hints that count.
    pub(crate) fn in_force(&self) -> (Priority, QueueHints) {
        let parts = || self.parts.iter().map(|part| &part.hints);
        let priority = parts().filter_map(|hints| hints.priority).max().unwrap_or(self.priority);
        // Latency-critical has the smaller number.
        let class = parts().filter_map(|hints| hints.class).min_by_key(|class| class.number());
        let deadline_us = parts().filter_map(|hints| hints.deadline_us).min();
        let queue = QueueHints {
            class: class.or(self.queue.class),
            deadline_us: deadline_us.or(self.queue.deadline_us),
            ..self.queue
        };
        (priority, queue)
    }

    /// Begins a part. Returns its number.
    pub(crate) fn begin(&mut self, hints: PartHints) -> u64 {
        let number = NEXT_PART.fetch_add(1, Ordering::Relaxed);
        self.parts.push(Part { number, hints, last: None });
        number
    }

    /// Ends a part, which counts until `last` has completed. Returns false if there is no such part, or if it has ended.
    pub(crate) fn end(&mut self, number: u64, last: Work) -> bool {
        let mut open = self.parts.iter_mut().filter(|part| part.last.is_none());
        let Some(part) = open.find(|part| part.number == number) else { return false };
        part.last = Some(last);
        true
    }

    /// Removes the ended parts whose work has completed. Returns their number.
    pub(crate) fn settle(&mut self, queue: &XQueue) -> usize {
        let before = self.parts.len();
        self.parts.retain_mut(|part| part.last.as_mut().is_none_or(|last| !queue.has_completed(last)));
        before - self.parts.len()
    }

    /// Returns the number of ended parts.
    pub(crate) fn ended(&self) -> usize {
        self.parts.iter().filter(|part| part.last.is_some()).count()
    }
}

thread_local! {
    /// The hints for streams that the thread creates, one for each kind.
    static NEW_STREAMS: RefCell<Vec<HintUpdate>> = const { RefCell::new(Vec::new()) };
}

/// Sets a hint for streams that the calling thread creates from now on.
pub(crate) fn hint_new_streams(update: HintUpdate) {
    let takes_back = update.spec().take_back.is_some_and(|(_, back)| back == update);
    replace_hint_of_new_streams(update.spec().name, (!takes_back).then_some(update));
}

/// Replaces the hint of this name for streams that the calling thread creates from now on; `None` takes it back.
pub(crate) fn replace_hint_of_new_streams(name: &str, update: Option<HintUpdate>) {
    let _ = NEW_STREAMS.try_with(|updates| {
        let Ok(mut updates) = updates.try_borrow_mut() else { return };
        updates.retain(|other| other.spec().name != name);
        updates.extend(update);
    });
}

/// Returns the hints for a stream that the calling thread creates now.
pub(crate) fn of_new_stream() -> Vec<HintUpdate> {
    let updates = NEW_STREAMS.try_with(|updates| updates.try_borrow().map(|updates| updates.clone()));
    updates.ok().and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(number: i64) -> Priority {
        Priority::try_from(number).expect("in range")
    }

    fn part(number: i64) -> PartHints {
        PartHints { priority: Some(priority(number)), ..PartHints::default() }
    }

    #[test]
    fn most_urgent_part_counts_in_any_order_of_ends() {
        let mut hints = StreamHints::new(priority(3), QueueHints::default());
        let of = |hints: &StreamHints| hints.in_force().0.get();
        let low = hints.begin(part(-5));
        assert_eq!(of(&hints), -5, "a part can be less urgent than its queue");
        let high = hints.begin(part(9));
        assert_eq!(of(&hints), 9);
        hints.change(|own| own.priority = priority(100));
        assert_eq!(of(&hints), 9, "a part counts in place of the queue's own hints");
        assert!(hints.end(low, Work::default()) && !hints.end(low, Work::default()));
        assert_eq!((of(&hints), hints.ended()), (9, 1));
        assert!(hints.end(high, Work::default()) && !hints.end(77, Work::default()));
        assert_eq!(hints.ended(), 2);
        hints.parts.clear();
        assert_eq!(of(&hints), 100);
    }

    #[test]
    fn parts_keep_what_they_do_not_say() {
        let own = QueueHints {
            class: Some(QueueClass::BestEffort),
            deadline_us: NonZeroU64::new(500),
            ..QueueHints::default()
        };
        let mut hints = StreamHints::new(priority(4), own);
        hints.begin(PartHints::default());
        assert_eq!(hints.in_force(), (priority(4), own));
        let deadline = |us| PartHints { deadline_us: NonZeroU64::new(us), ..PartHints::default() };
        hints.begin(deadline(900));
        hints.begin(deadline(800));
        for class in [QueueClass::BestEffort, QueueClass::LatencyCritical] {
            hints.begin(PartHints { class: Some(class), ..PartHints::default() });
        }
        let (priority_now, queue) = hints.in_force();
        assert_eq!(priority_now, priority(4));
        assert_eq!(
            (queue.class, queue.deadline_us),
            (Some(QueueClass::LatencyCritical), NonZeroU64::new(800))
        );
    }

    #[test]
    fn hint_for_new_streams_replaces_the_earlier_one_of_its_kind() {
        hint_new_streams(HintUpdate::Priority(priority(1)));
        hint_new_streams(HintUpdate::Deadline(NonZeroU64::new(5)));
        hint_new_streams(HintUpdate::Priority(priority(2)));
        assert_eq!(
            of_new_stream(),
            [HintUpdate::Deadline(NonZeroU64::new(5)), HintUpdate::Priority(priority(2))]
        );
        hint_new_streams(HintUpdate::Deadline(None));
        assert_eq!(of_new_stream(), [HintUpdate::Priority(priority(2))]);
        assert!(std::thread::spawn(of_new_stream).join().expect("no panic").is_empty());
    }
}
