//! The default model: work-groups of all queues share the device and are placed round-robin as slots become
//! free.
//!
//! There is no time slicing: a running work-group leaves only when it ends or its queue is evicted. Each
//! work-group of a kernel takes the kernel's time alone divided by its rounds, so that the kernel alone takes
//! exactly that time. Work-groups that are placed at the same instant form one batch, so that the cost of a
//! step does not depend on the grid. Two concurrent kernels of different times would split each other's
//! batches down to single work-groups, hundreds of thousands of steps per millisecond. Therefore a work-group
//! joins the batch of its kernel with the nearest end, if that is within [`tolerance`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use super::model::{Model, Progress, QueueKey, Time, Work, WorkId, rounds};

#[derive(Debug, Default)]
pub struct Shared {
    slots: u32,
    free: u32,
    kernels: BTreeMap<WorkId, Kernel>,
    /// Queues with work-groups to place, in round-robin order.
    order: VecDeque<QueueKey>,
    /// Kernels with work-groups to place, of each queue, in launch order.
    waiting: BTreeMap<QueueKey, VecDeque<WorkId>>,
    ends: BinaryHeap<Reverse<(Time, WorkId)>>,
    evicted: BTreeSet<QueueKey>,
}

/// Work-groups to place, of equal duration.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    groups: u64,
    each: Time,
}

#[derive(Debug)]
struct Kernel {
    queue: QueueKey,
    cost: u32,
    start: Option<Time>,
    launched: bool,
    to_place: VecDeque<Chunk>,
    /// Running work-groups by end time.
    running: BTreeMap<Time, u64>,
}

/// Returns the time by which a work-group may end earlier or later than by its own duration, to join a batch:
/// a 32nd of its duration, or 1 µs if that is more, but never more than a quarter of it.
fn tolerance(each: Time) -> Time {
    (each / 32).max(1_000.min(each / 4))
}

impl Kernel {
    /// Returns the end of a work-group of duration `each` that is placed at `now`.
    fn end_of(&self, now: Time, each: Time) -> Time {
        let end = now.saturating_add(each);
        let within = tolerance(each);
        let later = self.running.range(end..=end.saturating_add(within)).next();
        let earlier = self.running.range((now + 1).max(end - within)..end.max(now + 1)).next_back();
        let near = [later, earlier].into_iter().flatten().map(|(at, _)| *at);
        near.min_by_key(|at| at.abs_diff(end)).unwrap_or(end)
    }

    /// Returns the earliest time at which the last work-group is placed or, if that has happened, ends.
    /// `next` is the time at which the next work-group of the device ends and frees slots; at most `slots`
    /// are free then.
    fn visible(&self, next: Time, slots: u32) -> Time {
        let Some(chunk) = self.to_place.front() else {
            return self.running.last_key_value().map_or(next, |(end, _)| *end);
        };
        if self.to_place.len() > 1 {
            return next;
        }
        let rounds = chunk.groups.div_ceil(u64::from((slots / self.cost).max(1)));
        let each = chunk.each - tolerance(chunk.each);
        next.saturating_add(rounds.saturating_sub(1).saturating_mul(each))
    }
}

impl Shared {
    /// Makes a device with this number of wave slots.
    pub fn new(slots: u32) -> Self {
        Self { slots, free: slots, ..Self::default() }
    }

    fn enqueue(&mut self, queue: QueueKey, id: WorkId) {
        let line = self.waiting.entry(queue).or_default();
        if let Err(at) = line.binary_search(&id) {
            // Ids grow in launch order, so that saved work comes before later kernels.
            line.insert(at, id);
        }
        if !self.evicted.contains(&queue) && !self.order.contains(&queue) {
            self.order.push_back(queue);
        }
    }

    /// Places work-groups until no queue has one that fits.
    fn place(&mut self, now: Time, out: &mut Vec<Progress>) {
        while self.free > 0 && !self.order.is_empty() {
            // Each round places one work-group of the first kernel of each queue; whole rounds are placed at
            // once while they fit.
            let fronts: Vec<(QueueKey, WorkId, u32, u64)> = self
                .order
                .iter()
                .filter_map(|queue| {
                    let id = *self.waiting.get(queue)?.front()?;
                    let kernel = self.kernels.get(&id)?;
                    Some((*queue, id, kernel.cost, kernel.to_place.front()?.groups))
                })
                .collect();
            let round_cost: u32 = fronts.iter().map(|f| f.2).sum();
            let least = fronts.iter().map(|f| f.3).min().unwrap_or(0);
            let rounds = u64::from(self.free / round_cost.max(1)).min(least);
            if rounds > 0 {
                for (queue, id, ..) in fronts {
                    self.start(now, queue, id, rounds, out);
                }
                continue;
            }
            let mut placed = false;
            for (queue, id, cost, _) in fronts {
                if cost <= self.free {
                    self.start(now, queue, id, 1, out);
                    placed = true;
                    // The next round begins after the queue that was served last.
                    if let Some(at) = self.order.iter().position(|q| *q == queue) {
                        self.order.rotate_left((at + 1) % self.order.len());
                    }
                }
            }
            if !placed {
                break;
            }
        }
    }

    fn start(&mut self, now: Time, queue: QueueKey, id: WorkId, groups: u64, out: &mut Vec<Progress>) {
        let Some(kernel) = self.kernels.get_mut(&id) else { return };
        let Some(chunk) = kernel.to_place.front_mut() else { return };
        let each = chunk.each;
        chunk.groups -= groups;
        if chunk.groups == 0 {
            kernel.to_place.pop_front();
        }
        let end = kernel.end_of(now, each);
        self.free -= kernel.cost * groups as u32;
        kernel.start.get_or_insert(now);
        let batch = kernel.running.entry(end).or_insert(0);
        if *batch == 0 {
            self.ends.push(Reverse((end, id)));
        }
        *batch += groups;
        if kernel.to_place.is_empty() {
            if !kernel.launched {
                kernel.launched = true;
                out.push(Progress::Launched(id));
            }
            let line = self.waiting.get_mut(&queue);
            if line.is_some_and(|line| {
                line.retain(|other| *other != id);
                line.is_empty()
            }) {
                self.waiting.remove(&queue);
                self.order.retain(|other| *other != queue);
            }
        }
    }
}

impl Model for Shared {
    fn submit(&mut self, now: Time, work: Work, out: &mut Vec<Progress>) {
        let rounds = rounds(self.slots, work.groups, work.cost);
        // A grid of more rounds than the kernel has nanoseconds costs steps and changes nothing.
        let most = work.alone.max(1).saturating_mul(u64::from((self.slots / work.cost).max(1)));
        let chunk = Chunk { groups: work.groups.min(most), each: work.alone.div_ceil(rounds) };
        let kernel = Kernel {
            queue: work.queue,
            cost: work.cost,
            start: None,
            launched: false,
            to_place: VecDeque::from([chunk]),
            running: BTreeMap::new(),
        };
        self.kernels.insert(work.id, kernel);
        self.enqueue(work.queue, work.id);
        self.place(now, out);
    }

    fn next(&self) -> Option<Time> {
        self.ends.peek().map(|Reverse((end, _))| *end)
    }

    fn next_visible(&self) -> Option<Time> {
        let next = self.next()?;
        self.kernels.values().map(|kernel| kernel.visible(next, self.slots)).min()
    }

    fn advance(&mut self, now: Time, out: &mut Vec<Progress>) {
        while let Some(&Reverse((end, id))) = self.ends.peek()
            && end <= now
        {
            self.ends.pop();
            let Some(kernel) = self.kernels.get_mut(&id) else { continue };
            // The entry of an evicted batch stays in `ends`.
            let Some(groups) = kernel.running.remove(&end) else { continue };
            self.free += kernel.cost * groups as u32;
            if kernel.running.is_empty() && kernel.to_place.is_empty() {
                out.push(Progress::Done { id, start: kernel.start.unwrap_or(end), end });
                self.kernels.remove(&id);
            }
        }
        self.place(now, out);
    }

    fn evict(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>) {
        let new: Vec<QueueKey> = queues.iter().copied().filter(|queue| self.evicted.insert(*queue)).collect();
        if new.is_empty() {
            return;
        }
        self.order.retain(|other| !new.contains(other));
        let mut unplaced = Vec::new();
        for (id, kernel) in self.kernels.iter_mut().filter(|(_, kernel)| new.contains(&kernel.queue)) {
            for (end, groups) in std::mem::take(&mut kernel.running).into_iter().rev() {
                self.free += kernel.cost * groups as u32;
                kernel.to_place.push_front(Chunk { groups, each: end.saturating_sub(now) });
            }
            if !kernel.to_place.is_empty() {
                unplaced.push((kernel.queue, *id));
            }
        }
        unplaced.into_iter().for_each(|(queue, id)| self.enqueue(queue, id));
        let kernels = &self.kernels;
        self.ends.retain(|Reverse((_, id))| kernels.get(id).is_some_and(|k| !new.contains(&k.queue)));
        self.place(now, out);
    }

    fn restore(&mut self, now: Time, queues: &[QueueKey], out: &mut Vec<Progress>) {
        let mut any = false;
        for queue in queues.iter().filter(|queue| self.evicted.remove(queue)) {
            any = true;
            if self.waiting.contains_key(queue) && !self.order.contains(queue) {
                self.order.push_back(*queue);
            }
        }
        if any {
            self.place(now, out);
        }
    }

    fn remove(&mut self, now: Time, queue: QueueKey, out: &mut Vec<Progress>) {
        let mut freed = 0;
        self.kernels.retain(|_, kernel| {
            if kernel.queue != queue {
                return true;
            }
            freed += kernel.running.values().sum::<u64>() as u32 * kernel.cost;
            false
        });
        self.free += freed;
        self.order.retain(|other| *other != queue);
        self.waiting.remove(&queue);
        self.evicted.remove(&queue);
        let kernels = &self.kernels;
        self.ends.retain(|Reverse((_, id))| kernels.contains_key(id));
        self.place(now, out);
    }

    fn busy(&self) -> bool {
        self.free < self.slots
    }

    fn runs(&self, queue: QueueKey) -> bool {
        self.kernels.values().any(|kernel| kernel.queue == queue && !kernel.running.is_empty())
    }

    fn running(&self, pids: &mut Vec<i32>) {
        let kernels = self.kernels.values().filter(|kernel| !kernel.running.is_empty());
        pids.extend(kernels.map(|kernel| kernel.queue.pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: QueueKey = QueueKey { pid: 1, id: 0 };
    const B: QueueKey = QueueKey { pid: 2, id: 0 };

    fn work(id: WorkId, queue: QueueKey, groups: u64, cost: u32, alone: Time) -> Work {
        Work { id, queue, groups, cost, alone }
    }

    /// Runs until all work has ended. Returns (id, start, end) in order of completion.
    fn finish(model: &mut Shared, out: &mut Vec<Progress>) -> Vec<(WorkId, Time, Time)> {
        while let Some(t) = model.next() {
            step(model, t, out);
        }
        let done = |p: &Progress| match *p {
            Progress::Done { id, start, end } => Some((id, start, end)),
            Progress::Launched(_) => None,
        };
        out.iter().filter_map(done).collect()
    }

    /// Advances to `t`, and asserts that `next_visible` announced any progress.
    fn step(model: &mut Shared, t: Time, out: &mut Vec<Progress>) {
        let (seen, visible) = (out.len(), model.next_visible());
        model.advance(t, out);
        assert!(out.len() == seen || visible.is_some_and(|visible| visible <= t), "{visible:?} {t} {out:?}");
    }

    #[test]
    fn kernel_alone_takes_its_time_for_every_grid() {
        for groups in [1, 99, 100, 101, 1_000_000] {
            let (mut model, mut out) = (Shared::new(100), Vec::new());
            model.submit(10, work(1, A, groups, 1, 1_000_000), &mut out);
            let (_, start, end) = finish(&mut model, &mut out)[0];
            assert_eq!(start, 10);
            assert!((end - 10).abs_diff(1_000_000) <= groups.div_ceil(100), "{groups}: {end}");
        }
    }

    #[test]
    fn endless_kernel_leaves_slots_to_others_while_evicted() {
        let (mut model, mut out) = (Shared::new(100), Vec::new());
        model.submit(10, work(1, A, 100, 1, Time::MAX), &mut out);
        model.evict(20, &[A], &mut out);
        model.submit(20, work(2, B, 50, 1, 500), &mut out);
        model.restore(30, &[A], &mut out);
        assert_eq!(model.next(), Some(520));
    }

    #[test]
    fn empty_kernel_of_a_huge_grid_is_done_at_once() {
        let (mut model, mut out) = (Shared::new(100), Vec::new());
        model.submit(10, work(1, A, u64::MAX, 1, 0), &mut out);
        assert_eq!(finish(&mut model, &mut out), [(1, 10, 10)]);
    }

    #[test]
    fn kernels_that_fit_together_do_not_slow_each_other() {
        let (mut model, mut out) = (Shared::new(100), Vec::new());
        model.submit(0, work(1, A, 50, 1, 1000), &mut out);
        model.submit(0, work(2, B, 50, 1, 500), &mut out);
        assert_eq!(finish(&mut model, &mut out), [(2, 0, 500), (1, 0, 1000)]);
    }

    #[test]
    fn second_kernel_waits_for_running_groups_then_shares_slots() {
        let (mut model, mut out) = (Shared::new(100), Vec::new());
        model.submit(0, work(1, A, 400, 1, 4000), &mut out);
        model.submit(1, work(2, B, 100, 1, 1000), &mut out);
        // The device is full until 1000; then both get half of it each round.
        assert_eq!(finish(&mut model, &mut out), [(2, 1000, 3000), (1, 0, 5000)]);
    }

    #[test]
    fn launched_is_reported_when_the_last_group_is_placed() {
        let (mut model, mut out) = (Shared::new(10), Vec::new());
        model.submit(0, work(1, A, 15, 1, 200), &mut out);
        assert!(out.is_empty());
        model.advance(100, &mut out);
        assert_eq!(out, [Progress::Launched(1)]);
    }

    #[test]
    fn evicted_queue_keeps_its_remaining_time() {
        let (mut model, mut out) = (Shared::new(10), Vec::new());
        model.submit(0, work(1, A, 10, 1, 1000), &mut out);
        model.submit(5, work(2, B, 10, 1, 100), &mut out);
        model.evict(400, &[A], &mut out);
        assert_eq!(model.next(), Some(500), "the other queue got the slots at once");
        model.advance(500, &mut out);
        assert_eq!(model.next(), None);
        model.restore(5000, &[A], &mut out);
        assert_eq!(finish(&mut model, &mut out), [(2, 400, 500), (1, 0, 5600)]);
        assert!(!model.busy());
    }

    #[test]
    fn queues_evicted_together_do_not_get_each_others_slots() {
        let (mut model, mut out) = (Shared::new(10), Vec::new());
        model.submit(0, work(1, A, 10, 1, 1000), &mut out);
        model.submit(0, work(2, B, 10, 1, 100), &mut out);
        assert!(model.runs(A) && !model.runs(B));
        let seen = out.len();
        model.evict(400, &[A, B], &mut out);
        assert!(!model.busy() && out.len() == seen);
        model.restore(900, &[A, B], &mut out);
        // Both are placed again round-robin: A with its remaining time, B for the first time.
        let starts: Vec<(WorkId, Time)> = finish(&mut model, &mut out).iter().map(|d| (d.0, d.1)).collect();
        assert!(
            starts.contains(&(1, 0)) && starts.iter().any(|(id, start)| *id == 2 && *start >= 900),
            "{starts:?}"
        );
    }

    #[test]
    fn removed_queue_frees_its_slots() {
        let (mut model, mut out) = (Shared::new(10), Vec::new());
        model.submit(0, work(1, A, 10, 1, 1000), &mut out);
        model.submit(0, work(2, B, 10, 1, 100), &mut out);
        model.remove(10, A, &mut out);
        assert_eq!(finish(&mut model, &mut out), [(2, 10, 110)]);
    }

    #[test]
    fn kernels_of_different_times_keep_large_batches() {
        let (mut model, mut out) = (Shared::new(3328), Vec::new());
        model.submit(0, work(1, A, 200_704, 2, 600_000), &mut out);
        model.submit(100, work(2, B, 20_000, 3, 470_000), &mut out);
        let mut steps = 0;
        while let Some(t) = model.next() {
            step(&mut model, t, &mut out);
            steps += 1;
        }
        // Together they take little more than a millisecond, at most two steps each microsecond.
        assert!(steps < 2_500, "{steps}");
        let ends: Vec<Time> = finish(&mut model, &mut out).iter().map(|done| done.2).collect();
        assert!(ends[1].abs_diff(1_070_000) < 60_000, "{ends:?}");
    }

    #[test]
    fn next_visible_is_the_placement_of_the_last_group() {
        let (mut model, mut out) = (Shared::new(100), Vec::new());
        model.submit(0, work(1, A, 1000, 1, 320_000), &mut out);
        assert_eq!(model.next(), Some(32_000));
        // Nine rounds are left. The last one is placed after eight more, each at most a 32nd shorter.
        assert_eq!(model.next_visible(), Some(32_000 + 8 * 31_000));
    }

    proptest! {
        /// Under any sequence of submissions, evictions and restorations: slots are never exceeded or lost,
        /// every kernel is launched and ends exactly once, and none ends earlier than alone, up to the
        /// tolerance of a batch.
        #[test]
        fn slots_and_kernels_are_never_lost(steps in proptest::collection::vec((0u8..8, 0i32..3, 1u64..200, 1u32..9, 0u64..2000), 1..60)) {
            let (mut model, mut out) = (Shared::new(64), Vec::new());
            let (mut now, mut submitted) = (0, BTreeMap::new());
            for (id, (action, pid, groups, cost, time)) in steps.into_iter().enumerate() {
                let queue = QueueKey { pid, id: 0 };
                let target = now + time;
                while let Some(t) = model.next().filter(|t| *t <= target) {
                    step(&mut model, t, &mut out);
                }
                now = target;
                match action {
                    0 => model.evict(now, &[queue], &mut out),
                    1 => model.restore(now, &[queue], &mut out),
                    _ => {
                        let w = work(id as WorkId, queue, groups, cost, time);
                        submitted.insert(w.id, (now, time));
                        model.submit(now, w, &mut out);
                    }
                }
                let used: u64 = model.kernels.values().map(|k| k.running.values().sum::<u64>() * u64::from(k.cost)).sum();
                prop_assert_eq!(used + u64::from(model.free), 64);
            }
            for pid in 0..3 {
                model.restore(now, &[QueueKey { pid, id: 0 }], &mut out);
            }
            let done = finish(&mut model, &mut out);
            prop_assert_eq!(done.len(), submitted.len());
            for (id, start, end) in done {
                let (at, alone) = submitted.remove(&id).expect("once");
                prop_assert!(start >= at && (end - at) * 4 >= alone * 3);
                let launched = out.iter().filter(|p| **p == Progress::Launched(id)).count();
                prop_assert_eq!(launched, 1);
            }
            prop_assert_eq!(model.free, 64);
        }
    }
}
