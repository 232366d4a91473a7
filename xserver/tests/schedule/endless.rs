//! That time goes on. The properties bound waiting in ticks, which would say nothing if a tick could be put
//! off for ever.

use super::world::{Action, Scene, World};
use stateright::Model;
use std::collections::HashMap;

/// Whether the model has a way on which no tick ever comes.
pub fn has_endless_tick(scene: &Scene) -> bool {
    let mut places: HashMap<World, usize> = HashMap::new();
    let mut all = scene.init_states();
    let mut steps: Vec<Vec<usize>> = Vec::new();
    let mut leads_here = vec![0; all.len()];
    places.extend(all.iter().cloned().zip(0..));
    while let Some(world) = all.get(steps.len()).cloned() {
        let mut actions = Vec::new();
        scene.actions(&world, &mut actions);
        assert!(!actions.is_empty(), "nothing can happen: {world:?}");
        let mut next = Vec::new();
        for action in actions {
            let Some(world) = scene.next_state(&world, action) else { continue };
            let place = *places.entry(world).or_insert_with_key(|world| {
                all.push(world.clone());
                leads_here.push(0);
                all.len() - 1
            });
            if action != Action::Tick {
                leads_here[place] += 1;
                next.push(place);
            }
        }
        steps.push(next);
    }
    // Whatever nothing leads to is taken away until nothing is left, or a circle.
    let mut free: Vec<usize> = (0..all.len()).filter(|place| leads_here[*place] == 0).collect();
    let mut taken = 0;
    while let Some(place) = free.pop() {
        taken += 1;
        for next in &steps[place] {
            leads_here[*next] -= 1;
            if leads_here[*next] == 0 {
                free.push(*next);
            }
        }
    }
    println!("{} states, {taken} outside of circles", all.len());
    taken != all.len()
}
