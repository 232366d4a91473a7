//! `xcli suspend`, `resume`, and suspended queues in `list`, against a fake server.

mod common;

use common::{TestDir, empty_list, finish};
use protocol::control::{List, Reply, Request};
use protocol::ids::Pid;
use protocol::outside::{Fates, Held, HeldQueue, QueueSuspendStatus, SuspendStatus};

const PID: Pid = Pid(4242);

fn fates(queues: &[(u32, SuspendStatus)], held: &[u32]) -> Reply {
    let queues =
        queues.iter().map(|(queue, fate)| QueueSuspendStatus { queue: *queue, fate: *fate }).collect();
    Reply::Fates(Fates { pid: PID, name: "train".to_owned(), queues, held: held.to_vec() })
}

#[test]
fn result_of_each_queue_is_printed() {
    let dir = TestDir::new();
    let requests = dir.serve(|request| match request {
        Request::Hold { queues, .. } if queues.is_empty() => {
            fates(&[(1, SuspendStatus::Done), (2, SuspendStatus::Done)], &[1, 2])
        }
        Request::Hold { .. } => fates(&[(1, SuspendStatus::Done), (9, SuspendStatus::Invalid)], &[1]),
        Request::Release { .. } => fates(&[(1, SuspendStatus::Done)], &[2]),
        _ => Reply::Done,
    });
    let (code, out, err) = finish(dir.xcli().args(["suspend", "4242"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, "process 4242 (train): suspended queues 1, 2; `xcli resume 4242` resumes it\n");
    // `Expect` keeps the server until the request.
    let hold = |queues| Request::Hold { pid: PID, queues };
    assert_eq!(*requests.lock().unwrap(), [Request::Expect, hold(vec![])]);

    let (code, out, err) = finish(dir.xcli().args(["suspend", "4242", "--queue", "1", "--queue", "9"]));
    assert_eq!(code, Some(1));
    assert!(out.contains("suspended queue 1;"), "{out}");
    assert_eq!(
        err,
        "xcli: process 4242, queue 9: there is no such queue, or the driver is just changing it\n"
    );
    assert_eq!(requests.lock().unwrap().pop(), Some(hold(vec![1, 9])));

    let (code, out, _) = finish(dir.xcli().args(["resume", "4242", "--queue", "1", "--json"]));
    assert_eq!(code, Some(0));
    let Reply::Fates(want) = fates(&[(1, SuspendStatus::Done)], &[2]) else { unreachable!() };
    assert_eq!(serde_json::from_str::<Fates>(&out).expect("JSON"), want);
    assert_eq!(requests.lock().unwrap().pop(), Some(Request::Release { pid: PID, queues: vec![1] }));
}

#[test]
fn refusal_is_one_sentence_without_the_socket() {
    let dir = TestDir::new();
    dir.serve(|request| match request {
        Request::Expect => Reply::Done,
        _ => Reply::Error("process 4242 (train): why not".to_owned()),
    });
    for words in [["suspend", "4242"], ["resume", "4242"]] {
        let (code, out, err) = finish(dir.xcli().args(words));
        assert_eq!(
            (code, out.as_str(), err.as_str()),
            (Some(1), "", "xcli: process 4242 (train): why not\n")
        );
    }
}

#[test]
fn list_shows_suspended_queues() {
    let dir = TestDir::new();
    let queues = vec![HeldQueue { queue: 3, held_ms: 61_000 }];
    let held = vec![Held { pid: PID, name: "train".to_owned(), queues }];
    let list = List { held, ..empty_list() };
    let said = list.clone();
    dir.serve(move |_| Reply::List(said.clone()));
    let (code, out, _) = finish(dir.xcli().arg("list"));
    let table = "suspended by xcli suspend:\n PID  NAME   QUEUE      FOR\n4242  train      3  61.00 s\n";
    assert_eq!(code, Some(0));
    assert!(out.ends_with(table), "{out}");
    let (_, out, _) = finish(dir.xcli().args(["list", "--json"]));
    assert_eq!(serde_json::from_str::<List>(&out).expect("JSON of a list"), list);
}

/// A server of before says nothing of what is held.
#[test]
fn an_older_list_is_a_list() {
    let old =
        r#"{"list":{"server":{"pid":1,"policy":"HPF","on":true,"uptime_ms":0,"guard_runs":0},"clients":[]}}"#;
    let Reply::List(list) = serde_json::from_str(old).expect("a reply") else { panic!("no list") };
    assert!(list.held.is_empty());
}

#[test]
fn wrong_usage() {
    let dir = TestDir::new();
    for words in
        [&["suspend"][..], &["resume", "0"], &["suspend", "4294967295"], &["resume", "7", "--queue", "all"]]
    {
        let (code, out, err) = finish(dir.xcli().args(words));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{words:?}: {err}");
    }
}
