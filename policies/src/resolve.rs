//! Ranks to permissions: the part of a decision that is the same for every policy.
//!
//! # Gangs on several devices
//! An entity runs on all its devices or on none. Entities with work are taken in the order of falling rank.
//! Each runs unless an entity of *strictly* higher rank that has work on one of its devices runs already.
//! Hence
//!
//! 1. A ready entity is suspended only if an entity of strictly higher rank runs and has work on a device
//!    that it uses, or if its policy withholds the device from it.
//! 2. An entity that cannot run, because it is outranked on another device, keeps no entity from running: work
//!    of lower rank may use the device, and gives it back as soon as the waiting entity can run.
//! 3. A device whose ready entities are all suspended is one on which each of them also uses another device
//!    and is outranked there, or one that the policy withholds from all.
//!
//! By induction over falling ranks exactly one decision has these properties. Equal ranks never compete, so
//! no tie has to be broken. The decision is made for all entities at once and never from what is held
//! already. No entity holds one device while it waits for a second one, so no deadlock can arise. A ready entity
//! of the highest rank always runs, unless the device is withheld. Ties are ordered (ready first, then
//! smaller name) only to name one entity as the reason.
//!
//! An entity without work on a device that it uses is outranked there, because its work would disturb as soon
//! as it came. It outranks no entity there, unless it reserves the device.
//!
//! # Jobs
//! Entities of one job are taken together, with all their devices and the highest of their ranks. None of
//! them runs while a device is withheld from one that has work. An idle member runs only if those with work
//! do, so that no part of a job begins alone. If none has work, all of them may begin or none.
//!
//! # Several policies
//! Ranks of different policies do not compare. An entity that uses devices of several policies has on each
//! device the rank that the device's policy gives it. It runs unless it is outranked on any of them by an
//! entity that would run without it; then the others are taken around it. It takes no part in a job, because
//! a job belongs to one policy. So it may run beside an entity of higher rank only if another entity that it
//! has itself displaced held that one up elsewhere.
//!
//! # Idle entities
//! An idle entity is permitted to run if no entity of higher rank runs on its devices, so urgent work launches
//! at once when it arrives. A gang whose queues differ in priority may then launch for one of its low queues
//! until the next decision.
//!
//! # The limit
//! The limit is cleared for an entity if no entity on its devices, itself and idle ones included, could have
//! a rank above the lowest that it could have itself ([`Ranking::range`]), and no other entity is there while
//! the guard against starvation is on. Where a policy gives no range, as those that divide time, it is cleared only for an
//! entity that is alone there, unless the policy may withhold the device from it. It is set for an entity that has no queue yet, because nothing is
//! known of it.
//!
//! # The share
//! A suspended entity gets the share that its rival leaves to others ([`Ranking::share`]), the smallest one if several
//! stand in its way. An entity that waits for any other reason gets none. So does one behind an entity that the guard
//! against starvation lets run: that one has its devices for a moment only, and should have all of them.
//!
//! # Cost
//! One sort of the ready entities, and a few passes over the devices of all.

use crate::jobs::{JobKey, Jobs};
use crate::policy::Ranking;
use crate::reason::STARVED;
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::operation::{EntityId, Permit, Reason, Rival, Share};
use protocol::time::Time;
use std::cmp::Reverse;

/// The rankings by all policies.
pub(crate) struct Ranked<'a> {
    pub entities: &'a SchedEntities,
    /// The ranking of each entity, for each policy.
    pub rankings: &'a [Vec<Ranking>],
    /// For each device the policy that rules it, and the index that it counts as. That is another index where
    /// all devices of a policy count as one.
    pub rules: &'a [(usize, usize)],
    /// For each entity that the guard against starvation lets run, the time that it had waited, in
    /// milliseconds.
    pub starved: &'a [Option<u64>],
    /// True if the guard against starvation is on.
    pub guarded: bool,
}

/// An entity that wants a device, with its sort key: to look that up at each comparison would cost more than
/// all the rest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    policy: usize,
    rank: Reverse<i64>,
    since: Time,
    id: EntityId,
    index: usize,
}

/// The reason why an entity is suspended, and what it keeps.
#[derive(Debug, Clone, Copy)]
struct Hold {
    reason: Reason,
    /// The share on which it goes on.
    share: Share,
    /// The entity that outranks it.
    rival: Option<usize>,
}

impl From<Reason> for Hold {
    /// A hold that leaves no share.
    fn from(reason: Reason) -> Self {
        Self { reason, share: Share::NONE, rival: None }
    }
}

/// The extremes of the highest ranks of the entities of a device.
#[derive(Debug, Clone, Copy)]
struct Extremes {
    /// The highest, and its entity.
    highest: (i64, usize),
    /// The highest of the other entities.
    second: i64,
    lowest: i64,
}

impl Extremes {
    const NONE: Self = Self { highest: (i64::MIN, usize::MAX), second: i64::MIN, lowest: i64::MAX };

    fn add(&mut self, index: usize, rank: i64) {
        if rank > self.highest.0 {
            (self.second, self.highest) = (self.highest.0, (rank, index));
        } else {
            self.second = self.second.max(rank);
        }
        self.lowest = self.lowest.min(rank);
    }

    /// Returns the highest rank of the entities other than this one.
    fn of_others(&self, index: usize) -> i64 {
        if self.highest.1 == index { self.second } else { self.highest.0 }
    }
}

/// Memory of the resolution, kept for the next one.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    /// The rank with which each entity is taken.
    ranks: Vec<i64>,
    /// The entities that want a device, in the order in which they are taken.
    items: Vec<Item>,
    /// Their indices.
    order: Vec<usize>,
    /// True for each entity that is among them.
    taken: Vec<bool>,
    /// For each device the highest rank that runs and has work there, with its entity.
    claims: Vec<Option<(i64, usize)>>,
    /// For each device the highest rank that any entity could have there.
    ceilings: Vec<i64>,
    /// For each device the extremes of the ranks that its entities have at most ([`Ranking::usual_range`]). Empty if no
    /// policy puts hardware queues first.
    extremes: Vec<Extremes>,
    /// For each device the number of entities that use it.
    crowds: Vec<usize>,
    jobs: Jobs,
    /// The members of a job that have work.
    together: Vec<usize>,
    /// For each outranked entity the one that it is suspended for.
    rivals: Vec<Option<usize>>,
}

impl Resolver {
    /// Writes the permission of each entity.
    pub fn resolve(&mut self, ranked: &Ranked<'_>, permits: &mut [Permit]) {
        let all = ranked.entities.all();
        self.rivals.clear();
        self.rivals.resize(all.len(), None);
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
        for (index, entity) in all.iter().enumerate() {
            if self.taken[index] {
                continue;
            }
            let blocked =
                if executes(entity) { self.held(ranked, index) } else { Some(Reason::NoExecute.into()) };
            self.enter(ranked, index, blocked, permits);
        }
        self.hold_idle_members(ranked, permits);
        self.order = order;
    }

    /// Returns for each outranked entity of the last resolution the one that it is suspended for.
    pub fn rivals(&self) -> &[Option<usize>] {
        &self.rivals
    }

    /// Takes the entities that the filter admits, in this order. Each runs unless one that was taken before
    /// blocks it.
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
        self.enter(ranked, index, blocked, permits);
    }

    /// Does the same where some entities use devices of several policies.
    fn resolve_spanning(&mut self, ranked: &Ranked<'_>, order: &[usize], permits: &mut [Permit]) {
        let spans = |index: usize| ranked.spans(index);
        // Find out who would block them if they were not there.
        self.take(ranked, order, |index| !spans(index), permits);
        self.take(ranked, order, spans, permits);
        // An entity that was taken later may outrank an earlier one on another device.
        for &index in order.iter().filter(|&&index| spans(index)) {
            if permits[index].run {
                self.enter(ranked, index, self.blocked(ranked, index), permits);
            }
        }
        self.claims.fill(None);
        // Entities that none blocks get their devices; the others are taken around them.
        for &index in order.iter().filter(|&&index| spans(index) && permits[index].run) {
            self.claim(ranked, index);
        }
        self.take(ranked, order, |index| !spans(index), permits);
        // An entity that blocked another one may be blocked by now.
        for &index in order.iter().filter(|&&index| spans(index)) {
            if !permits[index].run {
                self.take_one(ranked, index, permits);
            }
        }
    }

    /// Takes all members of a job that have work.
    fn take_job(&mut self, ranked: &Ranked<'_>, job: usize, permits: &mut [Permit]) {
        let mut together = std::mem::take(&mut self.together);
        together.clear();
        together.extend(self.jobs.indices(job).filter(|&index| ranked.asks(index)));
        let stopped = together.iter().copied().find(|&index| self.held(ranked, index).is_some());
        let other = stopped.map(|other| Reason::Job { pid: ranked.entities.all()[other].pid }.into());
        for &index in &together {
            self.enter(ranked, index, self.held(ranked, index).or(other), permits);
        }
        if stopped.is_none() {
            together.iter().for_each(|&index| self.claim(ranked, index));
        }
        self.together = together;
    }

    /// Lets idle members of a job wait with the job.
    fn hold_idle_members(&self, ranked: &Ranked<'_>, permits: &mut [Permit]) {
        for job in 0..self.jobs.len() {
            let indices = self.jobs.indices(job);
            let idle = !indices.clone().any(|index| ranked.wants(index));
            let stopped = indices.clone().find(|&index| (idle || ranked.wants(index)) && !permits[index].run);
            let Some(stopped) = stopped else { continue };
            let reason = Reason::Job { pid: ranked.entities.all()[stopped].pid };
            for index in indices {
                if permits[index].run {
                    permits[index] = self.permit(ranked, index, Some(reason.into()));
                }
            }
        }
    }

    /// Notes the rank with which each entity is taken.
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
        let mut queues_first = false;
        self.crowds.clear();
        self.crowds.resize(ranked.rules.len(), 0);
        for (index, entity) in ranked.entities.all().iter().enumerate() {
            for used in ranked.entities.uses(entity) {
                let (ranking, cell) = ranked.on(index, used);
                let ceiling = ranking.range.map_or(i64::MAX, |(_, ceiling)| ceiling);
                self.ceilings[cell] = ceiling.max(self.ceilings[cell]);
                queues_first |= ranking.queues_first;
                self.crowds[cell] += 1;
            }
        }
        self.note_extremes(ranked, queues_first);
    }

    fn note_extremes(&mut self, ranked: &Ranked<'_>, wanted: bool) {
        self.extremes.clear();
        if !wanted {
            return;
        }
        self.extremes.resize(ranked.rules.len(), Extremes::NONE);
        for (index, entity) in ranked.entities.all().iter().enumerate() {
            for used in ranked.entities.uses(entity) {
                let (ranking, cell) = ranked.on(index, used);
                let (_, ceiling) = ranking.usual_range();
                self.extremes[cell].add(index, ceiling);
            }
        }
    }

    /// Returns the rank of an entity on a device, given its ranking there. A member of a job has the rank of
    /// the job.
    fn rank_on(&self, ranked: &Ranked<'_>, index: usize, ranking: &Ranking) -> i64 {
        let own = ranked.rank(index, ranking);
        if self.jobs.of(index).is_some() { own.max(self.ranks[index]) } else { own }
    }

    /// Claims the devices on which the entity has work, or all its devices if it reserves them.
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

    /// Returns what keeps an entity from running: its policy, or what blocks it.
    fn held(&self, ranked: &Ranked<'_>, index: usize) -> Option<Hold> {
        ranked.throttle(index).map(Hold::from).or_else(|| self.blocked(ranked, index))
    }

    /// Returns the highest-ranked entity that blocks this one, of those that have claimed a device so far.
    fn blocked(&self, ranked: &Ranked<'_>, index: usize) -> Option<Hold> {
        let all = ranked.entities.all();
        let mut first: Option<(i64, usize, &DeviceUse)> = None;
        let mut share: Option<Share> = None;
        for used in ranked.entities.uses(&all[index]) {
            let (ranking, cell) = ranked.on(index, used);
            let Some((rank, holder)) = self.claims[cell] else { continue };
            let own = self.rank_on(ranked, index, ranking);
            if rank > own {
                let left = ranked.share(holder, used);
                share = Some(share.map_or(left, |share| share.min(left)));
            }
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
            let reason = Reason::Outranked { by, own: reason(index) };
            Hold { reason, share: share.unwrap_or_default(), rival: Some(holder) }
        })
    }

    /// Enters the permission of an entity, given what keeps it from running.
    fn enter(&mut self, ranked: &Ranked<'_>, index: usize, blocked: Option<Hold>, permits: &mut [Permit]) {
        self.rivals[index] = blocked.and_then(|hold| hold.rival);
        permits[index] = self.permit(ranked, index, blocked);
    }

    fn permit(&self, ranked: &Ranked<'_>, index: usize, blocked: Option<Hold>) -> Permit {
        let entity = &ranked.entities.all()[index];
        let uses = ranked.entities.uses(entity);
        let could_be_outranked = |used: &DeviceUse| {
            let (ranking, cell) = ranked.on(index, used);
            let has_others = self.crowds[cell] > 1;
            let by_rank = match ranking.range {
                Some((floor, _)) => self.ceilings[cell] > floor,
                None => has_others || ranking.may_withhold,
            };
            // An entity that has waited for too long outranks everybody.
            by_rank || ranked.guarded && has_others
        };
        // A member of a job is blocked by whatever blocks another member.
        let with_others = self.jobs.of(index).is_some();
        let limit = uses.is_empty() || with_others || uses.iter().any(could_be_outranked);
        let free = match ranked.starved[index] {
            Some(waited_ms) if entity.ready => Reason::Starved { waited_ms },
            _ => Reason::Unrivalled,
        };
        let windows = uses.iter().map(|used| ranked.on(index, used).0.window);
        let window = windows.min().filter(|_| limit).unwrap_or_default();
        let Hold { reason, share, .. } = blocked.unwrap_or(free.into());
        // Below level 3 nobody goes on within a share.
        let keeps = ranked.entities.all()[index].level == PreemptLevel::Interrupt;
        let share = if keeps { share } else { Share::NONE };
        let first = !self.extremes.is_empty() && self.goes_first(ranked, index);
        Permit { run: blocked.is_none(), limit, window, share, first, reason }
    }

    /// Returns true if the hardware queues of an entity go first: the policies of all its devices want that, nobody there can
    /// outrank it, and on each of them that others use it always outranks one of them.
    fn goes_first(&self, ranked: &Ranked<'_>, index: usize) -> bool {
        let uses = ranked.entities.uses(&ranked.entities.all()[index]);
        let mut rankings = uses.iter().map(|used| ranked.on(index, used));
        let outranks =
            rankings.clone().any(|(ranking, cell)| self.extremes[cell].lowest < ranking.usual_range().0);
        outranks
            && rankings.all(|(ranking, cell)| {
                let (extremes, (floor, _)) = (self.extremes[cell], ranking.usual_range());
                let others = extremes.of_others(index);
                // Equals on another device must not lose theirs.
                ranking.queues_first && (others == i64::MIN || others <= floor && extremes.lowest < floor)
            })
    }
}

impl Ranked<'_> {
    /// Returns the policy with which an entity is taken: the first of those that rule its devices.
    fn policy(&self, index: usize) -> usize {
        if self.rankings.len() == 1 {
            return 0;
        }
        let uses = self.entities.uses(&self.entities.all()[index]);
        uses.iter().map(|used| self.rules[used.device].0).min().unwrap_or(0)
    }

    /// Returns true if several policies rule its devices.
    fn spans(&self, index: usize) -> bool {
        let uses = self.entities.uses(&self.entities.all()[index]);
        self.rankings.len() > 1 && uses.iter().any(|used| self.rules[used.device].0 != self.policy(index))
    }

    /// Returns the job of an entity. An entity that never runs, or that uses devices of several policies, has
    /// none.
    fn job(&self, index: usize) -> Option<JobKey> {
        let entity = &self.entities.all()[index];
        let job = (self.policy(index), entity.owner, self.own(index).job?);
        let belongs = executes(entity) && !self.spans(index);
        belongs.then_some(job)
    }

    /// Returns the ranking of an entity by the policy with which it is taken.
    fn own(&self, index: usize) -> &Ranking {
        &self.rankings[self.policy(index)][index]
    }

    /// Returns the ranking of an entity on one of its devices, and the index that the device counts as.
    fn on(&self, index: usize, used: &DeviceUse) -> (&Ranking, usize) {
        let (policy, cell) = self.rules[used.device];
        (&self.rankings[policy][index], cell)
    }

    /// Returns the rank of an entity, given its ranking.
    fn rank(&self, index: usize, ranking: &Ranking) -> i64 {
        if self.starved[index].is_some() { i64::MAX } else { ranking.rank }
    }

    /// Returns the share that an entity leaves to those that it outranks on a device.
    fn share(&self, index: usize, used: &DeviceUse) -> Share {
        if self.starved[index].is_some() { Share::NONE } else { self.on(index, used).0.share }
    }

    /// Returns the reason why any of its devices is withheld from the entity.
    fn throttle(&self, index: usize) -> Option<Reason> {
        let uses = self.entities.uses(&self.entities.all()[index]);
        uses.iter().find_map(|used| self.on(index, used).0.throttle).map(Reason::Throttled)
    }

    /// Returns true if an entity has work, or keeps devices free for work.
    fn asks(&self, index: usize) -> bool {
        let entity = &self.entities.all()[index];
        let reserves = || self.entities.uses(entity).iter().any(|used| self.on(index, used).0.reserves);
        executes(entity) && (entity.ready || reserves())
    }

    /// Returns true if an entity asks for its devices and none is withheld from it.
    fn wants(&self, index: usize) -> bool {
        self.asks(index) && self.throttle(index).is_none()
    }
}

fn executes(entity: &SchedEntity) -> bool {
    entity.priority != Priority::NO_EXECUTE
}
