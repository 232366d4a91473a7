//! Tests of the library's messages: their text, their target, and how often they are logged.

mod support;

use support::{Programs, run};

/// Every variable with an unusable value, and the further text of its warning.
const BAD: [(&str, &str, &str); 22] = [
    ("XSCHED_DISABLE", "yes", "ON, OFF"),
    ("XSCHED_SCHEDULER", "GLOBAL", "APP, LCL, GLB"),
    ("XSCHED_POLICY", "FIFO", "a policy of this build: HPF"),
    ("XSCHED_AUTO_XQUEUE", "true", "ON, OFF"),
    ("XSCHED_AUTO_XQUEUE_LEVEL", "4", "1..3"),
    ("XSCHED_AUTO_XQUEUE_THRESHOLD", "0", ">= 1"),
    ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "17", "1..16"),
    ("XSCHED_AUTO_XQUEUE_PRIORITY", "256", "-256..255"),
    ("XSCHED_AUTO_XQUEUE_UTILIZATION", "101", "0..100"),
    ("XSCHED_AUTO_XQUEUE_TIMESLICE", "99", "100..100000"),
    ("XSCHED_AUTO_XQUEUE_DEADLINE", "0", ">= 1"),
    ("XSCHED_AUTO_XQUEUE_KDEADLINE", "k", ">= 1"),
    ("XSCHED_AUTO_XQUEUE_LAXITY", "-1", ">= 0"),
    ("XSCHED_AUTO_XQUEUE_PREEMPTIBLE", "x", "ON, OFF"),
    ("XSCHED_AUTO_XQUEUE_JOB", "x", ">= 0"),
    ("XSCHED_AUTO_XQUEUE_CAP", "0", "1..100"),
    ("XSCHED_AUTO_XQUEUE_CLASS", "fast", "LATENCY-CRITICAL, BEST-EFFORT"),
    ("XSCHED_STARVATION_MS", "1s", ">= 0"),
    ("XSCHED_SCHEDULER_SUSPEND_SYNC_HWQ", "x", "ON, OFF"),
    ("XSCHED_SCHEDULER_SUSPEND_WAIT_ALL", "x", "ON, OFF"),
    ("XSCHED_SCHEDULER_SUSPEND_WAIT_IDLE", "x", "ON, OFF"),
    ("XSCHED_TEST", "on", "defer, chaos:SEED"),
];

#[test]
fn unusable_values_are_logged_once_and_ignored() {
    let programs = Programs::new();
    let program = programs.linked("fork");
    let linked = programs.linked("linked");
    let native = run(programs.command(&program).arg(&linked));
    // Logged once by the parent and its forked children, and once by the executed program.
    let said = run(programs.preloaded(&linked).envs(BAD.map(|(name, value, _)| (name, value))));
    assert_eq!(said.output, run(&mut programs.command(&linked)).output);
    assert_eq!(said.errors.lines().count(), BAD.len(), "{}", said.errors);
    for (name, value, range) in BAD {
        let lines: Vec<_> =
            said.errors.lines().filter(|line| line.contains(&format!("{name}={value} "))).collect();
        let [line] = lines.as_slice() else { panic!("{name}: one line, not {lines:?}") };
        assert!(line.starts_with("xsched: warn: ") && line.contains(range), "{line}");
    }
    let said = run(programs.preloaded(&program).arg("true").env("XSCHED_SCHEDULER", "nobody"));
    assert_eq!(said.errors.matches("XSCHED_SCHEDULER=nobody").count(), 2, "{}", said.errors);
    assert_eq!(said.status, native.status);
}

#[test]
fn log_follows_level_and_file() {
    let programs = Programs::new();
    let program = programs.linked("linked");
    let log = programs.path().join("log");
    let with = |name: &str, value: &str| {
        let mut command = programs.preloaded(&program);
        command.env("XSCHED_SCHEDULER", "nobody").env(name, value);
        run(&mut command)
    };
    assert_eq!(with("XSCHED_LOG_LEVEL", "error").errors, "");
    assert_eq!(with("XSCHED_LOG_LEVEL", "loud").errors.lines().count(), 2);
    for lines in 1..=2 {
        let said = with("XSCHED_LOG_FILE", &log.display().to_string());
        assert_eq!(said.errors, "");
        let written = std::fs::read_to_string(&log).expect("the log file is there");
        assert_eq!(written.matches("XSCHED_SCHEDULER=nobody").count(), lines, "appended: {written}");
    }
    let said = with("XSCHED_LOG_FILE", "/no/such/directory/log");
    assert!(said.errors.contains("XSCHED_LOG_FILE=/no/such/directory/log is not usable"), "{}", said.errors);
    assert!(said.errors.contains("XSCHED_SCHEDULER=nobody"), "{}", said.errors);
}

#[test]
fn closed_standard_error_does_not_end_the_program() {
    let programs = Programs::new();
    let program = programs.linked("pipe");
    let said = run(programs.preloaded(&program).env("XSCHED_SCHEDULER", "nobody"));
    assert_eq!((said.output.as_str(), said.status), ("launch 0\n", Some(0)), "{said:?}");
}

#[test]
fn missing_runtime_fails_calls_and_is_logged_once() {
    let programs = Programs::new();
    let program = programs.compile("no_runtime", &[]);
    // A file that is no library ends the search before a runtime of this machine is found.
    for name in ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"] {
        std::fs::write(programs.path().join(name), "not a library").expect("the file can be written");
    }
    assert_eq!(run(&mut programs.command(&program)).output, "no hipLaunchKernel\n");
    let said = run(&mut programs.preloaded(&program));
    assert_eq!(said.output, "launch 3 errno 5\nlaunch 3\nregister 0\n", "{said:?}");
    assert_eq!(said.status, Some(0));
    assert_eq!(
        said.errors,
        "xsched: error: hipLaunchKernel: no HIP runtime (libamdhip64.so*) is loaded or found\n"
    );
}

#[test]
fn library_as_its_own_runtime_is_refused() {
    let programs = Programs::new();
    let program = programs.linked("linked");
    let said = run(programs.preloaded(&program).env("XSCHED_HIP_LIB", support::library()));
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.output.contains("launch 3\n"), "hipErrorNotInitialized: {}", said.output);
    assert_eq!(said.errors.lines().count(), 1, "{}", said.errors);
    assert!(
        said.errors.contains("is this library itself") && said.errors.contains("XSCHED_HIP_LIB"),
        "{}",
        said.errors
    );

    // If it has the runtime's name and is found first, it still leads to the real one.
    let imposter = programs.path().join("imposter");
    std::fs::create_dir(&imposter).expect("a directory");
    std::os::unix::fs::symlink(support::library(), imposter.join("libamdhip64.so.5")).expect("a link");
    let mut command = programs.command(&program);
    command.env("LD_PRELOAD", imposter.join("libamdhip64.so.5"));
    assert_eq!(run(&mut command), run(&mut programs.command(&program)));
}

#[test]
fn named_runtime_is_used_unless_unusable() {
    let programs = Programs::new();
    let program = programs.linked("linked");
    let native = run(&mut programs.command(&program));
    let named = programs.path().join("libamdhip64.so.5");
    assert_eq!(run(programs.preloaded(&program).env("XSCHED_HIP_LIB", &named)), native);
    let said = run(programs.preloaded(&program).env("XSCHED_HIP_LIB", "/no/such/runtime.so"));
    assert_eq!(said.output, native.output);
    assert_eq!(said.errors.lines().count(), 1, "{}", said.errors);
    assert!(said.errors.contains("XSCHED_HIP_LIB=/no/such/runtime.so is not usable"), "{}", said.errors);
}
