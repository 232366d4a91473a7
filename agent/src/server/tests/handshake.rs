//! Tests of the handshake: the answers of a server that a client accepts and refuses.

use super::super::connection::{self, Failure, Welcome, handshake};
use super::endpoint::{End, Faults};
use super::{ALONE, HANG};
use crate::notifier::Notifier;
use protocol::frame::Frame;
use protocol::message::ToClient;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Makes a handshake with a server that gives this answer, and returns its result.
fn answered(answer: impl FnOnce(&mut End) + Send + 'static) -> Result<Welcome, Failure> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || answer(&mut End::new(theirs)));
    let result = handshake(ours.into(), "test", false, HANG);
    server.join().unwrap();
    result
}

#[test]
fn handshake_accepts_only_a_valid_welcome() {
    let _alone = ALONE.lock();
    let welcome = answered(|end| drop(end.welcome(Faults::default()))).unwrap();
    assert_eq!((welcome.server, welcome.offset), (1, Default::default()));
    assert!(welcome.socket.number().unwrap() >= 500);

    let refused = answered(|end| {
        end.hello();
        end.send(&ToClient::Refused { reason: "full".to_owned() }.encode(), &[]);
    });
    assert!(matches!(refused, Err(Failure::Refused(reason)) if reason == "full"));

    let broken = |what: &str, result: Result<Welcome, Failure>, part: &str| match result {
        Err(Failure::Broken(reason)) => assert!(reason.contains(part), "{what}: {reason}"),
        other => panic!("{what}: {other:?}"),
    };
    let sent = |bytes: Vec<u8>| {
        answered(move |end| {
            end.hello();
            end.stream.write_all(&bytes).unwrap();
        })
    };
    broken("another protocol", sent(b"HTTP/1.1 400 Bad Request\r\n".to_vec()), "no frames of giveway");
    let mut newer = Frame::encode(0x101, &[]);
    newer[4] += 1;
    broken("another version", sent(newer), "version");
    broken("no message", sent(Frame::encode(0x999, &[])), "no sense");
    broken("too long", sent(Frame::encode(0x101, &[0; 5000])[..16].to_vec()), "too long");
    broken("nothing", sent(Vec::new()), "closes the connection");

    let with = |faults| answered(move |end| drop(end.welcome(faults)));
    let none = Faults::default();
    broken("two files", with(Faults { no_eventfd: true, ..none }), "2 descriptors");
    broken("four files", with(Faults { one_more: true, ..none }), "4 descriptors");
    broken("short", with(Faults { short_server_page: true, ..none }), "the server's page has 1 bytes");
    broken("short", with(Faults { short_client_page: true, ..none }), "the client's page has");
    broken("seals", with(Faults { unsealed_server_page: true, ..none }), "the server's page has the seals");
    broken("seals", with(Faults { unsealed_client_page: true, ..none }), "the client's page has the seals");
    broken("no file", with(Faults { no_memory_file: true, ..none }), "the client's page has 0 bytes");
    broken("blocks", with(Faults { blocking_eventfd: true, ..none }), "could block");
    broken("too much", with(Faults { more_words: true, ..none }), "more than a welcome");
    // Only the notifier sees that this is no eventfd.
    let pipe = with(Faults { no_eventfd_but_a_pipe: true, ..none }).unwrap();
    assert!(Notifier::new().attach(&pipe.eventfd).is_err());
}

/// Needs root, to become another user.
#[test]
fn server_of_another_user_is_not_trusted() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let path = folder.path().join("socket");
    let listener = {
        let path = path.clone();
        // A thread has a user id of its own, and ends with it.
        let thread = std::thread::spawn(move || {
            let nobody: libc::uid_t = 65_534;
            // SAFETY: the call takes numbers, and changes the ids of this thread only.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
            assert_eq!(result, 0, "the tests run as root");
            UnixListener::bind(path).unwrap()
        });
        thread.join().unwrap()
    };
    // This user namespace maps the user, so the place of the socket makes no difference.
    for is_system in [false, true] {
        let result = handshake(connection::connect(&path).unwrap(), "test", is_system, HANG);
        assert!(
            matches!(&result, Err(Failure::Broken(reason)) if reason.contains("belongs to user 65534")),
            "{result:?}"
        );
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let mut bytes = [0; 1];
        let said = std::io::Read::read(&mut accepted, &mut bytes);
        assert!(!matches!(said, Ok(1..)), "the client has introduced itself");
    }
}

#[test]
fn silent_server_is_waited_for_with_a_limit() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    assert!(connection::connect(&path).is_err(), "no server has ever listened");
    let listener = UnixListener::bind(&path).unwrap();
    // The server accepts connections, and sends nothing.
    let begun = Instant::now();
    let silent = handshake(connection::connect(&path).unwrap(), "test", false, Duration::from_millis(50));
    assert!(matches!(silent, Err(Failure::Absent(error)) if error.kind() == std::io::ErrorKind::TimedOut));
    assert!(begun.elapsed() < HANG);
    // The server accepts no connections, so its queue fills up.
    // SAFETY: the call takes numbers; a second call changes the length of the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let mut waiting = Vec::new();
    let refused = loop {
        match connection::connect(&path) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100);
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    drop(listener);
    assert!(connection::connect(&path).is_err(), "no server listens any more");
}
