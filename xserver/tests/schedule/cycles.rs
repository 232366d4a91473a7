//! A search for runs in which time stands still. The properties bound waiting times in ticks, so they would
//! show nothing if other actions could postpone a tick for ever.

use super::world::{Action, ScheduleModel, World};
use stateright::Model;
use std::collections::HashMap;

/// Returns true if the model has a cycle of actions without a tick, so that a run can postpone the next tick
/// for ever.
pub fn has_cycle_without_tick(model: &ScheduleModel) -> bool {
    let mut indices: HashMap<World, usize> = HashMap::new();
    let mut all = model.init_states();
    // For each state, the states to which an action other than a tick leads.
    let mut successors: Vec<Vec<usize>> = Vec::new();
    // For each state, the number of actions other than a tick that lead to it.
    let mut predecessors = vec![0; all.len()];
    indices.extend(all.iter().cloned().zip(0..));
    while let Some(world) = all.get(successors.len()).cloned() {
        let mut actions = Vec::new();
        model.actions(&world, &mut actions);
        assert!(!actions.is_empty(), "no action is possible in {world:?}");
        let mut next = Vec::new();
        for action in actions {
            let Some(world) = model.next_state(&world, action) else { continue };
            let index = *indices.entry(world).or_insert_with_key(|world| {
                all.push(world.clone());
                predecessors.push(0);
                all.len() - 1
            });
            if action != Action::Tick {
                predecessors[index] += 1;
                next.push(index);
            }
        }
        successors.push(next);
    }
    // Topological sort: removes states without predecessors. The states that remain are those on a cycle or
    // behind one.
    let mut free: Vec<usize> = (0..all.len()).filter(|index| predecessors[*index] == 0).collect();
    let mut removed = 0;
    while let Some(index) = free.pop() {
        removed += 1;
        for next in &successors[index] {
            predecessors[*next] -= 1;
            if predecessors[*next] == 0 {
                free.push(*next);
            }
        }
    }
    println!("{} states, {removed} of them neither on a cycle nor behind one", all.len());
    removed != all.len()
}
