//! The shares: which part of the compute units an entity leaves to those that it outranks.
//!
//! At level 3 they are evicted, or go on slowly on a share of the compute units ([`Ranking::share`]). A share costs the
//! entity that goes first compute units, bandwidth and caches, and how much depends on both programs. So the share is found by
//! measurement, within the bound that the user gives: requests may take so much longer than without a share.
//!
//! # Requests
//! A request is a busy period: it begins when the entity turns ready out of idleness and ends when it turns idle, which is
//! known once its linger is over. Its length is the time from its first work to its last, so the linger behind it does not
//! count, but a gap inside it does. Several requests that come close together are one busy period, the longer the more
//! there are, so the sample is its length divided by the launches in it. It counts if
//!
//! * another entity with work was suspended under it from the beginning, with the share that was in force;
//! * the entity itself was never suspended meanwhile;
//! * both its ends were seen.
//!
//! # The rule
//! The candidates are no share, a quarter, half and all of the largest share, and the first one comes first. The candidate
//! of a request is chosen before it begins, and holds until it has ended. One request of four is a *baseline*: it runs
//! without a share. Its place among the four varies, so that it does not fall into step with a program whose requests
//! alternate. After [`KEPT`] samples with a candidate they are compared with the newest baselines:
//!
//! * If requests took longer than the bound allows, the next lower candidate is taken, and the higher one is not tried
//!   again for 64 requests, then for 128, and so on up to 4,096. A candidate that holds afterwards halves that again.
//! * If they stay within half the bound, the next higher one is taken.
//! * If the last [`GROSS`] samples were all longer than the bound allows beside the median baseline, the next lower
//!   candidate is taken at once.
//!
//! # The comparison
//! Requests of a program have different lengths, and each sample has them in another mixture. If half of them are short
//! and half long, the median of a sample is one or the other by chance. So what is compared is not the medians but each
//! quantile with the same quantile of the baselines. The median of these ratios is that of a typical request: a mixture
//! that differs a little moves few of them. The median of the ratios in the upper fifth says the same of the requests
//! around the 90th percentile. The larger of both counts.
//!
//! [`Ranking::share`]: crate::Ranking::share

use crate::per_entity::PerEntity;
use crate::sched_entity::SchedEntity;
use protocol::operation::{Permit, Share};
use protocol::time::Time;
use std::time::Duration;

/// The samples of a comparison, and the baselines that are kept.
const KEPT: usize = 32;
/// The samples in a row that lower the share at once if all are too long.
const GROSS: u8 = 8;
/// One request of so many is a baseline, while there is a share.
const TURNS: u64 = 4;
/// The requests for which a candidate that failed is not tried again: the first time, and at most.
const WAITS: (u64, u64) = (64, 4_096);
/// The candidates, in quarters of the largest share.
const QUARTERS: [u8; 4] = [0, 1, 2, 4];
/// The quantiles of the upper fifth.
const TAIL: std::ops::Range<usize> = KEPT * 4 / 5..KEPT;

/// The limits of the share that an entity leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// The largest share.
    pub most: Share,
    /// The part of a request's length by which a share may lengthen it.
    pub slowdown: f64,
}

impl Rule {
    /// Combines the rules of two devices: the share of each is bounded there, and the smaller slowdown counts.
    pub fn and(self, other: Self) -> Self {
        Self { most: self.most.max(other.most), slowdown: self.slowdown.min(other.slowdown) }
    }
}

/// Counters for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ShareCounts {
    raised: u64,
    lowered: u64,
    /// The largest share that an entity leaves now.
    pub now: Share,
}

impl ShareCounts {
    /// Returns the counters with their names.
    pub fn named(self) -> [(&'static str, u64); 3] {
        let percent = u64::from(self.now.units()) * 100 / u64::from(Share::WHOLE);
        [("shares-raised", self.raised), ("shares-lowered", self.lowered), ("share-now-percent", percent)]
    }

    /// Adds others to these.
    pub fn add(&mut self, others: Self) {
        self.raised += others.raised;
        self.lowered += others.lowered;
        self.now = self.now.max(others.now);
    }
}

/// The shares of all entities.
#[derive(Debug, Default)]
pub(crate) struct Shares(PerEntity<Watch>);

impl Shares {
    /// Returns the states of these entities, to look at each.
    pub fn align(&mut self, entities: &[SchedEntity]) -> &mut [Watch] {
        self.0.align(entities)
    }

    /// Notes a decision about the entities that were looked at: the permissions, and for each outranked entity the one
    /// that it is suspended for.
    pub fn note(&mut self, entities: &[SchedEntity], permits: &[Permit], rivals: &[Option<usize>]) {
        let watches = self.0.values_mut();
        if watches.is_empty() {
            return;
        }
        for (index, permit) in permits.iter().enumerate().filter(|(_, permit)| !permit.run) {
            if let Seen::Request(request) = &mut watches[index].seen {
                request.counts = false;
            }
            let Some(rival) = rivals[index].filter(|_| entities[index].working) else { continue };
            let watch = &mut watches[rival];
            let share = watch.share();
            // Work that comes later has not slowed all of the request.
            if let Seen::Request(request) = &mut watch.seen {
                request.has_victim |= request.is_new && permit.share == share;
            }
        }
        for watch in watches {
            if let Seen::Request(request) = &mut watch.seen {
                request.is_new = false;
            }
        }
    }

    /// Notes that the next change of an entity, by its index at the last decision, may not lead to a decision.
    pub fn miss(&mut self, index: usize) {
        match self.0.values_mut().get_mut(index).map(|watch| &mut watch.seen) {
            Some(Seen::Idle { missed } | Seen::Request(Request { missed, .. })) => *missed = true,
            Some(Seen::Nothing) | None => {}
        }
    }

    /// Forgets the last decision, because another decider has been in charge since then. What was learnt stays.
    pub fn forget(&mut self) {
        self.0.values_mut().iter_mut().for_each(|watch| watch.seen = Seen::Nothing);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The course of an entity at the last decision.
#[derive(Debug, Clone, Copy, Default)]
enum Seen {
    #[default]
    Nothing,
    Idle {
        /// True if work may have come unseen.
        missed: bool,
    },
    Request(Request),
}

/// A request that has begun.
#[derive(Debug, Clone, Copy)]
struct Request {
    began: Time,
    /// [`SchedEntity::launched`] at that time, and the number of queues.
    launched: u64,
    queues: usize,
    /// The time since which the entity was ready at the last decision.
    since: Time,
    /// True until the end of the decision that saw it first.
    is_new: bool,
    /// True if its next change may not be seen.
    missed: bool,
    /// False if its length says nothing of the share.
    counts: bool,
    /// True if another entity's work was suspended for it.
    has_victim: bool,
}

/// State of an entity.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    rule: Option<Rule>,
    seen: Seen,
    /// The samples and the candidate; `None` before the first sample.
    learner: Option<Box<Learner>>,
}

impl Watch {
    /// Looks at the entity before a decision, and returns what has happened. Without a rule nothing is learnt.
    pub fn look(&mut self, entity: &SchedEntity, rule: Option<Rule>, now: Time) -> ShareCounts {
        if self.rule.map(|rule| rule.most) != rule.map(|rule| rule.most) {
            *self = Self::default();
        }
        self.rule = rule;
        let Some(Rule { most, slowdown }) = rule else { return ShareCounts::default() };
        let mut counts = ShareCounts::default();
        // Times come from another process and may lie in the future.
        let since = entity.since.min(now);
        self.seen = match self.seen {
            Seen::Request(mut request) if entity.ready => {
                request.counts &= !request.missed || entity.working && since == request.since;
                (request.missed, request.since) = (false, since);
                Seen::Request(request)
            }
            Seen::Request(request) => {
                // A queue that was destroyed meanwhile takes its launches with it.
                let same = request.queues == entity.queue_count() && entity.launched >= request.launched;
                let valid = request.counts && request.has_victim && !request.missed && same;
                let end = entity.idle_since.filter(|end| valid && *end > request.began);
                let commands = entity.launched.saturating_sub(request.launched);
                self.end(
                    end.map(|end| time_of_each(end.since(request.began), commands)),
                    slowdown,
                    &mut counts,
                );
                Seen::Idle { missed: false }
            }
            seen if entity.ready => Seen::Request(Request {
                began: since,
                launched: entity.launched,
                queues: entity.queue_count(),
                since,
                is_new: true,
                missed: false,
                counts: matches!(seen, Seen::Idle { missed: false }) && entity.working,
                has_victim: false,
            }),
            _ => Seen::Idle { missed: false },
        };
        counts.now = self.learner.as_ref().map_or(Share::NONE, |learner| learner.share(learner.level, most));
        counts
    }

    /// Ends a request, with its length if that counts.
    fn end(&mut self, length: Option<u64>, slowdown: f64, counts: &mut ShareCounts) {
        if length.is_some() || self.learner.is_some() {
            self.learner.get_or_insert_default().end(length, slowdown, counts);
        }
    }

    /// Returns the share that the entity leaves in the request that is under way, or else in its next one.
    pub fn share(&self) -> Share {
        match (self.rule, &self.learner) {
            (Some(rule), Some(learner)) => learner.share(learner.turn, rule.most),
            _ => Share::NONE,
        }
    }
}

/// Returns the sample of a busy period, in picoseconds a launch, or for all of it if none was counted.
fn time_of_each(length: Duration, launches: u64) -> u64 {
    let picoseconds = length.as_nanos().saturating_mul(1_000) / u128::from(launches.max(1));
    u64::try_from(picoseconds).unwrap_or(u64::MAX)
}

/// The newest samples.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    kept: [u64; KEPT],
    count: usize,
    /// The place of the next one.
    next: usize,
}

impl Samples {
    fn push(&mut self, length: u64) {
        self.kept[self.next] = length;
        self.next = (self.next + 1) % KEPT;
        self.count = (self.count + 1).min(KEPT);
    }

    fn is_full(&self) -> bool {
        self.count == KEPT
    }

    /// Returns the samples in ascending order. Those that are missing are the largest.
    fn sorted(&self) -> [u64; KEPT] {
        let mut sorted = self.kept;
        sorted[self.count..].fill(u64::MAX);
        sorted.sort_unstable();
        sorted
    }
}

/// The samples of an entity, and the candidate that they led to.
#[derive(Debug, Default)]
struct Learner {
    /// The candidate that is tried, and that of the present or the next request: the same, or no share.
    level: usize,
    turn: usize,
    /// The number of requests.
    number: u64,
    baselines: Samples,
    /// Their median, once they are complete.
    median: u64,
    /// The samples with the candidate.
    samples: Samples,
    /// The last samples in a row that were too long.
    long: u8,
    /// For each candidate how often its wait is doubled, and the number of the request before which it is not tried.
    doublings: [u32; QUARTERS.len()],
    not_before: [u64; QUARTERS.len()],
}

impl Learner {
    fn share(&self, candidate: usize, most: Share) -> Share {
        most.quarters(QUARTERS[candidate])
    }

    /// Ends a request, with its length if that counts, and chooses the candidate of the next one.
    fn end(&mut self, length: Option<u64>, slowdown: f64, counts: &mut ShareCounts) {
        self.number += 1;
        match length {
            Some(length) if self.turn == 0 => {
                self.baselines.push(length);
                self.median = self.baselines.sorted()[KEPT / 2];
                if self.level == 0 && self.baselines.is_full() {
                    self.raise(counts);
                }
            }
            Some(length) => self.sample(length, slowdown, counts),
            None => {}
        }
        self.turn = if is_baseline(self.number) { 0 } else { self.level };
    }

    /// Takes a sample with the candidate.
    fn sample(&mut self, length: u64, slowdown: f64, counts: &mut ShareCounts) {
        self.samples.push(length);
        let is_long = ratio(length, self.median) > 1.0 + slowdown;
        self.long = if is_long { self.long + 1 } else { 0 };
        if self.long >= GROSS {
            self.lower(counts);
        } else if self.samples.is_full() {
            let found = slowdown_of(&self.samples, &self.baselines);
            if found > slowdown {
                self.lower(counts);
            } else {
                let doublings = &mut self.doublings[self.level];
                *doublings = doublings.saturating_sub(1);
                self.samples = Samples::default();
                if found <= slowdown / 2.0 {
                    self.raise(counts);
                }
            }
        }
    }

    /// Goes to the next higher candidate, if there is one that may be tried.
    fn raise(&mut self, counts: &mut ShareCounts) {
        let next = self.level + 1;
        if next < QUARTERS.len() && self.number >= self.not_before[next] {
            self.take(next);
            counts.raised += 1;
        }
    }

    fn lower(&mut self, counts: &mut ShareCounts) {
        let failed = self.level;
        let wait = (WAITS.0 << self.doublings[failed]).min(WAITS.1);
        self.not_before[failed] = self.number + wait;
        self.doublings[failed] += u32::from(wait < WAITS.1);
        self.take(failed - 1);
        counts.lowered += 1;
    }

    fn take(&mut self, level: usize) {
        (self.level, self.long, self.samples) = (level, 0, Samples::default());
    }
}

/// Returns true if the request with this number runs without a share.
fn is_baseline(number: u64) -> bool {
    // The upper bits of a product with the golden ratio look random.
    let place = (number / TURNS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - TURNS.ilog2());
    number % TURNS == place
}

fn ratio(length: u64, other: u64) -> f64 {
    length as f64 / other.max(1) as f64
}

/// Returns the part by which requests take longer than baselines, of both as many as are kept.
fn slowdown_of(samples: &Samples, baselines: &Samples) -> f64 {
    let (samples, baselines) = (samples.sorted(), baselines.sorted());
    let ratios: [f64; KEPT] = std::array::from_fn(|place| ratio(samples[place], baselines[place]));
    let mut tail = ratios;
    let tail = median(&mut tail[TAIL]);
    let mut all = ratios;
    median(&mut all).max(tail) - 1.0
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    (values[(count - 1) / 2] + values[count / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: f64 = 0.05;
    type Lengths<'a> = &'a dyn Fn(&mut Model, u64) -> u64;
    const MS: u64 = 1_000_000;

    /// A program on a device where each quarter of the largest share costs its requests a part of their length.
    struct Model {
        learner: Learner,
        counts: ShareCounts,
        /// The part that four quarters cost.
        cost: f64,
        /// For each candidate the number of requests that ran with it.
        ran: [u64; QUARTERS.len()],
        random: u64,
    }

    impl Model {
        fn new(cost: f64) -> Self {
            let (learner, counts) = Default::default();
            Self { learner, counts, cost, ran: [0; QUARTERS.len()], random: 1 }
        }

        /// Returns a number from 0 to 1.
        fn random(&mut self) -> f64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.random >> 33) as f64 / f64::from(1u32 << 31)
        }

        /// Plays requests that would have these lengths without a share.
        fn play(&mut self, lengths: impl IntoIterator<Item = u64>) -> &mut Self {
            for length in lengths {
                let turn = self.learner.turn;
                self.ran[turn] += 1;
                let slowed = length as f64 * (1.0 + self.cost * f64::from(QUARTERS[turn]) / 4.0);
                self.learner.end(Some(slowed as u64), BOUND, &mut self.counts);
            }
            self
        }

        /// Plays so many requests of 1 ms.
        fn same(&mut self, count: usize) -> &mut Self {
            self.play(std::iter::repeat_n(MS, count))
        }

        /// Returns the level that most of the last 1,000 requests had after 4,000, for requests of these lengths.
        fn settles(&mut self, lengths: impl Fn(&mut Self, u64) -> u64) -> usize {
            for number in 0..5_000 {
                if number == 4_000 {
                    self.ran = [0; QUARTERS.len()];
                }
                let length = lengths(self, number);
                self.play([length]);
            }
            // A quarter of the requests is the baseline.
            self.ran[0] = self.ran[0].saturating_sub(250);
            (0..QUARTERS.len()).max_by_key(|level| self.ran[*level]).unwrap()
        }
    }

    #[test]
    fn largest_candidate_within_the_bound_is_found() {
        for (cost, level) in [(0.0, 3), (0.02, 3), (0.08, 2), (0.15, 1), (0.3, 0), (5.0, 0)] {
            let mut model = Model::new(cost);
            assert_eq!(model.settles(|_, _| MS), level, "{cost}");
            assert_eq!(model.ran[level], model.ran.iter().copied().max().unwrap());
        }
    }

    #[test]
    fn candidate_between_half_the_bound_and_the_bound_is_kept() {
        // A quarter costs 4 %, so half of the share is never tried.
        let mut model = Model::new(0.16);
        model.same(5_000);
        assert_eq!((model.learner.level, model.ran[2], model.counts.lowered), (1, 0, 0));
    }

    #[test]
    fn share_begins_with_none_and_rises_one_candidate_at_a_time() {
        let mut model = Model::new(0.0);
        assert_eq!(model.same(31).learner.level, 0);
        assert_eq!(model.same(1).learner.level, 1);
        // 32 samples, and the baselines between them.
        assert_eq!(model.same(36).learner.level, 1);
        assert_eq!(model.same(10).learner.level, 2);
        assert_eq!((model.same(46).learner.level, model.counts.raised), (3, 3));
    }

    #[test]
    fn share_falls_after_the_cost_has_changed() {
        let mut model = Model::new(0.0);
        model.same(500);
        assert_eq!(model.learner.level, 3);
        model.cost = 1.0;
        model.ran = [0; QUARTERS.len()];
        model.same(50);
        assert_eq!((model.learner.level, model.ran[3]), (0, 8), "at once");
        model.cost = 0.0;
        assert_eq!(model.same(1_000).learner.level, 3, "and rises again");
    }

    #[test]
    fn failed_candidate_is_tried_less_and_less_often() {
        let mut model = Model::new(1.0);
        model.same(20_000);
        assert!((5..=12).contains(&model.counts.lowered), "{:?}", model.counts);
        assert_eq!(model.ran[1], model.counts.lowered * 8);
        // The waits are 4,096 by now.
        let before = model.counts.lowered;
        model.same(40_960);
        assert!((9..=10).contains(&(model.counts.lowered - before)), "{:?}", model.counts);
    }

    #[test]
    fn baseline_is_one_of_four_and_does_not_fall_into_step() {
        let baselines: Vec<_> = (0..4_000).filter(|number| is_baseline(*number)).collect();
        assert_eq!(baselines.len(), 1_000);
        for period in [2, 3, 4, 5, 8] {
            for phase in 0..period {
                let count = baselines.iter().filter(|number| **number % period == phase).count() as u64;
                assert!((600..=1_400).contains(&(count * period)), "{count} of every {period}");
            }
        }
        let mut model = Model::new(0.02);
        model.same(10_000);
        assert!((2_500..2_600).contains(&model.ran[0]), "{:?}", model.ran);
    }

    #[test]
    fn lengths_that_vary_do_not_fool_it() {
        let two = |_: &mut Model, number: u64| [MS, 10 * MS][(number % 2) as usize];
        let one_in_ten = |_: &mut Model, number: u64| if number.is_multiple_of(10) { 20 * MS } else { MS };
        let noise = |model: &mut Model, _: u64| MS + (model.random() * 0.1 * MS as f64) as u64;
        let mixed = |model: &mut Model, _: u64| [MS, 10 * MS][usize::from(model.random() < 0.5)];
        let all: [Lengths<'_>; 4] = [&two, &one_in_ten, &noise, &mixed];
        for (shape, lengths) in all.into_iter().enumerate() {
            for (cost, levels) in [(0.01, 3..=3), (0.08, 1..=2), (0.15, 0..=1), (0.5, 0..=0)] {
                let level = Model::new(cost).settles(lengths);
                assert!(levels.contains(&level), "shape {shape}, cost {cost}: {level}");
            }
        }
    }

    #[test]
    fn share_that_slows_long_requests_only_is_too_large() {
        let mut learner = Learner::default();
        let mut counts = ShareCounts::default();
        for number in 0..5_000u64 {
            // A fifth is long, and a share doubles that.
            let length =
                if number.is_multiple_of(5) { (2 + u64::from(learner.turn > 0) * 2) * MS } else { MS };
            learner.end(Some(length), BOUND, &mut counts);
            assert!(learner.level <= 1, "by the tail");
        }
        assert!(counts.lowered >= 3, "{counts:?}");
    }

    #[test]
    fn request_that_does_not_count_changes_its_turn_only() {
        let mut model = Model::new(0.0);
        model.same(40);
        let before = (model.learner.baselines.count, model.learner.samples.count);
        for _ in 0..100 {
            model.learner.end(None, BOUND, &mut model.counts);
        }
        assert_eq!((model.learner.baselines.count, model.learner.samples.count), before);
        assert_eq!(model.learner.number, 140);
    }

    #[test]
    fn lengths_at_random_cost_little_whatever_the_share_costs() {
        // Where lengths vary by more than the bound, the comparison often sees a difference that is none. Then the share
        // stays small, which is the safe side.
        for spread in [0.05, 0.2, 1.0] {
            for cost in [0.04, 0.15, 0.3, 1.0] {
                let mut model = Model::new(cost);
                for _ in 0..20_000 {
                    let normal: f64 = (0..12).map(|_| model.random()).sum::<f64>() - 6.0;
                    model.play([(MS as f64 * (normal * spread).exp()) as u64]);
                }
                let quarters =
                    QUARTERS.iter().zip(model.ran).map(|(quarters, ran)| u64::from(*quarters) * ran);
                let mean = quarters.sum::<u64>() as f64 / 4.0 * cost / 20_000.0;
                assert!(mean < BOUND / 2.0, "spread {spread}, cost {cost}: {mean} in {:?}", model.ran);
            }
        }
    }
}
