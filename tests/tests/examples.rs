//! The examples print what their texts say, on the simulated GPU, and something else if their effect is taken away.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tests::{
    Daemon, Finished, Gpu, HANG, PlainClient, Run, code_object, example_program, linked_program, product,
    until, workspace,
};

/// How often an effect that depends on the load of the machine is looked for.
const ATTEMPTS: usize = 5;

/// The search path with xcli and xserver in front.
fn path() -> String {
    let programs = product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    let programs = programs.parent().expect("a folder").display().to_string();
    format!("{programs}:{}", std::env::var("PATH").unwrap_or_default())
}

/// Adds what a script needs to find xcli and xserver by their names, and arguments.
fn with_programs(run: Run, arguments: &[&str]) -> Run {
    arguments.iter().fold(run.env("PATH", &path()), |run, argument| run.arg(*argument))
}

/// Runs an example's program, or the script beside it that starts the program. The run must end with this exit code.
fn run_to(code: i32, program: &Path, script: Option<&Path>, arguments: &[&str]) -> Finished {
    let gpu = Gpu::take();
    let run = match script {
        None => gpu.run_executable(program),
        Some(script) => gpu.run_executable(script).arg(program.display().to_string()),
    };
    let finished = with_programs(run, arguments).finish();
    assert_eq!((finished.code, finished.stderr.as_str()), (code, ""), "{finished:?}");
    finished
}

fn run(program: &Path, script: Option<&Path>, arguments: &[&str]) -> Finished {
    run_to(0, program, script, arguments)
}

fn text(folder: &str) -> String {
    let path = workspace().join("examples").join(folder).join("README.md");
    std::fs::read_to_string(path).expect("the example's text")
}

/// Requires that the text of the example shows these lines, one after the other.
fn expect_shown(folder: &str, lines: &str) {
    let block: Vec<String> = lines.lines().map(|line| format!("    {line}")).collect();
    assert!(!block.is_empty() && text(folder).contains(&block.join("\n")), "{folder} does not show\n{lines}");
}

fn linked(folder: &str, name: &str) -> PathBuf {
    linked_program(&format!("examples/{folder}"), name).unwrap_or_else(|reason| panic!("{reason}"))
}

/// Runs an example as its text says, and with the arguments that take its effect away. Returns both outputs.
fn with_and_without(folder: &str, program: &Path, has_script: bool, without: &[&str]) -> [String; 2] {
    let script = workspace().join("examples").join(folder).join("run.sh");
    let script = has_script.then_some(script.as_path());
    let shown = run(program, script, &[]).stdout;
    expect_shown(folder, &shown);
    let other = run(program, script, without).stdout;
    assert_ne!(shown, other, "{folder}: the output does not depend on the effect");
    [shown, other]
}

#[test]
fn urgent_program_is_done_first_unless_priorities_are_equal() {
    let plain =
        example_program("examples/1_transparent", "tasks").unwrap_or_else(|reason| panic!("{reason}"));
    let hints = linked("2_hints", "hints");
    for (folder, program) in [("1_transparent", &plain), ("2_hints", &hints)] {
        let [_, equal] = with_and_without(folder, program, true, &["5", "5"]);
        expect_shown("1_transparent", &equal);
    }
}

#[test]
fn urgent_thread_is_done_first_unless_priorities_are_equal() {
    let [_, equal] = with_and_without("3_in_process", &linked("3_in_process", "threads"), false, &["5", "5"]);
    expect_shown("3_in_process", &equal);
}

#[test]
fn suspended_stream_stands_still_and_one_that_is_not_suspended_fails_the_example() {
    let (folder, name) = ("4_manual_sched", "manual");
    let program = linked(folder, name);
    expect_shown(folder, &run(&program, None, &[]).stdout);
    expect_shown(folder, &run_to(1, &program, None, &["--not-suspended"]).stdout);
}

/// Runs an example that measures preemption by the driver, in C++ or Python. The times depend on the machine, so the exit
/// code can be 1. The last line does not depend on them, and is returned.
fn measured(run: Run) -> String {
    let finished = run.sim("--save-us", 50).sim("--restore-us", 50).finish();
    assert!(matches!(finished.code, 0 | 1) && finished.stderr.is_empty(), "{finished:?}");
    let said: Vec<&str> = finished.stdout.lines().collect();
    let names: Vec<&str> = said.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["suspend", "resume", "online", "offline"], "{finished:?}");
    if said[3].ends_with("missed") {
        assert_eq!(finished.code, 1, "{finished:?}");
    }
    said[3].to_owned()
}

#[test]
fn evicted_program_does_nothing_and_one_that_is_not_evicted_fails_the_example() {
    let folder = "11_gpreempt_poc";
    let program = tests::gpreempt_example().unwrap_or_else(|reason| panic!("{reason}"));
    let library = tests::gpreempt_library().unwrap_or_else(|reason| panic!("{reason}"));
    let kernels =
        code_object("examples/kernels", "giveway_kernels").unwrap_or_else(|reason| panic!("{reason}"));
    let script = workspace().join("examples").join(folder).join("gpreempt_poc.py");
    let preload = product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}"));
    let gpu = Gpu::take();
    let cpp = || gpu.run_executable(&program);
    // Python has loaded libc already, so the library has to come before it.
    let python = || {
        let run = gpu.run_executable(Path::new("python3")).env("LD_PRELOAD", &preload.display().to_string());
        [&script, &library, &kernels].iter().fold(run, |run, path| run.arg(path.display().to_string()))
    };
    for run in [&cpp as &dyn Fn() -> Run, &python] {
        let with = "offline    no kernel done while suspended in 20 of 20 rounds: met";
        assert_eq!(measured(run().arg("20")), with);
        let without = "offline    no kernel done while suspended in 0 of 20 rounds: missed";
        assert_eq!(measured(run().arg("20").arg("--not-suspended")), without);
        expect_shown(folder, with);
        expect_shown(folder, without);
    }
}

#[test]
fn program_of_the_active_window_is_done_first_unless_nothing_watches() {
    let folder = "7_active_window";
    let program =
        example_program(&format!("examples/{folder}"), "rounds").unwrap_or_else(|reason| panic!("{reason}"));
    let [_, unwatched] = with_and_without(folder, &program, true, &["--unwatched"]);
    expect_shown(folder, &unwatched);
}

/// A process whose lines can be waited for. Killed when dropped.
struct Talker {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The test can have ended.
            let _ = sender.send(line);
        }
    });
    receiver
}

impl Talker {
    fn start(command: &mut Command) -> Talker {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let lines = lines_of(child.stdout.take().expect("a pipe"));
        let errors = lines_of(child.stderr.take().expect("a pipe"));
        Talker { child, lines, errors }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(HANG).unwrap_or_else(|end| {
            panic!("no further line ({end}): {:?}", self.errors.try_iter().collect::<Vec<_>>())
        })
    }

    fn error(&self) -> String {
        self.errors.recv_timeout(HANG).expect("a line of standard error")
    }

    /// Sends a line, and waits for an answer.
    fn ask(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("it reads");
        assert_eq!(self.line(), "done");
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the programs have these priorities.
fn await_priorities(server: &Daemon, expected: &[(&str, i64)]) {
    let expected: BTreeMap<String, i64> =
        expected.iter().map(|(name, priority)| ((*name).to_owned(), *priority)).collect();
    until(&format!("priorities {expected:?}"), || {
        let clients = server.clients();
        let known = clients.iter().filter_map(|client| {
            Some((client["name"].as_str()?.to_owned(), client["queues"][0]["priority"].as_i64()?))
        });
        (known.collect::<BTreeMap<_, _>>() == expected).then_some(())
    });
}

#[test]
fn watch_of_the_active_window_survives_what_can_be_missing() {
    let screen = Talker::start(Command::new("Xvfb").args(["-displayfd", "1", "-screen", "0", "640x480x24"]));
    let display = format!(":{}", screen.line());
    let mut server = Daemon::start(&[]);
    let script = |name: &str| {
        let mut command = Command::new("python3");
        command.arg("-B").arg(workspace().join("examples/7_active_window").join(name));
        command.env("DISPLAY", &display).env("PATH", path()).env("XSCHED_SOCKET", server.socket());
        command
    };
    let mut desktop = Talker::start(&mut script("desktop.py"));
    let [first, second] =
        [("first", 1), ("second", 2)].map(|(name, priority)| PlainClient::start(&server, name, priority));
    await_priorities(&server, &[("first", 1), ("second", 2)]);
    let mut watch = Talker::start(&mut script("active_window.py"));
    assert_eq!(watch.line(), "active window: none");
    for (name, pid) in [("first", first.id()), ("second", second.id()), ("all", std::process::id())] {
        desktop.ask(&format!("window {name} {pid}"));
    }
    desktop.ask(&format!("window notes {}", screen.child.id()));
    desktop.ask(&format!("window far {} elsewhere", first.id()));
    desktop.ask("window clock");

    // What was raised is taken back, whatever is active then.
    let raised = [
        ("first", "its program goes first", [("first", 100), ("second", 2)]),
        ("second", "its program goes first", [("first", 1), ("second", 100)]),
        ("notes", "it is no program of the server", [("first", 1), ("second", 2)]),
        ("all", "its 2 programs go first", [("first", 100), ("second", 100)]),
        ("clock", "it names no process", [("first", 1), ("second", 2)]),
        ("first", "its program goes first", [("first", 100), ("second", 2)]),
        ("far", "its program runs on another machine", [("first", 1), ("second", 2)]),
    ];
    for (name, said, priorities) in raised {
        desktop.ask(&format!("active {name}"));
        assert_eq!(watch.line(), format!("active window: {name}: {said}"));
        await_priorities(&server, &priorities);
    }
    desktop.ask("none");
    assert_eq!(watch.line(), "active window: none");
    desktop.ask("destroy far");
    desktop.ask("active far");
    let gone = watch.line();
    assert!(gone.starts_with("active window: 0x") && gone.ends_with(": it names no process"), "{gone}");

    // The server ends, and its clients with it. A program comes to another one in its place.
    desktop.ask("active first");
    assert_eq!(watch.line(), "active window: first: its program goes first");
    server.end();
    assert!(watch.error().ends_with("xserver does not answer. Trying again every 1 s."));
    desktop.ask("active all");
    while watch.line() != "active window: all" {}
    drop((first, second));
    server.restart();
    assert!(watch.error().ends_with("xserver answers again."));
    assert_eq!(watch.line(), "active window: all: it is no program of the server");
    let third = PlainClient::start(&server, "third", 3);
    assert_eq!(watch.line(), "active window: all: its program goes first");
    await_priorities(&server, &[("third", 100)]);

    // The X server ends.
    kill_process(Pid::from_child(&screen.child), Signal::TERM).expect("it runs");
    assert!(watch.error().contains("the X server has ended"));
    assert_eq!(watch.child.wait().expect("it ends").code(), Some(1));
    await_priorities(&server, &[("third", 3)]);
    drop(third);
}

/// A very busy machine makes requests later than the device is kept clear.
#[test]
fn announced_requests_find_the_device_clear() {
    let folder = "6_arrival_hints";
    let program = linked(folder, "arrival");
    let script = workspace().join("examples").join(folder).join("run.sh");
    for (word, expected) in [("announced", "most"), ("unannounced", "few")] {
        let expected = format!("{word} requests: {expected} found the device clear\n");
        expect_shown(folder, &expected);
        let said = || run(&program, Some(&script), &[word]).stdout;
        let said: Vec<_> = (0..ATTEMPTS).map(|_| said()).take_while(|said| *said != expected).collect();
        assert!(said.len() < ATTEMPTS, "{said:?}");
    }
}

#[test]
fn urgent_commands_and_graphs_complete_first_unless_priorities_are_equal() {
    for (folder, name) in [("8_own_commands", "own_commands"), ("10_graph_capture", "graph_capture")] {
        let [_, equal] = with_and_without(folder, &linked(folder, name), false, &["--equal"]);
        let shown = text(folder);
        for line in equal.lines() {
            assert!(shown.lines().any(|other| other.trim() == line), "{folder} does not show {line}");
        }
    }
}

/// Runs the script of an example in Python with the client by ctypes, whose work is small and the same in each run.
fn python(folder: &str, arguments: &[&str]) -> String {
    let kernels =
        code_object("examples/kernels", "giveway_kernels").unwrap_or_else(|reason| panic!("{reason}"));
    let gpu = Gpu::take();
    let run = gpu.run_executable(&workspace().join("examples").join(folder).join("run.sh"));
    let run = run.env("PYTHONPATH", &workspace().join("python/src").display().to_string());
    let run = run.limit(Duration::from_secs(300));
    let run = with_programs(run, &["--client", "hip", "--kernels", &kernels.display().to_string()]);
    let finished = arguments.iter().fold(run, |run, argument| run.arg(*argument)).finish();
    assert_eq!(finished.code, 0, "{finished:?}");
    finished.stdout
}

/// Returns the lines that are the same in each run.
fn stable(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with(' ')).collect()
}

/// A very busy machine can hide how many requests overtake others.
#[test]
fn urgent_requests_of_a_python_server_overtake_batch_requests() {
    let expected = [
        "client: HIP by ctypes",
        "without priorities: urgent requests overtook few of the earlier batch requests",
        "with priorities: urgent requests overtook most of the earlier batch requests",
        "results: correct",
    ];
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("serving.svg");
    let run = || python("5_inference_serving", &["--requests", "6", "--plot", plot.to_str().unwrap()]);
    let has_all = |said: &String| expected.iter().all(|line| stable(said).contains(line));
    let said: Vec<_> = (0..ATTEMPTS).map(|_| run()).take_while(|said| !has_all(said)).collect();
    assert!(said.len() < ATTEMPTS, "{said:?}");
    let plot = std::fs::read_to_string(plot).unwrap();
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"), "{plot}");
    for curve in ["without priorities", "with priorities"] {
        assert!(plot.contains(curve), "{curve}: {plot}");
    }
}

#[test]
fn urgent_python_worker_is_done_first_unless_priorities_are_equal() {
    for start in ["fork", "spawn"] {
        let order = |equal: &[&str]| -> Vec<String> {
            let output = python("9_workers", &[&["--start", start], equal].concat());
            let done =
                output.lines().filter(|line| line.ends_with("a worker is done, its results are correct"));
            done.filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
        };
        assert_eq!(order(&[]), ["urgent", "batch", "batch", "batch"], "{start}");
        assert_eq!(order(&["--equal"]), ["batch", "batch", "batch", "urgent"], "{start}");
    }
}

#[test]
fn batch_model_is_suspended_beside_the_urgent_one_under_hpf_only() {
    let said = python("12_two_models", &["--seconds", "2"]);
    for line in [
        "client: HIP by ctypes",
        "without scheduling: the batch model was never suspended",
        "with HPF: the batch model was suspended",
        "results: correct",
    ] {
        assert!(stable(&said).contains(&line), "{line}: {said}");
    }
}

/// A very busy machine can hide how many requests overtake others.
#[test]
fn urgent_requests_of_test_3_overtake_batch_inferences_under_hpf_only() {
    let expected = [
        "client: HIP by ctypes",
        "test 3, without scheduling: the batch model was never suspended",
        "test 3, with HPF: the batch model was suspended",
        "test 3, without scheduling: urgent requests overtook few of the batch inferences under way",
        "test 3, with HPF: urgent requests overtook most of the batch inferences under way",
        "results: correct",
    ];
    let run = || python("13_tests_3_and_4", &["--test", "3", "--seconds", "3"]);
    let has_all = |said: &String| expected.iter().all(|line| stable(said).contains(line));
    let said: Vec<_> = (0..ATTEMPTS).map(|_| run()).take_while(|said| !has_all(said)).collect();
    assert!(said.len() < ATTEMPTS, "{said:?}");
    expect_shown("13_tests_3_and_4", &expected[1..5].join("\n"));
}

#[test]
fn batch_model_of_test_4_is_suspended_under_hpf_only() {
    let said = python("13_tests_3_and_4", &["--test", "4", "--seconds", "2"]);
    for line in [
        "test 4, without scheduling: the batch model was never suspended",
        "test 4, with HPF: the batch model was suspended",
        "results: correct",
    ] {
        assert!(stable(&said).contains(&line), "{line}: {said}");
    }
    // Each target, with its verdict.
    let judged =
        |line: &&str| line.contains(", target ") && (line.ends_with(": met") || line.ends_with(": missed"));
    assert_eq!(said.lines().filter(judged).count(), 3, "{said}");
}
