//! What can happen when, and what must hold always.

use super::decider::Seen;
use super::world::{Action, Broken, Client, LEASE_TICKS, Life, Notice, Program, Running, Scene, World};
use stateright::{Model, Property};

pub const TWICE: &str = "no command is launched twice";
pub const ORDER: &str = "commands are launched in order";
pub const LOST: &str = "no command disappears";
pub const LATE_LAUNCH: &str = "after a suspension at most the launch that was decided before is made";
pub const WINDOW: &str = "no more than a window is in flight of who is suspended";
pub const BEHIND: &str = "the critical one waits for what was in flight and the permission";
pub const WAITS: &str = "whoever has work gets on";
pub const ORPHANED: &str = "who is suspended by a silent server runs within its lease";
/// All of these.
pub const RULES: [&str; 8] = [TWICE, ORDER, LOST, LATE_LAUNCH, WINDOW, BEHIND, WAITS, ORPHANED];

impl Model for Scene {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.first()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let before = actions.len();
        self.due(world, actions);
        // Whoever has something to do does it within a tick: that is what "running" means.
        if actions.len() == before {
            actions.push(Action::Tick);
        }
        self.free(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Submit(place) => self.submit(&mut next.clients[place]),
            Action::Program(place) => self.program(&mut next, place),
            Action::Worker(place) => self.worker(&mut next.clients[place]),
            Action::Watcher(place) => self.watcher(&mut next, place),
            Action::Listener(place) => self.listener(&mut next.clients[place]),
            Action::Agent(place) => self.agent(&mut next.clients[place]),
            Action::Server => self.server(&mut next),
            Action::Say => {
                next.said += 1;
                // Who was urgent before may be so no more.
                next.behind = 0;
            }
            Action::Begin(client) => next.running = Some(Running { client, ends: false }),
            Action::Complete => {
                if let Some(running) = next.running.take() {
                    let client = &mut next.clients[running.client];
                    if client.life != Life::Dead {
                        client.completed += 1;
                        client.waits = 0;
                    }
                }
            }
            Action::Tick => self.tick(&mut next),
            Action::Silence => next.server.fall_silent(),
            Action::Die(place) => {
                next.clients[place].die();
                next.server.ring(true);
            }
            Action::Stop(place) => next.clients[place].life = Life::Stopped,
            Action::GoOn(place) => next.clients[place].life = Life::RunsAgain,
        }
        self.note_end(&mut next);
        Some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        self.ticks.is_none_or(|most| world.ticks <= most)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(TWICE, |_, world: &World| {
                world.clients.iter().all(|client| client.broken != Broken::Twice)
            }),
            Property::always(ORDER, |_, world: &World| {
                world.clients.iter().all(|client| client.broken != Broken::Order)
            }),
            Property::always(LOST, |_, world: &World| {
                world.clients.iter().all(|client| client.accounted() == client.submitted)
            }),
            Property::always(LATE_LAUNCH, |_, world: &World| {
                world.clients.iter().all(|client| client.late <= 1)
            }),
            Property::always(WINDOW, |model: &Self, world: &World| {
                world
                    .clients
                    .iter()
                    .all(|client| !client.is_suspended() || client.in_flight() <= model.window)
            }),
            Property::always(BEHIND, |model: &Self, world: &World| world.behind <= model.bounds.behind),
            Property::always(WAITS, |model: &Self, world: &World| {
                world.clients.iter().all(|client| client.waits <= model.bounds.waits)
            }),
            Property::always(ORPHANED, |_, world: &World| {
                world.clients.iter().all(|client| client.orphaned <= LEASE_TICKS)
            }),
        ];
        if self.mutation.is_none() {
            all.extend(self.reached());
        }
        all
    }
}

impl Scene {
    /// What somebody does within this tick.
    fn due(&self, world: &World, actions: &mut Vec<Action>) {
        for (place, client) in world.clients.iter().enumerate().filter(|(_, client)| client.life.runs()) {
            if self.program_steps(client) {
                actions.push(Action::Program(place));
            }
            if self.worker_steps(client) {
                actions.push(Action::Worker(place));
            }
            if self.watcher_steps(client) {
                actions.push(Action::Watcher(place));
            }
            if client.notice == Notice::Old || client.notice == Notice::Fresh && !self.faults.delays {
                actions.push(Action::Listener(place));
            }
            if self.agent_is_due(world, place) {
                actions.push(Action::Agent(place));
            }
        }
        if self.server_is_due(world) {
            actions.push(Action::Server);
        }
        match world.running {
            Some(running) if running.ends => actions.push(Action::Complete),
            Some(_) => {}
            // Its queues are served in any order.
            None => {
                let busy = (0..2).filter(|place| world.clients[*place].in_flight() != 0);
                actions.extend(busy.map(Action::Begin));
            }
        }
    }

    /// What may happen at any time, or never.
    fn free(&self, world: &World, actions: &mut Vec<Action>) {
        for (place, client) in world.clients.iter().enumerate() {
            if client.life.runs() {
                if client.program == Program::Rests && client.submitted < self.commands[place] {
                    actions.push(Action::Submit(place));
                }
                if client.notice == Notice::Fresh && self.faults.delays {
                    actions.push(Action::Listener(place));
                }
                // The end of its connection, which a server that hangs does not bring about.
                if client.follows && !world.server.alive && !self.agent_is_due(world, place) {
                    actions.push(Action::Agent(place));
                }
            }
            if client.life == Life::Runs && self.faults.stops[place] {
                actions.push(Action::Stop(place));
            }
            if client.life == Life::Stopped {
                actions.push(Action::GoOn(place));
            }
            if client.life != Life::Dead && self.faults.dies[place] {
                actions.push(Action::Die(place));
            }
        }
        if self.server_steps(world) && !self.server_is_due(world) {
            actions.push(Action::Server);
        }
        if world.server.alive && self.faults.silence {
            actions.push(Action::Silence);
        }
        if world.server.alive && usize::from(world.said) < self.decider.says.len() {
            actions.push(Action::Say);
        }
    }

    /// What must be possible, or the other properties say nothing. The bounds are reached, so no smaller ones
    /// hold.
    fn reached(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::sometimes("everything completes", |model: &Self, world: &World| {
                let done = |place: usize| world.clients[place].completed == model.commands[place];
                done(0) && done(1)
            }),
            Property::sometimes("commands are pending in a suspended queue", |_, world: &World| {
                world.clients.iter().any(|client| client.is_suspended() && client.has_pending())
            }),
            Property::sometimes("a launch was decided before the suspension", |_, world: &World| {
                world.clients.iter().any(|client| client.late == 1)
            }),
            Property::sometimes(
                "somebody waits for as long as the bound says",
                |model: &Self, world: &World| {
                    world.clients.iter().any(|client| client.waits == model.bounds.waits)
                },
            ),
        ];
        if self.urgent.iter().any(Option::is_some) {
            let name = "the critical one waits for as long as the bound says";
            all.push(Property::sometimes(name, |model: &Self, world: &World| {
                world.behind == model.bounds.behind
            }));
        }
        if !self.decider.says.is_empty() {
            all.push(Property::sometimes(
                "all is said while both have work",
                |model: &Self, world: &World| {
                    usize::from(world.server.heard) == model.decider.says.len()
                        && world.clients.iter().all(Client::is_unfinished)
                },
            ));
        }
        if self.faults.silence {
            all.push(Property::sometimes("work waits for a whole lease", |_, world: &World| {
                world.clients.iter().any(|client| client.orphaned == LEASE_TICKS)
            }));
            all.push(Property::sometimes("work is done after a lease", |_, world: &World| {
                world.lease == 0
                    && world.clients.iter().any(|client| !client.follows && client.completed != 0)
            }));
        }
        if self.faults.dies != [false; 2] {
            all.push(Property::sometimes("one is left", |_, world: &World| {
                world.server.seen.contains(&Seen::Gone)
                    && world.clients.iter().any(|client| client.in_flight() != 0)
            }));
        }
        if self.faults.stops != [false; 2] {
            all.push(Property::sometimes("a stopped one yields", |_, world: &World| {
                world.server.yielded.contains(&true)
            }));
        }
        all
    }
}
