//! `Request::Trace`: who gets whose file, and when programs write. Needs root, to become other users.

mod support;

use protocol::control::{Reply, Request, TracedProgram};
use protocol::frame::{Decoder, Frame, HEADER, REPLY_LIMIT};
use protocol::message::{REQUEST, ToClient};
use protocol::page::TAKES_TRACES;
use protocol::trace::Trace;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;
use support::{ALICE, BOB, Client, MONITOR, Running, connect_as, is_closed, receive_files, wait_for};

const CONFIGURATION: &str = r#"
    [[rule]]
    name = "monitoring"
    users = [40004]
    observe = true
"#;

/// Someone who records.
struct Recorder {
    socket: OwnedFd,
    decoder: Decoder,
    files: Vec<OwnedFd>,
    come: Vec<(TracedProgram, Option<OwnedFd>)>,
}

impl Recorder {
    fn new(socket: UnixStream) -> Self {
        let request = Frame::encode(REQUEST, &serde_json::to_vec(&Request::Trace).unwrap());
        rustix::io::write(&socket, &request).unwrap();
        Self {
            socket: socket.into(),
            decoder: Decoder::new(REPLY_LIMIT),
            files: Vec::new(),
            come: Vec::new(),
        }
    }

    /// Waits for the reply about a program.
    fn wait(&mut self, name: &str) -> (TracedProgram, Option<OwnedFd>) {
        loop {
            if let Some(place) = self.come.iter().position(|(program, _)| program.name == name) {
                return self.come.remove(place);
            }
            let mut bytes = [0; 4096];
            let length = receive_files(&self.socket, &mut bytes, &mut self.files);
            assert_ne!(length, 0, "the server has closed the connection");
            self.decoder.push(&bytes[..length]);
            while let Some(frame) = self.decoder.next_frame().unwrap() {
                let Reply::Traced(program) = serde_json::from_slice(&frame.payload).unwrap() else {
                    panic!("{frame:?}")
                };
                let file = program.missing.is_none().then(|| self.files.remove(0));
                self.come.push((program, file));
            }
        }
    }
}

fn takes(client: &Client) {
    client.header.takes.store(TAKES_TRACES, SeqCst);
}

/// Waits for the next message of the server, and for its file.
fn next(client: &Client) -> (ToClient, Vec<OwnedFd>) {
    let (mut bytes, mut files) = ([0; HEADER + 64], Vec::new());
    let mut decoder = Decoder::new(64);
    loop {
        // One message at a time: nothing follows before the server has a reason.
        let length = receive_files(&client.socket, &mut bytes, &mut files);
        decoder.push(&bytes[..length]);
        if let Some(frame) = decoder.next_frame().unwrap() {
            return (ToClient::decode(&frame).unwrap(), files);
        }
    }
}

#[test]
fn program_writes_into_the_file_that_the_recorder_reads() {
    let server = Running::new();
    let client = Client::with_queue(&server.path, "one", 3);
    takes(&client);
    let mut recorder = Recorder::new(UnixStream::connect(&server.path).unwrap());
    let (message, files) = next(&client);
    assert_eq!((message, files.len()), (ToClient::Trace {}, 1));
    let (program, file) = recorder.wait("one");
    assert_eq!((program.pid.0, program.missing), (std::process::id(), None));
    let file = file.unwrap();
    assert_eq!(usize::try_from(fstat(&file).unwrap().st_size), Ok(size_of::<Trace>()));
    assert_eq!(fcntl_getfl(&file).unwrap() & OFlags::ACCMODE, OFlags::RDONLY);
    rustix::io::pwrite(&files[0], b"written", 0).unwrap();
    let mut read = [0; 7];
    rustix::io::pread(&file, &mut read, 0).unwrap();
    assert_eq!(&read, b"written");

    // A second recorder reads the same file, and the program writes until both have gone.
    let mut second = Recorder::new(UnixStream::connect(&server.path).unwrap());
    let (_, same) = second.wait("one");
    assert_eq!(fstat(same.unwrap()).unwrap().st_ino, fstat(&file).unwrap().st_ino);
    drop(recorder);
    let late = Client::with_queue(&server.path, "late", 3);
    takes(&late);
    second.wait("late");
    drop(second);
    for client in [&client, &late] {
        let messages = std::iter::from_fn(|| Some(next(client).0));
        let until_end = messages.take_while(|message| *message != ToClient::TraceEnd {});
        // The first message of the late program has not been read before.
        assert!(until_end.count() <= 1);
    }
    // The next recording has a new file.
    let mut third = Recorder::new(UnixStream::connect(&server.path).unwrap());
    let (_, other) = third.wait("one");
    assert_ne!(fstat(other.unwrap()).unwrap().st_ino, fstat(&file).unwrap().st_ino);
    // A connection that records takes no other request.
    rustix::io::write(&third.socket, &Frame::encode(REQUEST, b"\"list\"")).unwrap();
    wait_for("the connection is closed", || is_closed(&third.socket));
    assert_eq!(server.list().clients.len(), 2);
}

#[test]
fn program_of_an_older_library_is_named_and_left_alone() {
    let server = Running::new();
    let client = Client::with_queue(&server.path, "old", 3);
    let mut recorder = Recorder::new(UnixStream::connect(&server.path).unwrap());
    let (program, file) = recorder.wait("old");
    assert!(file.is_none() && program.missing.is_some_and(|why| why.contains("older")));
    drop(recorder);
    server.wait_for_clients(1);
    let mut byte = [0];
    let read = rustix::net::recv(&client.socket, &mut byte[..], rustix::net::RecvFlags::DONTWAIT);
    assert!(matches!(read, Err(rustix::io::Errno::AGAIN)), "it gets no message that it does not know");
}

#[test]
fn people_record_programs_that_they_see() {
    let (server, _) = Running::shared(CONFIGURATION);
    let of = |uid| {
        let client = Client::on(connect_as(uid, uid, &server.path).into(), &format!("of-{uid}"));
        takes(&client);
        client
    };
    let (_first, _second) = (of(ALICE), of(BOB));
    let record = |uid| Recorder::new(connect_as(uid, uid, &server.path));
    let (mut alice, mut monitor) = (record(ALICE), record(MONITOR));
    assert!(
        monitor.wait(&format!("of-{BOB}")).1.is_some() && monitor.wait(&format!("of-{ALICE}")).1.is_some()
    );
    assert!(alice.wait(&format!("of-{ALICE}")).1.is_some());
    // Bob's program was there first, so she would have been told of it by the time of her own second one.
    let own = Client::on(connect_as(ALICE, ALICE, &server.path).into(), "second");
    takes(&own);
    alice.wait("second");
    assert!(alice.come.is_empty(), "{:?}", alice.come);
}
