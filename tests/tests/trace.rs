//! `xcli trace record` with the real server and a client that uses no GPU: what it cannot record, and how it ends. `global.rs` records
//! two programs.

use tests::{Daemon, PlainClient, Recorder, until};

/// Returns true if the names in a file have this text. They stand there as they are.
fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn program_of_an_older_library_is_named_and_its_decisions_are_there() {
    let server = Daemon::start(&[]);
    let _program = PlainClient::start(&server, "plain", 1);
    until("it is connected", || (server.clients().len() == 1).then_some(()));
    // Longer than the server waits for what a program takes.
    let output = server.xcli().args(["trace", "record", "--seconds", "2", "-o", "-"]).output().expect("xcli");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("plain is not in the trace: its library is older"), "{said}");
    assert!(has(&output.stdout, "plain") && has(&output.stdout, "runs: "));
}

#[test]
fn recording_up_to_the_end_of_the_server_is_kept() {
    let mut server = Daemon::start(&[]);
    let _program = PlainClient::start(&server, "plain", 1);
    until("it is connected", || (server.clients().len() == 1).then_some(()));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.pb");
    let recorder = Recorder::start(server.xcli(), &file);
    recorder.until_it_is_connected();
    server.end();
    let output = recorder.wait();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("closed the connection"), "{said}");
    assert!(has(&std::fs::read(&file).expect("the file is there"), "xserver"));
    let left = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 1, "no temporary file is left");
}

#[test]
fn full_disk_and_bad_paths_are_named() {
    let server = Daemon::start(&[]);
    let full = std::fs::File::create("/dev/full").expect("the device");
    let mut command = server.xcli();
    command.args(["trace", "record", "--seconds", "0.2", "-o", "-"]);
    let output = command.stdout(full).output().expect("xcli");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the trace: No space left"), "{said}");

    let absent = server.folder().join("absent/trace.pb");
    let output = server.xcli().args(["trace", "record", "-o"]).arg(&absent).output().expect("xcli");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("absent/trace.pb"), "{said}");

    // A limit of file sizes keeps what is within it.
    let file = server.folder().join("limited.pb");
    let mut limited = std::process::Command::new("prlimit");
    limited.arg("--fsize=20").arg(server.xcli().get_program()).args(server.xcli().get_args());
    let output =
        limited.args(["trace", "record", "--seconds", "0.2", "-o"]).arg(&file).output().expect("prlimit");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("File too large"), "{said}");
    assert!(std::fs::metadata(&file).expect("the file is there").len() <= 20);
}
