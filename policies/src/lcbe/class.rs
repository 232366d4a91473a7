//! Classes of queues and units.

use crate::unit::{Unit, UnitQueue, Units};

/// The class of a unit, and how far it can fall and rise as other queues of the unit become ready or idle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassRange {
    pub class: i32,
    pub floor: i32,
    pub ceiling: i32,
}

/// Returns the class of a queue. Classes greater than `above` are latency-critical.
pub(super) fn of_queue(queue: &UnitQueue, _above: i32) -> i32 {
    queue.priority.get()
}

/// Returns the class of a unit: the highest of its ready queues, or of all its queues while none is ready.
pub(super) fn of_unit(unit: &Unit, units: &Units, above: i32) -> ClassRange {
    let queues = || units.queues(unit).iter().map(|queue| (queue, of_queue(queue, above)));
    let ready = queues().filter(|(queue, _)| queue.ready_since.is_some()).map(|(_, class)| class).max();
    let (Some(floor), Some(ceiling)) =
        (queues().map(|(_, class)| class).min(), queues().map(|(_, class)| class).max())
    else {
        // It has no queue that can run.
        return ClassRange {
            class: unit.priority.get(),
            floor: unit.floor.get(),
            ceiling: unit.ceiling.get(),
        };
    };
    ClassRange { class: ready.unwrap_or(ceiling), floor, ceiling }
}
