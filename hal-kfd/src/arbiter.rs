//! The setting of one queue: the runtime requests one, we may evict the queue, and the driver has been sent
//! one. Pure: answers of the driver come in, the next request goes out.

use hip_sys::kfd::{CreateQueue, MAX_QUEUE_PERCENTAGE, MAX_QUEUE_PRIORITY, UpdateQueue};

use crate::kernel::Errno;

/// The bits of a percentage with the share of the hardware; the others are passed on.
const SHARE: u32 = 0xff;

/// The setting of a queue in the driver. An update replaces all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Address of the ring.
    pub ring_base_address: u64,
    /// Bytes of the ring.
    pub ring_size: u32,
    /// 0 to 100 in bits 0–7.
    pub percentage: u32,
    /// 0 to 15.
    pub priority: u32,
}

impl Setting {
    /// Returns the setting of an update.
    pub fn of(update: &UpdateQueue) -> Self {
        Self {
            ring_base_address: update.ring_base_address,
            ring_size: update.ring_size,
            percentage: update.queue_percentage,
            priority: update.queue_priority,
        }
    }

    /// Returns the setting of a creation.
    pub fn of_creation(create: &CreateQueue) -> Self {
        Self {
            ring_base_address: create.ring_base_address,
            ring_size: create.ring_size,
            percentage: create.queue_percentage,
            priority: create.queue_priority,
        }
    }

    /// Returns the update of queue `id` with this setting.
    pub fn update(&self, id: u32) -> UpdateQueue {
        UpdateQueue {
            ring_base_address: self.ring_base_address,
            queue_id: id,
            ring_size: self.ring_size,
            queue_percentage: self.percentage,
            queue_priority: self.priority,
        }
    }
}

/// Returns the requested percentage, or 0 in bits 0–7 if the queue is evicted. A value that the driver
/// refuses is passed on, so that the runtime gets the error.
pub fn merge(percentage: u32, evicted: bool) -> u32 {
    let share = percentage & SHARE;
    if evicted && share <= MAX_QUEUE_PERCENTAGE { percentage & !SHARE } else { percentage }
}

/// The place of a queue among the queues of all processes of a device.
///
/// The driver maps a priority to one of three levels of the hardware: low (0 to 6), medium (7 to 10) and high (11 to 15;
/// `pipe_priority_map` in `kfd_mqd_manager.c`). It also writes the priority itself into the queue's descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// The priority that the runtime set.
    #[default]
    Own,
    /// The high level. No queue of the process overtakes another one of it; some become equal.
    First,
    /// Behind the first ones: at most the medium level.
    Behind,
}

impl Precedence {
    /// The lowest priority of the high level.
    const HIGH: u32 = 11;

    /// Returns the priority for the driver, given the one that the runtime set. A value that the driver refuses is passed
    /// on, so that the runtime gets the error.
    pub fn merge(self, priority: u32) -> u32 {
        match self {
            _ if priority > MAX_QUEUE_PRIORITY => priority,
            Self::Own => priority,
            Self::First => Self::HIGH + priority * (MAX_QUEUE_PRIORITY - Self::HIGH) / MAX_QUEUE_PRIORITY,
            Self::Behind => priority.min(Self::HIGH - 1),
        }
    }
}

/// Returns true if the driver refuses a request with this error before it changes anything: it checks values,
/// id and ring first.
pub fn refused(errno: Errno) -> bool {
    matches!(errno.0, libc::EINVAL | libc::EFAULT | libc::EBADF | libc::ENOTTY | libc::EPERM)
}

/// A reason to evict a queue. The queue stays evicted as long as any reason applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evictor {
    /// The scheduler suspends the process.
    Scheduler = 1,
    /// A user suspends this queue.
    User = 2,
    /// A measurement evicts this queue.
    Measurement = 4,
}

/// The requested setting, the reasons to evict, and the knowledge of the driver, for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arbiter {
    requested: Setting,
    /// Bits of [`Evictor`].
    evictors: u8,
    /// The wanted place among the queues of other processes.
    precedence: Precedence,
    /// The setting in the driver. `None` if the last request failed: the driver keeps the values, but the state
    /// of the hardware is unknown.
    known: Option<Setting>,
    /// True if the driver has not confirmed a change that we want. Other failed requests are repeated by the
    /// runtime.
    pending: bool,
}

impl Arbiter {
    /// Makes the arbiter of a queue that the runtime creates with this setting, and that is created evicted
    /// by [`Evictor::Scheduler`] if `evicted` is true.
    pub fn new(requested: Setting, evicted: bool, precedence: Precedence) -> Self {
        let evictors = if evicted { Evictor::Scheduler as u8 } else { 0 };
        let mut arbiter = Self { requested, evictors, precedence, known: None, pending: false };
        arbiter.known = Some(arbiter.target());
        arbiter
    }

    /// Returns the setting that the runtime requested.
    pub fn wish(&self) -> Setting {
        self.requested
    }

    /// Returns true if we want the queue evicted.
    pub fn held(&self) -> bool {
        self.evictors != 0
    }

    /// Returns true if this reason to evict applies.
    pub fn is_evicted_by(&self, evictor: Evictor) -> bool {
        self.evictors & evictor as u8 != 0
    }

    /// Returns true if the driver is known to have the target setting.
    pub fn settled(&self) -> bool {
        self.known == Some(self.target())
    }

    /// Returns true if a change that we want has not reached the driver.
    pub fn has_pending(&self) -> bool {
        self.pending && !self.settled()
    }

    /// Returns true if the queue is known to be off the hardware.
    pub fn is_off(&self) -> bool {
        self.known.is_some_and(|setting| setting.percentage & SHARE == 0)
    }

    /// Adds or removes a reason to evict.
    pub fn set_evicted(&mut self, evictor: Evictor, evicted: bool) {
        let bit = evictor as u8;
        self.set_evictors(if evicted { self.evictors | bit } else { self.evictors & !bit });
    }

    /// Returns the wanted place among the queues of other processes.
    pub fn precedence(&self) -> Precedence {
        self.precedence
    }

    /// Sets the wanted place among the queues of other processes.
    pub fn set_precedence(&mut self, precedence: Precedence) {
        let before = self.target();
        self.precedence = precedence;
        self.pending |= self.target() != before;
    }

    /// Removes all reasons to evict.
    pub fn restore(&mut self) {
        self.set_evictors(0);
    }

    fn set_evictors(&mut self, evictors: u8) {
        self.pending |= (evictors != 0) != self.held();
        self.evictors = evictors;
    }

    /// Returns the setting that the driver must have.
    fn target(&self) -> Setting {
        self.merged(self.requested)
    }

    /// Returns the setting to be sent, if the driver is not known to have it.
    pub fn next(&self) -> Option<Setting> {
        (!self.settled()).then(|| self.target())
    }

    /// Returns the setting to be sent for a request of the runtime.
    pub fn merged(&self, requested: Setting) -> Setting {
        let percentage = merge(requested.percentage, self.held());
        Setting { percentage, priority: self.precedence.merge(requested.priority), ..requested }
    }

    /// Records the answer to an update of the runtime, which was sent merged.
    pub fn runtime_answered(&mut self, requested: Setting, result: Result<(), Errno>) {
        match result {
            Err(errno) if refused(errno) => {}
            _ => {
                let sent = self.merged(requested);
                self.requested = requested;
                self.answered(sent, result);
                self.pending |= result.is_err() && self.differs();
            }
        }
    }

    /// Records the answer to a request that [`Arbiter::next`] returned.
    pub fn answered(&mut self, sent: Setting, result: Result<(), Errno>) {
        self.known = result.ok().map(|()| sent);
        self.pending &= result.is_err();
    }

    /// Records the failure of another request that evicts and restores the queue as an update does
    /// (SET_CU_MASK).
    pub fn invalidate(&mut self) {
        self.known = None;
        self.pending |= self.differs();
    }

    /// Returns true if we want another setting than the runtime.
    fn differs(&self) -> bool {
        self.held() || self.precedence != Precedence::Own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn merge_clears_the_low_byte_only() {
        assert_eq!(merge(100, true), 0);
        assert_eq!(merge(0x0364, true), 0x0300);
        assert_eq!(merge(0x0364, false), 0x0364);
        assert_eq!(merge(0, false), 0);
        assert_eq!(merge(101, true), 101, "the driver refuses it");
    }

    #[test]
    fn precedence_keeps_the_order_within_a_process_and_sets_processes_apart() {
        let of = |precedence: Precedence| [0, 7, 11, 15, 16].map(|priority| precedence.merge(priority));
        assert_eq!(of(Precedence::Own), [0, 7, 11, 15, 16]);
        assert_eq!(of(Precedence::First), [11, 12, 13, 15, 16], "the driver refuses 16");
        assert_eq!(of(Precedence::Behind), [0, 7, 10, 10, 16]);
    }

    /// A driver that keeps the values of a failed update, and then may or may not act on them.
    #[derive(Debug, Clone, Copy)]
    struct Driver {
        kept: Setting,
        on: bool,
    }

    impl Driver {
        fn update(&mut self, to: Setting, fails: Option<bool>) -> Result<(), Errno> {
            if to.percentage & 0xff > 100 || to.priority > 15 {
                return Err(Errno(libc::EINVAL));
            }
            self.kept = to;
            if fails != Some(false) {
                self.on = to.percentage & 0xff > 0;
            }
            if fails.is_some() { Err(Errno(libc::EIO)) } else { Ok(()) }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Evict(Evictor, bool),
        Place(Precedence),
        Runtime { percentage: u32, priority: u32 },
        Mask,
        Send,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<bool>(), any::<bool>()).prop_map(|(user, on)| Step::Evict(
                if user { Evictor::User } else { Evictor::Scheduler },
                on
            )),
            (0u32..0x400, 0u32..18).prop_map(|(percentage, priority)| Step::Runtime { percentage, priority }),
            prop_oneof![Just(Precedence::Own), Just(Precedence::First), Just(Precedence::Behind)]
                .prop_map(Step::Place),
            Just(Step::Mask),
            Just(Step::Send),
        ]
    }

    proptest! {
        /// Under any sequence of requests and failures, the arbiter never claims a wrong state, and once
        /// requests succeed the driver has exactly the merged setting.
        #[test]
        fn arbiter_is_never_wrong_and_settles(
            born in any::<bool>(),
            first in any::<bool>(),
            steps in proptest::collection::vec((step(), proptest::option::weighted(0.4, any::<bool>())), 0..60),
        ) {
            let wish = Setting { ring_base_address: 0x1000, ring_size: 4096, percentage: 100, priority: 7 };
            let mut place = if first { Precedence::First } else { Precedence::Own };
            let mut arbiter = Arbiter::new(wish, born, place);
            let kept = arbiter.merged(wish);
            let mut driver = Driver { kept, on: kept.percentage & 0xff > 0 };
            let (mut want, mut by) = (wish, [born, false]);
            for (step, fails) in steps {
                match step {
                    Step::Evict(evictor, on) => {
                        by[usize::from(evictor == Evictor::User)] = on;
                        arbiter.set_evicted(evictor, on);
                    }
                    Step::Place(new) => {
                        place = new;
                        arbiter.set_precedence(new);
                    }
                    Step::Runtime { percentage, priority } => {
                        let new = Setting { percentage, priority, ..want };
                        let result = driver.update(arbiter.merged(new), fails);
                        if percentage & 0xff <= 100 && priority <= 15 {
                            want = new;
                        } else {
                            prop_assert_eq!(result, Err(Errno(libc::EINVAL)));
                        }
                        arbiter.runtime_answered(new, result);
                    }
                    Step::Mask if fails.is_some() => arbiter.invalidate(),
                    Step::Mask => {}
                    Step::Send => if let Some(next) = arbiter.next() {
                        arbiter.answered(next, driver.update(next, fails));
                    },
                }
                prop_assert_eq!(arbiter.wish(), want);
                let held = by[0] || by[1];
                prop_assert_eq!(arbiter.held(), held);
                if arbiter.settled() {
                    let (percentage, priority) = (merge(want.percentage, held), place.merge(want.priority));
                    prop_assert_eq!(driver.kept, Setting { percentage, priority, ..want });
                    prop_assert_eq!(driver.on, driver.kept.percentage & 0xff > 0);
                }
                if arbiter.is_off() {
                    prop_assert!(!driver.on);
                }
            }
            if let Some(next) = arbiter.next() {
                arbiter.answered(next, driver.update(next, None));
            }
            prop_assert!(arbiter.settled());
            prop_assert_eq!(arbiter.next(), None);
            prop_assert_eq!(driver.on, !(by[0] || by[1]) && want.percentage & 0xff > 0);
        }
    }
}
