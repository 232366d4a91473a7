//! A device: kernels at the heads of their queues, one at a time or a few that share it.
//!
//! Heads are taken in the order in which they reached the heads of their queues, so queues with work take turns. What runs
//! progresses at the device's full speed as long as the widths of all sum up to no more than the device, otherwise slower,
//! all alike. Progress is counted in 1024ths of a nanosecond of a *virtual* time that passes at that speed: a kernel ends
//! when the virtual time has reached its end, so that nothing but the sum changes when others come and go.

use super::request::WHOLE;
use std::collections::BTreeSet;

/// Virtual time that a nanosecond is at full speed.
pub(super) const FINE: u64 = 1024;

/// A queue, by its number in the simulation.
pub(super) type QueueIndex = u32;

/// What a device needs to know of the first kernel of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) queue: QueueIndex,
    /// When it reached the head of its queue, or arrives there, nanoseconds.
    pub(super) since: u64,
    /// Counts the heads, so that no two are equal.
    pub(super) order: u64,
    /// What is left of it, nanoseconds alone, and 1024ths of a nanosecond besides.
    pub(super) left: u64,
    /// How many nanoseconds it runs longer because it was taken off.
    pub(super) restore: u64,
    /// What part of the device it needs, in 1024ths.
    pub(super) width: u32,
}

impl Head {
    /// A kernel that has not run yet.
    pub(super) fn new(queue: QueueIndex, since: u64, order: u64, duration: u64, width: u32) -> Self {
        Self { queue, since, order, left: duration * FINE, restore: 0, width }
    }

    fn key(&self) -> (u64, u64) {
        (self.since, self.order)
    }
}

/// A kernel that is on the device.
#[derive(Debug, Clone, Copy)]
struct Resident {
    head: Head,
    /// The virtual time of its end.
    end: u64,
}

/// A head in the line, by its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting(Head);

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.key().cmp(&other.0.key())
    }
}

/// What a device did, nanoseconds. Busy, stalled and idle time together are all the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// At least one kernel ran.
    pub busy: u64,
    /// Kernels were being taken off.
    pub stalled: u64,
    /// Neither.
    pub idle: u64,
    /// What kernels ran longer because they had been taken off.
    pub restored: u64,
    /// How often a running kernel was taken off.
    pub saves: u64,
}

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    share: usize,
    /// Kernels that may run, by their turn.
    line: BTreeSet<Waiting>,
    residents: Vec<Resident>,
    /// The sum of the residents' widths.
    width: u64,
    virtual_now: u64,
    now: u64,
    stalled_until: u64,
    times: DeviceTimes,
}

impl Device {
    /// One that runs so many kernels at once.
    pub(super) fn new(share: u32) -> Self {
        Self {
            share: share as usize,
            line: BTreeSet::new(),
            residents: Vec::new(),
            width: 0,
            virtual_now: 0,
            now: 0,
            stalled_until: 0,
            times: DeviceTimes::default(),
        }
    }

    /// What it did until `now`.
    pub(super) fn times(&mut self, now: u64) -> DeviceTimes {
        self.advance(now);
        let restored: u64 = self.residents.iter().map(|resident| self.left_of(resident).1 / FINE).sum();
        DeviceTimes { restored: self.times.restored + restored, ..self.times }
    }

    /// Lets a kernel wait for its turn.
    pub(super) fn enter(&mut self, head: Head) {
        self.line.insert(Waiting(head));
    }

    /// Takes a kernel off, or out of the line, with what is left of it. `save` is for how long the device is busy with
    /// taking it off, `restore` how much longer it runs afterwards, if it has run already.
    pub(super) fn leave(&mut self, now: u64, head: &Head, save: u64, restore: u64) -> Head {
        self.advance(now);
        let Some(place) = self.residents.iter().position(|resident| resident.head.queue == head.queue) else {
            self.line.remove(&Waiting(*head));
            return *head;
        };
        let resident = self.residents.swap_remove(place);
        self.width -= u64::from(head.width);
        let (left, spent) = self.left_of(&resident);
        self.times.restored += spent / FINE;
        self.times.saves += 1;
        // Those that are taken off at once are saved at once.
        self.stalled_until = self.stalled_until.max(now + save);
        Head { left, restore, ..resident.head }
    }

    /// What is left of a resident's own work, and how much of the time that restoring it takes is over.
    fn left_of(&self, resident: &Resident) -> (u64, u64) {
        let (all, restore) = (resident.end.saturating_sub(self.virtual_now), resident.head.restore * FINE);
        // Restoring comes first.
        let left = all.min(resident.head.left);
        (left, restore - (all - left))
    }

    /// What the residents have done that has not ended, nanoseconds.
    pub(super) fn unfinished(&mut self, now: u64, queue: QueueIndex) -> Option<u64> {
        self.advance(now);
        let resident = self.residents.iter().find(|resident| resident.head.queue == queue)?;
        Some(self.left_of(resident).0)
    }

    /// Goes on to `now`: ends what has ended, which is added to `ended` in the order of its ends, and begins what can.
    pub(super) fn proceed(&mut self, now: u64, ended: &mut Vec<QueueIndex>) {
        self.advance(now);
        let first = ended.len();
        let mut place = 0;
        while let Some(resident) = self.residents.get(place) {
            if resident.end <= self.virtual_now {
                self.times.restored += resident.head.restore;
                self.width -= u64::from(resident.head.width);
                ended.push(resident.head.queue);
                self.residents.swap_remove(place);
            } else {
                place += 1;
            }
        }
        // All of them end now.
        ended[first..].sort_unstable();
        self.fill(now);
    }

    /// Begins what can.
    pub(super) fn fill(&mut self, now: u64) {
        self.advance(now);
        while self.stalled_until <= now && self.residents.len() < self.share {
            let Some(Waiting(head)) = self.line.first().copied().filter(|Waiting(head)| head.since <= now)
            else {
                break;
            };
            self.line.pop_first();
            self.width += u64::from(head.width);
            let end = self.virtual_now + head.left + head.restore * FINE;
            self.residents.push(Resident { head, end });
        }
    }

    /// When something happens by itself, nanoseconds.
    pub(super) fn next(&self) -> Option<u64> {
        let begun = self.now.max(self.stalled_until);
        let end = self.residents.iter().map(|resident| resident.end).min();
        // Rounded up, so that the virtual time has reached the end by then.
        let pace = u128::from(self.pace());
        let after = |left: u64| (u128::from(left) * pace).div_ceil(u128::from(FINE * u64::from(WHOLE)));
        let end = end.map(|end| begun.saturating_add(after(end.saturating_sub(self.virtual_now)) as u64));
        let room = self.residents.len() < self.share;
        let begin = self.line.first().filter(|_| room).map(|Waiting(head)| head.since.max(begun));
        [end, begin].into_iter().flatten().min()
    }

    /// Over how many 1024ths of a device its speed is spread.
    fn pace(&self) -> u64 {
        self.width.max(u64::from(WHOLE))
    }

    fn advance(&mut self, now: u64) {
        let from = self.stalled_until.clamp(self.now, now.max(self.now));
        let (stalled, free) = (from - self.now, now.saturating_sub(from));
        self.times.stalled += stalled;
        if self.residents.is_empty() {
            self.times.idle += free;
        } else {
            self.times.busy += free;
            let moved = u128::from(free) * u128::from(FINE * u64::from(WHOLE)) / u128::from(self.pace());
            self.virtual_now += moved as u64;
        }
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a device work until it has nothing more to do: each end with its time.
    fn run(device: &mut Device) -> Vec<(u64, QueueIndex)> {
        let mut ends = Vec::new();
        while let Some(at) = device.next() {
            let mut ended = Vec::new();
            device.proceed(at, &mut ended);
            ends.extend(ended.into_iter().map(|queue| (at, queue)));
        }
        ends
    }

    fn head(queue: QueueIndex, since: u64, duration: u64) -> Head {
        Head::new(queue, since, u64::from(queue), duration, WHOLE)
    }

    #[test]
    fn one_at_a_time_in_turn() {
        let mut device = Device::new(1);
        device.enter(head(1, 10, 100));
        device.enter(head(2, 10, 50));
        device.enter(head(3, 5, 20));
        assert_eq!(run(&mut device), [(25, 3), (125, 1), (175, 2)]);
        assert_eq!(device.times(200), DeviceTimes { busy: 170, idle: 30, ..DeviceTimes::default() });
    }

    #[test]
    fn what_is_taken_off_comes_back_with_what_is_left() {
        let mut device = Device::new(1);
        let low = head(1, 0, 100);
        device.enter(low);
        device.enter(head(2, 40, 10));
        device.fill(0);
        let low = device.leave(30, &low, 7, 5);
        assert_eq!((low.left, low.restore), (70 * FINE, 5));
        // Saved at 37; the other begins at 40 and ends at 50.
        let mut ended = Vec::new();
        device.proceed(37, &mut ended);
        device.proceed(40, &mut ended);
        device.enter(low);
        device.proceed(50, &mut ended);
        assert_eq!(ended, [2]);
        // It is taken off again while it is restored: nothing of its work is done.
        let low = device.leave(53, &low, 0, 5);
        assert_eq!(low.left, 70 * FINE);
        device.enter(low);
        device.fill(53);
        assert_eq!(device.times(55).restored, 3 + 2);
        assert_eq!(run(&mut device), [(53 + 75, 1)]);
        let times = device.times(128);
        assert_eq!(
            times,
            DeviceTimes { busy: 30 + 10 + 3 + 75, stalled: 7, idle: 3, restored: 3 + 5, saves: 2 }
        );
    }

    #[test]
    fn several_share_the_device() {
        let mut device = Device::new(3);
        for (queue, duration) in [(1, 100), (2, 100), (3, 50)] {
            device.enter(head(queue, 0, duration));
        }
        device.fill(0);
        // A third of the speed until 150, then half.
        assert_eq!(run(&mut device), [(150, 3), (250, 1), (250, 2)]);
    }

    #[test]
    fn what_fits_beside_each_other_does_not_slow_each_other() {
        let mut device = Device::new(2);
        device.enter(Head { width: WHOLE / 4, ..head(1, 0, 100) });
        device.enter(Head { width: WHOLE / 2, ..head(2, 0, 60) });
        device.enter(Head { width: WHOLE, ..head(3, 0, 50) });
        device.fill(0);
        // From 60 on a quarter and a whole share it: 1.25 times as long. 40 are left of the first.
        assert_eq!(run(&mut device), [(60, 2), (110, 1), (120, 3)]);
        assert_eq!(device.times(120).busy, 120);
    }

    #[test]
    fn a_kernel_out_of_the_line_has_not_run() {
        let mut device = Device::new(1);
        let (one, two) = (head(1, 0, 10), head(2, 0, 10));
        device.enter(one);
        device.enter(two);
        device.fill(0);
        assert_eq!(device.leave(5, &two, 99, 99), two);
        assert_eq!(device.unfinished(5, 1), Some(5 * FINE));
        assert_eq!(run(&mut device), [(10, 1)]);
        assert_eq!(device.times(10).saves, 0);
    }
}
