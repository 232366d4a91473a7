//! The examples print what their texts say, on the simulated GPU, and something else if their effect is taken away.

use std::path::{Path, PathBuf};

use tests::{Finished, Gpu, example_program, linked_program, product, workspace};

/// How often an effect that depends on the load of the machine is looked for.
const ATTEMPTS: usize = 5;

/// Runs an example's program, or the script beside it that starts the program.
fn run(program: &Path, script: Option<&Path>, arguments: &[&str]) -> Finished {
    let gpu = Gpu::take();
    let run = match script {
        None => gpu.run_executable(program),
        Some(script) => gpu.run_executable(script).arg(program.display().to_string()),
    };
    // The script finds xcli and xserver by their names.
    let programs = product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    let programs = programs.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let run = run.env("PATH", &format!("{programs}:{path}"));
    let finished = arguments.iter().fold(run, |run, argument| run.arg(*argument)).finish();
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
