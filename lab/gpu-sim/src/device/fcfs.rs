//! One kernel at a time, in the order of arrival: the device as a single server.
//!
//! This is the worst case for an urgent kernel, because kernels never run side by side. A kernel keeps the
//! device until it ends or its queue is evicted. Saved work runs first once its queue is restored.

use std::collections::{BTreeSet, VecDeque};

use super::model::{Model, Progress, QueueKey, Time, Work, WorkId};

#[derive(Debug, Default)]
pub struct Fcfs {
    running: Option<(Job, Time)>,
    waiting: VecDeque<Job>,
    evicted: BTreeSet<QueueKey>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    id: WorkId,
    queue: QueueKey,
    left: Time,
    start: Option<Time>,
}

impl Fcfs {
    fn place(&mut self, now: Time, out: &mut Vec<Progress>) {
        if self.running.is_some() {
            return;
        }
        let Some(at) = self.waiting.iter().position(|job| !self.evicted.contains(&job.queue)) else { return };
        let Some(mut job) = self.waiting.remove(at) else { return };
        if job.start.is_none() {
            out.push(Progress::Launched(job.id));
        }
        job.start.get_or_insert(now);
        self.running = Some((job, now.saturating_add(job.left)));
    }
}

impl Model for Fcfs {
    fn submit(&mut self, now: Time, work: Work, out: &mut Vec<Progress>) {
        self.waiting.push_back(Job { id: work.id, queue: work.queue, left: work.alone, start: None });
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
            out.push(Progress::Done { id: job.id, start: job.start.unwrap_or(end), end });
        }
        self.place(now, out);
    }

    fn evict(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>) {
        self.evicted.extend(queues);
        if let Some((mut job, end)) = self.running
            && self.evicted.contains(&job.queue)
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

    fn remove(&mut self, now: Time, queue: QueueKey, out: &mut Vec<Progress>) {
        self.evicted.remove(&queue);
        self.waiting.retain(|job| job.queue != queue);
        self.running.take_if(|(job, _)| job.queue == queue);
        self.place(now, out);
    }

    fn busy(&self) -> bool {
        self.running.is_some()
    }

    fn runs(&self, queue: QueueKey) -> bool {
        self.running.is_some_and(|(job, _)| job.queue == queue)
    }

    fn running(&self, pids: &mut Vec<i32>) {
        pids.extend(self.running.map(|(job, _)| job.queue.pid));
    }
}

#[cfg(test)]
mod tests {
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
}
