//! Ranks to permissions: the part of a decision that is the same for every policy.
//!
//! # Gangs on several devices
//! A unit runs on all its devices or on none. Units with work are taken in the order of falling rank, and each runs
//! unless a unit of *strictly* higher rank that has work on one of its devices runs already. Hence
//!
//! 1. a ready unit is suspended only if one of strictly higher rank runs and has work on a device that it uses, or its
//!    policy withholds the device from it;
//! 2. a unit that cannot run, because it is outranked elsewhere, keeps nobody from running meanwhile: work of lower
//!    rank may use the device, and gives it back as soon as the waiting unit can run;
//! 3. a device whose ready units are all suspended is one on which each of them also uses another device, and is
//!    outranked there, or one that the policy withholds from all.
//!
//! By induction over falling ranks exactly one decision has these properties; equal ranks never compete, so no tie has
//! to be broken. It is made at once for all units and never from what is held already: nobody holds one device while
//! waiting for a second one, so no circle of waiting can arise. A ready unit of the highest rank of all always runs,
//! unless it is withheld. Ties are ordered (ready first, then smaller name) only to name one unit as the reason.
//!
//! A unit with no work on a device that it uses is outranked there (its work would disturb as soon as it came), but
//! outranks nobody there, unless it reserves.
//!
//! # Jobs
//! Units of one job are taken together, with all their devices and the highest of their ranks; none of them runs while a
//! device is withheld from one that has work. An idle member runs only if those with work do, so that no part of a job
//! begins alone; if none has work, all of them may begin or none.
//!
//! # Several policies
//! Ranks of different policies do not compare. A unit with devices of several has on each the rank that the device's
//! policy gives it, and runs unless it is outranked on any of them by one that would run without it; then the others are
//! taken around it. It takes no part in a job, and a job is one policy's. So it may run beside somebody of higher rank only
//! if that one was held up elsewhere by one that it has itself displaced.
//!
//! # Idle units
//! One is permitted to run if nobody of higher rank runs on its devices: the urgent one launches at once when work
//! arrives. A gang whose queues differ in priority may so launch for one of its low queues until the next decision.
//!
//! # The limit
//! Cleared for a unit if nobody on its devices, idle or not and itself included, could have a rank above the lowest that
//! it could have itself ([`Standing::range`]), and nobody else is there where whoever waits gets a turn. Set for a unit
//! that has no queue yet: nothing is known of it.
//!
//! # Cost
//! One sort of the ready units, and a few passes over the devices of all.

use crate::jobs::Jobs;
use crate::policy::Standing;
use crate::unit::{DeviceUse, Unit, Units};
use protocol::bounds::Priority;
use protocol::operation::{Merit, Permit, Reason, Rival, UnitId};
use protocol::time::Time;
use std::cmp::Reverse;

/// How the policies have ranked the units.
pub(crate) struct Ranked<'a> {
    pub units: &'a Units,
    /// For each policy where each unit stands.
    pub standings: &'a [Vec<Standing>],
    /// For each device which policy rules it, and the place that it counts as: another than its own where all devices of
    /// a policy count as one.
    pub rules: &'a [(usize, usize)],
    /// For each unit, for how many milliseconds it had waited when it got its turn for that.
    pub starved: &'a [Option<u64>],
    /// Whether whoever waits gets such a turn.
    pub feeds: bool,
}

/// A unit that wants a device, with what it is sorted by: to look that up at each comparison would cost more than all the rest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    policy: usize,
    rank: Reverse<i64>,
    since: Time,
    id: UnitId,
    place: usize,
}

/// Memory of the resolution, kept for the next.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// For each unit the rank with which it is taken.
    ranks: Vec<i64>,
    /// Units that want a device, in the order in which they are taken.
    items: Vec<Item>,
    /// Their places.
    order: Vec<usize>,
    /// Whether a unit is among them.
    taken: Vec<bool>,
    /// For each device the highest that runs and has work there, with its rank.
    claims: Vec<Option<(i64, usize)>>,
    /// For each device the highest rank that anybody could have there.
    ceilings: Vec<i64>,
    /// For each device how many units use it.
    crowds: Vec<usize>,
    jobs: Jobs,
    /// The members of a job that have work.
    together: Vec<usize>,
}

impl Resolver {
    /// Writes the permission of each unit.
    pub fn resolve(&mut self, ranked: &Ranked<'_>, permits: &mut [Permit]) {
        let all = ranked.units.all();
        self.note_ceilings(ranked);
        self.claims.clear();
        self.claims.resize(ranked.rules.len(), None);
        let members = (0..all.len()).filter_map(|place| Some((ranked.job(place)?, place)));
        self.jobs.note(members, all.len());
        self.note_ranks(ranked);
        self.items.clear();
        let wanting = all.iter().enumerate().filter(|(place, _)| ranked.wants(*place));
        self.items.extend(wanting.map(|(place, unit)| {
            let (policy, rank) = (ranked.policy(place), Reverse(self.ranks[place]));
            Item { policy, rank, since: unit.since, id: unit.id, place }
        }));
        self.items.sort_unstable();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.items.iter().map(|item| item.place));
        for &place in order.iter().rev() {
            if let Some(job) = self.jobs.of(place) {
                self.jobs.job(job).first = Some(place);
            }
        }
        if ranked.standings.len() > 1 && order.iter().any(|&place| ranked.spans(place)) {
            self.resolve_spanning(ranked, &order, permits);
        } else {
            self.take(ranked, &order, |_| true, permits);
        }
        self.taken.clear();
        self.taken.resize(all.len(), false);
        order.iter().for_each(|&place| self.taken[place] = true);
        for (place, unit) in all.iter().enumerate().filter(|(place, _)| !self.taken[*place]) {
            let blocked = if executes(unit) {
                ranked.bar(place).or_else(|| self.blocked(ranked, place))
            } else {
                Some(Reason::NoExecute)
            };
            permits[place] = self.permit(ranked, place, blocked);
        }
        self.hold_idle_members(ranked, permits);
        self.order = order;
    }

    /// Takes those in this order of whom this is true: each runs that nobody blocks who was taken before.
    fn take(
        &mut self,
        ranked: &Ranked<'_>,
        order: &[usize],
        takes: impl Fn(usize) -> bool,
        permits: &mut [Permit],
    ) {
        for &place in order.iter().filter(|place| takes(**place)) {
            match self.jobs.of(place) {
                None => self.take_one(ranked, place, permits),
                Some(job) if self.jobs.job(job).first == Some(place) => self.take_job(ranked, job, permits),
                Some(_) => {}
            }
        }
    }

    fn take_one(&mut self, ranked: &Ranked<'_>, place: usize, permits: &mut [Permit]) {
        let blocked = self.blocked(ranked, place);
        if blocked.is_none() {
            self.claim(ranked, place);
        }
        permits[place] = self.permit(ranked, place, blocked);
    }

    /// The same where some units have devices of several policies.
    fn resolve_spanning(&mut self, ranked: &Ranked<'_>, order: &[usize], permits: &mut [Permit]) {
        let spans = |place: usize| ranked.spans(place);
        // Who would block them if they were not there?
        self.take(ranked, order, |place| !spans(place), permits);
        self.take(ranked, order, spans, permits);
        // Who was taken later may stand above an earlier one on another device.
        for &place in order.iter().filter(|&&place| spans(place)) {
            if permits[place].run {
                permits[place] = self.permit(ranked, place, self.blocked(ranked, place));
            }
        }
        self.claims.fill(None);
        // Those that nobody blocks have their devices, and the others are taken as always.
        for &place in order.iter().filter(|&&place| spans(place) && permits[place].run) {
            self.claim(ranked, place);
        }
        self.take(ranked, order, |place| !spans(place), permits);
        // Who blocked somebody may be blocked by now.
        for &place in order.iter().filter(|&&place| spans(place)) {
            if !permits[place].run {
                self.take_one(ranked, place, permits);
            }
        }
    }

    /// Takes all of a job that have work.
    fn take_job(&mut self, ranked: &Ranked<'_>, job: usize, permits: &mut [Permit]) {
        let mut together = std::mem::take(&mut self.together);
        together.clear();
        together.extend(self.jobs.places(job).filter(|&place| ranked.asks(place)));
        let held = |place: usize| ranked.bar(place).or_else(|| self.blocked(ranked, place));
        let stopped = together.iter().copied().find(|&place| held(place).is_some());
        let other = stopped.map(|other| Reason::Job { pid: ranked.units.all()[other].pid });
        for &place in &together {
            permits[place] = self.permit(ranked, place, held(place).or(other));
        }
        if stopped.is_none() {
            together.iter().for_each(|&place| self.claim(ranked, place));
        }
        self.together = together;
    }

    /// Who has no work waits with the job.
    fn hold_idle_members(&self, ranked: &Ranked<'_>, permits: &mut [Permit]) {
        for job in 0..self.jobs.len() {
            let places = self.jobs.places(job);
            let idle = !places.clone().any(|place| ranked.wants(place));
            let stopped = places.clone().find(|&place| (idle || ranked.wants(place)) && !permits[place].run);
            let Some(stopped) = stopped else { continue };
            let reason = Reason::Job { pid: ranked.units.all()[stopped].pid };
            for place in places {
                if permits[place].run {
                    permits[place] = self.permit(ranked, place, Some(reason));
                }
            }
        }
    }

    /// With which rank each unit is taken.
    fn note_ranks(&mut self, ranked: &Ranked<'_>) {
        self.ranks.clear();
        self.ranks.extend((0..ranked.units.all().len()).map(|place| ranked.rank(place, ranked.own(place))));
        for job in 0..self.jobs.len() {
            let wanting = self.jobs.places(job).filter(|&place| ranked.wants(place));
            let Some(rank) = wanting.clone().map(|place| self.ranks[place]).max() else { continue };
            wanting.for_each(|place| self.ranks[place] = rank);
        }
    }

    fn note_ceilings(&mut self, ranked: &Ranked<'_>) {
        self.ceilings.clear();
        self.ceilings.resize(ranked.rules.len(), i64::MIN);
        self.crowds.clear();
        self.crowds.resize(ranked.rules.len(), 0);
        for (place, unit) in ranked.units.all().iter().enumerate() {
            for used in ranked.units.uses(unit) {
                let (standing, cell) = ranked.on(place, used);
                let ceiling = standing.range.map_or(i64::MAX, |(_, ceiling)| ceiling);
                self.ceilings[cell] = ceiling.max(self.ceilings[cell]);
                self.crowds[cell] += 1;
            }
        }
    }

    /// The rank of a unit on a device where it stands there. A member of a job has that of the job.
    fn rank_on(&self, ranked: &Ranked<'_>, place: usize, standing: &Standing) -> i64 {
        let own = ranked.rank(place, standing);
        if self.jobs.of(place).is_some() { own.max(self.ranks[place]) } else { own }
    }

    /// Keeps its devices for the unit, where it has work, or all if it reserves.
    fn claim(&mut self, ranked: &Ranked<'_>, place: usize) {
        for used in ranked.units.uses(&ranked.units.all()[place]) {
            let (standing, cell) = ranked.on(place, used);
            if !used.busy && !standing.reserves {
                continue;
            }
            let rank = self.rank_on(ranked, place, standing);
            let claim = &mut self.claims[cell];
            if claim.is_none_or(|(highest, _)| highest < rank) {
                *claim = Some((rank, place));
            }
        }
    }

    /// The highest in the unit's way, of those that have claimed a device so far.
    fn blocked(&self, ranked: &Ranked<'_>, place: usize) -> Option<Reason> {
        let all = ranked.units.all();
        let mut first: Option<(i64, usize, &DeviceUse)> = None;
        for used in ranked.units.uses(&all[place]) {
            let (standing, cell) = ranked.on(place, used);
            let Some((rank, holder)) = self.claims[cell] else { continue };
            let own = self.rank_on(ranked, place, standing);
            if rank > first.map_or(own, |(highest, ..)| highest.max(own)) {
                first = Some((rank, holder, used));
            }
        }
        first.map(|(_, holder, used)| {
            let merit = |place: usize| match ranked.starved[place] {
                Some(waited_ms) => Merit::Starved(waited_ms.try_into().unwrap_or(i64::MAX)),
                None => ranked.on(place, used).0.merit,
            };
            let rival = &all[holder];
            let device = ranked.units.devices()[used.device];
            let queue = ranked.on(holder, used).0.lead.unwrap_or(rival.lead);
            let by = Rival { pid: rival.pid, queue, device, merit: merit(holder) };
            Reason::Outranked { by, own: merit(place) }
        })
    }

    fn permit(&self, ranked: &Ranked<'_>, place: usize, blocked: Option<Reason>) -> Permit {
        let unit = &ranked.units.all()[place];
        let uses = ranked.units.uses(unit);
        let could_be_outranked = |used: &DeviceUse| {
            let (standing, cell) = ranked.on(place, used);
            let by_rank = standing.range.is_none_or(|(floor, _)| self.ceilings[cell] > floor);
            // Who has waited for too long outranks everybody.
            by_rank || ranked.feeds && self.crowds[cell] > 1
        };
        // A member of a job is held up by whoever holds up another.
        let with_others = self.jobs.of(place).is_some();
        let limit = uses.is_empty() || with_others || uses.iter().any(could_be_outranked);
        let free = match ranked.starved[place] {
            Some(waited_ms) if unit.ready => Reason::Starved { waited_ms },
            _ => Reason::Unrivalled,
        };
        let windows = uses.iter().map(|used| ranked.on(place, used).0.window);
        let window = windows.min().filter(|_| limit).unwrap_or_default();
        Permit { run: blocked.is_none(), limit, window, reason: blocked.unwrap_or(free) }
    }
}

impl Ranked<'_> {
    /// Which policy a unit is taken with: the first of those that rule its devices.
    fn policy(&self, place: usize) -> usize {
        if self.standings.len() == 1 {
            return 0;
        }
        let uses = self.units.uses(&self.units.all()[place]);
        uses.iter().map(|used| self.rules[used.device].0).min().unwrap_or(0)
    }

    /// Whether several policies rule its devices.
    fn spans(&self, place: usize) -> bool {
        let uses = self.units.uses(&self.units.all()[place]);
        self.standings.len() > 1 && uses.iter().any(|used| self.rules[used.device].0 != self.policy(place))
    }

    /// The job of a unit; one that never runs or that has devices of several policies has none.
    fn job(&self, place: usize) -> Option<(usize, u64)> {
        let job = (self.policy(place), self.own(place).job?);
        let belongs = executes(&self.units.all()[place]) && !self.spans(place);
        belongs.then_some(job)
    }

    /// Where a unit stands with the policy that it is taken with.
    fn own(&self, place: usize) -> &Standing {
        &self.standings[self.policy(place)][place]
    }

    /// Where it stands on one of its devices, and the place of that device.
    fn on(&self, place: usize, used: &DeviceUse) -> (&Standing, usize) {
        let (policy, cell) = self.rules[used.device];
        (&self.standings[policy][place], cell)
    }

    /// The rank of a unit that stands there.
    fn rank(&self, place: usize, standing: &Standing) -> i64 {
        if self.starved[place].is_some() { i64::MAX } else { standing.rank }
    }

    /// Why any of its devices is withheld from the unit.
    fn bar(&self, place: usize) -> Option<Reason> {
        let uses = self.units.uses(&self.units.all()[place]);
        uses.iter().find_map(|used| self.on(place, used).0.bar).map(Reason::Barred)
    }

    /// Whether a unit has work, or keeps devices free for some.
    fn asks(&self, place: usize) -> bool {
        let unit = &self.units.all()[place];
        let reserves = || self.units.uses(unit).iter().any(|used| self.on(place, used).0.reserves);
        executes(unit) && (unit.ready || reserves())
    }

    /// And no device is withheld from it.
    fn wants(&self, place: usize) -> bool {
        self.asks(place) && self.bar(place).is_none()
    }
}

fn executes(unit: &Unit) -> bool {
    unit.priority != Priority::NO_EXECUTE
}
