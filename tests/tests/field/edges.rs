//! Most of these tell `tests/programs/edges.cpp` what to do to itself, line by line.

use serde_json::Value;
use tests::{Daemon, Gpu, Mode, Run, Running, until};

/// The library with these variables.
fn preloaded(env: &[(&str, &str)]) -> Mode {
    Mode::Shimmed { env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect() }
}

/// A part of a co-run under this server.
fn under(daemon: &Daemon, priority: &str, run: Run, more: &[(&str, &str)]) -> Running {
    let socket = daemon.socket().display().to_string();
    let mut env = vec![
        ("XSCHED_SOCKET", socket.as_str()),
        ("XSCHED_SCHEDULER", "GLB"),
        ("XSCHED_AUTO_XQUEUE", "ON"),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", priority),
    ];
    env.extend_from_slice(more);
    run.mode(preloaded(&env)).start()
}

/// Has the program do something, and waits until it is done.
fn tell(program: &mut Running, line: &str) {
    program.tell(line);
    assert_eq!(program.line(), line.split(' ').next().unwrap_or_default());
}

/// The client of this priority, once the server knows its queues.
fn client(daemon: &Daemon, priority: i64) -> Option<Value> {
    let of = |client: &Value| client["queues"].as_array()?.first()?["priority"].as_i64();
    daemon.clients().into_iter().find(|client| of(client) == Some(priority))
}

/// A program of priority 0 that knows its server, and an urgent one that never has enough.
fn suspended(gpu: &Gpu, daemon: &Daemon, filter: &str) -> [Running; 2] {
    let mut low = under(daemon, "0", gpu.shared("edges"), &[]);
    tell(&mut low, "start");
    until("the server knows it", || client(daemon, 0));
    tell(&mut low, filter);
    let mut high = under(daemon, "10", gpu.shared("stay").arg("1"), &[]);
    assert_eq!(high.line(), "ready");
    // It has work now, and waits.
    low.tell("work 3");
    until("it waits", || (client(daemon, 0)?["permit"]["run"] == false).then_some(()));
    assert!(!low.has_line(), "it waits");
    [low, high]
}

/// A filter may end the thread that sees to the lease: then the thread that hears of permissions does.
#[test]
fn a2_without_an_agent_a_suspension_ends_with_its_lease() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let [mut low, high] = suspended(&gpu, &daemon, "filter killthread ppoll");
    drop(daemon);
    assert_eq!(low.line(), "work", "it runs without its server");
    low.finish().expect_success();
    high.kill_program();
}

/// And the other way round.
#[test]
fn a2_without_a_listener_a_permission_is_heard_of() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let [mut low, high] = suspended(&gpu, &daemon, "filter killthread shared-futex");
    high.kill_program();
    assert_eq!(low.line(), "work", "it runs when the other one has gone");
    low.finish().expect_success();
}

/// A program that cannot have more threads than the runtime has made launches by itself.
#[test]
fn a4_without_threads_of_ours_launches_go_on() {
    let gpu = Gpu::take();
    for more in [("XSCHED_SCHEDULER", "APP"), ("XSCHED_POLICY", "HPF"), ("XSCHED_TEST", "defer")] {
        let mut program = gpu.run("edges").mode(preloaded(&[("XSCHED_AUTO_XQUEUE", "ON"), more])).start();
        for line in ["nothreads", "start", "work 100", "query"] {
            tell(&mut program, line);
        }
        let end = program.finish();
        end.expect_success();
        assert!(end.stderr.matches("no worker thread").count() <= 1, "{}", end.stderr);
    }
}
