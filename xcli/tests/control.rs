//! `xcli list`, `off` and `on` against a server that says what the test wants, over the real frames.

mod common;

use common::{Place, empty_list, finish};
use protocol::control::{List, Reply, Request};
use protocol::frame::Frame;
use protocol::message::REPLY;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

#[test]
fn list_prints_a_table_or_json() {
    let place = Place::new();
    let requests = place.serve(|_| Reply::List(empty_list()));
    let (code, out, err) = finish(place.xcli().arg("list"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let want = "xserver 4711: policy HPF, on, up 1 min 5 s, 0 guard runs\nno program is connected\n";
    assert_eq!(out, want);

    let (code, out, err) = finish(place.xcli().args(["list", "--json"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(serde_json::from_str::<List>(&out).expect("JSON of a list"), empty_list());
    assert_eq!(*requests.lock().unwrap(), [Request::List, Request::List]);
}

#[test]
fn off_and_on_are_orders() {
    let place = Place::new();
    let requests = place.serve(|_| Reply::Done);
    for (word, request) in [("off", Request::Off), ("on", Request::On)] {
        let (code, out, err) = finish(place.xcli().arg(word));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.starts_with(&format!("{word}: ")) && out.lines().count() == 1, "{out}");
        assert_eq!(requests.lock().unwrap().pop(), Some(request));
    }
    // What is no answer to the question is no answer.
    let (code, out, err) = finish(place.xcli().arg("list"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("something else than a list"), "{err}");
}

/// One sentence on standard error, nothing on standard output, exit code 1.
fn fails(place: &Place, sentence: &str) {
    let (code, out, err) = finish(place.xcli().arg("list"));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.starts_with("xcli: ") && err.contains(sentence) && err.lines().count() == 1, "{err}");
}

#[test]
fn no_server() {
    let place = Place::new();
    fails(&place, "no xserver runs here (nobody listens on ");
    // A socket that a killed server has left.
    drop(UnixListener::bind(place.socket()).unwrap());
    fails(&place, "no xserver runs here (nobody listens on ");
}

#[test]
fn a_server_that_does_not_answer() {
    let place = Place::new();
    // Never accepts: as a stopped one.
    let _listener = UnixListener::bind(place.socket()).unwrap();
    let begin = Instant::now();
    fails(&place, &format!("(pid {}) does not answer within 2 s: is it stopped?", std::process::id()));
    assert!(begin.elapsed() >= Duration::from_secs(2));
    assert!(begin.elapsed() < common::HANG_GUARD);
}

#[test]
fn a_server_that_answers_nonsense() {
    let answers: [(&[u8], &str); 6] = [
        (b"HTTP/1.1 400 Bad Request", "no frames of giveway"),
        (b"GIVW\x09\0\x02\x02\0\0\0\0", "speaks version 9 of the protocol, this one 2"),
        (&Frame::encode(REPLY, b"{}"), "makes no sense"),
        (&Frame::encode(REPLY, br#"{"error":"out of\nmemory"}"#), "says: out of?memory"),
        (&Frame::encode(77, b""), "a frame of kind 0x4d"),
        (b"GIVW", "closed the connection without an answer"),
    ];
    for (answer, sentence) in answers {
        let place = Place::new();
        let answer = answer.to_owned();
        place.serve_raw(move |stream, _| stream.write_all(&answer).unwrap());
        fails(&place, sentence);
    }
}

/// A server of somebody else's is not believed. Root, to make somebody else.
#[test]
fn a_server_of_somebody_else() {
    let place = Place::new();
    let folder = place.path("open");
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
    let (code, out, err) = finish(place.xcli().arg("-a").arg(&socket).arg("list"));
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let own = rustix::process::geteuid();
    let sentence = format!("belongs to uid 65534, neither to you (uid {own}) nor to root: it is not asked\n");
    assert!(err.ends_with(&sentence), "{err}");
    drop(listener);
}

#[test]
fn another_machine() {
    let place = Place::new();
    let (code, out, err) = finish(place.xcli().args(["-a", "gpu-host", "list"]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("TCP is not in this build"), "{err}");
    place.serve(|_| Reply::List(empty_list()));
    let (code, ..) = finish(place.xcli().args(["list", "-a", "127.0.0.1"]));
    assert_eq!(code, Some(0), "this machine's own address is this machine");
}

#[test]
fn a_server_is_named_by_path_or_instance() {
    let place = Place::new();
    place.serve(|_| Reply::Done);
    let (code, ..) = finish(place.xcli().env_remove("XSCHED_SOCKET").arg("-a").arg(place.socket()).arg("on"));
    assert_eq!(code, Some(0));
    // An option counts for more than the environment.
    let (code, _, err) = finish(place.xcli().args(["-p", "no-such-instance", "on"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("xsched/no-such-instance.sock"), "{err}");
    let (code, _, err) = finish(place.xcli().args(["-p", "../x", "on"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("1 to 32 letters"), "{err}");
    let (code, _, err) = finish(place.xcli().env("XSCHED_SOCKET", "x".repeat(108)).arg("on"));
    assert_eq!(code, Some(1));
    assert!(err.contains("at most 107 bytes"), "{err}");
}
