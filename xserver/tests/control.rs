//! Requests for policies and hints, over the socket of a running server.

mod support;

use policies::{Choice, named, registry};
use protocol::bounds::{Priority, Timeslice, Utilization};
use protocol::control::{HintUpdate, Policies, PolicyOrder, Reply, Request, Target};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::message::ToServer;
use protocol::operation::Reason;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use support::{Client, Running, ask, wait_for};

fn policies(server: &Running) -> Policies {
    match ask(&server.path, &Request::Policies) {
        Reply::Policies(policies) => policies,
        other => panic!("{other:?}"),
    }
}

fn ruling(policy: &str, device: Option<u32>) -> PolicyOrder {
    PolicyOrder { policy: policy.to_owned(), values: [].into(), device: device.map(DeviceId) }
}

/// The policy of a server that was started without one, with its parameters.
fn first() -> PolicyOrder {
    named::ruling(None, &Choice::new(registry::DEFAULT))
}

fn in_force(server: &Running) -> Vec<PolicyOrder> {
    policies(server).in_force.into_iter().map(|one| one.ruling).collect()
}

#[track_caller]
fn done(server: &Running, request: &Request) {
    assert_eq!(ask(&server.path, request), Reply::Done);
}

#[track_caller]
fn refused(server: &Running, request: &Request) -> String {
    match ask(&server.path, request) {
        Reply::Error(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn policies_are_listed_and_set_for_all_devices_or_one() {
    let server = Running::new();
    let all = policies(&server);
    assert_eq!(all.policies, named::all());
    assert_eq!(in_force(&server), [first()]);
    let _client = Client::with_queue(&server.path, "one", 0);
    wait_for("the device of the client is listed", || policies(&server).devices == [DeviceId(1)]);
    for policy in &all.policies {
        let values = policy.parameters.iter().map(|one| (one.name.clone(), one.min)).collect();
        let order = PolicyOrder { values, ..ruling(&policy.name.to_lowercase(), Some(7)) };
        done(&server, &Request::SetPolicy(order.clone()));
        let chosen = PolicyOrder { policy: policy.name.clone(), ..order };
        assert_eq!(in_force(&server), [first(), chosen]);
    }
    done(&server, &Request::ResetPolicy { device: DeviceId(7) });
    done(&server, &Request::ResetPolicy { device: DeviceId(7) });
    assert_eq!(in_force(&server), [first()]);
    let last = all.policies.last().unwrap();
    done(&server, &Request::SetPolicy(ruling(&last.name, None)));
    let list = server.list().server;
    assert_eq!((&list.policy, list.policies), (&last.name, policies(&server).in_force));

    let why = refused(&server, &Request::SetPolicy(ruling("FIFO", None)));
    assert!(why.starts_with("no policy \"FIFO\" in this build (it contains HPF"), "{why}");
    let wrong = PolicyOrder { values: [("slack".to_owned(), 1.0)].into(), ..ruling("HPF", None) };
    let why = refused(&server, &Request::SetPolicy(wrong));
    assert_eq!(
        why,
        "policy HPF: no parameter \"slack\": this policy has gaps, share-percent, slowdown-percent, queues-first, \
             stream-priorities"
    );
    assert_eq!(server.list().server.policy, last.name, "a refused request has no effect");
}

#[test]
fn work_is_not_lost_while_policies_change() {
    const COMMANDS: usize = 300;
    const CHANGES: usize = 100;
    let server = Running::new();
    let changed = AtomicBool::new(false);
    let work = |number: u64, priority| {
        let mut client = Client::with_queue(&server.path, &format!("client {number}"), priority);
        let mut done = 0;
        while done < COMMANDS || !changed.load(SeqCst) {
            client.ready(0);
            wait_for("the client may run", || {
                let word = client.page.word.load(SeqCst);
                assert!((1..=3).contains(&(word >> 8 & 0xff)), "the word has no preemption level: {word:#x}");
                word & 1 != 0
            });
            done += 1;
            client.complete();
            client.idle(0);
        }
        done
    };
    std::thread::scope(|scope| {
        let work = &work;
        let clients = [(1, 0), (2, 5)].map(|(number, priority)| scope.spawn(move || work(number, priority)));
        let mut changes = 0;
        while changes < CHANGES {
            for row in registry::POLICIES {
                done(&server, &Request::SetPolicy(ruling(row.kind.name(), None)));
                done(&server, &Request::SetPolicy(ruling(row.kind.name(), Some(1))));
                done(&server, &Request::ResetPolicy { device: DeviceId(1) });
                changes += 3;
            }
        }
        changed.store(true, SeqCst);
        for client in clients {
            assert!(client.join().unwrap() >= COMMANDS);
        }
    });
}

/// Two clients in this process, one of which runs.
fn two(server: &Running) -> (Client, Client) {
    let mut low = Client::with_queue(&server.path, "low", 0);
    let mut high = Client::new(&server.path, "high");
    high.create(2, 0, 1, 10);
    low.ready(0);
    high.ready(0);
    wait_for("the low client is suspended", || !low.runs());
    (low, high)
}

fn of(queue: u64) -> Target {
    Target { pid: None, queue: Some(QueueId(queue)) }
}

fn hint(of: Target, updates: &[HintUpdate]) -> Request {
    Request::Hint { of, said: updates.to_vec() }
}

#[test]
fn hint_changes_the_running_client() {
    let server = Running::new();
    let (low, high) = two(&server);
    done(&server, &hint(of(1), &[HintUpdate::Priority(Priority::MAX)]));
    wait_for("the low client runs in place of the high one", || low.runs() && !high.runs());
    let clients = server.list().clients;
    let Reason::Outranked { by, .. } = clients[1].permit.reason else { panic!("{clients:?}") };
    assert_eq!(by.queue, QueueId(1));
    assert_eq!(clients[1].reason, format!("queue 1 of pid {} has priority 255 > 10", std::process::id()));
    // The list shows when each permission changed.
    assert!(server.list().server.now >= clients[1].since && clients[1].since >= clients[0].since);
}

#[test]
fn last_hint_of_a_kind_counts() {
    let server = Running::new();
    let (low, _high) = two(&server);
    let share = |percent| Utilization::try_from(percent).unwrap();
    let status = || server.list().clients[0].queues[0].status;
    let own = QueueHints { utilization: share(30), ..QueueHints::default() };
    low.say(&ToServer::QueueHints { queue: QueueId(1), hints: own });
    wait_for("the hint is listed", || status().hints == own);
    let deadline_us = NonZeroU64::new(900);
    done(&server, &hint(of(1), &[HintUpdate::Deadline(deadline_us), HintUpdate::Utilization(share(70))]));
    assert_eq!(status().hints, QueueHints { utilization: share(70), deadline_us, ..own });
    // Another hint of the client does not change the earlier ones.
    let own = QueueHints { preemptible: false, ..own };
    low.say(&ToServer::QueueHints { queue: QueueId(1), hints: own });
    wait_for("the hint is listed", || !status().hints.preemptible);
    assert_eq!(status().hints, QueueHints { utilization: share(70), deadline_us, ..own });

    let before = server.list().server.now;
    done(&server, &hint(of(1), &[HintUpdate::Arrival(Some(1_000_000)), HintUpdate::Deadline(None)]));
    let hints = status().hints;
    let arrival = hints.arrival.unwrap();
    assert!(hints.deadline_us.is_none());
    assert!(
        arrival >= before.after(std::time::Duration::from_secs(1)),
        "the arrival is a time of the server's clock"
    );
}

#[test]
fn hints_apply_to_a_process_or_to_all() {
    let server = Running::new();
    let (low, _high) = two(&server);
    let pid = Target { pid: Some(Pid(std::process::id())), queue: None };
    let hints = || server.list().clients.iter().map(|client| client.hints).collect::<Vec<_>>();
    let own = ProcessHints { job: NonZeroU64::new(3), ..ProcessHints::default() };
    low.say(&ToServer::ProcessHints { hints: own });
    // The server adds the nice value of this process.
    wait_for("the hint is listed", || hints()[0] == ProcessHints { nice: hints()[0].nice, ..own });
    done(&server, &hint(pid, &[HintUpdate::Window, HintUpdate::Job(NonZeroU64::new(4))]));
    // Both clients belong to this process.
    assert!(hints().iter().all(|hints| hints.window && hints.job == NonZeroU64::new(4)));
    done(&server, &hint(of(2), &[HintUpdate::Window]));
    assert_eq!(hints().iter().map(|hints| hints.window).collect::<Vec<_>>(), [false, true]);

    let slice = Timeslice::try_from(700).unwrap();
    done(&server, &hint(Target::default(), &[HintUpdate::Timeslice(slice)]));
    let _third = Client::with_queue(&server.path, "third", 0);
    server.wait_for_clients(3);
    assert!(
        hints().iter().all(|hints| hints.timeslice == Some(slice)),
        "the hint applies also to a client that connects later"
    );
}

#[test]
fn hint_without_a_matching_target_is_refused() {
    let server = Running::new();
    let (_low, high) = two(&server);
    let me = Pid(std::process::id());
    let updates = [HintUpdate::Priority(Priority::DEFAULT)];
    let why = |of| refused(&server, &hint(of, &updates));
    assert!(why(of(9)).starts_with("no connected program has a queue 9"));
    assert_eq!(why(Target::default()), "specify a process or a queue");
    let gone = Target { pid: Some(Pid(1)), queue: None };
    assert_eq!(why(gone), "process 1 is not connected");
    let other = Target { pid: Some(me), queue: Some(QueueId(9)) };
    assert_eq!(why(other), format!("process {me} has no queue 9 (it has 1, 2)"));
    assert_eq!(refused(&server, &hint(of(1), &[])), "the request contains no hint");
    high.create(1, 1, 1, 10);
    wait_for("the high client has two queues", || server.list().clients[1].queues.len() == 2);
    let why = why(of(1));
    assert_eq!(why, format!("several programs have a queue 1: specify --pid ({me} low, {me} high)"));
}
