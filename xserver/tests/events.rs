//! `Request::Events`: what happens, who sees it, and readers that are too slow. Needs root, to become other users.

mod support;

use protocol::bounds::Priority;
use protocol::control::{
    EVENTS, EventKind, HintUpdate, PolicyOrder, Refused, Reply, Request, ServerEvent, Target,
};
use protocol::ids::Pid;
use std::os::unix::net::UnixStream;
use std::path::Path;
use support::{
    ALICE, BOB, Client, MONITOR, Running, ask, ask_as, ask_on, client_of, connect_as, is_closed, read_reply,
    wait_for,
};

const CONFIGURATION: &str = r#"
    [policy]
    name = "HPF"
    [[rule]]
    name = "monitoring"
    users = [40004]
    observe = true
    [[rule]]
    name = "banned"
    users = [40009]
    connect = false
"#;

fn request(recent: u32, follow: bool) -> Request {
    Request::Events { recent, follow }
}

fn events(reply: Reply) -> Vec<ServerEvent> {
    match reply {
        Reply::Events(events) => events,
        other => panic!("{other:?}"),
    }
}

fn kept(socket: &mut UnixStream) -> Vec<EventKind> {
    events(ask_on(socket, &request(EVENTS as u32, false))).into_iter().map(|event| event.kind).collect()
}

fn policy(name: &str) -> Request {
    Request::SetPolicy(PolicyOrder { policy: name.to_owned(), values: [].into(), device: None })
}

fn hint(priority: i64) -> Request {
    let of = Target { pid: Some(Pid(std::process::id())), queue: None };
    Request::Hint { of, said: vec![HintUpdate::Priority(Priority::try_from(priority).unwrap())] }
}

/// A person who follows events. Those that have come are read only when one is waited for.
struct Reader {
    socket: UnixStream,
    come: Vec<EventKind>,
}

impl Reader {
    fn new(mut socket: UnixStream) -> Self {
        let first = events(ask_on(&mut socket, &request(0, true)));
        Self { socket, come: first.into_iter().map(|event| event.kind).collect() }
    }

    /// Reads until an event has come for which this is true.
    fn wait(&mut self, is_wanted: impl Fn(&EventKind) -> bool) -> EventKind {
        self.read_to(is_wanted).pop().unwrap()
    }

    /// The same, with all events before it.
    fn read_to(&mut self, is_wanted: impl Fn(&EventKind) -> bool) -> Vec<EventKind> {
        loop {
            if let Some(place) = self.come.iter().position(&is_wanted) {
                return self.come.drain(..=place).collect();
            }
            self.come.extend(events(read_reply(&mut self.socket)).into_iter().map(|event| event.kind));
        }
    }
}

#[test]
fn recent_events_are_kept_in_their_order() {
    let server = Running::new();
    let client = Client::with_queue(&server.path, "one", 3);
    server.wait_for_clients(1);
    wait_for("its queue exists", || !server.list().clients[0].queues.is_empty());
    for request in [hint(7), policy("UP"), Request::Off, Request::On] {
        assert_eq!(ask(&server.path, &request), Reply::Done);
    }
    let Reply::Error(why) = ask(&server.path, &policy("FIFO")) else { panic!("it is refused") };
    drop(client);
    server.wait_for_clients(0);
    let events = events(ask(&server.path, &request(100, false)));
    assert!(events.is_sorted_by_key(|event| event.at), "{events:?}");
    let (pid, name, uid) = (Pid(std::process::id()), "one".to_owned(), rustix::process::geteuid().as_raw());
    let kinds: Vec<_> = events.into_iter().map(|event| event.kind).collect();
    let by = pid;
    let [.., EventKind::Left { why: end, .. }] = &kinds[..] else { panic!("{kinds:?}") };
    let want = [
        EventKind::Joined { pid, name: name.clone(), uid },
        EventKind::Hinted { by, target: format!("pid {pid}"), hints: "priority 7".to_owned() },
        EventKind::Policy { by, policy: Some("UP".to_owned()), device: None },
        EventKind::Switched { by, on: false },
        EventKind::Switched { by, on: true },
        EventKind::Refused { pid, uid, what: Refused::Request, why },
        EventKind::Left { pid, name, why: end.clone() },
    ];
    assert_eq!(kinds, want);
    assert_eq!(end, "the client closed the connection");
    let newest = kept(&mut UnixStream::connect(&server.path).unwrap());
    assert_eq!(newest, want);
}

#[test]
fn followers_see_permissions_with_their_reasons() {
    let server = Running::new();
    let mut low = Client::with_queue(&server.path, "low", 1);
    low.ready(0);
    wait_for("it has a queue", || !server.list().clients[0].queues.is_empty());
    let mut reader = Reader::new(UnixStream::connect(&server.path).unwrap());
    // The first reply says how things are.
    assert!(
        matches!(&reader.come[..], [EventKind::Running { name, .. }] if name == "low"),
        "{:?}",
        reader.come
    );
    let mut high = Client::with_queue(&server.path, "high", 9);
    high.ready(0);
    reader.wait(|kind| matches!(kind, EventKind::Joined { name, .. } if name == "high"));
    let suspended = reader.wait(|kind| matches!(kind, EventKind::Suspended { .. }));
    let EventKind::Suspended { name, why, .. } = suspended else { panic!("{suspended:?}") };
    assert!(name == "low" && why.ends_with("has priority 9 > 1"), "{name}: {why}");
    // Another reason alone is no event.
    let mut higher = Client::with_queue(&server.path, "higher", 11);
    higher.ready(0);
    let come = reader.read_to(|kind| matches!(kind, EventKind::Suspended { name, .. } if name == "high"));
    let is_of_low = |kind: &EventKind| matches!(kind, EventKind::Suspended { name, .. } if name == "low");
    assert!(!come.iter().any(is_of_low), "{come:?}");
    drop(higher);
    reader.wait(|kind| matches!(kind, EventKind::Running { name, .. } if name == "high"));
    drop(high);
    reader.wait(|kind| matches!(kind, EventKind::Left { name, .. } if name == "high"));
    reader.wait(|kind| matches!(kind, EventKind::Running { name, .. } if name == "low"));
    // What changes so often is not kept.
    let kept = kept(&mut UnixStream::connect(&server.path).unwrap());
    assert!(
        kept.iter().all(|kind| matches!(kind, EventKind::Joined { .. } | EventKind::Left { .. })),
        "{kept:?}"
    );
    // A connection that follows takes no other request.
    let frame = protocol::frame::Frame::encode(protocol::message::REQUEST, b"\"list\"");
    rustix::io::write(&reader.socket, &frame).unwrap();
    wait_for("the connection is closed", || is_closed(&reader.socket));
    assert_eq!(server.list().clients.len(), 1);
}

#[test]
fn people_see_what_concerns_their_programs() {
    let (server, file) = Running::shared(CONFIGURATION);
    let follow = |uid: u32, path: &Path| Reader::new(connect_as(uid, uid, path));
    let (mut alice, mut bob) = (follow(ALICE, &server.path), follow(BOB, &server.path));
    let mut monitor = follow(MONITOR, &server.path);
    let mut low = client_of(ALICE, &server.path, -5);
    low.ready(0);
    alice.wait(|kind| matches!(kind, EventKind::Joined { uid, .. } if *uid == ALICE));
    let mut high = client_of(BOB, &server.path, 0);
    high.ready(0);
    let suspended = alice.wait(|kind| matches!(kind, EventKind::Suspended { .. }));
    let EventKind::Suspended { why, .. } = suspended else { panic!("{suspended:?}") };
    assert!(!why.contains("pid"), "{why}");
    let suspended = monitor.wait(|kind| matches!(kind, EventKind::Suspended { .. }));
    let EventKind::Suspended { name, why, .. } = suspended else { panic!("{suspended:?}") };
    assert!(name == format!("of-{ALICE}") && why.contains("pid"), "{why}");
    bob.wait(|kind| matches!(kind, EventKind::Joined { uid, .. } if *uid == BOB));
    assert!(!bob.come.iter().any(|kind| matches!(kind, EventKind::Suspended { .. })), "{:?}", bob.come);

    // Refusals: a banned user's, seen by observers, and Alice's own.
    let refused = ask_as(ALICE, &server.path, &Request::Off);
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    alice.wait(|kind| matches!(kind, EventKind::Refused { what: Refused::Request, uid: ALICE, .. }));
    let _banned = connect_as(40_009, 40_009, &server.path);
    monitor.wait(|kind| matches!(kind, EventKind::Refused { what: Refused::Connection, uid: 40_009, .. }));

    // A bad configuration, then a good one with which Alice is an observer.
    std::fs::write(&file, "nonsense").unwrap();
    assert!(matches!(ask(&server.path, &Request::Reload), Reply::Error(_)));
    monitor.wait(|kind| matches!(kind, EventKind::Reloaded { error: Some(_) }));
    std::fs::write(&file, CONFIGURATION.replace("40004", "40001")).unwrap();
    assert_eq!(ask(&server.path, &Request::Reload), Reply::Done);
    alice.wait(|kind| matches!(kind, EventKind::Reloaded { error: None }));

    let of = |uid| kept(&mut connect_as(uid, uid, &server.path));
    let is_of_bob = |kind: &EventKind| matches!(kind, EventKind::Joined { uid, .. } if *uid == BOB);
    assert!(of(BOB).iter().all(is_of_bob), "{:?}", of(BOB));
    assert!(of(ALICE).iter().any(is_of_bob));
    assert!(!of(MONITOR).iter().any(is_of_bob), "no observer any more");
}

#[test]
fn slow_reader_loses_events_and_delays_nobody() {
    const HINTS: u64 = 20_000;
    let server = Running::new();
    let _client = Client::with_queue(&server.path, "one", 3);
    wait_for("its queue exists", || {
        server.list().clients.first().is_some_and(|client| !client.queues.is_empty())
    });
    let mut reader = Reader::new(UnixStream::connect(&server.path).unwrap());
    let mut control = UnixStream::connect(&server.path).unwrap();
    for number in 0..HINTS {
        assert_eq!(ask_on(&mut control, &hint((number % 100) as i64)), Reply::Done);
    }
    let (mut come, mut dropped) = (0, 0);
    while come + dropped < HINTS {
        match reader.wait(|kind| matches!(kind, EventKind::Hinted { .. } | EventKind::Dropped { .. })) {
            EventKind::Dropped { count } => dropped += count,
            _ => come += 1,
        }
    }
    assert!(come + dropped == HINTS && dropped > 0, "{come} and {dropped}");
}
