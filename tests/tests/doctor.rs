//! `xcli doctor`, asked about programs on a simulated GPU while they do what is easily misjudged.

use serde_json::Value;
use tests::Gpu;
use tests::stage::{Stage, complete, step, tell, text};

/// The exit code of `xcli doctor` with these words, and what it says.
fn doctor(stage: &Stage, words: &[&str]) -> (Option<i32>, String) {
    let words: Vec<&str> = ["doctor"].iter().chain(words).copied().collect();
    let output = stage.xcli(&words);
    assert_eq!(text(&output.stderr), "");
    (output.status.code(), text(&output.stdout).to_owned())
}

/// The line about this, which there is one of.
fn line<'a>(said: &'a str, about: &str) -> &'a str {
    let mut lines = said.lines().filter(|line| line.split_whitespace().nth(1) == Some(about));
    let found = lines.next().unwrap_or_else(|| panic!("nothing about {about}: {said}"));
    assert_eq!(lines.next(), None, "{said}");
    found
}

#[test]
fn a_client_is_judged_by_what_it_does_and_by_what_is_held_of_it() {
    let stage = Stage::new();
    let _server = stage.server();
    let (mut program, pid) = stage.client("1");
    step(&mut program);
    let ask = || doctor(&stage, &[&pid]);
    tests::until("the server knows it", || ask().1.contains("ok    hooks").then_some(()));
    let (code, said) = ask();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        line(&said, "device").contains(&format!("as process {pid} sees it: simulated by gpu-sim")),
        "{said}"
    );
    assert!(line(&said, "schedule").starts_with("ok    schedule  it "), "{said}");
    assert!(!said.contains("xcli suspend"), "{said}");

    let held = stage.json(&["suspend", &pid, "--json"])["held"].as_array().map(Vec::len).expect("queues");
    let (code, said) = ask();
    assert_eq!(code, Some(0), "{said}");
    let note = line(&said, "held");
    assert!(note.contains("`xcli suspend` has suspended queues "), "{said}");
    assert!(note.contains(&format!(" of {held} for ")), "{said}");
    assert!(note.ends_with(&format!("until `xcli resume {pid}`")), "{said}");
    assert!(
        line(&said, "schedule").contains("it may run, except queues suspended by `xcli suspend`: "),
        "{said}"
    );
    assert!(said.find(note) < said.find(line(&said, "schedule")), "{said}");
    assert_eq!(tell(&mut program), "submitted");
    assert_eq!(stage.xcli(&["resume", &pid]).status.code(), Some(0));
    complete(&mut program);
    let (code, said) = ask();
    assert!(code == Some(0) && !said.contains("xcli suspend"), "{said}");
    program.finish().expect_success();
}

/// The driver lists both programs, and the server knows one of them.
#[test]
fn the_machine_names_programs_that_no_server_schedules() {
    let stage = Stage::new();
    let _server = stage.server();
    let (client, scheduled) = stage.client("1");
    let (mut program, pid) = stage.program(&[], &[]);
    step(&mut program);
    tests::until("the server knows the client", || {
        doctor(&stage, &[&scheduled]).1.contains(" hooks ").then_some(())
    });
    let socket = stage.socket().display().to_string();
    let found = stage.gpu.shared_product("xcli").arg("doctor").env("XSCHED_SOCKET", &socket).finish();
    let card = line(&found.stdout, "card");
    assert!(
        card.contains("without being scheduled by this server") && card.contains(&format!("{pid} (")),
        "{found:?}"
    );
    assert!(!card.contains(&format!("{scheduled} (")), "{found:?}");
    program.finish().expect_success();
    client.finish().expect_success();
}

/// It is scheduled as it should be, and has launched nothing that could show it.
#[test]
fn a_client_before_its_first_launch_is_healthy() {
    let stage = Stage::new();
    let _server = stage.server();
    let (mut program, pid) = stage.preloaded(&["early"], &[("XSCHED_SCHEDULER", "GLB")]);
    let ask = || doctor(&stage, &[&pid]);
    tests::until("the server knows it", || ask().1.contains(" hooks ").then_some(()));
    let (code, said) = ask();
    assert_eq!(code, Some(0), "{said}");
    assert!(line(&said, "hooks").starts_with("note  hooks"), "{said}");
    assert_eq!(tell(&mut program), "ready");
    tests::until("its launches are counted", || ask().1.contains("launches have passed").then_some(()));
    assert_eq!(ask().0, Some(0));
    program.finish().expect_success();
}

#[test]
fn a_program_that_was_not_preloaded_is_not_scheduled_and_may_be_held() {
    let stage = Stage::new();
    let _server = stage.server();
    let (program, pid) = stage.program(&[], &[]);
    let (code, said) = doctor(&stage, &[&pid]);
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "library").contains("start the program with `xcli run`"), "{said}");
    assert!(line(&said, "schedule").contains("its calls do not pass the library"), "{said}");
    stage.json(&["suspend", &pid, "--json"]);
    let (code, said) = doctor(&stage, &[&pid]);
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "held").contains(&format!("until `xcli resume {pid}`")), "{said}");
    assert_eq!(stage.xcli(&["resume", &pid]).status.code(), Some(0));
    program.finish().expect_success();
}

/// With a policy of its own a program needs no server, and none runs here.
#[test]
fn a_program_that_decides_for_itself_needs_no_server() {
    let stage = Stage::new();
    let case = |variables: &[(&str, &str)]| {
        let (program, pid) = stage.preloaded(&[], variables);
        let (code, said) = doctor(&stage, &[&pid]);
        assert!(line(&said, "server").starts_with("note  server    no xserver runs: "), "{said}");
        program.finish().expect_success();
        (code, line(&said, "schedule").to_owned())
    };
    let (code, said) = case(&[("XSCHED_POLICY", "HPF")]);
    assert!(code == Some(0) && said.contains("by the policy HPF, without a server"), "{said}");
    let (code, said) = case(&[("XSCHED_SCHEDULER", "APP")]);
    assert!(code == Some(0) && said.contains("(because of XSCHED_SCHEDULER)"), "{said}");
    let (code, said) = case(&[("XSCHED_SCHEDULER", "GLB")]);
    assert!(code == Some(1) && said.starts_with("BAD   schedule  it runs unscheduled"), "{said}");
}

#[test]
fn process_that_does_not_exist_is_the_only_finding() {
    let stage = Stage::new();
    let (code, said) = doctor(&stage, &["2147483647"]);
    assert_eq!(
        (code, said.lines().next()),
        (Some(1), Some("BAD   process   there is no process 2147483647"))
    );
    assert!(!said.contains("device") && line(&said, "server").starts_with("note"), "{said}");
    let output = stage.xcli(&["doctor", "2147483647", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["ok"], &json["findings"][0]["verdict"]), (&false.into(), &"bad".into()));
    // One that knows nothing of GPUs.
    let cat = tests::until("it runs", || stage.keep.program()).as_raw_nonzero().to_string();
    let (code, said) = doctor(&stage, &[&cat]);
    assert_eq!(code, Some(1), "{said}");
    assert!(line(&said, "driver").contains("has not used the KFD yet"), "{said}");
}

/// Levels that wait for running kernels are allowed on a simulated device only.
#[test]
fn levels_of_the_machine_are_those_that_can_be_had() {
    let gpu = Gpu::take();
    let seen = |flags: &[&str]| {
        let mut run = gpu.product("xcli").arg("doctor");
        for flag in flags {
            run = run.sim_flag(flag);
        }
        let found = run.env("XSCHED_SOCKET", "/nonexistent/xserver.sock").finish();
        assert_eq!(found.code, 0, "{found:?}");
        line(&found.stdout, "gpu").to_owned()
    };
    let said = seen(&[]);
    assert!(said.starts_with("ok ") && said.contains("level 3 works by update-queue"), "{said}");
    let said = seen(&["--no-cwsr"]);
    assert!(said.starts_with("note") && said.contains("level 2 works by update-queue"), "{said}");
    assert!(said.contains("level 3 does not: the driver does not save"), "{said}");
}
