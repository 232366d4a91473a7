//! `xcli run` with shell commands as programs: their environment, their exit codes, and the server that is
//! started. No GPU is needed.

mod common;

use common::{TestDir, await_some, empty_list, finish, text};
use protocol::config::Config;
use protocol::control::{Reply, Request};
use protocol::message::ToClient;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A separate installation of xcli with a library that can be preloaded and does nothing.
struct Installed {
    dir: TestDir,
    xcli: PathBuf,
    library: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let dir = TestDir::new();
        fs::create_dir(dir.path("bin")).unwrap();
        let xcli = dir.path("bin/xcli");
        // Copied by another process: children of other threads inherit our descriptors, and a file open for
        // writing cannot be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_xcli")).arg(&xcli).status().unwrap();
        assert!(copied.success());
        let library = dir.path("bin/libshimhip.so");
        fs::copy(some_library(), &library).unwrap();
        Self { dir, xcli, library }
    }

    /// An installation with a running server.
    fn with_server() -> Self {
        let installed = Self::new();
        installed.dir.serve(|_| Reply::List(empty_list()));
        installed
    }

    fn run(&self, options: &[&str]) -> Command {
        let mut command = self.dir.command(&self.xcli);
        command.arg("run").args(options);
        command
    }

    /// Installs a shell script as the server.
    fn server(&self, script: &str) {
        let path = self.dir.path("bin/xserver");
        let write = format!("printf %s \"$1\" > '{0}' && chmod 755 '{0}'", path.display());
        let script = format!("#!/bin/sh\ncd '{}'\n{script}\n", self.dir.path("").display());
        assert!(Command::new("sh").args(["-c", &write, "sh", &script]).status().unwrap().success());
    }
}

/// A library that every process has loaded.
fn some_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.contains("libgcc_s.so").then(|| PathBuf::from(path))
    });
    path.expect("a Rust program has libgcc_s loaded")
}

fn variables(out: &str) -> BTreeMap<String, String> {
    out.lines().filter_map(|line| line.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

fn scheduled(out: &str) -> BTreeMap<String, String> {
    let mut all = variables(out);
    all.retain(|name, _| name == "LD_PRELOAD" || name.starts_with("XSCHED_"));
    all
}

fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn program_has_the_environment_for_scheduling() {
    let installed = Installed::with_server();
    let (library, socket) = (installed.library.display().to_string(), installed.dir.socket());
    let socket = socket.display().to_string();
    let (code, out, _) = finish(installed.run(&["--", "env"]).env("XSCHED_AUTO_XQUEUE_PRIORITY", "3"));
    assert_eq!(code, Some(0));
    let want = map([
        ("LD_PRELOAD", &library),
        ("XSCHED_AUTO_XQUEUE", "ON"),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "3"),
        ("XSCHED_SCHEDULER", "GLB"),
        ("XSCHED_SOCKET", &socket),
    ]);
    assert_eq!(scheduled(&out), want);

    let options = [
        "--priority",
        "-7",
        "--level",
        "2",
        "--threshold",
        "12",
        "--batch",
        "4",
        "env",
        "--ignore-environment",
        "env",
    ];
    // Options after the program belong to the program, with and without "--".
    let (code, out, _) = finish(&mut installed.run(&options));
    assert_eq!((code, out.as_str()), (Some(0), ""));
    let (_, out, _) = finish(installed.run(&options[..9]).env("XSCHED_AUTO_XQUEUE_PRIORITY", "3"));
    let mut want = want;
    want.extend(map([
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "-7"),
        ("XSCHED_AUTO_XQUEUE_LEVEL", "2"),
        ("XSCHED_AUTO_XQUEUE_THRESHOLD", "12"),
        ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "4"),
    ]));
    assert_eq!(scheduled(&out), want);
}

/// The options of `xcli hint`; -1 removes a variable.
#[test]
fn hints_become_variables() {
    let installed = Installed::with_server();
    let line = "-u 30 -t 700 --deadline 900 --kdeadline 2 --laxity 5000,-10,10 --preemptible off --job 3 --cap 40 --class best-effort env";
    let options: Vec<_> = line.split(' ').collect();
    let (code, out, _) = finish(&mut installed.run(&options));
    assert_eq!(code, Some(0));
    let mut found = scheduled(&out);
    found.retain(|name, _| name.starts_with("XSCHED_AUTO_XQUEUE_"));
    let said = map([
        ("XSCHED_AUTO_XQUEUE_UTILIZATION", "30"),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", "700"),
        ("XSCHED_AUTO_XQUEUE_DEADLINE", "900"),
        ("XSCHED_AUTO_XQUEUE_KDEADLINE", "2"),
        ("XSCHED_AUTO_XQUEUE_LAXITY", "5000,-10,10"),
        ("XSCHED_AUTO_XQUEUE_PREEMPTIBLE", "OFF"),
        ("XSCHED_AUTO_XQUEUE_JOB", "3"),
        ("XSCHED_AUTO_XQUEUE_CAP", "40"),
        ("XSCHED_AUTO_XQUEUE_CLASS", "best-effort"),
    ]);
    assert_eq!(found, said);
    let get = |name: &str| said.get(name).map(Into::into);
    assert_eq!(Config::read(get, &[]).1, [], "the library accepts them");

    let options: Vec<_> =
        "--deadline -1 --kdeadline -1 --laxity -1 --job 0 --cap -1 --class none env".split(' ').collect();
    let (_, out, _) = finish(installed.run(&options).envs(&said));
    let left = ["UTILIZATION", "TIMESLICE", "PREEMPTIBLE"].map(|name| format!("XSCHED_AUTO_XQUEUE_{name}"));
    let found = scheduled(&out);
    let found: Vec<_> = found.keys().filter(|name| name.starts_with("XSCHED_AUTO_XQUEUE_")).collect();
    assert_eq!(found, [&left[2], &left[1], &left[0]]);
}

/// The server must stay until the program uses HIP.
#[test]
fn server_is_asked_to_expect_the_program() {
    let installed = Installed::new();
    let requests = installed.dir.serve(|_| Reply::Done);
    assert_eq!(finish(&mut installed.run(&["true"])).0, Some(0));
    assert_eq!(*requests.lock().unwrap(), [Request::Expect]);
}

#[test]
fn policy_inside_the_program_needs_no_server() {
    let installed = Installed::new();
    let (code, out, _) = finish(installed.run(&["--policy", "hpf", "env"]).env("XSCHED_SCHEDULER", "GLB"));
    assert_eq!(code, Some(0));
    let found = scheduled(&out);
    assert_eq!((found["XSCHED_POLICY"].as_str(), found["XSCHED_SCHEDULER"].as_str()), ("HPF", "LCL"));
    assert!(!installed.dir.socket().exists());
    // Without the option xserver decides, whatever the environment says.
    installed.dir.serve(|_| Reply::List(empty_list()));
    let (code, out, err) = finish(installed.run(&["env"]).env("XSCHED_POLICY", "HPF"));
    assert_eq!(code, Some(0));
    assert_eq!(scheduled(&out).get("XSCHED_POLICY"), None);
    assert!(err.contains("XSCHED_POLICY=HPF has no effect"), "{err}");
}

#[test]
fn existing_preloads_are_kept() {
    let installed = Installed::with_server();
    let other = installed.dir.path("other.so");
    fs::copy(some_library(), &other).unwrap();
    let (_, out, _) = finish(installed.run(&["env"]).env("LD_PRELOAD", &other));
    let want = format!("{}:{}", installed.library.display(), other.display());
    assert_eq!(variables(&out)["LD_PRELOAD"], want);
}

#[test]
fn exit_code_and_signal_are_those_of_the_program() {
    let installed = Installed::with_server();
    let run = |words: &[&str]| finish(&mut installed.run(words));
    assert_eq!(run(&["--", "sh", "-c", "exit 42"]).0, Some(42));
    let status = installed.run(&["sh", "-c", "kill -USR1 $$"]).output().unwrap().status;
    assert_eq!(status.signal(), Some(10), "the program replaces xcli");
    let (code, _, err) = run(&["no-such-program"]);
    assert_eq!(code, Some(127));
    assert!(err.ends_with("xcli: cannot run no-such-program: no such program\n"), "{err}");
    let text = installed.dir.path("text");
    fs::write(&text, "no program").unwrap();
    let (code, _, err) = run(&[text.to_str().unwrap()]);
    assert_eq!(code, Some(126));
    assert!(err.contains("Permission denied"), "{err}");
}

#[test]
fn wrong_values_name_the_range() {
    let installed = Installed::with_server();
    let cases: [(&[&str], &str); 8] = [
        (&["--priority", "256", "true"], "priority 256 is not in -256..255"),
        (&["--level", "0", "true"], "from 1 to 3"),
        (&["--policy", "FIFO", "true"], "it contains HPF"),
        (&["--threshold", "0", "true"], "1.."),
        (&["--batch", "9", "--threshold", "8", "true"], "--batch 9: expected 1..8, the threshold"),
        (&["--timeslice", "100001", "true"], "--timeslice 100001: expected 100..100000"),
        (&["--laxity", "5000", "true"], "microseconds and two priorities"),
        (&["--priority", "1"], "CMD"),
    ];
    for (options, sentence) in cases {
        let (code, out, err) = finish(&mut installed.run(options));
        assert_eq!((code, out.as_str()), (Some(125), ""), "{options:?}");
        assert!(err.contains(sentence), "{err}");
    }
}

#[test]
fn library_is_found_or_reported_missing() {
    let installed = Installed::with_server();
    let lib = installed.dir.path("lib");
    fs::create_dir(&lib).unwrap();
    fs::rename(&installed.library, lib.join("libshimhip.so")).unwrap();
    let (_, out, _) = finish(&mut installed.run(&["env"]));
    assert_eq!(variables(&out)["LD_PRELOAD"], lib.join("libshimhip.so").display().to_string());

    let named = installed.dir.path("named.so");
    fs::rename(lib.join("libshimhip.so"), &named).unwrap();
    let (code, _, err) = finish(&mut installed.run(&["env"]));
    assert_eq!(code, Some(125));
    assert!(err.contains("libshimhip.so is missing: install it in "), "{err}");
    let (_, out, _) = finish(installed.run(&["--library"]).arg(&named).arg("env"));
    assert_eq!(variables(&out)["LD_PRELOAD"], named.display().to_string());

    let spaced = installed.dir.path("a b.so");
    fs::rename(&named, &spaced).unwrap();
    let (code, _, err) = finish(installed.run(&["--library"]).arg(&spaced).arg("env"));
    assert_eq!(code, Some(125));
    assert!(err.contains("contains a colon or a space"), "{err}");
}

#[test]
fn missing_gpu_is_one_warning() {
    let installed = Installed::with_server();
    let (code, _, err) = finish(&mut installed.run(&["true"]));
    assert_eq!(code, Some(0));
    match Path::new("/dev/kfd").exists() {
        true => assert_eq!(err, ""),
        false => assert!(err.contains("--gpu-sim") && err.lines().count() == 1, "{err}"),
    }
}

/// The server gets only its own settings and its own session, is no child of the program, and is waited for.
#[test]
fn server_is_started_if_none_runs() {
    let installed = Installed::new();
    installed.server(
        "echo \"$@\" > args; env > env; cat /proc/$$/stat > stat.new; mv stat.new stat; exec cat <pipe",
    );
    let made = Command::new("mkfifo").arg(installed.dir.path("pipe")).status().unwrap();
    assert!(made.success());
    let mut command = installed.run(&["--", "sh", "-c", "cat /proc/$$/stat; echo $PPID"]);
    command.env("XSCHED_LOG_FILE", "/dev/null").env("XSCHED_AUTO_XQUEUE_PRIORITY", "9").env("LD_PRELOAD", "");
    let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stat = await_some("a server", || fs::read_to_string(installed.dir.path("stat")).ok());
    // No server has answered until now.
    installed.dir.serve(|_| Reply::List(empty_list()));
    let pid = program.id();
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let field = |stat: &str, n: usize| -> u32 { stat.split(' ').nth(n).unwrap().parse().unwrap() };
    let said = text(&output.stdout);
    assert_eq!(field(&said, 0), pid, "the program replaces xcli");
    let (server, session) = (field(&stat, 0), field(&stat, 5));
    assert_eq!(server, session, "its own session");
    let now = fs::read_to_string(format!("/proc/{server}/stat")).expect("it outlives the program");
    assert_ne!(field(&now, 3), pid, "the program has no unexpected child");
    assert_eq!(fs::read_to_string(installed.dir.path("args")).unwrap(), "--exit-when-unused\n");
    let found = scheduled(&fs::read_to_string(installed.dir.path("env")).unwrap());
    assert_eq!(found, map([("XSCHED_SOCKET", &installed.dir.socket().display().to_string())]));
    // Lets the script end.
    drop(fs::OpenOptions::new().write(true).open(installed.dir.path("pipe")).unwrap());
}

/// The program runs unscheduled with one warning, unless --strict is given.
#[test]
fn program_runs_if_no_server_can_be_started() {
    let installed = Installed::new();
    let try_it = |why: &str| {
        let (code, out, err) = finish(&mut installed.run(&["echo", "ran"]));
        assert_eq!((code, out.as_str()), (Some(0), "ran\n"), "{err}");
        let said: Vec<_> = err.lines().filter(|line| !line.contains("--gpu-sim")).collect();
        assert!(said.len() == 1 && said[0].contains(why) && said[0].contains("runs unscheduled"), "{err}");
        let (code, out, err) = finish(&mut installed.run(&["--strict", "echo", "ran"]));
        assert_eq!((code, out.as_str()), (Some(125), ""));
        assert!(err.contains(why) && !err.contains("runs unscheduled"), "{err}");
    };
    try_it("xserver is missing: install it in the folder of ");

    installed.server("echo 'no memory for that' >&2; exit 3");
    try_it("ended with exit status: 3: no memory for that");
    assert_eq!(text(&fs::read(installed.dir.path("s.log")).unwrap()), "no memory for that\n".repeat(2));
    let mode = fs::metadata(installed.dir.path("s.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // A link is not followed.
    let elsewhere = installed.dir.path("elsewhere");
    fs::remove_file(installed.dir.path("s.log")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, installed.dir.path("s.log")).unwrap();
    try_it("cannot write ");
    assert!(!elsewhere.exists());
    // Standard error cannot be written.
    let mut command = installed.run(&["echo", "ran"]);
    command.stderr(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "ran\n"));
    let (code, _, err) = finish(&mut installed.run(&["--strict", "--policy", "HPF", "true"]));
    assert!(code == Some(125) && err.contains("cannot be used with"), "{err}");
}

/// B1 of the field: the server refuses before or after it has read the request.
#[test]
fn a_server_that_takes_nobody_more() {
    let refusal = || ToClient::Refused { reason: "it takes no more".to_owned() }.encode();
    for hears in [true, false] {
        let installed = Installed::new();
        match hears {
            true => installed.dir.serve_raw(move |stream, _| stream.write_all(&refusal()).unwrap()),
            false => {
                let listener = std::os::unix::net::UnixListener::bind(installed.dir.socket()).unwrap();
                std::thread::spawn(move || {
                    for stream in listener.incoming() {
                        stream.unwrap().write_all(&refusal()).unwrap();
                    }
                });
            }
        }
        let (code, out, err) = finish(&mut installed.run(&["echo", "ran"]));
        assert_eq!((code, out.as_str()), (Some(0), "ran\n"), "{err}");
        assert!(err.contains("refused: it takes no more. The program runs unscheduled"), "{err}");
        let (code, out, err) = finish(&mut installed.run(&["--strict", "echo", "ran"]));
        assert_eq!((code, out.as_str()), (Some(125), ""));
        assert!(err.contains("refused: it takes no more"), "{err}");
    }
}

/// Two xcli at once: the server of one loses the lock and ends, and the other server answers a moment later.
#[test]
fn xcli_waits_for_the_server_that_won_the_lock() {
    let installed = Installed::new();
    installed.server("echo 'another server runs' >&2; touch lost; exit 1");
    let mut command = installed.run(&["--", "echo", "scheduled"]);
    let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_some("the losing server", || installed.dir.path("lost").exists().then_some(()));
    installed.dir.serve(|_| Reply::List(empty_list()));
    let output = program.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "scheduled\n"));
}

#[test]
fn program_runs_if_the_server_does_not_answer() {
    let installed = Installed::new();
    let _listener = std::os::unix::net::UnixListener::bind(installed.dir.socket()).unwrap();
    let (code, out, err) = finish(&mut installed.run(&["echo", "ran"]));
    assert_eq!((code, out.as_str()), (Some(0), "ran\n"));
    assert!(err.contains("did not answer within 2 s: is it stopped? The program runs unscheduled"), "{err}");
}

/// The variables are set for the program, and not for gpu-sim.
#[test]
fn gpu_sim_wraps_the_program() {
    let installed = Installed::with_server();
    let gpu_sim = installed.dir.path("bin/gpu-sim");
    let script = "#!/bin/sh\necho \"$LD_PRELOAD|$1 $2 $3 $4\"\nshift 4\nexec \"$@\"\n";
    let write = format!("printf %s \"$1\" > '{0}' && chmod 755 '{0}'", gpu_sim.display());
    assert!(Command::new("sh").args(["-c", &write, "sh", script]).status().unwrap().success());
    let run = |words: &[&str]| finish(&mut installed.run(words));
    let (code, out, err) = run(&["--gpu-sim", "--priority", "5", "--", "env"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let uid = rustix::process::geteuid();
    assert_eq!(out.lines().next(), Some(format!("|run --name user-{uid} --").as_str()));
    let found = scheduled(&out);
    assert_eq!(found["XSCHED_AUTO_XQUEUE_PRIORITY"], "5");
    assert_eq!(found["LD_PRELOAD"], installed.library.display().to_string());
    assert_eq!(run(&["--gpu-sim", "no-such-program"]).0, Some(127));
    // A program whose name looks like an assignment.
    assert_eq!(run(&["--gpu-sim", "A=1"]).0, Some(127));
    // On a simulated GPU, no second one is started.
    let (_, out, _) = finish(installed.run(&["--gpu-sim", "env"]).env("GPU_SIM_SOCKET", "/run/x.sock"));
    assert!(!out.contains("--name"), "{out}");
    assert_eq!(scheduled(&out)["XSCHED_SCHEDULER"], "GLB");
}
