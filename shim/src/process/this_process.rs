//! This process as the agent sees it.

use super::{base, get, slow_path, subject};
use crate::thread::Thread;
use agent::{Host, ManagedQueue, Preemption};
use protocol::codes::PreemptLevel;
use protocol::config::{Config, SchedulerKind};
use protocol::cost::{CostKey, EvictCost};
use protocol::ids::QueueId;
use protocol::page::ClientHeader;
use std::ptr;
use std::sync::atomic::Ordering;
use xqueue::{Domain, XQueue};

/// The preemption level of this process.
pub(crate) static PREEMPTION: Preemption = Preemption::new(&ThisProcess);

/// The program that this library is preloaded into.
#[derive(Debug)]
struct ThisProcess;

impl Host for ThisProcess {
    fn config(&self) -> Option<&'static Config> {
        base().map(|base| base.config())
    }

    fn queues(&self) -> Vec<ManagedQueue> {
        let Some(process) = get() else { return Vec::new() };
        let queued = process.queued.lock();
        let managed = queued.iter().filter_map(|stream| {
            let (handle @ 1.., Some(queue)) = (stream.handle(), stream.queue()) else { return None };
            let device = process.devices.id(stream.hw.device());
            let (level, hints) = (stream.level(), stream.hints());
            Some(ManagedQueue { handle, device, level, hints, queue: queue.clone(), slot: stream.slot() })
        });
        managed.collect()
    }

    fn for_each_queue(&self, visit: &mut dyn FnMut(&XQueue)) {
        let Some(process) = get() else { return };
        let queued = process.queued.lock();
        queued
            .iter()
            .filter(|stream| stream.handle() != 0)
            .filter_map(|stream| stream.queue())
            .for_each(|queue| visit(queue));
    }

    fn is_current(&self, domain: &Domain) -> bool {
        get().is_some_and(|process| ptr::eq(&process.domain, domain))
    }

    fn has_launched(&self) -> bool {
        get().is_some_and(|process| {
            let queued = process.queued.lock().clone();
            queued.iter().filter_map(|stream| stream.queue()).any(|queue| queue.stats().launched != 0)
        })
    }

    fn adopt_thread(&self) {
        Thread::current().adopt();
    }

    fn write_slow_counts(&self, header: &ClientHeader) {
        slow_path::write(header);
    }

    fn expects_server(&self) -> bool {
        match get() {
            Some(process) => process.scheduler.expects_server(),
            None => self.config().is_some_and(|config| {
                config.auto.enabled && config.scheduler_in_force() == SchedulerKind::Global
            }),
        }
    }

    fn cost_from_server(&self, key: CostKey) -> Option<EvictCost> {
        get()?.scheduler.cost_from_server(key)
    }

    fn name_of_subject(&self, subject: u64) -> Option<String> {
        subject::name(&base()?.kernels, subject)
    }

    fn level_changed(&self) {
        if let Some(process) = get() {
            process.scheduler.changed();
        }
    }

    fn configure(
        &self,
        handle: u64,
        level: Option<PreemptLevel>,
        threshold: Option<u32>,
        batch: Option<u32>,
    ) {
        let Some(process) = get() else { return };
        let queued = process.queued.lock().clone();
        // It may just have gone.
        let Some(stream) = queued.into_iter().find(|stream| stream.handle() == handle) else { return };
        let Some(queue) = stream.queue() else { return };
        if let Some(level) = level {
            match PREEMPTION.request(level) {
                true => stream.set_level(level),
                false => tracing::warn!(
                    "xcli config: preemption level {} is not possible here; queue {} keeps level {}",
                    level.number(),
                    QueueId(handle),
                    stream.level().number()
                ),
            }
        }
        if threshold.is_some() || batch.is_some() {
            queue.set_launch_config(queue.launch_config().with(threshold, batch));
        }
        tracing::info!("xcli config: queue {} has other settings now", QueueId(handle));
        process.scheduler.changed();
    }

    fn settle_hints(&self) -> bool {
        get().is_some_and(|process| process.settle_hints())
    }

    fn has_ended_hints(&self) -> bool {
        get().is_some_and(|process| process.ended_parts.load(Ordering::Relaxed) != 0)
    }
}
