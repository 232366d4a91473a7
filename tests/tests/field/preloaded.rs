//! A library that the dynamic loader refuses, and `xcli run` that tries it first. No GPU is needed.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tests::stage::text;
use tests::{product, until};

/// A folder with libraries that were compiled for it.
struct Libraries(tempfile::TempDir);

impl Libraries {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn compile(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let (file, library) = (self.path("source.c"), self.path(name));
        fs::write(&file, source).expect("a source");
        let mut cc = Command::new("cc");
        cc.current_dir(self.0.path()).args(["-shared", "-fPIC", "-nostdlib", "-o"]).arg(&library).arg(&file);
        let made = cc.args(options).output().expect("cc");
        assert!(made.status.success(), "{}", text(&made.stderr));
        library
    }

    /// One that needs a C library which nobody has yet: the loader ends each program that it is preloaded into.
    fn too_new(&self) -> PathBuf {
        fs::write(self.path("versions"), "GLIBC_2.99 { global: newer; };").expect("a version script");
        let script = ["-Wl,-soname,libc.so.6", "-Wl,--version-script,versions"];
        self.compile("libc.so.6", "void newer(void) {}", &script);
        let source = "void newer(void); void XQueueCreate(void) { newer(); }";
        self.compile("libnew.so", source, &["-L.", "-l:libc.so.6"])
    }
}

fn xcli(words: &[&str], folder: &Libraries) -> Command {
    let mut command = Command::new(product("xcli").unwrap_or_else(|reason| panic!("{reason}")));
    command.env("XSCHED_SOCKET", folder.path("xserver.sock")).env_remove("LD_PRELOAD").args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn finish(mut command: Command) -> Output {
    let mut child = command.spawn().expect("it starts");
    until("it ends", || child.try_wait().ok().flatten());
    child.wait_with_output().expect("its output")
}

/// Lines but the one that says that there is no GPU.
fn lines(output: &Output) -> Vec<&str> {
    text(&output.stderr).lines().filter(|line| !line.contains("no AMD GPU")).collect()
}

fn is_unscheduled(library: &Path, folder: &Libraries, why: &str) {
    let named = library.display().to_string();
    let program = ["--", "sh", "-c", "echo ran \"$LD_PRELOAD\"; exit 7"];
    let words = [&["run", "--library", &named][..], &program].concat();
    let output = finish(xcli(&words, folder));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "ran \n"), "{output:?}");
    let said = lines(&output);
    assert!(said.len() == 1 && said[0].contains(why), "{said:?}");
    assert!(said[0].contains("runs unscheduled") && said[0].contains("--strict"), "{said:?}");
    let words = [&["run", "--strict", "--library", &named][..], &program].concat();
    let output = finish(xcli(&words, folder));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), ""), "{output:?}");
    assert!(lines(&output)[0].contains(why), "{output:?}");
}

#[test]
fn f5_a_library_for_a_newer_system_leaves_the_program_unscheduled() {
    let folder = Libraries::new();
    let library = folder.too_new();
    // What a bare LD_PRELOAD does.
    let mut bare = Command::new("true");
    let bare = bare.env("LD_PRELOAD", &library).output().expect("a process");
    assert!(!bare.status.success() && text(&bare.stderr).contains("GLIBC_2.99"), "{bare:?}");
    is_unscheduled(&library, &folder, "version `GLIBC_2.99' not found");
}

#[test]
fn f5_what_is_no_library_leaves_the_program_unscheduled() {
    let folder = Libraries::new();
    fs::write(folder.path("libtext.so"), "not a library").expect("a file");
    is_unscheduled(&folder.path("libtext.so"), &folder, "cannot be preloaded");
}

/// A parent that ignores SIGCHLD has its children reaped by the kernel: the trial then has no exit status to look at.
#[test]
fn f5_the_library_is_preloaded_where_children_are_not_waited_for() {
    let folder = Libraries::new();
    let library = product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}"));
    let mut command = xcli(&["run", "--policy", "HPF", "--", "sh", "-c", "echo $LD_PRELOAD"], &folder);
    let ignore = || {
        // SAFETY: a call that is allowed between fork and exec, with a disposition that needs no function.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: the closure makes only that call.
    unsafe { command.pre_exec(ignore) };
    let output = finish(command);
    assert_eq!(text(&output.stdout).trim_end(), library.display().to_string(), "{output:?}");
    assert_eq!(lines(&output), [""; 0]);
}
