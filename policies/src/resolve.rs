//! Ranks to permissions: the part of a decision that is the same for every policy.
//!
//! # Gangs on several devices
//! An entity runs on all its devices or on none. Entities with work are taken in the order of falling rank, and each runs
//! unless an entity of *strictly* higher rank that has work on one of its devices runs already. Hence
//!
//! 1. a ready entity is suspended only if one of strictly higher rank runs and has work on a device that it uses, or its
//!    policy withholds the device from it;
//! 2. an entity that cannot run, because it is outranked elsewhere, keeps nobody from running meanwhile: work of lower
//!    rank may use the device, and gives it back as soon as the waiting entity can run;
//! 3. a device whose ready entities are all suspended is one on which each of them also uses another device, and is
//!    outranked there, or one that the policy withholds from all.
//!
//! By induction over falling ranks exactly one decision has these properties; equal ranks never compete, so no tie has
//! to be broken. It is made at once for all entities and never from what is held already: nobody holds one device while
//! waiting for a second one, so no circle of waiting can arise. A ready entity of the highest rank of all always runs,
//! unless it is withheld. Ties are ordered (ready first, then smaller name) only to name one entity as the reason.
//!
//! An entity with no work on a device that it uses is outranked there (its work would disturb as soon as it came), but
//! outranks nobody there, unless it reserves.
//!
//! # Jobs
//! Entities of one job are taken together, with all their devices and the highest of their ranks; none of them runs while a
//! device is withheld from one that has work. An idle member runs only if those with work do, so that no part of a job
//! begins alone; if none has work, all of them may begin or none.
//!
//! # Several policies
//! Ranks of different policies do not compare. An entity with devices of several has on each the rank that the device's
//! policy gives it, and runs unless it is outranked on any of them by one that would run without it; then the others are
//! taken around it. It takes no part in a job, and a job is one policy's. So it may run beside somebody of higher rank only
//! if that one was held up elsewhere by one that it has itself displaced.
//!
//! # Idle entities
//! One is permitted to run if nobody of higher rank runs on its devices: the urgent one launches at once when work
//! arrives. A gang whose queues differ in priority may so launch for one of its low queues until the next decision.
//!
//! # The limit
//! Cleared for an entity if nobody on its devices, idle or not and itself included, could have a rank above the lowest that
//! it could have itself ([`Ranking::range`]), and nobody else is there where whoever waits gets a turn. Set for an entity
//! that has no queue yet: nothing is known of it.
//!
//! # Cost
//! One sort of the ready entities, and a few passes over the devices of all.

use crate::jobs::Jobs;
use crate::policy::Ranking;
use crate::reason::STARVED;
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use protocol::bounds::Priority;
use protocol::operation::{Permit, Reason, Rival, UnitId};
use protocol::time::Time;
use std::cmp::Reverse;

/// How the policies have ranked the entities.
pub(crate) struct Ranked<'a> {
    pub entities: &'a SchedEntities,
    /// For each policy where each entity stands.
    pub rankings: &'a [Vec<Ranking>],
    /// For each device which policy rules it, and the place that it counts as: another than its own where all devices of
    /// a policy count as one.
    pub rules: &'a [(usize, usize)],
    /// For each entity, for how many milliseconds it had waited when it got its turn for that.
    pub starved: &'a [Option<u64>],
    /// Whether whoever waits gets such a turn.
    pub feeds: bool,
}

/// An entity that wants a device, with what it is sorted by: to look that up at each comparison would cost more than all the rest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    policy: usize,
    rank: Reverse<i64>,
    since: Time,
    id: UnitId,
    index: usize,
}

/// Memory of the resolution, kept for the next.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// For each entity the rank with which it is taken.
    ranks: Vec<i64>,
    /// Entities that want a device, in the order in which they are taken.
    items: Vec<Item>,
    /// Their places.
    order: Vec<usize>,
    /// Whether an entity is among them.
    taken: Vec<bool>,
    /// For each device the highest that runs and has work there, with its rank.
    claims: Vec<Option<(i64, usize)>>,
    /// For each device the highest rank that anybody could have there.
    ceilings: Vec<i64>,
    /// For each device how many entities use it.
    crowds: Vec<usize>,
    jobs: Jobs,
    /// The members of a job that have work.
    together: Vec<usize>,
}

impl Resolver {
    /// Writes the permission of each entity.
    pub fn resolve(&mut self, ranked: &Ranked<'_>, permits: &mut [Permit]) {
        let all = ranked.entities.all();
        self.note_ceilings(ranked);
        self.claims.clear();
        self.claims.resize(ranked.rules.len(), None);
        let members = (0..all.len()).filter_map(|index| Some((ranked.job(index)?, index)));
        self.jobs.note(members, all.len());
        self.note_ranks(ranked);
        self.items.clear();
        let wanting = all.iter().enumerate().filter(|(index, _)| ranked.wants(*index));
        self.items.extend(wanting.map(|(index, entity)| {
            let (policy, rank) = (ranked.policy(index), Reverse(self.ranks[index]));
            Item { policy, rank, since: entity.since, id: entity.id, index }
        }));
        self.items.sort_unstable();
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.items.iter().map(|item| item.index));
        for &index in order.iter().rev() {
            if let Some(job) = self.jobs.of(index) {
                self.jobs.job(job).first = Some(index);
            }
        }
        if ranked.rankings.len() > 1 && order.iter().any(|&index| ranked.spans(index)) {
            self.resolve_spanning(ranked, &order, permits);
        } else {
            self.take(ranked, &order, |_| true, permits);
        }
        self.taken.clear();
        self.taken.resize(all.len(), false);
        order.iter().for_each(|&index| self.taken[index] = true);
        for (index, entity) in all.iter().enumerate().filter(|(index, _)| !self.taken[*index]) {
            let blocked = if executes(entity) {
                ranked.throttle(index).or_else(|| self.blocked(ranked, index))
            } else {
                Some(Reason::NoExecute)
            };
            permits[index] = self.permit(ranked, index, blocked);
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
        for &index in order.iter().filter(|index| takes(**index)) {
            match self.jobs.of(index) {
                None => self.take_one(ranked, index, permits),
                Some(job) if self.jobs.job(job).first == Some(index) => self.take_job(ranked, job, permits),
                Some(_) => {}
            }
        }
    }

    fn take_one(&mut self, ranked: &Ranked<'_>, index: usize, permits: &mut [Permit]) {
        let blocked = self.blocked(ranked, index);
        if blocked.is_none() {
            self.claim(ranked, index);
        }
        permits[index] = self.permit(ranked, index, blocked);
    }

    /// The same where some entities have devices of several policies.
    fn resolve_spanning(&mut self, ranked: &Ranked<'_>, order: &[usize], permits: &mut [Permit]) {
        let spans = |index: usize| ranked.spans(index);
        // Who would block them if they were not there?
        self.take(ranked, order, |index| !spans(index), permits);
        self.take(ranked, order, spans, permits);
        // Who was taken later may stand above an earlier one on another device.
        for &index in order.iter().filter(|&&index| spans(index)) {
            if permits[index].run {
                permits[index] = self.permit(ranked, index, self.blocked(ranked, index));
            }
        }
        self.claims.fill(None);
        // Those that nobody blocks have their devices, and the others are taken as always.
        for &index in order.iter().filter(|&&index| spans(index) && permits[index].run) {
            self.claim(ranked, index);
        }
        self.take(ranked, order, |index| !spans(index), permits);
        // Who blocked somebody may be blocked by now.
        for &index in order.iter().filter(|&&index| spans(index)) {
            if !permits[index].run {
                self.take_one(ranked, index, permits);
            }
        }
    }

    /// Takes all of a job that have work.
    fn take_job(&mut self, ranked: &Ranked<'_>, job: usize, permits: &mut [Permit]) {
        let mut together = std::mem::take(&mut self.together);
        together.clear();
        together.extend(self.jobs.indices(job).filter(|&index| ranked.asks(index)));
        let held = |index: usize| ranked.throttle(index).or_else(|| self.blocked(ranked, index));
        let stopped = together.iter().copied().find(|&index| held(index).is_some());
        let other = stopped.map(|other| Reason::Job { pid: ranked.entities.all()[other].pid });
        for &index in &together {
            permits[index] = self.permit(ranked, index, held(index).or(other));
        }
        if stopped.is_none() {
            together.iter().for_each(|&index| self.claim(ranked, index));
        }
        self.together = together;
    }

    /// Who has no work waits with the job.
    fn hold_idle_members(&self, ranked: &Ranked<'_>, permits: &mut [Permit]) {
        for job in 0..self.jobs.len() {
            let indices = self.jobs.indices(job);
            let idle = !indices.clone().any(|index| ranked.wants(index));
            let stopped = indices.clone().find(|&index| (idle || ranked.wants(index)) && !permits[index].run);
            let Some(stopped) = stopped else { continue };
            let reason = Reason::Job { pid: ranked.entities.all()[stopped].pid };
            for index in indices {
                if permits[index].run {
                    permits[index] = self.permit(ranked, index, Some(reason));
                }
            }
        }
    }

    /// With which rank each entity is taken.
    fn note_ranks(&mut self, ranked: &Ranked<'_>) {
        self.ranks.clear();
        self.ranks
            .extend((0..ranked.entities.all().len()).map(|index| ranked.rank(index, ranked.own(index))));
        for job in 0..self.jobs.len() {
            let wanting = self.jobs.indices(job).filter(|&index| ranked.wants(index));
            let Some(rank) = wanting.clone().map(|index| self.ranks[index]).max() else { continue };
            wanting.for_each(|index| self.ranks[index] = rank);
        }
    }

    fn note_ceilings(&mut self, ranked: &Ranked<'_>) {
        self.ceilings.clear();
        self.ceilings.resize(ranked.rules.len(), i64::MIN);
        self.crowds.clear();
        self.crowds.resize(ranked.rules.len(), 0);
        for (index, entity) in ranked.entities.all().iter().enumerate() {
            for used in ranked.entities.uses(entity) {
                let (ranking, cell) = ranked.on(index, used);
                let ceiling = ranking.range.map_or(i64::MAX, |(_, ceiling)| ceiling);
                self.ceilings[cell] = ceiling.max(self.ceilings[cell]);
                self.crowds[cell] += 1;
            }
        }
    }

    /// The rank of an entity on a device where it stands there. A member of a job has that of the job.
    fn rank_on(&self, ranked: &Ranked<'_>, index: usize, ranking: &Ranking) -> i64 {
        let own = ranked.rank(index, ranking);
        if self.jobs.of(index).is_some() { own.max(self.ranks[index]) } else { own }
    }

    /// Keeps its devices for the entity, where it has work, or all if it reserves.
    fn claim(&mut self, ranked: &Ranked<'_>, index: usize) {
        for used in ranked.entities.uses(&ranked.entities.all()[index]) {
            let (ranking, cell) = ranked.on(index, used);
            if !used.busy && !ranking.reserves {
                continue;
            }
            let rank = self.rank_on(ranked, index, ranking);
            let claim = &mut self.claims[cell];
            if claim.is_none_or(|(highest, _)| highest < rank) {
                *claim = Some((rank, index));
            }
        }
    }

    /// The highest in the entity's way, of those that have claimed a device so far.
    fn blocked(&self, ranked: &Ranked<'_>, index: usize) -> Option<Reason> {
        let all = ranked.entities.all();
        let mut first: Option<(i64, usize, &DeviceUse)> = None;
        for used in ranked.entities.uses(&all[index]) {
            let (ranking, cell) = ranked.on(index, used);
            let Some((rank, holder)) = self.claims[cell] else { continue };
            let own = self.rank_on(ranked, index, ranking);
            if rank > first.map_or(own, |(highest, ..)| highest.max(own)) {
                first = Some((rank, holder, used));
            }
        }
        first.map(|(_, holder, used)| {
            let reason = |index: usize| match ranked.starved[index] {
                Some(waited_ms) => STARVED.number(waited_ms.try_into().unwrap_or(i64::MAX)),
                None => ranked.on(index, used).0.reason,
            };
            let rival = &all[holder];
            let device = ranked.entities.devices()[used.device];
            let queue = ranked.on(holder, used).0.lead.unwrap_or(rival.lead);
            let by = Rival { pid: rival.pid, queue, device, reason: reason(holder) };
            Reason::Outranked { by, own: reason(index) }
        })
    }

    fn permit(&self, ranked: &Ranked<'_>, index: usize, blocked: Option<Reason>) -> Permit {
        let entity = &ranked.entities.all()[index];
        let uses = ranked.entities.uses(entity);
        let could_be_outranked = |used: &DeviceUse| {
            let (ranking, cell) = ranked.on(index, used);
            let by_rank = ranking.range.is_none_or(|(floor, _)| self.ceilings[cell] > floor);
            // Who has waited for too long outranks everybody.
            by_rank || ranked.feeds && self.crowds[cell] > 1
        };
        // A member of a job is held up by whoever holds up another.
        let with_others = self.jobs.of(index).is_some();
        let limit = uses.is_empty() || with_others || uses.iter().any(could_be_outranked);
        let free = match ranked.starved[index] {
            Some(waited_ms) if entity.ready => Reason::Starved { waited_ms },
            _ => Reason::Unrivalled,
        };
        let windows = uses.iter().map(|used| ranked.on(index, used).0.window);
        let window = windows.min().filter(|_| limit).unwrap_or_default();
        Permit { run: blocked.is_none(), limit, window, reason: blocked.unwrap_or(free) }
    }
}

impl Ranked<'_> {
    /// Which policy an entity is taken with: the first of those that rule its devices.
    fn policy(&self, index: usize) -> usize {
        if self.rankings.len() == 1 {
            return 0;
        }
        let uses = self.entities.uses(&self.entities.all()[index]);
        uses.iter().map(|used| self.rules[used.device].0).min().unwrap_or(0)
    }

    /// Whether several policies rule its devices.
    fn spans(&self, index: usize) -> bool {
        let uses = self.entities.uses(&self.entities.all()[index]);
        self.rankings.len() > 1 && uses.iter().any(|used| self.rules[used.device].0 != self.policy(index))
    }

    /// The job of an entity; one that never runs or that has devices of several policies has none.
    fn job(&self, index: usize) -> Option<(usize, u64)> {
        let job = (self.policy(index), self.own(index).job?);
        let belongs = executes(&self.entities.all()[index]) && !self.spans(index);
        belongs.then_some(job)
    }

    /// Where an entity stands with the policy that it is taken with.
    fn own(&self, index: usize) -> &Ranking {
        &self.rankings[self.policy(index)][index]
    }

    /// Where it stands on one of its devices, and the place of that device.
    fn on(&self, index: usize, used: &DeviceUse) -> (&Ranking, usize) {
        let (policy, cell) = self.rules[used.device];
        (&self.rankings[policy][index], cell)
    }

    /// The rank of an entity that stands there.
    fn rank(&self, index: usize, ranking: &Ranking) -> i64 {
        if self.starved[index].is_some() { i64::MAX } else { ranking.rank }
    }

    /// Why any of its devices is withheld from the entity.
    fn throttle(&self, index: usize) -> Option<Reason> {
        let uses = self.entities.uses(&self.entities.all()[index]);
        uses.iter().find_map(|used| self.on(index, used).0.throttle).map(Reason::Throttled)
    }

    /// Whether an entity has work, or keeps devices free for some.
    fn asks(&self, index: usize) -> bool {
        let entity = &self.entities.all()[index];
        let reserves = || self.entities.uses(entity).iter().any(|used| self.on(index, used).0.reserves);
        executes(entity) && (entity.ready || reserves())
    }

    /// And no device is withheld from it.
    fn wants(&self, index: usize) -> bool {
        self.asks(index) && self.throttle(index).is_none()
    }
}

fn executes(entity: &SchedEntity) -> bool {
    entity.priority != Priority::NO_EXECUTE
}
