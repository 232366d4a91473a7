//! Tests with programs that run natively and with the library preloaded: they print the same, and the library
//! counts their calls.

mod support;

use std::path::Path;
use support::{Programs, counted, library, run};

/// Returns the output of a program, which must be the same without and with the library. Neither run prints
/// errors.
fn same(programs: &Programs, name: &str, arguments: &[&str]) -> String {
    let program = programs.linked(name);
    let native = run(programs.command(&program).args(arguments));
    let preloaded = run(programs.preloaded(&program).args(arguments));
    assert_eq!(native.status, Some(0), "{native:?}");
    assert_eq!(native.errors, "");
    assert_eq!(preloaded, native, "{name}");
    native.output
}

#[test]
fn linked_calls_are_unchanged_and_counted_once() {
    let programs = Programs::new();
    let output = same(&programs, "linked", &[]);
    assert!(output.contains("module launches 1\n") && output.contains("kept errno 0 5\n"), "{output}");

    let said = run(programs.preloaded(programs.path().join("linked")).env("XSCHED_LOG_LEVEL", "debug"));
    assert_eq!(said.output, output);
    // Three launches and one by pointer, for which the runtime makes a launch of its own that is not counted.
    assert_eq!(counted(&said.errors, "launch"), [4], "{}", said.errors);
    assert_eq!(counted(&said.errors, "copy"), [2], "{}", said.errors);
    assert_eq!(
        counted(&said.errors, "resolve"),
        [1],
        "the registration from the constructor: {}",
        said.errors
    );
    assert!(
        said.errors.contains("HIP runtime: ") && said.errors.contains("/libamdhip64.so.5\n"),
        "{}",
        said.errors
    );
}

#[test]
fn look_ups_find_the_same_names_as_natively() {
    let programs = Programs::new();
    let program = programs.compile("lookups", &[]);
    let native = run(programs.command(&program).arg("libamdhip64.so.5"));
    let preloaded = run(programs.preloaded(&program).arg("libamdhip64.so.5"));
    assert_eq!((preloaded.status, preloaded.errors.as_str()), (Some(0), ""));
    let exported = ["hipLaunchKernel", "_Z24hipExtModuleLaunchKernel", "hip_4.2"];
    let expected: Vec<_> = native
        .output
        .lines()
        .map(|line| match exported.iter().any(|name| line.starts_with(name)) {
            true => line.replace(" runtime", " shim"),
            false => line.to_owned(),
        })
        .collect();
    assert_eq!(preloaded.output.lines().collect::<Vec<_>>(), expected, "native:\n{}", native.output);
    assert_eq!(preloaded.output.matches(" shim").count(), 6, "{}", preloaded.output);
    assert_eq!(native.output.matches("error names it").count(), 6, "{}", native.output);
}

#[test]
fn hip_look_ups_return_hooks() {
    let programs = Programs::new();
    let program = programs.compile("proc_address", &[]);
    let native = run(programs.command(&program).arg("libamdhip64.so.7"));
    let preloaded =
        run(programs.preloaded(&program).arg("libamdhip64.so.7").env("XSCHED_LOG_LEVEL", "debug"));
    assert_eq!(native.status, Some(0), "{native:?}");
    let expected: String = native
        .output
        .lines()
        .map(|line| match line.contains("Launch") {
            true => line.replace(" runtime", " shim") + "\n",
            false => line.to_owned() + "\n",
        })
        .collect();
    assert_eq!(preloaded.output, expected);
    assert_eq!(preloaded.output.matches(" shim").count(), 4, "{expected}");
    assert_eq!(counted(&preloaded.errors, "launch"), [1], "{}", preloaded.errors);
}

#[test]
fn interposers_before_and_after_find_the_next_function() {
    let programs = Programs::new();
    let program = programs.linked("next");
    let interposer = programs.compile("interposer", &["-shared", "-fPIC"]);
    let preload = |libraries: &[&Path]| {
        let libraries: Vec<_> = libraries.iter().map(|path| path.display().to_string()).collect();
        let mut command = programs.command(&program);
        run(command.env("LD_PRELOAD", libraries.join(":")).env("XSCHED_LOG_LEVEL", "debug"))
    };
    let native = preload(&[&interposer]);
    let steps = ["interposer's launch, next in runtime", "interposer's test, next in runtime"];
    assert_eq!(native.output, format!("{}\n{}\ndone 0 0\n", steps[0], steps[1]), "{native:?}");

    let before = preload(&[&interposer, library()]);
    assert_eq!(before.output, native.output.replace("runtime", "shim"));
    assert_eq!(counted(&before.errors, "launch"), [2], "{}", before.errors);

    // After this library, an interposer gets launches as well (docs/adr/0011), and RTLD_NEXT finds the
    // function after it.
    let behind = preload(&[library(), &interposer]);
    assert_eq!(behind.output, native.output);
    assert_eq!(counted(&behind.errors, "launch"), [1], "{}", behind.errors);
}

#[test]
fn look_ups_depend_on_caller_and_scope() {
    let programs = Programs::new();
    let host = programs.compile("host", &[]);
    let plugin =
        programs.compile("plugin", &["-shared", "-fPIC", "-Wl,--no-as-needed", "-l:libamdhip64.so.5"]);
    let tool = programs.path().join("librocprofiler64.so");
    std::fs::copy(&plugin, &tool).expect("the library can be copied");
    let lines = |found: [&str; 3]| {
        let ways = ["found_by_default", "found_by_handle", "found_next"];
        ways.iter().zip(found).map(|(way, found)| format!("{way} {found}\n")).collect::<String>()
    };
    for library in [&plugin, &tool] {
        let native = run(programs.command(&host).arg(library));
        assert_eq!(native.output, lines(["runtime"; 3]), "{native:?}");
    }
    // The plugin is loaded with RTLD_LOCAL, so the runtime is found in its own scope only.
    let said = run(programs.preloaded(&host).arg(&plugin));
    assert_eq!(said.output, lines(["shim", "shim", "runtime"]), "{said:?}");
    // AMD's own tools get the real functions.
    let said = run(programs.preloaded(&host).arg(&tool));
    assert_eq!(said.output, lines(["runtime"; 3]), "{said:?}");
}

#[test]
fn calls_before_constructor_and_after_exit_are_forwarded() {
    let programs = Programs::new();
    let early = programs.compile("early", &["-shared", "-fPIC", "-l:libamdhip64.so.5"]);
    let early = early.display().to_string();
    let program = programs.compile("ends", &[&early]);
    let native = run(&mut programs.command(&program));
    assert_eq!(native.output.matches(" 0\n").count(), 3, "{native:?}");
    assert_eq!(run(&mut programs.preloaded(&program)), native);
    let said = run(programs.preloaded(&program).env("XSCHED_LOG_LEVEL", "debug"));
    assert_eq!(said.output, native.output);
    // The library's exit handler, which logs the line, runs before the handler that was registered before the
    // first launch.
    assert_eq!(counted(&said.errors, "launch"), [1], "{}", said.errors);
    let said = run(programs.preloaded(&program).env("XSCHED_SCHEDULER", "nobody"));
    assert_eq!(said.errors.lines().count(), 1, "{}", said.errors);
}

#[test]
fn forked_children_count_only_their_own_calls() {
    let programs = Programs::new();
    let linked = programs.linked("linked");
    let program = programs.linked("fork");
    let arguments = [&linked];
    let native = run(programs.command(&program).args(arguments));
    let preloaded = run(programs.preloaded(&program).args(arguments));
    assert_eq!(preloaded, native);
    assert_eq!(native.output.matches(": 7\n").count(), 3, "{native:?}");

    let said = run(programs.preloaded(&program).args(arguments).env("XSCHED_LOG_LEVEL", "debug"));
    assert_eq!(said.output, native.output);
    // The child forked before HIP, the child that launches, the executed program, and the parent. The child
    // that only frees does not start the library. None counts calls of another.
    assert_eq!(counted(&said.errors, "launch"), [5, 5, 4, 2], "{}", said.errors);
}

#[test]
fn calls_of_many_threads_are_all_counted() {
    let programs = Programs::new();
    let program = programs.linked("threads");
    let said = run(programs.preloaded(&program).env("XSCHED_LOG_LEVEL", "debug"));
    assert_eq!(said.output, "done\n");
    assert_eq!(counted(&said.errors, "launch"), [1 + 3 * 40 * 100], "{}", said.errors);
}

#[test]
fn preload_adds_no_thread_or_descriptor() {
    let programs = Programs::new();
    same(&programs, "quiet", &[]);
    same(&programs, "quiet", &["use HIP"]);
}

#[test]
fn programs_without_hip_are_unchanged() {
    let programs = Programs::new();
    for arguments in [&["true"][..], &["bash", "-c", ":"], &["python3", "-c", "pass"]] {
        let [program, arguments @ ..] = arguments else { unreachable!("the lists above are not empty") };
        let mut command = programs.preloaded(program);
        // The variables are not checked before HIP is used.
        command.args(arguments).env("XSCHED_SCHEDULER", "nobody").env("XSCHED_LOG_LEVEL", "trace");
        let log = programs.path().join("log");
        let said = run(command.env("XSCHED_LOG_FILE", &log));
        assert_eq!((said.output.as_str(), said.errors.as_str(), said.status), ("", "", Some(0)), "{program}");
        assert!(!log.exists(), "{program} makes no log file");
    }
}

#[test]
fn disabled_library_is_inert() {
    let programs = Programs::new();
    let program = programs.linked("linked");
    let native = run(&mut programs.command(&program));
    let disabled = |program: &Path| {
        let mut command = programs.preloaded(program);
        command.env("XSCHED_DISABLE", "1").env("XSCHED_LOG_LEVEL", "trace").env("XSCHED_SCHEDULER", "nobody");
        command
    };
    assert_eq!(run(&mut disabled(&program)), native);

    let program = programs.compile("lookups", &[]);
    let native = run(programs.command(&program).arg("libamdhip64.so.5"));
    assert_eq!(run(disabled(&program).arg("libamdhip64.so.5")), native);
}

#[test]
fn environment_of_the_start_counts() {
    let programs = Programs::new();
    let program = programs.linked("cleared");
    let said = run(programs.preloaded(&program).env("XSCHED_LOG_LEVEL", "debug"));
    assert_eq!(counted(&said.errors, "launch"), [1], "{}", said.errors);
}
