//! `xcli report` without anything to measure: refusals, partial reports, and cleanup after a signal. No GPU
//! is needed.

mod common;

use common::{HANG_GUARD, TestDir, await_some, finish, text};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A copy of xcli in a folder of its own.
struct Installed {
    dir: TestDir,
    xcli: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let dir = TestDir::new();
        for folder in ["bin", "out"] {
            fs::create_dir(dir.path(folder)).unwrap();
        }
        let xcli = dir.path("bin/xcli");
        // Copied by another process: children of other threads inherit our descriptors, and a file open for
        // writing cannot be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_xcli")).arg(&xcli).status().unwrap();
        assert!(copied.success());
        Self { dir, xcli }
    }

    fn file(&self) -> PathBuf {
        self.dir.path("out/report.json")
    }

    fn report(&self, options: &[&str]) -> Command {
        let mut command = self.dir.command(&self.xcli);
        command.arg("report").arg("-o").arg(self.file()).args(options).stdin(Stdio::null());
        command
    }

    /// The files in the folder of the report.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path("out")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

#[test]
fn existing_file_and_missing_terminal_are_refused() {
    let installed = Installed::new();
    let (code, _, said) = finish(&mut installed.report(&["--try-level2"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("hang or reset the GPU") && said.contains("needs --yes"), "{said}");
    assert!(installed.left().is_empty());
    fs::write(installed.file(), "mine").unwrap();
    let (code, _, said) = finish(&mut installed.report(&[]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read_to_string(installed.file()).unwrap(), "mine");
    let (code, ..) = finish(installed.dir.command(&installed.xcli).arg("report"));
    assert_eq!(code, Some(2), "-o is required");
}

#[test]
fn report_is_written_without_measurements() {
    let installed = Installed::new();
    let (code, output, said) = finish(&mut installed.report(&[]));
    assert_eq!((code, output.as_str()), (Some(1), ""), "{said}");
    assert_eq!(installed.left(), ["report.json"]);
    assert!(said.ends_with("report.json; read it before you send it\n"), "{said}");
    let report: Value = serde_json::from_str(&fs::read_to_string(installed.file()).unwrap()).unwrap();
    assert_eq!((&report["complete"], &report["holds"]), (&Value::Bool(false), &Value::from(0)));
    for part in ["devices", "launch_path", "window", "conformance"] {
        let error = report["parts"][part]["error"].as_str().unwrap();
        assert!(error.contains("xbench is missing"), "{error}");
        assert!(said.contains(&format!("xcli: {part}: ")), "{said}");
    }
    assert!(report["parts"]["versions"]["result"]["kernel"].is_string());
    assert!(report["parts"]["doctor"]["result"]["findings"][0]["text"].is_string());
    assert!(report["parts"]["holds"]["skipped"].is_string());
    let folder = installed.dir.path("bin").display().to_string();
    assert!(!report.to_string().contains(&folder), "the folder of xcli is left out");

    let (code, output, _) =
        finish(installed.dir.command(&installed.xcli).args(["report", "-o", "-"]).stdin(Stdio::null()));
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["format"], 1);
}

#[test]
fn signal_leaves_neither_processes_nor_files() {
    let installed = Installed::new();
    // A fake xbench that writes its process id and does not end.
    let (xbench, pid) = (installed.dir.path("bin/xbench"), installed.dir.path("pid"));
    let script =
        format!("#!/bin/sh\necho $$ > '{0}.new' && mv '{0}.new' '{0}' && exec sleep 600\n", pid.display());
    let write = format!("printf %s \"$1\" > '{0}' && chmod 755 '{0}'", xbench.display());
    assert!(Command::new("sh").args(["-c", &write, "sh", &script]).status().unwrap().success());
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut command = installed.report(&[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        reset_sigint(&mut command);
        let mut report = command.spawn().unwrap();
        let measuring = await_some("xbench", || fs::read(&pid).ok());
        let measuring = Pid::from_raw(text(&measuring).trim().parse().unwrap()).unwrap();
        fs::remove_file(&pid).unwrap();
        test_kill_process(measuring).expect("it runs");
        kill_process(Pid::from_child(&report), signal).unwrap();
        assert_eq!(report.wait().unwrap().code(), None, "{signal:?} ended it");
        await_some("the end of what it had started", || {
            // A killed process stays as a zombie until its new parent reaps it.
            let stat = fs::read_to_string(format!("/proc/{}/stat", measuring.as_raw_nonzero()));
            stat.map_or(true, |stat| stat.contains(") Z")).then_some(())
        });
        assert!(installed.left().is_empty(), "{:?} within {HANG_GUARD:?}", installed.left());
    }
}

/// Restores SIGINT, which a shell ignores in background jobs.
fn reset_sigint(command: &mut Command) {
    // env(1) resets the signal and becomes the program.
    let program = command.get_program().to_owned();
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let environment: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    let mut outer = Command::new("env");
    outer.arg("--default-signal=INT").arg(program).args(words);
    outer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for (name, value) in environment {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    *command = outer;
}
