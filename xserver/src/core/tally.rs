//! The numbers behind the metrics: times of queues, suspensions of clients, and the sums of the server.

use super::client_page::ClientPage;
use super::waiting::nanos;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::ids::DeviceId;
use protocol::status::Activity;
use protocol::time::Time;
use protocol::totals::{Class, QueueTimes, Totals, Work};
use std::collections::BTreeMap;

/// A client cannot have completed more commands than one in so many nanoseconds.
const FASTEST_COMMAND: u64 = 100;

/// For how long a client was permitted to run. One for all its queues, so that a changed permission costs the same however
/// many it has.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// The time up to the last change.
    ns: u64,
    /// The time of that change.
    at: Time,
    runs: bool,
}

impl Allowance {
    /// Notes that the client may run from now on, or no longer.
    pub fn turn(&mut self, runs: bool, now: Time) {
        (self.ns, self.at, self.runs) = (self.until(now), now, runs);
    }

    /// Returns the time for which it was permitted to run up to a time, which lies behind the change before the last one.
    fn until(&self, time: Time) -> u64 {
        match (self.runs, time < self.at) {
            (true, false) => self.ns + nanos(self.at, time),
            (false, true) => self.ns.saturating_sub(nanos(time, self.at)),
            (true, true) | (false, false) => self.ns,
        }
    }
}

/// The times of a queue.
#[derive(Debug, Default)]
pub(super) struct Times {
    ready_ns: u64,
    running_ns: u64,
    /// The time since which it has work, and the allowance of its client then.
    ready: Option<(Time, u64)>,
    /// The time up to which the times above count.
    until: Time,
    /// The time at which the server learnt of it; none before the first state.
    since: Option<Time>,
    /// The part of the device's work for it that is in [`Totals::work`].
    counted_ns: u64,
}

impl Times {
    /// Notes what the queue does and since when.
    pub fn turn(&mut self, activity: Activity, allowance: &Allowance, now: Time) {
        let since = *self.since.get_or_insert(now);
        let (ready, at) = match activity {
            Activity::Ready { since } => (true, since),
            Activity::Idle { since } => (false, since.unwrap_or(now)),
        };
        // The time comes from another process.
        let at = at.clamp(self.until.max(since).min(now), now);
        if let Some(before) = self.ready.take() {
            let (ready_ns, running_ns) = Self::passed(before, allowance, at);
            self.ready_ns += ready_ns;
            self.running_ns += running_ns;
        }
        self.ready = ready.then(|| (at, allowance.until(at)));
        self.until = at;
    }

    /// The time for which a queue had work, and the part of it in which its client was permitted to run.
    fn passed((since, allowed): (Time, u64), allowance: &Allowance, now: Time) -> (u64, u64) {
        let ready_ns = nanos(since, now);
        (ready_ns, allowance.until(now).saturating_sub(allowed).min(ready_ns))
    }

    /// Returns the times up to now, with what the client says about the device's work.
    pub fn show(&self, allowance: &Allowance, worked_ns: u64, now: Time) -> QueueTimes {
        let (ready_ns, running_ns) =
            self.ready.map(|ready| Self::passed(ready, allowance, now)).unwrap_or_default();
        QueueTimes {
            ready_ns: self.ready_ns + ready_ns,
            running_ns: self.running_ns + running_ns,
            worked_ns: self.believed(worked_ns, now),
        }
    }

    /// A queue runs one command at a time, so the device worked for it at most since it was made. The time before the server
    /// learnt of it does not count.
    fn believed(&self, worked_ns: u64, now: Time) -> u64 {
        worked_ns.min(nanos(self.since.unwrap_or(now), now))
    }
}

/// The numbers of a client for metrics.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The time of its current suspension, if it had work then, and the number of its evictions then.
    suspended: Option<(Time, u64)>,
    /// The suspensions with work.
    pub preemptions: u64,
    /// The completed commands that are in [`Totals::completed`], and the time of that.
    counted: u64,
    counted_at: Option<Time>,
    /// The earliest time at which one of its queues turned ready since the last decision, if it had to report that.
    pub turned: Option<Time>,
}

impl Tally {
    /// Notes that a client with work is suspended at this level.
    pub fn suspend(&mut self, level: PreemptLevel, page: &impl ClientPage, totals: &mut Totals, now: Time) {
        self.suspended = Some((now, page.preemption().holds));
        self.preemptions += 1;
        let level = usize::try_from(level.number()).unwrap_or(1).clamp(1, 3);
        totals.preemptions[level - 1] += 1;
    }

    /// Notes that a client may run again.
    pub fn resume(&mut self, page: &impl ClientPage, totals: &mut Totals, now: Time) {
        let Some((since, evictions)) = self.suspended.take() else { return };
        totals.suspensions.add(now.since(since));
        let preemption = page.preemption();
        if let Some(stood_at) = preemption.stood_at.filter(|_| preemption.holds > evictions) {
            totals.evictions.add(Time(stood_at).clamp(since, now).since(since));
        }
    }
}

/// Sums by device and class, beside [`Totals`].
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub totals: Totals,
    work: BTreeMap<(DeviceId, Class), u64>,
    completed: BTreeMap<Class, u64>,
}

impl Sums {
    /// Returns everything, for metrics.
    pub fn show(&self) -> Totals {
        let work = self.work.iter();
        let work = work.map(|(&(device, class), &worked_ns)| Work { device, class, worked_ns });
        let completed = self.completed.iter().map(|(class, count)| (*class, *count));
        Totals { work: work.collect(), completed: completed.collect(), ..self.totals.clone() }
    }

    /// Counts the completed commands of a client that are not counted yet. Without an earlier count, those since a time count.
    pub fn count_completed(
        &mut self,
        tally: &mut Tally,
        class: Class,
        completed: u64,
        since: Time,
        now: Time,
    ) {
        let last = tally.counted_at.replace(now).unwrap_or(since);
        let more = completed.saturating_sub(tally.counted).min(nanos(last, now) / FASTEST_COMMAND);
        tally.counted = tally.counted.max(completed);
        let sum = self.completed.entry(class).or_default();
        *sum = sum.saturating_add(more);
    }

    /// Counts the work of a queue that is not counted yet.
    pub fn count_work(
        &mut self,
        times: &mut Times,
        device: DeviceId,
        class: Class,
        worked_ns: u64,
        now: Time,
    ) {
        let worked = times.believed(worked_ns, now);
        let more = worked.saturating_sub(times.counted_ns);
        times.counted_ns = times.counted_ns.max(worked);
        if more > 0 {
            let sum = self.work.entry((device, class)).or_default();
            *sum = sum.saturating_add(more);
        }
    }
}

/// The class of a program with this highest priority.
pub(super) fn class(priority: Priority) -> Class {
    match priority.get() {
        1.. => Class::Urgent,
        0 => Class::Normal,
        _ => Class::Batch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_queue_follow_its_states() {
        let (mut times, mut allowance) = (Times::default(), Allowance::default());
        allowance.turn(true, Time(90));
        times.turn(Activity::Idle { since: None }, &allowance, Time(100));
        times.turn(Activity::Ready { since: Time(150) }, &allowance, Time(160));
        let shown = |ready_ns, running_ns, worked_ns| QueueTimes { ready_ns, running_ns, worked_ns };
        assert_eq!(times.show(&allowance, 7, Time(170)), shown(20, 20, 7));
        allowance.turn(false, Time(180));
        assert_eq!(times.show(&allowance, 7, Time(190)), shown(40, 30, 7));
        allowance.turn(true, Time(200));
        times.turn(Activity::Idle { since: Some(Time(210)) }, &allowance, Time(220));
        let most = shown(60, 40, 130);
        assert_eq!(
            times.show(&allowance, u64::MAX, Time(230)),
            most,
            "a device works no longer than time passes"
        );
    }

    #[test]
    fn state_that_is_seen_late_counts_from_its_own_time() {
        // It was suspended until 200, turned ready at 150 and idle at 190, which is seen after that.
        let (mut times, mut allowance) = (Times::default(), Allowance::default());
        times.turn(Activity::Idle { since: None }, &allowance, Time(100));
        allowance.turn(true, Time(100));
        allowance.turn(false, Time(160));
        times.turn(Activity::Ready { since: Time(150) }, &allowance, Time(170));
        allowance.turn(true, Time(200));
        times.turn(Activity::Idle { since: Some(Time(190)) }, &allowance, Time(210));
        let QueueTimes { ready_ns, running_ns, .. } = times.show(&allowance, 0, Time(300));
        assert_eq!((ready_ns, running_ns), (40, 10));
    }

    #[test]
    fn times_that_a_client_makes_up_count_nothing() {
        let (mut times, mut allowance) = (Times::default(), Allowance::default());
        allowance.turn(true, Time(90));
        times.turn(Activity::Ready { since: Time(1) }, &allowance, Time(100));
        times.turn(Activity::Ready { since: Time(u64::MAX >> 1) }, &allowance, Time(170));
        let most = QueueTimes { ready_ns: 70, running_ns: 70, worked_ns: 0 };
        assert_eq!(times.show(&allowance, 0, Time(170)), most);
        times.turn(Activity::Idle { since: Some(Time(2)) }, &allowance, Time(180));
        assert_eq!(times.show(&allowance, 0, Time(300)).ready_ns, 70);
    }
}
