//! `Request::Configure`: whose programs get settings, and what is refused. Needs root, to become other users.

mod support;

use protocol::control::{QueueSettings, Reply, Request, Target};
use protocol::frame::{Decoder, REPLY_LIMIT};
use protocol::ids::{Pid, QueueId};
use protocol::message::ToClient;
use protocol::page::TAKES_CONFIGURATION;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use support::{ALICE, BOB, Client, MONITOR, Running, ask, ask_as, client_of, receive_files};

const CONFIGURATION: &str = r#"
    [[rule]]
    name = "monitoring"
    users = [40004]
    observe = true
"#;

fn settings(level: u8, threshold: u32) -> QueueSettings {
    let level = (level != 0).then_some(level);
    QueueSettings { level, threshold: NonZeroU32::new(threshold), batch_size: None }
}

fn request(pid: bool, queue: Option<u64>, settings: QueueSettings) -> Request {
    // The test's process has all clients.
    let pid = pid.then(|| Pid(std::process::id()));
    Request::Configure { of: Target { pid, queue: queue.map(QueueId) }, settings }
}

/// Returns the messages that come to a client: so many.
fn messages(client: &Client, count: usize) -> Vec<ToClient> {
    let (mut decoder, mut all, mut files) = (Decoder::new(REPLY_LIMIT), Vec::new(), Vec::new());
    while all.len() < count {
        let mut bytes = [0; 256];
        let length = receive_files(&client.socket, &mut bytes, &mut files);
        assert_ne!(length, 0, "the server has closed the connection");
        decoder.push(&bytes[..length]);
        while let Some(frame) = decoder.next_frame().unwrap() {
            all.push(ToClient::decode(&frame).unwrap());
        }
    }
    all
}

fn refused(path: &Path, request: &Request) -> String {
    match ask(path, request) {
        Reply::Error(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_go_to_the_queues_that_are_meant() {
    let server = Running::new();
    let client = Client::with_queue(&server.path, "one", 0);
    client.create(4_242_000_002, 1, 1, 0);
    client.header.takes.store(TAKES_CONFIGURATION, SeqCst);
    server.wait_for_clients(1);
    let configured = |queue, level, threshold| ToClient::Configure {
        queue: QueueId(queue),
        level,
        threshold,
        batch_size: 0,
    };
    // By the number within the process, by the whole number, and all queues of the process.
    for (request, expected) in [
        (request(false, Some(2), settings(3, 8)), vec![configured(4_242_000_002, 3, 8)]),
        (request(false, Some(4_242_000_002), settings(0, 9)), vec![configured(4_242_000_002, 0, 9)]),
        (request(true, None, settings(2, 0)), vec![configured(1, 2, 0), configured(4_242_000_002, 2, 0)]),
    ] {
        let expect = || ask(&server.path, &request) == Reply::Done;
        support::wait_for("the queues are known", expect);
        assert_eq!(messages(&client, expected.len()), expected);
    }
}

#[test]
fn settings_without_a_target_and_for_older_libraries_are_refused() {
    let server = Running::new();
    let _older = Client::with_queue(&server.path, "older", 0);
    server.wait_for_clients(1);
    assert_eq!(refused(&server.path, &request(false, None, settings(1, 0))), "specify a process or a queue");
    support::wait_for("the queue is known", || {
        refused(&server.path, &request(false, Some(1), settings(1, 0))).contains("older than this server")
    });
    let why = refused(&server.path, &request(false, Some(7), settings(1, 0)));
    assert!(why.contains("no connected program has a queue 7"), "{why}");
}

#[test]
fn users_configure_their_own_programs_only() {
    let (server, _) = Running::shared(CONFIGURATION);
    let alice = client_of(ALICE, &server.path, 0);
    alice.header.takes.store(TAKES_CONFIGURATION, SeqCst);
    let request = request(true, None, settings(1, 4));
    support::wait_for("her queue is known", || ask_as(ALICE, &server.path, &request) == Reply::Done);
    assert!(matches!(messages(&alice, 1)[..], [ToClient::Configure { threshold: 4, .. }]));
    for (user, expected) in [(MONITOR, "you may see it, but not change it"), (BOB, "is not connected")] {
        match ask_as(user, &server.path, &request) {
            Reply::Error(why) => assert!(why.contains(expected), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}
