//! Every interleaving of leases (stateright). A server renews leases, hangs, continues, dies and is
//! restarted. The agent and the listener of a client follow the rules of `protocol::page`; one of the two
//! threads can be killed. Time advances in heartbeats.

use protocol::page::{HEARTBEAT, LEASE};
use stateright::{Checker, Model, Property};

/// The length of a lease in ticks.
const TICKS: u8 = (LEASE.as_nanos() / HEARTBEAT.as_nanos()) as u8;
/// The last tick of the model.
const END: u8 = 3 * TICKS;

/// The state of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    /// It follows the page of the handshake with this number.
    Follows(u8),
    /// It runs without a server. The last page was that of the handshake with this number.
    Open(u8),
}

/// A server's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Page {
    handshake: u8,
    run: bool,
    /// The tick at which the lease ends.
    deadline: u8,
    /// The tick of the last heartbeat.
    heartbeat: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    alive: bool,
    hangs: bool,
    /// True if the server has ever been silent.
    failed: bool,
    /// The page of the last handshake.
    page: Page,
    connected: bool,
    client: Client,
    /// True if the listener has seen the end of the lease and given permission, but the agent has not ended
    /// the connection yet.
    opened: bool,
    /// The tick of each thread's next check of the lease; none for a thread that was killed.
    checks: [Option<u8>; 2],
}

/// The client's threads.
const AGENT: usize = 0;
const LISTENER: usize = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Tick,
    /// The server renews the lease.
    Heartbeat,
    /// The server stores a permission: true to run, false to suspend.
    Permit(bool),
    /// The server hangs.
    Hang,
    /// The hung server continues.
    Continue,
    /// The server dies.
    Die,
    /// A new server starts.
    Start,
    /// A thread of the client checks the lease.
    Check(usize),
    /// A thread of the client is killed.
    Kill(usize),
    /// The agent sees that its connection has ended.
    SeeDisconnect,
    /// The agent connects to the server.
    Connect,
}

struct Lease {
    /// True for each thread that checks the lease. An agent that does not check it sees only the end of its
    /// connection.
    checks: [bool; 2],
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
        let page = Page { handshake: 1, run: true, deadline: TICKS, heartbeat: 0 };
        vec![World {
            now: 0,
            alive: true,
            hangs: false,
            failed: false,
            page,
            connected: true,
            client: Client::Follows(1),
            opened: false,
            checks: [Some(TICKS); 2],
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let follows = matches!(world.client, Client::Follows(_));
        let renews = world.serves() && world.connected;
        let heartbeat_due = renews && world.now > world.page.heartbeat;
        // A listener that has given permission has ended.
        let next_check = |thread: usize| {
            let at = world.checks[thread].filter(|_| self.checks[thread] && follows);
            at.filter(|_| thread == AGENT || !world.opened)
        };
        let has_agent = world.checks[AGENT].is_some();
        let check_due =
            [AGENT, LISTENER].iter().any(|&thread| next_check(thread).is_some_and(|at| world.now > at));
        // Time advances only when nothing is due: a running thread or server acts within a tick.
        if world.now < END && !heartbeat_due && !check_due {
            actions.push(Action::Tick);
        }
        if heartbeat_due {
            actions.push(Action::Heartbeat);
        }
        if renews {
            actions.push(Action::Permit(!world.page.run));
        }
        if world.serves() {
            actions.push(Action::Hang);
        }
        if world.alive && world.hangs {
            actions.push(Action::Continue);
        }
        actions.push(if world.alive { Action::Die } else { Action::Start });
        for thread in [AGENT, LISTENER] {
            if next_check(thread).is_some_and(|at| world.now >= at || thread == AGENT && world.opened) {
                actions.push(Action::Check(thread));
            }
            if follows && world.checks.iter().all(Option::is_some) {
                actions.push(Action::Kill(thread));
            }
        }
        if follows && has_agent && !world.connected {
            actions.push(Action::SeeDisconnect);
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
            Action::Heartbeat => (next.page.heartbeat, next.page.deadline) = (world.now, world.now + TICKS),
            Action::Permit(run) => next.page.run = run,
            Action::Hang => (next.hangs, next.failed) = (true, true),
            // The server renews the lease at once, even if no client follows the page any more.
            Action::Continue => {
                next.hangs = false;
                (next.page.heartbeat, next.page.deadline) = (world.now, world.now + TICKS);
            }
            Action::Die => {
                (next.alive, next.hangs, next.failed, next.connected) = (false, false, true, false)
            }
            Action::Start => next.alive = true,
            Action::Check(AGENT) if world.opened || world.now > world.page.deadline => {
                next.client = Client::Open(world.page.handshake);
                (next.connected, next.opened) = (false, false);
            }
            Action::Check(LISTENER) if world.now > world.page.deadline => next.opened = true,
            Action::Check(thread) => next.checks[thread] = Some(world.page.deadline),
            Action::Kill(thread) => next.checks[thread] = None,
            Action::SeeDisconnect => {
                (next.client, next.opened) = (Client::Open(world.page.handshake), false);
            }
            Action::Connect => {
                let handshake = world.page.handshake + 1;
                next.page = Page { handshake, run: true, deadline: world.now + TICKS, heartbeat: world.now };
                (next.client, next.connected) = (Client::Follows(handshake), true);
                // A new listener starts.
                next.checks = [Some(next.page.deadline); 2];
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no silent server suspends a client beyond the lease", |_, world: &World| {
                !world.is_suspended() || world.now <= world.page.heartbeat + TICKS + 1
            }),
            Property::always("no client leaves a server that renews leases", |_, world: &World| {
                world.failed || matches!(world.client, Client::Follows(_)) && !world.opened
            }),
            Property::always("the client follows no page but the latest", |_, world: &World| {
                match world.client {
                    Client::Follows(handshake) | Client::Open(handshake) => handshake == world.page.handshake,
                }
            }),
            Property::sometimes("a client connects again", |_, world: &World| {
                world.client == Client::Follows(3)
            }),
            Property::sometimes("the listener gives permission without an agent", |_, world: &World| {
                world.opened && world.checks[AGENT].is_none()
            }),
            Property::sometimes("a lease ends under a hung server", |_, world: &World| {
                world.hangs && matches!(world.client, Client::Open(_))
            }),
        ]
    }
}

#[test]
fn silent_server_suspends_no_client_beyond_the_lease() {
    Lease { checks: [true, true] }.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn one_checking_thread_is_not_enough() {
    for checks in [[false, false], [true, false], [false, true]] {
        // A single checking thread can be killed.
        let checker = Lease { checks }.checker().spawn_bfs().join();
        let property = "no silent server suspends a client beyond the lease";
        assert!(checker.discovery(property).is_some(), "{checks:?}");
    }
}
