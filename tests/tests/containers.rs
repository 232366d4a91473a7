//! Two containers of plain namespaces under one server for all users, as `docs/operate/containers.md` describes them.

use std::path::Path;

use serde_json::Value;
use tests::{Daemon, Gpu, Running, product, program, until};

/// The sockets of the two containers.
const CONFIGURATION: &str = r#"
    [[listen]]
    path = "DIR/urgent.sock"
    max_priority = 100
    [[listen]]
    path = "DIR/batch.sock"
    max_priority = -1
    [[rule]]
    name = "containers"
    listen = ["DIR/urgent.sock", "DIR/batch.sock"]
    max_priority = 255
    administer = true
"#;

/// What runs in a container: it mounts its socket where programs look for it, tries to administer the server, and runs a
/// program at a priority that it must not have.
const CONTAINER: &str = r#"
    socket=$1 xcli=$2
    shift 2
    mount -t tmpfs none /run && mkdir /run/giveway && touch /run/giveway/xserver.sock || exit 9
    mount --bind "$socket" /run/giveway/xserver.sock || exit 9
    "$xcli" off 2>&1
    exec "$xcli" run --strict --priority 200 -- "$@" 2>&1
"#;

/// Starts `rounds` in a container, and waits until it is ready.
fn start(gpu: &Gpu, daemon: &Daemon, socket: &str, arguments: &[&str]) -> Running {
    let rounds = program("rounds").unwrap_or_else(|reason| panic!("{reason}"));
    let xcli = product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    let socket = daemon.folder().join(socket);
    let text = |path: &Path| path.to_str().expect("a plain name").to_owned();
    let mut run = gpu.shared_executable(Path::new("/usr/bin/unshare"));
    for word in ["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", CONTAINER, "sh"] {
        run = run.arg(word);
    }
    for word in [&socket, &xcli, &rounds] {
        run = run.arg(text(word));
    }
    let run = arguments.iter().fold(run, |run, argument| run.arg(*argument));
    let mut running = run.start();
    let refused = running.line();
    assert!(refused.contains("only an administrator of this server can do that"), "{refused}");
    assert_eq!(running.line(), "ready");
    running
}

/// The client that came by a socket with this limit.
fn client(daemon: &Daemon, limit: i64) -> Option<Value> {
    let mut clients = daemon.clients().into_iter();
    let found = clients.find(|client| client["owner"]["max_priority"] == limit)?;
    (!found["queues"].as_array()?.is_empty()).then_some(found)
}

fn has(client: &Value, state: &str) -> bool {
    client["queues"].as_array().is_some_and(|queues| queues.iter().any(|queue| queue["state"] == state))
}

#[test]
fn the_urgent_container_goes_first_and_neither_exceeds_its_limit() {
    let gpu = Gpu::take();
    let _keep = gpu.keep();
    let daemon = Daemon::for_all_users(CONFIGURATION);
    let mut batch = start(&gpu, &daemon, "batch.sock", &["60", "20"]);
    let mut urgent = start(&gpu, &daemon, "urgent.sock", &["20", "5", "each"]);
    for limit in [-1, 100] {
        let client = until("the server knows the queues", || client(&daemon, limit));
        let queues = client["queues"].as_array().expect("queues");
        assert!(queues.iter().all(|queue| queue["priority"] == limit), "{client}");
        // The number that the process has outside.
        assert_ne!(client["pid"], 1, "{client}");
        assert_eq!(client["owner"]["rule"], "containers");
    }
    batch.let_go();
    until("the batch program works", || has(&client(&daemon, -1)?, "running").then_some(()));
    urgent.let_go();
    until("the urgent program suspends it", || has(&client(&daemon, -1)?, "suspended").then_some(()));
    for running in [urgent, batch] {
        let finished = running.finish();
        finished.expect_success();
        assert!(finished.stdout.contains("digest "), "{}", finished.stdout);
    }
}
