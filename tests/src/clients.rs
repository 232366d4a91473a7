//! Programs of others on HIP, by way of small scripts in `tests/clients`: natively and with the library, compared. What they
//! submit is counted twice, by the runtime's own log natively and by `xcli list` with the library.
//!
//! A client says `step NAME` when the device has done a step, and goes on when it is told to. Meanwhile the test looks at
//! the counts. Of programs that know no steps the sums are counted, which the library logs at their end.

mod counts;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::conformance::{Beside, Rival};
use crate::program::Program;
use crate::{Daemon, Gpu, Installed, Run, Running, Runtime as _, code_object, product, workspace};
use counts::{Listed, Submitted, listed, logged, totals};

/// A client, with the number of its devices and what observes it.
#[derive(Debug)]
pub struct Client {
    /// Its name, for people and for the command line.
    pub name: &'static str,
    /// The file of `tests/clients` without its extension.
    script: &'static str,
    /// The words after the script.
    args: &'static [&'static str],
    /// Further variables.
    env: &'static [(&'static str, &'static str)],
    /// The release of HIP that it is linked with.
    hip: u32,
    counted: Counted,
    /// True if it must launch graphs natively, false if it must not, none if it does as it likes.
    graphs: Option<bool>,
    observer: Option<Observer>,
    /// The number of devices.
    gpus: u32,
}

/// When its commands are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// At its steps.
    AtSteps,
    /// Once, when it has ended.
    AtEnd,
}

/// What observes a client while it runs. At each step the client prints what the observer has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observer {
    /// An auditor (LD_AUDIT), which counts calls of HIP.
    Auditor,
    /// A tool of ROCr (HSA_TOOLS_LIB), which counts the packets that launch a kernel.
    Packets,
}

/// All of them.
pub const CLIENTS: &[Client] = &[
    Client::of("triton_add"),
    Client::of("cupy_steps"),
    Client::of("onnx_steps"),
    Client::of("cupy_workers"),
    Client::of("cupy_loader"),
    Client::of("hip_python"),
    Client::of("tinygrad_steps"),
    Client::of("jax_steps"),
    Client { name: "jax_two_devices", gpus: 2, ..Client::of("jax_steps") },
    Client { name: "cupy_audited", observer: Some(Observer::Auditor), ..Client::of("cupy_steps") },
    Client { name: "cupy_packets", observer: Some(Observer::Packets), ..Client::of("cupy_steps") },
    Client::of("bitsandbytes_steps"),
    Client { args: &["/usr/libexec/rocm/libhiprand1-tests/test_hiprand_api"], ..tests_of("hiprand_tests") },
    Client { args: &[RCCL, RCCL_TESTS], env: RCCL_ENV, ..tests_of("rccl_tests") },
    Client { args: &[RCCL, RCCL_TESTS_OF_TWO], env: RCCL_ENV, gpus: 2, ..tests_of("rccl_two_devices") },
    LLAMA_BENCH,
    Client { name: "llama_bench_no_graphs", graphs: Some(false), env: NO_GRAPHS, ..LLAMA_BENCH },
    LLAMA_SERVER,
    Client { name: "llama_server_no_graphs", graphs: Some(false), env: NO_GRAPHS, ..LLAMA_SERVER },
];

/// Unit tests that come compiled.
const fn tests_of(name: &'static str) -> Client {
    Client { name, counted: Counted::AtEnd, ..Client::of("gtest") }
}

const RCCL: &str = "/usr/libexec/rocm/librccl1-tests/rccl-UnitTests";
/// Two of its 83 tests, one with several streams. Each loads 1.2 GB of kernels in several processes, so all of them in all ways would take
/// hours. One rank copies instead of launching kernels, so the results are right.
const RCCL_TESTS: &str = "--gtest_filter=AllReduce.OutOfPlace:GroupCall.Multistream";
/// Communicators of two ranks, of which no kernel is launched: the simulated device does not execute RCCL's.
const RCCL_TESTS_OF_TWO: &str =
    "--gtest_filter=Standalone.SplitComms_RankCheck:Standalone.CommCuDevice_Check";
/// RCCL refuses to start without the first on this runtime. One type and one operation, all ranks in one process, and no limit of time,
/// so that no verdict depends on it.
const RCCL_ENV: &[(&str, &str)] = &[
    ("HSA_NO_SCRATCH_RECLAIM", "1"),
    ("UT_DATATYPES", "ncclFloat32"),
    ("UT_REDOPS", "ncclSum"),
    ("UT_PROCESS_MASK", "1"),
    ("UT_TIMEOUT_US", "1000000000"),
];

/// llama.cpp, which the distribution links with HIP 6.
const LLAMA_SERVER: Client = Client { hip: 6, graphs: Some(true), ..Client::of("llama_server") };
const LLAMA_BENCH: Client =
    Client { hip: 6, graphs: Some(true), counted: Counted::AtEnd, ..Client::of("llama_bench") };

/// llama.cpp launches each kernel by itself.
const NO_GRAPHS: &[(&str, &str)] = &[("GGML_CUDA_DISABLE_GRAPHS", "1")];

impl Client {
    const fn of(script: &'static str) -> Client {
        let counted = Counted::AtSteps;
        Client {
            name: script,
            script,
            args: &[],
            env: &[],
            hip: 7,
            counted,
            graphs: None,
            observer: None,
            gpus: 1,
        }
    }

    /// Returns true if it can run on this release of HIP.
    pub fn runs_on(&self, hip: u32) -> bool {
        self.hip == hip
    }

    /// Returns the client of this name.
    ///
    /// # Errors
    /// There is none; the sentence names those that there are.
    pub fn find(name: &str) -> Result<&'static Client, String> {
        let found = CLIENTS.iter().find(|client| client.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
            format!("there is no client {name}, only {}", names.join(", "))
        })
    }
}

/// For how long one may take: some compile all their kernels the first time.
const LIMIT: Duration = Duration::from_secs(1200);

/// One of the library's ways.
#[derive(Debug)]
struct Way {
    name: &'static str,
    /// `XSCHED_TEST`.
    test: Option<&'static str>,
    /// True if every command is deferred.
    defers: bool,
    /// The urgent program beside the client, if there is one.
    rival: Option<Beside>,
}

const WAYS: [Way; 5] = [
    Way { name: "scheduled", ..Way::PLAIN },
    Way { name: "deferred", test: Some("defer"), defers: true, ..Way::PLAIN },
    Way { name: "suspended at random", test: Some("chaos:1"), ..Way::PLAIN },
    Way { name: "beside an urgent program", rival: Some(Way::beside("1")), ..Way::PLAIN },
    Way { name: "beside an urgent program at level 3", rival: Some(Way::beside("3")), ..Way::PLAIN },
];

impl Way {
    const PLAIN: Way = Way { name: "", test: None, defers: false, rival: None };

    const fn beside(level: &'static str) -> Beside {
        Beside { level, parameters: &[] }
    }
}

/// The programs and folders that a client run needs.
#[derive(Debug)]
pub struct Clients {
    python: PathBuf,
    /// Its libraries and settings, that of the compilers' caches included.
    env: Vec<(String, String)>,
    /// The auditor that counts calls.
    auditor: PathBuf,
    /// The tool that counts packets.
    packets: PathBuf,
    home: TempDir,
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
    /// There is no place for temporary files, or the kernels cannot be compiled.
    pub fn new(python: PathBuf, mut env: Vec<(String, String)>) -> Result<Clients, String> {
        let home = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        let kernels = code_object("examples/kernels", "giveway_kernels")?;
        let auditor = Installed.build(&Program::find("audit_calls")?)?;
        let packets = Installed.build(&Program::find("packets_tool")?)?;
        env.push(("GIVEWAY_KERNELS".to_owned(), kernels.display().to_string()));
        env.push(("HOME".to_owned(), home.path().display().to_string()));
        env.push(("TRITON_CACHE_DIR".to_owned(), home.path().join("triton").display().to_string()));
        Ok(Clients { python, env, auditor, packets, home })
    }

    /// Compares one in all ways, says a line for each, and returns how many passed and failed.
    ///
    /// # Errors
    /// There is no client of this name.
    pub fn compare(&self, name: &str, mut say: impl FnMut(&str)) -> Result<(u32, u32), String> {
        let client = Client::find(name)?;
        let native = match self.native(client) {
            Ok(native) => native,
            Err(reason) => {
                say(&format!("FAILED {name}, natively: {reason}"));
                return Ok((0, 1));
            }
        };
        for line in native.output.lines() {
            say(&format!("       {line}"));
        }
        let launched = native.steps.last().is_some_and(|(_, submitted)| submitted.graphs > 0);
        if client.graphs.is_some_and(|graphs| graphs != launched) {
            let what = if launched { "launched graphs" } else { "launched no graph" };
            say(&format!("FAILED {name}, natively: it {what}, so this comparison would be another one"));
            return Ok((0, 1));
        }
        let (mut passed, mut failed) = (0, 0);
        for way in &WAYS {
            let what = format!("{name}, {}", way.name);
            match self.shimmed(client, way).and_then(|shimmed| judge(&native, &shimmed, way.defers)) {
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
        Ok((passed, failed))
    }

    fn run(&self, client: &Client) -> Result<Run, String> {
        let script = workspace().join("tests/clients").join(client.script).with_extension("py");
        let mut run = Run::of_executable(&self.python).limit(LIMIT);
        run.sim = sim(client);
        run = self.env.iter().fold(run, |run, (name, value)| run.env(name, value));
        run = client.env.iter().fold(run, |run, (name, value)| run.env(name, value));
        run = match client.observer {
            None => run,
            Some(Observer::Auditor) => {
                let run = run.env("LD_AUDIT", &self.auditor.display().to_string());
                run.env("GIVEWAY_AUDIT", &self.file()?.display().to_string())
            }
            Some(Observer::Packets) => run.env("HSA_TOOLS_LIB", &self.packets.display().to_string()),
        };
        run = run.arg(script.display().to_string());
        Ok(client.args.iter().fold(run, |run, word| run.arg(*word)))
    }

    /// A new file, for one run.
    fn file(&self) -> Result<PathBuf, String> {
        let file = tempfile::NamedTempFile::new_in(self.home.path());
        let kept = file.and_then(|file| file.keep().map_err(|error| error.error));
        kept.map(|(_, path)| path).map_err(|error| format!("cannot make a file: {error}"))
    }

    /// Without the library, twice: what compiles and measures its kernels in its first run does other things in later ones.
    fn native(&self, client: &Client) -> Result<Ended<Submitted>, String> {
        let _gpu = Gpu::take();
        follow(self.run(client)?.start(), client.counted, || Ok(()))?;
        let logs = self.home.path().join("logs").join(client.name);
        fs::create_dir_all(&logs).map_err(|error| format!("cannot make a folder: {error}"))?;
        let run = self.run(client)?.env("AMD_LOG_LEVEL", "3").env("AMD_LOG_MASK", "1");
        let run = run.env("AMD_LOG_LEVEL_FILE", &logs.join("log").display().to_string());
        follow(run.start(), client.counted, || logged(&logs))
    }

    /// As `xcli run` starts it, beside a server.
    fn shimmed(&self, client: &Client, way: &Way) -> Result<Ended<Listed>, String> {
        let (gpu, xcli) = (Gpu::take(), product("xcli")?);
        let mut run = self.run(client)?;
        if let Some(test) = way.test {
            run = run.env("XSCHED_TEST", test);
        }
        let log = self.file()?;
        if client.counted == Counted::AtEnd {
            run = run.env("XSCHED_LOG_LEVEL", "debug").env("XSCHED_LOG_FILE", &log.display().to_string());
        }
        let look = |socket: &Path| match client.counted {
            Counted::AtSteps => listed(&xcli, socket),
            Counted::AtEnd => totals(&log),
        };
        let enter = |socket: &Path, options: &[&str]| {
            let mut words = vec![xcli.clone(), "-a".into(), socket.into(), "run".into()];
            words.extend(options.iter().map(PathBuf::from));
            words.push("--".into());
            words
        };
        let Some(beside) = way.rival else {
            let server = Daemon::start(&[]);
            run.enter = enter(&server.socket(), &[]);
            return follow(run.start(), client.counted, || look(&server.socket()));
        };
        let rival = Rival::start(&gpu, &sim(client), beside, &Installed)?.limit(LIMIT);
        let socket = rival.server().socket();
        run.enter = enter(&socket, &["--priority", "-10", "--level", beside.level]);
        let ended = follow(rival.device(run).start(), client.counted, || look(&socket))?;
        rival.finish()?;
        match ended.steps.last() {
            Some((_, listed)) if listed.preemptions == 0 => Err("it was never suspended".to_owned()),
            _ => Ok(ended),
        }
    }
}

/// The options of `gpu-sim run`.
fn sim(client: &Client) -> Vec<String> {
    ["--vram", "64", "--gpus", &client.gpus.to_string()].map(str::to_owned).to_vec()
}

/// Lets a client go from step to step and looks after each, or at its end.
fn follow<T>(
    mut running: Running,
    counted: Counted,
    mut look: impl FnMut() -> Result<T, String>,
) -> Result<Ended<T>, String> {
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
    if counted == Counted::AtEnd {
        steps.push(("all".to_owned(), look()?));
    }
    Ok(Ended { output, steps })
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
        let graphs = match logged.graphs - before.graphs {
            0 => String::new(),
            graphs => format!("{graphs} graphs, "),
        };
        // A queue may be gone, and its numbers with it.
        let through = listed.commands.saturating_sub(listed_before.commands);
        let deferred = listed.deferred.saturating_sub(listed_before.deferred);
        let queues = listed.queues;
        let suspended = match listed.preemptions.saturating_sub(listed_before.preemptions) {
            0 => String::new(),
            times => format!(", {times} times suspended"),
        };
        let _ = write!(
            said,
            "\n         {step}: {launches} launches, {graphs}{commands} commands; {through} through {queues} XQueues, {deferred} deferred{suspended}"
        );
        wrong |= through != commands || defers && deferred < launches;
        (before, listed_before) = (*logged, *listed);
    }
    match (wrong, before.commands) {
        (true, _) => Err(format!("not all went through XQueues:{said}")),
        (false, 0) => Err(format!("nothing was submitted:{said}")),
        (false, _) => Ok(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_counts_by_itself() {
        let native = |launches: [u64; 2]| {
            let submitted = |launches| {
                let commands = if launches == 0 { 0 } else { launches + 2 };
                Submitted { launches, commands, ..Submitted::default() }
            };
            let steps = launches.map(|launches| (String::new(), submitted(launches))).to_vec();
            Ended { output: "same".to_owned(), steps }
        };
        let shimmed = |commands: [u64; 2], deferred: u64| {
            let listed = |commands| Listed { queues: 1, commands, deferred, preemptions: 0 };
            let steps = commands.map(|commands| (String::new(), listed(commands))).to_vec();
            Ended { output: "same".to_owned(), steps }
        };
        assert!(judge(&native([5, 5]), &shimmed([7, 7], 0), false).is_ok());
        assert!(judge(&native([5, 5]), &shimmed([7, 7], 5), true).is_ok());
        assert!(judge(&native([5, 5]), &shimmed([7, 7], 4), true).unwrap_err().contains("not all"));
        assert!(judge(&native([5, 5]), &shimmed([6, 7], 0), false).unwrap_err().contains("not all"));
        assert!(judge(&native([5, 8]), &shimmed([7, 9], 0), false).unwrap_err().contains("not all"));
        assert!(judge(&native([0, 0]), &shimmed([0, 0], 0), false).unwrap_err().contains("nothing"));
        let other = Ended { output: "other".to_owned(), ..shimmed([7, 7], 0) };
        assert!(judge(&native([5, 5]), &other, false).unwrap_err().contains("other"));
    }
}
