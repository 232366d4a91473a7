//! Two ranks of a job that wait for each other on their devices, beside an urgent program on one of them.

use serde_json::Value;
use tests::{Daemon, Gpu, Run, Running, until};

/// The simulated devices.
const GPUS: u32 = 2;

/// A program under `xcli run` with these words.
fn scheduled(gpu: &Gpu, daemon: &Daemon, words: &[&str], program: &str) -> Run {
    let path = tests::program(program).unwrap_or_else(|reason| panic!("{reason}"));
    let run = gpu.shared_product("xcli").sim("--gpus", GPUS);
    let run = run.env("XSCHED_SOCKET", &daemon.socket().display().to_string()).arg("run").arg("--strict");
    words.iter().fold(run, |run, word| run.arg(*word)).arg("--").arg(path.display().to_string())
}

/// The ranks at work, and an urgent program on the device of the second one.
struct Scene {
    ranks: Running,
    pids: [u64; 2],
    rival: Running,
    daemon: Daemon,
    _gpu: Gpu,
}

impl Scene {
    /// Starts it under this policy. `job` is what `xcli run` is told of the ranks besides.
    fn start(policy: &str, job: &[&str]) -> Scene {
        let gpu = Gpu::take();
        let daemon = Daemon::start(&[]);
        daemon.said(&["policy", "set", policy]);
        // Both are built before one of them runs.
        let ranks = scheduled(&gpu, &daemon, job, "ranks");
        let rival = scheduled(&gpu, &daemon, &["--priority", "10"], "endless").arg("urgent");
        let mut ranks = ranks.start();
        let line = ranks.line();
        let pids: Vec<u64> =
            line.split(' ').skip(1).map(|pid| pid.parse().unwrap_or_else(|_| panic!("{line}"))).collect();
        let pids = [pids[0], pids[1]];
        let rival = rival.env("HIP_VISIBLE_DEVICES", "1").start();
        let scene = Scene { ranks, pids, rival, daemon, _gpu: gpu };
        until("the server knows all three", || {
            let queues =
                |client: &Value| client["queues"].as_array().is_some_and(|queues| !queues.is_empty());
            (scene.daemon.clients().iter().filter(|client| queues(client)).count() == 3).then_some(())
        });
        let device = |pid: u64| scene.client(pid)["queues"][0]["device"].clone();
        assert_ne!(device(scene.pids[0]), device(scene.pids[1]), "each rank has a device");
        scene
    }

    fn client(&self, pid: u64) -> Value {
        let clients = self.daemon.clients();
        clients.into_iter().find(|client| client["pid"] == pid).expect("the rank is connected")
    }

    /// Returns which of the ranks may run, as one decision of the server has it.
    fn may_run(&self) -> [bool; 2] {
        let clients = self.daemon.clients();
        self.pids.map(|pid| {
            let rank = clients.iter().find(|client| client["pid"] == pid).expect("the rank is connected");
            rank["permit"]["run"] == true
        })
    }

    /// Lets all end. Each has checked its memory.
    fn finish(self) {
        self.rival.finish().expect_success();
        self.ranks.finish().expect_success();
    }
}

/// Under GANG both are suspended for the urgent program, though one has a device for itself: it would only wait.
#[test]
fn ranks_of_a_job_run_together_or_not_at_all() {
    /// How often each is to be seen.
    const ENOUGH: u32 = 20;
    let scene = Scene::start("GANG", &["--job", "1"]);
    let (mut running, mut suspended) = (0, 0);
    until("both run and are suspended in turns", || {
        match scene.may_run() {
            [true, true] => running += 1,
            [false, false] => suspended += 1,
            apart => panic!("one runs without the other: {apart:?}"),
        }
        (running >= ENOUGH && suspended >= ENOUGH).then_some(())
    });
    let why = format!("pid {} of the same job cannot run, and they run together", scene.pids[1]);
    until("the server says why the first one is suspended", || {
        scene.daemon.said(&["explain", "--pid", &scene.pids[0].to_string()]).contains(&why).then_some(())
    });
    scene.finish();
}

/// Otherwise the first rank has its device while the second one is suspended. The results are right all the same.
#[test]
fn ranks_run_apart_without_a_job_or_without_gang() {
    for (policy, job) in [("GANG", &[][..]), ("HPF", &["--job", "1"][..])] {
        let scene = Scene::start(policy, job);
        until("the first one runs without the second one", || {
            (scene.may_run() == [true, false]).then_some(())
        });
        scene.finish();
    }
}
