use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tests::{Gpu, Mode, kernel, until};

fn product(name: &str) -> PathBuf {
    tests::product(name).unwrap_or_else(|reason| panic!("{reason}"))
}

/// A folder with a socket of its own.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("s.sock")
    }

    /// A product that finds this socket.
    fn command(&self, name: &str) -> Command {
        let mut command = kernel::command(product(name));
        self.environment(&mut command);
        command
    }

    fn environment(&self, command: &mut Command) {
        for name in ["LD_PRELOAD", "XSCHED_POLICY"] {
            command.env_remove(name);
        }
        command.env("XSCHED_SOCKET", self.socket()).stdin(Stdio::null());
    }

    /// Reads `xcli list --json`; none if no server answers.
    fn list(&self) -> Option<Value> {
        let answer = self.command("xcli").args(["list", "--json"]).output().expect("xcli");
        serde_json::from_slice(&answer.stdout).ok()
    }

    /// The same, once this is so.
    fn list_with(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(what, || self.list().filter(|list| is_so(list)))
    }
}

/// The output of a command that has ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn said(command: &mut Command) -> Said {
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// `xcli run` with a program that says `ran`: it does, and one line says that it is not scheduled, and why.
fn runs_unscheduled(mut xcli: impl FnMut() -> Command, why: &str) {
    let ran = said(xcli().args(["run", "--", "echo", "ran"]));
    let lines: Vec<&str> = ran.err.lines().filter(|line| !line.contains("--gpu-sim")).collect();
    assert!(ran.code == Some(0) && ran.out == "ran\n", "{ran:?}");
    assert!(lines.len() == 1 && lines[0].contains("The program runs unscheduled"), "{ran:?}");
    assert!(lines[0].contains(why), "{ran:?}");
    let refused = said(xcli().args(["run", "--strict", "--", "echo", "ran"]));
    assert!(refused.code == Some(125) && refused.out.is_empty() && refused.err.contains(why), "{refused:?}");
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has it see another file system at this path, with these options, and then does `then`.
fn mounted(
    command: &mut Command,
    path: &Path,
    flags: libc::c_ulong,
    options: &str,
    then: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    let options = CString::new(options).expect("words");
    let mount = move || {
        let none = std::ptr::null();
        // SAFETY: takes a number; the child alone.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: terminated words.
        checked(unsafe { libc::mount(none, c"/".as_ptr(), none, private, none.cast()) })?;
        let (kind, options) = (c"tmpfs".as_ptr(), options.as_ptr().cast());
        // SAFETY: as above; they live as long as the closure.
        checked(unsafe { libc::mount(kind, path.as_ptr(), kind, flags, options) })?;
        then()
    };
    // SAFETY: system calls alone, on words that were made before.
    unsafe { command.pre_exec(mount) };
}

/// A server, ended with the test.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("xserver"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pid(list: &Value) -> u64 {
    list["server"]["pid"].as_u64().expect("the server's number")
}

/// Returns true if a client of the list has queues.
fn is_scheduled(list: &Value) -> bool {
    let clients = list["clients"].as_array().into_iter().flatten();
    clients.into_iter().any(|client| client["queues"].as_array().is_some_and(|queues| !queues.is_empty()))
}

/// On a kernel as el8 has it xcli starts a server, which expects the program, schedules it, and ends after it.
#[test]
fn f3_linux_4_18_is_new_enough() {
    let (gpu, place) = (Gpu::take(), Place::new());
    let program = tests::program("rounds").unwrap_or_else(|reason| panic!("{reason}"));
    let mut run = gpu.run_executable(Path::new(env!("CARGO_BIN_EXE_old-kernel")));
    for word in
        [&product("xcli"), Path::new("run"), Path::new("--"), &program, Path::new("20"), Path::new("5")]
    {
        run = run.arg(word.display().to_string());
    }
    let mut running = run.env("XSCHED_SOCKET", &place.socket().display().to_string()).start();
    assert_eq!(running.line(), "ready");
    place.list_with("the program is scheduled", is_scheduled);
    running.let_go();
    running.finish().expect_success();
    // A question would be a use of it.
    until("the server has ended", || (!place.socket().exists()).then_some(()));
}

#[test]
fn b1_no_program_is_refused_because_there_can_be_no_server() {
    let place = Place::new();
    let elsewhere = |socket: &str| {
        let mut xcli = place.command("xcli");
        xcli.env("XSCHED_SOCKET", socket);
        xcli
    };
    runs_unscheduled(|| elsewhere("/proc/none/s.sock"), "/proc/none");
    let file = place.path("file");
    fs::write(&file, "").expect("a file");
    runs_unscheduled(|| elsewhere(&format!("{}/s.sock", file.display())), "file");
    let folder = place.path("folder");
    fs::create_dir(&folder).expect("a folder");
    let below = |flags, options: &'static str| {
        let mut xcli = elsewhere(&format!("{}/s.sock", folder.display()));
        mounted(&mut xcli, &folder, flags, options, || Ok(()));
        xcli
    };
    runs_unscheduled(|| below(libc::MS_RDONLY, ""), "Read-only file system");
    runs_unscheduled(|| below(0, "nr_inodes=1"), "No space left on device");
    // Whoever has set the variable need not be whoever starts the program.
    let long = || {
        let mut xcli = elsewhere(&format!("/{}", "x".repeat(120)));
        // Not the server of whoever runs the tests.
        mounted(&mut xcli, Path::new("/run"), libc::MS_RDONLY, "", || Ok(()));
        xcli
    };
    let ran = said(long().args(["run", "--", "echo", "ran"]));
    assert!(
        ran.code == Some(0) && ran.out == "ran\n" && ran.err.contains("xcli uses the default server"),
        "{ran:?}"
    );
    let refused = said(long().args(["run", "--strict", "--", "echo", "ran"]));
    assert!(refused.code == Some(125) && refused.err.contains("107 bytes"), "{refused:?}");
}

#[test]
fn b2_the_default_directory_is_checked_whoever_names_the_socket() {
    let place = Place::new();
    let shared = |name: &str| {
        let mut command = place.command(name);
        command.env("XSCHED_SOCKET", "/run/xsched/50000.sock");
        mounted(&mut command, Path::new("/run"), 0, "mode=755", || {
            // SAFETY: a terminated word.
            checked(unsafe { libc::mkdir(c"/run/xsched".as_ptr(), 0o755) })
        });
        command
    };
    let refused = said_soon(shared("xserver"));
    assert!(refused.code == Some(1) && refused.err.contains("/run/xsched has the mode 755"), "{refused:?}");
    runs_unscheduled(|| shared("xcli"), "/run/xsched has the mode 755");
}

#[test]
fn b3_a_server_is_found_again_or_ends() {
    let place = Place::new();
    let mut first = Server::start(&mut place.command("xserver"));
    let number = pid(&until("the server answers", || place.list()));
    fs::remove_file(place.socket()).expect("it was there");
    let list = until("it answers again", || place.list());
    assert_eq!(pid(&list), number, "it is the same one");

    // Both are gone, and another server has come meanwhile.
    let signal = |signal| {
        let first = libc::pid_t::try_from(number).expect("a process");
        // SAFETY: our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(first, signal) }, 0);
    };
    signal(libc::SIGSTOP);
    fs::remove_file(place.path("s.sock.lock")).expect("it was there");
    fs::remove_file(place.socket()).expect("it was there");
    let second = Server::start(&mut place.command("xserver"));
    until("the other one answers", || place.list());
    signal(libc::SIGCONT);
    let status = until("the first one ends", || first.0.try_wait().expect("it is ours"));
    let list = place.list().expect("the second one is found");
    assert!(status.success() && pid(&list) == u64::from(second.0.id()), "{status} {list}");
}

/// A server that may not make a file of the size that a client needs serves nobody, and lives on.
#[test]
fn b4_a_limit_of_file_sizes_ends_no_server() {
    let (gpu, place) = (Gpu::take(), Place::new());
    let mut command = kernel::command("sh");
    command.args(["-c", "ulimit -f 1; exec \"$0\""]).arg(product("xserver"));
    place.environment(&mut command);
    let mut server = Server::start(&mut command);
    until("the server answers", || place.list());
    let log = place.path("log");
    let env = scheduled_by(&place, &[("XSCHED_LOG_FILE", &log.display().to_string())]);
    let mut program = gpu.run("life_exit_at_once").mode(Mode::Shimmed { env }).start();
    program.line();
    until("the program has been there", || {
        fs::read_to_string(&log).is_ok_and(|said| said.contains("queues run unscheduled")).then_some(())
    });
    program.finish().expect_success();
    assert!(place.list().is_some() && server.0.try_wait().expect("it is ours").is_none());
}

/// Whatever the shell around `xcli run` has, its server has not.
#[test]
fn b6_a_started_server_is_nobodys() {
    let place = Place::new();
    let inherited = place.path("inherited");
    let script = "exec 9>\"$1\"; trap '' USR1; ulimit -S -f 2048; ulimit -S -n 128
                  exec taskset -c 0 nice -n 10 chrt --idle 0 \"$0\" run -- cat";
    let mut xcli = kernel::command("sh");
    xcli.args(["-c", script]).arg(product("xcli")).arg(&inherited);
    place.environment(&mut xcli);
    xcli.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let block = || {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: fills the set.
        unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
        // SAFETY: filled above.
        unsafe { libc::sigaddset(mask.as_mut_ptr(), libc::SIGUSR2) };
        // SAFETY: as above.
        checked(unsafe { libc::sigprocmask(libc::SIG_BLOCK, mask.as_ptr(), std::ptr::null_mut()) })
    };
    // SAFETY: system calls alone.
    unsafe { xcli.pre_exec(block) };
    let mut program = xcli.spawn().expect("xcli");
    let server = pid(&until("the server answers", || place.list()));
    let proc = |name: &str| fs::read_to_string(format!("/proc/{server}/{name}")).expect("it runs");
    let field = |status: String, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("a line").trim().to_owned()
    };
    let own = fs::read_to_string("/proc/self/status").expect("ours");
    let open = fs::read_dir(format!("/proc/{server}/fd")).expect("it runs").flatten();
    let open: Vec<_> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(open.len() > 5 && !open.contains(&inherited), "{open:?}");
    let number = libc::pid_t::try_from(server).expect("a process");
    // SAFETY: asks for a number.
    assert_eq!(unsafe { libc::getpriority(libc::PRIO_PROCESS, number.cast_unsigned()) }, 0);
    // SAFETY: asks for a number. It may have made its own thread prompt.
    assert_ne!(unsafe { libc::sched_getscheduler(number) } & !libc::SCHED_RESET_ON_FORK, libc::SCHED_IDLE);
    let processors = "Cpus_allowed_list";
    assert_eq!(field(proc("status"), processors), field(own, processors));
    let limits = proc("limits");
    for name in ["Max file size", "Max open files"] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
        let values: Vec<_> = line.split_whitespace().take(2).collect();
        assert_eq!(values[0], values[1], "{name} as far as it goes");
    }
    let set = |name: &str| u64::from_str_radix(&field(proc("status"), name), 16).expect("a set of signals");
    let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
    assert_eq!((set("SigIgn") & bit(libc::SIGUSR1), set("SigBlk") & bit(libc::SIGUSR2)), (0, 0));
    drop(program.stdin.take());
    assert!(program.wait().expect("it is ours").success());
}

/// `unshare` with these words, in front of a product.
fn unshared(place: &Place, words: &[&str], name: &str) -> Command {
    let mut command = kernel::command("/usr/bin/unshare");
    command.args(words).arg(product(name));
    place.environment(&mut command);
    command
}

#[test]
fn a6_a_server_outside_of_the_pid_namespace_is_asked() {
    let place = Place::new();
    let _server = Server::start(&mut place.command("xserver"));
    until("the server answers", || place.list());
    let xcli = || unshared(&place, &["--pid", "--fork"], "xcli");
    let list = said(xcli().arg("list"));
    assert!(list.code == Some(0) && list.out.contains("no program is connected"), "{list:?}");
    let ran = said(xcli().args(["run", "--strict", "--", "echo", "ran"]));
    assert!(ran.code == Some(0) && ran.out == "ran\n", "{ran:?}");
}

#[test]
fn b11_a_user_without_a_name_is_nobodys_equal() {
    let place = Place::new();
    let mut server = Server::start(&mut place.command("xserver"));
    until("the server answers", || place.list());
    // Here every user has the same number.
    let xcli = || unshared(&place, &["--user"], "xcli");
    let list = said(xcli().arg("list"));
    assert!(
        list.code == Some(1) && list.err.contains("belongs to a user that this user namespace does not map"),
        "{list:?}"
    );
    runs_unscheduled(xcli, "belongs to a user that this user namespace does not map");
    server.0.kill().expect("it is ours");
    server.0.wait().expect("it is ours");

    let _server = Server::start(&mut unshared(&place, &["--user"], "xserver"));
    let list = until("the server answers", || {
        let list = said(place.command("xcli").arg("list"));
        (!list.err.contains("no xserver runs")).then_some(list)
    });
    assert!(list.code == Some(1) && list.err.contains("does not map your user"), "{list:?}");
}

/// A program of another user's whose `/sys` and `/dev` are its own making.
fn with_a_sys_of_its_own(place: &Place) -> (Server, u32) {
    let secret = place.path("secret");
    fs::write(&secret, "4711").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("a mode");
    // Others may go through here, and no further.
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o711)).expect("a mode");
    let script = r#"
        set -e
        mount --make-rprivate /
        mount -t tmpfs none /sys
        kfd=/sys/class/kfd/kfd
        node=$kfd/topology/nodes
        mkdir -p $node/1 $node/2
        echo 77 > $node/1/gpu_id; mkfifo $node/1/properties
        ln -s "$1" $node/2/gpu_id
        queue() {
            at=$kfd/proc/$$/queues/$1
            mkdir -p $at; echo 0 > $at/type; echo 77 > $at/gpuid; $2
        }
        queue 0 'mkfifo '$kfd/proc/$$/queues/0/size
        queue 1 'ln -s /dev/zero '$kfd/proc/$$/queues/1/size
        queue 2 'mknod '$kfd/proc/$$/queues/2/size' c 1 5'
        queue 3 "ln -s $1 $kfd/proc/$$/queues/3/size"
        queue 4 "touch $kfd/proc/$$/queues/4/size"
        mount --bind "$1" $kfd/proc/$$/queues/4/size
        queue 5 'true'; echo 65536 > $at/size
        mount -t tmpfs none /dev
        mkfifo /dev/kfd
        echo ready
        exec setpriv --reuid 54321 --regid 54321 --clear-groups cat
    "#;
    let mut command = kernel::command("/usr/bin/unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&secret);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
    let mut line = String::new();
    let mut out = io::BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let pid = child.id();
    until("it is the other user's", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        status.contains("Uid:\t54321\t54321\t54321\t54321").then_some(())
    });
    (Server(child), pid)
}

/// Runs a command that must end soon, and returns its output.
fn said_soon(mut command: Command) -> Said {
    let mut child = Server(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let status = until("it says something", || child.0.try_wait().expect("it is ours"));
    let (mut out, mut err) = (String::new(), String::new());
    child.0.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    child.0.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
    Said { code: status.code(), out, err }
}

#[test]
fn b5_root_is_not_led_astray_by_a_sys_of_the_programs_own() {
    let place = Place::new();
    let (_program, pid) = with_a_sys_of_its_own(&place);
    let ask = |words: &[&str]| {
        let mut xcli = place.command("xcli");
        xcli.args(words);
        said_soon(xcli)
    };
    let pid = pid.to_string();
    let queues = ask(&["queues", &pid, "--json"]);
    let json: Value = serde_json::from_str(&queues.out).unwrap_or_else(|_| panic!("{queues:?}"));
    let ids: Vec<_> = json["queues"].as_array().expect("queues").iter().map(|queue| &queue["id"]).collect();
    assert_eq!(ids, [5], "{queues:?}");
    let doctor = ask(&["doctor", &pid]);
    assert!(doctor.out.contains("is not a KFD"), "{doctor:?}");
    assert!(!queues.out.contains("4711") && !doctor.out.contains("4711"), "{queues:?} {doctor:?}");
}

/// The variables of a program that the server of this place schedules, and these.
fn scheduled_by(place: &Place, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let socket = place.socket().display().to_string();
    let always =
        [("XSCHED_SOCKET", socket.as_str()), ("XSCHED_SCHEDULER", "GLB"), ("XSCHED_AUTO_XQUEUE", "ON")];
    let all = always.iter().chain(more);
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Characters in a program's name that turn the line around do nothing to whoever reads it.
#[test]
fn b12_a_name_shows_as_itself() {
    let (gpu, place) = (Gpu::take(), Place::new());
    let _server = Server::start(&mut place.command("xserver"));
    until("the server answers", || place.list());
    let program = tests::program("life_exit_at_once").unwrap_or_else(|reason| panic!("{reason}"));
    let named = place.path("tur\u{202e}ned");
    fs::copy(program, &named).expect("a copy");
    let env = scheduled_by(&place, &[]);
    let mut running = gpu.run_executable(&named).mode(Mode::Shimmed { env }).start();
    running.line();
    let list = place.list_with("the program is scheduled", is_scheduled);
    let pid = list["clients"][0]["pid"].to_string();
    for words in [vec!["list"], vec!["explain", "--pid", &pid], vec!["doctor", &pid]] {
        let told = said(place.command("xcli").args(&words));
        assert!(!told.out.contains('\u{202e}') && !told.err.contains('\u{202e}'), "{words:?} {told:?}");
        assert!(told.out.contains(&pid) || told.out.contains("ned"), "{words:?} {told:?}");
    }
    running.finish().expect_success();
}

/// A program that an interpreter runs has its own name, and what a worker did that leaves by `_exit` is known to the server.
#[test]
fn f9_f15_a_worker_is_named_and_its_work_known() {
    let (gpu, place) = (Gpu::take(), Place::new());
    let log = place.path("log");
    let mut server = place.command("xserver");
    server.env("XSCHED_LOG_LEVEL", "info").stderr(fs::File::create(&log).expect("a file"));
    let _server = Server(server.spawn().expect("xserver"));
    until("the server answers", || place.list());
    // Named like an interpreter, whose words it does not look at.
    let program = tests::program("life_exit_at_once").unwrap_or_else(|reason| panic!("{reason}"));
    let python = place.path("python3");
    fs::copy(program, &python).expect("a copy");
    let env = scheduled_by(&place, &[]);
    let run = ["-u", "-X", "dev", "/srv/train.py", "--epochs"].into_iter();
    let run = run.fold(gpu.run_executable(&python), |run, word| run.arg(word));
    let mut running = run.mode(Mode::Shimmed { env }).start();
    running.line();
    let list = place.list_with("the program is scheduled", is_scheduled);
    assert_eq!(list["clients"][0]["name"], "train.py", "{list}");
    let pid = list["clients"][0]["pid"].to_string();
    for words in [vec!["list"], vec!["explain", "--pid", &pid], vec!["metrics"]] {
        let told = said(place.command("xcli").args(&words));
        assert!(told.out.contains("train.py") && !told.out.contains("python3"), "{words:?} {told:?}");
    }
    running.finish().expect_success();
    let line = until("the server says that it has gone", || {
        let said = fs::read_to_string(&log).expect("a log");
        said.lines().find(|line| line.contains("client disconnected")).map(str::to_owned)
    });
    let number = |name: &str| -> u64 {
        let words = line.split_whitespace().filter_map(|word| word.split_once('='));
        let value = words.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {line}"))
    };
    assert!(line.contains("train.py") && number("direct") + number("deferred") >= 5, "{line}");
}
