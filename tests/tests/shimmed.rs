//! Every program natively and with `libshimhip.so` in front of it: same exit code, same output, same messages.
//!
//! Each program is one test: it runs once natively and then once in each of [`MODES`]. Compared are the exit code,
//! stdout, and stderr without [`OF_THE_RUNTIME`]. The library's own lines go to a file; their counts show that the mode
//! did what it is there for, because a run that counts nothing proves nothing.
//!
//! A mode is one row.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use tests::{Finished, Gpu, Run};

/// One way of having the library in front of a program.
struct Mode {
    name: &'static str,
    /// Besides the two variables that make the library write its counts into a file.
    env: &'static [(&'static str, &'static str)],
    /// Words of the counts (`launch=12`) whose sum over all processes of a program must not be zero. None: the library
    /// must not say anything at all.
    counts: &'static [&'static str],
    /// Whether it may say more than its counts, which without the file would stand on stderr.
    warns: bool,
}

const QUEUES: (&str, &str) = ("XSCHED_AUTO_XQUEUE", "ON");

const MODES: &[Mode] = &[
    Mode { name: "preloaded", env: &[], counts: &["launch", "copy", "memset"], warns: false },
    Mode { name: "inert", env: &[("XSCHED_DISABLE", "1")], counts: &[], warns: false },
    Mode { name: "queues", env: &[QUEUES], counts: &["direct", "deferred", "forced"], warns: true },
    Mode {
        name: "defer",
        env: &[QUEUES, ("XSCHED_TEST", "defer")],
        counts: &["deferred", "forced"],
        warns: true,
    },
    Mode { name: "chaos", env: &[QUEUES, ("XSCHED_TEST", "chaos:1")], counts: &["suspensions"], warns: true },
    Mode {
        name: "local",
        env: &[QUEUES, ("XSCHED_POLICY", "HPF")],
        counts: &["direct", "deferred"],
        warns: true,
    },
];

/// Parts of the lines that AMD's libraries write to stderr by themselves.
const OF_THE_RUNTIME: &[&str] = &[
    // libdrm, twice: the simulated render node lacks what only a real one has.
    "amdgpu_get_auth",
    // ROCr, as a debug build: natively as well, and how often depends on how far the device was when the host waited.
    "Use of non-host signal in host signal wait API",
];

/// How a run comes to its end.
#[derive(Clone, Copy)]
enum End {
    /// The program says "ok" and ends.
    Itself,
    /// It says "ready" and is killed; it has then counted, but cannot say so.
    Killed,
}

/// One test for each program, with what it needs, and the list of them.
macro_rules! programs {
    ($($name:ident => $end:expr, $describe:expr;)+) => {
        $(#[test]
        fn $name() {
            compare(stringify!($name), $end, $describe);
        })+

        const PROGRAMS: &[&str] = &[$(stringify!($name)),+];
    };
}

programs! {
    across => End::Itself, |run| run.arg("0").arg("5");
    callbacks => End::Itself, |run| run;
    copies => End::Itself, |run| run;
    copies_2d => End::Itself, |run| run;
    copies_async => End::Itself, |run| run;
    endless => End::Itself, |run| run.arg("urgent").arg("130");
    errors => End::Itself, |run| run;
    events => End::Itself, |run| run;
    ext_launch => End::Itself, with_code_object;
    fork => End::Itself, |run| run;
    graphs => End::Itself, |run| run;
    host_wait => End::Itself, |run| run;
    kernels => End::Itself, |run| run;
    long_kernel => End::Itself, |run| run;
    many => End::Itself, |run| run;
    memset => End::Itself, |run| run;
    module => End::Itself, with_code_object;
    multi_gpu => End::Itself, |run| run.sim("--gpus", 2).sim("--vram", 64);
    oom => End::Itself, |run| run.sim("--vram", 8);
    queries => End::Itself, |run| run;
    random_order => End::Itself, |run| run.arg("5");
    rounds => End::Itself, |run| run.arg("20").arg("1");
    signals => End::Itself, |run| run.arg("interrupt");
    stay => End::Killed, |run| run.sim("--vram", 64).arg("40");
    // One arena, because several keep more than the program does.
    stream_cycles => End::Itself, |run| run.env("MALLOC_ARENA_MAX", "1");
    streams => End::Itself, |run| run;
    threads => End::Itself, |run| run;
    update_queue => End::Itself, |run| run;
    vram => End::Itself, |run| run.sim("--vram", 64);
}

/// Loaded by other programs, and nothing to run.
const CODE_OBJECTS: &[&str] = &["module_kernels"];

fn with_code_object(run: Run) -> Run {
    let code = tests::code_object("module_kernels").unwrap_or_else(|reason| panic!("{reason}"));
    run.arg(code.display().to_string())
}

#[test]
fn every_program_is_compared() {
    let folder = tests::workspace().join("tests/programs");
    let entries = std::fs::read_dir(&folder).expect("the folder of the programs");
    let mut found: Vec<String> = entries
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension() == Some("hip".as_ref()))
        .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
        .collect();
    found.sort();
    let mut listed = [PROGRAMS, CODE_OBJECTS].concat();
    listed.sort_unstable();
    assert_eq!(found, listed, "left: the programs in tests/programs, right: those that are compared here");
}

fn compare(program: &str, end: End, describe: fn(Run) -> Run) {
    let gpu = Gpu::take();
    let run = |mode| finish(describe(gpu.run(program)).mode(mode), end);
    let native = run(tests::Mode::Native);
    match end {
        End::Itself => {
            native.expect_success();
        }
        End::Killed => assert_eq!((native.code, native.stdout.as_str()), (128 + 9, "ready\n"), "{native:?}"),
    }
    let folder = tempfile::tempdir().expect("a folder for what the library says");
    let mut problems = String::new();
    for mode in MODES {
        let log = folder.path().join(mode.name);
        let shimmed = run(mode.with_log(&log));
        let said = match std::fs::read_to_string(&log) {
            Ok(said) => said,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => panic!("cannot read {}: {error}", log.display()),
        };
        for problem in difference(&native, &shimmed).into_iter().chain(mode.objection(&said, end)) {
            let _ = writeln!(problems, "{program}, {}: {problem}\nthe library said:\n{said}", mode.name);
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

fn finish(run: Run, end: End) -> Finished {
    let mut running = run.start();
    if let End::Killed = end {
        assert_eq!(running.line(), "ready");
        running.kill_program();
    }
    running.finish()
}

impl Mode {
    fn with_log(&self, log: &Path) -> tests::Mode {
        let log = log.display().to_string();
        let env = [("XSCHED_LOG_LEVEL", "debug"), ("XSCHED_LOG_FILE", log.as_str())];
        let env = env.iter().chain(self.env).map(|(name, value)| (name.to_string(), value.to_string()));
        tests::Mode::Shimmed { env: env.collect() }
    }

    /// What is wrong with what the library said.
    fn objection(&self, said: &str, end: End) -> Option<String> {
        if self.counts.is_empty() {
            return (!said.is_empty()).then(|| "it should have said nothing".to_owned());
        }
        if let Some(line) = said.lines().find(|line| !self.warns && !line.starts_with("xsched: debug: ")) {
            return Some(format!("a line that it should not have said: {line}"));
        }
        match end {
            End::Itself => {
                let nothing = self.counts.iter().all(|name| total(said, name) == 0);
                nothing.then(|| format!("{} came to nothing", self.counts.join(" + ")))
            }
            End::Killed => (!said.contains("HIP runtime: ")).then(|| "it never started".to_owned()),
        }
    }
}

/// The sum of `NAME=number` over all lines; each process that used HIP has one.
fn total(said: &str, name: &str) -> u64 {
    let words = said.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(key, _)| *key == name).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// The first thing in which a run differs from the native one.
fn difference(native: &Finished, shimmed: &Finished) -> Option<String> {
    let difference = if shimmed.code != native.code {
        format!("exit code {} instead of {}", shimmed.code, native.code)
    } else if let Some(difference) = first_line("stdout", &native.stdout, &shimmed.stdout) {
        difference
    } else {
        first_line("stderr", &without_the_runtimes(&native.stderr), &without_the_runtimes(&shimmed.stderr))?
    };
    Some(format!("{difference}\nits stdout:\n{}its stderr:\n{}", shimmed.stdout, shimmed.stderr))
}

fn first_line(stream: &str, native: &str, shimmed: &str) -> Option<String> {
    if native == shimmed {
        return None;
    }
    let (mut want, mut got) = (native.split_inclusive('\n'), shimmed.split_inclusive('\n'));
    for number in 1.. {
        match (want.next(), got.next()) {
            (None, None) => break,
            (want, got) if want == got => {}
            (want, got) => return Some(format!("{stream}, line {number}: {got:?} instead of {want:?}")),
        }
    }
    Some(format!("{stream} differs"))
}

fn without_the_runtimes(stderr: &str) -> String {
    let own = |line: &&str| !OF_THE_RUNTIME.iter().any(|part| line.contains(part));
    stderr.split_inclusive('\n').filter(own).collect()
}

#[test]
fn a_difference_is_found() {
    assert_eq!(first_line("stdout", "a\nb\n", "a\nb\n"), None);
    for other in ["", "a\n", "a\nb", "a\nc\n", "a\nb\n\n", "b\na\n"] {
        assert!(first_line("stdout", "a\nb\n", other).is_some(), "{other:?}");
    }
    let said = "xsched: debug: calls launch=0 copy=3\nxsched: debug: calls launch=2 copy=0 relaunch=7\n";
    assert_eq!((total(said, "launch"), total(said, "copy"), total(said, "deferrals")), (2, 3, 0));
}
