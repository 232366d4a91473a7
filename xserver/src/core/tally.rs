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

/// The times of a queue.
#[derive(Debug, Default)]
pub(super) struct Times {
    ready_ns: u64,
    running_ns: u64,
    /// The time up to which these count.
    until: Time,
    ready: bool,
    runs: bool,
    /// The time at which the server learnt of it; none before the first state.
    since: Option<Time>,
    /// The part of the device's work for it that is in [`Totals::work`].
    counted_ns: u64,
}

impl Times {
    /// Notes what the queue does and since when. `runs` is true if its process may launch.
    pub fn turn(&mut self, activity: Activity, runs: bool, now: Time) {
        if self.since.is_none() {
            (self.since, self.until, self.runs) = (Some(now), now, runs);
        }
        let (ready, since) = match activity {
            Activity::Ready { since } => (true, Some(since)),
            Activity::Idle { since } => (false, since),
        };
        // The time comes from another process.
        self.pass(since.unwrap_or(now).min(now));
        self.ready = ready;
        self.pass(now);
    }

    /// Notes if its process may launch.
    pub fn permit(&mut self, runs: bool, now: Time) {
        self.pass(now);
        self.runs = runs;
    }

    fn pass(&mut self, until: Time) {
        let span = nanos(self.until, until);
        self.ready_ns += if self.ready { span } else { 0 };
        self.running_ns += if self.ready && self.runs { span } else { 0 };
        self.until = self.until.max(until);
    }

    /// Returns the times up to now, with what the client says about the device's work.
    pub fn show(&self, worked_ns: u64, now: Time) -> QueueTimes {
        let span = if self.ready { nanos(self.until, now) } else { 0 };
        let running = if self.runs { span } else { 0 };
        QueueTimes {
            ready_ns: self.ready_ns + span,
            running_ns: self.running_ns + running,
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
    /// Notes that a client may run now or no longer, if it has work, and the level at which it is suspended.
    pub fn turn(
        &mut self,
        state: (bool, bool, PreemptLevel),
        page: &impl ClientPage,
        totals: &mut Totals,
        now: Time,
    ) {
        let (runs, works, level) = state;
        if runs {
            let Some((since, evictions)) = self.suspended.take() else { return };
            totals.suspensions.add(now.since(since));
            let preemption = page.preemption();
            if let Some(stood_at) = preemption.stood_at.filter(|_| preemption.holds > evictions) {
                totals.evictions.add(Time(stood_at).clamp(since, now).since(since));
            }
        } else if works {
            self.suspended = Some((now, page.preemption().holds));
            self.preemptions += 1;
            let level = usize::try_from(level.number()).unwrap_or(1).clamp(1, 3);
            totals.preemptions[level - 1] += 1;
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
        let mut times = Times::default();
        times.turn(Activity::Idle { since: None }, true, Time(100));
        times.turn(Activity::Ready { since: Time(150) }, true, Time(160));
        assert_eq!(times.show(7, Time(170)), QueueTimes { ready_ns: 20, running_ns: 20, worked_ns: 7 });
        times.permit(false, Time(180));
        times.permit(true, Time(200));
        times.turn(Activity::Idle { since: Some(Time(210)) }, true, Time(220));
        let shown = QueueTimes { ready_ns: 60, running_ns: 40, worked_ns: 130 };
        assert_eq!(times.show(u64::MAX, Time(230)), shown, "a device works no longer than time passes");
    }

    #[test]
    fn times_that_a_client_makes_up_count_nothing() {
        let mut times = Times::default();
        times.turn(Activity::Ready { since: Time(1) }, true, Time(100));
        times.turn(Activity::Ready { since: Time(u64::MAX >> 1) }, true, Time(170));
        let most = QueueTimes { ready_ns: 70, running_ns: 70, worked_ns: 0 };
        assert_eq!(times.show(0, Time(170)), most);
        times.turn(Activity::Idle { since: Some(Time(2)) }, true, Time(180));
        assert_eq!(times.show(0, Time(300)).ready_ns, 70);
    }
}
