//! Builds the library, null runtimes and the C programs, and runs programs with and without the preload.
//!
//! `cargo test` does not build a cdylib, so the library is built here by cargo, once in a test binary.

#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "../../../lab/xbench/null-runtime/compile.rs"]
mod compile;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Returns the path of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds the library, and returns its path.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // `make test` and scripts/test-old-kernel have built it. Built alone it has other features of its crates, so
        // cargo would build most of it again; and under the emulation of an old kernel it must not run.
        if ["GIVEWAY_TEST_BUILT", "GIVEWAY_TEST_KERNEL"].iter().any(|name| std::env::var_os(name).is_some()) {
            let own = std::env::current_exe().expect("this program");
            let library = own.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("libshimhip.so");
            assert!(library.exists(), "{}: run `cargo build --workspace` first", library.display());
            return library;
        }
        let output = Command::new(env!("CARGO"))
            .args(["build", "--package", "shim", "--lib", "--message-format", "json"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8(output.stdout).expect("cargo's messages are UTF-8");
        let artifact = messages
            .split('"')
            .rfind(|text| text.ends_with("/libshimhip.so"))
            .expect("cargo names libshimhip.so among the files it has built");
        PathBuf::from(artifact)
    })
}

/// A directory with null runtimes and compiled programs, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Programs {
    directory: tempfile::TempDir,
}

impl Programs {
    /// Makes the directory with the null runtimes of 5.2.3 and 7.2.4.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for release in ["5.2.3", "7.2.4"] {
            compile::compile(&root(), release, directory.path()).expect("the null runtime compiles");
        }
        Self { directory }
    }

    /// Returns the directory's path.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles `tests/programs/NAME.c`, with more arguments for the compiler.
    pub(crate) fn compile(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let program = self.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let output = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .arg(format!("-L{}", self.path().display()))
            .args(arguments)
            .output()
            .expect("a C compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Compiles a program that is linked against the null runtime of 5.2.3.
    pub(crate) fn linked(&self, name: &str) -> PathBuf {
        self.compile(name, &["-l:libamdhip64.so.5"])
    }

    /// Makes a command in a clean environment in which the null runtimes are found.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LD_LIBRARY_PATH", self.path());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// Makes such a command with the library preloaded.
    pub(crate) fn preloaded(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(program);
        command.env("LD_PRELOAD", library());
        command
    }
}

/// The output and the status of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) status: Option<i32>,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    Said {
        output: String::from_utf8(stdout).expect("UTF-8"),
        errors: String::from_utf8(stderr).expect("UTF-8"),
        status: status.code(),
    }
}

/// Returns the counts of a class in the lines at the end of processes.
pub(crate) fn counted(errors: &str, class: &str) -> Vec<u64> {
    errors
        .lines()
        .filter_map(|line| line.strip_prefix("xsched: debug: calls "))
        .filter_map(|counts| {
            let counts = counts.split(' ').filter_map(|count| count.split_once('='));
            counts.filter(|(name, _)| *name == class).find_map(|(_, count)| count.parse().ok())
        })
        .collect()
}
