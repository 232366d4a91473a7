//! Programs of others on HIP, by way of small scripts in `tests/clients`: natively and with the library, compared. What they
//! submit is counted twice, by the runtime's own log natively and by `xcli list` with the library.
//!
//! A client says `step NAME` when the device has done a step, and goes on when it is told to. Meanwhile the test looks at
//! the counts.

mod counts;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::conformance::{Beside, Rival};
use crate::program::Program;
use crate::{Daemon, Gpu, Installed, Run, Running, Runtime as _, code_object, product, workspace};
use counts::{Listed, Submitted, listed, logged};

/// A client, with the number of its devices and what observes it.
#[derive(Debug)]
pub struct Client {
    /// Its name, for people and for the command line.
    pub name: &'static str,
    /// The file of `tests/clients` without its extension.
    script: &'static str,
    observer: Option<Observer>,
    /// The number of devices.
    gpus: u32,
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
];

impl Client {
    const fn of(script: &'static str) -> Client {
        Client { name: script, script, observer: None, gpus: 1 }
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
        run = match client.observer {
            None => run,
            Some(Observer::Auditor) => {
                // A file of its own for each run.
                let calls = tempfile::NamedTempFile::new_in(self.home.path())
                    .and_then(|file| file.keep().map_err(|error| error.error))
                    .map_err(|error| format!("cannot make a file: {error}"))?;
                let run = run.env("LD_AUDIT", &self.auditor.display().to_string());
                run.env("GIVEWAY_AUDIT", &calls.1.display().to_string())
            }
            Some(Observer::Packets) => run.env("HSA_TOOLS_LIB", &self.packets.display().to_string()),
        };
        Ok(run.arg(script.display().to_string()))
    }

    /// Without the library, twice: what compiles and measures its kernels in its first run does other things in later ones.
    fn native(&self, client: &Client) -> Result<Ended<Submitted>, String> {
        let _gpu = Gpu::take();
        follow(self.run(client)?.start(), || Ok(()))?;
        let logs = self.home.path().join("logs").join(client.name);
        fs::create_dir_all(&logs).map_err(|error| format!("cannot make a folder: {error}"))?;
        let run = self.run(client)?.env("AMD_LOG_LEVEL", "3").env("AMD_LOG_MASK", "1");
        let run = run.env("AMD_LOG_LEVEL_FILE", &logs.join("log").display().to_string());
        follow(run.start(), || logged(&logs))
    }

    /// As `xcli run` starts it, beside a server.
    fn shimmed(&self, client: &Client, way: &Way) -> Result<Ended<Listed>, String> {
        let (gpu, xcli) = (Gpu::take(), product("xcli")?);
        let mut run = self.run(client)?;
        if let Some(test) = way.test {
            run = run.env("XSCHED_TEST", test);
        }
        let enter = |socket: &Path, options: &[&str]| {
            let mut words = vec![xcli.clone(), "-a".into(), socket.into(), "run".into()];
            words.extend(options.iter().map(PathBuf::from));
            words.push("--".into());
            words
        };
        let Some(beside) = way.rival else {
            let server = Daemon::start(&[]);
            run.enter = enter(&server.socket(), &[]);
            return follow(run.start(), || listed(&xcli, &server.socket()));
        };
        let rival = Rival::start(&gpu, &sim(client), beside, &Installed)?;
        let socket = rival.server().socket();
        run.enter = enter(&socket, &["--priority", "-10", "--level", beside.level]);
        let ended = follow(rival.device(run).start(), || listed(&xcli, &socket))?;
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
        let suspended = match listed.preemptions.saturating_sub(listed_before.preemptions) {
            0 => String::new(),
            times => format!(", {times} times suspended"),
        };
        let _ = write!(
            said,
            "\n         {step}: {launches} launches, {commands} commands; {through} through {queues} XQueues, {deferred} deferred{suspended}"
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

    #[test]
    fn each_step_counts_by_itself() {
        let native = |launches: [u64; 2]| {
            let submitted = |launches| Submitted { launches, commands: launches + 2 };
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
        assert!(judge(&native([0, 0]), &shimmed([2, 2], 0), false).unwrap_err().contains("nothing"));
        let other = Ended { output: "other".to_owned(), ..shimmed([7, 7], 0) };
        assert!(judge(&native([5, 5]), &other, false).unwrap_err().contains("other"));
    }
}
