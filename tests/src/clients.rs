//! Programs of others on HIP, by way of small scripts in `tests/clients`: natively and with the library, compared. What they
//! submit is counted twice, by the runtime's own log natively and by `xcli list` with the library.
//!
//! A client says `step NAME` when the device has done a step, and goes on when it is told to. Meanwhile is looked.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Daemon, Gpu, Run, Running, kernel, product, workspace};

/// All of them, files of `tests/clients`.
pub const CLIENTS: &[&str] = &["triton_add", "cupy_steps", "onnx_steps"];

/// For how long one may take: some compile all their kernels the first time.
const LIMIT: Duration = Duration::from_secs(1200);
/// For how long a program may owe the server its numbers.
const ANSWERS: Duration = Duration::from_secs(60);

/// One of the library's ways.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// `XSCHED_TEST`.
    test: Option<&'static str>,
    /// True if every command is deferred.
    defers: bool,
}

const WAYS: [Way; 3] = [
    Way { name: "scheduled", test: None, defers: false },
    Way { name: "deferred", test: Some("defer"), defers: true },
    Way { name: "suspended at random", test: Some("chaos:1"), defers: false },
];

/// The programs and folders that a client run needs.
#[derive(Debug)]
pub struct Clients {
    python: PathBuf,
    /// Its libraries and settings, that of the compilers' caches included.
    env: Vec<(String, String)>,
    home: TempDir,
}

/// The work that a client has submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Submitted {
    /// Calls that launch a kernel.
    launches: u64,
    /// All that is work of a stream: these, copies, fills, events, waits.
    commands: u64,
}

/// The sums over all queues in `xcli list`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Listed {
    queues: usize,
    /// Commands launched.
    commands: u64,
    /// Of these, deferred.
    deferred: u64,
}

/// A run to its end.
#[derive(Debug)]
struct Ended<T> {
    /// Exit code and standard output.
    output: String,
    /// The reading after each step.
    steps: Vec<(String, T)>,
}

impl Clients {
    /// With this Python and these further variables.
    ///
    /// # Errors
    /// There is no place for temporary files.
    pub fn new(python: PathBuf, env: Vec<(String, String)>) -> Result<Clients, String> {
        let home = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        Ok(Clients { python, env, home })
    }

    /// Compares one in all ways, says a line for each, and returns how many passed and failed.
    pub fn compare(&self, name: &str, mut say: impl FnMut(&str)) -> (u32, u32) {
        let native = match self.native(name) {
            Ok(native) => native,
            Err(reason) => {
                say(&format!("FAILED {name}, natively: {reason}"));
                return (0, 1);
            }
        };
        for line in native.output.lines() {
            say(&format!("       {line}"));
        }
        let (mut passed, mut failed) = (0, 0);
        for way in &WAYS {
            let what = format!("{name}, {}", way.name);
            match self.shimmed(name, way).and_then(|shimmed| judge(&native, &shimmed, way.defers)) {
                Ok(counts) => {
                    say(&format!("ok     {what}:{counts}"));
                    passed += 1;
                }
                Err(reason) => {
                    say(&format!("FAILED {what}: {reason}"));
                    failed += 1;
                }
            }
        }
        (passed, failed)
    }

    fn run(&self, name: &str) -> Run {
        let script = workspace().join("tests/clients").join(name).with_extension("py");
        let home = self.home.path();
        let mut run = Run::of_executable(&self.python).sim("--vram", 64).limit(LIMIT);
        run = run.env("HOME", &home.display().to_string());
        run = run.env("TRITON_CACHE_DIR", &home.join("triton").display().to_string());
        run = self.env.iter().fold(run, |run, (name, value)| run.env(name, value));
        run.arg(script.display().to_string())
    }

    /// Without the library, twice: what compiles and measures its kernels in its first run does other things in later ones.
    fn native(&self, name: &str) -> Result<Ended<Submitted>, String> {
        let _gpu = Gpu::take();
        follow(self.run(name).start(), || Ok(()))?;
        let logs = self.home.path().join("logs").join(name);
        fs::create_dir_all(&logs).map_err(|error| format!("cannot make a folder: {error}"))?;
        let run = self.run(name).env("AMD_LOG_LEVEL", "3").env("AMD_LOG_MASK", "1");
        let run = run.env("AMD_LOG_LEVEL_FILE", &logs.join("log").display().to_string());
        follow(run.start(), || logged(&logs))
    }

    /// As `xcli run` starts it, beside a server.
    fn shimmed(&self, name: &str, way: &Way) -> Result<Ended<Listed>, String> {
        let (_gpu, xcli, server) = (Gpu::take(), product("xcli")?, Daemon::start(&[]));
        let mut run = self.run(name);
        run.enter = vec![xcli.clone(), "-a".into(), server.socket(), "run".into(), "--".into()];
        if let Some(test) = way.test {
            run = run.env("XSCHED_TEST", test);
        }
        follow(run.start(), || listed(&xcli, &server.socket()))
    }
}

/// Lets a client go from step to step and looks after each.
fn follow<T>(mut running: Running, mut look: impl FnMut() -> Result<T, String>) -> Result<Ended<T>, String> {
    let mut steps = Vec::new();
    while let Some(line) = running.next_line(LIMIT)? {
        if let Some(step) = line.strip_prefix("step ") {
            steps.push((step.to_owned(), look()?));
            running.answer();
        }
    }
    let finished = running.try_finish()?;
    let output = format!("{}exit code {}", finished.stdout, finished.code);
    if finished.code != 0 {
        return Err(format!("{output}\n{}", finished.stderr));
    }
    Ok(Ended { output, steps })
}

/// Reads the runtime's log, which has one file for each process.
fn logged(folder: &Path) -> Result<Submitted, String> {
    let cannot = |error| format!("cannot read the runtime's log: {error}");
    let mut all = String::new();
    for entry in fs::read_dir(folder).map_err(cannot)?.flatten() {
        all.push_str(&String::from_utf8_lossy(&fs::read(entry.path()).map_err(cannot)?));
    }
    Ok(submitted(&all))
}

/// Counts the calls in a log of the runtime's. A call's line ends so: `25297871706 us:  \x1b[32m hipMalloc ( 0x7ff, 4 ) \x1b[0m`;
/// what it returned stands in another one.
fn submitted(log: &str) -> Submitted {
    const OTHERS: [&str; 7] = [
        "hipMemcpy",
        "hipMemset",
        "hipEventRecord",
        "hipStreamWaitEvent",
        "hipGraphLaunch",
        "hipLaunchHostFunc",
        "hipStreamAddCallback",
    ];
    let mut seen = Submitted::default();
    for (_, call) in log.lines().filter_map(|line| line.split_once(" us: ")) {
        let Some((name, _)) = call.split_once(" (") else { continue };
        let name = name.trim_start().trim_start_matches("\x1b[32m").trim_start();
        let launches = name.starts_with("hip") && name.contains("Launch") && name.contains("Kernel");
        seen.launches += u64::from(launches);
        seen.commands += u64::from(launches || OTHERS.iter().any(|other| name.starts_with(other)));
    }
    seen
}

/// Reads `xcli list` once every client has answered and nothing is deferred.
fn listed(xcli: &Path, socket: &Path) -> Result<Listed, String> {
    let until = Instant::now() + ANSWERS;
    loop {
        let mut command = kernel::command(xcli);
        command.arg("-a").arg(socket).args(["list", "--json"]);
        let answer = command.output().map_err(|error| format!("cannot run {}: {error}", xcli.display()))?;
        let list: Value = serde_json::from_slice(&answer.stdout)
            .map_err(|error| format!("xcli list: {error}\n{}", String::from_utf8_lossy(&answer.stderr)))?;
        if let Some(listed) = settled(&list) {
            return Ok(listed);
        }
        if Instant::now() >= until {
            return Err(format!("xcli list does not come to rest: {list:#}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn settled(list: &Value) -> Option<Listed> {
    let mut listed = Listed::default();
    for client in list["clients"].as_array()? {
        client["fresh"].as_bool().filter(|fresh| *fresh)?;
        for queue in client["queues"].as_array()? {
            let count = |name: &str| queue["counts"][name].as_u64();
            count("pending").filter(|pending| *pending == 0)?;
            listed.queues += 1;
            listed.commands += count("direct")? + count("deferred")?;
            listed.deferred += count("deferred")?;
        }
    }
    Some(listed)
}

/// Compares both runs: the same output and the same work, all of it through queues. Returns how much work that was.
fn judge(native: &Ended<Submitted>, shimmed: &Ended<Listed>, defers: bool) -> Result<String, String> {
    if native.output != shimmed.output {
        return Err(format!("another output:\n{}", shimmed.output));
    }
    let (mut before, mut listed_before) = (Submitted::default(), Listed::default());
    let (mut said, mut wrong) = (String::new(), false);
    for ((step, logged), (_, listed)) in native.steps.iter().zip(&shimmed.steps) {
        let (launches, commands) = (logged.launches - before.launches, logged.commands - before.commands);
        // A queue may be gone, and its numbers with it.
        let through = listed.commands.saturating_sub(listed_before.commands);
        let deferred = listed.deferred.saturating_sub(listed_before.deferred);
        let queues = listed.queues;
        let _ = write!(
            said,
            "\n         {step}: {launches} launches, {commands} commands; {through} through {queues} XQueues, {deferred} deferred"
        );
        wrong |= through != commands || defers && deferred < launches;
        (before, listed_before) = (*logged, *listed);
    }
    match (wrong, before.launches) {
        (true, _) => Err(format!("not all went through XQueues:{said}")),
        (false, 0) => Err(format!("nothing was launched:{said}")),
        (false, _) => Ok(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_are_counted_and_what_they_return_is_not() {
        let log = "\
:3:   :0   : 25297871708 us:  \x1b[32m hipGetProcAddress ( hipModuleLaunchKernel, 0x7f2cec0b8868 ) \x1b[0m
:3:   :0   : 25297871709 us:  \x1b[32m hipModuleLaunchKernel ( 0x1, 98, 1, 1 ) \x1b[0m
:3:   :0   : 25297871710 us:  hipModuleLaunchKernel: Returned hipSuccess :\x20
:3:   :0   : 25297871711 us:  \x1b[32m hipExtModuleLaunchKernel ( 0x1, 98 ) \x1b[0m
:3:   :0   : 25297871712 us:  \x1b[32m hipMemcpyAsync ( 0x1, 98 ) \x1b[0m
:3:   :0   : 25297871713 us:  \x1b[32m hipLaunchHostFunc ( 0x1 ) \x1b[0m
:3:   :0   : 25297871714 us:  \x1b[32m hipStreamSynchronize ( 0x1 ) \x1b[0m
:3:   :0   : 25297871715 us:  Forcing SPIRV: false
";
        assert_eq!(submitted(log), Submitted { launches: 2, commands: 4 });
    }

    fn list(fresh: bool, pending: u64) -> Value {
        let counts = |direct, deferred| json!({"pending": pending, "direct": direct, "deferred": deferred});
        let queues = [json!({"counts": counts(3, 4)}), json!({"counts": counts(10, 0)})];
        json!({"clients": [{"fresh": fresh, "queues": queues}]})
    }

    #[test]
    fn a_list_counts_when_everybody_has_answered_and_nothing_is_held_back() {
        assert_eq!(settled(&list(true, 0)), Some(Listed { queues: 2, commands: 17, deferred: 4 }));
        assert_eq!(settled(&list(true, 1)), None);
        assert_eq!(settled(&list(false, 0)), None);
        assert_eq!(settled(&json!({"clients": []})), Some(Listed::default()));
    }

    #[test]
    fn each_step_counts_by_itself() {
        let native = |launches: [u64; 2]| {
            let submitted = |launches| Submitted { launches, commands: launches + 2 };
            let steps = launches.map(|launches| (String::new(), submitted(launches))).to_vec();
            Ended { output: "same".to_owned(), steps }
        };
        let shimmed = |commands: [u64; 2], deferred: u64| {
            let listed = |commands| Listed { queues: 1, commands, deferred };
            let steps = commands.map(|commands| (String::new(), listed(commands))).to_vec();
            Ended { output: "same".to_owned(), steps }
        };
        assert!(judge(&native([5, 5]), &shimmed([7, 7], 0), false).is_ok());
        assert!(judge(&native([5, 5]), &shimmed([7, 7], 5), true).is_ok());
        assert!(judge(&native([5, 5]), &shimmed([7, 7], 4), true).unwrap_err().contains("not all"));
        assert!(judge(&native([5, 5]), &shimmed([6, 7], 0), false).unwrap_err().contains("not all"));
        assert!(judge(&native([5, 8]), &shimmed([7, 9], 0), false).unwrap_err().contains("not all"));
        assert!(judge(&native([0, 0]), &shimmed([2, 2], 0), false).unwrap_err().contains("nothing"));
        let other = Ended { output: "other".to_owned(), ..shimmed([7, 7], 0) };
        assert!(judge(&native([5, 5]), &other, false).unwrap_err().contains("other"));
    }
}
