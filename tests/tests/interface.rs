//! The C interface: programs that are linked against `libshimhip.so` and call it, on the simulated GPU.

use std::process::Command;

use tests::{Finished, Gpu, linked_program, program_behind_the_runtime, workspace};

fn run(folder: &str, name: &str, describe: impl FnOnce(tests::Run) -> tests::Run) -> Finished {
    let program = linked_program(folder, name).unwrap_or_else(|reason| panic!("{reason}"));
    let gpu = Gpu::take();
    describe(gpu.run_executable(&program)).finish()
}

#[test]
fn every_function_does_what_its_header_says() {
    let run = run("tests/interface", "c_interface", |run| run);
    run.expect_success();
    // The library logs each of these lines once, however often the program calls the function.
    for line in [
        "XHintPriority: 1000 is out of range; 255 is used instead",
        "XHintUtilization: -1 is out of range; 0 is used instead",
        "XHintTimeslice: 99 is out of range; 100 is used instead",
        "XHintLaxity: 256 is out of range; 255 is used instead",
        "XHintDeadline: -2 is out of range; -1 is used instead",
        "XHintKDeadline: 0 is out of range; 1 is used instead",
        "XHintArrival: -2 is out of range; -1 is used instead",
        "XHintCap: 0 is out of range; 1 is used instead",
    ] {
        let function = &line[..line.find(':').expect("a name")];
        let said: Vec<&str> = run.stderr.lines().filter(|said| said.contains(function)).collect();
        assert!(said.len() == 1 && said[0].ends_with(line), "{said:?}");
    }
    assert!(run.stderr.contains("is returned and keeps level 1"), "{}", run.stderr);
}

/// A call that can be deferred returns while its queue is suspended, also with the smallest window.
#[test]
fn deferrable_call_on_suspended_queue_returns() {
    run("tests/interface", "deferral", |run| run).expect_success();
    run("tests/interface", "deferral", |run| run.env("XSCHED_AUTO_XQUEUE_THRESHOLD", "1")).expect_success();
}

/// Hints for parts of a program and for new streams; what finds and describes XQueues.
#[test]
fn parts_and_new_streams_have_their_own_hints() {
    for env in [("XSCHED_LOG_LEVEL", "warn"), ("XSCHED_TEST", "defer")] {
        run("tests/interface", "parts", |run| run.env(env.0, env.1)).expect_success();
    }
}

/// The C++ headers, also where streams have queues by themselves, where the library is off, and with a small window.
#[test]
fn cpp_headers_do_what_they_say() {
    let deferred = [("XSCHED_TEST", "defer"), ("XSCHED_AUTO_XQUEUE_THRESHOLD", "1")];
    let said = |name: &str, arguments: &[&str], env: &[(&str, &str)]| {
        let run = run("tests/interface", name, |run| {
            let run = arguments.iter().fold(run, |run, argument| run.arg(*argument));
            env.iter().fold(run, |run, (name, value)| run.env(name, value))
        });
        run.expect_success();
        run.stdout
    };
    said("queue", &["--auto"], &[("XSCHED_AUTO_XQUEUE", "ON")]);
    for name in ["queue", "scheduler"] {
        said(name, &["--off"], &[("XSCHED_DISABLE", "1")]);
        let expected = said(name, &[], &[]);
        for env in deferred {
            assert_eq!(said(name, &[], &[env]), expected, "{name} with {env:?}");
        }
    }
}

/// A plug-in or a Python module opens the library, and nothing is preloaded.
#[test]
fn library_that_is_opened_without_a_preload_works() {
    let program = tests::c_program("tests/interface", "opened").unwrap_or_else(|reason| panic!("{reason}"));
    let library = tests::product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}"));
    for order in ["first", "last"] {
        let gpu = Gpu::take();
        let run = gpu.run_executable(&program).arg(library.display().to_string());
        let run = run.arg("libamdhip64.so.5").arg(order).finish();
        assert_eq!((run.code, run.stdout.as_str()), (0, "passed\n"), "{run:?}");
    }
}

/// Linked in the wrong order, a program's calls of HIP do not pass through the library, which it says once.
#[test]
fn program_that_is_linked_in_the_wrong_order_is_told() {
    let build = |name: &str, build: fn(&str, &str) -> Result<std::path::PathBuf, String>| {
        build("tests/interface", name).unwrap_or_else(|reason| panic!("{reason}"))
    };
    for (program, told) in
        [(build("hints", program_behind_the_runtime), 1), (build("hints", linked_program), 0)]
    {
        let gpu = Gpu::take();
        let finished = gpu.run_executable(&program).arg("30").finish();
        assert_eq!(finished.code, 0, "{finished:?}");
        let warnings = finished.stderr.matches("the HIP runtime comes before it").count();
        assert_eq!(warnings, told, "{finished:?}");
    }
}

/// The scheduler inside the process goes by HIP's priority of a stream, and without another one all run together.
#[test]
fn priorities_of_streams_decide_inside_a_process() {
    let said = |arguments: &[&str], policy: &str| {
        let finished = run("tests/interface", "stream_priorities", |run| {
            let run = arguments.iter().fold(run, |run, argument| run.arg(*argument));
            run.env("XSCHED_AUTO_XQUEUE", "ON").env("XSCHED_POLICY", policy)
        });
        assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{finished:?}");
        finished.stdout
    };
    assert_eq!(said(&[], "HPF"), "high first\n");
    assert_eq!(said(&["equal"], "HPF"), "low first\n");
    assert_eq!(said(&[], "FAIR"), "low first\n", "a policy that does not go by priority");
}

/// A thread that waits inside the runtime does not keep other queues from being seen idle.
#[test]
fn idleness_is_seen_beside_a_wait_for_another_stream() {
    run("tests/interface", "idle_beside_wait", |run| run).expect_success();
}

/// The smallest window; everything deferred.
#[test]
fn the_environment_does_not_change_that() {
    for env in [("XSCHED_AUTO_XQUEUE_THRESHOLD", "1"), ("XSCHED_TEST", "defer")] {
        run("tests/interface", "c_interface", |run| run.env(env.0, env.1)).expect_success();
    }
}

#[test]
fn a_library_that_is_switched_off_says_so() {
    let run = run("tests/interface", "c_interface", |run| run.arg("--off").env("XSCHED_DISABLE", "1"));
    run.expect_success();
}

/// Hardware queues of the own process, by both mechanisms.
#[test]
fn hardware_queues_are_taken_off_and_put_back() {
    for mechanism in ["update-queue", "debug-trap"] {
        run("tests/interface", "kfd_interface", |run| run.env("XSCHED_KFD_MECHANISM", mechanism))
            .expect_success();
    }
}

/// A process that waits for all its children opens a session on one of them.
#[test]
fn hardware_queues_of_a_child_are_taken_off_and_its_end_is_its_parents_to_hear() {
    run("tests/interface", "kfd_other", |run| run).expect_success();
}

/// A further context's queues cannot be told from the others.
#[test]
fn with_a_further_context_nothing_is_held() {
    for mechanism in ["update-queue", "debug-trap"] {
        run("tests/interface", "kfd_further", |run| run.env("XSCHED_KFD_MECHANISM", mechanism))
            .expect_success();
    }
}

/// Whatever waits for queues at the end finds them released, if nothing is scheduled as well.
#[test]
fn the_end_of_a_process_releases_what_it_has_suspended() {
    for mechanism in ["update-queue", "debug-trap"] {
        for word in ["early", "late"] {
            run("tests/interface", "kfd_exit", |run| run.arg(word).env("XSCHED_KFD_MECHANISM", mechanism))
                .expect_success();
        }
    }
}

/// Where the driver would wait for running kernels, and where it is switched off, nothing is taken off.
#[test]
fn hardware_queues_stay_where_holds_are_refused() {
    let refused = |run: tests::Run| run.arg("--refused");
    run("tests/interface", "kfd_interface", |run| refused(run).sim_flag("--no-cwsr")).expect_success();
    run("tests/interface", "kfd_interface", |run| refused(run).env("XSCHED_KFD_MECHANISM", "off"))
        .expect_success();
}

#[test]
fn the_cpp_headers_compile_without_warnings_by_another_compiler() {
    for standard in ["c++17", "c++20"] {
        for header in ["queue", "scheduler"] {
            let compiled = Command::new("g++")
                .current_dir(workspace())
                .arg(format!("-std={standard}"))
                .args([
                    "-D__HIP_PLATFORM_AMD__",
                    "-Wall",
                    "-Wextra",
                    "-Wpedantic",
                    "-Werror",
                    "-fsyntax-only",
                ])
                .args(["-I", "include", "-include", &format!("include/giveway/{header}.hpp"), "-x", "c++"])
                .arg("/dev/null")
                .output()
                .expect("g++");
            assert!(compiled.status.success(), "{header}: {}", String::from_utf8_lossy(&compiled.stderr));
        }
    }
}

#[test]
fn the_headers_are_c_and_need_no_hip() {
    for standard in ["c99", "c17"] {
        let compiled = Command::new("cc")
            .current_dir(workspace())
            .arg(format!("-std={standard}"))
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", "include"])
            .arg("tests/interface/headers.c")
            .output()
            .expect("a C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }
}
