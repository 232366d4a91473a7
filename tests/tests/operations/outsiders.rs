//! Programs that use the GPU and are not scheduled by the server: two servers on one device notice each other's programs.

use crate::place::{built, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tests::{Gpu, Running, program, until};

/// Starts a server inside the simulated machine, where the driver shows its processes.
fn serve(gpu: &Gpu, socket: &Path) -> Running {
    let server = gpu.shared_product("xserver").env("XSCHED_SOCKET", &text(socket)).start();
    until("the server listens", || socket.exists().then_some(()));
    server
}

fn list(socket: &Path) -> Value {
    let mut command = Command::new(built("xcli"));
    let output = command.args(["list", "--json"]).env("XSCHED_SOCKET", socket).output().expect("xcli");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A program at the shared GPUs, scheduled by the server of this socket if there is one.
fn start(gpu: &Gpu, socket: Option<&Path>) -> Running {
    let rounds = program("rounds").unwrap_or_else(|reason| panic!("{reason}"));
    let run = match socket {
        None => gpu.shared_executable(&rounds),
        Some(socket) => {
            let run = gpu.shared_product("xcli").arg("-a").arg(text(socket));
            run.arg("run").arg("--strict").arg("--").arg(text(&rounds))
        }
    };
    let mut running = run.arg("3").arg("5").start();
    assert_eq!(running.line(), "ready");
    running
}

#[test]
fn a_server_names_the_programs_of_another_server_and_those_without_one() {
    let gpu = Gpu::take();
    let _keep = gpu.keep();
    let folder = tempfile::tempdir().expect("a folder");
    let sockets = [folder.path().join("one"), folder.path().join("two")];
    let _servers = sockets.each_ref().map(|socket| serve(&gpu, socket));
    let of_one = start(&gpu, Some(&sockets[0]));
    let plain = start(&gpu, None);
    let pid = |client: &Value| client["pid"].as_u64().expect("a pid");
    let pids = |all: &Value| all.as_array().into_iter().flatten().map(pid).collect::<Vec<_>>();
    let scheduled = until("the first server knows its program", || {
        let clients = pids(&list(&sockets[0])["clients"]);
        (clients.len() == 1).then(|| clients[0])
    });
    let unscheduled = until("the first server names the other program", || {
        let found = pids(&list(&sockets[0])["server"]["outsiders"]);
        (found.len() == 1 && found[0] != scheduled).then(|| found[0])
    });
    until("the second server names both", || {
        let found = pids(&list(&sockets[1])["server"]["outsiders"]);
        (found.len() == 2 && found.contains(&scheduled) && found.contains(&unscheduled)).then_some(())
    });
    for running in [of_one, plain] {
        running.finish().expect_success();
    }
    until("both have ended", || {
        let has_none = |socket: &std::path::PathBuf| pids(&list(socket)["server"]["outsiders"]).is_empty();
        sockets.iter().all(has_none).then_some(())
    });
}
