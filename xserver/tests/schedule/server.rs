//! The server's round, in steps of one access to what it shares, as `Core::step` and the loop around it make
//! it.

use super::decider::Seen;
use super::world::{At, Decided, LEASE_TICKS, Life, Mutation, Notice, STALL_TICKS, Scene, World};

impl Scene {
    pub fn server_steps(&self, world: &World) -> bool {
        let server = &world.server;
        server.alive && (server.at != At::Rests || server.woken || server.beat || server.heard != world.said)
    }

    /// Whether it has to make its step within this tick.
    pub fn server_is_due(&self, world: &World) -> bool {
        let server = &world.server;
        let told = server.woken || server.heard != world.said;
        server.alive && (server.at != At::Rests || server.beat || told && !self.faults.delays)
    }

    pub fn server(&self, world: &mut World) {
        world.server.at = match world.server.at {
            At::Rests => self.hear(world),
            At::Looks(place) => {
                self.look(world, place);
                if place == 0 { At::Looks(1) } else { self.decide(world) }
            }
            At::Wants(place, missed) => self.want(world, place, missed),
            At::LooksAgain(place, missed) => {
                let news = self.look(world, place) && !self.is(Mutation::NoSecondDecision);
                self.after_event_masks(place, missed || news)
            }
            At::LooksUp => self.look_up(world),
            At::Permits(place) => {
                self.permit(world, place);
                match place {
                    0 => At::Permits(1),
                    _ if self.is(Mutation::PermitsFirst) => At::Wants(0, false),
                    _ if self.is(Mutation::WakesFirst) => self.end(world),
                    _ => At::Wakes(0),
                }
            }
            At::Wakes(place) => {
                if std::mem::take(&mut world.server.to_wake[place]) {
                    world.clients[place].notice = Notice::Fresh;
                }
                match place {
                    0 => At::Wakes(1),
                    _ if self.is(Mutation::WakesFirst) => At::Permits(0),
                    _ => self.end(world),
                }
            }
            At::Renews => {
                world.lease = LEASE_TICKS;
                (world.server.beat, world.server.beats) = (false, false);
                At::Rests
            }
        };
    }

    fn hear(&self, world: &mut World) -> At {
        let server = &mut world.server;
        let told_only = !server.woken && !server.beat;
        while server.heard != world.said {
            server.memory = self.decider.say(server.memory, server.heard);
            server.heard += 1;
        }
        if self.is(Mutation::OnlyNotes) && told_only {
            return At::Rests;
        }
        server.beats = server.beat;
        if self.is(Mutation::Deaf) && server.beat {
            return At::Renews;
        }
        server.woken &= self.is(Mutation::LevelTriggered);
        for (place, client) in world.clients.iter().enumerate() {
            if client.life == Life::Dead && !self.is(Mutation::Keeps) {
                server.seen[place] = Seen::Gone;
                server.yielded[place] = false;
                server.awaited[place] = None;
            }
        }
        At::Looks(0)
    }

    /// Looks at a queue; says whether something is new.
    fn look(&self, world: &mut World, place: usize) -> bool {
        let server = &mut world.server;
        let seen = match (server.seen[place], world.clients[place].ready) {
            (Seen::Idle, true) => Seen::Ready(0),
            (Seen::Ready(_), false) => Seen::Idle,
            _ => return false,
        };
        server.seen[place] = seen;
        // Whoever does something is not stopped, and gets on.
        server.yielded[place] = false;
        server.awaited[place] = server.awaited[place].map(|_| 0);
        true
    }

    /// Asks the policy.
    fn decide(&self, world: &mut World) -> At {
        let server = &mut world.server;
        let mut counts = server.seen;
        for (seen, yielded) in counts.iter_mut().zip(server.yielded) {
            if yielded && *seen != Seen::Gone {
                *seen = Seen::Idle;
            }
        }
        let decision = self.decider.decide(server.memory, server.since, counts);
        (server.memory, server.since) = (decision.memory, 0);
        server.decided =
            Some(Decided { run: decision.run, limit: decision.limit, event_mask: decision.event_mask });
        let works = counts.map(|seen| matches!(seen, Seen::Ready(_)));
        for place in 0..2 {
            let waits = works[1 - place] && !decision.run[1 - place];
            let awaited = works[place] && decision.run[place] && waits;
            server.awaited[place] = awaited.then(|| server.awaited[place].unwrap_or(0));
        }
        if self.is(Mutation::PermitsFirst) { At::Permits(0) } else { At::Wants(0, false) }
    }

    fn want(&self, world: &mut World, place: usize, missed: bool) -> At {
        let Some(decided) = world.server.decided else { return At::Looks(0) };
        let client = &mut world.clients[place];
        let more = decided.event_mask[place] & !client.event_mask != 0;
        if client.follows {
            client.event_mask = decided.event_mask[place];
        }
        if more && !self.is(Mutation::NoSecondLook) {
            At::LooksAgain(place, missed)
        } else {
            self.after_event_masks(place, missed)
        }
    }

    fn after_event_masks(&self, place: usize, missed: bool) -> At {
        match (place, missed) {
            (0, _) => At::Wants(1, missed),
            (_, true) => At::Looks(0),
            (_, false) => At::LooksUp,
        }
    }

    /// Looks up who keeps others waiting and completes nothing. That somebody else is looked up as well
    /// changes nothing.
    fn look_up(&self, world: &mut World) -> At {
        let server = &mut world.server;
        let mut news = false;
        for (place, client) in world.clients.iter().enumerate() {
            let suspect = server.yielded[place] || server.awaited[place] == Some(STALL_TICKS);
            let stopped = client.life == Life::Stopped;
            if suspect && stopped != server.yielded[place] && !self.is(Mutation::NeverLooksUp) {
                server.yielded[place] = stopped;
                news = true;
            }
        }
        match news {
            true => At::Looks(0),
            false if self.is(Mutation::PermitsFirst) => At::Wakes(0),
            false if self.is(Mutation::WakesFirst) => {
                self.note_changes(world);
                At::Wakes(0)
            }
            false => At::Permits(0),
        }
    }

    /// Whether a client's permission is another than before.
    fn changes(&self, world: &World, place: usize) -> bool {
        let (server, client) = (&world.server, &world.clients[place]);
        let Some(decided) = server.decided else { return false };
        server.seen[place] != Seen::Gone
            && client.follows
            && (client.run, client.limit) != (decided.run[place], decided.limit[place])
    }

    fn note_changes(&self, world: &mut World) {
        world.server.to_wake = [0, 1].map(|place| self.changes(world, place));
    }

    fn permit(&self, world: &mut World, place: usize) {
        let Some(decided) = world.server.decided else { return };
        if !self.changes(world, place) {
            return;
        }
        let client = &mut world.clients[place];
        if client.run && !decided.run[place] {
            client.late = 0;
        }
        (client.run, client.limit) = (decided.run[place], decided.limit[place]);
        world.server.to_wake[place] = !self.is(Mutation::WakesFirst);
    }

    fn end(&self, world: &mut World) -> At {
        world.server.decided = None;
        if world.server.beats { At::Renews } else { At::Rests }
    }
}
