//! One queue between the runtime, which has wishes, us, who may hold it, and the driver, which was told something. Pure:
//! answers come in, the next request goes out.

use hip_sys::kfd::{CreateQueue, MAX_QUEUE_PERCENTAGE, UpdateQueue};

use crate::kernel::Errno;

/// The bits of a percentage that say how much of the hardware a queue gets; the others are passed on.
const SHARE: u32 = 0xff;

/// What the driver keeps of a queue. An update rewrites all of it.
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
    /// What an update says.
    pub fn of(update: &UpdateQueue) -> Self {
        Self {
            ring_base_address: update.ring_base_address,
            ring_size: update.ring_size,
            percentage: update.queue_percentage,
            priority: update.queue_priority,
        }
    }

    /// What a creation says.
    pub fn of_creation(create: &CreateQueue) -> Self {
        Self {
            ring_base_address: create.ring_base_address,
            ring_size: create.ring_size,
            percentage: create.queue_percentage,
            priority: create.queue_priority,
        }
    }

    /// The update of queue `id` that says this.
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

/// The smaller of what the runtime wants and of what we let it have, in bits 0–7. A value that the driver refuses is left to
/// it, or a mistake would come true.
pub fn merge(percentage: u32, held: bool) -> u32 {
    let share = percentage & SHARE;
    if held && share <= MAX_QUEUE_PERCENTAGE { percentage & !SHARE } else { percentage }
}

/// Whether the driver refuses a request with this error before it keeps any of it: it looks at values, id and ring first.
pub fn refused(errno: Errno) -> bool {
    matches!(errno.0, libc::EINVAL | libc::EFAULT | libc::EBADF | libc::ENOTTY | libc::EPERM)
}

/// What is known of a queue's setting in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The last request succeeded.
    Is(Setting),
    /// The last request failed: the driver has kept the values, and the hardware may or may not have followed.
    Unknown,
}

/// Who holds a queue. It is held as long as anybody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Whoever suspends the process.
    Scheduler = 1,
    /// Whoever named this queue.
    User = 2,
    /// A measurement.
    Probe = 4,
}

/// One queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arbiter {
    wish: Setting,
    /// Bits of [`By`].
    held: u8,
    known: Known,
    /// We want something that the driver has not confirmed. What else failed is the runtime's to repeat.
    owes: bool,
}

impl Arbiter {
    /// A queue that the runtime has created with this setting; we may have had it created held, as [`By::Scheduler`].
    pub fn new(wish: Setting, held: bool) -> Self {
        let held = if held { By::Scheduler as u8 } else { 0 };
        let mut arbiter = Self { wish, held, known: Known::Unknown, owes: false };
        arbiter.known = Known::Is(arbiter.target());
        arbiter
    }

    /// What the runtime wants.
    pub fn wish(&self) -> Setting {
        self.wish
    }

    /// Whether we hold it.
    pub fn held(&self) -> bool {
        self.held != 0
    }

    /// Whether this one holds it.
    pub fn held_by(&self, by: By) -> bool {
        self.held & by as u8 != 0
    }

    /// Whether the driver is known to have what it is to have.
    pub fn settled(&self) -> bool {
        self.known == Known::Is(self.target())
    }

    /// Whether something that we want has not reached the driver.
    pub fn owes(&self) -> bool {
        self.owes && !self.settled()
    }

    /// Whether it is known to be off the hardware.
    pub fn is_off(&self) -> bool {
        matches!(self.known, Known::Is(setting) if setting.percentage & SHARE == 0)
    }

    /// From now on it is held by this one, or not by it.
    pub fn hold(&mut self, by: By, held: bool) {
        self.want(if held { self.held | by as u8 } else { self.held & !(by as u8) });
    }

    /// From now on nobody holds it.
    pub fn let_go(&mut self) {
        self.want(0);
    }

    fn want(&mut self, held: u8) {
        self.owes |= (held != 0) != self.held();
        self.held = held;
    }

    /// What the driver is to have.
    fn target(&self) -> Setting {
        Setting { percentage: merge(self.wish.percentage, self.held()), ..self.wish }
    }

    /// What is to be sent, if anything.
    pub fn next(&self) -> Option<Setting> {
        (!self.settled()).then(|| self.target())
    }

    /// What is to be sent for an update of the runtime's.
    pub fn merged(&self, wish: Setting) -> Setting {
        Setting { percentage: merge(wish.percentage, self.held()), ..wish }
    }

    /// The answer to an update of the runtime's, which was sent merged.
    pub fn runtime_answered(&mut self, wish: Setting, result: Result<(), Errno>) {
        match result {
            Err(errno) if refused(errno) => {}
            _ => {
                let sent = self.merged(wish);
                self.wish = wish;
                self.answered(sent, result);
                self.owes |= result.is_err() && self.held();
            }
        }
    }

    /// The answer to what was sent for [`Arbiter::next`].
    pub fn answered(&mut self, sent: Setting, result: Result<(), Errno>) {
        self.known = if result.is_ok() { Known::Is(sent) } else { Known::Unknown };
        self.owes &= result.is_err();
    }

    /// Another request about the queue failed, which takes it off and puts it back as an update does (SET_CU_MASK).
    pub fn shaken(&mut self) {
        self.known = Known::Unknown;
        self.owes |= self.held();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_minimum_is_taken_on_the_low_byte_alone() {
        assert_eq!(merge(100, true), 0);
        assert_eq!(merge(0x0364, true), 0x0300);
        assert_eq!(merge(0x0364, false), 0x0364);
        assert_eq!(merge(0, false), 0);
        assert_eq!(merge(101, true), 101, "the driver's to refuse");
    }

    /// A driver that keeps what it is told, also when it fails, and then may or may not act on it.
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
        Hold(By, bool),
        Runtime { percentage: u32, priority: u32 },
        Mask,
        Send,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (any::<bool>(), any::<bool>())
                .prop_map(|(user, on)| Step::Hold(if user { By::User } else { By::Scheduler }, on)),
            (0u32..0x400, 0u32..18).prop_map(|(percentage, priority)| Step::Runtime { percentage, priority }),
            Just(Step::Mask),
            Just(Step::Send),
        ]
    }

    proptest! {
        /// Whatever the runtime and we want and however requests fail: the arbiter never believes what is not so, and once
        /// requests succeed the driver has exactly the merged wishes.
        #[test]
        fn it_is_never_wrong_and_settles(
            born in any::<bool>(),
            steps in proptest::collection::vec((step(), proptest::option::weighted(0.4, any::<bool>())), 0..60),
        ) {
            let wish = Setting { ring_base_address: 0x1000, ring_size: 4096, percentage: 100, priority: 7 };
            let mut arbiter = Arbiter::new(wish, born);
            let first = arbiter.merged(wish);
            let mut driver = Driver { kept: first, on: first.percentage & 0xff > 0 };
            let (mut want, mut by) = (wish, [born, false]);
            for (step, fails) in steps {
                match step {
                    Step::Hold(who, on) => {
                        by[usize::from(who == By::User)] = on;
                        arbiter.hold(who, on);
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
                    Step::Mask if fails.is_some() => arbiter.shaken(),
                    Step::Mask => {}
                    Step::Send => if let Some(next) = arbiter.next() {
                        arbiter.answered(next, driver.update(next, fails));
                    },
                }
                prop_assert_eq!(arbiter.wish(), want);
                let held = by[0] || by[1];
                prop_assert_eq!(arbiter.held(), held);
                if arbiter.settled() {
                    prop_assert_eq!(driver.kept, Setting { percentage: merge(want.percentage, held), ..want });
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
