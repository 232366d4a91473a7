//! A device: runs kernels at the heads of their queues, one at a time or a few that share it.
//!
//! Heads run in the order in which they reached the heads of their queues, so queues with work alternate.
//! Running kernels progress at full speed as long as their widths sum up to at most the device, otherwise all
//! equally slower. Progress is counted in 1024ths of a nanosecond of a *virtual* time that passes at that
//! speed. A kernel ends when the virtual time reaches its end, so that only the sum of widths changes when
//! other kernels begin and end.

use super::request::WHOLE;
use std::collections::BTreeMap;

/// The virtual time of a nanosecond at full speed.
pub(super) const FINE: u64 = 1024;

/// The number of a queue in the simulation.
pub(super) type QueueIndex = u32;

/// The first kernel of a queue, as its device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) queue: QueueIndex,
    /// The moment at which it reaches the head of its queue, nanoseconds.
    pub(super) since: u64,
    /// The number of the head, which makes it unique.
    pub(super) order: u64,
    /// The remaining work, 1024ths of a nanosecond alone.
    pub(super) left: u64,
    /// The additional run time after an eviction, nanoseconds.
    pub(super) restore: u64,
    /// The share of the device that it needs, in 1024ths.
    pub(super) width: u32,
}

impl Head {
    /// Creates the head of a kernel that has not run yet.
    pub(super) fn new(queue: QueueIndex, since: u64, order: u64, duration: u64, width: u32) -> Self {
        Self { queue, since, order, left: duration * FINE, restore: 0, width }
    }

    fn key(&self) -> (u64, u64) {
        (self.since, self.order)
    }
}

#[derive(Debug, Clone, Copy)]
struct Resident {
    head: Head,
    end: u64,
    /// The moment at which it began to run, nanoseconds.
    since: u64,
}

/// A time in which a kernel ran on the device without interruption, or in which running work was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// `None` for saving.
    pub(super) queue: Option<QueueIndex>,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The part of it in which the kernel was restored, which comes first.
    pub(super) restored: u64,
}

/// The times of a device, nanoseconds. Busy, stalled and idle time sum up to the whole time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// The time in which at least one kernel ran.
    pub busy: u64,
    /// The time of evictions.
    pub stalled: u64,
    /// The remaining time.
    pub idle: u64,
    /// The additional run time of evicted kernels.
    pub restored: u64,
    /// The evictions of running kernels.
    pub saves: u64,
}

#[derive(Debug, Default)]
pub(super) struct Device {
    share: usize,
    /// The kernels that may run, by moment and number of their heads.
    line: BTreeMap<(u64, u64), Head>,
    residents: Vec<Resident>,
    width: u64,
    virtual_now: u64,
    now: u64,
    stalled_until: u64,
    times: DeviceTimes,
    keeps_spans: bool,
    /// The ended times of kernels and of saving, if they are kept.
    spans: Vec<Span>,
}

impl Device {
    pub(super) fn new(share: u32) -> Self {
        Self { share: share as usize, ..Self::default() }
    }

    /// Keeps the times of kernels and of saving.
    pub(super) fn keep_spans(&mut self) {
        self.keeps_spans = true;
    }

    /// Returns the kept times up to now, in no order.
    pub(super) fn take_spans(&mut self, now: u64) -> Vec<Span> {
        self.advance(now);
        let mut spans = std::mem::take(&mut self.spans);
        let running = self.residents.iter().map(|resident| self.span_of(resident));
        spans.extend(running);
        spans
    }

    /// Returns the time in which a resident ran so far.
    fn span_of(&self, resident: &Resident) -> Span {
        let restored = self.left_of(resident).1 / FINE;
        let Resident { head, since, .. } = *resident;
        Span { queue: Some(head.queue), from: since, to: self.now, restored }
    }

    pub(super) fn times(&mut self, now: u64) -> DeviceTimes {
        self.advance(now);
        let restored: u64 = self.residents.iter().map(|resident| self.left_of(resident).1 / FINE).sum();
        DeviceTimes { restored: self.times.restored + restored, ..self.times }
    }

    /// Adds a kernel to the waiting ones.
    pub(super) fn enter(&mut self, head: Head) {
        self.line.insert(head.key(), head);
    }

    /// Evicts a running kernel or removes a waiting one, and returns its head with the remaining work. `save`
    /// is the device time of the eviction, `restore` the additional run time afterwards, both only for a
    /// running kernel.
    pub(super) fn leave(&mut self, now: u64, head: &Head, save: u64, restore: u64) -> Head {
        self.advance(now);
        let Some(place) = self.residents.iter().position(|resident| resident.head.queue == head.queue) else {
            self.line.remove(&head.key());
            return *head;
        };
        let resident = self.residents.swap_remove(place);
        if self.keeps_spans {
            let saving = Span { queue: None, from: now, to: now + save, restored: 0 };
            self.spans.extend([self.span_of(&resident), saving]);
        }
        self.width -= u64::from(head.width);
        let (left, spent) = self.left_of(&resident);
        self.times.restored += spent / FINE;
        self.times.saves += 1;
        // Kernels that are evicted at the same time are saved in parallel.
        self.stalled_until = self.stalled_until.max(now + save);
        Head { left, restore, ..resident.head }
    }

    /// Returns the remaining own work of a resident, and the elapsed part of its restoration.
    fn left_of(&self, resident: &Resident) -> (u64, u64) {
        let (all, restore) = (resident.end.saturating_sub(self.virtual_now), resident.head.restore * FINE);
        // Restoring comes first.
        let left = all.min(resident.head.left);
        (left, restore - (all - left))
    }

    /// Returns the remaining work of a running kernel; `None` if the queue's kernel does not run.
    pub(super) fn unfinished(&mut self, now: u64, queue: QueueIndex) -> Option<u64> {
        self.advance(now);
        let resident = self.residents.iter().find(|resident| resident.head.queue == queue)?;
        Some(self.left_of(resident).0)
    }

    /// Advances to `now`: ends kernels, whose queues are added to `ended`, and begins others.
    pub(super) fn proceed(&mut self, now: u64, ended: &mut Vec<QueueIndex>) {
        self.advance(now);
        let first = ended.len();
        let mut place = 0;
        while let Some(resident) = self.residents.get(place) {
            if resident.end <= self.virtual_now {
                if self.keeps_spans {
                    self.spans.push(self.span_of(resident));
                }
                self.times.restored += resident.head.restore;
                self.width -= u64::from(resident.head.width);
                ended.push(resident.head.queue);
                self.residents.swap_remove(place);
            } else {
                place += 1;
            }
        }
        // All of them end at the same moment, so the order is by number.
        ended[first..].sort_unstable();
        self.fill(now);
    }

    /// Begins waiting kernels if there is room.
    pub(super) fn fill(&mut self, now: u64) {
        self.advance(now);
        while self.stalled_until <= now && self.residents.len() < self.share {
            let Some(first) = self.line.first_entry().filter(|first| first.get().since <= now) else { break };
            let head = first.remove();
            self.width += u64::from(head.width);
            let end = self.virtual_now + head.left + head.restore * FINE;
            self.residents.push(Resident { head, end, since: now });
        }
    }

    /// Returns the moment of the next begin or end, nanoseconds.
    pub(super) fn next(&self) -> Option<u64> {
        let begun = self.now.max(self.stalled_until);
        let end = self.residents.iter().map(|resident| resident.end).min();
        // Rounded up, so that the virtual time has reached the end at that moment.
        let pace = u128::from(self.pace());
        let after = |left: u64| (u128::from(left) * pace).div_ceil(u128::from(FINE * u64::from(WHOLE)));
        let end = end.map(|end| begun.saturating_add(after(end.saturating_sub(self.virtual_now)) as u64));
        let room = self.residents.len() < self.share;
        let begin = self.line.first_key_value().filter(|_| room).map(|(_, head)| head.since.max(begun));
        [end, begin].into_iter().flatten().min()
    }

    /// Returns the 1024ths of a device over which its speed is spread.
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

    /// Runs a device until it is idle, and returns each end with its moment.
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
    fn kernels_run_one_at_a_time_in_order() {
        let mut device = Device::new(1);
        device.enter(head(1, 10, 100));
        device.enter(head(2, 10, 50));
        device.enter(head(3, 5, 20));
        assert_eq!(run(&mut device), [(25, 3), (125, 1), (175, 2)]);
        assert_eq!(device.times(200), DeviceTimes { busy: 170, idle: 30, ..DeviceTimes::default() });
    }

    #[test]
    fn evicted_kernel_continues_with_its_remaining_work() {
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
        // It is evicted again while it is restored, before any of its work is done.
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
    fn kernels_share_the_device_equally() {
        let mut device = Device::new(3);
        for (queue, duration) in [(1, 100), (2, 100), (3, 50)] {
            device.enter(head(queue, 0, duration));
        }
        device.fill(0);
        // A third of the speed until 150, then half.
        assert_eq!(run(&mut device), [(150, 3), (250, 1), (250, 2)]);
    }

    #[test]
    fn narrow_kernels_do_not_slow_each_other() {
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
    fn removed_waiting_kernel_has_not_run() {
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
