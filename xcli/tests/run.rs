//! `xcli run` with shell commands as programs: what they find in their environment, how they end, and the server that
//! is started for them. No GPU is needed.

mod common;

use common::{Place, await_some, empty_list, finish, text};
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

/// An installation of its own: xcli, and beside it a library that can be preloaded and does nothing.
struct Installed {
    place: Place,
    xcli: PathBuf,
    library: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.path("bin")).unwrap();
        let xcli = place.path("bin/xcli");
        // Not written by us, whose descriptors other threads' children share for a moment: it could not be run then.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_xcli")).arg(&xcli).status().unwrap();
        assert!(copied.success());
        let library = place.path("bin/libshimhip.so");
        fs::copy(some_library(), &library).unwrap();
        Self { place, xcli, library }
    }

    /// With a server there already.
    fn with_server() -> Self {
        let installed = Self::new();
        installed.place.serve(|_| Reply::List(empty_list()));
        installed
    }

    fn run(&self, options: &[&str]) -> Command {
        let mut command = self.place.command(&self.xcli);
        command.arg("run").args(options);
        command
    }

    /// The server that xcli finds beside itself: a shell script.
    fn server(&self, script: &str) {
        let path = self.place.path("bin/xserver");
        let write = format!("printf %s \"$1\" > '{0}' && chmod 755 '{0}'", path.display());
        let script = format!("#!/bin/sh\ncd '{}'\n{script}\n", self.place.path("").display());
        assert!(Command::new("sh").args(["-c", &write, "sh", &script]).status().unwrap().success());
    }
}

/// A library that every process here has loaded anyway.
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
fn a_program_finds_what_it_needs() {
    let installed = Installed::with_server();
    let (library, socket) = (installed.library.display().to_string(), installed.place.socket());
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
    // Options of the program's are the program's, with and without "--".
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

/// The words of `xcli hint`, and -1 for what stands in the environment.
#[test]
fn a_program_is_told_what_a_policy_goes_by() {
    let installed = Installed::with_server();
    let line = "-u 30 -t 700 --deadline 900 --kdeadline 2 --laxity 5000,-10,10 --preemptible off --job 3 --cap 40 env";
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
    ]);
    assert_eq!(found, said);
    let get = |name: &str| said.get(name).map(Into::into);
    assert_eq!(Config::read(get, &[]).1, [], "the library takes them");

    let options: Vec<_> =
        "--deadline -1 --kdeadline -1 --laxity -1 --job 0 --cap -1 env".split(' ').collect();
    let (_, out, _) = finish(installed.run(&options).envs(&said));
    let left = ["UTILIZATION", "TIMESLICE", "PREEMPTIBLE"].map(|name| format!("XSCHED_AUTO_XQUEUE_{name}"));
    let found = scheduled(&out);
    let found: Vec<_> = found.keys().filter(|name| name.starts_with("XSCHED_AUTO_XQUEUE_")).collect();
    assert_eq!(found, [&left[2], &left[1], &left[0]]);
}

/// A program may take long until it meets HIP: its server waits for that.
#[test]
fn a_server_expects_the_program() {
    let installed = Installed::new();
    let requests = installed.place.serve(|_| Reply::Done);
    assert_eq!(finish(&mut installed.run(&["true"])).0, Some(0));
    assert_eq!(*requests.lock().unwrap(), [Request::Expect]);
}

#[test]
fn a_policy_needs_no_server() {
    let installed = Installed::new();
    let (code, out, _) = finish(installed.run(&["--policy", "hpf", "env"]).env("XSCHED_SCHEDULER", "GLB"));
    assert_eq!(code, Some(0));
    let found = scheduled(&out);
    assert_eq!((found["XSCHED_POLICY"].as_str(), found["XSCHED_SCHEDULER"].as_str()), ("HPF", "LCL"));
    assert!(!installed.place.socket().exists());
    // Without the option xserver decides, whatever stands in the environment.
    installed.place.serve(|_| Reply::List(empty_list()));
    let (code, out, err) = finish(installed.run(&["env"]).env("XSCHED_POLICY", "HPF"));
    assert_eq!(code, Some(0));
    assert_eq!(scheduled(&out).get("XSCHED_POLICY"), None);
    assert!(err.contains("XSCHED_POLICY=HPF is not used"), "{err}");
}

#[test]
fn what_is_preloaded_already_stays() {
    let installed = Installed::with_server();
    let other = installed.place.path("other.so");
    fs::copy(some_library(), &other).unwrap();
    let (_, out, _) = finish(installed.run(&["env"]).env("LD_PRELOAD", &other));
    let want = format!("{}:{}", installed.library.display(), other.display());
    assert_eq!(variables(&out)["LD_PRELOAD"], want);
}

#[test]
fn the_end_is_the_programs_own() {
    let installed = Installed::with_server();
    let run = |words: &[&str]| finish(&mut installed.run(words));
    assert_eq!(run(&["--", "sh", "-c", "exit 42"]).0, Some(42));
    let status = installed.run(&["sh", "-c", "kill -USR1 $$"]).output().unwrap().status;
    assert_eq!(status.signal(), Some(10), "the program takes the place of xcli");
    let (code, _, err) = run(&["no-such-program"]);
    assert_eq!(code, Some(127));
    assert!(err.ends_with("xcli: cannot run no-such-program: no such program\n"), "{err}");
    let text = installed.place.path("text");
    fs::write(&text, "no program").unwrap();
    let (code, _, err) = run(&[text.to_str().unwrap()]);
    assert_eq!(code, Some(126));
    assert!(err.contains("Permission denied"), "{err}");
}

#[test]
fn wrong_values_say_the_range() {
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
fn the_library_is_found_or_missed() {
    let installed = Installed::with_server();
    let lib = installed.place.path("lib");
    fs::create_dir(&lib).unwrap();
    fs::rename(&installed.library, lib.join("libshimhip.so")).unwrap();
    let (_, out, _) = finish(&mut installed.run(&["env"]));
    assert_eq!(variables(&out)["LD_PRELOAD"], lib.join("libshimhip.so").display().to_string());

    let named = installed.place.path("named.so");
    fs::rename(lib.join("libshimhip.so"), &named).unwrap();
    let (code, _, err) = finish(&mut installed.run(&["env"]));
    assert_eq!(code, Some(125));
    assert!(err.contains("libshimhip.so is missing: it belongs into "), "{err}");
    let (_, out, _) = finish(installed.run(&["--library"]).arg(&named).arg("env"));
    assert_eq!(variables(&out)["LD_PRELOAD"], named.display().to_string());

    let spaced = installed.place.path("a b.so");
    fs::rename(&named, &spaced).unwrap();
    let (code, _, err) = finish(installed.run(&["--library"]).arg(&spaced).arg("env"));
    assert_eq!(code, Some(125));
    assert!(err.contains("holds a colon or a space"), "{err}");
}

#[test]
fn without_a_gpu_there_is_one_line() {
    let installed = Installed::with_server();
    let (code, _, err) = finish(&mut installed.run(&["true"]));
    assert_eq!(code, Some(0));
    match Path::new("/dev/kfd").exists() {
        true => assert_eq!(err, ""),
        false => assert!(err.contains("--gpu-sim") && err.lines().count() == 1, "{err}"),
    }
}

/// Started with what concerns it, in a session of its own, a child of nobody here; and its socket is waited for.
#[test]
fn a_server_is_started() {
    let installed = Installed::new();
    installed.server(
        "echo \"$@\" > args; env > env; cat /proc/$$/stat > stat.new; mv stat.new stat; exec cat <pipe",
    );
    let made = Command::new("mkfifo").arg(installed.place.path("pipe")).status().unwrap();
    assert!(made.success());
    let mut command = installed.run(&["--", "sh", "-c", "cat /proc/$$/stat; echo $PPID"]);
    command.env("XSCHED_LOG_FILE", "/dev/null").env("XSCHED_AUTO_XQUEUE_PRIORITY", "9").env("LD_PRELOAD", "");
    let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stat = await_some("a server", || fs::read_to_string(installed.place.path("stat")).ok());
    // Until now nobody has answered. From now on somebody does.
    installed.place.serve(|_| Reply::List(empty_list()));
    let pid = program.id();
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let field = |stat: &str, n: usize| -> u32 { stat.split(' ').nth(n).unwrap().parse().unwrap() };
    let said = text(&output.stdout);
    assert_eq!(field(&said, 0), pid, "the program takes the place of xcli");
    let (server, session) = (field(&stat, 0), field(&stat, 5));
    assert_eq!(server, session, "a session of its own");
    let now = fs::read_to_string(format!("/proc/{server}/stat")).expect("it outlives the program");
    assert_ne!(field(&now, 3), pid, "the program has no child that it does not know of");
    assert_eq!(fs::read_to_string(installed.place.path("args")).unwrap(), "--exit-when-unused\n");
    let found = scheduled(&fs::read_to_string(installed.place.path("env")).unwrap());
    assert_eq!(found, map([("XSCHED_SOCKET", &installed.place.socket().display().to_string())]));
    // Lets the script go.
    drop(fs::OpenOptions::new().write(true).open(installed.place.path("pipe")).unwrap());
}

/// The program runs all the same, unless that is not wanted; one line says why it is not scheduled, and what to do.
#[test]
fn a_server_that_cannot_be_started() {
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
    try_it("xserver is missing: it belongs beside ");

    installed.server("echo 'no memory for that' >&2; exit 3");
    try_it("ended with exit status: 3: no memory for that");
    assert_eq!(text(&fs::read(installed.place.path("s.log")).unwrap()), "no memory for that\n".repeat(2));
    let mode = fs::metadata(installed.place.path("s.log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // What it says goes nowhere else.
    let elsewhere = installed.place.path("elsewhere");
    fs::remove_file(installed.place.path("s.log")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, installed.place.path("s.log")).unwrap();
    try_it("cannot write ");
    assert!(!elsewhere.exists());
    // Nobody reads the line, which is no reason either.
    let mut command = installed.run(&["echo", "ran"]);
    command.stderr(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "ran\n"));
    let (code, _, err) = finish(&mut installed.run(&["--strict", "--policy", "HPF", "true"]));
    assert!(code == Some(125) && err.contains("cannot be used with"), "{err}");
}

/// B1 of the field: whether it has heard the question or closes before.
#[test]
fn a_server_that_takes_nobody_more() {
    let refusal = || ToClient::Refused { reason: "it takes no more".to_owned() }.encode();
    for hears in [true, false] {
        let installed = Installed::new();
        match hears {
            true => installed.place.serve_raw(move |stream, _| stream.write_all(&refusal()).unwrap()),
            false => {
                let listener = std::os::unix::net::UnixListener::bind(installed.place.socket()).unwrap();
                std::thread::spawn(move || {
                    for stream in listener.incoming() {
                        stream.unwrap().write_all(&refusal()).unwrap();
                    }
                });
            }
        }
        let (code, out, err) = finish(&mut installed.run(&["echo", "ran"]));
        assert_eq!((code, out.as_str()), (Some(0), "ran\n"), "{err}");
        assert!(err.contains("says: it takes no more. The program runs unscheduled"), "{err}");
        let (code, out, err) = finish(&mut installed.run(&["--strict", "echo", "ran"]));
        assert_eq!((code, out.as_str()), (Some(125), ""));
        assert!(err.contains("says: it takes no more"), "{err}");
    }
}

/// Two xcli at once: the server of one has lost and ends, the other's answers a moment later.
#[test]
fn a_server_that_loses_against_another() {
    let installed = Installed::new();
    installed.server("echo 'another server runs' >&2; touch lost; exit 1");
    let mut command = installed.run(&["--", "echo", "scheduled"]);
    let program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_some("the losing server", || installed.place.path("lost").exists().then_some(()));
    installed.place.serve(|_| Reply::List(empty_list()));
    let output = program.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "scheduled\n"));
}

/// A stopped server keeps no program from running.
#[test]
fn a_server_that_does_not_answer() {
    let installed = Installed::new();
    let _listener = std::os::unix::net::UnixListener::bind(installed.place.socket()).unwrap();
    let (code, out, err) = finish(&mut installed.run(&["echo", "ran"]));
    assert_eq!((code, out.as_str()), (Some(0), "ran\n"));
    assert!(err.contains("does not answer within 2 s: is it stopped? The program runs unscheduled"), "{err}");
}

/// On the simulated GPU the variables are in the program, and not in gpu-sim.
#[test]
fn gpu_sim_is_around_the_program_and_not_the_server() {
    let installed = Installed::with_server();
    let gpu_sim = installed.place.path("bin/gpu-sim");
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
    // An assignment is no program, and a program may look like one.
    assert_eq!(run(&["--gpu-sim", "A=1"]).0, Some(127));
    // Inside a simulated GPU there is one already.
    let (_, out, _) = finish(installed.run(&["--gpu-sim", "env"]).env("GPU_SIM_SOCKET", "/run/x.sock"));
    assert!(!out.contains("--name"), "{out}");
    assert_eq!(scheduled(&out)["XSCHED_SCHEDULER"], "GLB");
}
