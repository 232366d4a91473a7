//! The contract of a policy.

use crate::parameter::Values;
use crate::sched_entity::{SchedEntities, SchedEntity};
use protocol::ids::QueueId;
use protocol::operation::{Share, Throttle, Window};
use protocol::rank_reason::RankReason;
use protocol::time::Time;
use std::fmt;
use std::time::Duration;

/// The input of a decision. User hints are attributes of the entities.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// All entities that are connected, including idle ones.
    pub entities: &'a SchedEntities,
    /// The entities that the policy ranks, as indices into [`SchedEntities::all`]: those on its devices.
    pub members: &'a [usize],
    /// The last power reading of each of [`SchedEntities::devices`], in milliwatts, and its time; `None` if
    /// no reader supplies it, or if another policy rules the device.
    pub power: &'a [Option<(u64, Time)>],
    /// The time of the decision; never earlier than in the call before.
    pub now: Time,
}

impl<'a> Input<'a> {
    /// Returns the entities that the policy ranks, with their indices.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (usize, &'a SchedEntity)> + use<'a> {
        let all = self.entities.all();
        self.members.iter().map(move |&index| (index, &all[index]))
    }
}

/// The rank of an entity among those on its devices, and how it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranking {
    /// The rank. Where several entities want a device the highest rank runs, and all that are equal to it;
    /// the others are suspended.
    pub rank: i64,
    /// The reason for the rank, for users.
    pub reason: RankReason,
    /// The queue from which the rank comes; `None` means [`SchedEntity::lead`].
    pub lead: Option<QueueId>,
    /// The lowest and the highest rank that the entity can have until the policy is asked again, whatever its
    /// queues do. With `None` its window limits it where others use its devices, because it could be outranked.
    pub range: Option<(i64, i64)>,
    /// The work that a limited entity may have in flight.
    pub window: Window,
    /// The time for which the entity keeps its devices without work, in case more comes.
    pub linger: Linger,
    /// The part of the compute units that the entity leaves to those that it outranks, at
    /// level 3. With none that work is evicted. It is the largest share where the policy has a bound on the slowdown:
    /// the engine finds the one that keeps it.
    pub share: Share,
    /// True if the hardware queues of the entity get a high priority while no other entity can outrank it.
    pub queues_first: bool,
    /// The reason why the device is withheld from the entity, also while no other wants it. Not to be
    /// combined with a range.
    pub throttle: Option<Throttle>,
    /// True if the policy may withhold the device later, also while no other wants it. Then the window limits the entity
    /// even alone.
    pub may_withhold: bool,
    /// The job of the entity. All entities with work and the same job run together or not at all. Their ranks
    /// should be equal; the highest counts.
    pub job: Option<u64>,
    /// True if the entity keeps its devices free for work that it does not have yet.
    pub reserves: bool,
}

/// How an entity runs that goes before others, by the parameters of the policies by priority.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// See [`Ranking::linger`].
    pub linger: Linger,
    /// See [`Ranking::share`].
    pub share: Share,
    /// See [`Ranking::queues_first`].
    pub queues_first: bool,
}

impl Ranking {
    /// Creates a ranking without anything but a rank.
    pub fn new(rank: i64, reason: RankReason) -> Self {
        let (lead, range, throttle, job) = (None, None, None, None);
        let (window, linger, share) = (Window::OWN, Linger::Fixed, Share::NONE);
        let (reserves, queues_first, may_withhold) = (false, false, false);
        Self {
            rank,
            reason,
            lead,
            range,
            window,
            linger,
            share,
            queues_first,
            throttle,
            may_withhold,
            job,
            reserves,
        }
    }

    /// Returns the lowest and the highest rank that the entity can have. Without a range, both are the present rank.
    pub(crate) fn usual_range(&self) -> (i64, i64) {
        self.range.unwrap_or((self.rank, self.rank))
    }

    /// Adds what the parameters of the policies by priority say.
    pub(crate) fn with_manner(self, manner: Manner) -> Self {
        let Manner { linger, share, queues_first } = manner;
        Self { linger, share, queues_first, ..self }
    }

    /// Adds the window and the linger of an entity with slices, given the shortest slice on its devices.
    ///
    /// Work in flight at the end of a slice is a small part of the slice, yet enough to keep the device busy.
    /// The linger is as long as the window: passing the slice on during a gap between two batches would cost
    /// about a window, which the next entity has in flight when the owner comes back.
    pub fn with_slices(self, shortest: Duration) -> Self {
        let window = Window::at_most(shortest / TURN_PARTS);
        Self { window, linger: window.time().map_or(Linger::Fixed, Linger::AtLeast), ..self }
    }
}

/// The time for which an entity keeps its devices without work. Where its devices have different policies, the
/// variant that stands first here counts; of two `AtLeast`, the shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Linger {
    /// The fixed time of the engine.
    #[default]
    Fixed,
    /// A time that follows from the entity's gaps; the fixed one while too little is known of them.
    Learnt,
    /// This time, but no shorter than the fixed one.
    AtLeast(Duration),
}

/// The part of a slice that may be in flight at its end, and that may pass without work: one of so many.
const TURN_PARTS: u32 = 16;

/// The set of entities that compete with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Entities that use the same device.
    #[default]
    Device,
    /// All entities.
    Devices,
}

/// A scheduling policy: it ranks the entities that want a device.
///
/// [`crate::Engine`] derives the rest from the ranks in the same way for every policy: who runs, gangs on
/// several devices, the reasons, the limit of the windows, the guard against starvation. A policy may keep
/// state between decisions ([`crate::PerEntity`]), but reads no clock and calls nothing outside: the same sequence of
/// inputs gives the same sequence of ranks.
///
/// # How long a decision holds
/// A decision stays in force until the next one, which comes when something has changed and at the wake-up.
/// An entity that turns ready in between has the permission that it got while idle. So an idle entity gets
/// the rank that it would have with work, and urgent work does not wait for a decision.
///
/// # The limit
/// [`Ranking::range`] lets an entity have any amount of work in flight if no queue on its devices could
/// outrank it, ready or not. Policies whose order changes with time never give a range: their entities are limited
/// wherever others use the device. [`Ranking::may_withhold`] limits an entity also alone.
///
/// [`Ranking::window`] is the work that a limited entity has in flight when it is suspended; the next entity
/// may wait for that long. Policies with slices set it by [`Ranking::with_slices`].
///
/// # Example
/// A policy under which the entity that has been ready for longest runs alone:
///
/// ```
/// use policies::reason::WAITS;
/// use policies::{Input, Policy, Ranking};
/// use protocol::time::Time;
///
/// #[derive(Debug)]
/// struct Fifo;
///
/// impl Policy for Fifo {
///     fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
///         for (index, entity) in input.members() {
///             let earlier = input.members().filter(|(_, other)| other.since < entity.since).count() as i64;
///             rankings[index] = Ranking::new(-earlier, WAITS.number(earlier));
///         }
///         None
///     }
/// }
/// ```
pub trait Policy: fmt::Debug + Send {
    /// Takes the parameters of its row, in that order and within their ranges. Called before anything else,
    /// and whenever they change.
    fn configure(&mut self, _: &Values) {}

    /// Writes the ranking of each member of the input to its index in `rankings`, which has one entry for
    /// each entity.
    ///
    /// Returns the time, later than `input.now`, at which to rank again even if nothing happens; `None` if
    /// that is not needed.
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time>;

    /// Returns the set of entities that compete with each other.
    fn scope(&self) -> Scope {
        Scope::Device
    }

    /// Returns how often the policy needs the power of its devices; `None` if it does not need it.
    fn reads_power(&self) -> Option<Duration> {
        None
    }

    /// Returns true if the policy uses nice values. The owner of the engine then keeps them up to date.
    fn reads_nice(&self) -> bool {
        false
    }

    /// Returns true if the policy has to be asked whenever a member turns idle, also if no entity waits for
    /// that. A policy whose row says that it conserves work must return true here, or read power, as long as
    /// its parameters or the hints of its last decision let it withhold a device.
    fn needs_idle_events(&self) -> bool {
        false
    }

    /// Returns the policy's counters since it began, for users: always the same names in the same order.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
