//! The lingers: for how long each entity counts as ready after it has turned idle.

use crate::gaps::Gaps;
use crate::per_entity::PerEntity;
use crate::policy::Linger;
use crate::rows::Course;
use crate::sched_entity::SchedEntity;
use protocol::operation::EntityId;
use protocol::time::Time;
use std::time::Duration;

/// Counters of what was learnt, for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GapCounts {
    /// The gaps that were recorded.
    gaps: u64,
    /// Those with a shorter linger than the fixed one, and those with a longer one.
    shorter: u64,
    longer: u64,
    /// Those that outlasted the linger by less than a fixed linger: the devices changed hands for little.
    wrong: u64,
}

impl GapCounts {
    /// Returns the counters with their names.
    pub fn named(self) -> [(&'static str, u64); 4] {
        let Self { gaps, shorter, longer, wrong } = self;
        [("gaps", gaps), ("gaps-shorter", shorter), ("gaps-longer", longer), ("gaps-wrong", wrong)]
    }

    /// Adds others to these.
    pub fn add(&mut self, others: Self) {
        self.gaps += others.gaps;
        self.shorter += others.shorter;
        self.longer += others.longer;
        self.wrong += others.wrong;
    }
}

/// The course of an entity at the last decision.
#[derive(Debug, Clone, Copy, Default)]
enum Seen {
    /// The entity never had work, or its course is not known.
    #[default]
    Nothing,
    Working(Time),
    Gap(Gap),
}

/// A gap that has begun.
#[derive(Debug, Clone, Copy)]
struct Gap {
    since: Time,
    /// The length of the work before it; `None` if its beginning may not have been seen.
    before: Option<Duration>,
    linger: Duration,
    /// True if its end may have been missed, and work that is seen next may be later work.
    missed: bool,
}

/// State of an entity.
#[derive(Debug, Default)]
struct Watch {
    /// The linger by the last ranking.
    choice: Linger,
    seen: Seen,
    /// Its gaps, from the first one on.
    gaps: Option<Box<Gaps>>,
    /// The counts that were not passed on yet.
    counts: GapCounts,
}

/// The lingers of all entities.
#[derive(Debug, Default)]
pub(crate) struct Lingers {
    watches: PerEntity<Watch>,
    /// True if a watch has something that has not been counted yet.
    counted: bool,
}

impl Lingers {
    /// Returns the linger of an entity, given its course and the fixed linger.
    ///
    /// A learnt linger is chosen when a gap is seen for the first time, and holds until the gap ends: further
    /// decisions find the same. While the entity works, a queue of it that is idle has the fixed one. With a fixed
    /// linger of zero there is none.
    pub fn of(&mut self, index: usize, entity: EntityId, course: Course, fixed: Duration) -> Duration {
        let Some(watch) = self.watches.get_mut(index, entity).filter(|_| !fixed.is_zero()) else {
            return fixed;
        };
        match watch.choice {
            Linger::Fixed => fixed,
            Linger::AtLeast(least) => fixed.max(least),
            Linger::Learnt => {
                let before = watch.counts;
                let linger = watch.look(course, fixed);
                self.counted |= watch.counts != before;
                linger
            }
        }
    }

    /// Notes that the next change of an entity, by its index at the last decision, may not lead to a decision. What is
    /// seen of it next may be a later change.
    pub fn miss(&mut self, index: usize) {
        if let Some(watch) = self.watches.values_mut().get_mut(index) {
            watch.miss();
        }
    }

    /// Passes what has been learnt since the last call to `count`, with the index of the entity.
    pub fn count(&mut self, entities: &[SchedEntity], mut count: impl FnMut(usize, GapCounts)) {
        if std::mem::take(&mut self.counted) {
            for (index, watch) in self.watches.align(entities).iter_mut().enumerate() {
                count(index, std::mem::take(&mut watch.counts));
            }
        }
    }

    /// Stores the choices of a decision.
    pub fn note(&mut self, entities: &[SchedEntity], choice: impl Fn(usize) -> Linger) {
        for (index, (watch, entity)) in self.watches.align(entities).iter_mut().zip(entities).enumerate() {
            let choice = choice(index);
            if choice != Linger::Learnt {
                *watch = Watch { choice, ..Watch::default() };
            } else if watch.choice != choice {
                *watch = Watch { choice, ..Watch::default() };
                if entity.working {
                    watch.seen = Seen::Working(entity.since);
                }
            }
        }
    }

    /// Forgets the last decision, because another decider has been in charge since then. What was learnt stays.
    pub fn forget(&mut self) {
        self.watches.values_mut().iter_mut().for_each(|watch| watch.seen = Seen::Nothing);
    }
}

impl Watch {
    fn miss(&mut self) {
        match &mut self.seen {
            Seen::Gap(gap) => gap.missed = true,
            seen => *seen = Seen::Nothing,
        }
    }

    fn look(&mut self, course: Course, fixed: Duration) -> Duration {
        match (&mut self.seen, course) {
            (Seen::Gap(gap), Course::Idle(since)) if gap.since >= since => {
                // The same gap: nothing was missed. Its beginning can turn out to be earlier, where a short piece of
                // work does not count.
                (gap.since, gap.missed) = (since, false);
                return gap.linger;
            }
            // Its work began and ended within the linger, unreported. The time between is the gap and that work: an
            // upper bound.
            (Seen::Gap(gap), Course::Idle(since)) if since.since(gap.since) <= gap.linger + fixed => {
                let gap = *gap;
                self.record(gap, since, fixed);
            }
            (Seen::Gap(gap), Course::Working(since)) if gap.since < since => {
                let gap = *gap;
                self.record(gap, since, fixed);
            }
            _ => {}
        }
        match course {
            Course::New => self.seen = Seen::Nothing,
            Course::Working(since) => self.seen = Seen::Working(since),
            Course::Idle(since) => {
                let before = match self.seen {
                    Seen::Working(began) if began <= since => Some(since.since(began)),
                    _ => None,
                };
                let learnt = self.gaps.as_ref().and_then(|gaps| gaps.linger(before));
                let linger = learnt.unwrap_or(fixed);
                self.seen = Seen::Gap(Gap { since, before, linger, missed: false });
                return linger;
            }
        }
        fixed
    }

    /// Records a gap that ended at a time.
    fn record(&mut self, gap: Gap, end: Time, fixed: Duration) {
        if gap.missed {
            return;
        }
        let length = end.since(gap.since);
        self.gaps.get_or_insert_default().record(length, gap.before, fixed);
        self.counts.add(GapCounts {
            gaps: 1,
            shorter: u64::from(gap.linger < fixed),
            longer: u64::from(gap.linger > fixed),
            wrong: u64::from(length > gap.linger && length <= gap.linger + fixed),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: Duration = Duration::from_micros(200);

    /// Plays a course, one decision at each, and returns the last linger and the counters.
    fn play(courses: impl IntoIterator<Item = Course>) -> (Duration, [u64; 4]) {
        let mut watch = Watch::default();
        let mut linger = FIXED;
        for course in courses {
            linger = watch.look(course, FIXED);
        }
        (linger, watch.counts.named().map(|(_, count)| count))
    }

    fn working(us: u64) -> Course {
        Course::Working(Time(us * 1_000))
    }

    fn idle(us: u64) -> Course {
        Course::Idle(Time(us * 1_000))
    }

    /// Requests of 1 ms every 5 ms.
    fn requests(count: u64) -> impl Iterator<Item = Course> {
        (0..count).flat_map(|number| [working(number * 5_000), idle(number * 5_000 + 1_000)])
    }

    #[test]
    fn gaps_shorten_the_linger() {
        assert_eq!(play(requests(32)), (FIXED, [31, 0, 0, 0]));
        assert_eq!(play(requests(33)), (Duration::ZERO, [32, 0, 0, 0]));
        assert_eq!(play(requests(50)), (Duration::ZERO, [49, 17, 0, 0]));
        let soon = [working(50 * 5_000 - 3_900)];
        assert_eq!(play(requests(50).chain(soon)).1, [50, 18, 0, 1], "it came 100 µs later");
    }

    #[test]
    fn decision_in_between_changes_nothing() {
        let twice = requests(50).flat_map(|course| [course; 2]);
        assert_eq!(play(twice), play(requests(50)));
    }

    #[test]
    fn gap_whose_end_may_have_been_missed_is_not_recorded() {
        let play = |misses: bool, again: bool| {
            let mut watch = Watch::default();
            for number in 0..40 {
                watch.look(working(number * 5_000), FIXED);
                watch.look(idle(number * 5_000 + 1_000), FIXED);
                if misses {
                    watch.miss();
                }
                if again {
                    watch.look(idle(number * 5_000 + 1_000), FIXED);
                }
            }
            watch.counts.gaps
        };
        assert_eq!((play(false, false), play(true, false)), (39, 0));
        assert_eq!(play(true, true), 39, "it was still the same gap when changes were reported again");
        let mut watch = Watch::default();
        watch.look(working(0), FIXED);
        watch.miss();
        watch.look(idle(90_000), FIXED);
        assert!(matches!(watch.seen, Seen::Gap(Gap { before: None, .. })), "it may have worked twice");
    }

    #[test]
    fn gap_that_turns_out_to_be_longer_keeps_its_linger() {
        let mut watch = Watch::default();
        for course in requests(40) {
            watch.look(course, FIXED);
        }
        let (before, earlier) = (watch.counts, 39 * 5_000 + 900);
        assert_eq!(watch.look(idle(earlier), FIXED), Duration::ZERO);
        assert_eq!(watch.look(idle(earlier), FIXED), Duration::ZERO);
        assert_eq!(watch.counts, before);
    }

    #[test]
    fn gap_without_known_bounds_is_not_recorded() {
        let never = [Course::New, working(1)];
        assert_eq!(play(never).1, [0; 4]);
        // Its work came and went unseen: the gap was shorter than a linger, or nothing is known of it.
        assert_eq!(play([working(0), idle(100), idle(250)]).1, [1, 0, 0, 0]);
        assert_eq!(play([working(0), idle(100), idle(9_000)]).1, [0; 4]);
        // A clock that goes back.
        assert_eq!(play([working(500), idle(900), working(800)]).1, [0; 4]);
        assert_eq!(play([working(500), idle(400), idle(300)]).1, [0; 4]);
    }
}
