//! The examples print what their texts say, on the simulated GPU, and something else if their effect is taken away.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::{Finished, Gpu, Run, code_object, example_program, linked_program, product, workspace};

/// How often an effect that depends on the load of the machine is looked for.
const ATTEMPTS: usize = 5;

/// Adds what a script needs to find xcli and xserver by their names, and arguments.
fn with_programs(run: Run, arguments: &[&str]) -> Run {
    let programs = product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    let programs = programs.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let run = run.env("PATH", &format!("{programs}:{path}"));
    arguments.iter().fold(run, |run, argument| run.arg(*argument))
}

/// Runs an example's program, or the script beside it that starts the program.
fn run(program: &Path, script: Option<&Path>, arguments: &[&str]) -> Finished {
    let gpu = Gpu::take();
    let run = match script {
        None => gpu.run_executable(program),
        Some(script) => gpu.run_executable(script).arg(program.display().to_string()),
    };
    let finished = with_programs(run, arguments).finish();
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{finished:?}");
    finished
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
    let run = || python("5_inference_serving", &["--requests", "6"]);
    let has_all = |said: &String| expected.iter().all(|line| stable(said).contains(line));
    let said: Vec<_> = (0..ATTEMPTS).map(|_| run()).take_while(|said| !has_all(said)).collect();
    assert!(said.len() < ATTEMPTS, "{said:?}");
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
