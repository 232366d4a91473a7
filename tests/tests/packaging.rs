//! The distributed files: the libraries and glibc versions that they may need, and an uninstall that leaves no file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tests::{product, workspace};

/// Longer than anything here takes.
const LIMIT: &str = "120";

/// Runs a command of the source tree for a limited time.
fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "10", LIMIT]).arg(workspace().join(program)).current_dir(workspace());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Compiles a library from this C text.
fn library(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let (file, library) = (directory.join(format!("{name}.c")), directory.join(format!("lib{name}.so")));
    fs::write(&file, source).expect("a source file");
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&file)
        .args(arguments)
        .output()
        .expect("cc");
    assert!(cc.status.success(), "{}", text(&cc));
    library
}

fn check_needs(library: &Path) -> Output {
    limited("scripts/check-needs").arg(library).output().expect("scripts/check-needs")
}

/// `__libc_start_main` has a version of glibc 2.34 in that and later ones.
const NEWER: &str = "int __libc_start_main(void); int use(void) { return __libc_start_main(); }";
const OLD: &str = "#include <unistd.h>\nint use(void) { return getpid(); }";

#[test]
fn a_newer_symbol_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = check_needs(&library(directory.path(), "old", OLD, &[]));
    assert!(old.status.success(), "{}", text(&old));
    assert!(text(&old).ends_with("1 passed, 0 failed\n"), "{}", text(&old));

    let newer = check_needs(&library(directory.path(), "newer", NEWER, &[]));
    assert!(!newer.status.success(), "{}", text(&newer));
    assert!(text(&newer).contains("it needs GLIBC_2.34"), "{}", text(&newer));
    assert!(text(&newer).ends_with("0 passed, 1 failed\n"), "{}", text(&newer));
}

#[test]
fn another_library_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    library(directory.path(), "other", "int other(void) { return 1; }", &[]);
    let folder = format!("-L{}", directory.path().display());
    let source = "int other(void); int use(void) { return other(); }";
    let uses = check_needs(&library(directory.path(), "uses", source, &[&folder, "-lother", "-lc"]));
    assert!(!uses.status.success(), "{}", text(&uses));
    assert!(text(&uses).contains("libother.so"), "{}", text(&uses));
    assert!(text(&uses).ends_with("0 passed, 1 failed\n"), "{}", text(&uses));
}

/// The linker lets a library be without a function; a program that calls it ends.
#[test]
fn a_symbol_that_no_library_has_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = "#include <unistd.h>\nint absent(void); int use(void) { return absent() + getpid(); }";
    let uses = check_needs(&library(directory.path(), "uses", source, &[]));
    assert!(!uses.status.success() && text(&uses).contains("it needs absent"), "{}", text(&uses));
    let weak = source.replace("int absent", "__attribute__((weak)) int absent");
    let uses = check_needs(&library(directory.path(), "weak", &weak, &[]));
    assert!(uses.status.success(), "{}", text(&uses));
}

#[test]
fn file_that_is_no_library_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let output = check_needs(file.path());
    assert!(!output.status.success() && text(&output).ends_with("0 passed, 1 failed\n"), "{}", text(&output));
}

/// A program linked against the directory of scripts/old-glibc binds old versions, runs here, runs its constructors, and its stack
/// can be unwound.
#[test]
fn programs_linked_for_the_old_glibc_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let glibc = directory.path().join("glibc");
    let made = limited("scripts/old-glibc").arg(&glibc).output().expect("scripts/old-glibc");
    assert!(made.status.success(), "{}", text(&made));
    let source = directory.path().join("program.c");
    fs::write(
        &source,
        "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/stat.h>\n#include <unwind.h>\n\
         static int begun;\n\
         __attribute__((constructor)) static void begin(void) { begun = 1; }\n\
         static void end(void) { puts(\"end\"); }\n\
         static void *thread(void *argument) { return argument; }\n\
         static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *count) {\n\
           (void)context; ++*(int *)count; return _URC_NO_REASON; }\n\
         __attribute__((noinline)) static int frames(void) {\n\
           int count = 0; _Unwind_Backtrace(frame, &count); return count; }\n\
         int main(void) {\n\
           struct stat status; pthread_t id;\n\
           if (atexit(end) || pthread_create(&id, 0, thread, 0) || pthread_join(id, 0)) return 1;\n\
           if (stat(\"/\", &status) || !S_ISDIR(status.st_mode)) return 2;\n\
           if (frames() < 3) return 3;\n\
           printf(\"begun %d\\n\", begun); return 0;\n\
         }\n",
    )
    .expect("a source file");
    let program = directory.path().join("program");
    let cc = Command::new("cc")
        .arg(format!("-B{}", glibc.display()))
        .arg(format!("-L{}", glibc.display()))
        .args(["-static-libgcc", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-lpthread")
        .output()
        .expect("cc");
    assert!(cc.status.success(), "{}", text(&cc));
    let needs = check_needs(&program);
    assert!(needs.status.success(), "{}", text(&needs));
    let run = Command::new("timeout").arg(LIMIT).arg(&program).output().expect("the program");
    assert_eq!((run.status.code(), text(&run).as_str()), (Some(0), "begun 1\nend\n"));
}

/// A directory like an unpacked archive, with few files.
fn archive(directory: &Path, files: &[&str]) -> PathBuf {
    let archive = directory.join("archive");
    let _ = fs::remove_dir_all(&archive);
    for file in ["bin/xcli", "lib/libshimhip.so.0", "include/xsched/xsched.h", "share/giveway/install"]
        .iter()
        .chain(files)
    {
        let file = archive.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(&file, "ours").expect("a file");
    }
    symlink("libshimhip.so.0", archive.join("lib/libshimhip.so")).expect("a link");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(archive.join("bin/xcli"), mode).expect("a mode");
    fs::copy(workspace().join("packaging/install"), archive.join("share/giveway/install"))
        .expect("the script");
    archive
}

/// Everything below a directory, sorted.
fn tree(directory: &Path) -> Vec<String> {
    let output = Command::new("find").arg(directory).args(["-mindepth", "1", "-printf", "%P\n"]).output();
    let mut lines: Vec<String> = text(&output.expect("find")).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn install(archive: &Path, prefix: &Path, more: &[&str]) -> Output {
    let mut command = limited("packaging/install");
    command.arg("--from").arg(archive).arg("--prefix").arg(prefix).args(more).env("PATH", "/usr/bin:/bin");
    // Without DESTDIR root's own loader cache would be renewed.
    command.args(["--destdir", "/"]).output().expect("packaging/install")
}

#[test]
fn an_installation_removes_what_it_put_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    fs::create_dir_all(prefix.join("lib")).expect("a folder");
    fs::write(prefix.join("lib/other.so"), "another's").expect("a file");
    let before = tree(&prefix);

    let archive_ = archive(directory.path(), &["lib/gone.so", "share/old/page"]);
    let done = install(&archive_, &prefix, &[]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(
        fs::read_link(prefix.join("lib/libshimhip.so")).expect("a link"),
        Path::new("libshimhip.so.0")
    );
    assert!(prefix.join("lib/gone.so").is_file());
    // Again, of a version that has fewer files.
    let done = install(&archive(directory.path(), &[]), &prefix, &[]);
    assert!(done.status.success(), "{}", text(&done));
    assert!(!prefix.join("lib/gone.so").exists(), "a file that the new version has not");

    fs::write(prefix.join("include/xsched/mine.h"), "another's").expect("a file");
    let done = install(&archive_, &prefix, &["--uninstall"]);
    assert!(done.status.success(), "{}", text(&done));
    let mut expected = before;
    expected.extend(["include", "include/xsched", "include/xsched/mine.h"].map(str::to_owned));
    expected.sort();
    assert_eq!(tree(&prefix), expected);
    let again = install(&archive_, &prefix, &["--uninstall"]);
    assert!(!again.status.success() && text(&again).contains("nothing to remove"), "{}", text(&again));
}

#[test]
fn a_prefix_that_the_installation_made_goes_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    let archive = archive(directory.path(), &[]);
    assert!(install(&archive, &prefix, &[]).status.success());
    assert!(prefix.join("bin/xcli").exists());
    assert!(install(&archive, &prefix, &["--uninstall"]).status.success());
    assert!(!prefix.exists(), "{:?}", tree(&prefix));
}

#[test]
fn foreign_file_is_not_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    fs::create_dir_all(prefix.join("bin")).expect("a folder");
    fs::write(prefix.join("bin/xcli"), "another's").expect("a file");
    let before = tree(&prefix);
    let refused = install(&archive(directory.path(), &[]), &prefix, &[]);
    assert!(!refused.status.success() && text(&refused).contains("bin/xcli exists"), "{}", text(&refused));
    assert_eq!(tree(&prefix), before);
    assert_eq!(fs::read_to_string(prefix.join("bin/xcli")).expect("a file"), "another's");
}

#[test]
fn a_changed_list_removes_nothing_outside_of_the_prefix() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    let archive = archive(directory.path(), &[]);
    assert!(install(&archive, &prefix, &[]).status.success());
    let outside = directory.path().join("outside");
    fs::write(&outside, "another's").expect("a file");
    let list = prefix.join("share/giveway/installed");
    let text_before = fs::read_to_string(&list).expect("the list");
    fs::write(&list, format!("{text_before}file ../outside\n")).expect("the list");
    let refused = install(&archive, &prefix, &["--uninstall"]);
    assert!(!refused.status.success() && outside.exists(), "{}", text(&refused));
    assert!(prefix.join("bin/xcli").exists(), "nothing is removed");
}

#[test]
fn installing_builds_nothing() {
    let nothing = tempfile::tempdir().expect("a directory");
    let output = limited("scripts/make-install")
        .env("CARGO_TARGET_DIR", nothing.path())
        .args(["--prefix", "/usr/local", "--destdir"])
        .arg(nothing.path().join("root"))
        .output()
        .expect("scripts/make-install");
    assert!(!output.status.success() && text(&output).contains("make build"), "{}", text(&output));
    assert_eq!(tree(nothing.path()), [""; 0]);
}

#[test]
fn systemd_accepts_the_installed_units() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    let units = "lib/systemd/system";
    let archive = archive(directory.path(), &["bin/xserver", &format!("{units}/giveway.socket")]);
    let names = ["giveway.service", "giveway-metrics.service", "giveway.socket"];
    for name in names {
        let from = if name.ends_with(".service") { format!("{name}.in") } else { name.to_owned() };
        let from = workspace().join("packaging/systemd").join(from);
        fs::copy(from, archive.join(units).join(name)).expect("a unit");
    }
    // Verification wants programs that can be run.
    for program in ["xserver", "xcli"] {
        fs::copy("/bin/true", archive.join("bin").join(program)).expect("a program");
    }
    let done = install(&archive, &prefix, &[]);
    assert!(done.status.success(), "{}", text(&done));
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, "systemd-analyze"]).args(arguments).current_dir(prefix.join(units));
        command.output().expect("systemd-analyze")
    };
    let paths = names.map(|name| format!("./{name}"));
    let [service, metrics, socket] = paths.each_ref().map(String::as_str);
    let verified = analyze(&["verify", "--man=no", service, metrics, socket]);
    // A warning, such as about an unknown key, does not change the exit code.
    assert!(verified.status.success() && text(&verified).is_empty(), "{}", text(&verified));
    // In tenths: 0 is the least that a service can do to the machine, 100 the most.
    for service in [service, metrics] {
        let secure = analyze(&["security", "--offline=true", "--threshold=20", service]);
        assert!(secure.status.success(), "{}", text(&secure));
    }
}

/// What `make install` puts below a prefix, from this build.
fn staged(directory: &Path) -> PathBuf {
    let build = product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}"));
    let prefix = directory.join("prefix");
    let mut stage = limited("scripts/stage");
    let done = stage.arg(build.parent().expect("a folder")).arg(&prefix).output().expect("scripts/stage");
    assert!(done.status.success(), "{}", text(&done));
    prefix
}

/// `find_package(XSched)` with the targets that XSched's own package has.
#[test]
fn cmake_project_for_xsched_builds_and_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = staged(directory.path());
    let source = workspace().join("tests/dist/linked.c");
    let project = format!(
        "cmake_minimum_required(VERSION 3.14)\nproject(linked C)\nfind_package(XSched 1.0 REQUIRED)\n\
         add_executable(linked {})\ntarget_link_libraries(linked PRIVATE XSched::preempt XSched::halhip)\n",
        source.display()
    );
    fs::write(directory.path().join("CMakeLists.txt"), project).expect("a project");
    let build = directory.path().join("build");
    let cmake = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, "cmake"]).args(arguments).current_dir(directory.path());
        let output = command.output().expect("cmake");
        assert!(output.status.success(), "{}", text(&output));
    };
    cmake(&["-S", ".", "-B", "build", &format!("-DCMAKE_PREFIX_PATH={}", prefix.display())]);
    cmake(&["--build", "build"]);
    let output = Command::new(build.join("linked")).output().expect("the program");
    assert!(text(&output).starts_with("linked: no such queue"), "{}", text(&output));
}

/// XSched's Python bindings open these two libraries by ctypes, and look all functions up in them.
#[test]
fn libraries_of_xscheds_python_bindings_have_all_functions() {
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = staged(directory.path());
    let script = "import ctypes, sys\n\
                  from giveway._library import FUNCTIONS\n\
                  for path in sys.argv[1:]:\n    \
                      library = ctypes.CDLL(path)\n    \
                      assert not [name for name in FUNCTIONS if not hasattr(library, name)], path\n    \
                      assert library.XQueueQuery(ctypes.c_uint64(12345), ctypes.byref(ctypes.c_int())) != 0\n";
    let libraries = ["libpreempt.so", "libhalhip.so"].map(|name| prefix.join("lib").join(name));
    let mut python = Command::new("python3");
    python.args(["-c", script]).args(&libraries).env("PYTHONPATH", workspace().join("python/src"));
    let output = python.output().expect("python3");
    assert!(output.status.success(), "{}", text(&output));
}
