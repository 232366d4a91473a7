//! The threads of a client. Each step makes one access to shared memory.

use super::world::{
    Client, Mutation, ProcessState, Program, ScheduleModel, Violation, WakeUp, Worker, World,
};
use protocol::page::{EVENT_IDLE, EVENT_READY};

impl Client {
    fn submit_lock_is_free(&self) -> bool {
        !matches!(self.program, Program::Decided | Program::WroteReady | Program::Launches)
            && self.worker != Worker::Decided
            && !self.watcher_wrote_idle
    }

    fn pending_lock_is_free(&self) -> bool {
        self.program != Program::Appended && !self.watcher_wrote_idle
    }

    /// Returns true if the queue may launch. A client that follows no server always may.
    fn may_run(&self) -> bool {
        !self.is_suspended()
    }

    /// Removes the first pending command, and returns its number.
    fn pop(&mut self) -> u8 {
        let command = self.pending.0;
        self.pending.0 += 1;
        if !self.has_pending() {
            self.pending = (0, 0);
        }
        command
    }

    /// Launches a command into the runtime.
    fn launch(&mut self, command: u8) {
        if self.violation == Violation::None {
            self.violation = match command.cmp(&self.launched) {
                std::cmp::Ordering::Less => Violation::LaunchedTwice,
                std::cmp::Ordering::Equal => Violation::None,
                std::cmp::Ordering::Greater => Violation::OutOfOrder,
            };
        }
        self.launched += 1;
        if self.is_suspended() {
            self.late_launches += 1;
        }
    }

    /// Ends the process and its queue. Both pages keep their contents.
    pub fn die(&mut self) {
        self.process = ProcessState::Dead;
        self.program = Program::Idle;
        self.worker = Worker::Idle;
        (self.watcher_wrote_idle, self.worker_signal, self.wake_up, self.follows) =
            (false, false, WakeUp::None, false);
        (self.submitted, self.launched, self.completed, self.pending) = (0, 0, 0, (0, 0));
        (self.late_launches, self.waiting_ticks, self.orphaned_ticks) = (0, 0, 0);
    }
}

impl ScheduleModel {
    /// Returns true if the window has room, or if no window applies.
    fn has_room(&self, client: &Client) -> bool {
        let limited = !client.follows || client.limit;
        !limited || client.in_flight() < self.window || self.is(Mutation::IgnoresWindow)
    }

    /// Returns true if the worker can make a step. A worker behind a full window polls, so it continues as
    /// soon as the window has room.
    pub fn worker_can_step(&self, client: &Client) -> bool {
        match client.worker {
            Worker::Decided => true,
            Worker::Holds(_) => client.submit_lock_is_free() && client.may_run() && self.has_room(client),
            Worker::Idle if !client.worker_signal || client.program == Program::Appended => false,
            // This mutation takes a command without the submit lock.
            Worker::Idle if self.is(Mutation::PopsWithoutSubmitLock) => client.pending_lock_is_free(),
            Worker::Idle => {
                client.submit_lock_is_free()
                    && (!client.has_pending() || !client.may_run() || self.has_room(client))
            }
        }
    }

    /// Makes the worker's next step.
    pub fn step_worker(&self, client: &mut Client) {
        match client.worker {
            Worker::Idle if !client.has_pending() => client.worker_signal = false,
            Worker::Idle if self.is(Mutation::PopsWithoutSubmitLock) => {
                client.worker = Worker::Holds(client.pop());
            }
            Worker::Idle if !client.may_run() => client.worker_signal = false,
            Worker::Idle => client.worker = Worker::Decided,
            Worker::Decided => {
                client.worker = Worker::Idle;
                let suspended = !client.may_run();
                if self.is(Mutation::LaunchesWithoutPop) && suspended {
                    client.launch(client.pending.0);
                    return;
                }
                let command = client.pop();
                if self.is(Mutation::DropsCommand) && suspended {
                    return;
                }
                client.launch(command);
                if self.is(Mutation::ReadsPermissionOnce) && client.has_pending() && self.has_room(client) {
                    client.worker = Worker::Decided;
                }
            }
            Worker::Holds(command) => {
                client.worker = Worker::Idle;
                client.launch(command);
            }
        }
    }

    /// Submits the program's next command. The direct path decides to launch it at once if it gets the submit
    /// lock, nothing is pending, and permission and window admit it. Otherwise the command is deferred.
    pub fn submit(&self, client: &mut Client) {
        client.submitted += 1;
        let direct = client.submit_lock_is_free()
            && !client.has_pending()
            && client.may_run()
            && self.has_room(client);
        client.program = if direct { Program::Decided } else { Program::Appends };
    }

    /// Returns true if the program can make a step inside its call.
    pub fn program_can_step(&self, client: &Client) -> bool {
        match client.program {
            Program::Idle => false,
            Program::Appends => client.pending_lock_is_free(),
            _ => true,
        }
    }

    /// Makes the program's next step inside its call.
    pub fn step_program(&self, world: &mut World, index: usize) {
        let client = &mut world.clients[index];
        let command = client.submitted - 1;
        match client.program {
            Program::Idle => {}
            Program::Decided if !client.ready => {
                client.ready = true;
                client.program = Program::WroteReady;
            }
            Program::WroteReady => {
                world.server.notify(index, client.event_mask & EVENT_READY != 0);
                client.program = Program::Launches;
            }
            Program::Decided | Program::Launches => {
                client.launch(command);
                client.program = Program::Idle;
            }
            Program::Appends => {
                let first = if client.has_pending() { client.pending.0 } else { command };
                client.pending = (first, command + 1);
                if client.ready {
                    client.worker_signal = true;
                    client.program = Program::Idle;
                } else {
                    client.ready = true;
                    client.program = Program::Appended;
                }
            }
            Program::Appended => {
                world.server.notify(index, client.event_mask & EVENT_READY != 0);
                client.worker_signal = true;
                client.program = Program::Idle;
            }
        }
    }

    /// Returns true if the watcher can make a step: it finds that the ready queue has no work, or it has
    /// written that the queue is idle and has not yet notified the server.
    pub fn watcher_can_step(&self, client: &Client) -> bool {
        let idle = !client.has_pending() && client.in_flight() == 0 && client.worker == Worker::Idle;
        client.watcher_wrote_idle
            || client.ready && idle && client.submit_lock_is_free() && client.program == Program::Idle
    }

    /// Makes the watcher's next step.
    pub fn step_watcher(&self, world: &mut World, index: usize) {
        let client = &mut world.clients[index];
        if client.watcher_wrote_idle {
            world.server.notify(index, client.event_mask & EVENT_IDLE != 0);
            client.watcher_wrote_idle = false;
        } else {
            client.ready = false;
            client.watcher_wrote_idle = true;
        }
    }

    /// Handles a wake-up: the listener signals the worker, which then reads the permission again.
    pub fn step_listener(&self, client: &mut Client) {
        client.wake_up = WakeUp::None;
        client.worker_signal = true;
    }

    /// Returns true if the lease of a client that follows the server has ended, so that its agent must act
    /// within this tick.
    pub fn agent_is_due(&self, world: &World, index: usize) -> bool {
        world.clients[index].follows && world.lease == 0 && !self.is(Mutation::AgentIgnoresLease)
    }

    /// Makes the client leave the server. From then on its queue runs within its window.
    pub fn step_agent(&self, client: &mut Client) {
        client.follows = false;
        client.wake_up = WakeUp::None;
        (client.run, client.limit, client.event_mask) = (true, true, 0);
        client.late_launches = 0;
        client.worker_signal = true;
    }
}
