//! Connections: valid and invalid frames, limits, and the single server of an endpoint.

mod support;

use protocol::bounds::Priority;
use protocol::control::{Reply, Request};
use protocol::frame::{Decoder, Frame, FrameError, HEADER, REPLY_LIMIT};
use protocol::ids::QueueId;
use protocol::message::{REQUEST, ToClient, ToServer};
use protocol::page::SLOTS;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Child, Client, Running, ask, ask_on, connect_as, is_closed, read_reply, start, wait_for};
use xserver::Unused;
use xserver::core::Settings;
use xserver::limits::{Limits, REQUESTS, REQUESTS_PER_USER};

fn hello() -> Vec<u8> {
    ToServer::Hello { pid: 1, name: "x".to_owned() }.encode()
}

#[test]
fn handshake_returns_two_sealed_pages_and_a_permission() {
    let server = Running::new();
    let client = Client::new(&server.path, "one");
    assert!(client.runs() && client.limited() && client.generation() == 1);
    let sizes = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let seals = |index: usize| fcntl_get_seals(&client.descriptors[index]).unwrap();
    // A kernel before Linux 5.1 refuses the unknown seal before it checks the file (`memfd_add_seals`).
    let refused = fcntl_add_seals(&client.descriptors[1], SealFlags::FUTURE_WRITE).unwrap_err();
    let known = refused != rustix::io::Errno::INVAL;
    assert_eq!(seals(0), if known { sizes | SealFlags::FUTURE_WRITE } else { sizes });
    assert_eq!(seals(1), sizes);
    let size = |index: usize| usize::try_from(fstat(&client.descriptors[index]).unwrap().st_size).unwrap();
    assert_eq!((size(0), size(1)), (protocol::page::SERVER_BYTES, protocol::page::CLIENT_BYTES));
    assert!(rustix::io::write(&client.descriptors[0], &[1]).is_err());
    // A hello in pieces is accepted.
    let mut socket = UnixStream::connect(&server.path).unwrap();
    for byte in hello() {
        socket.write_all(&[byte]).unwrap();
    }
    server.wait_for_clients(2);
}

#[test]
fn client_that_breaks_a_rule_loses_only_its_own_connection() {
    let server = Running::new();
    let mut bystander = Client::with_queue(&server.path, "bystander", 0);
    let mut version = hello();
    version[4] = 99;
    let mut long = Frame::encode(1, &[0; 5000]);
    long.truncate(HEADER);
    let queue = |queue, slot| {
        let (queue, device) = (QueueId(queue), protocol::ids::DeviceId(1));
        let (priority, level) = (Priority::DEFAULT, protocol::codes::PreemptLevel::Block);
        ToServer::QueueCreated { queue, slot, device, priority, level }.encode()
    };
    let cases: &[(&str, Vec<u8>)] = &[
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("another version", version),
        ("a long frame", long),
        ("garbage in a frame", Frame::encode(1, &[255; 40])),
        ("an unknown kind", Frame::encode(0x7777, b"")),
        ("a reply", Frame::encode(0x202, b"\"done\"")),
        ("no hello", queue(1, 0)),
        ("two hellos", [hello(), hello()].concat()),
        ("a request from a client", [hello(), Frame::encode(REQUEST, b"\"list\"")].concat()),
        ("a queue twice", [hello(), queue(1, 0), queue(1, 1)].concat()),
        ("a slot twice", [hello(), queue(1, 0), queue(2, 0)].concat()),
        ("a slot that does not exist", [hello(), queue(1, SLOTS as u32)].concat()),
        ("a far slot", [hello(), queue(1, u32::MAX)].concat()),
        ("an unknown queue", [hello(), ToServer::QueueDestroyed { queue: QueueId(5) }.encode()].concat()),
        (
            "a priority of an unknown queue",
            [hello(), ToServer::Priority { queue: QueueId(5), priority: Priority::MAX }.encode()].concat(),
        ),
        (
            "a hello after a request",
            [Frame::encode(REQUEST, b"\"off\""), Frame::encode(REQUEST, b"\"on\""), hello()].concat(),
        ),
    ];
    for (case, bytes) in cases {
        let mut socket = UnixStream::connect(&server.path).unwrap();
        socket.write_all(bytes).unwrap();
        wait_for(case, || is_closed(&socket));
        assert!(!is_closed(&bystander.socket), "{case}");
    }
    wait_for("only the bystander is connected", || server.list().clients.len() == 1);
    bystander.ready(0);
    assert!(bystander.runs());
}

#[test]
fn client_of_another_version_gets_the_reason() {
    let server = Running::new();
    let mut socket = UnixStream::connect(&server.path).unwrap();
    let mut frame = hello();
    frame[4] = 99;
    socket.write_all(&frame).unwrap();
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    let mut decoder = Decoder::new(REPLY_LIMIT);
    decoder.push(&bytes);
    let answer = ToClient::decode(&decoder.next_frame().unwrap().unwrap()).unwrap();
    let expected = FrameError::Version(99).to_string();
    assert_eq!(answer, ToClient::Refused { reason: expected });
}

#[test]
fn queues_are_created_and_destroyed() {
    let server = Running::new();
    let client = Client::new(&server.path, "one");
    // One queue in every slot.
    for slot in 0..SLOTS as u32 {
        client.create(u64::from(slot) + 1, slot, slot % 8, 0);
    }
    wait_for("all queues are listed", || server.list().clients[0].queues.len() == SLOTS);
    for queue in 3..=SLOTS as u64 {
        client.say(&ToServer::QueueDestroyed { queue: QueueId(queue) });
    }
    client.say(&ToServer::Priority { queue: QueueId(2), priority: Priority::MAX });
    client.create(9_999, 7, 3, -5);
    let last = || server.list().clients[0].queues.last().map(|queue| queue.id().0) == Some(9_999);
    wait_for("the last queue is listed", last);
    let queues = server.list().clients.remove(0).queues;
    let seen: Vec<_> = queues.iter().map(|queue| (queue.id().0, queue.status.priority.get())).collect();
    assert_eq!(seen, [(1, 0), (2, 255), (9_999, -5)]);
}

#[test]
fn connection_can_send_several_requests() {
    let server = Running::new();
    let mut socket = UnixStream::connect(&server.path).unwrap();
    for _ in 0..3 {
        assert!(matches!(ask_on(&mut socket, &Request::List), Reply::List(_)));
        assert_eq!(ask_on(&mut socket, &Request::Off), Reply::Done);
    }
    // Requests that come together are answered one after the other.
    let question = Frame::encode(REQUEST, b"\"list\"");
    socket.write_all(&question.repeat(2)).unwrap();
    assert!(matches!(read_reply(&mut socket), Reply::List(_)));
    socket.write_all(&Frame::encode(REQUEST, b"{nonsense")).unwrap();
    let mut replies = vec![read_reply(&mut socket)];
    if matches!(replies[0], Reply::List(_)) {
        replies.push(read_reply(&mut socket));
    }
    assert!(matches!(replies.last(), Some(Reply::Error(_))), "{replies:?}");
    assert_eq!(ask_on(&mut socket, &Request::On), Reply::Done);
}

#[test]
fn peer_that_takes_no_reply_delays_no_other() {
    let server = Running::new();
    let client = Client::new(&server.path, "many");
    for slot in 0..SLOTS as u32 {
        client.create(u64::from(slot) + 1, slot, 1, 0);
    }
    wait_for("all queues are listed", || server.list().clients[0].queues.len() == SLOTS);
    let mut lazy = UnixStream::connect(&server.path).unwrap();
    lazy.set_nonblocking(true).unwrap();
    // Sends requests and reads no replies, until the server reads no further requests.
    let question = Frame::encode(REQUEST, b"\"list\"");
    let start = std::time::Instant::now();
    while lazy.write_all(&question.repeat(64)).is_ok() {
        assert!(start.elapsed() < support::LIMIT, "the server reads without limit");
    }
    assert_eq!(server.list().clients[0].queues.len(), SLOTS);
    assert!(client.runs());
}

#[test]
fn number_of_connections_is_bounded() {
    let server = Running::limited(Limits { connections_per_process: usize::MAX, ..Limits::of_one_user() });
    let client = Client::with_queue(&server.path, "first", 0);
    // Both ends use descriptors of this process; starting the server has raised the limit.
    let sockets: Vec<_> = (0..1_100).map(|_| UnixStream::connect(&server.path).unwrap()).collect();
    wait_for("the last connection is refused", || is_closed(sockets.last().unwrap()));
    let refused = sockets.iter().map(is_closed).filter(|closed| *closed).count();
    assert_eq!(refused, 1_100 - 1_023);
    assert!(client.runs() && !is_closed(&client.socket));
    drop(sockets);
    wait_for("a new connection is accepted", || {
        let mut socket = UnixStream::connect(&server.path).unwrap();
        socket.write_all(&Frame::encode(REQUEST, b"\"list\"")).is_ok() && {
            let mut bytes = [0; 64];
            socket
                .read(&mut bytes)
                .is_ok_and(|count| count > HEADER && bytes[HEADER..].starts_with(b"{\"list\""))
        }
    });
}

/// Takes ten seconds, because nothing makes the limit shorter.
#[test]
fn connection_that_says_nothing_is_closed_and_a_client_that_says_nothing_more_is_not() {
    let server = Running::new();
    let client = Client::new(&server.path, "quiet");
    let silent = UnixStream::connect(&server.path).unwrap();
    let mut partial = UnixStream::connect(&server.path).unwrap();
    partial.write_all(&hello()[..HEADER + 2]).unwrap();
    for (what, socket) in [("a connection without a frame", silent), ("one with a part of a frame", partial)]
    {
        wait_for(what, || is_closed(&socket));
    }
    assert!(!is_closed(&client.socket) && client.runs());
}

#[test]
fn second_server_at_an_endpoint_is_refused() {
    let server = Running::new();
    let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let error = start(&server.path, stop, Settings::default(), None).unwrap_err().to_string();
    assert!(error.contains("already listens on"), "{error}");
    assert!(matches!(support::ask(&server.path, &Request::List), Reply::List(_)));
}

#[test]
fn unused_server_ends() {
    let unused = Unused { first: Duration::from_millis(50), last: Duration::from_millis(20) };
    let server = Running::with(Settings::default(), Some(unused));
    wait_for("a server without a first client ends", || server.has_ended());

    let unused = Unused { first: Duration::from_secs(3_600), last: Duration::from_millis(20) };
    let server = Running::with(Settings::default(), Some(unused));
    let client = Client::with_queue(&server.path, "one", 0);
    server.wait_for_clients(1);
    // The wait is longer than the limit for a server without clients.
    let deadline = || client.page.deadline.load(std::sync::atomic::Ordering::SeqCst);
    let before = deadline();
    wait_for("the lease is renewed", || deadline() > before + 50_000_000);
    assert!(!server.has_ended());
    drop(client);
    wait_for("a server without its last client ends", || server.has_ended());
}

/// Covers the requests that need no driver; `tests/tests/outside.rs` has the rest.
#[test]
fn requests_for_unknown_processes_are_answered() {
    let server = Running::new();
    let mut socket = UnixStream::connect(&server.path).unwrap();
    let pid = protocol::ids::Pid(i32::MAX.cast_unsigned());
    let no_process = Reply::Error("there is no process 2147483647".to_owned());
    assert_eq!(ask_on(&mut socket, &Request::Hold { pid, queues: vec![] }), no_process);
    let many = vec![u32::MAX; protocol::outside::QUEUES];
    assert_eq!(ask_on(&mut socket, &Request::Hold { pid, queues: many }), no_process);
    let no_queue = Reply::Error("this server has suspended no queue of process 2147483647".to_owned());
    assert_eq!(ask_on(&mut socket, &Request::Release { pid, queues: vec![1] }), no_queue);
    let unknown = Reply::Snapshot(protocol::outside::Snapshot { pid, queues: None });
    assert_eq!(ask_on(&mut socket, &Request::Snapshot { pid }), unknown);
    assert!(server.list().held.is_empty());
}

#[test]
fn connections_of_one_process_are_bounded() {
    let server = Running::new();
    let most = Limits::of_one_user().connections_per_process;
    let sockets: Vec<_> = (0..=most).map(|_| UnixStream::connect(&server.path).unwrap()).collect();
    wait_for("the last connection is refused", || is_closed(sockets.last().unwrap()));
    assert_eq!(sockets.iter().filter(|socket| is_closed(*socket)).count(), 1);
    // Another process is accepted.
    let (_child, socket) = Child::connect(&server.path);
    let client = Client::on(socket, "other");
    assert!(client.runs());
}

/// A person whose requests are pending without a limit keeps neither administrators nor others from asking.
#[test]
fn pending_requests_of_some_users_leave_room_for_others() {
    // All connections of this test belong to one process.
    let (server, _) = Running::shared("[limits]\nconnections_per_process = 1024\n");
    let client = Client::new(&server.path, "many");
    for slot in 0..SLOTS as u32 {
        client.create(u64::from(slot) + 1, slot, 1, 0);
    }
    let question = Frame::encode(REQUEST, b"\"policies\"");
    let mut busy: Vec<_> = (0..8)
        .flat_map(|user| (0..REQUESTS_PER_USER).map(move |_| 40_000 + user))
        .map(|uid| connect_as(uid, uid, &server.path))
        .collect();
    for socket in &mut busy {
        socket.set_nonblocking(true).unwrap();
        // More replies than the socket takes, none of which is read.
        while socket.write_all(&question.repeat(16)).is_ok() {}
    }
    assert!(matches!(ask(&server.path, &Request::List), Reply::List(_)));
    wait_for("non-administrators are refused", || busy.iter().any(is_closed));
}

#[test]
fn idle_connections_of_xcli_make_room_for_others() {
    let server = Running::limited(Limits { connections_per_process: usize::MAX, ..Limits::of_one_user() });
    let mut idle: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let mut socket = UnixStream::connect(&server.path).unwrap();
            assert_eq!(ask_on(&mut socket, &Request::On), Reply::Done);
            socket
        })
        .collect();
    // The first one is used again, so the second has been idle for longest.
    assert_eq!(ask_on(&mut idle[0], &Request::On), Reply::Done);
    assert!(matches!(ask(&server.path, &Request::List), Reply::List(_)));
    let closed: Vec<_> = idle.iter().map(is_closed).collect();
    assert!(!closed[0] && closed[1] && closed.iter().filter(|closed| **closed).count() == 1, "{closed:?}");
}

#[test]
fn process_that_announces_a_program_often_counts_once() {
    let limits =
        Limits { connections_per_process: usize::MAX, connections_per_user: 20, ..Limits::of_one_user() };
    let server = Running::limited(limits);
    for _ in 0..40 {
        assert_eq!(ask(&server.path, &Request::Expect), Reply::Done);
    }
    // Other processes of this user have room for 19 more.
    let others: Vec<_> = (0..20).map(|_| Child::connect(&server.path)).collect();
    let said: Vec<_> = others
        .iter()
        .map(|(_, socket)| ask_on(&mut UnixStream::from(socket.try_clone().unwrap()), &Request::Expect))
        .collect();
    assert!(said[..19].iter().all(|reply| *reply == Reply::Done), "{said:?}");
    assert!(matches!(&said[19], Reply::Error(why) if why.contains("20 programs")), "{said:?}");
}

#[test]
fn people_that_wait_for_the_list_share_one() {
    let server = Running::limited(Limits { connections_per_process: usize::MAX, ..Limits::of_one_user() });
    let client = Client::new(&server.path, "many");
    for slot in 0..SLOTS as u32 {
        client.create(u64::from(slot) + 1, slot, 1, 0);
    }
    wait_for("all queues are listed", || server.list().clients[0].queues.len() == SLOTS);
    let decisions = server.list().server.decisions;
    let mut sockets: Vec<_> = (0..40).map(|_| UnixStream::connect(&server.path).unwrap()).collect();
    for socket in &mut sockets {
        socket.write_all(&Frame::encode(REQUEST, b"\"list\"")).unwrap();
    }
    let lists: Vec<_> = sockets
        .iter_mut()
        .map(|socket| match read_reply(socket) {
            Reply::List(list) => list,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(lists.iter().all(|list| list.clients[0].queues.len() == SLOTS));
    // Each pass makes a decision. How many lists come in one pass depends on the machine.
    let passes: std::collections::BTreeSet<_> = lists.iter().map(|list| list.server.decisions).collect();
    assert!(passes.len() < lists.len() && *passes.first().unwrap() > decisions, "{passes:?}");
}

#[test]
fn broken_rules_and_refusals_are_counted() {
    let server = Running::limited(Limits { devices_per_process: 1, ..Limits::of_one_user() });
    let client = Client::with_queue(&server.path, "two", 0);
    client.create(2, 1, 2, 0);
    let mut socket = UnixStream::connect(&server.path).unwrap();
    socket.write_all(&[0xff; 64]).unwrap();
    let totals = || server.list().server.totals.unwrap();
    wait_for("both are counted", || totals().protocol_errors == 1 && totals().refused_queues == 1);
    assert_eq!((totals().refused_connections, totals().lapsed_leases), (0, 0));
}
