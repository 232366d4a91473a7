//! What the environment says of queues that are made without being asked for, as hints.

use super::AutoXQueue;
use crate::bounds::{Cap, Timeslice, Utilization};
use crate::hint::{ProcessHints, QueueHints};
use std::num::{NonZeroU32, NonZeroU64};

impl AutoXQueue {
    /// The hints of such a queue.
    pub fn queue_hints(&self) -> QueueHints {
        QueueHints {
            utilization: self.share(),
            deadline_us: self.deadline_us.and_then(NonZeroU64::new),
            laxity: self.laxity,
            preemptible: self.preemptible,
            ..QueueHints::default()
        }
    }

    /// The hints of a process with such queues.
    pub fn process_hints(&self) -> ProcessHints {
        let slice = |us: u64| Timeslice::try_from(i64::try_from(us).ok()?).ok();
        ProcessHints {
            utilization: self.share(),
            timeslice: self.timeslice_us.and_then(slice),
            // More than there are queues is all of them.
            k_deadline: self.k_deadline.and_then(|k| NonZeroU32::new(u32::try_from(k).unwrap_or(u32::MAX))),
            job: self.job,
            cap: self.cap.and_then(|percent| Cap::try_from(i64::from(percent)).ok()),
            ..ProcessHints::default()
        }
    }

    fn share(&self) -> Utilization {
        Utilization::try_from(i64::from(self.utilization)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Priority;
    use crate::config::Config;
    use crate::hint::Laxity;

    #[test]
    fn what_is_not_said_is_no_hint() {
        let auto = Config::default().auto;
        assert_eq!(auto.queue_hints(), QueueHints::default());
        assert_eq!(auto.process_hints(), ProcessHints::default());
    }

    #[test]
    fn what_is_said_is_hinted() {
        let said = [
            ("XSCHED_AUTO_XQUEUE_PRIORITY", "7"),
            ("XSCHED_AUTO_XQUEUE_UTILIZATION", "30"),
            ("XSCHED_AUTO_XQUEUE_TIMESLICE", "700"),
            ("XSCHED_AUTO_XQUEUE_DEADLINE", "900"),
            ("XSCHED_AUTO_XQUEUE_KDEADLINE", "9223372036854775807"),
            ("XSCHED_AUTO_XQUEUE_LAXITY", "0"),
            ("XSCHED_AUTO_XQUEUE_PREEMPTIBLE", "OFF"),
            ("XSCHED_AUTO_XQUEUE_JOB", "3"),
            ("XSCHED_AUTO_XQUEUE_CAP", "40"),
        ];
        let get = |name: &str| {
            said.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).into())
        };
        let auto = Config::read(get, &[]).0.auto;
        let (share, seven) = (Utilization::try_from(30).unwrap(), Priority::try_from(7).unwrap());
        assert_eq!(
            auto.queue_hints(),
            QueueHints {
                utilization: share,
                deadline_us: NonZeroU64::new(900),
                laxity: Some(Laxity { us: 0, lax: Priority::MIN, critical: seven }),
                arrival: None,
                preemptible: false,
            }
        );
        assert_eq!(
            auto.process_hints(),
            ProcessHints {
                utilization: share,
                timeslice: Some(Timeslice::try_from(700).unwrap()),
                k_deadline: NonZeroU32::new(u32::MAX),
                job: NonZeroU64::new(3),
                cap: Cap::try_from(40).ok(),
                ..ProcessHints::default()
            }
        );
    }
}
