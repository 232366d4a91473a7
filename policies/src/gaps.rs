//! The gaps of an entity, and the linger that fits them.
//!
//! A gap is the time from the moment at which an entity turns idle to its next work. While it *lingers* it keeps its
//! devices, in case the gap is short; after that others are let in, and its next work takes the devices away again.
//! For how long it should linger is the ski rental problem: a linger that ends the gap costs the gap, one that does
//! not costs itself and a switch to the others and back. If nothing is known, a linger as long as what a switch costs
//! is never more than twice as bad as the best (Karlin et al., "Competitive snoopy caching", 1988). That is the fixed
//! linger, and it is taken as the cost of a switch here. If the gaps repeat, the linger that would have cost the least
//! over the recent ones is better (Karlin et al., "Empirical studies of competitive spinning", SOSP '91, for threads
//! that spin before they block).
//!
//! # The rule
//! Of the candidates, zero and each recorded gap with some slack up to [`MOST`] times the fixed linger, the one is
//! learnt that costs the least over the newest [`KEPT`] gaps, if it costs less than the fixed one. But best effort and
//! the entity do not pay the same: after a linger that ends just before the work comes, the entity waits for its
//! devices. So a candidate is left out if any kept gap ends within a switch and a quarter after it: the switch would
//! have cost more than it gained. If a part p of all gaps ends there, none of the n before did so with (1 - p)ⁿ, so a
//! guess of one candidate is wrong with p (1 - p)ⁿ: at most 0.6 % of the gaps with 64 of them. The rule chooses among
//! several, so more guesses are wrong: 1.0 % of evenly or exponentially distributed gaps, where the fixed linger is
//! wrong in 2 %.
//!
//! # Bounded misprediction
//! A linger was learnt from the gaps before, and the gaps may change. Each gap is kept with the linger that was learnt
//! when it began. While these would have cost more over the kept gaps than the fixed one, the fixed one is used.
//!
//! # Contexts
//! The gap behind a short piece of work is another one than that behind a long piece. Gaps are kept by the length of
//! the work before them, in powers of two, and all together. The context counts once it has [`ENOUGH`] gaps, before
//! that all gaps together.

use std::time::Duration;

/// The gaps of a record: enough for the bound on wrong guesses, few enough that a program that changes is learnt anew
/// after some dozens of gaps.
const KEPT: usize = 64;
/// The gaps from which a linger is learnt. With so many, a guess of one candidate is wrong for one gap in a hundred.
const ENOUGH: u8 = 32;
/// The longest linger that is learnt, in fixed lingers: the loss of best effort for one gap is bounded.
const MOST: u32 = 5;
/// The gaps from one calculation to the next, unless a guess was wrong.
const EVERY: u8 = 8;
/// The contexts: work shorter than 64 µs, then each power of two, the last without an end.
const CONTEXTS: usize = 12;

/// A time in microseconds, at most about an hour.
type Micros = u32;

fn micros(time: Duration) -> Micros {
    time.as_micros().try_into().unwrap_or(Micros::MAX)
}

/// The cost of a gap with a linger, given that of a switch.
fn cost(linger: Micros, gap: Micros, switch: Micros) -> i64 {
    if gap <= linger { gap.into() } else { i64::from(linger) + i64::from(switch) }
}

/// The gaps of an entity.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    all: Record,
    /// Few contexts occur in one program.
    contexts: [Option<Box<Record>>; CONTEXTS],
}

impl Gaps {
    /// Records a gap, the length of the work before it if that is known, and the fixed linger.
    pub fn record(&mut self, gap: Duration, before: Option<Duration>, fixed: Duration) {
        let (gap, fixed) = (micros(gap), micros(fixed));
        self.all.record(gap, fixed);
        if let Some(before) = before {
            self.contexts[context(before)].get_or_insert_default().record(gap, fixed);
        }
    }

    /// Returns the linger for a gap that has begun, given the length of the work before it; `None` for the fixed one.
    pub fn linger(&self, before: Option<Duration>) -> Option<Duration> {
        let own = before.and_then(|before| self.contexts[context(before)].as_deref());
        let record = own.filter(|record| record.count >= ENOUGH).unwrap_or(&self.all);
        record.learnt.filter(|_| record.regret <= 0).map(|micros| Duration::from_micros(micros.into()))
    }
}

/// Returns the number of the context of work of this length.
fn context(before: Duration) -> usize {
    let above = micros(before).checked_ilog2().unwrap_or(0).saturating_sub(5);
    (above as usize).min(CONTEXTS - 1)
}

/// A gap, and the linger that was learnt when it began.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    gap: Micros,
    /// The cost of that linger less the cost of the fixed one.
    regret: i32,
}

/// The newest gaps of one context.
#[derive(Debug)]
struct Record {
    kept: [Kept; KEPT],
    /// The gaps again, in ascending order.
    sorted: [Micros; KEPT],
    count: u8,
    /// The place of the next gap.
    next: u8,
    /// The gaps since the last calculation.
    fresh: u8,
    /// The linger; `None` for the fixed one.
    learnt: Option<Micros>,
    /// The sum of the kept regrets.
    regret: i64,
}

impl Default for Record {
    fn default() -> Self {
        let (kept, sorted) = ([Kept::default(); KEPT], [0; KEPT]);
        Self { kept, sorted, count: 0, next: 0, fresh: 0, learnt: None, regret: 0 }
    }
}

impl Record {
    fn record(&mut self, gap: Micros, fixed: Micros) {
        let more = self.learnt.map_or(0, |learnt| cost(learnt, gap, fixed) - cost(fixed, gap, fixed));
        let wrong =
            self.learnt.is_some_and(|learnt| gap > learnt && gap <= learnt.saturating_add(soon(fixed)));
        // A linger is a few milliseconds at most, and so is the difference.
        let kept = Kept { gap, regret: more.clamp(i32::MIN.into(), i32::MAX.into()) as i32 };
        let oldest = std::mem::replace(&mut self.kept[usize::from(self.next)], kept);
        self.next = (self.next + 1) % KEPT as u8;
        self.regret += i64::from(kept.regret);
        if usize::from(self.count) == KEPT {
            self.regret -= i64::from(oldest.regret);
            let place = self.gaps().partition_point(|other| *other < oldest.gap);
            self.sorted.copy_within(place + 1.., place);
            self.count -= 1;
        }
        let place = self.gaps().partition_point(|other| *other < gap);
        self.sorted.copy_within(place..usize::from(self.count), place + 1);
        self.sorted[place] = gap;
        self.count += 1;
        self.fresh += 1;
        if self.fresh >= EVERY || wrong {
            self.fresh = 0;
            self.learnt = if self.count < ENOUGH { None } else { best(self.gaps(), fixed) };
        }
    }

    /// The gaps in ascending order.
    fn gaps(&self) -> &[Micros] {
        &self.sorted[..usize::from(self.count)]
    }
}

/// Returns the time behind a linger in which a gap should not end: a switch and a quarter.
fn soon(fixed: Micros) -> Micros {
    fixed.saturating_add(fixed / 4)
}

/// Returns the linger that costs the least over gaps in ascending order; `None` for the fixed one.
fn best(gaps: &[Micros], fixed: Micros) -> Option<Micros> {
    let most = fixed.saturating_mul(MOST);
    let soon = soon(fixed);
    let total = |linger: Micros, within: usize, sum: i64| {
        sum + (i64::from(linger) + i64::from(fixed)) * (gaps.len() - within) as i64
    };
    // The number and the sum of the gaps that a linger covers: the candidates ascend, so each gap is passed once.
    let (mut within, mut sum) = (0, 0);
    let mut least = {
        let within = gaps.partition_point(|gap| *gap <= fixed);
        let sum = gaps[..within].iter().map(|gap| i64::from(*gap)).sum();
        (total(fixed, within, sum), None)
    };
    let candidates = gaps.iter().map(|gap| gap.saturating_add(gap / 8).saturating_add(1));
    for linger in std::iter::once(0).chain(candidates).take_while(|linger| *linger <= most) {
        while let Some(gap) = gaps.get(within).filter(|gap| **gap <= linger) {
            sum += i64::from(*gap);
            within += 1;
        }
        let cost = total(linger, within, sum);
        let wrong = gaps.get(within).is_some_and(|gap| *gap <= linger.saturating_add(soon));
        if !wrong && cost < least.0 {
            least = (cost, Some(linger));
        }
    }
    least.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: Duration = Duration::from_micros(200);

    fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Returns the linger after these gaps, each behind work of the given length.
    fn learnt(gaps: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut record = Gaps::default();
        gaps.into_iter().for_each(|gap| record.record(us(gap), Some(us(1_000)), FIXED));
        record.linger(Some(us(1_000))).map(|linger| linger.as_micros() as u64)
    }

    #[test]
    fn contexts_are_powers_of_two() {
        let context = |micros| context(us(micros));
        assert_eq!([0, 63, 64, 127, 128, 1_000].map(context), [0, 0, 1, 1, 2, 4]);
        assert_eq!([1 << 16, 1 << 40].map(context), [CONTEXTS - 1; 2]);
    }

    #[test]
    fn long_gaps_need_no_linger() {
        assert_eq!(learnt([3_000; 31]), None, "too few");
        assert_eq!(learnt([3_000; 32]), Some(0));
        assert_eq!(learnt([260; 64]), Some(0), "longer than a switch and a quarter");
        assert_eq!(learnt([3_000; 39].into_iter().chain([5_000_000_000_000])), Some(0), "longer than fits");
    }

    #[test]
    fn short_gaps_need_a_linger_that_ends_all_of_them() {
        assert_eq!(learnt([50; 64]), None, "the fixed one ends them as well, for the same");
        // One long gap behind nine short ones: the short ones and some slack.
        let request = |short| [short; 9].into_iter().chain([20_000]);
        assert_eq!(learnt((0..6).flat_map(|_| request(50))), Some(50 + 6 + 1));
        assert_eq!(
            learnt((0..6).flat_map(|_| request(230))),
            Some(230 + 28 + 1),
            "longer than the fixed one"
        );
        assert_eq!(learnt((0..6).flat_map(|_| request(900))), Some(0), "too long to wait for");
    }

    #[test]
    fn linger_does_not_end_shortly_before_gaps_do() {
        // Evenly from 0 to 2 ms: behind any linger up to 1 ms an eighth of the gaps ends soon.
        assert_eq!(learnt((0..64).map(|step| step * 32)), None);
        // A single one counts, at once.
        let long = |count| [9_000].repeat(count).into_iter();
        assert_eq!(learnt(long(64).chain([100])), Some(100 + 12 + 1));
        assert_eq!(learnt(long(64).chain([100]).chain(long(62))), Some(100 + 12 + 1));
        assert_eq!(learnt(long(64).chain([100]).chain(long(72))), Some(0));
    }

    #[test]
    fn gaps_of_another_context_do_not_count() {
        let mut gaps = Gaps::default();
        for _ in 0..64 {
            gaps.record(us(60), Some(us(100)), FIXED);
            gaps.record(us(9_000), Some(us(5_000)), FIXED);
        }
        assert_eq!(gaps.linger(Some(us(4_500))), Some(us(0)));
        assert_eq!(gaps.linger(Some(us(100))), None);
        assert_eq!(gaps.linger(None), Some(us(60 + 7 + 1)), "all together");
        assert_eq!(gaps.linger(Some(us(1))), gaps.linger(None), "nothing is known of such work");
    }

    #[test]
    fn old_gaps_fade() {
        let long = || [9_000].repeat(64).into_iter();
        assert_eq!(learnt(long().chain([100; 8])), Some(100 + 12 + 1));
        assert_eq!(
            learnt(long().chain([100; 64]).chain(long()).chain([9_000; 8])),
            Some(0),
            "after a calculation"
        );
    }

    #[test]
    fn linger_that_did_worse_than_the_fixed_one_is_not_used() {
        // Each gap is the worst for its linger: it ends just after it. No program knows the linger, so this is the
        // worst case: a seventh more than the fixed one.
        let mut gaps = Gaps::default();
        (0..64).for_each(|_| gaps.record(us(9_000), None, FIXED));
        let (mut own, mut fixed) = (0, 0);
        for _ in 0..2_000 {
            let linger = gaps.linger(None).unwrap_or(FIXED);
            let gap = micros(linger) + 1;
            own += cost(micros(linger), gap, 200);
            fixed += cost(200, gap, 200);
            gaps.record(us(gap.into()), None, FIXED);
        }
        assert!(own <= fixed + fixed / 6, "{own} against {fixed}");
    }

    #[test]
    fn record_holds_the_newest_gaps_in_order() {
        let mut record = Record::default();
        for number in 0..1_000u32 {
            record.record(number.wrapping_mul(2_654_435_761) >> 20, 200);
            let mut newest: Vec<_> =
                record.kept[..usize::from(record.count)].iter().map(|kept| kept.gap).collect();
            newest.sort_unstable();
            assert_eq!(record.gaps(), newest);
            let regrets = record.kept.iter().map(|kept| i64::from(kept.regret)).sum::<i64>();
            assert_eq!(record.regret, regrets);
        }
    }
}
