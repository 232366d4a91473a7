//! What each program did between two lists of a server.

use crate::table::plain;
use protocol::bounds::Priority;
use protocol::control::{Client, List, Queue, QueueState};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::Reason;
use protocol::outside::Held;
use serde::Serialize;
use std::collections::BTreeMap;

/// A row of the view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowId {
    /// A connected program.
    Client(ClientId),
    /// One of its queues.
    Queue(ClientId, QueueId),
    /// A process that is only suspended by `xcli suspend`.
    Held(Pid),
}

/// The state of a program or a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has work and may run.
    Running,
    /// It has work and may not run, or its priority says that it never runs.
    Suspended,
    /// The process is stopped, traced, or suspended by `xcli suspend`.
    Stopped,
    /// It has no work.
    Idle,
}

impl State {
    /// The word for users.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
        }
    }
}

/// What happened per time. None where it is not known: before the second list, from an older server, or where the
/// program's library does not count it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Rates {
    /// Launches in a second.
    pub launches_per_second: Option<f64>,
    /// Known device time in percent of the time that passed. Several devices make more than 100.
    pub share_percent: Option<f64>,
    /// Time with work while suspended, in percent of the time that passed. Of a queue: any time while suspended.
    pub suspended_percent: Option<f64>,
    /// Evictions of the hardware queues in a second.
    pub evictions_per_second: Option<f64>,
    /// Mean duration of the suspensions in microseconds. For how long it is suspended by now if that is longer than the
    /// interval.
    pub mean_suspension_us: Option<f64>,
}

/// A connected program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    #[serde(skip)]
    pub client: ClientId,
    pub pid: Pid,
    pub name: String,
    /// The number of its user, from a server for all users.
    pub uid: Option<u32>,
    /// The highest priority of its queues.
    pub priority: Option<i32>,
    /// The preemption level in force.
    pub level: i32,
    pub state: State,
    #[serde(flatten)]
    pub rates: Rates,
    /// Why it runs or is suspended.
    pub why: String,
    pub queues: Vec<QueueRow>,
}

/// A queue of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueRow {
    pub queue: QueueId,
    pub device: DeviceId,
    pub priority: i32,
    pub level: i32,
    pub state: State,
    #[serde(flatten)]
    pub rates: Rates,
}

/// Compares two lists of the same server.
pub fn rows(before: Option<&List>, now: &List) -> Vec<Row> {
    let same = before.filter(|before| before.server.pid == now.server.pid);
    let clients = same.into_iter().flat_map(|list| &list.clients).map(|client| (client.client, client));
    let earlier: BTreeMap<ClientId, &Client> = clients.collect();
    // An older server says no time.
    let passed = same.map(|before| now.server.now.0.saturating_sub(before.server.now.0)).filter(|ns| *ns > 0);
    now.clients
        .iter()
        .map(|client| row(passed.zip(earlier.get(&client.client).copied()), client, now))
        .collect()
}

/// The processes that are suspended by `xcli suspend` and are no clients.
pub fn only_held(list: &List) -> Vec<&Held> {
    list.held.iter().filter(|held| list.clients.iter().all(|client| client.pid != held.pid)).collect()
}

fn row(earlier: Option<(u64, &Client)>, client: &Client, list: &List) -> Row {
    let was = |id| earlier.and_then(|(_, before)| before.queues.iter().find(|queue| queue.id() == id));
    let passed = earlier.map(|(passed, _)| passed);
    let queues = client.queues.iter().map(|queue| {
        let rates = passed
            .zip(was(queue.id()))
            .map(|(passed, was)| Difference::of_queues(&[(Some(was), queue)], passed));
        QueueRow {
            queue: queue.id(),
            device: queue.device(),
            priority: queue.status.priority.get(),
            level: queue.in_force.number(),
            state: queue_state(queue),
            rates: rates.map(|difference| difference.rates(suspended_for(client, list))).unwrap_or_default(),
        }
    });
    Row {
        client: client.client,
        pid: client.pid,
        name: plain(&client.name),
        uid: client.owner.as_ref().map(|owner| owner.uid),
        priority: client.queues.iter().map(|queue| queue.status.priority.get()).max(),
        level: client.preemption.in_force.number(),
        state: state(client),
        rates: earlier.map(|(passed, before)| rates(passed, before, client, list)).unwrap_or_default(),
        why: plain(&client.reason),
        queues: queues.collect(),
    }
}

fn state(client: &Client) -> State {
    let never = !client.permit.run && client.permit.reason == Reason::NoExecute;
    let any = |state| client.queues.iter().any(|queue| queue.state == state);
    match () {
        () if client.yielded => State::Stopped,
        () if never || any(QueueState::Suspended) && !any(QueueState::Running) => State::Suspended,
        () if any(QueueState::Running) => State::Running,
        () => State::Idle,
    }
}

fn queue_state(queue: &Queue) -> State {
    match queue.state {
        QueueState::Running => State::Running,
        QueueState::Suspended => State::Suspended,
        QueueState::Idle if queue.status.priority == Priority::NO_EXECUTE => State::Suspended,
        QueueState::Idle => State::Idle,
    }
}

/// For how long a suspended client is suspended, in nanoseconds.
fn suspended_for(client: &Client, list: &List) -> Option<u64> {
    (!client.permit.run && client.since.0 > 0).then(|| list.server.now.0.saturating_sub(client.since.0))
}

fn rates(passed: u64, before: &Client, now: &Client, list: &List) -> Rates {
    let pairs: Vec<_> = now
        .queues
        .iter()
        .map(|queue| (before.queues.iter().find(|was| was.id() == queue.id()), queue))
        .collect();
    let mut rates = Difference::of_queues(&pairs, passed).rates(suspended_for(now, list));
    rates.suspended_percent = before
        .waiting
        .zip(now.waiting)
        .map(|(before, now)| percent(now.suspended_ns.saturating_sub(before.suspended_ns), passed));
    let evictions = now.preemption.holds.saturating_sub(before.preemption.holds);
    rates.evictions_per_second = Some(evictions as f64 * 1e9 / passed as f64);
    rates
}

/// What has been added to the counters of some queues.
#[derive(Debug)]
struct Difference {
    passed: u64,
    launches: u64,
    worked: Option<u64>,
    suspensions: u64,
    suspended: u64,
}

impl Difference {
    /// Compares queues with what they were. A new one began at zero.
    fn of_queues(pairs: &[(Option<&Queue>, &Queue)], passed: u64) -> Self {
        let sum = |of: fn(&Queue) -> u64| -> u64 {
            pairs
                .iter()
                .map(|(was, is)| of(is).saturating_sub(was.map_or(0, of)))
                .fold(0, u64::saturating_add)
        };
        let launches = sum(|queue| queue.status.counts.direct.saturating_add(queue.status.counts.deferred));
        let worked = sum(|queue| worked_ns(queue).unwrap_or(0));
        let counts_work = pairs.iter().all(|(_, is)| worked_ns(is).is_some());
        let total = pairs.iter().filter_map(|(_, is)| worked_ns(is)).max();
        Self {
            passed,
            launches,
            // A library that knows the times of no kernels has never counted anything.
            worked: (counts_work && (launches == 0 || total != Some(0))).then_some(worked),
            suspensions: sum(|queue| queue.status.counts.suspensions),
            suspended: sum(|queue| queue.status.counts.suspended_ns),
        }
    }

    fn rates(&self, suspended_for: Option<u64>) -> Rates {
        let mean = (self.suspended > 0).then(|| self.suspended / self.suspensions.max(1));
        // No suspension began or ended: it goes on since before the interval.
        let long = suspended_for.filter(|ns| *ns >= self.passed);
        Rates {
            launches_per_second: Some(self.launches as f64 * 1e9 / self.passed as f64),
            share_percent: self.worked.map(|worked| percent(worked, self.passed)),
            suspended_percent: Some(percent(self.suspended, self.passed).min(100.0)),
            evictions_per_second: None,
            mean_suspension_us: long.or(mean).map(|ns| ns as f64 / 1e3),
        }
    }
}

/// The device time of a queue as far as its program knows it; none from an older server.
fn worked_ns(queue: &Queue) -> Option<u64> {
    queue.times.map(|times| times.worked_ns)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::list::tests::{client, example};
    use protocol::control::{QueueState, Waiting};
    use protocol::time::Time;
    use protocol::totals::QueueTimes;

    pub const SECOND: u64 = 1_000_000_000;

    fn worked(worked_ns: u64) -> Option<QueueTimes> {
        Some(QueueTimes { worked_ns, ..QueueTimes::default() })
    }

    /// The example of `xcli list`, and the list two seconds later.
    pub fn two_lists() -> [List; 2] {
        let mut before = example();
        before.server.now = Time(100 * SECOND);
        for client in &mut before.clients {
            client.since = Time(99 * SECOND);
            client.waiting = Some(Waiting::default());
            for queue in &mut client.queues {
                queue.times = worked(5 * SECOND);
            }
        }
        let mut now = before.clone();
        now.server.now = Time(102 * SECOND);
        let infer = &mut now.clients[0];
        infer.queues[0].status.counts.direct += 2_000;
        infer.queues[1].status.counts.deferred += 500;
        infer.queues[0].times = worked(5 * SECOND + SECOND / 2);
        infer.preemption.holds = 3;
        let train = &mut now.clients[1];
        train.queues[0].status.counts.deferred += 100;
        train.queues[0].status.counts.suspensions += 4;
        train.queues[0].status.counts.suspended_ns += SECOND;
        train.queues[0].times = worked(6 * SECOND);
        train.since = Time(102 * SECOND - 1_000);
        train.waiting = Some(Waiting { suspended_ns: SECOND / 2, ..Waiting::default() });
        [before, now]
    }

    #[test]
    fn differences_become_rates() {
        let [before, now] = two_lists();
        let rows = rows(Some(&before), &now);
        let [infer, train, fresh] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((infer.pid, infer.priority, infer.state), (Pid(4242), Some(10), State::Running));
        assert_eq!(
            infer.rates,
            Rates {
                launches_per_second: Some(1250.0),
                share_percent: Some(25.0),
                suspended_percent: Some(0.0),
                evictions_per_second: Some(1.5),
                mean_suspension_us: None,
            }
        );
        assert_eq!(infer.queues[1].rates.launches_per_second, Some(250.0));
        assert_eq!(infer.queues[1].rates.share_percent, Some(0.0));
        assert_eq!(
            train.rates,
            Rates {
                launches_per_second: Some(50.0),
                share_percent: Some(50.0),
                suspended_percent: Some(25.0),
                evictions_per_second: Some(0.0),
                mean_suspension_us: Some(250_000.0),
            }
        );
        assert_eq!((train.state, train.queues[0].state), (State::Suspended, State::Suspended));
        assert_eq!(train.queues[0].rates.suspended_percent, Some(50.0));
        assert_eq!((fresh.priority, fresh.state, fresh.queues.len()), (None, State::Idle, 0));
    }

    #[test]
    fn nothing_is_known_before_the_second_list_of_a_server() {
        let [before, mut now] = two_lists();
        let unknown = |rows: Vec<Row>| rows.iter().all(|row| row.rates == Rates::default());
        assert!(unknown(rows(None, &now)));
        assert!(unknown(rows(Some(&now), &now)), "no time has passed");
        now.clients.insert(0, client(9, "new", true, "", vec![]));
        let of_new = rows(Some(&before), &now).remove(0);
        assert_eq!((of_new.name.as_str(), of_new.rates), ("new", Rates::default()));
        now.server.pid = Pid(1);
        assert!(unknown(rows(Some(&before), &now)), "another server");
    }

    #[test]
    fn share_is_unknown_without_the_times_of_kernels() {
        let [mut before, mut now] = two_lists();
        let share = |before: &List, now: &List| rows(Some(before), now)[1].rates.share_percent;
        for times in [None, worked(0)] {
            before.clients[1].queues[0].times = times;
            now.clients[1].queues[0].times = times;
            assert_eq!(share(&before, &now), None, "{times:?}");
        }
        now.clients[1].queues[0].status.counts = before.clients[1].queues[0].status.counts;
        assert_eq!(share(&before, &now), Some(0.0), "it launched nothing");
    }

    #[test]
    fn long_suspension_is_shown_as_a_whole() {
        let [before, mut now] = two_lists();
        now.clients[1].queues[0].status.counts.suspensions =
            before.clients[1].queues[0].status.counts.suspensions;
        now.clients[1].since = Time(90 * SECOND);
        assert_eq!(rows(Some(&before), &now)[1].rates.mean_suspension_us, Some(12e6));
    }

    #[test]
    fn states_of_programs_that_cannot_run() {
        let mut list = example();
        list.clients[0].yielded = true;
        list.clients[2].permit.run = false;
        list.clients[2].permit.reason = Reason::NoExecute;
        let states: Vec<_> = rows(None, &list).iter().map(|row| row.state).collect();
        assert_eq!(states, [State::Stopped, State::Suspended, State::Suspended]);
        list.clients[0].yielded = false;
        list.clients[0].queues[0].state = QueueState::Idle;
        list.clients[0].queues[0].status.priority = Priority::NO_EXECUTE;
        let infer = rows(None, &list).remove(0);
        assert_eq!((infer.state, infer.queues[0].state), (State::Idle, State::Suspended));
    }

    #[test]
    fn process_that_is_no_client_is_listed_once() {
        let mut list = example();
        let held = |pid| Held { pid: Pid(pid), name: "h".to_owned(), queues: vec![] };
        list.held = vec![held(7), held(4242)];
        assert_eq!(only_held(&list).iter().map(|held| held.pid).collect::<Vec<_>>(), [Pid(7)]);
    }
}
