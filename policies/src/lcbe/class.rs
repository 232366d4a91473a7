//! Classes of queues and entities.

use crate::rows::EntityQueue;
use crate::sched_entity::{SchedEntities, SchedEntity};
use protocol::codes::QueueClass;
use protocol::time::Time;

/// The class of a unit, and how far it can fall and rise as other queues of the entity become ready or idle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassRange {
    pub class: i32,
    pub floor: i32,
    pub ceiling: i32,
}

/// Returns the class of a queue. Classes greater than `above` are latency-critical; a hint moves the class to the side that
/// it names.
pub(super) fn of_queue(queue: &EntityQueue, above: i32) -> i32 {
    let priority = queue.priority.get();
    match queue.hints.class {
        None => priority,
        // No priority is greater than the greatest.
        Some(QueueClass::LatencyCritical) => priority.max(above + 1),
        Some(QueueClass::BestEffort) => priority.min(above),
    }
}

/// What the queues of an entity say together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct QueueSums {
    pub classes: ClassRange,
    /// True if a queue may have work that must not be interrupted, and if one has it.
    pub may_rise: bool,
    pub uninterrupted: bool,
    /// The latest arrival that was hinted.
    pub arrival: Option<Time>,
}

/// Returns what the queues of an entity say together.
pub(super) fn sums_of(entity: &SchedEntity, entities: &SchedEntities, above: i32) -> QueueSums {
    let queues = || entities.queues(entity).iter();
    let mut firm = queues().filter(|queue| !queue.hints.preemptible);
    QueueSums {
        classes: of_entity(entity, entities, above),
        may_rise: firm.clone().next().is_some(),
        uninterrupted: firm.any(|queue| queue.ready_since.is_some()),
        arrival: queues().filter_map(|queue| queue.hints.arrival).max(),
    }
}

/// Returns the class of an entity: the highest of its ready queues, or of all its queues while none is ready.
fn of_entity(entity: &SchedEntity, entities: &SchedEntities, above: i32) -> ClassRange {
    let queues = || entities.queues(entity).iter().map(|queue| (queue, of_queue(queue, above)));
    let ready = queues().filter(|(queue, _)| queue.ready_since.is_some()).map(|(_, class)| class).max();
    let (Some(floor), Some(ceiling)) =
        (queues().map(|(_, class)| class).min(), queues().map(|(_, class)| class).max())
    else {
        // It has no queue that can run.
        return ClassRange {
            class: entity.priority.get(),
            floor: entity.floor.get(),
            ceiling: entity.ceiling.get(),
        };
    };
    ClassRange { class: ready.unwrap_or(ceiling), floor, ceiling }
}
