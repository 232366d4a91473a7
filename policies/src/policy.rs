//! The contract of a policy.

use crate::parameter::Values;
use crate::sched_entity::{SchedEntities, SchedEntity};
use protocol::ids::QueueId;
use protocol::operation::{Throttle, Window};
use protocol::rank_reason::RankReason;
use protocol::time::Time;
use std::fmt;
use std::time::Duration;

/// What a decision is made from. What users hint stands in the entities, as attributes that go with them.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Everyone who is connected, idle ones included.
    pub entities: &'a SchedEntities,
    /// Which of them the policy ranks, by their places in [`Entities::all`]: those on its devices.
    pub members: &'a [usize],
    /// What each of [`Entities::devices`] drew when that was last read, in milliwatts, and when that was; nothing if nobody
    /// reads it, or if another policy rules the device.
    pub power: &'a [Option<(u64, Time)>],
    /// The time of the decision; never earlier than in the call before.
    pub now: Time,
}

impl<'a> Input<'a> {
    /// The entities that the policy ranks, with their places.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (usize, &'a SchedEntity)> + use<'a> {
        let all = self.entities.all();
        self.members.iter().map(move |&index| (index, &all[index]))
    }
}

/// Where an entity stands among the others of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranking {
    /// On a device that several want, the highest runs, and all that are equal to it; the rest are suspended.
    pub rank: i64,
    /// What the rank comes from, for people.
    pub reason: RankReason,
    /// The queue that it comes from; with nothing it is [`Entity::lead`].
    pub lead: Option<QueueId>,
    /// The lowest and the highest rank that it can have before the policy is asked again, whatever its queues do. With
    /// nothing its window limits it: it could be outranked.
    pub range: Option<(i64, i64)>,
    /// What its window admits if it is limited.
    pub window: Window,
    /// For how long it keeps its place, with no work, in the hope of more, if that is longer than for anybody.
    pub linger: Duration,
    /// The device is withheld from it, whoever else wants it. Not together with a range.
    pub throttle: Option<Throttle>,
    /// It is to run together with all others that have work and the same number, or not at all. Their ranks should be
    /// equal; the highest counts.
    pub job: Option<u64>,
    /// It keeps its devices free for work that it does not have yet.
    pub reserves: bool,
}

impl Ranking {
    /// One that only ranks.
    pub fn new(rank: i64, reason: RankReason) -> Self {
        let (lead, range, throttle, job) = (None, None, None, None);
        let (window, linger) = (Window::OWN, Duration::ZERO);
        Self { rank, reason, lead, range, window, linger, throttle, job, reserves: false }
    }

    /// With the window and the linger of one who is given turns, of which the shortest on its devices is so long.
    ///
    /// What is in flight at the end of a turn is so small a part of it that it runs on for no time that matters, and as much as
    /// keeps the device busy. The linger is as long: to pass the turn on over a gap between two batches costs about a window, which
    /// the next one has in flight when the owner comes back.
    pub fn in_turn(self, shortest: Duration) -> Self {
        let window = Window::at_most(shortest / TURN_PARTS);
        Self { window, linger: window.time().unwrap_or_default(), ..self }
    }
}

/// What part of a turn is in flight at its end, and may pass without work: one of so many.
const TURN_PARTS: u32 = 16;

/// Between which entities there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Those that use the same device.
    #[default]
    Device,
    /// All.
    Devices,
}

/// Ranks those who want a device.
///
/// What follows from the ranks is the same for every policy ([`crate::Engine`]): who runs, gangs on several devices, the
/// reasons, the limit of the windows, the guard against starvation. A policy keeps what it likes between decisions
/// ([`crate::PerEntity`]), but reads no clock and asks nobody: the same sequence of inputs gives the same sequence of ranks.
///
/// # What a decision holds for
/// It stays in force until the next one, which comes when something has changed and at the wake-up. An entity that turns
/// ready meanwhile has the permission that it got while idle, so an idle entity has the rank that it would have with
/// work: the urgent one does not wait for a decision.
///
/// # The limit
/// [`Ranking::range`] lets an entity have any amount of work in flight if no queue on its devices, of whatever entity and
/// ready or not, could outrank it. Policies whose order changes with time never say one.
///
/// [`Ranking::window`] says how much an entity with a limit has in flight when it is suspended: whoever runs next may wait for
/// so long. Policies that give turns say it by [`Ranking::in_turn`].
pub trait Policy: fmt::Debug + Send {
    /// Takes its parameters: those of its row, in that order, within their ranges. Comes before anything else, and
    /// whenever they change.
    fn configure(&mut self, _: &Values) {}

    /// Writes where each member of the input stands to its place in `rankings`, which has one for each entity.
    ///
    /// Returns when to rank anew even if nothing happens, later than `input.now`; nothing if that need not be.
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time>;

    /// Who competes with whom.
    fn scope(&self) -> Scope {
        Scope::Device
    }

    /// How often it wants to know what its devices draw; nothing if it does not.
    fn reads_power(&self) -> Option<Duration> {
        None
    }

    /// Whether it goes by nice values, which whoever feeds it then keeps up to date.
    fn reads_nice(&self) -> bool {
        false
    }

    /// Whether it has to be asked whenever a member turns idle, also if nobody waits for that. If its row says that it
    /// conserves work, this is true, or it reads power, as long as its parameters, or what was hinted by the last time that it
    /// was asked to rank, let it withhold a device.
    fn hears_idle(&self) -> bool {
        false
    }

    /// What it has counted since it began, for people: a short name and a number each, always the same names in the
    /// same order.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
