//! Leases and failing open, every interleaving (stateright): a server that beats, hangs, goes on, dies and is started
//! again, and a client's two threads, the agent and the listener, that do what `protocol::page` says, and of which one may
//! be killed. Time goes in ticks of a heartbeat.

use protocol::page::{HEARTBEAT, LEASE};
use stateright::{Checker, Model, Property};

/// Ticks of a lease.
const TICKS: u8 = (LEASE.as_nanos() / HEARTBEAT.as_nanos()) as u8;
/// The model's last tick.
const END: u8 = 3 * TICKS;

/// What the client follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    /// The page of this handshake.
    Follows(u8),
    /// Nobody: it runs. The page of this handshake was the last.
    Open(u8),
}

/// One page, as the server has written it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Page {
    handshake: u8,
    run: bool,
    deadline: u8,
    beat: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    alive: bool,
    hangs: bool,
    /// Whether the server has ever been silent.
    failed: bool,
    /// The server's side of the connection, if it has one.
    page: Page,
    connected: bool,
    client: Client,
    /// The listener has seen the lease end and opened the gate; the agent has not ended the connection yet.
    opened: bool,
    /// When each thread looks at the lease next; nothing of one that is gone.
    looks: [Option<u8>; 2],
}

/// The client's threads.
const AGENT: usize = 0;
const LISTENER: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    Beat,
    Permit(bool),
    Hang,
    GoOn,
    Die,
    Start,
    Look(usize),
    Kill(usize),
    HearEnd,
    Connect,
}

struct Lease {
    /// Whether the agent and the listener look at the deadline. Without that the agent has its socket only.
    looks: [bool; 2],
}

impl World {
    fn serves(&self) -> bool {
        self.alive && !self.hangs
    }

    fn is_suspended(&self) -> bool {
        matches!(self.client, Client::Follows(_)) && !self.page.run && !self.opened
    }
}

impl Model for Lease {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let page = Page { handshake: 1, run: true, deadline: TICKS, beat: 0 };
        vec![World {
            now: 0,
            alive: true,
            hangs: false,
            failed: false,
            page,
            connected: true,
            client: Client::Follows(1),
            opened: false,
            looks: [Some(TICKS); 2],
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let follows = matches!(world.client, Client::Follows(_));
        let beats = world.serves() && world.connected;
        let beat_due = beats && world.now > world.page.beat;
        // A listener that has opened the gate has ended.
        let looks = |thread: usize| {
            let at = world.looks[thread].filter(|_| self.looks[thread] && follows);
            at.filter(|_| thread == AGENT || !world.opened)
        };
        let has_agent = world.looks[AGENT].is_some();
        let look_due = [AGENT, LISTENER].iter().any(|&thread| looks(thread).is_some_and(|at| world.now > at));
        // Whoever is due acts within a tick: that is what "running" means for both.
        if world.now < END && !beat_due && !look_due {
            actions.push(Action::Tick);
        }
        if beat_due {
            actions.push(Action::Beat);
        }
        if beats {
            actions.push(Action::Permit(!world.page.run));
        }
        if world.serves() {
            actions.push(Action::Hang);
        }
        if world.alive && world.hangs {
            actions.push(Action::GoOn);
        }
        actions.push(if world.alive { Action::Die } else { Action::Start });
        for thread in [AGENT, LISTENER] {
            if looks(thread).is_some_and(|at| world.now >= at || thread == AGENT && world.opened) {
                actions.push(Action::Look(thread));
            }
            if follows && world.looks.iter().all(Option::is_some) {
                actions.push(Action::Kill(thread));
            }
        }
        if follows && has_agent && !world.connected {
            actions.push(Action::HearEnd);
        }
        // A hung server's socket takes a connection, but nobody answers; the agent does not wait for it.
        if !follows && has_agent && world.serves() && world.page.handshake < 4 {
            actions.push(Action::Connect);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Beat => (next.page.beat, next.page.deadline) = (world.now, world.now + TICKS),
            Action::Permit(run) => next.page.run = run,
            Action::Hang => (next.hangs, next.failed) = (true, true),
            // It beats at once, on a page that may be dead by now.
            Action::GoOn => {
                next.hangs = false;
                (next.page.beat, next.page.deadline) = (world.now, world.now + TICKS);
            }
            Action::Die => {
                (next.alive, next.hangs, next.failed, next.connected) = (false, false, true, false)
            }
            Action::Start => next.alive = true,
            Action::Look(AGENT) if world.opened || world.now > world.page.deadline => {
                next.client = Client::Open(world.page.handshake);
                (next.connected, next.opened) = (false, false);
            }
            Action::Look(LISTENER) if world.now > world.page.deadline => next.opened = true,
            Action::Look(thread) => next.looks[thread] = Some(world.page.deadline),
            Action::Kill(thread) => next.looks[thread] = None,
            Action::HearEnd => {
                (next.client, next.opened) = (Client::Open(world.page.handshake), false);
            }
            Action::Connect => {
                let handshake = world.page.handshake + 1;
                next.page = Page { handshake, run: true, deadline: world.now + TICKS, beat: world.now };
                (next.client, next.connected) = (Client::Follows(handshake), true);
                // The listener is a new one.
                next.looks = [Some(next.page.deadline); 2];
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "nobody is suspended longer than a lease by a server that is silent",
                |_, world: &World| !world.is_suspended() || world.now <= world.page.beat + TICKS + 1,
            ),
            Property::always("nobody gives up a server that beats", |_, world: &World| {
                world.failed || matches!(world.client, Client::Follows(_)) && !world.opened
            }),
            Property::always("only a new handshake is followed", |_, world: &World| match world.client {
                Client::Follows(handshake) | Client::Open(handshake) => handshake == world.page.handshake,
            }),
            Property::sometimes("a client comes back", |_, world: &World| world.client == Client::Follows(3)),
            Property::sometimes("the listener opens the gate without an agent", |_, world: &World| {
                world.opened && world.looks[AGENT].is_none()
            }),
            Property::sometimes("a lease ends under a hung server", |_, world: &World| {
                world.hangs && matches!(world.client, Client::Open(_))
            }),
        ]
    }
}

#[test]
fn a_silent_server_holds_nobody() {
    Lease { looks: [true, true] }.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn a_socket_alone_or_one_thread_would_not_do() {
    for looks in [[false, false], [true, false], [false, true]] {
        // With one thread that looks, it may be the one that is killed.
        let checker = Lease { looks }.checker().spawn_bfs().join();
        let held = "nobody is suspended longer than a lease by a server that is silent";
        assert!(checker.discovery(held).is_some(), "{looks:?}");
    }
}
