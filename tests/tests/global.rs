//! Programs under one `xserver`: which of them is suspended, and that none waits for ever.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Daemon, Gpu, Mode, Recorder, Run, Running, until};

/// A program under a server, before it is started.
struct Part {
    run: Run,
    log: PathBuf,
}

/// A started one.
struct Started {
    running: Running,
    log: PathBuf,
}

/// The counts of its queues.
#[derive(Debug)]
struct Books {
    suspensions: u64,
    suspended: Duration,
    deferred: u64,
}

impl Part {
    fn new(daemon: &Daemon, name: &str, priority: i32, run: Run) -> Self {
        Self::with(daemon, name, priority, run, &[])
    }

    fn with(daemon: &Daemon, name: &str, priority: i32, run: Run, env: &[(&str, &str)]) -> Self {
        let log = daemon.folder().join(name);
        let mut all = vec![
            ("XSCHED_SOCKET".to_owned(), daemon.socket().display().to_string()),
            ("XSCHED_SCHEDULER".to_owned(), "GLB".to_owned()),
            ("XSCHED_AUTO_XQUEUE".to_owned(), "ON".to_owned()),
            ("XSCHED_AUTO_XQUEUE_PRIORITY".to_owned(), priority.to_string()),
            ("XSCHED_LOG_LEVEL".to_owned(), "debug".to_owned()),
            ("XSCHED_LOG_FILE".to_owned(), log.display().to_string()),
        ];
        all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Self { run: run.mode(Mode::Shimmed { env: all }), log }
    }

    /// Starts it and waits until it says so and the server knows its queues.
    fn start(self, daemon: &Daemon, word: &str) -> Started {
        let before = daemon.clients().len();
        let mut running = self.run.start();
        assert_eq!(running.line(), word);
        until("the server knows the program's queues", || {
            let clients = daemon.clients();
            let last = clients.get(before)?;
            (!last["queues"].as_array()?.is_empty()).then_some(())
        });
        Started { running, log: self.log }
    }
}

impl Started {
    /// Waits for its end, which has to be a good one; its output and its books.
    fn finish(self) -> (String, Books) {
        let finished = self.running.finish();
        finished.expect_success();
        let log = std::fs::read_to_string(&self.log).expect("it has a log");
        assert!(!log.contains("warn") && !log.contains("error:"), "{log}");
        let line = log.lines().find(|line| line.contains("suspensions=")).expect("a summary");
        let number = |name: &str| {
            let words = line.split_whitespace().filter_map(|word| word.split_once('='));
            let value = words.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {line}"))
        };
        let books = Books {
            suspensions: number("suspensions"),
            suspended: Duration::from_micros(number("suspended_us")),
            deferred: number("deferred"),
        };
        (finished.stdout, books)
    }
}

/// A client's queues in a list.
fn queues(client: &Value) -> &[Value] {
    client["queues"].as_array().expect("a client has queues")
}

/// Returns true if a queue of the client is in this state.
fn has(client: &Value, state: &str) -> bool {
    queues(client).iter().any(|queue| queue["state"] == state)
}

/// The devices of a client's queues.
fn devices(client: &Value) -> Vec<u64> {
    let mut devices: Vec<u64> =
        queues(client).iter().map(|queue| queue["device"].as_u64().expect("a number")).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// A long program and an urgent one at the same time.
fn two(gpus: u32, low: &[(&str, &str)], high: &[(&str, &str)]) -> [(Books, Vec<u64>); 2] {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let run = |env: &[(&str, &str)], arguments: &[&str]| {
        let run = env.iter().fold(gpu.shared("rounds"), |run, (name, value)| run.env(name, value));
        arguments.iter().fold(run, |run, argument| run.arg(*argument)).sim("--gpus", gpus)
    };
    let digest = |count: &str| {
        // Alone and without the library, on a GPU of its own.
        let alone = gpu.run("rounds").arg(count).arg("0").finish();
        alone.expect_success().stdout.lines().nth(1).expect("a digest").to_owned()
    };
    let mut low = Part::new(&daemon, "low", 0, run(low, &["60", "5"])).start(&daemon, "ready");
    let mut high = Part::new(&daemon, "high", 10, run(high, &["20", "5", "each"])).start(&daemon, "ready");
    low.running.let_go();
    let clients = until("the long program is at work", || {
        let clients = daemon.clients();
        has(&clients[0], "running").then_some(clients)
    });
    high.running.let_go();
    let (stdout, high_books) = high.finish();
    assert!(stdout.contains(&digest("20")), "{stdout}");
    let (stdout, low_books) = low.finish();
    assert!(stdout.contains(&digest("60")), "{stdout}");
    [(low_books, devices(&clients[0])), (high_books, devices(&clients[1]))]
}

#[test]
fn the_urgent_program_suspends_the_other_one() {
    let [(low, low_device), (high, high_device)] = two(1, &[], &[]);
    assert_eq!(low_device, high_device);
    assert!(low.suspensions > 0 && low.suspended > Duration::ZERO && low.deferred > 0, "{low:?}");
    assert_eq!((high.suspensions, high.suspended), (0, Duration::ZERO), "{high:?}");
}

#[test]
fn devices_are_the_same_or_not_whatever_their_numbers() {
    let hip = |list| [("HIP_VISIBLE_DEVICES", list)];
    // Each uses its own device 0: two different ones.
    let [(low, low_device), (high, high_device)] = two(2, &hip("1,0"), &hip("0,1"));
    assert_ne!(low_device, high_device);
    assert_eq!((low.suspensions, low.suspended), (0, Duration::ZERO), "{low:?}");
    assert_eq!((high.suspensions, high.suspended), (0, Duration::ZERO), "{high:?}");
    // The same one, by two names.
    let [(low, low_device), (_, high_device)] = two(2, &hip("1,0"), &[("ROCR_VISIBLE_DEVICES", "1")]);
    assert_eq!(low_device, high_device);
    assert!(low.suspensions > 0 && low.suspended > Duration::ZERO, "{low:?}");
}

/// Two programs whose threads wait for each other across queues, the queues' priorities interleaved.
fn across(daemon: &Daemon, gpu: &Gpu, priorities: [[&str; 2]; 2], env: &[(&str, &str)]) -> [Started; 2] {
    let mut parts = [0, 1].map(|index| {
        let run = priorities[index].iter().fold(gpu.shared("across"), |run, priority| run.arg(*priority));
        Part::with(daemon, &format!("{index}"), 0, run.arg("go"), env).start(daemon, "ready")
    });
    for part in &mut parts {
        part.running.let_go();
    }
    parts
}

#[test]
fn programs_whose_threads_wait_across_queues_finish() {
    let gpu = Gpu::take();
    let expected = gpu.run("across").finish();
    let digest = expected.expect_success().stdout.lines().next().expect("a digest").to_owned();
    // By the gang: an urgent queue of one and both of the other lie around a third. By inheritance: a queue that never
    // runs by itself is waited for.
    for priorities in [[["0", "10"], ["5", "5"]], [["-256", "10"], ["-256", "5"]]] {
        let daemon = Daemon::start(&[]);
        let parts = across(&daemon, &gpu, priorities, &[]);
        let books = parts.map(|part| {
            let (stdout, books) = part.finish();
            assert!(stdout.contains(&digest), "{stdout}");
            books
        });
        assert!(books.iter().any(|books| books.suspensions > 0), "{books:?}");
    }
}

/// Looks at the list until it has shown the same for so long.
fn stands_still(daemon: &Daemon, shown: impl Fn(&[Value]) -> Option<Vec<Value>>) {
    /// Many times what the guard takes.
    const LONG: Duration = Duration::from_secs(2);
    let mut since = Instant::now();
    let mut last = None;
    until("a hang", || {
        let now = shown(&daemon.clients());
        if now.is_none() || now != last {
            (last, since) = (now, Instant::now());
        }
        (since.elapsed() > LONG).then_some(())
    });
}

/// Returns the completed and pending counts of each queue.
fn counts(client: &Value) -> Value {
    let counts = |queue: &Value| {
        let counts = &queue["counts"];
        Value::from(vec![counts["pending"].clone(), counts["in_flight"].clone(), counts["direct"].clone()])
    };
    queues(client).iter().map(counts).collect()
}

#[test]
fn without_inheritance_they_hang() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let priorities = [["-256", "10"], ["-256", "5"]];
    let parts = across(&daemon, &gpu, priorities, &[("XSCHED_TEST", "no-inheritance")]);
    stands_still(&daemon, |clients| {
        let held = |client: &Value| {
            has(client, "suspended")
                && queues(client).iter().any(|queue| queue["counts"]["pending"].as_u64() > Some(0))
        };
        (clients.len() == 2 && clients.iter().all(held)).then(|| clients.iter().map(counts).collect())
    });
    for part in &parts {
        part.running.kill_program();
    }
}

/// A program with work in flight that waits on the host for a suspended rival.
fn host_wait(daemon: &Daemon, gpu: &Gpu) -> [Started; 2] {
    let rounds = gpu.shared("rounds").arg("20").arg("5").arg("each");
    let mut low = Part::new(daemon, "low", 0, rounds).start(daemon, "ready");
    let high = Part::new(daemon, "high", 10, gpu.shared("host_wait")).start(daemon, "waiting");
    low.running.let_go();
    [low, high]
}

#[test]
fn a_program_that_waits_on_the_host_for_a_suspended_one_finishes() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let [low, high] = host_wait(&daemon, &gpu);
    // The harness closes the other's input only now, after the end of this one.
    let (_, low) = low.finish();
    assert!(low.suspensions > 0, "{low:?}");
    let guard_runs = daemon.list()["server"]["guard_runs"].as_u64();
    assert!(guard_runs > Some(0), "{guard_runs:?}");
    let (_, high) = high.finish();
    assert_eq!(high.suspensions, 0, "{high:?}");
}

/// How many kernels of `graph_long` have ended.
fn kernels_done(low: &mut Started) -> u32 {
    low.running.answer();
    low.running.line().parse().expect("a number")
}

/// A launch of a graph is one command, and level 3 interrupts it all the same.
#[test]
fn a_graph_stands_still_in_the_middle() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let long = || gpu.shared("graph_long").arg("steps").sim("--save-us", 50).sim("--restore-us", 50);
    let level = [("XSCHED_AUTO_XQUEUE_LEVEL", "3")];
    let mut high = Part::new(&daemon, "high", 10, long()).start(&daemon, "ready");
    let mut low = Part::with(&daemon, "low", 0, long(), &level).start(&daemon, "ready");
    until("the graph runs", || (kernels_done(&mut low) > 0).then_some(()));
    let held = || {
        let client = daemon.clients().into_iter().find(|client| client["preemption"]["in_force"] == 3)?;
        let holds = client["preemption"]["holds"].as_u64().filter(|holds| *holds > 0)?;
        let suspensions: u64 =
            queues(&client).iter().map(|queue| queue["counts"]["suspensions"].as_u64().unwrap()).sum();
        (client["permit"]["run"] == false).then_some((holds, suspensions))
    };
    // While the other graph runs 20 kernels of a millisecond, no kernel of this one ends. One may end if the
    // runtime still writes the graph's packets and its queue was empty at the eviction: the next check evicts it.
    let done = until("an eviction in the middle of the graph", || {
        let others = kernels_done(&mut high);
        let before = held()?;
        let done = kernels_done(&mut low);
        until("the other graph's progress", || (kernels_done(&mut high) >= others + 20).then_some(()));
        let later = kernels_done(&mut low);
        // It may have been restored meanwhile, where the machine kept the other one from launching.
        (held() == Some(before) && later == done).then_some(done)
    });
    assert!(!done.is_multiple_of(500), "{done}");
    high.running.let_go();
    let (_, high) = high.finish();
    assert_eq!(high.suspensions, 0, "{high:?}");
    low.running.let_go();
    low.finish();
}

#[test]
fn without_the_guard_they_hang() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[("XSCHED_TEST", "no-guard")]);
    let parts = host_wait(&daemon, &gpu);
    stands_still(&daemon, |clients| {
        let [low, high] = clients else { return None };
        let hangs = has(low, "suspended") && has(high, "running");
        hangs.then(|| clients.iter().map(counts).collect())
    });
    assert_eq!(daemon.list()["server"]["guard_runs"].as_u64(), Some(0));
    for part in &parts {
        part.running.kill_program();
    }
}

#[test]
fn trace_has_launches_suspensions_and_their_reasons() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let part = |name: &str, priority: i32, arguments: &[&str]| {
        let run = arguments.iter().fold(gpu.shared("rounds"), |run, argument| run.arg(*argument));
        Part::new(&daemon, name, priority, run).start(&daemon, "ready")
    };
    let (mut low, mut high) = (part("low", 0, &["60", "5"]), part("high", 10, &["20", "5", "each"]));
    let pids: Vec<u64> = daemon.clients().iter().filter_map(|client| client["pid"].as_u64()).collect();
    let recorder = Recorder::start(daemon.xcli(), &daemon.folder().join("trace.pb"));
    recorder.until_it_reads(&pids);
    low.running.let_go();
    until("the long program is at work", || has(&daemon.clients()[0], "running").then_some(()));
    high.running.let_go();
    high.finish();
    low.finish();
    until("both have left", || daemon.clients().is_empty().then_some(()));
    let (bytes, said) = recorder.stop();
    assert!(said.contains(" 2 programs, ") && !said.contains(" 0 events"), "{said}");
    assert!(!said.contains("missing") && !said.contains("not in the trace"), "{said}");
    // The names stand in the file as they are.
    for text in [
        "rounds",
        "suspended: queue ",
        "has priority 10 > 0",
        "busy",
        "mix",
        "deferred: ",
        " on device ",
        "ready",
        "left ",
    ] {
        assert!(bytes.windows(text.len()).any(|part| part == text.as_bytes()), "no {text:?} in the trace");
    }
}
