//! The scheduler's snapshot: the queues of this process, or the gangs of a server.

use crate::bounds::Priority;
use crate::codes::PreemptLevel;
use crate::event::Event;
use crate::hint::table::HintUpdate;
use crate::hint::{Hint, Hints, ProcessHints, QueueHints};
use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// The complete state that a scheduler decides about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Under the local scheduler: this process.
    Local {
        /// Process id.
        pid: Pid,
        /// Hints of the process.
        #[serde(default)]
        hints: ProcessHints,
        /// Queues of the process.
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
    /// The number of its owner. Jobs of different owners are different jobs, whatever their numbers.
    #[serde(default)]
    pub owner: u32,
    /// Hints of the process.
    #[serde(default)]
    pub hints: ProcessHints,
    /// Queues of the process.
    pub queues: Queues,
}

/// The state of an XQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Name of the queue in its process.
    pub queue: QueueId,
    /// Device that runs its commands.
    pub device: DeviceId,
    /// Priority.
    pub priority: Priority,
    /// Hints of the queue.
    #[serde(default)]
    pub hints: QueueHints,
    /// Requested preemption level.
    #[serde(with = "crate::codes::level_number")]
    pub level: PreemptLevel,
    /// Ready or idle.
    pub activity: Activity,
    /// Counters for users. Policies do not read them.
    pub counts: Counts,
}

/// The readiness of a queue, with the time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// A submitted command has not completed.
    Ready {
        /// Time at which the queue became ready.
        since: Time,
    },
    /// Everything submitted has completed.
    Idle {
        /// Time at which the queue became idle; `None` if it was never used.
        since: Option<Time>,
    },
}

/// The counters of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Commands submitted and not launched.
    pub pending: u64,
    /// Commands launched and not completed.
    pub in_flight: u64,
    /// Launches by the submitting thread itself.
    pub direct: u64,
    /// Launches of deferred commands.
    pub deferred: u64,
    /// Number of suspensions.
    pub suspensions: u64,
    /// Total duration of suspensions in nanoseconds, including a current one.
    pub suspended_ns: u64,
}

/// The queues of one process, each once, in ascending order of their names, which is the order of their
/// creation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<QueueStatus>", into = "Vec<QueueStatus>")]
pub struct Queues {
    list: Vec<QueueStatus>,
    version: Version,
}

/// Stands for a content of [`Queues`]: in one process, lists with the same version are equal. Equal lists can have
/// different versions. It is no part of the content: it is neither compared with the queues nor written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version(u64);

impl Version {
    /// Returns a version that nothing has yet. The default one is that of the empty list.
    fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Only the number has to be unique; it orders nothing.
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The reason why an event or a list of queues is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusError {
    /// It names a queue that does not exist.
    UnknownQueue(QueueId),
    /// It creates a queue that exists already, or contains a name twice.
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
    /// Applies an event. If readiness is reported twice, the first time counts.
    ///
    /// # Errors
    /// The event names a queue that does not exist, or creates one that exists. Nothing has changed.
    pub fn apply(&mut self, event: &Event) -> Result<(), StatusError> {
        match *event {
            Event::QueueCreated { queue, device, priority, level } => {
                let Err(index) = self.find(queue) else { return Err(StatusError::QueueExists(queue)) };
                let activity = Activity::Idle { since: None };
                let (hints, counts) = (QueueHints::default(), Counts::default());
                self.list
                    .insert(index, QueueStatus { queue, device, priority, hints, level, activity, counts });
                self.version = Version::new();
            }
            Event::QueueDestroyed { queue } => {
                let index = self.find(queue).map_err(|_| StatusError::UnknownQueue(queue))?;
                self.list.remove(index);
                self.version = Version::new();
            }
            Event::QueueReady { queue, at } => self.change(queue, |status| {
                if let Activity::Idle { .. } = status.activity {
                    status.activity = Activity::Ready { since: at };
                }
            })?,
            Event::QueueIdle { queue, at } => self.change(queue, |status| {
                if let Activity::Ready { .. } = status.activity {
                    status.activity = Activity::Idle { since: Some(at) };
                }
            })?,
            Event::Hint(Hint::Priority { queue, priority }) => {
                self.change(queue, |status| status.priority = priority)?;
            }
            Event::Hint(Hint::Queue { queue, hints }) => self.change(queue, |status| status.hints = hints)?,
        }
        Ok(())
    }

    /// Applies the update of a hint to one queue, or to all. A name that the list does not have changes
    /// nothing.
    pub fn hint(&mut self, queue: Option<QueueId>, update: HintUpdate, now: Time) {
        for status in self.list.iter_mut().filter(|status| queue.is_none_or(|queue| queue == status.queue)) {
            let mut hints = Hints { priority: status.priority, queue: status.hints, ..Hints::default() };
            update.apply(&mut hints, now);
            (status.priority, status.hints) = (hints.priority, hints.queue);
        }
        self.version = Version::new();
    }

    /// The version of the content.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Sets the readiness of a queue, for callers that observe it themselves instead of receiving events.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn set_activity(&mut self, queue: QueueId, activity: Activity) -> Result<(), StatusError> {
        self.change(queue, |status| status.activity = activity)
    }

    /// Sets the counters of a queue.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn set_counts(&mut self, queue: QueueId, counts: Counts) -> Result<(), StatusError> {
        self.change(queue, |status| status.counts = counts)
    }

    /// Sets the requested level of a queue.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn set_level(&mut self, queue: QueueId, level: PreemptLevel) -> Result<(), StatusError> {
        self.change(queue, |status| status.level = level)
    }

    /// Changes the state of a queue, and the version if it is another state then.
    fn change(&mut self, queue: QueueId, change: impl FnOnce(&mut QueueStatus)) -> Result<(), StatusError> {
        let index = self.find(queue).map_err(|_| StatusError::UnknownQueue(queue))?;
        let status = &mut self.list[index];
        let before = *status;
        change(status);
        if *status != before {
            self.version = Version::new();
        }
        Ok(())
    }

    /// Returns the index of the queue, or the index at which it belongs.
    fn find(&self, queue: QueueId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&queue, |status| status.queue)
    }
}

impl PartialEq for Queues {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Queues {}

impl Deref for Queues {
    type Target = [QueueStatus];

    fn deref(&self) -> &[QueueStatus] {
        &self.list
    }
}

impl TryFrom<Vec<QueueStatus>> for Queues {
    type Error = StatusError;

    fn try_from(mut queues: Vec<QueueStatus>) -> Result<Self, StatusError> {
        queues.sort_by_key(|status| status.queue);
        match queues.windows(2).find(|pair| pair[0].queue == pair[1].queue) {
            Some(pair) => Err(StatusError::QueueExists(pair[0].queue)),
            None => Ok(Self { list: queues, version: Version::new() }),
        }
    }
}

impl From<Queues> for Vec<QueueStatus> {
    fn from(queues: Queues) -> Self {
        queues.list
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
    fn queues_follow_the_events_of_a_queue() {
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
        queues.set_level(SEVEN, PreemptLevel::Interrupt).unwrap();
        queues.set_counts(SEVEN, Counts { pending: 3, ..Counts::default() }).unwrap();
        queues.apply(&Event::QueueDestroyed { queue: SEVEN }).unwrap();
        assert_eq!(queues.iter().map(|status| status.queue.0).collect::<Vec<_>>(), [8, 9]);
        let gone = queues.set_level(SEVEN, PreemptLevel::Block).unwrap_err();
        assert_eq!(gone.to_string(), "queue 7 does not exist");

        // The hints and counters of a destroyed queue do not reach a new one of the same name.
        queues.apply(&created(SEVEN)).unwrap();
        assert_eq!((queues[0].priority, queues[0].level), (Priority::DEFAULT, PreemptLevel::Block));
        assert_eq!(queues[0].counts, Counts::default());
    }

    #[test]
    fn version_stands_for_a_content() {
        let mut queues = Queues::default();
        queues.apply(&created(SEVEN)).unwrap();
        let mut before: Vec<(Version, Queues)> = vec![(Version::default(), Queues::default())];
        let counts = Counts { pending: 3, ..Counts::default() };
        let idle = Activity::Idle { since: None };
        let hints = QueueHints { preemptible: false, ..QueueHints::default() };
        type Change<'a> = &'a dyn Fn(&mut Queues) -> Result<(), StatusError>;
        let changes: [Change<'_>; 10] = [
            &|queues| queues.apply(&created(QueueId(8))),
            &|queues| queues.apply(&Event::QueueReady { queue: SEVEN, at: Time(10) }),
            &|queues| queues.apply(&Event::QueueIdle { queue: SEVEN, at: Time(20) }),
            &|queues| queues.set_activity(SEVEN, idle),
            &|queues| queues.set_counts(SEVEN, counts),
            &|queues| queues.set_level(SEVEN, PreemptLevel::Interrupt),
            &|queues| queues.apply(&Event::Hint(Hint::Priority { queue: SEVEN, priority: Priority::MAX })),
            &|queues| queues.apply(&Event::Hint(Hint::Queue { queue: SEVEN, hints })),
            &|queues| {
                queues.hint(None, HintUpdate::Priority(Priority::DEFAULT), Time(0));
                Ok(())
            },
            &|queues| queues.apply(&Event::QueueDestroyed { queue: SEVEN }),
        ];
        for change in changes {
            before.push((queues.version(), queues.clone()));
            change(&mut queues).unwrap();
            assert!(before.iter().all(|(version, _)| *version != queues.version()), "{queues:?}");
        }
        assert!(before.iter().all(|(version, copy)| copy.version() == *version), "copies are the same");
        let (version, copy) = (queues.version(), queues.clone());
        queues.set_counts(QueueId(8), Counts::default()).unwrap();
        assert_eq!(queues.version(), version, "nothing has changed");
        let again = Queues::try_from(Vec::from(copy.clone())).unwrap();
        assert!(again == copy && again.version() != version, "an equal list can have another version");
    }

    #[test]
    fn queues_from_a_list_are_sorted_and_a_name_twice_is_refused() {
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
