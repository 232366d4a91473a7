//! A client's threads, in steps of one access to what they share.

use super::world::{Broken, Client, Life, Mutation, Notice, Program, Scene, Worker, World};
use protocol::page::{EVENT_IDLE, EVENT_READY};

impl Client {
    fn submit_is_free(&self) -> bool {
        !matches!(self.program, Program::Decided | Program::Told | Program::Calls)
            && self.worker != Worker::Decided
            && !self.watcher_told
    }

    fn pending_is_free(&self) -> bool {
        self.program != Program::Appended && !self.watcher_told
    }

    /// The gate: the server's page, or nobody's.
    fn may_run(&self) -> bool {
        !self.is_suspended()
    }

    /// Takes what is in front of pending.
    fn pop(&mut self) -> u8 {
        let command = self.pending.0;
        self.pending.0 += 1;
        if !self.has_pending() {
            self.pending = (0, 0);
        }
        command
    }

    /// The call into the runtime.
    fn launch(&mut self, command: u8) {
        if self.broken == Broken::Nothing {
            self.broken = match command.cmp(&self.launched) {
                std::cmp::Ordering::Less => Broken::Twice,
                std::cmp::Ordering::Equal => Broken::Nothing,
                std::cmp::Ordering::Greater => Broken::Order,
            };
        }
        self.launched += 1;
        if self.is_suspended() {
            self.late += 1;
        }
    }

    /// The process ends, and its queues with it.
    pub fn die(&mut self) {
        let page = (self.run, self.limit, self.event_mask, self.ready);
        self.life = Life::Dead;
        self.program = Program::Rests;
        self.worker = Worker::Rests;
        (self.watcher_told, self.signal, self.notice, self.follows) = (false, false, Notice::None, false);
        (self.submitted, self.launched, self.completed, self.pending) = (0, 0, 0, (0, 0));
        (self.late, self.waits, self.orphaned) = (0, 0, 0);
        (self.run, self.limit, self.event_mask, self.ready) = page;
    }
}

impl Scene {
    fn has_room(&self, client: &Client) -> bool {
        let limited = !client.follows || client.limit;
        !limited || client.in_flight() < self.window || self.is(Mutation::NoWindow)
    }

    /// Whether the worker has something to do. With a full window it polls: it goes on as soon as there is
    /// room.
    pub fn worker_steps(&self, client: &Client) -> bool {
        match client.worker {
            Worker::Decided => true,
            Worker::Holds(_) => client.submit_is_free() && client.may_run() && self.has_room(client),
            Worker::Rests if !client.signal || client.program == Program::Appended => false,
            // It does not need submit.
            Worker::Rests if self.is(Mutation::PopsOutside) => client.pending_is_free(),
            Worker::Rests => {
                client.submit_is_free()
                    && (!client.has_pending() || !client.may_run() || self.has_room(client))
            }
        }
    }

    pub fn worker(&self, client: &mut Client) {
        match client.worker {
            Worker::Rests if !client.has_pending() => client.signal = false,
            Worker::Rests if self.is(Mutation::PopsOutside) => client.worker = Worker::Holds(client.pop()),
            Worker::Rests if !client.may_run() => client.signal = false,
            Worker::Rests => client.worker = Worker::Decided,
            Worker::Decided => {
                client.worker = Worker::Rests;
                let suspended = !client.may_run();
                if self.is(Mutation::Repeats) && suspended {
                    client.launch(client.pending.0);
                    return;
                }
                let command = client.pop();
                if self.is(Mutation::Forgets) && suspended {
                    return;
                }
                client.launch(command);
                if self.is(Mutation::LooksOnce) && client.has_pending() && self.has_room(client) {
                    client.worker = Worker::Decided;
                }
            }
            Worker::Holds(command) => {
                client.worker = Worker::Rests;
                client.launch(command);
            }
        }
    }

    /// The program comes with a command: the direct path's look, under submit, or the deferred path.
    pub fn submit(&self, client: &mut Client) {
        client.submitted += 1;
        let direct =
            client.submit_is_free() && !client.has_pending() && client.may_run() && self.has_room(client);
        client.program = if direct { Program::Decided } else { Program::Appends };
    }

    pub fn program_steps(&self, client: &Client) -> bool {
        match client.program {
            Program::Rests => false,
            Program::Appends => client.pending_is_free(),
            _ => true,
        }
    }

    pub fn program(&self, world: &mut World, place: usize) {
        let client = &mut world.clients[place];
        let command = client.submitted - 1;
        match client.program {
            Program::Rests => {}
            Program::Decided if !client.ready => {
                client.ready = true;
                client.program = Program::Told;
            }
            Program::Told => {
                world.server.ring(client.event_mask & EVENT_READY != 0);
                client.program = Program::Calls;
            }
            Program::Decided | Program::Calls => {
                client.launch(command);
                client.program = Program::Rests;
            }
            Program::Appends => {
                let first = if client.has_pending() { client.pending.0 } else { command };
                client.pending = (first, command + 1);
                if client.ready {
                    client.signal = true;
                    client.program = Program::Rests;
                } else {
                    client.ready = true;
                    client.program = Program::Appended;
                }
            }
            Program::Appended => {
                world.server.ring(client.event_mask & EVENT_READY != 0);
                client.signal = true;
                client.program = Program::Rests;
            }
        }
    }

    /// Whether the watcher can prove that the queue is idle, or is about to say so.
    pub fn watcher_steps(&self, client: &Client) -> bool {
        let idle = !client.has_pending() && client.in_flight() == 0 && client.worker == Worker::Rests;
        client.watcher_told
            || client.ready && idle && client.submit_is_free() && client.program == Program::Rests
    }

    pub fn watcher(&self, world: &mut World, place: usize) {
        let client = &mut world.clients[place];
        if client.watcher_told {
            world.server.ring(client.event_mask & EVENT_IDLE != 0);
            client.watcher_told = false;
        } else {
            client.ready = false;
            client.watcher_told = true;
        }
    }

    /// The futex: whoever could launch looks again.
    pub fn listener(&self, client: &mut Client) {
        client.notice = Notice::None;
        client.signal = true;
    }

    /// Whether the lease is over, and the agent has to see it within this tick.
    pub fn agent_is_due(&self, world: &World, place: usize) -> bool {
        world.clients[place].follows && world.lease == 0 && !self.is(Mutation::NoLease)
    }

    /// The server is given up: the queue runs within its window.
    pub fn agent(&self, client: &mut Client) {
        client.follows = false;
        client.notice = Notice::None;
        (client.run, client.limit, client.event_mask) = (true, true, 0);
        client.late = 0;
        client.signal = true;
    }
}
