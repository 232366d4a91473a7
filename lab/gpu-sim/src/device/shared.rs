//! The default model: work-groups of all queues share the device and are placed round-robin as slots become
//! free, those of queues of higher priority first.
//!
//! There is no time slicing: a running work-group leaves only when it ends or its queue is evicted. Each
//! work-group of a kernel takes the kernel's time alone divided by its rounds, so that the kernel alone takes
//! exactly that time. Work-groups that are placed at the same instant form one batch, so that the cost of a
//! step does not depend on the grid. Two concurrent kernels of different times would split each other's
//! batches down to single work-groups, hundreds of thousands of steps per millisecond. Therefore a work-group
//! joins the batch of its kernel with the nearest end, if that is within [`tolerance`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use super::model::{Model, Progress, Properties, PropertyMap, QueueKey, Time, Work, WorkId, rounds};

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
    properties: PropertyMap,
}

/// The first kernel of a queue of which a work-group can be placed.
struct Front {
    queue: QueueKey,
    id: WorkId,
    cost: u32,
    priority: u32,
    /// The number of work-groups that are left and that the queue's own slots have room for.
    groups: u64,
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

    /// Returns the number of work-groups of `cost` that a queue may place besides those that run, if the device has
    /// the slots.
    fn room(&self, queue: QueueKey, properties: Properties, cost: u32) -> u64 {
        let Some(most) = properties.slots else { return u64::MAX };
        let own = self.kernels.values().filter(|kernel| kernel.queue == queue);
        let held: u64 = own.map(|kernel| kernel.running.values().sum::<u64>() * u64::from(kernel.cost)).sum();
        // A queue that holds nothing can always place one.
        u64::from(most).max(u64::from(cost)).saturating_sub(held) / u64::from(cost)
    }

    /// Returns the fronts of all queues of the highest priority that has any, in round-robin order.
    fn fronts(&self) -> Vec<Front> {
        let mut fronts = Vec::new();
        for &queue in &self.order {
            let front = self.waiting.get(&queue).and_then(|line| line.front());
            let Some((id, kernel)) = front.and_then(|id| Some((*id, self.kernels.get(id)?))) else {
                continue;
            };
            let Some(chunk) = kernel.to_place.front() else { continue };
            let properties = self.properties.of(queue);
            let groups = chunk.groups.min(self.room(queue, properties, kernel.cost));
            if groups > 0 {
                fronts.push(Front { queue, id, cost: kernel.cost, priority: properties.priority, groups });
            }
        }
        if let Some(highest) = fronts.iter().map(|front| front.priority).max() {
            fronts.retain(|front| front.priority == highest);
        }
        fronts
    }

    /// Places work-groups until no queue has one that fits. A queue waits while a work-group of a higher priority does
    /// not fit, so that small work-groups cannot keep a large one out.
    fn place(&mut self, now: Time, out: &mut Vec<Progress>) {
        while self.free > 0 && !self.order.is_empty() {
            // Each round places one work-group of the first kernel of each queue; whole rounds are placed at
            // once while they fit.
            let fronts = self.fronts();
            let round_cost: u32 = fronts.iter().map(|front| front.cost).sum();
            let least = fronts.iter().map(|front| front.groups).min().unwrap_or(0);
            let rounds = u64::from(self.free / round_cost.max(1)).min(least);
            if rounds > 0 {
                for Front { queue, id, .. } in fronts {
                    self.start(now, queue, id, rounds, out);
                }
                continue;
            }
            let mut placed = false;
            for Front { queue, id, cost, .. } in fronts {
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
        let slots = |queue| self.properties.of(queue).slots.map_or(self.slots, |most| most.min(self.slots));
        self.kernels.values().map(|kernel| kernel.visible(next, slots(kernel.queue))).min()
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

    fn properties(&self, queue: QueueKey) -> Properties {
        self.properties.of(queue)
    }

    fn set_properties(
        &mut self,
        now: Time,
        queue: QueueKey,
        properties: Properties,
        out: &mut Vec<Progress>,
    ) {
        if self.properties.set(queue, properties) {
            self.place(now, out);
        }
    }

    fn remove(&mut self, now: Time, queue: QueueKey, out: &mut Vec<Progress>) {
        self.properties.remove(queue);
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
mod tests;
