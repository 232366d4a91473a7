//! Every interleaving of leases (stateright): a server that renews leases, hangs, continues, dies and is
//! restarted; and the agent and listener threads of a client, which follow `protocol::page`, and one of which
//! can be killed. Time advances in heartbeats.

use protocol::page::{HEARTBEAT, LEASE};
use stateright::{Checker, Model, Property};

/// The ticks of a lease.
const TICKS: u8 = (LEASE.as_nanos() / HEARTBEAT.as_nanos()) as u8;
/// The last tick of the model.
const END: u8 = 3 * TICKS;

/// The state of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    /// It follows the page of this handshake.
    Follows(u8),
    /// It runs without a server. The page of this handshake was the last.
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
    /// True if the server has ever been silent.
    failed: bool,
    /// The page as the server has written it.
    page: Page,
    connected: bool,
    client: Client,
    /// True if the listener has seen the end of the lease and given permission, but the agent has not ended
    /// the connection yet.
    opened: bool,
    /// The next check of the lease by each thread; none for a thread that was killed.
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
    /// True for each thread that checks the lease. Without it the agent has only its socket.
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
        // A listener that has given permission has ended.
        let looks = |thread: usize| {
            let at = world.looks[thread].filter(|_| self.looks[thread] && follows);
            at.filter(|_| thread == AGENT || !world.opened)
        };
        let has_agent = world.looks[AGENT].is_some();
        let look_due = [AGENT, LISTENER].iter().any(|&thread| looks(thread).is_some_and(|at| world.now > at));
        // A running thread or server acts within a tick when due.
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
        // A hung server accepts no handshake, and the agent does not wait for it.
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
            // It renews the lease at once, on a page that may be unused by now.
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
                // A new listener starts.
                next.looks = [Some(next.page.deadline); 2];
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no silent server suspends a client beyond the lease", |_, world: &World| {
                !world.is_suspended() || world.now <= world.page.beat + TICKS + 1
            }),
            Property::always("no client leaves a server that renews leases", |_, world: &World| {
                world.failed || matches!(world.client, Client::Follows(_)) && !world.opened
            }),
            Property::always("only a new handshake is followed", |_, world: &World| match world.client {
                Client::Follows(handshake) | Client::Open(handshake) => handshake == world.page.handshake,
            }),
            Property::sometimes("a client connects again", |_, world: &World| {
                world.client == Client::Follows(3)
            }),
            Property::sometimes("the listener gives permission without an agent", |_, world: &World| {
                world.opened && world.looks[AGENT].is_none()
            }),
            Property::sometimes("a lease ends under a hung server", |_, world: &World| {
                world.hangs && matches!(world.client, Client::Open(_))
            }),
        ]
    }
}

#[test]
fn silent_server_suspends_no_client_beyond_the_lease() {
    Lease { looks: [true, true] }.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn one_checking_thread_is_not_enough() {
    for looks in [[false, false], [true, false], [false, true]] {
        // The only checking thread could be killed.
        let checker = Lease { looks }.checker().spawn_bfs().join();
        let held = "no silent server suspends a client beyond the lease";
        assert!(checker.discovery(held).is_some(), "{looks:?}");
    }
}
