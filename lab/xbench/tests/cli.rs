//! Output and exit codes of the program where there is no GPU, real or simulated.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// Held while a program file is written and while a process is started: a child forked by another test in
/// between would inherit the open file, and the kernel refuses to execute a file that somebody has open for
/// writing.
static FORK: Mutex<()> = Mutex::new(());

/// Runs to the end.
fn run(command: &mut Command) -> Output {
    let _guard = FORK.lock().unwrap();
    command.output().unwrap()
}

/// The program, outside gpu-sim whatever the test itself runs under.
fn xbench(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_remove("GPU_SIM_PID").env_remove("LD_PRELOAD");
    command
}

const XBENCH: &str = env!("CARGO_BIN_EXE_xbench");

/// The one line that a failed run leaves on stderr.
fn sentence(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty());
    text.trim_end().to_owned()
}

#[test]
fn sim_outside_gpu_sim_reports_the_command_to_type() {
    let output = run(xbench(XBENCH).args(["sim", "--no-spawn"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(sentence(&output).ends_with("must run under it: gpu-sim run -- xbench sim"));
}

#[test]
fn wrong_input_is_exit_code_2() {
    for arguments in [&["sim", "--fast"][..], &["simulate"], &[]] {
        let output = run(xbench(XBENCH).args(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let output = run(xbench(XBENCH).arg("sim").env("GPU_SIM_PID", "many"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(sentence(&output), r#"xbench: GPU_SIM_PID is "many", which is no process id"#);
}

#[test]
fn missing_runtime_is_one_sentence() {
    // Files of the runtime's names that are no libraries, found before any installed one.
    let directory = tempfile::tempdir().unwrap();
    for suffix in [".7", ".6", ".5", ""] {
        fs::write(directory.path().join(format!("libamdhip64.so{suffix}")), "no ELF").unwrap();
    }
    let output = run(xbench(XBENCH)
        .arg("sim")
        .env("GPU_SIM_PID", std::process::id().to_string())
        .env("LD_LIBRARY_PATH", directory.path()));
    assert_eq!(output.status.code(), Some(1));
    let sentence = sentence(&output);
    assert!(sentence.starts_with("xbench: no HIP runtime found: install libamdhip64"), "{sentence}");
}

/// A copy of the program with a `gpu-sim` of `script` beside it.
fn beside(directory: &Path, script: &str) -> PathBuf {
    let _guard = FORK.lock().unwrap();
    let (program, gpu_sim) = (directory.join("xbench"), directory.join("gpu-sim"));
    fs::copy(XBENCH, &program).unwrap();
    fs::write(&gpu_sim, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&gpu_sim, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn replay_with_a_rate_refuses_a_pause() {
    let output = run(xbench(XBENCH).args(["replay", "none.json", "--rate=1", "--think-us=1"]));
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("'--think-us <US>'") && told.contains("'--rate <R>'"), "{told}");
}

#[test]
fn sim_restarts_under_the_gpu_sim_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let program = beside(directory.path(), "echo \"$@\"; exit 77");
    let output = run(xbench(&program).args(["sim", "--quick"]));
    // The exit code is gpu-sim's, 77 for missing rights included.
    assert_eq!(output.status.code(), Some(77));
    let arguments = String::from_utf8(output.stdout).unwrap();
    assert_eq!(arguments, format!("run -- {} sim --no-spawn --quick\n", program.display()));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("starting again as: gpu-sim run -- xbench sim"), "{told}");
}

#[test]
fn gpu_sim_that_does_not_announce_itself_causes_no_loop() {
    let directory = tempfile::tempdir().unwrap();
    let program = beside(directory.path(), "shift 2; exec \"$@\"");
    let output = run(xbench(&program).arg("sim"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 2);
}

#[test]
fn simulation_has_the_same_bytes_for_the_same_seed() {
    let bytes = |seed: &str| {
        let output = run(xbench(XBENCH).args([
            "policy-sim",
            "two-models",
            "--json",
            "--duration",
            "2",
            "--seed",
            seed,
        ]));
        assert_eq!(output.status.code(), Some(0));
        // How fast the simulation was is no part of its figures.
        assert!(String::from_utf8(output.stderr).unwrap().contains(" million a second"));
        output.stdout
    };
    let first = bytes("1");
    assert!(first == bytes("1") && first != bytes("2"));
    let figures: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(figures["policies"][0]["clients"][0]["name"], "urgent");
}

#[test]
fn invalid_workload_is_one_line_and_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let shown = run(xbench(XBENCH).args(["policy-sim", "--show", "mm1"]));
    let text = String::from_utf8(shown.stdout).unwrap();
    let wrong = |text: &str, option: &[&str]| {
        fs::write(&file, text).unwrap();
        let output = run(xbench(XBENCH).arg("policy-sim").arg(&file).args(option));
        assert_eq!(output.status.code(), Some(2), "{text}");
        sentence(&output)
    };
    let place = format!("xbench: {} is no workload: ", file.display());
    assert_eq!(
        wrong(&text.replace("per_s = 300", "per_s = -1"), &[]),
        format!("{place}client \"high\": arrivals: per_s = -1 is not in 0.001..1000000")
    );
    let line = text.lines().position(|line| line.starts_with("slo_ms")).unwrap() + 1;
    let expected = format!("{place}line {line}: unknown field `slo`");
    assert!(wrong(&text.replace("slo_ms", "slo"), &[]).starts_with(&expected));
    assert!(wrong(&text, &["--policy", "FIFO"]).starts_with("xbench: no policy \"FIFO\" in this build"));
    assert_eq!(
        wrong(&text, &["--policy", "LAX", "--set", "slack-us=5"]),
        "xbench: --set: no policy here has a parameter \"slack-us\" (there is none at all)"
    );
    assert!(
        wrong(&text, &["--policy", "HPF slack-us=5"]).starts_with("xbench: HPF: no parameter \"slack-us\"")
    );
    assert_eq!(wrong(&text, &["--set", "slack-us=x"]), "xbench: --set: \"slack-us=x\" is not a name=number");
    assert_eq!(wrong(&text, &["--duration", "0"]), "xbench: --duration = 0 is not in 0.001..86400");
    let refused = |words: &[&str]| {
        let output = run(xbench(XBENCH).args(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (option, why) in
        [("--seed", "invalid digit"), ("--starvation-ms", "invalid digit"), ("--level", "-1 is not in 1..=3")]
    {
        let said = refused(&["policy-sim", "mm1", option, "-1"]);
        assert!(said.starts_with("error: invalid value '-1' for") && said.contains(why), "{said}");
    }
    assert!(refused(&["policy-sim", ""]).starts_with("xbench: no workload \"\""));
    assert_eq!(wrong(&text, &["--duration", "-1"]), "xbench: --duration = -1 is not in 0.001..86400");
    assert_eq!(wrong(&text, &["--save-us", "-1"]), "xbench: save_us = -1 is not in 0..1000000");
    let output = run(xbench(XBENCH).args(["policy-sim", "mm2"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(sentence(&output).starts_with("xbench: no workload \"mm2\""));
}

#[test]
fn plot_is_written_to_the_given_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plot.svg");
    let plot = |workload: &str| {
        run(xbench(XBENCH).args(["policy-sim", workload, "--duration", "1", "--plot"]).arg(&file))
    };
    assert_eq!(plot("two-models").status.code(), Some(0));
    assert!(fs::read_to_string(&file).unwrap().contains(">HPF: "));
    // Nobody there is critical.
    assert_eq!(plot("shares").status.code(), Some(2));
    // What cannot be written is told before anything is simulated.
    let output = run(xbench(XBENCH).args(["policy-sim", "mm1", "--plot"]).arg(directory.path()));
    assert_eq!(output.status.code(), Some(1));
    assert!(sentence(&output).starts_with("xbench: cannot write "));
}
