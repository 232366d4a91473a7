//! Permissions as seen by clients of a server in this process.

mod support;

use policies::reason::PRIORITY;
use protocol::control::{QueueState, Reply, Request};
use protocol::operation::Reason;
use protocol::page::{EVENT_READY, MAY_STAY_READY};
use protocol::time::Time;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::{Child, Client, Running, ask, wait_for};
use xserver::core::Settings;

/// A low client that is suspended because a high one is ready.
fn suspended(server: &Running) -> (Client, Client) {
    let mut low = Client::with_queue(&server.path, "low", 0);
    let mut high = Client::with_queue(&server.path, "high", 10);
    low.ready(0);
    wait_for("the low client runs", || low.runs() && server.list().clients.len() == 2);
    high.ready(0);
    wait_for("the low client is suspended", || !low.runs());
    (low, high)
}

#[test]
fn low_client_is_suspended_while_the_high_one_has_work() {
    let server = Running::new();
    let (low, mut high) = suspended(&server);
    assert!(high.runs() && !high.limited() && low.limited());
    let (generation, changes) = (low.generation(), low.page.changes.load(SeqCst));
    let began = xserver::now();
    high.idle(0);
    wait_for("the low client is resumed", || low.runs());
    assert!(xserver::now().since(began) >= Duration::from_micros(200), "the linger delays the resumption");
    assert_eq!(low.generation(), generation + 1);
    assert!(low.page.changes.load(SeqCst) > changes);
    // Repeats both changes: no event is lost.
    for _ in 0..100 {
        high.ready(0);
        wait_for("the low client is suspended again", || !low.runs());
        high.idle(0);
        wait_for("the low client is resumed again", || low.runs());
    }
}

#[test]
fn single_client_writes_no_eventfd_until_a_rival_comes() {
    let server = Running::new();
    let mut only = Client::with_queue(&server.path, "only", 0);
    wait_for("the queue is listed", || server.list().clients[0].queues.len() == 1);
    for _ in 0..3 {
        // A list with this state shows that the server has decided for it and written the event mask.
        only.ready(0);
        assert_eq!(server.list().clients[0].queues[0].state, QueueState::Running);
        assert_eq!(only.page.wants.load(SeqCst), MAY_STAY_READY);
        only.idle(0);
        assert_eq!(server.list().clients[0].queues[0].state, QueueState::Idle);
        assert_eq!(only.page.wants.load(SeqCst), MAY_STAY_READY);
    }
    assert_eq!(only.writes, 0);
    assert!(only.runs() && !only.limited());
    let _rival = Client::with_queue(&server.path, "rival", 9);
    wait_for("the event mask has changed", || only.page.wants.load(SeqCst) == EVENT_READY);
    only.ready(0);
    assert_eq!(only.writes, 1);
}

#[test]
fn devices_are_scheduled_independently() {
    let server = Running::new();
    let (mut low, mut high) = (Client::new(&server.path, "low"), Client::new(&server.path, "high"));
    low.create(1, 0, 1, 0);
    high.create(1, 0, 2, 9);
    high.ready(0);
    low.ready(0);
    wait_for("both clients are listed as running", || {
        let list = server.list();
        list.clients.len() == 2
            && list
                .clients
                .iter()
                .all(|client| client.queues.first().is_some_and(|queue| queue.state == QueueState::Running))
    });
    assert!(low.runs() && high.runs());
    assert!(server.list().clients.iter().all(|client| client.permit.reason == Reason::Unrivalled));
}

#[test]
fn client_that_disconnects_is_removed() {
    let server = Running::new();
    let (low, high) = suspended(&server);
    drop(high);
    wait_for("the low client is resumed", || low.runs());
    server.wait_for_clients(1);
}

/// A low client with work, and a high client whose process is a child.
fn with_child(server: &Running) -> (Client, Child, Client) {
    let mut low = Client::with_queue(&server.path, "low", 0);
    low.ready(0);
    let (child, socket) = Child::connect(&server.path);
    let high = Client::on(socket, "high");
    high.create(1, 0, 1, 10);
    wait_for("both clients have a queue", || {
        server.list().clients.iter().filter(|client| !client.queues.is_empty()).count() == 2
    });
    (low, child, high)
}

#[test]
fn dead_client_is_removed_although_its_socket_is_open() {
    let server = Running::new();
    let (low, child, mut high) = with_child(&server);
    assert_eq!(server.list().clients[1].pid.0, child.pid());
    high.ready(0);
    wait_for("the low client is suspended", || !low.runs());
    child.signal(libc::SIGKILL);
    wait_for("the low client is resumed", || low.runs());
    server.wait_for_clients(1);
    wait_for("the socket of the dead client is closed", || support::is_closed(&high.socket));
}

#[test]
fn stopped_client_yields_until_it_continues() {
    let server = Running::new();
    let (low, child, mut high) = with_child(&server);
    high.ready(0);
    wait_for("the low client is suspended", || !low.runs());
    child.signal(libc::SIGSTOP);
    wait_for("the low client is resumed", || low.runs());
    let list = server.list();
    assert!(list.clients[1].yielded && !list.clients[0].yielded);
    assert_eq!(list.server.guard_runs, 0);
    child.signal(libc::SIGCONT);
    wait_for("the high client suspends the low one again", || !low.runs());
    assert!(!server.list().clients[1].yielded);
}

#[test]
fn guard_lets_all_clients_run_briefly() {
    let server = Running::with(Settings::default(), None);
    let began = xserver::now();
    let (low, high) = suspended(&server);
    wait_for("the low client runs", || low.runs());
    assert!(xserver::now().since(began) >= Duration::from_millis(100), "the guard does not act at once");
    assert!(low.limited() && high.runs());
    wait_for("the low client is suspended again", || !low.runs());
    assert!(server.list().server.guard_runs >= 1);
}

#[test]
fn off_lets_all_clients_run_until_on() {
    let server = Running::new();
    let (low, high) = suspended(&server);
    assert_eq!(ask(&server.path, &Request::Off), Reply::Done);
    assert!(low.runs() && !low.limited() && high.runs() && !high.limited());
    let list = server.list();
    assert!(!list.server.on);
    assert!(list.clients.iter().all(|client| client.permit.reason == Reason::Off));
    assert_eq!(list.clients[0].reason, "scheduling is switched off");
    assert_eq!(ask(&server.path, &Request::On), Reply::Done);
    assert!(!low.runs() && high.runs());
    assert!(server.list().server.on);
}

#[test]
fn list_marks_clients_that_answered() {
    let server = Running::new();
    let (mut low, high) = suspended(&server);
    // One client answers, the other does not. A slow machine may need several tries.
    let mut found = None;
    wait_for("the low client has answered", || {
        let path = server.path.clone();
        let list = std::thread::spawn(move || ask(&path, &Request::List));
        let asked = low.page.report.load(SeqCst);
        wait_for("the low client is asked for a report", || {
            low.page.report.load(SeqCst) > asked || list.is_finished()
        });
        low.report(7);
        let Reply::List(list) = list.join().unwrap() else { panic!("the reply is no list") };
        let fresh = list.clients[0].fresh;
        found = Some(list);
        fresh
    });
    let list = found.unwrap();
    let [first, second] = &list.clients[..] else { panic!("{list:?}") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("low", "high"));
    assert!(first.fresh && !second.fresh);
    drop(high);
    assert_eq!(first.queues[0].status.counts.pending, 7);
    assert_eq!((first.queues[0].state, second.queues[0].state), (QueueState::Suspended, QueueState::Running));
    let Reason::Outranked { by, own } = first.permit.reason else { panic!("{first:?}") };
    assert_eq!((by.reason, by.device.0, own), (PRIORITY.number(10), 1, PRIORITY.number(0)));
    assert_eq!(list.server.policy, "HPF");
    assert_eq!(list.server.pid.0, std::process::id());
}

#[test]
fn lease_is_renewed_while_the_server_lives() {
    let mut server = Running::new();
    let client = Client::with_queue(&server.path, "one", 0);
    let deadline = || Time(client.page.deadline.load(SeqCst));
    for _ in 0..5 {
        let before = deadline();
        wait_for("the lease is renewed", || deadline() > before);
    }
    server.stop();
    let last = deadline();
    wait_for("the lease ends", || xserver::now() > last);
    assert_eq!(deadline(), last);
}

#[test]
fn clients_run_after_the_server_has_ended() {
    let mut server = Running::new();
    let (low, high) = suspended(&server);
    server.stop();
    assert!(low.runs() && low.limited() && high.runs());
    assert!(!server.path.exists());
    wait_for("the sockets are closed", || {
        support::is_closed(&low.socket) && support::is_closed(&high.socket)
    });
}
