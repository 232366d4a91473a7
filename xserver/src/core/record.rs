//! Records of what the core saw and decided, for `xserver --decisions`. The core only collects them; it does no
//! I/O.

use policies::SchedEntity;
use protocol::ids::{ClientId, Pid};
use protocol::operation::{Permit, Reason};
use protocol::status::{Activity, Gang};
use protocol::time::Time;
use serde::{Serialize, Serializer};

/// A change that a step saw or made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Record {
    /// The time of the step, in nanoseconds.
    #[serde(rename = "at_ns")]
    pub at: Time,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// A change. Each client is named by its number and by its process, as the server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each client has the same two names")]
pub enum Change {
    /// A client has connected since the last step.
    Join { client: ClientId, pid: Pid },
    /// A client has left since the last step.
    Leave { client: ClientId, pid: Pid },
    /// The first of a client's queues has work, or none has any more. A client that has yielded has none.
    Work {
        client: ClientId,
        pid: Pid,
        /// True if a queue has work.
        works: bool,
        /// The time since when, by the client's page; the time of the step if the page does not say it.
        #[serde(rename = "since_ns")]
        since: Time,
    },
    /// A client without work counts as ready for some time.
    Linger {
        client: ClientId,
        pid: Pid,
        /// The end of that time, unless the client has work before; the time of the step if it ends early.
        #[serde(rename = "until_ns")]
        until: Time,
    },
    /// The permission of a client has changed, or the kind of its reason, or the process that goes first.
    Permission {
        client: ClientId,
        pid: Pid,
        /// True if it may launch.
        run: bool,
        /// True if that was different before, and not only the reason.
        #[serde(skip)]
        turned: bool,
        /// The reason; written as its text.
        #[serde(rename = "why", serialize_with = "text")]
        reason: Reason,
    },
    /// The progress guard lets all clients run, or no longer does.
    Guard {
        /// True if all run.
        on: bool,
    },
}

/// The collected records, and the last state of what no client owns.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub records: Vec<Record>,
    /// The clients that have connected and left since the last step. Their records get the time of the next.
    pub comings: Vec<Change>,
    pub guard: bool,
}

/// The last recorded state of a client.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    works: bool,
    lingers_until: Option<Time>,
    permit: Option<(bool, Reason)>,
}

impl Recorder {
    pub fn note(&mut self, coming: Change) {
        self.comings.push(coming);
    }
}

impl Recorded {
    /// Returns what has changed in the work of a client.
    pub fn seen(&mut self, gang: &Gang, unit: &SchedEntity, now: Time) -> [Option<Change>; 2] {
        let Gang { client, pid, .. } = *gang;
        let works = unit.working;
        let turned = std::mem::replace(&mut self.works, works) != works;
        let until = unit.idle_since.filter(|_| unit.ready).map(|since| since.after(unit.linger));
        let before = std::mem::replace(&mut self.lingers_until, until);
        let lingers = match (until, before) {
            (Some(until), before) if before != Some(until) => Some(until),
            // A policy let it linger for longer, and has changed its mind.
            (None, Some(until)) if !works && now < until => Some(now),
            _ => None,
        };
        let starts = gang.queues.iter().filter_map(|queue| match queue.activity {
            Activity::Ready { since } => Some(since),
            Activity::Idle { .. } => None,
        });
        let since = if works { starts.min() } else { unit.idle_since }.unwrap_or(now);
        [
            turned.then_some(Change::Work { client, pid, works, since }),
            lingers.map(|until| Change::Linger { client, pid, until }),
        ]
    }

    /// Returns the change of the permission.
    pub fn decided(&mut self, gang: &Gang, permit: Permit) -> Option<Change> {
        let Permit { run, reason, .. } = permit;
        let before = self.permit.replace((run, reason));
        let turned = before.is_none_or(|(ran, _)| ran != run);
        let same = before.is_some_and(|(_, before)| !turned && is_alike(&before, &reason));
        (!same).then_some(Change::Permission { client: gang.client, pid: gang.pid, run, turned, reason })
    }
}

/// Returns true if two reasons differ only in their numbers, which many decisions change.
fn is_alike(one: &Reason, other: &Reason) -> bool {
    match (one, other) {
        (Reason::Outranked { by: one, .. }, Reason::Outranked { by: other, .. }) => {
            one.pid == other.pid && one.reason.name == other.reason.name
        }
        (Reason::Throttled(one), Reason::Throttled(other)) => {
            std::mem::discriminant(one) == std::mem::discriminant(other)
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

fn text<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&policies::explain(reason))
}
