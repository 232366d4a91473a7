//! The server for all users: who may connect, see and change what. Needs root, to become other users.

mod support;

use protocol::bounds::{Priority, Timeslice, Utilization};
use protocol::control::{ConfigOrigin, HintUpdate, PolicyOrder, Reply, Request, Target};
use protocol::cost::{CostKey, EvictCost};
use protocol::frame::{Decoder, Frame, REPLY_LIMIT};
use protocol::ids::{DeviceId, Pid};
use protocol::message::{REQUEST, ToClient, ToServer};
use protocol::operation::Reason;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use support::{
    ALICE, BOB, Client, MONITOR, Running, ask, ask_as, ask_on, client_of, connect_as, is_closed, read_reply,
    wait_for,
};
use xserver::limits::{CONNECTIONS, REQUESTS_PER_USER, RESERVED};

const OPERATOR: u32 = 40_003;
const OPERATORS: u32 = 50_001;

const CONFIGURATION: &str = r#"
    [policy]
    name = "HPF"
    [[listen]]
    path = "DIR/box.sock"
    max_priority = -1
    [[rule]]
    name = "serving"
    users = [40001]
    max_priority = 100
    [[rule]]
    name = "operators"
    groups = [50001]
    max_priority = 255
    administer = true
    [[rule]]
    name = "monitoring"
    users = [40004]
    observe = true
    [[rule]]
    name = "banned"
    users = [40009]
    connect = false
"#;

/// The names and priorities of the programs that a user sees.
fn seen(mut socket: UnixStream) -> Vec<(String, i32)> {
    let Reply::List(list) = ask_on(&mut socket, &Request::List) else { panic!("no list") };
    let first =
        |client: &protocol::control::Client| client.queues.first().map(|queue| queue.status.priority.get());
    list.clients.iter().map(|client| (client.name.clone(), first(client).unwrap_or(i32::MIN))).collect()
}

fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The reason of a refused connection.
fn refusal(mut socket: UnixStream) -> String {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    let mut decoder = Decoder::new(REPLY_LIMIT);
    decoder.push(&bytes);
    match ToClient::decode(&decoder.next_frame().unwrap().unwrap()).unwrap() {
        ToClient::Refused { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_have_the_priorities_of_their_rules_and_see_their_own_programs() {
    let (server, _) = Running::shared(CONFIGURATION);
    let boxed = server.path.with_file_name("box.sock");
    let mut alice = client_of(ALICE, &server.path, 200);
    let mut bob = client_of(BOB, &server.path, 200);
    let _inside = client_of(ALICE, &boxed, 50);
    let _root_inside = client_of(0, &boxed, 50);
    wait_for("all queues are known", || {
        seen(connect_as(0, 0, &server.path)).iter().all(|(_, priority)| *priority > -300)
    });
    let named = |uid: u32, priority| (format!("of-{uid}"), priority);
    let all = [named(ALICE, 100), named(BOB, 0), named(ALICE, -1), named(0, -1)];
    assert_eq!(seen(connect_as(0, 0, &server.path)), all);
    assert_eq!(seen(connect_as(OPERATOR, OPERATORS, &server.path)), all);
    assert_eq!(seen(connect_as(ALICE, ALICE, &server.path)), [all[0].clone(), all[2].clone()]);
    assert_eq!(seen(connect_as(BOB, BOB, &server.path)), [all[1].clone()]);
    assert_eq!(seen(connect_as(ALICE, ALICE, &boxed)), [all[2].clone()]);
    // Neither root nor an administrator of a container reaches what is outside.
    assert_eq!(seen(connect_as(0, 0, &boxed)), [all[3].clone()]);
    assert_eq!(seen(connect_as(OPERATOR, OPERATORS, &boxed)), []);
    let Reply::List(list) = ask_as(BOB, &server.path, &Request::List) else { panic!("no list") };
    let owner = list.clients[0].owner.as_ref().unwrap();
    assert_eq!((owner.uid, owner.rule.as_str(), owner.max_priority), (BOB, "default", Priority::DEFAULT));
    assert!(list.partial && list.clients[0].owner.as_ref().unwrap().cgroup.is_some());
    // The higher priority of the other user counts, and is not shown.
    alice.ready(0);
    bob.ready(0);
    wait_for("the lower program is suspended", || !bob.runs() && alice.runs());
    let Reply::List(list) = ask_as(BOB, &server.path, &Request::List) else { panic!("no list") };
    assert!(
        matches!(list.clients[0].permit.reason, Reason::OutrankedByOthers { device: DeviceId(1), .. }),
        "{list:?}"
    );
    let shown = serde_json::to_string(&list).unwrap();
    assert!(!shown.contains(&format!("of-{ALICE}")) && !shown.contains("\"priority\":100"), "{shown}");
}

#[test]
fn an_observer_sees_all_programs_and_changes_none() {
    let (server, _) = Running::shared(CONFIGURATION);
    let boxed = server.path.with_file_name("box.sock");
    let alice = client_of(ALICE, &server.path, 5);
    let _inside = client_of(BOB, &boxed, -5);
    let all = [(format!("of-{ALICE}"), 5), (format!("of-{BOB}"), -5)];
    wait_for("all queues are known", || seen(connect_as(MONITOR, MONITOR, &server.path)) == all);
    let Reply::List(list) = ask_as(MONITOR, &server.path, &Request::List) else { panic!("no list") };
    assert!(!list.partial && list.server.decisions > 0, "{list:?}");
    let Reply::List(of_bob) = ask_as(BOB, &server.path, &Request::List) else { panic!("no list") };
    assert!(of_bob.partial && of_bob.server.totals.is_none(), "{of_bob:?}");
    assert!(list.server.totals.unwrap().steps.count() > 0);
    assert_eq!(seen(connect_as(MONITOR, MONITOR, &boxed)), [], "the rule ends at the additional socket");
    // The test's process has all clients, so its number names those of others.
    let of = Target { pid: Some(Pid(std::process::id())), queue: None };
    let said = vec![HintUpdate::Priority(Priority::try_from(-7).unwrap())];
    let refused = error(ask_as(MONITOR, &server.path, &Request::Hint { of, said }));
    assert!(
        refused.contains("you may see it, but not change it") && refused.contains("\"monitoring\""),
        "{refused}"
    );
    for request in [Request::Off, Request::Reload, Request::Config] {
        let refused = error(ask_as(MONITOR, &server.path, &request));
        assert!(refused.contains("only an administrator"), "{refused}");
    }
    drop(alice);
}

#[test]
fn only_administrators_change_what_concerns_all() {
    let (server, _) = Running::shared(CONFIGURATION);
    let boxed = server.path.with_file_name("box.sock");
    let policy = PolicyOrder { policy: "FAIR".to_owned(), values: [].into(), device: None };
    let slice = [HintUpdate::Timeslice(Timeslice::DEFAULT)];
    let requests = [
        Request::Off,
        Request::On,
        Request::SetPolicy(policy),
        Request::ResetPolicy { device: DeviceId(1) },
        Request::Hint { of: Target::default(), said: slice.to_vec() },
        Request::Config,
    ];
    for request in &requests {
        for socket in [connect_as(ALICE, ALICE, &server.path), connect_as(0, 0, &boxed)] {
            let mut socket = socket;
            let why = error(ask_on(&mut socket, request));
            assert!(
                why.starts_with("only an administrator of this server can do that"),
                "{request:?}: {why}"
            );
        }
        let reply = ask_on(&mut connect_as(OPERATOR, OPERATORS, &server.path), request);
        assert!(!matches!(reply, Reply::Error(_)), "{request:?}: {reply:?}");
        assert!(!matches!(ask(&server.path, request), Reply::Error(_)), "{request:?}");
    }
    // A process of somebody else looks like one that does not exist.
    for pid in [1, 0x7fff_fffe] {
        for request in [
            Request::Hold { pid: Pid(pid), queues: Vec::new() },
            Request::Release { pid: Pid(pid), queues: Vec::new() },
            Request::Snapshot { pid: Pid(pid) },
        ] {
            let why = error(ask_as(ALICE, &server.path, &request));
            assert_eq!(why, format!("there is no process {pid}"));
        }
    }
    // Processes outside a container cannot be suspended from it.
    let hold = Request::Hold { pid: Pid(1), queues: Vec::new() };
    assert!(error(ask_on(&mut connect_as(0, 0, &boxed), &hold)).contains("only an administrator"));
    // The policies are told without what they have counted for others.
    let Reply::Policies(policies) = ask_as(ALICE, &server.path, &Request::Policies) else {
        panic!("no policies")
    };
    assert!(policies.in_force.iter().all(|policy| policy.counted.is_empty()) && policies.devices.is_empty());
    assert!(refusal(connect_as(40_009, 40_009, &server.path)).contains("the rule \"banned\""));
}

#[test]
fn a_user_changes_the_own_programs_within_the_limit() {
    let (server, _) = Running::shared(CONFIGURATION);
    let _alice = client_of(ALICE, &server.path, 0);
    wait_for("the queue is known", || seen(connect_as(0, 0, &server.path)) == [(format!("of-{ALICE}"), 0)]);
    let hint = |priority: i64| {
        let of = Target { pid: Some(Pid(std::process::id())), queue: None };
        Request::Hint { of, said: vec![HintUpdate::Priority(Priority::try_from(priority).unwrap())] }
    };
    assert_eq!(ask_as(ALICE, &server.path, &hint(100)), Reply::Done);
    let why = error(ask_as(ALICE, &server.path, &hint(101)));
    assert!(why.contains("priority 101 is above 100") && why.contains("\"serving\""), "{why}");
    let why = error(ask_as(BOB, &server.path, &hint(-5)));
    assert_eq!(why, format!("process {} is not connected", std::process::id()));
    assert_eq!(seen(connect_as(0, 0, &server.path)), [(format!("of-{ALICE}"), 100)]);
}

#[test]
fn configuration_is_read_again_as_a_whole_or_not_at_all() {
    let (server, file) = Running::shared(CONFIGURATION);
    let _alice = client_of(ALICE, &server.path, 200);
    let bob = client_of(BOB, &server.path, -3);
    let priorities = || seen(connect_as(0, 0, &server.path)).iter().map(|one| one.1).collect::<Vec<_>>();
    wait_for("both queues are known", || priorities() == [100, -3]);
    let text = std::fs::read_to_string(&file).unwrap();
    let mistakes = [
        ("max_priority = 100", "max_priority = 1000", "line 10: "),
        ("name = \"HPF\"", "name = \"FIFO\"", "no policy \"FIFO\""),
        ("box.sock", "other.sock", "needs a new start of the server"),
    ];
    for (from, to, what) in mistakes {
        std::fs::write(&file, text.replace(from, to).replace("users = [40001]", "users = []")).unwrap();
        let why = error(ask(&server.path, &Request::Reload));
        assert!(why.starts_with("the configuration has not changed: ") && why.contains(what), "{why}");
        assert_eq!(priorities(), [100, -3]);
    }
    let new = text
        .replace("max_priority = 100", "max_priority = 7")
        .replace("40009", "40002")
        .replace("HPF", "FAIR");
    std::fs::write(&file, new).unwrap();
    assert_eq!(ask(&server.path, &Request::Reload), Reply::Done);
    wait_for("a client that may not connect any more is disconnected", || is_closed(&bob.socket));
    assert_eq!(priorities(), [7]);
    // What a person has said stays until the file says something else.
    let Reply::Config(before) = ask(&server.path, &Request::Config) else { panic!("no configuration") };
    let key = |config: &protocol::control::ConfigInForce, name: &str| {
        config.keys.iter().find(|key| key.name == name).map(|key| (key.value.clone(), key.from)).unwrap()
    };
    assert_eq!(before.file.as_deref(), Some(&*file));
    assert_eq!(key(&before, "policy.name"), ("\"FAIR\"".to_owned(), ConfigOrigin::File));
    assert_eq!(key(&before, "rule[0].max_priority"), ("7".to_owned(), ConfigOrigin::File));
    assert_eq!(key(&before, "limits.queues_per_user"), ("16384".to_owned(), ConfigOrigin::Default));
    let policy = PolicyOrder { policy: "EDF".to_owned(), values: [].into(), device: None };
    assert_eq!(ask(&server.path, &Request::SetPolicy(policy)), Reply::Done);
    assert_eq!(ask(&server.path, &Request::Reload), Reply::Done);
    let Reply::Config(after) = ask(&server.path, &Request::Config) else { panic!("no configuration") };
    assert_eq!(key(&after, "policy.name"), ("\"EDF\"".to_owned(), ConfigOrigin::Request));
}

#[test]
fn program_that_claims_to_make_progress_starves_nobody() {
    let (server, _) = Running::shared("[server]\nstarvation_ms = 100\n");
    let mut low = client_of(BOB, &server.path, 0);
    let mut high = Client::with_queue(&server.path, "high", 200);
    low.ready(0);
    high.ready(0);
    for _ in 0..2 {
        wait_for("the low program is suspended", || {
            high.complete();
            !low.runs()
        });
        wait_for("the low program runs for a moment", || {
            high.complete();
            low.runs() && !high.runs()
        });
    }
}

#[test]
fn server_of_one_user_has_no_configuration() {
    let server = Running::new();
    assert!(error(ask(&server.path, &Request::Reload)).contains("no configuration file"));
    let Reply::Config(config) = ask(&server.path, &Request::Config) else { panic!("no configuration") };
    assert!(config.file.is_none() && config.keys.is_empty());
}

#[test]
fn one_user_cannot_take_all_connections() {
    let (server, _) =
        Running::shared("[limits]\nconnections_per_process = 1024\nconnections_per_user = 20\n");
    let mut all: Vec<_> = (0..20).map(|_| connect_as(BOB, BOB, &server.path)).collect();
    let why = refusal(connect_as(BOB, BOB, &server.path));
    assert_eq!(why, format!("user {BOB} has 20 connections, which is the maximum for one user"));
    assert!(matches!(ask_as(ALICE, &server.path, &Request::List), Reply::List(_)));
    assert!(matches!(ask(&server.path, &Request::List), Reply::List(_)));
    all.pop();
    wait_for("the room of an ended connection is used", || {
        let mut socket = connect_as(BOB, BOB, &server.path);
        socket.set_nonblocking(true).unwrap();
        !is_closed(&socket) && socket.read(&mut [0]).is_err()
    });
}

#[test]
fn room_is_kept_for_administrators() {
    let (server, _) =
        Running::shared("[limits]\nconnections_per_process = 1024\nconnections_per_user = 1024\n");
    let all: Vec<_> = (0..CONNECTIONS - RESERVED).map(|_| connect_as(BOB, BOB, &server.path)).collect();
    let why = refusal(connect_as(ALICE, ALICE, &server.path));
    assert_eq!(why, format!("the server has {} connections, which is the maximum", CONNECTIONS - RESERVED));
    assert!(matches!(ask(&server.path, &Request::List), Reply::List(_)), "root has found no room");
    assert!(all.iter().all(|socket| !is_closed(socket)));
}

#[test]
fn costs_that_others_rely_on_come_from_administrators_only() {
    let (server, _) = Running::shared("");
    let cost = |key| ToServer::EvictCost { key, cost: EvictCost::new(1_000, 2_000) };
    let (invented, measured) = (CostKey::new(7).unwrap(), CostKey::new(8).unwrap());
    let alice = client_of(ALICE, &server.path, 0);
    alice.say(&cost(invented));
    // The server handles the messages of one connection in their order.
    alice.create(2, 1, 1, 0);
    wait_for("the cost was taken or refused", || {
        let Reply::List(list) = ask(&server.path, &Request::List) else { panic!("no list") };
        list.clients[0].queues.len() == 2
    });
    let root = Client::with_queue(&server.path, "root", 0);
    root.say(&cost(measured));
    let shown = |key| alice.page.costs.iter().find_map(|words| words.load(key));
    wait_for("the cost of an administrator is shown", || shown(measured).is_some());
    assert_eq!(shown(invented), None);
}

#[test]
fn programs_get_hints_by_their_names_within_the_rules() {
    const TEXT: &str = r#"
        [priorities]
        serving = 50
        batch = -50
        [[rule]]
        name = "small"
        users = [40002]
        max_priority = "serving"
        max_share = 30
        [[program]]
        name = "of-40002"
        priority = 200
        share = 60
        [[program]]
        name = "of-*"
        users = [40001]
        priority = "batch"
    "#;
    let (server, file) = Running::shared(TEXT);
    let _alice = client_of(ALICE, &server.path, 0);
    let _bob = client_of(BOB, &server.path, 0);
    let named = |uid: u32, priority| (format!("of-{uid}"), priority);
    let root = || seen(connect_as(0, 0, &server.path));
    wait_for("the entries hold", || root() == [named(ALICE, -50), named(BOB, 50)]);
    let Reply::List(list) = ask_as(BOB, &server.path, &Request::List) else { panic!("no list") };
    let client = &list.clients[0];
    let shares = [client.hints.utilization, client.queues[0].status.hints.utilization];
    assert_eq!(shares.map(Utilization::get), [30, 30], "the rule limits the share of the entry");
    let given = client.given.as_ref().unwrap();
    assert_eq!((given.program.as_str(), given.hints["utilization"].as_str()), ("of-40002", "60"));
    assert_eq!(client.owner.as_ref().unwrap().max_share.get(), 30);
    // The names are for everybody.
    let Reply::Priorities(names) = ask_as(ALICE, &server.path, &Request::Priorities) else {
        panic!("no names")
    };
    let names: Vec<_> = names.iter().map(|(name, priority)| (name.as_str(), priority.get())).collect();
    assert_eq!(names, [("batch", -50), ("serving", 50)]);
    // A share above the limit is refused, with the rule.
    let of = Target { pid: Some(Pid(std::process::id())), queue: None };
    let hint = |percent: i64| {
        let said = vec![HintUpdate::Utilization(Utilization::try_from(percent).unwrap())];
        ask_as(BOB, &server.path, &Request::Hint { of, said })
    };
    let why = error(hint(31));
    assert!(why.contains("share 31 is above 30") && why.contains("\"small\""), "{why}");
    assert_eq!(hint(10), Reply::Done);
    // A file with a mistake changes nothing; another one holds for programs that are connected.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("batch = -50", "cheap = -50").replace("200", "7")).unwrap();
    let why = error(ask(&server.path, &Request::Reload));
    assert!(why.contains("line 17: [[program]] priority: [priorities] has no name \"batch\""), "{why}");
    assert_eq!(root(), [named(ALICE, -50), named(BOB, 50)]);
    std::fs::write(&file, text.replace("batch = -50", "batch = -7").replace("200", "20")).unwrap();
    assert_eq!(ask(&server.path, &Request::Reload), Reply::Done);
    assert_eq!(root(), [named(ALICE, -7), named(BOB, 20)]);
    // A server of one user has no names.
    let own = Running::new();
    assert_eq!(ask(&own.path, &Request::Priorities), Reply::Priorities([].into()));
}

#[test]
fn a_rule_can_permit_to_set_policies_and_nothing_else() {
    let (server, _) = Running::shared("[[rule]]\nname = \"tuner\"\nusers = [40001]\nset_policy = true\n");
    let policy = || PolicyOrder { policy: "FAIR".to_owned(), values: [].into(), device: None };
    for request in [Request::SetPolicy(policy()), Request::ResetPolicy { device: DeviceId(1) }] {
        assert_eq!(ask_as(ALICE, &server.path, &request), Reply::Done);
        let why = error(ask_as(BOB, &server.path, &request));
        assert!(why.contains("`set_policy = true`") && why.contains("\"default\""), "{why}");
    }
    for request in [Request::Off, Request::Reload, Request::Config] {
        let why = error(ask_as(ALICE, &server.path, &request));
        assert!(why.starts_with("only an administrator") && why.contains("\"tuner\""), "{why}");
    }
    let _bob = client_of(BOB, &server.path, 0);
    assert_eq!(seen(connect_as(ALICE, ALICE, &server.path)), [], "the right shows no programs of others");
}

#[test]
fn requests_beyond_the_rate_of_a_user_wait_and_hold_up_nobody_else() {
    let (server, _) = Running::shared("[limits]\nrequests_per_second_per_user = 10\n");
    let request = Frame::encode(REQUEST, &serde_json::to_vec(&Request::Priorities).unwrap());
    // More than a second's requests on each connection, so that most of them wait for a long time.
    let many = request.repeat(100);
    let mut all: Vec<_> = (0..=REQUESTS_PER_USER).map(|_| connect_as(BOB, BOB, &server.path)).collect();
    for socket in &mut all {
        socket.write_all(&many).unwrap();
    }
    // As many connections as may wait, and one more, which is refused with the limit.
    let mut refused = Vec::new();
    wait_for("one connection is refused", || {
        for (index, socket) in all.iter().enumerate() {
            // A look without taking anything.
            let mut bytes = vec![0; 1 << 16];
            let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
            let got = rustix::net::recv(socket, &mut bytes[..], flags).map_or(0, |(got, _)| got);
            let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
            if text.contains("wait for a reply") {
                refused.push((index, text));
            }
        }
        !refused.is_empty()
    });
    let (index, text) = refused.remove(0);
    assert!(text.contains("16 requests of your user wait for a reply, which is the maximum"), "{text}");
    assert!(text.contains("(a user gets 10 requests in a second)"), "{text}");
    drop(all.remove(index));
    // Other users are answered, and root is not counted.
    assert!(matches!(ask_as(ALICE, &server.path, &Request::List), Reply::List(_)));
    let mut root = connect_as(0, 0, &server.path);
    for _ in 0..100 {
        assert!(matches!(ask_on(&mut root, &Request::Priorities), Reply::Priorities(_)));
    }
    // Each request that waits is answered once.
    for socket in &mut all[..2] {
        for _ in 0..2 {
            assert!(matches!(read_reply(socket), Reply::Priorities(_)));
        }
    }
}
