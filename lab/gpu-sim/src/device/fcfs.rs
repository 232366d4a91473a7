//! One kernel at a time, in the order of arrival: the device as a single server.
//!
//! This is the worst case for an urgent kernel, because kernels never run side by side. A kernel keeps the
//! device until it ends or its queue is evicted. Saved work runs first once its queue is restored. A queue of higher
//! priority comes before the others, and a kernel of a queue with fewer slots than the device takes more rounds.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use super::model::{Model, Progress, Properties, PropertyMap, QueueKey, Time, Work, rounds};

#[derive(Debug, Default)]
pub struct Fcfs {
    slots: u32,
    running: Option<(Job, Time)>,
    waiting: VecDeque<Job>,
    evicted: BTreeSet<QueueKey>,
    properties: PropertyMap,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    work: Work,
    /// The rest of its time, once it has begun.
    left: Time,
    start: Option<Time>,
}

impl Fcfs {
    /// Makes a device with this number of wave slots.
    pub fn new(slots: u32) -> Self {
        Self { slots, ..Self::default() }
    }

    /// Returns the time that a kernel takes on the slots of its queue.
    fn time(&self, work: &Work) -> Time {
        let Some(slots) = self.properties.of(work.queue).slots else { return work.alone };
        let all = rounds(self.slots, work.groups, work.cost).max(1);
        let own = rounds(slots.min(self.slots), work.groups, work.cost);
        let time = u128::from(work.alone) * u128::from(own) / u128::from(all);
        time.try_into().unwrap_or(Time::MAX)
    }

    fn place(&mut self, now: Time, out: &mut Vec<Progress>) {
        if self.running.is_some() {
            return;
        }
        let ready =
            self.waiting.iter().enumerate().filter(|(_, job)| !self.evicted.contains(&job.work.queue));
        let first = ready.min_by_key(|(_, job)| Reverse(self.properties.of(job.work.queue).priority));
        let Some((at, _)) = first else { return };
        let Some(mut job) = self.waiting.remove(at) else { return };
        if job.start.is_none() {
            out.push(Progress::Launched(job.work.id));
            (job.start, job.left) = (Some(now), self.time(&job.work));
        }
        self.running = Some((job, now.saturating_add(job.left)));
    }
}

impl Model for Fcfs {
    fn submit(&mut self, now: Time, work: Work, out: &mut Vec<Progress>) {
        self.waiting.push_back(Job { work, left: work.alone, start: None });
        self.place(now, out);
    }

    fn next(&self) -> Option<Time> {
        self.running.map(|(_, end)| end)
    }

    fn advance(&mut self, now: Time, out: &mut Vec<Progress>) {
        if let Some((job, end)) = self.running
            && end <= now
        {
            self.running = None;
            out.push(Progress::Done { id: job.work.id, start: job.start.unwrap_or(end), end });
        }
        self.place(now, out);
    }

    fn evict(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>) {
        self.evicted.extend(queues);
        if let Some((mut job, end)) = self.running
            && self.evicted.contains(&job.work.queue)
        {
            job.left = end.saturating_sub(now);
            self.running = None;
            self.waiting.push_front(job);
        }
        self.place(now, out);
    }

    fn restore(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>) {
        self.evicted.retain(|queue| !queues.contains(queue));
        self.place(now, out);
    }

    fn properties(&self, queue: QueueKey) -> Properties {
        self.properties.of(queue)
    }

    fn set_properties(&mut self, _: Time, queue: QueueKey, properties: Properties, _: &mut Vec<Progress>) {
        // Whatever waits does so because the device is busy or its queue is evicted.
        self.properties.set(queue, properties);
    }

    fn remove(&mut self, now: Time, queue: QueueKey, out: &mut Vec<Progress>) {
        self.properties.remove(queue);
        self.evicted.remove(&queue);
        self.waiting.retain(|job| job.work.queue != queue);
        self.running.take_if(|(job, _)| job.work.queue == queue);
        self.place(now, out);
    }

    fn busy(&self) -> bool {
        self.running.is_some()
    }

    fn runs(&self, queue: QueueKey) -> bool {
        self.running.is_some_and(|(job, _)| job.work.queue == queue)
    }

    fn running(&self, pids: &mut Vec<i32>) {
        pids.extend(self.running.map(|(job, _)| job.work.queue.pid));
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::WorkId;
    use super::*;

    const A: QueueKey = QueueKey { pid: 1, id: 0 };
    const B: QueueKey = QueueKey { pid: 2, id: 0 };

    fn work(id: WorkId, queue: QueueKey, alone: Time) -> Work {
        Work { id, queue, groups: 1, cost: 1, alone }
    }

    #[test]
    fn kernels_run_one_at_a_time_in_order() {
        let (mut model, mut out) = (Fcfs::default(), Vec::new());
        model.submit(0, work(1, A, 100), &mut out);
        model.submit(1, work(2, B, 10), &mut out);
        assert_eq!(out, [Progress::Launched(1)]);
        model.advance(100, &mut out);
        assert_eq!(out[1..], [Progress::Done { id: 1, start: 0, end: 100 }, Progress::Launched(2)]);
        assert_eq!(model.next(), Some(110));
    }

    #[test]
    fn evicted_kernel_lets_others_pass_and_returns_first() {
        let (mut model, mut out) = (Fcfs::default(), Vec::new());
        model.submit(0, work(1, A, 100), &mut out);
        model.submit(0, work(2, B, 10), &mut out);
        model.submit(0, work(3, B, 10), &mut out);
        model.evict(40, &[A], &mut out);
        assert_eq!(model.next(), Some(50));
        model.restore(45, &[A], &mut out);
        model.advance(50, &mut out);
        assert_eq!(model.next(), Some(110), "60 ns were left at time 50");
        model.remove(60, A, &mut out);
        assert_eq!(model.next(), Some(70));
        model.advance(70, &mut out);
        assert!(!model.busy());
        assert_eq!(out.iter().filter(|p| matches!(p, Progress::Launched(_))).count(), 3);
    }

    #[test]
    fn kernel_of_a_masked_queue_takes_the_rounds_of_its_slots() {
        let (mut model, mut out) = (Fcfs::new(100), Vec::new());
        model.set_properties(0, A, Properties { slots: Some(25), ..Properties::default() }, &mut out);
        // Of 200 work-groups 100 fit at once on the device, and 25 on the slots of the queue.
        let large = |id, queue| Work { groups: 200, ..work(id, queue, 1_000) };
        model.submit(0, large(1, A), &mut out);
        assert_eq!(model.next(), Some(4_000));
        model.advance(4_000, &mut out);
        model.submit(4_000, large(2, B), &mut out);
        assert_eq!(model.next(), Some(5_000), "other queues have the whole device");
        model.submit(4_000, Work { groups: 25, ..work(3, A, 1_000) }, &mut out);
        model.advance(5_000, &mut out);
        assert_eq!(model.next(), Some(6_000), "a grid that fits takes its time");
    }

    #[test]
    fn queue_of_higher_priority_comes_first_and_interrupts_nothing() {
        let (mut model, mut out) = (Fcfs::new(100), Vec::new());
        model.set_properties(0, B, Properties { priority: 1, ..Properties::default() }, &mut out);
        for (id, queue) in [(1, A), (2, A), (3, B), (4, B)] {
            model.submit(0, work(id, queue, 10), &mut out);
        }
        while let Some(end) = model.next() {
            model.advance(end, &mut out);
        }
        let done = |p: &Progress| if let Progress::Done { id, .. } = *p { Some(id) } else { None };
        assert_eq!(out.iter().filter_map(done).collect::<Vec<_>>(), [1, 3, 4, 2]);
    }
}
