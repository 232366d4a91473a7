//! The decision round of the server. Each step makes one access to shared memory, in the order of
//! `Core::step` and of the event loop.

use super::decider::Seen;
use super::world::{
    Decided, LEASE_TICKS, Mutation, ProcessState, STALL_TICKS, ScheduleModel, ServerStep, WakeUp, World,
};
use protocol::page::EVENT_READY;

impl ScheduleModel {
    /// Returns true if the server can make a step.
    pub fn server_can_step(&self, world: &World) -> bool {
        let server = &world.server;
        server.alive
            && (server.step != ServerStep::Idle
                || server.woken
                || server.heartbeat_due
                || server.changes_applied != world.changes_made)
    }

    /// Returns true if the server must make its next step within this tick.
    pub fn server_is_due(&self, world: &World) -> bool {
        let server = &world.server;
        let notified = server.woken || server.changes_applied != world.changes_made;
        server.alive
            && (server.step != ServerStep::Idle || server.heartbeat_due || notified && !self.faults.delays)
    }

    /// Makes the server's next step.
    pub fn step_server(&self, world: &mut World) {
        world.server.step = match world.server.step {
            ServerStep::Idle => self.begin_round(world),
            ServerStep::ReadsQueue(index) => {
                self.read_queue(world, index);
                self.next_read(world, index + 1)
            }
            ServerStep::WritesMask(index, missed) => self.write_mask(world, index, missed),
            ServerStep::ReadsAgain(index, missed) => {
                let changed = self.read_queue(world, index) && !self.is(Mutation::NoSecondDecision);
                self.after_mask(world, index, missed || changed)
            }
            ServerStep::FindsStopped => self.find_stopped(world),
            ServerStep::StoresPermission(index) => {
                self.store_permission(world, index);
                match index {
                    0 => ServerStep::StoresPermission(1),
                    _ if self.is(Mutation::StoresBeforeMasks) => ServerStep::WritesMask(0, false),
                    _ if self.is(Mutation::WakesBeforeStoring) => self.end_round(world),
                    _ => ServerStep::Wakes(0),
                }
            }
            ServerStep::Wakes(index) => {
                if std::mem::take(&mut world.server.to_wake[index]) {
                    world.clients[index].wake_up = WakeUp::New;
                }
                match index {
                    0 => ServerStep::Wakes(1),
                    _ if self.is(Mutation::WakesBeforeStoring) => ServerStep::StoresPermission(0),
                    _ => self.end_round(world),
                }
            }
            ServerStep::RenewsLeases => {
                world.lease = LEASE_TICKS;
                (world.server.heartbeat_due, world.server.in_heartbeat) = (false, false);
                ServerStep::Idle
            }
        };
    }

    /// Begins a round: applies changes of settings, takes the notifications, and removes dead clients.
    fn begin_round(&self, world: &mut World) -> ServerStep {
        let server = &mut world.server;
        let only_changes = !server.woken && !server.heartbeat_due;
        while server.changes_applied != world.changes_made {
            server.memory = self.decider.change_setting(server.memory, server.changes_applied);
            server.changes_applied += 1;
        }
        if self.is(Mutation::NoDecisionAfterChange) && only_changes {
            return ServerStep::Idle;
        }
        server.in_heartbeat = server.heartbeat_due;
        if self.is(Mutation::HeartbeatOnlyRenews) && server.heartbeat_due {
            return ServerStep::RenewsLeases;
        }
        server.woken &= self.is(Mutation::LevelTriggered);
        let notified = server.notified;
        if !self.is(Mutation::TakesNotificationsLate) {
            server.notified = [false; 2];
        }
        if !self.is(Mutation::IgnoresNotifier) {
            server.by_event = [0, 1].map(|index| server.by_event[index] && !notified[index]);
        }
        if server.in_heartbeat {
            server.by_event = [false; 2];
        }
        for (index, client) in world.clients.iter().enumerate() {
            if client.process == ProcessState::Dead && !self.is(Mutation::KeepsDeadClients) {
                server.seen[index] = Seen::Gone;
                server.yielded[index] = false;
                server.blocking_ticks[index] = None;
                (server.by_event[index], server.notified[index]) = (false, false);
            }
        }
        self.next_read(world, 0)
    }

    /// Returns the step that reads the next queue from this one on, or decides if none is left that may have changed.
    fn next_read(&self, world: &mut World, first: usize) -> ServerStep {
        let server = &mut world.server;
        match (first..2).find(|index| !server.by_event[*index] || server.yielded[*index]) {
            Some(index) => ServerStep::ReadsQueue(index),
            None => {
                if self.is(Mutation::TakesNotificationsLate) {
                    server.notified = [false; 2];
                }
                self.decide(world)
            }
        }
    }

    /// Reads the state of a queue. Returns true if it has changed.
    fn read_queue(&self, world: &mut World, index: usize) -> bool {
        let (server, client) = (&mut world.server, &world.clients[index]);
        let is_idle = server.seen[index] != Seen::Gone && !client.ready;
        server.by_event[index] = is_idle && client.event_mask & EVENT_READY != 0;
        let seen = match (server.seen[index], client.ready) {
            (Seen::Idle, true) => Seen::Ready(0),
            (Seen::Ready(_), false) => Seen::Idle,
            _ => return false,
        };
        server.seen[index] = seen;
        // The server takes a change of state as progress of a process that is not stopped.
        server.yielded[index] = false;
        server.blocking_ticks[index] = server.blocking_ticks[index].map(|_| 0);
        true
    }

    /// Asks the policy for a decision.
    fn decide(&self, world: &mut World) -> ServerStep {
        let server = &mut world.server;
        // A client that yields counts as idle.
        let mut states = server.seen;
        for (seen, yielded) in states.iter_mut().zip(server.yielded) {
            if yielded && *seen != Seen::Gone {
                *seen = Seen::Idle;
            }
        }
        let decision = self.decider.decide(server.memory, server.ticks_since_decision, states);
        (server.memory, server.ticks_since_decision) = (decision.memory, 0);
        server.decided =
            Some(Decided { run: decision.run, limit: decision.limit, event_mask: decision.event_mask });
        let has_work = states.map(|seen| matches!(seen, Seen::Ready(_)));
        for index in 0..2 {
            let other_waits = has_work[1 - index] && !decision.run[1 - index];
            let blocks = has_work[index] && decision.run[index] && other_waits;
            server.blocking_ticks[index] = blocks.then(|| server.blocking_ticks[index].unwrap_or(0));
        }
        if self.is(Mutation::StoresBeforeMasks) {
            ServerStep::StoresPermission(0)
        } else {
            ServerStep::WritesMask(0, false)
        }
    }

    /// Writes a client's event mask. If the mask has grown, the server reads the client's queue again.
    fn write_mask(&self, world: &mut World, index: usize, missed: bool) -> ServerStep {
        let Some(decided) = world.server.decided else { return self.next_read(world, 0) };
        let client = &mut world.clients[index];
        let has_grown = decided.event_mask[index] & !client.event_mask != 0;
        // It does not notify any more, and may have turned ready since its queue was read.
        let ends = world.server.by_event[index] && decided.event_mask[index] & EVENT_READY == 0;
        if client.follows {
            client.event_mask = decided.event_mask[index];
        }
        if (has_grown || ends) && !self.is(Mutation::NoSecondRead) {
            ServerStep::ReadsAgain(index, missed)
        } else {
            self.after_mask(world, index, missed)
        }
    }

    /// Returns the step after a client's event mask is written. After both masks a missed event starts
    /// another decision.
    fn after_mask(&self, world: &mut World, index: usize, missed: bool) -> ServerStep {
        match (index, missed) {
            (0, _) => ServerStep::WritesMask(1, missed),
            (_, true) => self.next_read(world, 0),
            (_, false) => ServerStep::FindsStopped,
        }
    }

    /// Looks up the processes of clients that keep another client waiting. The real server looks up only
    /// clients that complete nothing; the model does not count completions here. It therefore also looks up
    /// clients that complete commands; they yield only if their process is stopped.
    fn find_stopped(&self, world: &mut World) -> ServerStep {
        let server = &mut world.server;
        let mut changed = false;
        for (index, client) in world.clients.iter().enumerate() {
            let suspect = server.yielded[index] || server.blocking_ticks[index] == Some(STALL_TICKS);
            let stopped = client.process == ProcessState::Stopped;
            if suspect && stopped != server.yielded[index] && !self.is(Mutation::IgnoresStoppedProcesses) {
                server.yielded[index] = stopped;
                changed = true;
            }
        }
        match changed {
            true => self.next_read(world, 0),
            false if self.is(Mutation::StoresBeforeMasks) => ServerStep::Wakes(0),
            false if self.is(Mutation::WakesBeforeStoring) => {
                world.server.to_wake = [0, 1].map(|index| self.permission_changes(world, index));
                ServerStep::Wakes(0)
            }
            false => ServerStep::StoresPermission(0),
        }
    }

    /// Returns true if the decided permission of a client differs from the stored one.
    fn permission_changes(&self, world: &World, index: usize) -> bool {
        let (server, client) = (&world.server, &world.clients[index]);
        let Some(decided) = server.decided else { return false };
        server.seen[index] != Seen::Gone
            && client.follows
            && (client.run, client.limit) != (decided.run[index], decided.limit[index])
    }

    /// Stores a client's permission if it changes, and notes that the client must be woken.
    fn store_permission(&self, world: &mut World, index: usize) {
        let Some(decided) = world.server.decided else { return };
        if !self.permission_changes(world, index) {
            return;
        }
        let client = &mut world.clients[index];
        if client.run && !decided.run[index] {
            client.late_launches = 0;
        }
        (client.run, client.limit) = (decided.run[index], decided.limit[index]);
        world.server.to_wake[index] = !self.is(Mutation::WakesBeforeStoring);
    }

    fn end_round(&self, world: &mut World) -> ServerStep {
        world.server.decided = None;
        if world.server.in_heartbeat { ServerStep::RenewsLeases } else { ServerStep::Idle }
    }
}
