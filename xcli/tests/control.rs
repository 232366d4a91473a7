//! `xcli list`, `off`, `on`, `policy`, `hint` and `explain` against a fake server, over the real frames.

mod common;

use common::{TestDir, empty_list, finish};
use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use protocol::control::{
    EventKind, HintUpdate, List, Policies, PolicyInForce, PolicyOrder, Reply, Request, ServerEvent, Target,
};
use protocol::frame::Frame;
use protocol::hint::Laxity;
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::message::REPLY;
use protocol::time::Time;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

#[test]
fn list_prints_a_table_or_json() {
    let dir = TestDir::new();
    let requests = dir.serve(|_| Reply::List(empty_list()));
    let (code, out, err) = finish(dir.xcli().arg("list"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let want = "xserver 4711: policy HPF, on, up 1 min 5 s, 0 guard runs\nno program is connected\n";
    assert_eq!(out, want);

    let (code, out, err) = finish(dir.xcli().args(["list", "--json"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(serde_json::from_str::<List>(&out).expect("JSON of a list"), empty_list());
    assert_eq!(*requests.lock().unwrap(), [Request::List, Request::List]);
}

#[test]
fn off_and_on_are_sent_to_the_server() {
    let dir = TestDir::new();
    let requests = dir.serve(|_| Reply::Done);
    for (word, request) in [("off", Request::Off), ("on", Request::On)] {
        let (code, out, err) = finish(dir.xcli().arg(word));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.starts_with(&format!("{word}: ")) && out.lines().count() == 1, "{out}");
        assert_eq!(requests.lock().unwrap().pop(), Some(request));
    }
    // A reply to another request is an error.
    let (code, out, err) = finish(dir.xcli().arg("list"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("a reply to another request"), "{err}");
}

/// Asserts one sentence on standard error, nothing on standard output, and exit code 1.
fn fails(dir: &TestDir, sentence: &str) {
    let (code, out, err) = finish(dir.xcli().arg("list"));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.starts_with("xcli: ") && err.contains(sentence) && err.lines().count() == 1, "{err}");
}

#[test]
fn missing_server_is_an_error() {
    let dir = TestDir::new();
    fails(&dir, "no xserver runs: no process listens on ");
    // A socket that a killed server has left.
    drop(UnixListener::bind(dir.socket()).unwrap());
    fails(&dir, "no xserver runs: no process listens on ");
}

#[test]
fn silent_server_is_an_error_after_the_limit() {
    let dir = TestDir::new();
    // Never accepts, like a stopped server.
    let _listener = UnixListener::bind(dir.socket()).unwrap();
    let begin = Instant::now();
    fails(&dir, &format!("(pid {}) did not answer within 2 s: is it stopped?", std::process::id()));
    assert!(begin.elapsed() >= Duration::from_secs(2));
    assert!(begin.elapsed() < common::HANG_GUARD);
}

#[test]
fn invalid_answer_is_an_error() {
    let answers: [(&[u8], &str); 6] = [
        (b"HTTP/1.1 400 Bad Request", "no frames of giveway"),
        (b"GIVW\x09\0\x02\x02\0\0\0\0", "speaks version 9 of the protocol, this one 3"),
        (&Frame::encode(REPLY, b"{}"), "sent an invalid answer"),
        (&Frame::encode(REPLY, br#"{"error":"out of\nmemory"}"#), "refused: out of?memory"),
        (&Frame::encode(77, b""), "a frame of kind 0x4d"),
        (b"GIVW", "closed the connection without an answer"),
    ];
    for (answer, sentence) in answers {
        let dir = TestDir::new();
        let answer = answer.to_owned();
        dir.serve_raw(move |stream, _| stream.write_all(&answer).unwrap());
        fails(&dir, sentence);
    }
}

/// Needs root, to become another user.
#[test]
fn server_of_another_user_is_not_trusted() {
    let dir = TestDir::new();
    let folder = dir.path("open");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let top = folder.parent().unwrap();
    std::fs::set_permissions(top, PermissionsExt::from_mode(0o755)).unwrap();
    let socket = folder.join("s.sock");
    let listener = {
        let socket = socket.clone();
        // A thread has a user id of its own, and ends with it.
        let thread = std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("the tests run as root");
            UnixListener::bind(socket).unwrap()
        });
        thread.join().unwrap()
    };
    let (code, out, err) = finish(dir.xcli().arg("-a").arg(&socket).arg("list"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let own = rustix::process::geteuid();
    let sentence = format!("belongs to uid 65534, not to you (uid {own}) or root: xcli does not trust it\n");
    assert!(err.ends_with(&sentence), "{err}");
    drop(listener);
}

#[test]
fn address_of_another_machine_is_refused() {
    let dir = TestDir::new();
    let (code, out, err) = finish(dir.xcli().args(["-a", "gpu-host", "list"]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("this build has no TCP"), "{err}");
    dir.serve(|_| Reply::List(empty_list()));
    let (code, ..) = finish(dir.xcli().args(["list", "-a", "127.0.0.1"]));
    assert_eq!(code, Some(0), "this machine's own address is this machine");
}

#[test]
fn server_is_named_by_path_or_instance() {
    let dir = TestDir::new();
    dir.serve(|_| Reply::Done);
    let (code, ..) = finish(dir.xcli().env_remove("XSCHED_SOCKET").arg("-a").arg(dir.socket()).arg("on"));
    assert_eq!(code, Some(0));
    // An option overrides the environment.
    let (code, _, err) = finish(dir.xcli().args(["-p", "no-such-instance", "on"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("xsched/no-such-instance.sock"), "{err}");
    let (code, _, err) = finish(dir.xcli().args(["-p", "../x", "on"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("1 to 32 letters"), "{err}");
    let (code, _, err) = finish(dir.xcli().env("XSCHED_SOCKET", "x".repeat(108)).arg("on"));
    assert_eq!(code, Some(1));
    assert!(err.contains("at most 107 bytes"), "{err}");
}

/// Asserts wrong usage: exit code 2 and no output.
#[track_caller]
fn is_usage(dir: &TestDir, words: &[&str], sentence: &str) {
    let (code, out, err) = finish(dir.xcli().args(words));
    assert_eq!((code, out.as_str()), (Some(2), ""), "{words:?}: {err}");
    assert!(err.contains(sentence), "{words:?}: {err}");
}

#[test]
fn policies_are_set_with_both_syntaxes() {
    let dir = TestDir::new();
    let ruling = |device| PolicyOrder { policy: "HPF".to_owned(), values: [].into(), device };
    let own = ruling(Some(DeviceId(7)));
    let policies = Policies {
        policies: vec![],
        in_force: [ruling(None), own.clone()]
            .map(|ruling| PolicyInForce { ruling, counted: [].into() })
            .into(),
        devices: vec![],
    };
    let answered = policies.clone();
    let requests = dir.serve(move |request| match request {
        Request::Policies => Reply::Policies(answered.clone()),
        _ => Reply::Done,
    });
    let asked = || std::mem::take(&mut *requests.lock().unwrap());
    let in_force = "in force: HPF\nin force on device 7: HPF\n";
    for words in [&["policy", "set", "hpf"][..], &["policy", "-s", "-n", "HPF"]] {
        let (code, out, err) = finish(dir.xcli().args(words));
        assert_eq!((code, out.as_str(), err.as_str()), (Some(0), in_force, ""));
        assert_eq!(asked(), [Request::SetPolicy(ruling(None)), Request::Policies]);
    }
    for words in [&["policy", "set", "HPF", "--device", "7"][..], &["policy", "set", "--device", "7", "HPF"]]
    {
        let (code, _, err) = finish(dir.xcli().args(words));
        assert!(code == Some(0) && err.contains("no connected program uses device 7 yet"), "{err}");
        assert_eq!(asked()[0], Request::SetPolicy(own.clone()));
    }
    for line in ["EDF --slack-ms 2.5 --device 7", "--device=7 --slack-ms=2.5 edf"] {
        let (code, ..) = finish(dir.xcli().args(["policy", "set"]).args(line.split(' ')));
        let values = [("slack-ms".to_owned(), 2.5)].into();
        let edf = PolicyOrder { policy: "EDF".to_owned(), values, ..own.clone() };
        assert_eq!((code, &asked()[0]), (Some(0), &Request::SetPolicy(edf)));
    }
    // The option for the server can stand anywhere.
    for line in ["set EDF --slack-ms 5 -p nobody-there", "-p nobody-there set EDF"] {
        let (code, _, err) = finish(dir.xcli().arg("policy").args(line.split(' ')));
        assert!(code == Some(1) && err.contains("nobody-there.sock"), "{err}");
    }
    let (code, ..) = finish(dir.xcli().args(["policy", "reset", "--device", "7"]));
    assert_eq!((code, &asked()[0]), (Some(0), &Request::ResetPolicy { device: DeviceId(7) }));
    let (code, out, _) = finish(dir.xcli().args(["policy", "-q"]));
    assert_eq!((code, out.as_str()), (Some(0), in_force));
    for words in [&["policy", "--json"][..], &["policy", "list", "--json"]] {
        let (code, out, _) = finish(dir.xcli().args(words));
        assert_eq!(code, Some(0));
        assert_eq!(serde_json::from_str::<Policies>(&out).unwrap(), policies);
    }
    asked();
    is_usage(&dir, &["policy", "set", "FIFO"], "no policy \"FIFO\" in this build (it contains HPF");
    for (line, sentence) in [
        (
            "HPF --slack-ms 5",
            "policy HPF: no parameter \"slack-ms\": this policy has gaps, share-percent, slowdown-percent, queues-first, \
             stream-priorities",
        ),
        ("EDF --slack 5", "unexpected argument '--slack'"),
        ("EDF --slack-ms five", "invalid value 'five' for '--slack-ms <VALUE>'"),
        ("EDF --slack-ms -1", "policy EDF: slack-ms \"-1\" is not a number in 0.."),
        ("EDF --slack-ms nan", "policy EDF: slack-ms \"NaN\" is not a number in 0.."),
        ("EDF --slack-ms 1 --slack-ms 2", "cannot be used multiple times"),
        ("EDF slack-ms=5", "unexpected argument 'slack-ms=5'"),
    ] {
        let words: Vec<_> = ["policy", "set"].into_iter().chain(line.split(' ')).collect();
        is_usage(&dir, &words, sentence);
    }
    is_usage(&dir, &["policy", "-n", "HPF"], "--set");
    is_usage(&dir, &["policy", "-q", "set", "HPF"], "cannot be combined with a command");
    assert_eq!(asked(), [], "wrong usage sends no request");
}

#[test]
fn policies_are_listed_without_a_server() {
    let dir = TestDir::new();
    let (code, out, err) = finish(dir.xcli().arg("policy"));
    assert!(code == Some(0) && err.contains("no xserver runs"), "{err}");
    assert!(out.starts_with("POLICY  NUMBER  WHAT IT DOES\nHPF "), "{out}");
    let (code, ..) = finish(dir.xcli().args(["policy", "-q"]));
    assert_eq!(code, Some(1), "nothing is in force");
}

#[test]
fn hints_are_sent_for_their_target() {
    let dir = TestDir::new();
    let requests = dir.serve(|request| match request {
        Request::Hint { of: Target { queue: Some(QueueId(9)), .. }, .. } => {
            Reply::Error("no connected program has a queue 9".to_owned())
        }
        _ => Reply::Done,
    });
    let priority = |number| Priority::try_from(number).unwrap();
    let queue = |queue| Target { pid: None, queue: Some(QueueId(queue)) };
    let process = Target { pid: Some(Pid(42)), queue: None };
    let cases: [(&str, Target, Vec<HintUpdate>); 11] = [
        ("-x 7 -p -10", queue(7), vec![HintUpdate::Priority(priority(-10))]),
        ("-x 0x10 -p 255", queue(16), vec![HintUpdate::Priority(Priority::MAX)]),
        ("--pid 42 -u 30", process, vec![HintUpdate::Utilization(Utilization::try_from(30).unwrap())]),
        ("-t 5000", Target::default(), vec![HintUpdate::Timeslice(Timeslice::DEFAULT)]),
        (
            "--pid 42 --deadline 900 --kdeadline -1",
            process,
            vec![HintUpdate::Deadline(NonZeroU64::new(900)), HintUpdate::KDeadline(None)],
        ),
        (
            "-x 7 --laxity 100,-5,5",
            queue(7),
            vec![HintUpdate::Laxity(Some(Laxity { us: 100, lax: priority(-5), critical: priority(5) }))],
        ),
        (
            "-x 7 --laxity -1 --arrival 300 --preemptible off",
            queue(7),
            vec![HintUpdate::Laxity(None), HintUpdate::Preemptible(false), HintUpdate::Arrival(Some(300))],
        ),
        ("--pid 42 --window --job 3", process, vec![HintUpdate::Job(NonZeroU64::new(3)), HintUpdate::Window]),
        ("--pid 42 --job 0", process, vec![HintUpdate::Job(None)]),
        (
            "--pid 42 -u 80 --cap 30",
            process,
            vec![
                HintUpdate::Utilization(Utilization::try_from(80).unwrap()),
                HintUpdate::Cap(Cap::try_from(30).ok()),
            ],
        ),
        ("--pid 42 --cap -1", process, vec![HintUpdate::Cap(None)]),
    ];
    for (line, of, said) in cases {
        let (code, out, err) = finish(dir.xcli().arg("hint").args(line.split(' ')));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{line}");
        assert_eq!(out, format!("hinted: {of}\n"));
        assert_eq!(requests.lock().unwrap().pop(), Some(Request::Hint { of, said }), "{line}");
    }
    let (code, out, err) = finish(dir.xcli().args(["hint", "-x", "9", "-p", "1"]));
    let sentence = "xcli: no connected program has a queue 9; `xcli list` shows all queues\n";
    assert_eq!((code, out.as_str(), err.as_str()), (Some(1), "", sentence));
    // The advice names the server that was asked.
    let socket = dir.socket().display().to_string();
    let (_, _, err) = finish(dir.xcli().args(["hint", "-x", "9", "-p", "1", "-a", &socket]));
    assert!(err.contains(&format!("`xcli -a {socket} list` shows")), "{err}");
    requests.lock().unwrap().clear();
    for (line, sentence) in [
        ("-p 3", "specify a target: --pid PID or -x QUEUE"),
        ("-x 7", "required"),
        ("-x 7 -p 256", "priority 256 is not in -256..255"),
        ("--pid 4 -u 101", "utilization 101 is not in 0..100"),
        ("--pid 4 --cap 0", "cap 0 is not in 1..100; -1 removes the setting"),
        ("--pid 4 --cap 101", "cap 101 is not in 1..100"),
        ("--pid 4 --cap half", "\"half\" is not a whole number"),
        ("--cap 30", "specify a target"),
        ("-t 99", "timeslice 99 is not in 100..10000000"),
        ("-x 7 --deadline 0", "deadline 0 is not a whole number >= 1; -1 removes the setting"),
        ("-x 7 --laxity 5", "microseconds and two priorities"),
        ("-x seven -p 1", "a queue is a number"),
    ] {
        let words: Vec<_> = std::iter::once("hint").chain(line.split(' ')).collect();
        is_usage(&dir, &words, sentence);
    }
    assert_eq!(requests.lock().unwrap().len(), 0);
    // Before the command, `-p` names the server.
    let (code, _, err) = finish(dir.xcli().args(["-p", "nobody-there", "hint", "-x", "7", "-p", "3"]));
    assert!(code == Some(1) && err.contains("nobody-there.sock"), "{err}");
    let (code, _, err) =
        finish(dir.xcli().args(["hint", "--instance", "nobody-there", "-x", "7", "-p", "3"]));
    assert!(code == Some(1) && err.contains("nobody-there.sock"), "{err}");
}

#[test]
fn explain_needs_a_target() {
    let dir = TestDir::new();
    dir.serve(|_| Reply::List(empty_list()));
    is_usage(&dir, &["explain"], "required");
    let (code, out, err) = finish(dir.xcli().args(["explain", "--pid", "17"]));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("xcli: process 17 is not connected to this server; `xcli doctor 17`"), "{err}");
}

#[test]
fn events_are_lines_or_json() {
    let dir = TestDir::new();
    let event = ServerEvent {
        time_us: 1_700_000_000_123_456,
        at: Time(5),
        kind: EventKind::Switched { by: Pid(7), on: true },
    };
    let events = vec![event.clone()];
    let requests = dir.serve(move |_| Reply::Events(events.clone()));
    let (code, out, err) = finish(dir.xcli().arg("events"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.ends_with(".123  switched   on: the policy decides, by 7\n"), "{out}");
    let (code, out, _) = finish(dir.xcli().args(["events", "--json", "-n", "3"]));
    assert_eq!((code, serde_json::from_str::<ServerEvent>(&out).unwrap()), (Some(0), event));
    // This server closes the connection after the first reply.
    let (code, out, err) = finish(dir.xcli().args(["events", "-f"]));
    assert_eq!((code, out.lines().count()), (Some(1), 1), "{out}");
    assert!(err.contains("closed the connection: it has ended"), "{err}");
    let asked = |recent, follow| Request::Events { recent, follow };
    assert_eq!(*requests.lock().unwrap(), [asked(1024, false), asked(3, false), asked(10, true)]);
}

#[test]
fn events_of_an_older_server_are_an_error() {
    let dir = TestDir::new();
    // Its answer to a request that it does not know.
    let why = "invalid request: unknown variant `events`, expected one of `list`, `off` at line 1 column 9";
    dir.serve(move |_| Reply::Error(why.to_owned()));
    let (code, out, err) = finish(dir.xcli().arg("events"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(
        err,
        "xcli: this server reports no events, because it is older than this xcli: start a server of the same version\n"
    );
}
