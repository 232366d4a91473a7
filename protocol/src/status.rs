//! What there is to decide about, as a snapshot: the queues of this process, or the gangs of a server.

use crate::bounds::Priority;
use crate::codes::PreemptLevel;
use crate::event::Event;
use crate::hint::table::Said;
use crate::hint::{Hint, Hints, ProcessHints, QueueHints};
use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;

/// Everything that a scheduler knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Under the local scheduler: this process.
    Local {
        /// Its process id.
        pid: Pid,
        /// What is said of it.
        #[serde(default)]
        hints: ProcessHints,
        /// Its queues.
        queues: Queues,
    },
    /// Under the global scheduler: every connected client, idle ones and those without a queue included.
    Global {
        /// The clients, in any order, each once.
        gangs: Vec<Gang>,
    },
}

/// A connected process on all its devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// The connection.
    pub client: ClientId,
    /// The process, as the server sees it.
    pub pid: Pid,
    /// What is said of it.
    #[serde(default)]
    pub hints: ProcessHints,
    /// Its queues.
    pub queues: Queues,
}

/// One XQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its name in its process.
    pub queue: QueueId,
    /// Where its commands run.
    pub device: DeviceId,
    /// How urgent it is.
    pub priority: Priority,
    /// What else is said of it.
    #[serde(default)]
    pub hints: QueueHints,
    /// The preemption level that is asked for.
    #[serde(with = "crate::codes::level_number")]
    pub level: PreemptLevel,
    /// Whether it has work.
    pub activity: Activity,
    /// What it has done, for people; no policy looks at it.
    pub counts: Counts,
}

/// Whether a queue has work, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// There is something submitted that has not completed.
    Ready {
        /// Since then without a break.
        since: Time,
    },
    /// Everything submitted has completed.
    Idle {
        /// Since then; nothing if the queue was never used.
        since: Option<Time>,
    },
}

/// What a queue has done so far, and holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Commands submitted and not launched.
    pub pending: u64,
    /// Commands launched and not completed.
    pub in_flight: u64,
    /// Launches by the submitting thread itself.
    pub direct: u64,
    /// Launches that had been pending.
    pub deferred: u64,
    /// How often it was suspended.
    pub suspensions: u64,
    /// For how many nanoseconds in all, an open suspension included.
    pub suspended_ns: u64,
}

/// The queues of one process, each once, in the order of their names, which is that of their creation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<QueueStatus>", into = "Vec<QueueStatus>")]
pub struct Queues(Vec<QueueStatus>);

/// Why an event or a list of queues cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusError {
    /// It names a queue that does not exist.
    UnknownQueue(QueueId),
    /// It creates a queue that exists already, or one name stands twice.
    QueueExists(QueueId),
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownQueue(queue) => write!(f, "queue {queue} does not exist"),
            Self::QueueExists(queue) => write!(f, "queue {queue} exists already"),
        }
    }
}

impl std::error::Error for StatusError {}

impl Queues {
    /// Brings the list up to date. Readiness that is reported twice keeps its first time.
    ///
    /// # Errors
    /// An event that names a queue that is not there, or creates one that is, changes nothing.
    pub fn apply(&mut self, event: &Event) -> Result<(), StatusError> {
        match *event {
            Event::QueueCreated { queue, device, priority, level } => {
                let Err(place) = self.find(queue) else { return Err(StatusError::QueueExists(queue)) };
                let activity = Activity::Idle { since: None };
                let (hints, counts) = (QueueHints::default(), Counts::default());
                self.0.insert(place, QueueStatus { queue, device, priority, hints, level, activity, counts });
            }
            Event::QueueDestroyed { queue } => {
                let place = self.find(queue).map_err(|_| StatusError::UnknownQueue(queue))?;
                self.0.remove(place);
            }
            Event::QueueReady { queue, at } => {
                let activity = &mut self.queue_mut(queue)?.activity;
                if let Activity::Idle { .. } = activity {
                    *activity = Activity::Ready { since: at };
                }
            }
            Event::QueueIdle { queue, at } => {
                let activity = &mut self.queue_mut(queue)?.activity;
                if let Activity::Ready { .. } = activity {
                    *activity = Activity::Idle { since: Some(at) };
                }
            }
            Event::Hint(Hint::Priority { queue, priority }) => self.queue_mut(queue)?.priority = priority,
            Event::Hint(Hint::Queue { queue, hints }) => self.queue_mut(queue)?.hints = hints,
        }
        Ok(())
    }

    /// Applies the update of a hint to one queue, or to all. A name that the list does not have changes nothing.
    pub fn hint(&mut self, queue: Option<QueueId>, update: Said, now: Time) {
        for status in self.0.iter_mut().filter(|status| queue.is_none_or(|queue| queue == status.queue)) {
            let mut hints = Hints { priority: status.priority, queue: status.hints, ..Hints::default() };
            update.apply(&mut hints, now);
            (status.priority, status.hints) = (hints.priority, hints.queue);
        }
    }

    /// The counts of a queue, to be filled in by whoever counts.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn counts_mut(&mut self, queue: QueueId) -> Result<&mut Counts, StatusError> {
        Ok(&mut self.queue_mut(queue)?.counts)
    }

    /// Says what a queue does, where whoever asks has looked for themselves instead of being told by events.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn set_activity(&mut self, queue: QueueId, activity: Activity) -> Result<(), StatusError> {
        self.queue_mut(queue)?.activity = activity;
        Ok(())
    }

    /// Says which level is asked for on a queue.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn set_level(&mut self, queue: QueueId, level: PreemptLevel) -> Result<(), StatusError> {
        self.queue_mut(queue)?.level = level;
        Ok(())
    }

    fn queue_mut(&mut self, queue: QueueId) -> Result<&mut QueueStatus, StatusError> {
        let place = self.find(queue).map_err(|_| StatusError::UnknownQueue(queue))?;
        Ok(&mut self.0[place])
    }

    /// Where the queue is, or where it belongs.
    fn find(&self, queue: QueueId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&queue, |status| status.queue)
    }
}

impl Deref for Queues {
    type Target = [QueueStatus];

    fn deref(&self) -> &[QueueStatus] {
        &self.0
    }
}

impl TryFrom<Vec<QueueStatus>> for Queues {
    type Error = StatusError;

    fn try_from(mut queues: Vec<QueueStatus>) -> Result<Self, StatusError> {
        queues.sort_by_key(|status| status.queue);
        match queues.windows(2).find(|pair| pair[0].queue == pair[1].queue) {
            Some(pair) => Err(StatusError::QueueExists(pair[0].queue)),
            None => Ok(Self(queues)),
        }
    }
}

impl From<Queues> for Vec<QueueStatus> {
    fn from(queues: Queues) -> Self {
        queues.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN: QueueId = QueueId(7);

    fn created(queue: QueueId) -> Event {
        let (device, priority, level) = (DeviceId(1), Priority::DEFAULT, PreemptLevel::Block);
        Event::QueueCreated { queue, device, priority, level }
    }

    #[test]
    fn events_tell_the_life_of_a_queue() {
        let mut queues = Queues::default();
        let hint = Event::Hint(Hint::Priority { queue: SEVEN, priority: Priority::MAX });
        assert_eq!(queues.apply(&hint), Err(StatusError::UnknownQueue(SEVEN)));
        for queue in [9, 7, 8].map(QueueId) {
            queues.apply(&created(queue)).unwrap();
        }
        assert_eq!(queues.apply(&created(SEVEN)), Err(StatusError::QueueExists(SEVEN)));
        assert_eq!(queues[0].activity, Activity::Idle { since: None });

        queues.apply(&Event::QueueReady { queue: SEVEN, at: Time(10) }).unwrap();
        queues.apply(&Event::QueueReady { queue: SEVEN, at: Time(20) }).unwrap();
        assert_eq!(queues[0].activity, Activity::Ready { since: Time(10) });
        queues.apply(&Event::QueueIdle { queue: SEVEN, at: Time(30) }).unwrap();
        queues.apply(&Event::QueueIdle { queue: SEVEN, at: Time(40) }).unwrap();
        assert_eq!(queues[0].activity, Activity::Idle { since: Some(Time(30)) });

        queues.set_activity(SEVEN, Activity::Idle { since: Some(Time(50)) }).unwrap();
        assert_eq!(queues[0].activity, Activity::Idle { since: Some(Time(50)) });
        assert_eq!(
            queues.set_activity(QueueId(1), Activity::Idle { since: None }),
            Err(StatusError::UnknownQueue(QueueId(1)))
        );

        queues.apply(&hint).unwrap();
        assert_eq!(queues[0].priority, Priority::MAX);
        queues.counts_mut(SEVEN).unwrap().pending = 3;
        queues.apply(&Event::QueueDestroyed { queue: SEVEN }).unwrap();
        assert_eq!(queues.iter().map(|status| status.queue.0).collect::<Vec<_>>(), [8, 9]);
        assert_eq!(queues.counts_mut(SEVEN).unwrap_err().to_string(), "queue 7 does not exist");

        // Nothing that was said of a destroyed queue is remembered.
        queues.apply(&created(SEVEN)).unwrap();
        assert_eq!((queues[0].priority, queues[0].counts.pending), (Priority::DEFAULT, 0));
    }

    #[test]
    fn a_list_from_outside_is_sorted_and_checked() {
        let mut queues = Queues::default();
        queues.apply(&created(QueueId(1))).unwrap();
        queues.apply(&created(QueueId(2))).unwrap();
        let mut list: Vec<_> = queues.clone().into();
        list.reverse();
        assert_eq!(Queues::try_from(list.clone()), Ok(queues));
        list[1].queue = QueueId(2);
        let json = serde_json::to_string(&list).unwrap();
        let error = serde_json::from_str::<Queues>(&json).unwrap_err();
        assert!(error.to_string().contains("queue 2 exists already"), "{error}");
    }
}
