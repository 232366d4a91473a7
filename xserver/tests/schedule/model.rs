//! The actions of the model and its properties.

use super::decider::Seen;
use super::world::{
    Action, Client, Executing, LEASE_TICKS, ProcessState, Program, ScheduleModel, Violation, WakeUp, World,
};
use stateright::{Model, Property};

pub const LAUNCHED_ONCE: &str = "no command is launched twice";
pub const ORDER: &str = "commands are launched in order";
pub const NONE_LOST: &str = "no command is lost";
pub const LATE_LAUNCH: &str = "at most one launch begins after a suspension";
pub const WINDOW: &str = "a suspended client has at most a window of commands in flight";
pub const INVERSION: &str =
    "while the urgent client has work the other one gets no more device time than the bound";
pub const WAITING: &str = "a client with work that need not wait completes a command within the bound";
pub const ORPHANED: &str = "a silent server keeps pending commands waiting for at most a lease";
/// All properties that must always hold.
pub const RULES: [&str; 8] =
    [LAUNCHED_ONCE, ORDER, NONE_LOST, LATE_LAUNCH, WINDOW, INVERSION, WAITING, ORPHANED];

impl Model for ScheduleModel {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.initial()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let before = actions.len();
        self.due(world, actions);
        // Time advances only when no action is due: every running thread acts within a tick.
        if actions.len() == before {
            actions.push(Action::Tick);
        }
        self.free(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Submit(index) => self.submit(&mut next.clients[index]),
            Action::Program(index) => self.step_program(&mut next, index),
            Action::Worker(index) => self.step_worker(&mut next.clients[index]),
            Action::Watcher(index) => self.step_watcher(&mut next, index),
            Action::Listener(index) => self.step_listener(&mut next.clients[index]),
            Action::Agent(index) => self.step_agent(&mut next.clients[index]),
            Action::Server => self.step_server(&mut next),
            Action::ChangeSetting => {
                next.changes_made += 1;
                // After the change another client may be urgent, or none.
                next.inversion_ticks = 0;
            }
            Action::Start(client) => next.executing = Some(Executing { client, ends: false }),
            Action::Complete => {
                if let Some(executing) = next.executing.take() {
                    let client = &mut next.clients[executing.client];
                    if client.process != ProcessState::Dead {
                        client.completed += 1;
                        client.waiting_ticks = 0;
                    }
                }
            }
            Action::Tick => self.tick(&mut next),
            Action::Silence => next.server.fall_silent(),
            Action::Die(index) => {
                next.clients[index].die();
                next.server.note_end();
            }
            Action::Stop(index) => next.clients[index].process = ProcessState::Stopped,
            Action::Continue(index) => next.clients[index].process = ProcessState::Continued,
        }
        self.end_inversion(&mut next);
        Some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        self.ticks.is_none_or(|most| world.ticks <= most)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(LAUNCHED_ONCE, |_, world: &World| {
                world.clients.iter().all(|client| client.violation != Violation::LaunchedTwice)
            }),
            Property::always(ORDER, |_, world: &World| {
                world.clients.iter().all(|client| client.violation != Violation::OutOfOrder)
            }),
            Property::always(NONE_LOST, |_, world: &World| {
                world.clients.iter().all(|client| client.accounted() == client.submitted)
            }),
            Property::always(LATE_LAUNCH, |_, world: &World| {
                world.clients.iter().all(|client| client.late_launches <= 1)
            }),
            Property::always(WINDOW, |model: &Self, world: &World| {
                world
                    .clients
                    .iter()
                    .all(|client| !client.is_suspended() || client.in_flight() <= model.window)
            }),
            Property::always(INVERSION, |model: &Self, world: &World| {
                world.inversion_ticks <= model.bounds.inversion
            }),
            Property::always(WAITING, |model: &Self, world: &World| {
                world.clients.iter().all(|client| client.waiting_ticks <= model.bounds.waiting)
            }),
            Property::always(ORPHANED, |_, world: &World| {
                world.clients.iter().all(|client| client.orphaned_ticks <= LEASE_TICKS)
            }),
        ];
        if self.mutation.is_none() {
            all.extend(self.reached());
        }
        all
    }
}

impl ScheduleModel {
    /// Adds the actions that must happen before the next tick.
    fn due(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, client) in world.clients.iter().enumerate().filter(|(_, client)| client.process.runs()) {
            if self.program_can_step(client) {
                actions.push(Action::Program(index));
            }
            if self.worker_can_step(client) {
                actions.push(Action::Worker(index));
            }
            if self.watcher_can_step(client) {
                actions.push(Action::Watcher(index));
            }
            if client.wake_up == WakeUp::Old || client.wake_up == WakeUp::New && !self.faults.delays {
                actions.push(Action::Listener(index));
            }
            if self.agent_is_due(world, index) {
                actions.push(Action::Agent(index));
            }
        }
        if self.server_is_due(world) {
            actions.push(Action::Server);
        }
        match world.executing {
            Some(executing) if executing.ends => actions.push(Action::Complete),
            Some(_) => {}
            // The device takes its queues in any order.
            None => {
                let busy = (0..2).filter(|index| world.clients[*index].in_flight() != 0);
                actions.extend(busy.map(Action::Start));
            }
        }
    }

    /// Adds the actions that may happen at any time, or never.
    fn free(&self, world: &World, actions: &mut Vec<Action>) {
        for (index, client) in world.clients.iter().enumerate() {
            if client.process.runs() {
                if client.program == Program::Idle && client.submitted < self.commands[index] {
                    actions.push(Action::Submit(index));
                }
                if client.wake_up == WakeUp::New && self.faults.delays {
                    actions.push(Action::Listener(index));
                }
                // The agent may see the end of the connection at any time. A hung server does not end it.
                if client.follows && !world.server.alive && !self.agent_is_due(world, index) {
                    actions.push(Action::Agent(index));
                }
            }
            if client.process == ProcessState::Running && self.faults.stops[index] {
                actions.push(Action::Stop(index));
            }
            if client.process == ProcessState::Stopped {
                actions.push(Action::Continue(index));
            }
            if client.process != ProcessState::Dead && self.faults.dies[index] {
                actions.push(Action::Die(index));
            }
        }
        if self.server_can_step(world) && !self.server_is_due(world) {
            actions.push(Action::Server);
        }
        if world.server.alive && self.faults.silence {
            actions.push(Action::Silence);
        }
        if world.server.alive && usize::from(world.changes_made) < self.decider.setting_changes.len() {
            actions.push(Action::ChangeSetting);
        }
    }

    /// The states that must be reachable, because the other properties would show nothing without them. Every
    /// bound is reached, so no smaller one holds.
    fn reached(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::sometimes("all commands complete", |model: &Self, world: &World| {
                let done = |index: usize| world.clients[index].completed == model.commands[index];
                done(0) && done(1)
            }),
            Property::sometimes("commands are pending in a suspended queue", |_, world: &World| {
                world.clients.iter().any(|client| client.is_suspended() && client.has_pending())
            }),
            Property::sometimes("a launch begins after a suspension", |_, world: &World| {
                world.clients.iter().any(|client| client.late_launches == 1)
            }),
            Property::sometimes(
                "a client with work waits as long as the bound allows",
                |model: &Self, world: &World| {
                    world.clients.iter().any(|client| client.waiting_ticks == model.bounds.waiting)
                },
            ),
        ];
        if self.urgent.iter().any(Option::is_some) {
            let name = "the urgent client waits as long as the bound allows";
            all.push(Property::sometimes(name, |model: &Self, world: &World| {
                world.inversion_ticks == model.bounds.inversion
            }));
        }
        if !self.decider.setting_changes.is_empty() {
            all.push(Property::sometimes(
                "all setting changes are applied while both clients have work",
                |model: &Self, world: &World| {
                    usize::from(world.server.changes_applied) == model.decider.setting_changes.len()
                        && world.clients.iter().all(Client::is_unfinished)
                },
            ));
        }
        if self.faults.silence {
            all.push(Property::sometimes("pending commands wait for a whole lease", |_, world: &World| {
                world.clients.iter().any(|client| client.orphaned_ticks == LEASE_TICKS)
            }));
            all.push(Property::sometimes(
                "after the lease a client without a server has completed a command",
                |_, world: &World| {
                    world.lease == 0
                        && world.clients.iter().any(|client| !client.follows && client.completed != 0)
                },
            ));
        }
        if self.faults.dies != [false; 2] {
            all.push(Property::sometimes(
                "one client has work after the other is gone",
                |_, world: &World| {
                    world.server.seen.contains(&Seen::Gone)
                        && world.clients.iter().any(|client| client.in_flight() != 0)
                },
            ));
        }
        if self.faults.stops != [false; 2] {
            all.push(Property::sometimes("a stopped client yields", |_, world: &World| {
                world.server.yielded.contains(&true)
            }));
        }
        all
    }
}
